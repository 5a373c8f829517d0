//! The scrub's state: how far it has read and checked the pages of all objects. It is kept on the medium, so that a restart continues.
//! The store keeps the state and verifies parts of objects; the daemon decides when.

use types::crc::crc32c;
use types::{ObjectId, PAGE_SIZE};
use wire::{Malformed, Reader, Wire};

use crate::engine::Engine;
use crate::error::{DamageKind, StoreError};
use crate::read::Unread;
use crate::record::Record;

/// Pages of one read: enough for the full rate of a disk, and few enough that a wait for one read is short.
const READ_PAGES: u32 = 64;

/// Bytes of a scrub's state in records and checkpoints.
pub(crate) const SCRUB_BYTES: u64 = 161;

/// The activity of the scrub. The numbers are on wire and disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Scrubbing {
    /// No pass is under way.
    #[default]
    Idle = 0,
    Running = 1,
    /// An operator paused it; a restart does not resume it.
    Paused = 2,
}

impl Scrubbing {
    pub fn from_u8(n: u8) -> Option<Scrubbing> {
        use Scrubbing::*;
        [Idle, Running, Paused].into_iter().find(|s| *s as u8 == n)
    }
}

/// The position of the scrub, and its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scrub {
    pub state: Scrubbing,
    /// Bytes per second at most; 0 = as fast as the medium allows.
    pub rate: u64,
    /// From the end of a pass to the begin of the next, seconds; 0 = on request only.
    pub every_sec: u64,
    /// Start of the `every_sec` interval, seconds since 1970; 0 = not known yet.
    pub since_sec: u64,
    /// The next position: this object from this page on, then the objects after it in id order.
    pub object: ObjectId,
    pub page: u32,
    /// Pages of this object when its scrub began. Pages appended meanwhile wait for the next pass.
    pub page_end: u32,
    /// The greatest object of the pass. Objects created meanwhile all have greater ids and wait for the next pass.
    pub last_object: ObjectId,
    /// The pass that is under way, or was stopped before its end.
    pub pass: Pass,
    /// The last complete pass.
    pub last: Pass,
}

/// One pass over all objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Pass {
    /// Seconds since 1970; 0 = there was none.
    pub begun_sec: u64,
    /// 0 while it is under way.
    pub ended_sec: u64,
    pub bytes: u64,
    pub objects: u64,
    pub bad_pages: u64,
}

/// 50 MiB/s: ten terabytes in two and a half days. Users of a drive of GB/s do not notice it.
pub const SCRUB_RATE: u64 = 50 << 20;
/// Four weeks.
pub const SCRUB_EVERY_SEC: u64 = 28 * 86_400;

impl Default for Scrub {
    fn default() -> Scrub {
        Scrub {
            state: Scrubbing::Idle,
            rate: SCRUB_RATE,
            every_sec: SCRUB_EVERY_SEC,
            since_sec: 0,
            object: ObjectId::default(),
            page: 0,
            page_end: 0,
            last_object: ObjectId::default(),
            pass: Pass::default(),
            last: Pass::default(),
        }
    }
}

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

/// The result of verifying leaves of the index, up to the first bad one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct VerifiedLeaves {
    pub bytes: u64,
    pub bad: Option<BadLeaf>,
    /// The first object of the last leaf verified; the leaves after it are left. `None`: none is left.
    pub end: Option<ObjectId>,
}

/// A leaf that the medium does not return as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLeaf {
    /// Its first object.
    pub first: ObjectId,
    /// Its place on the medium, bytes.
    pub at: u64,
    /// Memory has its content, and the next checkpoint writes it elsewhere: no data is lost.
    pub is_saved: bool,
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
                assert!(read > 0 && read as usize <= crcs.len(), "a step of the scrub moves on");
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
        assert!(found.pages <= pages_max.max(1), "a part of the scrub is bounded");
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

pub(crate) fn put_scrub(s: &Scrub, out: &mut Vec<u8>) {
    out.push(s.state as u8);
    s.rate.put(out);
    s.every_sec.put(out);
    s.since_sec.put(out);
    s.object.put(out);
    s.page.put(out);
    s.page_end.put(out);
    s.last_object.put(out);
    for pass in [&s.pass, &s.last] {
        for n in [pass.begun_sec, pass.ended_sec, pass.bytes, pass.objects, pass.bad_pages] {
            n.put(out);
        }
    }
}

pub(crate) fn get_scrub(r: &mut Reader<'_>) -> Result<Scrub, Malformed> {
    fn pass(r: &mut Reader<'_>) -> Result<Pass, Malformed> {
        Ok(Pass {
            begun_sec: Wire::get(r)?,
            ended_sec: Wire::get(r)?,
            bytes: Wire::get(r)?,
            objects: Wire::get(r)?,
            bad_pages: Wire::get(r)?,
        })
    }
    Ok(Scrub {
        state: Scrubbing::from_u8(Wire::get(r)?).ok_or(Malformed("scrub state"))?,
        rate: Wire::get(r)?,
        every_sec: Wire::get(r)?,
        since_sec: Wire::get(r)?,
        object: Wire::get(r)?,
        page: Wire::get(r)?,
        page_end: Wire::get(r)?,
        last_object: Wire::get(r)?,
        pass: pass(r)?,
        last: pass(r)?,
    })
}

/// A state with all fields different, for golden bytes.
#[cfg(test)]
pub(crate) fn sample() -> Scrub {
    use types::{Fid, Generation};
    let pass = |n| Pass { begun_sec: n, ended_sec: n + 1, bytes: n + 2, objects: n + 3, bad_pages: n + 4 };
    let object =
        ObjectId { fid: Fid(0x1122_3344), generation: Generation(7), component: 1, stripe: 2, snapshot: 0 };
    Scrub {
        state: Scrubbing::Running,
        rate: 2 << 32,
        every_sec: 3,
        since_sec: 4,
        object,
        page: 5,
        page_end: 0x10,
        last_object: object,
        pass: pass(6),
        last: pass(11),
    }
}
