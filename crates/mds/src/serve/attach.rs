//! Begin, end and eviction of sessions.
//!
//! A newly attaching client waits until the sessions that exist share the file system (mds-X2). A session that was silent for its
//! time-out is evicted instead. A lone session is kept much longer, since its client may only be suspended.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use net::Answer;
use pki::Role;
use types::{Code, Fault, Fid, Seq, SessionId, Uuid};
use wire::Empty;
use wire::Flags;
use wire::notice::{Evicted, Listen, ListenReply, ModeChanged};
use wire::object::Mac;
use wire::session::{Attach, AttachReply, Detach, KeepAlive, KeepAliveReply};

use crate::Core;
use crate::joined::Joined;
use crate::records::ids::no_lease;
use crate::records::look::look_around;
use crate::sessions::nodemap::Place;
use crate::sessions::overdue::OVERDUE_MS;
use crate::sessions::owner::Holder;
use crate::sessions::shared::Doom;
use crate::sessions::{KeptRoot, Session, session_key};

/// A lone silent session is evicted after this many time-outs. That is a minute; then its orphans are destroyed.
const UNRIVALLED_FACTOR: u64 = 6;
/// Most orphans per log entry. An orphan with 64 KiB inline has 17 records to delete, so the entry stays below 64 KiB.
const REAP_MAX: usize = 64;
/// Orphans of all sessions that one look reads.
const ORPHANS_AT_ONCE: usize = 4096;
/// Most sessions at a time, as many as an OST accepts. An idle one takes about 1 KiB of memory beside its connection; one that has had
/// requests in all 64 slots has an answer of some hundred bytes in each.
pub const SESSIONS_MAX: usize = 32_768;
/// Clients that a refusal names.
const NAMED_MAX: usize = 4;

const SILENT: &str = "the MDT heard nothing of the client, or waited too long for it";

/// How a session ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// By its client.
    Detached,
    /// Its client is gone.
    Dead,
    /// Its client may live, and use its leases until its term is over.
    Evicted,
}

/// The proof for OSTs that the session is its owner's.
fn ticket_of(session: &Session, joined: &Joined) -> Mac {
    let owner = session.holder.as_ref().map_or([0; 16], |holder| holder.owner.0);
    object::ticket::make(&joined.secret, session.id, owner)
}

impl Core {
    pub fn on_attach(&self, req: &Attach, answer: &Answer<'_>) -> Result<AttachReply, Fault> {
        let joined = self.joined()?;
        if req.fs_uuid != joined.fs_uuid {
            return Err(Fault::new(
                Code::Invalid,
                format!(
                    "this MDT serves file system {}, not {}; is the mount's MGS address right?",
                    joined.fs_uuid, req.fs_uuid
                ),
            ));
        }
        // mds-N1, mds-N2. An observer of a server or administrator acts for the file system.
        let known = self.sessions.of_client(req.client).filter(|_| !req.observer);
        let kept = known.as_ref().and_then(|session| session.root.as_ref());
        let place = Place::of(self, answer, &joined.nodemaps).keeping(self, kept);
        let is_trusted = answer.sender().is_some_and(|s| matches!(s.role, Role::Server | Role::Admin));
        if !(req.observer && is_trusted) {
            place.check()?;
        }

        if req.observer {
            return Ok(self.attach_reply(SessionId(0), vec![], Mac::default(), &place));
        }
        let now_ms = self.clock.boot_ms();
        let (session, place) = self.find_or_begin(req, answer, place)?;
        let place = Arc::new(place);
        session.place.store(Some(place.clone()));
        // The list may have changed meanwhile, and its review did not see this place.
        if !place.is_of(&self.joined()?.nodemaps) {
            self.review_nodemaps();
        }
        session.renew_lease(now_ms);
        session.has_attached.store(true, Ordering::SeqCst);
        assert!(session.id != SessionId(0), "0 is no session: observers have it");
        // A new session is durable before it is used, so that its requests can be replayed after a power loss. One flush serves all
        // clients that attach at the same time.
        if self.flushed_seq() < Seq(session.begun.load(Ordering::SeqCst)) {
            self.flush()?;
        }
        let slots = self.executor.lead().slots.sequences(session.id);
        let ticket = ticket_of(&session, &joined);
        Ok(self.attach_reply(session.id, slots, ticket, &place))
    }

