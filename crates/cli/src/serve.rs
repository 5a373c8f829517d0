//! The parts of a serving process: targets, the MGS and the mount, in any combination, and how they start and end.
//!
//! `stria up` and the role commands consist of the same parts in different combinations.
//! Order of a start: open and recover a target, register it with the MGS, join, serve. Order of an end: unmount, settle, stop listening,
//! stop targets (checkpoint, clean mark), report the stop to the MGS.

pub mod device;
pub mod guard;
pub mod heart;
pub mod keeper;
pub mod local;
pub mod metrics;
pub mod mount_params;
pub mod mounted;
pub mod place;
pub mod register;
pub mod role;
pub mod router;
pub mod servers;

use std::sync::mpsc;
use std::time::Duration;

/// This host's name, as shown to readers of the cluster map.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Settings of a serving process, made before it starts threads, which inherit them.
pub fn prepare_process() {
    raise_file_limit();
    be_io_flusher();
}

/// The kernel never frees memory for this process by writing out pages: these may belong to a mount that this process serves (decision
/// 0018). It needs CAP_SYS_RESOURCE, which containers and plain users lack. Without it there is a risk only if memory runs short while a
/// program stores through mappings of the mount's files. That is no fault, so there is no warning at each start.
fn be_io_flusher() {
    let Err(e) = rustix::process::configure_io_flusher_behavior(true) else { return };
    // A plain user cannot have it and needs no warning each time: [S-short-memory] documents it.
    if rustix::process::geteuid().is_root() {
        tracing::info!(
            "no IO_FLUSHER state: {e}; harmless unless programs store through mappings of the mount's files while memory is short: then give \
             this process CAP_SYS_RESOURCE"
        );
    } else {
        tracing::debug!("no IO_FLUSHER state: {e}");
    }
}

/// Raises the soft limit of open files to the hard limit: each connection is an open file, and one server may exceed the usual 1024. If
/// that fails, the limit stays, and `accept` reports it when it is reached.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    if limit.current != limit.maximum
        && let Err(e) = setrlimit(Resource::Nofile, raised)
    {
        tracing::warn!(limit = limit.current, "the limit of open files was not raised: {e}");
    }
}

/// Runs `work` on a thread of its own and waits at most `limit`; `None` if it still runs then. The thread is left behind.
pub fn bounded<T: Send + 'static>(
    name: &str,
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
        // The caller may have stopped waiting; then the result is dropped.
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
    fn threads_that_start_later_do_not_write_out_pages_for_memory() {
        // On a thread of its own: threads inherit the state from the thread that starts them.
        let seen = std::thread::spawn(|| {
            be_io_flusher();
            std::thread::spawn(rustix::process::is_io_flusher).join().expect("it does not panic")
        });
        match seen.join().unwrap() {
            Ok(is_io_flusher) => assert!(is_io_flusher),
            Err(e) => eprintln!("skipped: it needs CAP_SYS_RESOURCE ({e})"),
        }
    }

    #[test]
    fn bounded_work_is_waited_for_and_no_longer() {
        assert_eq!(bounded("quick", Duration::from_secs(5), || 7), Some(7));
        let (release, held) = mpsc::channel::<()>();
        assert_eq!(bounded("slow", Duration::from_millis(5), move || held.recv().is_ok()), None);
        drop(release);
    }
}
