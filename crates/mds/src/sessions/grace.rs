//! Removed inodes stay for a moment while path walks meet their absence.
//!
//! A call by path takes two steps: name → fid, and fid → call. If the file is removed between them, the call is `Stale`. The kernel
//! then repeats the walk, and only once. Without this, a name that is removed and made in a loop would give programs `ESTALE`.
//! mds-GR1: once a call was refused as `Stale`, inodes removed within `WINDOW_MS` stay as orphans of the session that removes them.
//!     The answer says so (`kept`), and the session releases them after its own grace. The second walk found its name after the refusal,
//!     so it finds the inode too. Removals cost nothing more while no walk meets one.

use std::sync::atomic::{AtomicU64, Ordering};

use types::{Code, Fault};
use wire::Request;
use wire::meta::{
    GetAttr, GetStripe, GetXattr, Link, ListXattr, Open, OpenRead, ReadLink, RemoveXattr, SetAttr, SetFlags,
    SetXattr, Truncate,
};
use wire::shared::Enter;

/// Longer than a second walk takes on a loaded machine; shorter than a burst of removals that would fill the session's list.
const WINDOW_MS: u64 = 3000;

/// The window in which removed inodes are kept.
#[derive(Default)]
pub struct Grace {
    /// Boot time; 0: no walk has met a removal yet.
    until_ms: AtomicU64,
}

impl Grace {
    /// Notes a refused request.
    pub fn on_refusal(&self, call: u16, fault: &Fault, now_ms: u64) {
        if fault.code == Code::Stale && is_step_of_a_walk(call) {
            self.until_ms.fetch_max(now_ms + WINDOW_MS, Ordering::Relaxed);
        }
    }

    pub fn is_open(&self, now_ms: impl FnOnce() -> u64) -> bool {
        let until_ms = self.until_ms.load(Ordering::Relaxed);
        until_ms > 0 && now_ms() < until_ms
    }
}

/// Calls by fid that the second step of a path walk sends.
fn is_step_of_a_walk(call: u16) -> bool {
    matches!(
        call,
        Open::CALL
            | OpenRead::CALL
            | Enter::CALL
            | GetAttr::CALL
            | SetAttr::CALL
            | Truncate::CALL
            | ReadLink::CALL
            | Link::CALL
            | GetXattr::CALL
            | SetXattr::CALL
            | ListXattr::CALL
            | RemoveXattr::CALL
            | SetFlags::CALL
            | GetStripe::CALL
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::meta::Settle;

    #[test]
    fn gr1_a_stale_step_of_a_walk_opens_the_window_and_nothing_else_does() {
        let grace = Grace::default();
        assert!(!grace.is_open(|| 1));
        grace.on_refusal(Settle::CALL, &Code::Stale.into(), 1000);
        grace.on_refusal(Open::CALL, &Code::NotFound.into(), 1000);
        assert!(!grace.is_open(|| 1001), "no walk met a removal");
        grace.on_refusal(Open::CALL, &Code::Stale.into(), 1000);
        assert!(grace.is_open(|| 1000 + WINDOW_MS - 1) && !grace.is_open(|| 1000 + WINDOW_MS));
        grace.on_refusal(SetAttr::CALL, &Code::Stale.into(), 500);
        assert!(grace.is_open(|| 1000 + WINDOW_MS - 1), "an earlier refusal shortens nothing");
    }
}
