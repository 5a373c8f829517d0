//! Metadata rules: one file per operation over a synchronous transaction. Pure: no clock, no I/O, no threads.

use types::Key;

/// A consistent view of an MDT's records.
pub trait View {
    fn get(&self, key: &Key) -> Option<std::sync::Arc<[u8]>>;
    /// Visits records with `from <= key < to` in key order until `f` returns false.
    fn range(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&Key, &[u8]) -> bool);
}

/// A view that can be changed; changes show in it at once and elsewhere when the batch commits, or never.
pub trait Txn: View {
    fn put(&mut self, key: Key, value: Vec<u8>);
    fn delete(&mut self, key: &Key);
    /// A fid or lease counter that is never given twice (reserved ahead, rule O5).
    fn next_fid(&mut self) -> types::Fid;
    fn next_lease(&mut self) -> u32;
}
