//! Entries as they travel to the other member of a mirror. See docs/formats/ost.md, "Shipped entries".
//!
//! They have results, not requests: whole pages, lengths, answers. They have no places, as each member takes its own. Decoding checks
//! everything that can be checked without the medium and never panics.

use types::crc::{ZERO_PAGE, crc32c};
use types::{Epoch, ObjectId, PAGE_SIZE, Seq, SessionId, Time};
use wire::{Malformed, Reader, Wire};

use crate::Origin;
use crate::records::fill::FillRange;
use crate::records::record::{self, Record};

/// Version of the form.
const VERSION: u8 = 1;
/// Most records of one entry.
pub const RECORDS_MAX: u32 = 1 << 16;
/// Largest content in bytes: it fits a frame of the wire, with room for the letter around it.
pub const CONTENT_BYTES_MAX: usize = (4 << 20) - (64 << 10);

/// The place of an entry in the mirror: its line, and the mirror seqs of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub line: Epoch,
    pub first: Seq,
    pub last: Seq,
}

/// An entry as it travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shipped {
    pub place: Place,
    pub content: Vec<u8>,
}

/// Names pages that the other member got ahead of their entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StageId(pub u64);

/// Bytes of a page in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form<'a> {
    Zeros,
    /// `PAGE_SIZE` bytes.
    Bytes(&'a [u8]),
    /// The sender cannot read them any more. The receiver's page is damaged too, and reads of it say so.
    Lost,
}

impl Form<'_> {
    /// The CRC that the page gets. That of a lost page fits no page of zeros.
    pub fn crc(&self) -> u32 {
        match self {
            Form::Zeros => ZERO_PAGE,
            Form::Bytes(bytes) => crc32c(bytes),
            Form::Lost => !ZERO_PAGE,
        }
    }
}

/// The pages of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pages<'a> {
    Staged(StageId),
    Inline(Vec<Form<'a>>),
}

