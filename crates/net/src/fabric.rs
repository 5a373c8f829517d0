//! The client side of the fabric: finds the peer that serves a target, by the cluster map.
//!
//! Peers are cheap handles; all targets of a node share the connections behind them. A peer keeps working when its
//! node's NIDs change; after a target moved to another node, ask for its peer again.
//!
//! net-R4: once another node serves a target, the node of before keeps no request of it, and may stand still: those that wait end as unknown,
//! and a peer of before sends none.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::RwLock;
use pki::Trust;
use types::{FsId, NodeId, TargetId};
use wire::fabric::{NetTrace, NetTraceReply, PeerStat};
use wire::map::{ClusterMap, Route};

use crate::local::LocalPeer;
use crate::node::{Common, Node};
use crate::remote::RemotePeer;
use crate::routes::Routing;
use crate::{Hub, NetError, Peer};

pub struct Fabric {
    local: Option<Arc<Hub>>,
    common: Arc<Common>,
    routes: RwLock<Routes>,
}

#[derive(Default)]
struct Routes {
    /// Version of the map that the routes were taken from.
    version: u64,
    /// The node of each target, and its peer once asked for.
    targets: HashMap<TargetId, (NodeId, Option<Arc<RemotePeer>>)>,
    nodes: HashMap<NodeId, Arc<Node>>,
    /// Nodes of peers that were requested by address, before there was a map.
    addresses: HashMap<String, Arc<Node>>,
    locals: HashMap<TargetId, Arc<dyn Peer>>,
}

impl Fabric {
    /// Targets that `local` serves are called in this process.
    pub fn new(local: Option<Arc<Hub>>) -> Arc<Fabric> {
        Fabric::with_trust(local, None)
    }

    /// As `new`. With certificates every connection over TCP uses TLS.
    pub fn with_trust(local: Option<Arc<Hub>>, trust: Option<Arc<Trust>>) -> Arc<Fabric> {
        let common = Common::new(trust);
        common.own.store(local.as_ref().map_or(0, |h| h.node().0), Ordering::Relaxed);
        Arc::new(Fabric { local, common: Arc::new(common), routes: RwLock::default() })
    }

    /// This node's id, sent in greetings and requests. Until it is set it is the id of the hub of this process, or 0 (in no map).
    pub fn set_node(&self, node: NodeId) {
        self.common.own.store(node.0, Ordering::Relaxed);
    }

    /// Sets the nets that this host is on, and the routes that it knows before it has a map. No net: it is on all of them.
    pub fn set_nets(&self, own: Vec<String>, given: Vec<Route>) {
        *self.common.dialler.routing.write() = Routing::new(own, given);
    }

    /// The nets and routes that connections follow.
    pub fn routing(&self) -> Routing {
        self.common.dialler.routing.read().clone()
    }

    /// Sets the file system by which routers count what this fabric sends.
    pub fn set_fs(&self, fs: FsId) {
        self.common.dialler.fs.store(fs.0, Ordering::Relaxed);
    }

    /// Sets the silence after which a host with requests under way counts as dead, unless it accepts a new connection: 2 s unless set.
    pub fn set_dead_after(&self, after: Duration) {
        self.common.timing.set_dead_after(after);
    }

    /// Takes the routes of a map. Connections to nodes that stay are kept; what is under way to a node that left, has other addresses or does
    /// not serve the target any more ends as unknown. A map older than the one before is ignored: its addresses may be those of servers that
    /// have restarted elsewhere.
    pub fn set_map(&self, map: &ClusterMap) {
        let mut routes = self.routes.write();
        if map.version < routes.version {
            return;
        }
        routes.version = map.version;
        self.common.dialler.routing.write().set_map(&map.routes);
        let mut targets = HashMap::with_capacity(map.targets.len());
        let mut moved = Vec::new();
        for t in &map.targets {
            let known = match routes.targets.remove(&t.id) {
                Some((node, peer)) if node == t.node => peer,
                Some((_, peer)) => {
                    moved.extend(peer);
                    None
                }
                None => None,
            };
            targets.insert(t.id, (t.node, known));
        }
        let left = std::mem::replace(&mut routes.targets, targets);
        moved.extend(left.into_values().filter_map(|(_, peer)| peer));
        let gone: Vec<_> = routes.nodes.extract_if(|id, _| map.node(*id).is_none()).collect();
        for n in &map.nodes {
            match routes.nodes.get(&n.id) {
                Some(node) => node.set_nids(&n.nids),
                None => {
                    let node = Node::new(n.name.clone(), n.id, n.nids.clone(), self.common.clone());
                    routes.nodes.insert(n.id, node);
                }
            }
        }
        drop(routes);
        moved.iter().for_each(|peer| peer.end());
        gone.into_iter().for_each(|(_, node)| node.close("the node has left the cluster", false));
    }

