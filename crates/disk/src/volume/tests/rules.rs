//! The volume's rules by name, on generated workloads.

use super::crash::{Workload, workload};
use super::model::{Owner, payload};
use super::*;
use crate::{Crash, SplitMix};

/// Each is a workload of 150 appends.
const SEEDS: u64 = 12;

/// An entry as replay shows it: first and last seq, position, incarnation, bytes of the payload.
type Shown = (u64, u64, u64, Incarnation, usize);

/// Opens, replays, and cuts at an entry if told so.
fn shown(disk: Arc<dyn Disk>, cut: Option<Seq>) -> (Volume, ReplaySummary, Vec<Shown>) {
    let volume = Volume::open(disk).unwrap();
    let mut entries = Vec::new();
    let summary = volume.replay(&mut |e| {
        if Some(e.seq) == cut {
            return Verdict::Cut;
        }
        entries.push((e.seq.0, e.seq.0 + u64::from(e.ops) - 1, e.pos, e.incarnation, e.payload.len()));
        Verdict::Keep
    });
    let summary = summary.unwrap();
    (volume, summary, entries)
}

#[test]
fn v1_seq_rises_by_the_entrys_operations_and_the_position_by_its_bytes() {
    for seed in 0..SEEDS {
        let recording = workload(seed).recording;
        for events in (0..=recording.events.len()).step_by(7) {
            let (_, _, entries) = shown(Arc::new(recording.crash_at(events, Crash::KeepAll)), None);
            for pair in entries.windows(2) {
                let ((_, last, pos, was, len), (next, _, at, is, _)) = (pair[0], pair[1]);
                assert_eq!(next, last + 1, "seed {seed}");
                // Marks in between are not shown; each is a header (disk-V8).
                let marks = at - pos - entry::entry_bytes(len);
                assert!(marks.is_multiple_of(entry::entry_bytes(0)), "seed {seed}");
                assert!(is >= was, "seed {seed}");
            }
        }
    }
}

#[test]
fn v2_an_entry_that_was_once_behind_a_cut_tail_is_never_accepted() {
    for seed in 0..200 {
        let mut rng = SplitMix::new(seed);
        let disk = formatted();
        let volume = started(disk.clone());
        // Entries of one size, so that new ones end where old ones ended.
        let count = 4 + rng.below(10);
        for n in 1..=count {
            volume.append(Epoch(1), &payload(n, 20)).unwrap();
        }
        let at = 1 + rng.below(count);
        let (volume, summary, _) = shown(disk.clone(), Some(Seq(at)));
        let (cut, incarnation) = (summary.end.pos, volume.start().unwrap());
        // The client that lost them sends the same bytes again; power fails meanwhile.
        disk.record();
        for n in at..at + rng.below(count) {
            volume.append(Epoch(1), &payload(n, 20)).unwrap();
        }
        let recording = disk.take_recording().unwrap();
        for events in 0..=recording.events.len() {
            for crash in [Crash::KeepAll, Crash::DropAll, Crash::OneLost(seed), Crash::Sectors(seed)] {
                let (_, _, entries) = shown(Arc::new(recording.crash_at(events, crash)), None);
                for (seq, _, pos, of, _) in entries {
                    assert!(pos < cut || of >= incarnation, "seed {seed}: entry {seq} came back, {crash:?}");
                }
            }
        }
    }
}

#[test]
fn v3_flushed_and_sealed_are_said_of_what_power_loss_cannot_take() {
    for seed in 0..SEEDS {
        let Workload { recording, said, .. } = workload(seed);
        let mut playback = recording.play();
        for (events, flushed, sealed) in said {
            assert!(sealed <= flushed, "seed {seed}");
            playback.go_to(events);
            let after = playback.crash(Crash::DropAll).0;
            let (volume, summary, _) = shown(Arc::new(after), None);
            assert!(volume.last_seq() >= flushed, "seed {seed}: {flushed:?} was flushed");
            assert!(summary.flushed_seq >= sealed, "seed {seed}: recovery knows that {sealed:?} was flushed");
        }
    }
}

/// Opens a medium by one of its superblock copies, with the other one damaged. `None`: that copy is invalid.
fn open_by(medium: &SimDisk, copy: usize) -> Option<Owner> {
    let medium = medium.copy();
    medium.write_at(&[0xee; 64], superblock::PLACES[1 - copy]).unwrap();
    let has_copy = Volume::open(Arc::new(medium.copy())).is_ok();
    has_copy.then(|| Owner::open(Arc::new(medium), &mut |_| false))
}

#[test]
fn v4_v5_the_ring_and_the_slots_keep_what_either_superblock_copy_names() {
    let mut by_one = 0;
    for seed in 0..SEEDS {
        let Workload { recording, list, flushed, acknowledged, .. } = workload(seed);
        let mut playback = recording.play();
        for events in 0..=recording.events.len() {
            playback.go_to(events);
            let least = [
                (Crash::KeepAll, Workload::known(&acknowledged, events)),
                (Crash::DropAll, Workload::known(&flushed, events)),
            ];
            for ((crash, least), copy) in least.into_iter().flat_map(|l| [(l, 0), (l, 1)]) {
                let Some(owner) = open_by(&playback.crash(crash).0, copy) else { continue };
                by_one += 1;
                let found = owner.list.len();
                assert!(list.starts_with(&owner.list), "seed {seed}, event {events}, by copy {copy}");
                assert!(found >= least, "seed {seed}, event {events}, by copy {copy}: {found} of {least}");
            }
        }
    }
    assert!(by_one > 1000, "each copy counts most of the time: {by_one}");
}

