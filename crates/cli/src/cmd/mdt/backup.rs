//! `stria mdt backup` and `stria mdt restore`: write all records of one state of an MDT to a file, and make an MDT from such a file.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use clap::Args;
use disk::FileDisk;
use mds::backup::{Stream, read_head};
use serde::Serialize;
use types::Size;
use wire::check::CopyOut;
use wire::codec::Bytes;

use crate::cmd::whole::{self, At};
use crate::exit::{Exit, Failure};
use crate::reach::{Reach, Service};
use crate::serve::device::check_size;
use crate::serve::local::Media;

/// Write all records of the MDT as they are now to a file, while it serves or while it is stopped. Objects are not in it.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria mdt backup --dir /tmp/s /backup/mdt.stria
Example: stria mdt backup --mount /mnt/stria /backup/mdt.stria    (as root, on a host that reaches the management service)")]
pub struct Backup {
    /// The directory that `stria up` was given.
    #[arg(long, conflicts_with_all = ["mount", "mgs"], required_unless_present_any = ["mount", "mgs"])]
    dir: Option<PathBuf>,
    /// The management service of servers that run, in place of --dir: NID[,NID...], with :/FSNAME if it has several.
    #[arg(long, value_name = "NID", value_parser = Service::parse, conflicts_with = "mount")]
    mgs: Option<Service>,
    /// A path on a mount, in place of --dir.
    #[arg(long, value_name = "PATH")]
    mount: Option<PathBuf>,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
    /// The file that is written; it must not be there yet.
    file: PathBuf,
}

/// Make an MDT from a backup, in the place of one that is lost. What came after the backup is not in it: see `stria fsck` afterwards.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria mdt restore /backup/mdt.stria /dev/nvme0n1
Example: stria mdt restore /backup/mdt.stria /tmp/s/mdt0000.img --force    (of a stopped `stria up --dir /tmp/s`)
Unmount everywhere first. The device gets the name and numbers that the MDT had, so start it where that one was.")]
pub struct Restore {
    /// The file that `stria mdt backup` wrote.
    file: PathBuf,
    /// Block device or file.
    device: PathBuf,
    /// Make a sparse file of this size, where there is none yet.
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Overwrite what the device holds. It is lost.
    #[arg(long)]
    force: bool,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Written {
    file: String,
    records: u64,
}

#[derive(Debug, Serialize)]
struct Restored {
    device: String,
    fsname: String,
    index: u32,
    /// The last change in the backup.
    entry: u64,
    records: u64,
    sessions_ended: u64,
}

impl Backup {
    pub fn run(self) -> anyhow::Result<Exit> {
        let what = format!("mdt backup {}", self.file.display());
        if self.file.exists() {
            return Err(
                Failure::unusable(what, "it is there already", "give another name, or remove it").into()
            );
        }
        // Under another name until it is complete and durable.
        let part = self.file.with_added_extension("part");
        let failed = |e: &dyn std::fmt::Display| {
            Failure::failed(
                &what,
                format!("{e:#}"),
                "look at `stria status`, and at the free space for the file",
            )
        };
        let job = &mut |reach: &Reach, _: &'static str| write_to(reach, &part);
        let at = At::of(self.dir.as_deref(), self.mgs.as_ref(), self.mount.as_deref());
        let copied = whole::with_cluster(at, Media::Scratch, job);
        let records = match copied {
            Ok(records) => records,
            Err(e) => {
                // The partial file is useless; it may not exist at all.
                drop(fs::remove_file(&part));
                return Err(failed(&e).into());
            }
        };
        fs::rename(&part, &self.file).and_then(|()| sync_dir_of(&self.file)).map_err(|e| failed(&e))?;
        let file = self.file.to_string_lossy().into_owned();
        match self.json {
            true => outln!("{}", serde_json::to_string_pretty(&Written { file, records })?),
            false => outln!("{file}: {records} records"),
        }
        Ok(Exit::Done)
    }
}

fn write_to(reach: &Reach, path: &Path) -> anyhow::Result<u64> {
    let mdts = reach.mdts();
    let mdt = mdts.first().ok_or_else(|| anyhow::anyhow!("the file system has no MDT"))?;
    let cap = reach.capability(SystemTime::now());
    let ask = |run, after| reach.ask(mdt.id, &CopyOut { cap: cap.clone(), run, after });
    let mut reply = ask(0, Bytes::default())?;
    let head = reply.head.take().ok_or_else(|| anyhow::anyhow!("the MDT does not name its file system"))?;
    let mut out = BufWriter::new(File::create(path)?);
    let (mut stream, mut records) = (Stream::begin(&head, &mut out)?, 0);
    loop {
        reply.records.iter().try_for_each(|record| stream.record(record))?;
        records += reply.records.len() as u64;
        if reply.done {
            break;
        }
        let last = reply.records.last().map(|record| record.key.clone()).unwrap_or_default();
        reply = ask(reply.run, last)?;
    }
    stream.finish()?;
    out.flush()?;
    out.get_ref().sync_all()?;
    Ok(records)
}

fn sync_dir_of(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}

impl Restore {
    pub fn run(self) -> anyhow::Result<Exit> {
        let what = format!("mdt restore {}", self.device.display());
        let from = File::open(&self.file).map_err(|e| {
            Failure::unusable(&what, format!("{}: {e}", self.file.display()), "correct the path")
        })?;
        let mut input = BufReader::new(from);
        let head = read_head(&mut input)
            .map_err(|e| Failure::unusable(&what, e, "give what `stria mdt backup` wrote"))?;
        let disk = self.open(&what)?;
        let settings = mds::Settings::default();
        let restored = mds::Mdt::restore(Arc::new(disk), &head, None, self.force, &mut input, settings)
            .map_err(|e| {
                Failure::failed(
                    &what,
                    e,
                    "give a device that is blank, or --force; it must hold twice the records",
                )
            })?;
        let made = Restored {
            device: self.device.to_string_lossy().into_owned(),
            fsname: head.fs_name,
            index: head.index,
            entry: head.seq.0,
            records: restored.records,
            sessions_ended: restored.sessions_ended as u64,
        };
        if self.json {
            outln!("{}", serde_json::to_string_pretty(&made)?);
            return Ok(Exit::Done);
        }
        let Restored { device, fsname, index, entry, records, sessions_ended } = made;
        outln!(
            "{device}: MDT {index} of {fsname} as of its entry {entry}, {records} records; {sessions_ended} sessions were ended. \
             Start it, then run `stria fsck`"
        );
        Ok(Exit::Done)
    }

    fn open(&self, what: &str) -> anyhow::Result<FileDisk> {
        match (FileDisk::open(&self.device), self.size) {
            (Ok(disk), _) => Ok(disk),
            (Err(e), Some(size))
                if e.kind() == io::ErrorKind::NotFound && !self.device.starts_with("/dev") =>
            {
                check_size(size).map_err(|why| Failure::unusable(what, why, "give a larger one"))?;
                Ok(FileDisk::create(&self.device, size.0).map_err(|e| {
                    Failure::failed(what, e, "check that its directory exists and may be written")
                })?)
            }
            (Err(e), _) => {
                let next =
                    "correct the path, end what uses it, or give --size to have it made as a sparse file";
                Err(Failure::unusable(what, e, next).into())
            }
        }
    }
}
