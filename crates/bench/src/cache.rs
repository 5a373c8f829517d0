//! Cold reads: what is done against caches, and what is said about it.

use serde::{Deserialize, Serialize};

const DROP: &str = "/proc/sys/vm/drop_caches";

/// What stood in caches when a row was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheState {
    /// Nothing to defeat: the row writes, or makes what it measures.
    Fresh,
    /// All was written back and the page, name and inode caches of this machine's kernel were dropped
    /// (`/proc/sys/vm/drop_caches`). Those of servers elsewhere stay as they are: nobody here can reach them.
    Dropped,
    /// By-passed: `O_DIRECT`. Names and attributes may be warm.
    Direct,
    /// Nothing was done: what was written or read before may be read from memory.
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

/// Writes back what earlier phases left dirty, so that the next one does not pay for it.
pub fn settle() {
    rustix::fs::sync();
}

/// May this process drop the kernel's caches? Being root is not enough in a container.
pub fn may_drop() -> bool {
    std::fs::OpenOptions::new().write(true).open(DROP).is_ok()
}

/// Makes the machine forget what it may. `Advised`: it may not, and workers ask for their own files (`Job::forget_pages`).
pub fn cool() -> CacheState {
    settle();
    match std::fs::write(DROP, "3") {
        Ok(()) => CacheState::Dropped,
        Err(_) => CacheState::Advised,
    }
}
