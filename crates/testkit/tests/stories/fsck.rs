use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use client::fsck::{How, Problem, Wrong};
use client::{Fs, OpenFlags, SetAttr};
use testkit::story::{Story, StoryShape, bytes_of, count};
use testkit::{Who, Wiring};
use types::{Code, Cred, Fault, Fid, Generation, ObjectId};

const STRIPED: &str = "-c 2 -S 64k --inline 0";

/// Some files of each kind, fsynced.
fn populated() -> Story {
    let story = Story::begin(StoryShape::lively(Wiring::Local));
    for (name, striping) in [("inline", ""), ("a", STRIPED), ("b", STRIPED)] {
        match striping {
            "" => story.create(name).unwrap(),
            _ => story.create_striped(name, striping).unwrap(),
        };
        story.write(name, 0, &bytes_of(1, 50_000)).unwrap();
        story.write(name, 0, &bytes_of(2, if striping.is_empty() { 100 } else { 150_000 })).unwrap();
        story.fsync(name).unwrap();
        story.close(name).unwrap();
    }
    story.mkdir("dir").unwrap();
    story.check_clean();
    story
}

fn kinds(story: &Story) -> Vec<(Problem, String)> {
    story.fsck().findings.into_iter().map(|f| (f.kind, f.path)).collect()
}

/// Fsck finds an object that no file names, and goes on finding nothing else.
#[test]
fn fsck_finds_an_orphan_object() {
    let story = populated();
    let object =
        ObjectId { fid: Fid(0x7777), generation: Generation(3), component: 0, stripe: 0, snapshot: 0 };
    story.plant_object(Who::Ost(1), object, &bytes_of(1, 5_000));
    assert_eq!(kinds(&story), [(Problem::OrphanObject, String::new())]);
}

/// [S-missing-object] Fsck names the file of an object that is gone.
#[test]
fn fsck_finds_a_missing_object() {
    let story = populated();
    let (who, object) = story.objects_of(story.lookup("b").unwrap().fid)[1];
    story.destroy_object(who, object);
    assert_eq!(kinds(&story), [(Problem::MissingObject, "/b".to_string())]);
}

/// Fsck finds a link count that is not the number of names.
#[test]
fn fsck_finds_a_wrong_link_count() {
    for name in ["inline", "a", "dir"] {
        let mut story = populated();
        let fid = story.lookup(name).unwrap().fid;
        story.unmount().unwrap();
        story.falsify_inode(fid, |inode| inode.attr.nlink += 1);
        story.remount();
        assert_eq!(kinds(&story), [(Problem::Records(Wrong::LinkCount), format!("/{name}"))]);
    }
}

/// Fsck finds names and inodes that have lost each other.
#[test]
fn fsck_finds_an_inode_that_is_gone() {
    let mut story = populated();
    let fid = story.lookup("a").unwrap().fid;
    story.unmount().unwrap();
    story.delete_inode(fid);
    story.remount();
    let found = kinds(&story);
    assert!(found.contains(&(Problem::Records(Wrong::DanglingEntry), "/a".to_string())), "{found:?}");
    assert!(found.iter().filter(|(k, _)| *k == Problem::OrphanObject).count() == 2, "{found:?}");
}

/// Findings with one safe repair are repaired through the serving MDT; afterwards fsck and the verifier find nothing.
#[test]
fn fsck_repairs_what_has_one_answer() {
    for wiring in [Wiring::Local, Wiring::Tcp] {
        let mut story = Story::begin(StoryShape::lively(wiring));
        let fids = ["one", "two", "three"].map(|name| {
            story.create(name).unwrap();
            story.write(name, 0, &bytes_of(3, 9_000)).unwrap();
            story.fsync(name).unwrap();
            story.close(name).unwrap();
            story.lookup(name).unwrap().fid
        });
        let dir = story.mkdir("dir").unwrap();
        story.unmount().unwrap();
        story.falsify_inode(dir, |inode| inode.attr.nlink += 3);
        story.falsify_inode(fids[0], |inode| inode.parents.clear());
        story.delete_inode(fids[1]);
        story.remount();
        let mut told = Vec::new();
        while told.len() < 20 {
            let report = story.fsck();
            if report.findings.is_empty() {
                break;
            }
            for finding in report.findings.iter().filter(|f| !f.repair.is_empty()) {
                client::fsck::repair(story.fs(), &story.secret(), &report, finding).unwrap();
            }
            told.extend(report.findings.into_iter().map(|f| f.kind));
        }
        for wrong in [Wrong::LinkCount, Wrong::MissingHint, Wrong::DanglingEntry, Wrong::Leftover] {
            assert!(told.contains(&Problem::Records(wrong)), "{wiring:?}: {told:?}");
        }
        story.check_clean();
        assert_eq!(story.read("three").unwrap(), bytes_of(3, 9_000));
        assert_eq!(story.lookup("two").unwrap_err().code, Code::NotFound);
        story.mended();
    }
}

