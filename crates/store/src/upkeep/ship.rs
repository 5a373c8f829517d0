//! The primary's side of a mirror: entries in the form that travels, when they are made and from the log later.
//!
//! Entries from the log have the pages of their objects as they are *now*, since the places that the log names may be in use again. Later
//! entries have the changes that made them so. So a member that takes all entries up to the end has the same content, and before that it
//! may have bytes that are too new. It is not in sync until then. A page that is gone travels as zeros: a later entry removes it.
//!
//! store-RP8: this member has flushed each entry that the pages of a letter reflect. Else it could lose them, and the other one would keep what they did.

use disk::VolumeError;
use types::crc::ZERO_PAGE;
use types::{Buf, ObjectId, PAGE_SIZE, Seq};

use crate::Read;
use crate::records::error::StoreError;
use crate::records::extent::Site;
use crate::records::record::{self, At, Decoded, Record};
use crate::records::shipped::{self, Form, Pages, Place, Shipped};
use crate::state::engine::Engine;
use crate::state::mirror::Carried;
use crate::state::tail::Member;

const PAGE: u64 = PAGE_SIZE as u64;
/// Records of one line travel together up to this size, so that a member that was away needs fewer letters.
const GROUP_BYTES_MAX: usize = 64 << 10;

impl Engine {
    /// Appends a change to the content of its entry.
    pub(crate) fn put_member(&self, m: &Member, out: &mut Vec<u8>) -> Result<(), StoreError> {
        let count = shipped::pages_of(&m.record);
        match &m.carried {
            Some(Carried::Staged(id)) => {
                shipped::put(m.origin, m.answer, &m.record, &Pages::Staged(*id), out);
            }
            Some(Carried::StagedFill(id, crcs)) => {
                let Record::Fill(fill) = &*m.record else { unreachable!("the pages are of a fill") };
                shipped::put_fill(&fill.range, crcs, &Pages::Staged(*id), out);
            }
            Some(Carried::Read { bytes, lost }) => {
                put_forms(m.origin, m.answer, &m.record, (bytes, lost), out)
            }
            Some(Carried::Pages(bytes)) => {
                assert_eq!(bytes.len(), count * PAGE_SIZE, "a change has each of its pages");
                put_whole(m.origin, m.answer, &m.record, bytes, out);
            }
            None => {
                let mut bytes = vec![0; count * PAGE_SIZE];
                let read = self.read_sites(&sites_of(&m.record), &mut bytes);
                read.map_err(|why| self.unread(object_of(&m.record), 0, why))?;
                put_whole(m.origin, m.answer, &m.record, &bytes, out);
            }
        }
        Ok(())
    }

    /// Entries behind mirror seq `after`, in order: at least one if there is one, and about `bytes_max` of content.
    pub fn entries(&self, after: Seq, bytes_max: usize) -> Result<Vec<Shipped>, StoreError> {
        if after.0 + 1 < self.first_seq().0 {
            return Err(StoreError::Trimmed(Seq(after.0 + 1)));
        }
        // In this order: a record that is applied later is taken for one that is not, and its places are still its own then.
        let applied = self.mirror.applied();
        let found = self.read_log(after, bytes_max)?;
        let follows = found.iter().zip(after.0 + 1..).all(|((at, _), seq)| at.seq.0 == seq);
        if !follows || (found.is_empty() && applied > after) {
            return Err(StoreError::Trimmed(Seq(after.0 + 1)));
        }
        let (mut entries, mut is_of_now): (Vec<Shipped>, _) = (Vec::new(), false);
        let group_max = GROUP_BYTES_MAX.min(self.vol.log_capacity() as usize / 8);
        for group in groups(&found, group_max) {
            let (first, last) = (group[0].0, group[group.len() - 1].0);
            let mut content = Vec::new();
            shipped::begin(group.len() as u32, &mut content);
            for (at, decoded) in group {
                is_of_now |= self.put_logged(decoded, at.seq <= applied, &mut content)?;
            }
            let place = Place { line: first.line, first: first.seq, last: last.seq };
            entries.push(Shipped { place, content });
        }
        // store-RP8.
        if is_of_now && self.own_flushed() < self.mirror.end() {
            self.flush_own()?;
        }
        Ok(entries)
    }

