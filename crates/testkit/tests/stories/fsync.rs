use client::SetAttr;
use testkit::story::{Story, StoryShape, bytes_of, count};
use testkit::{Rng, Who, Wiring};
use types::{Cred, Time};

/// Offsets and bytes.
type Writes = Vec<(u64, Vec<u8>)>;

/// Files of each form: (name, striping, the writes).
fn forms(seed: u64) -> Vec<(&'static str, &'static str, Writes)> {
    let mut rng = Rng::new(seed);
    let mut piece = |most: u64| {
        let len = 1 + rng.below(most) as usize;
        bytes_of(rng.next_u64(), len)
    };
    vec![
        ("empty", "", vec![]),
        ("inline", "", vec![(0, piece(9000)), (5000, piece(9000))]),
        // Begins inline, moves to objects when it outgrows them.
        ("grown", "", vec![(0, piece(40_000)), (60_000, piece(90_000))]),
        ("striped", "-c 2 -S 64k --inline 0", vec![(0, piece(400_000)), (100_000, piece(200_000))]),
        // Its first objects are never written.
        ("sparse", "-c 2 -S 64k --inline 0", vec![(300_000, piece(70_000))]),
    ]
}

fn content(writes: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let size = writes.iter().map(|(at, d)| *at as usize + d.len()).max().unwrap_or(0);
    let mut out = vec![0; size];
    writes.iter().for_each(|(at, d)| out[*at as usize..][..d.len()].copy_from_slice(d));
    out
}

/// [S-fsync] After `fsync` returns, the data, the size and the file's entry survive the loss of all power.
#[test]
fn after_fsync_everything_survives_the_loss_of_all_power() {
    for seed in 0..count(12, 400) {
        let mut story = Story::begin(StoryShape::quiet(Wiring::Local));
        for (name, striping, writes) in forms(seed) {
            match striping {
                "" => story.create(name).unwrap(),
                _ => story.create_striped(name, striping).unwrap(),
            };
            writes.iter().for_each(|(at, data)| story.write(name, *at, data).unwrap());
            story.fsync(name).unwrap();
        }
        // Twice: what the first recovery did must survive too.
        for round in 0..2 {
            story.power_cut_and_remount(seed * 2 + round);
            for (name, _, writes) in forms(seed) {
                let attr = story.lookup(name).unwrap_or_else(|e| panic!("seed {seed}: {name}: {e}"));
                assert_eq!(attr.size, content(&writes).len() as u64, "seed {seed}: size of {name}");
                let read = story.read(name).unwrap_or_else(|e| panic!("seed {seed}: {name}: {e}"));
                assert!(read == content(&writes), "seed {seed}: {name} has other bytes");
            }
        }
    }
}

/// [S-fsync] After `fsync` returns, the data survives: also when only one server loses power while the others stay.
#[test]
fn what_was_fsynced_survives_the_power_loss_of_each_single_server() {
    for who in [Who::Mdt, Who::Ost(0), Who::Ost(1)] {
        for seed in 0..4 {
            let mut story = Story::begin(StoryShape::quiet(Wiring::Tcp));
            for (name, striping, writes) in forms(seed) {
                match striping {
                    "" => story.create(name).unwrap(),
                    _ => story.create_striped(name, striping).unwrap(),
                };
                writes.iter().for_each(|(at, data)| story.write(name, *at, data).unwrap());
                story.fsync(name).unwrap();
            }
            story.power_cut(who, seed);
            story.start(who);
            for (name, _, writes) in forms(seed) {
                assert!(story.read(name).unwrap() == content(&writes), "{who:?} seed {seed}: {name}");
                story.fsync(name).unwrap();
            }
        }
    }
}

