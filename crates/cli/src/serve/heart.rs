//! Heartbeats: each second a server reports to the MGS that its targets live. Servers and clients hear of a newer map by a notice of the MGS. A
//! client also asks for one after a target refused a request as not its own, or did not answer.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use net::{Answer, Listening, Service};
use parking_lot::{Condvar, Mutex};
use types::{NodeId, TargetId};
use wire::Header;
use wire::map::ClusterMap;
use wire::mgmt::Heartbeat;

use crate::serve::bounded;
use crate::serve::register::MgsPeers;

/// Time between heartbeats. The MGS counts in multiples of it when it decides that a server is dead.
pub const BEAT_EACH: Duration = Duration::from_millis(mgmt::HEARTBEAT_MS);
/// Time between two looks of a client for a newer map, if no notice comes.
const LOOK_EACH: Duration = Duration::from_secs(10);
/// Shortest and longest time between two looks that a client asks for. It doubles while there is no newer map, so that the clients of a server
/// that is down do not ask all the time.
const WANTED_MIN: Duration = Duration::from_millis(50);
const WANTED_MAX: Duration = Duration::from_secs(5);
/// Longest wait for the last heartbeat, which reports the stop: missing heartbeats have the same effect.
const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// The sender of heartbeats, and the receiver of newer maps.
pub struct Beat {
    pub mgs: MgsPeers,
    /// A client has no node in the map: it only asks for the map.
    pub node: Option<NodeId>,
    pub targets: Vec<TargetId>,
    pub known_version: u64,
    pub on_map: Box<dyn Fn(&ClusterMap) + Send>,
}

/// Sends heartbeats; dropping it reports the stop.
pub struct Heart {
    pokes: Arc<Pokes>,
    thread: Option<JoinHandle<()>>,
    goodbye: Option<(MgsPeers, Heartbeat)>,
}

/// Why the thread wakes.
#[derive(Default)]
struct Pokes {
    state: Mutex<Poked>,
    changed: Condvar,
}

#[derive(Default)]
struct Poked {
    ends: bool,
    /// By a notice: there is a newer map.
    is_told: bool,
    /// A target may have moved.
    is_wanted: bool,
}

/// The times of a heart's looks.
struct Pace {
    /// Between two looks that nothing else causes.
    each: Duration,
    looked: Instant,
    /// The pause before a look that is wanted.
    wanted: Duration,
    /// The last look failed: what it was for is not done.
    is_owed: bool,
}

impl Pace {
    /// When to look next.
    fn due(&self, poked: &Poked) -> Instant {
        let each = if self.is_owed { self.each.min(BEAT_EACH) } else { self.each };
        match (poked.is_told, poked.is_wanted) {
            (true, _) => self.looked,
            (false, true) => self.looked + self.wanted.min(each),
            (false, false) => self.looked + each,
        }
    }

    fn has_looked(&mut self, found: bool, has_failed: bool, now: Instant) {
        (self.looked, self.is_owed) = (now, has_failed);
        self.wanted = if found { WANTED_MIN } else { (self.wanted * 2).min(WANTED_MAX) };
    }
}

impl Pokes {
    fn poke(&self, change: impl FnOnce(&mut Poked)) {
        change(&mut self.state.lock());
        self.changed.notify_all();
    }

    /// Waits until a look is due. False: the heart ends.
    fn wait(&self, pace: &Pace) -> bool {
        let mut poked = self.state.lock();
        while !poked.ends && Instant::now() < pace.due(&poked) {
            let due = pace.due(&poked);
            self.changed.wait_until(&mut poked, due);
        }
        (poked.is_told, poked.is_wanted) = (false, false);
        !poked.ends
    }
}

/// Hears notices of the MGS.
impl Service for Pokes {
    fn serve(&self, _: &Header, _: &[u8], _: &[u8], _: &mut Answer<'_>) {
        self.poke(|poked| poked.is_told = true);
    }
}

