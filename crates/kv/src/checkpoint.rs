//! A table as a stream of bytes: the content of an MDT's checkpoint slot. The format is in `docs/formats/mdt.md`.
//!
//! Records travel in batches of about 64 KiB, each with a CRC32C, so that a changed byte is found before anything of its batch is used. A
//! trailer with the counts tells a whole stream from a cut one.
//! kv-C1: nothing after the trailer belongs to the stream.  kv-C2: no key occurs in a stream twice.

use std::io::{self, Read, Write};

use types::Key;
use types::crc::crc32c;
use types::key::KEY_MAX;

use crate::medium::Item;
use crate::value::verified;
use crate::{Batch, RECORD_OVERHEAD_BYTES, VALUE_MAX, Value};

const MAGIC: [u8; 8] = *b"STRIAKV\0";
/// A stream of all records.
const VERSION_OF_RECORDS: u32 = 1;
/// A stream of leaves' names, then of the owner's records.
const VERSION_OF_LEAVES: u32 = 2;
/// A flag in the key length: this record is the name of a leaf, and its key is the leaf's first one.
const IS_LEAF: u8 = 0x80;
/// A batch is closed once it is this long: large enough for sequential speed, small enough to stay in cache.
const BATCH_BYTES: usize = 64 * 1024;
/// Longest batch that a reader accepts: one just under `BATCH_BYTES`, and then a longest record.
const BATCH_BYTES_MAX: usize = BATCH_BYTES + RECORD_OVERHEAD_BYTES as usize + KEY_MAX + VALUE_MAX;
const BATCH_HEAD_BYTES: usize = 12;

