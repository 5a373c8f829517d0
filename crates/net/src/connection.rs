//! A connection that a server accepted: its greeting, the frame that is being received, and the frames that wait to be sent.
//!
//! net-C1: at most one worker receives from a connection. A worker that finds it busy leaves a mark, and the busy worker looks again.
//! net-C2: a connection is read only while fewer requests than `Limits::frames` are under way on it and none of its answers waits to be
//!     sent, so that a peer that reads no answers sends no more requests.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;
use pki::Serial;
use types::{Buf, TargetId};
use wire::Header;

use crate::Service;
use crate::bufs::Bufs;
use crate::channel::Channel;
use crate::counts::Meter;
use crate::hello::{HELLO_LEN, Kind};
use crate::incoming::{Frame, Incoming, Memory, READ_AHEAD, Step};
use crate::known::Endpoint;
use crate::limits::{Seat, Share};
use crate::line::Answered;
use crate::link::{MEASURED_MIN, Transfer};
use crate::live::Entry;
use crate::outgoing::Outgoing;
use crate::socket::{Gone, receive_all};

const IDLE: u8 = 0;
const BUSY: u8 = 1;
const BUSY_AND_MORE: u8 = 2;

pub(crate) struct Connection {
    pub id: u64,
    pub channel: Channel,
    pub endpoint: Endpoint,
    /// A queued answer holds the memory of its request, and more if it is longer.
    pub outgoing: Outgoing<(Share, Option<Share>)>,
    pub seat: Seat,
    pub meter: Arc<Meter>,
    pub under_way: AtomicUsize,
    /// It is in no list of the engine, and is read again when an answer has left.
    pub is_paused: AtomicBool,
    pub is_closed: AtomicBool,
    /// An event told that the other end sends no more. No other event follows, so it is read until its end comes.
    pub is_ending: AtomicBool,
    state: AtomicU8,
    receiving: Mutex<Receiving>,
    /// Milliseconds of the engine's clock: when bytes came last, and when the present frame began (0: between frames).
    pub heard_ms: AtomicU32,
    pub begun_ms: AtomicU32,
    /// When answers began to wait; 0: none waits.
    pub stuck_ms: AtomicU32,
    /// The request whose answer began to wait.
    pub stuck: Mutex<Option<(TargetId, (u64, u32))>>,
    pub frames: AtomicU32,
    pub is_bulk: AtomicBool,
    is_greeted: AtomicBool,
    /// Gets answers, if this end sends requests over the connection (`line.rs`).
    pub answered: OnceLock<Answered>,
    /// Serves the requests of a connection that this process dialled; `None`: the services of this process do.
    pub heard: Option<Arc<dyn Service>>,
    /// This process's own certificate when it dialled the connection.
    pub certificate: Option<Serial>,
    _entry: Option<Entry>,
}

/// The receiving half. An idle connection holds no buffers in it.
struct Receiving {
    greeting: Option<Vec<u8>>,
    /// Bytes that were received behind the last frame.
    rest: Vec<u8>,
    incoming: Incoming<Share>,
    /// The measure of the frame's bulk bytes that the socket did not have yet.
    transfer: Option<Transfer>,
}

/// A worker's buffers, which frames take and give back.
pub(crate) struct Spare {
    pub ahead: Box<[u8]>,
    pub bufs: Arc<Bufs>,
}

impl Spare {
    pub fn new(bufs: Arc<Bufs>) -> Spare {
        Spare { ahead: vec![0; READ_AHEAD].into(), bufs }
    }
}

/// The outcome of one reading.
pub(crate) enum Read {
    Greeting(Box<[u8; HELLO_LEN]>),
    /// `has_more`: bytes behind it were received, or the connection's end is to be read.
    Frame {
        frame: Frame<Share>,
        has_more: bool,
    },
    /// No more bytes are there.
    Empty,
    /// There is no memory for the next frame now.
    Short,
}

