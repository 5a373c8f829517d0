//! The serving half of a node: a bounded pool of workers over epoll.
//!
//! A worker receives one frame, gives the connection back, serves the request and sends the answer. An idle connection holds no thread and
//! no buffers.
//! net-E1: one worker does not serve while all others may be busy: it receives frames, answers pings and queues requests. So a slow medium
//!     is not taken for a dead host.
//! net-E2: each connection with unread bytes is with a worker, in `ready`, waits for memory in `short`, is paused until an answer leaves, or
//!     has an event in epoll.

mod about;
mod back;
mod ending;
mod jobs;
mod parked;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};
use pki::Trust;
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use socket2::Socket;
use types::Buf;
use wire::frame::PING;
use wire::{Flags, Header};

use about::is_about_the_process;
use back::serve_line;
use jobs::{Jobs, Serving};
use parked::{AtWorker, Place};

use crate::Hub;
use crate::bufs::Bufs;
use crate::channel::Channel;
use crate::connection::{Connection, Read, Spare, UnderWay};
use crate::counts::{Way, add};
use crate::hello::{HELLO_LEN, Hello, Kind, Status};
use crate::hub::{refused, reply_to};
use crate::incoming::Frame;
use crate::known::Endpoint;
use crate::limits::{Budget, Limits, Origin, Seat, Share};
use crate::outgoing::{Bulk, Left, When};
use crate::socket::{Gone, send_hello, tune};

/// A client reopens a connection in less than a millisecond, so one that was silent for this long is not worth keeping.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// Bulk lanes take the most memory of the kernel, and are seldom used alone.
const IDLE_BULK_MAX: Duration = Duration::from_secs(60);
/// A client connects because it has a request. A connection without one in this time loses its place.
const FIRST_FRAME_MAX: Duration = Duration::from_secs(10);
/// A frame whose first byte has come must be whole in this time, and so must a reply be taken.
const FRAME_MAX: Duration = Duration::from_secs(60);
/// A greeting is one packet; an end that takes longer is no client.
const HELLO_MAX: Duration = Duration::from_secs(5);
/// A worker that has had nothing to do for this long frees its buffers, and ends if there are others.
const WORKER_IDLE: Duration = Duration::from_secs(10);
/// A worker looks for events at least so often, however much work is queued.
const LOOK_EACH: u32 = 4;
/// How long queued requests wait for busy workers before there is one more.
const JOB_WAIT: Duration = Duration::from_millis(1);
/// How long a worker waits in a system call before it leaves the rest to an event, if other workers are idle.
const LINGER: Duration = Duration::from_millis(5);
/// The event of `wake`.
const WAKE: u64 = u64::MAX;

pub(crate) struct Engine {
    hub: Arc<Hub>,
    nid: String,
    /// Certificates: connections over TCP use TLS.
    trust: Option<Arc<Trust>>,
    epoll: OwnedFd,
    /// Written to wake a worker that waits for events.
    wake: OwnedFd,
    connections: RwLock<HashMap<u64, Arc<Connection>>>,
    next: AtomicU64,
    queues: Mutex<Queues>,
    /// Length of `ready`, to be read without the lock.
    ready: AtomicUsize,
    jobs: Jobs,
    /// Workers that wait for events, and all of them.
    idle: AtomicUsize,
    workers: AtomicUsize,
    /// As many workers as processors, and one that receives. More only switch between them, unless they wait for something.
    base: usize,
    /// It serves lines that this process listens on. Their services never wait, so one worker suffices.
    is_listener: bool,
    stopping: AtomicBool,
    ending: AtomicBool,
    budget: Arc<Budget>,
    bufs: Arc<Bufs>,
    started: Instant,
    /// Notified when a connection or a worker has ended.
    ended: Condvar,
    ending_lock: Mutex<()>,
    me: Weak<Engine>,
}

#[derive(Default)]
struct Queues {
    ready: VecDeque<Arc<Connection>>,
    short: Vec<Arc<Connection>>,
}

/// A request that is served, or waits for a worker.
struct Job {
    connection: Arc<Connection>,
    frame: Frame<Share>,
    under_way: UnderWay,
    /// From the first byte to the last one, and when that came.
    received: Duration,
    waits_since: Instant,
}

