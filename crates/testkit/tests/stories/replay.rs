use std::sync::atomic::{AtomicBool, Ordering};

use testkit::story::{Story, StoryShape, bytes_of, count};
use testkit::{Rng, Who, Wiring};
use types::Code;

const STRIPED: &str = "-c 2 -S 64k --inline 0";

/// [S-replay] A client whose server restarts sends again what the server had acknowledged but not flushed: an OST.
#[test]
fn what_an_ost_lost_is_sent_again_and_nothing_is_missing() {
    for seed in 0..count(12, 300) {
        let mut story = Story::begin(StoryShape::quiet(Wiring::Tcp));
        let mut rng = Rng::new(seed);
        let mut want = vec![0; 500_000];
        let fid = story.create_striped("f", STRIPED).unwrap();
        for _ in 0..3 {
            for _ in 0..6 {
                let at = rng.below(400_000) as usize;
                let data = bytes_of(rng.next_u64(), 1 + rng.below(100_000) as usize);
                story.write("f", at as u64, &data).unwrap();
                want[at..at + data.len()].copy_from_slice(&data);
            }
            if rng.chance(30) {
                story.flush(Who::Ost(0));
            }
            let who = Who::Ost(rng.below(2) as usize);
            story.power_cut(who, rng.next_u64());
            story.start(who);
        }
        let size = story.lookup("f").unwrap().size as usize;
        assert!(story.read("f").unwrap() == want[..size], "seed {seed}: while the client lives");
        story.fsync("f").unwrap();
        story.close("f").unwrap();
        story.power_cut_and_remount(seed);
        assert_eq!(story.lookup("f").unwrap().fid, fid);
        assert!(story.read("f").unwrap() == want[..size], "seed {seed}: afterwards");
    }
}

/// [S-replay] A client whose server restarts sends again what the server had acknowledged but not flushed: the MDT. Files keep
/// their numbers, and none is given to another file.
#[test]
fn what_the_mdt_lost_is_sent_again_and_fids_stay() {
    for seed in 0..count(12, 300) {
        let mut story = Story::begin(StoryShape::quiet(Wiring::Tcp));
        let mut rng = Rng::new(seed);
        let mut files: Vec<(String, types::Fid, Vec<u8>)> = vec![];
        for round in 0..3 {
            for n in 0..8 {
                let name = format!("r{round}n{n}");
                let fid = story.create(&name).unwrap();
                assert!(files.iter().all(|(_, f, _)| *f != fid), "seed {seed}: fid {fid} twice");
                let content = bytes_of(rng.next_u64(), 1 + rng.below(9_000) as usize);
                story.write(&name, 0, &content).unwrap();
                files.push((name, fid, content));
                match rng.below(4) {
                    0 => {
                        let at = rng.below(files.len() as u64) as usize;
                        let new = format!("{}x", files[at].0);
                        story.rename(&files[at].0, &new).unwrap();
                        files[at].0 = new;
                    }
                    1 => {
                        let (name, ..) = files.remove(rng.below(files.len() as u64) as usize);
                        story.unlink(&name).unwrap();
                    }
                    2 => drop(story.mkdir(&format!("d{round}{n}")).unwrap()),
                    _ => {}
                }
            }
            if rng.chance(30) {
                story.flush(Who::Mdt);
            }
            story.power_cut(Who::Mdt, rng.next_u64());
            story.start(Who::Mdt);
        }
        check_files(&story, &files, seed);
        story.sync_names().unwrap();
        story.power_cut_and_remount(seed);
        check_files(&story, &files, seed);
        story.check_clean_but_for_purge();
    }
}

fn check_files(story: &Story, files: &[(String, types::Fid, Vec<u8>)], seed: u64) {
    let mut want: Vec<_> = files.iter().map(|(n, ..)| n.clone()).collect();
    want.sort();
    let mut names = story.list().unwrap();
    names.retain(|n| n.starts_with('r'));
    assert_eq!(names, want, "seed {seed}");
    for (name, fid, content) in files {
        assert_eq!(story.lookup(name).unwrap().fid, *fid, "seed {seed}: {name}");
        assert!(story.read(name).unwrap() == *content, "seed {seed}: {name}");
    }
}

