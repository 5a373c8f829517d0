//! Damage records: what is known to be lost, kept over restarts until an operator clears it.

use types::{Fid, ObjectId};

use crate::Damage;
use crate::records::error::StoreError;
use crate::records::record::Record;
use crate::state::engine::Engine;
use crate::state::room::DAMAGE_MAX;

/// What became of a damage record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It is on the list now.
    New,
    Known,
    /// It is not on the list: that has `DAMAGE_MAX` records.
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
        // Two who found the same at once both got past the check; the first one's time stays.
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
