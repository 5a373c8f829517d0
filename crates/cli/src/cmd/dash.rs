//! `stria dash`: a page of one file system for a browser on this host: health, space, throughput over a week, top lists, mirrors, tasks, damage.
//!
//! A thread looks at the file system at each interval, as `stria health`, `df`, `top`, `mirror status`, `scrub status` and `damage list` do. The page
//! shows what it saw last, so a browser never waits for a server.

mod door;
mod history;
mod http;
mod state;
pub(super) mod tasks;
mod watcher;

use std::fs::{self, DirBuilder, File};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustix::fs::{FlockOperation, flock};

use crate::cluster::Cluster;
use crate::cmd::damage::Where;
use crate::exit::{Exit, Failure};
use crate::reach::{self, Service};
use crate::stop::{self, Event};

use door::Token;
use history::History;
use state::Shared;
use watcher::Watcher;

/// Where root's history and token lie by default, and where those of other users do below their home.
const STATE: &str = "/var/lib/stria/dash";
const STATE_OF_USER: &str = ".local/state/stria/dash";

/// Serve a page of a file system to browsers on this host: health and the next steps, space, throughput over a week, top lists, mirrors, tasks,
/// damage. It is off unless it is started. It listens on loopback only, and asks for a token.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria dash /mnt/stria
Example: stria dash --mgs 10.0.0.5@tcp --listen 127.0.0.1:9720
Example: ssh -L 9720:127.0.0.1:9720 admin@node1     (then open the address on your own machine)
It prints the address with the token. The token stays the same over restarts; remove the file `token` in the state directory for a new one.
Programs: curl -H \"Authorization: Bearer TOKEN\" http://127.0.0.1:9720/api/state.json
Exit codes: 0 it was stopped; 2 it could not start.")]
pub struct Dash {
    /// The directory of a running `stria up`.
    #[arg(long, conflicts_with_all = ["path", "mgs"], required_unless_present_any = ["path", "mgs"])]
    dir: Option<PathBuf>,
    /// The management service: NID[,NID...], with :/FSNAME if it has several file systems.
    #[arg(long, value_name = "NID", value_parser = Service::parse, conflicts_with = "path")]
    mgs: Option<Service>,
    /// A path on a mount.
    path: Option<PathBuf>,
    /// Loopback address and port of the page. Port 0: a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9720")]
    listen: String,
    /// Directory of the token and the history, of less than 1 MiB. Default: /var/lib/stria/dash for root, otherwise ~/.local/state/stria/dash.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Seconds between two looks at the file system.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=300))]
    every: u64,
}

impl Dash {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        let address = loopback(&self.listen)?;
        let place = place(self.dir, self.mgs, self.path)?;
        let dir = state_dir(self.state.as_deref())?;
        let _lock = lock(&dir)?;
        let token = Token::of(&dir.join("token"))?;
        let path = dir.join("history");
        let history = History::open(&path).map_err(|e| {
            Failure::unusable(path.display(), e, "let this user write there, or give another --state")
        })?;
        let (_to_main, events) = stop::listen()?;
        let shared = Arc::new(Shared::new(history, self.every));
        let router = http::router(Arc::new(token), &dir, shared.clone());
        let page = watch::Page::of(&address.to_string(), "dash", router.clone_router()).map_err(|e| {
            Failure::unusable(
                format!("dash at {address}"),
                e,
                "give a free port with --listen 127.0.0.1:PORT",
            )
        })?;
        outln!("{}", router.url(page.address()));
        let mut watcher = Watcher::new(place, shared);
        let every = Duration::from_secs(self.every);
        // It ends with the process: a look may wait for a server that is silent.
        std::thread::Builder::new().name("watcher".into()).spawn(move || watcher.run(every))?;
        while let Ok(event) = events.recv() {
            if matches!(event, Event::Stop(_)) {
                break;
            }
        }
        drop(page);
        Ok(Exit::Done)
    }
}

/// The file system to look at. A path on a mount is looked up once: later the mount may be dead, and a look at it would not end.
fn place(dir: Option<PathBuf>, mgs: Option<Service>, path: Option<PathBuf>) -> anyhow::Result<Where> {
    if let Some(dir) = &dir {
        Cluster::existing(&super::absolute(dir)?)?;
    }
    let Some(path) = path else { return Ok(Where::new(dir, mgs, None)) };
    let (_, source) = reach::mount_of(&path)?;
    let service = Service::parse(&source.in_full())
        .map_err(|why| Failure::unusable(path.display(), why, "the mount was made by another version"))?;
    Ok(Where::new(None, Some(service), None))
}

/// Refuses an address that other hosts reach: the page has no TLS, and its token would cross the net.
fn loopback(listen: &str) -> Result<SocketAddr, Failure> {
    let what = || format!("listen on {listen}");
    let mut all = listen
        .to_socket_addrs()
        .map_err(|e| Failure::unusable(what(), e, "give an address and a port, such as 127.0.0.1:9720"))?;
    all.find(|address| address.ip().is_loopback()).ok_or_else(|| {
        let why = "the page is for this host only, and this address is not loopback";
        let next = "listen on 127.0.0.1, and reach it by `ssh -L 9720:127.0.0.1:9720 HOST`";
        Failure::unusable(what(), why, next)
    })
}

/// The state directory, which this makes if it is missing.
fn state_dir(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let dir = match given {
        Some(dir) => super::absolute(dir)?,
        None if rustix::process::geteuid().is_root() => STATE.into(),
        None => {
            let home = std::env::var_os("HOME").ok_or_else(|| {
                Failure::unusable("dash", "there is no home directory for its state", "give --state DIR")
            })?;
            Path::new(&home).join(STATE_OF_USER)
        }
    };
    let made = match dir.is_dir() {
        true => Ok(()),
        false => dir
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| DirBuilder::new().mode(0o700).create(&dir)),
    };
    made.map_err(|e| {
        Failure::unusable(dir.display(), e, "let this user write there, or give another --state")
    })?;
    Ok(dir)
}

/// One process writes a history.
fn lock(dir: &Path) -> Result<File, Failure> {
    let path = dir.join("lock");
    let next = "let this user write there, or give another --state";
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|e| Failure::unusable(path.display(), e, next))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        let why = "another `stria dash` uses this state directory";
        Failure::unusable(dir.display(), why, "use its page, or give another --state and --listen")
    })?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;

    #[test]
    fn an_address_that_other_hosts_reach_is_refused() {
        for listen in ["127.0.0.1:9720", "[::1]:0", "localhost:1"] {
            assert!(loopback(listen).is_ok_and(|address| address.ip().is_loopback()), "{listen}");
        }
        for listen in ["0.0.0.0:9720", "[::]:9720", "10.0.0.5:9720", "127.0.0.1", "x"] {
            assert!(loopback(listen).is_err(), "{listen}");
        }
    }

    #[test]
    fn two_processes_do_not_share_a_state_directory() {
        let dir = TestDir::new("dash-lock");
        let state = state_dir(Some(&dir.path().join("a/b"))).unwrap();
        let held = lock(&state).unwrap();
        assert!(lock(&state).err().unwrap().to_string().contains("another `stria dash`"));
        drop(held);
        lock(&state).unwrap();
    }
}
