//! The services of this process, by target id. The MGS is `TargetId(0)`.
//!
//! A request for a target that is not here is refused before anything is done, so the caller may try elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use types::{Buf, NodeId, TargetId};
use wire::{Flags, Header};

use crate::{Answer, Service};

/// Who serves what in this process. A process has a handful of targets, so the list is searched in order.
#[derive(Default)]
pub struct Hub {
    services: RwLock<Vec<(TargetId, Arc<dyn Service>)>>,
    node: AtomicU64,
}

/// There is no such target in this process: nothing was done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotHere;

impl Hub {
    pub fn new() -> Arc<Hub> {
        Arc::new(Hub::default())
    }

    /// Serves `target` from now on; a service that had this id before is replaced.
    pub fn add(&self, target: TargetId, service: Arc<dyn Service>) {
        let mut services = self.services.write();
        services.retain(|(id, _)| *id != target);
        services.push((target, service));
    }

    /// Ends serving `target`. Requests that are being carried out are finished.
    pub fn remove(&self, target: TargetId) {
        self.services.write().retain(|(id, _)| *id != target);
    }

    pub fn serves(&self, target: TargetId) -> bool {
        self.find(target).is_some()
    }

    /// The targets served, in the order of their coming.
    pub fn targets(&self) -> Vec<TargetId> {
        self.services.read().iter().map(|(id, _)| *id).collect()
    }

    /// This process' node id as the map has it; told in handshakes and replies. 0 until known.
    pub fn set_node(&self, node: NodeId) {
        self.node.store(node.0, Ordering::Relaxed);
    }
    pub fn node(&self) -> NodeId {
        NodeId(self.node.load(Ordering::Relaxed))
    }

    fn find(&self, target: TargetId) -> Option<Arc<dyn Service>> {
        self.services.read().iter().find(|(id, _)| *id == target).map(|(_, s)| s.clone())
    }

    /// Carries out one request on this thread. The reply's bulk bytes land in `into`; lengths are set in the header.
    pub(crate) fn serve(
        &self,
        head: &Header,
        body: &[u8],
        bulk: &[u8],
        into: &mut Buf,
    ) -> Result<(Header, Vec<u8>), NotHere> {
        let service = self.find(head.target).ok_or(NotHere)?;
        into.clear();
        let mut answer = Answer { head: reply_to(head), body: Vec::new(), bulk: into };
        service.serve(head, body, bulk, &mut answer);
        let Answer { head: mut reply, body, bulk } = answer;
        reply.flags |= Flags::REPLY;
        reply.body_len = body.len() as u32;
        reply.bulk_len = bulk.len() as u32;
        Ok((reply, body))
    }
}

/// The header of a reply to `head`: the same conversation, the way back, no lengths yet.
pub(crate) fn reply_to(head: &Header) -> Header {
    Header {
        flags: Flags::REPLY,
        source: head.destination,
        destination: head.source,
        body_len: 0,
        bulk_len: 0,
        ..*head
    }
}
