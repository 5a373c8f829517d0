//! A connection that a client dialled: any number of requests under way, each paired with its answer by its request id.
//!
//! The threads that wait for answers read them themselves. The first one leads: it reads frames, hands the answers of others over, and
//! passes the reading on when its own answer has come. So a lone caller wakes no other thread.
//! net-R1: an answer goes to the request with its id, once; an answer that no request waits for is dropped.
//! net-R2: while threads wait for answers, one of them leads or was woken to lead.
//! net-R3: after the first error a lane is gone for good, and every request that waits on it ends as unknown.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pki::Serial;
use rustix::event::PollFlags;
use types::{Buf, NodeId, TargetId};
use wire::frame::{BODY_MAX, PING};
use wire::{Flags, Header, Malformed};

use crate::channel::Channel;
use crate::counts::{Meter, Way};
use crate::dial::Path;
use crate::incoming::{Frame, Incoming, Memory, READ_AHEAD, Step};
use crate::live::Entry;
use crate::outgoing::{Bulk, Left, Outgoing, When};
use crate::socket::{Gone, SLICE, receive, receive_all, wait_for};
use crate::timing::Timing;

/// The connection, and what a client knows of its other end.
pub(crate) struct Lane {
    pub node: NodeId,
    /// Most requests that may be under way, as the other end told.
    pub frames_max: usize,
    pub path: Arc<Path>,
    /// This process's own certificate when it dialled; `None` without TLS.
    pub certificate: Option<Serial>,
    channel: Channel,
    outgoing: Outgoing<()>,
    inbox: Mutex<Inbox>,
    under_way: AtomicUsize,
    is_gone: AtomicBool,
    has_dead_host: AtomicBool,
    timing: Arc<Timing>,
    /// Dials the other end's address again, to tell a dead host from a slow one.
    probe: Box<dyn Fn() -> bool + Send + Sync>,
    meter: Arc<Meter>,
    _entry: Entry,
}

struct Inbox {
    waiting: HashMap<u64, Waiter>,
    /// `None` while a thread leads.
    reader: Option<Box<Reader>>,
}

/// A request under way.
struct Waiter {
    target: TargetId,
    /// The buffer for bulk bytes; with the reader while they are read.
    into: Option<Buf>,
    done: Option<Result<(Header, Vec<u8>), String>>,
    /// Its thread, while it sleeps.
    thread: Option<Thread>,
}

/// The reading half.
struct Reader {
    ahead: Box<[u8]>,
    begin: usize,
    end: usize,
    incoming: Incoming<()>,
    /// Time in which threads waited and no byte came.
    quiet: Duration,
    is_pinged: bool,
}

/// Why a request was not sent.
pub(crate) enum Unsent {
    /// It did not leave whole, and the lane is gone.
    Gone(String),
    /// The lane goes on.
    Deadline,
}

/// An answer, with the buffer that was lent for its bulk bytes. An error is unknown: the request may have been carried out.
pub(crate) type Received = Result<(Header, Vec<u8>), String>;

