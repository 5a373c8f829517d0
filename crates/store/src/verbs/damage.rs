//! Damage records: data known to be lost. They are kept over restarts until an operator clears them.

use types::{Fid, ObjectId};

use crate::Damage;
use crate::records::error::StoreError;
use crate::records::record::Record;
use crate::state::engine::Engine;
use crate::state::room::DAMAGE_MAX;

/// The result of recording a damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It was added to the list.
    New,
    Known,
    /// It was not added: the list has `DAMAGE_MAX` records.
    Full,
}

impl Engine {
    pub(crate) fn keep_damage(&self, damage: Damage) -> Result<Recorded, StoreError> {
        {
            let known = self.damage.lock();
            if known.contains_key(&(damage.object, damage.offset, damage.kind)) {
                return Ok(Recorded::Known);
            }
            if known.len() >= DAMAGE_MAX {
                return Ok(Recorded::Full);
            }
        }
        self.commit::<StoreError>(None, Record::Damage(damage), || Ok(0))?;
        Ok(Recorded::New)
    }

    pub(crate) fn forget_damage(&self, fid: Fid) -> Result<(), StoreError> {
        self.commit::<StoreError>(None, Record::DamageClear { fid }, || Ok(0))?;
        Ok(())
    }

    pub(crate) fn damage_list(&self) -> Vec<Damage> {
        let known = self.damage.lock();
        known
            .iter()
            .map(|((object, offset, kind), found_sec)| Damage {
                object: *object,
                offset: *offset,
                kind: *kind,
                found_sec: *found_sec,
            })
            .collect()
    }

    pub(crate) fn apply_damage(&self, d: &Damage) {
        let mut known = self.damage.lock();
        // Two threads that found the same damage concurrently both pass the check in `keep_damage`. The first record's time stays.
        if known.len() < DAMAGE_MAX {
            known.entry((d.object, d.offset, d.kind)).or_insert(d.found_sec);
        }
    }

    pub(crate) fn apply_damage_clear(&self, fid: Fid) {
        let mut known = self.damage.lock();
        match fid {
            Fid(0) => known.clear(),
            _ => known.retain(|(object, _, _): &(ObjectId, _, _), _| object.fid != fid),
        }
    }
}
