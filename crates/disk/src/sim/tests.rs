//! Legal and illegal effects of a simulated crash.

use super::*;

fn bytes_of(disk: &SimDisk) -> Vec<u8> {
    let mut out = vec![0; disk.size() as usize];
    disk.read_at(&mut out, 0).unwrap();
    out
}

fn all_crashes() -> impl Iterator<Item = Crash> {
    let seeded = (0..40).flat_map(|s| {
        [Crash::Writes(s), Crash::Sectors(s), Crash::Torn(s), Crash::OneLost(s), Crash::OneKept(s)]
    });
    [Crash::KeepAll, Crash::DropAll].into_iter().chain(seeded)
}

#[test]
fn keeps_the_contract_of_a_disk() {
    crate::conformance::check(&SimDisk::new(1 << 20));
}

#[test]
fn flushed_bytes_survive_every_crash_and_unflushed_ones_may_not() {
    let disk = SimDisk::new(8192);
    disk.write_at(&[1; 3000], 100).unwrap();
    disk.flush().unwrap();
    disk.write_at(&[2; 1000], 4096).unwrap();
    assert_eq!(disk.unflushed(), 1);
    for crash in all_crashes() {
        let after = bytes_of(&disk.crash(crash));
        assert_eq!(after[100..3100], [1; 3000], "{crash:?}");
        for sector in after[4096..5096].chunks(SECTOR_BYTES) {
            assert!(sector.iter().all(|b| *b == sector[0]), "{crash:?} tore a sector");
        }
    }
    assert_eq!(bytes_of(&disk.crash(Crash::DropAll))[4096], 0);
    assert_eq!(bytes_of(&disk.crash(Crash::KeepAll)), bytes_of(&disk));
}

#[test]
fn writes_are_lost_torn_and_reordered() {
    let disk = SimDisk::new(4096);
    disk.write_at(&[1; 1024], 0).unwrap();
    disk.write_at(&[2; 1024], 2048).unwrap();
    let images: Vec<_> = all_crashes().map(|c| bytes_of(&disk.crash(c))).collect();
    let seen =
        |first: [u8; 2], second: u8| images.iter().any(|i| [i[0], i[512]] == first && i[2048] == second);
    assert!(seen([0, 0], 0) && seen([1, 1], 0) && seen([1, 1], 2), "in order");
    assert!(seen([0, 0], 2), "the later without the earlier");
    assert!(seen([1, 0], 0), "torn");
}

#[test]
fn a_sector_is_kept_as_it_was_after_one_of_its_writes() {
    let disk = SimDisk::new(512);
    disk.write_at(&[1; 10], 0).unwrap();
    disk.write_at(&[2; 10], 10).unwrap();
    for crash in all_crashes() {
        let after = bytes_of(&disk.crash(crash));
        assert!(matches!((after[0], after[10]), (0, 0) | (1, 0) | (1, 2)), "{crash:?}");
    }
}

#[test]
fn a_recording_gives_every_cut() {
    let disk = SimDisk::new(2048);
    disk.write_at(&[9; 4], 0).unwrap();
    disk.record();
    disk.write_at(&[1; 4], 512).unwrap();
    disk.flush().unwrap();
    disk.discard(1024, 512).unwrap();
    disk.write_at(&[3; 4], 512).unwrap();
    let recording = disk.take_recording().unwrap();
    assert_eq!(recording.events.len(), 4);
    let at = |n, crash| bytes_of(&recording.crash_at(n, crash));
    assert_eq!((at(0, Crash::DropAll)[0], at(0, Crash::KeepAll)[512]), (9, 0));
    assert_eq!((at(1, Crash::DropAll)[512], at(1, Crash::KeepAll)[512]), (0, 1));
    assert_eq!((at(2, Crash::DropAll)[512], at(4, Crash::DropAll)[512]), (1, 1));
    assert_eq!(at(4, Crash::KeepAll), bytes_of(&disk));
    assert!(disk.take_recording().is_none());
}

