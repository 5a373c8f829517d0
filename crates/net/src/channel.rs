//! The two ends of a connection as streams of bytes: a socket, and TLS over it if the process has certificates.
//!
//! rustls makes and reads the records. Nothing here sleeps with the session's lock.
//! net-T1: bytes of a frame are taken only while no record of earlier ones waits for the socket. So what waits is at most one step.
//! net-T2: no byte is given to the reader before the other end's certificate was judged, also in a resumed session.

use std::cell::RefCell;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;
use pki::{Role, Trust};
use rustix::event::PollFlags;
use rustix::net::{RecvFlags, SendFlags};
use rustls::server::Acceptor;
use rustls::{ClientConnection, Connection as Session, ServerConnection};
use socket2::Socket;

use crate::known::{Known, Sender};
use crate::socket::{Gone, receive_with, wait_for};

/// Most bytes that are encrypted before the socket has to take them.
const STEP: usize = 256 * 1024;
/// Records are received so many bytes at a time.
const RECORDS: usize = 64 * 1024;

thread_local! {
    static RECORD_BYTES: RefCell<Box<[u8]>> = RefCell::new(vec![0; RECORDS].into());
}

/// A connected socket.
pub(crate) struct Channel {
    pub socket: Arc<Socket>,
    tls: Option<Box<Tls>>,
}

struct Tls {
    trust: Arc<Trust>,
    state: Mutex<State>,
    /// Records wait for the socket.
    has_pending: AtomicBool,
    peer: OnceLock<Known>,
}

struct State {
    session: Session,
    /// Records that were received while there was no room for their content.
    rest: Vec<u8>,
}

/// The socket without sleep.
struct Nonblocking<'a>(&'a Socket);

