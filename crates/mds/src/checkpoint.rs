//! Checkpoints: the table and the slots as of one moment, streamed to the volume while the writer goes on.

use std::collections::HashSet;
use std::io::{self, Read};

use kv::{Batch, Change, Kv, Snapshot, Table};
use types::{Code, Fault};

use crate::Core;
use crate::slots::{KIND_SLOT, Slots};

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
        // Under the writer's lock table, slots and the log's tail say the same; the copies cost a count and a few slots.
        let (snap, slots, at) = {
            let writer = self.writer.lock();
            (self.kv.snapshot(), writer.slots.clone(), self.volume.position())
        };
        self.volume
            .checkpoint(at, &mut |out| write_state(&snap, &slots, out))
            .map_err(|e| self.volume_fault(e))
    }
}

/// The stream of a checkpoint: the records of the table, then those of the slots.
pub fn write_state(snap: &impl Snapshot, slots: &Slots, out: &mut dyn io::Write) -> io::Result<()> {
    let mut w = kv::checkpoint::Writer::new(out)?;
    snap.each(&mut |key, value| w.record(key, value))?;
    slots.records().try_for_each(|(key, value)| w.record(&key, &value))?;
    w.finish()
}

/// Reads back what `write_state` wrote.
pub fn read_state(input: &mut dyn Read) -> Result<(Table, Slots), Fault> {
    let damaged = |why: String| Fault::new(Code::Damaged, format!("{why}; restore the MDT from its mirror"));
    let (table, mut slots) = (Table::new(), Slots::default());
    let (mut records, mut slot_keys, mut bad) = (0, HashSet::new(), None);
    kv::checkpoint::read_stream(input, &mut |batch| {
        let is_slot = |c: &Change| c.key.as_bytes().first() == Some(&KIND_SLOT);
        let (of_slots, of_table): (Vec<_>, Vec<_>) = batch.0.into_iter().partition(is_slot);
        for Change { key, value } in &of_slots {
            let restored = value.as_ref().map(|v| slots.restore(key, v.raw()));
            match restored {
                Some(Ok(())) if slot_keys.insert(*key) => {}
                Some(Err(why)) => bad = Some(format!("checkpoint: slot record {key:?}: {why}")),
                _ => bad = Some(format!("checkpoint: slot record {key:?} stands twice")),
            }
        }
        records += of_table.len() as u64;
        table.apply(Batch(of_table));
    })
    .map_err(|e| damaged(e.to_string()))?;
    if table.snapshot().size().records != records {
        bad = Some("checkpoint: a key stands twice".into());
    }
    bad.map_or(Ok((table, slots)), |why| Err(damaged(why)))
}