#[test]
fn a_crash_tells_the_first_event_that_it_lost() {
    let disk = SimDisk::new(4096);
    disk.record();
    disk.write_at(&[1; 1024], 0).unwrap();
    disk.flush().unwrap();
    disk.write_at(&[2; 1024], 1024).unwrap();
    disk.write_at(&[3; 1024], 2048).unwrap();
    let recording = disk.take_recording().unwrap();
    let mut playback = recording.play();
    assert_eq!(playback.crash(Crash::DropAll).1, None, "nothing has happened");
    playback.go_to(4);
    assert_eq!((playback.crash(Crash::KeepAll).1, playback.crash(Crash::DropAll).1), (None, Some(2)));
    for crash in all_crashes() {
        let (after, lost) = playback.crash(crash);
        let bytes = bytes_of(&after);
        let whole = [bytes[1024..2048] == [2; 1024], bytes[2048..3072] == [3; 1024]];
        assert_eq!(lost, whole.iter().position(|w| !w).map(|n| n + 2), "{crash:?}");
    }
    for seed in 0..10 {
        let whole = |crash| {
            let bytes = bytes_of(&playback.crash(crash).0);
            bytes[1024..3072].chunks(512).filter(|sector| sector[0] > 1).count()
        };
        assert_eq!((whole(Crash::OneLost(seed)), whole(Crash::OneKept(seed))), (3, 2));
    }
    // Unflushed writes are not flushed in a copy either.
    let copy = playback.medium();
    assert_eq!((copy.unflushed(), bytes_of(&copy)[2048]), (2, 3));
    assert_eq!(bytes_of(&copy.copy().crash(Crash::DropAll))[2048], 0);
}

#[test]
fn a_seed_means_the_same_for_ever() {
    let mut rng = SplitMix::new(1234567);
    // The published values of SplitMix64 for this seed.
    assert_eq!(rng.next_u64(), 6_457_827_717_110_365_317);
    assert_eq!(rng.next_u64(), 3_203_168_211_198_807_973);
}

#[test]
fn each_of_two_media_keeps_the_contract_of_a_disk() {
    let two = Arc::new(SimDisk::pair(1 << 20, 1 << 20));
    for side in [Side::First, Side::Second] {
        crate::conformance::check(&*two.side(side));
    }
}

#[test]
fn of_two_media_each_has_its_own_flush_and_its_own_losses_in_one_order() {
    let two = Arc::new(SimDisk::pair(4096, 4096));
    let (first, second) = (two.side(Side::First), two.side(Side::Second));
    two.record();
    first.write_at(&[1; 512], 0).unwrap();
    second.write_at(&[2; 512], 0).unwrap();
    first.flush().unwrap();
    second.write_at(&[3; 512], 512).unwrap();
    let recording = two.take_recording().unwrap();
    let left = |events, first, second| {
        let mut playback = recording.play();
        playback.go_to(events);
        let (after, lost) = playback.crash(Outage { first, second });
        let bytes = bytes_of(&after);
        assert_eq!(after.second_at(), Some(4096));
        ([bytes[0], bytes[4096], bytes[4096 + 512]], lost)
    };
    use Crash::{DropAll, KeepAll};
    assert_eq!(left(2, DropAll, KeepAll), ([0, 2, 0], Some(0)));
    assert_eq!(left(2, KeepAll, DropAll), ([1, 0, 0], Some(1)));
    assert_eq!(left(2, DropAll, DropAll), ([0, 0, 0], Some(0)));
    assert_eq!(left(3, DropAll, DropAll), ([1, 0, 0], Some(1)), "a flush says nothing of the other");
    assert_eq!(left(4, KeepAll, Crash::OneKept(0)).0[0], 1);
    assert_eq!(left(4, DropAll, KeepAll), ([1, 2, 3], None));
    assert!(first.read_at(&mut [0], 4096).is_err(), "each has its own end");
}