/// Closes a connection if its service panics, so that its client does not wait for an answer.
struct OnPanic<'a> {
    engine: &'a Engine,
    connection: &'a Arc<Connection>,
}

impl Drop for OnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.engine.close(self.connection);
        }
    }
}

/// A worker's place in the pool.
struct WorkerPlace {
    engine: Arc<Engine>,
}

impl Drop for WorkerPlace {
    fn drop(&mut self) {
        self.engine.workers.fetch_sub(1, Ordering::SeqCst);
        let _guard = self.engine.ending_lock.lock();
        self.engine.ended.notify_all();
    }
}

impl Engine {
    /// An engine with one worker.
    pub fn start(
        hub: Arc<Hub>,
        nid: String,
        limits: Limits,
        trust: Option<Arc<Trust>>,
    ) -> io::Result<Arc<Engine>> {
        Engine::of((hub, nid), limits, trust, false)
    }

    fn of(
        (hub, nid): (Arc<Hub>, String),
        limits: Limits,
        trust: Option<Arc<Trust>>,
        is_listener: bool,
    ) -> io::Result<Arc<Engine>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        // Edge-triggered: each write wakes one worker, and the count is never read.
        epoll::add(
            &epoll,
            &wake,
            epoll::EventData::new_u64(WAKE),
            epoll::EventFlags::IN | epoll::EventFlags::ET,
        )?;
        let base = std::thread::available_parallelism().map_or(2, usize::from) + 1;
        // One serves while one receives.
        let limits = Limits { workers: limits.workers.max(2), ..limits };
        let base = base.max(3).min(limits.workers);
        let engine = Arc::new_cyclic(|me: &Weak<Engine>| {
            let freed = {
                let me = me.clone();
                move || me.upgrade().iter().for_each(|engine| engine.resume_short())
            };
            Engine {
                hub,
                nid,
                trust,
                epoll,
                wake,
                connections: RwLock::default(),
                next: AtomicU64::new(1),
                queues: Mutex::default(),
                ready: AtomicUsize::new(0),
                jobs: Jobs::new(limits.workers),
                idle: AtomicUsize::new(0),
                workers: AtomicUsize::new(0),
                base,
                is_listener,
                stopping: AtomicBool::new(false),
                ending: AtomicBool::new(false),
                budget: Budget::new(limits, Box::new(freed)),
                bufs: Arc::default(),
                started: Instant::now(),
                ended: Condvar::new(),
                ending_lock: Mutex::new(()),
                me: me.clone(),
            }
        });
        engine.add_worker()?;
        Ok(engine)
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
    pub fn nid(&self) -> &str {
        &self.nid
    }
    pub fn open(&self) -> usize {
        self.connections.read().len()
    }
    pub fn workers(&self) -> usize {
        self.workers.load(Ordering::SeqCst)
    }

    fn now_ms(&self) -> u32 {
        // 0 means "not set" in a connection's times.
        (self.started.elapsed().as_millis() as u32).max(1)
    }

    /// Takes a new connection, or refuses it.
    pub fn welcome(&self, socket: Socket, net: &Arc<str>) {
        let socket = Arc::new(socket);
        let channel = match &self.trust {
            Some(trust) if !socket.local_addr().is_ok_and(|a| a.is_unix()) => {
                match Channel::accepted(socket.clone(), trust) {
                    Ok(channel) => channel,
                    Err(gone) => return tracing::warn!(nid = %self.nid, "a connection was refused: {gone}"),
                }
            }
            _ => Channel::plain(socket.clone()),
        };
        let endpoint = Endpoint::of(&socket, net);
        let Some(seat) = self.budget.seat(Origin::of(&socket)) else {
            self.refuse(channel, Status::Full);
            return;
        };
        if let Err(e) = self.enter(channel, endpoint, seat) {
            tracing::debug!(nid = %self.nid, "a connection broke at once: {e}");
        }
    }

    fn refuse(&self, channel: Channel, status: Status) {
        // An error means that the client has gone, or has not ended its handshake: then it sees an end.
        let _ = send_hello(&channel, &self.greeting(status));
    }

    fn enter(&self, channel: Channel, endpoint: Endpoint, seat: Seat) -> io::Result<()> {
        tune(&channel.socket, LINGER)?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.watch_new(Arc::new(Connection::new(id, channel, endpoint, seat, self.now_ms())))
    }

