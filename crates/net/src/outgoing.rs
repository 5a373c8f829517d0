//! Frames into a socket, from many threads. Both ends of a connection use it.
//!
//! One thread writes at a time; threads that come meanwhile queue their frames, and the writer writes those too, many in one call.
//! net-O1: bytes of two frames are never mixed: a frame of which a part was written has its rest at the front of the queue.
//! net-O2: the queue is bounded. A server's is bounded by the frames that may be under way on a connection. A client's has at most the rest
//!     of one frame when no thread writes, and `QUEUED_MAX` short frames while one does: requests whose callers gave up do not gather in it.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};
use types::Buf;

use crate::bufs::{Bufs, Lent};
use crate::channel::Channel;
use crate::socket::Gone;

/// Frames written in one call.
const TOGETHER: usize = 32;
/// A frame with fewer bytes than this is copied when another thread writes; a longer one waits for its turn.
const COPY_MAX: usize = 64 * 1024;
/// Frames that a thread which may wait leaves to the one that writes. A server allows as many under way on a connection unless told.
const QUEUED_MAX: usize = 256;

/// The writing half of a connection. `T` is memory that a queued frame holds.
pub(crate) struct Outgoing<T> {
    out: Mutex<Out<T>>,
    turn: Condvar,
}

struct Out<T> {
    queue: VecDeque<Piece<T>>,
    is_writing: bool,
    is_gone: bool,
}

/// A frame, or the rest of one, that waits to be written.
pub(crate) struct Piece<T> {
    /// Header and body.
    pub front: Vec<u8>,
    pub bulk: Lent,
    /// Bytes of it that were written.
    pub at: usize,
    /// Given back once it is written.
    pub _hold: T,
}

/// A frame's bulk bytes.
pub(crate) enum Bulk<'a> {
    /// Copied if the frame is queued.
    Lent(&'a [u8]),
    /// Taken if the frame is queued, and put among the others once it is written.
    Given(&'a mut Buf, &'a Arc<Bufs>),
}

impl Bulk<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Bulk::Lent(bytes) => bytes,
            Bulk::Given(buf, _) => buf,
        }
    }
    fn keep(self) -> Lent {
        match self {
            Bulk::Lent(bytes) => {
                let mut buf = Buf::new();
                buf.set(bytes);
                Lent { buf, home: None }
            }
            Bulk::Given(buf, home) => Lent { buf: std::mem::take(buf), home: Some(home.clone()) },
        }
    }
}

/// How a frame may wait.
#[derive(Clone, Copy)]
pub(crate) struct When {
    /// Before its first byte is written.
    pub may_queue: bool,
    /// In the system call, for the socket's slice.
    pub may_sleep: bool,
    /// For its turn.
    pub deadline: Instant,
}

impl When {
    /// The caller does not wait.
    pub fn now() -> When {
        When { may_queue: true, may_sleep: false, deadline: Instant::now() }
    }
}

/// The outcome of writing a frame. Without an error the connection goes on in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// All of it was handed to the kernel, or the thread that writes now will do so.
    All,
    /// The socket takes no more, and frames are queued: the caller sees to a `flush`.
    Queued,
    /// Nothing of it was written, and nothing will be.
    Nothing,
}

impl<T> Piece<T> {
    fn left(&self) -> usize {
        self.front.len() + self.bulk.buf.len() - self.at
    }

    fn slices(&self) -> [&[u8]; 2] {
        let front = self.at.min(self.front.len());
        [&self.front[front..], &self.bulk.buf[self.at - front..]]
    }
}

impl<T> Default for Outgoing<T> {
    fn default() -> Outgoing<T> {
        let out = Out { queue: VecDeque::new(), is_writing: false, is_gone: false };
        Outgoing { out: Mutex::new(out), turn: Condvar::new() }
    }
}

impl<T> Outgoing<T> {
    /// True if frames wait to be written.
    pub fn has_queued(&self, channel: &Channel) -> bool {
        channel.has_pending() || !self.out.lock().queue.is_empty()
    }

