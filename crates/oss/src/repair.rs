//! Repair from the other member of the mirror (decision 0071): a page that this member cannot read is asked for, and written anew.
//!
//! oss-P10: damage is repaired before it is told. A request that meets it asks the other member, and is then carried out as if there had
//!     been none. It fails as ever if the other member is not in sync, does not answer in time, or has the page damaged too.
//!
//! oss-P11: a member is not filled by an administrator's order while the primary has damage that stays after a try to repair it, unless that is
//!     given up: a page that the primary lost would be lost at both.
//!
//! No lock of the store is held while the other member is asked, but that of a request's slot, which entries of the mirror do not need.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use store::{Damage, DamageKind, Given, StoreError};
use types::{Buf, Fault, ObjectId, PAGE_SIZE, TargetId};
use wire::pair::{Difference, ListLostReply, PageOf, PageWanted, page_form};

use crate::Core;
use crate::serve::Ctx;

/// Repairs for one request: it may meet damage in each of its parts, and again where a write came in between.
const ROUNDS_MAX: usize = 16;
/// Tries to repair a page that is written meanwhile.
const TRIES: usize = 3;
/// The other member waits for the list of what is lost for 5 s.
const LOST_WITHIN: Duration = Duration::from_secs(3);
/// Places that are told.
const LOST_TOLD_MAX: usize = 100;

impl Core {
    /// Carries out a request of the store. Repairs the damage that it meets, and then carries it out again; it changed nothing before.
    pub fn repairing<T>(
        &self,
        ctx: &Ctx<'_>,
        mut work: impl FnMut() -> Result<T, StoreError>,
    ) -> Result<T, Fault> {
        for _ in 0..ROUNDS_MAX {
            match work() {
                Err(StoreError::Damaged { object, offset, .. })
                    if self.repair(ctx.joined.target, object, offset) => {}
                done => return done.map_err(|e| self.note_damage(ctx, e)),
            }
        }
        work().map_err(|e| self.note_damage(ctx, e))
    }

    /// Repairs a page, and those near it that are damaged too. True: it can be read now, or was written meanwhile.
    pub fn repair(&self, target: TargetId, object: ObjectId, offset: u64) -> bool {
        let page = (offset / PAGE_SIZE as u64) as u32;
        let mut refused = None;
        for _ in 0..TRIES {
            match self.try_repair(target, object, page) {
                Ok(true) => return true,
                Ok(false) => {}
                // Another place may do.
                Err(StoreError::Medium { source, .. }) if !disk::is_passing(&source) => {
                    refused = Some(source)
                }
                Err(error) => {
                    tracing::debug!(%target, %object, offset, %error, "not repaired");
                    return false;
                }
            }
        }
        if let (Some(engine), Some(e)) = (&self.engine, refused) {
            // The other member has the page.
            let what = "a page can neither be read nor written anew";
            engine.volume().troubles().note_refused(what, &e);
        }
        false
    }

    /// False: it was written meanwhile, or has other bytes at the other member for now.
    fn try_repair(&self, target: TargetId, object: ObjectId, page: u32) -> Result<bool, StoreError> {
        let peer = self.peer.read().clone();
        let (Some(engine), Some(peer)) = (&self.engine, peer) else {
            let none = Fault::new(types::Code::Unsupported, "there is no other member");
            return Err(StoreError::Refused(none));
        };
        let lost = engine.lost_pages(object, page, pair::PAGES_MAX as u32)?;
        if lost.is_empty() {
            return Ok(true);
        }
        let wanted: Vec<PageWanted> =
            lost.iter().map(|lost| PageWanted { page: lost.page, crc: lost.crc() }).collect();
        let mut bytes = Buf::new();
        let forms = peer.fetch(object, &wanted, &mut bytes).map_err(StoreError::Refused)?;
        let (mut pages, found_sec) = (bytes.chunks_exact(PAGE_SIZE), (self.settings.clock)());
        let mut first_lost = None;
        for (lost, form) in lost.iter().zip(&forms) {
            let is_repaired = match (form.form == page_form::SOUND).then(|| pages.next()).flatten() {
                Some(bytes) => {
                    let bytes: &[u8; PAGE_SIZE] = bytes.try_into().expect("a chunk is a page");
                    match engine.repair(lost, bytes, found_sec) {
                        Ok(is_repaired) => is_repaired,
                        Err(why) if lost.page != page => {
                            tracing::debug!(%target, %object, page = lost.page, %why, "not repaired yet");
                            false
                        }
                        Err(why) => return Err(why),
                    }
                }
                None => false,
            };
            if is_repaired {
                let offset = lost.offset();
                tracing::warn!(
                    %target, %object, offset, kind = ?lost.kind,
                    "damage found, and repaired from the other member of the mirror; see `stria damage list`"
                );
            } else if lost.page == page {
                first_lost = Some(form.form);
            }
        }
        match first_lost {
            None => Ok(true),
            Some(page_form::DAMAGED) => {
                let both = Fault::new(types::Code::Damaged, "the other member has it damaged too");
                Err(StoreError::Refused(both))
            }
            Some(_) => Ok(false),
        }
    }

    /// Repairs pages that the scrub found. Returns those that stay damaged.
    pub fn repair_found(
        &self,
        target: TargetId,
        object: ObjectId,
        found: Vec<(u64, store::DamageKind)>,
    ) -> Vec<(u64, store::DamageKind)> {
        found.into_iter().filter(|(offset, _)| !self.repair(target, object, *offset)).collect()
    }

    /// oss-P11: damage that is on the list and stays: a page that the other member has is repaired now. Whatever there was no time for counts too.
    pub fn list_lost(&self) -> Result<ListLostReply, Fault> {
        let (target, until) = (self.store.label().target, Instant::now() + LOST_WITHIN);
        let mut all = ListLostReply { lost: self.unlisted_damage.load(Ordering::Relaxed), places: vec![] };
        for Damage { object, offset, kind, .. } in self.store.damage().into_iter().filter(|d| !d.is_repaired)
        {
            let has_time = Instant::now() < until;
            let is_here = match kind {
                // A page that was written since then is here, too.
                DamageKind::Checksum | DamageKind::Medium => has_time && self.repair(target, object, offset),
                DamageKind::Missing => self.store.stat(object)?.is_some(),
                DamageKind::Index => false,
            };
            if !is_here {
                all.lost += 1;
                if all.places.len() < LOST_TOLD_MAX {
                    all.places.push(Difference { object, offset });
                }
            }
        }
        Ok(all)
    }

    /// Pages for the other member.
    pub fn give_pages(
        &self,
        object: ObjectId,
        wanted: &[PageWanted],
        bytes: &mut Vec<u8>,
    ) -> Result<Vec<PageOf>, Fault> {
        let engine = self.engine()?;
        let pages: Vec<(u32, u32)> = wanted.iter().map(|wanted| (wanted.page, wanted.crc)).collect();
        let given = engine.give_pages(object, &pages, bytes)?;
        let on_wire = |(given, (_, crc)): (&Given, &(u32, u32))| match given {
            Given::Hole => PageOf { form: page_form::HOLE, crc: 0 },
            Given::Sound => PageOf { form: page_form::SOUND, crc: *crc },
            Given::Damaged => PageOf { form: page_form::DAMAGED, crc: 0 },
            Given::Other => PageOf { form: page_form::OTHER, crc: 0 },
        };
        Ok(given.iter().zip(&pages).map(on_wire).collect())
    }
}
