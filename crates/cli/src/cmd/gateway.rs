//! `stria gateway`: NFS and SMB for clients without Stria, by NFS-Ganesha and Samba over a mount.
//!
//! The command owns the servers' configuration and units; no server of the file system knows of them. A model (`gateway/model.rs`) holds
//! what is served, and all generated texts derive from it.
//!
//! cli-G1: `enable` checks every word, package, path, port and needed service before it writes or starts anything. Only a mount with
//! `--source` is made before its directories can be checked; a refused first `enable` removes it again.
//! cli-G2: `enable` can be repeated at any time, also after Ctrl-C or a kill: it makes what is missing.

mod asking;
mod disable;
mod enable;
mod ganesha;
mod host;
mod model;
mod mounted;
mod places;
mod probe;
mod samba;
mod status;
mod units;
mod words;

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};

use crate::exit::{Exit, Failure};
use model::{Kind, Nfs, Smb};
use places::Places;

/// Serve a mounted file system to NFS and SMB clients, by NFS-Ganesha and Samba.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria gateway nfs enable --mount /mnt/stria --export /projects:hosts=10.0.0.0/8 --now
Example: stria gateway smb enable --mount /mnt/stria --share projects=/projects:users=@staff --now
Example: stria gateway nfs status
docs/gateways.md tells how each is set up, and what holds between its clients and those of Stria.")]
pub struct Gateway {
    #[command(subcommand)]
    kind: Protocol,
}

#[derive(Debug, Subcommand)]
enum Protocol {
    Nfs(NfsArgs),
    Smb(SmbArgs),
}

/// NFS 3 and 4 by NFS-Ganesha (packages nfs-ganesha, nfs-ganesha-vfs).
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria gateway nfs enable --mount /mnt/stria --export /projects:ro,hosts=10.0.0.0/8 --now
Example: stria gateway nfs list -j")]
struct NfsArgs {
    #[command(subcommand)]
    verb: NfsVerb,
}

#[derive(Debug, Subcommand)]
enum NfsVerb {
    Enable(NfsEnable),
    /// Stop the server and remove what `enable` made, or take single exports away.
    #[command(
        after_help = "Example: stria gateway nfs disable\nExample: stria gateway nfs disable --export /projects"
    )]
    Disable(NfsDisable),
    /// Show the exports.
    #[command(after_help = "Example: stria gateway nfs list -j")]
    List(Look),
    /// Say whether the server runs and serves each export, and what to do if not. Exit code 1 if something is wrong.
    #[command(after_help = "Example: stria gateway nfs status -j")]
    Status(Look),
    /// Check that the mount and each directory can be served. The unit of the server does it before each start.
    #[command(hide = true)]
    Check(Base),
}

/// SMB by Samba (packages samba, samba-vfs-modules).
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria gateway smb enable --mount /mnt/stria --share projects=/projects:users=@staff --now
Example: stria gateway smb list -j")]
struct SmbArgs {
    #[command(subcommand)]
    verb: SmbVerb,
}

#[derive(Debug, Subcommand)]
enum SmbVerb {
    Enable(SmbEnable),
    /// Stop the server and remove what `enable` made, or take single shares away.
    #[command(
        after_help = "Example: stria gateway smb disable\nExample: stria gateway smb disable --share projects"
    )]
    Disable(SmbDisable),
    /// Show the shares.
    #[command(after_help = "Example: stria gateway smb list -j")]
    List(Look),
    /// Say whether the server runs and serves each share, and what to do if not. Exit code 1 if something is wrong.
    #[command(after_help = "Example: stria gateway smb status -j")]
    Status(Look),
    /// Check that the mount and each directory can be served. The unit of the server does it before each start.
    #[command(hide = true)]
    Check(Base),
}

