//! Changes of names and attributes that wait until other sessions have forgotten what they cache: their bound, and how tools see them.
//!
//! mds-L6: each change that waits for other sessions is listed while it waits, and at most `WAITING_MAX` do.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use parking_lot::Mutex;
use types::{Code, Fault, Fid, SessionId};

/// Changes that may wait at a time: half of the threads of a server.
pub const WAITING_MAX: usize = 32;

/// A directory whose names are to be forgotten, or an inode whose attributes are; and a session that holds a lease of it.
pub type Awaited = (Fid, SessionId);

/// A change that waits.
#[derive(Clone, Debug)]
pub struct Recalling {
    pub session: SessionId,
    pub began: Instant,
    pub of: BTreeSet<Awaited>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    waiting: BTreeMap<u64, Recalling>,
}

/// The changes that wait now.
#[derive(Debug, Default)]
pub struct Recalls(Mutex<Table>);

/// A change that waits, until it is dropped.
#[derive(Debug)]
pub struct Waiting<'a> {
    recalls: &'a Recalls,
    number: u64,
}

impl Recalls {
    /// Refuses a change too many; its client asks again. So a silent holder leaves threads for the requests of others.
    pub fn begin(&self, one: Recalling) -> Result<Waiting<'_>, Fault> {
        let mut table = self.0.lock();
        if table.waiting.len() >= WAITING_MAX {
            return Err(Fault::new(
                Code::NotReady,
                format!("{WAITING_MAX} changes wait for clients that cache what they change; try again"),
            ));
        }
        let number = table.next;
        table.next += 1;
        table.waiting.insert(number, one);
        Ok(Waiting { recalls: self, number })
    }

    pub fn len(&self) -> usize {
        self.0.lock().waiting.len()
    }

    /// Those that wait, in the order of their begin.
    pub fn list(&self) -> Vec<Recalling> {
        self.0.lock().waiting.values().cloned().collect()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let gone = self.recalls.0.lock().waiting.remove(&self.number);
        debug_assert!(gone.is_some(), "mds-L6: a change is listed while it waits");
    }
}
