//! Requests in the other direction: from a server to a process that has sent it one.
//!
//! A process listens by a request over a connection of its own (`Peer::listen`). The service that serves the request takes the connection's line
//! (`Answer::line`). What it sends over the line arrives at the listener's service. In one process a line is a queue.
//!
//! net-B1: requests over a line arrive in their order and once each, until the line is closed. After that none arrives.
//! net-B2: the sender never waits. A line whose other end takes too little is closed.
//! net-B3: the listener's service runs on a thread of its own, never on one that called the sender.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use types::Buf;
use wire::Header;

use crate::hub::reply_to;
use crate::later::{Answer, Deliver, Parking};
use crate::{Line, NetError, Service};

/// Longest body of an answer over a line.
pub(crate) const ANSWER_MAX: usize = 4096;
/// Requests that wait in a line of this process.
const QUEUE_MAX: usize = 4096;
/// How soon a thread that waits for the first answer sees a closed line.
const LOOK: Duration = Duration::from_millis(50);

/// Gets the answers to requests over a line. It runs on a thread that serves others too, so it must not wait.
pub type Answered = Arc<dyn Fn(&Header, &[u8]) + Send + Sync>;

/// A transport's part of a line.
pub(crate) trait SendBack: Send + Sync {
    /// False: the line is closed.
    fn send(&self, head: &Header, body: &[u8]) -> bool;
    fn is_open(&self) -> bool;
    fn close(&self);
}

/// The listener's end of a line. Dropped, the line is closed.
pub struct Listening(pub(crate) Arc<dyn SendBack>);

impl Listening {
    /// False: the other end, or the way to it, is gone. Listen again.
    pub fn is_open(&self) -> bool {
        self.0.is_open()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The place for the answer to the request that begins a line.
#[derive(Default)]
pub(crate) struct First {
    answer: Mutex<Option<(Header, Vec<u8>)>>,
    changed: Condvar,
}

impl First {
    pub fn set(&self, head: &Header, body: &[u8]) {
        *self.answer.lock() = Some((*head, body.to_vec()));
        self.changed.notify_one();
    }

    /// Waits for the answer to `request`.
    pub fn wait(
        &self,
        line: &dyn SendBack,
        request: u64,
        deadline: Instant,
    ) -> Result<(Header, Vec<u8>), &'static str> {
        let mut answer = self.answer.lock();
        loop {
            if let Some(got) = answer.take_if(|(head, _)| head.request == request) {
                return Ok(got);
            }
            if !line.is_open() {
                return Err("the connection was closed");
            }
            let now = Instant::now();
            if now >= deadline {
                return Err("the deadline has passed");
            }
            self.changed.wait_until(&mut answer, deadline.min(now + LOOK));
        }
    }
}

/// A line within this process.
pub(crate) struct LocalLine {
    queue: Mutex<VecDeque<(Header, Vec<u8>)>>,
    changed: Condvar,
    is_closed: AtomicBool,
    answered: OnceLock<Answered>,
}

impl LocalLine {
    /// A line with the thread that reads it.
    pub fn start(heard: Arc<dyn Service>) -> io::Result<Arc<LocalLine>> {
        let line = Arc::new(LocalLine {
            queue: Mutex::default(),
            changed: Condvar::new(),
            is_closed: AtomicBool::new(false),
            answered: OnceLock::new(),
        });
        let weak = Arc::downgrade(&line);
        std::thread::Builder::new().name("notices".into()).spawn(move || hear(&weak, &*heard))?;
        Ok(line)
    }
    /// False: the line was taken already.
    pub fn take(&self, answered: Answered) -> bool {
        self.answered.set(answered).is_ok()
    }
}

impl SendBack for LocalLine {
    fn send(&self, head: &Header, body: &[u8]) -> bool {
        let mut queue = self.queue.lock();
        if queue.len() >= QUEUE_MAX {
            drop(queue);
            self.close();
            return false;
        }
        queue.push_back((*head, body.to_vec()));
        self.changed.notify_one();
        self.is_open()
    }
    fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Acquire)
    }
    fn close(&self) {
        // Under the lock, so that the reading thread is not between its look and its sleep.
        let mut queue = self.queue.lock();
        self.is_closed.store(true, Ordering::Release);
        queue.clear();
        self.changed.notify_one();
    }
}

fn hear(weak: &Weak<LocalLine>, heard: &dyn Service) {
    while let Some(line) = weak.upgrade() {
        let mut queue = line.queue.lock();
        if queue.is_empty() && line.is_open() {
            line.changed.wait_for(&mut queue, Duration::from_secs(1));
        }
        let next = queue.pop_front();
        drop(queue);
        if !line.is_open() {
            return;
        }
        let Some((head, body)) = next else { continue };
        let mut bulk = Buf::new();
        let mut answer = Answer::new(reply_to(&head), &mut bulk);
        heard.serve(&head, &body, &[], &mut answer);
        if let (Some((head, body)), Some(answered)) = (answer.end(&head), line.answered.get()) {
            answered(&head, &body);
        }
    }
}

/// The parking of the request that begins a line in this process: it is answered at once.
pub(crate) struct AtLine {
    pub line: Arc<LocalLine>,
}

impl Parking for AtLine {
    fn park(&self) -> Option<Deliver> {
        None
    }
    fn line(&self, answered: Answered) -> Option<Line> {
        self.line.take(answered).then(|| Line(self.line.clone()))
    }
}

/// The error of a transport without lines.
pub(crate) fn unsupported() -> NetError {
    NetError::NotSent { peer: "a peer".into(), why: "it sends no requests back".into() }
}
