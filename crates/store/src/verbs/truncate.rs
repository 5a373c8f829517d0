//! Truncation. To cut removes the pages after the new end; a last page cut inside is rewritten with zeros past the end (store-S4).
//! To extend changes the length only.

use types::PAGE_SIZE;
use types::crc::crc32c;

use crate::records::error::StoreError;
use crate::records::record::{Record, TruncateRecord};
use crate::state::engine::{Engine, Stop};
use crate::state::mirror::Carried;
use crate::state::space::Purpose;
use crate::verbs::write::{MERGE_TRIES_MAX, Merged};
use crate::{Done, Truncate};

impl Engine {
    pub(crate) fn truncate_object(&self, t: &Truncate<'_>) -> Result<Done, StoreError> {
        let _kept = self.index.load(&t.object)?;
        let _turn = self.merge_lock(&t.object).lock();
        for _ in 0..MERGE_TRIES_MAX {
            match self.try_truncate(t) {
                Err(Stop::Again) => continue,
                Err(Stop::Failed(e)) => return Err(e),
                Ok(done) => return Ok(done),
            }
        }
        Err(StoreError::TooMany { what: "writers of one page at once", max: MERGE_TRIES_MAX })
    }

    fn try_truncate(&self, t: &Truncate<'_>) -> Result<Done, Stop> {
        let attrs = self.pass_gate(&t.object, t.gate)?;
        if !attrs.exists {
            return self.leave_absent(t);
        }
        // 1. Rewrite the page that is cut inside, with zeros after the cut. It may take from the reserve, because cutting frees space.
        let skip = (t.len % PAGE_SIZE as u64) as usize;
        let page = (t.len / PAGE_SIZE as u64) as u32;
        let has_page = || self.index.get(&t.object).is_some_and(|o| o.read().has(page));
        let is_cut_inside = |len: u64| t.len < len && skip > 0 && has_page();
        let taken = is_cut_inside(attrs.len).then(|| self.take(1, 0, Purpose::Reserved)).transpose()?;
        let _reading = self.readers.begin();
        let cut = taken.as_ref().map(|_| self.cut_page(t, page, skip)).transpose()?;
        if let (Some(m), Some(taken)) = (&cut, &taken) {
            self.write_pages(t.object, taken.runs[0].start, &m.bytes)?;
        }
        // 2. Commit the entry, unless the page changed meanwhile, or the cut is now inside a page and was not before, or the reverse.
        let tail = cut.as_ref().zip(taken.as_ref()).map(|(m, taken)| (taken.runs[0].start, m.crc));
        let record = Record::Truncate(TruncateRecord { object: t.object, len: t.len, lease: t.lease, tail });
        let carry = |m: &Merged| self.is_mirrored().then(|| Carried::Pages(m.bytes.to_vec()));
        let done = self.commit_carrying(t.origin, record, cut.as_ref().and_then(carry), false, |_| {
            let now = self.pass_gate(&t.object, t.gate)?;
            self.check_unchanged(&t.object, cut.iter())?;
            match now.exists && is_cut_inside(now.len) == cut.is_some() {
                true => Ok(t.len),
                false => Err(Stop::Again),
            }
        })?;
        if let Some(taken) = taken {
            taken.keep();
        }
        Ok(done)
    }

    /// An absent object stays absent; the entry only records the slot.
    fn leave_absent(&self, t: &Truncate<'_>) -> Result<Done, Stop> {
        self.commit(t.origin, Record::Nothing, || match self.pass_gate(&t.object, t.gate)?.exists {
            true => Err(Stop::Again),
            false => Ok(0),
        })
    }

    fn cut_page(&self, t: &Truncate<'_>, page: u32, skip: usize) -> Result<Merged, StoreError> {
        let mut m = self.old_page(t.object, page)?;
        m.bytes[skip..].fill(0);
        m.crc = crc32c(&m.bytes);
        Ok(m)
    }
}
