//! Requests that change nothing. They run over the published state and wait for no other request.
//!
//! mds-RD1: a request writes only memory of its own thread: its answer, its reader slot of the table, and guards of pointers. Shared memory is
//!     written only by changes, by the first grant of a lease, and a session's `seen_ms` a few times per second. A session with a terms
//!     counts its references.

use std::cell::Cell;

use meta::Space;
use net::Answer;
use types::{Fault, Seq, SessionId};
use wire::meta::{OpenRead, OpenReadReply};
use wire::{Header, ReplyHead, Request, Wire};

use crate::Core;
use crate::executor::call::Around;
use crate::joined::Joined;
use crate::records::look::look;
use crate::reply::parse;
use crate::reply::refuse_observer;
use crate::sessions::nodemap::Terms;
use crate::sessions::shared::Doom;

impl Core {
    pub fn on_read(
        &self,
        joined: &Joined,
        head: &Header,
        body: &[u8],
        answer: &mut Answer<'_>,
        terms: Option<&Terms>,
    ) -> Result<(), Fault> {
        self.check_incarnation(head)?;
        let sessions = self.sessions.now();
        let mut user = None;
        if head.session != SessionId(0) {
            let session = sessions.get(head.session).ok_or_else(|| object::slots::unknown(head.session))?;
            session.touch(self.clock.boot_ms());
            user = session.one_user();
            self.check_come_back()?;
        }
        if head.call == OpenRead::CALL && head.session == SessionId(0) {
            return Err(refuse_observer());
        }
        let root = terms.and_then(|terms| terms.root.as_deref());
        let seen = root.map(|root| root.seen(self.roots.now(), true));
        self.await_makers(head.session, head.call, body)?;
        answer.head.flags |= self.lease_of_read(head, body, root)?;
        ReplyHead::done(Seq(0), self.flushed_seq()).put(&mut answer.body);
        let head_bytes = answer.body.len();
        let (judged, doom) = (self.judged(user, terms, head.call, body), Doom::new(&self.sharers));
        // A read adds nothing, so free space does not matter. No read rule draws a lease number or marks a file for unlink.
        let around = Around {
            head,
            joined,
            judged: judged.as_ref(),
            space: Space::AMPLE,
            doom: &doom,
            root: seen.as_ref(),
        };
        let lease_high = Cell::new(0);
        let ask = |answer: &mut Answer<'_>| {
            self.with_ctx(around, &lease_high, &mut |ctx| {
                look(&self.kv, &mut |view| {
                    answer.body.truncate(head_bytes);
                    answer.bulk.clear();
                    self.rules.read(ctx, view, head.call, body, &mut answer.body, answer.bulk)
                })?
            })?;
            if let Some(mapped) = self.reply_ids(terms, head.call, body, &answer.body[head_bytes..])? {
                answer.body.truncate(head_bytes);
                answer.body.extend(mapped);
            }
            // mds-RP2: looked at after the state was read, since this thread may have been paused before.
            self.check_mirror(head.call)
        };
        ask(answer)?;
        if head.call != OpenRead::CALL || !self.sharers.is_sharing() {
            return Ok(());
        }
        // meta-H2: the first run was for refusals. The open is noted first, and then the file is read again.
        let OpenRead { fid, .. } = parse(body)?;
        if self.sharers.note_read(head.session, fid, &self.sessions)? {
            return ask(answer);
        }
        answer.body.truncate(head_bytes);
        answer.bulk.clear();
        OpenReadReply { open: None, crcs: None }.put(&mut answer.body);
        Ok(())
    }
}