/// Write configuration and unit for the exports given and those of before, and with --now start the server.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria gateway nfs enable --mount /mnt/stria --export /projects:ro,squash=root,hosts=10.0.0.0/8 --now
Example: stria gateway nfs enable --export /scratch:hosts=10.0.0.0/8,hosts=login.site
Example: stria gateway nfs enable --mount /srv/stria --source 10.0.0.5@tcp:/stria --export / --now
Words of an export, separated by commas: ro, rw; squash=root (the default), all or none;
anonuid=N, anongid=N; hosts=ADDRESS, NETWORK/BITS, NAME, *.DOMAIN or @NETGROUP (again for more);
groups=server (the gateway looks up groups of users, of which clients tell 16).
An export that is there already is changed. A colon in a path is written with a backslash before it.
Without systemd, --now starts the server in the background; nothing starts it again after a reboot.")]
struct NfsEnable {
    /// Export this directory of the file system.
    #[arg(long = "export", value_name = "PATH[:WORD,...]")]
    exports: Vec<String>,
    /// Versions of NFS to serve [default: 3,4].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(3..=4))]
    protocols: Vec<u8>,
    /// How long a started server waits for locks and open files of before, and puts off what could go against them; 0: not at all [default: 90].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(0..=270))]
    grace: Option<u32>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct NfsDisable {
    /// Take only this export away; the others stay.
    #[arg(long = "export", value_name = "PATH", conflicts_with = "purge")]
    exports: Vec<String>,
    #[command(flatten)]
    away: Away,
}

/// Write configuration and unit for the shares given and those of before, and with --now start the server.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria gateway smb enable --mount /mnt/stria --share projects=/projects:users=@staff --now
Example: stria gateway smb enable --share scratch=/scratch:hosts=10.0.0.0/8,exclusive
Words of a share, separated by commas: ro, rw; hosts=ADDRESS, NETWORK/BITS or NAME (again for more);
users=NAME or @GROUP (again for more; without: every user that the gateway knows); guest (no
password); squash=USER (all is done as this user); exclusive (only SMB clients of this gateway use
the directory, so they may cache what they read and write).
A share that is there already is changed. A colon in a path is written with a backslash before it.
Users are made with: smbpasswd -c /etc/stria/gateway/smb.conf -a NAME
Without systemd, --now starts the server in the background; nothing starts it again after a reboot.")]
struct SmbEnable {
    /// Share this directory of the file system under this name.
    #[arg(long = "share", value_name = "NAME=PATH[:WORD,...]")]
    shares: Vec<String>,
    /// Name of the workgroup [default: WORKGROUP].
    #[arg(long, value_name = "NAME")]
    workgroup: Option<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct SmbDisable {
    /// Take only this share away; the others stay.
    #[arg(long = "share", value_name = "NAME", conflicts_with = "purge")]
    shares: Vec<String>,
    #[command(flatten)]
    away: Away,
}

#[derive(Debug, Args)]
struct Common {
    /// Mount point of the file system; the first time only.
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// Mount it from here (NID:/fsname), and keep it mounted while a gateway serves it.
    #[arg(long, value_name = "SOURCE", requires = "mount")]
    source: Option<String>,
    /// Mount options of --source, separated by commas.
    #[arg(short = 'o', value_name = "OPTIONS", requires = "source")]
    options: Vec<String>,
    /// Port to listen on.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Listen on this address only.
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// A file with lines of the server's own language, read beside what is written here.
    #[arg(long, value_name = "FILE")]
    include: Option<PathBuf>,
    /// Start the server, and return when it answers.
    #[arg(long)]
    now: bool,
    /// Show what would be written, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    base: Base,
}

#[derive(Debug, Args)]
struct Away {
    /// Remove what the server kept, too: accounts of SMB users, recovery records of NFS.
    #[arg(long)]
    purge: bool,
    #[command(flatten)]
    base: Base,
}

#[derive(Debug, Args)]
struct Look {
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
    #[command(flatten)]
    base: Base,
}

#[derive(Debug, Args)]
struct Base {
    /// Keep all files below this directory, and leave systemd alone: for a further gateway on one host.
    #[arg(long, value_name = "DIR", default_value = "/")]
    base: PathBuf,
}

impl Base {
    fn places<K: Kind>(&self) -> anyhow::Result<Places> {
        let base = super::absolute(&self.base)?;
        words::check_point(&base).map_err(|why| enable::bad_word("base", why))?;
        Ok(Places::new(&base, K::NAME))
    }
    fn check<K: Kind>(&self) -> anyhow::Result<Exit> {
        let kind = enabled::<K>(&self.places::<K>()?)?;
        mounted::refuse_unless_mounted(kind.mount(), K::NAME)?;
        mounted::check_before_start(&kind)?;
        Ok(Exit::Done)
    }
}

impl Gateway {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        match self.kind {
            Protocol::Nfs(nfs) => match nfs.verb {
                NfsVerb::Enable(c) => c.run(),
                NfsVerb::Disable(c) => c.run(),
                NfsVerb::List(c) => c.list::<Nfs>(),
                NfsVerb::Status(c) => c.status::<Nfs>(),
                NfsVerb::Check(c) => c.check::<Nfs>(),
            },
            Protocol::Smb(smb) => match smb.verb {
                SmbVerb::Enable(c) => c.run(),
                SmbVerb::Disable(c) => c.run(),
                SmbVerb::List(c) => c.list::<Smb>(),
                SmbVerb::Status(c) => c.status::<Smb>(),
                SmbVerb::Check(c) => c.check::<Smb>(),
            },
        }
    }
}

impl Look {
    fn list<K: Kind>(&self) -> anyhow::Result<Exit> {
        let at = self.base.places::<K>()?;
        status::list(read::<K>(&at)?.as_ref(), &at, self.json)
    }
    fn status<K: Kind>(&self) -> anyhow::Result<Exit> {
        let at = self.base.places::<K>()?;
        status::status(&enabled::<K>(&at)?, &at, self.json)
    }
}

fn refuse_unless_root() -> Result<(), Failure> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Failure::unusable("gateway", "only root can set up a gateway", "do it as root"))
}

/// The stored model, if the gateway is enabled.
fn read<K: Kind>(at: &Places) -> anyhow::Result<Option<K>> {
    let path = at.kept();
    let text = match fs::read_to_string(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.with_context(|| path.display().to_string())?,
    };
    toml::from_str(&text).map(Some).map_err(|e| {
        let why = format!("it was made by another version or edited: {}", e.message());
        let next = format!("restore it, or remove it and enable anew: `stria gateway {} enable`", K::NAME);
        Failure::unusable(path.display(), why, next).into()
    })
}

fn enabled<K: Kind>(at: &Places) -> anyhow::Result<K> {
    read::<K>(at)?.ok_or_else(|| {
        let next = "`stria gateway nfs enable --help`, or the same of smb, shows how it is set up";
        Failure::unusable(format!("{} gateway", K::NAME), "it is not enabled here", next).into()
    })
}

#[cfg(test)]
mod tests;
