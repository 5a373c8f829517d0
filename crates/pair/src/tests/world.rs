//! Two hosts with a target each, the letters between them, an MGS, and a clock that stands still by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use mirror::promise::ASK_MS;
use mirror::{
    Line, MemberId, MemberState, Members, MirrorSeq, Position, Reports, Request, Role, Verdict, next_members,
};
use net::Answer;
use parking_lot::Mutex;
use types::{Buf, Code, Epoch, Fault, Incarnation, MirrorId, Seq, TargetId};
use wire::codec::{Reader, Wire};
use wire::pair::{
    AskMembersReply, AskingOf, At, CompareRanges, CompareRangesReply, CompareRecords, CompareRecordsReply,
    CopyAll, CopyAllReply, FetchPages, FetchPagesReply, FlushLog, Letter, Letters, LettersReply, ListLost,
    ListLostReply, Stage,
};
use wire::{Header, decode_reply};

use crate::planted::Rule;
use crate::{Clock, Companion, End, LogLines, Logged, Place, Post, Seat, Setup, StageId, Turn};

pub const MIRROR: MirrorId = MirrorId(3);
pub use MemberId::{A, B};

pub use super::target::{Disk, Target};

pub struct TestClock(pub Arc<AtomicU64>, pub u64);

impl Clock for TestClock {
    fn boot_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst) + self.1
    }
}

/// The network, and the MGS behind it.
pub struct Between {
    /// By sender: its frames arrive at the other host.
    pub is_open: [AtomicBool; 2],
    pub has_mgs: AtomicBool,
    /// Letters of this sender stay under way until they are delivered.
    pub is_late: [AtomicBool; 2],
    pub late: Mutex<Vec<(MemberId, Letters)>>,
    pub seats: Mutex<[Option<Arc<Seat>>; 2]>,
    pub mgs: Mutex<(Members, Reports)>,
    pub now_ms: Arc<AtomicU64>,
}

impl Between {
    pub fn new(map: Members) -> Arc<Between> {
        Arc::new(Between {
            is_open: [true.into(), true.into()],
            has_mgs: true.into(),
            is_late: [false.into(), false.into()],
            late: Mutex::default(),
            seats: Mutex::default(),
            mgs: Mutex::new((map, Reports::default())),
            now_ms: Arc::new(AtomicU64::new(1_000_000)),
        })
    }

    fn call<R: wire::Request>(&self, from: MemberId, request: &R, bulk: &[u8]) -> Result<R::Reply, Fault> {
        self.call_into(from, request, bulk, &mut Buf::new())
    }

    fn call_into<R: wire::Request>(
        &self,
        from: MemberId,
        request: &R,
        bulk: &[u8],
        into: &mut Buf,
    ) -> Result<R::Reply, Fault> {
        let lost = || Fault::new(Code::NotReady, "no answer");
        let is_open = |sender: MemberId| self.is_open[sender.index()].load(Ordering::SeqCst);
        let to =
            self.seats.lock()[from.other().index()].clone().filter(|_| is_open(from)).ok_or_else(lost)?;
        let head = Header { call: R::CALL, ..Header::default() };
        let mut answer = Answer::new(head, into);
        to.serve(&head, &request.to_bytes(), bulk, &mut answer);
        let reply = decode_reply::<R::Reply>(&answer.body).expect("a seat answers in the form of the call").1;
        if is_open(from.other()) { reply } else { Err(lost()) }
    }

    /// Letters under way arrive.
    pub fn deliver_late(&self) {
        for (from, letters) in std::mem::take(&mut *self.late.lock()) {
            // The sender has given them up, and the answer is lost.
            let _ = self.call(from, &letters, &[]);
        }
    }
}

pub struct TestPost(pub MemberId, pub Arc<Between>);

pub fn target(member: MemberId) -> TargetId {
    TargetId(10 + member.index() as u32)
}

