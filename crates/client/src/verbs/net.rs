//! The mount about its connections, for `stria net`.

use types::{Code, Fault};
use wire::Wire;
use wire::fabric::{NetStatReply, NetTrace};

use crate::Fs;

/// Nodes and frames in one attribute, whose value has 64 KiB at most.
const NODES_MAX: usize = 400;
const FRAMES_MAX: u32 = 400;

impl Fs {
    /// A `NetStatReply` of the nodes that this client dialled.
    pub(crate) fn net_stat(&self) -> Vec<u8> {
        let mut peers = self.fabric.stat();
        let connections = peers.iter().map(|peer| peer.connections).sum();
        let others = peers.len().saturating_sub(NODES_MAX) as u32;
        peers.truncate(NODES_MAX);
        let (workers, memory_bytes, memory_bytes_max) = (0, 0, 0);
        NetStatReply { workers, connections, memory_bytes, memory_bytes_max, peers, others, links: vec![] }
            .to_bytes()
    }

    /// A `NetTraceReply`: frames after the number that `after` is the text of.
    pub(crate) fn net_trace(&self, after: &[u8]) -> Result<Vec<u8>, Fault> {
        let after = std::str::from_utf8(after).ok().and_then(|text| text.parse().ok());
        let after = after.ok_or_else(|| Fault::new(Code::NoData, "the attribute ends with a number"))?;
        Ok(self.fabric.trace(&NetTrace { after, max: FRAMES_MAX }).to_bytes())
    }
}
