//! Tests of certificates in use: refusals at the start, and what follows new lists.

use std::sync::atomic::{AtomicU32, Ordering};

use pki::{Authority, Reason, Role, Serial};

use super::*;

#[test]
fn a_server_on_a_network_needs_a_certificate_or_an_explicit_off() {
    // listen, setting, refused?
    let table = [
        ("127.0.0.1:7010", None, false),
        ("[::1]:7010", None, false),
        ("localhost:7010", None, false),
        ("unix:/run/x.sock", None, false),
        ("0.0.0.0:7010", None, true),
        ("[::]:7010", None, true),
        ("10.0.0.7:7010", None, true),
        ("10.0.0.7:7010@tcp1", None, true),
        ("10.0.0.7:7010", Some("off"), false),
        ("10.0.0.7:7010", Some("/etc/stria/tls"), true),
    ];
    for (listen, setting, is_refused) in table {
        let said = refuse_open(&["127.0.0.1:1".to_owned(), listen.to_owned()], setting, None);
        assert_eq!(said.is_err(), is_refused, "{listen} {setting:?}");
        assert!(said.err().is_none_or(|e| e.to_string().contains("tls = \"off\"")));
    }
}

/// A CA directory, and a server's folder, which go with their owner.
struct Office {
    authority: Authority,
    dir: PathBuf,
}

impl Office {
    fn new() -> Office {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("stria-tls-{}-{number}", std::process::id()));
        let ca = dir.join("ca");
        std::fs::create_dir_all(&ca).unwrap();
        let (cluster, host) = ("alpha".parse().unwrap(), "one".parse().unwrap());
        let authority = Authority::init(&ca, &cluster, &host, std::time::SystemTime::now()).unwrap();
        let office = Office { authority, dir };
        std::fs::create_dir_all(office.host()).unwrap();
        let node = office.authority.node_dir(Role::Server, &host);
        for file in std::fs::read_dir(node).unwrap().map(Result::unwrap) {
            std::fs::copy(file.path(), office.host().join(file.file_name())).unwrap();
        }
        office
    }
    fn host(&self) -> PathBuf {
        self.dir.join("host")
    }
    /// A revoked certificate, and the lists with it.
    fn revoke_one(&mut self) -> (Serial, Vec<u8>) {
        let now = std::time::SystemTime::now();
        let record = self.authority.issue(Role::Server, &"two".parse().unwrap(), 30, now).unwrap();
        self.authority.revoke(&record.serial.to_string(), None, Reason::KeyCompromise, now).unwrap();
        (record.serial, self.authority.lists().unwrap())
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A keeper, and the count of its actions.
fn keeper(trust: &Arc<Trust>, begun: Instant) -> (Keeper, Arc<AtomicU32>) {
    let count = Arc::new(AtomicU32::new(0));
    let acted = count.clone();
    let recheck = move || {
        acted.fetch_add(1, Ordering::SeqCst);
    };
    let connections = Connections { retire: Box::new(|| ()), recheck: Box::new(recheck) };
    (Keeper::new(trust.clone(), Acts::default(), connections, begun).unwrap(), count)
}

#[test]
fn lists_that_count_already_still_close_connections_and_are_kept() {
    let mut office = Office::new();
    let trust = Trust::load(&office.host()).unwrap();
    let begun = Instant::now();
    let (mut keeper, count) = keeper(&trust, begun);
    let (serial, lists) = office.revoke_one();
    // The management service does this before it stores the map.
    trust.set_crl(&lists).unwrap();
    keeper.hear(Some(Word::Lists(lists.clone())), begun);
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert!(Trust::load(&office.host()).unwrap().is_revoked(serial), "kept for the next start");
    keeper.hear(Some(Word::Lists(lists.clone())), begun);
    assert_eq!(count.load(Ordering::SeqCst), 1, "the same map again");
    // A map that could not be stored has the lists of before.
    let (_, next) = office.revoke_one();
    trust.set_crl(&next).unwrap();
    keeper.hear(Some(Word::Lists(lists)), begun);
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

#[test]
fn a_list_of_a_ca_that_the_process_learns_of_later_counts_then() {
    let mut office = Office::new();
    let trust = Trust::load(&office.host()).unwrap();
    let begun = Instant::now();
    let (mut keeper, count) = keeper(&trust, begun);
    office.authority.rotate(std::time::SystemTime::now()).unwrap();
    let bundle = [pki::CRL_PEM, pki::CA_PEM].map(|file| {
        let text = std::fs::read(office.authority.dir().join(file)).unwrap();
        (office.host().join(file), text)
    });
    let (serial, lists) = office.revoke_one();
    keeper.hear(Some(Word::Lists(lists)), begun);
    assert!(!trust.is_revoked(serial), "its CA is not known here");
    for (file, text) in bundle {
        std::fs::write(file, text).unwrap();
    }
    let before = count.load(Ordering::SeqCst);
    keeper.hear(None, begun + LOOK_EACH);
    assert!(trust.is_revoked(serial));
    assert_eq!(count.load(Ordering::SeqCst), before + 1);
}

#[test]
fn lists_that_were_not_taken_are_tried_again() {
    let mut office = Office::new();
    let trust = Trust::load(&office.host()).unwrap();
    let begun = Instant::now();
    let (mut keeper, count) = keeper(&trust, begun);
    keeper.hear(Some(Word::Lists(b"hello".to_vec())), begun);
    assert!(!keeper.is_taken);
    let (serial, lists) = office.revoke_one();
    keeper.hear(Some(Word::Lists(lists)), begun);
    assert!(keeper.is_taken && trust.is_revoked(serial));
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[test]
fn the_second_round_comes_by_time_and_not_with_the_next_message() {
    let mut office = Office::new();
    let trust = Trust::load(&office.host()).unwrap();
    let begun = Instant::now();
    let (mut keeper, count) = keeper(&trust, begun);
    let at = |ms| begun + Duration::from_millis(ms);
    let (_, lists) = office.revoke_one();
    keeper.hear(Some(Word::Lists(lists.clone())), at(100));
    // The same lists again, as from another map.
    keeper.hear(Some(Word::Lists(lists.clone())), at(101));
    keeper.hear(None, at(1000));
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert_eq!(keeper.wait(at(1000)), Duration::from_millis(100), "it wakes up for the second round");
    // A message does not put it off.
    keeper.hear(Some(Word::Lists(lists)), at(1100));
    assert_eq!(count.load(Ordering::SeqCst), 2);
    keeper.hear(None, at(2200));
    assert_eq!(count.load(Ordering::SeqCst), 2, "once");
}

#[test]
fn connections_are_closed_although_a_session_does_not_end() {
    let mut office = Office::new();
    let trust = Trust::load(&office.host()).unwrap();
    let (closes, closed) = mpsc::channel();
    let watch = Watch::start(trust, Fabric::new(None), move || closes.send(()).unwrap()).unwrap();
    // The session ends when the test lets it.
    let (lets, is_let) = mpsc::channel::<()>();
    watch.feed().also(move |_| {
        let _ = is_let.recv();
    });
    let (_, lists) = office.revoke_one();
    watch.feed().lists(&lists);
    closed.recv_timeout(Duration::from_secs(60)).expect("closed while the session ends");
    drop(lets);
}
