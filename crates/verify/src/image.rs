//! The medium: superblocks, the checkpoint with its leaves, the log behind it (volume.md, mdt.md).

use std::collections::{BTreeMap, BTreeSet};

use disk::Disk;
use types::crc::crc32c;

use crate::bytes::{Bytes, Read};
use crate::counts::Row;

const PAGE: u64 = 4096;
const COPIES: [u64; 2] = [0, 64 << 10];
const LOG_APART: u64 = 1;
const ENTRIES_OF_SEVERAL: u64 = 2;
const MARKS_WITHOUT_SEQ: u64 = 4;
const NOTE: u64 = 8;
const SLOT: u8 = 8;
const SESSION: u8 = 7;
const PENDING: u8 = 12;
const COPY: u8 = 13;
const GIVEN_UP: u8 = 16;

/// An answered request of a session's slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    pub sequence: u32,
    pub seq: u64,
    pub reply: Vec<u8>,
}

/// The state of a medium after recovery: checkpoint plus replayed log.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Of the table, by key.
    pub records: BTreeMap<Vec<u8>, Vec<u8>>,
    pub slots: BTreeMap<(u64, u32), Slot>,
    /// Pending counts by directory.
    pub rows: BTreeMap<u64, Row>,
    /// Of the last operation.
    pub seq: u64,
    pub shard: u16,
}

struct Superblock {
    generation: u64,
    tag: u64,
    index: u32,
    incarnation: u32,
    cut: (u64, u32),
    ring: (u64, u64),
    slots: [(u64, u64); 2],
    start: u64,
    start_seq: u64,
    flushed: u64,
    checkpoint: Option<Checkpoint>,
}

struct Checkpoint {
    slot: usize,
    stream_bytes: u64,
    state_bytes: u64,
    seq: u64,
    chain: u32,
}

/// Reads everything. An error says what cannot be read.
pub fn read(disk: &dyn Disk) -> Read<Image> {
    let sb = newest(disk)?;
    let mut image = Image { shard: sb.index as u16, seq: sb.start_seq, ..Image::default() };
    if let Some(checkpoint) = &sb.checkpoint {
        let state = stream(disk, &sb, checkpoint)?;
        load(disk, &sb, &state, &mut image)?;
        image.seq = image.seq.max(checkpoint.seq);
    }
    replay(disk, &sb, &mut image)?;
    if image.seq < sb.flushed {
        return Err(format!("the log ends at seq {}, and {} was flushed", image.seq, sb.flushed));
    }
    Ok(image)
}

fn bytes_at(disk: &dyn Disk, at: u64, len: u64) -> Read<Vec<u8>> {
    if at.checked_add(len).is_none_or(|end| end > disk.size()) {
        return Err(format!("{len} bytes at {at} are past the end of the medium"));
    }
    let mut bytes = vec![0; len as usize];
    disk.read_at(&mut bytes, at).map_err(|e| format!("{len} bytes at {at}: {e}"))?;
    Ok(bytes)
}

fn newest(disk: &dyn Disk) -> Read<Superblock> {
    let mut best: Option<Superblock> = None;
    for (at, parity) in COPIES.into_iter().zip(0..) {
        let bytes = bytes_at(disk, at, PAGE)?;
        if &bytes[..8] != b"STRIAVOL" || crc32c(&bytes[..4092]).to_le_bytes() != bytes[4092..] {
            continue;
        }
        let sb = superblock(&bytes)?;
        if sb.generation % 2 != parity {
            return Err(format!(
                "superblock at {at}: generation {} belongs to the other place",
                sb.generation
            ));
        }
        if best.as_ref().is_none_or(|b| b.generation < sb.generation) {
            best = Some(sb);
        }
    }
    best.ok_or("no superblock counts".into())
}

