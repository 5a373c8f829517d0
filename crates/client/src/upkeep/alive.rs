//! Keep-alive requests to targets.
//!
//! The MDT evicts a session that is silent for the session time-out. A thread of its own sends its keep-alive, so that nothing delays it.
//! OSTs keep sessions for ever. Keep-alives to them notice a restart within seconds, also on an idle mount: then lost requests are
//! replayed, and close reports a loss.

use std::sync::Weak;
use std::time::{Duration, Instant};

use types::Fid;

use crate::Fs;
use crate::session::request::IN_FLIGHT_MAX;
use crate::upkeep::settle::failing;
use crate::wait_for_stop;

/// Pause between two keep-alives while the MDT's time-out is not known.
const PAUSE: Duration = Duration::from_secs(3);
/// Longest pause between two to the MDT, whose answers tell this client that another one wants to attach.
const MDT_PAUSE_MAX: Duration = Duration::from_secs(1);
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// Three times within the session's time-out. A keep-alive without an answer in a third of it is abandoned for the next one.
pub(crate) fn mdt_loop(weak: &Weak<Fs>) {
    every_third(weak, MDT_PAUSE_MAX, |fs, pause| {
        let Ok(mdt) = fs.mdt(Fid::ROOT) else { return };
        // Counted before it is asked: of what was closed by then it has taken no note, if it says that nobody else is there.
        let (closed, times) = (fs.files.end_of_left_alone(), fs.id.sharing.times_alone());
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

/// As often, all OSTs that are in use.
pub(crate) fn ost_loop(weak: &Weak<Fs>) {
    every_third(weak, Duration::MAX, |fs, pause| {
        let mut links = fs.cluster.in_use();
        links.retain(|l| !l.is_mdt);
        // They are asked a window at a time; all windows together take no longer than the pause.
        let windows = links.len().div_ceil(IN_FLIGHT_MAX).max(1) as u32;
        failing(&links, &|link| {
            link.keep_alive(Instant::now() + pause / windows)
                .inspect_err(|fault| tracing::debug!("keep-alive to {}: {fault}", link.describe()))
        });
    });
}

/// Calls `speak` at every third of the session's time-out until the client ends; the time that it takes counts.
fn every_third(weak: &Weak<Fs>, pause_max: Duration, speak: impl Fn(&Fs, Duration)) {
    let mut due = Instant::now();
    loop {
        let Some(ttl_ms) = weak.upgrade().map(|fs| fs.mdt(Fid::ROOT).map_or(0, |mdt| mdt.ttl_ms())) else {
            return;
        };
        let third = Duration::from_millis(ttl_ms as u64 / 3).max(PAUSE_MIN);
        let pause = if ttl_ms == 0 { PAUSE } else { third }.min(pause_max);
        due = (due + pause).max(Instant::now());
        if wait_for_stop(weak, due.saturating_duration_since(Instant::now())) {
            return;
        }
        let Some(fs) = weak.upgrade() else { return };
        speak(&fs, pause);
    }
}
