//! Totals of the MDT for `statfs`, exact after each entry that changes them: one record, one more put.

use wire::codec::{Malformed, Reader, Wire};

use crate::records::VERSION;
use crate::{Txn, View, keys};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Totals {
    /// Inodes in use, orphans too.
    pub inodes: u64,
}

/// The totals; zero if the record is missing or unreadable, which fsck finds by counting.
pub fn totals(view: &dyn View) -> Totals {
    view.get(&keys::kind_start(keys::TOTAL)).and_then(|v| Totals::decode(&v).ok()).unwrap_or_default()
}

pub(crate) fn inode_made(txn: &mut dyn Txn) {
    let t = totals(txn);
    store(txn, Totals { inodes: t.inodes.saturating_add(1) });
}

pub(crate) fn inode_dropped(txn: &mut dyn Txn) {
    let t = totals(txn);
    store(txn, Totals { inodes: t.inodes.saturating_sub(1) });
}

fn store(txn: &mut dyn Txn, totals: Totals) {
    txn.put(keys::kind_start(keys::TOTAL), totals.encode());
}

impl Totals {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(9);
        out.push(VERSION);
        self.inodes.put(&mut out);
        assert!(out.len() == 9, "the totals have a fixed length");
        out
    }
    pub fn decode(bytes: &[u8]) -> Result<Totals, Malformed> {
        let mut r = Reader::new(bytes);
        if u8::get(&mut r)? != VERSION {
            return Err(Malformed("record version"));
        }
        let totals = Totals { inodes: Wire::get(&mut r)? };
        r.end()?;
        Ok(totals)
    }
}
