//! The calls for a member of a mirror: note, cut, reading of the log, reset.

use super::*;
use crate::{Crash, SplitMix};

#[test]
fn a_note_is_the_old_or_the_new_one_wherever_power_fails() {
    let disk = formatted();
    let volume = Volume::open(disk.clone()).unwrap();
    assert_eq!(volume.note(), b"");
    volume.set_note(b"before the start").unwrap();
    drop(volume);
    let volume = started(disk.clone());
    assert_eq!(volume.note(), b"before the start");
    volume.append(Epoch(1), b"entry").unwrap();
    volume.flush().unwrap();
    disk.record();
    let new = [7; NOTE_BYTES_MAX];
    volume.set_note(&new).unwrap();
    let recording = disk.take_recording().unwrap();
    for events in 0..=recording.events.len() {
        for seed in 0..20 {
            for crash in [Crash::DropAll, Crash::Sectors(seed), Crash::Torn(seed)] {
                let (left, seen) = reopen(Arc::new(recording.crash_at(events, crash)));
                let note = left.note();
                assert!(note == b"before the start" || note == new, "event {events}, {crash:?}");
                assert!(
                    events < recording.events.len() || note == new,
                    "it is durable when the call returns"
                );
                assert_eq!(seen.len(), 1);
            }
        }
    }
    assert!(volume.set_note(&[0; NOTE_BYTES_MAX + 1]).is_err());
    // It stays over a clean stop, and does not undo it.
    volume.close_clean().unwrap();
    volume.set_note(b"after the stop").unwrap();
    let again = Volume::open(disk.clone()).unwrap();
    assert_eq!((again.note(), again.was_clean()), (b"after the stop".to_vec(), true));
    // Without a note the bytes are as before there were notes.
    again.set_note(b"").unwrap();
    let mut block = vec![0; superblock::SUPERBLOCK_BYTES];
    disk.read_at(&mut block, 0).unwrap();
    assert!(block[328..superblock::SUPERBLOCK_BYTES - 4].iter().all(|b| *b == 0));
    assert_eq!(bytes::u64_at(&block, 32) & superblock::NOTE, 0);
}

#[test]
fn after_a_cut_the_log_goes_on_with_the_next_seq_and_each_entry_shows_its_epoch() {
    let disk = formatted_mdt();
    let volume = started(disk.clone());
    for (epoch, ops) in [(1, 1), (1, 3), (2, 2), (2, 1)] {
        volume.append_ops(Epoch(epoch), b"x", ops).unwrap();
    }
    volume.flush().unwrap();
    volume.close_clean().unwrap();
    let shown = |cut: Option<Seq>| {
        let (volume, mut shown) = (Volume::open(disk.clone()).unwrap(), Vec::new());
        let replayed = volume.replay(&mut |e| {
            if Some(e.seq) == cut {
                return Verdict::Cut;
            }
            shown.push((e.epoch.0, e.seq.0));
            Verdict::Keep
        });
        assert_eq!(replayed.unwrap().lost, None);
        (volume, shown)
    };
    let (volume, before) = shown(Some(Seq(5)));
    assert_eq!(before, [(1, 1), (1, 2)]);
    volume.start().unwrap();
    assert_eq!(volume.last_seq(), Seq(4));
    assert_eq!(volume.append_ops(Epoch(3), b"y", 2).unwrap(), Seq(5));
    drop(volume);
    assert_eq!(shown(None).1, [(1, 1), (1, 2), (3, 5)], "entries behind the cut stay away");
}