impl Lane {
    pub fn new(
        channel: Channel,
        node: NodeId,
        frames_max: usize,
        path: Arc<Path>,
        (entry, meter, certificate): (Entry, Arc<Meter>, Option<Serial>),
        timing: Arc<Timing>,
        probe: Box<dyn Fn() -> bool + Send + Sync>,
    ) -> Lane {
        let reader = Reader {
            ahead: vec![0; READ_AHEAD].into(),
            begin: 0,
            end: 0,
            incoming: Incoming::default(),
            quiet: Duration::ZERO,
            is_pinged: false,
        };
        let inbox = Inbox { waiting: HashMap::new(), reader: Some(Box::new(reader)) };
        Lane {
            node,
            frames_max,
            path,
            certificate,
            channel,
            outgoing: Outgoing::default(),
            inbox: Mutex::new(inbox),
            under_way: AtomicUsize::new(0),
            is_gone: AtomicBool::new(false),
            has_dead_host: AtomicBool::new(false),
            timing,
            probe,
            meter,
            _entry: entry,
        }
    }

    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }
    /// True once if the lane was ended because its host does not answer a new connection either.
    pub fn take_dead_host(&self) -> bool {
        self.has_dead_host.swap(false, Ordering::AcqRel)
    }
    pub fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Acquire)
    }
    /// Takes or gives back a place among the requests under way. The caller holds the lock of the node's lanes when it takes one.
    pub fn take_place(&self) {
        let before = self.under_way.fetch_add(1, Ordering::AcqRel);
        assert!(before < self.frames_max, "net-N2: no more requests are under way than the other end allows");
    }
    pub fn give_place_back(&self) {
        let before = self.under_way.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "net-N2: a place that is given back was taken");
    }

    /// True if the other end has not closed. It costs half a microsecond. Ask it of a lane without requests under way, which no thread reads:
    /// the outcome of a request to a server that has gone would be needlessly unknown.
    pub fn is_open(&self) -> bool {
        !self.is_gone() && self.channel.is_open()
    }

    /// Announces a request, whose answer's bulk bytes go to `into`.
    pub fn expect(&self, request: u64, target: TargetId, into: Buf) {
        let waiter = Waiter { target, into: Some(into), done: None, thread: None };
        let before = self.inbox.lock().waiting.insert(request, waiter);
        assert!(before.is_none(), "net-R1: request ids are unique in a process");
    }

    /// Takes back what `expect` announced. An answer that still comes is dropped.
    pub fn forget(&self, request: u64) -> Option<Buf> {
        let mut inbox = self.inbox.lock();
        let waiter = inbox.waiting.remove(&request);
        inbox.pass_reading_on();
        waiter.and_then(|w| w.into)
    }

    /// Sends a request whole. After an error it was not taken by the other end; after `Ok` it may be.
    pub fn send(&self, head: &Header, body: &[u8], bulk: &[u8], deadline: Instant) -> Result<(), Unsent> {
        assert_eq!(head.bulk_len as usize, bulk.len(), "the header tells the bulk's length");
        assert!(body.len() <= BODY_MAX, "net-I3: a frame that leaves is accepted");
        assert!(bulk.len() <= types::BULK_MAX, "net-I3: a frame that leaves is accepted");
        let raw = head.encode(body);
        let mut quiet = Duration::ZERO;
        let mut is_dead = false;
        let mut blocked = || {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_gone() {
                return false;
            }
            let wait = left.min(SLICE);
            // An error shows again in the next call of the writer.
            if wait_for(&self.channel.socket, PollFlags::OUT, wait).unwrap_or(true) {
                quiet = Duration::ZERO;
                return true;
            }
            quiet += wait;
            if quiet >= self.timing.dead_after() {
                quiet = Duration::ZERO;
                is_dead = !(self.probe)();
            }
            !is_dead
        };
        let wrote = self.outgoing.write(
            &self.channel,
            [&raw, body],
            Bulk::Lent(bulk),
            || Some(()),
            When { may_queue: false, may_sleep: deadline >= Instant::now() + SLICE, deadline },
            &mut blocked,
        );
        match wrote {
            _ if is_dead => Err(Unsent::Gone(self.host_is_dead())),
            Ok(Left::All | Left::Queued) => {
                self.meter.frame(Way::Out, head);
                Ok(())
            }
            Ok(Left::Nothing) if self.is_gone() => Err(Unsent::Gone("the connection was closed".into())),
            Ok(Left::Nothing) => Err(Unsent::Deadline),
            Err(gone) => {
                let why = gone.to_string();
                self.fail(&why, false);
                Err(Unsent::Gone(why))
            }
        }
    }

    /// Waits for the answer to a request that was sent. An answer that has arrived is taken also after the deadline.
    pub fn receive(&self, request: u64, deadline: Instant) -> (Received, Buf) {
        loop {
            let mut inbox = self.inbox.lock();
            let Some(waiter) = inbox.waiting.get_mut(&request) else {
                return (Err("the request is not under way on this connection".into()), Buf::new());
            };
            if let Some(done) = waiter.done.take() {
                let into = waiter.into.take().unwrap_or_default();
                inbox.waiting.remove(&request);
                inbox.pass_reading_on();
                return (done, into);
            }
            waiter.thread = None;
            let left = deadline.saturating_duration_since(Instant::now());
            if inbox.reader.is_none() && !left.is_zero() {
                // Another thread leads.
                if let Some(waiter) = inbox.waiting.get_mut(&request) {
                    waiter.thread = Some(std::thread::current());
                }
                drop(inbox);
                std::thread::park_timeout(left);
                continue;
            }
            if let Some(reader) = inbox.reader.take() {
                drop(inbox);
                if !self.lead(reader, request, deadline) {
                    let into = self.forget(request).unwrap_or_default();
                    return (Err("the deadline has passed".into()), into);
                }
                continue;
            }
            drop(inbox);
            let into = self.forget(request).unwrap_or_default();
            return (Err("the deadline has passed".into()), into);
        }
    }

    /// Reads frames until the answer to `request` has come or the lane is gone: true. False: the deadline has passed.
    fn lead(&self, mut reader: Box<Reader>, request: u64, deadline: Instant) -> bool {
        let mut is_done = false;
        // An answer that has come is found behind the frames before it. Frames that come without a pause do not keep the thread for ever.
        let late = deadline.max(Instant::now());
        loop {
            let now = Instant::now();
            // Frames that were received together with the answer are handed over before the reading is.
            let wait = match is_done {
                true => None,
                false => Some(deadline.saturating_duration_since(now).min(SLICE)),
            };
            match reader.next(&self.channel, &mut Answers { inbox: &self.inbox }, wait, now + SLICE) {
                Ok(Next::Frame(frame)) => match self.hand_over(frame, request) {
                    Ok(is_own) => {
                        is_done |= is_own;
                        if !is_done && now.saturating_duration_since(late) >= SLICE {
                            self.inbox.lock().reader = Some(reader);
                            return false;
                        }
                    }
                    Err(why) => {
                        self.fail(&why.to_string(), false);
                        return true;
                    }
                },
                Ok(Next::Quiet(waited)) => {
                    if !is_done && !self.check_silence(&mut reader, waited) {
                        self.host_is_dead();
                        return true;
                    }
                    let mut inbox = self.inbox.lock();
                    // `end_target` may have ended it meanwhile.
                    is_done |= inbox.waiting.get(&request).is_none_or(|w| w.done.is_some());
                    if is_done || Instant::now() >= deadline {
                        inbox.reader = Some(reader);
                        return is_done;
                    }
                }
                Err(gone) => {
                    self.fail(&gone.to_string(), false);
                    return true;
                }
            }
        }
    }

    /// Gives a frame to the request that waits for it. True: that is `own`.
    fn hand_over(&self, frame: Frame<()>, own: u64) -> Result<bool, Malformed> {
        let Frame { head, body, bulk, .. } = frame;
        if head.flags & Flags::REPLY == 0 {
            return Err(Malformed("a frame that is no answer"));
        }
        self.meter.frame(Way::In, &head);
        if head.call == PING {
            return Ok(false);
        }
        let mut inbox = self.inbox.lock();
        let Some(waiter) = inbox.waiting.get_mut(&head.request).filter(|w| w.done.is_none()) else {
            return Ok(false);
        };
        waiter.into = Some(bulk);
        waiter.done = Some(Ok((head, body)));
        let thread = waiter.thread.take();
        drop(inbox);
        if let Some(thread) = thread {
            thread.unpark();
        }
        Ok(head.request == own)
    }

    /// After silence pings the other end, and then dials its address. False: its host is dead.
    fn check_silence(&self, reader: &mut Reader, waited: Duration) -> bool {
        reader.quiet += waited;
        // Frames that a slow socket left behind go out now at the latest. An error shows at the next call.
        let _ = self.outgoing.flush(&self.channel, false, &mut || false);
        if reader.quiet >= self.timing.ping_after() && !reader.is_pinged {
            reader.is_pinged = true;
            let head = Header { call: PING, ..Header::default() };
            let raw = head.encode(&[]);
            let bulk = Bulk::Lent(&[]);
            let blocked = &mut || false;
            let _ = self.outgoing.write(&self.channel, [&raw, &[]], bulk, || Some(()), When::now(), blocked);
        }
        if reader.quiet < self.timing.dead_after() {
            return true;
        }
        // A slow server may leave a ping unanswered. A host that accepts a connection is alive.
        reader.quiet = Duration::ZERO;
        reader.is_pinged = false;
        (self.probe)()
    }

    fn host_is_dead(&self) -> String {
        let why = format!("its host has not answered for {} ms", self.timing.dead_after().as_millis());
        self.fail(&why, true);
        why
    }

    /// Ends the lane if the other end's certificate is not good any more.
    pub fn recheck(&self) {
        if let Some(why) = self.channel.is_refused() {
            tracing::warn!("a server's certificate is refused: {why}");
            self.fail(&format!("the server's certificate is refused: {why}"), false);
        }
    }

    /// net-R3: ends the lane, and every request that waits on it.
    pub fn fail(&self, why: &str, is_dead_host: bool) {
        self.has_dead_host.fetch_or(is_dead_host, Ordering::AcqRel);
        self.is_gone.store(true, Ordering::Release);
        self.channel.shutdown();
        self.outgoing.close();
        self.inbox.lock().end(why);
    }

    /// Ends the requests to one target as unknown, because another node serves it now. The lane goes on.
    pub fn end_target(&self, target: TargetId, why: &str) {
        let mut inbox = self.inbox.lock();
        for waiter in inbox.waiting.values_mut().filter(|w| w.target == target && w.done.is_none()) {
            waiter.end(why);
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // The socket's other handle is among the live ones until the entry goes.
        self.channel.shutdown();
    }
}

