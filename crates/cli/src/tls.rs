//! The certificates of a process: where they lie, and what follows when they change.

use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use net::nid::{Address, Nid};
use pki::Trust;

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

/// Looks for changed files until it is dropped.
pub struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// `recheck` closes connections whose other end is not good any more.
    pub fn start(trust: Arc<Trust>, recheck: impl Fn() + Send + 'static) -> anyhow::Result<Watch> {
        let (stop, stopped) = mpsc::channel();
        let look = move || {
            while stopped.recv_timeout(LOOK_EACH) == Err(RecvTimeoutError::Timeout) {
                let reload = trust.reload_if_changed();
                if let Some(fault) = reload.fault {
                    tracing::warn!("certificates: {fault}; those of before stay in use");
                }
                if let Some(change) = reload.change {
                    let (list, revoked) = (change.list_number, change.revoked.len());
                    tracing::info!(
                        "certificates were loaded anew; revocation list {list}, {revoked} newly revoked"
                    );
                    recheck();
                }
            }
        };
        let thread = std::thread::Builder::new().name("certificates".into()).spawn(look)?;
        Ok(Watch { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
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
