//! The filling of the other member, at the primary: thread `pair-fill`.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use mirror::promise::ASK_MS;
use parking_lot::MutexGuard;
use types::{Epoch, Fault, Incarnation};

use super::{Shared, State};
use crate::letters::seq;
use crate::{Filled, Filling};

/// Entries that the other member may lack while fills are ordered. Without a bound they would go to the log of a member that is away.
const LAG_MAX: u64 = 128;
/// Why a filling waits that an administrator paused. The lines about mirrors show it.
const PAUSED: &str = "an administrator has paused it; `stria task resume` lets it go on";
/// Longest pause after a step, while requests come.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// A filling that is under way.
pub(crate) struct Under {
    /// The life of the other member, and the epoch, that it is for.
    of: (Incarnation, Epoch),
    /// `None` while a step is taken, and once the last one was.
    filling: Option<Box<dyn Filling>>,
    pub filled: Filled,
    /// Objects that were filled at some times, oldest first.
    recent: VecDeque<(u64, u64)>,
}

/// Time left is told from the last samples, one in each `SAMPLE_MS`: a minute of them.
const SAMPLE_MS: u64 = 5_000;
const SAMPLES_MAX: usize = 12;

impl Under {
    fn note(&mut self, filled: Filled, now_ms: u64) {
        self.filled = filled;
        if self.recent.back().is_none_or(|(at_ms, _)| at_ms + SAMPLE_MS <= now_ms) {
            self.recent.push_back((now_ms, filled.objects));
            if self.recent.len() > SAMPLES_MAX {
                self.recent.pop_front();
            }
        }
    }

    /// `None`: too little was filled to tell.
    pub fn left_sec(&self) -> Option<u32> {
        let (begin, end) = (self.recent.front()?, self.recent.back()?);
        let (ms, objects) = (end.0 - begin.0, end.1.checked_sub(begin.1).filter(|objects| *objects > 0)?);
        let left = u128::from(self.filled.objects_total.saturating_sub(self.filled.objects));
        u32::try_from(left * u128::from(ms) / u128::from(objects) / 1000).ok().map(|secs| secs.max(1))
    }
}

/// The least time that so many bytes take.
fn time_of(bytes: u64, rate: u64) -> Duration {
    match rate {
        0 => Duration::ZERO,
        rate => Duration::from_secs_f64(bytes as f64 / rate as f64),
    }
}

fn bytes_of(state: &State) -> u64 {
    state.filling.as_ref().map_or(0, |under| under.filled.bytes)
}

impl Shared {
    pub(super) fn fill(&self) {
        let mut state = self.state.lock();
        while !state.is_stopping {
            let (begin, ordered, bytes) = (Instant::now(), state.ordered, bytes_of(&state));
            if !self.fill_now(&mut state) {
                // Also after a fault: it may pass.
                self.fill_bell.wait_for(&mut state, Duration::from_millis(ASK_MS));
                continue;
            }
            let mut until = begin + time_of(bytes_of(&state).saturating_sub(bytes), (self.pace)().rate);
            if state.ordered > ordered + 1 {
                // Other requests have come meanwhile, and are to have at least half of the time.
                until = until.max(Instant::now() + begin.elapsed().min(PAUSE_MAX));
            }
            while !state.is_stopping
                && until > Instant::now()
                && !self.fill_bell.wait_until(&mut state, until).timed_out()
            {}
        }
    }

    /// The next step. False: there is none now.
    pub fn fill_now(&self, state: &mut MutexGuard<'_, State>) -> bool {
        let Some((life, acked)) = state.member.fills().filter(|_| state.end.is_none()) else {
            // It is filled, or away.
            state.filling = None;
            return false;
        };
        let of = (life, state.member.map().epoch);
        // All steps were taken: the other member only has to follow.
        let is_given = state.filling.as_ref().is_some_and(|under| under.filled.end.is_some());
        if (self.pace)().is_paused && !is_given {
            // A filling may hold memory, and a pause may be long. The next one compares what is there.
            (state.filling, state.filling_said) = (None, PAUSED.to_owned());
            return false;
        }
        if state.filling_said == PAUSED {
            state.filling_said.clear();
        }
        // pair-S9: it has the last entry, and says that it lacks some. It became empty since the first one.
        let is_over = |under: &Under| under.of != of || under.filled.end.is_some_and(|end| end <= seq(acked));
        if state.filling.as_ref().is_none_or(is_over) {
            let replica = state.replica.clone();
            state.filling = match MutexGuard::unlocked(state, || replica.fill()) {
                Ok(filling) => Some(Under {
                    of,
                    filling: Some(filling),
                    filled: Filled::default(),
                    recent: VecDeque::new(),
                }),
                Err(fault) => return self.put_off_filling(state, &fault),
            };
            return true;
        }
        if seq(state.member.history().end().seq).0 > seq(acked).0 + LAG_MAX {
            return false;
        }
        let Some(mut filling) = state.filling.as_mut().and_then(|under| under.filling.take()) else {
            return false;
        };
        let (filling, step) = MutexGuard::unlocked(state, || {
            let step = filling.step();
            (filling, step)
        });
        match step {
            Ok(filled) => {
                state.filling_said.clear();
                if let Some(under) = state.filling.as_mut().filter(|under| under.of == of) {
                    under.note(filled, self.clock.boot_ms());
                    under.filling = Some(filling).filter(|_| filled.end.is_none());
                }
                true
            }
            Err(fault) => self.put_off_filling(state, &fault),
        }
    }

    /// Any step can be lost, as a filling begins anew.
    fn put_off_filling(&self, state: &mut State, fault: &Fault) -> bool {
        state.filling = None;
        state.filling_said = fault.to_string();
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_follows_the_recent_rate() {
        let mut under = Under {
            of: (Incarnation(1), Epoch(1)),
            filling: None,
            filled: Filled::default(),
            recent: VecDeque::new(),
        };
        assert_eq!(under.left_sec(), None);
        // A fast begin is forgotten.
        for n in 0..100u64 {
            let objects = if n < 50 { n * 100 } else { 5_000 + (n - 50) * 10 };
            let filled = Filled { objects, objects_total: 6_000, ..Filled::default() };
            under.note(filled, 1_000 + n * SAMPLE_MS);
        }
        assert_eq!(under.recent.len(), SAMPLES_MAX);
        assert_eq!(under.left_sec(), Some((6_000 - 5_490) / 2));
    }

    #[test]
    fn a_rate_gives_bytes_their_time() {
        assert_eq!(time_of(5 << 20, 10 << 20), Duration::from_millis(500));
        assert_eq!(time_of(5 << 20, 0), Duration::ZERO);
    }
}
