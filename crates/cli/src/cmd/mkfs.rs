//! `stria mkfs`: makes a target on a device, once, by hand; `stria oss` and `stria mds` then serve it without `--format`.
//!
//! Order: claim the device (no other process has it open, mounted or in a RAID) → examine its content → refuse, or plan → make → report.
//! cli-F1: nothing is written before all of that was checked; `--dry-run` ends there.
//! cli-F2: the content of a device is overwritten only with `--force`, and a device in use never.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use clap::{Args, Subcommand};
use disk::content::{self, Content};
use disk::{Disk, FileDisk, Format, Kind, Layout, LogMedium, Media, NewLog, Volume};
use serde::Serialize;
use store::{Engine, ObjectStore, SubBlock};
use types::size::human;
use types::{Fault, Size, Time, Uuid};

use crate::exit::{Exit, Failure};
use crate::serve::device::check_size;
use crate::serve::register::new_uuid;
use crate::serve::servers::new_mdt;

/// The bytes before the ring on a log's medium; see docs/formats/volume.md.
const LOG_HEAD_BYTES: u64 = 128 << 10;
/// Highest index that the management service accepts.
const INDEX_MAX: i64 = 65_534;

/// Make a target on a block device or in a file: an OST for `stria oss`, an MDT for `stria mds`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria mkfs mdt /dev/nvme0n1 --fsname demo
Example: stria mkfs ost /dev/nvme1n1 --fsname demo --index 0
What the device holds is kept: without --force a device that is not blank is refused, and it is said what is on it. A device that is
mounted, in a RAID or otherwise in use is refused also with --force.")]
pub struct Mkfs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make an object storage target: the log, two checkpoint slots, and all the rest for data.
    #[command(after_help = "\
Example: stria mkfs ost /dev/nvme1n1 --fsname demo --index 0 --dry-run    (what would be made, or why not)
Example: stria mkfs ost /srv/ost0.img --size 100G --fsname demo           (a sparse file)
Example: stria mkfs ost /dev/sdc --log-device /dev/nvme0n1p3 --fsname demo    (then also under `log_devices` of oss.toml)")]
    Ost(NewOst),
    /// Make a metadata target: a root directory, and the whole device for the log and two checkpoint slots.
    #[command(after_help = "Example: stria mkfs mdt /dev/nvme0n1 --fsname demo")]
    Mdt(New),
}

#[derive(Debug, Args)]
struct NewOst {
    #[command(flatten)]
    new: New,
    /// Give space out in fixed pieces of this size, as some other file systems do: a power of two, 4K to 8M. 4K: as large as each write
    /// needs. For comparisons: space promised to files may be short with fixed ones [default: 4K].
    #[arg(long, value_name = "SIZE", value_parser = sub_block)]
    sub_block: Option<SubBlock>,
    /// Keep the log on this device or file and nothing else: a faster one, for small writes and flushes.
    #[arg(long, value_name = "DEVICE")]
    log_device: Option<PathBuf>,
}

/// The size of a log on a separate device: all of the device, since it holds nothing else. But no more than the largest log on an OST's own
/// device, which a start reads in seconds.
fn log_bytes_on(device_bytes: u64) -> u64 {
    let room = device_bytes.saturating_sub(LOG_HEAD_BYTES) / 4096 * 4096;
    room.min(store::LOG_BYTES_MAX)
}

fn sub_block(text: &str) -> Result<SubBlock, String> {
    let size: Size = text.parse()?;
    SubBlock::of_bytes(size.0).ok_or_else(|| "give a power of two from 4K to 8M".into())
}

#[derive(Debug, Args)]
struct New {
    /// Block device or file.
    device: PathBuf,
    /// Name of the file system that it will belong to.
    #[arg(long, value_name = "NAME")]
    fsname: String,
    /// Its number among the file system's targets of its kind [default: the lowest free one when it registers]. A second member has that of
    /// the target that it doubles.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=INDEX_MAX))]
    index: Option<u32>,
    /// Size of the log [default: by the size of the device; with --log-device all of that, up to 256 MiB].
    #[arg(long, value_name = "SIZE")]
    log_size: Option<Size>,
    /// Make a sparse file of this size, where there is none yet.
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Overwrite what the device holds. It is lost.
    #[arg(long)]
    force: bool,
    /// Check everything, say what would be made, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
}

/// The log's device, opened.
struct NewLogDevice {
    disk: FileDisk,
    uuid: Uuid,
}

