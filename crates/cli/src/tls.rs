//! The certificates of a process: where they lie, and what follows when they change.

use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use net::Fabric;
use net::nid::{Address, Nid};
use parking_lot::Mutex;
use pki::Trust;
use wire::map::ClusterMap;

use crate::exit::Failure;

/// For commands, and for processes whose configuration says nothing: a folder, or `off`.
pub const VARIABLE: &str = "STRIA_TLS";
/// The value that chooses connections without TLS.
pub const OFF: &str = "off";
/// How often changed files are looked for.
const LOOK_EACH: Duration = Duration::from_secs(1);

/// The part of a process in its cluster.
#[derive(Clone, Copy)]
pub enum Part {
    Server,
    Mount,
    Command,
}

impl Part {
    /// The folders where its certificate lies by default. The first that is there counts.
    fn folders(self) -> &'static [&'static str] {
        match self {
            Part::Server => &["/etc/stria/tls"],
            Part::Mount => &["/etc/stria/tls-client", "/etc/stria/tls"],
            Part::Command => &["/etc/stria/admin", "/etc/stria/tls-client", "/etc/stria/tls"],
        }
    }
}

/// The certificates of this process. `setting`: the key `tls` of its configuration. `None`: its connections have no TLS.
pub fn trust(setting: Option<&str>, part: Part) -> anyhow::Result<Option<Arc<Trust>>> {
    let variable = std::env::var(VARIABLE).ok();
    let dir = match setting.or(variable.as_deref()) {
        Some(OFF) => return Ok(None),
        Some(dir) => PathBuf::from(dir),
        None => match part.folders().iter().map(Path::new).find(|dir| dir.is_dir()) {
            Some(dir) => dir.to_path_buf(),
            None => return Ok(None),
        },
    };
    let trust = Trust::load(&dir)
        .map_err(|fault| Failure::unusable(fault.path.display(), &fault.why, fault.next()))?;
    Ok(Some(trust))
}

/// Refuses a server that other hosts reach and that has no certificate, unless its configuration says `tls = "off"`. The environment does not
/// count: a variable that was set for commands must not open a server.
pub fn refuse_open(
    listen: &[String],
    setting: Option<&str>,
    trust: Option<&Arc<Trust>>,
) -> Result<(), Failure> {
    let is_chosen = trust.is_some() || setting == Some(OFF);
    let Some(listen) = listen.iter().find(|listen| !is_chosen && reaches_others(listen)) else {
        return Ok(());
    };
    let why = "other hosts reach this address, and there is no certificate, so each of them would have all rights (SECURITY.md)";
    let next = "give this host a certificate (`stria cluster add-node`, then `tls`), or, on a network that you trust, set `tls = \"off\"`";
    Err(Failure::unusable(format!("listen on {listen}"), why, next))
}

/// An address that cannot be resolved is refused later, when it is listened on.
fn reaches_others(listen: &str) -> bool {
    let Ok(Nid { address: Address::Tcp(address), .. }) = Nid::parse(listen) else { return false };
    address.to_socket_addrs().is_ok_and(|mut all| all.any(|a| !a.ip().is_loopback()))
}

/// An action after a change of certificates or lists. `Trust` judges by the new ones already.
type Act = Box<dyn Fn(&Trust) + Send>;

/// A message to the thread that looks after certificates.
enum Word {
    /// The revocation lists of a cluster map.
    Lists(Vec<u8>),
    /// An action is new.
    Look,
    End,
}

/// Looks after this process's certificates until it is dropped: changed files, and revocation lists of the cluster map.
pub struct Watch {
    feed: Feed,
    thread: Option<JoinHandle<()>>,
}

/// The way of cluster maps and actions to a `Watch`.
#[derive(Clone)]
pub struct Feed {
    words: Sender<Word>,
    acts: Arc<Mutex<Vec<Act>>>,
}

impl Feed {
    /// Takes the lists of a map. They count soon after, and at the next start.
    pub fn take(&self, map: &ClusterMap) {
        self.lists(&map.crls);
    }

    pub fn lists(&self, crls: &[u8]) {
        if !crls.is_empty() {
            // Without the thread the process is ending.
            let _ = self.words.send(Word::Lists(crls.to_vec()));
        }
    }

    /// Adds an action for each change. It is carried out soon for changes of before.
    pub fn also(&self, act: impl Fn(&Trust) + Send + 'static) {
        self.acts.lock().push(Box::new(act));
        let _ = self.words.send(Word::Look);
    }
}

impl Watch {
    /// `fabric` dials anew with a new certificate, and closes connections whose other end is not good any more. `recheck` does so for
    /// connections that were accepted.
    pub fn start(
        trust: Arc<Trust>,
        fabric: Arc<Fabric>,
        recheck: impl Fn() + Send + 'static,
    ) -> anyhow::Result<Watch> {
        let (words, heard) = mpsc::channel();
        let acts: Arc<Mutex<Vec<Act>>> = Arc::default();
        let to_do = acts.clone();
        let act = move |trust: &Trust| {
            // An action may send requests, which then have the new certificate.
            fabric.retire_former();
            // Sessions before connections: a client with an open connection is told why its session ends.
            to_do.lock().iter().for_each(|act| act(trust));
            recheck();
            fabric.recheck();
        };
        let look = move || {
            let (mut known, mut is_again) = (Vec::new(), false);
            loop {
                let change = match heard.recv_timeout(LOOK_EACH) {
                    Ok(Word::Lists(lists)) if lists == known => false,
                    Ok(Word::Lists(lists)) => {
                        known = lists;
                        take_lists(&trust, &known)
                    }
                    Ok(Word::Look) => true,
                    Err(RecvTimeoutError::Timeout) => reload(&trust),
                    Ok(Word::End) | Err(RecvTimeoutError::Disconnected) => return,
                };
                if change || is_again {
                    act(&trust);
                }
                // Once more: a request that was under way may have begun a session meanwhile.
                is_again = change;
            }
        };
        let thread = std::thread::Builder::new().name("certificates".into()).spawn(look)?;
        Ok(Watch { feed: Feed { words, acts }, thread: Some(thread) })
    }

    pub fn feed(&self) -> Feed {
        self.feed.clone()
    }
}

/// True: a file has changed.
fn reload(trust: &Trust) -> bool {
    let reload = trust.reload_if_changed();
    if let Some(fault) = reload.fault {
        tracing::warn!("certificates: {fault}; those of before stay in use");
    }
    if let Some(change) = &reload.change {
        let (list, revoked) = (change.list_number, change.revoked.len());
        tracing::info!("certificates were loaded anew; revocation list {list}, {revoked} newly revoked");
    }
    reload.change.is_some()
}

/// True: one of the lists is newer.
fn take_lists(trust: &Trust, lists: &[u8]) -> bool {
    match trust.set_crl(lists) {
        Ok(None) => false,
        Ok(Some(change)) => {
            let (list, revoked) = (change.list_number, change.revoked.len());
            tracing::info!("revocation list {list} came with the cluster map, {revoked} newly revoked");
            if let Err(e) = trust.keep_crl() {
                tracing::warn!(
                    "revocation list {list} is not kept for the next start: {e}; let this process write to its folder of certificates"
                );
            }
            true
        }
        Err(bad) => {
            tracing::error!(
                "the revocation lists of the cluster map were not taken: {bad}; is the management service the right one?"
            );
            false
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.feed.words.send(Word::End);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that looks for certificates had panicked");
        }
    }
}

#[cfg(test)]
mod tests {
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
}
