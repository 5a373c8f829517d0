//! `stria lfs quota`: what a user or a group uses, in Lustre's lines. There are no limits, so they are 0; the use is counted by a walk.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use find::{Kind, Subject, Visitor};
use parking_lot::Mutex;
use types::size::human;

use crate::cmd::lfs::words::mounts_named;
use crate::exit::{Exit, Failure};

/// Show what a user or a group uses of a file system. Stria has no quotas: limits are shown as 0, and the use is counted by a walk, as `find` walks.
/// Values in brackets lack what could not be read.
#[derive(Debug, Parser)]
#[command(
    name = "stria lfs quota",
    disable_help_flag = true,
    after_help = "Example: stria lfs quota -u alice /mnt/stria
Exit codes: 0 it is shown; 1 something could not be read; 2 it could not be looked at."
)]
pub struct Quota {
    /// Of this user, by name or number.
    #[arg(short = 'u', long, value_name = "USER", conflicts_with = "group")]
    user: Option<String>,
    /// Of this group, by name or number.
    #[arg(short = 'g', long, value_name = "GROUP")]
    group: Option<String>,
    /// Sizes with units.
    #[arg(short = 'h', long = "human-readable")]
    human: bool,
    /// No header.
    #[arg(short = 'q')]
    quiet: bool,
    /// Accepted, since scripts give it: one line is all there is.
    #[arg(short = 'v')]
    _verbose: bool,
    /// The mount point, or a directory of which the use is wanted. Without it: each mount on this host.
    path: Option<PathBuf>,
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// The owner of files that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    User(u32),
    Group(u32),
}

/// Counts of a walk.
struct Usage {
    owner: Owner,
    /// Blocks of 512 bytes.
    blocks: AtomicU64,
    files: AtomicU64,
    /// Inodes with several names, which count once.
    linked: Mutex<HashSet<u64>>,
}

impl Visitor for Usage {
    fn visit(&self, of: &impl Subject, _: &mut Vec<u8>) -> io::Result<bool> {
        let stat = of.stat()?;
        let is_its = match self.owner {
            Owner::User(uid) => stat.uid == uid,
            Owner::Group(gid) => stat.gid == gid,
        };
        let is_linked = stat.nlink > 1 && of.kind()? != Kind::Directory;
        if is_its && (!is_linked || self.linked.lock().insert(stat.ino)) {
            self.blocks.fetch_add(stat.blocks, Ordering::Relaxed);
            self.files.fetch_add(1, Ordering::Relaxed);
        }
        Ok(false)
    }
}

impl Quota {
    pub fn run(self) -> anyhow::Result<Exit> {
        let refuse =
            |why: String| Failure::unusable("lfs quota", why, "give a name or a number that this host knows");
        let of_user =
            |word: &str| Ok::<_, Failure>(("usr", Owner::User(find::uid_of(word).map_err(refuse)?)));
        let of_group =
            |word: &str| Ok::<_, Failure>(("grp", Owner::Group(find::gid_of(word).map_err(refuse)?)));
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let names = find::Names::default();
        let wanted = match (&self.user, &self.group) {
            (Some(word), _) => vec![(of_user(word)?, word.clone())],
            (None, Some(word)) => vec![(of_group(word)?, word.clone())],
            (None, None) => vec![
                (("usr", Owner::User(uid)), names.user(uid).unwrap_or_else(|| uid.to_string())),
                (("grp", Owner::Group(gid)), names.group(gid).unwrap_or_else(|| gid.to_string())),
            ],
        };
        let paths = match &self.path {
            Some(path) => vec![path.clone()],
            None => mounts_named(None).into_iter().map(|(point, _)| point).collect(),
        };
        if paths.is_empty() {
            let why = "no Stria file system is mounted here";
            return Err(Failure::unusable("lfs quota", why, "give a directory").into());
        }
        let mut is_whole = true;
        for path in &paths {
            for ((kind, owner), word) in &wanted {
                let (blocks, files, errors) = count(path, *owner)?;
                is_whole &= errors == 0;
                out!("{}", self.text(path, (kind, *owner, word), (blocks, files), errors == 0));
            }
        }
        Ok(if is_whole { Exit::Done } else { Exit::Findings })
    }

