//! The command line: one file per verb.

mod bench;
mod bundle;
mod changelog;
mod cluster;
mod completions;
mod damage;
mod dash;
mod df;
mod down;
mod du;
mod explain;
mod find;
mod fs;
mod fsck;
mod gateway;
mod getstripe;
mod guard;
mod ids;
mod index;
mod jobs;
mod lease;
mod lfs;
mod manage;
mod mds;
mod mdt;
mod measure;
mod mgs;
mod mirror;
mod mkfs;
mod mm;
mod mount;
mod net;
mod nodemap;
mod oss;
mod ost;
mod param;
mod remount;
mod route;
mod router;
mod scrub;
mod server;
mod setstripe;
mod status;
mod task;
mod up;
mod version;
mod whole;

pub use guard::Guard;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};

use crate::exit::{Exit, Failure};

const EXIT_CODES: &str = "\
Exit codes: 0 done and nothing wrong; 1 it failed, or it found something; 2 it could not be tried (usage, wrong directory).
Environment: STRIA_LOG filters log lines, as RUST_LOG does (STRIA_LOG=debug).
Example: stria up --dir /tmp/s --mount /mnt/s     (a file system on this machine; then: stria down --dir /tmp/s)
Example: stria help mount                         (the same as: stria mount --help)";

/// Stria: a parallel file system, wholly in user space.
#[derive(Debug, Parser)]
#[command(name = "stria", version, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Up(up::Up),
    Down(down::Down),
    Status(status::Status),
    Health(status::Health),
    Dash(dash::Dash),
    Df(df::Df),
    Du(du::Du),
    Find(find::Find),
    Index(index::Index),
    Setstripe(setstripe::SetStripe),
    Getstripe(getstripe::GetStripe),
    #[command(name = "id2path")]
    IdToPath(ids::IdToPath),
    #[command(name = "path2id")]
    PathToId(ids::PathToId),
    Fsck(fsck::Fsck),
    Damage(damage::Damage),
    Scrub(scrub::Scrub),
    Task(task::Task),
    GetParam(param::GetParam),
    SetParam(param::SetParam),
    ListParam(param::ListParam),
    Changelog(changelog::Changelog),
    Cluster(cluster::Cluster),
    Fs(fs::Fs),
    Target(manage::Target),
    Node(manage::Node),
    Mirror(mirror::Mirror),
    Server(server::Server),
    Nodemap(nodemap::Nodemap),
    Gateway(gateway::Gateway),
    Bench(bench::Bench),
    Jobstats(jobs::JobStats),
    Top(jobs::Top),
    Why(jobs::Why),
    Lease(lease::Lease),
    Lfs(lfs::Lfs),
    Mm(mm::Mm),
    Client(lease::Client),
    Waiters(lease::Waiters),
    Mdt(mdt::Mdt),
    Ost(ost::Ost),
    Net(net::Net),
    Ping(net::Ping),
    Route(route::Route),
    Mount(mount::Mount),
    Mkfs(mkfs::Mkfs),
    Mgs(mgs::Mgs),
    Mds(mds::Mds),
    Oss(oss::Oss),
    Router(router::Router),
    Completions(completions::Completions),
    Bundle(bundle::Bundle),
    Explain(explain::Explain),
    Version(version::Version),
}

