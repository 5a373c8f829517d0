//! States of targets, from heartbeats and their absence.
//!
//! Such a state has no effect on requests: it informs people and tools. So a change of it neither raises the mirror's epoch nor changes its
//! members' states: a member in sync whose server is down still has the data, and only a member's request to the MGS declares another one out.

use std::collections::HashMap;

use types::TargetId;
use wire::map::{ClusterMap, Target};
use wire::mgmt::Heartbeat;

use crate::{STATE_DOWN, STATE_UNKNOWN, STATE_UP};

/// The interval of a server's heartbeats.
pub const HEARTBEAT_MS: u64 = 1000;
/// A target that is silent for longer is down: six heartbeats lost in a row, with time for a slow one.
pub const SILENCE_MS_MAX: u64 = 7000;

/// The servers' reports about themselves. Bounded by the map: only its targets are recorded.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    /// When this MGS began to receive reports. Silence has no meaning until `SILENCE_MS_MAX` later.
    begun_ms: u64,
    heard: HashMap<TargetId, Heard>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    At(u64),
    Left,
}

impl Reports {
    pub fn new(now_ms: u64) -> Reports {
        Reports { begun_ms: now_ms, heard: HashMap::new() }
    }

    /// Records a registration: the target is alive.
    pub fn on_register(&mut self, target: TargetId, now_ms: u64) {
        self.heard.insert(target, Heard::At(now_ms));
    }

    /// Records a heartbeat, for those of its targets that the map has on its node.
    pub fn on_heartbeat(&mut self, map: &ClusterMap, beat: &Heartbeat, now_ms: u64) {
        let heard = if beat.leaving { Heard::Left } else { Heard::At(now_ms) };
        for id in &beat.targets {
            if map.target(*id).is_some_and(|t| t.node == beat.node) {
                self.heard.insert(*id, heard);
            }
        }
    }

    /// Drops what was heard of targets that are not in the map any more.
    pub fn forget_removed(&mut self, map: &ClusterMap) {
        self.heard.retain(|target, _| map.target(*target).is_some());
    }

    /// True if the target reported recently, or if it was up before this MGS began to receive reports.
    pub fn is_up(&self, target: &Target, now_ms: u64) -> bool {
        self.state_of(target, now_ms) == STATE_UP
    }

    fn state_of(&self, target: &Target, now_ms: u64) -> u8 {
        let is_silent = |since_ms: u64| now_ms.saturating_sub(since_ms) > SILENCE_MS_MAX;
        match self.heard.get(&target.id) {
            Some(Heard::Left) => STATE_DOWN,
            Some(Heard::At(ms)) if is_silent(*ms) => STATE_DOWN,
            Some(Heard::At(_)) => STATE_UP,
            None if target.state != STATE_UNKNOWN && is_silent(self.begun_ms) => STATE_DOWN,
            None => target.state,
        }
    }
}

/// The map with the states that follow from the reports; `None` if it has them already.
pub fn next_states(map: &ClusterMap, reports: &Reports, now_ms: u64) -> Option<ClusterMap> {
    let states: Vec<u8> = map.targets.iter().map(|t| reports.state_of(t, now_ms)).collect();
    if map.targets.iter().zip(&states).all(|(t, s)| t.state == *s) {
        return None;
    }
    let mut next = map.clone();
    for (t, s) in next.targets.iter_mut().zip(states) {
        t.state = s;
    }
    next.version += 1;
    Some(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{FsId, MirrorId, NodeId, Uuid};

    const BEGUN: u64 = 1_000_000;
    const T: TargetId = TargetId(1);

    fn map(state: u8) -> ClusterMap {
        let target = Target {
            id: T,
            fs: FsId(1),
            is_mdt: false,
            index: 0,
            uuid: Uuid([1; 16]),
            node: NodeId(5),
            mirror: MirrorId(1),
            state,
            bytes_total: 0,
        };
        ClusterMap { version: 3, targets: vec![target], ..ClusterMap::empty() }
    }

    fn beat(node: u64, leaving: bool) -> Heartbeat {
        Heartbeat { node: NodeId(node), targets: vec![T], leaving }
    }

    #[test]
    fn states_follow_what_was_heard() {
        const UP: u8 = STATE_UP;
        const DOWN: u8 = STATE_DOWN;
        const TTL: u64 = SILENCE_MS_MAX;
        /// Name, state before, (ms after the start, heartbeat), ms after the start now, state then.
        type Row = (&'static str, u8, Option<(u64, Heartbeat)>, u64, u8);
        let table: [Row; 11] = [
            ("just started", UP, None, 0, UP),
            ("silent since the start, still within patience", UP, None, TTL, UP),
            ("silent since the start", UP, None, TTL + 1, DOWN),
            ("never registered", STATE_UNKNOWN, None, TTL + 1, STATE_UNKNOWN),
            ("heard", DOWN, Some((10, beat(5, false))), 20, UP),
            ("heard, within patience", UP, Some((10, beat(5, false))), 10 + TTL, UP),
            ("heard, then silent", UP, Some((10, beat(5, false))), 11 + TTL, DOWN),
            ("left", UP, Some((10, beat(5, true))), 11, DOWN),
            ("another node speaks for it", DOWN, Some((10, beat(6, false))), 20, DOWN),
            ("another node says that it left", UP, Some((10, beat(6, true))), 20, UP),
            ("the clock went back", UP, Some((10, beat(5, false))), 0, UP),
        ];
        for (name, before, heard, now, after) in table {
            let map = map(before);
            let mut reports = Reports::new(BEGUN);
            if let Some((at, beat)) = heard {
                reports.on_heartbeat(&map, &beat, BEGUN + at);
            }
            match next_states(&map, &reports, BEGUN + now) {
                Some(next) => {
                    assert_eq!((next.version, next.targets[0].state), (4, after), "{name}");
                    assert_ne!(before, after, "{name}: a change that changes nothing");
                }
                None => assert_eq!(before, after, "{name}"),
            }
        }
    }

    #[test]
    fn strangers_are_not_kept() {
        let mut reports = Reports::new(0);
        let strangers =
            Heartbeat { node: NodeId(5), targets: (2..1000).map(TargetId).collect(), leaving: false };
        reports.on_heartbeat(&map(STATE_UP), &strangers, 1);
        assert!(reports.heard.is_empty());
    }

    #[test]
    fn a_registration_is_a_sign_of_life() {
        let mut reports = Reports::new(0);
        reports.on_heartbeat(&map(STATE_UP), &beat(5, true), 1);
        reports.on_register(T, 2);
        assert_eq!(next_states(&map(STATE_UP), &reports, 3), None);
    }
}
