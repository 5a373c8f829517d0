//! Moves the bytes of circuits: workers with an epoll set each, and `splice` through pipes, so that no byte is copied to this process.
//!
//! A circuit belongs to one worker for its life. A pipe is taken for a direction that has bytes under way, and given back when it is empty.
//! So idle circuits hold two sockets only, and memory is bounded by the circuits that are stalled.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pki::Identity;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use socket2::Socket;

use super::count::{Counted, Counts, Way};

/// Bytes in a pipe. The kernel may give fewer to a user without privileges.
const PIPE_BYTES: usize = 256 * 1024;
/// Empty pipes that a worker keeps.
const PIPES_KEPT: usize = 64;
/// Bytes that one circuit moves before others have their turn.
const TURN_BYTES: usize = 4 << 20;
/// A circuit without bytes for this long is idle: a drained router ends it.
const IDLE: Duration = Duration::from_secs(1);
/// How often a worker looks at what its circuits' sockets do not tell.
const TICK: Duration = Duration::from_millis(250);
/// Bytes that the other host neither acknowledges nor takes for this long end a circuit. A program may be stopped for minutes.
const UNACKNOWLEDGED_MS: u32 = 600_000;
const WORKERS_MAX: usize = 4;
/// The event of a worker's inbox.
const WAKE: u64 = u64::MAX;

pub(super) struct Pump {
    workers: Vec<Arc<Worker>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    next: AtomicUsize,
}

struct Worker {
    epoll: OwnedFd,
    wake: OwnedFd,
    inbox: Mutex<Inbox>,
    is_stopping: AtomicBool,
    circuits: Mutex<HashMap<u64, Arc<Circuit>>>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Inbox {
    /// Idle circuits are ended; at the time the others are.
    drain: Option<Instant>,
}

struct Circuit {
    id: u64,
    ends: [Arc<Socket>; 2],
    identity: Option<Identity>,
    /// Set from outside; the worker ends it.
    is_ended: AtomicBool,
    state: Mutex<State>,
    counted: Counted,
}

struct State {
    /// From the dialler, and to it.
    flows: [Flow; 2],
    moved_at: Instant,
}

#[derive(Default)]
struct Flow {
    pipe: Option<Pipe>,
    held: usize,
    is_ended: bool,
    is_shut: bool,
    stalled: Option<Instant>,
}

struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    bytes: usize,
}

/// The outcome of a turn.
enum Turn {
    /// Nothing more can be moved now.
    Waits,
    /// Others have their turn first.
    HasMore,
    /// Both directions have ended.
    Over,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

impl Pump {
    pub fn start(counts: Arc<Counts>) -> io::Result<Pump> {
        let count = std::thread::available_parallelism().map_or(2, usize::from).min(WORKERS_MAX);
        let pump = Pump { workers: vec![], threads: Mutex::default(), next: AtomicUsize::new(0) };
        let mut workers = Vec::new();
        for n in 0..count {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&epoll, &wake, epoll::EventData::new_u64(WAKE), flags)?;
            let worker = Arc::new(Worker {
                epoll,
                wake,
                inbox: Mutex::default(),
                is_stopping: AtomicBool::new(false),
                circuits: Mutex::default(),
                counts: counts.clone(),
            });
            workers.push(worker.clone());
            let thread =
                std::thread::Builder::new().name(format!("pump-{n}")).spawn(move || worker.work())?;
            pump.threads.lock().push(thread);
        }
        Ok(Pump { workers, ..pump })
    }

    /// Takes a circuit over whose greetings are done.
    pub fn add(
        &self,
        dialler: Arc<Socket>,
        next: Arc<Socket>,
        counted: Counted,
        identity: Option<Identity>,
    ) -> io::Result<()> {
        for socket in [&dialler, &next] {
            socket.set_nonblocking(true)?;
            sockopt::set_tcp_user_timeout(&**socket, UNACKNOWLEDGED_MS)?;
        }
        let circuit = Arc::new(Circuit {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            ends: [dialler, next],
            identity,
            is_ended: AtomicBool::new(false),
            state: Mutex::new(State { flows: Default::default(), moved_at: Instant::now() }),
            counted,
        });
        let n = self.next.fetch_add(1, Ordering::Relaxed) % self.workers.len();
        self.workers[n].add(circuit)
    }

