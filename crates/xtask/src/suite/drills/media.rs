//! Disks of servers that fail as a drill orders: a pass-through mount below the images of one host (`yardstick::faults`).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use fuse::MountOptions;
use testkit::hosts::Site;
use testkit::is_mounted;
use yardstick::faults::{Faults, done_of};
use yardstick::pass::Pass;

use super::super::semantics::wait_until;

/// The last request of a process that was killed has ended by then.
const AFTER_KILL: Duration = Duration::from_millis(200);
/// The folder of a host that is mounted through a `Medium`.
pub const FOLDER: &str = "medium";

/// `xtask faulty-disk`: shows a directory whose files fail as a control file orders.
#[derive(Args)]
pub struct Settings {
    source: PathBuf,
    mountpoint: PathBuf,
    control: PathBuf,
}

pub fn serve(settings: &Settings) -> Result<()> {
    let mut options = MountOptions::new("medium");
    options.subtype = "faulty".into();
    // Servers of one host do many things at once, and a slow disk holds a thread for each.
    options.threads = 16;
    let faults = Faults::by(settings.control.clone());
    let pass = Pass::new(&settings.source, options.clone(), false)?.with_faults(faults);
    yardstick::run(pass, &settings.mountpoint, &options)
}

/// The fault of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ill {
    /// Each operation takes so much longer.
    Slow(Duration),
    /// Reads and writes pass so many bytes per second.
    Capped(u64),
    /// No space for what is new.
    Full,
    /// Each read of the medium fails.
    Reads,
    Flushes,
}

impl Ill {
    fn order(self) -> String {
        match self {
            Ill::Slow(time) => format!("delay {}\n", time.as_millis()),
            Ill::Capped(bytes) => format!("rate {bytes}\n"),
            Ill::Full => "full\n".into(),
            Ill::Reads => format!("reads 0 {}\n", u64::MAX / 2),
            Ill::Flushes => "flushes\n".into(),
        }
    }
}

/// The mount below the images of a host, and its process.
pub struct Medium {
    host: String,
    child: Child,
    control: PathBuf,
}

impl Medium {
    /// Mounts it, before the host's servers start.
    pub fn mount(site: &Site, host: &str) -> Result<Medium> {
        let dir = site.host_dir(host);
        let (source, point, control) = (dir.join("below"), dir.join(FOLDER), dir.join("faults"));
        fs::create_dir(&source)?;
        let log = File::create(dir.join("faults.log"))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("faulty-disk").args([&source, &point, &control]).stdin(Stdio::null());
        let child = command.stdout(log.try_clone()?).stderr(log).spawn().context("start the medium")?;
        let medium = Medium { host: host.into(), child, control };
        wait_until("the medium is mounted", || Ok(is_mounted(&point)))?;
        Ok(medium)
    }

    pub fn host(&self) -> &str {
        &self.host
    }
    pub fn fall_ill(&self, ill: Ill) -> Result<()> {
        self.order(&ill.order())
    }
    pub fn heal(&self) -> Result<()> {
        self.order("")
    }

    /// From now on the power may fail: what no flush has made durable is remembered.
    pub fn can_lose_power(&self) -> Result<()> {
        self.order("volatile\n")
    }
    /// The power has failed: half of the pages that no flush has made durable are as they were before. No process uses the disk.
    pub fn lose_power(&self, seed: u64) -> Result<()> {
        // A request of a killed process may still be under way.
        std::thread::sleep(AFTER_KILL);
        self.order(&format!("lose {seed}\n"))
    }

    fn order(&self, text: &str) -> Result<()> {
        // Renamed, so that no half of it is read.
        let new = self.control.with_extension("new");
        fs::write(&new, text)?;
        fs::rename(&new, &self.control)?;
        wait_until("the medium does as it is told", || Ok(said(&self.control) == text))?;
        ensure!(said(&self.control) == text, "the medium answers {:?}", said(&self.control));
        Ok(())
    }
}

fn said(control: &Path) -> String {
    fs::read_to_string(done_of(control)).unwrap_or("nothing yet".into())
}

impl Drop for Medium {
    fn drop(&mut self) {
        // Servers that still wait for the disk get an error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
