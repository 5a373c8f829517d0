//! Making a new MDT: a volume with a root directory on it.

use std::cell::Cell;
use std::sync::Arc;

use disk::Disk;
use disk::volume::{Format, Kind, Label, Verdict, Volume};
use kv::Engine;
use types::{Code, Fault, Time};

use crate::executor::draft::to_batch;
use crate::executor::slots::Slots;
use crate::records::ids::Ids;
use crate::records::look::{look, until_loaded};
use crate::records::overlay::{Layer, Overlay};
use crate::records::record;
use crate::upkeep::checkpoint::empty_on;
use crate::{Mdt, Rules};

/// Parameters of a new MDT. The label's target, mirror, epoch and file system uuid may be zero; `join` fills them in.
#[derive(Clone, Debug)]
pub struct FormatSpec {
    pub label: Label,
    /// Bytes of the log ring. A start after a crash replays at most half of it.
    pub log_bytes: u64,
    /// Bytes of each of the two checkpoint slots, and so the most that the MDT's records can take.
    pub checkpoint_bytes: u64,
}

/// Log of a medium divided by default: a sixteenth, within these bounds. At 100,000 creates of 600 bytes per second the upper
/// one is half full in 4 s, and replayed in about as long.
const LOG_BYTES: std::ops::RangeInclusive<u64> = 4 << 20..=512 << 20;
/// Superblocks and alignment take less than this.
const HEAD_BYTES: u64 = 2 << 20;

impl FormatSpec {
    /// Divides a medium of `size_bytes` wholly into log and checkpoint slots: an MDT has no other data.
    pub fn for_size(label: Label, size_bytes: u64) -> FormatSpec {
        FormatSpec::divided(label, size_bytes, None)
    }

    /// As `for_size`, with a log of `log_bytes` if a person chose that.
    pub fn divided(label: Label, size_bytes: u64, log_bytes: Option<u64>) -> FormatSpec {
        let by_size = (size_bytes / 16).clamp(*LOG_BYTES.start(), *LOG_BYTES.end());
        let log_bytes = log_bytes.unwrap_or(by_size);
        let checkpoint_bytes = size_bytes.saturating_sub(log_bytes.saturating_add(HEAD_BYTES)) / 2;
        FormatSpec { label, log_bytes, checkpoint_bytes: checkpoint_bytes / 4096 * 4096 }
    }
}

impl Mdt {
    /// Makes an MDT with an empty root directory on `disk`. A medium that is not blank is refused without `force`.
    /// `rules` as in the settings that it will be opened with; `now` is the root directory's birth.
    pub fn format(
        disk: Arc<dyn Disk>,
        spec: &FormatSpec,
        force: bool,
        rules: &dyn Rules,
        now: Time,
    ) -> Result<(), Fault> {
        if spec.label.kind != Kind::Mdt {
            return Err(Fault::new(Code::Invalid, "an MDT's label must say that it is one"));
        }
        let FormatSpec { label, log_bytes, checkpoint_bytes } = spec.clone();
        let epoch = label.epoch;
        // 1. an empty volume
        Volume::format(&*disk, &Format { label, log_bytes, checkpoint_bytes }, force)?;
        let volume = Volume::open(disk)?;
        volume.replay(&mut |_| Verdict::Keep)?;
        volume.start()?;
        // 2. the root directory, as an entry like any other, so that the log is the whole history
        let (kv, lease_high) = (empty_on(&volume, Arc::new(u64::MAX.into()))?, Cell::new(0));
        let mut ids = look(&kv, &mut |view| Ids::load(view))??;
        let changes = until_loaded(&kv, &mut || {
            let snap = kv.snapshot();
            let nothing = Layer::new();
            let mut txn = Overlay::new(&snap, &nothing, &mut ids, &lease_high);
            rules.format(&mut txn, now);
            txn.finish()
        })?;
        let (changes, mut payload) = (to_batch(changes), Vec::new());
        record::encode(&[], &changes, &mut payload);
        let seq = volume.append(epoch, &payload)?;
        assert!(seq == volume.last_seq(), "a new MDT's log has one entry");
        kv.apply(seq, changes);
        // 3. durable, and cleanly closed
        let (snap, slots) = (kv.snapshot(), Slots::default());
        volume.checkpoint(volume.position(), &mut |out| kv.checkpoint(&snap, &mut slots.records(), out))?;
        volume.close_clean()?;
        Ok(())
    }
}
