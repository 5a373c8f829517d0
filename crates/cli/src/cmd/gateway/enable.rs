//! `stria gateway … enable`: from the options to a server that serves them.

use std::fs;
use std::net::ToSocketAddrs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::model::{self, GRACE_SEC, Kind, Mount, NFS_PORT, Nfs, SMB_PORT, Server, Smb};
use super::places::Places;
use super::{Common, NfsEnable, SmbEnable, host, mounted, read, refuse_unless_root, status, units, words};
use crate::exit::{Exit, Failure};
use crate::mounts;
use crate::options::Options;
use crate::reach::Source;
use crate::serve::bounded;

/// Longest wait for a name service.
const RESOLVE_MAX: Duration = Duration::from_secs(10);

impl NfsEnable {
    pub fn run(self) -> anyhow::Result<Exit> {
        let at = self.common.base.places::<Nfs>()?;
        let _lock = self.common.lock(&at)?;
        let old = read::<Nfs>(&at)?;
        let other = read::<Smb>(&at.of(Smb::NAME))?;
        let mount = self.common.mount(old.as_ref(), other.as_ref(), &at)?;
        let server = self.common.server(old.as_ref().map(|o| &o.server), NFS_PORT)?;
        let mut new = old.clone().unwrap_or_else(|| Nfs {
            protocols: vec![3, 4],
            grace_sec: GRACE_SEC,
            last_id: 0,
            mount: mount.clone(),
            server: server.clone(),
            exports: vec![],
        });
        (new.mount, new.server) = (mount, server);
        new.grace_sec = self.grace.unwrap_or(new.grace_sec);
        if !self.protocols.is_empty() {
            new.protocols = self.protocols.clone();
            new.protocols.sort_unstable();
            new.protocols.dedup();
        }
        let exports =
            self.exports.iter().map(|text| words::export(text, &new.mount.point)).collect::<Result<_, _>>();
        let exports: Vec<model::Export> = exports.map_err(|why| bad_word("export", why))?;
        refuse_unknown_hosts(exports.iter().flat_map(|e| &e.hosts))?;
        new.put(exports).map_err(|why| bad_word("export", why))?;
        self.common.enable(old, new, other.as_ref().map(Kind::mount), &at)
    }
}

impl SmbEnable {
    pub fn run(self) -> anyhow::Result<Exit> {
        let at = self.common.base.places::<Smb>()?;
        let _lock = self.common.lock(&at)?;
        let old = read::<Smb>(&at)?;
        let other = read::<Nfs>(&at.of(Nfs::NAME))?;
        let mount = self.common.mount(old.as_ref(), other.as_ref(), &at)?;
        let server = self.common.server(old.as_ref().map(|o| &o.server), SMB_PORT)?;
        let mut new = old.clone().unwrap_or_else(|| Smb {
            workgroup: "WORKGROUP".into(),
            mount: mount.clone(),
            server: server.clone(),
            shares: vec![],
        });
        (new.mount, new.server) = (mount, server);
        if let Some(workgroup) = &self.workgroup {
            words::check_workgroup(workgroup).map_err(|why| bad_word("workgroup", why))?;
            new.workgroup = workgroup.clone();
        }
        let point = new.mount.point.clone();
        let shares = self.shares.iter().map(|text| words::share(text, &point)).collect::<Result<_, _>>();
        let shares: Vec<model::Share> = shares.map_err(|why| bad_word("share", why))?;
        refuse_unknown_hosts(shares.iter().flat_map(|s| &s.hosts))?;
        new.put(shares);
        self.common.enable(old, new, other.as_ref().map(Kind::mount), &at)
    }
}

/// NFS-Ganesha skips a host that it cannot resolve, and reports that only in its log.
fn refuse_unknown_hosts<'a>(hosts: impl Iterator<Item = &'a String>) -> Result<(), Failure> {
    for host in hosts.filter(|h| words::is_name(h) && !h.contains(['*', '?', '@'])) {
        let name = format!("{host}:0");
        let found = bounded("resolve a host", RESOLVE_MAX, move || name.to_socket_addrs().map(drop));
        let why = match found {
            Some(Ok(())) => continue,
            Some(Err(e)) => e.to_string(),
            None => format!("no answer after {} s", RESOLVE_MAX.as_secs()),
        };
        let next = "correct the name, or give its address";
        return Err(Failure::unusable(
            format!("hosts={host}"),
            format!("this host cannot resolve it: {why}"),
            next,
        ));
    }
    Ok(())
}

