//! A sparse medium whose host is full: writes to reserved space succeed, others are refused and may succeed later.

use super::*;
use crate::Trouble;

/// Large enough that half of a checkpoint slot is not reserved.
const MEDIUM_BYTES: u64 = 24 << 20;
const LOG_BYTES: u64 = 512 << 10;
const SLOT_BYTES: u64 = 8 << 20;

fn formatted_sparse() -> Arc<FaultyDisk> {
    let disk = Arc::new(FaultyDisk::new(Arc::new(SimDisk::new(MEDIUM_BYTES))));
    let format = super::Format { label: label(), log_bytes: LOG_BYTES, checkpoint_bytes: SLOT_BYTES };
    Volume::format(&*disk, &format, false).unwrap();
    disk
}

#[test]
fn no_append_superblock_or_small_checkpoint_meets_a_full_host() {
    let disk = formatted_sparse();
    disk.fill_host();
    let volume = started(disk.clone());
    // More than two laps of the ring, by checkpoints of 20 KiB.
    let mut appended = 0;
    while appended < 2 * LOG_BYTES + LOG_BYTES / 2 {
        match volume.append(Epoch(1), &[7; 10_000]) {
            Ok(_) => appended += 10_000,
            Err(VolumeError::LogFull { .. }) => {
                volume.checkpoint(volume.position(), &mut |out| out.write_all(&[3; 20_000])).unwrap();
            }
            Err(e) => panic!("{e}"),
        }
    }
    volume.set_label(label()).unwrap();
    volume.close_clean().unwrap();
}

#[test]
fn a_checkpoint_that_cannot_be_written_is_given_up_and_may_be_tried_again() {
    let disk = formatted_sparse();
    let volume = started(disk.clone());
    volume.append(Epoch(1), b"a").unwrap();
    volume.checkpoint(volume.position(), &mut |out| out.write_all(&[1; 1000])).unwrap();
    volume.append(Epoch(1), b"b").unwrap();
    let used = volume.log_used();
    let large = || volume.checkpoint(volume.position(), &mut |out| out.write_all(&[2; 5 << 20]));
    // 1. No free space: the error says so, and nothing else fails.
    disk.fill_host();
    let refused = large().unwrap_err();
    assert!(matches!(&refused, VolumeError::CheckpointWrite(e) if crate::is_full(e)), "{refused}");
    assert_eq!(types::Fault::from(refused).code, types::Code::NoSpace);
    // 2. Any other error of the slot also costs only the checkpoint.
    disk.empty_host();
    disk.fail(Op::Write, When::Once);
    let refused = large().unwrap_err();
    assert_eq!(types::Fault::from(refused).code, types::Code::Io);
    // 3. The volume works on: the old checkpoint is valid, and the log is whole.
    assert_eq!((volume.failure(), volume.log_used()), (None, used));
    volume.append(Epoch(1), b"c").unwrap();
    volume.flush().unwrap();
    let (again, seen) = reopen(disk.clone());
    assert_eq!(seen.iter().map(|(_, _, p)| &p[..]).collect::<Vec<_>>(), [b"b", b"c"]);
    assert_eq!(again.checkpoint_reader().unwrap().unwrap().payload_bytes(), 1000);
    // 4. Later the checkpoint succeeds.
    large().unwrap();
    assert_eq!(volume.log_used(), 0);
}

#[test]
fn a_medium_without_room_for_its_log_is_not_formatted() {
    let disk = FaultyDisk::new(Arc::new(MemDisk::new(MEDIUM_BYTES)));
    disk.fill_host();
    let format = super::Format { label: label(), log_bytes: LOG_BYTES, checkpoint_bytes: SLOT_BYTES };
    let refused = Volume::format(&disk, &format, false).unwrap_err();
    let VolumeError::NoRoom { wanted, .. } = refused else { panic!("{refused}") };
    assert!((LOG_BYTES..MEDIUM_BYTES).contains(&wanted));
    assert!(matches!(Volume::open(Arc::new(disk)), Err(VolumeError::NoSuperblock)));
}

/// A log whose space was not reserved, as below a file system that cannot do that.
#[test]
fn a_log_write_without_space_fails_the_volume_and_casts_no_doubt_on_its_content() {
    let below = Arc::new(SimDisk::new(MEDIUM_BYTES));
    let format = super::Format { label: label(), log_bytes: 4 << 20, checkpoint_bytes: SLOT_BYTES };
    Volume::format(&*below, &format, false).unwrap();
    let disk = Arc::new(FaultyDisk::new(below.clone()));
    let volume = started(disk.clone());
    volume.append(Epoch(1), b"a").unwrap();
    assert_eq!(volume.trouble(), None);
    disk.fill_host();
    let mut failed = None;
    while failed.is_none() && volume.log_used() < 3 << 20 {
        failed = volume.append(Epoch(1), &[7; 60_000]).err();
    }
    assert!(matches!(failed, Some(VolumeError::Failed(_))), "{failed:?}");
    assert!(matches!(volume.trouble(), Some(Trouble::Refused { is_full: true, .. })));
    let appended = volume.last_seq();
    drop(volume);
    disk.empty_host();
    let (again, _) = reopen(below);
    assert_eq!(again.last_seq(), appended);
    // A failed flush is another matter.
    let volume = started(disk.clone());
    volume.append(Epoch(1), b"b").unwrap();
    disk.fail(Op::Flush, When::Once);
    volume.flush().unwrap_err();
    assert!(matches!(volume.trouble(), Some(Trouble::Failed(_))));
}
