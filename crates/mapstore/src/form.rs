//! The byte form of a stored map. The golden bytes are in the tests, the description in `docs/formats/map.md`.

use types::crc::crc32c;
use wire::codec::Bytes;
use wire::map::{ClusterMap, IdsUsed, Nodemap, Route};
use wire::{Malformed, Wire};

const MAGIC: [u8; 8] = *b"STRIAMAP";
/// Version of the file's form. Forms 1 and 2 are read as well; any other is refused.
pub const FORM_VERSION: u16 = 3;
const HEAD_LEN: usize = 32;

/// The file's bytes for `map`.
pub fn encode(map: &ClusterMap) -> Vec<u8> {
    let body = map.to_bytes();
    let mut out = Vec::with_capacity(HEAD_LEN + body.len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&FORM_VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 6]);
    out.extend_from_slice(&map.version.to_le_bytes());
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&file_crc(&out, &body).to_le_bytes());
    out.extend_from_slice(&body);
    out
}

/// Why a file cannot be read as a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Its bytes are not the ones that were written.
    Damaged(Malformed),
    /// The file is whole, in a form that this release does not know.
    OtherForm(u16),
}

impl From<Malformed> for Unreadable {
    fn from(what: Malformed) -> Unreadable {
        Unreadable::Damaged(what)
    }
}

/// Decodes a file of this form or an earlier one; checks magic, form, reserved bytes, length, CRC and that the versions agree.
pub fn decode(bytes: &[u8]) -> Result<ClusterMap, Unreadable> {
    let (head, body) = bytes.split_at_checked(HEAD_LEN).ok_or(Malformed("length of a map file"))?;
    if head[..8] != MAGIC {
        return Err(Malformed("magic of a map file").into());
    }
    let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
    if word(28) != file_crc(&head[..28], body) {
        return Err(Malformed("checksum of a map file").into());
    }
    // The checksum has the same place in every form and was right, so this is not a flipped bit.
    let form = u16::from_le_bytes([head[8], head[9]]);
    let read: fn(&[u8]) -> Result<ClusterMap, Malformed> = match form {
        1 => read_form_1,
        2 => read_form_2,
        FORM_VERSION => ClusterMap::from_bytes,
        _ => return Err(Unreadable::OtherForm(form)),
    };
    if head[10..16].iter().any(|b| *b != 0) {
        return Err(Malformed("reserved bytes of a map file").into());
    }
    if word(24) as usize != body.len() {
        return Err(Malformed("length of a map file").into());
    }
    let map = read(body)?;
    match map.version.to_le_bytes() == head[16..24] {
        true => Ok(map),
        false => Err(Malformed("version of a map file").into()),
    }
}

/// In form 1 the map ended behind its mirrors: entries were never removed, and there were no routes and nodemaps.
fn read_form_1(body: &[u8]) -> Result<ClusterMap, Malformed> {
    let mut form_2 = body.to_vec();
    IdsUsed::none().put(&mut form_2);
    Vec::<Route>::new().put(&mut form_2);
    Vec::<Nodemap>::new().put(&mut form_2);
    read_form_2(&form_2)
}

/// In form 2 the map ended behind its nodemaps: it had no revocation lists.
fn read_form_2(body: &[u8]) -> Result<ClusterMap, Malformed> {
    let mut whole = body.to_vec();
    Bytes::default().put(&mut whole);
    ClusterMap::from_bytes(&whole)
}

/// CRC32C over the head's first 28 bytes, rotated left by 1, xor the body's.
fn file_crc(head: &[u8], body: &[u8]) -> u32 {
    crc32c(head).rotate_left(1) ^ crc32c(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::sample;

    #[test]
    fn golden_bytes() {
        let bytes = encode(&sample(7));
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, GOLDEN.concat());
        assert_eq!(decode(&bytes), Ok(sample(7)));
    }

    /// Made by an independent program from `docs/formats/map.md`.
    const GOLDEN: &[&str] = &[
        "53545249414d415003000000000000000700000000000000640100004b32bd0c07000000000000000100000001000000",
        "0400000064656d6fa1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b200000100e8030000",
        "010000000100000000000000030000006f6e65010000001200000031302e302e302e313a373031314074637030010000",
        "0001000000010000000100000000c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3010000000000000001000000010000004000",
        "000000010000000100000001000000010200000001000000010000000100000004000000050000000000000006000000",
        "070000000100000004000000746370311200000031302e302e302e393a37303230407463703001000000010000000300",
        "00006c61620200000006000000636c69656e74040000006c61622a04000000746370310b00000031302e312e302e302f",
        "3136000101feff0000fdff000001000000e8030000881300000a00000001000000640000005802000001000000030000",
        "00300100",
    ];

    #[test]
    fn earlier_forms_are_read_as_maps_without_what_they_lacked() {
        let bytes = |hex: &[&str]| -> Vec<u8> {
            let hex = hex.concat();
            let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
            (0..hex.len()).step_by(2).map(byte).collect()
        };
        let form_2 = ClusterMap { crls: Bytes::default(), ..sample(7) };
        let form_1 =
            ClusterMap { ids_used: IdsUsed::none(), routes: vec![], nodemaps: vec![], ..form_2.clone() };
        for (hex, want) in [(GOLDEN_1, form_1), (GOLDEN_2, form_2)] {
            let bytes = bytes(hex);
            assert_eq!(decode(&bytes), Ok(want));
            assert!(decode(&bytes[..bytes.len() - 1]).is_err(), "a cut file");
        }
    }

    /// A file of the release before revocation lists.
    const GOLDEN_2: &[&str] = &[
        "53545249414d4150020000000000000007000000000000005d010000989e19aa07000000000000000100000001000000",
        "0400000064656d6fa1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b200000100e8030000",
        "010000000100000000000000030000006f6e65010000001200000031302e302e302e313a373031314074637030010000",
        "0001000000010000000100000000c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3010000000000000001000000010000004000",
        "000000010000000100000001000000010200000001000000010000000100000004000000050000000000000006000000",
        "070000000100000004000000746370311200000031302e302e302e393a37303230407463703001000000010000000300",
        "00006c61620200000006000000636c69656e74040000006c61622a04000000746370310b00000031302e312e302e302f",
        "3136000101feff0000fdff000001000000e8030000881300000a00000001000000640000005802000001000000",
    ];

    /// A file of the release before removals, routes and nodemaps.
    const GOLDEN_1: &[&str] = &[
        "53545249414d415001000000000000000700000000000000c0000000f4da95ab07000000000000000100000001000000",
        "0400000064656d6fa1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b200000100e8030000",
        "010000000100000000000000030000006f6e65010000001200000031302e302e302e313a373031314074637030010000",
        "0001000000010000000100000000c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3010000000000000001000000010000004000",
        "0000000100000001000000010000000102000000010000000100000001000000",
    ];

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let good = encode(&sample(7));
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bytes).is_err(), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(decode(&good[..len]).is_err(), "cut to {len}");
        }
        assert!(decode(&[good, vec![0]].concat()).is_err());
    }
}

#[cfg(test)]
mod hammered;