    pub fn drain(&self, until: Option<Instant>) {
        for worker in &self.workers {
            worker.inbox.lock().drain = until;
            worker.ring();
        }
    }

    /// Ends the circuits of diallers of which `is_bad` is true.
    pub fn end_if(&self, is_bad: impl Fn(&Identity) -> bool) {
        for worker in &self.workers {
            for circuit in worker.circuits.lock().values() {
                if circuit.identity.as_ref().is_some_and(&is_bad) {
                    circuit.is_ended.store(true, Ordering::SeqCst);
                }
            }
            worker.ring();
        }
    }

    pub fn stop(&self) {
        for worker in &self.workers {
            worker.is_stopping.store(true, Ordering::SeqCst);
            worker.ring();
        }
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!(
                    "a worker of the router had panicked; restart it, and report the lines above"
                );
            }
        }
    }
}

impl Worker {
    fn ring(&self) {
        // Full: it is awake already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn add(&self, circuit: Arc<Circuit>) -> io::Result<()> {
        self.circuits.lock().insert(circuit.id, circuit.clone());
        // Edge-triggered: a turn moves all that there is, or comes again by itself.
        let flags =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        for end in &circuit.ends {
            if let Err(e) = epoll::add(&self.epoll, end, epoll::EventData::new_u64(circuit.id), flags) {
                self.end(&circuit);
                return Err(e.into());
            }
        }
        Ok(())
    }

    fn end(&self, circuit: &Circuit) {
        self.circuits.lock().remove(&circuit.id);
        for end in &circuit.ends {
            let _ = epoll::delete(&self.epoll, end);
            // An error means that the socket is not connected any more.
            let _ = end.shutdown(std::net::Shutdown::Both);
        }
    }

    fn work(&self) {
        let mut pipes: Vec<Pipe> = Vec::new();
        let mut events: Vec<epoll::Event> = Vec::with_capacity(256);
        let mut ready: Vec<u64> = Vec::new();
        // They found no pipe.
        let mut starved: Vec<u64> = Vec::new();
        let mut ticked = Instant::now();
        while !self.is_stopping.load(Ordering::SeqCst) {
            let wait = if ready.is_empty() { TICK } else { Duration::ZERO };
            let wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos() as i64 };
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&wait)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => {
                    tracing::error!("the router cannot wait for its circuits: {e}");
                    break;
                }
            }
            let mut is_rung = false;
            for event in &events {
                match event.data.u64() {
                    WAKE => is_rung = true,
                    id => ready.push(id),
                }
            }
            ready.sort_unstable();
            ready.dedup();
            for id in std::mem::take(&mut ready) {
                let Some(circuit) = self.circuits.lock().get(&id).cloned() else { continue };
                match circuit.turn(&mut pipes) {
                    Ok(Turn::Waits) => {}
                    Ok(Turn::HasMore) => ready.push(id),
                    Ok(Turn::Over) => self.end(&circuit),
                    Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => starved.push(id),
                    Err(why) => {
                        tracing::debug!(circuit = id, "a circuit broke: {why}");
                        self.end(&circuit);
                    }
                }
            }
            if is_rung || ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.tick();
                if !starved.is_empty() {
                    tracing::warn!(circuits = starved.len(), "no pipe could be opened; they are tried again");
                    ready.append(&mut starved);
                }
            }
        }
        let all: Vec<_> = self.circuits.lock().values().cloned().collect();
        all.iter().for_each(|circuit| self.end(circuit));
    }

    /// Ends circuits that were marked, or that a drain ends.
    fn tick(&self) {
        let drain = self.inbox.lock().drain;
        let now = Instant::now();
        let is_over = |circuit: &&Arc<Circuit>| {
            circuit.is_ended.load(Ordering::SeqCst)
                || drain.is_some_and(|until| now >= until || circuit.is_idle(now))
        };
        let over: Vec<_> = self.circuits.lock().values().filter(is_over).cloned().collect();
        over.iter().for_each(|circuit| self.end(circuit));
        if !over.is_empty() {
            tracing::info!(ended = over.len(), left = self.counts.circuits(), "circuits were ended");
        }
    }
}