    /// Writes a frame that consists of `front` and `bulk`. `hold` gives the memory for a frame that is queued; if there is none, the connection
    /// ends.
    ///
    /// `blocked` is called when the socket takes no more bytes: true to try again, false to leave. A frame that was left before its first
    /// byte is queued if `when.may_queue`. Otherwise a long frame waits until `when.deadline` for its turn.
    pub fn write(
        &self,
        channel: &Channel,
        front: [&[u8]; 2],
        bulk: Bulk<'_>,
        hold: impl FnOnce() -> Option<T>,
        when: When,
        blocked: &mut dyn FnMut() -> bool,
    ) -> Result<Left, Gone> {
        let len = front.iter().map(|p| p.len()).sum::<usize>() + bulk.bytes().len();
        let mut out = self.out.lock();
        while !when.may_queue && !out.is_gone {
            if out.is_writing && (len > COPY_MAX || out.queue.len() >= QUEUED_MAX) {
                if self.turn.wait_until(&mut out, when.deadline).timed_out() && out.is_writing {
                    return Ok(Left::Nothing);
                }
            } else if !out.is_writing && !out.queue.is_empty() {
                // net-O2: the rest of an earlier frame goes first.
                if self.flush_from(out, channel, when.may_sleep, blocked)? != Left::All {
                    return Ok(Left::Nothing);
                }
                out = self.out.lock();
            } else {
                break;
            }
        }
        if out.is_gone {
            return Err(Gone::Closed);
        }
        let piece = |at, bulk: Bulk<'_>| {
            let hold = hold().ok_or_else(no_memory)?;
            Ok(Piece { front: front.concat(), bulk: bulk.keep(), at, _hold: hold })
        };
        if out.is_writing || !out.queue.is_empty() {
            match piece(0, bulk) {
                Ok(piece) => out.queue.push_back(piece),
                Err(gone) => return Err(self.end(out, gone)),
            }
            return match out.is_writing {
                true => Ok(Left::All),
                false => self.flush_from(out, channel, when.may_sleep, blocked),
            };
        }
        out.is_writing = true;
        drop(out);
        let wrote = write_some(channel, &[front[0], front[1], bulk.bytes()], when.may_sleep, blocked);
        let mut out = self.out.lock();
        out.is_writing = false;
        match wrote {
            Ok(n) if n == len => {}
            Ok(0) if !when.may_queue => {
                drop(out);
                self.turn.notify_one();
                return Ok(Left::Nothing);
            }
            Ok(n) => {
                assert!(n < len, "net-O1: only the rest of a frame is queued");
                match piece(n, bulk) {
                    Ok(piece) => out.queue.push_front(piece),
                    Err(gone) => return Err(self.end(out, gone)),
                }
                drop(out);
                self.turn.notify_one();
                return Ok(Left::Queued);
            }
            Err(gone) => return Err(self.end(out, gone)),
        }
        match out.queue.is_empty() {
            true => {
                drop(out);
                self.turn.notify_one();
                Ok(left(channel, true))
            }
            false => self.flush_from(out, channel, when.may_sleep, blocked),
        }
    }

    /// Writes queued frames while the socket takes them, unless another thread does. `Left::All`: none is left for the caller.
    pub fn flush(
        &self,
        channel: &Channel,
        may_sleep: bool,
        blocked: &mut dyn FnMut() -> bool,
    ) -> Result<Left, Gone> {
        let out = self.out.lock();
        if out.is_gone {
            return Err(Gone::Closed);
        }
        match out.is_writing || (out.queue.is_empty() && !channel.has_pending()) {
            true => Ok(Left::All),
            false => self.flush_from(out, channel, may_sleep, blocked),
        }
    }

    fn flush_from<'a>(
        &'a self,
        mut out: MutexGuard<'a, Out<T>>,
        channel: &Channel,
        may_sleep: bool,
        blocked: &mut dyn FnMut() -> bool,
    ) -> Result<Left, Gone> {
        assert!(!out.is_writing, "net-O1: one thread writes at a time");
        out.is_writing = true;
        let mut is_open = true;
        while is_open && !out.queue.is_empty() {
            let n = out.queue.len().min(TOGETHER);
            let mut some: Vec<_> = out.queue.drain(..n).collect();
            drop(out);
            let slices: Vec<_> = some.iter().flat_map(Piece::slices).collect();
            let wrote = write_some(channel, &slices, may_sleep, blocked);
            out = self.out.lock();
            let mut n = match wrote {
                Ok(n) => n,
                Err(gone) => return Err(self.end(out, gone)),
            };
            let whole = some.iter().take_while(|piece| {
                let is_whole = n >= piece.left();
                n -= if is_whole { piece.left() } else { 0 };
                is_whole
            });
            let whole = whole.count();
            is_open = whole == some.len();
            for (i, mut piece) in some.drain(whole..).enumerate().rev() {
                piece.at += if i == 0 { n } else { 0 };
                out.queue.push_front(piece);
            }
        }
        if out.queue.is_empty() && channel.has_pending() {
            drop(out);
            let wrote = write_some(channel, &[], may_sleep, blocked);
            out = self.out.lock();
            if let Err(gone) = wrote {
                return Err(self.end(out, gone));
            }
        }
        out.is_writing = false;
        let left = left(channel, out.queue.is_empty());
        drop(out);
        self.turn.notify_one();
        Ok(left)
    }

    /// Ends writing for good: what is queued is dropped.
    pub fn close(&self) {
        drop(self.end(self.out.lock(), Gone::Closed));
    }

    fn end(&self, mut out: MutexGuard<'_, Out<T>>, gone: Gone) -> Gone {
        out.is_gone = true;
        out.is_writing = false;
        let queue = std::mem::take(&mut out.queue);
        drop(out);
        // Outside the lock: giving memory back may wake threads.
        drop(queue);
        self.turn.notify_all();
        gone
    }
}

