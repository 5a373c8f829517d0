//! A *story* is a test cluster in this process, on simulated media that can lose power: MGS, one MDT, some OSTs and one client.
//!
//! Two wirings: with `Local`, client and servers call each other directly. With `Tcp`, the client reaches each server through a
//! proxy that can be cut, so that the client outlives the servers.
//! testkit-I1: a server that is killed or loses power has ended every request before its medium is inspected. Each reply
//! thus matches the writes that the medium received.  testkit-I2: no test helper sleeps a fixed time for an event; it polls with a
//! deadline.  testkit-I3: with `background` off, servers only serve requests, so that a seed reproduces the same run.

mod backup;
mod clock;
mod drains;
mod falsify;
mod files;
mod probe;
mod seat;
mod tape;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Fs, Handle};
use disk::{Crash, SimDisk};
use net::{Fabric, Hub};
use parking_lot::Mutex;
use types::{Code, Fault, FsId};
use wire::map::ClusterMap;

use crate::cluster::Wiring;
use clock::StoryClock;
use seat::Seat;
use tape::Tape;

pub use files::{bytes_of, page_of};
pub use tape::{Film, Player};

/// Name of the file system of every story.
pub const FS_NAME: &str = "story";
/// Deadline of polling: far longer than any awaited event takes.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// A session that is silent for this long may be evicted; the story's clock is advanced past it.
const SESSION_TTL: Duration = Duration::from_secs(10);

/// A server of the story.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    Mdt,
    Ost(usize),
}

/// The configuration of a story.
#[derive(Clone, Debug)]
pub struct StoryShape {
    pub wiring: Wiring,
    pub osts: usize,
    /// Bytes of each OST's medium; about 5.5 MiB of it are log and checkpoints.
    pub ost_bytes: u64,
    /// Whether the servers' flushers, checkpointers and the purge run. Off: a run can be reproduced event by event.
    pub background: bool,
    /// Intervals of the servers' flushers and of the client's settle.
    pub server_interval: Duration,
    pub client_interval: Duration,
    pub retain_bytes_max: usize,
    pub op_timeout: Duration,
}

/// Long enough to never come in a story.
pub const NEVER: Duration = Duration::from_secs(36_000);

impl StoryShape {
    /// No background work: only the test's calls cause events.
    pub fn quiet(wiring: Wiring) -> StoryShape {
        StoryShape {
            wiring,
            osts: 2,
            ost_bytes: 12 << 20,
            background: false,
            server_interval: NEVER,
            client_interval: NEVER,
            retain_bytes_max: 64 << 20,
            op_timeout: Duration::from_secs(15),
        }
    }
    /// Flushes, settles and purges run in the background as in production, but at short intervals.
    pub fn lively(wiring: Wiring) -> StoryShape {
        let soon = Duration::from_millis(10);
        StoryShape {
            background: true,
            server_interval: soon,
            client_interval: soon,
            ..StoryShape::quiet(wiring)
        }
    }
    /// Puts the story's intervals into a map before servers get it.
    fn set_interval(&self, map: &mut ClusterMap) {
        for fs in &mut map.file_systems {
            fs.commit_interval_ms = self.server_interval.as_millis() as u32;
        }
    }
    pub fn osts(self, osts: usize) -> StoryShape {
        StoryShape { osts, ..self }
    }
}

pub struct Story {
    pub shape: StoryShape,
    mgs: Arc<mgs::Mgs>,
    clock: Arc<StoryClock>,
    tape: Arc<Tape>,
    /// The MDT's seat, then those of the OSTs.
    seats: Vec<Seat>,
    hub: Arc<Hub>,
    fs: Option<Arc<Fs>>,
    handles: Mutex<HashMap<String, Handle>>,
}

impl Story {
    /// A new file system, mounted.
    pub fn begin(shape: StoryShape) -> Story {
        let mgs = mgs::Mgs::over(Box::<mapstore::MemoryStore>::default()).expect("an empty map can be read");
        let media = seat::blank_media(&shape);
        Story::over(shape, mgs, media, false)
    }

