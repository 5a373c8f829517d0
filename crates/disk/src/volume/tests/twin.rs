//! A volume whose log has a medium of its own: both lose power at once, each with its own choice of what it had not flushed.

use parking_lot::Mutex;

use super::model::Owner;
use super::*;
use crate::{Crash, SplitMix};

const LOG_MEDIUM_BYTES: u64 = superblock::LOG_BEGIN + LOG_BYTES;
const DATA_AT: u64 = 1 << 20;

/// The two media as `format_on` leaves them.
fn twins(uuid: u8) -> (Arc<SimDisk>, Arc<SimDisk>) {
    let (main, log) = (SimDisk::new(DATA_AT + (1 << 20)), SimDisk::new(LOG_MEDIUM_BYTES));
    let new = NewLog { disk: &log, uuid: Uuid([uuid; 16]) };
    let label = Label { uuid: Uuid([uuid + 1; 16]), ..label() };
    Volume::format_on(&main, Some(new), &super::super::Format { label, ..small() }, false).unwrap();
    (Arc::new(main), Arc::new(log))
}

fn media(main: &Arc<SimDisk>, log: &Arc<SimDisk>) -> Media {
    Media { main: main.clone(), log: Some(log.clone()) }
}

/// Passes on, and notes in which order the two media were asked.
struct Noting {
    below: Arc<SimDisk>,
    is_log: bool,
    order: Arc<Mutex<Vec<bool>>>,
}

impl Disk for Noting {
    fn size(&self) -> u64 {
        self.below.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.below.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.order.lock().push(self.is_log);
        self.below.write_at(buf, offset)
    }
    fn flush(&self) -> io::Result<()> {
        self.order.lock().push(self.is_log);
        self.below.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.order.lock().push(self.is_log);
        self.below.discard(offset, len)
    }
}

/// Data of the owner's entry `number`: 512 bytes at a place of its own.
fn data_of(number: u64) -> (u64, [u8; 512]) {
    (DATA_AT + number * 512, [number as u8; 512])
}

#[test]
fn both_media_cut_at_every_write_recover() {
    let (main, log) = twins(1);
    let order = Arc::new(Mutex::new(Vec::new()));
    let noting = |below: &Arc<SimDisk>, is_log| -> Arc<dyn Disk> {
        Arc::new(Noting { below: below.clone(), is_log, order: order.clone() })
    };
    main.record();
    log.record();
    let both = || Media { main: noting(&main, false), log: Some(noting(&log, true)) };
    let mut rng = SplitMix::new(7);
    let mut owner = Owner::open(both(), &mut |_| false);
    owner.volume.start().unwrap();
    let mut flushed = vec![(0, 0)];
    let mut acknowledged = vec![(0, 0)];
    for number in 1..=150 {
        // Each entry speaks of data on the other medium, written before it.
        let (at, data) = data_of(number);
        owner.volume.disk().write_at(&data, at).unwrap();
        if owner.append(number, rng.below(700) as usize).is_err() {
            owner.checkpoint();
            flushed.push((order.lock().len(), owner.list.len()));
            owner.append(number, 5).unwrap();
        }
        acknowledged.push((order.lock().len(), owner.list.len()));
        match rng.below(12) {
            0..4 => {
                owner.volume.flush().unwrap();
                flushed.push((order.lock().len(), owner.list.len()));
            }
            4 => drop(owner.volume.mark()),
            5 => {
                // A killed process; the page caches of both live on.
                owner = Owner::open(both(), &mut |_| false);
                owner.volume.start().unwrap();
                flushed.push((order.lock().len(), owner.list.len()));
            }
            6 => {
                owner.volume.set_label(Label { epoch: Epoch(number as u32), ..owner.volume.label() }).unwrap()
            }
            _ => {}
        }
    }
    assert!(owner.volume.position().pos > 3 * LOG_BYTES, "the ring was gone around");
    let list = owner.list;
    let (main, log) = (main.take_recording().unwrap(), log.take_recording().unwrap());
    let order = order.lock().clone();
    assert_eq!(order.len(), main.events.len() + log.events.len());
    let known = |table: &[(usize, usize)], n| table.iter().rev().find(|(e, _)| *e <= n).unwrap().1;
    for n in 0..=order.len() {
        let of_log = order[..n].iter().filter(|is_log| **is_log).count();
        let (seed, other) = (n as u64, n as u64 + 1_000_000);
        for (of_main, of_its_log) in [
            (Crash::KeepAll, Crash::KeepAll),
            (Crash::DropAll, Crash::DropAll),
            (Crash::DropAll, Crash::KeepAll),
            (Crash::KeepAll, Crash::DropAll),
            (Crash::Writes(seed), Crash::Sectors(other)),
            (Crash::Sectors(other), Crash::Torn(seed)),
        ] {
            let what = format!("cut at {n}, {of_main:?}, log {of_its_log:?}");
            let main = Arc::new(main.crash_at(n - of_log, of_main));
            let log = Arc::new(log.crash_at(of_log, of_its_log));
            let mut again = Owner::open(media(&main, &log), &mut |_| false);
            assert!(list.starts_with(&again.list), "{what}: a prefix");
            assert!(again.list.len() >= known(&flushed, n), "{what}: everything flushed is there");
            if (of_main, of_its_log) == (Crash::KeepAll, Crash::KeepAll) {
                assert!(again.list.len() >= known(&acknowledged, n), "{what}: a kill loses nothing");
            }
            // Entries under a mark or a checkpoint have their data on the other medium: recovery does not verify it again (disk-V3,
            // disk-O2).
            let shown = again.list.len() - again.shown.len();
            let covered = again.shown.iter().filter(|(_, flushed)| *flushed).count();
            for number in &again.list[..shown + covered] {
                let (at, data) = data_of(*number);
                let mut found = [0; 512];
                main.read_at(&mut found, at).unwrap();
                assert!(found == data, "{what}: data of {number}");
            }
            // Life goes on, and what lay behind the cut does not come back.
            again.volume.start().unwrap();
            if again.append(1_000_000, 3).is_err() {
                again.checkpoint();
                again.append(1_000_000, 3).unwrap();
            }
            again.volume.flush().unwrap();
            let (main, log) = (main.crash(Crash::DropAll), log.crash(Crash::DropAll));
            let third = Owner::open(media(&Arc::new(main), &Arc::new(log)), &mut |_| false);
            assert_eq!(third.list, again.list, "{what}");
        }
    }
}

