//! Each known content by its bytes; a medium of real tools' making is looked at by the story of `stria mkfs`.

use std::sync::Arc;

use super::*;
use crate::MemDisk;

const MEDIUM_BYTES: u64 = 4 << 20;

/// Bytes and where they lie.
type Part<'a> = (u64, &'a [u8]);

fn holding(parts: &[Part]) -> Content {
    let disk = MemDisk::new(MEDIUM_BYTES);
    parts.iter().for_each(|(at, bytes)| disk.write_at(bytes, *at).unwrap());
    look(&disk).unwrap()
}

fn shown(parts: &[Part]) -> String {
    holding(parts).to_string()
}

#[test]
fn nothing_is_blank_and_any_byte_of_the_first_mib_is_something() {
    assert_eq!(holding(&[]), Content::Blank);
    assert_eq!(holding(&[(HEAD_BYTES - 1, b"x")]), Content::Unknown);
    assert_eq!(holding(&[(HEAD_BYTES, b"x")]), Content::Blank);
    assert_eq!(look(&MemDisk::new(0)).unwrap(), Content::Blank, "what is too small for any of it");
}

#[test]
fn what_others_put_on_a_device_is_known_by_name() {
    let mut ext4 = vec![0; 1024];
    ext4[56..58].copy_from_slice(&[0x53, 0xef]);
    ext4[92] = 4;
    ext4[96] = 0x40;
    ext4[120..124].copy_from_slice(b"home");
    assert_eq!(shown(&[(1024, &ext4)]), "ext4 file system, label 'home'");
    ext4[96] = 0;
    assert_eq!(shown(&[(1024, &ext4)]), "ext3 file system, label 'home'");
    ext4[92] = 0;
    ext4[120..136].copy_from_slice(b"scratch-OST001f\0");
    assert_eq!(shown(&[(1024, &ext4)]), "Lustre target (ext2 file system, label 'scratch-OST001f')");
    let cases: &[(&str, &[Part])] = &[
        ("XFS file system, label 'data'", &[(0, b"XFSB"), (108, b"data")]),
        ("Btrfs file system", &[(65_600, b"_BHRfS_M")]),
        ("swap space", &[(4086, b"SWAPSPACE2")]),
        ("LVM physical volume", &[(512, b"LABELONE"), (536, b"LVM2 001")]),
        ("LUKS encrypted volume", &[(0, b"LUKS\xba\xbe\x00\x02")]),
        ("Linux RAID member (md 1.2)", &[(4096, b"\xfc\x4e\x2b\xa9")]),
        ("Linux RAID member (md 1.0)", &[(MEDIUM_BYTES - 8192, b"\xfc\x4e\x2b\xa9")]),
        ("Linux RAID member (md 0.90)", &[(MEDIUM_BYTES - 65_536, b"\xfc\x4e\x2b\xa9")]),
        ("Ceph BlueStore device", &[(0, b"bluestore block device\n7")]),
        ("ZFS member", &[((128 << 10) + 5 * 1024, b"\x0c\xb1\xba\x00\0\0\0\0")]),
        ("ZFS member", &[(MEDIUM_BYTES - (128 << 10), b"\0\0\0\0\x00\xba\xb1\x0c")]),
        ("IBM Storage Scale (GPFS) disk", &[(1024, b"NSD descriptor for /dev/sdb created by GPFS")]),
        ("GPT partition table", &[(512, b"EFI PART")]),
        ("GPT partition table", &[(4096, b"EFI PART")]),
        (
            "GPT partition table (the copy at the end; the first is gone)",
            &[(MEDIUM_BYTES - 512, b"EFI PART")],
        ),
        ("MBR partition table with 1 partition", &[(450, b"\x83"), (510, b"\x55\xaa")]),
    ];
    for (name, parts) in cases {
        assert_eq!(&shown(parts), name);
    }
}

#[test]
fn a_boot_sector_is_no_table_and_a_label_cannot_write_to_the_terminal() {
    assert_eq!(holding(&[(510, b"\x55\xaa")]), Content::Unknown);
    assert_eq!(shown(&[(0, b"XFSB"), (108, b"\x1b[2Jx\n")]), "XFS file system, label '[2Jx'");
}

#[test]
fn a_target_says_which_it_is() {
    let disk = Arc::new(MemDisk::new(MEDIUM_BYTES));
    let label = Label { index: 31, ..crate::volume::tests::label() };
    let format = crate::Format { label: label.clone(), log_bytes: 65_536, checkpoint_bytes: 65_536 };
    Volume::format(&*disk, &format, false).unwrap();
    let content = look(&*disk).unwrap();
    assert_eq!(content, Content::Target(Box::new(label)));
    let text = content.to_string();
    assert!(text.starts_with("Stria OST 31 of file system 'scratch', uuid 02"), "{text}");
    // Its two superblocks overwritten, it is something still.
    for place in [0, 65_536] {
        disk.write_at(b"rubbish", place).unwrap();
    }
    assert_eq!(look(&*disk).unwrap(), Content::Unknown);
}

