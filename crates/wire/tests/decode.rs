//! Decoding what nobody meant to send: random and mutated bytes through the header and every body.
//!
//! It never panics, it allocates a small multiple of the bytes at hand, and what it accepts it writes back to the same bytes
//! (so no two byte strings mean the same value).
#![allow(
    unsafe_code,
    reason = "JUSTIFICATION: only a global allocator sees what decoding allocates; this binary is a test."
)]

use std::alloc::{GlobalAlloc, Layout as MemoryLayout, System};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};

use types::*;
use wire::codec::{Bytes, Wire};
use wire::frame::BODY_MAX;
use wire::{HEADER_LEN, Header, Reader, Request, map, meta, mgmt, object, session};

/// Counts the bytes allocated and the most that there were.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: both functions hand their arguments on to `System` unchanged and return what it returns, so its promises are
// kept; the counters are atomics and allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: MemoryLayout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps `alloc`'s demands, which are `System`'s.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: MemoryLayout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `at` came from `alloc` above with this layout, so from `System`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that decoding may allocate per byte at hand: an empty byte string has 4 bytes on the wire and 24 in memory, and a
/// list that grows holds its old and new place for a moment.
const BLOW_UP_MAX: usize = 24;
/// And whatever the length: one element that turns out too short, an error.
const SLACK: usize = 4096;

/// SplitMix64: the sequence is ours, so a failure replays.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
    /// Random bytes; in most strings mostly zeros and ones, so that counts and flags often make sense.
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let wild = self.below(16) as u64;
        (0..len)
            .map(|_| {
                let word = self.next();
                match (word >> 8) % 16 {
                    w if w < wild / 4 => word as u8,
                    w if w < 12 => 0,
                    _ => (word % 9) as u8,
                }
            })
            .collect()
    }
    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len());
        match self.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.push(self.next() as u8),
            2 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
            3 if !bytes.is_empty() => bytes[at] = self.next() as u8,
            // A count made huge.
            4 if bytes.len() >= at + 4 => bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes()),
            _ if bytes.len() >= at + 4 => {
                bytes[at..at + 4].copy_from_slice(&(self.below(300) as u32).to_le_bytes())
            }
            _ => {}
        }
    }
}

/// Decodes a prefix of `bytes` and returns its length if they are a `T`.
fn try_one<T: Wire + PartialEq + Debug>(name: &str, bytes: &[u8]) -> Option<usize> {
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let mut reader = Reader::new(bytes);
    let value = T::get(&mut reader);
    let used = PEAK.load(Ordering::Relaxed) - before;
    assert!(
        used <= bytes.len() * BLOW_UP_MAX + SLACK,
        "{name}: {used} bytes for {} bytes: {bytes:02x?}",
        bytes.len()
    );
    let value = value.ok()?;
    let len = bytes.len() - reader.remaining();
    let again = value.to_bytes();
    assert_eq!(again, &bytes[..len], "{name}: one value, two byte forms");
    assert_eq!(T::from_bytes(&again).as_ref(), Ok(&value), "{name}");
    Some(len)
}

/// Random strings, and mutations of those that decode and of `seeds`. Returns how many were accepted.
fn hammer<T: Wire + PartialEq + Debug>(name: &str, dice: &mut Dice, seeds: &[Vec<u8>]) -> usize {
    let mut good: Vec<Vec<u8>> = seeds.to_vec();
    for seed in seeds {
        assert_eq!(try_one::<T>(name, seed), Some(seed.len()), "{name}: a seed is a whole value");
    }
    let mut accepted = 0;
    for round in 0..ROUNDS {
        let bytes = if round % 2 == 0 || good.is_empty() {
            let len = dice.below(400);
            dice.bytes(len)
        } else {
            let mut bytes = good[dice.below(good.len())].clone();
            for _ in 0..=dice.below(3) {
                dice.mutate(&mut bytes);
            }
            bytes
        };
        if let Some(len) = try_one::<T>(name, &bytes) {
            accepted += 1;
            if good.len() < 64 {
                good.push(bytes[..len].to_vec());
            }
        }
    }
    accepted
}

/// Over 80 types make it more than 10^5 inputs in all.
const ROUNDS: usize = 1300;

