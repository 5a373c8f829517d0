//! A lightweight client: a session at the MDT and at the OST that lives by the protocol as a mount does, without caches or threads.
//!
//! A driver calls `step` when the session is due. A step sends the requests that are due, and tells when the next one is.
//! load-L1: an operation fails only if its target refuses it. Silence, a restart and `NotReady` delay it.
//! load-L2: a request that changes something keeps its slot and sequence through all tries.

use std::sync::Arc;
use std::time::{Duration, Instant};

use net::Fabric;
use types::{Fid, Incarnation, SessionId, Uuid};
use wire::lock::Reclaim;
use wire::meta::GetAttr;
use wire::session::{Attach, Claims, Detach, KeepAlive};
use wire::shared::{ALL, CatchUp, CaughtUp, Hold, OpenFile};

use super::ear::Ear;
use super::link::{Link, Said};
use super::work::Work;
use super::worker::Shared;

/// As in the client: the MDT hears of a session each second, an OST three times per session time-out.
const MDT_ALIVE_EACH: Duration = Duration::from_secs(1);
/// As in the client: pause before the session asks again whether it may send new requests to a restarted OST.
const TURN_PAUSE: Duration = Duration::from_millis(1);
/// Pause after a refusal of an attach, which is an error.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

pub struct Session {
    /// Its number among all sessions of the load.
    pub n: u64,
    client: Uuid,
    pub id: SessionId,
    pub mdt: Link,
    pub ost: Link,
    /// Its line for notices, if it has one.
    ear: Option<Ear>,
    ttl: Duration,
    /// The mode that the session lives by, and the one that the MDT wants.
    mode: u32,
    wanted: u32,
    owes_hold: bool,
    /// The OST may get new requests.
    has_turn: bool,
    was_attached: bool,
    outage: u64,
    back: Back,
    work: Work,
}

/// The requests that show that the session is back after an outage.
enum Back {
    /// It is back, or there was no outage.
    Here,
    /// A request to each target.
    Asked,
    /// A request to each target after these incarnations of MDT and OST.
    After([Incarnation; 2]),
}

/// The next time at which a session is due, or the reason why a step went no further.
type Stepped = Result<(), Instant>;

impl Session {
    /// `listens`: the fabric of its line for notices.
    pub fn new(
        n: u64,
        client: Uuid,
        fabric: &Arc<Fabric>,
        listens: Option<&Arc<Fabric>>,
        shared: &Shared,
    ) -> anyhow::Result<Session> {
        let now = Instant::now();
        let link = |target| anyhow::Ok(Link::new(target, fabric.peer(target)?, shared.place.fs, now));
        Ok(Session {
            n,
            client,
            id: SessionId(0),
            mdt: link(shared.place.mdt)?,
            ost: link(shared.place.ost)?,
            ear: listens.map(|fabric| fabric.peer(shared.place.mdt)).transpose()?.map(Ear::new),
            ttl: Duration::from_secs(10),
            mode: 0,
            wanted: 0,
            owes_hold: false,
            has_turn: false,
            was_attached: false,
            outage: 0,
            back: Back::Here,
            work: Work::default(),
        })
    }

    /// Does what is due, and tells when the next step is.
    pub fn step(&mut self, shared: &Shared, is_active: bool) -> Instant {
        let outage = shared.outage();
        if outage != self.outage {
            self.outage = outage;
            // A server that was stopped cleanly keeps its incarnation.
            let last = [self.mdt.last, self.ost.last];
            self.back = if shared.is_clean() { Back::Asked } else { Back::After(last) };
        }
        if is_active && self.was_attached {
            self.work.begin_if_due();
        }
        let alive = |session: &Session| session.mdt.alive_at.min(session.ost.alive_at);
        match self.advance(shared) {
            Ok(()) if is_active => alive(self).min(self.work.due),
            Ok(()) => alive(self),
            Err(due) => due,
        }
    }

