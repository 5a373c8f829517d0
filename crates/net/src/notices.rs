//! Notices: what a server tells one session over its line. They are numbered, kept until they are acknowledged, and sent again to a listener
//! that comes back.
//!
//! net-NT1: a listener takes the notices of one outbox in the order of their numbers, and each once.
//! net-NT2: an outbox keeps at most `KEPT_MAX` notices. If it is full, one notice (`wire::notice::LookAround`) replaces all of them: the
//!     listener then asks for everything that notices tell of.
//! net-NT3: an outbox that a listener does not know, as after a restart of the server, counts as a `LookAround`.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use wire::notice::{Listen, ListenReply, LookAround};
use wire::{Header, Request, Wire, notice};

use crate::{Answer, Line, Service};

/// Notices that wait for their acknowledgement. A listener acknowledges each within a round trip.
const KEPT_MAX: usize = 256;
/// Bytes of their bodies. A session that takes no notices costs no more.
const KEPT_BYTES_MAX: usize = 16 * 1024;
/// Longest body that a listener keeps before the answer to `Listen`.
const EARLY_MAX: usize = 64 * 1024;

/// In the place of an outbox's id: no outbox has it, since those are odd.
const ENDED: u64 = u64::MAX - 1;

/// The notices of one session, at the server.
pub struct Outbox {
    /// Tells this outbox from an earlier one of the same session.
    id: u64,
    state: Mutex<State>,
    /// Notices were acknowledged.
    taken: Condvar,
}

#[derive(Default)]
struct State {
    /// The number of the newest notice.
    last: u64,
    kept: VecDeque<Kept>,
    /// The listener's line, and the fields that each notice's header has.
    line: Option<(Line, Header)>,
}

struct Kept {
    number: u64,
    /// The number of the first notice that this one stands for: a `LookAround` replaces earlier ones.
    from: u64,
    call: u16,
    body: Vec<u8>,
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Outbox {:016x}", self.id)
    }
}

impl Outbox {
    pub fn new() -> Arc<Outbox> {
        // Drawn at random, and never 0.
        let id = RandomState::new().hash_one(0) | 1;
        Arc::new(Outbox { id, state: Mutex::default(), taken: Condvar::new() })
    }

    pub fn id(&self) -> u64 {
        self.id
    }
    /// The number of the newest notice. Keep-alives tell it, so a lost notice shows.
    pub fn last(&self) -> u64 {
        self.state.lock().last
    }
    /// True if a listener is there.
    pub fn is_heard(&self) -> bool {
        self.state.lock().line.as_ref().is_some_and(|(line, _)| line.is_open())
    }

    /// Sends a notice, now or to the next listener, and returns its number.
    pub fn push<N: Request>(&self, notice: &N) -> u64 {
        let mut state = self.state.lock();
        let body = notice.to_bytes();
        let bytes = state.kept.iter().map(|kept| kept.body.len()).sum::<usize>() + body.len();
        if state.kept.len() >= KEPT_MAX || bytes > KEPT_BYTES_MAX {
            let from = state.kept.front().map(|kept| kept.from);
            state.kept.clear();
            self.add(&mut state, LookAround::CALL, vec![], from);
        }
        self.add(&mut state, N::CALL, body, None);
        state.last
    }

    /// Waits until the listener has taken all notices up to `number`. False: it has not by `until`.
    pub fn wait_taken(&self, number: u64, until: Instant) -> bool {
        let mut state = self.state.lock();
        let is_missing = |state: &State| state.kept.front().is_some_and(|kept| kept.from <= number);
        while is_missing(&state) {
            if self.taken.wait_until(&mut state, until).timed_out() {
                return !is_missing(&state);
            }
        }
        true
    }

    fn add(&self, state: &mut State, call: u16, body: Vec<u8>, from: Option<u64>) {
        state.last += 1;
        let kept = Kept { number: state.last, from: from.unwrap_or(state.last), call, body };
        self.send(state, &kept);
        state.kept.push_back(kept);
        assert!(state.kept.len() <= KEPT_MAX, "net-NT2: an outbox is bounded");
    }

    fn send(&self, state: &mut State, kept: &Kept) {
        let Some((line, head)) = &state.line else { return };
        let Kept { number, call, body, .. } = kept;
        let head = Header { call: *call, request: *number, body_len: body.len() as u32, ..*head };
        // Under the lock, so that numbers leave in their order.
        if !line.send(&head, body) {
            state.line = None;
        }
    }

    /// Serves `Listen`: sends what the listener has not taken yet, and later notices as they come. The line of an earlier listener is not used
    /// any more. `None`: the request came over a connection that is no line.
    pub fn listen(self: &Arc<Outbox>, request: &Listen, answer: &mut Answer<'_>) -> Option<ListenReply> {
        let weak = Arc::downgrade(self);
        let line = answer.line(Arc::new(move |_: &Header, body: &[u8]| {
            // A malformed one acknowledges nothing.
            if let (Some(outbox), Ok(taken)) = (weak.upgrade(), notice::Taken::from_bytes(body)) {
                outbox.acknowledge(taken.taken);
            }
        }))?;
        let taken = if request.outbox == self.id { request.taken } else { 0 };
        let mut state = self.state.lock();
        let taken = taken.min(state.last);
        state.kept.retain(|kept| kept.number > taken);
        self.taken.notify_all();
        let Header { target, fs, session, .. } = answer.head;
        state.line = Some((line, Header { target, fs, session, ..Header::default() }));
        let kept = std::mem::take(&mut state.kept);
        kept.iter().for_each(|kept| self.send(&mut state, kept));
        state.kept = kept;
        let next = state.kept.front().map_or(state.last + 1, |kept| kept.number);
        Some(ListenReply { outbox: self.id, next })
    }