/// A record of an entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Item<'a> {
    pub origin: Option<Origin>,
    pub answer: u64,
    pub change: Change<'a>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Change<'a> {
    /// A record without places.
    Plain(Record),
    Write(Wrote<'a>),
    Truncate {
        object: ObjectId,
        len: u64,
        lease: u64,
        /// The last page, if the truncation cut inside it.
        tail: Option<Form<'a>>,
    },
    Punch {
        object: ObjectId,
        first: u32,
        limit: u32,
        is_kept: bool,
        mtime: Time,
        lease: u64,
        /// Pages that were rewritten with zeros in a part.
        zeroed: Vec<(u32, Form<'a>)>,
    },
    Fill {
        range: FillRange,
        /// One per page of the range that has bytes.
        crcs: Vec<u32>,
        pages: Pages<'a>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Wrote<'a> {
    pub object: ObjectId,
    /// Least length of the object afterwards, in bytes.
    pub end: u64,
    pub mtime: Time,
    pub lease: u64,
    pub first: u32,
    /// One per page.
    pub crcs: Vec<u32>,
    pub pages: Pages<'a>,
}

const PLAIN: u8 = 0;
const WRITE: u8 = 1;
const TRUNCATE: u8 = 2;
const PUNCH: u8 = 3;
const FILL: u8 = 4;

const ZEROS: u8 = 0;
const BYTES: u8 = 1;
const LOST: u8 = 2;

const STAGED: u8 = 1;
const INLINE: u8 = 2;

/// Begins an entry of `count` records.
pub fn begin(count: u32, out: &mut Vec<u8>) {
    assert!((1..=RECORDS_MAX).contains(&count), "an entry has 1 to {RECORDS_MAX} records");
    out.extend_from_slice(&[VERSION, 0, 0, 0]);
    count.put(out);
}

/// Number of pages that a record has beside itself.
pub fn pages_of(record: &Record) -> usize {
    match record {
        Record::Write(w) => w.crcs.len(),
        Record::Truncate(t) => usize::from(t.tail.is_some()),
        Record::Punch(p) => p.zeroed.len(),
        Record::Fill(f) => f.range.count() as usize,
        _ => 0,
    }
}

/// Appends a public record with its pages, in the order of the record.
pub fn put(origin: Option<Origin>, answer: u64, record: &Record, pages: &Pages<'_>, out: &mut Vec<u8>) {
    assert!(record.is_public(), "a private record is not shipped");
    let forms: &[Form<'_>] = match pages {
        Pages::Inline(forms) => forms,
        Pages::Staged(_) => &[],
    };
    let is_staged = matches!((pages, record), (Pages::Staged(_), Record::Write(_)));
    assert!(is_staged || forms.len() == pages_of(record), "an entry has each page of its record");
    match record {
        Record::Write(w) => {
            put_head(WRITE, origin, answer, out);
            w.object.put(out);
            w.end.put(out);
            w.mtime.put(out);
            w.lease.put(out);
            w.placed[0].page.put(out);
            (w.crcs.len() as u32).put(out);
            put_pages(&w.crcs, pages, out);
        }
        Record::Truncate(t) => {
            put_head(TRUNCATE, origin, answer, out);
            t.object.put(out);
            t.len.put(out);
            t.lease.put(out);
            out.push(forms.len() as u8);
            forms.iter().for_each(|form| put_checked(form, out));
        }
        Record::Punch(p) => {
            put_head(PUNCH, origin, answer, out);
            p.object.put(out);
            p.first.put(out);
            p.limit.put(out);
            p.is_kept.put(out);
            p.mtime.put(out);
            p.lease.put(out);
            out.push(forms.len() as u8);
            for (z, form) in p.zeroed.iter().zip(forms) {
                z.page.put(out);
                put_checked(form, out);
            }
        }
        Record::Fill(fill) => {
            put_fill(&fill.range, &[], pages, out);
        }
        plain => {
            put_head(PLAIN, None, 0, out);
            let at = out.len();
            0u32.put(out);
            record::encode(origin, answer, plain, out);
            let len = (out.len() - at - 4) as u32;
            out[at..at + 4].copy_from_slice(&len.to_le_bytes());
        }
    }
}

/// Appends a fill. `crcs`: of staged pages, which its record does not have.
pub fn put_fill(range: &FillRange, crcs: &[u32], pages: &Pages<'_>, out: &mut Vec<u8>) {
    put_head(FILL, None, 0, out);
    range.put(out);
    put_pages(crcs, pages, out);
}

/// The CRC of each page, then the pages. `crcs`: of staged ones.
fn put_pages(crcs: &[u32], pages: &Pages<'_>, out: &mut Vec<u8>) {
    match pages {
        Pages::Staged(id) => {
            crcs.iter().for_each(|crc| crc.put(out));
            out.push(STAGED);
            id.0.put(out);
        }
        Pages::Inline(forms) => {
            forms.iter().for_each(|form| form.crc().put(out));
            out.push(INLINE);
            forms.iter().for_each(|form| put_form(form, out));
        }
    }
}

/// A plain record has its origin and answer itself.
fn put_head(kind: u8, origin: Option<Origin>, answer: u64, out: &mut Vec<u8>) {
    out.push(kind);
    if kind != PLAIN {
        let origin = origin.unwrap_or(Origin { session: SessionId(0), slot: 0, sequence: 0 });
        origin.session.put(out);
        origin.slot.put(out);
        origin.sequence.put(out);
        answer.put(out);
    }
}

fn put_form(form: &Form<'_>, out: &mut Vec<u8>) {
    match form {
        Form::Zeros => out.push(ZEROS),
        Form::Lost => out.push(LOST),
        Form::Bytes(bytes) => {
            assert_eq!(bytes.len(), PAGE_SIZE, "a page travels whole");
            out.push(BYTES);
            out.extend_from_slice(bytes);
        }
    }
}

fn put_checked(form: &Form<'_>, out: &mut Vec<u8>) {
    form.crc().put(out);
    put_form(form, out);
}

/// The records of an entry, in order.
pub fn decode(bytes: &[u8]) -> Result<Vec<Item<'_>>, Malformed> {
    let mut r = Reader::new(bytes);
    if r.take(4)? != [VERSION, 0, 0, 0] {
        return Err(Malformed("version of a shipped entry"));
    }
    let count = u32::get(&mut r)?;
    // The shortest record has more bytes.
    if count == 0 || count > RECORDS_MAX || count as usize > r.remaining() / 32 {
        return Err(Malformed("count of shipped records"));
    }
    let items = (0..count).map(|_| get_item(&mut r)).collect::<Result<Vec<_>, _>>()?;
    r.end()?;
    Ok(items)
}

fn get_item<'a>(r: &mut Reader<'a>) -> Result<Item<'a>, Malformed> {
    let kind = r.byte()?;
    if kind == PLAIN {
        return get_plain(r);
    }
    let origin = Origin { session: Wire::get(r)?, slot: Wire::get(r)?, sequence: Wire::get(r)? };
    let answer = Wire::get(r)?;
    let change = match kind {
        WRITE => Change::Write(get_wrote(r)?),
        TRUNCATE => {
            let (object, len, lease) = (Wire::get(r)?, Wire::get(r)?, Wire::get(r)?);
            let has_tail: bool = Wire::get(r)?;
            if len > types::FILE_SIZE_MAX {
                return Err(Malformed("shipped truncation"));
            }
            let tail = if has_tail { Some(get_checked(r)?) } else { None };
            Change::Truncate { object, len, lease, tail }
        }
        PUNCH => {
            let (object, first, limit): (_, u32, u32) = (Wire::get(r)?, Wire::get(r)?, Wire::get(r)?);
            let (is_kept, mtime, lease) = (Wire::get(r)?, Wire::get(r)?, Wire::get(r)?);
            let count = r.byte()?;
            if first > limit || count > 2 {
                return Err(Malformed("shipped punch"));
            }
            let mut zeroed: Vec<(u32, Form<'a>)> = Vec::new();
            for _ in 0..count {
                let page = u32::get(r)?;
                let is_new = zeroed.last().is_none_or(|(last, _)| *last < page);
                if page == u32::MAX || !is_new || (first..limit).contains(&page) {
                    return Err(Malformed("shipped punch"));
                }
                zeroed.push((page, get_checked(r)?));
            }
            Change::Punch { object, first, limit, is_kept, mtime, lease, zeroed }
        }
        FILL => {
            // A range has few pages, by its decoding.
            let range = FillRange::get(r)?;
            let (crcs, pages) = get_pages(r, range.count())?;
            Change::Fill { range, crcs, pages }
        }
        _ => return Err(Malformed("kind of a shipped record")),
    };
    Ok(Item { origin: (origin.sequence > 0).then_some(origin), answer, change })
}

fn get_plain<'a>(r: &mut Reader<'a>) -> Result<Item<'a>, Malformed> {
    let len = u32::get(r)? as usize;
    let decoded = record::decode(r.take(len)?)?;
    let is_plain = decoded.record.is_public() && decoded.at == Some(Default::default());
    match decoded.record {
        Record::Write(_) | Record::Truncate(_) | Record::Punch(_) | Record::Fill(_) => {
            Err(Malformed("shipped record"))
        }
        _ if !is_plain => Err(Malformed("shipped record")),
        record => Ok(Item { origin: decoded.origin, answer: decoded.answer, change: Change::Plain(record) }),
    }
}

