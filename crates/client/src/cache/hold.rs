//! The content lease of one file, at this client: what calls may do under it, and when it is given back.
//!
//! client-CL1: a lease is given back only while no call uses it.
//! client-CL2: once another client wants the lease, no call begins to use it.
//! client-CL3: one thread at a time asks for a lease, and one gives it back. A shared lease may be given back while another thread asks for
//!     the exclusive one: two clients that do that would wait for each other otherwise.
//! client-CP1: the kernel has pages of the file only while the lease is held. Before it goes back, they are dropped.
//! client-CP2: while they are dropped, requests for pages are served under the lease that goes back: the kernel may wait for the answer. Each
//!     of them makes another pass due. They are held back for a moment first, so that the passes end.
//! client-CL4: a lease belongs to a *life*, which ends with the session or when this client is alone. A lease of another life is none.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// The use of a file's content by a call, and so the kind of lease that it needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum To {
    /// Shared with readers at other clients.
    Read,
    /// Alone among all clients.
    Change,
}

/// client-CP2: how long a request for pages is held back in the first pass, and at most. It doubles with each pass.
const HELD_BACK: Duration = Duration::from_micros(300);
const HELD_BACK_MAX: Duration = Duration::from_millis(50);

/// What a call needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wish {
    pub to: To,
    /// The kernel keeps pages of what is read, or writes such pages.
    pub is_for_pages: bool,
}

impl From<To> for Wish {
    fn from(to: To) -> Wish {
        Wish { to, is_for_pages: false }
    }
}

#[derive(Default)]
pub(crate) struct Hold {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The lease's token; 0: there is none.
    token: u64,
    to: Option<To>,
    life: u64,
    /// Calls that use it.
    users: u32,
    /// Another client wants it.
    is_wanted: bool,
    /// The token that a thread asks for (client-CL3).
    asking: Option<u64>,
    /// Another client wants that lease already: its notice overtook the answer.
    is_asked_wanted: bool,
    /// A thread gives it back.
    is_returning: bool,
    /// client-CP1: the kernel may have pages.
    has_pages: bool,
    /// client-CP2: the pass that drops them.
    clearing: Option<Clearing>,
    /// A target refused what was known of the file, so the MDT is asked before the next use.
    is_doubtful: bool,
}

#[derive(Clone, Copy)]
struct Clearing {
    held_back: Duration,
    /// A request for pages was served meanwhile.
    is_met: bool,
}

/// The way of a call to its lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// It uses the lease of this kind that is held. `Hold::end` ends the use.
    Use(To),
    /// It asks the MDT for this lease, then calls `granted` or `refused`. `is_held`: to confirm the lease that is held.
    Ask { token: u64, to: To, is_held: bool },
    /// The deadline has passed.
    Late,
}

/// A lease that its holder gives back, and then calls `returned` or `put_off`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Return {
    pub token: u64,
    pub to: To,
    pub life: u64,
    /// The caller drops the kernel's pages first, until `clear_again` says that they are gone.
    pub has_pages: bool,
}

/// The effect of another client's wish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recalled {
    /// The caller gives it back now.
    Now(Return),
    /// The last call that uses it gives it back.
    Later,
    /// This lease is not held here.
    Unknown,
}

