//! Settings of an MDT, with defaults that suit a mount.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use mgmt::params::{Param, Params};

use crate::judge::{Groups, Squash};
use crate::{Clock, MachineClock, MetaRules, Rules};

/// Settings. Servers use `Default`.
#[derive(Clone)]
pub struct Settings {
    /// Time between background flushes. After `join` the cluster map's value counts.
    pub commit_interval: Duration,
    /// A session that was silent for this long may be evicted when another client waits for it.
    pub session_ttl: Duration,
    /// False: no threads; the owner flushes and checkpoints by hand. Tests of power loss need that, so that every run has the same steps.
    pub background: bool,
    /// Most bytes of records in memory. Records that were not used lately are on the medium only. Changes since the last checkpoint come on
    /// top.
    pub cache_bytes: u64,
    pub groups: Groups,
    /// Root becomes this user; `None`: it stays root.
    pub squash: Option<Squash>,
    pub rules: Arc<dyn Rules>,
    pub clock: Arc<dyn Clock>,
    /// Values that administrators have set.
    pub params: Arc<Params>,
}

impl Settings {
    /// Bytes that hold now, as long as the cell is used.
    pub fn record_memory(&self) -> Arc<AtomicU64> {
        self.params.cell(Param::RecordMemory, self.cache_bytes)
    }

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
            params: Arc::default(),
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::with_rules(Arc::new(MetaRules))
    }
}