    /// The file system on the media of an earlier story; `films` also records the recovery.
    fn over(shape: StoryShape, mgs: Arc<mgs::Mgs>, media: Vec<Arc<SimDisk>>, films: bool) -> Story {
        let hub = Hub::new();
        hub.add(mgs::MGS, mgs.clone());
        let tape = Arc::new(Tape::default());
        let seats = media.into_iter().enumerate().map(|(n, disk)| Seat::new(n, disk, &shape, &hub)).collect();
        let clock = Arc::new(StoryClock::default());
        let mut story = Story { shape, mgs, clock, tape, seats, hub, fs: None, handles: Mutex::default() };
        if films {
            story.record();
        }
        for n in 0..story.seats.len() {
            story.start_seat(n);
        }
        story.tell_map();
        story.remount();
        story
    }

    /// The same file system after a power loss of all nodes: on these media, with new servers and a new client.
    pub fn again_on(&self, shape: StoryShape, media: Vec<SimDisk>) -> Story {
        Story::over(shape, self.mgs.clone(), media.into_iter().map(Arc::new).collect(), false)
    }

    /// As `again_on`, and records every event from the start of recovery.
    pub fn again_filmed(&self, shape: StoryShape, media: Vec<SimDisk>) -> Story {
        Story::over(shape, self.mgs.clone(), media.into_iter().map(Arc::new).collect(), true)
    }

    pub fn fs(&self) -> &Arc<Fs> {
        self.fs.as_ref().expect("a story has a client from its beginning to its end")
    }

    pub fn map(&self) -> ClusterMap {
        self.mgs.map()
    }
    fn fs_id(&self) -> FsId {
        self.map().fs_named(FS_NAME).expect("the MDT has made it").id
    }

    // ---- servers ----

    /// The process dies; its medium keeps every byte that it wrote.
    pub fn kill(&mut self, who: Who) {
        self.end(who, Crash::KeepAll);
    }

    /// The server loses power: writes that were not flushed are dropped, reordered or torn, as the seed says.
    pub fn power_cut(&mut self, who: Who, seed: u64) {
        self.end(who, crash_of(seed));
    }

    /// All servers lose power at once; the client, if it lives elsewhere, does not.
    pub fn power_cut_all(&mut self, seed: u64) {
        for n in 0..self.seats.len() {
            self.seats[n].end();
        }
        for (n, seat) in self.seats.iter_mut().enumerate() {
            seat.crash(crash_of(seed.wrapping_mul(31).wrapping_add(n as u64)));
        }
    }

    fn end(&mut self, who: Who, crash: Crash) {
        let seat = &mut self.seats[number(who)];
        seat.end();
        seat.crash(crash);
    }

    /// Starts a server that was killed or lost power.
    pub fn start(&mut self, who: Who) {
        self.start_seat(number(who));
        self.tell_map();
    }

    pub fn start_all(&mut self) {
        for n in 0..self.seats.len() {
            if !self.seats[n].is_running() {
                self.start_seat(n);
            }
        }
        self.tell_map();
    }

    fn start_seat(&mut self, n: usize) {
        let (mgs, clock, tape) = (self.mgs.clone(), self.clock.clone(), self.tape.clone());
        self.seats[n].start(&self.shape, &mgs, clock, tape);
    }

    /// Sends the current map to all servers: a server that registered early does not know those that registered later.
    fn tell_map(&self) {
        let mut map = self.map();
        self.shape.set_interval(&mut map);
        self.seats.iter().for_each(|s| s.set_map(&map));
    }

    /// All power is lost, the client's too; everything is started and mounted again.
    pub fn power_cut_and_remount(&mut self, seed: u64) {
        self.unmount_dead();
        self.power_cut_all(seed);
        self.start_all();
        self.remount();
    }

    /// Every process is killed, the client too; everything is started and mounted again.
    pub fn kill_all_and_remount(&mut self) {
        self.unmount_dead();
        for n in 0..self.seats.len() {
            self.seats[n].end();
            self.seats[n].crash(Crash::KeepAll);
        }
        self.start_all();
        self.remount();
    }

