//! `ObjectStore` of the engine. The work of each method is in the file of its verb.

use std::sync::atomic::Ordering;
use std::time::Duration;

use disk::volume::Label;
use types::{Buf, Epoch, Fid, Incarnation, ObjectId, PAGE_SIZE, Seq, SessionId};

use crate::OnFlushed;
use crate::records::error::StoreError;
use crate::state::engine::Engine;
use crate::state::space::reserve_pages;
use crate::{
    Attrs, Cursor, Damage, Done, Found, Gate, Health, ObjectStore, Origin, Punch, Read, Readable, Recorded,
    Release, Reserve, Scrub, Slot, SpaceReport, Stats, Survey, Truncate, Usage, Verified, VerifiedLeaves,
    Write,
};

impl ObjectStore for Engine {
    fn write(&self, write: &Write<'_>) -> Result<Done, StoreError> {
        let done = self.write_object(write)?;
        self.recorder.wrote(write.data.len());
        Ok(done)
    }
    fn read(&self, read: &Read<'_>, into: &mut Buf, crcs: &mut Vec<u32>) -> Result<bool, StoreError> {
        let exists = self.read_object(read, into, crcs)?;
        self.recorder.read(into.len());
        Ok(exists)
    }
    fn truncate(&self, truncate: &Truncate<'_>) -> Result<Done, StoreError> {
        self.truncate_object(truncate)
    }
    fn reserve(&self, reserve: &Reserve<'_>) -> Result<Done, StoreError> {
        self.reserve_pages_of(reserve)
    }
    fn release(&self, release: &Release<'_>) -> Result<Done, StoreError> {
        self.release_pages_of(release)
    }
    fn punch(&self, punch: &Punch<'_>) -> Result<Done, StoreError> {
        self.punch_object(punch)
    }
    fn seek(&self, object: ObjectId, offset: u64, gate: Gate<'_>) -> Result<Found, StoreError> {
        self.seek_object(object, offset, gate)
    }
    fn seek_reserved(
        &self,
        object: ObjectId,
        offset: u64,
        gate: Gate<'_>,
    ) -> Result<Option<(u64, u64)>, StoreError> {
        self.reserved_from(object, offset, gate)
    }
    fn destroy(&self, objects: &[ObjectId], origin: Option<Origin>) -> Result<Done, StoreError> {
        self.destroy_objects(objects, origin)
    }
    fn fence(&self, object: ObjectId, lease: u64) -> Result<(), StoreError> {
        self.fence_object(object, lease)
    }
    fn stat(&self, object: ObjectId) -> Result<Option<Attrs>, StoreError> {
        Ok(self.index.find(&object)?.map(|object| object.attrs()).filter(|a| a.exists))
    }
    fn lease(&self, object: ObjectId) -> Result<u64, StoreError> {
        Ok(self.index.find(&object)?.map_or(0, |object| object.attrs().lease))
    }
    fn list(
        &self,
        after: Option<ObjectId>,
        max: usize,
    ) -> Result<(Vec<(ObjectId, Attrs)>, bool), StoreError> {
        self.list_objects(after, max)
    }
    fn last_object(&self) -> Option<ObjectId> {
        self.index.last()
    }
    fn verify(&self, object: ObjectId, from: u32, pages_max: u32) -> Result<Verified, StoreError> {
        self.verify_part(object, from, pages_max)
    }
    fn list_readable(&self, after: Option<ObjectId>, max: usize) -> Result<Readable, StoreError> {
        self.list_readable_objects(after, max)
    }
    fn verify_leaves(&self, after: ObjectId, until: ObjectId) -> Result<VerifiedLeaves, StoreError> {
        self.index.verify_leaves(after, until)
    }
    fn scrub(&self) -> Scrub {
        self.scrub_now()
    }
    fn set_scrub(&self, scrub: Scrub) -> Result<(), StoreError> {
        self.keep_scrub(scrub)
    }