fn no_memory() -> Gone {
    Gone::Broken(io::Error::other("it does not read its answers, and there is no memory to keep them"))
}

/// Writes slices until all bytes are written or `blocked` says no. Returns how many were written.
fn write_some(
    channel: &Channel,
    parts: &[&[u8]],
    may_sleep: bool,
    blocked: &mut dyn FnMut() -> bool,
) -> Result<usize, Gone> {
    let mut slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut left = &mut slices[..];
    IoSlice::advance_slices(&mut left, 0);
    let mut wrote = 0;
    while !left.is_empty() {
        match channel.send(left, may_sleep) {
            Ok(0) => return Err(Gone::Closed),
            Ok(n) => {
                wrote += n;
                IoSlice::advance_slices(&mut left, n);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if !blocked() {
                    return Ok(wrote);
                }
            }
            Err(e) => return Err(Gone::Broken(e)),
        }
    }
    // Bytes that were taken may wait as records.
    while !channel.flush()? && blocked() {}
    Ok(wrote)
}

/// Whether all of it is with the socket.
fn left(channel: &Channel, is_queue_empty: bool) -> Left {
    if is_queue_empty && !channel.has_pending() { Left::All } else { Left::Queued }
}

#[cfg(test)]
mod tests {
    use socket2::Socket;

    use super::*;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    #[derive(Default)]
    struct Semaphore {
        count: Mutex<usize>,
        changed: Condvar,
    }

    impl Semaphore {
        fn add(&self) {
            *self.count.lock() += 1;
            self.changed.notify_all();
        }
        fn take(&self) {
            let mut count = self.count.lock();
            // The other thread may have failed.
            let _ = self.changed.wait_while_for(&mut count, |count| *count == 0, Duration::from_secs(20));
            *count = count.saturating_sub(1);
        }
    }

    fn pair() -> (Channel, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        (Channel::plain(Arc::new(Socket::from(OwnedFd::from(ours)))), theirs)
    }

