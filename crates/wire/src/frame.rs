//! The frame: a 128-byte header, a small body, bulk bytes. The header is the same for every call and transport.
//!
//! ```text
//!   0 magic "STRI"   4 version u16   6 call u16      8 flags u16    10 feature bits u16  12 fs id u32
//!  16 target u32    20 epoch u32    24 source u64   32 destination u64 (node ids)
//!  40 session u64   48 slot u32     52 sequence u32 56 request id u64  64 trace id u64
//!  72 incarnation u32  76 ms left u32  80 job tag u32  84 body len u32  88 bulk len u32
//!  92 CRC32C of header (this field as zero) and body   96 reserved, 32 zero bytes
//! ```

use types::*;

use crate::codec::Malformed;

pub const HEADER_LEN: usize = 128;
pub const MAGIC: [u8; 4] = *b"STRI";
pub const VERSION: u16 = 1;
/// The call number of a ping, which the fabric answers by itself: a frame without body or bulk.
pub const PING: u16 = 0x0001;
/// Largest body in bytes: a readdirplus page or a scan page fits.
pub const BODY_MAX: usize = 4 << 20;

/// Bits of the header's flags.
#[derive(Debug, Clone, Copy)]
pub struct Flags;
impl Flags {
    pub const REPLY: u16 = 1;
    /// The client sends the request again after a reconnect or restart. The target answers from the slot if it was carried out.
    pub const REPLAY: u16 = 2;
    /// In replies: more than one client session exists. Not used: `AttachReply::mode` tells it.
    pub const SHARED: u16 = 4;
    /// In replies: the request was refused and had no effect. The body is the reason as UTF-8 text.
    pub const REFUSED: u16 = 8;
    /// In requests: the session wants the lease of the directory that the request names first, to cache the answer.
    pub const LEASE_WANTED: u16 = 0x10;
    /// In requests: the session holds that lease.
    pub const LEASE_HELD: u16 = 0x20;
    /// In replies: the names of the answer may be cached, or their absence; of `KeepAlive`: the session's leases are renewed.
    pub const NAMES_LEASED: u16 = 0x40;
    /// In replies: the attributes of the answer may be cached, of inodes with one link and of directories.
    pub const ATTRS_LEASED: u16 = 0x80;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Header {
    pub call: u16,
    pub flags: u16,
    pub features: u16,
    pub fs: FsId,
    pub target: TargetId,
    pub epoch: Epoch,
    pub source: NodeId,
    pub destination: NodeId,
    pub session: SessionId,
    /// Slot and sequence identify a mutating request for ever; both are 0 for reads.
    pub slot: u32,
    pub sequence: u32,
    pub request: u64,
    pub trace: u64,
    /// In requests: the target's incarnation that the sender knows (0 = any). In replies: the target's own.
    pub incarnation: Incarnation,
    /// Milliseconds until the caller's deadline.
    pub ms_left: u32,
    pub job_tag: u32,
    pub body_len: u32,
    pub bulk_len: u32,
}

impl Header {
    /// Encodes the header for `body`; `body_len` is taken from `body`.
    pub fn encode(&self, body: &[u8]) -> [u8; HEADER_LEN] {
        let mut h = [0u8; HEADER_LEN];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            h[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&MAGIC);
        put(&VERSION.to_le_bytes());
        put(&self.call.to_le_bytes());
        put(&self.flags.to_le_bytes());
        put(&self.features.to_le_bytes());
        put(&self.fs.0.to_le_bytes());
        put(&self.target.0.to_le_bytes());
        put(&self.epoch.0.to_le_bytes());
        put(&self.source.0.to_le_bytes());
        put(&self.destination.0.to_le_bytes());
        put(&self.session.0.to_le_bytes());
        put(&self.slot.to_le_bytes());
        put(&self.sequence.to_le_bytes());
        put(&self.request.to_le_bytes());
        put(&self.trace.to_le_bytes());
        put(&self.incarnation.0.to_le_bytes());
        put(&self.ms_left.to_le_bytes());
        put(&self.job_tag.to_le_bytes());
        put(&(body.len() as u32).to_le_bytes());
        put(&self.bulk_len.to_le_bytes());
        assert!(at == 92, "the fields end where the CRC begins");
        let crc = frame_crc(&h, body);
        h[92..96].copy_from_slice(&crc.to_le_bytes());
        debug_assert!(Header::verify(&h, body).is_ok(), "a receiver accepts the CRC");
        h
    }

    /// Parses a header and checks all but the CRC, which needs the body: see `verify`.
    pub fn decode(h: &[u8; HEADER_LEN]) -> Result<Header, Malformed> {
        if h[..4] != MAGIC {
            return Err(Malformed("frame magic"));
        }
        let u16_at = |i: usize| u16::from_le_bytes([h[i], h[i + 1]]);
        let u32_at = |i: usize| u32::from_le_bytes([h[i], h[i + 1], h[i + 2], h[i + 3]]);
        let u64_at = |i: usize| u32_at(i) as u64 | (u32_at(i + 4) as u64) << 32;
        if u16_at(4) != VERSION {
            return Err(Malformed("frame version"));
        }
        if h[96..].iter().any(|b| *b != 0) {
            return Err(Malformed("reserved bytes of a frame"));
        }
        let head = Header {
            call: u16_at(6),
            flags: u16_at(8),
            features: u16_at(10),
            fs: FsId(u32_at(12)),
            target: TargetId(u32_at(16)),
            epoch: Epoch(u32_at(20)),
            source: NodeId(u64_at(24)),
            destination: NodeId(u64_at(32)),
            session: SessionId(u64_at(40)),
            slot: u32_at(48),
            sequence: u32_at(52),
            request: u64_at(56),
            trace: u64_at(64),
            incarnation: Incarnation(u32_at(72)),
            ms_left: u32_at(76),
            job_tag: u32_at(80),
            body_len: u32_at(84),
            bulk_len: u32_at(88),
        };
        if head.body_len as usize > BODY_MAX || head.bulk_len as usize > BULK_MAX {
            return Err(Malformed("frame length"));
        }
        Ok(head)
    }

    /// Checks the CRC over header and body.
    pub fn verify(h: &[u8; HEADER_LEN], body: &[u8]) -> Result<(), Malformed> {
        let want = u32::from_le_bytes([h[92], h[93], h[94], h[95]]);
        if frame_crc(h, body) == want { Ok(()) } else { Err(Malformed("frame checksum")) }
    }
}

/// CRC32C over the header with its CRC field as zero, mixed with the body's CRC32C: `crc(header) rotated left by 1, xor crc(body)`.
fn frame_crc(h: &[u8; HEADER_LEN], body: &[u8]) -> u32 {
    let mut clean = *h;
    clean[92..96].fill(0);
    types::crc::crc32c(&clean).rotate_left(1) ^ types::crc::crc32c(body)
}
