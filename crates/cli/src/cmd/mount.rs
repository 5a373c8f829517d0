//! `stria mount`: a client that mounts a file system whose servers run elsewhere.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use crate::cmd::{ConfigArgs, remount};
use crate::detach::{self, Herald};
use crate::exit::{Exit, Failure};
use crate::nets::Nets;
use crate::options::Options;
use crate::reach::Source;
use crate::serve::mounted::check_point;
use crate::serve::role::{self, MountWish};
use crate::{config, logs, mountlog};

/// Mount a file system: NID:/fsname on a directory, or as a configuration file says.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria mount 10.0.0.5@tcp:/stria /mnt/stria -o ro
Example: stria mount --config mount.toml
Options (-o): ro, nosuid, nodev, noexec, noatime, nodiratime, sync, dirsync and their opposites,
allow_other, no_allow_other, max_read=BYTES, op_timeout=SECONDS, idmap (mounts of it may be idmapped;
the kernel alone then judges who may do what), noidmap, dead_after=SECONDS (silence after which a
server's host counts as dead, unless it accepts a new connection; 2 without it), and retry=MINUTES
(or retry=30s): how long it waits for servers that do not answer, 5 minutes without it; retry=0
tries once. write_behind=BYTES (64 MiB without it) bounds buffered writes that are on their way to the
servers; with 0 each write waits for them. net=tcp0 (a net that this host is on; may be repeated) and route=tcp1=10.0.0.9:7020@tcp0
(a router that leads to another net) are for hosts that reach servers by routers (docs/routers.md).
read_ahead=BYTES (4 MiB without it) is what the kernel reads ahead of a program, for each open file; only root may.
jobid_var tells how the job of a program is found for `stria jobstats` and `stria top`: auto (without it:
SLURM_JOB_ID, PBS_JOBID, LSB_JOBID, FLUX_JOB_ID or JOB_ID in its environment, else its name and user),
procname_uid, cgroup, disable, or the name of another variable.
flock and localflock change the mount of `stria up` only: with flock its locks hold among all mounts, as
those of other mounts always do; without, its kernel keeps them, and other mounts get none meanwhile.
Always so, and therefore taken without effect: acl, user_xattr, lazystatfs, _netdev and what else
mount(8) itself uses.
Refused, since nothing would come of them: noacl, nouser_xattr, noflock, strictatime, norelatime.
remount changes ro, nosuid, nodev, noexec, noatime, nodiratime, sync and dirsync while it is mounted;
what is not named stays as it is, and so do op_timeout and dead_after.
dead_after, jobid_var, op_timeout, read_ahead and write_behind are also parameters: `stria set-param -P`
keeps values for all mounts (docs/parameters.md). An option of a mount holds against a kept value.
As another user than root it needs fusermount3, and allow_other needs user_allow_other in
/etc/fuse.conf.
Unmount with umount, or by SIGHUP to the process; SIGTERM and SIGINT (Ctrl-C) unmount even if it
is in use.")]
pub struct Mount {
    /// NID[,NID...]:/fsname of the management service.
    #[arg(requires = "point", required_unless_present_any = ["config", "print_config"], conflicts_with = "config")]
    source: Option<String>,
    /// Directory to mount on; it must exist.
    point: Option<PathBuf>,
    /// Mount options, separated by commas.
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Check source and options, and mount nothing (`mount -f`).
    #[arg(long)]
    fake: bool,
    /// Called by mount(8).
    #[arg(long, hide = true)]
    helper: bool,
    /// Stay in the foreground (always so with --config).
    #[arg(long)]
    foreground: bool,
    /// Say nothing of a mount that went well, as mount(8) wants it of its helpers.
    #[arg(long, hide = true)]
    quiet: bool,
    /// In the background: words go to the waiting parent.
    #[arg(long, hide = true, requires = "foreground")]
    detached: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

impl Mount {
    pub fn run(self) -> anyhow::Result<Exit> {
        let (Some(source), Some(point)) = (&self.source, &self.point) else { return self.run_config() };
        if remount::is_asked(&self.options) && !self.fake {
            let others = if self.helper { remount::Unnamed::Go } else { remount::Unnamed::Stay };
            return remount::run(point, &self.options, others);
        }
        let wish = self.wish(source, point.clone())?;
        if self.fake {
            return Ok(Exit::Done);
        }
        if !self.foreground {
            return self.run_in_background(&wish);
        }
        if self.detached {
            detach::become_daemon()?;
        }
        self.serve(wish)
    }

    fn run_config(&self) -> anyhow::Result<Exit> {
        let Some(config) = self.config.load::<config::Mount>()? else { return Ok(Exit::Done) };
        let mut options = Options::new();
        options.op_timeout = config.op_timeout_sec.map(|seconds| Duration::from_secs(seconds.into()));
        options.nets = Nets::of(&config.nets, &config.routes)
            .map_err(|why| Failure::unusable("mount", why, "correct it in the configuration"))?;
        options.apply_all(&config.options)?;
        options.apply_all(&self.options)?;
        let source = Source::of(&config.mgs, &config.fsname)
            .map_err(|why| Failure::unusable("mgs", why, "correct it in the configuration"))?;
        if self.fake {
            return Ok(Exit::Done);
        }
        let (point, herald) = (super::absolute(&config.mountpoint)?, Herald::new(self.detached));
        self.serve(MountWish {
            source,
            point,
            options,
            tls: config.tls,
            metrics: config.metrics,
            calls: Arc::default(),
            herald,
        })
    }

    fn wish(&self, source: &str, point: PathBuf) -> anyhow::Result<MountWish> {
        let mut options = Options::new();
        options.apply_all(&self.options)?;
        let source = Source::parse(source)
            .map_err(|why| Failure::unusable("mount", why, "see `stria mount --help`"))?;
        let herald = Herald::new(self.detached);
        Ok(MountWish {
            source,
            point: super::absolute(&point)?,
            options,
            tls: None,
            metrics: None,
            calls: Arc::default(),
            herald,
        })
    }

    fn serve(&self, wish: MountWish) -> anyhow::Result<Exit> {
        logs::start_for_servers();
        let herald = wish.herald;
        let said = format!("mounted {} on {}", wish.source, wish.point.display());
        let result = role::mount(wish, || {
            herald.say(&said);
            herald.ready();
        });
        if let Err(err) = &result {
            herald.failed(err);
        }
        result
    }

    fn run_in_background(&self, wish: &MountWish) -> anyhow::Result<Exit> {
        let mut args: Vec<_> = ["mount", "--foreground", "--detached"].map(Into::into).to_vec();
        args.extend([wish.source.to_string().into(), wish.point.clone().into()]);
        for options in &self.options {
            args.extend(["-o".into(), options.into()]);
        }
        // Checked before its log is made and before the parent waits.
        check_point(&wish.point)?;
        let (log, path) = mountlog::open(&wish.point)?;
        let what = format!("mount {}", wish.source);
        if self.quiet {
            return detach::run_detached(&what, &args, log, &path, &mut std::io::sink());
        }
        let exit = detach::run_detached(&what, &args, log, &path, &mut std::io::stdout())?;
        Herald::Stdout.say(&format!("  log        {}", path.display()));
        Ok(exit)
    }
}
