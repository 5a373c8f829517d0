//! The content lease of one file, at this client: what calls may do under it, and when it is given back.
//!
//! client-CL1: a lease is given back only while no call uses it.
//! client-CL2: once another client wants the lease, no call begins to use it.
//! client-CL3: one thread at a time asks for a lease, and one gives it back. A shared lease may be given back while another thread asks for
//!     the exclusive one: two clients that do that would wait for each other otherwise.
//! client-CP1: the kernel has pages of the file only while the lease is held. Before it goes back, they are dropped.
//! client-CP2: pages are dropped in gaps, one after the other. A request for pages outside of the present gap waits, and later gaps leave its
//!     range out: these pages are locked and empty. One within the present gap may keep the kernel from dropping pages. It is held back for
//!     a moment, and then served under the lease that goes back, after which the gap is dropped again.
//! client-CP3: a write of dirty pages is served at once, since the kernel waits for it.
//! client-CP4: pages of a lease whose session has ended are old. They are dropped, and dirty ones among them are not written: other clients
//!     may have changed the file since.
//! client-CL8: under a many lease (decision 0055) calls write, and read what they know to be there, in one request or under range locks
//!     (client-RL1). No page of the kernel comes under it. A call that needs more gives it back first, and asks for a lease of another kind.
//! client-CL9: an exclusive lease under which appends follow one another is kept for a moment, so that appenders at several clients take
//!     turns by batches.
//! client-CL4: a lease belongs to a *life*, which ends with the session or when this client is alone. A lease of another life is none.

use std::ops::Range;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use types::PAGE_SIZE;
use wire::shared::LeaseKind;

/// The use of a file's content by a call, and so the kind of lease that it needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum To {
    /// Shared with readers at other clients.
    Read,
    /// Beside writers at other clients.
    Many,
    /// Alone among all clients.
    Change,
}

impl To {
    /// A call that needs `wanted` may use a lease of this kind.
    fn suffices(self, wanted: To) -> bool {
        self == To::Change || self == wanted
    }
}

impl From<To> for LeaseKind {
    fn from(to: To) -> LeaseKind {
        match to {
            To::Read => LeaseKind::Shared,
            To::Many => LeaseKind::Many,
            To::Change => LeaseKind::Exclusive,
        }
    }
}

impl From<LeaseKind> for To {
    fn from(kind: LeaseKind) -> To {
        match kind {
            LeaseKind::Shared => To::Read,
            LeaseKind::Many => To::Many,
            LeaseKind::Exclusive => To::Change,
        }
    }
}

/// client-CP2: how long a request for pages is held back. The kernel drops the pages of a gap in less, unless it waits for that request.
const HELD_BACK: Duration = Duration::from_micros(300);
/// client-CL9: some hundred appends; a program that waits for the file hardly notices it.
pub(crate) const KEPT_FOR_APPENDS: Duration = Duration::from_millis(20);
/// Appends that are further apart do not follow one another.
const APPENDS_APART: Duration = Duration::from_millis(2);
/// A client whose last append is not older asks for the lease in order to append, as far as can be told.
const APPENDS_WAIT: Duration = Duration::from_secs(1);
/// Least bytes of a gap, and most gaps of a file below its size.
const GAP_BYTES_MIN: u64 = 4 << 20;
const GAPS_MAX: u64 = 256;

/// The use of the kernel's pages by a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Pages {
    None,
    /// The kernel keeps pages of this range of bytes. `only_beside`: the call goes on only while pages are dropped (`Way::Again`). `is_read`: it
    /// changes nothing, so while pages are dropped a lease of any kind will do.
    Filled {
        range: Range<u64>,
        only_beside: bool,
        is_read: bool,
    },
    /// It writes dirty pages.
    Written,
}

/// The lease that a call needs, and its use of the kernel's pages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wish {
    pub to: To,
    pub pages: Pages,
}

impl Wish {
    pub fn is_for_pages(&self) -> bool {
        self.pages != Pages::None
    }
}

