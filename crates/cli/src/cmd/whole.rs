//! A whole cluster for a tool: a running one through its socket or its management service. A stopped one is served meanwhile, only for the
//! tool.

use std::path::Path;

use anyhow::Context;

use crate::cluster::Cluster;
use crate::exit::Failure;
use crate::reach::{self, Reach, Service};
use crate::rundir::{RunDir, State, Use};
use crate::serve::device::Blank;
use crate::serve::local::{self, Media};
use crate::shell;

/// A job on a reachable cluster; its second argument says whether the cluster was running or stopped.
pub type Job<'j, T> = &'j mut dyn FnMut(&Reach, &'static str) -> anyhow::Result<T>;

/// Selects a cluster.
#[derive(Clone, Copy, Debug)]
pub enum At<'a> {
    /// The directory of `stria up`.
    Dir(&'a Path),
    /// A file system of this management service.
    Service(&'a Service),
    /// Mounted at this path.
    Mount(&'a Path),
}

impl<'a> At<'a> {
    pub fn of(dir: Option<&'a Path>, mgs: Option<&'a Service>, path: Option<&'a Path>) -> At<'a> {
        match (dir, mgs) {
            (Some(dir), _) => At::Dir(dir),
            (None, Some(service)) => At::Service(service),
            (None, None) => At::Mount(path.unwrap_or(Path::new("."))),
        }
    }
}

/// Runs `job` on the cluster. `media`: how the media of a stopped one are opened.
pub fn with_cluster<T>(at: At<'_>, media: Media, job: Job<'_, T>) -> anyhow::Result<T> {
    let dir = match at {
        At::Dir(dir) => dir,
        At::Service(service) => return job(&service.reach()?, "running"),
        At::Mount(path) => {
            let (_, source) = reach::mount_of(path)?;
            return job(&Reach::by_nids(&source.nids, &source.fsname)?, "running");
        }
    };
    let dir = super::absolute(dir)?;
    let cluster = Cluster::existing(&dir)?;
    let run = RunDir::of(&dir);
    match run.state()? {
        State::Held(holder) if holder.what == Use::Up => {
            let reach = reach::through_socket(&dir, &cluster.fsname);
            job(&reach.with_context(|| format!("ask the running cluster (pid {})", holder.pid))?, "running")
        }
        State::Held(holder) => {
            anyhow::bail!("pid {} looks at {} now; wait until it is done", holder.pid, dir.display())
        }
        State::Free { .. } => of_stopped(&cluster, &dir, &run, media, job),
    }
}

fn of_stopped<T>(
    cluster: &Cluster,
    dir: &Path,
    run: &RunDir,
    media: Media,
    job: Job<'_, T>,
) -> anyhow::Result<T> {
    anyhow::ensure!(cluster.ready, "{} was never completed; `stria up` starts it over", dir.display());
    if cluster.pair {
        // An image alone does not tell which of the two members has the newest content.
        let next = format!("start it with `stria up --dir {}`, then do this again", shell::path(dir));
        let why = "its servers are a pair and are stopped, and only both together know the newest content";
        return Err(Failure::unusable(dir.display(), why, next).into());
    }
    let _lock = run.take(Use::Check, None)?;
    let mgs = match media {
        Media::Scratch => local::scratch_mgs(dir)?,
        Media::Real => mgs::Mgs::open(&Cluster::mgs_dir(dir)).context("open the cluster map")?,
    };
    let servers = local::start(cluster, dir, mgs, media, Blank::Refuse, None, None)?;
    let done =
        Reach::in_process(servers.fabric.clone(), &cluster.fsname).and_then(|reach| job(&reach, "stopped"));
    let stopped = servers.stop();
    match media {
        // Nothing of it is kept, so an error at the end does not matter.
        Media::Scratch => done,
        Media::Real => done.and_then(|done| stopped.map(|()| done).context("stop the servers again")),
    }
}
