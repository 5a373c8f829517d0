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
        // Found in log and data too, once somebody has written between the copies.
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
