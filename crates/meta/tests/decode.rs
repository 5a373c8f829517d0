//! Records of the table that no MDT wrote.

use std::fmt::Debug;

use hammer::Hammer;
use meta::records::{self, EntryRecord, InlinePage, InodeRecord, Parent};
use meta::totals::Totals;
use meta::xattr::XattrsRecord;
use types::*;
use wire::meta::{FileState, StripeComponent, StripeSpec};
use wire::{Malformed, Wire};

/// Every accepted input is encoded to the same bytes again.
fn strike<T: Debug>(
    name: &str,
    seeds: Vec<Vec<u8>>,
    decode: impl Fn(&[u8]) -> Result<T, Malformed>,
    encode: impl Fn(&T) -> Vec<u8>,
) {
    let outcome = Hammer::new(name).seeds(seeds).run(
        |bytes| decode(bytes).ok(),
        |bytes, value| {
            assert_eq!(encode(&value), bytes, "{name}: one record, two byte forms");
            bytes.len()
        },
    );
    assert!(outcome.accepted > outcome.inputs / 100, "{name}: {outcome:?}");
}

/// Both versions are read, and one is written: what is accepted comes back from the bytes that it is written to.
fn strike_versions<T: Debug + PartialEq>(
    name: &str,
    seeds: Vec<Vec<u8>>,
    decode: impl Fn(&[u8]) -> Result<T, Malformed>,
    encode: impl Fn(&T) -> Vec<u8>,
) {
    let outcome = Hammer::new(name).seeds(seeds).run(
        |bytes| decode(bytes).ok(),
        |bytes, value| {
            let written = encode(&value);
            match bytes[0] {
                records::COMPACT => assert_eq!(written, bytes, "{name}: one record, two byte forms"),
                _ => assert_eq!(decode(&written).as_ref(), Ok(&value), "{name}: version 1 was read wrongly"),
            }
            bytes.len()
        },
    );
    assert!(outcome.accepted > outcome.inputs / 100, "{name}: {outcome:?}");
}

fn layout(stripes: u32) -> Layout {
    let mirrors = (1..=stripes).map(MirrorId).collect();
    let component = Component { end: u64::MAX, stripe_size: 1 << 20, mirrors, written: vec![1] };
    Layout { generation: Generation(2), components: vec![component] }
}

fn inode(kind: Kind) -> InodeRecord {
    let t = Time::new(1, 2);
    let attr = Attr {
        fid: Fid(0x10),
        kind,
        mode: 0o644,
        uid: 1,
        gid: 2,
        nlink: 1,
        rdev: 0,
        size: 5,
        blocks: 8,
        atime: t,
        mtime: t,
        ctime: t,
        btime: t,
    };
    InodeRecord::new(attr)
}

/// Version 1 of an inode of which only the attributes say anything.
fn old_bytes(inode: &InodeRecord) -> Vec<u8> {
    let mut out = vec![records::VERSION];
    inode.attr.put(&mut out);
    // State and generation; no parents, layout, pending layout, striping, target; mtime_set_at, flags, two ACLs.
    out.resize(out.len() + 1 + 4 + 4 + 3 + 4 + 12 + 4 + 8, 0);
    out
}

#[test]
fn inodes() {
    let mut striped = inode(Kind::File);
    striped.state = FileState::Truncating { session: SessionId(9), size: 3 };
    striped.parents.push(Parent { fid: Fid::ROOT, h64: 77 << 8, collision: 4 });
    striped.layout = Some(layout(4));
    striped.pending = Some(layout(1));
    let acl = b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x04\0\x04\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff";
    striped.access_acl = meta::acl::Acl::from_xattr(acl).expect("an ACL");
    let mut dir = inode(Kind::Dir);
    let component = StripeComponent { end: u64::MAX, stripe_size: 1 << 20, stripe_count: 4, start: 0 };
    dir.spec = Some(StripeSpec { components: vec![component], inline_max: Some(0) });
    let mut link = inode(Kind::Symlink);
    link.target = b"to/there".to_vec();
    let old = old_bytes(&inode(Kind::File));
    assert_eq!(InodeRecord::decode(Fid(0x10), &old), Ok(inode(Kind::File)));
    let seeds = [striped, dir, link].iter().map(InodeRecord::encode).chain([old]).collect();
    strike_versions("inode", seeds, |bytes| InodeRecord::decode(Fid(0x10), bytes), InodeRecord::encode);
}

#[test]
fn entries() {
    let entry = EntryRecord { fid: Fid(0x1234), kind: Kind::Symlink, name: b"name".to_vec() };
    let old = [&[records::VERSION, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 3], &b"name"[..]].concat();
    strike_versions("entry", vec![entry.encode(), old], EntryRecord::decode, EntryRecord::encode);
}

#[test]
fn xattrs() {
    let record = XattrsRecord(vec![(b"user.a".to_vec(), b"1".to_vec()), (b"user.b".to_vec(), vec![])]);
    strike("xattrs", vec![record.encode()], XattrsRecord::decode, XattrsRecord::encode);
}

#[test]
fn orphans_dead_records_and_totals() {
    let orphan = |session: &SessionId| records::encode_orphan(*session);
    strike("orphan", vec![orphan(&SessionId(4))], records::decode_orphan, orphan);
    let seeds = vec![records::encode_dead(&layout(1)), records::encode_dead(&layout(9))];
    strike("dead record", seeds, records::decode_dead, records::encode_dead);
    strike("totals", vec![Totals { inodes: 7 }.encode()], Totals::decode, Totals::encode);
}

#[test]
fn inline_pages() {
    // A version byte, the checksum of what follows, the bytes.
    let repair = |bytes: &mut [u8]| {
        if bytes.len() >= 5 {
            let crc = types::crc::crc32c(&bytes[5..]);
            bytes[1..5].copy_from_slice(&crc.to_le_bytes());
        }
    };
    let seeds = [InlinePage::encode(b""), InlinePage::encode(b"content"), InlinePage::encode(&[3; 4096])];
    let hammer = Hammer::new("inline page").seeds(seeds).repair(&repair).bound(0, 0);
    let outcome = hammer.run(
        |bytes| InlinePage::decode(bytes).ok().map(<[u8]>::len),
        |bytes, len| {
            assert!(len <= PAGE_SIZE && len + 5 == bytes.len());
            bytes.len()
        },
    );
    assert!(outcome.accepted > outcome.inputs / 50, "{outcome:?}");
}