    fn text(
        &self,
        path: &Path,
        (kind, owner, word): (&str, Owner, &str),
        (blocks, files): (u64, u64),
        is_whole: bool,
    ) -> String {
        let bytes = if self.human { human(blocks * 512) } else { blocks.div_ceil(2).to_string() };
        let [bytes, files] = [bytes, files.to_string()].map(|n| if is_whole { n } else { format!("[{n}]") });
        let row = |cells: [&str; 9]| {
            let [first, rest @ ..] = cells;
            format!("{first:>15}{}\n", rest.map(|cell| format!(" {cell:>7}")).concat())
        };
        let used = if self.human { "used" } else { "kbytes" };
        let path = path.display().to_string();
        let id = match owner {
            Owner::User(uid) => format!("uid {uid}"),
            Owner::Group(gid) => format!("gid {gid}"),
        };
        let head = match self.quiet {
            true => String::new(),
            false => {
                format!("Disk quotas for {kind} {word} ({id}):\n")
                    + &row([
                        "Filesystem",
                        used,
                        "quota",
                        "limit",
                        "grace",
                        "files",
                        "quota",
                        "limit",
                        "grace",
                    ])
            }
        };
        head + &row([&path, &bytes, "0", "0", "-", &files, "0", "0", "-"])
    }
}

/// Blocks, files, and paths that could not be read.
fn count(path: &Path, owner: Owner) -> anyhow::Result<(u64, u64, u64)> {
    // An absolute path is none of the words of an expression.
    let words = [crate::cmd::absolute(path)?.into_os_string()];
    let query = find::parse(&words).map_err(|why| Failure::unusable("lfs quota", why, "give a directory"))?;
    let usage =
        Usage { owner, blocks: AtomicU64::new(0), files: AtomicU64::new(0), linked: Mutex::default() };
    let tell = |path: &Path, error: &io::Error| eprintln!("stria: {}: {error}", path.display());
    let found = find::visit(&query, &usage, |_| Ok(()), tell)?;
    Ok((usage.blocks.into_inner(), usage.files.into_inner(), found.errors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_is_that_of_the_owner_and_names_of_one_inode_count_once() {
        let dir = std::env::temp_dir().join(format!("stria-quota-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("below")).unwrap();
        std::fs::write(dir.join("below/a"), vec![1; 100_000]).unwrap();
        std::fs::hard_link(dir.join("below/a"), dir.join("b")).unwrap();
        std::fs::File::open(dir.join("b")).unwrap().sync_all().unwrap();
        let quota = |words: &[&str]| Quota::parse_from([&["quota"], words].concat());
        let uid = rustix::process::getuid().as_raw();
        let (blocks, files, errors) = count(&dir, Owner::User(uid)).unwrap();
        // Two directories and a file.
        assert_eq!((files, errors), (3, 0));
        assert!(blocks * 512 >= 100_000, "{blocks}");
        assert_eq!(count(&dir, Owner::User(4_000_000_000)).unwrap(), (0, 0, 0));
        std::fs::remove_dir_all(&dir).unwrap();
        let text = quota(&["-u", "alice"]).text(&dir, ("usr", Owner::User(7), "alice"), (2001, 3), true);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0].join(" "), "Disk quotas for usr alice (uid 7):");
        assert_eq!(lines[1].join(" "), "Filesystem kbytes quota limit grace files quota limit grace");
        assert_eq!(lines[2][1..].join(" "), "1001 0 0 - 3 0 0 -");
        let part = quota(&["-q"]).text(&dir, ("grp", Owner::Group(7), "g"), (2, 3), false);
        assert_eq!(part.split_whitespace().skip(1).collect::<Vec<_>>().join(" "), "[1] 0 0 - [3] 0 0 -");
    }
}
