//! A target's place in this process. It serves as the only member of its mirror, or as one of two: then lives of the target follow one
//! another here, as the mirror needs it (decisions 0065 and 0068).
//!
//! ```text
//! open       log and state, without clients
//! Seat       greets the other member; the rules say which role this one has
//! serve      the role orders: the target is promoted, and requests reach it
//! end        it was replaced, or must drop or receive content: it is stopped, opened as the reason says, and takes its seat again
//! ```

mod copied;
mod front;
mod leaving;
mod pause;
mod told;
mod tuned;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use disk::{Label, Media, Trouble};
use mirror::MemberId;
use mirror::on_map::{member_of, members_of};
use net::{Fabric, Hub, Service};
use pair::{End, FabricPost, LogLines, Post, Replica, Seat, Setup, Turn};
use parking_lot::{Condvar, Mutex};
use types::{Code, Fault, FsId, Incarnation, MirrorId, Seq, TargetId};
use wire::map::{ClusterMap, Mirror};
use wire::mgmt::RegisterReply;
use wire::pair::AskMembers;

pub use self::copied::may_be_replaced;
use self::copied::{Doubt, boot_id};
use self::front::Front;
use self::pause::Pauses;
use self::told::Between;
use crate::serve::register::MgsPeers;
use crate::serve::servers::Target;

/// Longest time between two looks of a supervisor at its seat.
const LOOK_EACH: Duration = Duration::from_millis(200);

/// The surroundings of a place in its process.
#[derive(Clone)]
pub struct Around {
    pub hub: Arc<Hub>,
    pub fabric: Arc<Fabric>,
    pub mgs: MgsPeers,
    pub how: Opening,
    /// A follower that stops gives its primary so long to leave first (mirror-E5).
    pub company: Duration,
}

/// How a target of this place is opened.
#[derive(Clone)]
pub struct Opening {
    pub media: Media,
    pub path: PathBuf,
    pub kind: Kind,
}

#[derive(Clone)]
pub enum Kind {
    Mdt(mds::Settings),
    Ost(oss::Settings),
}

/// A target that is open and serves no client yet.
pub enum Resting {
    Mdt(Arc<mds::Standby>),
    Ost(Arc<oss::Ost>),
}

/// The content that a target is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// As its medium has it.
    Whole,
    /// Without the entries behind this one.
    UpTo(Seq),
    /// That of the other member, in place of its own.
    Copied,
    /// As its medium has it, but that counts for nothing: the other member fills this one, as its rules say.
    Doubted,
}

impl Opening {
    pub fn open(&self, content: Holding) -> Result<Resting, Fault> {
        Ok(match (&self.kind, content) {
            (Kind::Mdt(settings), Holding::UpTo(seq)) => Resting::Mdt(Arc::new(mds::Standby::open_cut(
                self.media.main.clone(),
                settings.clone(),
                seq,
            )?)),
            (Kind::Mdt(settings), _) => {
                Resting::Mdt(Arc::new(mds::Standby::open(self.media.main.clone(), settings.clone())?))
            }
            (Kind::Ost(settings), Holding::UpTo(seq)) => {
                Resting::Ost(oss::Ost::open_cut(self.media.clone(), settings.clone(), seq)?)
            }
            (Kind::Ost(settings), _) => Resting::Ost(oss::Ost::open(self.media.clone(), settings.clone())?),
        })
    }
}

impl Resting {
    pub fn label(&self) -> Label {
        match self {
            Resting::Mdt(standby) => standby.label(),
            Resting::Ost(ost) => ost.label(),
        }
    }

    /// Takes the identity that the MGS gave.
    fn join(&self, reply: &RegisterReply) -> Result<(), Fault> {
        match self {
            Resting::Mdt(standby) => standby.join(reply),
            Resting::Ost(ost) => ost.join(reply),
        }
    }

    /// Serves reads beside the primary, as the seat allows. The MDT's reads are the primary's.
    fn read_beside(&self, seat: &Arc<Seat>) -> Option<Arc<oss::Ost>> {
        let Resting::Ost(ost) = self else { return None };
        ost.read_beside(seat.clone());
        Some(ost.clone())
    }

