//! The session at one mirror: attach, replay after a restart, and the state of the target's log as far as this client knows it.
//!
//! client-C5 here: a request waits in `ready` until the target is attached and all that it lost was replayed. Each request has the
//! incarnation that its sender knows. A target that restarted meanwhile refuses it (`Moved`), and the client attaches again.

mod again;
mod renew;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use net::{Fabric, Peer, rpc};
use parking_lot::{Mutex, RwLock};
use plan::replay::Kept;
use plan::retry::backoff;
use plan::settle::{At, Mark};
use types::{Buf, Code, Fault, Fid, Incarnation, MirrorId, Seq, SessionId, TargetId};
use wire::object::Mac;
use wire::session::{Attach, AttachReply, Flush, KeepAlive};
use wire::shared::{ALL, CatchUp, CaughtUp};
use wire::{Flags, Header, Malformed, Reader, ReplyHead, Wire};

use crate::cache::leased::Leased;
use crate::session::aside::Aside;
use crate::session::grants::Granted;
use crate::session::identity::Identity;
use crate::session::jobs;
use crate::session::locks::Locks;
use crate::session::losses::Losses;
use crate::session::owed::Owed;
use crate::session::request::{Answer, Patience, Pending, at_of};
use crate::session::sent::{Sent, amend_sent};
use crate::session::ship;
use crate::session::slots::{Sendable, Slots};

/// Longest wait for the replay turn within one attach. Then the attach begins anew, since the target may have restarted again.
const TURN_WAIT: Duration = Duration::from_secs(2);
/// Pause between two requests for the turn. The MDT waits in each of them too.
const TURN_PAUSE: Duration = Duration::from_millis(1);
/// Wait for another ticket after a refusal: some keep-alives.
const TICKET_WAIT_MAX: Duration = Duration::from_secs(4);
const TICKET_LOOK_EACH: Duration = Duration::from_millis(20);
/// Longest wait for a line within an attach.
const LISTEN_MAX: Duration = Duration::from_secs(1);
/// A client that replays reports its progress this often.
const TELL: Duration = Duration::from_secs(1);

/// A session at one mirror. Its *target* is the member that serves it now.
pub(crate) struct Link {
    pub mirror: MirrorId,
    target: AtomicU32,
    pub is_mdt: bool,
    fabric: Arc<Fabric>,
    pub(super) id: Arc<Identity>,
    pub slots: Slots,
    pub granted: Granted,
    pub retained: Mutex<Retained>,
    /// 0 = not attached.
    incarnation: AtomicU32,
    attached_session: AtomicU64,
    was_attached: AtomicBool,
    flushed: AtomicU64,
    acknowledged: AtomicU64,
    is_fate_shared: AtomicBool,
    /// The target was removed from the cluster.
    has_left: AtomicBool,
    peer: RwLock<Option<Arc<dyn Peer>>>,
    attaching: Mutex<Attached>,
    unsticking: Mutex<()>,
    ttl_ms: AtomicU32,
    /// Of the mirror, as the primary told it in the life that this client is attached to; 0: not told.
    pub epoch: AtomicU32,
    pub aside: Aside,
    pub told_jobs: Mutex<jobs::Told>,
}

pub(crate) struct Retained {
    pub kept: Owed,
    /// The life of the target that `kept` was compared with last.
    pub at: At,
}

#[derive(Default)]
struct Attached {
    last: Option<(At, SessionId)>,
    /// For each life of a target that ended, oldest first: the highest entry that its successor still had.
    cuts: Vec<(At, Seq)>,
    /// Lost requests that were not replayed yet.
    unsent: VecDeque<Kept<Sendable>>,
}

