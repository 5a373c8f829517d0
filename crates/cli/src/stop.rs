//! How a serving process is asked to stop.
//!
//! SIGHUP (sent by `stria down`) asks politely: if the mount is in use, mount and process stay. A second SIGHUP soon after, SIGTERM or
//! SIGINT (Ctrl-C) force it: the mount is taken from its users. Once a stop cannot be refused any more, a further signal ends the process
//! at once. That loses nothing acknowledged: servers are crash-safe.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A second polite signal within this time forces the stop.
const SECOND_SIGNAL_WITHIN: Duration = Duration::from_secs(10);
/// A forced stop of a mount takes at most this long; then the process ends anyway. Its own steps are bounded by less.
pub const FORCED_MOUNT_STOP_MAX: Duration = Duration::from_secs(8);
/// As above for a process with servers: a checkpoint on a slow disk takes seconds, and saves the next start a recovery.
pub const FORCED_STOP_MAX: Duration = Duration::from_secs(15);

/// Events that wake the main thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Stop(Manner),
    /// Another process unmounted, or the kernel ended the connection.
    Unmounted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// A mount in use stays.
    Polite,
    Forced,
}

/// Set once a stop cannot be refused any more.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Starts to listen for signals. Call it before the mount is made, so that no signal meets the default handler.
pub fn listen() -> anyhow::Result<(Sender<Event>, Receiver<Event>)> {
    let (sender, receiver) = mpsc::channel();
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let to_main = sender.clone();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut before = None;
        for signal in signals.forever() {
            if ENDING.load(Ordering::Relaxed) {
                tracing::error!("ended at once by a signal during the stop; the next start recovers");
                std::process::exit(1);
            }
            let manner = manner_of(signal, before, Instant::now());
            before = Some(Instant::now());
            if to_main.send(Event::Stop(manner)).is_err() {
                return;
            }
        }
    })?;
    Ok((sender, receiver))
}

fn manner_of(signal: i32, before: Option<Instant>, now: Instant) -> Manner {
    let is_second = before.is_some_and(|t| now.saturating_duration_since(t) < SECOND_SIGNAL_WITHIN);
    if signal != SIGHUP || is_second { Manner::Forced } else { Manner::Polite }
}

/// From here on the process ends, whatever the time; a further signal ends it at once.
pub fn begin() {
    ENDING.store(true, Ordering::Relaxed);
}

/// As `begin`, but the process ends after `limit` in any case.
pub fn begin_forced(limit: Duration) {
    begin();
    let watch = std::thread::Builder::new().name("stop-watch".into()).spawn(move || {
        std::thread::sleep(limit);
        tracing::error!("a forced stop took longer than {limit:?}: ending at once; the next start recovers");
        std::process::exit(1);
    });
    if let Err(e) = watch {
        tracing::warn!("no thread to watch over the stop ({e}); a further signal ends it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_signal_soon_after_forces_and_a_late_one_asks_again() {
        let now = Instant::now();
        let ago = |sec| now.checked_sub(Duration::from_secs(sec));
        assert_eq!(manner_of(SIGHUP, None, now), Manner::Polite);
        assert_eq!(manner_of(SIGTERM, None, now), Manner::Forced);
        assert_eq!(manner_of(SIGINT, None, now), Manner::Forced);
        assert_eq!(manner_of(SIGHUP, ago(3), now), Manner::Forced);
        assert_eq!(manner_of(SIGHUP, ago(30), now), Manner::Polite);
    }
}
