//! A store in memory: for tests, and the reference for the behaviour of a store. A crash loses all of it.

use std::sync::Mutex;
use std::sync::PoisonError;

use wire::map::ClusterMap;

use crate::{MapStore, StoreError};

/// Starts with the empty map.
#[derive(Debug)]
pub struct MemoryStore(Mutex<ClusterMap>);

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore(Mutex::new(ClusterMap::empty()))
    }
}

impl MapStore for MemoryStore {
    fn load(&self) -> Result<ClusterMap, StoreError> {
        // A panic of another thread cannot leave the map half changed: it is replaced as a whole.
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn compare_and_swap(&self, expected: u64, next: &ClusterMap) -> Result<(), StoreError> {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        crate::file::check_versions(map.version, expected, next.version)?;
        *map = next.clone();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conforms() {
        crate::conformance::check(&|| Box::new(MemoryStore::default()));
    }
}
