//! How a serving process is asked to stop, and how sure it is that it will.
//!
//! SIGTERM and SIGHUP ask politely: a mount that is in use stays, and so does the process. A second one soon after, or SIGINT
//! (Ctrl-C), forces: the mount is taken away from its users. A signal during a forced stop ends the process on the spot,
//! which loses nothing acknowledged: servers are crash-safe.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A second polite signal within this time means it.
const SECOND_SIGNAL_WITHIN: Duration = Duration::from_secs(10);
/// A forced stop takes at most this long; then the process ends anyway. Clean stops of healthy targets take well under a second,
/// a disk's slow flush a few.
pub const FORCED_STOP_MAX: Duration = Duration::from_secs(10);

/// Why the main thread wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Stop(Manner),
    /// Somebody else unmounted, or the kernel ended the connection.
    Unmounted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Leaves a mount alone that is in use.
    Polite,
    Forced,
}

/// Set when a forced stop began.
static FORCED: AtomicBool = AtomicBool::new(false);

/// Begins to listen for signals. To be called before anything is mounted, so that no signal finds the default handler.
pub fn listen() -> anyhow::Result<(Sender<Event>, Receiver<Event>)> {
    let (sender, receiver) = mpsc::channel();
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let to_main = sender.clone();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut before = None;
        for signal in signals.forever() {
            if FORCED.load(Ordering::Relaxed) {
                tracing::error!(
                    "stopped on the spot by a signal during a forced stop; recovery will do the rest"
                );
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
    if signal == SIGINT || is_second { Manner::Forced } else { Manner::Polite }
}

/// Bounds a forced stop: when it takes too long, the process ends without.
pub fn begin_forced() {
    FORCED.store(true, Ordering::Relaxed);
    let watch = std::thread::Builder::new().name("stop-watch".into()).spawn(|| {
        std::thread::sleep(FORCED_STOP_MAX);
        tracing::error!(
            "a forced stop took longer than {FORCED_STOP_MAX:?}: ending without it; recovery will do the rest"
        );
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
        assert_eq!(manner_of(SIGTERM, None, now), Manner::Polite);
        assert_eq!(manner_of(SIGHUP, None, now), Manner::Polite);
        assert_eq!(manner_of(SIGINT, None, now), Manner::Forced);
        assert_eq!(manner_of(SIGTERM, ago(3), now), Manner::Forced);
        assert_eq!(manner_of(SIGTERM, ago(30), now), Manner::Polite);
    }
}