    /// The listener has taken all notices up to `taken`.
    fn acknowledge(&self, taken: u64) {
        let mut state = self.state.lock();
        while state.kept.front().is_some_and(|kept| kept.number <= taken) {
            state.kept.pop_front();
        }
        self.taken.notify_all();
    }
}

/// The notices that a listener has taken.
#[derive(Default)]
pub struct Taken {
    state: Mutex<TakenState>,
}

#[derive(Default)]
struct TakenState {
    outbox: u64,
    /// All up to this number were taken.
    taken: u64,
}

impl Taken {
    /// The next `Listen`.
    pub fn request(&self) -> Listen {
        let state = self.state.lock();
        Listen { outbox: state.outbox, taken: state.taken }
    }

    /// False (net-NT3): notices before the first one that this answer tells of may be lost.
    pub fn knows(&self, reply: &ListenReply) -> bool {
        let state = self.state.lock();
        state.outbox == reply.outbox && reply.next <= state.taken.saturating_add(1)
    }

    /// The answer to `Listen` has come. True (net-NT3): look around, since notices of another outbox may be lost.
    pub fn begin(&self, reply: &ListenReply) -> bool {
        let mut state = self.state.lock();
        let is_known = state.outbox == reply.outbox && reply.next <= state.taken.saturating_add(1);
        if !is_known {
            *state = TakenState { outbox: reply.outbox, taken: reply.next.saturating_sub(1) };
        }
        !is_known
    }

    /// True if all notices up to `last` of this outbox were taken.
    pub fn has_all(&self, outbox: u64, last: u64) -> bool {
        let state = self.state.lock();
        state.outbox == outbox && state.taken >= last
    }

    /// All up to this number of the outbox were taken.
    fn of(&self, outbox: u64) -> u64 {
        let state = self.state.lock();
        if state.outbox == outbox { state.taken } else { 0 }
    }

    /// net-NT1: takes a notice, unless it is old or others are missing before it. True: the listener acts on it.
    fn take(&self, outbox: u64, number: u64) -> bool {
        let mut state = self.state.lock();
        let is_next = state.outbox == outbox && state.taken.checked_add(1) == Some(number);
        if is_next {
            state.taken = number;
        }
        is_next
    }
}

/// Gets a notice's header and body.
pub type Heard = Box<dyn Fn(&Header, &[u8]) + Send + Sync>;

/// What a listener must do after it has begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beginning {
    /// net-NT3: look around.
    pub looks_around: bool,
    /// Notices came before the answer, and were not acknowledged: the next `Listen` does so, which should follow at once.
    pub owes_taken: bool,
}

/// The service of a listener: takes the notices of one outbox and hands new ones over.
pub struct Listener {
    taken: Arc<Taken>,
    begun: Mutex<Begun>,
    /// Gets a notice's header and body. It must not wait.
    heard: Heard,
}

#[derive(Default)]
struct Begun {
    /// The outbox whose notices count; 0 before the answer to `Listen`.
    outbox: u64,
    /// Notices that came before that answer.
    early: Vec<(Header, Vec<u8>)>,
}

impl Listener {
    pub fn new(taken: Arc<Taken>, heard: Heard) -> Arc<Listener> {
        Arc::new(Listener { taken, begun: Mutex::default(), heard })
    }

    /// The answer to `Listen` has come.
    pub fn begin(&self, reply: &ListenReply) -> Beginning {
        let mut begun = self.begun.lock();
        if begun.outbox == ENDED {
            return Beginning::default();
        }
        let looks_around = self.taken.begin(reply);
        begun.outbox = reply.outbox;
        let early = std::mem::take(&mut begun.early);
        early.iter().for_each(|(head, body)| self.take(reply.outbox, head, body));
        Beginning { looks_around, owes_taken: !early.is_empty() }
    }

    /// Ends it: when this returns, no notice is being handed over, and none will be.
    pub fn end(&self) {
        self.begun.lock().outbox = ENDED;
    }

    fn take(&self, outbox: u64, head: &Header, body: &[u8]) {
        // One that is missing shows in the next keep-alive's answer.
        if self.taken.take(outbox, head.request) {
            (self.heard)(head, body);
        }
    }
}

impl Service for Listener {
    fn serve(&self, head: &Header, body: &[u8], _: &[u8], answer: &mut Answer<'_>) {
        let mut begun = self.begun.lock();
        // Numbers of another outbox acknowledge no notice of this one.
        let taken = match begun.outbox {
            0 if begun.early.len() < KEPT_MAX && body.len() <= EARLY_MAX => {
                begun.early.push((*head, body.to_vec()));
                0
            }
            0 => 0,
            outbox => {
                self.take(outbox, head, body);
                self.taken.of(outbox)
            }
        };
        answer.body = notice::Taken { taken }.to_bytes();
    }
}