/// Fsck finds a copy of an object on another OST, though the right one is there too.
#[test]
fn fsck_finds_a_second_copy_of_an_object() {
    let story = populated();
    for (who, object) in story.objects_of(story.lookup("b").unwrap().fid) {
        let other = if who == Who::Ost(0) { Who::Ost(1) } else { Who::Ost(0) };
        story.plant_object(other, object, &bytes_of(3, 5_000));
        assert_eq!(kinds(&story), [(Problem::MisplacedObject, "/b".to_string())]);
        story.destroy_object(other, object);
        story.check_clean();
    }
}

/// Objects of removed files that wait for the purge's next turn are no finding, however many they are.
#[test]
fn fsck_waits_for_the_purge() {
    let shape =
        StoryShape { server_interval: Duration::from_millis(400), ..StoryShape::lively(Wiring::Local) };
    let story = Story::begin(shape);
    for n in 0..30 {
        let name = format!("f{n}");
        story.create_striped(&name, STRIPED).unwrap();
        story.write(&name, 0, &bytes_of(n, 70_000)).unwrap();
        story.close(&name).unwrap();
    }
    (0..30).for_each(|n| story.unlink(&format!("f{n}")).unwrap());
    let report =
        story.fsck_with(How { pause: Duration::from_millis(20), purge: Duration::from_secs(5), ..How::TOOL });
    assert_eq!((report.findings, report.counts.dead_records), (vec![], 30));
    assert_eq!(story.objects(), []);
}

/// Objects of unlinked files that no purge destroys become a finding after a while.
#[test]
fn fsck_finds_a_purge_that_does_nothing() {
    let story = Story::begin(StoryShape::quiet(Wiring::Local));
    story.create_striped("f", STRIPED).unwrap();
    story.write("f", 0, &bytes_of(1, 70_000)).unwrap();
    story.close("f").unwrap();
    story.unlink("f").unwrap();
    let began = Instant::now();
    let purge = Duration::from_millis(150);
    let report = story.fsck_with(How { pause: Duration::ZERO, purge, ..How::TOOL });
    assert_eq!(report.findings.iter().map(|f| f.kind).collect::<Vec<_>>(), [Problem::SlowPurge]);
    assert!(began.elapsed() >= purge);
}

/// Fsck of a running system is clean while names, directories, links, content and sizes come and go.
#[test]
fn fsck_of_a_busy_system_is_clean() {
    for wiring in [Wiring::Local, Wiring::Tcp] {
        let story = roomy(wiring);
        let places = places(&story);
        while_busy(&story, places, count(30, 1000), &|| {
            let findings = story.fsck_with(BUSY).findings;
            assert_eq!(findings, [], "{wiring:?}");
        });
    }
}

/// And it finds what is wrong in the midst of it: the count of a directory that is still and of one that is not.
#[test]
fn fsck_of_a_busy_system_finds_what_is_wrong() {
    for wiring in [Wiring::Local, Wiring::Tcp] {
        let mut story = roomy(wiring);
        let (places, wrong) = (places(&story), [story.mkdir("wrong").unwrap(), Fid::ROOT]);
        story.unmount().unwrap();
        wrong.iter().for_each(|fid| story.falsify_inode(*fid, |inode| inode.attr.nlink += 1));
        story.remount();
        while_busy(&story, places, count(5, 100), &|| {
            let found = story.fsck_with(BUSY).findings.into_iter().map(|f| (f.kind, f.path));
            let want = ["/", "/wrong"].map(|path| (Problem::Records(Wrong::LinkCount), path.to_string()));
            assert_eq!(found.collect::<Vec<_>>(), want, "{wiring:?}");
        });
    }
}

/// Pages of a few records, so that much happens between them, as on a large system.
const BUSY: How = How { page: 2, pause: Duration::from_millis(2), purge: Duration::from_secs(20) };

fn roomy(wiring: Wiring) -> Story {
    Story::begin(StoryShape { ost_bytes: 64 << 20, ..StoryShape::lively(wiring) })
}