impl Circuit {
    fn is_idle(&self, now: Instant) -> bool {
        let state = self.state.lock();
        let is_empty = state.flows.iter().all(|flow| flow.held == 0);
        is_empty && now.saturating_duration_since(state.moved_at) >= IDLE
    }

    /// Moves what can be moved, both ways.
    fn turn(&self, pipes: &mut Vec<Pipe>) -> Result<Turn, Errno> {
        let mut state = self.state.lock();
        let State { flows, moved_at } = &mut *state;
        let [out, back] = flows;
        let [dialler, next] = &self.ends;
        let mut moved = 0;
        loop {
            let a = out.step(dialler, next, pipes, &self.counted, Way::Out)?;
            let b = back.step(next, dialler, pipes, &self.counted, Way::Back)?;
            moved += a.unwrap_or(0) + b.unwrap_or(0);
            if (a, b) == (None, None) {
                break;
            }
            if moved >= TURN_BYTES {
                *moved_at = Instant::now();
                return Ok(Turn::HasMore);
            }
        }
        for flow in [&mut *out, &mut *back] {
            flow.give_back(pipes);
        }
        if moved > 0 {
            *moved_at = Instant::now();
        }
        Ok(if out.is_shut && back.is_shut { Turn::Over } else { Turn::Waits })
    }
}

impl Flow {
    /// Fills the pipe from one end and empties it to the other. Gives the bytes that were moved in either step; `None`: no step was possible.
    fn step(
        &mut self,
        from: &Socket,
        to: &Socket,
        pipes: &mut Vec<Pipe>,
        counted: &Counted,
        way: Way,
    ) -> Result<Option<usize>, Errno> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let mut moved = None;
        if !self.is_ended {
            let pipe = match &mut self.pipe {
                Some(pipe) => pipe,
                none => none.insert(pipes.pop().map_or_else(Pipe::make, Ok)?),
            };
            if self.held < pipe.bytes {
                match splice(from.as_fd(), None, &pipe.write, None, pipe.bytes - self.held, flags) {
                    Ok(0) => {
                        self.is_ended = true;
                        moved = Some(0);
                    }
                    Ok(n) => {
                        self.held += n;
                        moved = Some(n);
                    }
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(e) => return Err(e),
                }
            }
        }
        if self.held > 0
            && let Some(pipe) = &self.pipe
        {
            match splice(&pipe.read, None, to.as_fd(), None, self.held, flags) {
                Ok(n) => {
                    assert!(n <= self.held, "net-G2: no byte leaves that did not come");
                    self.held -= n;
                    counted.moved(way, n);
                    moved = Some(moved.unwrap_or(0) + n);
                    if let Some(since) = self.stalled.take() {
                        counted.stalled(since);
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => {
                    // net-G3: the pipe fills, and then nothing more is read.
                    self.stalled.get_or_insert_with(Instant::now);
                }
                Err(e) => return Err(e),
            }
        }
        if self.is_ended && self.held == 0 && !self.is_shut {
            self.is_shut = true;
            // An error means that the other end has gone, which its own direction tells.
            let _ = to.shutdown(std::net::Shutdown::Write);
        }
        Ok(moved)
    }

    fn give_back(&mut self, pipes: &mut Vec<Pipe>) {
        if self.held == 0
            && let Some(pipe) = self.pipe.take()
            && pipes.len() < PIPES_KEPT
        {
            pipes.push(pipe);
        }
    }
}

impl Pipe {
    fn make() -> Result<Pipe, Errno> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // The kernel may refuse it to a user with many pipes. A small pipe is slower and not wrong.
        let bytes = match fcntl_setpipe_size(&write, PIPE_BYTES) {
            Ok(bytes) => bytes,
            Err(_) => rustix::pipe::fcntl_getpipe_size(&write)?,
        };
        Ok(Pipe { read, write, bytes })
    }
}