    fn advance(&mut self, shared: &Shared) -> Stepped {
        // 1. The MDT: attach, live by its mode, stay alive.
        if !self.mdt.is_attached() {
            self.attach_mdt(shared)?;
        }
        if self.owes_hold || (self.wanted != self.mode && self.wanted % 2 == 1) {
            self.begin_sharing(shared)?;
        }
        self.hear(shared);
        if Instant::now() >= self.mdt.alive_at {
            self.keep_mdt_alive()?;
        }
        // 2. The OST: attach, wait for the turn after its restart, stay alive.
        if !self.ost.is_attached() {
            self.attach_ost(shared)?;
        }
        if !self.has_turn {
            self.ask_turn(shared)?;
        }
        if Instant::now() >= self.ost.alive_at {
            self.keep_ost_alive()?;
        }
        if !self.was_attached {
            self.was_attached = true;
            shared.count_attached();
        }
        // 3. After an outage: a request to each target.
        match self.back {
            Back::After([mdt, ost]) if mdt == self.mdt.incarnation || ost == self.ost.incarnation => {}
            Back::After(_) | Back::Asked => self.come_back(shared)?,
            Back::Here => {}
        }
        // 4. The operation that has begun.
        if self.work.is_begun() {
            let mut work = std::mem::take(&mut self.work);
            let done = work.step(self, shared);
            self.work = work;
            done?;
        }
        Ok(())
    }

    // ---- the MDT ----

    fn attach_mdt(&mut self, shared: &Shared) -> Stepped {
        let req = self.attach(shared);
        let (incarnation, reply) = match self.mdt.greet(self.id, &req) {
            Said::Done(done) => done,
            Said::Again | Said::Detached => return Err(Instant::now() + self.mdt.pause()),
            Said::Refused(fault) => return Err(self.failed(shared, &format!("attach: {fault}"))),
        };
        let is_new = self.id == SessionId(0);
        let ended = std::mem::replace(&mut self.id, reply.session);
        if !is_new && ended != self.id {
            (self.mdt.answered, self.ost.answered) = (0, 0);
            self.ost.detach();
            return Err(self.failed(shared, &format!("the MDT has ended {ended}")));
        }
        if let Err(why) = self.mdt.check_slot(&reply.slots) {
            return Err(self.failed(shared, &why));
        }
        self.ttl = Duration::from_millis(u64::from(reply.session_ttl_ms));
        self.mdt.attached(incarnation);
        self.mdt.alive_at = Instant::now() + self.mdt_pause();
        self.wanted = reply.mode;
        if is_new {
            self.mode = reply.mode;
            // The client says so once more, since it may have files open from an earlier session.
            self.owes_hold = reply.mode % 2 == 1;
            return Ok(());
        }
        if self.mode % 2 == 1 && reply.mode % 2 == 1 {
            self.begin_sharing(shared)?;
        }
        let reclaim = Reclaim { locks: vec![], more: false };
        let said = self.mdt.ask(self.id, 0, &reclaim);
        self.mdt_done(said).map(drop)
    }

    fn attach(&self, shared: &Shared) -> Attach {
        Attach {
            fs_uuid: shared.place.fs_uuid,
            client: self.client,
            session: self.id,
            name: format!("load session {} of pid {}", self.n, std::process::id()),
            observer: false,
            claims: Claims::All,
            own_locks: false,
            ticket: wire::object::Mac::default(),
        }
    }

    fn mdt_pause(&self) -> Duration {
        (self.ttl / 3).min(MDT_ALIVE_EACH)
    }

    /// The reply of a request that the session needs to go on. Anything else is tried again, after an attach if need be.
    fn mdt_done<T>(&mut self, said: Said<T>) -> Result<T, Instant> {
        match said {
            Said::Done(reply) => Ok(reply),
            Said::Detached => Err(Instant::now()),
            Said::Again | Said::Refused(_) => {
                // As the client: the attach begins anew.
                self.mdt.detach();
                Err(Instant::now() + self.mdt.pause())
            }
        }
    }

    fn begin_sharing(&mut self, shared: &Shared) -> Stepped {
        let mode = self.wanted;
        let opens = self.work.open_file().map(|fid| OpenFile { fid, write: true });
        let mirrors = if self.ost.is_attached() { vec![self.caught_up(shared)] } else { vec![] };
        let opens = opens.into_iter().collect();
        let hold = Hold { mode, floor: 1, opens, sections: vec![], dirs: vec![], mirrors, more: false };
        let said = self.mdt.ask(self.id, 0, &hold);
        self.mdt_done(said)?;
        (self.mode, self.owes_hold) = (mode, false);
        Ok(())
    }

