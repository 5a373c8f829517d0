//! Checkpoints: the table, the slots, what is pending of counts and copies of what a start needs (kept.rs) as of one moment, streamed to the
//! volume while the writer goes on.

use std::collections::HashSet;
use std::io::{ErrorKind, Read};

use disk::volume::{Volume, VolumeError};
use kv::{Engine, Value, View};
use meta::counts::Pending;
use types::{Code, Fault, Key, Seq};

use crate::executor::slots::{KIND_SLOT, Slots};
use crate::records::ids;
use crate::records::kept::{KIND_COPY, Kept};
use crate::records::look::look;
use crate::{Core, Records, Rules};

impl Core {
    /// For who found the log full with `used` bytes in it: a checkpoint, unless another one has trimmed it meanwhile.
    pub fn checkpoint_below(&self, used: u64) -> Result<(), Fault> {
        let kept = &mut *self.checkpointing.lock();
        if self.volume.log_used() < used { Ok(()) } else { self.write_checkpoint(kept) }
    }

    /// A checkpoint, whatever the log holds.
    pub fn checkpoint_now(&self) -> Result<(), Fault> {
        self.write_checkpoint(&mut self.checkpointing.lock())
    }

    pub fn log_is_half_full(&self) -> bool {
        self.volume.log_used() * 2 > self.volume.log_capacity()
    }

    fn write_checkpoint(&self, kept: &mut Kept) -> Result<(), Fault> {
        let mut done = self.try_checkpoint(kept);
        if matches!(&done, Err(VolumeError::CheckpointSource(e)) if e.kind() == ErrorKind::StorageFull) {
            // Two copies of all leaves have room, if nobody keeps those of before.
            let ended = self.walks.end();
            // Its own end came before theirs.
            self.kv.end_checkpoint(false);
            tracing::warn!(
                ended,
                "a checkpoint found no room; what fsck or a backup kept of older states is given up for it"
            );
            done = self.try_checkpoint(kept);
        }
        done.map_err(|e| self.volume_fault(e))
    }

    fn try_checkpoint(&self, kept: &mut Kept) -> Result<(), VolumeError> {
        // With the writer's role table, slots, counts and the log's tail say the same; the copies cost a count for each session, and a few rows.
        let (snap, slots, counts, at) = {
            let seat = self.role.hold();
            self.kv.settle();
            (self.kv.snapshot(), seat.slots.clone(), seat.counts.clone(), self.volume.position())
        };
        assert!(snap.seq() <= at.seq, "the log has what the table has");
        let copies = Kept::of(&self.kv, &snap, &needed(&*self.rules), kept);
        let rows = || counts.records().map(|(key, value)| (key, Value::new(&value)));
        let rest = || slots.records().chain(rows()).chain(copies.records());
        let done = self.volume.checkpoint(at, &mut |out| self.kv.checkpoint(&snap, &mut rest(), out));
        self.kv.end_checkpoint(done.is_ok());
        if done.is_ok() {
            *kept = copies;
        }
        done
    }
}

/// Records that a start needs, or each change.
pub fn needed(rules: &dyn Rules) -> Vec<Key> {
    rules.needed().into_iter().chain(ids::keys()).collect()
}

/// What a checkpoint has.
pub struct State {
    pub kv: Records,
    pub slots: Slots,
    pub counts: Pending,
    pub kept: Kept,
}

/// An empty table over what the volume has for one.
pub fn empty_on(volume: &Volume, cache_bytes: u64) -> Result<Records, Fault> {
    let (slots, checkpoint) = (volume.layout().slots, volume.checkpoint_place());
    let over = Records::over(kv::Medium { disk: volume.disk().clone(), slots, checkpoint, cache_bytes });
    over.map_err(|e| Fault::new(Code::Damaged, e.to_string()))
}

/// The state of a checkpoint that has all entries up to `at`; `empty`: a table over the volume that it is on.
pub fn read_state(empty: Records, at: Seq, input: &mut dyn Read) -> Result<State, Fault> {
    let damaged = |why: String| Fault::new(Code::Damaged, format!("{why}; restore the MDT from its mirror"));
    let (mut slots, mut slot_keys, mut bad) = (Slots::default(), HashSet::new(), None);
    let (mut counts, mut kept) = (Pending::default(), Kept::default());
    let opened = empty.open(at, input, &mut |key, value| {
        let restored = match key.as_bytes().first() {
            Some(&KIND_SLOT) if !slot_keys.insert(*key) => Err("a slot that stands twice".to_string()),
            Some(&KIND_SLOT) => slots.restore(key, value.raw()).map_err(|why| format!("a slot: {why}")),
            Some(&meta::keys::PENDING) => {
                counts.restore(key, value.raw()).map_err(|why| format!("counts: {why}"))
            }
            Some(&KIND_COPY) => kept.restore(key, value).map_err(|why| format!("a copy: {why}")),
            _ => return false,
        };
        if let Err(why) = restored {
            bad = Some(format!("checkpoint: record {key:?}, {why}"));
        }
        true
    });
    let kv = opened.map_err(|e| damaged(e.to_string()))?;
    if let Some(why) = bad {
        return Err(damaged(why));
    }
    kept.put_back(&kv, at)?;
    match look(&kv, &mut |view| counts.look_at(view)) {
        // It has no copy: the first builds that wrote leaves made none, and from then on it was lost. It was there all the same: no build wrote leaves
        // before there were counts, and what is lost reaches from what a leaf had before this key to what it had behind it, which is made
        // after it. But for who lost power while counting for the first time: then sums are too low, which fsck finds.
        Err(fault) if fault.code == Code::Damaged => {
            tracing::error!(%fault, "directories are counted as before, and fsck tells of which the counts are lost");
            counts.go_on();
        }
        looked => looked?,
    }
    Ok(State { kv, slots, counts, kept })
}
