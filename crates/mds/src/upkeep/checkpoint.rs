//! Checkpoints: streams one state to the volume while the executor goes on. The state has the table, the slots, pending counts, and copies of
//! the records that a start needs (kept.rs).

use std::collections::HashSet;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use disk::volume::{LogPoint, Volume, VolumeError};
use kv::{Engine, Value, View};
use meta::counts::Pending;
use types::{Code, Fault, Key, Seq};

use crate::executor::slots::{KIND_SLOT, Slots};
use crate::records::ids;
use crate::records::kept::{KIND_COPY, Kept};
use crate::records::look::{look, look_around};
use crate::sessions::{KIND_SESSION, session_of_key};
use crate::{Core, Records, Rules};

impl Core {
    /// For a request that found the log full at `used` bytes: writes a checkpoint, unless another one has trimmed the log meanwhile.
    pub fn checkpoint_below(&self, used: u64) -> Result<(), Fault> {
        let kept = &mut *self.checkpointing.lock();
        if self.volume.log_used() < used {
            return Ok(());
        }
        // mds-RP6: requests come first.
        self.end_hold();
        self.write_checkpoint(kept)
    }

    /// Writes a checkpoint in any case.
    pub fn checkpoint_now(&self) -> Result<(), Fault> {
        self.write_checkpoint(&mut self.checkpointing.lock())
    }

    fn write_checkpoint(&self, kept: &mut Kept) -> Result<(), Fault> {
        let mut done = self.try_checkpoint(kept);
        if matches!(&done, Err(VolumeError::CheckpointSource(e)) if e.kind() == ErrorKind::StorageFull) {
            // The medium has space for two copies of all leaves, unless a walk keeps older ones. So walks end first.
            let ended = self.walks.end();
            // The walks held leaves when this checkpoint ended, so the table frees them now.
            self.kv.end_checkpoint(false);
            tracing::warn!(ended, "a checkpoint found no space; it ended snapshots of fsck or a backup");
            done = self.try_checkpoint(kept);
        }
        done.map_err(|e| self.volume_fault(e))
    }

    fn try_checkpoint(&self, kept: &mut Kept) -> Result<(), VolumeError> {
        // Under leadership the table, slots, counts and the log's tail agree. The copies cost a reference per session and a few rows.
        let (snap, slots, counts, at) = {
            let seat = self.executor.lead();
            if seat.is_behind {
                // mds-RP1: the next start applies the last entry.
                return Err(VolumeError::WrongOrder("the mirror did not commit the MDT's last entry"));
            }
            self.kv.settle();
            (self.kv.snapshot(), seat.slots.clone(), seat.counts.clone(), self.volume.position())
        };
        let from = self.trimmed_to(at);
        write(&self.volume, &self.kv, &*self.rules, (&snap, &slots, &counts), (at, from), kept)
    }
}

pub fn is_half_full(volume: &Volume) -> bool {
    volume.log_used() * 2 > volume.log_capacity()
}

/// Writes a checkpoint of one state: the table, slots and counts after the log up to `at`. Trims the log to `from`. `kept`: copies of the checkpoint before, and
/// afterwards of this one.
pub fn write(
    volume: &Volume,
    kv: &Records,
    rules: &dyn Rules,
    (snap, slots, counts): (&<Records as Engine>::Snap, &Slots, &Pending),
    (at, from): (LogPoint, LogPoint),
    kept: &mut Kept,
) -> Result<(), VolumeError> {
    write_unless(volume, kv, rules, (snap, slots, counts), (at, from), kept, &AtomicBool::new(false))
}

/// As `write`. Gives up once `is_over` is set.
pub fn write_unless(
    volume: &Volume,
    kv: &Records,
    rules: &dyn Rules,
    (snap, slots, counts): (&<Records as Engine>::Snap, &Slots, &Pending),
    (at, from): (LogPoint, LogPoint),
    kept: &mut Kept,
    is_over: &AtomicBool,
) -> Result<(), VolumeError> {
    assert!(snap.seq() <= at.seq, "the log has what the table has");
    let copies = Kept::of(kv, snap, &needed(rules), kept);
    let rows = || counts.records().map(|(key, value)| (key, Value::new(&value)));
    let rest = || slots.records().chain(rows()).chain(copies.records());
    let done = volume.checkpoint_keeping(at, from, &mut |out| {
        kv.checkpoint(snap, &mut rest(), &mut Unless { out, is_over })
    });
    kv.end_checkpoint(done.is_ok());
    if done.is_ok() {
        *kept = copies;
    }
    done
}

/// The stream of a checkpoint that may be given up.
struct Unless<'a> {
    out: &'a mut dyn Write,
    is_over: &'a AtomicBool,
}

impl Write for Unless<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.is_over.load(Ordering::Acquire) {
            true => Err(io::Error::other("the checkpoint is given up")),
            false => self.out.write(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Keys of the records that a start or any change needs.
pub fn needed(rules: &dyn Rules) -> Vec<Key> {
    rules.needed().into_iter().chain(ids::keys()).collect()
}

/// The state that a checkpoint has.
pub struct State {
    /// Shared with a standby's checkpoint that is under way.
    pub kv: Arc<Records>,
    pub slots: Slots,
    pub counts: Pending,
    pub kept: Kept,
}

/// An empty table on the volume's place for leaves.
/// `cache_bytes`: memory for records, which may change.
pub fn empty_on(volume: &Volume, cache_bytes: Arc<AtomicU64>) -> Result<Records, Fault> {
    let (slots, checkpoint) = (volume.layout().slots, volume.checkpoint_place());
    let (disk, troubles) = (volume.disk().clone(), volume.troubles().clone());
    let over = Records::over(kv::Medium { disk, slots, checkpoint, cache_bytes, troubles });
    over.map_err(|e| Fault::new(Code::Damaged, e.to_string()))
}

/// Reads a checkpoint that has all entries up to `at`. `empty`: a table on the same volume.
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
    // mds-M4: the first slot of a session may be used by an entry behind the checkpoint. A session whose record is lost counts as ended.
    let ends = [KIND_SESSION, KIND_SESSION + 1].map(meta::keys::kind_start);
    look_around(&kv, &mut |view| {
        meta::View::range(view, &ends[0], &ends[1], &mut |key, _| {
            session_of_key(key).into_iter().for_each(|session| slots.begin(session));
            true
        });
    })?;
    match look(&kv, &mut |view| counts.look_at(view)) {
        // The record is lost and has no copy: the first builds that wrote leaves made no copies. It did exist, since no build wrote leaves before
        // there were counts. One exception: a power loss during the first count. Then sums are too low, and fsck finds that.
        Err(fault) if fault.code == Code::Damaged => {
            tracing::error!(%fault, "directories are counted as before, and fsck tells of which the counts are lost");
            counts.go_on();
        }
        looked => looked?,
    }
    Ok(State { kv: Arc::new(kv), slots, counts, kept })
}