impl Hold {
    /// Begins a use by a call. `is_valid`: leases of this client have not run out. `new_token` is called at most once.
    pub fn begin(
        &self,
        wish: impl Into<Wish>,
        life: u64,
        is_valid: bool,
        deadline: Instant,
        new_token: impl FnOnce() -> u64,
    ) -> Way {
        let Wish { to, is_for_pages } = wish.into();
        let (mut state, mut held_until) = (self.state.lock(), None);
        loop {
            state.end_if_of_another(life);
            let suffices = state.token != 0 && state.to >= Some(to);
            let covers = suffices && !state.is_wanted && !state.is_returning;
            if covers && is_valid && !state.is_doubtful {
                state.users += 1;
                state.has_pages |= is_for_pages;
                return Way::Use(state.to.unwrap_or(to));
            }
            // client-CP2.
            if let Some(clearing) = state.clearing.filter(|_| is_for_pages && suffices) {
                let until = *held_until.get_or_insert_with(|| Instant::now() + clearing.held_back);
                if !self.changed.wait_until(&mut state, until.min(deadline)).timed_out() {
                    continue;
                }
                if let Some(clearing) = &mut state.clearing {
                    clearing.is_met = true;
                    state.users += 1;
                    return Way::Use(state.to.unwrap_or(to));
                }
                continue;
            }
            let is_free = state.asking.is_none() && !state.is_returning && !state.is_wanted;
            if is_free {
                let token = if covers { state.token } else { new_token() };
                assert!(token != 0, "a token is a number from 1 on");
                (state.asking, state.is_asked_wanted) = (Some(token), false);
                let to = if covers { state.to.unwrap_or(to) } else { to };
                return Way::Ask { token, to, is_held: covers };
            }
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return Way::Late;
            }
        }
    }

    /// Begins a use if the lease is held, and without a wait.
    pub fn begin_if_held(&self, life: u64, is_valid: bool) -> Option<To> {
        let mut state = self.state.lock();
        let is_usable = state.is_of(life)
            && state.clearing.is_none()
            && !state.is_wanted
            && !state.is_returning
            && !state.is_doubtful;
        let to = state.to.filter(|_| is_usable && is_valid)?;
        state.users += 1;
        Some(to)
    }

    /// The MDT has granted what was asked for, and the caller uses it. Returns the token of an earlier lease, to be given back. `is_kept`: the
    /// lease outlives the call. `is_doubtful`: the next use confirms it.
    pub fn granted(
        &self,
        (token, to, life): (u64, To, u64),
        is_kept: bool,
        is_doubtful: bool,
        is_for_pages: bool,
    ) -> Option<u64> {
        let mut state = self.state.lock();
        assert_eq!(state.asking.take(), Some(token), "client-CL3: one thread asks");
        let is_same = state.token == token && state.life == life;
        let old = (state.token != 0 && !is_same && !state.is_returning && state.life == life)
            .then_some(state.token);
        state.to = if is_same { state.to.max(Some(to)) } else { Some(to) };
        state.is_wanted = state.is_asked_wanted || (is_same && state.is_wanted) || !is_kept;
        (state.token, state.life, state.is_doubtful) = (token, life, is_doubtful);
        state.users += 1;
        state.has_pages |= is_for_pages;
        self.changed.notify_all();
        old
    }

    /// This client was alone, and takes the exclusive lease for that. False: there is a lease, or a call asks for one. The kernel may have
    /// pages in any case.
    pub fn claim(&self, token: u64, life: u64) -> bool {
        let mut state = self.state.lock();
        state.end_if_of_another(life);
        let is_free = state.token == 0 && state.asking.is_none() && !state.is_returning;
        if is_free {
            (state.token, state.to, state.life) = (token, Some(To::Change), life);
        }
        state.has_pages |= !state.is_returning;
        is_free
    }

    pub fn is_exclusive(&self, life: u64) -> bool {
        let state = self.state.lock();
        state.is_of(life) && state.to == Some(To::Change)
    }

    /// The kernel keeps the pages that it has over an open.
    pub fn keeps_pages(&self, life: u64) -> bool {
        let state = self.state.lock();
        state.is_of(life) && state.has_pages && !state.is_wanted && !state.is_returning
    }

    /// client-CP2: called after the kernel has dropped the pages. True: drop them again.
    pub fn clear_again(&self) -> bool {
        let mut state = self.state.lock();
        let clearing = state.clearing.expect("pages are dropped in passes");
        if !clearing.is_met && state.users == 0 {
            state.clearing = None;
            state.has_pages = false;
            self.changed.notify_all();
            return false;
        }
        while state.users > 0 {
            self.changed.wait(&mut state);
        }
        let held_back = (clearing.held_back * 2).min(HELD_BACK_MAX);
        state.clearing = Some(Clearing { held_back, is_met: false });
        true
    }

    /// This client's leases are about to run out: a lease with pages goes back, as if another client wanted it.
    pub fn give_up_pages(&self) -> Option<Return> {
        let mut state = self.state.lock();
        state.is_wanted |= state.token != 0 && state.has_pages;
        state.begin_return()
    }

    /// It was not granted. A lease that was held before stays, unless another client wants it.
    pub fn refused(&self, token: u64) -> Option<Return> {
        let mut state = self.state.lock();
        assert_eq!(state.asking.take(), Some(token), "client-CL3: one thread asks");
        self.changed.notify_all();
        state.begin_return()
    }

    /// Ends a use.
    pub fn end(&self) -> Option<Return> {
        let mut state = self.state.lock();
        assert!(state.users > 0, "a use ends once");
        state.users -= 1;
        if state.clearing.is_some() {
            self.changed.notify_all();
        }
        state.begin_return()
    }

    /// Another client wants the lease of this token.
    pub fn recall(&self, token: u64) -> Recalled {
        let mut state = self.state.lock();
        if state.token == token {
            state.is_wanted = true;
            return state.begin_return().map_or(Recalled::Later, Recalled::Now);
        }
        if state.asking == Some(token) {
            state.is_asked_wanted = true;
            return Recalled::Later;
        }
        Recalled::Unknown
    }

    /// It was given back.
    pub fn returned(&self, token: u64) {
        let mut state = self.state.lock();
        state.is_returning = false;
        if state.token == token {
            state.clear();
        }
        self.changed.notify_all();
    }

    /// It could not be given back. `retry` begins another try.
    pub fn put_off(&self) {
        self.state.lock().is_returning = false;
    }
    pub fn retry(&self) -> Option<Return> {
        self.state.lock().begin_return()
    }

    /// A target refused what this client knows of the file.
    pub fn doubt(&self) {
        self.state.lock().is_doubtful = true;
    }

    /// True if this client knows size and times better than the MDT, or as well.
    pub fn is_current(&self, life: u64) -> bool {
        let state = self.state.lock();
        state.is_of(life) && (!state.is_returning || state.to == Some(To::Change))
    }
}

