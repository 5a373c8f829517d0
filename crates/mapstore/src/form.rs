//! The byte form of a stored map. The golden bytes are in the tests, the description in `docs/formats/map.md`.

use types::TargetId;
use types::crc::crc32c;
use wire::map::{ClusterMap, Mirror, Node, Nodemap};
use wire::{Malformed, Reader, Wire};

const MAGIC: [u8; 8] = *b"STRIAMAP";
/// Version of the file's form. Forms 1 to 5 are read as well; any other is refused.
pub const FORM_VERSION: u16 = 6;
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
        1 => |body| read_older(body, 1),
        2 => |body| read_older(body, 2),
        3 => |body| read_older(body, 3),
        4 => |body| read_older(body, 4),
        5 => |body| read_older(body, 5),
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

/// In forms 1 to 5 no parameters were kept. In forms 1 to 4 no mirror was draining. In forms 1 to 3 nodes had no racks. In forms 1 and 2 a mirror's members had no states: each was the only one. Form 1 ended behind the
/// mirrors: entries were never removed, and there were no routes and nodemaps. Form 2 ended behind the nodemaps, which had no roots.
fn read_older(body: &[u8], form: u16) -> Result<ClusterMap, Malformed> {
    let mut r = Reader::new(body);
    let mut map = ClusterMap::empty();
    map.version = Wire::get(&mut r)?;
    map.file_systems = Wire::get(&mut r)?;
    for _ in 0..u32::get(&mut r)? {
        let (id, name, nids) = (Wire::get(&mut r)?, Wire::get(&mut r)?, Wire::get(&mut r)?);
        let rack = if form >= 4 { Wire::get(&mut r)? } else { String::new() };
        map.nodes.push(Node { id, name, nids, rack });
    }
    map.targets = Wire::get(&mut r)?;
    if form >= 3 {
        map.mirrors = Wire::get(&mut r)?;
    }
    let alone = if form < 3 { u32::get(&mut r)? } else { 0 };
    for _ in 0..alone {
        let (id, fs, is_mdt, epoch) =
            (Wire::get(&mut r)?, Wire::get(&mut r)?, bool::get(&mut r)?, Wire::get(&mut r)?);
        let (members, primary) = (Vec::<TargetId>::get(&mut r)?, TargetId::get(&mut r)?);
        match members[..] {
            [only] if only == primary => map.mirrors.push(Mirror::alone(id, fs, is_mdt, epoch, only)),
            _ => return Err(Malformed("members of a mirror")),
        }
    }
    if form >= 2 {
        map.ids_used = Wire::get(&mut r)?;
        map.routes = Wire::get(&mut r)?;
    }
    if form >= 3 {
        (map.nodemaps, map.crls) = (Wire::get(&mut r)?, Wire::get(&mut r)?);
    } else if form == 2 {
        for _ in 0..u32::get(&mut r)? {
            map.nodemaps.push(nodemap_of_form_2(&mut r)?);
        }
    }
    if form >= 5 {
        map.draining = Wire::get(&mut r)?;
    }
    match r.remaining() {
        0 => Ok(map),
        _ => Err(Malformed("length of a map")),
    }
}

/// It had no root.
fn nodemap_of_form_2(r: &mut Reader<'_>) -> Result<Nodemap, Malformed> {
    Ok(Nodemap {
        name: Wire::get(r)?,
        priority: Wire::get(r)?,
        role: Wire::get(r)?,
        node: Wire::get(r)?,
        net: Wire::get(r)?,
        address: Wire::get(r)?,
        ban: Wire::get(r)?,
        read_only: Wire::get(r)?,
        squash: Wire::get(r)?,
        squash_uid: Wire::get(r)?,
        squash_gid: Wire::get(r)?,
        uids: Wire::get(r)?,
        gids: Wire::get(r)?,
        root: String::new(),
    })
}

