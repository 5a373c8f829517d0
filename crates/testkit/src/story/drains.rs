//! Drains of the story's OSTs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::drain::{How, Report, drain};
use net::Fabric;
use types::{Buf, MirrorId};
use wire::Header;
use wire::mgmt::SetDraining;

use super::{FS_NAME, PATIENCE, Story};

impl Story {
    /// Marks an OST in the cluster map, which everybody hears. Returns its mirror.
    pub fn mark_draining(&self, n: usize) -> MirrorId {
        let mgs = Fabric::new(Some(self.hub.clone())).peer(mgs::MGS).expect("served here");
        let req = SetDraining { name: format!("{FS_NAME}-OST{n:04x}"), draining: true };
        let soon = Instant::now() + PATIENCE;
        let said = net::rpc::call(&*mgs, Header::default(), &req, &[], &mut Buf::new(), soon);
        let reply = said.expect("answered").2.expect("marked");
        self.tell_map();
        self.fs().set_map(self.map());
        reply.mirror
    }

    /// A second client drains the OST until it has moved one file. Objects stay until a purge.
    pub fn drain_once(&self, mirror: MirrorId) -> Report {
        let secret = self.map().fs_named(FS_NAME).expect("it was made").secret;
        let fs = self.beside();
        let stop = AtomicBool::new(false);
        let how = How { workers: 1, until: Some(Instant::now() + Duration::from_secs(10)), ..How::TOOL };
        let tell = |report: &Report| stop.store(report.files > 0, Ordering::SeqCst);
        let report = drain(&fs, &secret, mirror, &how, &stop, &tell).expect("drained");
        fs.shutdown().expect("shut down");
        report
    }
}
