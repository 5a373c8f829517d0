//! `stria id2path`, `stria path2id`: convert between the file ids of logs, damage lists and tools, and paths.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use types::Fid;
use wire::meta::{PathsOf, PathsOfReply};

use crate::cluster::Cluster;
use crate::exit::{Exit, Failure, line_of};
use crate::reach::{self, Reach};

/// Show the paths of files by their ids (inode numbers). A file with several links has several. Exit code 1 if an id has none.
#[derive(Debug, Args)]
#[command(
    override_usage = "stria id2path [OPTIONS] <MOUNT> <FID>...\n       stria id2path [OPTIONS] --dir <DIR> <FID>...",
    after_help = "Example: stria id2path /mnt/stria 0x10000000001a\nExample: stria id2path --dir /tmp/s -j 26 27"
)]
pub struct IdToPath {
    /// The directory of a running `stria up`; paths begin at the file system's root.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// End each path with a NUL byte instead of a newline, for names with newlines (xargs -0).
    #[arg(short = '0', long = "null", conflicts_with = "json")]
    nul: bool,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
    /// Without --dir first a path on the mount. Then ids: decimal, as ls -i shows them, or with 0x.
    #[arg(required = true, value_name = "MOUNT FID")]
    words: Vec<String>,
}

/// Show the ids of files: their inode numbers, as logs, damage lists and `stria id2path` have them. Symlinks are not followed.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria path2id /mnt/stria/data/run1\nExample: stria path2id -j /mnt/stria/*")]
pub struct PathToId {
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// One file in the JSON of either command.
#[derive(Debug, Serialize)]
struct Found {
    fid: String,
    /// Links of the file; more than paths if there are too many to be stored with the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    names: Option<u32>,
    paths: Vec<String>,
}

impl IdToPath {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        let (reach, root, words) = self.reach()?;
        let fids = words.iter().map(|w| fid_of(w)).collect::<Result<Vec<Fid>, Failure>>()?;
        let (mut all, mut exit) = (Vec::new(), Exit::Done);
        for fid in &fids {
            match paths_of(&reach, *fid) {
                Ok(reply) if self.json => all.push(found(*fid, &root, &reply)),
                Ok(reply) => self.print(*fid, &root, &reply, fids.len() > 1)?,
                Err(e) => {
                    eprintln!("stria: {}", line_of(&e));
                    exit = Exit::Findings;
                }
            }
        }
        if self.json {
            outln!("{}", serde_json::to_string_pretty(&all)?);
        }
        Ok(exit)
    }

    /// The connection to the MDT, the prefix of paths, and the ids.
    fn reach(&self) -> anyhow::Result<(Reach, PathBuf, &[String])> {
        if let Some(dir) = &self.dir {
            let dir = super::absolute(dir)?;
            let cluster = Cluster::existing(&dir)?;
            let reach = reach::through_socket(&dir, &cluster.fsname).map_err(|e| {
                let next = format!("start it with `stria up --dir {}`", crate::shell::path(&dir));
                Failure::unusable(dir.display(), format!("the cluster does not answer ({e:#})"), next)
            })?;
            return Ok((reach, PathBuf::from("/"), &self.words));
        }
        let (place, fids) = self.words.split_first().expect("clap asks for one at least");
        if fids.is_empty() {
            let next = "give a path on the mount, or --dir, and then ids: stria id2path /mnt/stria 0x1a";
            return Err(Failure::unusable("id2path", "no id was given", next).into());
        }
        let (point, source) = reach::mount_of(Path::new(place))?;
        Ok((Reach::by_nids(&source.nids, &source.fsname)?, point, fids))
    }

    fn print(&self, fid: Fid, root: &Path, reply: &PathsOfReply, has_many: bool) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        for path in &reply.paths {
            if has_many {
                write!(out, "{fid} ")?;
            }
            // Names are bytes and printed unchanged.
            out.write_all(below(root, &path.0).as_os_str().as_bytes())?;
            out.write_all(if self.nul { b"\0" } else { b"\n" })?;
        }
        out.flush()?;
        if (reply.paths.len() as u32) < reply.names {
            let known = reply.paths.len();
            eprintln!(
                "stria: file {fid}: {known} of its {} names are remembered with it; find -samefile finds the others",
                reply.names
            );
        }
        Ok(())
    }
}