fn get_wrote<'a>(r: &mut Reader<'a>) -> Result<Wrote<'a>, Malformed> {
    let (object, end, mtime, lease): (_, u64, _, _) =
        (Wire::get(r)?, Wire::get(r)?, Wire::get(r)?, Wire::get(r)?);
    let (first, count): (u32, u32) = (Wire::get(r)?, Wire::get(r)?);
    let is_bounded = end <= types::FILE_SIZE_MAX && first.checked_add(count).is_some();
    if count == 0 || count as usize > r.remaining() / 4 || !is_bounded {
        return Err(Malformed("shipped write"));
    }
    let (crcs, pages) = get_pages(r, count)?;
    Ok(Wrote { object, end, mtime, lease, first, crcs, pages })
}

/// `count`: checked against the bytes that remain.
fn get_pages<'a>(r: &mut Reader<'a>, count: u32) -> Result<(Vec<u32>, Pages<'a>), Malformed> {
    let crcs = (0..count).map(|_| u32::get(r)).collect::<Result<Vec<u32>, _>>()?;
    let pages = match r.byte()? {
        STAGED => Pages::Staged(StageId(Wire::get(r)?)),
        INLINE => Pages::Inline(crcs.iter().map(|crc| get_form(r, *crc)).collect::<Result<Vec<_>, _>>()?),
        _ => return Err(Malformed("shipped pages")),
    };
    Ok((crcs, pages))
}

fn get_checked<'a>(r: &mut Reader<'a>) -> Result<Form<'a>, Malformed> {
    let crc = u32::get(r)?;
    get_form(r, crc)
}

fn get_form<'a>(r: &mut Reader<'a>, crc: u32) -> Result<Form<'a>, Malformed> {
    let form = match r.byte()? {
        ZEROS => Form::Zeros,
        BYTES => Form::Bytes(r.take(PAGE_SIZE)?),
        LOST => Form::Lost,
        _ => return Err(Malformed("form of a shipped page")),
    };
    if form.crc() == crc { Ok(form) } else { Err(Malformed("CRC of a shipped page")) }
}

#[cfg(test)]
mod tests;
