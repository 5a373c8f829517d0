//! `metrics = "ADDRESS"` of a process: the numbers that its page shows.
//!
//! The page asks targets as tools do, within this process. A target that does not answer leaves its samples out, and the others stay.

use std::collections::HashMap;
use std::sync::Arc;

use net::router::Router;
use net::{Fabric, Hub};
use parking_lot::Mutex;
use types::TargetId;
use watch::family::*;
use watch::jobs::Shown;
use watch::{Page, Sheet, Source};
use wire::fabric::PeerStat;
use wire::map::ClusterMap;
use wire::mgmt::MgsStat;
use wire::ost::purpose;
use wire::session::{TargetStat, TargetStatReply};

use crate::exit::Failure;
use crate::reach::{self, MGS};
use crate::serve::place::Place;
use crate::serve::servers::Target;

/// Starts the page, if an address is given. It is served until dropped.
pub fn serve(address: Option<&str>, source: impl Source) -> anyhow::Result<Option<Page>> {
    let Some(address) = address else { return Ok(None) };
    let page = Page::serve(address, Arc::new(source)).map_err(|e| {
        let next = "give an address of this machine and a free port, such as metrics = \"127.0.0.1:9710\"";
        Failure::failed(format!("metrics at {address}"), e, next)
    })?;
    if !page.address().ip().is_loopback() {
        tracing::warn!(address = %page.address(), "the page of metrics is served to a network without a password; let a firewall admit the scraper only");
    }
    tracing::info!("metrics at http://{}/metrics", page.address());
    Ok(Some(page))
}

/// Refuses an address without a port.
pub fn check_address(address: Option<&String>) -> Result<(), String> {
    use std::net::ToSocketAddrs;
    let Some(address) = address else { return Ok(()) };
    match address.to_socket_addrs() {
        Ok(_) => Ok(()),
        Err(e) => {
            Err(format!("metrics = {address:?}: {e}; give an address and a port, such as \"127.0.0.1:9710\""))
        }
    }
}

fn of_process(sheet: &mut Sheet, role: &str) {
    sheet.add(&BUILD, &[env!("CARGO_PKG_VERSION"), role], 1.0);
    watch::process::add(sheet);
}

/// The numbers of a server.
pub struct OfServers {
    pub role: &'static str,
    pub hub: Arc<Hub>,
    pub fabric: Arc<Fabric>,
    pub places: Vec<Arc<Place>>,
    pub mgs: Option<Arc<mgs::Mgs>>,
    /// Of a mount in the same process.
    pub calls: Arc<fuse::Calls>,
    /// The jobs that the page has shown.
    pub jobs: Mutex<HashMap<TargetId, Shown>>,
}

impl Source for OfServers {
    fn collect(&self, sheet: &mut Sheet) {
        of_process(sheet, self.role);
        let map = self.map();
        for (target, served) in self.hub.served() {
            watch::add_served(sheet, &name(&map, target), &served);
        }
        for (target, stats) in self.hub.jobs(usize::MAX) {
            self.jobs.lock().entry(target).or_default().add(sheet, &name(&map, target), &stats);
        }
        for place in &self.places {
            self.add_place(sheet, &map, place);
        }
        if let Some(mgs) = &self.mgs {
            self.add_mgs(sheet, &mgs.map());
        }
        add_mount(sheet, &self.calls);
        add_peers(sheet, &self.fabric.stat());
    }
}

impl OfServers {
    fn map(&self) -> Arc<ClusterMap> {
        match (self.places.first(), &self.mgs) {
            (Some(place), _) => place.map(),
            (None, Some(mgs)) => Arc::new(mgs.map()),
            (None, None) => Arc::new(ClusterMap::empty()),
        }
    }

