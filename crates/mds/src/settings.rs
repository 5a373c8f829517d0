//! Settings of an MDT, with defaults that suit a mount.

use std::sync::Arc;
use std::time::Duration;

use crate::judge::{Groups, Squash};
use crate::{Clock, MachineClock, MetaRules, Rules};

/// How an MDT behaves. `Default` is what the servers use.
#[derive(Clone)]
pub struct Settings {
    /// Time between background flushes. After `join` the cluster map's value counts.
    pub commit_interval: Duration,
    /// A session without requests for this long may be evicted when another client attaches.
    pub session_ttl: Duration,
    /// False: no threads; the owner flushes and checkpoints by hand (tests of power loss, which need every step to repeat).
    pub background: bool,
    /// Bytes of records in memory; records not used lately are on the medium only. Changes since the last checkpoint stay in memory
    /// beyond this bound.
    pub cache_bytes: u64,
    pub groups: Groups,
    /// Root becomes this user; `None`: it stays root.
    pub squash: Option<Squash>,
    pub rules: Arc<dyn Rules>,
    pub clock: Arc<dyn Clock>,
}

impl Settings {
    /// The defaults, with these rules.
    pub fn with_rules(rules: Arc<dyn Rules>) -> Settings {
        Settings {
            commit_interval: Duration::from_secs(1),
            // Long enough for a client that is scheduled badly or restarts its connection (a few seconds), short enough that
            // the owner of a killed mount does not give up waiting.
            session_ttl: Duration::from_secs(10),
            background: true,
            cache_bytes: 1 << 30,
            groups: Groups::Client,
            squash: None,
            rules,
            clock: Arc::new(MachineClock),
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::with_rules(Arc::new(MetaRules))
    }
}