impl Command {
    pub fn run(self) -> anyhow::Result<Exit> {
        match self {
            Command::Up(c) => c.run(),
            Command::Down(c) => c.run(),
            Command::Status(c) => c.run(),
            Command::Health(c) => c.run(),
            Command::Dash(c) => c.run(),
            Command::Df(c) => c.run(),
            Command::Du(c) => c.run(),
            Command::Find(c) => c.run(),
            Command::Index(c) => c.run(),
            Command::Setstripe(c) => c.run(),
            Command::Getstripe(c) => c.run(),
            Command::IdToPath(c) => c.run(),
            Command::PathToId(c) => c.run(),
            Command::Fsck(c) => c.run(),
            Command::Damage(c) => c.run(),
            Command::Scrub(c) => c.run(),
            Command::Task(c) => c.run(),
            Command::GetParam(c) => c.run(),
            Command::SetParam(c) => c.run(),
            Command::ListParam(c) => c.run(),
            Command::Changelog(c) => c.run(),
            Command::Cluster(c) => c.run(),
            Command::Fs(c) => c.run(),
            Command::Target(c) => c.run(),
            Command::Node(c) => c.run(),
            Command::Mirror(c) => c.run(),
            Command::Server(c) => c.run(),
            Command::Nodemap(c) => c.run(),
            Command::Gateway(c) => c.run(),
            Command::Bench(c) => c.run(),
            Command::Jobstats(c) => c.run(),
            Command::Top(c) => c.run(),
            Command::Why(c) => c.run(),
            Command::Lease(c) => c.run(),
            Command::Lfs(c) => c.run(),
            Command::Mm(c) => c.run(),
            Command::Client(c) => c.run(),
            Command::Waiters(c) => c.run(),
            Command::Mdt(c) => c.run(),
            Command::Ost(c) => c.run(),
            Command::Net(c) => c.run(),
            Command::Ping(c) => {
                crate::logs::start_for_tools();
                c.run()
            }
            Command::Route(c) => c.run(),
            Command::Router(c) => c.run(),
            Command::Mount(c) => c.run(),
            Command::Mkfs(c) => c.run(),
            Command::Mgs(c) => c.run(),
            Command::Mds(c) => c.run(),
            Command::Oss(c) => c.run(),
            Command::Completions(c) => c.run(),
            Command::Bundle(c) => c.run(),
            Command::Explain(c) => c.run(),
            Command::Version(c) => c.run(),
        }
    }
}

/// Names of the mount helper: mount(8) derives them from the type on its command line or in fstab.
const HELPERS: [&str; 2] = ["mount.stria", "mount.fuse.stria"];

/// The arguments in `stria`'s form. Under the name `lfs` they are those of `stria lfs`, and so on. Called by `mount -t stria` or `mount -t fuse.stria`, it converts those of the helper.
pub fn arguments(args: Vec<OsString>) -> Vec<OsString> {
    let called_as = args.first().map(PathBuf::from).and_then(|p| p.file_name().map(OsString::from));
    if called_as.as_ref().is_some_and(|name| name == "lfs") {
        let words = args.into_iter().skip(1);
        return ["stria", "lfs"].map(OsString::from).into_iter().chain(words).collect();
    }
    let name = called_as.as_ref().and_then(|name| name.to_str());
    if let Some(name) = name.filter(|name| mm::NAMES.contains(name)) {
        return mm::arguments(name, args.into_iter().skip(1));
    }
    if !called_as.is_some_and(|name| HELPERS.iter().any(|helper| name == *helper)) {
        return args;
    }
    // mount(8) passes these at any position. -f: everything but the mount itself. Without -v a helper prints nothing on success.
    let (mut is_fake, mut is_quiet) = (false, true);
    let mut ours: Vec<OsString> = vec!["stria".into(), "mount".into()];
    let mut given = args.into_iter().skip(1);
    while let Some(arg) = given.next() {
        match arg.to_str() {
            Some("-n" | "-s") => {}
            Some("-v") => is_quiet = false,
            Some("-f") => is_fake = true,
            // The type, which the name of the helper implies.
            Some("-t") => drop(given.next()),
            Some("-o") => {
                ours.push(arg);
                ours.extend(given.next());
            }
            _ => ours.push(arg),
        }
    }
    ours.extend(is_fake.then(|| "--fake".into()));
    ours.push("--helper".into());
    ours.extend(is_quiet.then(|| "--quiet".into()));
    ours
}

/// `--config FILE` and `--print-config` of the role commands.
#[derive(Debug, clap::Args)]
pub struct ConfigArgs {
    /// Configuration file (TOML); unknown keys are refused.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the effective configuration with defaults and comments, and end. Without --config: an example.
    #[arg(long)]
    pub print_config: bool,
}

impl ConfigArgs {
    /// Loads the configuration; `None` if it was only to be printed.
    fn load<C: crate::config::Config>(&self) -> anyhow::Result<Option<C>> {
        let config = match &self.config {
            Some(path) => crate::config::read(path)?,
            None if self.print_config => C::example(),
            None => {
                let next = "give --config FILE; --print-config shows one";
                return Err(Failure::unusable("configuration", "none was given", next).into());
            }
        };
        if self.print_config {
            out!("{}", C::print(&config));
            return Ok(None);
        }
        Ok(Some(config))
    }
}

/// An absolute path, without a call on it: it may lie on a dead mount.
fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    Ok(path.components().collect())
}

#[cfg(test)]
mod json;
#[cfg(test)]
mod manual;
#[cfg(test)]
mod tests;
