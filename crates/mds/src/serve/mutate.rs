//! The door for what changes things: what is judged before the executor, what the rule is run with, and what must be durable
//! before the reply leaves.

use std::cell::Cell;

use meta::Space;
use types::{Code, Fault, Fid, Key, SessionId};
use wire::meta::{
    Create, CreateReply, CreateWith, FileState, Grow, MoveTail, Open, OpenReply, Release, Tmpfile, Truncate,
    TruncateReply,
};
use wire::shared::{Enter, EnterReply};
use wire::{Flags, Header, Request, Wire};

use super::{Around, parse, plain};
use crate::Core;
use crate::execute::{Ask, Carried, Done};
use crate::joined::Joined;
use crate::overlay::Overlay;
use crate::shared::Doom;
use crate::slots::refuse_observer;

impl Core {
    pub fn on_mutation(&self, head: &Header, body: &[u8], bulk: &[u8]) -> Result<Done, Fault> {
        let joined = self.joined()?;
        self.check_incarnation(head)?;
        if head.session == SessionId(0) {
            return Err(refuse_observer());
        }
        self.check_session(head.session)?;
        // A replay brings back what its session did before; which sections that holds now, it says by `Hold`.
        let is_replay = head.flags & Flags::REPLAY != 0;
        if !is_replay {
            self.check_whole()?;
        }
        let is_entry = head.call == Enter::CALL && !is_replay;
        if is_entry && !self.sharers.enter(head.session, &parse(body)?, &self.sessions)? {
            return Ok(plain(EnterReply { granted: false, open: None }));
        }
        // Before the role: whom it is for may have to be looked up.
        let user = self.sessions.one_user(head.session)?;
        let judged = self.judged(user.as_ref(), head.call, body);
        let carried = self.carry_out(Ask { head, body, bulk, judged: judged.as_ref() }, &joined);
        if carried.is_err() && head.call == Enter::CALL {
            let Enter { fid, token, .. } = parse(body)?;
            self.sharers.let_go(head.session, fid, token);
        }
        let Carried { done, must_flush } = carried?;
        if must_flush {
            self.flush()?;
        }
        Ok(done)
    }

    /// The rule of a request, by who has the role.
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

    /// mds-X8. A file that has no name any more is let go whenever that is heard: it is nobody's else.
    pub fn was_given_up(&self, head: &Header) -> bool {
        let is_replay = head.flags & Flags::REPLAY != 0;
        is_replay && head.call != Release::CALL && self.sharers.has_said(head.session)
    }

    /// Before the rule runs, so that a refusal leaves no trace: the session may have what it opens open.
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

    /// By who has the role, so that no unlink comes between an open and its note.
    pub fn note_open(&self, Ask { head, body, .. }: Ask<'_>, reply: &[u8]) {
        if head.flags & Flags::REPLAY != 0 || !self.sharers.is_sharing() {
            return;
        }
        let open = match head.call {
            Open::CALL => Open::from_bytes(body).ok().map(|r| (r.fid, r.write)),
            Enter::CALL => Enter::from_bytes(body).ok().map(|r| (r.fid, r.write)),
            // It has no name: who is given one, and loses it, is open here.
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

/// A replay may ask for the fids that it was given before, and for no others: one that is still to be given out would be given
/// twice (mds-O5).
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

/// mds-M7: does the client change objects on the strength of this reply, if its entry put an inode? Were the entry lost in a power loss and
/// the bytes not, there would be objects that nobody names, and bytes past a settled size, which come back when the file grows again.
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
