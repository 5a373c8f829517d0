//! The certificates of a process: where they lie, and what follows when they change.

use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
/// Time from a change to the second round of actions.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Longest wait for the ends of sessions before connections are closed.
const ENDS_MAX: Duration = Duration::from_millis(250);

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
type Acts = Arc<Mutex<Vec<Act>>>;

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
    acts: Acts,
}

impl Feed {
    /// Takes the lists of a map. They count soon after, and at the next start. Where `Trust` judges by them already, the rest still follows.
    pub fn take(&self, map: &ClusterMap) {
        self.lists(&map.crls);
    }

    pub fn lists(&self, crls: &[u8]) {
        // Without the thread the process is ending.
        let _ = self.words.send(Word::Lists(crls.to_vec()));
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
        let acts = Acts::default();
        let dialled = fabric.clone();
        let connections = Connections {
            retire: Box::new(move || dialled.retire_former()),
            recheck: Box::new(move || {
                recheck();
                fabric.recheck();
            }),
        };
        let mut keeper = Keeper::new(trust, acts.clone(), connections, Instant::now())?;
        let look = move || loop {
            let word = match heard.recv_timeout(keeper.wait(Instant::now())) {
                Ok(Word::End) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(word) => Some(word),
                Err(RecvTimeoutError::Timeout) => None,
            };
            keeper.hear(word, Instant::now());
        };
        let thread = std::thread::Builder::new().name("certificates".into()).spawn(look)?;
        Ok(Watch { feed: Feed { words, acts }, thread: Some(thread) })
    }

    pub fn feed(&self) -> Feed {
        self.feed.clone()
    }
}

/// Effects of a change on connections.
struct Connections {
    /// Dials anew with a new certificate.
    retire: Box<dyn Fn() + Send>,
    /// Closes those whose other end is not good any more.
    recheck: Box<dyn Fn() + Send>,
}

/// The state of a `Watch`'s thread.
struct Keeper {
    trust: Arc<Trust>,
    ends: Ends,
    connections: Connections,
    /// The lists of the newest map. Some may be of a CA that this process learns of later.
    offered: Vec<u8>,
    /// `offered` was taken without an error.
    is_taken: bool,
    /// The lists of the last action.
    acted: Vec<u8>,
    look_at: Instant,
    again_at: Option<Instant>,
}

impl Keeper {
    fn new(trust: Arc<Trust>, acts: Acts, connections: Connections, now: Instant) -> anyhow::Result<Keeper> {
        Ok(Keeper {
            ends: Ends::start(trust.clone(), acts)?,
            connections,
            offered: vec![],
            is_taken: true,
            acted: trust.crl().1,
            look_at: now + LOOK_EACH,
            again_at: None,
            trust,
        })
    }

    /// How long to listen before the next `hear`.
    fn wait(&self, now: Instant) -> Duration {
        let next = self.again_at.map_or(self.look_at, |again| again.min(self.look_at));
        next.saturating_duration_since(now)
    }

    /// Takes a message, if there is one, and does everything that is due.
    fn hear(&mut self, word: Option<Word>, now: Instant) {
        let mut is_change = match word {
            Some(Word::Lists(lists)) => {
                // A map without lists takes none back.
                if !lists.is_empty() && (lists != self.offered || !self.is_taken) {
                    self.offered = lists;
                    self.take_offered();
                }
                // The management service's own process judges by them before its map has them.
                self.trust.crl().1 != self.acted
            }
            Some(Word::Look) => true,
            Some(Word::End) | None => false,
        };
        if now >= self.look_at {
            self.look_at = now + LOOK_EACH;
            if reload(&self.trust) {
                is_change = true;
                // The files may have brought the CA of a list that was passed over before.
                self.take_offered();
            }
        }
        if is_change || self.again_at.is_some_and(|at| now >= at) {
            // Once more a second later: a request that was under way may have begun a session meanwhile.
            self.again_at = is_change.then_some(now + AGAIN_AFTER);
            self.act();
        }
    }

    /// Sessions before connections: a client with an open connection is told why its session ends. Connections wait for that only so long.
    fn act(&mut self) {
        let lists = self.trust.crl().1;
        // An action may send requests, which then have the new certificate.
        (self.connections.retire)();
        self.ends.end_sessions();
        (self.connections.recheck)();
        if lists != self.acted {
            self.acted = lists;
            keep(&self.trust);
        }
    }

    fn take_offered(&mut self) {
        match self.trust.set_crl(&self.offered) {
            Ok(None) => self.is_taken = true,
            Ok(Some(change)) => {
                self.is_taken = true;
                let (list, revoked) = (change.list_number, change.revoked.len());
                tracing::info!("revocation list {list} came with the cluster map, {revoked} newly revoked");
            }
            Err(bad) => {
                self.is_taken = false;
                tracing::error!(
                    "the revocation lists of the cluster map were not taken: {bad}; is the management service the right one?"
                );
            }
        }
    }
}

/// Ends sessions on a thread of its own: a target whose log is slow must not keep connections open.
struct Ends {
    /// Each message asks for all actions, and is answered after them.
    asks: Option<Sender<Sender<()>>>,
    thread: Option<JoinHandle<()>>,
}

impl Ends {
    fn start(trust: Arc<Trust>, acts: Acts) -> anyhow::Result<Ends> {
        let (asks, asked) = mpsc::channel::<Sender<()>>();
        let run = move || {
            for done in asked {
                acts.lock().iter().for_each(|act| act(&trust));
                // The asking thread may wait no longer.
                let _ = done.send(());
            }
        };
        let thread = std::thread::Builder::new().name("revoked".into()).spawn(run)?;
        Ok(Ends { asks: Some(asks), thread: Some(thread) })
    }

    /// Returns when they have ended, or after `ENDS_MAX` while they end.
    fn end_sessions(&self) {
        let (done, is_done) = mpsc::channel();
        let asked = self.asks.as_ref().is_some_and(|asks| asks.send(done).is_ok());
        if asked && is_done.recv_timeout(ENDS_MAX) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("sessions of revoked nodes end slowly; their connections are closed before");
        }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        drop(self.asks.take());
        join(self.thread.take());
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

/// Keeps the lists for the next start. Files are flushed for that, so it comes after everything that shuts a revoked node out.
fn keep(trust: &Trust) {
    if let Err(e) = trust.keep_crl() {
        let list = trust.crl().0;
        tracing::warn!(
            "revocation list {list} is not kept for the next start: {e}; let this process write to its folder of certificates"
        );
    }
}

fn join(thread: Option<JoinHandle<()>>) {
    if let Some(thread) = thread
        && thread.join().is_err()
    {
        tracing::error!("the thread that looks for certificates had panicked");
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.feed.words.send(Word::End);
        join(self.thread.take());
    }
}

#[cfg(test)]
mod tests;
