//! Single requests to a cluster of processes, with the certificate of a node: what a hostile program on that node could send.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use net::{Fabric, rpc};
use pki::Trust;
use types::{Buf, Fault, Fid, SessionId, TargetId};
use wire::map::ClusterMap;
use wire::mdt::MdtLeases;
use wire::mgmt::GetMap;
use wire::object::Capability;
use wire::{Header, Request};

/// Longest wait for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

pub struct Stranger {
    fabric: Arc<Fabric>,
    mgs: String,
    pub map: ClusterMap,
}

impl Stranger {
    /// With the certificate in `folder`, and the map as the MGS gives it to this certificate that asks as a server.
    pub fn at(mgs: &str, folder: &Path) -> Result<Stranger> {
        let trust = Trust::load(folder).map_err(|e| anyhow!("{}: {}", e.path.display(), e.why))?;
        let fabric = Fabric::with_trust(None, Some(trust));
        let mut stranger = Stranger { fabric, mgs: mgs.into(), map: ClusterMap::empty() };
        let map = stranger.ask(TargetId(0), SessionId(0), &GetMap { known_version: 0, server: true })?;
        stranger.map = map.map.context("the MGS sends a map")?;
        stranger.fabric.set_map(&stranger.map);
        Ok(stranger)
    }

    /// The first target of its kind.
    pub fn target(&self, is_mdt: bool) -> Result<TargetId> {
        let mut targets = self.map.targets.iter().filter(|t| t.is_mdt == is_mdt);
        Ok(targets.next().context("the cluster has targets")?.id)
    }

    /// The file system's key was given to it.
    pub fn has_key(&self) -> bool {
        self.map.file_systems.iter().any(|fs| fs.secret != types::Uuid::default())
    }

    /// A capability for everything, as servers and tools make it; without the key one that no target takes.
    pub fn capability(&self) -> Capability {
        let now_sec = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let secret = self.map.file_systems.first().map(|fs| fs.secret).unwrap_or_default();
        object::cap::make_admin(&secret, now_sec + 3600)
    }

    /// One request; a refusal is a `Fault`.
    pub fn ask<R: Request>(&self, target: TargetId, session: SessionId, req: &R) -> Result<R::Reply> {
        let peer = match target {
            TargetId(0) => self.fabric.peer_at(&self.mgs, target),
            _ => self.fabric.peer(target)?,
        };
        let fs = self.map.file_systems.first().map(|fs| fs.id).unwrap_or_default();
        let head = Header { fs, target, session, ..Header::default() };
        let deadline = Instant::now() + ANSWER_MAX;
        let (_, _, reply) = rpc::call(&*peer, head, req, &[], &mut Buf::new(), deadline)?;
        Ok(reply?)
    }

    /// The code and the words of a refusal; an answer is an error.
    pub fn refused<R: Request>(&self, target: TargetId, session: SessionId, req: &R) -> Result<Fault> {
        match self.ask(target, session, req) {
            Ok(_) => Err(anyhow!("call {:#06x} was not refused", R::CALL)),
            Err(e) => e.downcast::<Fault>(),
        }
    }

    /// The sessions at the MDT, with the names of their clients. It needs the key.
    pub fn sessions(&self) -> Result<Vec<(SessionId, String)>> {
        let req = MdtLeases { cap: self.capability(), fid: Fid(0) };
        let told = self.ask(self.target(true)?, SessionId(0), &req)?;
        Ok(told.clients.into_iter().map(|client| (client.session, client.name)).collect())
    }
}