/// [S-replay] [S-kill] Servers die and lose power while a client writes without a pause: it notices nothing but time.
#[test]
fn a_client_that_writes_all_the_time_survives_its_servers_restarts() {
    for seed in 0..count(2, 30) {
        let mut story = Story::begin(StoryShape::lively(Wiring::Tcp));
        story.create_striped("f", STRIPED).unwrap();
        let fs = story.fs().clone();
        let handle = story.handle("f");
        let stop = AtomicBool::new(false);
        let want = std::thread::scope(|s| {
            let writer = s.spawn(|| {
                let (mut want, mut rng) = (vec![0; 300_000], Rng::new(seed));
                while !stop.load(Ordering::Relaxed) {
                    let at = rng.below(250_000) as usize;
                    let data = bytes_of(rng.next_u64(), 1 + rng.below(50_000) as usize);
                    fs.write(handle, at as u64, &data).unwrap();
                    want[at..at + data.len()].copy_from_slice(&data);
                }
                want
            });
            let mut rng = Rng::new(seed + 77);
            for _ in 0..6 {
                let who = *rng.pick(&[Who::Mdt, Who::Ost(0), Who::Ost(1)]);
                match rng.chance(30) {
                    true => story.kill(who),
                    false => story.power_cut(who, rng.next_u64()),
                }
                story.start(who);
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            stop.store(true, Ordering::Relaxed);
            writer.join().unwrap()
        });
        drop(fs);
        let size = story.lookup("f").unwrap().size as usize;
        assert!(story.read("f").unwrap() == want[..size], "seed {seed}");
        story.fsync("f").unwrap();
        story.power_cut_and_remount(seed);
        assert!(story.read("f").unwrap() == want[..size], "seed {seed}: after the loss of all power");
        story.check_clean();
    }
}

/// [S-replay] A request that cannot be replayed gives `EIO` at the next `fsync` or `close` of the file, never a silent loss. Here
/// the object refuses the replay, since it has seen a later lease meanwhile.
#[test]
fn what_an_object_refuses_to_take_again_is_an_error_at_fsync_and_at_close() {
    for last_word in ["fsync", "close"] {
        let mut story = Story::begin(StoryShape::quiet(Wiring::Tcp));
        for name in ["lost", "kept"] {
            story.create_striped(name, "-c 1 --inline 0").unwrap();
            story.write(name, 0, &bytes_of(1, 10_000)).unwrap();
            story.fsync(name).unwrap();
        }
        let fid = story.lookup("lost").unwrap().fid;
        let (who, object) = story.objects_of(fid)[0];
        story.write("lost", 0, &bytes_of(2, 10_000)).unwrap();
        story.power_cut(who, 0);
        story.start(who);
        story.cut(who);
        story.fence_object(who, object);
        story.flush(who);
        story.heal(who);
        let said = match last_word {
            "fsync" => story.fsync("lost"),
            _ => {
                // The client learns of the restart when it speaks to the server next.
                story.write("kept", 0, b"k").unwrap();
                story.read("kept").unwrap();
                let _ = story.read("lost");
                story.close("lost")
            }
        };
        assert_eq!(said.expect_err(last_word).code, Code::Io, "{last_word}");
        story.fsync("kept").unwrap();
        // Old bytes or an error; a new open begins anew.
        if last_word == "fsync" {
            assert_eq!(story.write("lost", 0, b"x").expect_err("it is poisoned").code, Code::Io);
            assert!(story.close("lost").is_err());
        }
        assert!(story.read("kept").is_ok());
    }
}

/// [S-replay] A server in the client's own process that loses power alone cannot be told again: fsync says so.
#[test]
fn where_nothing_is_kept_for_replay_a_loss_is_an_error_at_fsync() {
    let mut story = Story::begin(StoryShape::quiet(Wiring::Local));
    story.create_striped("f", STRIPED).unwrap();
    story.write("f", 0, &bytes_of(1, 200_000)).unwrap();
    story.power_cut(Who::Ost(1), 0);
    story.start(Who::Ost(1));
    assert_eq!(story.fsync("f").expect_err("bytes are lost").code, Code::Io);
}

/// [S-replay] With no memory for replay the client waits for flushes instead: still nothing is lost.
#[test]
fn without_memory_for_replay_the_client_flushes_and_loses_nothing() {
    let mut story = Story::begin(StoryShape { retain_bytes_max: 0, ..StoryShape::quiet(Wiring::Tcp) });
    let want = bytes_of(3, 600_000);
    story.create_striped("f", STRIPED).unwrap();
    for at in (0..want.len()).step_by(100_000) {
        story.write("f", at as u64, &want[at..at + 100_000]).unwrap();
        let who = Who::Ost(at / 100_000 % 2);
        story.power_cut(who, 0);
        story.start(who);
    }
    assert!(story.read("f").unwrap() == want);
    story.fsync("f").unwrap();
}

/// [S-replay] A client that was silent so long that another took its place is told at fsync that its session has ended.
#[test]
fn a_client_whose_place_was_taken_is_told_at_fsync() {
    let mut story = Story::begin(StoryShape::quiet(Wiring::Tcp));
    story.create_striped("f", STRIPED).unwrap();
    story.fsync("f").unwrap();
    story.write("f", 0, &bytes_of(1, 10_000)).unwrap();
    let handle = story.handle("f");
    let old = story.take_over();
    // Its acknowledged writes are visible to the newly attached client.
    assert!(story.read("f").unwrap() == bytes_of(1, 10_000));
    story.open("f").unwrap();
    story.write("f", 0, &bytes_of(2, 10_000)).unwrap();
    assert!(old.write(handle, 0, &bytes_of(3, 10_000)).is_err(), "it is fenced off");
    assert!(old.fsync(handle, false).is_err(), "and told so");
    assert!(story.read("f").unwrap() == bytes_of(2, 10_000));
    old.abort();
}
