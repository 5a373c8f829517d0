//! A planned stop of a member, and its hand-over.

use std::sync::Arc;
use std::time::Duration;

use pair::Seat;
use types::Fault;

use super::{Place, Resting};
use crate::serve::bounded;
use crate::serve::servers::Target;

/// Longest wait for the other member's flush at a stop.
const FLUSH_MAX: Duration = Duration::from_secs(5);

impl Place {
    /// The process has begun to stop. `stop` follows for all of its places, one after another.
    pub fn expect_stop(&self) {
        let mut state = self.state.lock();
        state.expects_stop = true;
        state.seat.iter().for_each(|seat| seat.expect_stop());
    }

    /// A planned stop. The other member takes over without a wait.
    pub(super) fn leave(&self, seat: &Arc<Seat>, resting: Option<Resting>) -> Result<(), Fault> {
        // 1. No new requests; what was answered is durable at both. Most of it is flushed while requests still go on, so that they wait
        //    for the rest only.
        let target = self.state.lock().target.clone();
        if let Some(target) = &target {
            self.flush_bounded(target)?;
            self.show(seat, None);
            self.flush_bounded(target)?;
        }
        self.show(seat, None);
        self.state.lock().target = None;
        // 2. The word to the other member, while this one's log is still there to be shipped.
        if let Err(fault) = seat.leave() {
            tracing::warn!(target = %self.id(), %fault, "the other member of its mirror was not told of the stop; it takes over when it has waited for the promise");
        }
        if self.state.lock().is_stopping {
            self.around.hub.remove(self.id());
        }
        // 3. The medium.
        match (target, resting) {
            (Some(target), _) => target.stop(true),
            (None, Some(resting)) => resting.close(),
            (None, None) => Ok(()),
        }
    }

    /// Without the other member and the management service a flush would wait for ever. The entries that it would have
    /// brought to the other member are in this one's log.
    fn flush_bounded(&self, target: &Target) -> Result<(), Fault> {
        let work = target.clone();
        let Some(flushed) = bounded("flush-all", FLUSH_MAX, move || work.flush()) else {
            tracing::warn!(target = %self.id(), "its last entries are not flushed by the other member of its mirror, which does not answer");
            return Ok(());
        };
        flushed
    }
}