/// Why a stream could not be loaded. Nothing of it is used then.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The medium or the stream below failed (also: it ended early).
    #[error("checkpoint stream: {0}")]
    Io(#[from] io::Error),
    /// The bytes are not a checkpoint of this version, or were changed.
    #[error("checkpoint stream: {0}")]
    Malformed(&'static str),
    /// A record of the table failed its own CRC.
    #[error(transparent)]
    Damage(#[from] crate::Damage),
}

/// Writes a stream record by record. Dropped without `finish` it leaves a stream that no reader accepts.
pub struct Writer<'a> {
    out: &'a mut dyn Write,
    batch: Vec<u8>,
    in_batch: u32,
    records: u64,
    bytes: u64,
}

impl<'a> Writer<'a> {
    pub fn new(out: &'a mut dyn Write) -> io::Result<Writer<'a>> {
        Writer::of_version(out, VERSION_OF_RECORDS)
    }

    /// A stream that names leaves.
    pub fn of_leaves(out: &'a mut dyn Write) -> io::Result<Writer<'a>> {
        Writer::of_version(out, VERSION_OF_LEAVES)
    }

    fn of_version(out: &'a mut dyn Write, version: u32) -> io::Result<Writer<'a>> {
        out.write_all(&MAGIC)?;
        out.write_all(&version.to_le_bytes())?;
        out.write_all(&0u32.to_le_bytes())?;
        Ok(Writer { out, batch: Vec::with_capacity(BATCH_BYTES * 2), in_batch: 0, records: 0, bytes: 0 })
    }

    /// Adds a record. A value that fails its CRC is not written: a checkpoint must not launder damage.
    pub fn record(&mut self, key: &Key, value: &[u8], crc: u32) -> io::Result<()> {
        verified(key, value, crc).map_err(|d| io::Error::new(io::ErrorKind::InvalidData, d))?;
        if value.len() > VALUE_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("value of {key:?} is longer than {VALUE_MAX}"),
            ));
        }
        self.put(0, key, value, crc)
    }

    /// Adds the name of a leaf, or a lost range.
    pub fn name(&mut self, item: &Item) -> io::Result<()> {
        let name = item.encode();
        self.put(IS_LEAF, &item.first(), &name, crc32c(&name))
    }

    fn put(&mut self, flag: u8, key: &Key, value: &[u8], crc: u32) -> io::Result<()> {
        assert!(value.len() <= VALUE_MAX, "a reader accepts the record");
        let before = self.batch.len();
        put_record(&mut self.batch, flag, key, value, crc);
        self.in_batch += 1;
        self.records += 1;
        self.bytes += (self.batch.len() - before) as u64;
        if self.batch.len() >= BATCH_BYTES { self.close_batch() } else { Ok(()) }
    }

    /// Writes the last batch and the trailer.
    pub fn finish(mut self) -> io::Result<()> {
        if self.in_batch > 0 {
            self.close_batch()?;
        }
        assert!(self.batch.is_empty(), "the trailer is a batch of its own");
        assert!(self.bytes >= self.records * RECORD_OVERHEAD_BYTES, "each record is framed");
        let mut trailer = self.records.to_le_bytes().to_vec();
        trailer.extend_from_slice(&self.bytes.to_le_bytes());
        self.batch = trailer;
        self.close_batch()
    }

    fn close_batch(&mut self) -> io::Result<()> {
        assert!(self.batch.len() <= BATCH_BYTES_MAX, "a reader accepts the batch");
        let mut head = [0u8; BATCH_HEAD_BYTES];
        head[..4].copy_from_slice(&self.in_batch.to_le_bytes());
        head[4..8].copy_from_slice(&(self.batch.len() as u32).to_le_bytes());
        // The CRC covers count and length too. Otherwise a flipped count would only show at the end of the batch.
        let crc = batch_crc(&head, &self.batch);
        head[8..].copy_from_slice(&crc.to_le_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(&self.batch)?;
        self.batch.clear();
        self.in_batch = 0;
        Ok(())
    }
}

fn batch_crc(head: &[u8; BATCH_HEAD_BYTES], body: &[u8]) -> u32 {
    crc32c(&head[..8]).rotate_left(1) ^ crc32c(body)
}

fn put_record(out: &mut Vec<u8>, flag: u8, key: &Key, v: &[u8], crc: u32) {
    let k = key.as_bytes();
    assert!(k.len() <= KEY_MAX && k.len() as u8 & IS_LEAF == 0, "a key's length leaves the flag free");
    out.push(k.len() as u8 | flag);
    out.extend_from_slice(k);
    out.extend_from_slice(&(v.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(v);
}

/// Reads a stream of records, batch by batch. Each batch is verified with all its values before `take` gets it. An error may come after
/// some batches: the caller must then discard what it built from them.
pub fn read_stream(input: &mut dyn Read, take: &mut dyn FnMut(Batch)) -> Result<(), StreamError> {
    match read_any(input, take)? {
        Some(_) => {
            Err(StreamError::Malformed("it names leaves, which lie on the medium that it was written to"))
        }
        None => Ok(()),
    }
}

/// As `read_stream`; also returns the leaves' names, if the stream has names.
pub fn read_any(input: &mut dyn Read, take: &mut dyn FnMut(Batch)) -> Result<Option<Vec<Item>>, StreamError> {
    let mut head = [0u8; 16];
    input.read_exact(&mut head)?;
    if head[..8] != MAGIC {
        return Err(StreamError::Malformed("not a table's checkpoint"));
    }
    let version = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
    let mut leaves = match version {
        VERSION_OF_RECORDS => None,
        _ => Some(Vec::new()),
    };
    if version > VERSION_OF_LEAVES || version == 0 || head[12..] != [0; 4] {
        return Err(StreamError::Malformed(
            "a version that this program does not know: use the one that wrote it",
        ));
    }
    let (mut records, mut bytes) = (0u64, 0u64);
    let mut body = Vec::new();
    loop {
        let count = read_batch(input, &mut body)?;
        let mut rest = Cursor(&body);
        if count == 0 {
            let counted = (rest.u64()?, rest.u64()?);
            return match rest.0.is_empty() && counted == (records, bytes) {
                true => Ok(leaves),
                false => Err(StreamError::Malformed("the trailer's counts")),
            };
        }
        let mut batch = Batch(Vec::with_capacity(count.min(body.len() / RECORD_OVERHEAD_BYTES as usize)));
        for _ in 0..count {
            let (flag, key, value) = rest.record()?;
            value.verified(&key)?;
            match (flag, &mut leaves) {
                (0, _) => batch.put(key, value),
                (_, Some(leaves)) => leaves.push(Item::decode(key, value.raw())?),
                (_, None) => return Err(StreamError::Malformed("the name of a leaf among records")),
            }
        }
        if !rest.0.is_empty() {
            return Err(StreamError::Malformed("bytes left over in a batch"));
        }
        records += count as u64;
        bytes += body.len() as u64;
        take(batch);
    }
}

/// Reads one batch into `body`; returns its record count.
fn read_batch(input: &mut dyn Read, body: &mut Vec<u8>) -> Result<usize, StreamError> {
    let mut head = [0u8; BATCH_HEAD_BYTES];
    input.read_exact(&mut head)?;
    let u32_at = |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
    let (count, len, crc) = (u32_at(0) as usize, u32_at(4) as usize, u32_at(8));
    if len > BATCH_BYTES_MAX {
        return Err(StreamError::Malformed("a batch that is too long"));
    }
    body.resize(len, 0);
    input.read_exact(body)?;
    if batch_crc(&head, body) != crc {
        return Err(StreamError::Malformed("a batch failed its checksum"));
    }
    Ok(count)
}

/// Reads values off a slice, never beyond its end.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], StreamError> {
        let (head, rest) =
            self.0.split_at_checked(n).ok_or(StreamError::Malformed("a batch that is too short"))?;
        self.0 = rest;
        Ok(head)
    }
    fn u32(&mut self) -> Result<u32, StreamError> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("take gave 4 bytes")))
    }
    fn u64(&mut self) -> Result<u64, StreamError> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().expect("take gave 8 bytes")))
    }
    fn record(&mut self) -> Result<(u8, Key, Value), StreamError> {
        let first = self.take(1)?[0];
        let (flag, key_len) = (first & IS_LEAF, usize::from(first & !IS_LEAF));
        let key = Key::new(self.take(key_len)?).ok_or(StreamError::Malformed("a key that is too long"))?;
        let (len, crc) = (self.u32()? as usize, self.u32()?);
        Ok((flag, key, Value::stored(self.take(len)?, crc)))
    }
}

