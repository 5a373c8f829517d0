//! Servers, clients and the MGS: registration, heartbeats, the map.

use types::*;

use crate::codec::{bodies, calls};
use crate::map::ClusterMap;

bodies! {
    /// A target announces itself at start. A new one (id 0) is given an id, an index, a mirror and, if asked for, its file
    /// system is made.
    Register {
        fs_name: String,
        is_mdt: bool,
        /// Wanted index, or `u32::MAX` for the next free one.
        index: u32,
        uuid: Uuid,
        /// 0 for a target that was never registered.
        target: TargetId,
        bytes_total: u64,
        node_name: String,
        nids: Vec<String>,
    }
    RegisterReply { target: TargetId, index: u32, mirror: MirrorId, epoch: Epoch, node: NodeId, map: ClusterMap }
    /// The map, for a server (with secrets) or a client (without). `known_version`: an unchanged map is not sent again.
    GetMap { known_version: u64, server: bool }
    GetMapReply { map: Option<ClusterMap> }
    /// States and load of a node's targets.
    Heartbeat { node: NodeId, targets: Vec<TargetId>, leaving: bool }
    HeartbeatReply { version: u64 }
}

calls! {
    0x0401 Register => RegisterReply, read;
    0x0402 GetMap => GetMapReply, read;
    0x0403 Heartbeat => HeartbeatReply, read;
}