fn superblock(bytes: &[u8]) -> Read<Superblock> {
    let mut b = Bytes::of("superblock", &bytes[8..4092]);
    if b.u32()? != 1 {
        return b.wrong("version");
    }
    b.zeros(4)?;
    let (_compat, ro_compat, incompat) = (b.u64()?, b.u64()?, b.u64()?);
    if ro_compat != 0 || incompat & !(ENTRIES_OF_SEVERAL | MARKS_WITHOUT_SEQ | NOTE) != 0 {
        return b.wrong(if incompat & LOG_APART != 0 {
            "its log is on a medium of its own"
        } else {
            "features"
        });
    }
    let generation = b.u64()?;
    b.take(16)?;
    let uuid = b.take(16)?;
    let half = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| uuid[at + n]));
    let tag = half(0) ^ half(8).rotate_left(1);
    if b.u8()? != 1 {
        return b.wrong("it is no MDT's");
    }
    let (clean, name) = (b.u8()?, b.u8()?);
    if clean > 1 || !(1..=64).contains(&name) {
        return b.wrong("clean mark, or length of the name");
    }
    b.zeros(1)?;
    let (_target, index, _mirror, _epoch, incarnation) = (b.u32()?, b.u32()?, b.u32()?, b.u32()?, b.u32()?);
    let cut = (b.u64()?, b.u32()?);
    b.zeros(4)?;
    let ring = (b.u64()?, b.u64()?);
    let slots = [(b.u64()?, b.u64()?), (b.u64()?, b.u64()?)];
    let _data = (b.u64()?, b.u64()?);
    let (start, start_seq, flushed, _prepared) = (b.u64()?, b.u64()?, b.u64()?, b.u64()?);
    let which = b.u8()?;
    b.zeros(7)?;
    let (stream_bytes, state_bytes, seq, chain) = (b.u64()?, b.u64()?, b.u64()?, b.u32()?);
    b.zeros(4)?;
    b.take(64)?;
    b.take(8)?;
    b.zeros(16 + 8)?;
    if incompat & NOTE == 0 {
        b.zeros(3740)?;
    } else {
        let len = usize::from(b.u16()?);
        if !(1..=2048).contains(&len) {
            return b.wrong("length of the note");
        }
        b.zeros(2)?;
        b.take(len)?;
        b.zeros(3736 - len)?;
    }
    b.end()?;
    let checkpoint = match which {
        0 => None,
        1 | 2 => Some(Checkpoint { slot: which as usize - 1, stream_bytes, state_bytes, seq, chain }),
        _ => return b.wrong("which slot"),
    };
    if ring.1 == 0 || ring.1 % PAGE != 0 || start % 8 != 0 {
        return b.wrong("ring, or where the log starts");
    }
    Ok(Superblock {
        generation,
        tag,
        index,
        incarnation,
        cut,
        ring,
        slots,
        start,
        start_seq,
        flushed,
        checkpoint,
    })
}

/// The state that the chunks of a slot hold.
fn stream(disk: &dyn Disk, sb: &Superblock, want: &Checkpoint) -> Read<Vec<u8>> {
    let (begin, bytes) = sb.slots[want.slot];
    if want.stream_bytes > bytes {
        return Err("checkpoint: longer than its slot".into());
    }
    let all = bytes_at(disk, begin, want.stream_bytes)?;
    let (mut b, mut state, mut chain) = (Bytes::of("checkpoint", &all), Vec::new(), 0u32);
    for index in 0.. {
        let header = b.take(32)?;
        let mut h = Bytes::of("chunk of the checkpoint", header);
        if h.take(4)? != b"SCK1" {
            return h.wrong("magic");
        }
        let (len, at, crc, seq) = (h.u32()?, h.u32()?, h.u32()?, h.u64()?);
        h.zeros(4)?;
        if h.u32()? != crc32c(&header[..28]) || at != index || seq != want.seq || len > 1 << 20 {
            return h.wrong("CRC, index, seq or length");
        }
        chain = crc32c(&[&chain.to_le_bytes()[..], header].concat());
        let payload = b.take(len as usize)?;
        if crc32c(payload) != crc {
            return h.wrong("CRC of its payload");
        }
        state.extend_from_slice(payload);
        if len == 0 {
            break;
        }
    }
    b.end()?;
    if chain != want.chain || state.len() as u64 != want.state_bytes {
        return Err("checkpoint: chain or bytes are not what the superblock says".into());
    }
    Ok(state)
}