    // ---- links ----

    pub fn cut(&self, who: Who) {
        self.seats[number(who)].proxy().cut();
    }
    pub fn lose_replies(&self, who: Who) {
        self.seats[number(who)].proxy().lose_replies();
    }
    pub fn heal(&self, who: Who) {
        self.seats[number(who)].proxy().heal();
    }

    // ---- the client ----

    /// The client dies without closing its session.
    pub fn unmount_dead(&mut self) {
        self.handles.lock().clear();
        if let Some(fs) = self.fs.take() {
            fs.abort();
        }
    }

    /// A new client attaches after the old one has died and its session has expired.
    pub fn remount(&mut self) {
        self.unmount_dead();
        // A request that the dead client had in flight may still be executed, and renews its session.
        let until = Instant::now() + PATIENCE;
        let fs = loop {
            self.clock.advance(SESSION_TTL + Duration::from_secs(1));
            match self.connect() {
                Ok(fs) => break fs,
                Err(fault) if fault.code == Code::Timeout && Instant::now() < until => {}
                Err(fault) => panic!("a client is let in when the one before is dead: {fault}"),
            }
        };
        self.fs = Some(fs);
    }

    /// A new client evicts the old one, which is alive but was silent past the session's TTL. Returns the old client.
    pub fn take_over(&mut self) -> Arc<Fs> {
        self.handles.lock().clear();
        self.clock.advance(SESSION_TTL + Duration::from_secs(1));
        let new = self.connect().expect("a client is let in when the one before is silent");
        self.fs.replace(new).expect("a story has a client")
    }

    /// Attaches a second client beside the story's own. The caller shuts it down.
    pub fn beside(&self) -> Arc<Fs> {
        self.connect().expect("a client is let in when the others share")
    }

    fn connect(&self) -> Result<Arc<Fs>, Fault> {
        let local = (self.shape.wiring == Wiring::Local).then(|| self.hub.clone());
        let settings = client::Settings {
            op_timeout: self.shape.op_timeout,
            commit_interval: self.shape.client_interval,
            retain_bytes_max: self.shape.retain_bytes_max,
            name: "story".into(),
            ..client::Settings::default()
        };
        Fs::connect(Fabric::new(local), self.map(), self.fs_id(), settings)
    }

    /// Unmounts the client cleanly.
    pub fn unmount(&mut self) -> Result<(), Fault> {
        self.handles.lock().clear();
        match self.fs.take() {
            Some(fs) => fs.shutdown(),
            None => Ok(()),
        }
    }

    // ---- the film ----

    /// Begins to record every event of every medium.
    pub fn record(&self) {
        self.tape.record(self.seats.iter().map(|s| s.image()).collect());
    }
    /// Number of events so far: a position in the film at which `Player` can cut the power.
    pub fn events(&self) -> usize {
        self.tape.events()
    }
    pub fn take_film(&self) -> Film {
        self.tape.take().expect("`record` came before")
    }
}

impl Drop for Story {
    fn drop(&mut self) {
        self.unmount_dead();
        self.seats.iter_mut().for_each(Seat::end);
        if !std::thread::panicking() {
            self.seats.iter().for_each(|seat| seat.check_medium("at the end of the story"));
        }
    }
}

fn number(who: Who) -> usize {
    match who {
        Who::Mdt => 0,
        Who::Ost(n) => n + 1,
    }
}

/// Picks a kind of power loss by seed.
pub fn crash_of(seed: u64) -> Crash {
    match seed % 4 {
        0 => Crash::DropAll,
        1 => Crash::Writes(seed),
        2 => Crash::Sectors(seed),
        _ => Crash::Torn(seed),
    }
}

/// Polls until `what` holds; panics with its name after `PATIENCE`.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "waited {PATIENCE:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Counts of the long form when `STRIA_LONG` is set.
pub fn count(short: u64, long: u64) -> u64 {
    if std::env::var_os("STRIA_LONG").is_some() { long } else { short }
}