    /// Takes no requests of clients until it is promoted, but reads.
    fn stand_by(&self) -> Result<(), Fault> {
        match self {
            Resting::Mdt(_) => Ok(()),
            Resting::Ost(ost) => ost.stand_by(),
        }
    }

    fn note(&self) -> Result<Vec<u8>, Fault> {
        match self {
            Resting::Mdt(standby) => Ok(standby.note()),
            Resting::Ost(ost) => ost.note(),
        }
    }

    fn lines(&self) -> Result<LogLines, Fault> {
        let (lines, end) = match self {
            Resting::Mdt(standby) => standby.lines(),
            // A checkpoint from before the first entry has no line.
            Resting::Ost(ost) => {
                (ost.lines()?.into_iter().filter(|(_, first)| first.0 > 0).collect(), ost.last_seq())
            }
        };
        Ok(LogLines { lines, end })
    }

    fn was_clean(&self) -> bool {
        match self {
            Resting::Mdt(standby) => standby.was_clean(),
            Resting::Ost(ost) => ost.was_clean(),
        }
    }

    /// Answers calls about this member itself, such as its numbers.
    fn service(&self) -> Option<Arc<dyn Service>> {
        match self {
            Resting::Mdt(standby) => Some(standby.clone()),
            Resting::Ost(ost) => Some(ost.clone()),
        }
    }

    fn replica(&self) -> Arc<dyn Replica> {
        match self {
            Resting::Mdt(standby) => standby.clone(),
            Resting::Ost(ost) => ost.clone(),
        }
    }

    /// Pages that this member cannot read come from the other one.
    fn set_peer(&self, seat: &Arc<Seat>) {
        match self {
            // It has no pages. As the primary it gets the other member for comparisons.
            Resting::Mdt(_) => {}
            Resting::Ost(ost) => ost.set_peer(Some(seat.clone())),
        }
    }

    fn promote(self, above: Incarnation, seat: Arc<Seat>) -> Result<Target, Fault> {
        Ok(match self {
            Resting::Mdt(standby) => {
                let mdt = standby.promote(above, Some(seat.clone()))?;
                mdt.set_peer(seat);
                Target::Mdt(mdt)
            }
            Resting::Ost(ost) => {
                ost.promote(above, seat)?;
                Target::Ost(ost)
            }
        })
    }

    fn close(self) -> Result<(), Fault> {
        match self {
            Resting::Mdt(standby) => standby.close(),
            Resting::Ost(ost) => ost.stop(true),
        }
    }

    /// Serves clients as the only member.
    fn serve_alone(self) -> Result<Target, Fault> {
        Ok(match self {
            Resting::Mdt(standby) => Target::Mdt(standby.serve(None)?),
            Resting::Ost(ost) => Target::Ost(ost),
        })
    }
}

/// A target in this process, with all its lives.
pub struct Place {
    me: Weak<Place>,
    around: Around,
    /// Of the registration: ids, and the map of then.
    reply: RegisterReply,
    state: Mutex<State>,
    /// Signalled when the supervisor has to look.
    changed: Condvar,
}

struct State {
    map: Arc<ClusterMap>,
    /// It serves clients now.
    target: Option<Target>,
    seat: Option<Arc<Seat>>,
    /// A standby that may serve reads: it has the newest keys.
    reader: Option<Arc<oss::Ost>>,
    /// While there is no seat.
    between: Between,
    is_stopping: bool,
    /// The process has begun to stop.
    expects_stop: bool,
    /// An administrator has this member, which is the primary, become the other one's follower.
    must_hand_over: bool,
    /// An administrator has this member, which follows, take the other one's content anew.
    must_resync: bool,
    /// Its medium has failed, or does not give a part of its content back: the other member fills it anew.
    doubt: Option<Doubt>,
    keeps_content: bool,
    /// Set by the supervisor when it has ended.
    stopped: Option<Result<(), Fault>>,
    supervisor: Option<JoinHandle<()>>,
}