impl Post for TestPost {
    fn other(&self) -> TargetId {
        target(self.0.other())
    }
    fn letters(&self, letters: Vec<Letter>) -> Result<Vec<Letter>, Fault> {
        let (letters, between) = (Letters { mirror: MIRROR, from: target(self.0), letters }, &self.1);
        if between.is_late[self.0.index()].load(Ordering::SeqCst) {
            between.late.lock().push((self.0, letters));
            return Err(Fault::new(Code::Timeout, "it is under way"));
        }
        let LettersReply { letters } = between.call(self.0, &letters, &[])?;
        Ok(letters)
    }
    fn flush_log(&self) -> Result<Vec<Letter>, Fault> {
        let LettersReply { letters } =
            self.1.call(self.0, &FlushLog { mirror: MIRROR, from: target(self.0) }, &[])?;
        Ok(letters)
    }
    fn stage(&self, to: Incarnation, StageId(id): StageId, pages: &[u8]) -> Result<(), Fault> {
        self.1.call(self.0, &Stage { mirror: MIRROR, from: target(self.0), to, id }, pages).map(|_| ())
    }
    fn fetch(&self, request: &FetchPages, bytes: &mut Buf) -> Result<FetchPagesReply, Fault> {
        self.1.call_into(self.0, request, &[], bytes)
    }
    fn compare(&self, request: &CompareRanges) -> Result<CompareRangesReply, Fault> {
        self.1.call(self.0, request, &[])
    }
    fn compare_records(&self, request: &CompareRecords) -> Result<CompareRecordsReply, Fault> {
        self.1.call(self.0, request, &[])
    }
    fn list_lost(&self, request: &ListLost) -> Result<ListLostReply, Fault> {
        self.1.call(self.0, request, &[])
    }
    fn copy_all(&self, copy: u64, part: u64) -> Result<CopyAllReply, Fault> {
        self.1.call(self.0, &CopyAll { mirror: MIRROR, from: target(self.0), copy, part }, &[])
    }
    fn ask(&self, asking: AskingOf) -> Result<AskMembersReply, Fault> {
        let between = &self.1;
        if !between.has_mgs.load(Ordering::SeqCst) {
            return Err(Fault::new(Code::NotReady, "the MGS does not answer"));
        }
        let position = |at: At| Position { line: Line::of(at.line), seq: MirrorSeq(at.seq.0) };
        let request = match asking {
            AskingOf::Fetch { epoch } => Request::Fetch { epoch },
            AskingOf::Alone { epoch, is_whole, end, is_planned } => {
                Request::Ask { epoch, is_whole, end: position(end), is_planned }
            }
            AskingOf::InSync { epoch } => Request::InSync { epoch },
            AskingOf::Resyncing { epoch, is_under_way } => Request::Resyncing { epoch, is_under_way },
        };
        let (mut mgs, now_ms) = (between.mgs.lock(), between.now_ms.load(Ordering::SeqCst));
        mgs.1.on_request(self.0, request, now_ms);
        let verdict = next_members(&mgs.0, &mgs.1, self.0, request, now_ms);
        let why = match verdict {
            Verdict::Change(map) => {
                mgs.0 = map;
                String::new()
            }
            Verdict::Keep(why) => format!("{why:?}"),
        };
        Ok(AskMembersReply { version: 1, members: crate::letters::members_of(&mgs.0), why })
    }
}

pub fn setup(me: MemberId, map: Members, disk: &Disk, boot: u8) -> Setup {
    Setup {
        mirror: MIRROR,
        me,
        map,
        note: disk.note.clone(),
        log: disk.lines(),
        was_clean: false,
        boot_id: [boot; 16],
        commit_interval_ms: 1_000,
        pace: {
            let is_paused = disk.is_fill_paused.clone();
            Arc::new(move || crate::FillPace { rate: 0, is_paused: is_paused.load(Ordering::SeqCst) })
        },
        draw: 0,
        keeps_content: false,
    }
}

/// Takes the other member's whole content.
pub fn refill(me: MemberId, disk: &mut Disk, post: &dyn Post, map: &Members, boot: u8) -> Result<(), Fault> {
    let (mut copy, mut log) = (0, Vec::new());
    for part in 0.. {
        let reply = post.copy_all(copy, part)?;
        copy = reply.copy;
        if !reply.content.is_empty() {
            let mut r = Reader::new(&reply.content);
            let line = Epoch::get(&mut r).expect("a line");
            let (first, last) = (Seq::get(&mut r).expect("seqs"), Seq::get(&mut r).expect("seqs"));
            let content = r.take(r.remaining()).expect("the rest").to_vec();
            log.push(Logged { place: Place { line, first, last }, content });
        }
        if reply.is_last {
            let note = crate::copied_note(&disk.note, (me, map), &LogLines::of(&reply.lines), &[boot; 16])?;
            *disk = Disk { note, durable: log.len(), trimmed: log.len(), log, ..Disk::default() };
            break;
        }
    }
    Ok(())
}

/// Entries that were answered, with their contents.
type Answered = Vec<(Place, Vec<u8>)>;

