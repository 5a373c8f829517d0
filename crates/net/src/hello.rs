//! The greeting of a connection: one fixed struct from the dialling end, one from the dialled end, then frames.
//!
//! ```text
//!   0 magic "STRH"    4 version u16
//!   6 status u16 (0 = welcome, 1 = full, 2 = other version, 3 = stopping, 4 = refused, 5 = unreachable)
//!   8 node u64 (the sender's; 0 = in no map)   16 wanted u64 (the node that the sender wants to reach; 0 = any)
//!  24 feature bits u32 (0 so far)  28 NID length u16  30 lane u8 (0 = short frames, 1 = bulk, 2 = a circuit)  31 reserved
//!  32 NID, 192 bytes, zero-filled: the dialling end sends the NID that it dialled, the dialled end its own. For a circuit the dialling end
//!     sends the NID behind the router. A router that refuses one sends the reason.
//! 224 wanted file system u32 (0 = any)  228 frames u32: most requests that the other end may have under way on this connection
//! 232 reserved u64  240 cluster UUID, 16 bytes (zero = not told)
//! 256 challenge, 32 bytes: from the dialled end, fresh for each connection; from the dialling end zero
//! 288 reserved, 220 zero bytes  508 CRC32C of the bytes before
//! ```
//!
//! The version stands where every later version must keep it, so that old and new can tell each other apart. Behind the two greetings of a
//! circuit the router passes bytes on, and the first ones are a greeting with the next router or the node (decision 0062).

use types::crc::crc32c;
use types::{FsId, NodeId, Uuid};
use wire::Malformed;

use crate::nid::NID_MAX;

pub const HELLO_LEN: usize = 512;
const CRC_AT: usize = HELLO_LEN - 4;
const MAGIC: [u8; 4] = *b"STRH";
pub const VERSION: u16 = 2;

/// One end's part of the greeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    pub status: Status,
    pub node: NodeId,
    pub wanted: NodeId,
    pub wanted_fs: FsId,
    pub cluster: Uuid,
    pub lane: Kind,
    /// Most requests that the other end may have under way on this connection.
    pub frames: u32,
    pub challenge: [u8; 32],
    pub nid: String,
}

/// Whether frames may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Welcome = 0,
    /// The server has as many connections as it may have.
    Full = 1,
    OtherVersion = 2,
    Stopping = 3,
    /// A router does not let this cluster pass to that NID.
    Refused = 4,
    /// A router did not reach the NID.
    Unreachable = 5,
}

/// The frames that a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Frames without bulk bytes, or with few of them.
    Short = 0,
    /// Frames with many bulk bytes, which would keep short ones waiting.
    Bulk = 1,
    /// Bytes that a router passes on.
    Circuit = 2,
}

impl Hello {
    /// A greeting from a node to any node.
    pub fn new(status: Status, node: NodeId, nid: String) -> Hello {
        Hello {
            status,
            node,
            wanted: NodeId(0),
            wanted_fs: FsId(0),
            cluster: Uuid([0; 16]),
            lane: Kind::Short,
            frames: 0,
            challenge: [0; 32],
            nid,
        }
    }

