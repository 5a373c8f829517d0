//! Generated work on names and contents, by one client or two, and power that fails before every single event of it, and of the
//! recovery from that: what rules plan-O3, meta-O4 and mds-O5 promise then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use client::{Fs, OpenFlags, SetAttr};
use testkit::story::{Film, Story, StoryShape, bytes_of, count};
use testkit::{Rng, Who, Wiring};
use types::{Cred, Fid, Kind};

use crate::model::Past;
use crate::steps::check_word_of_the_mdt;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
/// Files begin in the record and move to objects at 64 KiB; or they have objects from the start.
const STRIPINGS: [&str; 3] = ["", "", "-c 2 -S 64k --inline 0"];

/// Names, and the files that they lead to.
type Names = BTreeMap<String, Fid>;

/// The operations of a run, and its film.
struct Work {
    seed: u64,
    film: Option<Film>,
    /// After each operation on names: the event before which it began.
    after: Vec<(usize, Names)>,
    /// Event of return of a flush of names, and the operation that was the last then.
    durable: Vec<(usize, usize)>,
    pasts: BTreeMap<Fid, Past>,
    /// Every number that was given, with the event before which it was asked for.
    given: Vec<(usize, Fid)>,
    /// Every size that was set, which needs no bytes, with the event before which that began.
    set: Vec<(usize, Fid, u64)>,
    story: Story,
}

/// Executes the operations.
struct Worker {
    work: Work,
    fs: Vec<Arc<Fs>>,
    rng: Rng,
}

impl Worker {
    fn new(seed: u64) -> Worker {
        let story = Story::begin(StoryShape::quiet(Wiring::Local));
        let mut fs = vec![story.fs().clone()];
        if seed % 3 == 2 {
            fs.push(story.beside());
        }
        story.record();
        let (after, durable, pasts, given, set) =
            (vec![(0, Names::new())], vec![], BTreeMap::new(), vec![], vec![]);
        let work = Work { seed, film: None, after, durable, pasts, given, set, story };
        Worker { work, fs, rng: Rng::new(seed) }
    }

    fn names(&self) -> &Names {
        &self.work.after.last().unwrap().1
    }
    fn at(&self) -> usize {
        self.work.story.events()
    }
    fn done(&mut self, at: usize, change: impl FnOnce(&mut Names)) {
        let mut names = self.names().clone();
        change(&mut names);
        self.work.after.push((at, names));
    }

    fn create(&mut self, name: &str) {
        let (at, fs) = (self.at(), self.rng.pick(&self.fs).clone());
        let striping = *self.rng.pick(&STRIPINGS);
        let made = fs.mknod(Fid::ROOT, name.as_bytes(), Kind::File, 0o644, 0, &Cred::root());
        let fid = made.unwrap().fid;
        if !striping.is_empty() {
            fs.setxattr(fid, b"stria.layout", striping.as_bytes(), 0, &Cred::root()).unwrap();
        }
        self.work.given.push((at, fid));
        self.work.pasts.insert(fid, Past::born(at));
        self.done(at, |names| _ = names.insert(name.into(), fid));
    }

    /// Through a descriptor of its own.
    fn with_file<T>(&mut self, fid: Fid, act: impl FnOnce(&Fs, client::Handle) -> T) -> T {
        let fs = self.rng.pick(&self.fs).clone();
        let (handle, _) = fs.open(fid, OpenFlags::read_write()).unwrap();
        let done = act(&fs, handle);
        fs.flush(handle).unwrap();
        fs.release(handle);
        done
    }

    fn write(&mut self, fid: Fid) {
        let size = self.work.pasts[&fid].size();
        // Small ones stay in the record; some of the large ones make it outgrow it.
        let (offset, len) = match self.rng.below(3) {
            0 => (self.rng.below(size + 1), 1 + self.rng.below(300)),
            1 => (self.rng.below(size.min(60_000) + 1), 1 + self.rng.below(20_000)),
            _ => (size.min(150_000), 30_000 + self.rng.below(40_000)),
        };
        let (at, data) = (self.at(), bytes_of(self.rng.next_u64(), len as usize));
        self.work.pasts.get_mut(&fid).unwrap().write(at, offset, &data);
        self.with_file(fid, |fs, handle| fs.write(handle, offset, &data).map(drop)).unwrap();
    }

    fn truncate(&mut self, fid: Fid) {
        let (at, size) = (self.at(), self.rng.below(self.work.pasts[&fid].size() + 5_000));
        self.work.set.push((at, fid, size));
        self.work.pasts.get_mut(&fid).unwrap().truncate(at, size);
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.rng.pick(&self.fs).setattr(fid, &set, &Cred::root()).unwrap();
        self.fsync(fid);
    }

    fn fsync(&mut self, fid: Fid) {
        for fs in self.fs.clone() {
            let (handle, _) = fs.open(fid, OpenFlags::read_write()).unwrap();
            fs.fsync(handle, false).unwrap();
            fs.release(handle);
        }
        let at = self.at();
        self.work.pasts.get_mut(&fid).unwrap().fsynced(at);
    }