impl State {
    fn is_of(&self, life: u64) -> bool {
        self.token != 0 && self.life == life
    }
    /// client-CL4.
    fn end_if_of_another(&mut self, life: u64) {
        if self.token != 0 && self.life != life && !self.is_returning {
            self.clear();
        }
    }
    fn clear(&mut self) {
        (self.token, self.to, self.is_wanted, self.is_doubtful, self.has_pages) =
            (0, None, false, false, false);
    }
    /// client-CL1, client-CL3: a lease that is being confirmed stays until the answer.
    fn begin_return(&mut self) -> Option<Return> {
        let State { token, life, has_pages, .. } = *self;
        let is_confirmed = self.asking == Some(token);
        let is_due = token != 0 && self.is_wanted && self.users == 0 && !self.is_returning && !is_confirmed;
        let to = self.to.filter(|_| is_due)?;
        self.is_returning = true;
        self.clearing = has_pages.then_some(Clearing { held_back: HELD_BACK, is_met: false });
        Some(Return { token, to, life, has_pages })
    }
}

/// For tests and assertions of callers.
impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state: MutexGuard<'_, State> = self.state.lock();
        write!(f, "lease {} {:?}, {} users, wanted {}", state.token, state.to, state.users, state.is_wanted)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LIFE: u64 = 1;

    fn begin(hold: &Hold, to: To, token: u64) -> Way {
        hold.begin(to, LIFE, true, Instant::now() + Duration::from_millis(1), || token)
    }
    fn asks(hold: &Hold, to: To, token: u64) {
        assert_eq!(begin(hold, to, token), Way::Ask { token, to, is_held: false });
    }
    fn granted(to: To, token: u64) -> Hold {
        let hold = Hold::default();
        asks(&hold, to, token);
        assert_eq!(hold.granted((token, to, LIFE), true, false, false), None);
        hold
    }
    fn back(to: To, token: u64) -> Return {
        Return { token, to, life: LIFE, has_pages: false }
    }

    #[test]
    fn a_lease_serves_later_calls_without_a_request() {
        let hold = granted(To::Change, 1);
        assert_eq!(hold.end(), None);
        assert_eq!([begin(&hold, To::Read, 2), begin(&hold, To::Change, 3)], [Way::Use(To::Change); 2]);
        assert_eq!((hold.end(), hold.end()), (None, None));
        assert!(hold.is_current(LIFE) && !hold.is_current(LIFE + 1));
        assert_eq!(hold.begin_if_held(LIFE, true), Some(To::Change));
        assert_eq!(hold.begin_if_held(LIFE, false), None);
    }

    #[test]
    fn cl1_cl2_a_recall_waits_for_calls_and_keeps_new_ones_out() {
        let hold = granted(To::Read, 1);
        assert_eq!(hold.recall(9), Recalled::Unknown);
        assert_eq!(hold.recall(1), Recalled::Later);
        assert_eq!((begin(&hold, To::Read, 2), hold.begin_if_held(LIFE, true)), (Way::Late, None));
        assert_eq!(hold.end(), Some(back(To::Read, 1)), "the last call gives it back");
        assert_eq!(hold.recall(1), Recalled::Later, "a thread does so already");
        assert_eq!(begin(&hold, To::Read, 2), Way::Late);
        hold.returned(1);
        asks(&hold, To::Read, 2);
    }

    #[test]
    fn a_recall_between_calls_is_answered_at_once() {
        let hold = granted(To::Change, 1);
        hold.end();
        assert_eq!(hold.recall(1), Recalled::Now(back(To::Change, 1)));
        hold.put_off();
        assert_eq!(begin(&hold, To::Read, 2), Way::Late, "it is owed still");
        assert_eq!((hold.retry(), hold.retry()), (Some(back(To::Change, 1)), None));
    }

    #[test]
    fn cl3_a_shared_lease_goes_back_while_the_exclusive_one_is_asked_for() {
        let hold = granted(To::Read, 1);
        hold.end();
        asks(&hold, To::Change, 2);
        assert_eq!(begin(&hold, To::Read, 3), Way::Use(To::Read), "readers go on meanwhile");
        assert_eq!(begin(&hold, To::Change, 3), Way::Late, "one thread asks");
        assert_eq!(hold.recall(1), Recalled::Later);
        assert_eq!(hold.end(), Some(back(To::Read, 1)));
        // The grant may come before the answer to the return.
        assert_eq!(hold.granted((2, To::Change, LIFE), true, false, false), None);
        hold.returned(1);
        assert!(hold.is_current(LIFE) && hold.end().is_none());
        assert_eq!(hold.recall(2), Recalled::Now(back(To::Change, 2)));
    }

    #[test]
    fn an_upgrade_gives_the_shared_lease_back() {
        let hold = granted(To::Read, 1);
        hold.end();
        asks(&hold, To::Change, 2);
        assert_eq!(hold.granted((2, To::Change, LIFE), true, false, false), Some(1));
    }

    #[test]
    fn a_recall_that_overtakes_the_grant_ends_the_lease_with_the_call() {
        let hold = Hold::default();
        asks(&hold, To::Change, 1);
        assert_eq!(hold.recall(1), Recalled::Later);
        hold.granted((1, To::Change, LIFE), true, false, false);
        assert_eq!(hold.end(), Some(back(To::Change, 1)));
    }

    #[test]
    fn a_lease_that_may_have_run_out_is_confirmed_before_its_next_use() {
        let hold = granted(To::Change, 1);
        hold.end();
        let confirm = Way::Ask { token: 1, to: To::Change, is_held: true };
        assert_eq!(hold.begin(To::Read, LIFE, false, Instant::now(), || 2), confirm);
        assert_eq!(hold.recall(1), Recalled::Later, "not while it is confirmed");
        assert_eq!(hold.refused(1), Some(back(To::Change, 1)));
        hold.returned(1);
        let hold = granted(To::Change, 1);
        hold.end();
        hold.doubt();
        assert_eq!(hold.begin_if_held(LIFE, true), None);
        assert_eq!(hold.begin(To::Read, LIFE, true, Instant::now(), || 2), confirm);
        hold.granted((1, To::Change, LIFE), true, false, false);
        assert_eq!((begin(&hold, To::Read, 2), hold.end(), hold.end()), (Way::Use(To::Change), None, None));
    }

    #[test]
    fn cp2_requests_for_pages_are_served_while_pages_are_dropped() {
        let pages = |to| Wish { to, is_for_pages: true };
        let begin = |hold: &Hold, wish: Wish| {
            hold.begin(wish, LIFE, true, Instant::now() + Duration::from_millis(500), || 9)
        };
        let hold = granted(To::Change, 1);
        hold.end();
        assert_eq!((begin(&hold, pages(To::Read)), hold.end()), (Way::Use(To::Change), None));
        assert!(hold.keeps_pages(LIFE));
        assert_eq!(hold.recall(1), Recalled::Now(Return { has_pages: true, ..back(To::Change, 1) }));
        assert!(!hold.keeps_pages(LIFE));
        // The kernel waits for a page that it reads or writes.
        assert_eq!(begin(&hold, pages(To::Change)), Way::Use(To::Change));
        assert_eq!(hold.begin(To::Read, LIFE, true, Instant::now(), || 9), Way::Late, "other calls wait");
        std::thread::scope(|scope| {
            let again = scope.spawn(|| hold.clear_again());
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(hold.end(), None);
            assert!(again.join().unwrap(), "a page came in meanwhile");
        });
        assert!(!hold.clear_again());
        hold.returned(1);
        assert_eq!(begin(&hold, pages(To::Read)), Way::Ask { token: 9, to: To::Read, is_held: false });
        hold.granted((9, To::Read, LIFE), true, false, true);
        hold.end();
        assert_eq!(hold.give_up_pages(), Some(Return { has_pages: true, ..back(To::Read, 9) }));
    }

    #[test]
    fn cl4_a_lease_of_another_life_is_none() {
        let hold = granted(To::Change, 1);
        hold.end();
        let way = hold.begin(To::Read, LIFE + 1, true, Instant::now(), || 2);
        assert_eq!(way, Way::Ask { token: 2, to: To::Read, is_held: false });
        assert_eq!((hold.refused(2), hold.recall(1)), (None, Recalled::Unknown));
    }
}