/// A checkpoint's state: names of leaves (version 2), records.
fn load(disk: &dyn Disk, sb: &Superblock, state: &[u8], image: &mut Image) -> Read<()> {
    let mut b = Bytes::of("state of the checkpoint", state);
    let (magic, version) = (b.take(8)?, b.u32()?);
    if magic != b"STRIAKV\0" || !matches!(version, 1 | 2) {
        return b.wrong("magic, or version");
    }
    b.zeros(4)?;
    let (mut records, mut bodies, mut pages) = (0u64, 0u64, BTreeSet::new());
    let (mut last, mut copies) = (Vec::new(), BTreeMap::new());
    loop {
        let head = b.take(8)?;
        let mut h = Bytes::of("batch of the checkpoint", head);
        let (count, len, crc) = (h.u32()?, h.u32()?, b.u32()?);
        let body = b.take(len as usize)?;
        if crc != crc32c(head).rotate_left(1) ^ crc32c(body) {
            return h.wrong("CRC");
        }
        let mut body = Bytes::of("batch of the checkpoint", body);
        if count == 0 {
            if (body.u64()?, body.u64()?) != (records, bodies) {
                return body.wrong("the trailer counts otherwise");
            }
            body.end()?;
            break;
        }
        (records, bodies) = (records + u64::from(count), bodies + u64::from(len));
        for _ in 0..count {
            let k = body.u8()?;
            let key = body.take((k & 0x7f) as usize)?.to_vec();
            let (len, crc) = (body.u32()?, body.u32()?);
            let value = body.take(len as usize)?;
            if crc32c(value) != crc {
                return Err(format!("record {}: CRC of its value", hex(&key)));
            }
            match (k & 0x80 != 0, key.first()) {
                (true, _) if version == 2 => {
                    if key <= last {
                        return Err(format!("leaf {}: its name is not behind the one before", hex(&key)));
                    }
                    if value.starts_with(&[0; 24]) {
                        return Err(format!("from record {} on some are lost", hex(&key)));
                    }
                    let leaf = leaf(disk, sb, &key, value, &mut pages)?;
                    last = leaf.last().map(|(key, _)| key.clone()).unwrap_or_default();
                    image.records.extend(leaf);
                }
                (true, _) => return Err("a name of a leaf in a checkpoint of version 1".into()),
                (false, Some(&SLOT)) => {
                    let (at, slot) = slot_record(&key, value)?;
                    if image.slots.insert(at, slot).is_some() {
                        return Err(format!("slot {at:?} stands twice"));
                    }
                }
                (false, Some(&PENDING)) => {
                    let dir = be(&key[1..])?;
                    if image.rows.insert(dir, Row::decode(value)?).is_some() {
                        return Err(format!("two rows of directory {dir:#x}"));
                    }
                }
                (false, Some(&COPY)) => {
                    let key = key[1..].to_vec();
                    if copies.insert(key.clone(), value.to_vec()).is_some() {
                        return Err(format!("two copies of record {}", hex(&key)));
                    }
                }
                (false, _) if version == 1 && key > last => {
                    last.clone_from(&key);
                    image.records.insert(key, value.to_vec());
                }
                (false, _) => return Err(format!("record {} has no place here", hex(&key))),
            }
        }
        body.end()?;
    }
    for (key, copy) in copies {
        if image.records.get(&key) != Some(&copy) {
            return Err(format!("the copy of record {} is of another one", hex(&key)));
        }
    }
    b.end()
}

fn slot_record(key: &[u8], value: &[u8]) -> Read<((u64, u32), Slot)> {
    let mut v = Bytes::of("slot", value);
    if key.len() != 13 {
        return v.wrong("its key");
    }
    let slot = Slot { sequence: v.u32()?, seq: v.u64()?, reply: v.all().to_vec() };
    Ok(((be(&key[1..9])?, be(&key[9..])? as u32), slot))
}

type Leaf = Vec<(Vec<u8>, Vec<u8>)>;

