//! Bytes of the superblock.

use super::*;
use crate::{MemDisk, SplitMix};

mod hammered;

fn superblock() -> Superblock {
    let label = Label {
        kind: Kind::Mdt,
        fs_name: "scratch".into(),
        fs_uuid: Uuid(std::array::from_fn(|i| i as u8)),
        uuid: Uuid(std::array::from_fn(|i| 0xf0 + i as u8)),
        target: TargetId(0x0102_0304),
        index: 5,
        mirror: MirrorId(6),
        epoch: Epoch(7),
    };
    let region = |begin, bytes| Region { begin, bytes };
    Superblock {
        compat: 0,
        ro_compat: 0,
        incompat: 0,
        generation: 11,
        label,
        clean: true,
        incarnation: Incarnation(12),
        cut_pos: 0x1300,
        cut_incarnation: Incarnation(12),
        regions: Regions {
            log: region(0x2_0000, 0x10_0000),
            slots: [region(0x12_0000, 0x8000), region(0x12_8000, 0x8000)],
            data: region(0x20_0000, 0x60_0000),
        },
        log_start: LogPoint { pos: 0x1240, seq: Seq(0x55) },
        flushed_seq: Seq(0x66),
        prepared: 0x8_0000,
        checkpoint: Some(CheckpointRef {
            slot: 1,
            stream_bytes: 0x1040,
            payload_bytes: 0x1000,
            seq: Seq(0x55),
            crc: 0xcafe_f00d,
        }),
        medium_bytes: 0x80_0000,
        log_medium: None,
        note: Vec::new(),
    }
}

/// The fields of version 1 (bytes 0 to 328); written once and never changed: old volumes hold them.
const GOLDEN: &str = "5354524941564f4c01000000000000000000000000000000000000000000000000000000000000000b00000000000000\
    000102030405060708090a0b0c0d0e0ff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff01010700040302010500000006000000\
    070000000c00000000130000000000000c00000000000000000002000000000000001000000000000000120000000000\
    008000000000000000801200000000000080000000000000000020000000000000006000000000004012000000000000\
    550000000000000066000000000000000000080000000000020000000000000040100000000000000010000000000000\
    55000000000000000df0feca000000007363726174636800000000000000000000000000000000000000000000000000\
    00000000000000000000000000000000000000000000000000000000000000000000800000000000";
/// The CRC of the whole block, its last four bytes.
const GOLDEN_CRC: &str = "ccf54a4b";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn the_bytes_are_as_documented() {
    let block = superblock().encode();
    assert_eq!(block.len(), SUPERBLOCK_BYTES);
    assert_eq!(hex(&block[..328]), GOLDEN);
    assert!(block[328..SUPERBLOCK_BYTES - 4].iter().all(|b| *b == 0));
    assert_eq!(hex(&block[SUPERBLOCK_BYTES - 4..]), GOLDEN_CRC);
    assert_eq!(decode(&block).unwrap(), superblock());
    // With the log on a medium of its own: its ring has positions there.
    let medium = LogMedium { uuid: Uuid([0xab; 16]), bytes: 0x20_0000 };
    let log_medium = Some(medium);
    let with = Superblock { incompat: LOG_ELSEWHERE, log_medium, ..superblock() };
    let block = with.encode();
    assert_eq!(hex(&block[328..352]), "abababababababababababababababab0000200000000000");
    assert_eq!(decode(&block).unwrap(), with);
    let too_small = Some(LogMedium { bytes: 0x1000, ..medium });
    assert!(decode(&Superblock { log_medium: too_small, ..with }.encode()).is_err());
    let without = Superblock { checkpoint: None, ..superblock() };
    assert_eq!(decode(&without.encode()).unwrap(), without);
}

#[test]
fn the_bytes_of_a_note_are_as_documented() {
    let with = Superblock { incompat: NOTE, note: vec![0xab, 0xcd, 0xef], ..superblock() };
    let block = with.encode();
    assert_eq!((hex(&block[32..40]), hex(&block[328..352])), ("0800000000000000".into(), "0".repeat(48)));
    assert_eq!(hex(&block[352..360]), "03000000abcdef00");
    assert!(block[360..SUPERBLOCK_BYTES - 4].iter().all(|b| *b == 0));
    assert_eq!(decode(&block).unwrap(), with);
    let longest = Superblock { note: vec![7; NOTE_BYTES_MAX], ..with.clone() };
    assert_eq!(decode(&longest.encode()).unwrap(), longest);
    // Lengths that cannot be, and bytes where there is nothing.
    for (at, byte) in [(352, 0), (353, 9), (354, 1), (359, 1), (4000, 1)] {
        let mut wrong = block.clone();
        wrong[at] = byte;
        seal(&mut wrong);
        assert!(decode(&wrong).is_err(), "byte {at}");
    }
}

#[test]
fn the_higher_generation_counts_wherever_it_lies() {
    for (first, second) in [(11, 12), (12, 11)] {
        let disk = MemDisk::new(1 << 20);
        for (place, generation) in PLACES.into_iter().zip([first, second]) {
            disk.write_at(&Superblock { generation, ..superblock() }.encode(), place).unwrap();
        }
        let found = read(&disk).unwrap();
        assert_eq!((found.best.unwrap().generation, found.copies_good), (12, 2));
    }
    assert_eq!((place_of(12), place_of(13)), (0, 65536));
}