/// Every body and value of the wire, with seeds for those that chance does not find.
macro_rules! all_types {
    ($with:ident) => {
        $with! {
            requests {
                session::Attach, session::KeepAlive, session::Detach, session::Flush, session::TargetStat,
                meta::Lookup, meta::GetAttr, meta::SetAttr, meta::Create, meta::MakeDir, meta::Symlink, meta::Link,
                meta::Unlink, meta::RemoveDir, meta::Rename, meta::ReadLink, meta::ReadDir, meta::GetXattr,
                meta::SetXattr, meta::RemoveXattr, meta::ListXattr, meta::Open, meta::Release, meta::ReadInline,
                meta::WriteInline, meta::Grow, meta::Switch, meta::Settle, meta::Truncate, meta::SetStripe,
                meta::GetStripe, meta::PathOf, meta::Scan,
                object::Write, object::Read, object::Truncate, object::Destroy, object::Glimpse, object::List,
                object::Verify, object::ReportMissing, object::DamageList, object::DamageClear,
                mgmt::Register, mgmt::GetMap, mgmt::Heartbeat,
            }
            values {
                wire::ReplyHead, wire::Empty, Attr, Cred, Component, Layout, ObjectId, Time, Uuid, Kind, Bytes, String,
                object::Capability, object::ObjectStat, object::Damage, object::Mac,
                meta::Inode, meta::DirEntry, meta::WrittenBits, meta::StripeSpec, meta::StripeComponent, meta::FileState,
                meta::ScanRecord, meta::UnlinkReply, meta::OpenReply,
                map::ClusterMap, map::FileSystem, map::Node, map::Target, map::Mirror,
            }
        }
    };
}

fn attr() -> Attr {
    let t = Time::new(1, 2);
    Attr {
        fid: Fid(16),
        kind: Kind::File,
        mode: 0o644,
        uid: 1,
        gid: 2,
        nlink: 1,
        rdev: 0,
        size: 3,
        blocks: 8,
        atime: t,
        mtime: t,
        ctime: t,
        btime: t,
    }
}

fn layout() -> Layout {
    let part = |end, stripes: u32| Component {
        end,
        stripe_size: 65_536,
        mirrors: (1..=stripes).map(MirrorId).collect(),
        written: vec![3],
    };
    Layout { generation: Generation(2), components: vec![part(1 << 20, 1), part(u64::MAX, 4)] }
}

fn capability() -> object::Capability {
    object::Capability {
        fid: Fid(16),
        generation: Generation(2),
        rights: 3,
        lease_epoch: 1,
        lease_counter: 1,
        session: SessionId(1),
        expiry_sec: 99,
        mac: object::Mac([7; 16]),
    }
}

fn inode() -> meta::Inode {
    meta::Inode { attr: attr(), layout: Some(layout()), state: meta::FileState::Writing(SessionId(4)) }
}

fn open_reply() -> meta::OpenReply {
    meta::OpenReply { inode: inode(), cap: Some(capability()) }
}

/// Whole values of the types that hold a layout or an attribute: random bytes seldom are one.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let records = || {
        vec![
            meta::ScanRecord::Entry { parent: Fid(1), name: b"n"[..].into(), fid: Fid(16), kind: Kind::File },
            meta::ScanRecord::Inode {
                inode: inode(),
                inline_bytes: 0,
                parents: vec![Fid(1)],
                pending: Some(layout()),
            },
            meta::ScanRecord::Orphan { fid: Fid(16), session: SessionId(1) },
            meta::ScanRecord::Dead { fid: Fid(16), layout: layout() },
        ]
    };
    let entry = || meta::DirEntry {
        name: b"n"[..].into(),
        fid: Fid(16),
        kind: Kind::File,
        cookie: 256,
        inode: Some(inode()),
    };
    match name {
        "Attr" => vec![attr().to_bytes()],
        "Layout" => vec![layout().to_bytes()],
        "Component" => layout().components.iter().map(Wire::to_bytes).collect(),
        "meta::Inode" => vec![inode().to_bytes()],
        "meta::OpenReply" => vec![open_reply().to_bytes()],
        "meta::DirEntry" => vec![entry().to_bytes()],
        "meta::ScanRecord" => records().iter().map(Wire::to_bytes).collect(),
        "reply to meta::Lookup" | "reply to meta::GetAttr" | "reply to meta::SetAttr" => {
            vec![inode().to_bytes()]
        }
        "reply to meta::MakeDir" | "reply to meta::Symlink" | "reply to meta::Link" => {
            vec![inode().to_bytes()]
        }
        "reply to meta::Switch" => vec![inode().to_bytes()],
        "reply to meta::Open" => vec![open_reply().to_bytes()],
        "reply to meta::Create" => vec![meta::CreateReply { made: true, open: open_reply() }.to_bytes()],
        "reply to meta::WriteInline" => vec![meta::WriteInlineReply { attr: attr() }.to_bytes()],
        "reply to meta::Settle" => vec![meta::SettleReply { attr: attr() }.to_bytes()],
        "reply to meta::Grow" => {
            let reply =
                meta::GrowReply { inode: inode(), layout: layout(), cap: capability(), switched: true };
            vec![reply.to_bytes()]
        }
        "reply to meta::Truncate" => {
            vec![meta::TruncateReply { inode: inode(), cap: None, pending: true }.to_bytes()]
        }
        "reply to meta::GetStripe" => {
            vec![meta::GetStripeReply { spec: None, inode: inode(), inline_max: 9 }.to_bytes()]
        }
        "reply to meta::ReadDir" => {
            let reply = meta::ReadDirReply { parent: Fid(1), entries: vec![entry(), entry()], more: true };
            vec![reply.to_bytes()]
        }
        "reply to meta::Scan" => {
            vec![meta::ScanReply { records: records(), last: b"k"[..].into(), more: false }.to_bytes()]
        }
        _ => vec![],
    }
}

