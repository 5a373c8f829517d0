//! Data lost by a power loss never comes back: once a file was seen without some bytes, it never shows them later.

use testkit::story::{Story, StoryShape, bytes_of, count};
use testkit::{Who, Wiring};

const STRIPED: &str = "-c 2 -S 64k --inline 0";

/// The OSTs flush on their own, the MDT does not come to it, and power fails.
fn lose_what_the_mdt_has(story: &mut Story) {
    for n in 0..story.shape.osts {
        story.flush(Who::Ost(n));
    }
    story.unmount_dead();
    story.power_cut_all(0);
    story.start_all();
    story.remount();
}

/// Goes on with a file after the crash: writes behind its end, and extends it; what was no part of it reads as zeros.
fn check_that_nothing_comes_back(story: &Story, by_truncate: bool) {
    let before = story.read("f").unwrap();
    let end = 250_000;
    assert!(before.len() < end);
    match by_truncate {
        true => story.truncate("f", end as u64).unwrap(),
        false => {
            story.open("f").unwrap();
            story.write("f", end as u64 - 10, &bytes_of(9, 10)).unwrap();
            story.fsync("f").unwrap();
        }
    }
    let after = story.read("f").unwrap();
    assert_eq!(after.len(), end);
    assert!(after[..before.len()] == before, "what was there has changed");
    let strange = after[before.len()..end - 10].iter().position(|b| *b != 0);
    assert_eq!(strange, None, "bytes came back that were not in the file of {} bytes", before.len());
}

/// [S-power-loss] [S-truncate] A file's first objects are written, and power fails before the MDT has told its medium of them.
#[test]
fn objects_of_a_growth_that_was_lost_never_show() {
    for by_truncate in [false, true] {
        for content in [0, 5_000] {
            let mut story = Story::begin(StoryShape::quiet(Wiring::Local));
            story.create("f").unwrap();
            story.write("f", 0, &bytes_of(1, content)).unwrap();
            story.fsync("f").unwrap();
            story.write("f", 0, &bytes_of(2, 200_000)).unwrap();
            lose_what_the_mdt_has(&mut story);
            check_that_nothing_comes_back(&story, by_truncate);
            story.unmount().unwrap();
            story.remount();
            story.check_clean_but_for_purge();
        }
    }
}

/// [S-power-loss] [S-truncate] A settled file is opened again and written to, and power fails before the MDT has told its medium
/// that it is being written.
#[test]
fn bytes_past_the_size_of_a_file_opened_again_never_show() {
    for by_truncate in [false, true] {
        for is_created_again in [false, true] {
            let mut story = Story::begin(StoryShape::quiet(Wiring::Local));
            story.create_striped("f", STRIPED).unwrap();
            story.write("f", 0, &bytes_of(1, 1_000)).unwrap();
            story.fsync("f").unwrap();
            story.close("f").unwrap();
            story.unmount().unwrap();
            story.flush_all();
            story.remount();
            match is_created_again {
                true => story.create_or_open("f").unwrap(),
                false => story.open("f").unwrap(),
            };
            story.write("f", 0, &bytes_of(2, 200_000)).unwrap();
            lose_what_the_mdt_has(&mut story);
            check_that_nothing_comes_back(&story, by_truncate);
            story.unmount().unwrap();
            story.remount();
            story.check_clean_but_for_purge();
        }
    }
}

/// [S-power-loss] A file whose creation was lost leaves no unreferenced objects behind.
#[test]
fn a_file_that_was_lost_leaves_no_objects() {
    for seed in 0..count(4, 40) {
        let mut story = Story::begin(StoryShape::quiet(Wiring::Local));
        for name in ["a", "b"] {
            story.create_striped(name, STRIPED).unwrap();
            story.write(name, 0, &bytes_of(seed, 100_000)).unwrap();
        }
        lose_what_the_mdt_has(&mut story);
        story.check_clean_but_for_purge();
    }
}
