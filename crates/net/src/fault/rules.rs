//! Fault rules: each tells which frames it is for, and their treatment.

use std::time::Duration;

use parking_lot::Mutex;
use wire::{Flags, Header};

/// A fault for some of the frames that come through a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The frames' call number. `None`: any, pings too. A reply has the call number of its request.
    pub call: Option<u16>,
    pub way: Way,
    pub what: What,
    /// Frames to which the rule applies before it is used up. `None`: no bound.
    pub times: Option<u32>,
}

/// The frames by their flag, whichever end sends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Requests,
    Replies,
}

/// The treatment of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Drop,
    /// It arrives so much later. Other frames overtake it.
    Delay(Duration),
    /// It arrives twice.
    Duplicate,
    /// It arrives after the next frame of its direction. That one is never held back in turn.
    Reorder,
    /// The connection is closed before it.
    Cut,
    /// Its first bytes arrive, then the connection is closed. A frame that has no more bytes arrives whole.
    CutAfter(usize),
}

/// Names a rule of one proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleId(usize);

/// The rules of a proxy, in the order in which they were added. The first one that is for a frame applies to it.
#[derive(Default)]
pub(super) struct Rules {
    entries: Mutex<Vec<Entry>>,
}

struct Entry {
    rule: Rule,
    applied: u64,
    is_cleared: bool,
}

impl Entry {
    fn is_for(&self, head: &Header) -> bool {
        let Rule { call, way, times, .. } = self.rule;
        let is_reply = head.flags & Flags::REPLY != 0;
        !self.is_cleared
            && is_reply == (way == Way::Replies)
            && call.is_none_or(|call| call == head.call)
            && times.is_none_or(|times| self.applied < times.into())
    }
}

impl Rules {
    pub fn add(&self, rule: Rule) -> RuleId {
        let mut entries = self.entries.lock();
        entries.push(Entry { rule, applied: 0, is_cleared: false });
        RuleId(entries.len() - 1)
    }

    /// Ends all rules. Their counts stay.
    pub fn clear(&self) {
        self.entries.lock().iter_mut().for_each(|entry| entry.is_cleared = true);
    }

    pub fn applied(&self, id: RuleId) -> u64 {
        self.entries.lock()[id.0].applied
    }

    /// True if a rule is for a frame with this header, unless frames of other connections use it up before.
    pub fn has_one_for(&self, head: &Header) -> bool {
        self.entries.lock().iter().any(|entry| entry.is_for(head))
    }

    /// The treatment of a frame, which is counted. `may_hold`: no frame is held back in its direction.
    pub fn apply(&self, head: &Header, may_hold: bool) -> Option<What> {
        let mut entries = self.entries.lock();
        let entry = entries
            .iter_mut()
            .find(|entry| entry.is_for(head) && (may_hold || entry.rule.what != What::Reorder))?;
        entry.applied += 1;
        Some(entry.rule.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_is_for_a_frame_applies_until_it_is_used_up() {
        let rules = Rules::default();
        let rule = |call, way, what, times| rules.add(Rule { call, way, what, times });
        let first = rule(Some(7), Way::Requests, What::Drop, Some(2));
        let second = rule(None, Way::Requests, What::Cut, None);
        let third = rule(Some(7), Way::Replies, What::Reorder, None);
        let head = |call, flags| Header { call, flags, ..Header::default() };
        // call, flags, may_hold, treatment
        let table = [
            (8, 0, true, Some(What::Cut)),
            (7, 0, true, Some(What::Drop)),
            (7, Flags::REPLAY, true, Some(What::Drop)),
            (7, 0, true, Some(What::Cut)),
            (8, Flags::REPLY, true, None),
            (7, Flags::REPLY, true, Some(What::Reorder)),
            (7, Flags::REPLY, false, None),
        ];
        for (n, (call, flags, may_hold, want)) in table.into_iter().enumerate() {
            let head = head(call, flags);
            assert_eq!(rules.has_one_for(&head), want.is_some() || !may_hold, "{n}");
            assert_eq!(rules.apply(&head, may_hold), want, "{n}");
        }
        rules.clear();
        assert_eq!(rules.apply(&head(8, 0), true), None);
        assert_eq!([first, second, third].map(|id| rules.applied(id)), [2, 2, 1]);
    }
}
