//! `stria up`: a whole file system from one directory, mounted, in one process.
//!
//! The command that a person types makes the directory's checks, starts itself again in the background and waits; the process
//! that serves is the same command with `--foreground`.

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
use crate::exit::{Exit, Failure};
use crate::options::Options;
use crate::reach::{Reach, Source};
use crate::rundir::{Lock, RunDir, Use};
use crate::serve::device::Blank;
use crate::serve::mounted::{Client, SETTLE_LOCAL_MAX, SETTLE_MAX, Wish, prepare_point};
use crate::serve::register::wait_for;
use crate::serve::servers::Servers;
use crate::serve::{device, local, prepare_process, role};
use crate::stop::{self, Event, Manner};
use crate::{config, logs, mounts};
use types::size::{Size, human};

const OSTS: u32 = 4;
const SIZE: Size = Size(8 << 30);
const FSNAME: &str = "stria";
/// Most OSTs of one process: each has threads, a log and a flusher; more devices are for more servers.
const OSTS_MAX: u32 = 160;
/// Time between two looks whether another mount has come in.
const COMPANY_LOOK_EACH: Duration = Duration::from_secs(1);

/// Make a file system in a directory (or start the one that is there), serve it and mount it.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria up --dir /tmp/s --osts 4 --ost-size 8G --mount /mnt/s
Example: stria up --dir /tmp/s --mount /mnt/s          (again, later: everything else is known)
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
    /// What the MDT's records may take in memory [default: a quarter of the machine's, at least 64M].
    #[arg(long, value_name = "SIZE", value_parser = config::mdt_cache)]
    mdt_cache: Option<Size>,
    /// Where to mount it; without, servers only.
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// Let other users use the mount [default: yes if root mounts].
    #[arg(long, conflicts_with = "no_allow_other")]
    allow_other: bool,
    /// Keep the mount to who mounted it.
    #[arg(long)]
    no_allow_other: bool,
    /// Mount options, separated by commas: those of `stria mount`.
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Stay in the foreground, with log lines on stderr.
    #[arg(long)]
    foreground: bool,
    /// In the background: words go to the waiting parent.
    #[arg(long, hide = true, requires = "foreground")]
    detached: bool,
}

impl Up {
    pub fn run(mut self) -> anyhow::Result<Exit> {
        self.dir = super::absolute(&self.dir)?;
        self.mount = self.mount.as_deref().map(super::absolute).transpose()?;
        if !self.foreground {
            return self.run_in_background();
        }
        let herald = Herald::new(self.detached);
        if self.detached {
            detach::become_daemon()?;
        }
        logs::start_for_servers();
        let result = self.serve(herald);
        if let Err(err) = &result {
            herald.failed(err);
        }
        result
    }

