//! The store of the cluster map: one versioned value, changed by compare-and-swap only.
//!
//! mapstore-I1: a change that was answered `Ok` survives any crash; one that was answered `Conflict` did not happen.
//! mapstore-I2: an unreadable map is an error and never an empty map: otherwise ids would be used again.
//! mapstore-I3: an open directory has one user. etcd has several, one of which leads (mapstore-E1 to mapstore-E3, `etcd.rs`).

use std::sync::Arc;

use wire::map::ClusterMap;

pub mod conformance;
mod error;
pub mod etcd;
mod file;
mod form;
mod memory;

pub use error::StoreError;
pub use etcd::EtcdStore;
pub use file::FileStore;
pub use form::{FORM_VERSION, decode, encode};
pub use memory::MemoryStore;

/// A store of the cluster map.
pub trait MapStore: Send + Sync {
    /// The map as it was last stored; `ClusterMap::empty` (version 0) in a new store.
    fn load(&self) -> Result<ClusterMap, StoreError>;

    /// Stores `next` if the stored version is `expected`; `next.version` must be `expected + 1`. Durable on return.
    ///
    /// After `Io` or `EtcdUnknown` it is unknown whether the change happened: load again to see.
    fn compare_and_swap(&self, expected: u64, next: &ClusterMap) -> Result<(), StoreError>;

    /// This process's right to change the map now.
    fn standing(&self) -> Standing {
        Standing::Leads { term: 0 }
    }

    /// Makes sure that `version` is the stored one and that this process leads, at a moment after the call began.
    fn confirm(&self, _version: u64) -> Result<(), StoreError> {
        Ok(())
    }

    /// Other processes use this store too.
    fn is_shared(&self) -> bool {
        false
    }

    /// `hear` is called when another process has changed the map, and when the standing changes.
    fn on_news(&self, _hear: Box<dyn Fn() + Send + Sync>) {}
}

impl<S: MapStore + ?Sized> MapStore for Arc<S> {
    fn load(&self) -> Result<ClusterMap, StoreError> {
        (**self).load()
    }
    fn compare_and_swap(&self, expected: u64, next: &ClusterMap) -> Result<(), StoreError> {
        (**self).compare_and_swap(expected, next)
    }
    fn standing(&self) -> Standing {
        (**self).standing()
    }
    fn confirm(&self, version: u64) -> Result<(), StoreError> {
        (**self).confirm(version)
    }
    fn is_shared(&self) -> bool {
        (**self).is_shared()
    }
    fn on_news(&self, hear: Box<dyn Fn() + Send + Sync>) {
        (**self).on_news(hear)
    }
}

/// The place of a process among the users of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It changes the map. Another `term`: others may have changed it meanwhile.
    Leads { term: i64 },
    /// Another process does.
    Follows { leader: String },
    /// None does; one will soon.
    NoLeader,
    /// The store does not answer, so that none may.
    NoQuorum { why: String },
}

impl Standing {
    /// The reason that this process changes nothing; empty for a leader.
    pub fn why(&self) -> String {
        match self {
            Standing::Leads { .. } => String::new(),
            Standing::Follows { leader } => format!("the one at {leader} does; ask it"),
            Standing::NoLeader => "none does at this moment; try again in a few seconds".into(),
            Standing::NoQuorum { why } => {
                format!(
                    "etcd has no quorum, or cannot be reached ({why}); start its members. Clients and servers go on meanwhile"
                )
            }
        }
    }
}