#[test]
fn v9_a_reader_gets_each_entry_in_order_beside_appends_and_checkpoints() {
    for seed in 0..20 {
        let mut rng = SplitMix::new(seed);
        let volume = started(formatted_mdt());
        let (mut all, mut at): (Vec<(Seq, Seq, Vec<u8>)>, _) = (Vec::new(), Seq(0));
        let (mut read, mut lost) = (0, 0);
        for n in 0..400u32 {
            let payload = vec![n as u8; rng.below(600) as usize];
            let ops = 1 + rng.below(3) as u32;
            match volume.append_ops(Epoch(n / 100), &payload, ops) {
                Ok(first) => all.push((first, Seq(first.0 + u64::from(ops) - 1), payload)),
                Err(_) => volume.checkpoint(volume.position(), &mut |_| Ok(())).unwrap(),
            }
            if rng.below(4) == 0 {
                volume.flush().unwrap();
                volume.mark().unwrap_or_default();
            }
            if rng.below(3) > 0 {
                continue;
            }
            match volume.read_log(at, rng.below(2000) as usize) {
                Ok(entries) => {
                    assert!(volume.first_seq().0 <= at.0 + 1);
                    assert_eq!(entries.is_empty(), at == volume.last_seq());
                    for entry in &entries {
                        let (first, last, payload) = all.iter().find(|(first, ..)| *first > at).unwrap();
                        assert_eq!((entry.first, entry.last, &entry.payload), (*first, *last, payload));
                        at = entry.last;
                    }
                    read += entries.len();
                }
                Err(VolumeError::LogTrimmed { after, first }) => {
                    assert_eq!((after, first), (at, volume.first_seq()));
                    assert!(first.0 > at.0 + 1);
                    at = Seq(first.0 - 1);
                    lost += 1;
                }
                Err(e) => panic!("{e}"),
            }
        }
        assert!(read > 100, "{read} entries");
        assert!(lost < 100);
    }
    // From anywhere, not only from where the last read ended.
    let volume = started(formatted_mdt());
    for n in 0..9 {
        volume.append_ops(Epoch(1), &[n], 2).unwrap();
    }
    for after in [6, 2, 16, 0] {
        let entries = volume.read_log(Seq(after), 1 << 20).unwrap();
        assert_eq!(entries.len() as u64, 9 - after / 2);
    }
    assert!(matches!(volume.read_log(Seq(3), 1), Err(VolumeError::WrongOrder(_))));
    assert_eq!(volume.read_log(Seq(0), 1).unwrap().len(), 1, "no more than was asked for");
}

#[test]
fn a_reader_that_goes_on_reads_nothing_before_the_end_of_its_last_read() {
    let disk = formatted();
    let volume = started(disk.clone());
    for _ in 0..9 {
        volume.append(Epoch(1), &[1; 300]).unwrap();
    }
    assert_eq!(volume.read_log(Seq(0), 900).unwrap().last().unwrap().last, Seq(3));
    // The first entry is damaged from here on.
    disk.write_at(&[9], volume.layout().log.start + 100).unwrap();
    assert_eq!(volume.read_log(Seq(3), 1 << 20).unwrap().len(), 6);
    assert!(matches!(volume.read_log(Seq(4), 1), Err(VolumeError::Malformed(_))), "from the log's begin on");
    assert_eq!(volume.read_log(Seq(9), 1).unwrap(), [], "it waits for the next entry there");
    volume.append(Epoch(1), b"next").unwrap();
    assert_eq!(volume.read_log(Seq(9), 1).unwrap()[0].payload, b"next");
}

#[test]
fn a_reset_volume_is_empty_and_goes_on_at_the_seq_wherever_power_fails() {
    for at in [Seq(3), Seq(1_000_000)] {
        let disk = formatted_mdt();
        let volume = started(disk.clone());
        for _ in 0..20 {
            volume.append(Epoch(1), &[1; 300]).unwrap();
        }
        volume.checkpoint(volume.position(), &mut |out| out.write_all(b"old")).unwrap();
        volume.append(Epoch(1), b"old").unwrap();
        volume.set_note(b"filling").unwrap();
        disk.record();
        volume.reset(at).unwrap();
        assert_eq!((volume.last_seq(), volume.flushed_seq(), volume.first_seq()), (at, at, Seq(at.0 + 1)));
        assert_eq!(volume.append(Epoch(2), b"new").unwrap(), Seq(at.0 + 1));
        volume.flush().unwrap();
        assert_eq!(volume.read_log(at, 9).unwrap()[0].payload, b"new");
        let recording = disk.take_recording().unwrap();
        for events in 0..=recording.events.len() {
            for crash in [Crash::DropAll, Crash::KeepAll, Crash::Sectors(events as u64)] {
                let (left, seen) = reopen(Arc::new(recording.crash_at(events, crash)));
                assert_eq!(left.note(), b"filling");
                let seen: Vec<_> = seen.into_iter().map(|(seq, _, payload)| (seq, payload)).collect();
                let is_old = left.checkpoint_reader().unwrap().is_some();
                let want: &[(u64, Vec<u8>)] =
                    if is_old { &[(21, b"old".to_vec())] } else { &[(at.0 + 1, b"new".to_vec())] };
                assert!(seen.is_empty() || seen == want, "event {events}, {crash:?}: {seen:?}");
                left.start().unwrap();
            }
        }
        volume.checkpoint(volume.position(), &mut |out| out.write_all(b"filled")).unwrap();
        let (again, seen) = reopen(disk);
        assert_eq!((again.checkpoint_seq(), again.last_seq()), (Seq(at.0 + 1), Seq(at.0 + 1)));
        assert_eq!(seen, []);
    }
}