/// How a life of a member ended.
enum Over {
    Next(Holding),
    Stopped(Result<(), Fault>),
}

impl Place {
    /// Serves a registered target, or has it take its seat in its mirror. `resting`: `None` of a member that could not be opened (`may_be_replaced`).
    pub fn take(around: Around, resting: Option<Resting>, reply: RegisterReply) -> Result<Arc<Place>, Fault> {
        around.how.kind.begin(&reply.map, reply.target);
        let map = Arc::new(reply.map.clone());
        let state = State {
            map,
            target: None,
            seat: None,
            reader: None,
            between: Between::Opening,
            is_stopping: false,
            expects_stop: false,
            must_hand_over: false,
            must_resync: false,
            doubt: None,
            keeps_content: false,
            stopped: None,
            supervisor: None,
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let place = Arc::new_cyclic(|me| Place { me: me.clone(), around, reply, state, changed });
        match (place.members(), resting) {
            (None, Some(resting)) => place.serve_alone(resting)?,
            (None, None) => {
                return Err(Fault::new(Code::Invalid, "a target that serves alone must be opened first"));
            }
            (Some(_), resting) => place.supervise(resting),
        }
        Ok(place)
    }

    pub fn id(&self) -> TargetId {
        self.reply.target
    }

    pub fn is_mdt(&self) -> bool {
        matches!(self.around.how.kind, Kind::Mdt(_))
    }

    /// The target, while it serves clients.
    pub fn target(&self) -> Option<Target> {
        self.state.lock().target.clone()
    }

    fn mirror(&self) -> Option<Mirror> {
        self.state.lock().map.mirror(self.reply.mirror).cloned()
    }

    fn is_removed(&self) -> bool {
        let map = self.state.lock().map.clone();
        map.target(self.id()).is_none() && self.id() <= map.ids_used.target
    }

    fn members(&self) -> Option<mirror::Members> {
        self.mirror().and_then(|mirror| members_of(&mirror))
    }

    /// The registration, as of the newest map.
    fn joining(&self) -> RegisterReply {
        let map = self.state.lock().map.clone();
        let epoch = map.mirror(self.reply.mirror).map_or(self.reply.epoch, |mirror| mirror.epoch);
        RegisterReply { epoch: epoch.max(self.reply.epoch), map: (*map).clone(), ..self.reply.clone() }
    }

    fn serve_alone(&self, resting: Resting) -> Result<(), Fault> {
        let target = resting.serve_alone()?;
        target.join(&self.joining(), self.around.fabric.clone())?;
        self.around.hub.add(self.id(), self.tuned(target.service()));
        self.state.lock().target = Some(target);
        Ok(())
    }

    /// Takes a newer map. A mirror that got a second member, or lost it, has the target begin a new life.
    pub fn set_map(self: &Arc<Place>, map: &ClusterMap) {
        let (target, seat) = {
            let mut state = self.state.lock();
            if map.version <= state.map.version {
                return;
            }
            state.map = Arc::new(map.clone());
            (state.target.clone().or(state.reader.clone().map(Target::Ost)), state.seat.clone())
        };
        self.around.how.kind.params().follow(map, self.id());
        if let Some(target) = target.filter(|_| !self.is_removed())
            && let Err(fault) = target.set_map(map)
        {
            tracing::warn!(target = %self.id(), "the new cluster map was not taken: {fault}");
        }
        if let (Some(seat), Some(mirror)) = (seat, map.mirror(self.reply.mirror)) {
            seat.on_map(mirror);
        }
        self.changed.notify_all();
        if self.members().is_some() {
            self.supervise(None);
        }
    }

    /// Ends the target: its last requests are durable at both members, and the other member takes over without a wait.
    pub fn stop(&self) -> Result<(), Fault> {
        let supervisor = {
            let mut state = self.state.lock();
            state.is_stopping = true;
            state.seat.iter().for_each(|seat| seat.nudge());
            state.supervisor.take()
        };
        self.changed.notify_all();
        if let Some(supervisor) = supervisor {
            // A panic ends the process, so there is no other outcome.
            let _ = supervisor.join();
            return self.state.lock().stopped.take().unwrap_or(Ok(()));
        }
        self.around.hub.remove(self.id());
        self.state.lock().target.take().map_or(Ok(()), |target| target.stop(true))
    }

    /// Begins the lives of a member, unless they have begun.
    fn supervise(self: &Arc<Place>, resting: Option<Resting>) {
        let mut state = self.state.lock();
        if state.supervisor.is_some() || state.is_stopping {
            return;
        }
        let place = self.clone();
        let run = move || {
            let stopped = place.lives(resting);
            place.state.lock().stopped = Some(stopped);
        };
        let thread = std::thread::Builder::new().name("pair-lives".into()).spawn(run);
        state.supervisor = Some(thread.expect("a thread can be started"));
    }

    /// One life after another, until the place is left.
    fn lives(&self, mut resting: Option<Resting>) -> Result<(), Fault> {
        let (mut content, mut pauses) = (Holding::Whole, Pauses::default());
        // The target served alone until now.
        let served = self.state.lock().target.take();
        if let Some(target) = served {
            self.around.hub.remove(self.id());
            if let Err(fault) = target.stop(true) {
                tracing::error!(target = %self.id(), "did not stop cleanly, its next start will recover: {fault}");
            }
        }
        loop {
            if self.is_removed() {
                // `tell` has said so.
                self.around.hub.remove(self.id());
                let mut state = self.state.lock();
                while !state.is_stopping {
                    self.changed.wait(&mut state);
                }
                return Ok(());
            }
            let begun = Instant::now();
            match self.life(resting.take(), content) {
                Ok(Over::Stopped(stopped)) => return stopped,
                Ok(Over::Next(next)) => content = next,
                Err(fault) => {
                    let (target, path) = (self.id(), self.around.how.path.display());
                    match fault.code {
                        // The other member is not that far yet.
                        Code::NotReady => {
                            tracing::info!(%target, %fault, "a member of a mirror waits for the other one");
                        }
                        _ => {
                            tracing::error!(%target, %path, %fault, "a member of a mirror could not go on; it is opened again in a moment");
                        }
                    }
                    content = Holding::Whole;
                    let (pause, tries) = pauses.after(&fault, begun.elapsed());
                    if self.wait_again(Between::Failed { fault, tries, pause }) {
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// The members of a mirror, in the map's order.
fn members_in(map: &ClusterMap, mirror: MirrorId) -> Vec<TargetId> {
    map.mirror(mirror).map_or(vec![], |mirror| mirror.members.iter().map(|member| member.target).collect())
}

impl Place {
    /// From an open medium to the end of one life.
    fn life(&self, resting: Option<Resting>, content: Holding) -> Result<Over, Fault> {
        let is_doubted = self.state.lock().doubt.is_some() && content != Holding::Copied;
        let mut content = if is_doubted { Holding::Doubted } else { content };
        match content {
            Holding::Copied => self.copy_content()?,
            Holding::Doubted => content = self.give_up_content()?,
            Holding::Whole | Holding::UpTo(_) => {}
        }
        self.state.lock().between = Between::Opening;
        let resting = match resting {
            Some(resting) => resting,
            None => match self.around.how.open(content) {
                // A checkpoint has more than the mirror has.
                Err(fault)
                    if matches!(fault.code, Code::Stale | Code::Invalid)
                        && matches!(content, Holding::UpTo(_)) =>
                {
                    tracing::warn!(target = %self.id(), %fault, "its log cannot be cut, so it takes the whole content of the other member");
                    return Ok(Over::Next(Holding::Copied));
                }
                Err(fault) if self.may_be_replaced(&fault) => {
                    let path = self.around.how.path.display();
                    tracing::error!(target = %self.id(), %path, %fault, "the content of a member of a mirror cannot be opened; it is dropped, and the whole content of the other member, which is in sync, takes its place; look at the medium");
                    return Ok(Over::Next(Holding::Copied));
                }
                opened => opened?,
            },
        };
        resting.join(&self.joining())?;
        let Some(members) = self.members() else {
            // The other member was taken out of the mirror.
            self.serve_alone(resting)?;
            return Ok(self.wait_alone());
        };
        resting.stand_by()?;
        let seat = self.take_seat(&resting, members)?;
        resting.set_peer(&seat);
        self.show(&seat, resting.service());
        let reader = resting.read_beside(&seat);
        {
            let mut state = self.state.lock();
            (state.seat, state.reader) = (Some(seat.clone()), reader);
            if state.expects_stop {
                seat.expect_stop();
            }
        }
        let watched = resting.replica();
        let over = self.sit(&seat, resting);
        let target = {
            let mut state = self.state.lock();
            (state.seat, state.reader, state.must_hand_over, state.must_resync) = (None, None, false, false);
            state.target.take()
        };
        if !matches!(over, Ok(Over::Stopped(_))) {
            self.show(&seat, None);
        }
        let states = seat.report().states;
        let is_beside = self.me().is_ok_and(|me| states[me.other().index()] == mirror::MemberState::InSync);
        if let Err(fault) | Ok(Over::Stopped(Err(fault))) = &over {
            // pair-S15: a life that ended already keeps its end.
            seat.fail(fault.clone());
        }
        // First the seat, since requests may wait for it.
        let stopped = seat.stop();
        if let Some(target) = target {
            // As a killed process leaves it: the next life takes all from the log.
            target.stop(false)?;
        }
        // However the life ended: a flush of a stop fails as well.
        if is_beside && matches!(watched.trouble(), Some(Trouble::Failed(_))) {
            self.note_doubt();
        }
        stopped.and(over)
    }

    fn may_be_replaced(&self, fault: &Fault) -> bool {
        may_be_replaced(&self.state.lock().map, self.reply.mirror, self.id(), fault)
    }

    fn show(&self, seat: &Arc<Seat>, target: Option<Arc<dyn Service>>) {
        let front = Front { place: self.me.clone(), seat: seat.clone(), target };
        self.around.hub.add(self.id(), self.tuned(Arc::new(front)));
    }

    fn take_seat(&self, resting: &Resting, map: mirror::Members) -> Result<Arc<Seat>, Fault> {
        let me = self.me()?;
        let setup = Setup {
            mirror: self.reply.mirror,
            me,
            map,
            note: resting.note()?,
            log: resting.lines()?,
            was_clean: resting.was_clean(),
            boot_id: boot_id()?,
            commit_interval_ms: self.commit_interval_ms(),
            pace: self.around.how.kind.pace(),
            keeps_content: std::mem::take(&mut self.state.lock().keeps_content),
            draw: RandomState::new().build_hasher().finish() as u32,
        };
        Seat::start(setup, resting.replica(), self.post(), Arc::new(pair::MachineClock))
    }

    fn me(&self) -> Result<MemberId, Fault> {
        let mirror = self.mirror();
        mirror.and_then(|mirror| member_of(&mirror, self.id())).ok_or_else(|| {
            let why = format!("target {} is not a member of its mirror in the newest map", self.id());
            Fault::new(Code::NotFound, format!("{why}; was it removed?"))
        })
    }

    fn commit_interval_ms(&self) -> u64 {
        let map = &self.state.lock().map;
        let fs = map.target(self.id()).and_then(|me| map.fs(me.fs));
        fs.map_or(u64::from(mgmt::COMMIT_INTERVAL_MS), |fs| u64::from(fs.commit_interval_ms.max(1)))
    }

    fn post(&self) -> Arc<dyn Post> {
        let (mgs, map) = (self.around.mgs.clone(), self.state.lock().map.clone());
        let others = map.mirror(self.reply.mirror).into_iter().flat_map(|mirror| &mirror.members);
        let other = others.map(|member| member.target).find(|target| *target != self.id());
        let ask = move |request: &AskMembers, deadline| mgs.ask_within(request, deadline);
        Arc::new(FabricPost {
            fabric: self.around.fabric.clone(),
            fs: map.target(self.id()).map_or(FsId(0), |me| me.fs),
            mirror: self.reply.mirror,
            me: self.id(),
            other: other.unwrap_or(TargetId(0)),
            mgs: Box::new(ask),
        })
    }

    /// Until this life ends. A target that serves then is in `state`.
    fn sit(&self, seat: &Arc<Seat>, resting: Resting) -> Result<Over, Fault> {
        let mut resting = Some(resting);
        let of_two = self.targets();
        loop {
            match seat.wait(LOOK_EACH) {
                Turn::Serve { above } => {
                    let resting = resting.take().expect("a seat says once that it serves");
                    let target = resting.promote(above, seat.clone())?;
                    seat.set_replica(target.replica());
                    self.state.lock().target = Some(target.clone());
                    target.join(&self.joining(), self.around.fabric.clone())?;
                    self.show(seat, Some(target.service()));
                    tracing::info!(target = %self.id(), "it is the primary of its mirror, and serves");
                }
                Turn::Ended(end) => return self.on_end(end),
                Turn::Quiet => {}
            }
            if self.state.lock().is_stopping {
                seat.expect_stop();
                if self.target().is_none() {
                    seat.await_primary(self.around.company);
                }
                return Ok(Over::Stopped(self.leave(seat, resting)));
            }
            if self.state.lock().must_hand_over {
                tracing::info!(target = %self.id(), "it hands its mirror over to the other member, and follows it then");
                self.leave(seat, resting)?;
                return Ok(Over::Next(Holding::Whole));
            }
            // Only while the other member serves: this one would be the last good copy otherwise.
            let must_resync = self.state.lock().must_resync;
            if must_resync && seat.report().role == mirror::Role::Backup {
                tracing::warn!(target = %self.id(), "by an administrator's order it gives up its content, and is filled by the other member of its mirror");
                self.leave(seat, resting)?;
                return Ok(Over::Next(Holding::Doubted));
            }
            // The other member was taken out, or another one is in its place: the seat speaks to the one that it began with.
            if self.targets() != of_two {
                self.leave(seat, resting)?;
                return Ok(Over::Next(Holding::Whole));
            }
        }
    }

    /// The members of the mirror, in the map's order.
    fn targets(&self) -> Vec<TargetId> {
        members_in(&self.state.lock().map, self.reply.mirror)
    }

    fn on_end(&self, end: End) -> Result<Over, Fault> {
        let target = self.id();
        match end {
            End::Cut(after) => {
                tracing::info!(%target, after = after.0, "entries that its mirror does not have are dropped from its log");
                Ok(Over::Next(Holding::UpTo(after)))
            }
            End::Refill => {
                tracing::info!(%target, "it takes the whole content of the other member of its mirror");
                Ok(Over::Next(Holding::Copied))
            }
            End::Deposed => {
                tracing::warn!(%target, "the other member of its mirror serves now; this one follows it");
                Ok(Over::Next(Holding::Whole))
            }
            End::Outlived => {
                tracing::info!(%target, "its medium was put back to an earlier state: the other member of its mirror knows a later life; it begins again above that");
                Ok(Over::Next(Holding::Whole))
            }
            End::Failed(fault) => Err(fault),
            End::Doubted => {
                tracing::warn!(%target, "its medium has failed before, so its content may lack what was written; the other member of its mirror serves, and fills it anew");
                Ok(Over::Next(Holding::Doubted))
            }
            End::Medium(fault) => self.doubt(Doubt::Lost, fault),
            End::Unreadable(fault) => self.doubt(Doubt::Unreadable, fault),
            End::Stopped => Ok(Over::Next(Holding::Whole)),
        }
    }

    /// Until the target stops, or has a second member again.
    fn wait_alone(&self) -> Over {
        let mut state = self.state.lock();
        while !state.is_stopping
            && state.map.mirror(self.reply.mirror).is_none_or(|m| members_of(m).is_none())
        {
            self.changed.wait(&mut state);
        }
        let (is_stopping, target) = (state.is_stopping, state.target.take());
        drop(state);
        self.around.hub.remove(self.id());
        let stopped = target.map_or(Ok(()), |target| target.stop(true));
        if is_stopping { Over::Stopped(stopped) } else { Over::Next(Holding::Whole) }
    }
}