/// The target that was made, or would be.
#[derive(Debug, Serialize)]
pub(super) struct Made {
    kind: &'static str,
    device: PathBuf,
    fsname: String,
    index: Option<u32>,
    pub uuid: String,
    pub bytes: u64,
    log: Part,
    /// The device of the log, if it is a separate one.
    log_device: Option<PathBuf>,
    log_uuid: Option<String>,
    checkpoints: [Part; 2],
    data: Part,
    /// Only of an OST. The size of a page means: as large as each write needs.
    sub_block_bytes: Option<u64>,
    /// The former content of the device.
    overwritten: Option<String>,
    dry_run: bool,
}

#[derive(Debug, Serialize)]
struct Part {
    begin: u64,
    bytes: u64,
}

impl From<std::ops::Range<u64>> for Part {
    fn from(range: std::ops::Range<u64>) -> Part {
        Part { begin: range.start, bytes: range.end - range.start }
    }
}

impl Mkfs {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        // An MDT writes only log and checkpoints, so a separate log device would bring nothing.
        let (kind, new, name, sub_block, log_device) = match self.verb {
            Verb::Ost(NewOst { new, sub_block, log_device }) => {
                (Kind::Ost, new, "ost", sub_block, log_device)
            }
            Verb::Mdt(new) => (Kind::Mdt, new, "mdt", None, None),
        };
        let what = format!("mkfs {name} {}", new.device.display());
        let mut made = new.make(kind, &what, log_device.as_deref())?;
        made.sub_block_bytes = (kind == Kind::Ost).then(|| sub_block.unwrap_or_default().bytes());
        if let Some(sub_block) = sub_block.filter(|_| !new.dry_run) {
            set_sub_block(&new.device, log_device.as_deref(), sub_block).map_err(|e| {
                let next = "look at the medium (`dmesg`), or give another device";
                Failure::failed(
                    &what,
                    format!("the target is made, but its sub-block could not be set: {e:#}"),
                    next,
                )
            })?;
        }
        match new.json {
            true => outln!("{}", serde_json::to_string_pretty(&made)?),
            false => made.tell(),
        }
        Ok(Exit::Done)
    }
}

/// A device for another member of the mirror of this index. With `dry_run` all is checked and nothing is written.
pub(super) fn member(
    kind: Kind,
    (fsname, index): (&str, u32),
    device: &Path,
    size: Option<Size>,
    dry_run: bool,
) -> anyhow::Result<Made> {
    target(kind, (fsname, Some(index)), device, size, dry_run)
}

/// As `member`; without an index for a target of its own.
pub(super) fn target(
    kind: Kind,
    (fsname, index): (&str, Option<u32>),
    device: &Path,
    size: Option<Size>,
    dry_run: bool,
) -> anyhow::Result<Made> {
    let (fsname, device) = (fsname.to_owned(), device.to_owned());
    let new = New { device, fsname, index, log_size: None, size, force: false, dry_run, json: false };
    new.make(kind, &format!("make {}", new.device.display()), None)
}

impl New {
    fn make(&self, kind: Kind, what: &str, log_device: Option<&Path>) -> anyhow::Result<Made> {
        crate::config::check_fsname(&self.fsname)
            .map_err(|why| Failure::unusable(what, why, "give another --fsname"))?;
        // 1. Claim the device; nothing is made yet.
        let disk = self.claim(what)?;
        let bytes = disk.as_ref().map_or(self.size.map_or(0, |s| s.0), |d| d.size());
        check_size(Size(bytes)).map_err(|why| Failure::unusable(what, why, "give a larger one"))?;
        // 2. Examine its content.
        let mut overwritten: Vec<String> = Vec::new();
        if let Some(disk) = &disk {
            overwritten.extend(self.look(what, disk)?);
        }
        let log = log_device.map(|path| self.claim_log(what, path)).transpose()?;
        if let Some(log) = &log {
            let found = self.look(&format!("{what}: {}", log.disk.path().display()), &log.disk)?;
            overwritten.extend(found.map(|what| format!("{}: {what}", log.disk.path().display())));
        }
        // 3. Plan the layout.
        let uuid = new_uuid()?;
        let mut format = self.division(kind, uuid, bytes)?;
        let log_medium = log.as_ref().map(|l| LogMedium { uuid: l.uuid, bytes: l.disk.size() });
        if let (Some(medium), None) = (log_medium, self.log_size) {
            format.log_bytes = log_bytes_on(medium.bytes);
        }
        let layout = Volume::plan(bytes, log_medium, &format)
            .map_err(|e| Failure::unusable(what, e, "give another --log-size, or a larger device"))?;
        if !self.dry_run {
            // 4. Make it.
            match disk {
                Some(disk) => format_on(what, disk, log.as_ref(), &format, !overwritten.is_empty())?,
                None => self.format_new_file(what, log.as_ref(), &format, bytes, !overwritten.is_empty())?,
            }
        }
        let overwritten = (!overwritten.is_empty()).then(|| overwritten.join("; "));
        Ok(self.made(&format, layout, log_device, bytes, overwritten))
    }

