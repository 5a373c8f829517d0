//! The scrub's state: how far it has read and checked the pages of all objects. It is kept on the medium, so that a restart continues.
//! The store keeps the state and verifies parts of objects; the daemon decides when.

use types::crc::crc32c;
use types::{ObjectId, PAGE_SIZE};

use crate::records::error::{DamageKind, StoreError};
use crate::records::record::Record;
use crate::records::scrub_state::Scrub;
use crate::state::engine::Engine;
use crate::verbs::read::Unread;

/// Pages of one read: enough for the full rate of a disk, and few enough that a wait for one read is short.
const READ_PAGES: u32 = 64;

/// The result of verifying a part of an object.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Verified {
    /// Damaged pages: their offsets in bytes, and the kind of damage.
    pub bad: Vec<(u64, DamageKind)>,
    /// Pages that were read.
    pub pages: u32,
    /// The page to continue at; `None`: the object has no further pages.
    pub next: Option<u32>,
}

impl Engine {
    /// Reads and checks pages of an object from page `from` on, `pages_max` at most (at least 1).
    pub(crate) fn verify_part(
        &self,
        id: ObjectId,
        from: u32,
        pages_max: u32,
    ) -> Result<Verified, StoreError> {
        let mut found = Verified::default();
        let _reading = self.readers.begin();
        let Some(object) = self.index.find(&id)? else { return Ok(found) };
        let mut left = pages_max.max(1);
        let mut space = vec![0; left.min(READ_PAGES) as usize * PAGE_SIZE];
        let pieces: Vec<_> = {
            let state = object.read();
            // Each piece has at least one page, so this many pieces suffice.
            let pieces = state.extents.range(from, u32::MAX).take(left as usize + 1);
            pieces.collect()
        };
        for (page, e) in pieces {
            if left == 0 {
                found.next = Some(page);
                break;
            }
            let crcs = e.crcs();
            let now = crcs.len().min(left as usize);
            let (mut at, mut start) = (page, e.run.start);
            for crcs in crcs[..now].chunks(READ_PAGES as usize) {
                let bytes = &mut space[..crcs.len() * PAGE_SIZE];
                let read = self.verify_pages(id, at, start, crcs, bytes, &mut found.bad)?;
                (at, start) = (at + read, start + u64::from(read));
                found.pages += read;
                if (read as usize) < crcs.len() {
                    found.next = Some(at);
                    return Ok(found);
                }
            }
            left -= now as u32;
            if now < crcs.len() {
                found.next = Some(at);
                break;
            }
        }
        Ok(found)
    }

    /// Checks contiguous pages from page `start` of the medium on, past all caches. Returns the number of pages checked: it stops after
    /// an unreadable one, since a dying medium may take half a minute for each.
    fn verify_pages(
        &self,
        id: ObjectId,
        at: u32,
        start: u64,
        crcs: &[u32],
        bytes: &mut [u8],
        bad: &mut Vec<(u64, DamageKind)>,
    ) -> Result<u32, StoreError> {
        let disk = self.vol.disk();
        let is_read = disk.read_medium_at(bytes, self.at(start)).is_ok();
        for ((bytes, crc), (i, page)) in bytes.chunks_exact_mut(PAGE_SIZE).zip(crcs).zip((0u32..).zip(at..)) {
            let place = self.at(start + u64::from(i));
            let is_readable = is_read || disk.read_medium_at(bytes, place).is_ok();
            if is_readable && crc32c(bytes) == *crc {
                continue;
            }
            if let Some(kind) = self.verify_page(id, page)? {
                bad.push((page as u64 * PAGE_SIZE as u64, kind));
            }
            if !is_readable {
                return Ok(i + 1);
            }
        }
        Ok(crcs.len() as u32)
    }

    /// Checks a bad page again; `None` if it is sound now, or the object has no longer this page in this place.
    fn verify_page(&self, id: ObjectId, page: u32) -> Result<Option<DamageKind>, StoreError> {
        let Some(object) = self.index.find(&id)? else { return Ok(None) };
        let site_now = || {
            let state = object.read();
            // A page below a whole patch is never read again.
            let is_hidden = state.patches.get(page).is_some_and(|patch| patch.is_whole());
            state.extents.site(page).filter(|_| !is_hidden)
        };
        let Some(site) = site_now() else { return Ok(None) };
        let mut bytes = [0; PAGE_SIZE];
        let read = self.vol.disk().read_medium_at(&mut bytes, self.at(site.page));
        let found = match read {
            // The pass continues when the device answers again.
            Err(e) if disk::is_passing(&e) => return Err(self.unread(id, page, Unread::NotNow)),
            Err(_) => Some(DamageKind::Medium),
            Ok(()) if crc32c(&bytes) != site.crc => Some(DamageKind::Checksum),
            Ok(()) => None,
        };
        Ok(found.filter(|_| site_now() == Some(site)))
    }

    pub(crate) fn scrub_now(&self) -> Scrub {
        *self.scrub.lock()
    }

    pub(crate) fn keep_scrub(&self, scrub: Scrub) -> Result<(), StoreError> {
        self.commit::<StoreError>(None, Record::Scrub(scrub), || Ok(0))?;
        Ok(())
    }
}
