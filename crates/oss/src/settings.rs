//! Settings of an OST, with defaults that suit a mount.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mgmt::params::{Param, Params};

use crate::Core;

/// The time of day in seconds since 1970, for the expiry of capabilities and for damage records.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Behaviour of an OST. `Default` is the setting of the servers.
#[derive(Clone)]
pub struct Settings {
    /// Time between background flushes. After `join` the cluster map's value is used.
    pub commit_interval: Duration,
    /// False: no background threads; the owner flushes and checkpoints by hand (power-loss tests, where every step must be repeatable).
    pub background: bool,
    /// False: no scrub thread (for an OST that is only inspected).
    pub scrub: bool,
    /// Most bytes per second that the other member of its mirror is filled with; 0: no limit.
    pub resync_rate: u64,
    /// Values that administrators have set.
    pub params: Arc<Params>,
    /// The engine's handling of small writes.
    pub store: store::Settings,
    pub clock: Clock,
}

impl Default for Settings {
    fn default() -> Settings {
        let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let commit_interval = Duration::from_secs(1);
        let store = store::Settings::default();
        Settings {
            commit_interval,
            background: true,
            scrub: true,
            resync_rate: 0,
            params: Arc::default(),
            store,
            clock: Arc::new(clock),
        }
    }
}

impl Core {
    /// Gives the store the values of small writes of now, and later ones.
    pub fn follow_params(&self) {
        let (me, base) = (self.me.clone(), self.settings.store);
        self.settings.params.on_change(move |params| {
            let Some(core) = me.upgrade() else { return false };
            if let Some(engine) = &core.engine {
                let patch = params.get(Param::SmallWriteMax).unwrap_or(base.patch_bytes_max.into());
                let overlay = params.get(Param::SmallWriteMemory).unwrap_or(base.overlay_bytes_max);
                engine.tune(patch, overlay);
            }
            true
        });
    }
}