pub fn bad_word(option: &str, why: String) -> Failure {
    Failure::unusable(format!("--{option}"), why, "see `stria gateway nfs enable --help`, or the same of smb")
}

impl Common {
    fn lock(&self, at: &Places) -> anyhow::Result<Option<fs::File>> {
        if self.dry_run {
            return Ok(None);
        }
        refuse_unless_root()?;
        host::lock(at).map(Some)
    }

    /// The mount of this gateway: the present one, that of the other gateway, or the given one.
    pub fn mount<K: Kind, O: Kind>(
        &self,
        old: Option<&K>,
        other: Option<&O>,
        at: &Places,
    ) -> anyhow::Result<Mount> {
        let given = self.mount.as_deref().map(mounted::point_of).transpose()?;
        let kept = old
            .map(K::mount)
            .or_else(|| other.map(O::mount).filter(|m| given.as_ref().is_none_or(|given| m.point == *given)));
        let mount = match (given, kept) {
            (None, None) => {
                let next = "give --mount DIR, and --source NID:/fsname if it is not mounted yet";
                return Err(Failure::unusable("gateway", "it needs a mount to serve", next).into());
            }
            (Some(given), Some(kept)) if given != kept.point => {
                let why = format!("it serves {}", kept.point.display());
                let next = format!("`stria gateway {} disable` first, or use another --base", K::NAME);
                return Err(Failure::failed(format!("{} gateway", K::NAME), why, next).into());
            }
            (_, Some(kept)) => kept.clone(),
            (Some(point), None) => Mount { point, source: None, options: vec![] },
        };
        words::check_point(&mount.point).map_err(|why| bad_word("mount", why))?;
        refuse_own_places(&mount.point, at)?;
        let mount = self.with_source(mount, kept.is_some(), at)?;
        mount.source.iter().try_for_each(|s| words::check_text(s)).map_err(|why| bad_word("source", why))?;
        mount
            .options
            .iter()
            .try_for_each(|o| words::check_text(o))
            .map_err(|why| bad_word("options", why))?;
        Ok(mount)
    }

    fn with_source(&self, mut mount: Mount, is_kept: bool, at: &Places) -> anyhow::Result<Mount> {
        let Some(source) = &self.source else { return Ok(mount) };
        let source = Source::parse(source).map_err(|why| bad_word("source", why))?.in_full();
        Options::new().apply_all(&self.options)?;
        if is_kept
            && mount.source.as_ref() == Some(&source)
            && (self.options.is_empty() || self.options == mount.options)
        {
            return Ok(mount);
        }
        let is_ours = at.mount_unit(&mount.point).exists();
        let there = mounts::at(&mount.point).filter(|m| m.fs_type == mounts::FS_TYPE);
        if is_kept || (there.is_some() && !is_ours) {
            let why = "it is served or mounted already, in another way";
            let next =
                "leave --source and -o out to serve it as it is, or disable the gateway and unmount it first";
            return Err(Failure::failed(mount.point.display(), why, next).into());
        }
        (mount.source, mount.options) = (Some(source), self.options.clone());
        Ok(mount)
    }

    fn server(&self, old: Option<&Server>, port: u16) -> anyhow::Result<Server> {
        let include = match &self.include {
            None => old.and_then(|o| o.include.clone()),
            Some(path) => {
                let path = super::super::absolute(path)?;
                words::check_point(&path).map_err(|why| bad_word("include", why))?;
                fs::File::open(&path).with_context(|| path.display().to_string())?;
                Some(path)
            }
        };
        let port = self.port.or(old.map(|o| o.port)).unwrap_or(port);
        Ok(Server { port, bind: self.bind.or(old.and_then(|o| o.bind)), include })
    }