#[test]
fn v6_after_one_failed_write_or_flush_everything_that_would_promise_is_refused() {
    let (mut failures, mut given_up) = (0, 0);
    for (op, at) in (0..60).flat_map(|at| [(Op::Write, at), (Op::Flush, at)]) {
        let below = formatted();
        let disk = Arc::new(FaultyDisk::new(below.clone()));
        let volume = started(disk.clone());
        disk.fail(op, When::After(at));
        disk.shorten_failed_writes(at as u8 * 4);
        let (mut kept, mut rng) = (0, SplitMix::new(at));
        let failed = loop {
            let before = disk.failed(op);
            let done = match rng.below(8) {
                0 => volume.flush().map(|_| kept = volume.last_seq().0),
                1 => volume.mark(),
                2 => volume.checkpoint(volume.position(), &mut |w| w.write_all(&[7; 500])),
                3 => volume.set_label(label()),
                _ => volume.append(Epoch(1), &payload(at, rng.below(200) as usize)).map(drop),
            };
            match done {
                Ok(()) => assert_eq!(disk.failed(op), before, "a failed {op:?} was swallowed"),
                Err(VolumeError::LogFull { .. }) => {}
                Err(VolumeError::CheckpointWrite(_)) => given_up += 1,
                Err(e) => break e,
            }
        };
        assert!(matches!(failed, VolumeError::Failed(_)) && volume.failure().is_some(), "{failed}");
        failures += 1;
        // The medium works again; the volume still refuses.
        disk.fail(op, When::Never);
        let (last, flushed, sealed) = (volume.last_seq(), volume.flushed_seq(), volume.sealed_seq());
        let is_failed = |e| matches!(e, VolumeError::Failed(_));
        assert!(volume.append(Epoch(1), b"x").is_err_and(is_failed));
        assert!(volume.flush().is_err_and(is_failed));
        assert!(volume.checkpoint(volume.position(), &mut |_| Ok(())).is_err_and(is_failed));
        assert!(volume.set_label(label()).is_err_and(is_failed));
        assert!(volume.close_clean().is_err_and(is_failed));
        assert_eq!((volume.last_seq(), volume.flushed_seq(), volume.sealed_seq()), (last, flushed, sealed));
        let (again, _, _) = shown(Arc::new(below.crash(Crash::DropAll)), None);
        assert!(again.last_seq().0 >= kept, "{op:?} {at}");
    }
    assert!(failures == 120 && given_up > 0, "{failures} {given_up}");
}

/// A start and a new life cut the log; between them entries are appended and lost.
#[test]
fn v2_a_new_life_of_a_started_volume_brings_no_old_entry_back() {
    for seed in 0..SEEDS {
        let mut rng = SplitMix::new(seed);
        let disk = formatted();
        let volume = started(disk.clone());
        let count = 2 + rng.below(5);
        let payload = |life: u8, n: u64| [&[life][..], &n.to_le_bytes(), &[life; 40]].concat();
        let append = |volume: &Volume, life: u8, to: u64| {
            (0..to).for_each(|n| _ = volume.append(Epoch(1), &payload(life, n)).unwrap())
        };
        // Of the first life nothing survives; its bytes may lie behind the log's end.
        append(&volume, 1, 4 + rng.below(8));
        let stale = disk.copy();
        let disk = Arc::new(disk.crash(Crash::DropAll));
        let mut ring = vec![0; LOG_BYTES as usize];
        stale.read_at(&mut ring, superblock::LOG_BEGIN).unwrap();
        disk.write_at(&ring, superblock::LOG_BEGIN).unwrap();
        let volume = Volume::open(disk.clone() as Arc<dyn crate::Disk>).unwrap();
        volume.replay(&mut |e| if e.seq.0 > 1 { Verdict::Cut } else { Verdict::Keep }).unwrap();
        volume.start().unwrap();
        disk.record();
        append(&volume, 2, count);
        let above = Incarnation(rng.below(20) as u32);
        let before = volume.incarnation();
        let life = volume.begin_life(above).unwrap();
        assert!(life > above && life > before, "seed {seed}");
        let begun = disk.events();
        append(&volume, 3, 1 + rng.below(5));
        let recording = disk.take_recording().unwrap();
        for events in 0..=recording.events.len() {
            let kept = (0..4).map(|n| Crash::OneKept(seed + 100 * n));
            for crash in
                kept.chain([Crash::KeepAll, Crash::DropAll, Crash::OneLost(seed), Crash::Sectors(seed)])
            {
                let left = Arc::new(recording.crash_at(events, crash));
                let (volume, seen) = reopen(left);
                let lives: Vec<u8> = seen.iter().map(|(_, _, payload)| payload[0]).collect();
                assert!(lives.is_sorted(), "seed {seed}: {lives:?}");
                assert_eq!(
                    lives.iter().filter(|life| **life == 1).count(),
                    1,
                    "seed {seed}, {crash:?}: {lives:?}"
                );
                if events >= begun {
                    let second = lives.iter().filter(|life| **life == 2).count() as u64;
                    assert_eq!(second, count, "seed {seed}: a new life begins with all flushed");
                    assert_eq!(volume.incarnation(), life, "seed {seed}");
                }
            }
        }
    }
}
