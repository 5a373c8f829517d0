//! One request as the rules of `meta` see it: their context, what they may do with open files, and what their reply means.

use std::cell::Cell;

use meta::{Ctx, Judge, Space};
use object::LeaseVersion;
use types::{Code, Fault, Fid, Generation, Key};
use wire::meta::{
    Create, CreateReply, CreateWith, FileState, Grow, MoveTail, Open, OpenReply, Release, Tmpfile, Truncate,
    TruncateReply,
};
use wire::object::Capability;
use wire::shared::{Enter, EnterReply};
use wire::{Flags, Header, Request, Wire};

use crate::Core;
use crate::executor::execute::Ask;
use crate::joined::Joined;
use crate::judge::Judged;
use crate::records::overlay::Overlay;
use crate::reply::parse;
use crate::sessions::shared::{Doom, Others};

/// Validity of a capability. Nothing renews one before leases exist, and a job may hold a file open for weeks. Truncation and
/// eviction are fenced by the lease version, not by this.
const CAPABILITY_SEC: u64 = 90 * 24 * 3600;

/// A request and its surroundings.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    pub head: &'a Header,
    pub joined: &'a Joined,
    pub judged: Option<&'a Judged>,
    pub space: Space,
    pub doom: &'a Doom<'a>,
}

impl Core {
    /// Runs `run` with the context that rules get.
    pub fn with_ctx<T>(
        &self,
        Around { head, joined, judged, space, doom }: Around<'_>,
        lease_high: &Cell<u32>,
        run: &mut dyn FnMut(&Ctx<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let (epoch, replay) = (self.epoch(), head.flags & Flags::REPLAY != 0);
        let make_cap = |fid: Fid, generation: Generation, rights: u8, counter: u32| -> Capability {
            let lease = LeaseVersion { epoch: epoch.0.wrapping_add(lease_high.get()), counter };
            let expiry_sec = self.clock.wall().sec.max(0) as u64 + CAPABILITY_SEC;
            object::cap::make(&joined.secret, fid, generation, rights, lease, head.session, expiry_sec)
        };
        // meta-J2: is this capability one of this session's own?
        let is_ours = |cap: &Capability| {
            let now_sec = self.clock.wall().sec.max(0) as u64;
            cap.session == head.session && object::cap::check_right(&joined.secret, cap, 0, now_sec).is_ok()
        };
        let judge =
            judged.map(|j| Judge { cred: j.cred.clone(), is_anybody: j.is_anybody, is_ours: &is_ours });
        run(&Ctx {
            judge,
            session: head.session,
            replay,
            inline_max: joined.inline_max,
            ost_mirrors: &joined.ost_mirrors,
            shard: joined.shard,
            epoch,
            make_cap: &make_cap,
            sharing: Some(&Others { core: self, session: head.session, lease_high, doom }),
            // A replayed request was acknowledged before, when there was space for it.
            space: if replay { Space::AMPLE } else { space },
        })
    }

    /// Runs the rule of a request; the leader calls it.
    pub fn mutate(
        &self,
        Ask { head, body, bulk, judged }: Ask<'_>,
        (joined, space, doom): (&Joined, Space, &Doom<'_>),
        lease_high: &Cell<u32>,
        txn: &mut Overlay<'_>,
    ) -> Result<Vec<u8>, Fault> {
        let around = Around { head, joined, judged, space, doom };
        self.with_ctx(around, lease_high, &mut |ctx| {
            let reply = self.rules.mutate(ctx, txn, head.call, body, bulk)?;
            if ctx.replay {
                check_replayed_fids(txn)?;
            }
            Ok(reply)
        })
    }

    /// mds-X8: is this a replay of an abandoned request? `Release` is none: no other session can have a file without a name.
    pub fn was_abandoned(&self, head: &Header) -> bool {
        let is_replay = head.flags & Flags::REPLAY != 0;
        is_replay && head.call != Release::CALL && self.sharers.has_said(head.session)
    }

    /// Checks the bound on a session's open files. It comes before the rule, so that a refusal leaves no trace.
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

    /// Notes an open. The leader calls it, so that no unlink comes between an open and its note.
    pub fn note_open(&self, Ask { head, body, .. }: Ask<'_>, reply: &[u8]) {
        if head.flags & Flags::REPLAY != 0 || !self.sharers.is_sharing() {
            return;
        }
        let open = match head.call {
            Open::CALL => Open::from_bytes(body).ok().map(|r| (r.fid, r.write)),
            Enter::CALL => Enter::from_bytes(body).ok().map(|r| (r.fid, r.write)),
            // Such a file has no name yet. It may get one and lose it while it is open here.
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

/// A replay may use only fids that were given out before. Any other would be given out twice (mds-O5).
fn check_replayed_fids(txn: &Overlay<'_>) -> Result<(), Fault> {
    let fid_of = |key: &Key| match key.as_bytes() {
        [meta::keys::INODE, fid @ ..] => fid.try_into().ok().map(|b| Fid(u64::from_be_bytes(b))),
        _ => None,
    };
    match txn.put_keys().filter_map(fid_of).find(|fid| !txn.was_given(*fid)) {
        None => Ok(()),
        Some(fid) => Err(Fault::new(
            Code::BadRequest,
            format!("a replay asks for fid {fid}, which was never given out"),
        )),
    }
}

/// mds-M7: does this reply let the client change objects, if its entry put an inode? A power loss could lose the entry and keep the bytes.
/// Objects would then belong to no file, and bytes past a settled size would come back when the file grows again.
pub fn lets_objects_change(call: u16, reply: &[u8]) -> bool {
    let is_writing = |open: OpenReply| {
        let is_written = matches!(open.inode.state, FileState::Writing(_) | FileState::Shared { .. });
        open.inode.layout.is_some() && is_written
    };
    match call {
        // The intent of a shrink.
        Truncate::CALL => TruncateReply::from_bytes(reply).is_ok_and(|r| r.pending),
        // A new generation of objects, or objects on other mirrors.
        Grow::CALL | MoveTail::CALL => true,
        // A settled file with objects becomes one that is being written.
        Open::CALL => OpenReply::from_bytes(reply).is_ok_and(is_writing),
        Enter::CALL => EnterReply::from_bytes(reply).is_ok_and(|r| r.open.is_some_and(is_writing)),
        Create::CALL => CreateReply::from_bytes(reply).is_ok_and(|r| is_writing(r.open)),
        _ => false,
    }
}