    fn find_or_begin(
        &self,
        req: &Attach,
        answer: &Answer<'_>,
        mut place: Place,
    ) -> Result<(Arc<Session>, Place), Fault> {
        let _one = self.ending.lock();
        let now = self.clock.boot_ms();
        // 1. The same client again, after a reconnect or a restart of this server.
        if let Some(session) = self.sessions.of_client(req.client) {
            self.check_attach(&session, answer)?;
            let before = session.place.load_full();
            place = place.after(before.as_deref());
            if before.is_none_or(|before| before.is_like(&place)) {
                session.touch(now);
                return Ok((session, place));
            }
            self.evict_because(
                session.id,
                "the nodemap of this node gives its users other ids or another root",
            )?;
        }
        // mds-K5: others may hold locks, or be about to reclaim them.
        let has_own_locks = req.own_locks && answer.is_local() && self.sessions.count() == 0;
        // 2. Other sessions: evict dead ones, wait until the live ones share.
        self.end_dead(now)?;
        self.check_sessions()?;
        self.wait_for_others(req.client, now)?;
        // 3. A new session.
        let holder = answer.peer().as_ref().map(Holder::of);
        let session = self.begin_session_below(req, (holder, place.kept_root()), now)?;
        answer.sender().iter().for_each(|sender| _ = session.serials.note(sender.serial));
        if has_own_locks {
            self.locks.leave_to(session.id);
        }
        assert!(self.sessions.count() <= SESSIONS_MAX, "sessions have their bound");
        Ok((session, place))
    }

    /// Evicts sessions that were silent for their time-out.
    fn end_dead(&self, now: u64) -> Result<(), Fault> {
        for session in self.sessions.silent(self.session_ttl_ms(), now) {
            tracing::info!(
                session = session.id.0,
                client = session.name,
                silent_ms = session.silent_ms(now),
                "a dead session makes way for a new client"
            );
            self.evict(session.id)?;
        }
        Ok(())
    }

    /// Refuses a session too many. The client asks again, and is accepted when another session has ended.
    fn check_sessions(&self) -> Result<(), Fault> {
        match self.sessions.count() < SESSIONS_MAX {
            true => Ok(()),
            false => Err(Fault::new(
                Code::NotReady,
                format!(
                    "this MDT has {SESSIONS_MAX} sessions, as many as it may; unmount clients that are not needed"
                ),
            )),
        }
    }

    /// mds-X2. The attaching client asks again until it is accepted.
    fn wait_for_others(&self, client: Uuid, now: u64) -> Result<(), Fault> {
        if self.sessions.count() == 0 {
            return Ok(());
        }
        self.ensure_era()?;
        let is_let_in = || {
            let before = self.sharers.mode();
            let is_let_in = self.sharers.ask_to_share(&self.sessions, client, now);
            self.tell_mode(before);
            is_let_in
        };
        if is_let_in() {
            return Ok(());
        }
        // mds-X9: a client waits for them, so overdue sessions are evicted.
        self.end_overdue()?;
        if is_let_in() {
            return Ok(());
        }
        let awaited = self.sharers.awaited(NAMED_MAX);
        let mut names: Vec<_> = awaited
            .iter()
            .filter_map(|id| self.sessions.get(*id))
            .map(|s| format!("{} (heard of {} s ago)", s.name, s.silent_ms(now) / 1000))
            .collect();
        let others = self.sharers.awaited_count().saturating_sub(names.len());
        if others > 0 {
            names.push(format!("{others} more"));
        }
        Err(Fault::new(
            Code::NotReady,
            format!(
                "the file system is mounted by {}; it must write back its data before another client attaches, and has not yet; \
                 if that client is dead, its session ends {} s after its last word, and if it hangs or reaches no OST, {} s after it was \
                 first asked",
                names.join(", "),
                self.session_ttl_ms().div_ceil(1000),
                OVERDUE_MS / 1000
            ),
        ))
    }

    #[cfg(test)]
    pub fn begin_session(
        &self,
        req: &Attach,
        holder: Option<Holder>,
        now: u64,
    ) -> Result<Arc<Session>, Fault> {
        self.begin_session_below(req, (holder, None), now)
    }

    fn begin_session_below(
        &self,
        req: &Attach,
        (holder, root): (Option<Holder>, Option<KeptRoot>),
        now: u64,
    ) -> Result<Arc<Session>, Fault> {
        let mut made = None;
        let done = self.transact(&no_lease(), &mut |txn| {
            let session = Session::new(txn.next_session(), req.client, &req.name, req.claims.clone(), now)
                .held_by(holder.clone())
                .below(root.clone());
            let (key, value) = session.to_record();
            meta::Txn::put(txn, key, value);
            made = Some(session);
            Ok(vec![])
        })?;
        let session =
            Arc::new(made.ok_or_else(|| Fault::new(Code::NotReady, "no session was made; try again"))?);
        session.begun.store(done.seq.0, Ordering::SeqCst);
        let before = self.sharers.mode();
        self.sharers.begin(session.id, session.client, self.sessions.count());
        self.tell_mode(before);
        self.sessions.add(session.clone());
        Ok(session)
    }