    #[test]
    fn frames_are_never_mixed_however_the_socket_blocks() {
        let (socket, mut theirs) = pair();
        let outgoing = Outgoing::<()>::default();
        let frames: Vec<Vec<u8>> =
            (0..400u32).map(|n| vec![n as u8; 1 + (n as usize * 977) % 9000]).collect();
        let want: Vec<u8> = frames.concat();
        let mut got = vec![];
        let mut queued = 0;
        for frame in &frames {
            let left = outgoing.write(
                &socket,
                [&frame[..1], &[]],
                Bulk::Lent(&frame[1..]),
                || Some(()),
                When::now(),
                &mut || false,
            );
            queued += (left.expect("open") == Left::Queued) as u32;
            if queued % 7 == 1 {
                let mut some = [0; 5000];
                let n = theirs.read(&mut some).expect("bytes are there");
                got.extend_from_slice(&some[..n]);
            }
        }
        assert!(queued > 10, "{queued}: the socket was full at times");
        while got.len() < want.len() {
            let mut some = [0; 50_000];
            let n = theirs.read(&mut some).expect("bytes are there");
            got.extend_from_slice(&some[..n]);
            outgoing.flush(&socket, false, &mut || false).expect("open");
        }
        assert!(got == want);
    }

    #[test]
    fn frames_of_callers_that_gave_up_do_not_gather() {
        let (socket, mut theirs) = pair();
        let outgoing = Outgoing::<()>::default();
        let (long, is_blocked, may_go) = (vec![1; 8 << 20], Semaphore::default(), Semaphore::default());
        let write = |bytes: &[u8], blocked: &mut dyn FnMut() -> bool| {
            let when = When { may_queue: false, ..When::now() };
            outgoing.write(&socket, [bytes, &[]], Bulk::Lent(&[]), || Some(()), when, blocked).expect("open")
        };
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                write(&long, &mut || {
                    is_blocked.add();
                    may_go.take();
                    false
                })
            });
            is_blocked.take();
            // While a thread writes, it is left a bounded number of short frames, and no long one.
            let short: Vec<_> = (0..2 * QUEUED_MAX).map(|_| write(&[2], &mut || false)).collect();
            let left = [vec![Left::All; QUEUED_MAX], vec![Left::Nothing; QUEUED_MAX]].concat();
            assert_eq!(short, left);
            assert_eq!(write(&long, &mut || false), Left::Nothing);
            may_go.add();
            assert_eq!(writer.join().expect("no panic"), Left::Queued);
        });
        // While none does, the rest of what is queued goes first.
        for _ in 0..3 {
            assert_eq!(write(&[3], &mut || false), Left::Nothing);
        }
        let reading = std::thread::spawn(move || {
            let mut got = vec![];
            theirs.read_to_end(&mut got).expect("read");
            got
        });
        assert_eq!(write(&[4], &mut || true), Left::All);
        drop((outgoing, socket));
        assert!(reading.join().expect("no panic") == [long, vec![2; QUEUED_MAX], vec![4]].concat());
    }

    #[test]
    fn a_frame_that_may_not_wait_is_left_whole_or_not_at_all() {
        let (socket, theirs) = pair();
        let outgoing = Outgoing::<()>::default();
        let bytes = vec![1; 50_000];
        let write = |may_queue| {
            let bulk = Bulk::Lent(&[]);
            outgoing.write(
                &socket,
                [&bytes, &[]],
                bulk,
                || Some(()),
                When { may_queue, ..When::now() },
                &mut || false,
            )
        };
        let mut all = 0;
        let last = loop {
            match write(false).expect("open") {
                Left::All => all += 1,
                other => break other,
            }
        };
        assert!(all > 0);
        assert!(last == Left::Nothing || outgoing.has_queued(&socket), "the rest of a begun frame is kept");
        drop(theirs);
        assert!(outgoing.flush(&socket, false, &mut || false).is_err() || last == Left::Nothing);
    }
}
