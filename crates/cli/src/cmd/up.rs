//! `stria up`: a whole file system from one directory, mounted, in one process.
//!
//! The typed command checks the directory, starts itself again in the background and waits. The serving process is the same command with
//! `--foreground`.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use net::Server;
use rustix::fs::Mode;
use types::Fault;
use wire::session::Detach;

use crate::cluster::{Cluster, Found};
use crate::detach::{self, Herald};
use crate::exit::{Exit, Failure, NO_SPACE};
use crate::options::Options;
use crate::reach::{self, Reach, Source};
use crate::rundir::{Lock, Remembered, RunDir, State, Use};
use crate::serve::device::Blank;
use crate::serve::mounted::{Client, SETTLE_LOCAL_MAX, SETTLE_MAX, Wish, prepare_point};
use crate::serve::register::{WAIT_MAX, Wait, wait_for};
use crate::serve::servers::Servers;
use crate::serve::{device, local, metrics, prepare_process};
use crate::stop::{self, Event, Manner};
use crate::{config, logs, mounts, shell};
use types::size::{Size, human};

mod pair;
mod started;

const OSTS: u32 = 4;
const SIZE: Size = Size(8 << 30);
const FSNAME: &str = "stria";
/// Most OSTs of one process: each has threads, a log and a flusher. More devices need more servers.
const OSTS_MAX: u32 = 160;
/// Time between two checks whether another mount has attached.
const COMPANY_LOOK_EACH: Duration = Duration::from_secs(1);
/// Time between two looks at another process that starts the same directory.
const LOOK_EACH: Duration = Duration::from_millis(50);

/// Make a file system in a directory (or start the one that is there), serve it and mount it.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria up --dir /tmp/s --osts 4 --ost-size 8G --mount /mnt/s
Example: stria up --dir /tmp/s --mount /mnt/s          (again, later: everything else is known)
Where it is up already, that is said, and nothing is done. After a crash it is mounted again where it was.
Stop it with: stria down --dir /tmp/s")]
pub struct Up {
    /// Directory of the file system: targets are sparse files in it. Made if it does not exist.
    #[arg(long)]
    dir: PathBuf,
    /// Number of OSTs of a new file system [default: 4].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=OSTS_MAX as i64))]
    osts: Option<u32>,
    /// Number of MDTs of a new file system [default: 1].
    #[arg(long, value_name = "N")]
    mdts: Option<u32>,
    /// Size of each OST of a new file system [default: 8G].
    #[arg(long, value_name = "SIZE")]
    ost_size: Option<Size>,
    /// Size of each MDT of a new file system [default: 8G].
    #[arg(long, value_name = "SIZE")]
    mdt_size: Option<Size>,
    /// Name of a new file system [default: stria].
    #[arg(long, value_name = "NAME")]
    fsname: Option<String>,
    /// Files up to this size live in the MDT (as `setstripe --inline` on the root); 0 = none [default: 64K].
    #[arg(long, value_name = "SIZE")]
    inline_max: Option<Size>,
    /// Memory limit for the MDT's records [default: a quarter of the machine's, at least 64M].
    #[arg(long, value_name = "SIZE", value_parser = config::mdt_cache)]
    mdt_cache: Option<Size>,
    /// Where to mount it; without, servers only, or where it was mounted when it was killed.
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// Servers only, also where it was mounted when it was killed.
    #[arg(long, conflicts_with = "mount")]
    no_mount: bool,
    /// Let other users use the mount [default: yes if root mounts].
    #[arg(long, conflicts_with = "no_allow_other")]
    allow_other: bool,
    /// Keep the mount to who mounted it.
    #[arg(long)]
    no_allow_other: bool,
    /// Mount options, separated by commas: those of `stria mount`.
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Address and port of a page with numbers of this process for Prometheus, at /metrics. The two servers of a pair have the next two ports.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<String>,
    /// A new file system has two server processes, and every target is a mirror with a member in each: for trying mirrors out.
    #[arg(long)]
    pair: bool,
    /// Serves one of the two servers of a pair.
    #[arg(long, hide = true, value_name = "N", requires = "foreground", value_parser = clap::value_parser!(u32).range(..2))]
    server: Option<u32>,
    /// Stay in the foreground, with log lines on stderr.
    #[arg(long)]
    foreground: bool,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
    /// In the background: words go to the waiting parent.
    #[arg(long, hide = true, requires = "foreground")]
    detached: bool,
}

