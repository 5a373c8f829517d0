//! Records of the table that no MDT wrote.

use std::fmt::Debug;

use hammer::Hammer;
use meta::records::{self, EntryRecord, InlinePage, InodeRecord, Parent};
use meta::totals::Totals;
use meta::xattr::XattrsRecord;
use types::*;
use wire::Malformed;
use wire::meta::{FileState, StripeComponent, StripeSpec};

/// What is accepted is written back to the same bytes.
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

#[test]
fn inodes() {
    let mut striped = inode(Kind::File);
    striped.state = FileState::Truncating { session: SessionId(9), size: 3 };
    striped.parents.push(Parent { fid: Fid::ROOT, h64: 77, collision: 4 });
    striped.layout = Some(layout(4));
    striped.pending = Some(layout(1));
    let mut dir = inode(Kind::Dir);
    let component = StripeComponent { end: u64::MAX, stripe_size: 1 << 20, stripe_count: 4, start: 0 };
    dir.spec = Some(StripeSpec { components: vec![component], inline_max: Some(0) });
    let mut link = inode(Kind::Symlink);
    link.target = b"to/there".to_vec();
    let seeds = [striped, dir, link].iter().map(InodeRecord::encode).collect();
    strike("inode", seeds, InodeRecord::decode, InodeRecord::encode);
}

#[test]
fn entries() {
    let entry = EntryRecord { fid: Fid(0x1234), kind: Kind::Symlink, name: b"name".to_vec() };
    strike("entry", vec![entry.encode()], EntryRecord::decode, EntryRecord::encode);
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