/// The records of a leaf by its name in the checkpoint. `pages`: of the leaves before.
fn leaf(
    disk: &dyn Disk,
    sb: &Superblock,
    first: &[u8],
    name: &[u8],
    pages: &mut BTreeSet<u64>,
) -> Read<Leaf> {
    let what = format!("leaf {}", hex(first));
    // 1. Its bytes.
    let mut n = Bytes::of(&what, name);
    let (count, crc, as_records, len) = (n.u32()?, n.u32()?, n.u64()?, n.u64()?);
    let last_len = n.u8()?;
    let last = n.take(last_len.into())?.to_vec();
    let mut bytes = Vec::new();
    while n.left() > 0 {
        let (start, run) = (n.u64()?, n.u32()?);
        for page in start..start + u64::from(run) {
            if !pages.insert(page) {
                return n.wrong("it shares a page with another");
            }
            bytes.extend(bytes_at(disk, place(sb, page)?, PAGE)?);
        }
    }
    if bytes.len() as u64 != len.next_multiple_of(PAGE) || bytes[len as usize..].iter().any(|b| *b != 0) {
        return n.wrong("it has other pages than it needs, or no zeros behind it");
    }
    let bytes = &bytes[..len as usize];
    if crc32c(bytes) != crc {
        return n.wrong("CRC");
    }
    // 2. Its parts.
    let mut b = Bytes::of(&what, bytes);
    let magic = b.take(4)?;
    let (n, p) = (b.u16()? as usize, b.u8()? as usize);
    b.zeros(1)?;
    let (body, large) = (b.u32()? as usize, b.u32()? as usize);
    if magic != b"SKL1" || n == 0 || n as u32 != count || body > 4096 {
        return b.wrong("magic, or number of records");
    }
    let prefix = b.take(p)?;
    let body = b.take(body)?;
    let mut sizes = Vec::new();
    for _ in 0..large {
        sizes.push((b.u32()? as usize, b.u32()?));
    }
    let values = sizes.iter().map(|(len, crc)| Ok((b.take(*len)?, *crc))).collect::<Read<Vec<_>>>()?;
    b.end()?;
    // 3. Its records.
    let mut parts = Bytes::of(&what, body);
    let heads = (0..n).map(|_| parts.u32()).collect::<Read<Vec<_>>>()?;
    let ends = (0..n).map(|_| parts.u16()).collect::<Read<Vec<_>>>()?;
    let (mut at, mut larges, mut out) = (6 * n, values.into_iter(), Leaf::new());
    for (head, end) in heads.into_iter().zip(ends) {
        let Some(cell) = body.get(at..end as usize) else { return parts.wrong("where a cell ends") };
        at = end as usize;
        let mut cell = Bytes::of(&what, cell);
        let (k, len, crc) = (cell.u8()? as usize, cell.u16()?, cell.u32()?);
        let head = head.to_be_bytes();
        if head[k.min(4)..].iter().any(|b| *b != 0) {
            return cell.wrong("a head that is longer than its key");
        }
        let key = [prefix, &head[..k.min(4)], cell.take(k.saturating_sub(4))?].concat();
        let (value, crc) = match len {
            u16::MAX => match larges.next() {
                Some(value) if crc as usize == large - larges.len() - 1 => value,
                _ => return cell.wrong("the number of a large value"),
            },
            len if len > 512 => return cell.wrong("a small value that is large"),
            len => (cell.take(len as usize)?, crc),
        };
        cell.end()?;
        if out.last().is_some_and(|(last, _)| *last >= key) {
            return cell.wrong("keys do not rise");
        }
        if crc32c(value) != crc {
            return Err(format!("record {}: CRC of its value", hex(&key)));
        }
        out.push((key, value.to_vec()));
    }
    let sum: u64 = out.iter().map(|(key, value)| (9 + key.len() + value.len()) as u64).sum();
    let is_named = out[0].0 == first && out.last().is_some_and(|(key, _)| *key == last);
    if at != body.len() || larges.next().is_some() || !is_named || sum != as_records {
        return parts.wrong("what it holds is not what its name says");
    }
    Ok(out)
}

/// Where a page of the leaf area lies.
fn place(sb: &Superblock, page: u64) -> Read<u64> {
    let stretches = sb.slots.map(|(begin, bytes)| {
        let head = (bytes / 16).max((512 << 10).min(bytes / 2)) / PAGE * PAGE;
        (begin + head, (bytes - head) / PAGE)
    });
    let [(first, gap), (second, rest)] = stretches;
    match page {
        page if page < gap => Ok(first + page * PAGE),
        page if page > gap && page - gap - 1 < rest => Ok(second + (page - gap - 1) * PAGE),
        page => Err(format!("page {page} of the leaf area is nowhere")),
    }
}

/// Every entry that follows.
fn replay(disk: &dyn Disk, sb: &Superblock, image: &mut Image) -> Read<()> {
    let ring = bytes_at(disk, sb.ring.0, sb.ring.1)?;
    let from_ring =
        |at: u64, len: u64| (at..at + len).map(|n| ring[(n % sb.ring.1) as usize]).collect::<Vec<u8>>();
    let (mut at, mut seq, mut incarnation) = (sb.start, sb.start_seq, 0);
    let checkpoint = sb.checkpoint.as_ref().map_or(0, |c| c.seq);
    while at + 64 <= sb.start + sb.ring.1 {
        let header = from_ring(at, 64);
        let mut h = Bytes::of("header of a log entry", &header);
        let (magic, kind, reserved, ops) = (h.take(4)?, h.u8()?, h.u8()?, u64::from(h.u16()?) + 1);
        let (tag, first, pos, mark) = (h.u64()?, h.u64()?, h.u64()?, h.u64()?);
        let (_epoch, inc, len, crc) = (h.u32()?, h.u32()?, h.u32()?, h.u32()?);
        let behind = (h.u32()?, h.u32()?);
        let bytes = (64 + u64::from(len)).next_multiple_of(8);
        let follows = magic == b"SLE1"
            && matches!(kind, 1..=3)
            && (reserved, behind) == (0, (0, crc32c(&header[..60])))
            && (tag, first, pos) == (sb.tag, if kind == 3 { seq } else { seq + 1 }, at)
            && (kind == 1 || ops == 1)
            && mark <= seq
            && (incarnation..=sb.incarnation).contains(&inc)
            && (at < sb.cut.0 || inc >= sb.cut.1)
            && len <= 2 << 20
            && at + bytes <= sb.start + sb.ring.1;
        if !follows {
            break;
        }
        let payload = from_ring(at + 64, u64::from(len));
        if crc32c(&payload) != crc {
            break;
        }
        (at, seq, incarnation) = (at + bytes, if kind == 3 { seq } else { seq + ops }, inc);
        image.seq = image.seq.max(seq);
        if kind == 1 && seq > checkpoint {
            entry(image, &payload, first, ops).map_err(|why| format!("log entry {first}: {why}"))?;
        }
    }
    Ok(())
}

