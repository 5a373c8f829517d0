//! Damage as from a faulty program: objects and records that no request created.

use std::time::Instant;

use disk::{Verdict, Volume};
use kv::{Batch, Value};
use meta::records::InodeRecord;
use net::{Fabric, rpc};
use types::crc::fragment_crcs;
use types::{Buf, Fid, Key, ObjectId, Time};
use wire::Header;
use wire::object::Write;

use super::{PATIENCE, Story, Who, number};

impl Story {
    /// Puts an object on an OST that no MDT knows of.
    pub fn plant_object(&self, who: Who, object: ObjectId, data: &[u8]) {
        let seat = &self.seats[number(who)];
        let target = seat.target().expect("it runs");
        let peer = Fabric::new(Some(seat.hub().clone())).peer(target).expect("it runs");
        let head = Header { fs: self.fs_id(), target, ..Header::default() };
        let crcs = fragment_crcs(0, data);
        let req = Write {
            cap: self.admin(),
            object,
            offset: 0,
            crcs,
            mtime: Time::default(),
            granted: false,
            lock: 0,
        };
        let said = rpc::call(&*peer, head, &req, data, &mut Buf::new(), Instant::now() + PATIENCE);
        said.expect("a call in this process arrives").2.expect("an OST obeys its servers");
    }

    /// Changes an inode's record on the MDT's medium. The MDT is stopped for it and started again.
    pub fn falsify_inode(&mut self, fid: Fid, change: impl FnOnce(&mut InodeRecord)) {
        let key = meta::keys::inode(fid);
        self.falsify(key, |old| {
            let mut inode = InodeRecord::decode(fid, old).expect("the MDT wrote it");
            change(&mut inode);
            Some(Value::new(&inode.encode()))
        });
    }

    /// Removes an inode's record on the MDT's medium, and nothing else.
    pub fn delete_inode(&mut self, fid: Fid) {
        self.falsify(meta::keys::inode(fid), |_| None);
    }

    /// The test has repaired the damage: the end of the story checks the medium again.
    pub fn mended(&mut self) {
        self.seats[0].spoiled = false;
    }

    fn falsify(&mut self, key: Key, change: impl FnOnce(&[u8]) -> Option<Value>) {
        self.seats[0].end();
        self.seats[0].spoiled = true;
        let volume = Volume::open(self.seats[0].disk.clone()).expect("the MDT's volume");
        // 1. The record's last value. A story is too short for a checkpoint, so the value is in the log.
        let mut old = None;
        volume
            .replay(&mut |entry| {
                let record = mds::record::decode(entry.payload).expect("the MDT wrote it");
                for c in record.changes.0.into_iter().filter(|c| c.key == key) {
                    old = c.value.map(|v| v.raw().to_vec());
                }
                Verdict::Keep
            })
            .expect("the log is whole");
        // 2. Append one more entry, as the MDT would.
        volume.start().expect("the medium is well");
        let mut batch = Batch::new();
        match change(&old.expect("the inode has a record")) {
            Some(value) => batch.put(key, value),
            None => batch.delete(key),
        }
        let mut payload = Vec::new();
        mds::record::encode(&[], &batch, &mut payload);
        volume.append(volume.label().epoch, &payload).expect("there is room");
        volume.flush().expect("the medium is well");
        drop(volume);
        self.start(Who::Mdt);
    }
}