    fn watch_new(&self, connection: Arc<Connection>) -> io::Result<()> {
        let id = connection.id;
        self.connections.write().insert(id, connection.clone());
        let watched = epoll::add(&self.epoll, &connection.channel, epoll::EventData::new_u64(id), READABLE);
        if let Err(e) = watched {
            self.close(&connection);
            return Err(e.into());
        }
        Ok(())
    }

    fn greeting(&self, status: Status) -> Hello {
        let mut hello = Hello::new(status, self.hub.node(), self.nid.clone());
        hello.frames = self.budget.limits.frames as u32;
        // A fresh challenge for each connection. No bit of the features asks for its signature yet, so a short read costs nothing.
        let _ = rustix::rand::getrandom(&mut hello.challenge[..], rustix::rand::GetRandomFlags::empty());
        hello
    }

    fn add_worker(&self) -> io::Result<()> {
        let Some(engine) = self.me.upgrade() else { return Ok(()) };
        let n = self.workers.fetch_add(1, Ordering::SeqCst);
        let place = WorkerPlace { engine };
        std::thread::Builder::new().name(format!("serve-{n}")).spawn(move || place.engine.work())?;
        Ok(())
    }

    /// True if a worker may serve now: another one waits for events, or begins to (net-E1).
    fn may_serve(&self) -> bool {
        if self.is_listener || self.idle.load(Ordering::SeqCst) > 0 {
            return true;
        }
        self.grow(self.base)
    }

    /// Adds a worker if there are fewer than `max`.
    fn grow(&self, max: usize) -> bool {
        // Two that look at once may make one more than the bound, which costs nothing.
        self.workers.load(Ordering::SeqCst) < max && self.add_worker().is_ok()
    }

