//! Recorded histories of four clients, which the judge of `testkit::linear` must find an order for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use client::{Fs, OpenFlags};
use parking_lot::{Condvar, Mutex};
use testkit::linear::{DIRS, Op, Place, Recorder, Said, refused};
use testkit::story::{PATIENCE, Story, StoryShape, count};
use testkit::{Rng, Who, Wiring};
use types::{Code, Cred, Fault, Fid, Kind};
use wire::session::Detach;

const NAMES: [char; 3] = ['a', 'b', 'c'];
const CLIENTS: usize = 4;
const CALLS_EACH: u64 = 10;
const RENAME_NOREPLACE: u32 = 1;
/// Duration of lost replies; clients make little progress meanwhile.
const WHILE_LOST: Duration = Duration::from_millis(10);

/// The fault that occurs while the clients work.
#[derive(Clone, Copy, Debug)]
enum Blow {
    Kill,
    LosePower(u64),
    /// The link breaks, and answers with it; the server does not notice.
    LoseReplies,
    /// A mount dies in the middle of its calls, and another takes its place.
    LoseMount(usize),
}

/// Whose turn it is to begin a call: after so many, clients wait until the blow falls.
#[derive(Default)]
struct Pace {
    calls: Mutex<Calls>,
    changed: Condvar,
}

#[derive(Default)]
struct Calls {
    begun: u64,
    ended: u64,
    /// So many may be begun.
    may: u64,
}

impl Pace {
    fn begin(&self) {
        let mut calls = self.calls.lock();
        self.changed.wait_while(&mut calls, |c| c.begun >= c.may);
        calls.begun += 1;
        self.changed.notify_all();
    }
    fn end(&self) {
        self.calls.lock().ended += 1;
        self.changed.notify_all();
    }
    /// Waits until no client is in a call.
    fn wait_for_rest(&self) {
        let mut calls = self.calls.lock();
        let waited = self.changed.wait_while_for(&mut calls, |c| c.ended < c.begun, PATIENCE);
        assert!(!waited.timed_out(), "calls end while nothing is wrong");
    }
    /// Lets clients begin up to `may` calls, and waits until they have, but no longer than `wait`: each may be held up in the one before.
    fn let_begin(&self, may: u64, wait: Duration) {
        let mut calls = self.calls.lock();
        calls.may = may;
        self.changed.notify_all();
        self.changed.wait_while_for(&mut calls, |c| c.begun < c.may, wait);
    }
    fn let_all(&self) {
        self.calls.lock().may = u64::MAX;
        self.changed.notify_all();
    }
}

/// A mount, and whether it has died.
struct Mount {
    fs: Arc<Fs>,
    is_dead: AtomicBool,
}

impl Mount {
    fn new(fs: Arc<Fs>) -> Arc<Mount> {
        Arc::new(Mount { fs, is_dead: AtomicBool::new(false) })
    }
}

/// State that all clients of a history share.
struct Scene {
    recorder: Recorder,
    pace: Pace,
    mounts: Vec<Mutex<Arc<Mount>>>,
    dirs: [Fid; 2],
    /// Numbers of clients: one whose call never ended is another from then on.
    clients: AtomicU32,
}

impl Scene {
    fn client(&self, place: usize, seed: u64) {
        let mut rng = Rng::new(seed);
        let mut id = place as u32;
        // The last file that was seen.
        let mut seen = None;
        for _ in 0..CALLS_EACH {
            let op = pick(&mut rng, seen);
            self.pace.begin();
            let mount = self.mounts[place % self.mounts.len()].lock().clone();
            let opens = rng.chance(30);
            let said = self.recorder.call(id, op, || match self.run(&mount.fs, op, opens) {
                Ok(said) => Some(said),
                Err(fault) if fault.code == Code::Timeout || mount.is_dead.load(Ordering::SeqCst) => None,
                Err(fault) => Some(refused(op, fault.code)),
            });
            self.pace.end();
            match said {
                Some(Said::File { fid, .. }) => seen = Some(fid),
                None => id = self.clients.fetch_add(1, Ordering::SeqCst),
                _ => {}
            }
        }
    }

    fn dir(&self, dir: char) -> Fid {
        self.dirs[DIRS.iter().position(|d| *d == dir).unwrap()]
    }

    fn run(&self, fs: &Fs, op: Op, opens: bool) -> Result<Said, Fault> {
        let cred = Cred::root();
        let at = |place: Place| (self.dir(place.dir), [place.name as u8]);
        let file = |attr: types::Attr| Said::File { fid: attr.fid.0, nlink: attr.nlink };
        Ok(match op {
            Op::Create(place) => {
                let (dir, name) = at(place);
                if opens {
                    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
                    let (attr, handle) = fs.create(dir, &name, 0o644, flags, &cred)?;
                    fs.release(handle);
                    file(attr)
                } else {
                    file(fs.mknod(dir, &name, Kind::File, 0o644, 0, &cred)?)
                }
            }
            Op::Link { fid, to } => file(fs.link(Fid(fid), at(to).0, &at(to).1, &cred)?),
            Op::Unlink(place) => fs.unlink(at(place).0, &at(place).1, &cred).map(|()| Said::Done)?,
            Op::Rename { from, to, noreplace } => {
                let flags = if noreplace { RENAME_NOREPLACE } else { 0 };
                fs.rename(at(from).0, &at(from).1, at(to).0, &at(to).1, flags, &cred)?;
                Said::Done
            }
            Op::Stat(place) => file(fs.lookup(at(place).0, &at(place).1)?),
            Op::Look(fid) => match fs.getattr(Fid(fid))? {
                // It is still open somewhere, but has no name.
                attr if attr.nlink == 0 => Said::No(Code::Stale),
                attr => file(attr),
            },
            Op::List(dir) => {
                let items = fs.readdir(self.dir(dir), 2, 100, false)?;
                let mut names: Vec<_> = items.iter().map(|i| (i.name[0] as char, i.fid.0)).collect();
                names.sort();
                Said::Names(names)
            }
        })
    }
}

