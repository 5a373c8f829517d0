//! One request as the rules of `meta` see it: their context, what they may do with open files, and what their reply means.

use std::cell::Cell;

use meta::{Ctx, Judge, Space};
use object::LeaseVersion;
use types::{Code, Fault, Fid, Generation, Key};
use wire::meta::{
    Create, CreateReply, CreateWith, CutOver, FileState, Grow, Migrate, MoveTail, Open, OpenReply, Release,
    Repoint, Tmpfile, Truncate, TruncateReply,
};
use wire::object::Capability;
use wire::shared::{Enter, EnterReply};
use wire::{Flags, Header, Request, Wire};

use crate::Core;
use crate::executor::ask::Ask;
use crate::joined::Joined;
use crate::judge::Judged;
use crate::records::overlay::Overlay;
use crate::reply::parse;
use crate::sessions::below::Seen;
use crate::sessions::shared::{Doom, Others};

/// Validity of a capability. Nothing renews one before there are leases, and a job may hold a file open for weeks. A truncation or an eviction
/// ends access by the lease version, not by this time.
const CAPABILITY_SEC: u64 = 90 * 24 * 3600;

/// A request and the state that its rule needs.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    pub head: &'a Header,
    pub joined: &'a Joined,
    pub judged: Option<&'a Judged>,
    pub space: Space,
    pub doom: &'a Doom<'a>,
    /// The session's root.
    pub root: Option<&'a Seen<'a>>,
}