/// CRC32C over the head's first 28 bytes, rotated left by 1, xor the body's.
fn file_crc(head: &[u8], body: &[u8]) -> u32 {
    crc32c(head).rotate_left(1) ^ crc32c(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::sample;
    use wire::codec::Bytes;
    use wire::map::IdsUsed;

    #[test]
    fn golden_bytes() {
        let bytes = encode(&sample(7));
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, GOLDEN.concat());
        assert_eq!(decode(&bytes), Ok(sample(7)));
    }

    /// Made by an independent program from `docs/formats/map.md`.
    const GOLDEN: &[&str] = &[
        "53545249414d415006000000000000000700000000000000a60100000ff83f7907000000000000000100000001000000",
        "0400000064656d6fa1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b200000100e8030000",
        "010000000100000000000000030000006f6e65010000001200000031302e302e302e313a373031314074637030020000",
        "0072370100000001000000010000000100000000c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3010000000000000001000000",
        "010000004000000000010000000100000001000000010200000001000000010000000201000000040000000500000000",
        "00000006000000070000000100000004000000746370311200000031302e302e302e393a373032304074637030010000",
        "0001000000030000006c61620200000006000000636c69656e74040000006c61622a04000000746370310b0000003130",
        "2e312e302e302f3136000101feff0000fdff000001000000e8030000881300000a000000010000006400000058020000",
        "01000000020000002f6103000000300100010000000100000001000000010000000900000064656d6f2d4f53542a0b00",
        "0000726573796e632e72617465010000100000000000",
    ];

    #[test]
    fn earlier_forms_are_read_as_maps_of_mirrors_with_one_member() {
        let bytes = |golden: &[&str]| -> Vec<u8> {
            let hex = golden.concat();
            let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
            (0..hex.len()).step_by(2).map(byte).collect()
        };
        let fifth = ClusterMap { params: vec![], ..sample(7) };
        let mut fourth = fifth.clone();
        fourth.draining.clear();
        let mut third = fourth.clone();
        third.nodes.iter_mut().for_each(|node| node.rack.clear());
        let mut second = third.clone();
        second.nodemaps.iter_mut().for_each(|nodemap| nodemap.root.clear());
        second.crls = Bytes::default();
        let first =
            ClusterMap { ids_used: IdsUsed::none(), routes: vec![], nodemaps: vec![], ..second.clone() };
        let forms =
            [(GOLDEN_1, first), (GOLDEN_2, second), (GOLDEN_3, third), (GOLDEN_4, fourth), (GOLDEN_5, fifth)];
        for (golden, want) in forms {
            let bytes = bytes(golden);
            assert_eq!(decode(&bytes), Ok(want));
            assert!(decode(&bytes[..bytes.len() - 1]).is_err(), "a cut file");
        }
    }

    /// A file of the release before removals, routes and nodemaps.
    const GOLDEN_1: &[&str] = &[
        "53545249414d415001000000000000000700000000000000c0000000f4da95ab07000000000000000100000001000000",
        "0400000064656d6fa1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b200000100e8030000",
        "010000000100000000000000030000006f6e65010000001200000031302e302e302e313a373031314074637030010000",
        "0001000000010000000100000000c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3010000000000000001000000010000004000",
        "0000000100000001000000010000000102000000010000000100000001000000",
    ];

    /// A file of the release before states of members.
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

    /// A file of the release before racks.
    const GOLDEN_3: &[&str] = &[
        "53545249414d4150030000000000000007000000000000006b0100008984235e07000000000000000100000001000000",
        "0400000064656d6fa1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b200000100e8030000",
        "010000000100000000000000030000006f6e65010000001200000031302e302e302e313a373031314074637030010000",
        "0001000000010000000100000000c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3010000000000000001000000010000004000",
        "000000010000000100000001000000010200000001000000010000000201000000040000000500000000000000060000",
        "00070000000100000004000000746370311200000031302e302e302e393a373032304074637030010000000100000003",
        "0000006c61620200000006000000636c69656e74040000006c61622a04000000746370310b00000031302e312e302e30",
        "2f3136000101feff0000fdff000001000000e8030000881300000a000000010000006400000058020000010000000200",
        "00002f6103000000300100",
    ];

    /// A file of the release before drained OSTs.
    const GOLDEN_4: &[&str] = &[
        "53545249414d41500400000000000000070000000000000071010000068735e607000000000000000100000001000000",
        "0400000064656d6fa1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b200000100e8030000",
        "010000000100000000000000030000006f6e65010000001200000031302e302e302e313a373031314074637030020000",
        "0072370100000001000000010000000100000000c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3010000000000000001000000",
        "010000004000000000010000000100000001000000010200000001000000010000000201000000040000000500000000",
        "00000006000000070000000100000004000000746370311200000031302e302e302e393a373032304074637030010000",
        "0001000000030000006c61620200000006000000636c69656e74040000006c61622a04000000746370310b0000003130",
        "2e312e302e302f3136000101feff0000fdff000001000000e8030000881300000a000000010000006400000058020000",
        "01000000020000002f6103000000300100",
    ];

    /// A file of the release before kept parameters.
    const GOLDEN_5: &[&str] = &[
        "53545249414d41500500000000000000070000000000000079010000e49c787307000000000000000100000001000000",
        "0400000064656d6fa1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b200000100e8030000",
        "010000000100000000000000030000006f6e65010000001200000031302e302e302e313a373031314074637030020000",
        "0072370100000001000000010000000100000000c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3010000000000000001000000",
        "010000004000000000010000000100000001000000010200000001000000010000000201000000040000000500000000",
        "00000006000000070000000100000004000000746370311200000031302e302e302e393a373032304074637030010000",
        "0001000000030000006c61620200000006000000636c69656e74040000006c61622a04000000746370310b0000003130",
        "2e312e302e302f3136000101feff0000fdff000001000000e8030000881300000a000000010000006400000058020000",
        "01000000020000002f61030000003001000100000001000000",
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
