//! The table of signatures: magic bytes at the offsets that the formats' own documents give.

use std::io;

use super::Probe;

/// A format that is recognised by one string at one place.
struct Plain {
    name: &'static str,
    offset: u64,
    magic: &'static [u8],
    /// The place of its label, if it has one worth showing: offset and bytes.
    label: Option<(u64, usize)>,
}

const fn plain(name: &'static str, offset: u64, magic: &'static [u8]) -> Plain {
    Plain { name, offset, magic, label: None }
}

const fn labelled(name: &'static str, offset: u64, magic: &'static [u8], label: u64, len: usize) -> Plain {
    Plain { name, offset, magic, label: Some((label, len)) }
}

const PLAIN: &[Plain] = &[
    labelled("XFS file system", 0, b"XFSB", 108, 12),
    labelled("Btrfs file system", 65_600, b"_BHRfS_M", 65_536 + 299, 256),
    labelled("F2FS file system", 1024, &[0x10, 0x20, 0xf5, 0xf2], 0, 0),
    labelled("swap space", 4086, b"SWAPSPACE2", 1052, 16),
    labelled("swap space of 64 KiB pages", 65_526, b"SWAPSPACE2", 1052, 16),
    plain("swap space of an old kind", 4086, b"SWAP-SPACE"),
    plain("LUKS encrypted volume", 0, b"LUKS\xba\xbe"),
    plain("LUKS encrypted volume (second header)", 16_384, b"SKUL\xba\xbe"),
    plain("Ceph BlueStore device", 0, b"bluestore block device\n"),
    plain("bcachefs file system", 4120, &BCACHEFS),
    plain("bcache device", 4120, &BCACHE),
    plain("Linux RAID member (md 1.1)", 0, &MD),
    plain("Linux RAID member (md 1.2)", 4096, &MD),
    plain("GFS2 file system", 65_536, &[0x01, 0x16, 0x19, 0x70]),
    plain("OCFS2 file system", 8192, b"OCFSV2"),
    plain("ReiserFS file system", 65_588, b"ReIsEr"),
    plain("JFS file system", 32_768, b"JFS1"),
    plain("NILFS2 file system", 1030, &[0x34, 0x34]),
    plain("ISO 9660 image", 32_769, b"CD001"),
    plain("SquashFS image", 0, b"hsqs"),
    plain("EROFS image", 1024, &[0xe2, 0xe1, 0xf5, 0xe0]),
    plain("APFS container", 32, b"NXSB"),
    plain("HFS+ file system", 1024, b"H+"),
    plain("NTFS file system", 3, b"NTFS    "),
    plain("exFAT file system", 3, b"EXFAT   "),
    labelled("FAT32 file system", 82, b"FAT32   ", 71, 11),
    labelled("FAT file system", 54, b"FAT16   ", 43, 11),
    labelled("FAT file system", 54, b"FAT12   ", 43, 11),
    plain("VMFS volume", 0x10_0000, &[0x0d, 0xd0, 0x01, 0xc0]),
];

/// c68573f6-66ce-90a9-d96a-60cf803df7ef
const BCACHEFS: [u8; 16] =
    [0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef];
/// c68573f6-4e1a-45ca-8265-f57f48ba6d81
const BCACHE: [u8; 16] =
    [0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81];
/// 0xa92b4efc, little-endian.
const MD: [u8; 4] = [0xfc, 0x4e, 0x2b, 0xa9];

#[cfg(test)]
pub(super) fn plain_names() -> impl Iterator<Item = &'static str> {
    PLAIN.iter().map(|s| s.name)
}

/// All recognised formats. A partition table comes last: content over the whole device is more specific.
pub fn find(p: &Probe<'_>) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    found.extend(ext(p)?);
    for s in PLAIN {
        if p.has(s.offset, s.magic)? {
            let label = s.label.map_or(Ok(String::new()), |(at, len)| p.text(at, len))?;
            found.push(named(s.name, &label));
        }
    }
    found.extend(lvm(p)?);
    found.extend(md_at_the_end(p)?);
    found.extend(zfs(p)?);
    found.extend(gpfs(p)?);
    found.extend(partitions(p)?);
    Ok(found)
}

fn named(name: &str, label: &str) -> String {
    if label.is_empty() { name.to_owned() } else { format!("{name}, label '{label}'") }
}

