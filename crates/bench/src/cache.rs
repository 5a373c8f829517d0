//! Cold reads: how caches are dropped or bypassed, and how the report states it.

use serde::{Deserialize, Serialize};

const DROP: &str = "/proc/sys/vm/drop_caches";

/// State of the caches when a row was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheState {
    /// No cache matters: the row writes, or creates the files that it measures.
    Fresh,
    /// All was written back and the page, name and inode caches of this machine's kernel were dropped
    /// (`/proc/sys/vm/drop_caches`). Caches of remote servers stay warm: this machine cannot drop them.
    Dropped,
    /// By-passed: `O_DIRECT`. Names and attributes may be warm.
    Direct,
    /// No cache was dropped: data that was written or read before may come from memory.
    Warm,
    /// No right to drop them: the kernel was asked to let go of the files' pages (`POSIX_FADV_DONTNEED`); names stay warm.
    Advised,
}

impl CacheState {
    pub fn title(self) -> &'static str {
        match self {
            CacheState::Fresh => "-",
            CacheState::Dropped => "dropped",
            CacheState::Direct => "direct",
            CacheState::Warm => "warm",
            CacheState::Advised => "advised",
        }
    }
}

/// Writes back the dirty data of earlier phases, so that the next phase does not pay for it.
pub fn settle() {
    rustix::fs::sync();
}

/// May this process drop the kernel's caches? Being root is not enough in a container.
pub fn may_drop() -> bool {
    std::fs::OpenOptions::new().write(true).open(DROP).is_ok()
}

/// Drops the machine's caches. `Advised`: no permission, so workers advise the kernel for their own files (`Job::forget_pages`).
pub fn cool() -> CacheState {
    settle();
    match std::fs::write(DROP, "3") {
        Ok(()) => CacheState::Dropped,
        Err(_) => CacheState::Advised,
    }
}
