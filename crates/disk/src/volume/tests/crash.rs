//! A recorded workload, cut at every write and flush in every way.

use super::model::Owner;
use super::*;
use crate::{Crash, Recording, SplitMix};

fn ways(n: usize) -> [Crash; 6] {
    let seed = n as u64;
    [
        Crash::DropAll,
        Crash::KeepAll,
        Crash::Writes(seed),
        Crash::Sectors(seed),
        Crash::Sectors(seed + 1_000_000),
        Crash::Torn(seed),
    ]
}

/// A recorded workload of a volume.
pub struct Workload {
    pub recording: Recording,
    /// The numbers of all payloads.
    pub list: Vec<u64>,
    /// Events of the medium when something was durable, and how long the list was that it held.
    pub flushed: Vec<(usize, usize)>,
    /// The same for what was appended.
    pub acknowledged: Vec<(usize, usize)>,
    /// Events of the medium, and what was called flushed and sealed then.
    pub said: Vec<(usize, Seq, Seq)>,
}

impl Workload {
    /// The value of a table after the first `events` events.
    pub fn known(table: &[(usize, usize)], events: usize) -> usize {
        table.iter().rev().find(|(e, _)| *e <= events).unwrap().1
    }
}

/// Appends of all sizes, flushes, marks, labels, kills and new starts; the ring is gone around several times.
pub fn workload(seed: u64) -> Workload {
    let disk = if seed.is_multiple_of(2) { formatted() } else { formatted_mdt() };
    let mut rng = SplitMix::new(seed);
    disk.record();
    let mut owner = Owner::open(disk.clone(), &mut |_| false);
    owner.volume.start().unwrap();
    let (mut flushed, mut acknowledged, mut said) = (vec![(0, 0)], vec![(0, 0)], vec![]);
    for number in 1..=150 {
        if owner.append(number, rng.below(700) as usize).is_err() {
            owner.checkpoint();
            flushed.push((disk.events(), owner.list.len()));
            owner.append(number, 5).unwrap();
        }
        acknowledged.push((disk.events(), owner.list.len()));
        match rng.below(12) {
            0..3 => {
                owner.volume.flush().unwrap();
                flushed.push((disk.events(), owner.list.len()));
            }
            3 => owner
                .volume
                .mark()
                .or_else(|e| matches!(e, VolumeError::LogFull { .. }).then_some(()).ok_or(e))
                .unwrap(),
            4 => {
                // A killed process; the medium's page cache lives on. Start flushes what it found.
                owner = Owner::open(disk.clone(), &mut |_| false);
                owner.volume.start().unwrap();
                flushed.push((disk.events(), owner.list.len()));
            }
            5 => {
                owner.volume.set_label(Label { epoch: Epoch(number as u32), ..owner.volume.label() }).unwrap()
            }
            _ => {}
        }
        said.push((disk.events(), owner.volume.flushed_seq(), owner.volume.sealed_seq()));
    }
    assert!(owner.volume.position().pos > 3 * LOG_BYTES, "the ring was gone around");
    Workload { recording: disk.take_recording().unwrap(), list: owner.list, flushed, acknowledged, said }
}

#[test]
fn a_workload_cut_at_every_write_recovers() {
    let Workload { recording, list, flushed, acknowledged, .. } = workload(42);
    for n in 0..=recording.events.len() {
        for crash in ways(n) {
            let after = Arc::new(recording.crash_at(n, crash));
            let mut again = Owner::open(after.clone(), &mut |_| false);
            let what = format!("cut at {n}, {crash:?}");
            assert!(list.starts_with(&again.list), "{what}: a prefix");
            assert!(again.list.len() >= Workload::known(&flushed, n), "{what}: everything flushed is there");
            if crash == Crash::KeepAll {
                assert!(
                    again.list.len() >= Workload::known(&acknowledged, n),
                    "{what}: a kill loses nothing"
                );
            }
            // Life goes on, and what lay behind the cut does not come back.
            again.volume.start().unwrap();
            if again.append(1_000_000, 3).is_err() {
                again.checkpoint();
                again.append(1_000_000, 3).unwrap();
            }
            again.volume.flush().unwrap();
            let third = Owner::open(Arc::new(after.crash(Crash::DropAll)), &mut |_| false);
            assert_eq!(third.list, again.list, "{what}");
        }
    }
}

#[test]
fn a_start_cut_at_every_write_recovers() {
    // Entries of which the medium lost one in the middle, so that the start must cut.
    let disk = formatted();
    let volume = started(disk.clone());
    let list: Vec<u64> = (1..=5).collect();
    let hole = superblock::LOG_BEGIN + 2 * entry::entry_bytes(8 + 10);
    for n in &list {
        volume.append(Epoch(1), &model::payload(*n, 10)).unwrap();
    }
    disk.write_at(&[0; 8], hole).unwrap();
    disk.flush().unwrap();
    disk.record();
    let mut owner = Owner::open(disk.clone(), &mut |_| false);
    assert_eq!(owner.list, [1, 2]);
    owner.volume.start().unwrap();
    owner.append(6, 10).unwrap();
    owner.volume.flush().unwrap();
    let recording = disk.take_recording().unwrap();
    for n in 0..=recording.events.len() {
        for crash in ways(n) {
            let again = Owner::open(Arc::new(recording.crash_at(n, crash)), &mut |_| false);
            let right = again.list == [1, 2] || again.list == [1, 2, 6];
            assert!(right, "cut at {n}, {crash:?}: {:?}", again.list);
            assert!(n < recording.events.len() || again.list.len() == 3);
        }
    }
}

#[test]
fn a_format_cut_at_every_write_gives_the_old_volume_none_or_the_new_one() {
    let disk = formatted();
    started(disk.clone()).append(Epoch(1), b"old").unwrap();
    disk.flush().unwrap();
    disk.record();
    let new = Label { target: TargetId(99), uuid: Uuid([8; 16]), ..label() };
    Volume::format(&*disk, &super::super::Format { label: new, ..small() }, true).unwrap();
    let recording = disk.take_recording().unwrap();
    for n in 0..=recording.events.len() {
        for crash in ways(n) {
            let after: Arc<dyn Disk> = Arc::new(recording.crash_at(n, crash));
            match Volume::open(after.clone()) {
                Err(VolumeError::NoSuperblock) => assert!(n < recording.events.len()),
                Err(e) => panic!("cut at {n}, {crash:?}: {e}"),
                Ok(v) => {
                    let seen = reopen(after).1;
                    match v.label().target {
                        TargetId(99) => assert_eq!(seen, [], "cut at {n}, {crash:?}"),
                        _ => assert_eq!(seen.len(), 1, "cut at {n}, {crash:?}"),
                    }
                }
            }
        }
    }
}
