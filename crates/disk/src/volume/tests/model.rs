//! Random lives on a medium that loses power, against a model: a list of all payloads.
//!
//! The owner's state is the list itself (as one number per payload); a checkpoint writes it out. After a crash the
//! recovered list must be a prefix of the model's that holds everything flushed, and all of it after a mere kill.

use super::*;
use crate::{Crash, SplitMix};

/// The owner of a volume: the numbers of all payloads that count.
pub struct Owner {
    pub volume: Volume,
    pub list: Vec<u64>,
    is_mdt: bool,
    /// Of each entry that replay showed: seq, flushed.
    pub shown: Vec<(u64, bool)>,
}

impl Owner {
    /// Opens, loads and replays; `cut` may end the log at an entry that is not known to be flushed.
    pub fn open(media: impl Into<Media>, cut: &mut dyn FnMut(Seq) -> bool) -> Owner {
        let volume = Volume::open(media).expect("a volume survives every crash");
        let is_mdt = volume.label().kind == Kind::Mdt;
        let mut next_seq = volume.position().seq.0 + 1;
        let mut list = Vec::new();
        if let Some(mut reader) = volume.checkpoint_reader().unwrap() {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).expect("the named checkpoint is whole");
            list = bytes.chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect();
        }
        let mut shown = Vec::new();
        let summary = volume.replay(&mut |e| {
            if !e.flushed && cut(e.seq) {
                return Verdict::Cut;
            }
            let number = number_of(e.payload);
            assert_eq!(e.ops, ops_of(number, is_mdt), "as many operations as were appended");
            assert!(e.seq.0 >= next_seq, "an operation's number is its own");
            next_seq = e.seq.0 + u64::from(e.ops);
            list.push(number);
            shown.push((e.seq.0, e.flushed));
            Verdict::Keep
        });
        assert_eq!(summary.unwrap().lost, None, "power loss is not damage");
        assert!(volume.last_seq().0 + 1 >= next_seq);
        Owner { volume, list, is_mdt, shown }
    }

    pub fn append(&mut self, number: u64, len: usize) -> Result<Seq, VolumeError> {
        let ops = ops_of(number, self.is_mdt);
        let seq = self.volume.append_ops(Epoch(1), &payload(number, len), ops)?;
        assert_eq!(self.volume.last_seq().0, seq.0 + u64::from(ops) - 1);
        self.list.push(number);
        Ok(seq)
    }

    pub fn checkpoint(&self) {
        let at = self.volume.position();
        let state = &self.list;
        let write = &mut |w: &mut dyn io::Write| state.iter().try_for_each(|n| w.write_all(&n.to_le_bytes()));
        self.volume.checkpoint(at, write).unwrap();
    }
}

/// Of an MDT's volume, 1 to 4.
fn ops_of(number: u64, is_mdt: bool) -> u32 {
    if is_mdt { 1 + number as u32 % 4 } else { 1 }
}

/// The number, then bytes that follow from it.
pub fn payload(number: u64, len: usize) -> Vec<u8> {
    let mut p = number.to_le_bytes().to_vec();
    p.extend((0..len).map(|i| (number as usize * 7 + i) as u8));
    p
}

fn number_of(p: &[u8]) -> u64 {
    let number = u64::from_le_bytes(p[..8].try_into().unwrap());
    assert_eq!(p, payload(number, p.len() - 8), "an accepted payload is whole");
    number
}

fn no_cut(_: Seq) -> bool {
    false
}

#[test]
fn random_lives_lose_nothing_that_was_flushed_and_keep_a_prefix() {
    const SEEDS: u64 = 300;
    const STEPS: u32 = 250;
    let mut laps = 0;
    for seed in 0..SEEDS {
        laps += live(seed, STEPS);
    }
    assert!(laps > 2 * SEEDS, "the ring is gone around often enough: {laps}");
}