impl PathToId {
    pub fn run(self) -> anyhow::Result<Exit> {
        let mut all = Vec::new();
        for path in &self.paths {
            let about = std::fs::symlink_metadata(path).with_context(|| path.display().to_string())?;
            // A symlink's own place counts, not its target.
            let place = match about.is_symlink() {
                true => super::absolute(path)?.parent().map(Path::to_path_buf).unwrap_or_default(),
                false => path.clone(),
            };
            reach::mount_of(&place)?;
            all.push((Fid(about.ino()), path));
        }
        if self.json {
            let json = |(fid, path): &(Fid, &PathBuf)| Found {
                fid: fid.to_string(),
                names: None,
                paths: vec![path.to_string_lossy().into_owned()],
            };
            outln!("{}", serde_json::to_string_pretty(&all.iter().map(json).collect::<Vec<_>>())?);
            return Ok(Exit::Done);
        }
        for (fid, path) in &all {
            match all.len() {
                1 => outln!("{fid}"),
                _ => outln!("{fid} {}", path.display()),
            }
        }
        Ok(Exit::Done)
    }
}

fn paths_of(reach: &Reach, fid: Fid) -> anyhow::Result<PathsOfReply> {
    let mirror = reach.map.mdt_of(reach.fs, fid).ok_or_else(|| no_such(fid))?;
    reach.ask(mirror.primary, &PathsOf { fid }).map_err(|e| {
        match e.downcast_ref::<types::Fault>().map(|f| f.code) {
            Some(types::Code::Stale) => no_such(fid).into(),
            _ => e.context(format!("file {fid}")),
        }
    })
}

fn no_such(fid: Fid) -> Failure {
    Failure::failed(
        format!("file {fid}"),
        "there is none of this id (any more)",
        "ids are those of ls -i, in decimal or with 0x, and are never used again",
    )
}

fn found(fid: Fid, root: &Path, reply: &PathsOfReply) -> Found {
    let text = |path: &wire::codec::Bytes| below(root, &path.0).to_string_lossy().into_owned();
    Found { fid: fid.to_string(), names: Some(reply.names), paths: reply.paths.iter().map(text).collect() }
}

/// A path of the file system, as the user sees it below `root`.
fn below(root: &Path, path: &[u8]) -> PathBuf {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    if path.is_empty() { root.to_path_buf() } else { root.join(OsStr::from_bytes(path)) }
}

fn fid_of(text: &str) -> Result<Fid, Failure> {
    let digits = text.trim_start_matches('[').trim_end_matches(']');
    let number = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    number.map(Fid).map_err(|_| {
        let next = "ids are inode numbers: decimal, as ls -i shows them, or with 0x";
        Failure::unusable(format!("'{text}'"), "it is no file id", next)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_people_write_them() {
        for text in ["0x1a", "0X1A", "26", "[0x1a]"] {
            assert_eq!(fid_of(text).unwrap(), Fid(26), "{text}");
        }
        for text in ["", "x", "0x", "-1", "1a", "0x1ffffffffffffffff"] {
            assert!(fid_of(text).is_err(), "{text}");
        }
        assert_eq!(fid_of(&Fid(0x0003_0000_0000_0042).to_string()).unwrap(), Fid(0x0003_0000_0000_0042));
    }

    #[test]
    fn paths_are_shown_below_the_mount() {
        let shown = |root, path: &[u8]| below(Path::new(root), path);
        assert_eq!(shown("/mnt/s", b"/a/b"), Path::new("/mnt/s/a/b"));
        assert_eq!(shown("/mnt/s", b"/"), Path::new("/mnt/s"));
        assert_eq!(shown("/", b"/a"), Path::new("/a"));
        assert_eq!(shown("/mnt/s", b"/\xff").as_os_str().as_bytes(), b"/mnt/s/\xff");
    }
}