    /// Reads public records behind `after` from the log: about `bytes_max` with their pages.
    fn read_log(&self, after: Seq, bytes_max: usize) -> Result<Vec<(At, Decoded)>, StoreError> {
        let (mut found, mut at) = (Vec::new(), self.mirror.log_of(after));
        // Bytes with pages, and bytes in the log: the volume is asked for the latter.
        let (mut bytes, mut logged) = (0, 0);
        while bytes < bytes_max.max(1) {
            let wanted = (bytes_max - bytes.min(bytes_max)) * logged / bytes.max(1);
            let entries = self.vol.read_log(at, wanted.max(1)).map_err(|e| match e {
                VolumeError::LogTrimmed { .. } => StoreError::Trimmed(Seq(after.0 + 1)),
                e => e.into(),
            })?;
            if entries.is_empty() {
                break;
            }
            for entry in entries {
                // All entries of one read, so that the next call goes on there, unless they have far more pages than those before.
                if bytes > 2 * bytes_max {
                    return Ok(found);
                }
                at = entry.last;
                let decoded = record::decode(&entry.payload)
                    .map_err(|e| StoreError::Corrupt(format!("log entry {}: {e}", entry.first)))?;
                logged += entry.payload.len();
                bytes += entry.payload.len() + shipped::pages_of(&decoded.record) * PAGE_SIZE;
                if let Some(at) = decoded.at.filter(|at| at.seq.0 > 0 && at.seq > after) {
                    found.push((at, decoded));
                }
            }
        }
        Ok(found)
    }

    /// True: its pages are those of now.
    fn put_logged(&self, d: &Decoded, is_applied: bool, out: &mut Vec<u8>) -> Result<bool, StoreError> {
        let Decoded { origin, answer, record, .. } = d;
        let count = shipped::pages_of(record);
        let mut bytes = vec![0; count * PAGE_SIZE];
        let mut lost = vec![false; count];
        let is_of_now = count > 0 && (is_applied || !self.read_own(record, &mut bytes));
        if is_of_now {
            match record {
                Record::Write(w) => self.read_now(w.object, w.placed[0].page, &mut bytes, &mut lost)?,
                Record::Truncate(t) => {
                    self.read_now(t.object, (t.len / PAGE) as u32, &mut bytes, &mut lost)?
                }
                Record::Punch(p) => {
                    let pages = bytes.chunks_exact_mut(PAGE_SIZE).zip(lost.chunks_exact_mut(1));
                    for (z, (bytes, lost)) in p.zeroed.iter().zip(pages) {
                        self.read_now(p.object, z.page, bytes, lost)?;
                    }
                }
                Record::Fill(f) => {
                    let (mut bytes, mut lost) = (&mut bytes[..], &mut lost[..]);
                    for (first, limit) in &f.range.pages {
                        let pages = (limit - first) as usize;
                        let (of_run, rest) = std::mem::take(&mut bytes).split_at_mut(pages * PAGE_SIZE);
                        let (lost_of_run, lost_rest) = std::mem::take(&mut lost).split_at_mut(pages);
                        self.read_now(f.range.object, *first, of_run, lost_of_run)?;
                        (bytes, lost) = (rest, lost_rest);
                    }
                }
                _ => unreachable!("other records have no pages"),
            }
        }
        put_forms(*origin, *answer, record, (&bytes, &lost), out);
        Ok(is_of_now)
    }

    /// Reads a record's pages from its own places. False: they have other bytes by now.
    fn read_own(&self, record: &Record, bytes: &mut [u8]) -> bool {
        // A fill that this member ordered has no places.
        if matches!(record, Record::Fill(f) if f.placed.is_none()) {
            return false;
        }
        self.read_sites(&sites_of(record), bytes).is_ok()
    }

