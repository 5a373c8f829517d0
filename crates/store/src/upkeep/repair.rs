//! Repair of a damaged page by the bytes that the other member of the mirror has (decision 0071).
//!
//! Members have equal content, and each has places of its own. So a repair is private to a volume: a page gets another place, with the bytes
//! that it had. Small writes that lie over it stay.
//!
//! store-RR1: bytes are taken for a page only if they have the CRC that the index has for it, were read back from their new place, and the
//!     page still lies where it was looked up. The caller has them from a member in sync, which verified them.
//! store-RR2: a place that the medium could not read is written anew with the bytes that it should have, and read back. If that fails too,
//!     it stays unused until the next start.

use types::crc::crc32c;
use types::{ObjectId, PAGE_SIZE};

use crate::records::codec::EXTENT_BYTES_MAX;
use crate::records::error::{DamageKind, StoreError};
use crate::records::extent::Site;
use crate::records::record::{Record, RepairRecord};
use crate::state::engine::{Engine, Stop};
#[cfg(test)]
use crate::state::finding::Planted;
use crate::state::room::Wish;
use crate::state::space::Purpose;
use crate::verbs::read::Unread;

/// A page of this member that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    pub object: ObjectId,
    pub page: u32,
    pub kind: DamageKind,
    pub(crate) site: Site,
}

impl Lost {
    /// Of the bytes that it should have, by the index.
    pub fn crc(&self) -> u32 {
        self.site.crc
    }
    pub fn offset(&self) -> u64 {
        u64::from(self.page) * PAGE_SIZE as u64
    }
}

/// A page for the other member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    Hole,
    /// Its bytes were read and verified, and have the CRC that was asked for.
    Sound,
    /// The page is damaged here too.
    Damaged,
    /// It has other bytes than were asked for.
    Other,
}

/// True unless a test has taken the rule away.
macro_rules! kept {
    ($engine:expr, $rule:ident) => {{
        #[cfg(test)]
        let kept = *$engine.repair_gone.lock() != Some(Planted::$rule);
        #[cfg(not(test))]
        let kept = {
            let _: &Engine = $engine;
            true
        };
        kept
    }};
}

impl Engine {
    /// Pages of an object that cannot be read, from page `first` on: among `pages_max` pages, and up to the first that the medium refuses.
    pub fn lost_pages(&self, object: ObjectId, first: u32, pages_max: u32) -> Result<Vec<Lost>, StoreError> {
        let found = self.verify_part(object, first, pages_max)?;
        if found.bad.is_empty() {
            return Ok(vec![]);
        }
        let Some(known) = self.index.find(&object)? else { return Ok(vec![]) };
        let state = known.read();
        // A page that was written since then has another CRC, which `repair` compares.
        let lost = |(offset, kind): &(u64, DamageKind)| {
            let page = (offset / PAGE_SIZE as u64) as u32;
            Some(Lost { object, page, kind: *kind, site: state.extents.site(page)? })
        };
        Ok(found.bad.iter().filter_map(lost).collect())
    }

