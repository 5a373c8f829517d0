//! Frames over a stream socket, with deadlines. Client and server ends use the same code.
//!
//! Small frames take one system call each way; bulk bytes are received directly into the caller's buffer.
//! net-S1: `send` fails only while some bytes of the frame were not yet handed to the kernel, so the other end has no whole frame.

use std::io::{self, IoSlice, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, SendFlags};
use socket2::Socket;
use types::Buf;
use wire::frame::BODY_MAX;
use wire::{HEADER_LEN, Header, Malformed};

use crate::hello::{HELLO_LEN, Hello};

/// Bytes read ahead in one call: header and body of nearly every frame, and little of the bulk, which would have to be copied.
const READ_AHEAD: usize = 4096;
/// A body's buffer grows in steps of this: a peer that claims 4 MiB and sends none costs no more. Nearly every body fits one step.
pub(crate) const BODY_STEP: usize = 64 * 1024;
/// Longest sleep in one system call, so that an abort between two calls is noticed too.
const SLICE: Duration = Duration::from_secs(1);
/// Kernel buffer size for unix sockets, which do not tune themselves: one frame with the largest bulk.
const UNIX_BUFFER: usize = types::BULK_MAX + 64 * 1024;

/// Why a connection cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Gone {
    #[error("the deadline has passed")]
    Deadline,
    #[error("the connection was closed by the other end")]
    Closed,
    #[error("{0}")]
    Broken(#[from] io::Error),
    #[error("{0}")]
    Malformed(#[from] Malformed),
}

pub(crate) struct Stream {
    socket: Arc<Socket>,
    ahead: Box<[u8; READ_AHEAD]>,
    /// The bytes of `ahead` that were received and not yet used.
    begin: usize,
    end: usize,
    /// Current time-outs of the socket, to save setting them again.
    read_timeout: Duration,
    write_timeout: Duration,
}

impl Stream {
    pub fn new(socket: Arc<Socket>) -> io::Result<Stream> {
        if socket.local_addr()?.is_unix() {
            // The kernel's limits may lower this; a smaller buffer is slower, not wrong.
            let _ = socket.set_send_buffer_size(UNIX_BUFFER);
            let _ = socket.set_recv_buffer_size(UNIX_BUFFER);
        } else {
            // TCP buffer sizes stay unset: setting one ends the kernel's own tuning, which goes higher than we may ask.
            socket.set_tcp_nodelay(true)?;
        }
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(SLICE))?;
        socket.set_write_timeout(Some(SLICE))?;
        let ahead = Box::new([0; READ_AHEAD]);
        Ok(Stream { socket, ahead, begin: 0, end: 0, read_timeout: SLICE, write_timeout: SLICE })
    }

    /// True if nothing waits to be read and the other end has not closed, as it must be on an idle connection.
    pub fn is_quiet(&self) -> bool {
        let mut byte = [0u8; 1];
        let seen = rustix::net::recv(&*self.socket, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        self.begin == self.end && matches!(seen, Err(e) if e == rustix::io::Errno::AGAIN)
    }

    /// Waits until the first bytes of a frame or greeting have come.
    pub fn wait(&mut self, deadline: Instant) -> Result<(), Gone> {
        if self.begin == self.end {
            let n = receive(&self.socket, &mut self.read_timeout, &mut self.ahead[..], deadline)?;
            (self.begin, self.end) = (0, n);
        }
        Ok(())
    }

    /// Reads one frame. `body` and `bulk` are overwritten; after an error their content means nothing.
    pub fn read_frame(
        &mut self,
        body: &mut Vec<u8>,
        bulk: &mut Buf,
        deadline: Instant,
    ) -> Result<Header, Gone> {
        self.read_frame_with(body, bulk, deadline, |_| Some(())).map(|(head, ())| head)
    }

    /// As `read_frame`; calls `room` with the length of the body before more than one step of it is allocated. `None` from it ends the
    /// connection.
    pub fn read_frame_with<T>(
        &mut self,
        body: &mut Vec<u8>,
        bulk: &mut Buf,
        deadline: Instant,
        room: impl FnOnce(usize) -> Option<T>,
    ) -> Result<(Header, T), Gone> {
        let mut raw = [0u8; HEADER_LEN];
        self.read_exact(&mut raw, deadline)?;
        let head = Header::decode(&raw)?;
        let share = room(head.body_len as usize).ok_or(Gone::Deadline)?;
        // Allocated as bytes come: nothing proves yet that the length is true.
        body.clear();
        while body.len() < head.body_len as usize {
            let at = body.len();
            body.resize((head.body_len as usize).min(at + BODY_STEP), 0);
            self.read_exact(&mut body[at..], deadline)?;
        }
        // Checked before the bulk is read: only now is the bulk's length trusted.
        Header::verify(&raw, body)?;
        self.read_exact(bulk.space(head.bulk_len as usize), deadline)?;
        Ok((head, share))
    }

    pub fn read_hello(&mut self, deadline: Instant) -> Result<Hello, Gone> {
        let mut raw = [0u8; HELLO_LEN];
        self.read_exact(&mut raw, deadline)?;
        Ok(Hello::decode(&raw)?)
    }

    /// Writes one frame; `head.bulk_len` must agree with `bulk`. An error means that the frame did not leave whole (net-S1).
    pub fn send(&mut self, head: &Header, body: &[u8], bulk: &[u8], deadline: Instant) -> Result<(), Gone> {
        assert_eq!(head.bulk_len as usize, bulk.len(), "the header tells the bulk's length");
        assert!(body.len() <= BODY_MAX, "net-I3: a frame that leaves is accepted");
        assert!(bulk.len() <= types::BULK_MAX, "net-I3: a frame that leaves is accepted");
        let raw = head.encode(body);
        self.write_all(&mut [IoSlice::new(&raw), IoSlice::new(body), IoSlice::new(bulk)], deadline)
    }

    pub fn send_hello(&mut self, hello: &Hello, deadline: Instant) -> Result<(), Gone> {
        self.write_all(&mut [IoSlice::new(&hello.encode())], deadline)
    }

    fn read_exact(&mut self, mut into: &mut [u8], deadline: Instant) -> Result<(), Gone> {
        while !into.is_empty() {
            assert!(self.begin <= self.end, "no byte that was received is used twice");
            let have = self.end - self.begin;
            if have > 0 {
                let n = have.min(into.len());
                into[..n].copy_from_slice(&self.ahead[self.begin..self.begin + n]);
                self.begin += n;
                into = &mut into[n..];
            } else if into.len() < READ_AHEAD {
                self.wait(deadline)?;
            } else {
                let n = receive(&self.socket, &mut self.read_timeout, into, deadline)?;
                into = &mut into[n..];
            }
        }
        Ok(())
    }

    fn write_all(&mut self, mut parts: &mut [IoSlice<'_>], deadline: Instant) -> Result<(), Gone> {
        // Drops empty parts at the front, so that "nothing left" is an empty slice.
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            let timeout = slice_before(deadline)?;
            if timeout != self.write_timeout {
                self.socket.set_write_timeout(Some(timeout))?;
                self.write_timeout = timeout;
            }
            match self.socket.send_vectored_with_flags(parts, SendFlags::NOSIGNAL.bits() as i32) {
                Ok(0) => return Err(Gone::Closed),
                Ok(n) => IoSlice::advance_slices(&mut parts, n),
                Err(e) => still_waiting(e)?,
            }
        }
        Ok(())
    }
}

/// Receives at least one byte. `set` is the socket's current time-out. Bytes that are there are accepted even after the
/// deadline: an answer that arrived in time may be looked at late.
fn receive(
    mut socket: &Socket,
    set: &mut Duration,
    into: &mut [u8],
    deadline: Instant,
) -> Result<usize, Gone> {
    loop {
        let Ok(timeout) = slice_before(deadline) else { return receive_present(socket, into) };
        if timeout != *set {
            socket.set_read_timeout(Some(timeout))?;
            *set = timeout;
        }
        match socket.read(into) {
            Ok(0) => return Err(Gone::Closed),
            Ok(n) => return Ok(n),
            Err(e) => still_waiting(e)?,
        }
    }
}

fn receive_present(socket: &Socket, into: &mut [u8]) -> Result<usize, Gone> {
    match rustix::net::recv(socket, into, RecvFlags::DONTWAIT) {
        Ok((0, _)) => Err(Gone::Closed),
        Ok((n, _)) => Ok(n),
        Err(e) => still_waiting(e.into()).and(Err(Gone::Deadline)),
    }
}

/// How long the next system call may sleep.
fn slice_before(deadline: Instant) -> Result<Duration, Gone> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(Gone::Deadline),
        // Socket time-outs count in clock ticks; a zero would mean "for ever".
        false => Ok(left.clamp(Duration::from_millis(1), SLICE)),
    }
}

/// A time-out or signal does not end the connection; every other error does.
fn still_waiting(e: io::Error) -> Result<(), Gone> {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    match e.kind() {
        Interrupted | TimedOut | WouldBlock => Ok(()),
        _ => Err(Gone::Broken(e)),
    }
}
