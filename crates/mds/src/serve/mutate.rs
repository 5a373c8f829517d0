//! Requests that change something: checks before the executor, the context of the rule, and flushes before the reply leaves.

use net::Answer;
use types::{Fault, SessionId};
use wire::shared::{Enter, EnterReply};
use wire::{Flags, Header, Request, Wire};

use crate::Core;
use crate::executor::ask::Ask;
use crate::executor::execute::Carried;
use crate::joined::Joined;
use crate::reply::{Done, parse, plain, refuse_observer};
use crate::sessions::leases::Forgot;
use crate::sessions::nodemap::Terms;

impl Core {
    pub fn on_mutation(
        &self,
        joined: &Joined,
        head: &Header,
        body: &[u8],
        bulk: &[u8],
        answer: &mut Answer<'_>,
        terms: Option<&Terms>,
    ) -> Result<Done, Fault> {
        self.check_incarnation(head)?;
        if head.session == SessionId(0) {
            return Err(refuse_observer());
        }
        self.check_session(head.session)?;
        self.check_may_change(terms, head.call, body)?;
        self.check_migration(head.call, body)?;
        let mapped = self.request_ids(terms, head.call, body)?;
        let body = &*mapped;
        // A replay restores changes of its session. The session reports its sections by `Hold`.
        let is_replay = head.flags & Flags::REPLAY != 0;
        if !is_replay {
            self.check_whole()?;
        }
        let is_entry = head.call == Enter::CALL && !is_replay;
        // A request that confirms a lease leaves it as it is if it fails.
        let (mut is_new, mut granted) = (false, vec![]);
        if is_entry {
            let entry: Enter = parse(body)?;
            is_new = !self.sharers.holds(head.session, entry.fid, entry.token);
            let Some(kind) = self.sharers.enter(head.session, &entry, &self.sessions)? else {
                return Ok(plain(EnterReply { granted: None, open: None }));
            };
            // The rule is told the kind that was granted.
            granted = Enter { kind, ..entry }.to_bytes();
        }
        self.await_makers(head.session, head.call, body)?;
        let body = if is_entry { &granted } else { body };
        // Before the executor, since groups may have to be looked up.
        let user = self.sessions.one_user(head.session)?;
        let judged = self.judged(user.as_ref(), terms, head.call, body);
        let root = terms.and_then(|terms| terms.root.as_ref());
        // mds-L1: before the executor, so that a later change of another session meets the grant.
        let leased = self.lease_of_change(head, body, root.map(|root| &**root));
        let forgot = Forgot::new();
        let carried =
            self.carry_out(Ask { head, body, bulk, judged: judged.as_ref(), root, forgot: &forgot }, joined);
        if carried.is_err() && is_new {
            let Enter { fid, token, .. } = parse(body)?;
            self.sharers.let_go(head.session, fid, token);
        }
        let Carried { mut done, must_flush, is_repeat } = carried?;
        // The slot keeps the ids of the file system, so that a repeat is mapped once.
        if let Some(reply) = self.reply_ids(terms, head.call, body, &done.reply)? {
            done.reply = reply.into();
        }
        if !is_repeat {
            answer.head.flags |= leased;
        }
        if must_flush {
            self.flush_let_changes()?;
        }
        Ok(done)
    }
}