    fn add_place(&self, sheet: &mut Sheet, map: &ClusterMap, place: &Place) {
        let name = name(map, place.id());
        let label = [name.as_str()];
        let target = place.target();
        sheet.add(&TARGET_UP, &label, f64::from(u8::from(target.is_some())));
        add_mirror(sheet, &label, place);
        let fs = map.target(place.id()).map(|target| target.fs).unwrap_or_default();
        let asked = self.fabric.peer(place.id()).map_err(anyhow::Error::from);
        let stat = asked.and_then(|peer| reach::ask(&*peer, fs, place.id(), &TargetStat {}));
        if let Ok(stat) = stat {
            add_target(sheet, &label, &stat);
        }
        match target {
            Some(Target::Ost(ost)) => add_ost(sheet, &name, &ost.counters()),
            Some(Target::Mdt(mdt)) => {
                if let Ok(stat) = mdt.counters() {
                    sheet.add(&RECORDS, &label, stat.records as f64);
                    sheet.add(&CACHE, &label, stat.memory_bytes as f64);
                    sheet.add(&CACHE_MAX, &label, stat.memory_bytes_max as f64);
                    sheet.add(&LEAVES_READ, &label, stat.leaves_brought as f64);
                    sheet.add(&LEASES, &label, stat.leases as f64);
                    sheet.add(&RECALLS, &label, stat.recalls as f64);
                    sheet.add(&RECALL_TIME, &label, stat.recall_us as f64 / 1e6);
                }
            }
            None => {}
        }
    }

    fn add_mgs(&self, sheet: &mut Sheet, map: &ClusterMap) {
        let peer = self.fabric.peer(MGS).map_err(anyhow::Error::from);
        if let Ok(stat) = peer.and_then(|peer| reach::ask(&*peer, types::FsId(0), MGS, &MgsStat {})) {
            sheet.add(&MGS_LEADS, &[], f64::from(u8::from(stat.leads)));
            sheet.add(&MGS_VERSION, &[], stat.version as f64);
        }
        sheet.add(&MGS_NODES, &[], map.nodes.len() as f64);
        for mirror in &map.mirrors {
            for member in &mirror.members {
                let Some(target) = map.target(member.target) else { continue };
                let fs = map.fs(target.fs).map_or("?", |fs| fs.name.as_str());
                sheet.add(&MGS_TARGETS, &[fs, mgmt::state_word(member.state)], 1.0);
            }
        }
    }
}

fn add_target(sheet: &mut Sheet, label: &[&str; 1], stat: &TargetStatReply) {
    let numbers = [
        (&CAPACITY, stat.bytes_total),
        (&FREE, stat.bytes_free),
        (&INODES, stat.files_total),
        (&INODES_FREE, stat.files_free),
        (&SESSIONS, stat.sessions.into()),
        (&DAMAGE, stat.damage_count),
        (&LOG_USED, stat.log_bytes_used),
        (&LOG_SIZE, stat.log_bytes_total),
        (&SEQ, stat.last_seq.0),
        (&TARGET_FAILED, u64::from(!stat.failure.is_empty())),
    ];
    numbers.into_iter().for_each(|(family, number)| sheet.add(family, label, number as f64));
}

fn add_ost(sheet: &mut Sheet, name: &str, stat: &wire::ost::OstStatReply) {
    let label = [name];
    for writes in &stat.writes {
        let purpose = purpose::word(writes.purpose);
        sheet.add(&DEVICE_WRITTEN, &[name, purpose], writes.sizes.bytes as f64);
        sheet.add(&DEVICE_WRITES, &[name, purpose], writes.sizes.counts.iter().sum::<u64>() as f64);
    }
    let numbers = [
        (&DEVICE_READ, stat.reads.bytes),
        (&DEVICE_READS, stat.reads.counts.iter().sum()),
        (&DEVICE_FLUSHES, stat.flushes),
        (&DEVICE_DISCARDED, stat.bytes_discarded),
        (&USER_WRITTEN, stat.user.bytes_written),
        (&USER_READ, stat.user.bytes_read),
        (&SMALL_PATCHED, stat.small.patched_writes),
        (&OVERLAY, stat.small.overlay_bytes),
        (&INDEX_MEMORY, stat.index.memory_bytes),
    ];
    numbers.into_iter().for_each(|(family, number)| sheet.add(family, &label, number as f64));
}