    /// Opens the device exclusively; `None` for a file that is to be made.
    fn claim(&self, what: &str) -> Result<Option<FileDisk>, Failure> {
        match (FileDisk::open(&self.device), self.size) {
            (Ok(disk), Some(size)) if disk.size() != size.0 => {
                let why = format!("it is there already, with {} bytes", disk.size());
                Err(Failure::unusable(what, why, "leave --size out, or give another name"))
            }
            (Ok(disk), _) => Ok(Some(disk)),
            // A misspelt device must not become a file in /dev, which lies in memory.
            (Err(e), Some(_)) if e.kind() == io::ErrorKind::NotFound && self.device.starts_with("/dev") => {
                Err(Failure::unusable(what, "there is no such device", "correct the path (`lsblk`)"))
            }
            (Err(e), Some(_)) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            (Err(e), None) if e.kind() == io::ErrorKind::NotFound => {
                let next = "correct the path, or give --size to have it made as a sparse file";
                Err(Failure::unusable(what, "it does not exist", next))
            }
            (Err(e), _) => {
                let next = match e.kind() {
                    io::ErrorKind::ResourceBusy => "end what uses it first; --force does not change that",
                    io::ErrorKind::PermissionDenied => "do it as root, or as the owner",
                    _ => "give another device",
                };
                Err(Failure::unusable(what, e, next))
            }
        }
    }

    fn claim_log(&self, what: &str, path: &Path) -> anyhow::Result<NewLogDevice> {
        let disk = FileDisk::open(path).map_err(|e| {
            Failure::unusable(what, e, "give another --log-device, or end what uses this one")
        })?;
        Ok(NewLogDevice { disk, uuid: new_uuid()? })
    }

    /// The content that will be lost; an error unless `--force` allows that.
    fn look(&self, what: &str, disk: &FileDisk) -> anyhow::Result<Option<String>> {
        let found =
            content::look(disk).map_err(|e| Failure::failed(what, e, "look at the medium (`dmesg`)"))?;
        match found {
            Content::Blank => Ok(None),
            found if self.force => Ok(Some(found.to_string())),
            found => {
                let next = "give another device, or empty this one first (`rm` of a file, `blkdiscard -f`); `stria mkfs` with --force overwrites it";
                Err(Failure::unusable(what, format!("it holds: {found}"), next).into())
            }
        }
    }

    fn division(&self, kind: Kind, uuid: Uuid, bytes: u64) -> Result<Format, Fault> {
        let (index, log_bytes) = (self.index.unwrap_or(u32::MAX), self.log_size.map(|s| s.0));
        Ok(match kind {
            Kind::Ost => {
                let new = oss::FormatSpec::new(&self.fsname, uuid);
                oss::FormatSpec { index, log_bytes, ..new }.format(bytes)
            }
            Kind::Mdt => {
                let label = disk::Label { index, ..new_mdt(&self.fsname, uuid) };
                let spec = mds::FormatSpec::divided(label, bytes, log_bytes);
                Format {
                    label: spec.label,
                    log_bytes: spec.log_bytes,
                    checkpoint_bytes: spec.checkpoint_bytes,
                }
            }
        })
    }

    fn format_new_file(
        &self,
        what: &str,
        log: Option<&NewLogDevice>,
        format: &Format,
        bytes: u64,
        force: bool,
    ) -> anyhow::Result<()> {
        let disk = FileDisk::create(&self.device, bytes)
            .map_err(|e| Failure::failed(what, e, "check that its directory exists and may be written"))?;
        let done = format_on(what, disk, log, format, force);
        if done.is_err() {
            // Remove what the next try would refuse; report the first error.
            let _ = std::fs::remove_file(&self.device);
        }
        done
    }

