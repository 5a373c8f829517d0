//! The certificates of a process: where they lie, and what follows when they change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

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
