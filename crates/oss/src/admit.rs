//! Admission: the checks of address, capability and slot that every request passes before it is carried out.

use object::slots::{Admission, admit, check_slot, unknown};
use object::{cap, fence};
use store::{Attrs, Done, Origin, Slot};
use types::{Code, Fault, Incarnation, ObjectId, SessionId};
use wire::object::Capability;
use wire::session::{Attach, TargetStat};
use wire::{Header, Request};

use crate::serve::Ctx;
use crate::{Core, SLOT_LOCKS};

impl Core {
    /// Checks that the request addresses this target in its present state. oss-P3: a client that knows an earlier incarnation must first
    /// replay, in order, the requests that may be lost. A new request before that would overtake the replay.
    pub fn check_address(&self, ctx: &Ctx<'_>) -> Result<(), Fault> {
        let head = ctx.head;
        let moved = |what: String| Err(Fault::new(Code::Moved, what));
        if head.fs.0 != 0 && head.fs != ctx.joined.fs {
            return moved(format!(
                "this OST serves file system {}, not {}; fetch the map",
                ctx.joined.fs, head.fs
            ));
        }
        // A standby's seat knows the epoch earlier than the map does, and has compared it (oss-P9).
        if head.epoch.0 != 0 && head.epoch != ctx.joined.epoch && !self.is_standby() {
            let Header { epoch, .. } = head;
            return moved(format!(
                "this mirror is in {}, the request is for {epoch}; fetch the map",
                ctx.joined.epoch
            ));
        }
        let asks_who_we_are = matches!(head.call, Attach::CALL | TargetStat::CALL);
        if asks_who_we_are || head.incarnation == Incarnation(0) || head.incarnation == self.incarnation() {
            return Ok(());
        }
        moved(format!(
            "this OST restarted: it is {}, the request is for {}; attach again and replay",
            self.incarnation(),
            head.incarnation
        ))
    }

    /// oss-P1: checks that the capability gives `right` on `object` to this session.
    pub fn check_cap(
        &self,
        ctx: &Ctx<'_>,
        given: &Capability,
        object: &ObjectId,
        right: u8,
    ) -> Result<(), Fault> {
        cap::check(&ctx.joined.secret, given, object, right, ctx.now_sec)?;
        check_holder(ctx.head, given)
    }

    /// oss-P1, for requests that name no object.
    pub fn check_cap_right(&self, ctx: &Ctx<'_>, given: &Capability, right: u8) -> Result<(), Fault> {
        cap::check_right(&ctx.joined.secret, given, right, ctx.now_sec)?;
        check_holder(ctx.head, given)
    }

    /// oss-P2: carries out a request in its slot once, and answers a repeat from the record. `again` makes the answer for a request so
    /// old that its record is gone.
    pub fn once(
        &self,
        head: &Header,
        again: impl FnOnce() -> Result<u64, Fault>,
        run: impl FnOnce(Option<Origin>) -> Result<Done, Fault>,
    ) -> Result<Done, Fault> {
        let Header { session, slot, sequence, .. } = *head;
        // Sequence 0: the caller declares the request idempotent and uses no slot.
        if sequence == 0 {
            return run(None);
        }
        check_slot(session, slot)?;
        // A repeat that arrives while the first is being carried out waits for it here.
        let _turn = self.slot_locks[slot_lock(session, slot)].lock();
        let last = self.store.slot(session, slot).ok_or_else(|| unknown(session))?;
        let Slot { sequence: done, seq, answer } = last;
        match admit(object::slots::Done { sequence: done, seq, answer }, sequence) {
            Admission::New => {
                let done = run(Some(Origin { session, slot, sequence }))?;
                // A session that ended meanwhile has no slots, or fresh ones if it began again.
                debug_assert!(
                    self.store
                        .slot(session, slot)
                        .is_none_or(|now| now.sequence == sequence || now.sequence == 0),
                    "oss-P2: the slot records a request before it is answered"
                );
                Ok(done)
            }
            Admission::Repeat(done) => {
                assert!(done.sequence == sequence, "oss-P2: a repeat gets the answer of its own request");
                Ok(Done { seq: done.seq, answer: done.answer })
            }
            Admission::Old => Ok(Done { seq: types::Seq(0), answer: again()? }),
        }
    }
}

/// A capability belongs to the session that received it. Those of servers and tools belong to none.
fn check_holder(head: &Header, given: &Capability) -> Result<(), Fault> {
    if cap::is_admin(given) || given.session == head.session {
        return Ok(());
    }
    let detail =
        format!("the capability is session {}'s, not {}'s; open the file again", given.session, head.session);
    Err(Fault::new(Code::Fenced, detail))
}

/// The fence check in the form that the store calls at the moment of the change.
pub fn gate_of<'a>(
    given: &'a Capability,
    object: &'a ObjectId,
) -> impl Fn(&Attrs) -> Result<(), Fault> + Sync + 'a {
    move |attrs| fence::admit(given, object, object::LeaseVersion::from_u64(attrs.lease))
}

/// The lease version that a request leaves at its object; 0 for servers and tools.
pub fn lease_of(given: &Capability) -> u64 {
    match cap::is_admin(given) {
        true => 0,
        false => object::LeaseVersion::of(given).to_u64(),
    }
}

/// The 64 slots of a session get neighbouring locks; sessions with neighbouring ids share none.
fn slot_lock(session: SessionId, slot: u32) -> usize {
    (session.0.wrapping_mul(64).wrapping_add(slot as u64) % SLOT_LOCKS as u64) as usize
}
