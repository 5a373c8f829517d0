//! A process about its connections, for `stria net`. Any target of the process takes these calls; the fabric answers them.

use crate::codec::{bodies, calls};

bodies! {
    /// Reads the counters of a server's connections.
    NetStat {}
    NetStatReply {
        /// Threads that serve.
        workers: u32,
        connections: u32,
        /// Bytes of frames that are received, served or not sent yet, and the bound.
        memory_bytes: u64,
        memory_bytes_max: u64,
        /// By peer, the busiest first; at most `PEERS_MAX`.
        peers: Vec<PeerStat>,
        /// Peers that are left out.
        others: u32,
        /// Hosts that have sent bulk bytes of late; at most `PEERS_MAX`.
        links: Vec<LinkStat>,
    }
    /// How quickly bulk bytes come from one host of late. Counted are those for which the server waited, from a moment at which it had
    /// read all that had come. Old ones count half after each minute.
    LinkStat {
        /// The host's address, which is a router's if one carries its connections.
        address: String,
        /// The net on which it reaches this process.
        net: String,
        /// As its certificate names it; empty without one, or if several come from this address.
        name: String,
        bytes: u64,
        /// For how long one transfer waited, summed over all.
        each_us: u64,
        /// For how long at least one transfer waited.
        any_us: u64,
    }
    /// The counters of all connections to one peer since the process began, or since the peer was seen first.
    PeerStat {
        /// A server: the node's name. A client of a server: its address, or its user at a unix socket.
        peer: String,
        connections: u32,
        /// Requests that are not answered yet.
        under_way: u32,
        frames_out: u64,
        frames_in: u64,
        bytes_out: u64,
        bytes_in: u64,
        /// How often a request waited for a place (dialling end), or a connection for memory or for answers to leave (dialled end).
        waits: u64,
        /// Connections that were opened, and attempts that failed or were refused.
        connects: u64,
        failures: u64,
    }
    /// Reads the trace of frames, and keeps it on for `TRACE_SEC`. It begins with the first such call. `after`: the number of the last frame
    /// that the reader has.
    NetTrace { after: u64, max: u32 }
    NetTraceReply {
        frames: Vec<Traced>,
        /// Frames that were overwritten before they were read.
        lost: u64,
    }
    /// A frame that was sent or received.
    Traced {
        /// Rises by one with each frame.
        number: u64,
        /// Wall-clock time in microseconds since 1970.
        at_us: u64,
        peer: String,
        is_out: bool,
        call: u16,
        flags: u16,
        target: u32,
        session: u64,
        request: u64,
        body_bytes: u32,
        bulk_bytes: u32,
    }
}

/// Most peers in one answer.
pub const PEERS_MAX: usize = 1024;
/// Most frames in one answer.
pub const FRAMES_MAX: usize = 1024;
/// A trace goes on for so long after it was read.
pub const TRACE_SEC: u64 = 10;

calls! {
    0x0003 NetStat => NetStatReply, read;
    0x0004 NetTrace => NetTraceReply, read;
}
