//! Opens a medium by a thread that can be left behind: the kernel may hang where the device, or the system below a file, hangs.
//!
//! disk-O1: a medium that is opened after the limit is dropped, and the claim on it with it. A file that was made is removed first.
//! disk-O2: where no thread can be started the caller opens the medium itself, without a limit.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SendError, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;

use super::explain;

/// Runs `call`; `what` describes its failure ("cannot be opened").
pub fn within<T: Send + 'static>(
    limit: Duration,
    path: &Path,
    what: &str,
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    within_or_undo(limit, path, what, call, |_| {})
}

/// As `within`; `undo` gets a result that came after the limit.
pub fn within_or_undo<T: Send + 'static>(
    limit: Duration,
    path: &Path,
    what: &str,
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
    undo: impl FnOnce(&T) + Send + 'static,
) -> io::Result<T> {
    // A channel without buffer: the result is either taken or comes back to the sender.
    let (done, result) = sync_channel(0);
    // Shared, so that a caller that cannot start a thread still has it.
    let call = Arc::new(Mutex::new(Some(call)));
    let kept = call.clone();
    let helper = std::thread::Builder::new().name("disk-open".into()).spawn(move || {
        if let Some(call) = { kept.lock().take() } {
            // disk-O1: the caller has stopped waiting.
            if let Err(SendError(Ok(late))) = done.send(call()) {
                undo(&late);
            }
        }
    });
    if helper.is_err()
        && let Some(call) = { call.lock().take() }
    {
        return call();
    }
    match result.recv_timeout(limit) {
        Ok(result) => result,
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the thread that opens a disk is gone")),
        Err(RecvTimeoutError::Timeout) => {
            let why = format!("the device hangs: not done after {limit:?}");
            Err(explain(io::Error::new(io::ErrorKind::TimedOut, why), path, what))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn what_hangs_is_given_up_and_what_comes_late_is_let_go_of() {
        let (go, gate) = channel::<()>();
        let claim = Arc::new(());
        let held = claim.clone();
        let opened = within(Duration::ZERO, Path::new("/dev/x"), "cannot be opened", move || {
            let _ = gate.recv();
            Ok(held)
        });
        let late = opened.unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        assert_eq!(late.to_string(), "/dev/x cannot be opened: the device hangs: not done after 0ns");
        assert_eq!(Arc::strong_count(&claim), 2, "it is under way");
        drop(go);
        while Arc::strong_count(&claim) > 1 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_is_done_in_time_is_given_back_with_its_error() {
        let path = Path::new("/dev/x");
        let limit = Duration::from_secs(3600);
        assert_eq!(within(limit, path, "", || Ok(7)).unwrap(), 7);
        let failed = within::<()>(limit, path, "", || Err(io::ErrorKind::NotFound.into()));
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