    pub fn encode(&self) -> [u8; HELLO_LEN] {
        let mut b = [0u8; HELLO_LEN];
        b[..4].copy_from_slice(&MAGIC);
        b[4..6].copy_from_slice(&VERSION.to_le_bytes());
        b[6..8].copy_from_slice(&(self.status as u16).to_le_bytes());
        b[8..16].copy_from_slice(&self.node.0.to_le_bytes());
        b[16..24].copy_from_slice(&self.wanted.0.to_le_bytes());
        // A NID that is too long is cut: it is only for people to read.
        let nid = &self.nid.as_bytes()[..self.nid.floor_char_boundary(NID_MAX)];
        b[28..30].copy_from_slice(&(nid.len() as u16).to_le_bytes());
        b[30] = self.lane as u8;
        b[32..32 + nid.len()].copy_from_slice(nid);
        b[224..228].copy_from_slice(&self.wanted_fs.0.to_le_bytes());
        b[228..232].copy_from_slice(&self.frames.to_le_bytes());
        b[240..256].copy_from_slice(&self.cluster.0);
        b[256..288].copy_from_slice(&self.challenge);
        let crc = crc32c(&b[..CRC_AT]);
        b[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        assert!(nid.len() <= NID_MAX, "a NID fits its field");
        debug_assert!(Hello::decode(&b).is_ok(), "a greeting that leaves can be read");
        b
    }

    /// Refuses the first bytes of a greeting that cannot be read. `Malformed("handshake version")` is an error of its own, so that it can
    /// be answered: a greeting of another version may have another length.
    pub fn check_begin(b: &[u8]) -> Result<(), Malformed> {
        if b.len() >= 4 && b[..4] != MAGIC {
            return Err(Malformed("handshake magic"));
        }
        match b.len() >= 6 && b[4..6] != VERSION.to_le_bytes() {
            true => Err(Malformed("handshake version")),
            false => Ok(()),
        }
    }

    /// Decodes a greeting.
    pub fn decode(b: &[u8; HELLO_LEN]) -> Result<Hello, Malformed> {
        let u16_at = |i: usize| u16::from_le_bytes([b[i], b[i + 1]]);
        let u32_at = |i: usize| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
        let u64_at = |i: usize| u64::from(u32_at(i)) | u64::from(u32_at(i + 4)) << 32;
        Hello::check_begin(b)?;
        if crc32c(&b[..CRC_AT]) != u32_at(CRC_AT) {
            return Err(Malformed("handshake checksum"));
        }
        if b[31] != 0 || b[232..240].iter().chain(&b[288..CRC_AT]).any(|x| *x != 0) {
            return Err(Malformed("reserved bytes of a handshake"));
        }
        let status = match u16_at(6) {
            0 => Status::Welcome,
            1 => Status::Full,
            2 => Status::OtherVersion,
            3 => Status::Stopping,
            4 => Status::Refused,
            5 => Status::Unreachable,
            _ => return Err(Malformed("handshake status")),
        };
        let lane = match b[30] {
            0 => Kind::Short,
            1 => Kind::Bulk,
            2 => Kind::Circuit,
            _ => return Err(Malformed("handshake lane")),
        };
        let nid = b[32..224].get(..u16_at(28) as usize).ok_or(Malformed("handshake NID"))?;
        let nid = std::str::from_utf8(nid).map_err(|_| Malformed("handshake NID"))?.to_string();
        let mut hello = Hello::new(status, NodeId(u64_at(8)), nid);
        hello.wanted = NodeId(u64_at(16));
        hello.wanted_fs = FsId(u32_at(224));
        hello.frames = u32_at(228);
        hello.lane = lane;
        hello.cluster.0.copy_from_slice(&b[240..256]);
        hello.challenge.copy_from_slice(&b[256..288]);
        Ok(hello)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Hello {
        let mut hello = Hello::new(Status::Full, NodeId(7), "h:1@tcp0".into());
        hello.wanted = NodeId(9);
        (hello.wanted_fs, hello.frames, hello.lane) = (FsId(3), 256, Kind::Bulk);
        (hello.cluster, hello.challenge) = (Uuid([5; 16]), [6; 32]);
        hello
    }

    #[test]
    fn golden_bytes() {
        let b = sample().encode();
        assert_eq!(&b[..32], b"STRH\x02\0\x01\0\x07\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\0\0\0\0\x08\0\x01\0");
        assert_eq!(&b[32..40], b"h:1@tcp0");
        assert_eq!(&b[224..240], b"\x03\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0");
        assert_eq!((&b[240..256], &b[256..288]), (&[5; 16][..], &[6; 32][..]));
        assert_eq!(Hello::decode(&b), Ok(sample()));
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let good = sample().encode();
        for bit in 0..HELLO_LEN * 8 {
            let mut b = good;
            b[bit / 8] ^= 1 << (bit % 8);
            assert!(Hello::decode(&b).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn another_version_is_told_by_its_first_bytes() {
        let mut old = sample().encode();
        old[4] = 1;
        assert_eq!(Hello::check_begin(&old[..5]), Ok(()));
        assert_eq!(Hello::check_begin(&old[..6]), Err(Malformed("handshake version")));
        assert_eq!(Hello::check_begin(b"GET / HTTP"), Err(Malformed("handshake magic")));
    }

    #[test]
    fn a_nid_that_is_too_long_is_cut() {
        let hello = Hello { nid: "ä".repeat(NID_MAX), ..sample() };
        let back = Hello::decode(&hello.encode()).expect("it can be read");
        assert_eq!(back.nid, "ä".repeat(NID_MAX / 2));
    }
}

#[cfg(test)]
mod hammered;