    fn flush(&self) -> Result<Seq, StoreError> {
        let want = self.mirror.end();
        self.vol.flush()?;
        self.reclaim_now();
        self.flush_other(want)
    }
    fn flush_or_park(&self, park: &mut dyn FnMut() -> Option<OnFlushed>) -> Option<Result<Seq, StoreError>> {
        // A parked flush is answered by a thread that must not wait for the other member.
        if self.is_mirrored() {
            return Some(self.flush());
        }
        let park = || {
            let done = park()?;
            let done =
                move |flushed: Result<Seq, disk::VolumeError>| done(flushed.map(|_| ()).map_err(Into::into));
            Some(Box::new(done) as _)
        };
        // The thread that leads reclaims for all.
        let flushed = self.vol.flush_or_park(park)?;
        self.reclaim_now();
        Some(flushed.map(|_| self.told_flushed()).map_err(Into::into))
    }
    fn has_parked(&self) -> bool {
        self.vol.has_parked()
    }
    fn on_parked(&self, ring: Box<dyn Fn() + Send + Sync>) {
        self.vol.on_parked(ring);
    }
    fn mark(&self) -> Result<(), StoreError> {
        let _one = self.sealing.lock();
        self.mark_flushed()
    }
    fn is_dirty(&self) -> bool {
        let is_other_behind = || self.is_mirrored() && self.told_flushed() < self.mirror.end();
        !self.vol.is_all_flushed() || self.space.lock().waiting_pages() > 0 || is_other_behind()
    }
    fn is_checkpoint_due(&self) -> bool {
        let capacity = self.vol.log_capacity();
        // A checkpoint cannot trim the part of the log that live patches keep.
        (self.vol.log_used() > capacity / 2 && self.trimmable() > capacity / 8)
            || self.is_much_folded()
            || self.index.is_pressed()
    }
    fn checkpoint(&self) -> Result<(), StoreError> {
        self.make_checkpoint()
    }
    fn destage(&self) -> Result<(), StoreError> {
        self.vol.check_media()?;
        self.destage_old()
    }
    fn wait_pressed(&self, at_most: Duration) -> bool {
        self.overlay.wait(at_most)
    }
    fn relieve(&self) -> Result<(), StoreError> {
        // A failure here would keep `destage` from checking the medium.
        self.vol.check_media()?;
        Engine::relieve(self)
    }
    fn discard(&self) -> Result<(), StoreError> {
        self.discard_freed()?;
        // The destager itself may hang in a read, so the medium is checked here.
        Ok(self.vol.check_media()?)
    }
    fn close(&self) -> Result<(), StoreError> {
        // store-RP2: neither a checkpoint nor a clean mark; the next start replays.
        if self.mirror.has_ended() {
            return Ok(());
        }
        // A patch that cannot be folded stays in the log, and the next start finds it there. A failed medium is reported below.
        self.destage_all().ok();
        // With an empty log the last checkpoint has everything.
        if self.is_mirrored() {
            self.make_last_checkpoint()?;
        } else if self.vol.log_used() > 0 {
            self.make_checkpoint()?;
        }
        Ok(self.vol.close_clean()?)
    }

    fn begin_session(&self, session: SessionId) -> Result<(), StoreError> {
        self.begin(session)
    }
    fn end_session(&self, session: SessionId) -> Result<(), StoreError> {
        self.end(session)
    }
    fn session_count(&self) -> usize {
        self.sessions.lock().len()
    }
    fn slots(&self, session: SessionId) -> Option<Vec<Slot>> {
        self.slots_of(session)
    }
    fn slot(&self, session: SessionId, slot: u32) -> Option<Slot> {
        self.slot_of(session, slot)
    }

    fn grant(&self, session: SessionId, bytes: u64, now_sec: u64) -> u64 {
        self.set_grant(session, bytes, now_sec)
    }
    fn lapse_grants(&self, now_sec: u64) {
        self.lapse(now_sec)
    }
    fn grants(&self) -> Vec<(SessionId, u64)> {
        self.grant_list()
    }

    fn record_damage(&self, damage: Damage) -> Result<Recorded, StoreError> {
        self.keep_damage(damage)
    }
    fn damage(&self) -> Vec<Damage> {
        self.damage_list()
    }
    fn clear_damage(&self, fid: Fid) -> Result<(), StoreError> {
        self.forget_damage(fid)
    }

    fn label(&self) -> Label {
        self.vol.label()
    }
    fn set_label(&self, label: Label) -> Result<(), StoreError> {
        Ok(self.vol.set_label(label)?)
    }
    fn usage(&self) -> Usage {
        let objects_free = self.objects_free();
        // Before the lock: a host file system that hangs must not stop every writer.
        let room_below = self.vol.disk().room_below().unwrap_or(u64::MAX);
        let space = self.space.lock();
        let page = PAGE_SIZE as u64;
        let free = space.free_pages() + space.waiting_pages() + space.freed.out_pages;
        let promised = space.promised_pages();
        // A page below a patch is free once the patch is folded. Until then no write may take it. Granted space counts as free.
        let stored = promised.saturating_sub(space.patched_over + space.grants.pages());
        Usage {
            bytes_total: space.total_pages() * page,
            bytes_free: free.saturating_sub(stored) * page,
            // A sparse file may promise more than its host file system has.
            bytes_available: room_below
                .min(free.saturating_sub(promised).saturating_sub(reserve_pages(space.total_pages())) * page),
            objects: self.index.objects(),
            objects_free,
            log_bytes_used: self.vol.log_used(),
            log_bytes_total: self.vol.log_capacity(),
        }
    }
    fn space(&self) -> SpaceReport {
        self.space_now()
    }
    fn survey(&self, at: Cursor, objects_max: u64) -> Result<(Survey, Option<Cursor>), StoreError> {
        self.survey_from(at, objects_max)
    }
    fn stats(&self) -> Stats {
        self.stats_now()
    }
    fn begin_service(&self, now_sec: u64) {
        self.note_service(now_sec)
    }
    fn health(&self) -> Health {
        // So that the answer has the present state. A failure is reported below.
        self.vol.check_media().ok();
        Health {
            failure: self.vol.failure().map(str::to_owned),
            index_damage: self.index.leaves.trouble(),
            superblock_copies: self.vol.superblock_copies_good(),
        }
    }
    fn last_seq(&self) -> Seq {
        self.mirror.end()
    }
    fn flushed_seq(&self) -> Seq {
        self.told_flushed()
    }
    fn incarnation(&self) -> Incarnation {
        self.vol.incarnation()
    }
    fn set_epoch(&self, epoch: Epoch) {
        self.epoch.fetch_max(epoch.0, Ordering::AcqRel);
    }
}