impl Connection {
    pub fn new(id: u64, channel: Channel, endpoint: Endpoint, seat: Seat, now_ms: u32) -> Connection {
        let receiving = Receiving {
            greeting: Some(Vec::new()),
            rest: Vec::new(),
            incoming: Incoming::default(),
            transfer: None,
        };
        Connection {
            id,
            channel,
            endpoint,
            outgoing: Outgoing::default(),
            meter: seat.meter(),
            seat,
            under_way: AtomicUsize::new(0),
            is_paused: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            state: AtomicU8::new(IDLE),
            receiving: Mutex::new(receiving),
            heard_ms: AtomicU32::new(now_ms),
            begun_ms: AtomicU32::new(now_ms),
            stuck_ms: AtomicU32::new(0),
            stuck: Mutex::default(),
            frames: AtomicU32::new(0),
            is_bulk: AtomicBool::new(false),
            is_greeted: AtomicBool::new(false),
            answered: OnceLock::new(),
            heard: None,
            certificate: None,
            _entry: None,
        }
    }

    /// A connection that this process dialled, greeted.
    pub fn dialled(
        self,
        (entry, meter, certificate): (Entry, Arc<Meter>, Option<Serial>),
        heard: Arc<dyn Service>,
        answered: Answered,
    ) -> Connection {
        self.receiving.lock().greeting = None;
        self.is_greeted.store(true, Ordering::Relaxed);
        Connection {
            meter,
            answered: OnceLock::from(answered),
            heard: Some(heard),
            certificate,
            _entry: Some(entry),
            ..self
        }
    }

    /// net-C1: the caller may receive from it now. False: another worker does, and will look again.
    pub fn begin(&self) -> bool {
        let next = |state| Some(if state == IDLE { BUSY } else { BUSY_AND_MORE });
        self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next) == Ok(IDLE)
    }

    /// Ends receiving. False: events came meanwhile, so the caller still has the connection and looks again.
    pub fn end(&self) -> bool {
        if self.state.compare_exchange(BUSY, IDLE, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            return true;
        }
        let before = self.state.swap(BUSY, Ordering::SeqCst);
        assert_eq!(before, BUSY_AND_MORE, "net-C1: the worker that ends receiving had begun it");
        false
    }

    /// The other end's greeting has come.
    pub fn greeted(&self, kind: Kind) {
        self.is_bulk.store(kind == Kind::Bulk, Ordering::Relaxed);
        self.is_greeted.store(true, Ordering::Relaxed);
    }
    pub fn is_greeted(&self) -> bool {
        self.is_greeted.load(Ordering::Relaxed)
    }

    /// Receives until a frame is whole, or no more bytes are there. The caller has it (`begin`).
    ///
    /// `may_sleep` is asked in the middle of bulk bytes, whether the call may wait for more.
    pub fn read(&self, spare: &mut Spare, may_sleep: &dyn Fn() -> bool) -> Result<Read, Gone> {
        let mut receiving = self.receiving.lock();
        let Receiving { greeting, rest, incoming, transfer } = &mut *receiving;
        if let Some(bytes) = greeting {
            let whole = read_greeting(&self.channel, bytes)?;
            if whole.is_some() {
                *greeting = None;
            }
            return Ok(whole.map_or(Read::Empty, |raw| Read::Greeting(Box::new(raw))));
        }
        let mut end = rest.len();
        spare.ahead[..end].copy_from_slice(rest);
        *rest = Vec::new();
        let mut begin = 0;
        // Bytes may be there that no event will tell of again, unless a receiving call has returned fewer than it had space for.
        let mut is_drained = false;
        loop {
            let mut bytes = &spare.ahead[begin..end];
            let mut memory =
                Server { seat: &self.seat, bufs: &spare.bufs, is_bulk: self.is_bulk.load(Ordering::Relaxed) };
            let step = incoming.take(&mut bytes, &mut memory)?;
            begin = end - bytes.len();
            match step {
                Step::Whole(frame) => {
                    if let Some(transfer) = transfer.take() {
                        transfer.end(Instant::now());
                    }
                    if begin == end && !is_drained {
                        // A look costs less than another worker's.
                        (begin, end) = (0, self.channel.receive_now(&mut spare.ahead)?.unwrap_or(0));
                    }
                    *rest = spare.ahead[begin..end].to_vec();
                    let has_more = begin < end || self.is_ending.load(Ordering::SeqCst);
                    return Ok(Read::Frame { frame, has_more });
                }
                Step::Held => {
                    *rest = spare.ahead[begin..end].to_vec();
                    return Ok(Read::Short);
                }
                Step::More => {}
            }
            assert_eq!(begin, end, "no byte that was received is lost");
            let is_bulk = incoming.is_in_bulk();
            let (want, got) = match incoming.place() {
                Some(place) => {
                    let want = place.len();
                    // A call that waits would not tell whether the socket was empty.
                    let begins = is_bulk && want >= MEASURED_MIN && transfer.is_none();
                    let got = match is_bulk && !begins && may_sleep() {
                        true => receive_all(&self.channel, place)?,
                        false => self.channel.receive_now(place)?,
                    };
                    let left = want - got.unwrap_or(0);
                    if begins && left >= MEASURED_MIN && self.endpoint.address.is_some() {
                        *transfer = Some(self.begin_transfer(left));
                    }
                    incoming.received(got.unwrap_or(0));
                    (want, got)
                }
                None => {
                    let got = self.channel.receive_now(&mut spare.ahead)?;
                    (begin, end) = (0, got.unwrap_or(0));
                    (READ_AHEAD, got)
                }
            };
            is_drained = got.is_none_or(|n| n < want);
            if got.is_none() {
                return Ok(Read::Empty);
            }
        }
    }

    fn begin_transfer(&self, left: usize) -> Transfer {
        let name = self.channel.known().map_or("", |known| known.identity().node.as_str());
        self.seat.link().begin(left, (&self.endpoint.net, name), Instant::now())
    }

    /// True between two frames, with no byte of the next one received. The caller has it.
    pub fn is_between(&self) -> bool {
        let receiving = self.receiving.lock();
        receiving.greeting.is_none() && receiving.rest.is_empty() && receiving.incoming.is_between()
    }
}