impl Up {
    pub fn run(mut self) -> anyhow::Result<Exit> {
        self.dir = super::absolute(&self.dir)?;
        if let Some(number) = self.server {
            return pair::serve_member(&self, number);
        }
        self.mount = self.mount.as_deref().map(super::absolute).transpose()?;
        self.mount_as_before_a_crash();
        if !self.foreground {
            return self.run_in_background();
        }
        let herald = Herald::new(self.detached);
        if self.detached {
            detach::become_daemon()?;
        }
        logs::start_for_servers();
        let result = self.serve(herald).map_err(|e| self.explain_full(e));
        if let Err(err) = &result {
            herald.failed(err);
        }
        result
    }

    /// Mounts again where a killed process had mounted, with the same options.
    fn mount_as_before_a_crash(&mut self) {
        let run = RunDir::of(&self.dir);
        let is_free = matches!(run.state(), Ok(State::Free { .. }));
        let Some(was) = run.remembered().filter(|_| is_free && self.mount.is_none() && !self.no_mount) else {
            return;
        };
        eprintln!(
            "stria: it was mounted on {} when it was killed, and is mounted there again (--no-mount: servers only)",
            was.point.display()
        );
        self.mount = Some(was.point);
        // Later options win, so those of the command line do.
        self.options.splice(0..0, was.options);
    }

    /// On a full disk every step fails with its own message; all have the same next step.
    fn explain_full(&self, err: anyhow::Error) -> anyhow::Error {
        let is_full =
            |e: &anyhow::Error| format!("{e:#}").contains(NO_SPACE) && RunDir::of(&self.dir).is_disk_full();
        if !is_full(&err) {
            return err;
        }
        let what = format!("up --dir {}", shell::path(&self.dir));
        let next = format!(
            "the disk that holds it is full: make room there (`df -h {}`) and start again; nothing is lost",
            shell::path(&self.dir)
        );
        Failure::failed(what, format!("{err:#}"), next).into()
    }