    fn made(
        &self,
        format: &Format,
        layout: Layout,
        log_device: Option<&Path>,
        bytes: u64,
        overwritten: Option<String>,
    ) -> Made {
        let Layout { log_medium, log, slots, data } = layout;
        Made {
            kind: if format.label.kind == Kind::Mdt { "MDT" } else { "OST" },
            device: self.device.clone(),
            fsname: self.fsname.clone(),
            index: self.index,
            uuid: format.label.uuid.to_string(),
            bytes,
            log: log.into(),
            log_device: log_device.map(Path::to_owned),
            log_uuid: log_medium.map(|uuid| uuid.to_string()),
            checkpoints: slots.map(Part::from),
            data: data.into(),
            sub_block_bytes: None,
            overwritten,
            dry_run: self.dry_run,
        }
    }
}

/// Overwrites existing content only with `--force`; it then also clears places that the check for a blank medium does not read.
fn format_on(
    what: &str,
    disk: FileDisk,
    log: Option<&NewLogDevice>,
    format: &Format,
    force: bool,
) -> anyhow::Result<()> {
    let label = format.label.clone();
    let done = match label.kind {
        Kind::Ost => {
            let log = log.map(|l| NewLog { disk: &l.disk, uuid: l.uuid });
            Volume::format_on(&disk, log, format, force).map_err(Fault::from)
        }
        Kind::Mdt => {
            let Format { log_bytes, checkpoint_bytes, .. } = *format;
            let spec = mds::FormatSpec { label, log_bytes, checkpoint_bytes };
            mds::Mdt::format(Arc::new(disk), &spec, force, &mds::MetaRules, Time::from(SystemTime::now()))
        }
    };
    let next = "look at the medium (`dmesg`), or give another device";
    done.map_err(|e| Failure::failed(what, e.detail, next).into())
}

/// Stored in the first checkpoint.
fn set_sub_block(device: &Path, log_device: Option<&Path>, sub_block: SubBlock) -> anyhow::Result<()> {
    let open = |path: &Path| FileDisk::open(path).map(|disk| -> Arc<dyn Disk> { Arc::new(disk) });
    let store = Engine::open(Media { main: open(device)?, log: log_device.map(open).transpose()? })?;
    store.set_sub_block(sub_block)?;
    Ok(store.close()?)
}

impl Made {
    fn tell(&self) {
        let verb = if self.dry_run { "would make" } else { "made" };
        let index = self.index.map_or(" (index: the lowest free one)".into(), |i| format!(" {i}"));
        let Made { kind, fsname, .. } = self;
        let at = |p: &Part| format!("{} at {}", human(p.bytes), human(p.begin));
        outln!("{verb} {kind}{index} of file system '{fsname}' on {}", shown(&self.device, self.bytes));
        if let Some(what) = &self.overwritten {
            let lost = if self.dry_run { "to be lost" } else { "lost" };
            outln!("  {lost:<12} {what}");
        }
        if !self.dry_run {
            outln!("  uuid         {}", self.uuid);
        }
        match &self.log_device {
            Some(device) => outln!("  log          {} on {}", human(self.log.bytes), device.display()),
            None => outln!("  log          {}", at(&self.log)),
        }
        if let Some(uuid) = self.log_uuid.as_ref().filter(|_| !self.dry_run) {
            outln!("  log uuid     {uuid}");
        }
        outln!("  checkpoints  {}, {}", at(&self.checkpoints[0]), at(&self.checkpoints[1]));
        if self.kind == "OST" {
            outln!("  data         {}", at(&self.data));
            if let Some(n) = self.sub_block_bytes.filter(|n| *n > SubBlock::default().bytes()) {
                outln!("  sub-blocks   {}, fixed", human(n));
            }
        }
        if !self.dry_run {
            let (role, key) = match (self.kind, &self.log_device) {
                ("MDT", _) => ("mds", "device"),
                (_, None) => ("oss", "devices"),
                (_, Some(_)) => ("oss", "devices` and its log under `log_devices"),
            };
            outln!("next: name it under `{key}` of {role}.toml, then: stria {role} --config {role}.toml");
        }
    }
}

fn shown(device: &Path, bytes: u64) -> String {
    format!("{} ({})", device.display(), human(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_takes_what_its_own_device_has() {
        let mib = |n: u64| n << 20;
        let table = [(0, 0), (mib(1), mib(1) - LOG_HEAD_BYTES), (mib(64) + 700, mib(64) - LOG_HEAD_BYTES)];
        table.iter().for_each(|(device, log)| assert_eq!(log_bytes_on(*device), *log, "{device}"));
        assert_eq!((log_bytes_on(mib(256)) < mib(256), log_bytes_on(mib(9000))), (true, mib(256)));
    }
}