    fn step(&mut self) {
        let (root, cred, at) = (Fid::ROOT, Cred::root(), self.at());
        let fs = self.rng.pick(&self.fs).clone();
        let name = *self.rng.pick(&NAMES);
        let new = *self.rng.pick(&NAMES);
        let Some(fid) = self.names().get(name).copied() else { return self.create(name) };
        match self.rng.below(20) {
            0..8 => self.write(fid),
            8..10 => self.truncate(fid),
            10..13 => self.fsync(fid),
            13 | 14 => {
                fs.unlink(root, name.as_bytes(), &cred).unwrap();
                self.done(at, |names| _ = names.remove(name));
            }
            15 | 16 => {
                fs.rename(root, name.as_bytes(), root, new.as_bytes(), 0, &cred).unwrap();
                // Two names of one file: nothing happens.
                if self.names().get(new) != Some(&fid) {
                    self.done(at, |names| {
                        names.remove(name);
                        names.insert(new.into(), fid);
                    });
                }
            }
            17 if !self.names().contains_key(new) => {
                fs.link(fid, root, new.as_bytes(), &cred).unwrap();
                self.done(at, |names| _ = names.insert(new.into(), fid));
            }
            18 => {
                fs.fsync_dir(root).unwrap();
                self.work.durable.push((self.at(), self.work.after.len() - 1));
            }
            _ => self.work.story.flush(*self.rng.pick(&[Who::Mdt, Who::Ost(0), Who::Ost(1)])),
        }
    }
}

fn work(seed: u64, steps: u64) -> Work {
    let mut worker = Worker::new(seed);
    (0..steps).for_each(|_| worker.step());
    worker.fs.iter().skip(1).for_each(|fs| fs.abort());
    worker.work.film = Some(worker.work.story.take_film());
    worker.work
}

impl Work {
    /// Cuts the power before events of the work, and before events of the recovery from some of these cuts.
    fn at_its_events(&self, each: usize, check: impl Fn(&Work, &Story, usize, &str)) {
        let mut rng = Rng::new(self.seed);
        let film = self.film.as_ref().unwrap();
        let mut player = film.player();
        let first = rng.below(each as u64) as usize;
        for k in (first..=film.len()).step_by(each) {
            player.play_to(k);
            let cut = rng.next_u64();
            let when = format!("seed {}, cut {cut} before event {k} of {}", self.seed, film.len());
            let shape = StoryShape::quiet(Wiring::Local);
            let mut story = self.story.again_filmed(shape.clone(), player.cut(cut));
            let recovery = story.take_film();
            check(self, &story, k, &when);
            drop(story);
            if !rng.chance(25) {
                continue;
            }
            let mut again = recovery.player();
            for n in (0..=recovery.len()).step_by(1 + recovery.len() / 6) {
                again.play_to(n);
                story = self.story.again_on(shape.clone(), again.cut(rng.next_u64()));
                check(self, &story, k, &format!("{when}, and before event {n} of the recovery"));
            }
        }
    }

    /// Names are as they were after one of the operations, none older than what was flushed; they are given.
    fn check_names(&self, story: &Story, k: usize, when: &str) -> Names {
        let least = self.durable.iter().filter(|(at, _)| *at <= k).map(|(_, op)| *op).max().unwrap_or(0);
        let found: Names =
            story.list().unwrap().into_iter().map(|n| (n.clone(), story.lookup(&n).unwrap().fid)).collect();
        let fits = self.after[least..].iter().any(|(began, names)| *began <= k && *names == found);
        assert!(fits, "{when}: {found:?} is no state since operation {least}");
        found
    }
}

fn each_work(check: impl Fn(&Work, &Story, usize, &str) + Copy) {
    for seed in 0..count(3, 60) {
        let work = work(seed, 60);
        work.at_its_events(count(12, 1) as usize, check);
    }
}

/// plan-O3: nothing that the MDT names (a size, a written object) is missing from the objects.
#[test]
fn o3_whatever_was_done_the_mdt_names_nothing_that_was_not_flushed() {
    each_work(|work, story, k, when| {
        for fid in work.check_names(story, k, when).into_values() {
            let set =
                work.set.iter().filter(|(at, of, _)| *at < k && *of == fid).map(|(.., size)| *size).max();
            check_word_of_the_mdt(story, fid, set.unwrap_or(0), when);
        }
    });
}

/// meta-O4: whether its bytes are in the record, or in objects, or on their way, a file has all that was fsynced, each page old or new.
#[test]
fn o4_whatever_was_done_files_have_their_bytes_wherever_they_are() {
    each_work(|work, story, k, when| {
        for fid in work.check_names(story, k, when).into_values().collect::<BTreeSet<_>>() {
            let found = story.read_fid(fid).unwrap_or_else(|e| panic!("{when}: file {fid}: {e}"));
            work.pasts[&fid].judge(k, Some(&found)).unwrap_or_else(|why| panic!("{when}: file {fid}: {why}"));
        }
        story.check_clean_but_for_purge();
    });
}

/// mds-O5: a number that was given is not given to another file, whether the first one survived or not.
#[test]
fn o5_whatever_was_done_no_number_is_given_twice() {
    each_work(|work, story, k, when| {
        let given: BTreeSet<_> = work.given.iter().filter(|(at, _)| *at < k).map(|(_, fid)| *fid).collect();
        for n in 0..3 {
            let fid = story.create(&format!("new{n}")).unwrap();
            assert!(!given.contains(&fid), "{when}: {fid} is given again");
        }
    });
}