    fn run_in_background(&self) -> anyhow::Result<Exit> {
        self.plan()?;
        let run = RunDir::of(&self.dir);
        if let Some(exit) = self.find_it_up(&run)? {
            return Ok(exit);
        }
        std::fs::create_dir_all(run.root()).with_context(|| format!("make {}", run.root().display()))?;
        let mut args: Vec<_> = ["up", "--foreground", "--detached", "--dir"].map(Into::into).to_vec();
        args.push(self.dir.clone().into());
        let text = |size: Option<Size>| size.map(|s| s.to_string());
        let options = [
            ("--osts", self.osts.map(|n| n.to_string())),
            ("--ost-size", text(self.ost_size)),
            ("--mdt-size", text(self.mdt_size)),
            ("--fsname", self.fsname.clone()),
            ("--inline-max", text(self.inline_max)),
            ("--mdt-cache", text(self.mdt_cache)),
            ("--metrics", self.metrics.clone()),
        ];
        for (name, value) in options {
            args.extend(value.into_iter().flat_map(|v| [name.into(), v.into()]));
        }
        if let Some(mount) = &self.mount {
            args.extend(["--mount".into(), mount.into()]);
        }
        let flags = [
            ("--allow-other", self.allow_other),
            ("--no-allow-other", self.no_allow_other),
            ("--no-mount", self.no_mount),
            ("--json", self.json),
            ("--pair", self.pair),
        ];
        args.extend(flags.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name.into()));
        args.extend(self.options.iter().flat_map(|list| ["-o".into(), list.into()]));
        let path = run.log();
        let log = std::fs::File::options().create(true).append(true).open(&path);
        let log = log.with_context(|| path.display().to_string())?;
        let what = format!("up --dir {}", shell::path(&self.dir));
        let started = detach::run_detached(&what, &args, log, &path, &mut std::io::stdout());
        match started {
            // Another `up` was faster.
            Err(e) => self.find_it_up(&run).ok().flatten().ok_or(e),
            ok => ok,
        }
    }

    /// If another process already serves the directory as requested, waits until that one is ready, and reports it.
    fn find_it_up(&self, run: &RunDir) -> anyhow::Result<Option<Exit>> {
        let begin = Instant::now();
        while let Ok(State::Held(holder)) = run.state() {
            if holder.what != Use::Up || begin.elapsed() > WAIT_MAX {
                break;
            }
            if self.mount.is_some() && self.mount != holder.mount {
                let at = holder
                    .mount
                    .as_deref()
                    .map_or("not mounted".into(), |m| format!("mounted on {}", m.display()));
                let next = format!(
                    "stop it with `stria down --dir {}`, then start it with --mount",
                    shell::path(&self.dir)
                );
                let why = format!("it is up already, served by pid {}, and {at}", holder.pid);
                return Err(Failure::failed(self.dir.display(), why, next).into());
            }
            let Found::Cluster(cluster) = Cluster::find(&self.dir)? else { break };
            self.check_agrees(&cluster)?;
            let is_mounted = |m: &PathBuf| mounts::at(m).is_some_and(|at| at.fs_type == mounts::FS_TYPE);
            let is_ready = cluster.ready
                && holder.mount.as_ref().is_none_or(is_mounted)
                && reach::through_socket(&self.dir, &cluster.fsname).is_ok();
            if is_ready {
                let started =
                    self.started(&cluster, run, "already up", holder.pid, holder.mount.as_deref(), vec![]);
                started.lines(self.json).iter().for_each(|line| outln!("{line}"));
                return Ok(Some(Exit::Done));
            }
            std::thread::sleep(LOOK_EACH);
        }
        Ok(None)
    }

    /// The existing or new cluster; refuses options that do not fit it.
    fn plan(&self) -> anyhow::Result<Cluster> {
        if self.mdts.is_some_and(|n| n != 1) {
            let next = "several MDTs come in a later release; leave the option out";
            return Err(Failure::unusable("--mdts", "this release has exactly one MDT", next).into());
        }
        RunDir::of(&self.dir).nid()?;
        self.mount_options()?;
        match Cluster::find_beside(&self.dir, self.mount.as_deref())? {
            Found::Cluster(cluster) if cluster.ready => {
                self.check_agrees(&cluster)?;
                let (mut missing, doubled) = cluster.missing(&self.dir);
                if missing.is_empty() {
                    doubled.iter().for_each(|image| {
                        let image = image.display();
                        eprintln!("stria: {image} is missing: its mirror goes on with the other server; put it back, or make a new one with `stria target replace`");
                    });
                }
                let map = Cluster::mgs_dir(&self.dir);
                missing.extend(Some(map).filter(|map| !mgs::Mgs::is_in(map)));
                match missing.first() {
                    Some(image) => {
                        let next = "put it back; a blank one in its place would lose data silently";
                        Err(Failure::failed(
                            image.display(),
                            "the medium of a target, or the cluster map, is missing",
                            next,
                        )
                        .into())
                    }
                    None => Ok(cluster),
                }
            }
            // An interrupted first run: no data was ever stored, so the present options count.
            _ => self.new_cluster(),
        }
    }

    fn mount_options(&self) -> Result<Options, Failure> {
        let mut options = Options::new();
        options.apply_all(&self.mount_words())?;
        Ok(options)
    }

    /// All mount options, as after `-o`.
    fn mount_words(&self) -> Vec<String> {
        let flags = [("allow_other", self.allow_other), ("no_allow_other", self.no_allow_other)];
        let flags = flags.into_iter().filter(|(_, is_set)| *is_set).map(|(word, _)| word.to_owned());
        self.options.iter().cloned().chain(flags).collect()
    }

    fn new_cluster(&self) -> anyhow::Result<Cluster> {
        let fsname = self.fsname.clone().unwrap_or(FSNAME.into());
        config::check_fsname(&fsname)
            .map_err(|why| Failure::unusable("--fsname", why, "choose another name"))?;
        let (mdt_size, ost_size) = (self.mdt_size.unwrap_or(SIZE), self.ost_size.unwrap_or(SIZE));
        for (name, size) in [("--mdt-size", mdt_size), ("--ost-size", ost_size)] {
            device::check_size(size).map_err(|why| Failure::unusable(name, why, "give a larger size"))?;
        }
        if self.pair && self.inline_max.is_some() {
            let next = "leave it out, and set it on the mount: `stria setstripe --inline SIZE DIR`";
            return Err(Failure::unusable("--inline-max", "a new pair does not take it yet", next).into());
        }
        let osts = self.osts.unwrap_or(OSTS);
        let mut cluster = Cluster::new(fsname, osts, mdt_size, ost_size, self.inline_max);
        cluster.pair = self.pair;
        Ok(cluster)
    }

    /// An existing directory determines everything; a contradicting option is refused, not ignored.
    fn check_agrees(&self, there: &Cluster) -> Result<(), Failure> {
        let text = |size: Option<Size>| size.map(|s| s.to_string());
        let table = [
            ("--osts", self.osts.map(|n| n.to_string()), there.osts.to_string()),
            ("--ost-size", text(self.ost_size), there.ost_size.to_string()),
            ("--mdt-size", text(self.mdt_size), there.mdt_size.to_string()),
            ("--fsname", self.fsname.clone(), there.fsname.clone()),
            ("--inline-max", text(self.inline_max), text(there.inline_max).unwrap_or("the default".into())),
        ];
        if self.pair && !there.pair {
            let why = format!("the file system in {} was made without a second server", self.dir.display());
            return Err(Failure::unusable("--pair", why, "leave the option out, or give another --dir"));
        }
        let conflict = table.into_iter().find(|(_, asked, has)| asked.as_ref().is_some_and(|a| a != has));
        let Some((name, asked, has)) = conflict else { return Ok(()) };
        let why = format!("the file system in {} has {has}", self.dir.display());
        let what = format!("{name} {}", asked.unwrap_or_default());
        Err(Failure::unusable(what, why, "leave the option out, or give another --dir"))
    }

    fn serve(&self, herald: Herald) -> anyhow::Result<Exit> {
        let begin = Instant::now();
        prepare_process();
        let mut cluster = self.plan()?;
        let run = RunDir::of(&self.dir);
        let (sender, events) = stop::listen()?;
        // 1. From here on no other process uses the directory.
        let lock = run.take(Use::Up, self.mount.clone())?;
        // The directory is marked first. If this start fails, the next one would otherwise refuse a mount point within it as foreign.
        let is_new = !cluster.ready;
        if is_new {
            local::claim(&cluster, &self.dir, self.mount.as_deref())?;
        }
        // All users reach the mount through its directories, so these are made with the caller's umask.
        if let Some(point) = &self.mount {
            prepare_point(point)?;
        }
        // Images and map hold users' data and the file system's secret: only their owner may read them.
        rustix::process::umask(Mode::from_raw_mode(0o077));
        // 2. Make it, the first time. The service of its map stays for all of this process: a thread that ends late could hold its lock.
        let mgs = mgs::Mgs::open(&Cluster::mgs_dir(&self.dir)).context("open the cluster map")?;
        let mut notes = vec![];
        if is_new {
            notes.extend(too_large(&cluster, &self.dir));
            if !self.json {
                notes.iter().for_each(|note| herald.say(&format!("note: {note}")));
            }
            match cluster.pair {
                true => local::make_images(&cluster, &self.dir)?,
                false => local::make(&mut cluster, &self.dir, mgs.clone(), &events)?,
            }
        }
        // 3. Serve.
        if cluster.pair {
            return self.serve_pair(
                pair::Shown { cluster, mgs, is_new, notes, begin },
                &lock,
                &events,
                sender,
                herald,
            );
        }
        let servers = local::start(
            &cluster,
            &self.dir,
            mgs,
            local::Media::Real,
            Blank::Refuse,
            self.mdt_cache,
            Some(&events),
        )?;
        let ready = |page: Option<&watch::Page>| {
            let state = if is_new { "made" } else { "started" };
            let mut started =
                self.started(&cluster, &run, state, std::process::id(), self.mount.as_deref(), notes);
            started.seconds = Some(begin.elapsed().as_secs_f64());
            started.metrics = page.map(started::address);
            started.lines(self.json).iter().for_each(|line| herald.say(line));
            herald.ready();
        };
        let served = self.serve_clients(&cluster, &servers, &lock, &events, sender, ready);
        // 4. In any case the targets stop cleanly.
        let stopped = servers.stop();
        served?;
        stopped?;
        tracing::info!("stopped");
        Ok(Exit::Done)
    }

    /// Serves the socket and the mount until it is asked to stop.
    fn serve_clients(
        &self,
        cluster: &Cluster,
        servers: &Servers,
        lock: &Lock,
        events: &Receiver<Event>,
        sender: Sender<Event>,
        ready: impl FnOnce(Option<&watch::Page>),
    ) -> anyhow::Result<()> {
        let run = RunDir::of(&self.dir);
        let nid = run.nid()?;
        let socket = listen_on_socket(&run, servers)?;
        let page = metrics::serve(self.metrics.as_deref(), servers.source("up"))?;
        let client = match &self.mount {
            Some(point) => Some(self.mount_here(cluster, servers, &nid, point, events, sender)?),
            None => None,
        };
        self.keep_mount(client.as_ref(), lock, &run)?;
        ready(page.as_ref());
        let next = |events: &Receiver<Event>| events.recv_timeout(COMPANY_LOOK_EACH);
        let (client, manner) = serve_until_stopped(client, events, next, &run, lock);
        lock.forget()?;
        if let Some(client) = client {
            client.finish(if manner == Manner::Forced { SETTLE_MAX } else { SETTLE_LOCAL_MAX });
        }
        socket.stop();
        Ok(())
    }

    /// Gives the root directory to the caller, and notes the mount for a start after a crash.
    fn keep_mount(&self, client: Option<&Client>, lock: &Lock, run: &RunDir) -> anyhow::Result<()> {
        // If the MDT checks the session's rights, only root may give the root directory away; the mount works all the same.
        if let Some(Err(fault)) = client.map(own_root) {
            tracing::warn!("the root directory stays root's: {fault}");
        }
        let remembered = match &self.mount {
            Some(point) => lock.remember(&Remembered { point: point.clone(), options: self.mount_words() }),
            None => lock.forget(),
        };
        remembered.with_context(|| format!("note the mount in {}", run.root().display()))?;
        run.keep_spare();
        Ok(())
    }

    fn mount_here(
        &self,
        cluster: &Cluster,
        servers: &Servers,
        nid: &str,
        point: &Path,
        events: &Receiver<Event>,
        sender: Sender<Event>,
    ) -> anyhow::Result<Client> {
        let options = self.mount_options()?;
        let source = Source::of(&[nid], &cluster.fsname).map_err(anyhow::Error::msg)?;
        let reach = Reach::in_process(servers.fabric.clone(), &cluster.fsname)?;
        end_own_sessions(servers, &reach, point)?;
        let client = wait_for(&Wait::silent("mount", Some(events)), || {
            let wish = Wish {
                fabric: servers.fabric.clone(),
                map: &reach.map,
                fs: reach.fs,
                point,
                source: source.to_string(),
                options: &options,
                client_name: own_client_name(point),
                // The servers belong to this process, too: a claim would protect no one.
                claims: client::Claims::All,
                calls: servers.calls.clone(),
            };
            Client::start(wish, sender.clone())
        })?;
        servers.tell_maps(client.fs());
        Ok(client)
    }
}

