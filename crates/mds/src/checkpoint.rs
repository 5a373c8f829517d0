//! Checkpoints: the table, the slots and what is pending of counts as of one moment, streamed to the volume while the writer goes on.

use std::collections::HashSet;
use std::io::{Read, Write};

use disk::volume::Volume;
use kv::{Engine, Value, View};
use meta::counts::Pending;
use types::{Code, Fault, Seq};

use crate::look::look;
use crate::slots::{KIND_SLOT, Slots};
use crate::{Core, Records};

impl Core {
    /// For who found the log full with `used` bytes in it: a checkpoint, unless another one has trimmed it meanwhile.
    pub fn checkpoint_below(&self, used: u64) -> Result<(), Fault> {
        let _one = self.checkpointing.lock();
        if self.volume.log_used() < used { Ok(()) } else { self.write_checkpoint() }
    }

    /// A checkpoint, whatever the log holds.
    pub fn checkpoint_now(&self) -> Result<(), Fault> {
        let _one = self.checkpointing.lock();
        self.write_checkpoint()
    }

    pub fn log_is_half_full(&self) -> bool {
        self.volume.log_used() * 2 > self.volume.log_capacity()
    }

    fn write_checkpoint(&self) -> Result<(), Fault> {
        // With the writer's role table, slots, counts and the log's tail say the same; the copies cost a count for each session, and a few rows.
        let (snap, slots, counts, at) = {
            let seat = self.role.hold();
            (self.kv.snapshot(), seat.slots.clone(), seat.counts.clone(), self.volume.position())
        };
        assert!(snap.seq() <= at.seq, "the log has what the table has");
        let rows = || counts.records().map(|(key, value)| (key, Value::new(&value)));
        let write =
            &mut |out: &mut dyn Write| self.kv.checkpoint(&snap, &mut slots.records().chain(rows()), out);
        let done = self.volume.checkpoint(at, write);
        self.kv.end_checkpoint(done.is_ok());
        done.map_err(|e| self.volume_fault(e))
    }
}

/// An empty table over what the volume has for one.
pub fn empty_on(volume: &Volume, cache_bytes: u64) -> Result<Records, Fault> {
    let (slots, checkpoint) = (volume.layout().slots, volume.checkpoint_place());
    let over = Records::over(kv::Medium { disk: volume.disk().clone(), slots, checkpoint, cache_bytes });
    over.map_err(|e| Fault::new(Code::Damaged, e.to_string()))
}

/// Table, slots and pending counts from a checkpoint that has all entries up to `at`; `empty`: over the volume that it is on.
pub fn read_state(empty: Records, at: Seq, input: &mut dyn Read) -> Result<(Records, Slots, Pending), Fault> {
    let damaged = |why: String| Fault::new(Code::Damaged, format!("{why}; restore the MDT from its mirror"));
    let (mut slots, mut slot_keys, mut bad) = (Slots::default(), HashSet::new(), None);
    let mut counts = Pending::default();
    let opened = empty.open(at, input, &mut |key, value| {
        match key.as_bytes().first() {
            Some(&KIND_SLOT) => {}
            Some(&meta::keys::PENDING) => {
                if let Err(why) = counts.restore(key, value.raw()) {
                    bad = Some(format!("checkpoint: counts {key:?}: {why}"));
                }
                return true;
            }
            _ => return false,
        }
        match slots.restore(key, value.raw()) {
            Ok(()) if slot_keys.insert(*key) => {}
            Ok(()) => bad = Some(format!("checkpoint: slot record {key:?} stands twice")),
            Err(why) => bad = Some(format!("checkpoint: slot record {key:?}: {why}")),
        }
        true
    });
    let records = opened.map_err(|e| damaged(e.to_string()))?;
    if let Some(why) = bad {
        return Err(damaged(why));
    }
    look(&records, &mut |view| counts.look_at(view))?;
    Ok((records, slots, counts))
}