    /// The peer for `target`: in this process, or at the NIDs of its node in the map.
    pub fn peer(&self, target: TargetId) -> Result<Arc<dyn Peer>, NetError> {
        if let Some(hub) = self.local.as_ref().filter(|h| h.serves(target)) {
            return Ok(self.local_peer(hub, target));
        }
        let routes = self.routes.read();
        let (node, peer) =
            routes.targets.get(&target).ok_or_else(|| unknown(target, "it is not in the cluster map"))?;
        if let Some(peer) = peer {
            return Ok(peer.clone());
        }
        let id = *node;
        let node =
            routes.nodes.get(&id).ok_or_else(|| unknown(target, "its node is not in the cluster map"))?;
        if !node.has_nids() {
            return Err(unknown(target, "its node has no address and it is not served in this process"));
        }
        let made = Arc::new(RemotePeer::new(node.clone(), target));
        drop(routes);
        match self.routes.write().targets.get_mut(&target) {
            // net-R4: only one that is kept can be ended.
            Some((now, slot)) if *now == id => Ok(slot.get_or_insert(made).clone()),
            _ => Err(unknown(target, "another node serves it now")),
        }
    }

    /// net-R4: ends the requests that wait for this target as unknown, and its peers of before: another one serves in its place. It may not
    /// answer for long, as when its process stands still.
    pub fn end_requests(&self, target: TargetId) {
        let peer = self.routes.write().targets.get_mut(&target).and_then(|(_, peer)| peer.take());
        peer.iter().for_each(|peer| peer.end());
    }

    /// The peer for `target` at an address, to find the MGS. A call to an invalid address fails.
    pub fn peer_at(&self, nid: &str, target: TargetId) -> Arc<dyn Peer> {
        let mut routes = self.routes.write();
        let node = routes.addresses.entry(nid.to_string()).or_insert_with(|| {
            Node::new(nid.to_string(), NodeId(0), vec![nid.to_string()], self.common.clone())
        });
        Arc::new(RemotePeer::new(node.clone(), target))
    }

    /// Closes connections to servers whose certificate is not good any more. Call it when `Trust` tells of a change.
    pub fn recheck(&self) {
        let routes = self.routes.read();
        let nodes: Vec<_> = routes.nodes.values().chain(routes.addresses.values()).cloned().collect();
        drop(routes);
        nodes.iter().for_each(|node| node.recheck());
        self.common.recheck();
    }

    /// net-N5: this process may have another certificate of its own now. Requests go over connections that are dialled with it; those of before
    /// are closed when nothing is under way on them, and lines at once. Call it when `Trust` tells of a change.
    pub fn retire_former(&self) {
        let routes = self.routes.read();
        let nodes: Vec<_> = routes.nodes.values().chain(routes.addresses.values()).cloned().collect();
        drop(routes);
        nodes.iter().for_each(|node| node.retire_former());
        self.common.close_former_lines();
    }

    /// Counters of the nodes that were dialled, by name.
    pub fn stat(&self) -> Vec<PeerStat> {
        let routes = self.routes.read();
        let nodes: Vec<_> = routes.nodes.values().chain(routes.addresses.values()).cloned().collect();
        drop(routes);
        let mut stats: Vec<_> = nodes.iter().map(|node| node.stat()).collect();
        stats.retain(|stat| stat.connects + stat.failures > 0);
        stats.sort_by(|a, b| a.peer.cmp(&b.peer));
        stats
    }

    /// Frames that this process sent to other nodes, or received from them.
    pub fn trace(&self, request: &NetTrace) -> NetTraceReply {
        self.common.trace.read(request)
    }

    /// Ends the fabric for good: every waiting call to another process returns within about a second, and later ones fail at once. For
    /// unmounting with dead servers. To go on, make a new fabric.
    pub fn abort(&self) {
        self.common.dialler.live.abort();
        let routes = self.routes.read();
        for node in routes.nodes.values().chain(routes.addresses.values()) {
            node.wake_all();
        }
    }

    fn local_peer(&self, hub: &Arc<Hub>, target: TargetId) -> Arc<dyn Peer> {
        if let Some(peer) = self.routes.read().locals.get(&target) {
            return peer.clone();
        }
        let make = || -> Arc<dyn Peer> {
            let seat = hub.seat(target);
            Arc::new(LocalPeer { hub: hub.clone(), seat, target, live: self.common.dialler.live.clone() })
        };
        self.routes.write().locals.entry(target).or_insert_with(make).clone()
    }
}

fn unknown(target: TargetId, why: &str) -> NetError {
    NetError::NotSent { peer: format!("target {target}"), why: why.into() }
}