/// The changes of one entry: each key, and its new value or none.
pub type Changes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

fn entry(image: &mut Image, payload: &[u8], first: u64, ops: u64) -> Read<()> {
    let mut b = Bytes::of("record", payload);
    if b.u8()? != 2 {
        return b.wrong("version");
    }
    b.zeros(1)?;
    let (members, count, member_bytes) = (b.u16()?, b.u32()?, b.u32()?);
    b.zeros(4)?;
    if u64::from(members.max(1)) != ops {
        return b.wrong("it has another number of members than operations");
    }
    // 1. The members: sessions and slots whose requests the entry answers.
    let (mut slots, mut m) = (BTreeMap::new(), Bytes::of("member", b.take(member_bytes as usize)?));
    for place in 0..u64::from(members) {
        let (_call, slot, session, sequence) = (m.u16()?, m.u32()?, m.u64()?, m.u32()?);
        let len = m.u32()?;
        let reply = m.take(len as usize)?.to_vec();
        match (session, sequence) {
            (0, 0) if slot == 0 => {}
            (0, _) | (_, 0) => return m.wrong("slot, session and sequence do not go together"),
            _ => {
                let noted = Slot { sequence, seq: first + place, reply };
                if slots.insert((session, slot), noted).is_some() {
                    return m.wrong("two of the same slot");
                }
            }
        }
    }
    m.end()?;
    // 2. What it changes.
    let mut changes = Changes::new();
    for _ in 0..count {
        let (puts, k) = (b.u8()?, b.u8()?);
        let key = b.take(k as usize)?.to_vec();
        let value = match puts {
            0 => None,
            1 => {
                let (len, crc) = (b.u32()?, b.u32()?);
                let value = b.take(len as usize)?.to_vec();
                if crc32c(&value) != crc {
                    return Err(format!("record {}: CRC of its value", hex(&key)));
                }
                Some(value)
            }
            _ => return b.wrong("a change that neither puts nor deletes"),
        };
        if changes.last().is_some_and(|(last, _)| *last >= key) || key.len() > 23 {
            return b.wrong("keys of changes");
        }
        changes.push((key, value));
    }
    b.end()?;
    // 3. The counts follow from the state before this entry.
    image.learn(&changes)?;
    image.slots.extend(slots);
    // 4. In the range that the entry abandons, only the records that it puts remain.
    if let Some((_, Some(value))) = changes.iter().find(|(key, _)| key[..] == [GIVEN_UP]) {
        let (first, end) = given_up(value)?;
        image.records.retain(|key, _| *key < first || *key >= end);
    }
    for (key, value) in changes {
        match value {
            Some(value) => drop(image.records.insert(key, value)),
            None => {
                if let [SESSION, session @ ..] = &key[..] {
                    let session = be(session)?;
                    image.slots.retain(|(of, _), _| *of != session);
                }
                image.records.remove(&key);
            }
        }
    }
    Ok(())
}

/// First and end key of an abandoned range.
pub fn given_up(value: &[u8]) -> Read<(Vec<u8>, Vec<u8>)> {
    let mut b = Bytes::of("what was given up", value);
    if b.u8()? != 1 {
        return b.wrong("version");
    }
    let mut key = || {
        let len = b.u8()?;
        Ok::<_, String>(b.take(len.into())?.to_vec())
    };
    let (first, end) = (key()?, key()?);
    b.end()?;
    if first < end && end.len() <= 23 && first.len() <= 23 { Ok((first, end)) } else { b.wrong("its keys") }
}

/// A number of a key.
pub fn be(bytes: &[u8]) -> Read<u64> {
    if bytes.len() > 8 {
        return Err(format!("key {}: too long", hex(bytes)));
    }
    Ok(bytes.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)))
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