fn read_greeting(channel: &Channel, bytes: &mut Vec<u8>) -> Result<Option<[u8; HELLO_LEN]>, Gone> {
    let mut raw = [0; HELLO_LEN];
    while let Some(n) = channel.receive_now(&mut raw[bytes.len()..])? {
        let at = bytes.len();
        bytes.extend_from_slice(&raw[at..at + n]);
        crate::mismatch::check_greeting(channel, bytes)?;
        crate::hello::Hello::check_begin(bytes)?;
        if bytes.len() == HELLO_LEN {
            raw.copy_from_slice(bytes);
            return Ok(Some(raw));
        }
    }
    Ok(None)
}

/// The memory of a server for the frames of one connection.
struct Server<'a> {
    seat: &'a Seat,
    bufs: &'a Bufs,
    is_bulk: bool,
}

impl Memory for Server<'_> {
    type Share = Share;

    fn reserve(&mut self, head: &Header) -> Option<Share> {
        // A request on a bulk lane without bulk bytes will be answered with some.
        let answer = if self.is_bulk && head.bulk_len == 0 { types::BULK_MAX } else { 0 };
        self.seat.take(head.body_len as usize + head.bulk_len as usize + answer)
    }
    fn body(&mut self) -> Vec<u8> {
        Vec::new()
    }
    fn bulk(&mut self, head: &Header) -> Option<Buf> {
        Some(if head.bulk_len > 0 { self.bufs.take() } else { Buf::new() })
    }
}

/// A request that was received and is not answered yet. Dropped, it no longer counts as under way.
pub(crate) struct UnderWay {
    connection: Arc<Connection>,
}

impl UnderWay {
    pub fn new(connection: &Arc<Connection>) -> UnderWay {
        connection.under_way.fetch_add(1, Ordering::SeqCst);
        UnderWay { connection: connection.clone() }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let before = self.connection.under_way.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "net-C2: a request that ends was under way");
    }
}