/// A story's world.
pub struct World {
    pub between: Arc<Between>,
    pub disks: [Arc<Mutex<Disk>>; 2],
    pub is_paused: [bool; 2],
    /// Targets are filled by entries.
    pub is_filled_live: bool,
    /// Each member's supervisor has heard `Serve` in this life.
    pub above: [Option<Incarnation>; 2],
    pub boots: [u8; 2],
    pub ends: Vec<(MemberId, End)>,
    /// Its content cannot be read in a part. It gives all of it up once the other one is alone.
    doubted: Option<MemberId>,
    answered: Arc<Mutex<Answered>>,
    /// The flushed seq that each member has told in this life.
    told: Mutex<[Seq; 2]>,
    gone: Option<Rule>,
    writes: u32,
}

impl World {
    /// Two targets that never were members, both in sync, and started.
    pub fn new(gone: Option<Rule>) -> World {
        let map = Members { epoch: Epoch(1), primary: A, states: [MemberState::InSync; 2] };
        let mut world = World {
            between: Between::new(map),
            disks: Default::default(),
            is_paused: [false; 2],
            is_filled_live: false,
            above: [None; 2],
            boots: [1, 2],
            ends: Vec::new(),
            doubted: None,
            answered: Arc::default(),
            told: Mutex::default(),
            gone,
            writes: 0,
        };
        world.start(A);
        world.start(B);
        world
    }