impl Write for Nonblocking<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }
    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = (SendFlags::NOSIGNAL | SendFlags::DONTWAIT).bits() as i32;
        self.0.send_vectored_with_flags(parts, flags)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Channel {
    /// Bytes as they are.
    pub fn plain(socket: Arc<Socket>) -> Channel {
        Channel { socket, tls: None }
    }

    /// The accepting end. The handshake goes on as bytes are received.
    pub fn accepted(socket: Arc<Socket>, trust: &Arc<Trust>) -> Result<Channel, Gone> {
        let session = ServerConnection::new(trust.server_config()).map_err(|e| refused(&e))?;
        Ok(Channel::with(socket, trust, session.into()))
    }

    /// The dialling end: carries the handshake out. `name` is a key of the memory of sessions only.
    pub fn dialled(
        socket: Arc<Socket>,
        trust: &Arc<Trust>,
        name: &str,
        deadline: Instant,
    ) -> Result<Channel, Gone> {
        let name = pki::server_name(name);
        let session = ClientConnection::new(trust.client_config(), name).map_err(|e| refused(&e))?;
        Channel::with(socket, trust, session.into()).shake_hands(deadline)?.with_role(Role::Server)
    }

    /// The dialling end of a circuit: carries the handshake with a router out.
    pub fn dialled_circuit(
        socket: Arc<Socket>,
        trust: &Arc<Trust>,
        deadline: Instant,
    ) -> Result<Channel, Gone> {
        let name = pki::circuit_name(&trust.identity().cluster);
        let session = ClientConnection::new(trust.circuit_client_config(), name).map_err(|e| refused(&e))?;
        Channel::with(socket, trust, session.into()).shake_hands(deadline)?.with_role(Role::Router)
    }

    /// The accepting end of a circuit. The dialler's first bytes name its cluster, and so choose among the certificates.
    pub fn accepted_circuit(
        socket: Arc<Socket>,
        trusts: &[Arc<Trust>],
        deadline: Instant,
    ) -> Result<Channel, Gone> {
        let mut acceptor = Acceptor::default();
        let mut bytes = [0u8; 4096];
        let accepted = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Gone::Deadline);
            }
            let Some(n) = receive_with(&socket, &mut bytes, RecvFlags::DONTWAIT)? else {
                wait_for(&socket, PollFlags::IN, left)?;
                continue;
            };
            let mut records = &bytes[..n];
            while !records.is_empty() {
                acceptor.read_tls(&mut records)?;
            }
            match acceptor.accept() {
                Ok(Some(accepted)) => break accepted,
                Ok(None) => {}
                Err((error, _)) => return Err(refused(&error)),
            }
        };
        let named = accepted.client_hello().server_name().map(str::to_owned);
        let is_named = |trust: &&Arc<Trust>| {
            named.as_deref() == Some(&*pki::circuit_name(&trust.identity().cluster).to_str())
        };
        let trust = trusts.iter().find(is_named).or(trusts.first());
        let Some(trust) = trust else { return Err(Gone::Refused("it has no certificate".into())) };
        let session =
            accepted.into_connection(trust.circuit_server_config()).map_err(|(e, _)| refused(&e))?;
        Channel::with(socket, trust, session.into()).shake_hands(deadline)
    }

    /// The socket of a circuit, behind its greetings. `None`: bytes of the circuit were taken for records, or some still wait.
    pub fn into_socket(self) -> Option<Arc<Socket>> {
        let is_clean = match &self.tls {
            None => true,
            Some(tls) => {
                let mut state = tls.state.lock();
                let mut byte = [0u8; 1];
                let is_read = state.rest.is_empty()
                    && matches!(state.session.reader().read(&mut byte), Err(e) if e.kind() == io::ErrorKind::WouldBlock);
                is_read && !state.session.wants_write()
            }
        };
        is_clean.then_some(self.socket)
    }

    fn shake_hands(self, deadline: Instant) -> Result<Channel, Gone> {
        let channel = self;
        let Some(tls) = &channel.tls else { unreachable!("it was made with TLS") };
        while tls.peer.get().is_none() {
            {
                let mut state = tls.state.lock();
                tls.flush(&channel.socket, &mut state)?;
                tls.receive(&channel.socket, &mut state, &mut [])?;
            }
            if tls.peer.get().is_some() {
                break;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Gone::Deadline);
            }
            wait_for(&channel.socket, PollFlags::IN, left)?;
        }
        Ok(channel)
    }

    /// net-D1: refuses a dialled end whose certificate has another role.
    fn with_role(self, role: Role) -> Result<Channel, Gone> {
        match self.known() {
            Some(known) => known.check_serves(role).map(|()| self),
            None => unreachable!("its handshake is over"),
        }
    }

    fn with(socket: Arc<Socket>, trust: &Arc<Trust>, mut session: Session) -> Channel {
        session.set_buffer_limit(Some(STEP));
        let tls = Tls {
            trust: trust.clone(),
            state: Mutex::new(State { session, rest: Vec::new() }),
            has_pending: AtomicBool::new(false),
            peer: OnceLock::new(),
        };
        Channel { socket, tls: Some(Box::new(tls)) }
    }

    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The other end by its certificate. `None`: plain, or the handshake is not over.
    pub fn sender(&self) -> Option<Sender> {
        self.known().map(Known::sender)
    }
    pub fn known(&self) -> Option<&Known> {
        self.tls.as_ref()?.peer.get()
    }

    /// The other end's certificate is not good any more.
    pub fn is_refused(&self) -> Option<pki::Refused> {
        let tls = self.tls.as_ref()?;
        tls.peer.get()?;
        let state = tls.state.lock();
        tls.trust.identity_of(state.session.peer_certificates().unwrap_or_default()).err()
    }

    /// Receives what is there without sleep, until `into` is full or the socket is empty. `None`: nothing is there.
    pub fn receive_now(&self, into: &mut [u8]) -> Result<Option<usize>, Gone> {
        match &self.tls {
            None => receive_with(&self.socket, into, RecvFlags::DONTWAIT),
            Some(tls) => tls.receive(&self.socket, &mut tls.state.lock(), into),
        }
    }

    /// Takes bytes for the socket: some of the parts, in order. It may sleep as long as the socket's time-out if `may_sleep`.
    /// `WouldBlock`: none was taken.
    pub fn send(&self, parts: &[IoSlice<'_>], may_sleep: bool) -> io::Result<usize> {
        let Some(tls) = &self.tls else {
            let sleep = if may_sleep { SendFlags::empty() } else { SendFlags::DONTWAIT };
            return self.socket.send_vectored_with_flags(parts, (SendFlags::NOSIGNAL | sleep).bits() as i32);
        };
        let mut state = tls.state.lock();
        // net-T1.
        if !tls.flush(&self.socket, &mut state).map_err(io::Error::other)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let n = state.session.writer().write_vectored(parts)?;
        tls.flush(&self.socket, &mut state).map_err(io::Error::other)?;
        Ok(n)
    }

    /// Records of bytes that were taken wait for the socket.
    pub fn has_pending(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_pending.load(Ordering::SeqCst))
    }

    /// False: some still wait.
    pub fn flush(&self) -> Result<bool, Gone> {
        match &self.tls {
            None => Ok(true),
            Some(tls) => tls.flush(&self.socket, &mut tls.state.lock()),
        }
    }

    /// True if the other end has not closed. It sends and takes no byte of a frame.
    pub fn is_open(&self) -> bool {
        match &self.tls {
            None => crate::socket::is_open(&self.socket),
            Some(tls) => tls.receive(&self.socket, &mut tls.state.lock(), &mut []).is_ok(),
        }
    }

    pub fn shutdown(&self) {
        // An error means that the socket is not connected any more.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}

impl Tls {
    fn flush(&self, socket: &Socket, state: &mut State) -> Result<bool, Gone> {
        let is_flushed = loop {
            if !state.session.wants_write() {
                break true;
            }
            match state.session.write_tls(&mut Nonblocking(socket)) {
                Ok(0) => return Err(Gone::Closed),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break false,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Gone::Broken(e)),
            }
        };
        self.has_pending.store(!is_flushed, Ordering::SeqCst);
        Ok(is_flushed)
    }

    /// Decrypts into `into` until it is full or the socket is empty. With an empty `into` it receives records once.
    fn receive(&self, socket: &Socket, state: &mut State, into: &mut [u8]) -> Result<Option<usize>, Gone> {
        let mut got = 0;
        loop {
            if self.peer.get().is_some() {
                match read_content(&mut state.session, into, &mut got)? {
                    Content::Full => return Ok(Some(got)),
                    Content::Closed if got == 0 => return Err(Gone::Closed),
                    Content::Closed => return Ok(Some(got)),
                    Content::More => {}
                }
            }
            // There is no room for their content now, and taking them again would find none either.
            if into.is_empty() && self.peer.get().is_some() && !state.rest.is_empty() {
                return Ok(None);
            }
            let rest = std::mem::take(&mut state.rest);
            if !rest.is_empty() {
                self.take(socket, state, &rest)?;
                continue;
            }
            let received = RECORD_BYTES.with_borrow_mut(|bytes| {
                match receive_with(socket, bytes, RecvFlags::DONTWAIT)? {
                    Some(n) => self.take(socket, state, &bytes[..n]).map(|()| true),
                    None => Ok(false),
                }
            });
            match received {
                Ok(true) => {}
                Ok(false) => return Ok((got > 0).then_some(got)),
                // Bytes from before the end are given first.
                Err(Gone::Closed) if got > 0 => return Ok(Some(got)),
                Err(gone) => return Err(gone),
            }
        }
    }

    /// Takes records. Those for whose content there is no room are kept.
    fn take(&self, socket: &Socket, state: &mut State, mut records: &[u8]) -> Result<(), Gone> {
        while !records.is_empty() {
            match state.session.read_tls(&mut records) {
                Ok(0) => break,
                Ok(_) => {}
                // The content before it has to be read first.
                Err(_) => break,
            }
            if let Err(error) = state.session.process_new_packets() {
                // The alert tells the other end why.
                let _ = self.flush(socket, state);
                return Err(refused(&error));
            }
            if state.session.wants_write() {
                self.flush(socket, state)?;
            }
            if self.peer.get().is_none() && !state.session.is_handshaking() {
                // net-T2: rustls looks at the certificate of a resumed session no more.
                let chain = state.session.peer_certificates().unwrap_or_default();
                let identity = self.trust.identity_of(chain).map_err(|why| Gone::Refused(told(why)))?;
                let _ = self.peer.set(Known::new(identity));
            }
        }
        state.rest = records.to_vec();
        Ok(())
    }
}

enum Content {
    Full,
    More,
    Closed,
}

fn read_content(session: &mut Session, into: &mut [u8], got: &mut usize) -> Result<Content, Gone> {
    while *got < into.len() {
        match session.reader().read(&mut into[*got..]) {
            Ok(0) => return Ok(Content::Closed),
            Ok(n) => *got += n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Content::More),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(Content::Closed),
            Err(e) => return Err(Gone::Broken(e)),
        }
    }
    match into.is_empty() {
        true => Ok(Content::More),
        false => Ok(Content::Full),
    }
}

fn told(why: pki::Refused) -> String {
    format!("its certificate is refused: {why}")
}

fn refused(error: &rustls::Error) -> Gone {
    if let Some(why) = pki::Refused::of(error) {
        return Gone::Refused(told(why));
    }
    if pki::Refused::by_peer(error) == Some(pki::Refused::Revoked) {
        return Gone::Refused(crate::REVOKED_HERE.into());
    }
    if let Some(why) = pki::Refused::by_peer(error) {
        return Gone::Refused(format!("it refuses this node's certificate: {why}"));
    }
    Gone::Refused(format!("TLS: {error}{}", crate::mismatch::hint(error)))
}

#[cfg(test)]
mod hammered;
