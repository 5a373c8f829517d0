//! Filling of a member: it becomes empty, and takes the whole content as entries, beside live ones. See `resync`.

use ::types::Incarnation;

use super::Member;
use crate::history::History;
use crate::letter::Effect;
use crate::planted::{Rule, kept};
use crate::types::MirrorSeq;

impl Member {
    /// At a primary: the other member takes entries, and is to be filled by them. Its life, and all that it has.
    pub fn fills(&self) -> Option<(Incarnation, MirrorSeq)> {
        let peer = self.peer.as_ref().filter(|peer| peer.is_filling && self.leads())?;
        self.peer_acked().map(|acked| (peer.life, acked))
    }

    /// Step 5 by fills, at the receiver. mirror-F3: recorded before anything of the old content goes.
    pub(super) fn on_fill(&mut self, history: History, out: &mut Vec<Effect>) {
        if self.map().is_in_sync(self.me) || self.is_silent() {
            return;
        }
        // mirror-F6. A member that is whole may be declared in sync at any moment, so its primary has it filled no more.
        let has_all = self.standing.is_whole || history.end().seq <= self.history.end().seq;
        let is_late = self.is_streaming() && has_all;
        if is_late && kept(Rule::LateFillsAreVoid) {
            self.acknowledge(out);
            return;
        }
        (self.standing.is_filling, self.standing.is_whole) = (true, false);
        out.push(Effect::Record);
        (self.history, self.flushed) = (history, MirrorSeq(0));
        self.filled_from = self.history.end().seq;
        out.push(Effect::Refill);
        if let Some(peer) = &mut self.peer {
            peer.is_streaming = true;
        }
        self.acknowledge(out);
    }

    /// The entry that ends a filling is in the log. `since`: the first entry of that filling (mirror-F5).
    pub fn on_filled(&mut self, since: MirrorSeq, out: &mut Vec<Effect>) {
        let is_all = self.is_streaming() && self.filled_from < since;
        if !self.standing.is_filling || (!is_all && kept(Rule::FillingIsWhole)) {
            return;
        }
        self.flush(out);
        self.standing.is_filling = false;
        out.push(Effect::Record);
        self.acknowledge(out);
    }
}
