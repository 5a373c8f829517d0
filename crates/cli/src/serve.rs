//! What a process serves: targets, the MGS and the mount, in any combination, and how they start and end.
//!
//! `stria up` and the role commands are put together from the same parts; only what they hold differs.
//! Order of a start: open and recover a target, register it with the MGS, join, serve. Order of an end: unmount, settle, stop
//! listening, stop targets (checkpoint, clean mark), say goodbye to the MGS.

pub mod device;
pub mod heart;
pub mod local;
pub mod mounted;
pub mod register;
pub mod role;
pub mod servers;

use std::sync::mpsc;
use std::time::Duration;

/// This host's name, for people who read the cluster map.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Each connection is an open file, and the usual soft limit of 1024 is what one server may have of them alone: the limit becomes
/// what the system allows. Where that fails it stays, and `accept` says so when it is reached.
pub fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    if limit.current != limit.maximum
        && let Err(e) = setrlimit(Resource::Nofile, raised)
    {
        tracing::warn!(limit = limit.current, "the limit of open files was not raised: {e}");
    }
}

/// Runs `work` on a thread of its own and waits at most `limit`; `None` if it still runs then (it is left behind).
pub fn bounded<T: Send + 'static>(
    name: &str,
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
        // Nobody may wait any more; then the result is not wanted.
        let _ = sender.send(work());
    });
    if let Err(e) = thread {
        tracing::warn!("no thread for '{name}': {e}");
        return None;
    }
    receiver.recv_timeout(limit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_open_files_is_what_the_system_allows() {
        raise_file_limit();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }

    #[test]
    fn bounded_work_is_waited_for_and_no_longer() {
        assert_eq!(bounded("quick", Duration::from_secs(5), || 7), Some(7));
        let (release, held) = mpsc::channel::<()>();
        assert_eq!(bounded("slow", Duration::from_millis(5), move || held.recv().is_ok()), None);
        drop(release);
    }
}