/// One test, since the allocator's counters are shared by all threads of the binary.
#[test]
fn whatever_arrives_is_read_or_refused() {
    let mut dice = Dice(20_260_101);
    headers(&mut dice);
    let mut never = Vec::new();
    let mut calls = BTreeSet::new();
    macro_rules! run {
        (requests { $($request:path,)* } values { $($value:path,)* }) => {
            $(
                calls.insert(<$request as Request>::CALL);
                let name = stringify!($request).replace(' ', "");
                if hammer::<$request>(&name, &mut dice, &seeds(&name)) == 0 {
                    never.push(name.clone());
                }
                let name = format!("reply to {name}");
                if hammer::<<$request as Request>::Reply>(&name, &mut dice, &seeds(&name)) == 0 {
                    never.push(name);
                }
            )*
            $(
                let name = stringify!($value).replace(' ', "");
                if hammer::<$value>(&name, &mut dice, &seeds(&name)) == 0 {
                    never.push(name);
                }
            )*
        };
    }
    all_types!(run);
    assert!(never.is_empty(), "no input was ever accepted for {never:?}: add a seed");
    every_call_is_listed(&calls);
    long_lies_allocate_little();
}

/// A call that is added to the wire must be added here too.
fn every_call_is_listed(listed: &BTreeSet<u16>) {
    let all = [session::CALLS, meta::CALLS, object::CALLS, mgmt::CALLS].concat();
    let numbers: BTreeSet<u16> = all.iter().map(|(n, _)| *n).collect();
    assert_eq!(numbers.len(), all.len(), "no number is used twice");
    assert_eq!(&numbers, listed);
}

fn headers(dice: &mut Dice) {
    let mut accepted = 0;
    for round in 0..20_000 {
        let body = dice.bytes(round % 64);
        let good =
            Header { call: 0x0301, target: TargetId(4), bulk_len: 8, ..Header::default() }.encode(&body);
        let mut bytes = good.to_vec();
        if round % 4 == 0 {
            bytes = dice.bytes(HEADER_LEN);
            bytes[..6].copy_from_slice(&good[..6]);
        }
        for _ in 0..dice.below(4) {
            let at = dice.below(HEADER_LEN);
            bytes[at] = dice.next() as u8;
        }
        let raw: [u8; HEADER_LEN] = bytes.try_into().expect("as long as a header");
        let Ok(head) = Header::decode(&raw) else { continue };
        assert!(head.body_len as usize <= BODY_MAX && head.bulk_len as usize <= BULK_MAX);
        if head.body_len as usize == body.len() && Header::verify(&raw, &body).is_ok() {
            accepted += 1;
            assert_eq!(head.encode(&body), raw, "one header, two byte forms");
        }
    }
    assert!(accepted > 1000, "{accepted}");
}

/// Lists that claim as many elements as there are bytes, at the size of the largest body.
fn long_lies_allocate_little() {
    let mut bytes = vec![0u8; 1 << 20];
    let count = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&count.to_le_bytes());
    assert_eq!(try_one::<Vec<meta::ScanRecord>>("scan records", &bytes), None);
    assert_eq!(try_one::<Vec<meta::DirEntry>>("entries", &bytes), None);
    assert_eq!(try_one::<Vec<map::Node>>("nodes", &bytes), None);
    assert_eq!(try_one::<Vec<Uuid>>("uuids", &bytes), None);
    assert_eq!(try_one::<Vec<Bytes>>("byte strings", &bytes), None);
}