impl Link {
    pub fn new(
        mirror: MirrorId,
        target: TargetId,
        is_mdt: bool,
        fabric: Arc<Fabric>,
        id: Arc<Identity>,
    ) -> Link {
        let kept = Owed::new(id.retain_bytes_max);
        Link {
            mirror,
            target: AtomicU32::new(target.0),
            is_mdt,
            fabric,
            slots: Slots::new(),
            granted: Granted::default(),
            retained: Mutex::new(Retained { kept, at: At::default() }),
            incarnation: AtomicU32::new(0),
            attached_session: AtomicU64::new(0),
            was_attached: AtomicBool::new(false),
            flushed: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            is_fate_shared: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            peer: RwLock::new(None),
            attaching: Mutex::new(Attached::default()),
            unsticking: Mutex::new(()),
            ttl_ms: AtomicU32::new(0),
            epoch: AtomicU32::new(0),
            aside: Aside::default(),
            told_jobs: Mutex::default(),
            id,
        }
    }

    /// Sends `req` and waits for its answer.
    pub fn ask<R: Sent>(&self, fid: Fid, req: &R, deadline: Instant) -> Result<Answer<R::Reply>, Fault> {
        self.exchange(fid, req, &[], &mut Buf::new(), deadline)
    }

    /// As `ask`, with bulk bytes out or in.
    pub fn exchange<R: Sent>(
        &self,
        fid: Fid,
        req: &R,
        bulk: &[u8],
        into: &mut Buf,
        deadline: Instant,
    ) -> Result<Answer<R::Reply>, Fault> {
        if R::MUTATES {
            self.wait_for_changes(fid, req, deadline)?;
        }
        let pending = Pending::new(self, fid, req, bulk, into, deadline, Patience::Wait)?;
        if !R::MUTATES {
            // The request is noted first: it does not wait for a change that is made from here on, and then its answer is not kept.
            self.wait_for_changes(fid, req, deadline)?;
        }
        pending.expect("a patient request has a slot").run()
    }

    pub fn has_changes_in(&self, fid: Fid) -> bool {
        self.is_mdt && self.id.unshipped.bears_on(fid)
    }
    /// client-U2.
    pub fn wait_for_changes<R: Sent>(&self, fid: Fid, req: &R, deadline: Instant) -> Result<(), Fault> {
        let unshipped = &self.id.unshipped;
        if !self.is_mdt || unshipped.is_empty() && !R::MUTATES {
            return Ok(());
        }
        if R::MUTATES && !R::NAMES {
            // client-U4: it may change what new files in that directory get.
            unshipped.end_lease(fid);
        }
        match unshipped.wait_for(&req.after(fid), deadline) {
            true => Ok(()),
            false => Err(self.timeout("earlier changes of names wait for it")),
        }
    }

    /// Makes everything acknowledged so far durable.
    pub fn flush(&self, deadline: Instant) -> Result<(), Fault> {
        self.ask(Fid(0), &Flush {}, deadline).map(|_| ())
    }

    /// Sends a sign of life. This also finds a restart early, and replays. The replay has more time than `deadline`, since other clients may
    /// have to replay first.
    pub fn keep_alive(&self, deadline: Instant) -> Result<(), Fault> {
        let attach_until = || deadline.max(Instant::now() + TURN_WAIT + TURN_WAIT / 2);
        let (peer, incarnation) = self.ready(attach_until())?;
        let session = self.session();
        let head = Header { session, ..self.header() };
        let (since, renewal) = (self.id.sharing.attach(), Leased::renewal());
        let req = KeepAlive { session, mode: self.id.sharing.mode() };
        let is_known = match rpc::call(&*peer, head, &req, &[], &mut Buf::new(), deadline) {
            Ok((answer, _, Ok(reply))) => {
                if self.is_mdt && answer.incarnation == incarnation {
                    self.id.sharing.heard(since, reply.mode);
                    *self.id.ticket.lock() = (session, reply.ticket);
                    self.id.alive_answers.fetch_add(1, Ordering::AcqRel);
                    if self.id.ear.is_due(&reply) {
                        self.listen(&*peer, deadline);
                    }
                    // Without a line nothing is cached: a notice would not come.
                    if answer.flags & Flags::NAMES_LEASED != 0 && self.id.ear.is_open() {
                        self.id.leased.renewed(renewal);
                    }
                }
                answer.incarnation == incarnation
            }
            Ok((_, _, Err(fault))) => !matches!(fault.code, Code::NoSession | Code::Moved),
            Err(e) => return Err(self.unreachable(&e)),
        };
        if is_known {
            self.tell_jobs(&*peer, (session, incarnation), deadline);
        } else {
            self.detached(incarnation);
            self.ready(attach_until())?;
        }
        self.renew_grant(deadline);
        Ok(())
    }

