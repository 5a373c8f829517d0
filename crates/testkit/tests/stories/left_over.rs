use testkit::story::{Story, StoryShape, bytes_of, count, wait_until};
use testkit::{Rng, Wiring};
use types::Code;
use wire::meta::FileState;

const STRIPED: &str = "-c 2 -S 64k --inline 0";

/// [S-kill] A `kill -9` of the client in the middle of writing: the MDT holds the file as being written, its objects tell the
/// size to whoever opens it next.
#[test]
fn the_size_of_a_file_whose_writer_died_is_what_was_acknowledged() {
    for seed in 0..count(6, 200) {
        let mut story =
            Story::begin(StoryShape::quiet(if seed % 2 == 0 { Wiring::Local } else { Wiring::Tcp }));
        let mut rng = Rng::new(seed);
        let want = bytes_of(seed, 1 + rng.below(600_000) as usize);
        let fid = story.create_striped("f", STRIPED).unwrap();
        let fsynced = rng.below(want.len() as u64) as usize;
        story.write("f", 0, &want[..fsynced]).unwrap();
        story.fsync("f").unwrap();
        story.write("f", fsynced as u64, &want[fsynced..]).unwrap();
        story.unmount_dead();
        assert!(matches!(story.inode(fid).unwrap().state, FileState::Writing(_)));
        assert_eq!(story.inode(fid).unwrap().attr.size, fsynced as u64, "plan-O3: it was told no more");
        story.remount();
        // stat alone must tell the truth too.
        assert_eq!(story.lookup("f").unwrap().size, want.len() as u64, "seed {seed}: stat");
        assert!(story.read("f").unwrap() == want, "seed {seed}");
        story.unmount().unwrap();
        assert_eq!(story.inode(fid).unwrap().state, FileState::Settled);
        // The recovered size is durable: it was reported after a flush.
        story.flush_all();
        story.power_cut_and_remount(seed);
        assert!(story.read("f").unwrap() == want, "seed {seed}");
        story.check_clean();
    }
}

/// [S-unlinked-open] A file that is unlinked while open can be read and written until it is closed; its space is freed then,
/// also when the client that held it dies, and also when all power is lost meanwhile.
#[test]
fn the_space_of_an_unlinked_open_file_is_freed_when_its_client_dies() {
    for seed in 0..count(3, 40) {
        let mut story = Story::begin(StoryShape::lively(Wiring::Local));
        let want = bytes_of(seed, 300_000);
        let fids = ["died", "lost", "closed"].map(|name| {
            let fid = story.create_striped(name, STRIPED).unwrap();
            story.write(name, 0, &want[..200_000]).unwrap();
            story.fsync(name).unwrap();
            story.unlink(name).unwrap();
            story.write(name, 200_000, &want[200_000..]).unwrap();
            assert!(story.read_handle(story.handle(name)).unwrap() == want);
            assert!(!story.exists(name));
            fid
        });
        story.check_clean();
        assert!(!story.objects_of(fids[2]).is_empty());
        story.close("closed").unwrap();
        wait_until("the closed file's objects go", || story.objects_of(fids[2]).is_empty());
        assert!(!story.objects_of(fids[0]).is_empty(), "it is still open");
        match seed % 2 {
            0 => story.remount(),
            _ => story.power_cut_and_remount(seed),
        }
        for fid in fids {
            wait_until("the dead client's orphans go", || story.objects_of(fid).is_empty());
            assert_eq!(story.inode(fid).unwrap_err().code, Code::Stale);
        }
        story.check_clean();
    }
}

/// [S-read-your-writes] A file that a dead client left in the middle of writing is like any other once it is open: it can be cut
/// by name, written, opened again and asked for its size meanwhile.
#[test]
fn a_file_of_a_dead_writer_is_like_any_other_once_it_is_found() {
    let leave = || {
        let mut story = Story::begin(StoryShape::quiet(Wiring::Local));
        story.create_striped("f", STRIPED).unwrap();
        story.write("f", 0, &bytes_of(1, 100_000)).unwrap();
        story.unmount_dead();
        story.remount();
        story
    };
    // 1. Cut as the first thing.
    let mut story = leave();
    story.truncate("f", 50_000).unwrap();
    assert!(story.read("f").unwrap() == bytes_of(1, 100_000)[..50_000]);
    story.power_cut_and_remount(0);
    assert_eq!(story.read("f").unwrap().len(), 50_000);
    // 2. Written through one descriptor and looked at through others.
    let mut story = leave();
    story.open("f").unwrap();
    story.write("f", 100_000, &bytes_of(2, 100_000)).unwrap();
    assert_eq!(story.lookup("f").unwrap().size, 200_000, "stat knows of the write");
    let want = [bytes_of(1, 100_000), bytes_of(2, 100_000)].concat();
    assert!(story.read("f").unwrap() == want, "another descriptor sees it");
    story.fsync("f").unwrap();
    story.power_cut_and_remount(0);
    assert!(story.read("f").unwrap() == want, "fsync held it");
}