    /// Keeps the line for notices open. Without one the session goes on, and hears of changes by its keep-alives.
    fn hear(&mut self, shared: &Shared) {
        let Some(ear) = &mut self.ear else { return };
        if ear.is_evicted() {
            shared.failed(format!("session {}: the MDT has told that {} has ended", self.n, self.id));
        }
        if ear.has_mode_changed() || !ear.is_open() && !ear.listen(self.id, shared.place.fs, self.mdt.target)
        {
            self.mdt.alive_at = Instant::now();
        }
    }

    fn keep_mdt_alive(&mut self) -> Stepped {
        let req = KeepAlive { session: self.id, mode: self.mode };
        match self.mdt.ask(self.id, 0, &req) {
            Said::Done(reply) => {
                self.mdt.alive_at = Instant::now() + self.mdt_pause();
                self.wanted = reply.mode;
                if reply.mode.is_multiple_of(2) {
                    self.mode = reply.mode;
                }
                Ok(())
            }
            Said::Detached => Err(Instant::now()),
            // As in the client: the next request notices what is wrong.
            Said::Again | Said::Refused(_) => Err(Instant::now() + self.mdt.pause()),
        }
    }

    // ---- the OST ----

    fn attach_ost(&mut self, shared: &Shared) -> Stepped {
        let req = self.attach(shared);
        let (incarnation, reply) = match self.ost.greet(self.id, &req) {
            Said::Done(done) => done,
            Said::Again | Said::Detached => return Err(self.retry_ost()),
            Said::Refused(fault) => return Err(self.failed(shared, &format!("attach to the OST: {fault}"))),
        };
        if let Err(why) = self.ost.check_slot(&reply.slots) {
            return Err(self.failed(shared, &why));
        }
        self.has_turn = false;
        self.ost.attached(incarnation);
        self.ost.alive_at = Instant::now() + self.ttl / 3;
        Ok(())
    }

    /// The MDT hears of the session also while the OST is down.
    fn retry_ost(&mut self) -> Instant {
        (Instant::now() + self.ost.pause()).min(self.mdt.alive_at.max(Instant::now()))
    }

    fn caught_up(&self, shared: &Shared) -> CaughtUp {
        CaughtUp { mirror: shared.place.ost_mirror, incarnation: self.ost.incarnation, next: ALL }
    }

    fn ask_turn(&mut self, shared: &Shared) -> Stepped {
        if self.mode.is_multiple_of(2) {
            self.has_turn = true;
            return Ok(());
        }
        let at = self.caught_up(shared);
        let said = self.mdt.ask(self.id, 0, &CatchUp { at });
        let until = self.mdt_done(said)?.until;
        self.has_turn = until == ALL;
        match self.has_turn {
            true => Ok(()),
            false => Err((Instant::now() + TURN_PAUSE).min(self.mdt.alive_at.max(Instant::now()))),
        }
    }

    fn keep_ost_alive(&mut self) -> Stepped {
        let req = KeepAlive { session: self.id, mode: self.mode };
        match self.ost.ask(self.id, 0, &req) {
            Said::Done(_) => {
                self.ost.alive_at = Instant::now() + self.ttl / 3;
                Ok(())
            }
            Said::Detached => Err(Instant::now()),
            Said::Again | Said::Refused(_) => Err(self.retry_ost()),
        }
    }

    // ---- outages and the end ----

    fn come_back(&mut self, shared: &Shared) -> Stepped {
        match self.mdt.ask(self.id, 0, &GetAttr { fid: Fid::ROOT }) {
            Said::Done(_) => {}
            Said::Again => return Err(Instant::now() + self.mdt.pause()),
            Said::Detached => return Err(Instant::now()),
            Said::Refused(fault) => return Err(self.failed(shared, &format!("stat of the root: {fault}"))),
        }
        self.keep_ost_alive()?;
        self.back = Back::Here;
        shared.count_back();
        Ok(())
    }

    /// Ends the session; false: it is to be tried again.
    pub fn leave(&mut self) -> bool {
        self.ear.iter_mut().for_each(Ear::end);
        let req = Detach { session: self.id };
        let is_over = |said| matches!(said, Said::Done(_) | Said::Detached | Said::Refused(_));
        is_over(self.ost.ask(self.id, 0, &req)) && is_over(self.mdt.ask(self.id, 0, &req))
    }

    fn failed(&mut self, shared: &Shared, why: &str) -> Instant {
        shared.failed(format!("session {}: {why}", self.n));
        Instant::now() + REFUSED_PAUSE
    }
}
