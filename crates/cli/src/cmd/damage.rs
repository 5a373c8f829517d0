//! `stria damage`: known damage on the media, by path.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::{Args, Subcommand};
use serde::Serialize;
use types::Fid;
use wire::map::Target;
use wire::object::{DamageClear, DamageList};

use crate::cluster::Cluster;
use crate::exit::{Exit, Failure, unless_said};
use crate::reach::{self, Reach, Service};

/// List damaged files (checksum mismatches, missing objects, medium errors), or forget what is known of them.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: stria damage list --dir /tmp/s\nExample: stria damage clear /mnt/stria/file-restored-from-backup"
)]
pub struct Damage {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List known damage. Exit code 1 if there is any that was not repaired.
    #[command(after_help = "Example: stria damage list --dir /tmp/s -j")]
    List(Where),
    /// Forget damage records: of one file (PATH), or of all (--dir). Bytes that are still bad are found again when read.
    #[command(after_help = "Example: stria damage clear --dir /tmp/s")]
    Clear(Where),
}

/// Which file system, and how it is told.
#[derive(Debug, Args)]
pub struct Where {
    /// The directory of a running `stria up`.
    #[arg(long, conflicts_with_all = ["path", "mgs"], required_unless_present_any = ["path", "mgs"])]
    dir: Option<PathBuf>,
    /// The management service of servers that run, from wherever they are reached: NID[,NID...], with :/FSNAME if it has several.
    #[arg(long, value_name = "NID", value_parser = Service::parse, conflicts_with = "path")]
    mgs: Option<Service>,
    /// A path on a mount. The mount point: all of the file system. A file: only what concerns it, where single files are shown.
    path: Option<PathBuf>,
    /// JSON output.
    #[arg(short = 'j', long)]
    pub json: bool,
}

/// One line of the list.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    path: String,
    fid: String,
    object: String,
    /// Offset in the object in bytes; none for a part of the index.
    offset: Option<u64>,
    /// For a part of the index: offset on the OST's medium in bytes.
    medium_offset: Option<u64>,
    kind: &'static str,
    target: String,
    found_sec: u64,
    /// The page has its bytes again, from the other member of the mirror.
    pub is_repaired: bool,
}

impl Damage {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        match self.verb {
            Verb::List(place) => place.list(),
            Verb::Clear(place) => place.clear(),
        }
    }
}

impl Where {
    /// For a command whose line has another form.
    pub fn new(dir: Option<PathBuf>, mgs: Option<Service>, path: Option<PathBuf>) -> Where {
        Where { dir, mgs, path, json: false }
    }

    /// The cluster, and the file if one is meant.
    pub fn reach(&self) -> anyhow::Result<(Reach, Option<Fid>)> {
        if let Some(service) = &self.mgs {
            return Ok((service.reach()?, None));
        }
        match (&self.dir, &self.path) {
            (Some(dir), _) => {
                let dir = super::absolute(dir)?;
                let cluster = Cluster::existing(&dir)?;
                let reach = reach::through_socket(&dir, &cluster.fsname).map_err(|e| {
                    let next = format!("start it with `stria up --dir {}`", crate::shell::path(&dir));
                    let why = format!("the cluster does not answer ({e:#})");
                    unless_said(e, || Failure::unusable(dir.display(), why, next))
                })?;
                Ok((reach, None))
            }
            (None, Some(path)) => {
                let (point, source) = reach::mount_of(path)?;
                let about = std::fs::symlink_metadata(path).with_context(|| path.display().to_string())?;
                let fid = Fid(std::os::unix::fs::MetadataExt::ino(&about));
                let is_whole = super::absolute(path)? == point || fid == Fid::ROOT;
                Ok((Reach::by_nids(&source.nids, &source.fsname)?, (!is_whole).then_some(fid)))
            }
            (None, None) => {
                Err(Failure::unusable("damage", "no place was given", "give --dir, --mgs or a path").into())
            }
        }
    }

    /// As if these had been given; one of them is.
    pub fn of(dir: Option<PathBuf>, mgs: Option<Service>, path: Option<PathBuf>) -> Where {
        Where { dir, mgs, path, json: false }
    }

    /// The path on a mount, if one was given.
    pub fn path(&self) -> Option<&std::path::Path> {
        self.path.as_deref()
    }

    fn list(&self) -> anyhow::Result<Exit> {
        let (reach, fid) = self.reach()?;
        let mut lines = Vec::new();
        for (name, damage) in known(&reach)? {
            for d in damage.into_iter().filter(|d| fid.is_none_or(|f| f == d.object.fid)) {
                lines.push(line_of(reach.path_of(d.object.fid), &name, &d));
            }
        }
        sort(&mut lines);
        match self.json {
            true => outln!("{}", serde_json::to_string_pretty(&lines)?),
            false => print_lines(&lines),
        }
        Ok(if lines.iter().all(|l| l.is_repaired) { Exit::Done } else { Exit::Findings })
    }

    fn clear(&self) -> anyhow::Result<Exit> {
        let (reach, fid) = self.reach()?;
        let mut cleared = 0;
        for target in reach.targets().into_iter().filter(|t| !t.is_mdt) {
            let cap = reach.capability(SystemTime::now());
            reach.ask(target.id, &DamageClear { cap, fid: fid.unwrap_or(Fid(0)) })?;
            cleared += 1;
        }
        match self.json {
            true => outln!("{}", serde_json::json!({ "cleared_targets": cleared })),
            false => outln!("cleared on {cleared} OSTs"),
        }
        Ok(Exit::Done)
    }
}