impl Heart {
    pub fn start(mut beat: Beat) -> anyhow::Result<Heart> {
        let pokes = Arc::new(Pokes::default());
        let goodbye = beat
            .node
            .map(|node| (beat.mgs.clone(), Heartbeat { node, targets: beat.targets.clone(), leaving: true }));
        let each = if beat.node.is_some() { BEAT_EACH } else { LOOK_EACH };
        let mut pace = Pace { each, looked: Instant::now(), wanted: WANTED_MIN, is_owed: false };
        let (heard, mut line) = (pokes.clone(), None::<Listening>);
        // A server reports at once; a client has the newest map, and begins to listen.
        pokes.poke(|poked| poked.is_told = true);
        let thread = std::thread::Builder::new().name("heart".into()).spawn(move || {
            let mut is_well = true;
            while heard.wait(&pace) {
                // First the beat: without it the MGS takes the server for dead.
                let mut result = beat.once();
                if result.is_ok() && !line.as_ref().is_some_and(Listening::is_open) {
                    line = beat.mgs.watch(&heard).ok();
                    // A map may have come before the line.
                    result = result.and_then(|found| Ok(beat.once()? || found));
                }
                pace.has_looked(matches!(result, Ok(true)), result.is_err(), Instant::now());
                // Only changes are logged: a dead MGS does not answer for hours.
                match (&result, is_well) {
                    (Err(e), true) => {
                        tracing::warn!(
                            "the management service at {} does not answer: {e:#}",
                            beat.mgs.describe()
                        );
                    }
                    (Ok(_), false) => tracing::info!("the management service answers again"),
                    _ => {}
                }
                is_well = result.is_ok();
            }
        })?;
        Ok(Heart { pokes, thread: Some(thread), goodbye })
    }

    /// Has a newer map fetched soon.
    pub fn want_map(&self) -> impl Fn() + Send + Sync + use<> {
        let pokes = self.pokes.clone();
        move || pokes.poke(|poked| poked.is_wanted = true)
    }

    /// Ends the heartbeats and reports the stop, if the MGS answers at once.
    pub fn stop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.pokes.poke(|poked| poked.ends = true);
        if let Some((mgs, heartbeat)) = self.goodbye.take() {
            let said = bounded("goodbye", GOODBYE_MAX, move || mgs.ask(&heartbeat).map(drop));
            if !matches!(said, Some(Ok(()))) {
                tracing::debug!(
                    "the management service was not told of the stop; it notices the missing heartbeats"
                );
            }
        }
        // The thread may wait for a dead MGS; then it is left behind.
        if thread.is_finished() {
            let _ = thread.join();
        }
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.stop()
    }
}

impl Beat {
    /// True: there was a newer map.
    fn once(&mut self) -> anyhow::Result<bool> {
        if let Some(node) = self.node {
            let heartbeat = Heartbeat { node, targets: self.targets.clone(), leaving: false };
            if self.mgs.ask(&heartbeat)?.version == self.known_version {
                return Ok(false);
            }
        }
        let map = self.mgs.map(self.known_version, self.node.is_some())?;
        let Some(map) = map.filter(|m| m.version != self.known_version) else { return Ok(false) };
        tracing::debug!(version = map.version, "new cluster map");
        self.known_version = map.version;
        (self.on_map)(&map);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heart_looks_at_once_when_told_and_more_seldom_the_longer_it_finds_nothing() {
        let looked = Instant::now();
        let mut pace = Pace { each: LOOK_EACH, looked, wanted: WANTED_MIN, is_owed: false };
        let due = |pace: &Pace, is_told, is_wanted| {
            pace.due(&Poked { ends: false, is_told, is_wanted }).saturating_duration_since(pace.looked)
        };
        assert_eq!(due(&pace, false, false), LOOK_EACH);
        assert_eq!(due(&pace, true, true), Duration::ZERO);
        let mut pauses = vec![];
        for _ in 0..9 {
            pauses.push(due(&pace, false, true).as_millis());
            pace.has_looked(false, false, looked);
        }
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        pace.has_looked(true, false, looked);
        assert_eq!(due(&pace, false, true), WANTED_MIN);
        pace.has_looked(false, true, looked);
        assert_eq!(due(&pace, false, false), BEAT_EACH, "what a failed look was for is not forgotten");
    }
}
