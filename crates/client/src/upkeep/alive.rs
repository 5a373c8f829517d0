//! Keep-alives for targets.
//!
//! The MDT evicts a session without a sign of life, so a thread of its own sends them, which nothing else delays. OSTs keep sessions for ever.
//! They get keep-alives so that a restart is noticed within seconds even without reads and writes: then lost requests are replayed, and
//! close(2) reports a loss.

use std::sync::Weak;
use std::time::{Duration, Instant};

use types::Fid;

use crate::Fs;
use crate::session::request::IN_FLIGHT_MAX;
use crate::upkeep::settle::failing;
use crate::wait_for_bell;

/// Pause between keep-alives while the MDT's time-out is not known.
const PAUSE: Duration = Duration::from_secs(3);
/// Longest pause between two to the MDT. Its answers also say that another client wants to attach.
const MDT_PAUSE_MAX: Duration = Duration::from_secs(1);
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// Sends three keep-alives per session time-out. One that is not answered in a third of that is abandoned for the next.
pub(crate) fn mdt_loop(weak: &Weak<Fs>) {
    let wait = |left| wait_for_bell(weak, left, |id| &id.alive);
    every_third(weak, MDT_PAUSE_MAX, wait, |fs, pause| {
        let Ok(mdt) = fs.mdt(Fid::ROOT) else { return };
        // Counted before the request: if the answer says that this client is alone, the MDT has not noted the files closed by then.
        let (closed, times) = (fs.files.end_of_left_alone(), fs.id.sharing.times_alone());
        fs.id.leased.void_if_over();
        if fs.is_shared() && fs.id.leased.is_ending() {
            fs.give_up_pages();
        }
        if mdt.was_attached()
            && let Err(fault) = mdt.keep_alive(Instant::now() + pause)
        {
            tracing::debug!("keep-alive to {}: {fault}", mdt.describe());
        }
        if fs.id.sharing.times_alone() > times {
            fs.files.forget_left_alone(closed);
        }
    });
}

/// Sends keep-alives to all OSTs in use, as often.
pub(crate) fn ost_loop(weak: &Weak<Fs>) {
    every_third(
        weak,
        Duration::MAX,
        |left| wait_for_bell(weak, left, |id| &id.alive_osts),
        |fs, pause| {
            fs.judge_doubts(Instant::now() + pause);
            let mut links = fs.cluster.in_use();
            links.retain(|l| !l.is_mdt);
            // One window of OSTs at a time. All windows together take no longer than the pause.
            let windows = links.len().div_ceil(IN_FLIGHT_MAX).max(1) as u32;
            failing(&links, &|link| {
                link.keep_alive(Instant::now() + pause / windows)
                    .inspect_err(|fault| tracing::debug!("keep-alive to {}: {fault}", link.describe()))
            });
        },
    );
}

/// Calls `speak` at every third of the session's time-out, and whenever `wait` returns early, until the client ends. The time of the call counts.
fn every_third(
    weak: &Weak<Fs>,
    pause_max: Duration,
    wait: impl Fn(Duration) -> bool,
    speak: impl Fn(&Fs, Duration),
) {
    let mut due = Instant::now();
    loop {
        let Some(ttl_ms) = weak.upgrade().map(|fs| fs.mdt(Fid::ROOT).map_or(0, |mdt| mdt.ttl_ms())) else {
            return;
        };
        let third = Duration::from_millis(ttl_ms as u64 / 3).max(PAUSE_MIN);
        let pause = if ttl_ms == 0 { PAUSE } else { third }.min(pause_max);
        due = (due + pause).max(Instant::now());
        if wait(due.saturating_duration_since(Instant::now())) {
            return;
        }
        due = due.min(Instant::now());
        let Some(fs) = weak.upgrade() else { return };
        speak(&fs, pause);
    }
}