fn places(story: &Story) -> [Fid; 3] {
    ["trees", "dirs", "moves"].map(|name| story.mkdir(name).unwrap())
}

/// Calls `check` so often, and more until much has happened meanwhile, while four programs change things.
fn while_busy(story: &Story, [trees, dirs, moves]: [Fid; 3], checks: u64, check: &dyn Fn()) {
    let jobs: [(&str, Fid, Job); 4] = [
        ("trees", trees, make_and_remove_a_tree),
        ("dirs", dirs, make_and_remove_dirs),
        ("moves", moves, link_and_move),
        ("sizes", moves, grow_and_cut),
    ];
    let (stop, done) = (&AtomicBool::new(false), &AtomicU32::new(0));
    std::thread::scope(|scope| {
        for (name, dir, job) in jobs {
            scope.spawn(move || {
                let _last = StopOnDrop(stop);
                while !stop.load(Ordering::Relaxed) {
                    job(story.fs(), dir).unwrap_or_else(|fault| panic!("{name}: {fault}"));
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _last = StopOnDrop(stop);
        (0..checks).for_each(|_| check());
        while done.load(Ordering::Relaxed) < 100 && !stop.load(Ordering::Relaxed) {
            check();
        }
    });
}

type Job = fn(&Fs, Fid) -> Result<(), Fault>;

/// Ends the others when one fails, so that the test ends.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn make(fs: &Fs, dir: Fid, name: &str, striping: &str, bytes: usize) -> Result<Fid, Fault> {
    let root = Cred::root();
    let (attr, handle) = fs.create(dir, name.as_bytes(), 0o644, OpenFlags::read_write(), &root)?;
    if !striping.is_empty() {
        match fs.setxattr(attr.fid, b"stria.layout", striping.as_bytes(), 0, &root) {
            // It is there from the last time.
            Err(fault) if fault.code == Code::Exists || fault.code == Code::Busy => {}
            said => said?,
        }
    }
    fs.write(handle, 0, &bytes_of(attr.fid.0, bytes))?;
    fs.release(handle);
    Ok(attr.fid)
}

/// Create, write, `rm -rf`.
fn make_and_remove_a_tree(fs: &Fs, dir: Fid) -> Result<(), Fault> {
    let root = Cred::root();
    let tree = fs.mkdir(dir, b"tree", 0o755, &root)?.fid;
    let names: Vec<String> = (0..8).map(|n| format!("f{n}")).collect();
    for (n, name) in names.iter().enumerate() {
        make(fs, tree, name, if n % 2 == 0 { STRIPED } else { "" }, 10_000 * n)?;
    }
    names.iter().try_for_each(|name| fs.unlink(tree, name.as_bytes(), &root))?;
    fs.rmdir(dir, b"tree", &root)
}

fn make_and_remove_dirs(fs: &Fs, dir: Fid) -> Result<(), Fault> {
    let root = Cred::root();
    for name in [b"a", b"b", b"c"] {
        fs.mkdir(dir, name, 0o755, &root)?;
    }
    [b"a", b"b", b"c"].iter().try_for_each(|name| fs.rmdir(dir, *name, &root))
}

/// A file gets and loses a second name, in a later directory and an earlier one.
fn link_and_move(fs: &Fs, dir: Fid) -> Result<(), Fault> {
    let root = Cred::root();
    let file = make(fs, dir, "first", "", 10)?;
    fs.link(file, Fid::ROOT, b"second", &root)?;
    fs.rename(dir, b"first", Fid::ROOT, b"first", 0, &root)?;
    fs.unlink(Fid::ROOT, b"second", &root)?;
    fs.rename(Fid::ROOT, b"first", dir, b"first", 0, &root)?;
    fs.unlink(dir, b"first", &root)
}

/// One file, longer and shorter and settled each time.
fn grow_and_cut(fs: &Fs, dir: Fid) -> Result<(), Fault> {
    let flags = OpenFlags::read_write();
    let (file, handle) = match fs.lookup(dir, b"sizes") {
        Ok(attr) => (attr.fid, fs.open(attr.fid, flags)?.0),
        Err(_) => {
            let file = make(fs, dir, "sizes", STRIPED, 10)?;
            (file, fs.open(file, flags)?.0)
        }
    };
    fs.write(handle, 0, &bytes_of(1, 200_000))?;
    fs.fsync(handle, false)?;
    fs.release(handle);
    let set = SetAttr { size: Some(70_000), ..SetAttr::default() };
    fs.setattr(file, &set, &Cred::root()).map(|_| ())
}