/// A target made by `format`, and on it what these parts say.
fn target_under(parts: &[Part]) -> Arc<MemDisk> {
    let disk = Arc::new(MemDisk::new(MEDIUM_BYTES));
    let label = crate::volume::tests::label();
    Volume::format(&*disk, &crate::Format { label, log_bytes: 65_536, checkpoint_bytes: 65_536 }, false)
        .unwrap();
    parts.iter().for_each(|(at, bytes)| disk.write_at(bytes, *at).unwrap());
    disk
}

#[test]
fn one_copy_that_survived_does_not_hide_who_came_after() {
    let whole = target_under(&[]);
    let target = look(&*whole).unwrap().to_string();
    let end = MEDIUM_BYTES - 8192;
    let rest = [7; 512];
    let cases: &[(&str, &[Part])] = &[
        ("XFS file system, label 'data'", &[(0, b"XFSB"), (108, b"data")]),
        ("Linux RAID member (md 1.2)", &[(0, b"x"), (4096, b"\xfc\x4e\x2b\xa9")]),
        ("Btrfs file system", &[(65_600, b"_BHRfS_M")]),
        ("GPT partition table", &[(512, b"EFI PART")]),
        // Found in log and data too, once other data was written between the copies.
        ("Linux RAID member (md 1.0)", &[(0, b"x"), (8192, &rest), (end, b"\xfc\x4e\x2b\xa9")]),
        (
            "ZFS member",
            &[(65_536, b"x"), (16_384, &rest), ((128 << 10) + 5 * 1024, b"\x0c\xb1\xba\x00\0\0\0\0")],
        ),
    ];
    for (name, parts) in cases {
        let left = format!("{target}, of which one of two copies is left");
        let both = vec![(*name).to_owned(), left];
        assert_eq!(look(&*target_under(parts)).unwrap(), Content::Foreign(both), "{name}");
    }
}

#[test]
fn one_copy_of_a_logs_label_does_not_hide_it_either() {
    let (main, log) = (MemDisk::new(MEDIUM_BYTES), MemDisk::new(MEDIUM_BYTES));
    let label = crate::volume::tests::label();
    let format = crate::Format { label, log_bytes: 65_536, checkpoint_bytes: 65_536 };
    let new = crate::NewLog { disk: &log, uuid: types::Uuid([9; 16]) };
    Volume::format_on(&main, Some(new), &format, false).unwrap();
    assert!(matches!(look(&log).unwrap(), Content::Log(_)));
    log.write_at(b"LUKS\xba\xbe\x00\x02", 0).unwrap();
    let said = look(&log).unwrap().to_string();
    assert!(said.starts_with("LUKS encrypted volume; log 09"), "{said}");
    assert!(said.ends_with("of which one of two copies is left"), "{said}");
}

#[test]
fn what_a_user_wrote_is_no_stranger_and_a_lost_copy_alone_no_reason() {
    let is_target = |disk: &dyn Disk| matches!(look(disk).unwrap(), Content::Target(_));
    let end = MEDIUM_BYTES - 8192;
    let pages: [Part; 2] =
        [((128 << 10) + 5 * 1024, b"\x0c\xb1\xba\x00\0\0\0\0"), (end, b"\xfc\x4e\x2b\xa9")];
    assert!(is_target(&*target_under(&pages)), "both copies are good");
    for torn in PLACES {
        assert!(is_target(&*target_under(&[(torn, b"torn")])));
        assert!(is_target(&*target_under(&[(torn, b"torn"), pages[0], pages[1]])), "in its log and its data");
        let disk = crate::FaultyDisk::new(target_under(&pages));
        disk.make_unreadable(torn..torn + 512);
        assert!(is_target(&disk), "a bad sector is what the other copy is for");
    }
}

