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
    assert_eq!(hex(&entry.encode()), "0203b424".to_owned() + "6e616d65");
    assert_eq!(EntryRecord::decode(&entry.encode()), Ok(entry.clone()));
    assert_eq!(EntryRecord::decode(&bytes("013412000000000000036e616d65")), Ok(entry), "version 1");
    for bad in ["0303b4246e", "0203b424", "0203b4a4006e", "0208b4246e", "02"] {
        assert!(EntryRecord::decode(&bytes(bad)).is_err(), "{bad}");
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// An inode with something to say in every field.
fn full() -> InodeRecord {
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
    inode
}

/// Version 1, as programs before version 2 wrote it.
const FULL_V1: [&str; 30] = [
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

#[test]
fn inode_bytes() {
    // (what, bytes)
    let want = [
        ("version", "02"),
        ("present: target size blocks, times, state, generation, layout, flags, ACLs", "e7ce"),
        ("kind and mode", "a419"),
        ("parents", "01"),
        ("the first", "01"),
        ("its cookie", "0407060504030201"),
        ("target", "0174"),
        ("size, blocks", "0508"),
        ("uid, gid", "0102"),
        ("btime", "0101000000"),
        ("atime, 2 s later", "80d0acf30e"),
        ("mtime", "80f882ad16"),
        ("ctime", "80a0d9e61d"),
        ("state", "0209000000000000000300000000000000"),
        ("generation", "02"),
        ("layout: generation, components, end, 2^20, mirrors, written", "0201"),
        ("", "0014010701"),
        ("", "01"),
        ("flags", "9080808008"),
        ("access ACL", "03000000"),
        ("", "01000600ffffffff"),
        ("", "04000400ffffffff"),
        ("", "20000000ffffffff"),
        ("default ACL", "00000000"),
    ];
    let inode = full();
    assert_eq!(hex(&inode.encode()), want.map(|field| field.1).concat());
    assert_eq!(InodeRecord::decode(Fid(0x10), &inode.encode()), Ok(inode.clone()));
    let whole = inode.encode();
    for cut in 0..whole.len() {
        assert!(InodeRecord::decode(Fid(0x10), &whole[..cut]).is_err(), "cut at {cut}");
    }
}

#[test]
fn version_1_is_read() {
    let old = bytes(&FULL_V1.concat());
    assert_eq!(InodeRecord::decode(Fid(0x10), &old), Ok(full()));
    assert!(InodeRecord::decode(Fid(0x11), &old).is_err(), "version 1 says whose it is");
    for cut in 0..old.len() {
        assert!(InodeRecord::decode(Fid(0x10), &old[..cut]).is_err(), "cut at {cut}");
    }
}

/// As the format document states, most inodes have a few fields only.
#[test]
fn an_inode_of_a_typical_file_is_short() {
    let born = Time::new(1_790_000_000, 123_456_789);
    let written = Time::new(1_790_000_000, 223_456_789);
    let attr = Attr { size: 4096, blocks: 8, mtime: written, ctime: written, ..attr(Kind::File, born) };
    let mut inode = InodeRecord::new(attr);
    inode.parents.push(Parent { fid: Fid(70_000), h64: types::hash::h64(b"f"), collision: 0 });
    assert_eq!(inode.encode().len(), 36);
    let empty = InodeRecord { attr: self::attr(Kind::File, born), ..inode };
    assert_eq!(empty.encode().len(), 30);
}

fn attr(kind: Kind, born: Time) -> Attr {
    let is_dir = kind == Kind::Dir;
    Attr {
        fid: Fid(0x10),
        kind,
        mode: 0o644,
        uid: 1000,
        gid: 1000,
        nlink: if is_dir { 2 } else { 1 },
        rdev: 0,
        size: if is_dir { 4096 } else { 0 },
        blocks: if is_dir { 8 } else { 0 },
        atime: born,
        mtime: born,
        ctime: born,
        btime: born,
    }
}

/// meta-RC1: a field that is present and says what its absence would.
#[test]
fn a_field_that_says_nothing_is_refused() {
    let plain = InodeRecord::new(attr(Kind::File, Time::default()));
    // Version, mask, kind and mode, no parents; then the field's place, by the order of the fields.
    let form = plain.encode();
    assert_eq!(hex(&form), "020000a41100e807e8070000000000");
    let cases = [
        ("target", 0, 6, "00"),
        ("size", 1, 6, "00"),
        ("blocks", 2, 6, "00"),
        ("nlink", 3, 10, "01"),
        ("rdev", 4, 10, "00"),
        ("atime", 5, 15, "00"),
        ("mtime", 6, 15, "00"),
        ("ctime", 7, 15, "00"),
        ("mtime set at", 8, 15, "00"),
        ("state", 9, 15, "00"),
        ("generation", 10, 15, "00"),
        ("flags", 14, 15, "00"),
        ("ACLs", 15, 15, "0000000000000000"),
    ];
    for (what, bit, at, field) in cases {
        let mut form = form.clone();
        form[1 + bit / 8] |= 1 << (bit % 8);
        form.splice(at..at, bytes(field));
        let refused = InodeRecord::decode(Fid(0x10), &form);
        assert_eq!(refused, Err(Malformed("a field that says nothing")), "{what}");
    }
}

/// Every field at random, usual values often: what is written is read.
#[test]
fn random_inodes_come_back() {
    let mut dice = hammer::Dice::new(11);
    for _ in 0..20_000 {
        let inode = random(&mut dice);
        let form = inode.encode();
        assert_eq!(InodeRecord::decode(inode.fid(), &form).as_ref(), Ok(&inode));
    }
}

fn random(dice: &mut hammer::Dice) -> InodeRecord {
    let kinds = [Kind::File, Kind::Dir, Kind::Symlink, Kind::Fifo, Kind::Socket, Kind::Char, Kind::Block];
    let kind = kinds[dice.below(7)];
    let mut attr = attr(kind, time(dice));
    attr.fid = Fid(dice.next() >> 14);
    let [a, m, c, s, b, n, r] = [(); 7].map(|()| dice.below(3) == 0);
    let number = |dice: &mut hammer::Dice| dice.next() >> dice.below(64);
    if a {
        attr.atime = time(dice);
    }
    if m {
        attr.mtime = time(dice);
    }
    attr.ctime = if c { time(dice) } else { attr.mtime };
    if s {
        attr.size = number(dice);
    }
    if b {
        attr.blocks = number(dice);
    }
    if n {
        attr.nlink = number(dice) as u32;
    }
    if r {
        attr.rdev = number(dice) as u32;
    }
    (attr.mode, attr.uid, attr.gid) = (dice.below(0o10000) as u32, number(dice) as u32, number(dice) as u32);
    let mut inode = InodeRecord::new(attr);
    for _ in 0..dice.below(4) {
        let (fid, cookie) = (Fid(number(dice)), dice.next());
        inode.parents.push(Parent { fid, h64: cookie & !0xff, collision: cookie as u8 });
    }
    let layout = |dice: &mut hammer::Dice| {
        let mirrors = (0..=dice.below(5)).map(|_| MirrorId(number(dice) as u32)).collect();
        let written = (0..dice.below(3)).map(|_| number(dice)).collect();
        let first = Component { end: 1 << 26, stripe_size: 1 << 16, mirrors, written };
        let last = Component { end: u64::MAX, stripe_size: 1 << 31, ..first.clone() };
        Layout { generation: Generation(number(dice) as u32), components: vec![first, last] }
    };
    if dice.below(3) == 0 {
        inode.layout = Some(layout(dice));
        inode.generation = Generation(number(dice) as u32);
    }
    if dice.below(9) == 0 {
        inode.pending = Some(layout(dice));
    }
    inode.state = match dice.below(6) {
        0 => FileState::Writing(SessionId(dice.next())),
        1 => FileState::Shared { era: dice.next(), proven: number(dice) },
        _ => FileState::Settled,
    };
    if dice.below(4) == 0 {
        inode.target = (0..dice.below(300)).map(|n| n as u8).collect();
        inode.mtime_set_at = time(dice);
        inode.flags = wire::meta::FLAG_NOATIME;
        inode.spec = Some(StripeSpec { components: vec![], inline_max: Some(7) });
    }
    inode
}

/// Mostly of this century; now and then as far away as a time can be.
fn time(dice: &mut hammer::Dice) -> Time {
    let nsec = dice.below(1_000_000_000) as u32;
    match dice.below(8) {
        0 => Time::new(dice.next() as i64, nsec),
        1 => Time::new(i64::MIN, 0),
        2 => Time::new(i64::MAX, 999_999_999),
        _ => Time::new(1_790_000_000 + dice.below(1000) as i64, nsec),
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