#[cfg(test)]
mod tests {
    use disk::alloc::Run;
    use disk::leaves::Place;
    use types::Seq;

    use super::*;
    use crate::medium::Named;
    use crate::tree::Stretch;
    use crate::{Engine, Table};

    fn table() -> Table {
        let t = Table::new();
        let mut b = Batch::new();
        for n in 0..300u32 {
            b.put(Key::new(&n.to_be_bytes()[..]).unwrap(), Value::new(&vec![n as u8; n as usize * 7 % 5000]));
        }
        t.apply(Seq(1), b);
        t
    }

    fn stream(t: &Table) -> Vec<u8> {
        let mut out = Vec::new();
        t.checkpoint(&t.snapshot(), &mut std::iter::empty(), &mut out).unwrap();
        out
    }

    fn open(mut bytes: &[u8]) -> Result<Table, StreamError> {
        Table::new().open(Seq(1), &mut bytes, &mut |_, _| false)
    }

    #[test]
    fn golden() {
        let t = Table::new();
        let mut b = Batch::new();
        b.put(Key::new(&[2, 7]).unwrap(), Value::new(b"hello"));
        t.apply(Seq(1), b);
        let hex: String = stream(&t).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, GOLDEN);
    }
    /// The name of a leaf in two runs, a lost range behind it, and a record of the owner's.
    #[test]
    fn golden_of_leaves() {
        let mut out = Vec::new();
        let mut writer = Writer::of_leaves(&mut out).unwrap();
        let runs = vec![Run { start: 70, pages: 1 }, Run { start: 300, pages: 1 }];
        let place = Place { bytes: 4200, crc: 0x0102_0304, runs };
        let (first, last) = (Key::new(&[2, 7]).unwrap(), Key::new(&[2, 8, 1]).unwrap());
        let leaf = Named { first, last, records: 3, record_bytes: 600, place };
        let lost = Stretch { first: Key::new(&[3]).unwrap(), end: Key::new(&[3, 9]).unwrap() };
        let items = [Item::Leaf(leaf), Item::Lost(lost)];
        items.iter().for_each(|item| writer.name(item).unwrap());
        writer.record(&Key::new(&[8, 1]).unwrap(), b"slot", crc32c(b"slot")).unwrap();
        writer.finish().unwrap();
        assert_eq!(out.iter().map(|b| format!("{b:02x}")).collect::<String>(), GOLDEN_OF_LEAVES);
        let mut records = Vec::new();
        let leaves = read_any(&mut &out[..], &mut |batch| records.extend(batch.0)).unwrap().unwrap();
        assert_eq!((&leaves[..], records.len()), (&items[..], 1));
        assert!(read_stream(&mut &out[..], &mut |_| ()).is_err(), "half of it is not here");
    }
    const GOLDEN_OF_LEAVES: &str = concat!(
        "53545249414b56000200000000000000030000007200000046349d51",
        "82020734000000137853e803000000040302015802000000000000681000000000000003020801",
        "4600000000000000010000002c0100000000000001000000",
        "81031a000000c3aac39c0000000000000000000000000000000000000000000000000309",
        "020801040000005435ebee736c6f74",
        "000000001000000026a01e9a03000000000000007200000000000000"
    );

    /// Names that say what cannot be.
    #[test]
    fn a_wrong_name_is_refused() {
        let changed = |f: &dyn Fn(&mut Named)| {
            let place = Place { bytes: 4200, crc: 9, runs: vec![Run { start: 70, pages: 2 }] };
            let (first, last) = (Key::new(&[3]).unwrap(), Key::new(&[4]).unwrap());
            let mut leaf = Named { first, last, records: 3, record_bytes: 600, place };
            f(&mut leaf);
            Item::decode(leaf.first, &leaf.encode())
        };
        assert!(changed(&|_| ()).is_ok());
        assert!(changed(&|n| n.place.bytes = 0).is_err(), "no bytes");
        assert!(changed(&|n| n.place.bytes = 2 << 20).is_err(), "more than a leaf has");
        assert!(changed(&|n| n.place.bytes = 8193).is_err(), "too few pages");
        assert!(changed(&|n| n.place.bytes = 4096).is_err(), "too many pages");
        assert!(changed(&|n| n.place.runs.push(Run { start: 9, pages: 0 })).is_err(), "an empty run");
        assert!(changed(&|n| n.place.runs[0].start = u64::MAX).is_err(), "no medium is that long");
        assert!(changed(&|n| n.last = Key::default()).is_err(), "it ends before it begins");
        assert!(changed(&|n| n.last = n.first).is_err(), "three records of one key");
        assert!(changed(&|n| n.records = 0).is_err(), "no records");
        assert!(changed(&|n| n.records = 1 << 16).is_err(), "more than a leaf has");
        assert!(changed(&|n| n.record_bytes = 26).is_err(), "less than three records take");
        assert!(changed(&|n| n.record_bytes = 1 << 40).is_err(), "more than is in it");
        let bytes = changed(&|_| ()).unwrap().encode();
        assert!((0..bytes.len()).all(|len| Item::decode(Key::default(), &bytes[..len]).is_err()));
        // A lost range ends behind its begin.
        let lost = |end: &[u8]| Item::decode(Key::new(&[5]).unwrap(), &[&[0; 24], end].concat());
        assert!(lost(&[5, 0]).is_ok());
        assert!(
            lost(&[]).is_err() && lost(&[5]).is_err() && lost(&[4, 9]).is_err() && lost(&[6; 24]).is_err()
        );
    }

    /// One record, key 02 07, value "hello".
    const GOLDEN: &str = concat!(
        "53545249414b56000100000000000000",
        "0100000010000000202554f6",
        "020207050000004cbb719a68656c6c6f",
        "0000000010000000ce9992fe",
        "01000000000000001000000000000000",
    );

    #[test]
    fn a_stream_that_was_cut_or_changed_is_refused() {
        let whole = stream(&table());
        open(&whole[..]).unwrap();
        for cut in (0..whole.len()).step_by(whole.len() / 997) {
            assert!(open(&whole[..cut]).is_err(), "cut at {cut}");
        }
        for at in (0..whole.len()).step_by(whole.len() / 997) {
            let mut bad = whole.clone();
            bad[at] ^= 1 << (at % 8);
            assert!(open(&bad[..]).is_err(), "changed at {at}");
        }
    }

    #[test]
    fn a_key_that_stands_twice_is_refused() {
        let mut out = Vec::new();
        let mut w = Writer::new(&mut out).unwrap();
        let (key, value) = (Key::new(b"k").unwrap(), Value::new(b"v"));
        w.record(&key, value.raw(), value.crc()).unwrap();
        w.record(&key, value.raw(), value.crc()).unwrap();
        w.finish().unwrap();
        assert!(matches!(open(&out[..]), Err(StreamError::Malformed("a key stands twice"))));
    }

    #[test]
    fn damage_in_memory_is_not_laundered() {
        let t = Table::new();
        let mut b = Batch::new();
        b.put(Key::new(b"k").unwrap(), Value::stored(b"other bytes", 1));
        t.apply(Seq(1), b);
        assert!(t.checkpoint(&t.snapshot(), &mut std::iter::empty(), &mut Vec::new()).is_err());
    }
}

#[cfg(test)]
mod hammered;
