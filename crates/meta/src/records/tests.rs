//! Golden bytes: the records' form may change only with `VERSION`.

use types::*;
use wire::meta::FileState;

use super::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn layout() -> Layout {
    let component =
        Component { end: u64::MAX, stripe_size: 1 << 20, mirrors: vec![MirrorId(7)], written: vec![1] };
    Layout { generation: Generation(2), components: vec![component] }
}

const LAYOUT: &str = "0200000001000000ffffffffffffffff000010000100000007000000010000000100000000000000";

#[test]
fn entry_bytes() {
    let entry = EntryRecord { fid: Fid(0x1234), kind: Kind::Symlink, name: b"name".to_vec() };
    assert_eq!(hex(&entry.encode()), "01341200000000000003".to_owned() + "6e616d65");
    assert_eq!(EntryRecord::decode(&entry.encode()), Ok(entry));
}

#[test]
fn inode_bytes() {
    let t = |sec| Time::new(sec, 1);
    let mut inode = InodeRecord::new(Attr {
        fid: Fid(0x10),
        kind: Kind::File,
        mode: 0o4644,
        uid: 1,
        gid: 2,
        nlink: 1,
        rdev: 0,
        size: 5,
        blocks: 8,
        atime: t(1),
        mtime: t(2),
        ctime: t(3),
        btime: t(-1),
    });
    inode.state = FileState::Truncating { session: SessionId(9), size: 3 };
    inode.generation = Generation(2);
    inode.parents.push(Parent { fid: Fid::ROOT, h64: 0x0102_0304_0506_0700, collision: 4 });
    inode.layout = Some(layout());
    inode.target = b"t".to_vec();
    inode.flags = wire::meta::FLAG_IMMUTABLE | LINKABLE;
    let acl = b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x04\0\x04\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff";
    inode.access_acl = crate::acl::Acl::from_xattr(acl).expect("an ACL");
    let want = [
        "01",
        "1000000000000000",
        "01",
        "a4090000",
        "01000000020000000100000000000000",
        "05000000000000000800000000000000",
        "010000000000000001000000",
        "020000000000000001000000",
        "030000000000000001000000",
        "ffffffffffffffff01000000",
        "02",
        "0900000000000000",
        "0300000000000000",
        "02000000",
        "01000000",
        "0100000000000000",
        "0007060504030201",
        "04",
        "01",
        LAYOUT,
        "00",
        "00",
        "0100000074",
        "000000000000000000000000",
        "10000080",
        "03000000",
        "01000600ffffffff",
        "04000400ffffffff",
        "20000000ffffffff",
        "00000000",
    ];
    assert_eq!(hex(&inode.encode()), want.concat());
    assert_eq!(InodeRecord::decode(&inode.encode()), Ok(inode.clone()));
    let bytes = inode.encode();
    for cut in 0..bytes.len() {
        assert!(InodeRecord::decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
}

#[test]
fn orphan_dead_and_total_bytes() {
    assert_eq!(hex(&encode_orphan(SessionId(0x0a0b))), "010b0a000000000000");
    assert_eq!(decode_orphan(&encode_orphan(SessionId(5))), Ok(SessionId(5)));
    assert_eq!(hex(&encode_dead(&layout())), "01".to_owned() + LAYOUT);
    assert_eq!(decode_dead(&encode_dead(&layout())), Ok(layout()));
    assert_eq!(hex(&crate::Totals { inodes: 3 }.encode()), "010300000000000000");
    assert!(decode_orphan(&[2; 9]).is_err() && decode_orphan(&[1; 10]).is_err());
}

#[test]
fn keys_are_pinned_and_ordered() {
    use crate::keys;
    let text = |k: Key| hex(k.as_bytes());
    assert_eq!(text(keys::entry(Fid(1), 0x0203_0405_0607_0800, 9)), "010000000000000001020304050607080009");
    assert_eq!(text(keys::inode(Fid(0x10))), "020000000000000010");
    assert_eq!(text(keys::inline(Fid(1), 2)), "03000000000000000100000002");
    assert_eq!(text(keys::dead(Fid(1), Generation(2))), "06000000000000000100000002");
    assert_eq!(text(keys::slot(SessionId(1), 2)), "08000000000000000100000002");
    assert!(keys::entry_after(Fid(1), 0x02ff) == keys::entry(Fid(1), 0x0300, 0));
    assert!(keys::entries_end(Fid(1)) <= keys::entry(Fid(2), 0, 0));
    assert!(keys::entries_end(Fid(u64::MAX)) > keys::entry(Fid(u64::MAX), u64::MAX, 255));
}

#[test]
fn inline_page_bytes() {
    // CRC32C of "hello", little-endian.
    assert_eq!(hex(&InlinePage::encode(b"hello")), "01".to_owned() + "4cbb719a" + "68656c6c6f");
    assert_eq!(InlinePage::decode(&InlinePage::encode(b"hello")), Ok(&b"hello"[..]));
}