    /// Reads pages of an object as they are now. A page that is gone is zeros; one that cannot be read is lost.
    pub(crate) fn read_now(
        &self,
        object: ObjectId,
        first: u32,
        bytes: &mut [u8],
        lost: &mut [bool],
    ) -> Result<(), StoreError> {
        let _reading = self.readers.begin();
        let (mut buf, mut crcs) = (Buf::new(), Vec::new());
        let offset = u64::from(first) * PAGE;
        let read = Read { object, offset, len: bytes.len() as u32, gate: &|_| Ok(()) };
        match self.read_object(&read, &mut buf, &mut crcs) {
            Ok(_) => {
                bytes[..buf.len()].copy_from_slice(&buf);
                bytes[buf.len()..].fill(0);
                return Ok(());
            }
            Err(StoreError::Damaged { .. }) => {}
            Err(e) => return Err(e),
        }
        for (i, page) in bytes.chunks_exact_mut(PAGE_SIZE).enumerate() {
            let page: &mut [u8; PAGE_SIZE] = page.try_into().expect("a chunk is a page");
            match self.read_page(object, first + i as u32, page) {
                Ok(_) => {}
                Err(StoreError::Damaged { .. }) => lost[i] = true,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Cuts records into groups of one line, each of about `bytes_max` or a single record.
fn groups(found: &[(At, Decoded)], bytes_max: usize) -> Vec<&[(At, Decoded)]> {
    let (mut groups, mut begin, mut bytes) = (Vec::new(), 0, 0);
    for (i, (at, decoded)) in found.iter().enumerate() {
        let own = bytes_of(&decoded.record);
        if i > begin && (bytes + own > bytes_max || at.line != found[begin].0.line) {
            groups.push(&found[begin..i]);
            (begin, bytes) = (i, 0);
        }
        bytes += own;
    }
    if begin < found.len() {
        groups.push(&found[begin..]);
    }
    groups
}

/// About the bytes that a record takes in the content, and no fewer than in the log of the other member.
fn bytes_of(record: &Record) -> usize {
    let own = match record {
        Record::Patch(p) => p.fragments.iter().map(|f| f.len as usize + 8).sum(),
        Record::Destroy { objects } => objects.len() * 24,
        Record::Write(w) => w.crcs.len() * 20,
        Record::Fill(f) => (f.range.pages.len() + f.range.reserved.len()) * 8 + f.range.count() as usize * 20,
        Record::FillSessions(f) => f.sessions.iter().map(|s| 17 + s.slots.len() * 21).sum(),
        _ => 0,
    };
    own + 192 + shipped::pages_of(record) * PAGE_SIZE
}

fn form_of(page: &[u8]) -> Form<'_> {
    match types::crc::crc32c(page) == ZERO_PAGE && page.iter().all(|b| *b == 0) {
        true => Form::Zeros,
        false => Form::Bytes(page),
    }
}

fn put_whole(origin: Option<crate::Origin>, answer: u64, record: &Record, bytes: &[u8], out: &mut Vec<u8>) {
    let forms = bytes.chunks_exact(PAGE_SIZE).map(form_of).collect();
    shipped::put(origin, answer, record, &Pages::Inline(forms), out);
}

fn put_forms(
    origin: Option<crate::Origin>,
    answer: u64,
    record: &Record,
    (bytes, lost): (&[u8], &[bool]),
    out: &mut Vec<u8>,
) {
    let forms = bytes.chunks_exact(PAGE_SIZE).zip(lost).map(|(page, lost)| match lost {
        true => Form::Lost,
        false => form_of(page),
    });
    shipped::put(origin, answer, record, &Pages::Inline(forms.collect()), out);
}

fn object_of(record: &Record) -> ObjectId {
    record.objects().first().copied().expect("a record with pages has an object")
}

/// The places that a record gives its pages, in its order.
fn sites_of(record: &Record) -> Vec<Site> {
    match record {
        Record::Write(w) => {
            let pages = w.placed.iter().flat_map(|p| p.run.start..p.run.end());
            pages.zip(w.crcs.iter()).map(|(page, crc)| Site { page, crc: *crc }).collect()
        }
        Record::Truncate(t) => t.tail.iter().map(|(page, crc)| Site { page: *page, crc: *crc }).collect(),
        Record::Punch(p) => p.zeroed.iter().map(|z| Site { page: z.start, crc: z.crc }).collect(),
        Record::Fill(f) => f.sites().map(|(_, page, crc)| Site { page, crc }).collect(),
        _ => vec![],
    }
}