    fn work(&self) {
        let mut spare = Spare::new(self.bufs.clone());
        let mut events: Vec<epoll::Event> = Vec::with_capacity(1);
        let mut turn = 0u32;
        while !self.ending.load(Ordering::SeqCst) {
            turn = turn.wrapping_add(1);
            // Connections that always have more bytes do not keep those with an event waiting.
            let looks_first = turn.is_multiple_of(LOOK_EACH);
            if !looks_first && let Some((job, serving)) = self.next_job() {
                self.serve(job, serving, &mut spare);
                continue;
            }
            if !looks_first && let Some(connection) = self.next_ready() {
                self.receive(connection, &mut spare);
                continue;
            }
            let idle = self.idle.fetch_add(1, Ordering::SeqCst) + 1;
            let has_work = self.ready.load(Ordering::SeqCst) > 0
                || (self.jobs.wanted() > 0 && (idle > 1 || looks_first))
                || self.ending.load(Ordering::SeqCst);
            events.clear();
            let has_jobs = self.jobs.wanted() > 0;
            let wait = match (has_work, has_jobs) {
                (true, _) => Duration::ZERO,
                (false, true) => JOB_WAIT,
                (false, false) => WORKER_IDLE,
            };
            let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
            let waited = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&wait));
            self.idle.fetch_sub(1, Ordering::SeqCst);
            match (waited, events.first().copied()) {
                (Ok(_), Some(event)) => self.happened(event, &mut spare),
                // The workers are not busy but wait for something, as for a medium.
                (Ok(_), None) if !has_work && has_jobs => {
                    self.grow(self.jobs.wanted());
                }
                (Ok(_), None) if !has_work => {
                    self.bufs.clear();
                    if self.workers.load(Ordering::SeqCst) > self.base {
                        return;
                    }
                }
                (Ok(_), None) | (Err(rustix::io::Errno::INTR), _) => {}
                (Err(e), _) => {
                    tracing::error!(nid = %self.nid, "accept failed: no events of connections: {e}");
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    fn happened(&self, event: epoll::Event, spare: &mut Spare) {
        let (id, flags) = (event.data.u64(), event.flags);
        if id == WAKE {
            return;
        }
        let Some(connection) = self.connections.read().get(&id).cloned() else { return };
        if flags.contains(epoll::EventFlags::OUT) {
            self.flush(&connection);
        }
        let ended = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        if flags.intersects(ended) {
            connection.is_ending.store(true, Ordering::SeqCst);
        }
        if flags.intersects(ended | epoll::EventFlags::IN) && connection.begin() {
            self.receive(connection, spare);
        }
    }

    fn next_job(&self) -> Option<(Job, Serving<'_>)> {
        if self.jobs.wanted() == 0 || !self.may_serve() {
            return None;
        }
        self.jobs.pop()
    }

    fn next_ready(&self) -> Option<Arc<Connection>> {
        if self.ready.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let connection = self.queues.lock().ready.pop_front()?;
        self.ready.fetch_sub(1, Ordering::SeqCst);
        Some(connection)
    }

    /// net-E2: hands a connection, which the caller has, to the next worker.
    fn push_ready(&self, connection: Arc<Connection>) {
        self.queues.lock().ready.push_back(connection);
        self.ready.fetch_add(1, Ordering::SeqCst);
        self.wake_one();
    }

    fn wake_one(&self) {
        if self.idle.load(Ordering::SeqCst) > 0 {
            // It fails only if the count is full, and then a worker is awake.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    /// Connections that wait for memory try again.
    fn resume_short(&self) {
        let mut queues = self.queues.lock();
        let short = std::mem::take(&mut queues.short);
        let n = short.len();
        queues.ready.extend(short);
        drop(queues);
        self.ready.fetch_add(n, Ordering::SeqCst);
        if n > 0 {
            self.wake_one();
        }
    }

    fn may_read(&self, connection: &Connection) -> bool {
        connection.under_way.load(Ordering::SeqCst) < self.budget.limits.frames
            && connection.stuck_ms.load(Ordering::SeqCst) == 0
    }

    /// Receives one frame of a connection that the caller has, gives it back, and serves the request.
    fn receive(&self, connection: Arc<Connection>, spare: &mut Spare) {
        loop {
            if connection.is_closed.load(Ordering::SeqCst) {
                return;
            }
            if self.is_stopping() {
                self.close_unused(&connection);
                return;
            }
            // net-C2.
            if !self.may_read(&connection) {
                connection.is_paused.store(true, Ordering::SeqCst);
                add(&connection.meter.counts.waits);
                // An answer may have left before the mark was there.
                if self.may_read(&connection) && connection.is_paused.swap(false, Ordering::SeqCst) {
                    continue;
                }
                return;
            }
            let (frees, reading) = (self.budget.frees(), Instant::now());
            match connection.read(spare, &|| self.may_sleep()) {
                Ok(Read::Empty) => {
                    let begun = &connection.begun_ms;
                    match connection.is_between() {
                        true => begun.store(0, Ordering::Relaxed),
                        false if begun.load(Ordering::Relaxed) == 0 => {
                            begun.store(self.now_ms(), Ordering::Relaxed)
                        }
                        false => {}
                    }
                    if connection.end() {
                        return;
                    }
                }
                Ok(Read::Greeting(raw)) => {
                    if let Err(gone) = self.greet(&connection, &raw) {
                        self.close_because(&connection, gone);
                        return;
                    }
                }
                Ok(Read::Short) => {
                    add(&connection.meter.counts.waits);
                    self.budget.wait_for_memory();
                    self.queues.lock().short.push(connection);
                    // The connection may be with another worker from here on. Memory that was given back meanwhile was not told of.
                    if self.budget.frees() != frees {
                        self.resume_short();
                    }
                    return;
                }
                Ok(Read::Frame { frame, has_more }) => {
                    let now = self.now_ms();
                    connection.heard_ms.store(now, Ordering::Relaxed);
                    let begun = connection.begun_ms.swap(0, Ordering::Relaxed);
                    connection.meter.frame(Way::In, &frame.head);
                    if frame.head.flags & Flags::REPLY != 0 || frame.head.call == PING {
                        if let Err(gone) = self.take_at_once(&connection, frame) {
                            self.close_because(&connection, gone);
                            return;
                        }
                        // As after a request: a peer that only pings holds no worker.
                        if has_more || !connection.end() {
                            self.push_ready(connection);
                        }
                        return;
                    }
                    connection.frames.fetch_add(1, Ordering::Relaxed);
                    let under_way = UnderWay::new(&connection);
                    if has_more || !connection.end() {
                        self.push_ready(connection.clone());
                    }
                    let received = match begun {
                        0 => reading.elapsed(),
                        begun => Duration::from_millis(now.saturating_sub(begun).into()),
                    };
                    let job = Job { connection, frame, under_way, received, waits_since: Instant::now() };
                    let call = job.frame.head.call;
                    match self.may_serve().then(|| self.jobs.begin(call)).flatten() {
                        Some(serving) => self.serve(job, serving, spare),
                        None => self.jobs.push(job),
                    }
                    return;
                }
                Err(Gone::Malformed(why)) if why.0 == "handshake version" => {
                    // A client of another release is told so, in a greeting whose first bytes every release can read.
                    let _ = self.send_greeting(&connection, Status::OtherVersion);
                    self.close(&connection);
                    return;
                }
                Err(gone) => {
                    self.close_because(&connection, gone);
                    return;
                }
            }
        }
    }

    fn greet(&self, connection: &Connection, raw: &[u8; HELLO_LEN]) -> Result<(), Gone> {
        let hello = Hello::decode(raw)?;
        connection.greeted(hello.lane);
        connection.begun_ms.store(0, Ordering::Relaxed);
        connection.heard_ms.store(self.now_ms(), Ordering::Relaxed);
        if hello.lane == Kind::Circuit {
            self.send_greeting(connection, Status::Refused)?;
            return Err(Gone::Refused("a circuit was asked for, and this is no router".into()));
        }
        let status = if self.is_stopping() { Status::Stopping } else { Status::Welcome };
        self.send_greeting(connection, status)
    }

    fn send_greeting(&self, connection: &Connection, status: Status) -> Result<(), Gone> {
        let bytes = self.greeting(status).encode();
        let share = || connection.seat.take(0).map(|share| (share, None));
        let channel = &connection.channel;
        let bulk = Bulk::Lent(&[]);
        match connection.outgoing.write(channel, [&bytes, &[]], bulk, share, When::now(), &mut || false)? {
            Left::All => Ok(()),
            // A greeting fits any socket's buffer.
            Left::Queued | Left::Nothing => Err(Gone::Closed),
        }
    }

    /// A worker may wait a little for a socket if others wait for events.
    pub(super) fn may_sleep(&self) -> bool {
        self.idle.load(Ordering::SeqCst) > 0
    }

    fn serve(&self, job: Job, _serving: Serving<'_>, spare: &mut Spare) {
        let Job { connection, frame, under_way, received, waits_since } = job;
        let Frame { head, body, bulk, share } = frame;
        spent::arrived(received, waits_since.elapsed());
        let on_panic = OnPanic { engine: self, connection: &connection };
        let place = AtWorker::new(self, (connection.clone(), share, under_way));
        // Without a request for bulk bytes the buffer stays empty, and is not worth the lock.
        let mut reply_bulk = if connection.is_bulk.load(Ordering::Relaxed) && bulk.is_empty() {
            spare.bufs.take()
        } else {
            Buf::new()
        };
        // A request for a target that is not here is refused in a way that proves that nothing was done.
        let served = match &connection.heard {
            _ if is_about_the_process(head.call) => Ok(Some(self.about(&connection, &head, &body))),
            Some(heard) => Ok(serve_line(&**heard, &head, &body, &mut reply_bulk)),
            None => self.hub.serve(&head, &body, &bulk, &mut reply_bulk, &place),
        };
        let answer = match served {
            Ok(answer) => answer,
            Err(_) => {
                reply_bulk.clear();
                Some(refused(&head))
            }
        };
        drop(on_panic);
        drop(body);
        spare.bufs.put(bulk);
        let Some((reply, reply_body)) = answer else { return };
        let Some((connection, share, under_way)) = place.take() else { return };
        let may_sleep = self.may_sleep();
        self.finish((connection, share, under_way), reply, reply_body, &mut reply_bulk, may_sleep);
        spare.bufs.put(reply_bulk);
    }

    /// Answers a request that was served.
    fn finish(
        &self,
        (connection, share, under_way): Place,
        reply: Header,
        reply_body: Vec<u8>,
        reply_bulk: &mut Buf,
        may_sleep: bool,
    ) {
        if reply_body.len() > wire::frame::BODY_MAX || reply_bulk.len() > types::BULK_MAX {
            // The other end would refuse it as malformed; only a bug in a service can cause this.
            tracing::error!(call = reply.call, target = reply.target.0, "a reply was too large to send");
            self.close(&connection);
            return;
        }
        self.answer(&connection, reply, &reply_body, reply_bulk, share, may_sleep);
        drop(under_way);
        if connection.is_paused.load(Ordering::SeqCst)
            && self.may_read(&connection)
            && connection.is_paused.swap(false, Ordering::SeqCst)
        {
            self.push_ready(connection);
        } else if self.is_stopping() {
            self.close_unused(&connection);
        }
    }

    /// Sends an answer, or queues it.
    fn answer(
        &self,
        connection: &Arc<Connection>,
        head: Header,
        body: &[u8],
        bulk: &mut Buf,
        share: Share,
        may_sleep: bool,
    ) {
        assert_eq!(head.bulk_len as usize, bulk.len(), "the header tells the bulk's length");
        connection.meter.frame(Way::Out, &head);
        let raw = head.encode(body);
        let len = raw.len() + body.len() + bulk.len();
        let hold = || {
            // net-L2: the request's memory covers most answers.
            let more = match len > share.bytes() {
                true => Some(connection.seat.take(len - share.bytes())?),
                false => None,
            };
            Some((share, more))
        };
        let when = When { may_sleep, ..When::now() };
        let channel = &connection.channel;
        let bulk = Bulk::Given(bulk, &self.bufs);
        match connection.outgoing.write(channel, [&raw, body], bulk, hold, when, &mut || false) {
            Ok(Left::All | Left::Nothing) => {}
            Ok(Left::Queued) => {
                *connection.stuck.lock() = Some((head.target, (head.session.0, head.job_tag)));
                self.watch_for_space(connection);
            }
            Err(gone) => self.close_because(connection, gone),
        }
    }

    /// An answer waited for the network until now.
    fn count_stuck(&self, connection: &Connection) {
        let since = connection.stuck_ms.load(Ordering::SeqCst);
        if since != 0
            && let Some((target, job)) = *connection.stuck.lock()
        {
            let waited = self.now_ms().saturating_sub(since);
            self.hub.count_wait(target, job, Duration::from_millis(waited.into()));
        }
    }

    /// Answers are queued: an event tells when the socket takes more.
    fn watch_for_space(&self, connection: &Arc<Connection>) {
        // The time of the first one counts, however many follow.
        let _ = connection.stuck_ms.compare_exchange(0, self.now_ms(), Ordering::SeqCst, Ordering::SeqCst);
        self.watch(connection, READABLE | epoll::EventFlags::OUT);
    }

    fn watch(&self, connection: &Arc<Connection>, flags: epoll::EventFlags) {
        let data = epoll::EventData::new_u64(connection.id);
        // It fails if the connection was closed meanwhile.
        let _ = epoll::modify(&self.epoll, &connection.channel, data, flags);
    }

    fn flush(&self, connection: &Arc<Connection>) {
        match connection.outgoing.flush(&connection.channel, self.may_sleep(), &mut || false) {
            // Watched anew: another worker that found this one writing may have ended the watch. Some of it went out.
            Ok(Left::Queued) => {
                self.count_stuck(connection);
                connection.stuck_ms.store(self.now_ms(), Ordering::SeqCst);
                self.watch_for_space(connection);
            }
            Ok(Left::All | Left::Nothing) => {
                self.count_stuck(connection);
                connection.stuck_ms.store(0, Ordering::SeqCst);
                self.watch(connection, READABLE);
                // Another answer may have been queued before the mark went.
                if connection.outgoing.has_queued(&connection.channel) {
                    self.watch_for_space(connection);
                } else if connection.is_paused.swap(false, Ordering::SeqCst) {
                    self.push_ready(connection.clone());
                } else if self.is_stopping() {
                    self.close_unused(connection);
                }
            }
            Err(gone) => self.close_because(connection, gone),
        }
    }
}

/// Edge-triggered, so that a lone caller's request costs no call to watch its connection again.
const READABLE: epoll::EventFlags =
    epoll::EventFlags::IN.union(epoll::EventFlags::RDHUP).union(epoll::EventFlags::ET);