/// ext2, ext3, ext4 by their features; a Lustre target is an ext4 with a label of Lustre's form.
fn ext(p: &Probe<'_>) -> io::Result<Option<String>> {
    if !p.has(1080, &[0x53, 0xef])? {
        return Ok(None);
    }
    let word = |at: u64| -> io::Result<u32> {
        let b = p.at(1024 + at, 4)?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    };
    let (compat, incompat, ro_compat) = (word(92)?, word(96)?, word(100)?);
    // Beyond what ext2 and ext3 know: filetype, recover, journal device, meta_bg; sparse super, large file, btree dir.
    let is_ext4 = incompat & !0x1e != 0 || ro_compat & !0x7 != 0;
    let kind = match (is_ext4, compat & 4 != 0) {
        (true, _) => "ext4",
        (false, true) => "ext3",
        (false, false) => "ext2",
    };
    let label = p.text(1024 + 120, 16)?;
    let what = named(&format!("{kind} file system"), &label);
    Ok(Some(if is_lustre(&label) { format!("Lustre target ({what})") } else { what }))
}

/// `fsname-OST0000`; before its first mount the separator is another character.
fn is_lustre(label: &str) -> bool {
    let is_target = |kind: &str| {
        label.rsplit_once(kind).is_some_and(|(fs, index)| {
            fs.ends_with(['-', ':', '=']) && index.len() == 4 && index.bytes().all(|b| b.is_ascii_hexdigit())
        })
    };
    label == "MGS" || is_target("OST") || is_target("MDT")
}

/// The label of a physical volume lies in one of the first four sectors.
fn lvm(p: &Probe<'_>) -> io::Result<Option<String>> {
    for sector in 0..4 {
        if p.has(512 * sector, b"LABELONE")? && p.has(512 * sector + 24, b"LVM2 001")? {
            return Ok(Some("LVM physical volume".into()));
        }
    }
    Ok(None)
}

/// Metadata 1.0 lies 8 KiB before the end, on a 4 KiB border; 0.90 in the last whole 64 KiB but one.
fn md_at_the_end(p: &Probe<'_>) -> io::Result<Option<String>> {
    let sectors = p.size() / 512;
    let new = (sectors.saturating_sub(16) & !7) * 512;
    let old = (p.size() & !0xffff).saturating_sub(0x1_0000);
    Ok(match (p.has(new, &MD)?, p.has(old, &MD)?) {
        (true, _) => Some("Linux RAID member (md 1.0)".into()),
        (_, true) => Some("Linux RAID member (md 0.90)".into()),
        _ => None,
    })
}

/// Each of the four labels has a ring of uberblocks in its second half; which of them are written depends on time.
fn zfs(p: &Probe<'_>) -> io::Result<Option<String>> {
    const LABEL_BYTES: u64 = 256 << 10;
    let end = p.size() / LABEL_BYTES * LABEL_BYTES;
    let labels = [0, LABEL_BYTES, end.saturating_sub(2 * LABEL_BYTES), end.saturating_sub(LABEL_BYTES)];
    let magic = 0x00ba_b10c_u64;
    for label in labels {
        let ring = p.at(label + (128 << 10), 128 << 10)?;
        let is_uberblock = |b: &[u8]| b[..8] == magic.to_le_bytes() || b[..8] == magic.to_be_bytes();
        if ring.chunks(1024).any(is_uberblock) {
            return Ok(Some("ZFS member".into()));
        }
    }
    Ok(None)
}

/// A disk of IBM Storage Scale says so in words near its head.
fn gpfs(p: &Probe<'_>) -> io::Result<Option<String>> {
    let head = p.at(0, 32 << 10)?;
    let words = b"NSD descriptor for";
    Ok(head.windows(words.len()).any(|w| w == words).then(|| "IBM Storage Scale (GPFS) disk".into()))
}

fn partitions(p: &Probe<'_>) -> io::Result<Option<String>> {
    for sector_bytes in [512, 4096] {
        let last = (p.size() / sector_bytes).saturating_sub(1) * sector_bytes;
        if p.has(sector_bytes, b"EFI PART")? {
            return Ok(Some("GPT partition table".into()));
        }
        if p.has(last, b"EFI PART")? {
            return Ok(Some("GPT partition table (the copy at the end; the first is gone)".into()));
        }
    }
    // FAT, NTFS and boot loaders end in the same two bytes: a table has an entry with a type, and nothing odd as a status.
    let sector = p.at(0, 512)?;
    let entries: Vec<&[u8]> = sector[446..510].chunks(16).collect();
    let is_table = sector[510..] == [0x55, 0xaa]
        && entries.iter().all(|e| e[0] == 0 || e[0] == 0x80)
        && entries.iter().any(|e| e[4] != 0);
    Ok(is_table.then(|| {
        let count = entries.iter().filter(|e| e[4] != 0).count();
        format!("MBR partition table with {count} partition{}", if count == 1 { "" } else { "s" })
    }))
}