fn pick(rng: &mut Rng, seen: Option<u64>) -> Op {
    let place = |rng: &mut Rng| Place { dir: *rng.pick(&DIRS), name: *rng.pick(&NAMES) };
    match (rng.below(20), seen) {
        (0..5, _) => Op::Create(place(rng)),
        (5..8, _) => Op::Unlink(place(rng)),
        (8..12, _) => Op::Rename { from: place(rng), to: place(rng), noreplace: rng.chance(25) },
        (12..14, Some(fid)) => Op::Link { fid, to: place(rng) },
        (14, Some(fid)) => Op::Look(fid),
        (15..18, _) => Op::List(*rng.pick(&DIRS)),
        _ => Op::Stat(place(rng)),
    }
}

/// Some histories of one cluster, each in directories of its own: four clients over one mount or two, and blows while they work.
fn tell(seed: u64, histories: u64) {
    let mut rng = Rng::new(seed);
    let is_lone = rng.chance(30);
    let shape = StoryShape { background: rng.chance(50), ..StoryShape::lively(Wiring::Tcp).osts(1) };
    let mut story = Story::begin(shape);
    let mut mounts = vec![Mount::new(story.fs().clone())];
    if !is_lone {
        mounts.push(Mount::new(story.beside()));
    }
    for n in 0..histories {
        let made =
            |dir: char| mounts[0].fs.mkdir(Fid::ROOT, format!("{dir}{n}").as_bytes(), 0o755, &Cred::root());
        let dirs = DIRS.map(|dir| made(dir).unwrap().fid);
        mounts[0].fs.fsync_dir(Fid::ROOT).unwrap();
        let scene = Scene {
            recorder: Recorder::default(),
            pace: Pace::default(),
            mounts: mounts.drain(..).map(Mutex::new).collect(),
            dirs,
            clients: AtomicU32::new(CLIENTS as u32),
        };
        let blows = std::thread::scope(|s| {
            for place in 0..CLIENTS {
                let (scene, seed) = (&scene, rng.next_u64());
                s.spawn(move || scene.client(place, seed));
            }
            let blows = strike(&mut story, &scene, &mut rng);
            scene.pace.let_all();
            blows
        });
        mounts = scene.mounts.into_iter().map(Mutex::into_inner).collect();
        let history = scene.recorder.history();
        if let Err(why) = history.judge() {
            panic!("seed {seed}, lone: {is_lone}, history {n}, {blows:?}\n{why}all of it:\n{history}");
        }
    }
    mounts.iter().for_each(|mount| mount.fs.abort());
}

/// Lets blows fall, and says which.
fn strike(story: &mut Story, scene: &Scene, rng: &mut Rng) -> Vec<Blow> {
    // A history has dying mounts or power loss, not both: a power loss takes the unflushed requests of a dead client.
    let mounts_die = rng.chance(40);
    let (mut blows, mut at) = (vec![], 0);
    for _ in 0..1 + rng.below(3) {
        at += 4 + rng.below(10);
        // Some go on into the trouble.
        let more = at + rng.below(CLIENTS as u64);
        // The clients must come to it.
        if more > CLIENTS as u64 * (CALLS_EACH - 1) {
            break;
        }
        let blow = match rng.below(5) {
            0 => Blow::LoseReplies,
            1 | 2 if mounts_die => Blow::LoseMount(rng.below(scene.mounts.len() as u64) as usize),
            3 | 4 if !mounts_die => Blow::LosePower(rng.next_u64()),
            _ => Blow::Kill,
        };
        blows.push(blow);
        scene.pace.let_begin(at, PATIENCE);
        match blow {
            Blow::Kill => {
                scene.pace.let_begin(more, Duration::ZERO);
                story.kill(Who::Mdt);
                story.start(Who::Mdt);
            }
            Blow::LosePower(seed) => {
                // [S-replay] What was acknowledged is sent again in its order. A call that is under way has no place in it: what
                // others saw of it may be undone, and then it happens anew.
                scene.pace.wait_for_rest();
                story.power_cut(Who::Mdt, seed);
                scene.pace.let_begin(more, Duration::ZERO);
                story.start(Who::Mdt);
            }
            Blow::LoseReplies => {
                story.lose_replies(Who::Mdt);
                scene.pace.let_begin(more, WHILE_LOST);
                story.heal(Who::Mdt);
            }
            Blow::LoseMount(n) => replace(story, scene, n, more),
        }
        at = more;
    }
    blows
}

/// A mount dies while its answers are lost; its session is ended, and another comes.
fn replace(story: &Story, scene: &Scene, n: usize, more: u64) {
    story.lose_replies(Who::Mdt);
    scene.pace.let_begin(more, WHILE_LOST);
    let mut place = scene.mounts[n].lock();
    place.is_dead.store(true, Ordering::SeqCst);
    place.fs.abort();
    story.heal(Who::Mdt);
    story.ask(Who::Mdt, &Detach { session: place.fs.session() }).unwrap();
    *place = Mount::new(story.beside());
}

/// Create, rename, unlink, link, stat and readdir of four clients take effect one after the other, each between its call and its
/// return, while the MDS is killed and loses power, links break and mounts die.
#[test]
fn histories_of_four_clients_are_linearizable() {
    let one = std::env::var("STRIA_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = one.map_or(0..count(1, 100), |seed: u64| seed..seed + 1);
    seeds.for_each(|seed| tell(seed, 10));
}