    pub fn now_ms(&self) -> u64 {
        self.between.now_ms.load(Ordering::SeqCst)
    }
    pub fn map(&self) -> Members {
        self.between.mgs.lock().0
    }
    pub fn seat(&self, m: MemberId) -> Option<Arc<Seat>> {
        self.between.seats.lock()[m.index()].clone()
    }
    pub fn up(&self, m: MemberId) -> Arc<Seat> {
        self.seat(m).expect("it is up")
    }
    pub fn role(&self, m: MemberId) -> Role {
        self.seat(m).map_or(Role::Stopped, |seat| seat.report().role)
    }
    pub fn serves(&self, m: MemberId) -> bool {
        self.seat(m).is_some_and(|seat| seat.serves())
    }
    pub fn disk(&self, m: MemberId) -> parking_lot::MutexGuard<'_, Disk> {
        self.disks[m.index()].lock()
    }

    pub fn start(&mut self, m: MemberId) {
        let setup = setup(m, self.first_map(m), &self.disk(m), self.boots[m.index()]);
        let of = self.is_filled_live.then(|| (m, self.between.clone()));
        let target = Arc::new(Target(self.disks[m.index()].clone(), of));
        // The two hosts' clocks show different times.
        let clock = TestClock(self.between.now_ms.clone(), m.index() as u64 * 777_000);
        let post = Arc::new(TestPost(m, self.between.clone()));
        let seat = Seat::begin(setup, target, post, Arc::new(clock)).expect("it starts");
        *seat.shared().gone.lock() = self.gone;
        // A recovery flushes what it found.
        let mut disk = self.disk(m);
        disk.durable = disk.log.len();
        drop(disk);
        self.above[m.index()] = None;
        self.told.lock()[m.index()] = Seq(0);
        self.between.seats.lock()[m.index()] = Some(seat);
    }

    /// A target knows no newer map than its note, unless it has none.
    fn first_map(&self, m: MemberId) -> Members {
        let first = Members { epoch: Epoch(1), primary: A, states: [MemberState::InSync; 2] };
        if self.disk(m).note.is_empty() { self.map() } else { Members { epoch: Epoch(0), ..first } }
    }

    /// The process ends; what it has written stays.
    pub fn kill(&mut self, m: MemberId) {
        let seat = self.between.seats.lock()[m.index()].take();
        if let Some(seat) = seat {
            let note = self.disk(m).note.clone();
            seat.stop().expect("its target answers");
            // A kill leaves no word of a clean stop.
            self.disk(m).note = note;
        }
    }

    /// The host loses power: only what was flushed stays.
    pub fn lose_power(&mut self, m: MemberId) {
        self.kill(m);
        self.boots[m.index()] += 2;
        let mut disk = self.disk(m);
        let durable = disk.durable;
        disk.log.truncate(durable);
        disk.trimmed = disk.trimmed.min(durable);
    }

    /// As `lose_power`, if nothing is lost that only this host has: the other one is in sync, up, and has all that was answered.
    pub fn lose_power_of_one(&mut self, m: MemberId) {
        let other = m.other();
        let has_all = {
            let disk = self.disk(other);
            let contents = disk.contents();
            self.answered.lock().iter().all(|(place, content)| contents.contains(&(*place, &content[1..])))
        };
        if has_all && self.seat(other).is_some() && self.map().is_in_sync(other) {
            self.flush(other);
            self.lose_power(m);
        }
    }

    /// The log loses all but its last entry, as behind a checkpoint. Only what is durable and answerable goes.
    pub fn trim(&self, m: MemberId) {
        let Some(seat) = self.seat(m).filter(|_| self.serves(m)) else { return };
        let committed = seat.committed();
        self.flush(m);
        let mut disk = self.disk(m);
        let kept = disk.log.iter().filter(|entry| entry.place.last <= committed).count();
        disk.trimmed = disk.trimmed.max(kept.saturating_sub(1));
    }

    pub fn flush(&self, m: MemberId) {
        let mut disk = self.disk(m);
        disk.durable = disk.log.len();
    }

    pub fn set_open(&self, sender: MemberId, is_open: bool) {
        self.between.is_open[sender.index()].store(is_open, Ordering::SeqCst);
    }

    /// Everything that is to be sent or asked now, until nothing follows.
    pub fn pump(&mut self) -> Result<(), String> {
        for step in 0.. {
            let mut is_done = false;
            for m in [A, B] {
                if let Some(seat) = self.seat(m).filter(|_| !self.is_paused[m.index()]) {
                    let mut state = seat.shared().state.lock();
                    // A thread of a request is on its way with entries: time stands still until it is back.
                    while state.is_shipping {
                        seat.shared().changed.wait_for(&mut state, Duration::from_millis(10));
                    }
                    is_done |= seat.shared().send_now(&mut state);
                    is_done |= seat.shared().ask_now(&mut state);
                    is_done |= self.is_filled_live && seat.shared().fill_now(&mut state);
                }
            }
            self.supervise();
            self.check()?;
            if !is_done {
                break;
            }
            if step > 10_000 {
                return Err("the members talk without end".to_owned());
            }
        }
        Ok(())
    }

    /// Both tick, all that follows is done, and time goes on by one asking.
    pub fn round(&mut self) -> Result<(), String> {
        for m in [A, B] {
            if let Some(seat) = self.seat(m).filter(|_| !self.is_paused[m.index()]) {
                seat.shared().tick_now(&mut seat.shared().state.lock());
            }
        }
        self.pump()?;
        self.between.now_ms.fetch_add(ASK_MS, Ordering::SeqCst);
        self.check()
    }

    pub fn rounds(&mut self, rounds: u32) -> Result<(), String> {
        (0..rounds).try_for_each(|_| self.round())
    }

    /// At most a minute.
    pub fn until(&mut self, what: &str, is_so: impl Fn(&World) -> bool) -> Result<(), String> {
        for _ in 0..120 {
            if is_so(self) {
                return Ok(());
            }
            self.round()?;
        }
        let reports = [A, B].map(|m| self.seat(m).map(|seat| seat.report()));
        Err(format!("not {what}: the map is {:?}, members {reports:#?}, ends {:?}", self.map(), self.ends))
    }

    /// The daemons' part: they open targets anew.
    fn supervise(&mut self) {
        if let Some(m) = self.doubted.take_if(|m| !self.between.mgs.lock().0.is_in_sync(*m)) {
            let (map, boot) = (self.map(), [self.boots[m.index()]; 16]);
            let mut disk = self.disk(m);
            let note = crate::filling_note(&disk.note, (m, &map), &boot).expect("it is out");
            (disk.note, disk.trouble) = (note, None);
            drop(disk);
            self.start(m);
        }
        for m in [A, B] {
            let Some(seat) = self.seat(m).filter(|_| !self.is_paused[m.index()]) else { continue };
            match seat.wait(Duration::ZERO) {
                // The story stops it.
                Turn::Quiet | Turn::Ended(End::Stopped) => {}
                Turn::Serve { above } => {
                    assert_eq!(self.above[m.index()], None, "it is told once in a life");
                    self.above[m.index()] = Some(above);
                }
                Turn::Ended(end) => {
                    self.ends.push((m, end.clone()));
                    self.kill(m);
                    match end {
                        End::Cut(after) => {
                            let mut disk = self.disk(m);
                            disk.log.retain(|entry| entry.place.last <= after);
                            assert!(disk.trimmed <= disk.log.len(), "the log has what is cut");
                            disk.durable = disk.durable.min(disk.log.len());
                        }
                        End::Refill if self.is_filled_live => {
                            let (map, boot) = (self.map(), [self.boots[m.index()]; 16]);
                            let mut disk = self.disk(m);
                            let note = crate::filling_note(&disk.note, (m, &map), &boot).expect("it is out");
                            *disk = Disk { note, ..Disk::default() };
                        }
                        End::Refill => {
                            let (post, map) = (TestPost(m, self.between.clone()), self.map());
                            // It is tried again by the next life, whose note says that it is being filled.
                            let _ = refill(m, &mut self.disk(m), &post, &map, self.boots[m.index()]);
                        }
                        End::Deposed | End::Outlived => {}
                        // The story gives it another medium.
                        End::Medium(_) if self.disk(m).trouble.is_some() => {
                            let note = crate::doubted_note(&self.disk(m).note).expect("its life kept it");
                            note.into_iter().for_each(|note| self.disk(m).note = note);
                            continue;
                        }
                        End::Doubted => {
                            self.doubted = Some(m);
                            continue;
                        }
                        End::Failed(_) if self.disk(m).trouble.is_some() => continue,
                        End::Unreadable(_) => {
                            self.doubted = Some(m);
                            continue;
                        }
                        End::Failed(_) | End::Medium(_) | End::Stopped => panic!("{m:?} has ended: {end:?}"),
                    }
                    self.start(m);
                }
            }
        }
    }

    /// One serves at a time, and has all that was answered. The flushed seq of a life never falls.
    pub fn check(&self) -> Result<(), String> {
        if self.serves(A) && self.serves(B) {
            return Err("both order at one moment".to_owned());
        }
        for m in [A, B].into_iter().filter(|m| self.serves(*m)) {
            // The seat asks for the disk under its own lock, on threads of requests too: the seat comes first here as well.
            let flushed = self.up(m).flushed();
            let disk = self.disk(m);
            let durable = disk.log[..disk.durable].last().map_or(Seq(0), |entry| entry.place.last);
            let (told, flushed) = (&mut self.told.lock()[m.index()], flushed.min(durable));
            if flushed < *told {
                return Err(format!("{m:?} tells {flushed} as flushed after {told}"));
            }
            *told = flushed;
            let contents = disk.contents();
            for (place, content) in self.answered.lock().iter() {
                if !contents.contains(&(*place, &content[1..])) {
                    return Err(format!("{m:?} serves without {place:?}, which was answered"));
                }
            }
        }
        Ok(())
    }

    /// More was lost than a mirror answers for.
    pub fn forget_answered(&self) {
        self.answered.lock().clear();
    }

    pub fn answered(&self) -> usize {
        self.answered.lock().len()
    }

    /// A request that takes 1 to 3 seqs, on a thread of its own: it may have to wait. Returns once the entry is in the primary's log.
    pub fn begin_write(&mut self, m: MemberId, kind: u8) -> JoinHandle<Result<(), Fault>> {
        self.writes += 1;
        let (seat, disk, answered) = (self.up(m), self.disks[m.index()].clone(), self.answered.clone());
        let content = [&[kind][..], format!("write {}", self.writes).as_bytes()].concat();
        let place = seat.order(1 + self.writes % 3).expect("it orders");
        disk.lock().push(Logged { place, content: content.clone() });
        std::thread::spawn(move || {
            seat.commit(place, &content)?;
            answered.lock().push((place, content));
            Ok(())
        })
    }

    /// The next request, if the member serves and has answered all before.
    pub fn begin_next(&mut self, m: MemberId) -> Option<JoinHandle<Result<(), Fault>>> {
        let has_answered = self.up(m).committed() == self.disk(m).end();
        (self.serves(m) && has_answered).then(|| self.begin_write(m, b'p'))
    }

    /// A request that is answered without another step of any member.
    pub fn write(&mut self, m: MemberId) -> Result<(), String> {
        let end = self.begin_write(m, b'p').join().expect("it does not panic");
        end.map_err(|fault| fault.to_string())?;
        self.check()
    }

    /// In sync again, with equal content.
    pub fn until_in_sync(&mut self) -> Result<(), String> {
        self.until("in sync", |world| {
            world.map().is_pair()
                && [Role::Primary, Role::Backup]
                    .iter()
                    .all(|role| [A, B].map(|m| world.role(m)).contains(role))
        })?;
        self.rounds(2)?;
        let (a, b) = (self.disk(A), self.disk(B));
        if a.contents() != b.contents() {
            return Err(format!("contents differ: {:?} and {:?}", a.contents(), b.contents()));
        }
        Ok(())
    }
}

pub fn join(writes: Vec<JoinHandle<Result<(), Fault>>>) {
    writes.into_iter().for_each(|write| write.join().expect("it does not panic").expect("it is answered"));
}

/// For stories: an expectation that a planted fault may break.
pub fn ensure(is_so: bool, what: &str) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(what.to_owned()) }
}
