//! The store of the cluster map: one versioned value, changed by compare-and-swap only.
//!
//! mapstore-I1: a change that was answered `Ok` survives any crash; one that was answered `Conflict` did not happen.
//! mapstore-I2: an unreadable map is an error and never an empty map: otherwise ids would be used again.
//! mapstore-I3: an open store has one user.

use wire::map::ClusterMap;

pub mod conformance;
mod error;
mod file;
mod form;
mod memory;

pub use error::StoreError;
pub use file::FileStore;
pub use form::{FORM_VERSION, decode, encode};
pub use memory::MemoryStore;

/// A store of the cluster map.
pub trait MapStore: Send + Sync {
    /// The map as it was last stored; `ClusterMap::empty` (version 0) in a new store.
    fn load(&self) -> Result<ClusterMap, StoreError>;

    /// Stores `next` if the stored version is `expected`; `next.version` must be `expected + 1`. Durable on return.
    ///
    /// After `Io` it is unknown whether the change happened: load again to see.
    fn compare_and_swap(&self, expected: u64, next: &ClusterMap) -> Result<(), StoreError>;
}