impl From<To> for Wish {
    fn from(to: To) -> Wish {
        Wish { to, pages: Pages::None }
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
    /// client-CP4: the kernel may have pages of a lease of another life.
    has_old_pages: bool,
    /// client-CP2: the pass that drops them.
    clearing: Option<Clearing>,
    /// client-CL9: of the present lease, and of the last append.
    granted_at: Option<Instant>,
    appended_at: Option<Instant>,
    /// A target refused what was known of the file, so the MDT is asked before the next use.
    is_doubtful: bool,
}

#[derive(Default)]
struct Clearing {
    /// The gap whose pages the kernel drops; empty: between two gaps.
    gap: Range<u64>,
    /// A request for pages in it was served meanwhile.
    is_met: bool,
    /// Ranges of requests that wait.
    waiting: Vec<Range<u64>>,
}

impl Clearing {
    /// The next gap from `at` on, of at most `step` bytes below `size`; `None`: the rest has no pages.
    fn next_gap(&self, mut at: u64, step: u64, size: u64) -> Option<Range<u64>> {
        while let Some(within) = self.waiting.iter().find(|range| range.contains(&at)) {
            at = within.end;
        }
        let end = if at < size { at.saturating_add(step).min(size) } else { u64::MAX };
        let next = self.waiting.iter().map(|range| range.start).filter(|start| *start > at).min();
        let gap = at..end.min(next.unwrap_or(u64::MAX));
        (!gap.is_empty()).then_some(gap)
    }
}

/// The way of a call to its lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// It uses the lease of this kind that is held. `Hold::end` ends the use.
    Use(To),
    /// It asks the MDT for this lease, then calls `granted` or `refused`. `is_held`: to confirm the lease that is held.
    Ask { token: u64, to: To, is_held: bool },
    /// client-CL8: it gives this lease back, and begins again.
    GiveBack(Return),
    /// The deadline has passed.
    Late,
    /// Pages are dropped no more.
    Again,
    /// client-CP4: the dirty page is not written.
    Old,
}