    fn attach_reply(&self, session: SessionId, slots: Vec<u32>, ticket: Mac, place: &Place) -> AttachReply {
        AttachReply {
            session,
            slots,
            flushed_seq: self.flushed_seq(),
            last_seq: self.committed_seq(),
            session_ttl_ms: self.session_ttl_ms() as u32,
            mode: self.sharers.mode(),
            judges: self.judges() || place.changes_ids(),
            knows_groups: self.knows_groups(),
            own_locks: self.locks.are_own_of(session),
            ticket,
            root: place.top(),
        }
    }

    pub fn session_ttl_ms(&self) -> u64 {
        self.settings.session_ttl.as_millis() as u64
    }

    pub fn on_keep_alive(&self, req: &KeepAlive, answer: &mut Answer<'_>) -> Result<KeepAliveReply, Fault> {
        self.check_owner(req.session, answer)?;
        match self.sessions.touch(req.session, self.clock.boot_ms()) {
            // After a clean stop the incarnation is unchanged. This answer tells the client to attach and report its opens and locks.
            true if self.locks.is_awaited(req.session) || self.is_hold_awaited(req.session) => {
                Err(Fault::new(Code::Moved, "this MDT restarted; attach again and report your holds"))
            }
            true => {
                let session =
                    self.sessions.get(req.session).ok_or_else(|| object::slots::unknown(req.session))?;
                // A client without a line would not hear what to forget. And while this member may not serve, the other one of the mirror may
                // take over, which recalls nothing from here.
                if session.notices.is_heard() && self.may_serve() {
                    session.renew_lease(self.clock.boot_ms());
                    answer.head.flags |= Flags::NAMES_LEASED;
                }
                // mds-L4: an eviction reads the renewal after the session has left the list.
                self.sessions.check(req.session)?;
                let (outbox, notices) = (session.notices.id(), session.notices.last());
                // The key may have changed since the attach, and an OST that starts anew knows the key of now only.
                let ticket = self.joined().map_or(Mac::default(), |joined| ticket_of(&session, &joined));
                Ok(KeepAliveReply { mode: self.sharers.mode(), outbox, notices, ticket })
            }
            false => Err(object::slots::unknown(req.session)),
        }
    }

    /// Succeeds for a session that is gone already, since the request may come twice.
    pub fn on_detach(&self, asking: SessionId, req: &Detach, answer: &Answer<'_>) -> Result<Empty, Fault> {
        self.check_detach(req.session, answer)?;
        // A caller without a session may evict a dead one: `stria up` does so after a kill.
        if asking != SessionId(0) && asking != req.session {
            return Err(Fault::new(
                Code::Access,
                format!("session {asking} cannot end session {}", req.session),
            ));
        }
        let _one = self.ending.lock();
        if self.sessions.get(req.session).is_some() {
            match asking == req.session {
                true => self.end_session(req.session)?,
                // The caller knows that its process is gone.
                false => self.evict_as(req.session, End::Dead, SILENT)?,
            }
        }
        Ok(Empty {})
    }

    /// Evicts sessions that were silent too long.
    pub fn reap_sessions(&self) {
        let now = self.clock.boot_ms();
        // Beside other sessions, opens and locks of a dead one block others, so it is evicted sooner.
        let factor = if self.sessions.count() > 1 { 1 } else { UNRIVALLED_FACTOR };
        let limit = self.session_ttl_ms().saturating_mul(factor);
        for session in self.sessions.silent(limit, now) {
            let (id, silent_ms) = (session.id, session.silent_ms(now));
            let _one = self.ending.lock();
            // The client may have sent something while this thread waited for the lock.
            let is_dead = session.silent_ms(self.clock.boot_ms()) >= limit && self.sessions.get(id).is_some();
            if is_dead {
                tracing::info!(
                    session = id.0,
                    client = session.name,
                    silent_ms,
                    "session ended: its client is gone"
                );
                if let Err(fault) = self.evict(id) {
                    tracing::warn!(session = id.0, %fault, "a dead session could not be ended; it will be tried again");
                }
            }
        }
        self.reap_overdue();
        self.sharers.forget_ghosts(now);
        // No session begins between the count and the change of mode.
        let _one = self.ending.lock();
        let before = self.sharers.mode();
        self.sharers.rest(self.sessions.count(), now);
        self.tell_mode(before);
        self.leases.tidy_if_due(&self.sessions, now);
    }

    /// Tells all sessions that the mode is not the one `before` any more.
    fn tell_mode(&self, before: u32) {
        let mode = self.sharers.mode();
        if mode != before {
            self.sessions.each(|session| _ = session.notices.push(&ModeChanged { mode }));
        }
    }

    /// Begins the line for a session's notices.
    pub fn on_listen(
        &self,
        session: SessionId,
        req: &Listen,
        answer: &mut Answer<'_>,
    ) -> Result<ListenReply, Fault> {
        let session = self.sessions.get(session).ok_or_else(|| object::slots::unknown(session))?;
        let no_line =
            || Fault::new(Code::BadRequest, "this connection has no line for notices, or has one already");
        session.notices.listen(req, answer).ok_or_else(no_line)
    }