    /// Begins the line for notices. Without one the client goes on, and hears of changes by its keep-alives.
    fn listen(&self, peer: &dyn Peer, deadline: Instant) {
        let head = Header { session: self.session(), ..self.header() };
        if let Err(e) = self.id.ear.listen(&self.id, peer, head, deadline) {
            tracing::debug!("{}: no line for notices: {e}", self.describe());
        }
    }

    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// The mirror's other member in sync, as the map shows it. Reads go there too.
    pub fn set_aside(&self, second: Option<TargetId>) {
        if let Some(left) = self.aside.set(second).filter(|left| *left != self.target()) {
            // It may stand still, and reads with it.
            self.fabric.end_requests(left);
        }
    }

    /// The member to which requests go.
    pub fn target(&self) -> TargetId {
        TargetId(self.target.load(Ordering::Acquire))
    }

    pub fn header(&self) -> Header {
        let job_tag = jobs::current();
        Header { fs: self.id.fs, target: self.target(), job_tag, ..Header::default() }
    }
    pub fn locks(&self) -> &Locks {
        &self.id.locks
    }
    /// Names and attributes that may be cached; `None`: an observer caches nothing.
    pub fn leased(&self) -> Option<&Leased> {
        Some(&self.id.leased).filter(|_| !self.id.observer)
    }
    pub fn losses(&self) -> &Losses {
        &self.id.losses
    }
    pub fn session(&self) -> SessionId {
        SessionId(self.id.session.load(Ordering::Acquire))
    }
    pub fn flushed(&self) -> Seq {
        Seq(self.flushed.load(Ordering::Acquire))
    }
    /// The session's time-out at the target in milliseconds; 0 before the first attach.
    pub fn ttl_ms(&self) -> u32 {
        self.ttl_ms.load(Ordering::Relaxed)
    }
    pub fn is_in(&self, at: At) -> bool {
        self.at() == at
    }
    /// The life of the target in which this client is attached; incarnation 0: in none.
    fn at(&self) -> At {
        At { target: self.target(), incarnation: Incarnation(self.incarnation.load(Ordering::Acquire)) }
    }
    pub fn is_attached(&self) -> bool {
        self.incarnation.load(Ordering::Acquire) != 0
    }
    pub fn was_attached(&self) -> bool {
        self.was_attached.load(Ordering::Acquire)
    }
    /// True if requests are retained for replay. A target in this process dies with the client, so nothing is retained for it.
    pub fn keeps(&self) -> bool {
        !self.is_fate_shared.load(Ordering::Relaxed) && !self.id.observer
    }
    pub fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }
    pub fn describe(&self) -> String {
        format!("{} {}", if self.is_mdt { "MDT target" } else { "OST target" }, self.target())
    }
    pub fn timeout(&self, why: &str) -> Fault {
        Fault::new(Code::Timeout, format!("{}: {why}; see 'stria status'", self.describe()))
    }

    /// True if the target has reported the mark as flushed. One that was removed has nothing left to flush.
    pub fn covers(&self, mark: &Mark) -> bool {
        self.has_left() || self.has_flushed(mark)
    }

    fn has_flushed(&self, mark: &Mark) -> bool {
        mark.is_covered(self.at(), self.flushed())
    }

    /// True if the target has flushed everything that it acknowledged so far.
    pub fn is_all_flushed(&self) -> bool {
        self.is_attached()
            && (!self.is_mdt || self.id.unshipped.is_empty())
            && self.acknowledged.load(Ordering::Acquire) <= self.flushed.load(Ordering::Acquire)
    }

    /// True if the target restarted without the mark's entry, and the entry cannot be replayed.
    pub fn has_lost(&self, mark: &Mark) -> bool {
        if self.has_left() {
            return !self.has_flushed(mark);
        }
        if self.keeps() || self.is_in(mark.at) {
            // Retained requests are replayed, and those that fail are in the list of losses.
            return false;
        }
        let attached = self.attaching.lock();
        attached.cuts.iter().skip_while(|(ended, _)| *ended != mark.at).any(|(_, have)| mark.seq > *have)
    }

    /// Notes the head of a reply. A restarted target may use the seqs of lost entries again, so replies of another incarnation than the
    /// attached one do not count.
    pub fn note(&self, head: &Header, reply: &ReplyHead) {
        if !self.is_in(at_of(head)) {
            return;
        }
        if self.epoch.load(Ordering::Relaxed) != head.epoch.0 {
            self.epoch.store(head.epoch.0, Ordering::Release);
        }
        if reply.seq.0 > 0 {
            self.acknowledged.fetch_max(reply.seq.0, Ordering::AcqRel);
        }
        let before = self.flushed.fetch_max(reply.flushed_seq.0, Ordering::AcqRel);
        if reply.flushed_seq.0 > before && self.keeps() {
            let mut retained = self.retained.lock();
            if retained.at == at_of(head) {
                retained.kept.release(reply.flushed_seq);
            }
        }
    }

    /// Waits for `after`, or until an abort. False: the deadline would pass first, or the client is aborted.
    pub fn wait(&self, after: Duration, deadline: Instant) -> bool {
        if self.id.aborted.load(Ordering::Acquire) || Instant::now() + after >= deadline {
            return false;
        }
        if !after.is_zero() {
            let mut guard = self.id.sleepers.0.lock();
            self.id.sleepers.1.wait_for(&mut guard, after);
        }
        !self.id.aborted.load(Ordering::Acquire)
    }

    /// A newer map may have another place for the target.
    pub fn want_map(&self) {
        self.id.want_map();
    }

    /// Drops the peer, which may have moved to another node. The next request asks the fabric again.
    pub fn lost_contact(&self) {
        *self.peer.write() = None;
        self.id.want_map();
    }

    /// client-M1: `target` is the mirror's primary now. Requests that wait are sent there. True: it was another one before.
    pub fn follow(&self, target: TargetId) -> bool {
        if self.target() == target {
            return false;
        }
        let former = {
            // `attach_once` looks under this lock whether it has spoken to the present primary.
            let mut peer = self.peer.write();
            let former = self.target.swap(target.0, Ordering::AcqRel);
            *peer = None;
            self.incarnation.store(0, Ordering::Release);
            self.epoch.store(0, Ordering::Release);
            TargetId(former)
        };
        // It may stand still, and its connections with it.
        self.fabric.end_requests(former);
        tracing::info!("{} serves mirror {} now", self.describe(), self.mirror);
        // An idle client attaches now: others wait for its report at the MDT (mds-X1), and for its replay at an OST.
        if self.was_attached() {
            if self.is_mdt { &self.id.alive } else { &self.id.alive_osts }.ring();
        }
        let _sleepers = self.id.sleepers.0.lock();
        self.id.sleepers.1.notify_all();
        true
    }

    /// The target has left `incarnation`, so the client attaches before it sends another request.
    pub fn detached(&self, incarnation: Incarnation) {
        let _ = self.incarnation.compare_exchange(incarnation.0, 0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The peer and the incarnation to address, attached and replayed.
    pub fn ready(&self, deadline: Instant) -> Result<(Arc<dyn Peer>, Incarnation), Fault> {
        loop {
            self.refuse_left()?;
            let incarnation = self.incarnation.load(Ordering::Acquire);
            if incarnation != 0 && self.attached_session.load(Ordering::Acquire) == self.session().0 {
                if let Some(peer) = self.peer.read().as_ref() {
                    return Ok((peer.clone(), Incarnation(incarnation)));
                }
                let (target, found) = self.find_peer(deadline)?;
                let mut peer = self.peer.write();
                // `follow` changes both under this lock. The peer of the former primary would keep every later request.
                if self.target() == target {
                    *peer = Some(found);
                }
                continue;
            }
            self.attach(deadline)?;
        }
    }

    fn find_peer(&self, deadline: Instant) -> Result<(TargetId, Arc<dyn Peer>), Fault> {
        let mut tries = 0;
        loop {
            tries += 1;
            self.refuse_left()?;
            let target = self.target();
            match self.fabric.peer(target) {
                Ok(peer) => return Ok((target, peer)),
                Err(e) if !self.wait(backoff(tries), deadline) => return Err(self.timeout(&e.to_string())),
                Err(_) => {}
            }
        }
    }

    /// True if `ready` would not wait.
    pub fn is_ready(&self) -> bool {
        let session = self.attached_session.load(Ordering::Acquire);
        self.is_attached() && session == self.session().0 && self.peer.read().is_some()
    }

    /// True if `make_room` would do nothing.
    pub fn has_room(&self) -> bool {
        let is_over = self.keeps() && self.retained.lock().kept.is_over();
        !is_over && !self.slots.has_stuck()
    }

    /// plan-P3: memory for replay is bounded, and past the bound the caller flushes first. client-C3: stuck requests are sent first, too.
    pub fn make_room(&self, deadline: Instant) -> Result<(), Fault> {
        if self.slots.has_stuck() {
            // One thread sends them, and the others wait. So no newer request arrives before them.
            let _turn = self
                .unsticking
                .try_lock_until(deadline)
                .ok_or_else(|| self.timeout("a given-up request is stuck"))?;
            while let Some(stuck) = self.slots.take_stuck() {
                self.resend_stuck(stuck, deadline)?;
            }
        }
        if self.keeps() && self.retained.lock().kept.is_over() {
            self.flush(deadline)?;
        }
        Ok(())
    }

    /// Attaches, and replays requests that the target lost. One thread does it, and the others wait.
    pub fn attach(&self, deadline: Instant) -> Result<(), Fault> {
        let mut attached = self
            .attaching
            .try_lock_until(deadline)
            .ok_or_else(|| self.timeout("attaching takes too long"))?;
        let (mut tries, mut asked) = (0, self.target());
        while !self.is_attached() || self.attached_session.load(Ordering::Acquire) != self.session().0 {
            tries += 1;
            self.refuse_left()?;
            let fault = match self.attach_once(&mut attached, deadline) {
                Ok(()) => return Ok(()),
                Err(Attempt::Final(fault)) => return Err(fault),
                Err(Attempt::Again(fault)) => fault,
            };
            if std::mem::replace(&mut asked, self.target()) != asked {
                tries = 1;
            }
            if !self.wait(backoff(tries), deadline) {
                return Err(Fault::new(Code::Timeout, format!("gave up attaching: {}", fault.detail)));
            }
        }
        Ok(())
    }

    fn attach_once(&self, attached: &mut Attached, deadline: Instant) -> Result<(), Attempt> {
        // 0. A late notice of the old MDT would change what a restarted one counts anew.
        if self.is_mdt {
            self.id.ear.end();
            // A restarted MDT knows of no lease, and changes nothing before this client has reported (mds-X1).
            self.id.leased.void();
        }
        let renewal = Leased::renewal();
        // 1. Attach. An OST gets the session that the MDT gave.
        let target = self.target();
        let peer = self.fabric.peer(target).map_err(|e| Attempt::Again(self.unreachable(&e)))?;
        let (incarnation, reply) = self.say_attach(&*peer, deadline)?;
        // client-M1: a member counts its own incarnations, so another member counts as restarted.
        let at = At { target, incarnation };
        let fresh = if self.is_mdt && !self.id.observer { reply.session } else { self.session() };

        // 2. Find out what the target lost. Nothing is replayed into a new session.
        self.is_fate_shared.store(peer.is_fate_shared(), Ordering::Relaxed);
        self.slots.raise(&reply.slots);
        if attached.last.is_some_and(|(ended, _)| ended != at) {
            self.begin_anew(&reply);
        }
        match attached.last {
            Some((_, session)) if session != fresh => self.lose_session(session, &mut attached.unsent),
            Some((ended, _)) if ended != at => {
                // A replay may take several attaches, and the target may restart again between them.
                match attached.cuts.last_mut() {
                    Some((last, have)) if *last == ended => *have = reply.last_seq.min(*have),
                    _ => attached.cuts.push((ended, reply.last_seq)),
                }
                self.replay(&mut attached.unsent, &reply, at, deadline)?;
            }
            _ => {}
        }
        if !self.is_mdt {
            self.wait_turn(incarnation, ALL, deadline)?;
        }
        if self.is_mdt && !self.id.observer {
            match attached.last {
                Some((ended, session)) if session == fresh => {
                    if ended != at {
                        self.wait_for_void_names(deadline)?;
                    }
                    self.hold_again(&*peer, &reply, incarnation, deadline)?
                }
                _ => self.id.sharing.begin(reply.mode),
            }
        }
        if self.is_mdt && attached.last.is_some_and(|(_, session)| session == fresh) {
            self.reclaim(&*peer, fresh, deadline)?;
        }

        // 3. Requests may go out now.
        self.retained.lock().at = at;
        self.flushed.fetch_max(reply.flushed_seq.0, Ordering::AcqRel);
        self.ttl_ms.store(reply.session_ttl_ms, Ordering::Relaxed);
        if self.is_mdt {
            *self.id.ticket.lock() = (fresh, reply.ticket);
            self.id.session.store(fresh.0, Ordering::Release);
            self.id.judges.store(reply.judges, Ordering::Relaxed);
            // The first attach decides: the kernel is told at the mount.
            if !self.was_attached() {
                self.id.own_locks.store(reply.own_locks, Ordering::Relaxed);
            }
            self.id.knows_groups.store(reply.knows_groups, Ordering::Relaxed);
            self.id.root.set(reply.root);
        }
        attached.last = Some((at, fresh));
        {
            let mut known = self.peer.write();
            if self.target() != target {
                return Err(Attempt::Again(self.timeout("another member of its mirror serves now")));
            }
            *known = Some(peer.clone());
            self.attached_session.store(fresh.0, Ordering::Release);
            self.was_attached.store(true, Ordering::Release);
            self.incarnation.store(incarnation.0, Ordering::Release);
        }
        // 4. Notices come from here on.
        if self.is_mdt && !self.id.observer {
            self.listen(&*peer, deadline.min(Instant::now() + LISTEN_MAX));
            if self.id.ear.is_open() {
                self.id.leased.renewed(renewal);
            }
        }
        Ok(())
    }

    /// A restarted MDT knows of no lease, and lets others change names once this client has reported (client-LE5).
    fn wait_for_void_names(&self, deadline: Instant) -> Result<(), Attempt> {
        let until = Instant::now() + self.id.leased.void_names_left();
        match self.wait(until.saturating_duration_since(Instant::now()), deadline) {
            true => Ok(()),
            false => Err(Attempt::Again(self.timeout("the kernel's names have not run out"))),
        }
    }

    /// Reports opens, sections and locks, which the MDT has in memory only, before any new request.
    fn hold_again(
        &self,
        peer: &dyn Peer,
        reply: &AttachReply,
        incarnation: Incarnation,
        deadline: Instant,
    ) -> Result<(), Attempt> {
        let sharing = &self.id.sharing;
        if !sharing.is_shared() || sharing.is_beginning() || reply.mode.is_multiple_of(2) {
            sharing.want(reply.mode);
            return Ok(());
        }
        sharing.renew(reply.mode);
        for part in sharing.hold(|| self.id.unshipped.held()) {
            let head = Header { session: reply.session, incarnation, ..self.header() };
            match rpc::call(peer, head, &part, &[], &mut Buf::new(), deadline) {
                Ok((_, _, Ok(_))) => {}
                Ok((_, _, Err(fault))) => return Err(Attempt::Again(fault)),
                Err(e) => return Err(Attempt::Again(self.unreachable(&e))),
            }
        }
        Ok(())
    }

    fn say_attach(&self, peer: &dyn Peer, deadline: Instant) -> Result<(Incarnation, AttachReply), Attempt> {
        let Some((session, req)) = self.attach_request(peer) else {
            return Err(Attempt::Again(self.timeout("its session changes")));
        };
        let head = Header { session, ..self.header() };
        match rpc::call(peer, head, &req, &[], &mut Buf::new(), deadline) {
            Ok((head, _, Ok(reply))) => Ok((head.incarnation, reply)),
            Ok((_, _, Err(fault))) if fault.code == Code::NotReady => Err(Attempt::Again(fault)),
            // Another member serves the mirror, in a newer map.
            Ok((_, _, Err(fault))) if fault.code == Code::Moved => {
                self.lost_contact();
                Err(Attempt::Again(fault))
            }
            Ok((_, _, Err(fault))) if fault.code == Code::Access && self.may_get_ticket(&req, deadline) => {
                Err(Attempt::Again(fault))
            }
            Ok((_, _, Err(fault))) => Err(Attempt::Final(fault)),
            // client-KY2
            Err(e) if e.is_revoked() => {
                Err(Attempt::Final(Fault::new(Code::Access, format!("{}: {e}", self.describe()))))
            }
            Err(e) => Err(Attempt::Again(self.timeout(&e.to_string()))),
        }
    }

    /// `None`: the MDT gives a new session just now.
    pub fn attach_request(&self, peer: &dyn Peer) -> Option<(SessionId, Attach)> {
        let session = self.session();
        let ticket = match *self.id.ticket.lock() {
            _ if self.is_mdt => Mac::default(),
            (of, ticket) if of == session => ticket,
            _ => return None,
        };
        let req = Attach {
            fs_uuid: self.id.fs_uuid,
            client: self.id.client,
            session,
            name: self.id.name.clone(),
            observer: self.id.observer,
            claims: self.id.claims.clone(),
            own_locks: self.id.wants_own_locks && peer.is_fate_shared(),
            ticket,
        };
        Some((session, req))
    }

    /// client-KY3: a ticket by an earlier key is refused. The MDT gives one by the key of now with each answer to a keep-alive. False: the
    /// MDT has answered since the refusal, with the same ticket.
    fn may_get_ticket(&self, refused: &Attach, deadline: Instant) -> bool {
        if self.is_mdt {
            return false;
        }
        let before = self.id.alive_answers.load(Ordering::Acquire);
        self.id.alive.ring();
        let until = deadline.min(Instant::now() + TICKET_WAIT_MAX);
        loop {
            if *self.id.ticket.lock() != (refused.session, refused.ticket) {
                return true;
            }
            if !self.wait(TICKET_LOOK_EACH, until) {
                // One thread sends them, one after another. The first of these may have been sent before the refusal.
                let answers = self.id.alive_answers.load(Ordering::Acquire).wrapping_sub(before);
                return answers < 2;
            }
        }
    }

    fn unreachable(&self, e: &dyn std::error::Error) -> Fault {
        self.timeout(&e.to_string())
    }
}

/// A failed attach.
enum Attempt {
    Again(Fault),
    Final(Fault),
}
impl From<Fault> for Attempt {
    fn from(fault: Fault) -> Attempt {
        Attempt::Again(fault)
    }
}
