//! The cluster map: one versioned value that assigns targets to nodes. The MGS keeps it; servers and clients read it.

use types::*;

use crate::codec::{Bytes, bodies, numbered};

bodies! {
    ClusterMap {
        /// Rises by one with every change; changes are compare-and-swap on it.
        version: u64,
        file_systems: Vec<FileSystem>,
        nodes: Vec<Node>,
        targets: Vec<Target>,
        mirrors: Vec<Mirror>,
        ids_used: IdsUsed,
        /// Ways between nets.
        routes: Vec<Route>,
        /// Treatment of clients by certificate or address.
        nodemaps: Vec<Nodemap>,
        /// Revocation lists of the cluster's CAs, in DER, one after another; empty: none was published.
        crls: Bytes,
        /// OST mirrors that get no new objects: their content moves to others. In id order.
        draining: Vec<MirrorId>,
        /// Values of parameters that targets take at their start. Of those that match a target, the last one holds.
        params: Vec<KeptParam>,
    }
    /// A kept value. `targets`: their name, in which `*` stands for any characters. No value: the base one.
    KeptParam { fs: FsId, targets: String, name: String, value: Option<u64> }
    /// Treatment of the nodes that it matches. A node takes the first match in the order of priority, then name. An empty text matches all.
    Nodemap {
        name: String,
        /// The lowest number comes first.
        priority: u32,
        /// Role of the certificate.
        role: String,
        /// Node name of the certificate; `*` stands for any characters.
        node: String,
        /// Net on which the server was reached, `local0` for its own host.
        net: String,
        /// `ADDRESS/BITS`.
        address: String,
        ban: bool,
        read_only: bool,
        squash: Squash,
        /// User and group of squashed callers, and of ids that no range has.
        squash_uid: u32,
        squash_gid: u32,
        uids: Vec<IdRange>,
        gids: Vec<IdRange>,
        /// The directory that the node sees as its root, as a path in the file system. Empty: the file system's root.
        root: String,
    }
    /// Ids `from`, `from + 1`, ... of the client are `to`, `to + 1`, ... of the file system, `count` of them.
    IdRange { from: u32, to: u32, count: u32 }
    /// A router that carries circuits from the net of `gateway` to the net `to`.
    Route {
        to: String,
        /// NID of the router on the near net.
        gateway: String,
        /// Routes of the lowest number are taken while they work.
        priority: u32,
    }
    /// The highest id of each kind that a removed entry had; 0: none was removed. New ids are above it.
    IdsUsed { fs: FsId, node: NodeId, target: TargetId, mirror: MirrorId }
    FileSystem {
        id: FsId,
        name: String,
        uuid: Uuid,
        /// Key of the MACs of capabilities. Only servers get it; clients get zeros.
        secret: Uuid,
        /// Files up to this many bytes are inline; 0 = off.
        inline_max: u32,
        /// Milliseconds between background flushes of acknowledged changes.
        commit_interval_ms: u32,
    }
    Node {
        id: NodeId,
        name: String,
        /// `address:port@net`, tried in order. Empty: the node is this process (`local`).
        nids: Vec<String>,
        /// Servers with the same name here may fail together. Empty: not told.
        rack: String,
    }
    Target {
        id: TargetId,
        fs: FsId,
        is_mdt: bool,
        /// Number among targets of its kind: `name-OST0003` has index 3.
        index: u32,
        uuid: Uuid,
        node: NodeId,
        mirror: MirrorId,
        /// 0 = not known yet, 1 = up, 2 = down.
        state: u8,
        bytes_total: u64,
    }
    /// A group of targets with the same content. Clients have their sessions, requests and marks with it, not with its members.
    Mirror {
        id: MirrorId,
        fs: FsId,
        is_mdt: bool,
        /// Rises with every change of the members, their states or the primary.
        epoch: Epoch,
        members: Vec<Member>,
        /// The member that orders changes. Clients send theirs to it.
        primary: TargetId,
    }
    Member { target: TargetId, state: MemberState }
}

numbered! {
    /// How much of its mirror's content a member has.
    MemberState, "member state" {
        /// It may lack changes that were acknowledged. It serves nothing.
        Out = 0,
        /// As `Out`, and it is being brought up to date.
        Filling = 1,
        /// It has every change that was acknowledged.
        InSync = 2,
    }

    /// The failure domain that the members of a mirror may not share.
    Apart, "failure domain" {
        Nothing = 0,
        /// Hosts.
        Server = 1,
        /// Racks, and so hosts.
        Rack = 2,
    }

    /// Callers that become one user.
    Squash, "squash" {
        None = 0,
        Root = 1,
        All = 2,
    }
}

impl Mirror {
    /// A mirror of one member.
    pub fn alone(id: MirrorId, fs: FsId, is_mdt: bool, epoch: Epoch, target: TargetId) -> Mirror {
        Mirror {
            id,
            fs,
            is_mdt,
            epoch,
            members: vec![Member { target, state: MemberState::InSync }],
            primary: target,
        }
    }
    pub fn has(&self, target: TargetId) -> bool {
        self.members.iter().any(|member| member.target == target)
    }
}

impl IdsUsed {
    pub fn none() -> IdsUsed {
        IdsUsed { fs: FsId(0), node: NodeId(0), target: TargetId(0), mirror: MirrorId(0) }
    }
}

impl ClusterMap {
    pub fn empty() -> ClusterMap {
        ClusterMap {
            version: 0,
            file_systems: vec![],
            nodes: vec![],
            targets: vec![],
            mirrors: vec![],
            ids_used: IdsUsed::none(),
            routes: vec![],
            nodemaps: vec![],
            crls: Bytes::default(),
            draining: vec![],
            params: vec![],
        }
    }
    /// True if the mirror was in the map and its last target was removed. False for one that is newer than this map.
    pub fn is_removed(&self, mirror: MirrorId) -> bool {
        mirror <= self.ids_used.mirror && self.mirror(mirror).is_none()
    }
    pub fn is_draining(&self, mirror: MirrorId) -> bool {
        self.draining.contains(&mirror)
    }
    pub fn fs(&self, id: FsId) -> Option<&FileSystem> {
        self.file_systems.iter().find(|f| f.id == id)
    }
    pub fn fs_named(&self, name: &str) -> Option<&FileSystem> {
        self.file_systems.iter().find(|f| f.name == name)
    }
    pub fn target(&self, id: TargetId) -> Option<&Target> {
        self.targets.iter().find(|t| t.id == id)
    }
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.iter().find(|n| n.id == id)
    }
    pub fn mirror(&self, id: MirrorId) -> Option<&Mirror> {
        self.mirrors.iter().find(|m| m.id == id)
    }
    /// The mirror that serves `fid`'s metadata now. All shards live on the file system's first MDT until there are several.
    pub fn mdt_of(&self, fs: FsId, _fid: Fid) -> Option<&Mirror> {
        self.mirrors.iter().filter(|m| m.fs == fs && m.is_mdt).min_by_key(|m| m.id)
    }
    /// The OST mirrors of a file system in id order: the mirrors that layouts may name.
    pub fn ost_mirrors(&self, fs: FsId) -> Vec<&Mirror> {
        let mut v: Vec<_> = self.mirrors.iter().filter(|m| m.fs == fs && !m.is_mdt).collect();
        v.sort_by_key(|m| m.id);
        v
    }
}