/// The name of this process's client. While this process holds the directory's lock, a session of that name belongs to a dead process.
const OWN_CLIENT: &str = "stria up";
fn own_client_name(point: &Path) -> String {
    format!("{OWN_CLIENT}, {} pid {} {}", crate::serve::host_name(), std::process::id(), point.display())
}

/// Ends sessions of an earlier `stria up` on this directory now, not after their time-out: that process held the lock that this one holds.
fn end_own_sessions(servers: &Servers, reach: &Reach, point: &Path) -> anyhow::Result<()> {
    for (mdt, session, name) in
        servers.sessions().into_iter().filter(|(_, _, name)| name.starts_with(OWN_CLIENT))
    {
        tracing::info!(%session, client = name, mount = %point.display(), "ending the session of a process that was killed");
        match reach.ask(mdt, &Detach { session }) {
            Ok(_) => {}
            // The mount that follows waits for the time-out instead.
            Err(e) if e.downcast_ref::<Fault>().is_some() => tracing::warn!("it could not be ended: {e:#}"),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn listen_on_socket(run: &RunDir, servers: &Servers) -> anyhow::Result<Server> {
    use std::os::unix::fs::PermissionsExt;
    let path = run.socket();
    let server = Server::listen(&format!("unix:{}", path.display()), servers.hub.clone())
        .with_context(|| format!("listen on {}", path.display()))?;
    // A process that may connect can ask for the file system's secret.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(server)
}

/// Targets are sparse and may promise more than the disk has; that is reported once.
fn too_large(cluster: &Cluster, dir: &Path) -> Option<String> {
    let existing = dir.ancestors().find(|d| d.exists()).unwrap_or(dir);
    let stat = rustix::fs::statvfs(existing).ok()?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let promised = cluster.bytes_promised();
    (promised > free).then(|| {
        format!(
            "the targets may grow to {} and {} has {} free; writes fail when it is full",
            human(promised),
            existing.display(),
            human(free)
        )
    })
}

/// Returns when it is time to stop: the client that must still be finished, and how.
fn serve_until_stopped(
    mut client: Option<Client>,
    events: &Receiver<Event>,
    mut next: impl FnMut(&Receiver<Event>) -> Result<Event, RecvTimeoutError>,
    run: &RunDir,
    lock: &Lock,
) -> (Option<Client>, Manner) {
    let (mut is_alone, mut is_full) = (true, false);
    loop {
        match next(events) {
            Err(RecvTimeoutError::Disconnected) => return (client, Manner::Polite),
            Err(RecvTimeoutError::Timeout) => {
                is_alone = warn_of_company(client.as_ref(), is_alone);
                is_full = warn_of_full_disk(run, is_full);
            }
            Ok(Event::Unmounted) => {
                // Another process unmounted: the servers stay, and the session ends so that another client can attach.
                tracing::info!("the mount was taken away; the servers go on");
                client.take().into_iter().for_each(|c| _ = c.finish(SETTLE_LOCAL_MAX));
                if let Err(e) = lock.set_mount(None).and_then(|()| lock.forget()) {
                    tracing::warn!("holder.json was not changed: {e}");
                }
            }
            Ok(Event::Stop(manner)) => {
                tracing::info!(?manner, "stopping");
                if manner == Manner::Forced {
                    stop::begin_forced(stop::FORCED_STOP_MAX);
                }
                match client.as_ref().map(|c| (c.unmount(manner), c.point())) {
                    None | Some((Ok(()), _)) => return (client, manner),
                    Some((Err(e), point)) => refuse_stop(run, &point, &e),
                }
            }
        }
    }
}

/// This mount's locks are known only to its kernel: a client that attaches through the socket does not see them. True while there is none.
fn warn_of_company(client: Option<&Client>, was_alone: bool) -> bool {
    let is_alone = client.is_none_or(|c| !c.fs().is_shared());
    if was_alone && !is_alone {
        tracing::warn!(
            "another mount has attached through the socket, and locks of the two do not see each other: if programs on both lock, \
             serve the file system with `stria mgs`, `mds` and `oss`, and use `stria mount` for both"
        );
    }
    is_alone
}

/// The targets are sparse: the disk below may be full before they are. True while it is.
fn warn_of_full_disk(run: &RunDir, was_full: bool) -> bool {
    let is_full = run.is_disk_full();
    match (was_full, is_full) {
        (false, true) => tracing::warn!(
            dir = %run.root().display(),
            "the disk that holds the targets is full: writes get ENOSPC, nothing that was acknowledged is lost; remove files of this file \
             system or others of that disk"
        ),
        (true, false) => tracing::info!("the disk that holds the targets has room again"),
        _ => {}
    }
    run.keep_spare();
    is_full
}

/// The file system of a plain user belongs to that user, from the root directory on: no other user can mount it.
fn own_root(client: &Client) -> Result<(), types::Fault> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if uid != 0 && client.fs().getattr(types::Fid::ROOT)?.uid == 0 {
        let owner = client::SetAttr { uid: Some(uid), gid: Some(gid), ..client::SetAttr::default() };
        client.fs().setattr(types::Fid::ROOT, &owner, &types::Cred::root())?;
    }
    Ok(())
}

/// Reports why the stop is refused: in the log, and for the process that asked.
fn refuse_stop(run: &RunDir, point: &Path, why: &fuse::MountError) {
    let users: Vec<String> = mounts::users(point, std::process::id()).iter().map(|u| u.to_string()).collect();
    tracing::error!(?users, "still mounted: {why}; a second signal unmounts all the same");
    if let Err(e) = std::fs::write(run.busy(), format!("{why}\n")) {
        tracing::warn!("the reason could not be written to {}: {e}", run.busy().display());
    }
}

#[cfg(test)]
mod tests;