#[test]
fn a_newer_one_that_cannot_be_understood_is_not_passed_over() {
    let disk = MemDisk::new(1 << 20);
    disk.write_at(&superblock().encode(), PLACES[1]).unwrap();
    let mut newer = Superblock { generation: 12, ..superblock() }.encode();
    put_u32(&mut newer, 8, 2);
    seal(&mut newer);
    disk.write_at(&newer, PLACES[0]).unwrap();
    assert!(read(&disk).is_err_and(|e| e.to_string().contains("version 2")));
}

#[test]
fn unknown_features_are_ignored_forbid_writing_or_refuse() {
    let with = |compat, ro_compat, incompat| {
        let sb = Superblock { compat, ro_compat, incompat, ..superblock() };
        let back = decode(&sb.encode()).unwrap();
        assert_eq!(back, sb);
        [back.check_features(false).is_ok(), back.check_features(true).is_ok()]
    };
    assert_eq!(with(0, 0, 0), [true, true]);
    assert_eq!(with(1 << 9, 0, 0), [true, true]);
    assert_eq!(with(0, 1, 0), [false, true]);
    assert_eq!(with(0, 0, 1 << 63), [false, false]);
}

/// Another release may divide the medium differently, and have other kinds, numbers and flags: the error names its feature.
#[test]
fn an_unknown_feature_is_named_whatever_it_makes_of_the_fields() {
    type Spoil<'a> = &'a dyn Fn(&mut Vec<u8>);
    let refusal = |incompat: u64, spoil: Spoil<'_>| {
        let mut block = Superblock { incompat, ..superblock() }.encode();
        spoil(&mut block);
        seal(&mut block);
        let disk = MemDisk::new(8 << 20);
        PLACES.into_iter().for_each(|place| disk.write_at(&block, place).unwrap());
        read(&disk).err().expect("what is spoilt is refused").to_string()
    };
    let field = |at: usize, value: u64| move |b: &mut Vec<u8>| put_u64(b, at, value);
    let byte = |at: usize, value: u8| move |b: &mut Vec<u8>| b[at] = value;
    let spoils: [Spoil<'_>; 9] = [
        &field(120, 4096),
        &field(128, u64::MAX),
        &field(168, u64::MAX),
        &field(184, 0x1244),
        &field(200, u64::MAX),
        &field(224, u64::MAX),
        &byte(80, 3),
        &byte(81, 2),
        &byte(216, 3),
    ];
    for (i, spoil) in spoils.into_iter().enumerate() {
        assert!(refusal(0, spoil).contains("superblock is malformed"), "{i}");
        let said = refusal(1 << 40, spoil);
        assert!(
            said.contains("needs a newer release: unknown incompatible features 0x10000000000"),
            "{i}: {said}"
        );
        // Features that are known are not named.
        assert!(refusal(1 << 40 | LOG_ELSEWHERE, spoil).ends_with("features 0x10000000000"), "{i}");
    }
}

#[test]
fn every_flipped_bit_unmakes_the_copy() {
    let block = superblock().encode();
    assert!(counts(&block));
    for byte in 0..SUPERBLOCK_BYTES {
        let mut torn = block.clone();
        torn[byte] ^= 1 << (byte % 8);
        assert!(!counts(&torn), "byte {byte}");
    }
}

#[test]
fn no_content_panics_and_what_is_accepted_holds_its_promises() {
    let mut rng = SplitMix::new(2);
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut block = superblock().encode();
        for _ in 0..1 + rng.below(3) {
            let n = rng.next_u64();
            let at = rng.below(FIELDS_END as u64 + 8) as usize;
            match rng.below(3) {
                0 => block[at] = n as u8,
                1 => block[at] ^= 1 << (n % 8),
                _ => put_u64(&mut block, at / 8 * 8, if n & 1 == 0 { u64::MAX } else { n }),
            }
        }
        // With a valid checksum, so that the fields themselves are checked.
        seal(&mut block);
        let Ok(sb) = decode(&block) else { continue };
        accepted += 1;
        assert!(sb.regions.are_valid(sb.medium_bytes, sb.log_medium));
        assert_eq!(decode(&sb.encode()).unwrap(), sb);
    }
    assert!((1000..20_000).contains(&accepted));
}

#[test]
fn nonsense_is_refused() {
    let refused = |spoil: &dyn Fn(&mut Superblock)| {
        let mut sb = superblock();
        spoil(&mut sb);
        decode(&sb.encode()).is_err()
    };
    assert!(refused(&|sb| sb.regions.log.begin = 4096));
    assert!(refused(&|sb| sb.regions.log.bytes += 512));
    assert!(refused(&|sb| sb.regions.slots[0].bytes += 1));
    assert!(refused(&|sb| sb.regions.data.bytes += 1));
    assert!(refused(&|sb| sb.log_start.pos += 4));
    assert!(refused(&|sb| sb.log_start.pos = u64::MAX - 7));
    assert!(refused(&|sb| sb.checkpoint.as_mut().unwrap().stream_bytes = 0x8001));
    assert!(refused(&|sb| sb.label.fs_name.clear()));
    assert!(!refused(&|sb| sb.label.fs_name = "n".repeat(FS_NAME_BYTES)));
    assert!(!refused(&|sb| sb.clean = false));
}