    /// Checks before anything is written what the start of the server would refuse (cli-G1). `host::start` checks again.
    pub fn refuse_bad_start<K: Kind>(&self, old: Option<&K>, new: &K, at: &Places) -> Result<(), Failure> {
        let is_running = host::pid(at).is_some();
        let is_restarted = is_running && has_new_global::<K>(&config_of_before(at), &new.config(at));
        if is_restarted || (self.now && !is_running) {
            new.check_neighbours()?;
            // A running server itself listens on its port.
            if !is_running || old.is_none_or(|old| old.server().port != new.server().port) {
                host::refuse_taken_port(new, at)?;
            }
        }
        Ok(())
    }

    /// Steps 1 to 3 change nothing but the mount (cli-G1). `other` is the mount of the other gateway.
    pub fn enable<K: Kind>(
        &self,
        old: Option<K>,
        new: K,
        other: Option<&Mount>,
        at: &Places,
    ) -> anyhow::Result<Exit> {
        if new.entries().is_empty() {
            let next = format!("give --{}", K::ENTRY);
            return Err(Failure::unusable("gateway", "there is nothing to serve yet", next).into());
        }
        if self.dry_run {
            return print(&new, at);
        }
        // 1. The server's program.
        let program = host::program(&new)?;
        // 2. The services that the server needs, and its port.
        self.refuse_bad_start(old.as_ref(), &new, at)?;
        // 3. The mount, and each directory on it.
        let is_mounted_now = make_mount(&new, other, at)?;
        if let Err(e) = refuse_bad_directories(&new) {
            if is_mounted_now && old.is_none() && !is_shared(new.mount(), other) {
                mounted::unmake(new.mount(), at)?;
            }
            return Err(e);
        }
        // 4. The model first: the next `enable` makes whatever is missing after an interruption.
        keep(&new, at)?;
        apply(old.as_ref(), &new, at, &program, Start { now: self.now, is_mounted_now })?;
        status::list(Some(&new), at, false)?;
        match host::pid(at) {
            Some(pid) => {
                outln!("{} gateway: pid {pid} serves on port {}", K::NAME.to_uppercase(), new.server().port)
            }
            None => outln!("the server does not run yet: `stria gateway {} enable --now` starts it", K::NAME),
        }
        Ok(Exit::Done)
    }
}

/// `disable` deletes the gateway's own directories: a mount there would be in danger.
fn refuse_own_places(point: &Path, at: &Places) -> Result<(), Failure> {
    let kinds = [at.of(Nfs::NAME), at.of(Smb::NAME)];
    match kinds.iter().flat_map(|at| [at.run(), at.state()]).find(|own| point.starts_with(own)) {
        None => Ok(()),
        Some(own) => {
            let why = format!("the gateway keeps its own files in {}", own.display());
            Err(Failure::unusable(point.display(), why, "choose another mount point"))
        }
    }
}

#[derive(Clone, Copy)]
pub struct Start {
    /// Start the server if it does not run.
    pub now: bool,
    /// The mount is new, so the server holds files of the previous one.
    pub is_mounted_now: bool,
}

/// Writes the model.
pub fn keep<K: Kind>(new: &K, at: &Places) -> anyhow::Result<()> {
    let text = toml::to_string(new).context("the model as TOML")?;
    let head = format!("# Kept by `stria gateway {}`, which writes all else of it.", K::NAME);
    host::write(&at.kept(), &format!("{head}\n{text}")).map(drop)
}

/// Writes the files that derive from the model, and makes the server follow them.
pub fn apply<K: Kind>(
    old: Option<&K>,
    new: &K,
    at: &Places,
    program: &Path,
    start: Start,
) -> anyhow::Result<()> {
    host::prepare(at)?;
    let before = config_of_before(at);
    let text = new.config(at);
    host::write(&at.config(), &text)?;
    if host::write(&at.unit(), &units::server(new, at, program, &std::env::current_exe()?))?
        && host::has_systemd(at)
    {
        host::systemctl(&["daemon-reload"])?;
    }
    if host::has_systemd(at) {
        host::systemctl(&["enable", &at.unit_name()])?;
    }
    let Some(pid) = host::pid(at) else {
        if start.now {
            host::start(new, at, program)?;
        }
        return Ok(());
    };
    if has_new_global::<K>(&before, &text) || start.is_mounted_now || host::holds_an_earlier_mount(pid) {
        host::stop(at)?;
        host::start(new, at, program)?;
        return Ok(());
    }
    reload(old, new, at, program)
}