/// The damage that each OST knows, by the OST's name.
fn known(reach: &Reach) -> Result<Vec<(String, Vec<wire::object::Damage>)>, Failure> {
    let osts: Vec<&Target> = reach.targets().into_iter().filter(|t| !t.is_mdt).collect();
    let answers = reach
        .ask_all(&osts, |ost| reach.ask(ost.id, &DamageList { cap: reach.capability(SystemTime::now()) }));
    let named = osts.iter().zip(answers).map(|(ost, answer)| {
        let name = mgmt::member_name(&reach.map, ost);
        match answer {
            Ok(reply) => Ok((name, reply.damage)),
            Err(e) => {
                let next = "the list would be incomplete; see `stria status`";
                Err(Failure::unusable(&name, format!("{e:#}"), next))
            }
        }
    });
    named.collect()
}

/// The first lines of the list, at most `max`, those that were not repaired before the others. Also how many there are, and how many of
/// these were not repaired. An MDT is asked for the path of each line, so a page bounds them.
pub(super) fn first(reach: &Reach, max: usize) -> Result<(Vec<Line>, usize, usize), Failure> {
    let mut all: Vec<(String, wire::object::Damage)> = known(reach)?
        .into_iter()
        .flat_map(|(name, damage)| damage.into_iter().map(move |d| (name.clone(), d)))
        .collect();
    all.sort_by_key(|(_, d)| d.is_repaired);
    let (count, bad) = (all.len(), all.iter().filter(|(_, d)| !d.is_repaired).count());
    let line = |(name, d): &(String, wire::object::Damage)| line_of(reach.path_of(d.object.fid), name, d);
    let mut lines: Vec<Line> = all.iter().take(max).map(line).collect();
    sort(&mut lines);
    lines.sort_by_key(|line| line.is_repaired);
    Ok((lines, count, bad))
}

fn sort(lines: &mut [Line]) {
    lines.sort_by(|a, b| {
        (&a.path, &a.object, a.offset, a.medium_offset).cmp(&(&b.path, &b.object, b.offset, b.medium_offset))
    });
}

/// A part of an OST's index.
const INDEX: u8 = store::DamageKind::Index as u8;
const INDEX_LOST: &str = "index lost: the extents of that object and of some hundred that follow it on that OST are unknown, and reading them fails; \
    copy away what can be read, format that OST anew, and restore the others from a backup";

fn line_of(path: String, target: &str, d: &wire::object::Damage) -> Line {
    let is_of_index = d.kind == INDEX;
    Line {
        path,
        fid: d.object.fid.to_string(),
        object: d.object.to_string(),
        offset: (!is_of_index).then_some(d.offset),
        medium_offset: is_of_index.then_some(d.offset),
        kind: kind_name(d.kind),
        target: target.to_owned(),
        found_sec: d.found_sec,
        is_repaired: d.is_repaired,
    }
}

fn kind_name(kind: u8) -> &'static str {
    match kind {
        1 => "checksum mismatch",
        2 => "object missing",
        3 => "medium error",
        INDEX => "index lost from here on",
        _ => "unknown to this version",
    }
}

fn print_lines(lines: &[Line]) {
    if lines.is_empty() {
        outln!("no damage known");
    }
    let now = SystemTime::now();
    for l in lines {
        outln!("{}", text_of(l, now));
    }
    if lines.iter().any(|l| l.kind == kind_name(INDEX)) {
        outln!("{INDEX_LOST}");
    }
}

fn text_of(l: &Line, now: SystemTime) -> String {
    let found = UNIX_EPOCH + Duration::from_secs(l.found_sec);
    let ago = ago(now.duration_since(found).map_or(0, |d| d.as_secs()));
    let place = match (l.offset, l.medium_offset) {
        (_, Some(offset)) => format!(", offset on the medium {offset}"),
        (Some(offset), None) => format!(", offset {offset}"),
        (None, None) => String::new(),
    };
    let Line { path, kind, target, object, .. } = l;
    let repaired = if l.is_repaired { ", repaired from the other member of the mirror" } else { "" };
    format!("{path}: {kind} on {target}, object {object}{place}, found {ago}{repaired}")
}

/// A past time for humans.
pub fn ago(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_on_the_medium_is_none_in_the_object() {
        let line_with = |kind, is_repaired| {
            let object = types::ObjectId { fid: Fid(0x20), ..types::ObjectId::default() };
            let d = wire::object::Damage { object, offset: 8192, kind, found_sec: 1000, is_repaired };
            line_of("/a".into(), "one-OST0000", &d)
        };
        let line = |kind| line_with(kind, false);
        let now = UNIX_EPOCH + Duration::from_secs(1030);
        let repaired = text_of(&line_with(1, true), now);
        assert!(
            repaired.ends_with(", found 30 s ago, repaired from the other member of the mirror"),
            "{repaired}"
        );
        let page = text_of(&line(1), now);
        assert!(page.starts_with("/a: checksum mismatch on one-OST0000, object "), "{page}");
        assert!(page.ends_with(", offset 8192, found 30 s ago"), "{page}");
        let leaf = text_of(&line(INDEX), now);
        assert!(leaf.ends_with(", offset on the medium 8192, found 30 s ago"), "{leaf}");
        let json = |kind| serde_json::to_value(line(kind)).unwrap();
        let offsets = |kind| (json(kind)["offset"].as_u64(), json(kind)["medium_offset"].as_u64());
        assert_eq!([offsets(1), offsets(INDEX)], [(Some(8192), None), (None, Some(8192))]);
    }
}