impl Inbox {
    fn end(&mut self, why: &str) {
        self.waiting.values_mut().filter(|w| w.done.is_none()).for_each(|w| w.end(why));
    }

    /// net-R2: wakes a sleeping thread to lead, if no thread leads.
    fn pass_reading_on(&mut self) {
        if self.reader.is_some()
            && let Some(thread) = self.waiting.values_mut().find_map(|w| w.thread.take())
        {
            thread.unpark();
        }
    }
}

impl Waiter {
    fn end(&mut self, why: &str) {
        self.done = Some(Err(why.to_string()));
        if let Some(thread) = self.thread.take() {
            thread.unpark();
        }
    }
}

/// The outcome of one reading.
enum Next {
    Frame(Frame<()>),
    /// No byte came for this long.
    Quiet(Duration),
}

impl Reader {
    /// The next frame. `wait` is `None` for one that was received already. A frame that comes in pieces and is not whole at `until` is left to
    /// the next call.
    fn next(
        &mut self,
        channel: &Channel,
        memory: &mut Answers<'_>,
        wait: Option<Duration>,
        until: Instant,
    ) -> Result<Next, Gone> {
        let mut has_received = false;
        loop {
            let mut bytes = &self.ahead[self.begin..self.end];
            let step = self.incoming.take(&mut bytes, memory)?;
            self.begin = self.end - bytes.len();
            match step {
                Step::Whole(frame) => return Ok(Next::Frame(frame)),
                Step::Held => unreachable!("a client has memory for the answers that it waits for"),
                Step::More => {}
            }
            let Some(wait) = wait.filter(|_| !has_received || Instant::now() < until) else {
                return Ok(Next::Quiet(Duration::ZERO));
            };
            assert_eq!(self.begin, self.end, "no byte that was received is lost");
            let n = match self.incoming.place() {
                Some(place) => {
                    let n = match wait >= SLICE {
                        true => receive_all(channel, place)?,
                        false => receive(channel, place, wait)?,
                    };
                    self.incoming.received(n.unwrap_or(0));
                    n
                }
                None => {
                    let n = receive(channel, &mut self.ahead, wait)?;
                    (self.begin, self.end) = (0, n.unwrap_or(0));
                    n
                }
            };
            if n.is_none() {
                return Ok(Next::Quiet(wait));
            }
            self.quiet = Duration::ZERO;
            self.is_pinged = false;
            has_received = true;
        }
    }
}

/// The buffers of the requests under way.
struct Answers<'a> {
    inbox: &'a Mutex<Inbox>,
}

impl Memory for Answers<'_> {
    type Share = ();
    fn reserve(&mut self, _: &Header) -> Option<()> {
        Some(())
    }
    fn body(&mut self) -> Vec<u8> {
        Vec::new()
    }
    fn bulk(&mut self, head: &Header) -> Option<Buf> {
        if head.flags & Flags::REPLY == 0 || head.call == PING {
            return Some(Buf::new());
        }
        let mut inbox = self.inbox.lock();
        inbox.waiting.get_mut(&head.request).filter(|w| w.done.is_none())?.into.take()
    }
}
