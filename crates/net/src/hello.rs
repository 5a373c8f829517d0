//! The handshake of a connection: one fixed struct from the connecting end, one from the accepting end, then frames.
//!
//! ```text
//!   0 magic "STRH"    4 version u16   6 status u16 (0 = welcome, 1 = full, 2 = other version, 3 = stopping)
//!   8 node u64 (the sender's; 0 = in no map)   16 wanted u64 (the node that the sender wants to reach; 0 = any)
//!  24 feature bits u32 (0 so far)  28 NID length u16  30 reserved u16
//!  32 NID, 192 bytes, zero-filled: the connecting end sends the NID that it dialled, the accepting end its own
//! 224 reserved, 28 zero bytes  252 CRC32C of the bytes before
//! ```
//!
//! The version stands where every later version must keep it, so that old and new can tell each other apart.

use types::NodeId;
use types::crc::crc32c;
use wire::Malformed;

use crate::nid::NID_MAX;

pub const HELLO_LEN: usize = 256;
const MAGIC: [u8; 4] = *b"STRH";
pub const VERSION: u16 = 1;

/// One end's part of the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    pub status: Status,
    pub node: NodeId,
    pub wanted: NodeId,
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
}

impl Hello {
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
        b[32..32 + nid.len()].copy_from_slice(nid);
        let crc = crc32c(&b[..252]);
        b[252..].copy_from_slice(&crc.to_le_bytes());
        assert!(nid.len() <= NID_MAX, "a NID fits its field");
        debug_assert!(Hello::decode(&b).is_ok(), "a greeting that leaves can be read");
        b
    }

    /// Decodes a greeting. `Malformed("handshake version")` is an error of its own, so that it can be answered.
    pub fn decode(b: &[u8; HELLO_LEN]) -> Result<Hello, Malformed> {
        let u16_at = |i: usize| u16::from_le_bytes([b[i], b[i + 1]]);
        let u64_at = |i: usize| u64::from_le_bytes(b[i..i + 8].try_into().expect("eight bytes"));
        if b[..4] != MAGIC {
            return Err(Malformed("handshake magic"));
        }
        if u16_at(4) != VERSION {
            return Err(Malformed("handshake version"));
        }
        if crc32c(&b[..252]).to_le_bytes() != b[252..] {
            return Err(Malformed("handshake checksum"));
        }
        if b[30..32].iter().chain(&b[224..252]).any(|x| *x != 0) {
            return Err(Malformed("reserved bytes of a handshake"));
        }
        let status = match u16_at(6) {
            0 => Status::Welcome,
            1 => Status::Full,
            2 => Status::OtherVersion,
            3 => Status::Stopping,
            _ => return Err(Malformed("handshake status")),
        };
        let nid = b[32..224].get(..u16_at(28) as usize).ok_or(Malformed("handshake NID"))?;
        let nid = std::str::from_utf8(nid).map_err(|_| Malformed("handshake NID"))?.to_string();
        Ok(Hello { status, node: NodeId(u64_at(8)), wanted: NodeId(u64_at(16)), nid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Hello {
        Hello { status: Status::Full, node: NodeId(7), wanted: NodeId(9), nid: "h:1@tcp0".into() }
    }

    #[test]
    fn golden_bytes() {
        let b = sample().encode();
        assert_eq!(&b[..32], b"STRH\x01\0\x01\0\x07\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\0\0\0\0\x08\0\0\0");
        assert_eq!(&b[32..40], b"h:1@tcp0");
        assert!(b[40..252].iter().all(|x| *x == 0));
        assert_eq!(Hello::decode(&b), Ok(sample()));
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let good = sample().encode();
        for i in 0..HELLO_LEN {
            let mut b = good;
            b[i] ^= 0x40;
            assert!(Hello::decode(&b).is_err(), "byte {i}");
        }
    }

    #[test]
    fn a_long_nid_is_cut_at_a_character() {
        let hello = Hello { nid: "é".repeat(200), ..sample() };
        let back = Hello::decode(&hello.encode()).expect("well formed");
        assert_eq!(back.nid, "é".repeat(96));
    }
}

#[cfg(test)]
mod hammered;
