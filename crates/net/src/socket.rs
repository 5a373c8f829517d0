//! System calls on a connection's socket, with time limits.

use std::io::{self, IoSlice};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, sockopt};
use socket2::Socket;
use wire::Malformed;

use crate::channel::Channel;
use crate::hello::{HELLO_LEN, Hello};
use crate::mismatch;

/// Longest sleep in one receiving call, so that silence and an abort are noticed.
pub(crate) const SLICE: Duration = Duration::from_millis(500);
/// Kernel buffer size for unix sockets, which do not tune themselves: one frame with the largest bulk.
const UNIX_BUFFER: usize = types::BULK_MAX + 64 * 1024;
/// A connection on which nothing was heard for this long is probed by the kernel, so that the peer of a host that vanished is closed.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const KEEP_ALIVE_EACH: Duration = Duration::from_secs(10);
const KEEP_ALIVE_PROBES: u32 = 3;

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
    /// TLS failed, or a certificate is not good.
    #[error("{0}")]
    Refused(String),
}

/// Sets the options of a connected socket. A call that may sleep returns after `slice`.
pub(crate) fn tune(socket: &Socket, slice: Duration) -> io::Result<()> {
    if socket.local_addr()?.is_unix() {
        // The kernel's limits may lower this; a smaller buffer is slower, not wrong.
        let _ = socket.set_send_buffer_size(UNIX_BUFFER);
        let _ = socket.set_recv_buffer_size(UNIX_BUFFER);
    } else {
        // TCP buffer sizes stay unset: setting one ends the kernel's own tuning, which goes higher than we may ask.
        socket.set_tcp_nodelay(true)?;
        sockopt::set_socket_keepalive(socket, true)?;
        sockopt::set_tcp_keepidle(socket, KEEP_ALIVE)?;
        sockopt::set_tcp_keepintvl(socket, KEEP_ALIVE_EACH)?;
        sockopt::set_tcp_keepcnt(socket, KEEP_ALIVE_PROBES)?;
    }
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(slice))?;
    socket.set_write_timeout(Some(slice))?;
    Ok(())
}

/// Receives bytes until `into` is full, as the other end sends without a pause, but returns what is there after the socket's slice. `None`:
/// nothing came.
pub(crate) fn receive_all(channel: &Channel, into: &mut [u8]) -> Result<Option<usize>, Gone> {
    if !channel.is_tls() {
        return receive_with(&channel.socket, into, RecvFlags::WAITALL);
    }
    let slice = channel.socket.read_timeout()?.unwrap_or(SLICE);
    let mut got = 0;
    loop {
        match channel.receive_now(&mut into[got..]) {
            Ok(Some(n)) => got += n,
            Ok(None) => {}
            Err(Gone::Closed) if got > 0 => return Ok(Some(got)),
            Err(gone) => return Err(gone),
        }
        if got == into.len() || !wait_for(&channel.socket, PollFlags::IN, slice)? {
            return Ok((got > 0).then_some(got));
        }
    }
}

/// Receives at least one byte, or `None` after `wait`. It sleeps `SLICE` at most.
pub(crate) fn receive(channel: &Channel, into: &mut [u8], wait: Duration) -> Result<Option<usize>, Gone> {
    if channel.is_tls() {
        let now = channel.receive_now(into)?;
        if now.is_some() || wait.is_zero() {
            return Ok(now);
        }
    } else if wait >= SLICE {
        return receive_with(&channel.socket, into, RecvFlags::empty());
    }
    match wait.is_zero() || wait_for(&channel.socket, PollFlags::IN, wait.min(SLICE))? {
        true => channel.receive_now(into),
        false => Ok(None),
    }
}

pub(crate) fn receive_with(
    socket: &Socket,
    into: &mut [u8],
    flags: RecvFlags,
) -> Result<Option<usize>, Gone> {
    match rustix::net::recv(socket, into, flags) {
        Ok((0, _)) => Err(Gone::Closed),
        Ok((n, _)) => Ok(Some(n)),
        Err(e) => match io::Error::from(e) {
            e if is_passing(&e) => Ok(None),
            e => Err(Gone::Broken(e)),
        },
    }
}

/// A time-out or a signal does not end a connection.
fn is_passing(e: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    // A TCP connection that timed out gives `ETIMEDOUT`; a socket's time-out gives `EAGAIN`.
    matches!(e.kind(), Interrupted | WouldBlock) || (e.kind() == TimedOut && e.raw_os_error().is_none())
}

/// Waits until the socket can be read or written. False: `wait` is over.
pub(crate) fn wait_for(socket: &Socket, what: PollFlags, wait: Duration) -> io::Result<bool> {
    let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos() as i64 };
    match poll(&mut [PollFd::new(socket, what)], Some(&wait)) {
        Ok(n) => Ok(n > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// True if the other end has not closed.
pub(crate) fn is_open(socket: &Socket) -> bool {
    let mut byte = [0u8; 1];
    match rustix::net::recv(socket, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        // Bytes are an answer whose request was given up.
        Ok((n, _)) => n > 0,
        Err(e) => e == rustix::io::Errno::AGAIN,
    }
}

/// Sends a greeting. It fits any socket's buffer.
pub(crate) fn send_hello(channel: &Channel, hello: &Hello) -> Result<(), Gone> {
    let bytes = hello.encode();
    match channel.send(&[IoSlice::new(&bytes)], false) {
        Ok(n) if n == bytes.len() && !channel.has_pending() => Ok(()),
        Ok(_) => Err(Gone::Closed),
        Err(e) => Err(Gone::Broken(e)),
    }
}

/// Waits for the other end's greeting. One of another version may be shorter, and is told by its first bytes.
pub(crate) fn read_hello(channel: &Channel, deadline: Instant) -> Result<Hello, Gone> {
    let (mut raw, mut have) = ([0u8; HELLO_LEN], 0);
    while have < HELLO_LEN {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Gone::Deadline);
        }
        have += receive(channel, &mut raw[have..], left)?.unwrap_or(0);
        mismatch::check_answer(channel, &raw[..have])?;
        Hello::check_begin(&raw[..have])?;
    }
    Ok(Hello::decode(&raw)?)
}
