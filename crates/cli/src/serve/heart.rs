//! Heartbeats: each second a process reports to the MGS that its targets live, and learns of a newer map.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use types::{NodeId, TargetId};
use wire::map::ClusterMap;
use wire::mgmt::Heartbeat;

use crate::serve::bounded;
use crate::serve::register::MgsPeers;

/// Time between heartbeats. The MGS counts in multiples of it when it decides that a server is dead.
pub const BEAT_EACH: Duration = Duration::from_millis(mgmt::HEARTBEAT_MS);
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
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    goodbye: Option<(MgsPeers, Heartbeat)>,
}

impl Heart {
    pub fn start(mut beat: Beat) -> anyhow::Result<Heart> {
        let (stop, stopped) = mpsc::channel::<()>();
        let goodbye = beat
            .node
            .map(|node| (beat.mgs.clone(), Heartbeat { node, targets: beat.targets.clone(), leaving: true }));
        let thread = std::thread::Builder::new().name("heart".into()).spawn(move || {
            let mut is_well = true;
            while stopped.recv_timeout(BEAT_EACH) == Err(RecvTimeoutError::Timeout) {
                let result = beat.once();
                // Only changes are logged: a dead MGS does not answer for hours.
                match (&result, is_well) {
                    (Err(e), true) => {
                        tracing::warn!(
                            "the management service at {} does not answer: {e:#}",
                            beat.mgs.describe()
                        );
                    }
                    (Ok(()), false) => tracing::info!("the management service answers again"),
                    _ => {}
                }
                is_well = result.is_ok();
            }
        })?;
        Ok(Heart { stop: Some(stop), thread: Some(thread), goodbye })
    }

    /// Ends the heartbeats and reports the stop, if the MGS answers at once.
    pub fn stop(&mut self) {
        let Some(stop) = self.stop.take() else { return };
        drop(stop);
        if let Some((mgs, heartbeat)) = self.goodbye.take() {
            let said = bounded("goodbye", GOODBYE_MAX, move || mgs.ask(&heartbeat).map(drop));
            if !matches!(said, Some(Ok(()))) {
                tracing::debug!(
                    "the management service was not told of the stop; it notices the missing heartbeats"
                );
            }
        }
        // The thread may wait for a dead MGS; then it is left behind.
        if let Some(thread) = self.thread.take().filter(|t| t.is_finished()) {
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
    fn once(&mut self) -> anyhow::Result<()> {
        if let Some(node) = self.node {
            let heartbeat = Heartbeat { node, targets: self.targets.clone(), leaving: false };
            if self.mgs.ask(&heartbeat)?.version == self.known_version {
                return Ok(());
            }
        }
        let map = self.mgs.map(self.known_version, self.node.is_some())?;
        if let Some(map) = map.filter(|m| m.version != self.known_version) {
            tracing::debug!(version = map.version, "new cluster map");
            self.known_version = map.version;
            (self.on_map)(&map);
        }
        Ok(())
    }
}