fn config_of_before(at: &Places) -> String {
    fs::read_to_string(at.config()).unwrap_or_default()
}

/// Whether that part of the configuration changes which the server reads only when it starts.
fn has_new_global<K: Kind>(before: &str, text: &str) -> bool {
    before.get(..K::ends_global(before)) != text.get(..K::ends_global(text))
}

/// Longest wait until a server serves by its new configuration; then it is restarted.
const RELOAD_MAX: Duration = Duration::from_secs(10);

fn reload<K: Kind>(old: Option<&K>, new: &K, at: &Places, program: &Path) -> anyhow::Result<()> {
    let now = new.entries();
    let is_other = |entry: &model::Entry| now.iter().all(|n| n != entry);
    let gone: Vec<String> =
        old.map(K::entries).unwrap_or_default().into_iter().filter(is_other).map(|e| e.name).collect();
    let reread = new.reload(at, &gone)?;
    let begin = Instant::now();
    while reread == model::Reread::Seen && begin.elapsed() < RELOAD_MAX {
        let all_there =
            new.served(at).is_ok_and(|served| !served.iter().any(|seen| matches!(seen, model::Seen::Not(_))));
        if all_there && !new.serves_more(at) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    // A restart reads the whole configuration. Without it, an export that was tightened might stay open.
    outln!("the server did not report that it serves by the new configuration: it is started anew");
    host::stop(at)?;
    host::start(new, at, program).map(drop)
}

/// Makes the mount if the gateway owns it. True if it was made now. `other` is the mount of the other gateway.
fn make_mount<K: Kind>(new: &K, other: Option<&Mount>, at: &Places) -> anyhow::Result<bool> {
    let mount = new.mount();
    let Some(source) = &mount.source else {
        mounted::refuse_unless_mounted(mount, K::NAME)?;
        return Ok(false);
    };
    if mounted::state(&mount.point) == mounted::State::Foreign {
        mounts::check_free(&mount.point)?;
    }
    host::write(&at.mount_unit(&mount.point), &units::mount(mount, source, &std::env::current_exe()?))?;
    let is_new = mounted::make(mount, source, at).inspect_err(|_| {
        // A failed first try leaves nothing behind. If the other gateway uses the mount, it has the same unit, which stays.
        if !at.kept().exists() && !is_shared(mount, other) {
            let _ = host::remove(&at.mount_unit(&mount.point));
        }
    })?;
    mounted::refuse_unless_mounted(mount, K::NAME)?;
    Ok(is_new)
}

/// Whether the other gateway serves this mount, too.
fn is_shared(mount: &Mount, other: Option<&Mount>) -> bool {
    other.is_some_and(|other| other.point == mount.point)
}

fn refuse_bad_directories<K: Kind>(new: &K) -> anyhow::Result<()> {
    for entry in new.entries() {
        mounted::check(&entry, &new.mount().point).map_err(|unfit| mounted::refusal::<K>(&entry, &unfit))?;
    }
    Ok(())
}

/// `--dry-run`.
fn print<K: Kind>(new: &K, at: &Places) -> anyhow::Result<Exit> {
    let program = host::program(new).unwrap_or_else(|_| Path::new("/usr/bin").join(K::daemon(at).program));
    let stria = std::env::current_exe()?;
    let unit = units::server(new, at, &program, &stria);
    let mut files = vec![(at.config(), new.config(at)), (at.unit(), unit)];
    if let Some(source) = &new.mount().source {
        let text = units::mount(new.mount(), source, &stria);
        files.push((at.mount_unit(&new.mount().point), text));
    }
    files.iter().for_each(|(path, text)| out!("==> {}\n{text}\n", path.display()));
    Ok(Exit::Done)
}
