//! A router about itself. These calls come over its control socket, and never through a circuit.

use crate::Empty;
use crate::codec::{bodies, calls};

bodies! {
    /// Reads the counters. `history`: seconds of history that are wanted, at most.
    RouterStat { history: u32 }
    RouterStatReply {
        nids: Vec<String>,
        /// New circuits are refused.
        is_draining: bool,
        uptime_ms: u64,
        /// Processor time of the router since its start.
        cpu_us: u64,
        circuits: u32,
        circuits_max: u32,
        /// Circuits that were refused, and those whose next host was not reached.
        refused: u64,
        failed: u64,
        rows: Vec<RouterRow>,
        /// One sample each second, the oldest first.
        history: Vec<RouterSample>,
    }
    /// The circuits of one dialler to one file system, since the router's start.
    RouterRow {
        /// Nets of the dialler and of the host that it wants.
        from: String,
        to: String,
        fs: String,
        /// The node in the dialler's certificate, or its address.
        peer: String,
        circuits: u32,
        opened: u64,
        /// Bytes from the dialler, and to it.
        bytes_out: u64,
        bytes_back: u64,
        /// How often, and how long in all, a receiving end took nothing.
        stalls: u64,
        stall_us: u64,
    }
    /// The traffic of one second.
    RouterSample {
        number: u64,
        /// Milliseconds since 1970.
        at_ms: u64,
        /// Processor time in that second.
        cpu_us: u64,
        circuits: u32,
        flows: Vec<RouterFlow>,
    }
    RouterFlow { from: String, to: String, fs: String, bytes_out: u64, bytes_back: u64 }
    /// Refuses new circuits and ends idle ones; after `within_ms` all. `is_on` false: takes new circuits again.
    RouterDrain { is_on: bool, within_ms: u64 }
}

calls! {
    0x0501 RouterStat => RouterStatReply, read;
    0x0502 RouterDrain => Empty, read;
}
