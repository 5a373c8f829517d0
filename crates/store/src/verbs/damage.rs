//! Damage records: data known to be lost. They are kept over restarts until an operator clears them.

use types::{Fid, ObjectId, PAGE_SIZE};

use crate::Damage;
use crate::records::error::{DamageKind, StoreError};
use crate::records::record::{Record, RepairRecord};
use crate::state::engine::Engine;
use crate::state::finding::Finding;
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
            let key = (damage.object, damage.offset, damage.kind);
            // A page that was repaired, and is damaged again, is a new finding.
            if known.get(&key).is_some_and(|finding| !finding.is_repaired) {
                return Ok(Recorded::Known);
            }
            if known.len() >= DAMAGE_MAX && !known.contains_key(&key) {
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
            .map(|((object, offset, kind), finding)| Damage {
                object: *object,
                offset: *offset,
                kind: *kind,
                found_sec: finding.found_sec,
                is_repaired: finding.is_repaired,
            })
            .collect()
    }

    pub(crate) fn apply_damage(&self, d: &Damage) {
        let mut known = self.damage.lock();
        // Two threads that found the same damage concurrently both pass the check in `keep_damage`. The first record's time stays.
        let (key, len) = ((d.object, d.offset, d.kind), known.len());
        let finding = Finding { found_sec: d.found_sec, is_repaired: d.is_repaired };
        match known.get_mut(&key) {
            Some(before) if before.is_repaired => *before = finding,
            Some(_) => {}
            None if len < DAMAGE_MAX => _ = known.insert(key, finding),
            None => {}
        }
    }

    /// The page is listed as repaired, whatever it was listed as.
    pub(crate) fn apply_repaired(&self, r: &RepairRecord) {
        let (mut known, offset) = (self.damage.lock(), u64::from(r.page) * PAGE_SIZE as u64);
        for kind in [DamageKind::Checksum, DamageKind::Medium] {
            if let Some(finding) = known.get_mut(&(r.object, offset, kind)) {
                finding.is_repaired = true;
            }
        }
        if known.len() < DAMAGE_MAX {
            let finding = Finding { found_sec: r.found_sec, is_repaired: true };
            known.entry((r.object, offset, r.kind)).or_insert(finding);
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
