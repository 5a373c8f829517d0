//! What can be set of an OST, with defaults that suit a mount.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time of day in seconds since 1970, for the expiry of capabilities and for damage records.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// How an OST behaves. `Default` is what the servers use.
#[derive(Clone)]
pub struct Settings {
    /// Time between flushes of what nobody asked to be flushed. After `join` the cluster map's value counts.
    pub commit_interval: Duration,
    /// False: no threads; the owner flushes and checkpoints by hand (tests of power loss, which need every step to repeat).
    pub background: bool,
    /// False: no thread scrubs (an OST that is only looked at).
    pub scrub: bool,
    /// How the engine treats small writes.
    pub store: store::Settings,
    pub clock: Clock,
}

impl Default for Settings {
    fn default() -> Settings {
        let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let commit_interval = Duration::from_secs(1);
        let store = store::Settings::default();
        Settings { commit_interval, background: true, scrub: true, store, clock: Arc::new(clock) }
    }
}
