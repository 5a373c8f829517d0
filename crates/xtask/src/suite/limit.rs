//! A limit to how long a test may take. A hung mount would hold the whole run, and no line would say which test it was.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use rustix::mount::{UnmountFlags, unmount};
use testkit::Wiring;

/// Many times what the longest test of the short form takes.
const SHORT: Duration = Duration::from_secs(600);
const LONG: Duration = Duration::from_secs(4 * 3600);
/// After the mounts of a test are aborted, it ends by errors. One that does not ends the run.
const TO_END: Duration = Duration::from_secs(60);

/// Watches one test until it is dropped.
pub struct Limit {
    /// Its drop tells the watching thread.
    _ends: Sender<()>,
}

impl Limit {
    /// `parent` is the directory that holds the clusters' directories, with their mounts.
    pub fn begin(parent: &Path, wiring: Wiring, name: &'static str, is_short: bool) -> Limit {
        let after = if is_short { SHORT } else { LONG };
        Limit::with(after, wiring, name, parent.to_owned(), || std::process::exit(3))
    }

    fn with(
        after: Duration,
        wiring: Wiring,
        name: &'static str,
        parent: PathBuf,
        give_up: impl FnOnce() + Send + 'static,
    ) -> Limit {
        let (ends, ended) = mpsc::channel::<()>();
        let is_late = move |after| matches!(ended.recv_timeout(after), Err(RecvTimeoutError::Timeout));
        thread::spawn(move || {
            if !is_late(after) {
                return;
            }
            println!("HANGS  {wiring:?} {name}: no end after {} s; its mounts are aborted", after.as_secs());
            mounts_below(&parent).iter().for_each(|mount| {
                let _ = unmount(mount, UnmountFlags::FORCE | UnmountFlags::DETACH);
            });
            if is_late(TO_END) {
                println!("FAILED {wiring:?} {name}: it does not end without its mounts either");
                give_up();
            }
        });
        Limit { _ends: ends }
    }
}

fn mounts_below(parent: &Path) -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    points.filter(|point| point.starts_with(parent)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_ends_in_time_is_not_given_up() {
        let (tell, told) = mpsc::channel();
        let give_up = move || tell.send(()).expect("the test listens");
        let nowhere = PathBuf::from("/nowhere");
        drop(Limit::with(Duration::from_secs(600), Wiring::Tcp, "one", nowhere, give_up));
        // The watching thread ended, and dropped its way to give up.
        assert_eq!(told.recv(), Err(mpsc::RecvError));
    }

    #[test]
    fn mounts_are_found_by_their_place() {
        assert!(mounts_below(Path::new("/")).contains(&PathBuf::from("/proc")));
        assert_eq!(mounts_below(Path::new("/no/such/place")), Vec::<PathBuf>::new());
    }
}
