//! Backup and restore of the story's MDT, as the tool does it.

use std::sync::Arc;
use std::time::Instant;

use disk::{Disk, SimDisk};
use mds::backup::{Stream, read_head};
use net::{Fabric, rpc};
use types::Buf;
use wire::Header;
use wire::check::{CopyOut, CopyReply};
use wire::codec::Bytes;

use super::{PATIENCE, Story, Who};

impl Story {
    /// All records of the MDT, while it serves.
    pub fn backup(&self) -> Vec<u8> {
        let seat = &self.seats[0];
        let target = seat.target().expect("it runs");
        let peer = Fabric::new(Some(seat.hub().clone())).peer(target).expect("it runs");
        let head = Header { fs: self.fs_id(), target, ..Header::default() };
        let ask = |run, after| -> CopyReply {
            let req = CopyOut { cap: self.admin(), run, after };
            let said = rpc::call(&*peer, head, &req, &[], &mut Buf::new(), Instant::now() + PATIENCE);
            said.expect("a call in this process arrives").2.expect("an MDT obeys its tools")
        };
        let (mut reply, mut out) = (ask(0, Bytes::default()), Vec::new());
        let head = reply.head.take().expect("it comes first");
        let mut stream = Stream::begin(&head, &mut out).expect("memory takes it");
        loop {
            reply.records.iter().for_each(|record| stream.record(record).expect("memory takes it"));
            if reply.done {
                break;
            }
            let last = reply.records.last().expect("there are more").key.clone();
            reply = ask(reply.run, last);
        }
        stream.finish().expect("memory takes it");
        out
    }

    /// The MDT's medium is lost, and made anew from a backup.
    pub fn restore(&mut self, backup: &[u8]) {
        self.seats[0].end();
        let disk = Arc::new(SimDisk::new(self.seats[0].disk.size() * 4));
        let mut input = backup;
        let head = read_head(&mut input).expect("it is a backup");
        let settings = mds::Settings::default();
        mds::Mdt::restore(disk.clone() as Arc<dyn Disk>, &head, None, false, &mut input, settings)
            .expect("the medium is blank and large enough");
        self.seats[0].disk = disk;
        self.start(Who::Mdt);
    }
}
