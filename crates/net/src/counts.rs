//! Counters per peer, and the trace of frames. Both are for people; no rule depends on them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use wire::Header;
use wire::fabric::{FRAMES_MAX, NetTrace, NetTraceReply, PeerStat, TRACE_SEC, Traced};

/// Frames that a trace keeps until they are read.
const KEPT: usize = 16_384;

/// Counters of a connection, or of all connections to one peer that have ended.
#[derive(Default)]
pub(crate) struct Counts {
    frames_out: AtomicU64,
    frames_in: AtomicU64,
    bytes_out: AtomicU64,
    bytes_in: AtomicU64,
    pub waits: AtomicU64,
    pub connects: AtomicU64,
    pub failures: AtomicU64,
}

pub(crate) fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

impl Counts {
    fn all(&self) -> [&AtomicU64; 7] {
        let Counts { frames_out, frames_in, bytes_out, bytes_in, waits, connects, failures } = self;
        [frames_out, frames_in, bytes_out, bytes_in, waits, connects, failures]
    }
    fn take_over(&self, other: &Counts) {
        for (own, other) in self.all().into_iter().zip(other.all()) {
            own.fetch_add(other.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// The way of a frame, from this process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Out,
    In,
}

/// The counters of one peer.
pub(crate) struct PeerCounts {
    pub peer: Arc<str>,
    /// Of the connections that have ended, and what is counted for no connection.
    pub counts: Counts,
    trace: Arc<Trace>,
    open: Mutex<Open>,
}

/// The meters of open connections, and of some that have ended.
#[derive(Default)]
struct Open {
    meters: Vec<Weak<Meter>>,
    /// Those of connections that have ended are dropped when there are so many, so that each costs little.
    prune_at: usize,
}

/// Counts and traces the frames of one connection. Each has its own counters, so that threads do not write one another's cache lines.
pub(crate) struct Meter {
    pub counts: Counts,
    of: Arc<PeerCounts>,
}

impl PeerCounts {
    pub fn new(peer: String, trace: Arc<Trace>) -> Arc<PeerCounts> {
        Arc::new(PeerCounts { peer: peer.into(), counts: Counts::default(), trace, open: Mutex::default() })
    }

    /// The meter of a new connection.
    pub fn meter(self: &Arc<PeerCounts>) -> Arc<Meter> {
        let meter = Arc::new(Meter { counts: Counts::default(), of: self.clone() });
        let mut open = self.open.lock();
        if open.meters.len() >= open.prune_at {
            open.meters.retain(|meter| meter.strong_count() > 0);
            open.prune_at = 2 * open.meters.len().max(16);
        }
        open.meters.push(Arc::downgrade(&meter));
        drop(open);
        meter
    }

    pub fn stat(&self, connections: usize, under_way: usize) -> PeerStat {
        let sum = Counts::default();
        // Under the lock no meter goes from the list into the counts.
        let open = self.open.lock();
        sum.take_over(&self.counts);
        let meters: Vec<_> = open.meters.iter().filter_map(Weak::upgrade).collect();
        meters.iter().for_each(|meter| sum.take_over(&meter.counts));
        drop(open);
        // Each takes the lock if it is the last of its meter.
        drop(meters);
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        PeerStat {
            peer: self.peer.to_string(),
            connections: connections as u32,
            under_way: under_way as u32,
            frames_out: get(&sum.frames_out),
            frames_in: get(&sum.frames_in),
            bytes_out: get(&sum.bytes_out),
            bytes_in: get(&sum.bytes_in),
            waits: get(&sum.waits),
            connects: get(&sum.connects),
            failures: get(&sum.failures),
        }
    }
}

impl Meter {
    pub fn of(&self) -> &Arc<PeerCounts> {
        &self.of
    }

    pub fn frame(&self, way: Way, head: &Header) {
        let bytes = (wire::HEADER_LEN + head.body_len as usize + head.bulk_len as usize) as u64;
        let (frames, all) = match way {
            Way::Out => (&self.counts.frames_out, &self.counts.bytes_out),
            Way::In => (&self.counts.frames_in, &self.counts.bytes_in),
        };
        add(frames);
        all.fetch_add(bytes, Ordering::Relaxed);
        if self.of.trace.is_on() {
            self.of.trace.note(&self.of.peer, way, head);
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let _open = self.of.open.lock();
        self.of.counts.take_over(&self.counts);
    }
}

/// The last frames of a process, while they are read.
pub(crate) struct Trace {
    begun: Instant,
    /// Milliseconds after `begun` until which it is on; 0: it is off.
    until_ms: AtomicU64,
    frames: Mutex<Frames>,
}

#[derive(Default)]
struct Frames {
    last: u64,
    kept: VecDeque<(Arc<str>, Traced)>,
}

impl Default for Trace {
    fn default() -> Trace {
        Trace { begun: Instant::now(), until_ms: AtomicU64::new(0), frames: Mutex::default() }
    }
}

impl Trace {
    fn is_on(&self) -> bool {
        self.until_ms.load(Ordering::Relaxed) != 0
    }

    fn note(&self, peer: &Arc<str>, way: Way, head: &Header) {
        let mut frames = self.frames.lock();
        if self.begun.elapsed().as_millis() as u64 > self.until_ms.load(Ordering::Relaxed) {
            // The reader has gone.
            self.until_ms.store(0, Ordering::Relaxed);
            frames.kept = VecDeque::new();
            return;
        }
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        frames.last += 1;
        let traced = Traced {
            number: frames.last,
            at_us: at.as_micros() as u64,
            peer: String::new(),
            is_out: way == Way::Out,
            call: head.call,
            flags: head.flags,
            target: head.target.0,
            session: head.session.0,
            request: head.request,
            body_bytes: head.body_len,
            bulk_bytes: head.bulk_len,
        };
        if frames.kept.len() >= KEPT {
            frames.kept.pop_front();
        }
        frames.kept.push_back((peer.clone(), traced));
    }

    /// Frames after `request.after`, and the trace goes on.
    pub fn read(&self, request: &NetTrace) -> NetTraceReply {
        let until = self.begun.elapsed() + Duration::from_secs(TRACE_SEC);
        self.until_ms.store(until.as_millis() as u64, Ordering::Relaxed);
        let frames = self.frames.lock();
        let max = (request.max as usize).min(FRAMES_MAX);
        // Numbers are consecutive.
        let first = frames.kept.front().map_or(frames.last + 1, |(_, f)| f.number);
        let from =
            request.after.saturating_add(1).saturating_sub(first).min(frames.kept.len() as u64) as usize;
        let found: Vec<_> = frames.kept.iter().skip(from).take(max).cloned().collect();
        // A reader that has none, or is of an earlier trace, has lost none.
        let is_known = request.after > 0 && request.after <= frames.last;
        let lost = if is_known { first.saturating_sub(request.after + 1) } else { 0 };
        drop(frames);
        let with_peer = |(peer, traced): (Arc<str>, Traced)| Traced { peer: peer.to_string(), ..traced };
        NetTraceReply { frames: found.into_iter().map(with_peer).collect(), lost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_off_until_it_is_read_and_tells_what_it_lost() {
        let trace = Arc::new(Trace::default());
        let peer = PeerCounts::new("host".into(), trace.clone());
        let meter = peer.meter();
        let head = |request| Header { request, call: 7, ..Header::default() };
        meter.frame(Way::Out, &head(1));
        let read = |after, max| trace.read(&NetTrace { after, max });
        assert_eq!(read(0, 10), NetTraceReply { frames: vec![], lost: 0 });
        (0..KEPT as u64 + 5).for_each(|n| meter.frame(Way::In, &head(n)));
        let first = read(1, 3);
        assert_eq!((first.lost, first.frames.len()), (4, 3));
        assert_eq!((first.frames[0].number, first.frames[0].request, first.frames[0].is_out), (6, 5, false));
        assert_eq!(read(first.frames[2].number, 1).lost, 0);
        let stat = peer.stat(1, 2);
        assert_eq!((stat.frames_out, stat.frames_in), (1, KEPT as u64 + 5));
        assert_eq!(stat.bytes_out, wire::HEADER_LEN as u64);
        drop(meter);
        assert_eq!(peer.stat(1, 2), stat, "counters outlive their connection");
    }
}
