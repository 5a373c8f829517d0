//! Promises not to act alone. Each member serves only while it holds the other's.
//!
//! Times are the caller's CLOCK_BOOTTIME in ms, which goes on while the machine sleeps. Only times of one machine are compared: the two clocks
//! must run at the same rate, and may show anything.
//!
//! mirror-P1: a promise that is held ends `PROMISE_MS` after the asking; one that was given ends `PROMISE_MS` after it was given, which is
//!     later. So the holder stops before the giver may act.
//! mirror-P2: a member acts alone only after its own promise has run out or was returned.
//! mirror-P3: a member that starts counts as having just promised, unless it stopped cleanly when its promise was over.
//! mirror-P4: a return covers the askings before it. One that arrives late does not end a promise that was given since.

use ::types::Incarnation;

use crate::planted::{Rule, kept};

/// Members ask every `ASK_MS`, so three askings may be lost before one stops. Half of the expected stall of a fail-over is this time.
pub const PROMISE_MS: u64 = 2_000;
pub const ASK_MS: u64 = 500;

/// An asking, as its sender numbers it. The other member sends it back as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    pub life: Incarnation,
    pub number: u64,
    /// By the asker's clock.
    pub sent_ms: u64,
}

impl Token {
    fn order(&self) -> (Incarnation, u64) {
        (self.life, self.number)
    }
}

/// The promise that this member gave.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Given {
    pub(crate) until_ms: u64,
    last: Option<(Incarnation, u64)>,
}

impl Given {
    /// mirror-P3. `is_free`: the last life ended cleanly, when its promise was over.
    pub fn at_start(is_free: bool, now_ms: u64) -> Given {
        let is_bound = !is_free && kept(Rule::StartIsPromise);
        Given { until_ms: if is_bound { now_ms + PROMISE_MS } else { 0 }, last: None }
    }
    pub fn promise(&mut self, token: Token, now_ms: u64) {
        self.until_ms = self.until_ms.max(now_ms + PROMISE_MS);
        self.last = self.last.max(Some(token.order()));
    }
    /// mirror-P4: the other holds nothing that it asked for up to this token.
    pub fn on_return(&mut self, token: Token) {
        if self.last.is_none_or(|last| last <= token.order()) {
            self.until_ms = 0;
        }
    }
    /// mirror-P2.
    pub fn is_over(&self, now_ms: u64) -> bool {
        self.until_ms <= now_ms || !kept(Rule::OwnPromiseRunsOut)
    }
}

/// The other's promise, as this member holds it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    life: Incarnation,
    pub(crate) until_ms: u64,
    /// The number of the last asking.
    pub(crate) asked: u64,
    /// Answers to askings up to this number come too late: the promise was returned.
    returned: u64,
}

impl Held {
    pub fn nothing(life: Incarnation) -> Held {
        Held { life, until_ms: 0, asked: 0, returned: 0 }
    }
    pub fn ask(&mut self, now_ms: u64) -> Token {
        self.asked += 1;
        Token { life: self.life, number: self.asked, sent_ms: now_ms }
    }
    pub fn on_promise(&mut self, token: Token, now_ms: u64) {
        if token.life == self.life && token.number > self.returned {
            let from_ms = if kept(Rule::CountFromAsking) { token.sent_ms } else { now_ms };
            self.until_ms = self.until_ms.max(from_ms + PROMISE_MS);
        }
    }
    /// Gives the promise back. The holder does not serve under it any more, also if an answer is still under way.
    pub fn give_back(&mut self, now_ms: u64) -> Token {
        (self.until_ms, self.returned) = (0, self.asked);
        Token { life: self.life, number: self.asked, sent_ms: now_ms }
    }
    pub fn is_held(&self, now_ms: u64) -> bool {
        now_ms < self.until_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Incarnation = Incarnation(3);

    #[test]
    fn holder_stops_before_the_giver_may_act_whatever_the_clocks_show() {
        let (mut held, mut given) = (Held::nothing(LIFE), Given::at_start(true, 0));
        let token = held.ask(1_000_000);
        // The giver's clock is another one. The letter took 300 ms, the answer 900 ms.
        given.promise(token, 300);
        held.on_promise(token, 1_001_200);
        assert!(held.is_held(1_001_999) && !held.is_held(1_002_000));
        // By the giver's clock that was 2,000.
        assert!(!given.is_over(2_299) && given.is_over(2_300));
    }

    #[test]
    fn start_counts_as_a_promise_unless_it_was_over() {
        assert!(!Given::at_start(false, 500).is_over(500 + PROMISE_MS - 1));
        assert!(Given::at_start(false, 500).is_over(500 + PROMISE_MS));
        assert!(Given::at_start(true, 500).is_over(500));
    }

    #[test]
    fn returned_promises_are_not_held_and_late_returns_end_nothing() {
        let (mut held, mut given) = (Held::nothing(LIFE), Given::at_start(false, 0));
        let first = held.ask(0);
        given.promise(first, 0);
        let back = held.give_back(1);
        held.on_promise(first, 2);
        assert!(!held.is_held(2), "the answer was under way when the promise was returned");
        let second = held.ask(3);
        given.promise(second, 4);
        given.on_return(back);
        assert!(!given.is_over(5), "the return is older than the promise");
        given.on_return(held.give_back(6));
        assert!(given.is_over(6));
        held.on_promise(Token { life: Incarnation(2), ..second }, 7);
        assert!(!held.is_held(7), "an earlier life asked");
    }
}