/// All of the table, each at its place as its own document gives it, and what differs in one byte or lies one byte away.
#[test]
fn every_signature_is_known_at_its_place_and_nowhere_else() {
    const BCACHE: &[u8] = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
    const BCACHEFS: &[u8] = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";
    let table: &[(&str, u64, &[u8])] = &[
        ("XFS file system", 0, b"XFSB"),
        ("Btrfs file system", 0x1_0040, b"_BHRfS_M"),
        ("F2FS file system", 1024, b"\x10\x20\xf5\xf2"),
        ("swap space", 4096 - 10, b"SWAPSPACE2"),
        ("swap space of 64 KiB pages", 65_536 - 10, b"SWAPSPACE2"),
        ("swap space of an old kind", 4096 - 10, b"SWAP-SPACE"),
        ("LUKS encrypted volume", 0, b"LUKS\xba\xbe"),
        ("LUKS encrypted volume (second header)", 0x4000, b"SKUL\xba\xbe"),
        ("Ceph BlueStore device", 0, b"bluestore block device\n"),
        ("bcachefs file system", 4096 + 24, BCACHEFS),
        ("bcache device", 4096 + 24, BCACHE),
        ("Linux RAID member (md 1.1)", 0, b"\xfc\x4e\x2b\xa9"),
        ("Linux RAID member (md 1.2)", 4096, b"\xfc\x4e\x2b\xa9"),
        ("GFS2 file system", 65_536, b"\x01\x16\x19\x70"),
        ("OCFS2 file system", 8192, b"OCFSV2"),
        ("ReiserFS file system", 65_536 + 52, b"ReIsEr"),
        ("JFS file system", 32_768, b"JFS1"),
        ("NILFS2 file system", 1024 + 6, b"\x34\x34"),
        ("ISO 9660 image", 32_768 + 1, b"CD001"),
        ("SquashFS image", 0, b"hsqs"),
        ("EROFS image", 1024, b"\xe2\xe1\xf5\xe0"),
        ("APFS container", 32, b"NXSB"),
        ("HFS+ file system", 1024, b"H+"),
        ("NTFS file system", 3, b"NTFS    "),
        ("exFAT file system", 3, b"EXFAT   "),
        ("FAT32 file system", 82, b"FAT32   "),
        ("FAT file system", 54, b"FAT16   "),
        ("FAT file system", 54, b"FAT12   "),
        ("VMFS volume", 1 << 20, b"\x0d\xd0\x01\xc0"),
    ];
    let named: std::collections::BTreeSet<&str> = table.iter().map(|(name, ..)| *name).collect();
    let known: std::collections::BTreeSet<&str> = signatures::plain_names().collect();
    assert_eq!(named, known, "a signature of the table has its line here");
    for (name, at, magic) in table {
        assert_eq!(holding(&[(*at, magic)]), Content::Foreign(vec![(*name).to_owned()]), "{name}");
        for i in 0..magic.len() {
            let mut other = magic.to_vec();
            other[i] ^= 0x20;
            let seen = holding(&[(*at, &other)]);
            assert!(!matches!(seen, Content::Foreign(_)), "{name} with byte {i} changed is {seen}");
        }
        let seen = holding(&[(at + 1, magic)]);
        assert!(!matches!(seen, Content::Foreign(_)), "{name} a byte further is {seen}");
        // Cut off by the medium's end, it is not there.
        let short = MemDisk::new(at + magic.len() as u64 - 1);
        short.write_at(&magic[..magic.len() - 1], *at).unwrap();
        assert!(!matches!(look(&short).unwrap(), Content::Foreign(_)), "{name} at the end");
    }
}

#[test]
fn near_misses_are_nobodys() {
    let cases: &[&[Part]] = &[
        // The first half of a label of LVM, its second half in another sector, and both behind the first four.
        &[(512, b"LABELONE")],
        &[(512, b"LABELONE"), (1024 + 24, b"LVM2 001")],
        &[(4 * 512, b"LABELONE"), (4 * 512 + 24, b"LVM2 001")],
        // RAID by a place that is not one.
        &[(MEDIUM_BYTES - 8192 + 4, b"\xfc\x4e\x2b\xa9")],
        &[(MEDIUM_BYTES - 65_536 + 512, b"\xfc\x4e\x2b\xa9")],
        // An uberblock in the first half of a label, or between two.
        &[((64 << 10), b"\x0c\xb1\xba\x00\0\0\0\0")],
        &[((128 << 10) + 512, b"\x0c\xb1\xba\x00\0\0\0\0")],
        // A partition table with an odd status, with no entry, without its end.
        &[(446, b"\x01\0\0\0\x83"), (510, b"\x55\xaa")],
        &[(446, b"\x80"), (510, b"\x55\xaa")],
        &[(450, b"\x83")],
        &[(512, b"EFI PARK")],
        &[(1024, b"NSD descriptor fox")],
        // The magic number of ext with its bytes in the wrong order.
        &[(1080, b"\xef\x53")],
    ];
    for parts in cases {
        let seen = holding(parts);
        assert!(matches!(seen, Content::Unknown | Content::Blank), "{parts:02x?} is {seen}");
    }
    // A label that only looks like one of Lustre's.
    for label in [&b"scratch-OST1"[..], b"OST0001", b"scratchOST0001", b"a-OSTzzzz", b"MGSX"] {
        let mut ext = vec![0; 1024];
        ext[56..58].copy_from_slice(&[0x53, 0xef]);
        ext[120..120 + label.len()].copy_from_slice(label);
        let said = shown(&[(1024, &ext)]);
        assert!(said.starts_with("ext2 file system, label"), "{said}");
    }
}
