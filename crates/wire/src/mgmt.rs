//! Registration, heartbeats and the cluster map, between servers, clients and the MGS.

use types::*;

use crate::codec::{Bytes, bodies, calls, numbered};
use crate::map::{Apart, ClusterMap, KeptParam, Nodemap, Route};

bodies! {
    /// Registers a target at its start. A new one (id 0) gets an id, an index and a mirror; the first MDT of a new name makes its file
    /// system.
    Register {
        fs_name: String,
        is_mdt: bool,
        /// The wanted index, or `u32::MAX` for the next free one.
        index: u32,
        uuid: Uuid,
        /// 0 for a target that was never registered.
        target: TargetId,
        bytes_total: u64,
        node_name: String,
        nids: Vec<String>,
        /// A new target becomes the second member of the mirror of the target with this kind and `index`. A known one keeps its place.
        second: bool,
        /// Of the server; empty: not told.
        rack: String,
        /// Of a new second member: what it may not share with the first one.
        apart: Apart,
    }
    RegisterReply { target: TargetId, index: u32, mirror: MirrorId, epoch: Epoch, node: NodeId, map: ClusterMap }
    /// Reads the map: with secrets for a server, without for a client. A map of version `known_version` is not sent again.
    GetMap { known_version: u64, server: bool }
    GetMapReply { map: Option<ClusterMap> }
    /// Reports that the node's targets are alive, or that they are `leaving`.
    Heartbeat { node: NodeId, targets: Vec<TargetId>, leaving: bool }
    HeartbeatReply { version: u64 }
    /// Takes routes out of the map and adds others. With `priority` ignored, a route to be removed must be there, and one to be added must not.
    ChangeRoutes { remove: Vec<Route>, add: Vec<Route> }
    ChangeRoutesReply { version: u64 }
    /// Takes nodemaps out of the map and adds others, in one step. One to be removed must be there unchanged.
    ChangeNodemaps { remove: Vec<Nodemap>, add: Vec<Nodemap> }
    ChangeNodemapsReply { version: u64 }
    /// Puts revocation lists into the map: in DER, one after another. Each list that is newer than the map's takes its place.
    /// `rotate_keys`: they revoke a node that knows the keys of capabilities, so all file systems get other keys with them.
    PublishCrl { crls: Bytes, rotate_keys: bool }
    /// `number`: that of the newest list in the map. `is_new`: the map has changed.
    PublishCrlReply { version: u64, number: u64, is_new: bool }
    /// Asks what a removal takes out of the map. Nothing is changed. `name`: a name, or an id in decimal digits.
    PlanRemoval { kind: RemovalKind, name: String, force: bool }
    /// `refused`: why it is not carried out now; otherwise `token` confirms it. `targets` are those that leave the map, or keep their node in it.
    PlanRemovalReply { id: u64, uuid: Uuid, version: u64, targets: Vec<TargetId>, refused: String, token: String }
    /// Takes an entry out of the map, if the map is still the one of the plan that gave `token`.
    Remove { kind: RemovalKind, name: String, force: bool, token: String }
    RemoveReply { version: u64 }
    /// Marks the mirror of an OST as draining, or takes the mark back: new layouts leave it out. `name` as in `PlanRemoval`, or that of a mirror.
    SetDraining { name: String, draining: bool }
    /// `is_new`: the map has changed.
    SetDrainingReply { mirror: MirrorId, version: u64, is_new: bool }
    /// Keeps values of parameters in the map, or takes them back (no value).
    ChangeParams { changes: Vec<KeptParam> }
    /// `is_new`: the map has changed.
    ChangeParamsReply { version: u64, is_new: bool }
    /// Makes a file system without targets. They register with its name afterwards, in any order.
    CreateFs { name: String, inline_max: u32, commit_interval_ms: u32 }
    CreateFsReply { fs: FsId, version: u64 }
    /// Asks a management service whether it leads. One that does not answers too.
    MgsStat {}
    /// `store`: "file" or "etcd". `leader`: the NIDs of the leading one, empty if it is not known. `why`: why this one does not lead.
    MgsStatReply { store: String, leads: bool, leader: String, why: String, version: u64 }
}

/// Begins the message of a management service that does not lead: another one is to be asked.
pub const NOT_LEADING: &str = "this management service does not lead";

/// True for the refusal of a management service that does not lead.
pub fn is_not_leading(fault: &Fault) -> bool {
    fault.code == Code::NotReady && fault.detail.starts_with(NOT_LEADING)
}

numbered! {
    /// A kind of entry that can be removed from the map.
    RemovalKind, "kind of removal" {
        Target = 1,
        FileSystem = 2,
        Node = 3,
    }
}

calls! {
    0x0401 Register => RegisterReply, read;
    0x0402 GetMap => GetMapReply, read;
    0x0406 MgsStat => MgsStatReply, read;
    0x0403 Heartbeat => HeartbeatReply, read;
    0x0410 PlanRemoval => PlanRemovalReply, read;
    0x0411 Remove => RemoveReply, read;
    0x0412 CreateFs => CreateFsReply, read;
    0x0413 SetDraining => SetDrainingReply, read;
    0x0414 ChangeParams => ChangeParamsReply, read;
    0x0420 ChangeRoutes => ChangeRoutesReply, read;
    0x0430 ChangeNodemaps => ChangeNodemapsReply, read;
    0x0440 PublishCrl => PublishCrlReply, read;
}