impl Core {
    /// Calls `f` with the context that rules see.
    pub fn with_ctx<T>(
        &self,
        Around { head, joined, judged, space, doom, root }: Around<'_>,
        lease_high: &Cell<u32>,
        run: &mut dyn FnMut(&Ctx<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let (epoch, replay) = (self.epoch(), head.flags & Flags::REPLAY != 0);
        let make_cap = |fid: Fid, generation: Generation, rights: u8, counter: u32| -> Capability {
            let lease = LeaseVersion { epoch: epoch.0.wrapping_add(lease_high.get()), counter };
            let expiry_sec = self.clock.wall().sec.max(0) as u64 + CAPABILITY_SEC;
            object::cap::make(&joined.secret, fid, generation, rights, lease, head.session, expiry_sec)
        };
        // meta-J2: other capabilities count by their own rights.
        let is_ours = |cap: &Capability| {
            let now_sec = self.clock.wall().sec.max(0) as u64;
            cap.session == head.session && object::cap::check_right(&joined.secret, cap, 0, now_sec).is_ok()
        };
        let judge =
            judged.map(|j| Judge { cred: j.cred.clone(), is_anybody: j.is_anybody, is_ours: &is_ours });
        run(&Ctx {
            judge,
            root: root.map(|root| root as &dyn meta::below::Below),
            session: head.session,
            replay,
            inline_max: self.inline_max(joined),
            ost_mirrors: &joined.ost_mirrors,
            ost_indexes: &joined.ost_indexes,
            draining: &joined.draining,
            shard: joined.shard,
            epoch,
            make_cap: &make_cap,
            sharing: Some(&Others { core: self, session: head.session, lease_high, doom }),
            // A replayed request had space when it was acknowledged.
            space: if replay { Space::AMPLE } else { space },
        })
    }

    /// Runs the rule of a request. The caller is the leader.
    pub fn mutate(
        &self,
        Ask { head, body, bulk, judged, root, .. }: Ask<'_>,
        (joined, space, doom): (&Joined, Space, &Doom<'_>),
        lease_high: &Cell<u32>,
        txn: &mut Overlay<'_>,
    ) -> Result<Vec<u8>, Fault> {
        let seen = root.map(|root| root.seen(self.roots.now(), false));
        let around = Around { head, joined, judged, space, doom, root: seen.as_ref() };
        self.with_ctx(around, lease_high, &mut |ctx| {
            let reply = self.rules.mutate(ctx, txn, head.call, body, bulk)?;
            if ctx.replay || head.call == CreateWith::CALL {
                check_wanted_fids(txn)?;
            }
            Ok(reply)
        })
    }

    /// mds-X8: true for a request that its client abandoned before it reported its opens. `Release` is exempt: an orphan belongs to one session
    /// only, so it may be released late.
    pub fn was_abandoned(&self, head: &Header) -> bool {
        let is_replay = head.flags & Flags::REPLAY != 0;
        is_replay && head.call != Release::CALL && self.sharers.has_said(head.session)
    }

    /// Refuses an open beyond the session's limit. Runs before the rule, so that a refusal leaves no trace.
    pub fn check_opens(&self, Ask { head, body, .. }: Ask<'_>) -> Result<(), Fault> {
        let opens =
            matches!(head.call, Open::CALL | Enter::CALL | Tmpfile::CALL | CreateWith::CALL | Create::CALL);
        let is_noted = head.flags & Flags::REPLAY == 0 && self.sharers.is_sharing();
        if !opens || !is_noted || !self.sharers.has_all_opens(head.session) {
            return Ok(());
        }
        let fid = match head.call {
            Open::CALL => Some(parse::<Open>(body)?.fid),
            Enter::CALL => Some(parse::<Enter>(body)?.fid),
            // mknod(2) opens nothing.
            Create::CALL if parse::<Create>(body).is_ok_and(|r| !r.read && !r.write) => return Ok(()),
            _ => None,
        };
        self.sharers.check_open(head.session, fid)
    }

    /// Notes an open among several sessions. The caller is the leader, so no unlink comes between the open and its note.
    pub fn note_open(&self, Ask { head, body, .. }: Ask<'_>, reply: &[u8]) {
        if head.flags & Flags::REPLAY != 0 || !self.sharers.is_sharing() {
            return;
        }
        let open = match head.call {
            Open::CALL => Open::from_bytes(body).ok().map(|r| (r.fid, r.write)),
            Enter::CALL => Enter::from_bytes(body).ok().map(|r| (r.fid, r.write)),
            // A new file, which is open here from its first name on.
            Tmpfile::CALL | CreateWith::CALL => {
                OpenReply::from_bytes(reply).ok().map(|r| (r.inode.attr.fid, true))
            }
            // mknod(2) opens nothing.
            Create::CALL => Create::from_bytes(body)
                .ok()
                .filter(|r| r.read || r.write)
                .and_then(|r| Some((CreateReply::from_bytes(reply).ok()?.open.inode.attr.fid, r.write))),
            _ => None,
        };
        if let Some((fid, write)) = open {
            self.sharers.note_open(head.session, fid, write, &self.sessions);
        }
    }
}

/// mds-X8.
pub fn refuse_late() -> Fault {
    Fault::new(Code::Stale, "a request that was given up, and others may have changed the same since")
}

/// Refuses a request that asks for a fid that was never given out: that fid would be given out twice (mds-O5).
fn check_wanted_fids(txn: &Overlay<'_>) -> Result<(), Fault> {
    let fid_of = |key: &Key| match key.as_bytes() {
        [meta::keys::INODE, fid @ ..] => fid.try_into().ok().map(|b| Fid(u64::from_be_bytes(b))),
        _ => None,
    };
    match txn.put_keys().filter_map(fid_of).find(|fid| !txn.was_given(*fid)) {
        None => Ok(()),
        Some(fid) => Err(Fault::new(
            Code::BadRequest,
            format!("a request asks for fid {fid}, which was never given out"),
        )),
    }
}

/// mds-M7: true if this reply lets the client change objects. If a power loss took the entry and not the objects' bytes, there would be objects
/// without a layout, and bytes past a settled size that show when the file grows again.
pub fn lets_objects_change(call: u16, reply: &[u8]) -> bool {
    let is_writing = |open: OpenReply| {
        let is_written = matches!(open.inode.state, FileState::Writing(_) | FileState::Shared { .. });
        open.inode.layout.is_some() && is_written
    };
    match call {
        // The intent of a truncation.
        Truncate::CALL => TruncateReply::from_bytes(reply).is_ok_and(|r| r.pending),
        // A new generation of objects, or objects on other mirrors.
        Grow::CALL | MoveTail::CALL | Migrate::CALL | CutOver::CALL | Repoint::CALL => true,
        // A settled file with objects becomes `Writing`.
        Open::CALL => OpenReply::from_bytes(reply).is_ok_and(is_writing),
        Enter::CALL => EnterReply::from_bytes(reply).is_ok_and(|r| r.open.is_some_and(is_writing)),
        Create::CALL => CreateReply::from_bytes(reply).is_ok_and(|r| is_writing(r.open)),
        _ => false,
    }
}