/// One life of many crashes; gives how often the ring was gone around.
fn live(seed: u64, steps: u32) -> u64 {
    let mut rng = SplitMix::new(seed);
    let mut disk = if seed.is_multiple_of(2) { formatted() } else { formatted_mdt() };
    let mut owner = Owner::open(disk.clone(), &mut no_cut);
    owner.volume.start().unwrap();
    // How long the list was when the last flush began that has ended.
    let mut flushed_len = 0;
    let mut number = 0;
    for step in 0..steps {
        let what = format!("seed {seed} step {step}");
        let v = &owner.volume;
        assert!(v.sealed_seq() <= v.flushed_seq() && v.flushed_seq() <= v.last_seq(), "{what}");
        match rng.below(100) {
            0..60 => {
                number += 1;
                let len = match rng.below(4) {
                    0 => 0,
                    1 => rng.below(3000),
                    _ => rng.below(100),
                } as usize;
                match owner.append(number, len) {
                    Ok(_) => {}
                    Err(VolumeError::LogFull { .. }) => {
                        owner.checkpoint();
                        flushed_len = owner.list.len();
                    }
                    Err(e) => panic!("{what}: {e}"),
                }
            }
            60..75 => {
                assert_eq!(owner.volume.flush().unwrap(), owner.volume.last_seq());
                flushed_len = owner.list.len();
            }
            75..80 => match owner.volume.mark() {
                Ok(()) | Err(VolumeError::LogFull { .. }) => {}
                Err(e) => panic!("{what}: {e}"),
            },
            80..84 => {
                owner.checkpoint();
                flushed_len = owner.list.len();
            }
            84..86 => owner.volume.set_label(Label { epoch: Epoch(step), ..owner.volume.label() }).unwrap(),
            86..89 => {
                let incarnation = owner.volume.incarnation();
                owner.volume.close_clean().unwrap();
                let after = Arc::new(disk.crash(Crash::DropAll));
                let again = Owner::open(after.clone(), &mut no_cut);
                assert_eq!(again.list, owner.list, "{what}: a clean stop keeps all");
                assert!(again.shown.iter().all(|(_, flushed)| *flushed), "{what}");
                assert_eq!(again.volume.start().unwrap(), incarnation);
                (disk, owner, flushed_len) = (after, again, owner.list.len());
            }
            _ => {
                let crash = match rng.below(5) {
                    0 => Crash::KeepAll,
                    1 => Crash::DropAll,
                    2 => Crash::Writes(rng.next_u64()),
                    3 => Crash::Sectors(rng.next_u64()),
                    _ => Crash::Torn(rng.next_u64()),
                };
                let cutting = rng.below(4) == 0;
                let after = Arc::new(disk.crash(crash));
                let mut coin = rng.clone();
                // The data of what was flushed verifies, so an owner never cuts there.
                let flushed = owner.volume.flushed_seq();
                let again =
                    Owner::open(after.clone(), &mut |seq| cutting && seq > flushed && coin.below(3) == 0);
                let what = format!("{what} {crash:?}");
                check(&owner, &again, flushed_len, crash == Crash::KeepAll && !cutting, &what);
                assert!(again.volume.start().unwrap() > owner.volume.incarnation(), "{what}");
                flushed_len = again.list.len();
                (disk, owner) = (after, again);
            }
        }
    }
    owner.volume.position().pos / LOG_BYTES
}

/// Checks the guarantees of recovery: `before` crashed, `after` was recovered.
fn check(before: &Owner, after: &Owner, flushed_len: usize, all: bool, what: &str) {
    assert!(before.list.starts_with(&after.list), "{what}: a prefix");
    assert!(after.list.len() >= flushed_len, "{what}: everything flushed is there");
    if all {
        assert_eq!(after.list, before.list, "{what}: a kill loses nothing");
        assert_eq!(after.volume.last_seq(), before.volume.last_seq());
    }
    let (flushed, sealed) = (before.volume.flushed_seq().0, before.volume.sealed_seq().0);
    for (seq, shown_flushed) in &after.shown {
        // disk-O1, disk-O2: data below sealed_seq may be overwritten, so recovery must not ask for it; and what it takes for
        // flushed must have been.
        assert!(*shown_flushed || *seq > sealed, "{what}: entry {seq} was sealed");
        assert!(!*shown_flushed || *seq <= flushed, "{what}: entry {seq} was never flushed");
    }
}
