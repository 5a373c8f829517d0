//! The client side of the fabric: finds the peer that serves a target, by the cluster map.
//!
//! Peers are cheap handles; all targets of a node share the connections behind them. A peer keeps working when its
//! node's NIDs change; after a target moved to another node, ask for its peer again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use types::{NodeId, TargetId};
use wire::map::ClusterMap;

use crate::local::LocalPeer;
use crate::pool::{Live, Pool};
use crate::remote::RemotePeer;
use crate::{Hub, NetError, Peer};

pub struct Fabric {
    local: Option<Arc<Hub>>,
    node: Arc<AtomicU64>,
    live: Arc<Live>,
    routes: RwLock<Routes>,
}

#[derive(Default)]
struct Routes {
    /// Version of the map that the routes were taken from.
    version: u64,
    /// The node of each target, and its peer once asked for.
    targets: HashMap<TargetId, (NodeId, Option<Arc<dyn Peer>>)>,
    nodes: HashMap<NodeId, Arc<Pool>>,
    /// Pools of peers that were requested by address, before there was a map.
    addresses: HashMap<String, Arc<Pool>>,
    locals: HashMap<TargetId, Arc<dyn Peer>>,
}

impl Fabric {
    /// Targets that `local` serves are called in this process.
    pub fn new(local: Option<Arc<Hub>>) -> Arc<Fabric> {
        let node = local.as_ref().map_or(0, |h| h.node().0);
        Arc::new(Fabric {
            local,
            node: Arc::new(AtomicU64::new(node)),
            live: Arc::new(Live::default()),
            routes: RwLock::default(),
        })
    }

    /// This node's id, sent in handshakes and requests. 0 (a client that is in no map) until set.
    pub fn set_node(&self, node: NodeId) {
        self.node.store(node.0, Ordering::Relaxed);
    }

    /// Takes the routes of a map. Connections to nodes that stay are kept. A map older than the one before is ignored: its
    /// addresses may be those of servers that have restarted elsewhere.
    pub fn set_map(&self, map: &ClusterMap) {
        let mut routes = self.routes.write();
        if map.version < routes.version {
            return;
        }
        routes.version = map.version;
        let mut targets = HashMap::with_capacity(map.targets.len());
        for t in &map.targets {
            let known = routes.targets.remove(&t.id).filter(|(node, _)| *node == t.node);
            targets.insert(t.id, (t.node, known.and_then(|(_, peer)| peer)));
        }
        routes.targets = targets;
        routes.nodes.retain(|id, _| map.node(*id).is_some());
        for n in &map.nodes {
            match routes.nodes.get(&n.id) {
                Some(pool) => pool.set_nids(&n.nids),
                None => {
                    let pool =
                        Pool::new(n.name.clone(), n.id, n.nids.clone(), self.node.clone(), self.live.clone());
                    routes.nodes.insert(n.id, pool);
                }
            }
        }
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
        let pool =
            routes.nodes.get(node).ok_or_else(|| unknown(target, "its node is not in the cluster map"))?;
        if !pool.has_nids() {
            return Err(unknown(target, "its node has no address and it is not served in this process"));
        }
        let peer: Arc<dyn Peer> = Arc::new(RemotePeer { pool: pool.clone(), target });
        drop(routes);
        if let Some((_, slot)) = self.routes.write().targets.get_mut(&target) {
            *slot = Some(peer.clone());
        }
        Ok(peer)
    }

    /// The peer for `target` at an address, to find the MGS. An invalid address shows at the first call.
    pub fn peer_at(&self, nid: &str, target: TargetId) -> Arc<dyn Peer> {
        let mut routes = self.routes.write();
        let pool = routes.addresses.entry(nid.to_string()).or_insert_with(|| {
            Pool::new(nid.to_string(), NodeId(0), vec![nid.to_string()], self.node.clone(), self.live.clone())
        });
        Arc::new(RemotePeer { pool: pool.clone(), target })
    }

    /// Ends the fabric for good: every waiting call returns within about a second, and later ones fail at once. For unmounting with dead
    /// servers. To go on, make a new fabric.
    pub fn abort(&self) {
        self.live.abort();
        let routes = self.routes.read();
        for pool in routes.nodes.values().chain(routes.addresses.values()) {
            pool.wake_all();
        }
    }

    fn local_peer(&self, hub: &Arc<Hub>, target: TargetId) -> Arc<dyn Peer> {
        if let Some(peer) = self.routes.read().locals.get(&target) {
            return peer.clone();
        }
        let make = || -> Arc<dyn Peer> {
            let seat = hub.seat(target);
            Arc::new(LocalPeer { hub: hub.clone(), seat, target, live: self.live.clone() })
        };
        self.routes.write().locals.entry(target).or_insert_with(make).clone()
    }
}

fn unknown(target: TargetId, why: &str) -> NetError {
    NetError::NotSent { peer: format!("target {target}"), why: why.into() }
}