    fn run_in_background(&self) -> anyhow::Result<Exit> {
        self.plan()?;
        let run = RunDir::of(&self.dir);
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
        ];
        for (name, value) in options {
            args.extend(value.into_iter().flat_map(|v| [name.into(), v.into()]));
        }
        if let Some(mount) = &self.mount {
            args.extend(["--mount".into(), mount.into()]);
        }
        let flags = [("--allow-other", self.allow_other), ("--no-allow-other", self.no_allow_other)];
        args.extend(flags.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name.into()));
        args.extend(self.options.iter().flat_map(|list| ["-o".into(), list.into()]));
        let path = run.log();
        let log = std::fs::File::options().create(true).append(true).open(&path);
        detach::run_detached(&args, log.with_context(|| path.display().to_string())?, &path)
    }

    /// What there is or will be; refuses wishes that do not fit it.
    fn plan(&self) -> anyhow::Result<Cluster> {
        if self.mdts.is_some_and(|n| n != 1) {
            let next = "several MDTs come in a later release; leave the option out";
            return Err(Failure::unusable("--mdts", "this release has exactly one MDT", next).into());
        }
        RunDir::of(&self.dir).nid()?;
        self.mount_options()?;
        match Cluster::find(&self.dir)? {
            Found::Cluster(cluster) if cluster.ready => {
                self.check_agrees(&cluster)?;
                let mut missing = cluster.missing(&self.dir);
                let map = Cluster::mgs_dir(&self.dir);
                missing.extend(Some(map).filter(|map| !mgs::Mgs::is_in(map)));
                match missing.first() {
                    Some(image) => {
                        let next = "put it back; a blank one in its place would be silent loss of data";
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
            // An interrupted first run: nothing was ever stored, so the wishes of this one count.
            _ => self.new_cluster(),
        }
    }

    fn mount_options(&self) -> Result<Options, Failure> {
        let mut options = Options::new(role::op_timeout());
        options.apply_all(&self.options)?;
        Ok(options)
    }

    fn new_cluster(&self) -> anyhow::Result<Cluster> {
        let fsname = self.fsname.clone().unwrap_or(FSNAME.into());
        config::check_fsname(&fsname)
            .map_err(|why| Failure::unusable("--fsname", why, "choose another name"))?;
        let (mdt_size, ost_size) = (self.mdt_size.unwrap_or(SIZE), self.ost_size.unwrap_or(SIZE));
        for (name, size) in [("--mdt-size", mdt_size), ("--ost-size", ost_size)] {
            device::check_size(size).map_err(|why| Failure::unusable(name, why, "give a larger size"))?;
        }
        Ok(Cluster::new(fsname, self.osts.unwrap_or(OSTS), mdt_size, ost_size, self.inline_max))
    }

    /// On an existing directory everything comes from it; a wish that says otherwise is refused, not ignored.
    fn check_agrees(&self, there: &Cluster) -> Result<(), Failure> {
        let text = |size: Option<Size>| size.map(|s| s.to_string());
        let table = [
            ("--osts", self.osts.map(|n| n.to_string()), there.osts.to_string()),
            ("--ost-size", text(self.ost_size), there.ost_size.to_string()),
            ("--mdt-size", text(self.mdt_size), there.mdt_size.to_string()),
            ("--fsname", self.fsname.clone(), there.fsname.clone()),
            ("--inline-max", text(self.inline_max), text(there.inline_max).unwrap_or("the default".into())),
        ];
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
        // 1. Nobody else uses the directory from here on.
        let lock = run.take(Use::Up, self.mount.clone())?;
        // The mount point's directories are everybody's way to the mount: they are made with the caller's umask.
        if let Some(point) = &self.mount {
            prepare_point(point)?;
        }
        // Images and map hold other people's files and the file system's secret: they are their owner's only.
        rustix::process::umask(Mode::from_raw_mode(0o077));
        // 2. Make it, the first time.
        let is_new = !cluster.ready;
        if is_new {
            warn_if_too_large(&cluster, &self.dir, herald);
            local::make(&mut cluster, &self.dir, &events)?;
        }
        // 3. Serve.
        let mgs = mgs::Mgs::open(&Cluster::mgs_dir(&self.dir)).context("open the cluster map")?;
        let servers = local::start(
            &cluster,
            &self.dir,
            mgs,
            local::Media::Real,
            Blank::Refuse,
            self.mdt_cache,
            Some(&events),
        )?;
        let ready = || {
            self.tell(herald, &cluster, &run, is_new, begin);
            herald.ready();
        };
        let served = self.serve_clients(&cluster, &servers, &lock, &events, sender, ready);
        // 4. However that ended, the targets stop cleanly.
        let stopped = servers.stop();
        served?;
        stopped?;
        tracing::info!("stopped");
        Ok(Exit::Done)
    }

    /// The socket and the mount, until asked to stop.
    fn serve_clients(
        &self,
        cluster: &Cluster,
        servers: &Servers,
        lock: &Lock,
        events: &Receiver<Event>,
        sender: Sender<Event>,
        ready: impl FnOnce(),
    ) -> anyhow::Result<()> {
        let run = RunDir::of(&self.dir);
        let nid = run.nid()?;
        let socket = listen_on_socket(&run, servers)?;
        let client = match &self.mount {
            Some(point) => Some(self.mount_here(cluster, servers, &nid, point, events, sender)?),
            None => None,
        };
        // Where the MDT judges the session, only root may give the root directory away; the mount is good all the same.
        if let Some(Err(fault)) = client.as_ref().map(own_root) {
            tracing::warn!("the root directory stays root's: {fault}");
        }
        ready();
        let (client, manner) = serve_until_stopped(client, events, &run, lock);
        if let Some(client) = client {
            client.finish(if manner == Manner::Forced { SETTLE_MAX } else { SETTLE_LOCAL_MAX });
        }
        socket.stop();
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
        let mut options = self.mount_options()?;
        options.allow_other = match (self.allow_other, self.no_allow_other) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => options.allow_other,
        };
        let source = Source { nids: vec![nid.to_owned()], fsname: cluster.fsname.clone() };
        let reach = Reach::in_process(servers.fabric.clone(), &cluster.fsname)?;
        end_own_sessions(servers, &reach, point)?;
        wait_for("mount", Some(events), &|_| {}, || {
            let wish = Wish {
                fabric: servers.fabric.clone(),
                map: &reach.map,
                fs: reach.fs,
                point,
                source: source.to_string(),
                options: &options,
                client_name: own_client_name(point),
                // The servers are this process's, too: nobody is kept from anything by a claim.
                claims: client::Claims::All,
            };
            Client::start(wish, sender.clone())
        })
    }

    fn tell(&self, herald: Herald, cluster: &Cluster, run: &RunDir, is_new: bool, begin: Instant) {
        let verb = if is_new { "made" } else { "started" };
        let dir = self.dir.display();
        herald.say(&format!("{verb} file system '{}' in {dir} ({:.1?})", cluster.fsname, begin.elapsed()));
        let targets = cluster.images(&self.dir);
        for (n, image) in targets.iter().enumerate() {
            let n = n as u32;
            let (kind, index, size) = match n.checked_sub(cluster.mdts) {
                None => ("MDT", n, cluster.mdt_size),
                Some(index) => ("OST", index, cluster.ost_size),
            };
            herald.say(&format!("  {kind}{index:04x}  {:>7}  {}", human(size.0), image.display()));
        }
        match &self.mount {
            Some(mount) => herald.say(&format!("  mounted on {}", mount.display())),
            None => herald.say("  not mounted (no --mount)"),
        }
        herald.say(&format!("  log        {}", run.log().display()));
        herald.say(&format!("look with: stria status --dir {dir}   stop with: stria down --dir {dir}"));
    }
}

/// How this process's client calls itself. Who reads it after we took the directory's lock knows that its process is dead.
const OWN_CLIENT: &str = "stria up";
fn own_client_name(point: &Path) -> String {
    format!("{OWN_CLIENT}, {} pid {} {}", crate::serve::host_name(), std::process::id(), point.display())
}

/// Sessions of an earlier `stria up` on this directory end now instead of after their time-out: it held the lock that we hold.
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
    // Who may connect may ask for the file system's secret.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(server)
}

