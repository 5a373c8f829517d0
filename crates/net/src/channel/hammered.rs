//! Handshakes from strangers at the accepting end of TLS: none gives it content, makes it panic or take much memory.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::SystemTime;

use hammer::{Dice, Hammer, peak_of};
use pki::{Authority, Role};
use rustls::ClientConnection;

use super::*;

/// A connection of rustls with its first keys. Its reader takes handshakes of 64 KiB, and it encrypts `STEP` bytes at once.
const MEMORY_MAX: usize = 768 * 1024;
/// The content behind a handshake, as long as a greeting.
const CONTENT: &[u8] = &[7; crate::hello::HELLO_LEN];

struct Site {
    dir: PathBuf,
    server: Arc<Trust>,
    client: Arc<Trust>,
}

impl Site {
    fn new(name: &str) -> Site {
        let dir = std::env::temp_dir().join(format!("stria-net-{name}-{}", std::process::id()));
        let (node, now) = ("n".parse().expect("a name"), SystemTime::now());
        let mut authority =
            Authority::init(&dir, &"c".parse().expect("a name"), &node, now).expect("a new directory");
        authority.issue(Role::Client, &node, 30, now).expect("issued");
        let trust = |role| Trust::load(&authority.node_dir(role, &node)).expect("a good folder");
        Site { server: trust(Role::Server), client: trust(Role::Client), dir }
    }
    fn dial(&self) -> ClientConnection {
        ClientConnection::new(self.client.client_config(), pki::server_name("n")).expect("a session")
    }
    /// The accepting end, and the socket of a stranger.
    fn accept(&self) -> (Channel, Socket) {
        let (here, there) = UnixStream::pair().expect("a pair");
        let here = Arc::new(OwnedFd::from(here).into());
        (Channel::accepted(here, &self.server).expect("a session"), OwnedFd::from(there).into())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// All records that the session has to send.
fn records(session: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut bytes).expect("memory takes all");
    }
    bytes
}

#[test]
fn a_mutated_first_flight_is_refused_or_waits_for_more() {
    let site = Site::new("first");
    let seed = records(&mut site.dial());
    let strike = |bytes: &[u8]| {
        let (channel, mut there) = site.accept();
        there.write_all(bytes).expect("it fits the socket");
        let mut into = [0; 64];
        match channel.receive_now(&mut into) {
            Ok(Some(n)) => panic!("{n} bytes of content without a certificate"),
            Ok(None) => assert!(channel.known().is_none()),
            Err(_) => return None,
        }
        Some(())
    };
    // The thread's own buffer is made once.
    strike(&seed);
    let hammer = Hammer::new("first flight").seeds([seed]).random_len_max(1200).bound(16, MEMORY_MAX);
    let outcome = hammer.run(strike, |bytes, ()| bytes.len());
    assert!(outcome.accepted > 0 && outcome.accepted < outcome.inputs, "{outcome:?}");
}

/// Each input is a handshake of its own, which costs signatures, so there are fewer.
#[test]
fn a_mutated_second_flight_gives_no_content_but_the_senders() {
    let site = Site::new("second");
    let (mut dice, mut refused, mut whole) = (Dice::new(2), 0u64, 0u64);
    let inputs = hammer::inputs() / 20;
    for n in 0..inputs {
        let (channel, mut there) = site.accept();
        let mut session = site.dial();
        there.write_all(&records(&mut session)).expect("it fits the socket");
        let mut into = vec![0; 2 * CONTENT.len()];
        assert!(matches!(channel.receive_now(&mut into), Ok(None)), "the handshake is under way");
        while session.is_handshaking() {
            session.read_tls(&mut there).expect("the server's flight");
            session.process_new_packets().expect("it is good");
        }
        session.writer().write_all(CONTENT).expect("memory takes all");
        let good = records(&mut session);
        let mut bytes = good.clone();
        if n > 0 {
            (0..=dice.below(3)).for_each(|_| dice.mutate(&mut bytes, std::slice::from_ref(&good)));
        }
        there.write_all(&bytes).expect("it fits the socket");
        let (received, peak) = peak_of(|| channel.receive_now(&mut into));
        assert!(peak < MEMORY_MAX, "{peak} bytes");
        match received {
            Ok(Some(got)) => {
                whole += 1;
                assert!(CONTENT.starts_with(&into[..got]), "content that was not sent");
            }
            Ok(None) => {}
            Err(_) => refused += 1,
        }
    }
    assert!(whole > 0 && refused > inputs / 2, "{whole} whole, {refused} refused of {inputs}");
}