    /// Ends a session whose client did not detach. Unflushed sizes that it reported are not trusted any more, so a new era begins: after its
    /// last request, and before its leases go to sessions that wait for them.
    pub fn evict(&self, id: SessionId) -> Result<(), Fault> {
        self.evict_as(id, End::Evicted, SILENT)
    }

    /// As `evict`, for another reason than silence.
    pub fn evict_because(&self, id: SessionId, why: &str) -> Result<(), Fault> {
        self.evict_as(id, End::Evicted, why)
    }

    fn evict_as(&self, id: SessionId, end: End, why: &str) -> Result<(), Fault> {
        // If this fails, the session stays and is evicted later.
        self.begin_era()?;
        let session = self.sessions.get(id);
        // mds-L4: noted before the session leaves the list, and exact once it has.
        session.iter().for_each(|session| self.leases.evicted(session.id, u64::MAX));
        let ended = self.end_session_as(id, end);
        session.iter().for_each(|session| self.leases.evicted(session.id, session.lease_ends_ms()));
        ended?;
        if let Some(session) = session {
            session.notices.push(&Evicted { why: why.into() });
        }
        Ok(())
    }

    pub fn end_session(&self, id: SessionId) -> Result<(), Fault> {
        self.end_session_as(id, End::Detached)
    }

    /// Reaps the session's orphans and removes the session. Its record is deleted only if no orphan was added since the look, so that no
    /// request of the session slips between. The caller holds `ending`, and no leadership: the look may pass a million orphans of others.
    fn end_session_as(&self, id: SessionId, end: End) -> Result<(), Fault> {
        let Some(session) = self.sessions.get(id) else { return Ok(()) };
        let mut is_last = false;
        while !is_last {
            let seen = session.orphaned.load(Ordering::SeqCst);
            for some in self.orphans_of(id)?.chunks(REAP_MAX) {
                self.reap_orphans(id, some)?;
            }
            self.transact(&no_lease(), &mut |txn| {
                is_last = session.orphaned.load(Ordering::SeqCst) == seen;
                if is_last {
                    meta::Txn::delete(txn, &session_key(id));
                }
                Ok(vec![])
            })?;
        }
        self.sessions.remove(id);
        assert!(self.sessions.get(id).is_none(), "mds-K2: a session leaves the list before its locks go");
        self.drop_locks(id);
        assert!(!self.locks.is_awaited(id), "mds-K1: no grace period waits for an ended session");
        if end != End::Detached
            && let Err(fault) = self.begin_era()
        {
            // The era from before its last requests stands.
            tracing::debug!(%fault, "no new era after the end of a session");
        }
        let (ends_ms, now_ms) = (session.lease_ends_ms(), self.clock.boot_ms());
        self.sharers.forget(id, (end == End::Evicted && ends_ms > now_ms).then_some(ends_ms));
        self.leases.ended();
        self.makers.forget(id);
        Ok(())
    }

    /// Orphans of a session.
    fn orphans_of(&self, id: SessionId) -> Result<Vec<Fid>, Fault> {
        let (mut found, mut after) = (Vec::new(), Fid(0));
        loop {
            let page = look_around(&self.kv, &mut |view| self.rules.orphans(view, after, ORPHANS_AT_ONCE))?;
            found.extend(page.iter().filter(|(_, holder)| *holder == id).map(|(fid, _)| *fid));
            match page.last() {
                Some((last, _)) if page.len() >= ORPHANS_AT_ONCE => after = *last,
                _ => return Ok(found),
            }
        }
    }

    fn reap_orphans(&self, id: SessionId, fids: &[Fid]) -> Result<(), Fault> {
        let doom = Doom::new(&self.sharers);
        let done = self.transact(&no_lease(), &mut |txn| {
            for fid in fids {
                // A request may have released it meanwhile.
                if self.rules.orphan_holder(txn, *fid) != Some(id) {
                    continue;
                }
                // The orphan record is deleted in any case, so that a damaged inode cannot keep the session for ever.
                let next = doom.other_holder(id, *fid);
                if let Err(fault) = self.rules.leave_orphan(txn, *fid, next) {
                    tracing::warn!(fid = fid.0, %fault, "an orphan's inode cannot be read; run fsck");
                }
            }
            Ok(vec![])
        });
        done.map(drop)
    }

    /// Counts the orphans that an entry adds to each session. The leader calls this for each entry.
    pub fn note_orphans(&self, changes: &kv::Batch) {
        for kv::Change { key, value } in &changes.0 {
            let Some(value) = value else { continue };
            if let Some(session) = self.rules.orphan_in(key, value.raw()).and_then(|id| self.sessions.get(id))
            {
                session.orphaned.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}