/// Targets are sparse: they may promise more than the disk has, which is said once.
fn warn_if_too_large(cluster: &Cluster, dir: &Path, herald: Herald) {
    let existing = dir.ancestors().find(|d| d.exists()).unwrap_or(dir);
    let Ok(stat) = rustix::fs::statvfs(existing) else { return };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let promised = cluster.bytes_promised();
    if promised > free {
        herald.say(&format!(
            "note: the targets may grow to {} and {} has {} free; writes fail when it is full",
            human(promised),
            existing.display(),
            human(free)
        ));
    }
}

/// Returns, when it is time to stop, what is still to be finished and how.
fn serve_until_stopped(
    mut client: Option<Client>,
    events: &Receiver<Event>,
    run: &RunDir,
    lock: &Lock,
) -> (Option<Client>, Manner) {
    let mut is_alone = true;
    loop {
        match events.recv_timeout(COMPANY_LOOK_EACH) {
            Err(RecvTimeoutError::Disconnected) => return (client, Manner::Polite),
            Err(RecvTimeoutError::Timeout) => is_alone = warn_of_company(client.as_ref(), is_alone),
            Ok(Event::Unmounted) => {
                // Somebody else unmounted: the servers stay, and the session ends so that another client may come.
                tracing::info!("the mount was taken away; the servers go on");
                client.take().into_iter().for_each(|c| c.finish(SETTLE_LOCAL_MAX));
                if let Err(e) = lock.set_mount(None) {
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

/// Locks of this mount are its kernel's alone: who comes in through the socket does not see them. True while nobody has.
fn warn_of_company(client: Option<&Client>, was_alone: bool) -> bool {
    let is_alone = client.is_none_or(|c| !c.fs().is_shared());
    if was_alone && !is_alone {
        tracing::warn!(
            "another mount has come in through the socket, and locks of the two do not see each other: where both lock, \
             serve the file system with `stria mgs`, `mds` and `oss`, and use `stria mount` for both"
        );
    }
    is_alone
}

/// What a plain user makes belongs to that user, from the root directory on: nobody else can mount it.
fn own_root(client: &Client) -> Result<(), types::Fault> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if uid != 0 && client.fs().getattr(types::Fid::ROOT)?.uid == 0 {
        let owner = client::SetAttr { uid: Some(uid), gid: Some(gid), ..client::SetAttr::default() };
        client.fs().setattr(types::Fid::ROOT, &owner, &types::Cred::root())?;
    }
    Ok(())
}

/// Says why it goes on: in the log, and for who asked.
fn refuse_stop(run: &RunDir, point: &Path, why: &fuse::MountError) {
    let users: Vec<String> = mounts::users(point, std::process::id()).iter().map(|u| u.to_string()).collect();
    tracing::error!(?users, "still mounted: {why}; a second signal unmounts all the same");
    if let Err(e) = std::fs::write(run.busy(), format!("{why}\n")) {
        tracing::warn!("the reason could not be left in {}: {e}", run.busy().display());
    }
}

#[cfg(test)]
mod tests;
