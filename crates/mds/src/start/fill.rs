//! Filling a member of a mirror with the whole content of the other one, which `upkeep/whole.rs` gives part by part.
//!
//! mds-RP8: a volume that was filled by half is never served: its owner keeps a note "filling" until `fill` has ended (`Standby::open` and the
//!     note follow), and fills it again.

use std::collections::HashSet;
use std::sync::Arc;

use disk::Disk;
use disk::volume::{Verdict, Volume};
use kv::{Batch, Engine, Tidied, Value};
use pair::Copied;
use types::{Code, Fault, Key, Seq};

use crate::Settings;
use crate::executor::slots::KIND_SLOT;
use crate::records::look::{Trouble, until_loaded};
use crate::start::recover::check_formatted;
use crate::start::standby::check_kind;
use crate::upkeep::checkpoint::{self, State, empty_on};
use crate::upkeep::whole::decode;

/// The note of the member on `disk`, whose content need not be readable.
pub fn note_on(disk: Arc<dyn Disk>) -> Result<Vec<u8>, Fault> {
    let volume = Volume::open(disk)?;
    check_kind(&volume)?;
    Ok(volume.note())
}

/// Replaces the note of the member on `disk`, durably. The MDT is not open.
pub fn keep_note_on(disk: Arc<dyn Disk>, note: &[u8]) -> Result<(), Fault> {
    let volume = Volume::open(disk)?;
    check_kind(&volume)?;
    Ok(volume.set_note(note)?)
}

/// Replaces the content of the MDT on `disk`, which is formatted and not open, by a copy: `give` gets the number of the wanted part. Label,
/// geometry and note stay. Returns the last entry that the content has; the log goes on behind it.
pub fn fill(
    disk: Arc<dyn Disk>,
    settings: Settings,
    give: &mut dyn FnMut(u64) -> Result<Copied, Fault>,
) -> Result<Seq, Fault> {
    // 1. Nothing is lost before the other member gives something.
    let mut copied = give(0)?;
    let (copy, end) = (copied.copy, copied.end);
    // 2. An empty volume. Damage of the old content does not matter.
    let volume = Volume::open(disk)?;
    check_kind(&volume)?;
    volume.replay(&mut |_| Verdict::Keep)?;
    volume.start_accepting_loss()?;
    volume.reset(end)?;
    let state = State {
        kv: Arc::new(empty_on(&volume, settings.record_memory())?),
        slots: Default::default(),
        counts: Default::default(),
        kept: Default::default(),
    };
    // 3. All parts. Checkpoints of the part that is there write records that do not fit memory (mds-RP8).
    let mut filling = Filling { volume, settings, state, end, newest: None, slots: HashSet::new() };
    let mut part = 0;
    loop {
        if (copied.copy, copied.end) != (copy, end) {
            return Err(wrong("a part of another copy came"));
        }
        filling.take(&copied.content)?;
        if copied.is_last {
            break;
        }
        part += 1;
        copied = give(part)?;
    }
    // 4. The checkpoint makes it durable, and the note may change afterwards.
    check_formatted(&filling.settings, &filling.state.kv)?;
    filling.checkpoint()?;
    filling.volume.close_clean()?;
    Ok(end)
}

struct Filling {
    volume: Volume,
    settings: Settings,
    state: State,
    end: Seq,
    /// The last key of the table so far.
    newest: Option<Key>,
    slots: HashSet<Key>,
}

impl Filling {
    fn take(&mut self, content: &[u8]) -> Result<(), Fault> {
        let mut batch = Batch::new();
        for record in decode(content)? {
            let key = Key::new(&record.key).ok_or_else(|| wrong("a key that is too long"))?;
            match key.as_bytes().first() {
                Some(&KIND_SLOT) if !self.slots.insert(key) => return Err(wrong("a slot came twice")),
                Some(&KIND_SLOT) => {
                    self.state.slots.restore(&key, &record.value).map_err(|why| wrong(&why.to_string()))?;
                }
                Some(&meta::keys::PENDING) => {
                    self.state.counts.restore(&key, &record.value).map_err(|why| wrong(&why.to_string()))?;
                }
                _ if self.newest.is_some_and(|newest| key <= newest) => {
                    return Err(wrong("records are not in the order of keys"));
                }
                _ => {
                    self.newest = Some(key);
                    batch.put(key, Value::new(&record.value));
                }
            }
        }
        let kv = &*self.state.kv;
        until_loaded(kv, &mut || kv.admits(batch.keys()).map_err(Trouble::Absent))?;
        kv.apply(self.end, batch);
        loop {
            match self.state.kv.tidy() {
                Tidied::Done => return Ok(()),
                Tidied::More => {}
                Tidied::Unwritten => return self.checkpoint(),
            }
        }
    }

    fn checkpoint(&mut self) -> Result<(), Fault> {
        let State { kv, slots, counts, kept } = &mut self.state;
        kv.settle();
        let (snap, at) = (kv.snapshot(), self.volume.position());
        assert_eq!(at.seq, self.end, "no entry comes while a volume is filled");
        let state = (&snap, &*slots, &*counts);
        Ok(checkpoint::write(&self.volume, kv, &*self.settings.rules, state, (at, at), kept)?)
    }
}

fn wrong(why: &str) -> Fault {
    Fault::new(Code::Damaged, format!("the copy of the MDT cannot be used: {why}; begin anew"))
}