/// A lease that its holder gives back, and then calls `returned` or `put_off`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Return {
    pub token: u64,
    pub to: To,
    pub life: u64,
    /// The caller drops the kernel's pages first (`clear`).
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
        let Wish { to, pages } = wish.into();
        let mut state = self.state.lock();
        loop {
            state.end_if_of_another(life);
            if state.has_old_pages && pages == Pages::Written {
                return Way::Old;
            }
            let suffices = state.token != 0 && state.to.is_some_and(|held| held.suffices(to));
            let covers = suffices && !state.is_wanted && !state.is_returning;
            if covers && is_valid && !state.is_doubtful {
                state.users += 1;
                state.has_pages |= pages != Pages::None;
                return Way::Use(state.to.unwrap_or(to));
            }
            if matches!(pages, Pages::Filled { only_beside: true, .. }) && state.clearing.is_none() {
                return Way::Again;
            }
            let is_read = matches!(pages, Pages::Filled { is_read: true, .. });
            if state.clearing.is_some() && (suffices || is_read) {
                match &pages {
                    Pages::None => {}
                    // client-CP3.
                    Pages::Written => {
                        state.users += 1;
                        return Way::Use(state.to.unwrap_or(to));
                    }
                    Pages::Filled { range, .. } => {
                        let range = whole_pages(range);
                        if self.is_served_while_clearing(&mut state, &range, is_read, deadline) {
                            state.users += 1;
                            return Way::Use(state.to.unwrap_or(to));
                        }
                        continue;
                    }
                }
            }
            // client-CL8.
            if state.to == Some(To::Many) && !suffices {
                state.is_wanted = true;
                if let Some(back) = self.begin_return(&mut state) {
                    return Way::GiveBack(back);
                }
            }
            let is_free = state.asking.is_none() && !state.is_returning && !state.is_wanted;
            if is_free {
                let token = if covers { state.token } else { new_token() };
                assert!(token != 0, "a token is a number from 1 on");
                (state.asking, state.is_asked_wanted) = (Some(token), false);
                // client-CL8: while there may be pages, other clients' writes are kept out.
                let has_pages = state.has_pages || state.token != 0;
                let to = match state.to {
                    Some(held) if covers => held,
                    _ if to == To::Many && has_pages => To::Change,
                    _ => to,
                };
                return Way::Ask { token, to, is_held: covers };
            }
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return Way::Late;
            }
        }
    }

    /// Begins a use if a shared or exclusive lease is held, and without a wait.
    pub fn begin_if_held(&self, life: u64, is_valid: bool) -> Option<To> {
        self.begin_if(life, is_valid, |to| to != To::Many)
    }

    /// The same for a many lease.
    pub fn begin_if_many(&self, life: u64, is_valid: bool) -> Option<To> {
        self.begin_if(life, is_valid, |to| to == To::Many)
    }

    fn begin_if(&self, life: u64, is_valid: bool, is_meant: impl Fn(To) -> bool) -> Option<To> {
        let mut state = self.state.lock();
        let is_usable = state.is_of(life)
            && state.clearing.is_none()
            && !state.is_wanted
            && !state.is_returning
            && !state.is_doubtful;
        let to = state.to.filter(|to| is_usable && is_valid && is_meant(*to))?;
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
        if !is_same {
            state.granted_at = Some(Instant::now());
        }
        state.users += 1;
        state.has_pages |= is_for_pages;
        self.changed.notify_all();
        old
    }

    /// This client was alone, and takes the exclusive lease for that. False: there is a lease, or a call asks for one.
    pub fn claim(&self, token: u64, life: u64) -> bool {
        let mut state = self.state.lock();
        state.end_if_of_another(life);
        let is_free = state.token == 0 && state.asking.is_none() && !state.is_returning;
        if is_free {
            (state.token, state.to, state.life) = (token, Some(To::Change), life);
        }
        is_free
    }

    /// The token of the lease that is held; 0: there is none.
    pub fn token(&self) -> u64 {
        self.state.lock().token
    }
    /// No other client wants the lease, and it does not go back.
    pub fn is_free(&self) -> bool {
        let state = self.state.lock();
        !state.is_wanted && !state.is_returning && state.clearing.is_none()
    }
    /// Another client wants the lease.
    pub fn is_wanted(&self) -> bool {
        self.state.lock().is_wanted
    }

    pub fn is_exclusive(&self, life: u64) -> bool {
        let state = self.state.lock();
        state.is_of(life) && state.to == Some(To::Change)
    }

    /// client-CP4: true if the caller drops the pages, and then calls `old_pages_dropped`.
    pub fn has_old_pages(&self, life: u64) -> bool {
        let mut state = self.state.lock();
        state.end_if_of_another(life);
        state.has_old_pages
    }
    /// The kernel may have pages of the file, current or old.
    pub fn may_have_pages(&self, life: u64) -> bool {
        let mut state = self.state.lock();
        state.end_if_of_another(life);
        state.has_pages || state.has_old_pages
    }
    pub fn old_pages_dropped(&self) {
        self.state.lock().has_old_pages = false;
    }

    /// This client is alone: it needs no lease, and the kernel's pages are current.
    pub fn end_leases(&self) {
        let mut state = self.state.lock();
        if !state.is_returning {
            state.clear();
        }
    }

    pub fn is_clearing(&self) -> bool {
        self.state.lock().clearing.is_some()
    }

    /// The kernel keeps the pages that it has over an open.
    pub fn keeps_pages(&self, life: u64) -> bool {
        let state = self.state.lock();
        state.is_of(life) && state.has_pages && !state.is_wanted && !state.is_returning
    }

    /// client-CP2. True: the request keeps the kernel from dropping pages. False: pages are not dropped any more.
    fn is_served_while_clearing(
        &self,
        state: &mut MutexGuard<'_, State>,
        range: &Range<u64>,
        is_read: bool,
        deadline: Instant,
    ) -> bool {
        let overlaps = |gap: &Range<u64>| gap.start < range.end && range.start < gap.end;
        let (mut held_until, mut is_served) = (None, false);
        // A page that is written may have other bytes, which are old. So it is not left out.
        if let Some(clearing) = state.clearing.as_mut().filter(|_| is_read) {
            clearing.waiting.push(range.clone());
        }
        while let Some(clearing) = &mut state.clearing {
            let until = match overlaps(&clearing.gap) {
                true => *held_until.get_or_insert_with(|| Instant::now() + HELD_BACK),
                false => {
                    held_until = None;
                    deadline
                }
            };
            if Instant::now() >= until {
                clearing.is_met = true;
                is_served = true;
                break;
            }
            self.changed.wait_until(state, until);
        }
        if let Some(clearing) = state.clearing.as_mut().filter(|_| is_read)
            && let Some(at) = clearing.waiting.iter().position(|other| other == range)
        {
            clearing.waiting.swap_remove(at);
        }
        is_served
    }

    /// Drops the kernel's pages of a file of `size` bytes by `drop_pages`, gap by gap (client-CP2), or all that there may be.
    pub fn clear(&self, size: u64, drop_pages: impl Fn(&Range<u64>)) {
        let (mut at, step) = (0, (size / GAPS_MAX).max(GAP_BYTES_MIN).next_multiple_of(GAP_BYTES_MIN));
        loop {
            let mut state = self.state.lock();
            let clearing = state.clearing.as_mut().expect("a lease with pages goes back");
            let Some(gap) = clearing.next_gap(at, step, size) else {
                state.clearing = None;
                state.has_pages = false;
                self.changed.notify_all();
                return;
            };
            (clearing.gap, clearing.is_met) = (gap.clone(), false);
            // Requests that came before it look again: the kernel may wait for one of them.
            self.changed.notify_all();
            drop(state);
            drop_pages(&gap);
            let mut state = self.state.lock();
            // Requests that were served bring pages with their answers.
            while state.users > 0 {
                self.changed.wait(&mut state);
            }
            let clearing = state.clearing.as_mut().expect("this thread ends it");
            let is_met = clearing.is_met;
            clearing.gap = 0..0;
            at = if is_met { gap.start } else { gap.end };
            self.changed.notify_all();
        }
    }

    /// This client's leases are about to run out: a lease with pages goes back, as if another client wanted it.
    pub fn give_up_pages(&self) -> Option<Return> {
        let mut state = self.state.lock();
        state.is_wanted |= state.token != 0 && state.has_pages;
        self.begin_return(&mut state)
    }

    /// It was not granted. A lease that was held before stays, unless another client wants it.
    pub fn refused(&self, token: u64) -> Option<Return> {
        let mut state = self.state.lock();
        assert_eq!(state.asking.take(), Some(token), "client-CL3: one thread asks");
        self.changed.notify_all();
        self.begin_return(&mut state)
    }

    /// Ends a use.
    pub fn end(&self) -> Option<Return> {
        let mut state = self.state.lock();
        assert!(state.users > 0, "a use ends once");
        state.users -= 1;
        if state.clearing.is_some() {
            self.changed.notify_all();
        }
        self.begin_return(&mut state)
    }

    /// client-CL9: an append begins.
    pub fn note_append(&self, now: Instant) {
        self.state.lock().appended_at = Some(now);
    }

    /// client-CL9: the recall of this lease waits, until `KEPT_FOR_APPENDS` is over.
    pub fn is_kept_for_appends(&self, token: u64, now: Instant) -> bool {
        let state = self.state.lock();
        let is_within = |at: Option<Instant>, time| at.is_some_and(|at| now < at + time);
        let is_held = state.token == token && state.to == Some(To::Change);
        match state.asking == Some(token) && state.token != token {
            // Its notice overtook the answer.
            true => is_within(state.appended_at, APPENDS_WAIT),
            false => {
                is_held
                    && is_within(state.granted_at, KEPT_FOR_APPENDS)
                    && is_within(state.appended_at, APPENDS_APART)
            }
        }
    }

    /// Another client wants the lease of this token.
    pub fn recall(&self, token: u64) -> Recalled {
        let mut state = self.state.lock();
        if state.token == token {
            state.is_wanted = true;
            return self.begin_return(&mut state).map_or(Recalled::Later, Recalled::Now);
        }
        if state.asking == Some(token) {
            state.is_asked_wanted = true;
            return Recalled::Later;
        }
        Recalled::Unknown
    }

    /// It was given back. A later lease may be wanted, too.
    pub fn returned(&self, token: u64) -> Option<Return> {
        let mut state = self.state.lock();
        state.is_returning = false;
        if state.token == token {
            state.clear();
        }
        self.changed.notify_all();
        self.begin_return(&mut state)
    }

    /// Requests for pages that wait for the lease look at the gaps from here on (client-CP2).
    fn begin_return(&self, state: &mut State) -> Option<Return> {
        let back = state.begin_return();
        if back.is_some() {
            self.changed.notify_all();
        }
        back
    }

    /// The lease of this token is held here, or asked for.
    pub fn knows(&self, token: u64) -> bool {
        let state = self.state.lock();
        state.token == token || state.asking == Some(token)
    }

    /// The kernel may have pages from a time without leases.
    pub fn note_pages(&self) {
        self.state.lock().has_pages = true;
    }
    /// client-CP4: these are old.
    pub fn pages_are_old(&self) {
        self.state.lock().has_old_pages = true;
    }

    /// It could not be given back. `retry` begins another try.
    pub fn put_off(&self) {
        self.state.lock().is_returning = false;
    }
    pub fn retry(&self) -> Option<Return> {
        let mut state = self.state.lock();
        self.begin_return(&mut state)
    }

    /// A target refused what this client knows of the file.
    pub fn doubt(&self) {
        self.state.lock().is_doubtful = true;
    }

    /// True if this client knows size and times better than the MDT, or as well.
    pub fn is_current(&self, life: u64) -> bool {
        let state = self.state.lock();
        state.is_of(life)
            && state.to != Some(To::Many)
            && (!state.is_returning || state.to == Some(To::Change))
    }

    /// client-CL8: other clients may have written since this one took the MDT's values, and no client has cut the file.
    pub fn is_many(&self, life: u64) -> bool {
        let state = self.state.lock();
        state.is_of(life) && state.to == Some(To::Many)
    }
}

fn whole_pages(range: &Range<u64>) -> Range<u64> {
    let page = PAGE_SIZE as u64;
    range.start / page * page..range.end.checked_next_multiple_of(page).unwrap_or(u64::MAX)
}

impl State {
    fn is_of(&self, life: u64) -> bool {
        self.token != 0 && self.life == life
    }
    /// client-CL4.
    fn end_if_of_another(&mut self, life: u64) {
        if self.token != 0 && self.life != life && !self.is_returning {
            self.has_old_pages |= self.has_pages;
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
        self.clearing = has_pages.then(Clearing::default);
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
mod tests;
