//! The end of connections, and of the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use pki::Serial;
use rustix::event::epoll;

use super::{Engine, FIRST_FRAME_MAX, FRAME_MAX, HELLO_MAX, IDLE_BULK_MAX, IDLE_MAX};
use crate::connection::Connection;
use crate::socket::Gone;

impl Engine {
    pub(super) fn close_because(&self, connection: &Arc<Connection>, gone: Gone) {
        match &gone {
            Gone::Closed | Gone::Deadline => {}
            Gone::Malformed(why) => tracing::warn!(nid = %self.nid, "a connection was closed: {why}"),
            Gone::Refused(why) => {
                let from = connection.channel.socket.peer_addr().ok().and_then(|a| a.as_socket());
                let from = from.map_or("a peer".to_string(), |from| from.to_string());
                tracing::warn!(nid = %self.nid, "a connection from {from} was refused: {why}")
            }
            Gone::Broken(why) => tracing::debug!(nid = %self.nid, "a connection broke: {why}"),
        }
        self.close(connection);
    }

    pub(super) fn close_unused(&self, connection: &Arc<Connection>) {
        if connection.under_way.load(Ordering::SeqCst) == 0
            && !connection.outgoing.has_queued(&connection.channel)
        {
            self.close(connection);
        }
    }

    pub(super) fn close(&self, connection: &Arc<Connection>) {
        if connection.is_closed.swap(true, Ordering::SeqCst) {
            return;
        }
        // An error means that the other end closed it first.
        let _ = epoll::delete(&self.epoll, &connection.channel);
        connection.channel.shutdown();
        connection.outgoing.close();
        self.connections.write().remove(&connection.id);
        let _guard = self.ending_lock.lock();
        self.ended.notify_all();
    }

    pub(super) fn all(&self) -> Vec<Arc<Connection>> {
        self.connections.read().values().cloned().collect()
    }

    /// Closes connections whose other end's certificate is not good any more.
    pub fn recheck(&self) {
        for connection in self.all() {
            if let Some(why) = connection.channel.is_refused() {
                self.close_because(&connection, Gone::Refused(format!("its certificate is refused: {why}")));
            }
        }
    }

    /// net-N5: closes lines that this process dialled with a certificate of before. Their listeners begin new ones.
    pub fn close_former(&self, is_former: &dyn Fn(Option<Serial>) -> bool) {
        let former = self.all().into_iter().filter(|connection| is_former(connection.certificate));
        former.for_each(|connection| self.close(&connection));
    }

    /// Closes connections that take too long for a greeting or a frame, read no answers, or are idle. Called about once a second.
    pub fn sweep(&self) {
        let now = self.now_ms();
        let is_over = |since: u32, max: Duration| now.saturating_sub(since) as u128 >= max.as_millis();
        for connection in self.all() {
            let at = |time: &AtomicU32| time.load(Ordering::Relaxed);
            let (begun, heard, stuck) =
                (at(&connection.begun_ms), at(&connection.heard_ms), at(&connection.stuck_ms));
            let begun_max = if connection.is_greeted() { FRAME_MAX } else { HELLO_MAX };
            let idle_max = match (at(&connection.frames), connection.is_bulk.load(Ordering::Relaxed)) {
                (0, _) => FIRST_FRAME_MAX,
                (_, true) => IDLE_BULK_MAX,
                (_, false) => IDLE_MAX,
            };
            // A line may be silent for long.
            let is_line = connection.answered.get().is_some();
            let is_unused = connection.under_way.load(Ordering::SeqCst) == 0 && !is_line;
            let is_late = (begun > 0 && is_over(begun, begun_max))
                || (stuck > 0 && is_over(stuck, FRAME_MAX))
                || (is_unused && begun == 0 && is_over(heard, idle_max));
            if is_late {
                self.close(&connection);
            }
        }
    }

    /// Serves no new requests from here on.
    pub fn begin_stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    /// Ends the connections after `begin_stop`. Requests under way are answered if they end within `grace`; then all connections are cut, and
    /// the workers end. False: workers are still in a service after `cut_wait`.
    pub fn stop(&self, grace: Duration, cut_wait: Duration) -> bool {
        self.all().iter().for_each(|connection| self.close_unused(connection));
        self.wait_until(grace, || self.connections.read().is_empty());
        self.all().iter().for_each(|connection| self.close(connection));
        self.ending.store(true, Ordering::SeqCst);
        self.wait_until(cut_wait, || {
            let workers = self.workers();
            // Each write wakes one.
            for _ in 0..workers {
                let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
            }
            workers == 0
        })
    }

    fn wait_until(&self, wait: Duration, is_done: impl Fn() -> bool) -> bool {
        let until = Instant::now() + wait;
        let mut guard = self.ending_lock.lock();
        while !is_done() {
            if Instant::now() >= until {
                return false;
            }
            let slice = until.min(Instant::now() + Duration::from_millis(20));
            let _ = self.ended.wait_until(&mut guard, slice);
        }
        true
    }
}