/// [S-fsync] Data survives after fsync, also when the file is written again afterwards and the flushers run meanwhile.
#[test]
fn a_lively_cluster_keeps_what_was_fsynced() {
    for seed in 0..count(4, 100) {
        let mut story = Story::begin(StoryShape::lively(Wiring::Local));
        let old = bytes_of(seed, 300_000);
        story.create_striped("f", "-c 2 -S 64k --inline 0").unwrap();
        story.write("f", 0, &old).unwrap();
        story.fsync("f").unwrap();
        let new = bytes_of(seed + 1000, 300_000);
        for at in (0..new.len()).step_by(50_000) {
            story.write("f", at as u64, &new[at..at + 50_000]).unwrap();
        }
        story.power_cut_and_remount(seed);
        let found = story.read("f").unwrap();
        assert_eq!(found.len(), old.len());
        // 50,000 is no multiple of a page: a page of two writes may hold the first only.
        for at in 0..found.len() {
            assert!(found[at] == old[at] || found[at] == new[at], "seed {seed}: byte {at} is foreign");
        }
        story.check_clean();
    }
}

/// [S-fsync] The time of an overwrite is durable with its bytes, although only the OSTs were flushed for it; a time that was set
/// by hand stays, although the objects keep the times of the writes before it.
#[test]
fn the_time_of_an_overwrite_and_a_time_set_by_hand_survive_the_loss_of_all_power() {
    for seed in 0..count(12, 200) {
        let mut story = Story::begin(StoryShape::quiet(Wiring::Local));
        for name in ["overwritten", "set"] {
            story.create_striped(name, "-c 2 -S 64k --inline 0").unwrap();
            story.write(name, 0, &bytes_of(seed, 200_000)).unwrap();
            story.fsync(name).unwrap();
        }
        let first = story.lookup("overwritten").unwrap().mtime;
        for name in ["overwritten", "set"] {
            story.write(name, 70_000, &bytes_of(seed + 1, 5_000)).unwrap();
        }
        let second = story.lookup("overwritten").unwrap().mtime;
        assert!(second > first, "an overwrite changes mtime at once");
        let by_hand = Time { sec: 1_000_000_000, nsec: 123_456_789 };
        let fid = story.lookup("set").unwrap().fid;
        let set = SetAttr { mtime: Some(by_hand), ..SetAttr::default() };
        story.fs().setattr(fid, &set, &Cred::root()).unwrap();
        for name in ["overwritten", "set"] {
            story.fsync(name).unwrap();
        }
        for round in 0..2 {
            story.power_cut_and_remount(seed * 2 + round);
            assert_eq!(story.lookup("overwritten").unwrap().mtime, second, "seed {seed}, round {round}");
            assert_eq!(story.lookup("set").unwrap().mtime, by_hand, "seed {seed}, round {round}");
        }
    }
}

/// [S-fsync] fsync also covers changes from before the open, or by name: content of a file that was closed and opened again, an
/// xattr, a mode, a new name.
#[test]
fn fsync_covers_what_was_done_by_name_and_before_the_open() {
    for wiring in [Wiring::Local, Wiring::Tcp] {
        for (name, size) in [("small", 100), ("large", 200_000)] {
            let mut story = Story::begin(StoryShape::quiet(wiring));
            let content = bytes_of(3, size);
            story.create(name).unwrap();
            story.write(name, 0, &content).unwrap();
            story.close(name).unwrap();
            let fid = story.open(name).unwrap();
            story.fsync(name).unwrap();
            story.power_cut_and_remount(size as u64);
            assert!(story.read(name).unwrap() == content, "{wiring:?} {name}: closed, opened, fsynced");

            story.open(name).unwrap();
            story.fs().setxattr(fid, b"user.a", b"v", 0, &Cred::root()).unwrap();
            let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
            story.fs().setattr(fid, &set, &Cred::root()).unwrap();
            story.rename(name, "renamed").unwrap();
            story.fsync(name).unwrap();
            story.power_cut_and_remount(size as u64 + 1);
            assert_eq!(story.lookup("renamed").unwrap().mode, 0o600, "{wiring:?} {name}");
            assert_eq!(story.fs().getxattr(fid, b"user.a").unwrap(), b"v");
            assert!(!story.exists(name), "the new name only");
        }
    }
}

/// [S-fsync] The fsync of a directory makes its entries durable, whichever client made them.
#[test]
fn what_one_client_made_is_durable_after_another_has_fsynced_the_directory() {
    let mut story = Story::begin(StoryShape::quiet(Wiring::Local));
    let other = story.beside();
    story.create("f").unwrap();
    other.fsync_dir(types::Fid::ROOT).unwrap();
    other.abort();
    story.power_cut_and_remount(0);
    assert!(story.exists("f"));
}