    /// Gives a lost page the bytes that the other member has. False: they are other bytes, or the page was written meanwhile; look again.
    pub fn repair(&self, lost: &Lost, bytes: &[u8; PAGE_SIZE], found_sec: u64) -> Result<bool, StoreError> {
        // 1. The bytes that the page should have.
        let Lost { object, page, kind, site } = *lost;
        if crc32c(bytes) != site.crc && kept!(self, CrcCompared) {
            return Ok(false);
        }
        // 2. Another place. An extent is cut in three at most.
        let _kept = self.index.load(&object)?;
        self.check_index_room(2 * (EXTENT_BYTES_MAX + 4), Wish::Fence)?;
        let mut taken = self.take(1, 0, Purpose::Reserved)?;
        let start = taken.runs[0].start;
        // From here on the old place is not used again if the page is still there.
        let _reading = self.readers.begin();
        let is_there = || {
            let known = self.index.get(&object);
            known.is_some_and(|known| known.read().extents.site(page) == Some(site))
        };
        if !is_there() && kept!(self, PlaceCompared) {
            return Ok(false);
        }
        // 3. The bytes are at the new place.
        if let Err(e) = self.write_and_read_back(object, start, bytes) {
            // Withheld until the next checkpoint, so that another try gets another place.
            self.space.lock().pin(&mut std::mem::take(&mut taken.runs));
            return Err(e);
        }
        // 4. store-RR2. Readers of the old place find the bytes that they look for.
        let is_bad =
            kind == DamageKind::Medium && self.write_and_read_back(object, site.page, bytes).is_err();
        // 5. The entry, and the change.
        let before = site.page;
        let record = RepairRecord { object, page, crc: site.crc, before, start, kind, is_bad, found_sec };
        let moved =
            self.commit(None, Record::Repair(record), || match is_there() || !kept!(self, PlaceCompared) {
                true => Ok(0),
                false => Err(Stop::Again),
            });
        match moved {
            Ok(_) => {
                taken.keep();
                Ok(true)
            }
            Err(Stop::Again) => Ok(false),
            Err(Stop::Failed(e)) => Err(e),
        }
    }

    fn write_and_read_back(
        &self,
        object: ObjectId,
        place: u64,
        bytes: &[u8; PAGE_SIZE],
    ) -> Result<(), StoreError> {
        self.try_parts(object, &[(self.at(place), bytes)])?;
        let (mut back, at) = ([0; PAGE_SIZE], self.at(place));
        let read = self.vol.disk().read_medium_at(&mut back, at);
        let is_same = read.map(|()| back == *bytes);
        match is_same {
            Ok(true) => Ok(()),
            Ok(false) => {
                let source = std::io::Error::other("bytes that were just written read otherwise");
                Err(StoreError::Medium { object, at, source })
            }
            Err(source) => Err(StoreError::Medium { object, at, source }),
        }
    }

    /// True while a repair compares the place of its page.
    pub(crate) fn is_place_compared(&self) -> bool {
        kept!(self, PlaceCompared)
    }

    /// Pages of an object for the other member: each a page and the CRC that it looks for. The members fold small writes into pages at
    /// times of their own. So the page below them, or the page as it is read, may be meant.
    pub fn give_pages(
        &self,
        object: ObjectId,
        wanted: &[(u32, u32)],
        bytes: &mut Vec<u8>,
    ) -> Result<Vec<Given>, StoreError> {
        let _reading = self.readers.begin();
        let mut given = Vec::with_capacity(wanted.len());
        for (page, crc) in wanted {
            let mut content = [0; PAGE_SIZE];
            let form = self.give_page(object, *page, *crc, &mut content)?;
            if form == Given::Sound {
                assert_eq!(crc32c(&content), *crc, "a page that is given has the CRC that was asked for");
                bytes.extend_from_slice(&content);
            }
            given.push(form);
        }
        Ok(given)
    }

    fn give_page(
        &self,
        id: ObjectId,
        page: u32,
        crc: u32,
        bytes: &mut [u8; PAGE_SIZE],
    ) -> Result<Given, StoreError> {
        let Some(object) = self.index.find(&id)? else { return Ok(Given::Hole) };
        let (site, has) = {
            let state = object.read();
            (state.extents.site(page), state.has(page))
        };
        if let Some(site) = site.filter(|site| site.crc == crc) {
            match self.read_site(site, bytes) {
                Ok(()) => return Ok(Given::Sound),
                Err(Unread::Damage(_)) => {}
                Err(why) => return Err(self.unread(id, page, why)),
            }
        }
        match self.read_page(id, page, bytes) {
            Ok(_) if crc32c(bytes) == crc => Ok(Given::Sound),
            Ok(_) if !has => Ok(Given::Hole),
            Ok(_) => Ok(Given::Other),
            Err(StoreError::Damaged { .. }) => Ok(Given::Damaged),
            Err(e) => Err(e),
        }
    }
}
