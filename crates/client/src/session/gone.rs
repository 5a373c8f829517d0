//! Objects that this client knows to be removed. Writes to them are not replayed after a restart.
//!
//! The MDT destroys these objects. A later replay would make them again, without a record that names them.

use std::collections::{HashSet, VecDeque};

use parking_lot::Mutex;
use types::{Attr, Fid, Generation};
use wire::object::{Reserve, Truncate, Write};
use wire::{Request, Wire};

use crate::session::slots::Sendable;

/// Most remembered removals. Requests are retained for a commit interval or two, and few clients remove as many files in that time. Past it the
/// oldest is dropped, which at worst leaves an object for fsck.
const GONE_MAX: usize = 65_536;
/// Most removed inodes that `stat` still knows. A program that asks has the inode open, and asks soon. Past it the oldest is dropped, and
/// `ESTALE`.
const REMEMBERED_MAX: usize = 1024;

#[derive(Default)]
pub(crate) struct Gone {
    /// Files with all their objects, or those of one generation.
    list: Mutex<VecDeque<(Fid, Option<Generation>)>>,
    /// Last attributes of inodes without a name, such as a process's working directory or a path descriptor.
    last_seen: Mutex<VecDeque<Attr>>,
}

impl Gone {
    pub fn add(&self, fid: Fid, generation: Option<Generation>) {
        let mut list = self.list.lock();
        if list.len() == GONE_MAX {
            list.pop_front();
        }
        list.push_back((fid, generation));
    }

    /// Remembers an inode that the MDT has removed, and the kernel may still know.
    pub fn remember(&self, attr: Attr) {
        let mut seen = self.last_seen.lock();
        if seen.len() == REMEMBERED_MAX {
            seen.pop_front();
        }
        seen.push_back(attr);
    }

    /// Attributes of a removed inode; nlink is 0.
    pub fn attr_of(&self, fid: Fid) -> Option<Attr> {
        self.last_seen.lock().iter().rev().find(|a| a.fid == fid).copied()
    }

    /// Removes from `requests` those that touch removed objects.
    pub fn sift<T>(&self, requests: &mut Vec<T>, request: impl Fn(&T) -> &Sendable) {
        let gone: HashSet<_> = self.list.lock().iter().copied().collect();
        let is_gone = |s: &Sendable| {
            object_of(s).is_some_and(|(fid, g)| gone.contains(&(fid, None)) || gone.contains(&(fid, Some(g))))
        };
        requests.retain(|r| !is_gone(request(r)));
    }
}

/// The file and generation whose object a request changes.
fn object_of(request: &Sendable) -> Option<(Fid, Generation)> {
    let object = match request.head.call {
        Write::CALL => Write::from_bytes(&request.body).ok()?.object,
        Truncate::CALL => Truncate::from_bytes(&request.body).ok()?.object,
        Reserve::CALL => Reserve::from_bytes(&request.body).ok()?.object,
        _ => return None,
    };
    Some((object.fid, object.generation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{ObjectId, SessionId};
    use wire::Header;
    use wire::object::{Capability, Mac};

    fn truncate(fid: u64, generation: u32) -> Sendable {
        let (fid, generation) = (Fid(fid), Generation(generation));
        let cap = Capability {
            fid,
            generation,
            rights: 0,
            lease_epoch: 0,
            lease_counter: 0,
            session: SessionId(0),
            expiry_sec: 0,
            mac: Mac::default(),
        };
        let object = ObjectId { fid, generation, ..ObjectId::default() };
        let body = Truncate { cap, object, len: 0 }.to_bytes();
        Sendable { head: Header { call: Truncate::CALL, ..Header::default() }, body, bulk: vec![], fid }
    }

    #[test]
    fn only_dead_objects_are_sifted_out() {
        let gone = Gone::default();
        gone.add(Fid(1), None);
        gone.add(Fid(2), Some(Generation(1)));
        let mut requests =
            vec![truncate(1, 1), truncate(1, 2), truncate(2, 1), truncate(2, 2), truncate(3, 1)];
        let settle = Sendable { head: Header { call: 0x217, ..Header::default() }, ..truncate(1, 1) };
        requests.push(settle);
        gone.sift(&mut requests, |r| r);
        let left: Vec<_> = requests.iter().map(|r| (r.fid.0, r.head.call)).collect();
        assert_eq!(left, [(2, Truncate::CALL), (3, Truncate::CALL), (1, 0x217)]);
    }
}
