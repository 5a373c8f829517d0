//! Many entries by one write: the same bytes as one by one, all or none, and after a crash the first few of them.

use super::model::{Owner, payload};
use super::*;
use crate::{Crash, SplitMix};
use types::crc::crc32c;

fn entries(payloads: &[Vec<u8>]) -> Entries {
    let mut entries = Entries::default();
    payloads.iter().for_each(|p| entries.push(Epoch(1), p, crc32c(p)));
    entries
}

fn bytes_of(disk: &SimDisk) -> Vec<u8> {
    let mut all = vec![0; MEDIUM_BYTES as usize];
    disk.read_at(&mut all, 0).unwrap();
    all
}

#[test]
fn a_batch_leaves_the_same_bytes_as_its_entries_one_by_one() {
    let mut rng = SplitMix::new(3);
    let (one, many) = (formatted(), formatted());
    let (alone, together) = (started(one.clone()), started(many.clone()));
    let mut number = 0;
    // Twice around the ring.
    while together.position().pos < 2 * LOG_BYTES {
        let batch: Vec<Vec<u8>> =
            (0..=rng.below(6)).map(|i| payload(number + i, rng.below(900) as usize)).collect();
        number += batch.len() as u64;
        let before = together.append_many(&mut entries(&batch)).unwrap();
        assert_eq!(before, alone.position());
        for p in &batch {
            alone.append(Epoch(1), p).unwrap();
        }
        assert_eq!(together.position(), alone.position());
        assert!(bytes_of(&one) == bytes_of(&many), "at {before:?}");
        for volume in [&alone, &together] {
            volume.flush().unwrap();
            volume.checkpoint(volume.position(), &mut |_| Ok(())).unwrap();
        }
    }
}

#[test]
fn a_batch_cut_anywhere_leaves_the_first_of_its_entries() {
    let disk = formatted();
    let mut rng = SplitMix::new(4);
    disk.record();
    let mut owner = Owner::open(disk.clone(), &mut |_| false);
    owner.volume.start().unwrap();
    // Events of the medium, and the length of the list then: flushed, and written.
    let (mut flushed, mut written) = (vec![(0, 0)], vec![(0, 0)]);
    let mut number = 0;
    for _ in 0..60 {
        let count = 1 + rng.below(7);
        let batch: Vec<u64> = (number + 1..=number + count).collect();
        number += count;
        let payloads: Vec<Vec<u8>> = batch.iter().map(|n| payload(*n, rng.below(700) as usize)).collect();
        let mut all = entries(&payloads);
        if let Err(VolumeError::LogFull { .. }) = owner.volume.append_many(&mut all) {
            owner.checkpoint();
            flushed.push((disk.events(), owner.list.len()));
            owner.volume.append_many(&mut all).unwrap();
        }
        owner.list.extend(batch);
        written.push((disk.events(), owner.list.len()));
        if rng.below(3) == 0 {
            owner.volume.flush().unwrap();
            flushed.push((disk.events(), owner.list.len()));
        }
    }
    assert!(owner.volume.position().pos > 3 * LOG_BYTES, "the ring was gone around");
    let recording = disk.take_recording().unwrap();
    let known = |table: &[(usize, usize)], n: usize| table.iter().rev().find(|(e, _)| *e <= n).unwrap().1;
    let mut cut_inside = 0;
    for n in 0..=recording.events.len() {
        let seed = n as u64;
        let ways =
            [Crash::DropAll, Crash::KeepAll, Crash::Writes(seed), Crash::Sectors(seed), Crash::Torn(seed)];
        for crash in ways {
            let after = Arc::new(recording.crash_at(n, crash));
            let mut again = Owner::open(after.clone(), &mut |_| false);
            let len = again.list.len();
            assert!(owner.list.starts_with(&again.list), "cut at {n}, {crash:?}: a prefix");
            assert!(len >= known(&flushed, n), "cut at {n}, {crash:?}: what was flushed is there");
            assert!(crash != Crash::KeepAll || len >= known(&written, n), "cut at {n}: a kill loses nothing");
            cut_inside += written.iter().all(|(_, whole)| *whole != len) as usize;
            // The volume is used on, and entries behind the cut do not come back.
            again.volume.start().unwrap();
            if again.append(1_000_000, 3).is_err() {
                again.checkpoint();
                again.append(1_000_000, 3).unwrap();
            }
            again.volume.flush().unwrap();
            assert_eq!(Owner::open(Arc::new(after.crash(Crash::DropAll)), &mut |_| false).list, again.list);
        }
    }
    assert!(cut_inside > 20, "some cuts are inside a batch: {cut_inside}");
}

#[test]
fn a_batch_that_does_not_fit_is_refused_whole_and_may_be_appended_later() {
    let volume = started(formatted());
    volume.append(Epoch(1), &[0; 9000]).unwrap();
    let before = volume.position();
    let mut all = entries(&[vec![1; 500], vec![2; 3000], vec![3; 10]]);
    assert!(matches!(volume.append_many(&mut all), Err(VolumeError::LogFull { .. })));
    assert_eq!(volume.position(), before, "none of them");
    volume.checkpoint(before, &mut |_| Ok(())).unwrap();
    assert_eq!(volume.append_many(&mut all).unwrap(), before);
    assert_eq!(volume.last_seq(), Seq(4));
    let mut large = entries(&[vec![1; 5], vec![2; LOG_BYTES as usize]]);
    assert!(matches!(volume.append_many(&mut large), Err(VolumeError::TooLarge { .. })));
    assert_eq!(volume.last_seq(), Seq(4));
}

#[test]
fn a_batch_whose_write_fails_is_not_the_logs_end() {
    let faulty = Arc::new(FaultyDisk::new(formatted()));
    let volume = started(faulty.clone());
    volume.append(Epoch(1), b"first").unwrap();
    let before = (volume.position(), volume.log_used());
    faulty.fail(Op::Write, When::Always);
    let mut all = entries(&[b"a".to_vec(), b"b".to_vec()]);
    assert!(matches!(volume.append_many(&mut all), Err(VolumeError::Failed(_))));
    assert_eq!((volume.position(), volume.log_used()), before);
}
