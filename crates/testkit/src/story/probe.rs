//! Inspection and changes that bypass the story's client, as a server or an admin tool that has the file system's secret.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use client::fsck::{self, Report};
use disk::Disk;
use net::{Fabric, rpc};
use object::LeaseVersion;
use types::{Buf, Fault, Fid, Layout, MirrorId, ObjectId, SessionId, Uuid};
use wire::Header;
use wire::Request;
use wire::meta::{GetAttr, Inode};
use wire::object::{
    Capability, Damage, DamageList, Destroy, Glimpse, List, ObjectStat, RIGHT_READ, RIGHT_WRITE,
};
use wire::session::{Flush, TargetStat, TargetStatReply};

use super::seat::Running;
use super::{FS_NAME, PATIENCE, Story, Who, number};

/// Between fsck's rounds: longer than a turn of the lively shape's purge.
const FSCK_PAUSE: Duration = Duration::from_millis(30);

impl Story {
    pub fn secret(&self) -> Uuid {
        self.map().fs_named(FS_NAME).expect("the MDT has made it").secret
    }

    /// A capability for every object, as servers make it.
    pub fn admin(&self) -> Capability {
        object::cap::make_admin(&self.secret(), now_sec() + 3600)
    }

    /// Sends one request to a server directly, without the client.
    pub fn ask<R: Request>(&self, who: Who, req: &R) -> Result<R::Reply, Fault> {
        let seat = &self.seats[number(who)];
        let target = seat.target().expect("it runs");
        let peer = Fabric::new(Some(seat.hub().clone())).peer(target).expect("it runs");
        let head = Header { fs: self.fs_id(), target, ..Header::default() };
        let said = rpc::call(&*peer, head, req, &[], &mut Buf::new(), Instant::now() + PATIENCE);
        said.expect("a call in this process arrives").2
    }

    /// The inode as the MDT has it.
    pub fn inode(&self, fid: Fid) -> Result<Inode, Fault> {
        self.ask(Who::Mdt, &GetAttr { fid })
    }

    pub fn layout(&self, fid: Fid) -> Option<Layout> {
        self.inode(fid).expect("the file exists").layout
    }

    /// The OST that serves a mirror.
    pub fn ost_of(&self, mirror: MirrorId) -> Who {
        let primary = self.map().mirror(mirror).expect("it is in the map").primary;
        let at = self.seats.iter().position(|s| s.target() == Some(primary)).expect("it runs");
        Who::Ost(at - 1)
    }

    /// Every object of every OST that runs.
    pub fn objects(&self) -> Vec<(Who, ObjectStat)> {
        let osts = (0..self.shape.osts).map(Who::Ost).filter(|w| self.seats[number(*w)].is_running());
        let list = |who| {
            let req = List { cap: self.admin(), after: None, max: 4096 };
            let reply = self.ask(who, &req).expect("an OST lists its objects");
            assert!(!reply.more, "a story has few objects");
            reply.objects.into_iter().map(move |o| (who, o))
        };
        osts.flat_map(list).collect()
    }

    /// Objects of one file.
    pub fn objects_of(&self, fid: Fid) -> Vec<(Who, ObjectId)> {
        self.objects().into_iter().filter(|(_, s)| s.object.fid == fid).map(|(w, s)| (w, s.object)).collect()
    }

    /// Destroys an object without the MDT's knowledge.
    pub fn destroy_object(&self, who: Who, object: ObjectId) {
        self.ask(who, &Destroy { cap: self.admin(), objects: vec![object] })
            .expect("an OST obeys its servers");
    }

    /// Fences every client that has the file open, as an eviction does: the object records the highest lease epoch.
    pub fn fence_object(&self, who: Who, object: ObjectId) {
        let lease = LeaseVersion { epoch: u32::MAX, counter: 1 };
        let rights = RIGHT_READ | RIGHT_WRITE;
        let (fid, generation) = (object.fid, object.generation);
        let expiry = now_sec() + 3600;
        let cap = object::cap::make(&self.secret(), fid, generation, rights, lease, SessionId(0), expiry);
        self.ask(who, &Glimpse { cap, objects: vec![object] }).expect("a good capability");
    }

    pub fn damage(&self, who: Who) -> Vec<Damage> {
        self.ask(who, &DamageList { cap: self.admin() }).expect("an OST lists its damage").damage
    }

    /// Flips a bit of the first place on an OST's medium that holds `needle`.
    pub fn flip_bit_of(&self, needle: &[u8]) -> Who {
        for n in 0..self.shape.osts {
            let seat = &self.seats[number(Who::Ost(n))];
            if let Some(at) = seat.image().windows(needle.len()).position(|w| w == needle) {
                seat.disk.write_at(&[needle[0] ^ 4], at as u64).expect("within the medium");
                return Who::Ost(n);
            }
        }
        panic!("no OST holds these bytes");
    }

    pub fn stat(&self, who: Who) -> TargetStatReply {
        self.ask(who, &TargetStat {}).expect("every target has numbers")
    }

    /// Flushes a server: every acknowledged change becomes durable.
    pub fn flush(&self, who: Who) {
        self.ask(who, &Flush {}).expect("the medium is well");
    }

    pub fn flush_all(&self) {
        self.flush(Who::Mdt);
        (0..self.shape.osts).for_each(|n| self.flush(Who::Ost(n)));
    }

    /// Stops a server cleanly; `start` finds a clean medium.
    pub fn stop_clean(&mut self, who: Who) {
        let seat = &mut self.seats[number(who)];
        match seat.running().expect("it runs") {
            Running::Mdt(mdt) => mdt.stop(true),
            Running::Ost(ost) => ost.stop(true),
        }
        .expect("the medium is well");
        seat.end();
    }

    /// Fsck as the tool runs it.
    pub fn fsck(&self) -> Report {
        fsck::check_with_pause(self.fs(), &self.secret(), FSCK_PAUSE).expect("fsck can look")
    }

    /// As `fsck`, with other options.
    pub fn fsck_with(&self, how: fsck::How) -> Report {
        fsck::check_with(self.fs(), &self.secret(), how).expect("fsck can look")
    }

    /// As `check_clean` for a quiet story, where no purge destroys the objects of unlinked files.
    pub fn check_clean_but_for_purge(&self) {
        let mut findings = self.fsck().findings;
        findings.retain(|f| f.kind != fsck::Problem::SlowPurge);
        assert!(findings.is_empty(), "fsck finds {findings:#?}");
    }

    /// Fails unless fsck finds nothing. Retries for a while, since a purge may still be in progress.
    pub fn check_clean(&self) {
        let until = Instant::now() + PATIENCE / 4;
        loop {
            let report = self.fsck();
            if report.findings.is_empty() {
                return;
            }
            assert!(Instant::now() < until, "fsck finds {:#?}", report.findings);
        }
    }
}

fn now_sec() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
