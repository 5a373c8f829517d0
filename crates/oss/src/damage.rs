//! Damage: recorded once where it is found; listed and cleared for the operator.

use std::sync::atomic::Ordering;

use store::{DamageKind, Recorded, StoreError};
use types::{Fault, ObjectId, PAGE_SIZE, TargetId};
use wire::object::{DamageClear, DamageList, DamageListReply, RIGHT_ADMIN, RIGHT_READ, ReportMissing};
use wire::{Empty, Wire};

use crate::Core;
use crate::serve::{Ctx, Served};

impl Core {
    /// oss-P5: records the damage that an error reports, and turns the error into the caller's fault.
    pub fn note_damage(&self, ctx: &Ctx<'_>, e: StoreError) -> Fault {
        // A member that hands over looks at its content again, or drops it.
        if let StoreError::Damaged { object, offset, kind } = e
            && !self.hands_over()
        {
            self.record_damage(ctx, object, offset, kind);
        }
        e.into()
    }

    pub fn record_damage(&self, ctx: &Ctx<'_>, object: ObjectId, offset: u64, kind: DamageKind) {
        self.keep_damage(
            ctx.joined.target,
            store::Damage { object, offset, kind, found_sec: ctx.now_sec, is_repaired: false },
        );
    }

    pub fn keep_damage(&self, target: TargetId, damage: store::Damage) {
        let store::Damage { object, offset, kind, .. } = damage;
        match self.store.record_damage(damage) {
            Ok(Recorded::New) => {
                tracing::error!(%target, %object, offset, ?kind, "damage found; see `stria damage list`")
            }
            // Known already: one log line per damage is enough.
            Ok(Recorded::Known) => {}
            // A read may meet the same damage again and again. It is logged once, and counted until the list has space again.
            Ok(Recorded::Full) => {
                if self.unlisted_damage.fetch_add(1, Ordering::Relaxed) == 0 {
                    tracing::error!(
                        %target, %object, offset, ?kind, listed = store::DAMAGE_MAX,
                        "damage found, and the list of it is full: from here on it is neither listed nor logged; save what \
                         can be read, then use `stria damage clear`"
                    );
                }
            }
            Err(error) => {
                tracing::error!(%target, %object, offset, ?kind, %error, "damage found, and not recorded")
            }
        }
    }

    /// A filling of the mirror's other member met a page that cannot be read here.
    pub fn note_given_as_lost(&self, object: ObjectId, page: u32) {
        let (target, offset) = (self.store.label().target, u64::from(page) * PAGE_SIZE as u64);
        tracing::error!(
            %target, %object, offset,
            "a page that cannot be read here is lost at the mirror's other member too, which this one fills; restore the file from a backup"
        );
        let (kind, found_sec) = (DamageKind::Checksum, (self.settings.clock)());
        self.keep_damage(target, store::Damage { object, offset, kind, found_sec, is_repaired: false });
    }

    /// A client reports a missing object that its layout marks as written. The OST looks itself, because a stale layout is not damage.
    pub fn on_report_missing(
        &self,
        ctx: &Ctx<'_>,
        r: ReportMissing,
        reply: &mut Vec<u8>,
    ) -> Result<Served, Fault> {
        self.check_cap(ctx, &r.cap, &r.object, RIGHT_READ)?;
        if self.store.stat(r.object)?.is_none() {
            self.record_damage(ctx, r.object, 0, DamageKind::Missing);
        }
        Empty {}.put(reply);
        Ok(Served::READ)
    }

    pub fn on_damage_list(&self, ctx: &Ctx<'_>, d: DamageList, reply: &mut Vec<u8>) -> Result<Served, Fault> {
        self.check_cap_right(ctx, &d.cap, RIGHT_ADMIN)?;
        let on_wire = |d: &store::Damage| wire::object::Damage {
            object: d.object,
            offset: d.offset,
            kind: d.kind as u8,
            found_sec: d.found_sec,
            is_repaired: d.is_repaired,
        };
        DamageListReply { damage: self.store.damage().iter().map(on_wire).collect() }.put(reply);
        Ok(Served::READ)
    }

    pub fn on_damage_clear(
        &self,
        ctx: &Ctx<'_>,
        d: DamageClear,
        reply: &mut Vec<u8>,
    ) -> Result<Served, Fault> {
        self.check_cap_right(ctx, &d.cap, RIGHT_ADMIN)?;
        self.store.clear_damage(d.fid)?;
        let times = self.unlisted_damage.swap(0, Ordering::Relaxed);
        if times > 0 {
            let target = ctx.joined.target;
            tracing::warn!(%target, times, "damage was found that the full list could not take; new findings are listed from now on");
        }
        Empty {}.put(reply);
        Ok(Served::READ)
    }
}