/// Only of members of a mirror of two.
fn add_mirror(sheet: &mut Sheet, label: &[&str; 1], place: &Place) {
    let Some(report) = place.report() else { return };
    let is_primary = matches!(report.role, mirror::Role::Primary | mirror::Role::Alone);
    let in_sync = report.states.iter().all(|state| *state == mirror::MemberState::InSync);
    sheet.add(&MIRROR_ROLE, label, f64::from(u8::from(is_primary)));
    sheet.add(&MIRROR_SYNC, label, f64::from(u8::from(in_sync)));
    sheet.add(&MIRROR_EPOCH, label, report.epoch.0 as f64);
    if let Some(acked) = report.acked {
        sheet.add(&MIRROR_BEHIND, label, report.end.1.0.saturating_sub(acked.0) as f64);
    }
    if let Some(filling) = report.filling {
        let part = filling.objects as f64 / filling.objects_total.max(1) as f64;
        sheet.add(&MIRROR_FILL, label, part);
    }
}

fn add_peers(sheet: &mut Sheet, peers: &[PeerStat]) {
    for stat in peers {
        let peer = stat.peer.as_str();
        sheet.add(&PEER_FRAMES, &[peer, "out"], stat.frames_out as f64);
        sheet.add(&PEER_FRAMES, &[peer, "in"], stat.frames_in as f64);
        sheet.add(&PEER_BYTES, &[peer, "out"], stat.bytes_out as f64);
        sheet.add(&PEER_BYTES, &[peer, "in"], stat.bytes_in as f64);
        sheet.add(&PEER_CONNECTIONS, &[peer], f64::from(stat.connections));
        sheet.add(&PEER_FAILURES, &[peer], stat.failures as f64);
    }
}

/// `home-OST0003`. All members of a mirror have this name, and a host has one of them.
fn name(map: &ClusterMap, target: TargetId) -> String {
    if target == MGS {
        return "MGS".to_owned();
    }
    map.target(target).map_or_else(
        || format!("target {target}"),
        |known| {
            let fs = map.fs(known.fs).map_or("?", |fs| fs.name.as_str());
            mgmt::target_name(fs, known.is_mdt, known.index)
        },
    )
}

fn add_mount(sheet: &mut Sheet, calls: &fuse::Calls) {
    for called in calls.called() {
        let label = [called.operation.as_str()];
        sheet.add(&MOUNT_REQUESTS, &label, called.requests as f64);
        sheet.add(&MOUNT_ERRORS, &label, called.errors as f64);
        sheet.add(&MOUNT_TIME, &label, called.time.as_secs_f64());
        sheet.add(&MOUNT_BYTES, &label, called.bytes as f64);
    }
}

/// The numbers of a mount.
pub struct OfMount {
    pub fabric: Arc<Fabric>,
    pub calls: Arc<fuse::Calls>,
}

impl Source for OfMount {
    fn collect(&self, sheet: &mut Sheet) {
        of_process(sheet, "mount");
        add_mount(sheet, &self.calls);
        add_peers(sheet, &self.fabric.stat());
    }
}

/// The numbers of a router.
pub struct OfRouter(pub Arc<Router>);

impl Source for OfRouter {
    fn collect(&self, sheet: &mut Sheet) {
        of_process(sheet, "router");
        let stat = self.0.stat();
        sheet.add(&ROUTER_REFUSED, &[], stat.refused as f64);
        for row in &stat.rows {
            let labels = [row.from.as_str(), row.to.as_str(), row.fs.as_str()];
            sheet.add(&ROUTER_CIRCUITS, &labels, f64::from(row.circuits));
            sheet.add(&ROUTER_STALLS, &labels, row.stall_us as f64 / 1e6);
            let way = |way| [labels[0], labels[1], labels[2], way];
            sheet.add(&ROUTER_BYTES, &way("out"), row.bytes_out as f64);
            sheet.add(&ROUTER_BYTES, &way("back"), row.bytes_back as f64);
        }
    }
}