#[test]
fn a_missing_swapped_or_foreign_log_is_refused() {
    let (main, log) = twins(1);
    let (other, other_log) = twins(5);
    started_on(&main, &log).append(Epoch(1), b"mine").unwrap();
    let refused = |media: Media, word: &str| {
        let e = Volume::open(media).err().expect("a wrong log");
        assert!(e.to_string().contains(word), "no '{word}' in: {e}");
    };
    refused(main.clone().into(), "on another device, log 01010101-");
    refused(media(&main, &other_log), "it is log 05050505-0505");
    refused(media(&other, &log), "log 05050505-0505-0505-0505-050505050505 is wanted");
    refused(media(&main, &other), "it holds no log");
    refused(media(&formatted(), &log), "its log on its own medium");
    let small = log.crash(Crash::KeepAll);
    let mut bytes = vec![0; LOG_MEDIUM_BYTES as usize - 4096];
    small.read_at(&mut bytes, 0).unwrap();
    refused(media(&main, &Arc::new(SimDisk::from_bytes(bytes))), "smaller");
    // Its log of an earlier formatting under the same uuid: refused by its own uuid.
    let label = Volume::label_on(&*main).unwrap();
    let anew = SimDisk::new(LOG_MEDIUM_BYTES);
    let new = NewLog { disk: &anew, uuid: Uuid([9; 16]) };
    Volume::format_on(&*main, Some(new), &super::super::Format { label, ..super::small() }, true).unwrap();
    refused(media(&main, &log), "it is log 01010101-");
}

fn started_on(main: &Arc<SimDisk>, log: &Arc<SimDisk>) -> Volume {
    let volume = Volume::open(media(main, log)).unwrap();
    volume.replay(&mut |_| Verdict::Keep).unwrap();
    volume.start().unwrap();
    volume
}

#[test]
fn one_bad_copy_of_the_logs_label_is_what_the_other_is_for() {
    let (main, log) = twins(1);
    started_on(&main, &log).append(Epoch(1), b"x").unwrap();
    log.write_at(&[0xff; 4096], 0).unwrap();
    assert_eq!(started_on(&main, &log).last_seq(), Seq(1));
    log.write_at(&[0xff; 4096], 65_536).unwrap();
    assert!(matches!(Volume::open(media(&main, &log)), Err(VolumeError::LogForeign(_))));
}

#[test]
fn a_failed_flush_of_either_medium_fails_the_volume() {
    for is_log in [false, true] {
        let (main, log) = twins(1);
        let (bad_main, bad_log) = (Arc::new(FaultyDisk::new(main)), Arc::new(FaultyDisk::new(log)));
        let volume = Volume::open(Media { main: bad_main.clone(), log: Some(bad_log.clone()) }).unwrap();
        volume.replay(&mut |_| Verdict::Keep).unwrap();
        volume.start().unwrap();
        volume.append(Epoch(1), b"x").unwrap();
        let bad = if is_log { &bad_log } else { &bad_main };
        bad.fail(Op::Flush, When::Once);
        assert!(volume.flush().is_err());
        assert_eq!(volume.flushed_seq(), Seq(0), "nothing was promised");
        assert!(matches!(volume.flush(), Err(VolumeError::Failed(_))));
    }
}

#[test]
fn the_label_of_a_log_is_as_documented() {
    let (main, log) = twins(1);
    let hex = |b: &[u8]| b.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let golden = "5354524941 4c4f47 01000000 00000000 0000000000000000 0000000000000000 0000000000000000\
        01010101010101010101010101010101 02020202020202020202020202020202 02 07 000000000000\
        0000020000000000 0040000000000000 0040020000000000 73637261746368"
        .replace(' ', "");
    for place in superblock::PLACES {
        let mut block = vec![0; 4096];
        log.read_at(&mut block, place).unwrap();
        assert_eq!(hex(&block[..104 + 7]), golden);
        assert!(block[104 + 7..4092].iter().all(|b| *b == 0));
        assert_eq!(hex(&block[4092..]), "d4f983aa");
        let read = LogLabel::read(&*log).unwrap().unwrap();
        assert_eq!(Some(read.uuid), Volume::log_on(&*main).unwrap());
        // Every flipped bit unmakes the copy.
        for byte in (0..4096).step_by(7) {
            let mut flipped = block.clone();
            flipped[byte] ^= 1 << (byte % 8);
            let alone = SimDisk::new(LOG_MEDIUM_BYTES);
            alone.write_at(&flipped, place).unwrap();
            assert_eq!(LogLabel::read(&alone).unwrap(), None, "byte {byte}");
        }
    }
}
