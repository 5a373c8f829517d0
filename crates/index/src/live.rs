//! The file system itself: its files through the mount, its changes through the `stria` command.

use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::SyncSender;

use anyhow::{Context, Result, bail};
use find::{Kind, Subject, Visitor};

use crate::NoMount;
use crate::change::{Line, Place, parse};
use crate::db::{Inode, Stripes};

pub struct Live {
    mount: PathBuf,
    /// The `stria` of this version.
    program: PathBuf,
}

/// A finding of a scan.
pub enum Seen {
    Entry {
        place: Place,
        inode: Box<Inode>,
    },
    /// An entry of which the attributes cannot be read.
    Unread {
        place: Place,
        ino: u64,
    },
    /// The place where the scan starts.
    Start(Box<Inode>),
    /// All entries of this directory were seen.
    Listed(u64),
}

struct Scan(Mutex<SyncSender<Seen>>);

fn inode_of(of: &dyn Subject) -> io::Result<Inode> {
    let (kind, stat) = (of.kind()?, of.stat()?);
    let striping = if kind == Kind::File { of.striping()? } else { None };
    let part = |s: &find::Striping| s.part_in_use().map(|part| (part.stripe_size, part.stripe_index));
    let striping = striping.map(|s| Stripes {
        count: s.count(),
        size: part(&s).map_or(0, |(size, _)| size),
        first: part(&s).and_then(|(_, first)| first),
        osts: s.osts_in_use().collect(),
        is_inline: s.is_inline(),
    });
    Ok(Inode { kind, stat, striping })
}

impl Scan {
    fn tell(&self, seen: Seen) -> io::Result<()> {
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.0.lock().map_err(|_| io::ErrorKind::BrokenPipe)?.send(seen).map_err(gone)
    }
}

impl Visitor for Scan {
    fn visit(&self, of: &impl Subject, _: &mut Vec<u8>) -> io::Result<bool> {
        let place = || Place { parent: of.parent(), name: of.name().to_vec() };
        match inode_of(of).map(Box::new) {
            Ok(inode) if of.depth() == 0 => self.tell(Seen::Start(inode)).map(|()| true),
            Ok(inode) => self.tell(Seen::Entry { place: place(), inode }).map(|()| true),
            Err(error) => {
                // A name that is gone has a change of its own.
                if of.depth() > 0 && error.kind() != io::ErrorKind::NotFound {
                    self.tell(Seen::Unread { place: place(), ino: of.ino()? })?;
                }
                Err(error)
            }
        }
    }

    fn listed(&self, directory: u64) {
        // The receiver has ended, so nothing of the scan is kept.
        let _ = self.tell(Seen::Listed(directory));
    }
}

impl Live {
    /// # Errors
    /// The path is no mount of Stria.
    pub fn at(mount: &Path) -> Result<Live> {
        let path = std::fs::canonicalize(mount).with_context(|| mount.display().to_string())?;
        let own = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("stria")));
        let program = own.filter(|own| own.exists()).unwrap_or_else(|| "stria".into());
        let live = Live { mount: path, program };
        live.identity()?;
        Ok(live)
    }

    pub fn mount(&self) -> &Path {
        &self.mount
    }

    /// The same for every mount of one file system, and another one for every other. The root's inode number stands before it.
    pub fn identity(&self) -> Result<(u64, String)> {
        let what = || self.mount.display().to_string();
        let value = find::Striping::of(&self.mount).with_context(what)?;
        let above = self.mount.parent().map(|above| rustix::fs::stat(above).map(|about| about.st_dev));
        let own = rustix::fs::stat(&self.mount).with_context(what)?.st_dev;
        if value.is_none() || above.is_some_and(|above| above.is_ok_and(|above| above == own)) {
            return Err(NoMount(self.mount.clone()).into());
        }
        let root = self.look(&self.mount)?;
        let born = root.stat.btime.context("the root has a time of birth")?;
        Ok((root.stat.ino, format!("{}.{:09}", born.sec, born.nsec)))
    }

    /// # Errors
    /// Those of `statx` and of the layout.
    pub fn look(&self, path: &Path) -> io::Result<Inode> {
        find::entry(path, inode_of)
    }

    /// Scans everything at and below `path`. Returns how many paths could not be read.
    pub fn scan(&self, path: &Path, to: SyncSender<Seen>) -> Result<u64> {
        let query = find::parse(&[path.as_os_str().to_owned()]).map_err(anyhow::Error::msg)?;
        let tell = |path: &Path, error: &io::Error| {
            // Its directory was moved or removed meanwhile, which the changelog tells.
            if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::BrokenPipe) {
                eprintln!("stria: {}: {error}", path.display());
            }
        };
        let scan = Scan(Mutex::new(to));
        Ok(find::visit(&query, &scan, |_| Ok(()), tell)?.errors)
    }

    fn changelog(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("changelog").args(words).arg(&self.mount).stdin(Stdio::null());
        command
    }

    /// The standard output of `stria changelog WORDS MOUNT`.
    fn ask(&self, words: &[&str]) -> Result<String> {
        let out = self.changelog(words).output().with_context(|| self.program.display().to_string())?;
        let said = String::from_utf8_lossy(&out.stderr);
        match out.status.success() {
            true => Ok(String::from_utf8(out.stdout)?),
            false => bail!("{}", said.trim().trim_start_matches("stria: ")),
        }
    }

    /// Registers a consumer. Changes behind the returned number are kept for it.
    pub fn register(&self, name: &str) -> Result<u64> {
        let text = self.ask(&["register", "--json", name])?;
        let value: serde_json::Value = serde_json::from_str(&text)?;
        value["after"].as_u64().context("stria changelog register: after")
    }

    pub fn deregister(&self, name: &str) -> Result<()> {
        self.ask(&["deregister", name]).map(drop)
    }

    pub fn acknowledge(&self, name: &str, upto: u64) -> Result<()> {
        self.ask(&["ack", name, &upto.to_string()]).map(drop)
    }

    /// False: an administrator has removed it, or the MDT was made anew.
    pub fn is_registered(&self, name: &str) -> Result<bool> {
        // Exit code 1: a consumer has lost changes.
        let out = self.changelog(&["list", "--json"]).output()?;
        let value: serde_json::Value = serde_json::from_slice(&out.stdout)
            .map_err(|_| anyhow::anyhow!("the changelog does not answer"))?;
        let consumers = value["consumers"].as_array().context("stria changelog list: consumers")?;
        Ok(consumers.iter().any(|consumer| consumer["name"] == name))
    }

    /// Gives all changes behind `after` to `take`, in pieces of up to `piece` lines.
    pub fn changes(
        &self,
        name: &str,
        after: u64,
        piece: usize,
        mut take: impl FnMut(&[Line]) -> Result<()>,
    ) -> Result<()> {
        let mut command = self.changelog(&["read", "--json", "--after", &after.to_string(), name]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("its output is a pipe")?;
        let mut lines = Vec::new();
        let mut has_lost = false;
        let give = || -> Result<()> {
            for line in BufReader::new(output).lines() {
                let line = line?;
                let line = parse(&line).with_context(|| format!("a line of the changelog: {line}"))?;
                has_lost |= matches!(line, Line::Lost { .. });
                lines.push(line);
                if lines.len() >= piece {
                    take(&lines)?;
                    lines.clear();
                }
            }
            if lines.is_empty() { Ok(()) } else { take(&lines) }
        };
        let given = give();
        // After an error the rest is not read, and the child ends by that.
        let out = child.wait_with_output()?;
        given?;
        if !out.status.success() && !has_lost {
            let said = String::from_utf8_lossy(&out.stderr);
            bail!("{}", said.trim().trim_start_matches("stria: "));
        }
        Ok(())
    }

    pub fn path(&self, below: &[Vec<u8>]) -> PathBuf {
        let mut path = self.mount.clone();
        path.extend(below.iter().map(|name| std::ffi::OsStr::from_bytes(name)));
        path
    }
}

#[cfg(test)]
mod tests {
    use find::Stat;

    use super::*;

    /// A file whose directory lists it, and whose attributes give this error.
    struct Broken(io::ErrorKind);

    impl Subject for Broken {
        fn path(&self) -> &[u8] {
            b"/m/bad"
        }
        fn name(&self) -> &[u8] {
            b"bad"
        }
        fn start_len(&self) -> usize {
            2
        }
        fn parent(&self) -> u64 {
            1
        }
        fn depth(&self) -> usize {
            1
        }
        fn ino(&self) -> io::Result<u64> {
            Ok(7)
        }
        fn kind(&self) -> io::Result<Kind> {
            Ok(Kind::File)
        }
        fn stat(&self) -> io::Result<Stat> {
            Err(self.0.into())
        }
        fn striping(&self) -> io::Result<Option<find::Striping>> {
            Err(self.0.into())
        }
        fn is_empty_directory(&self) -> io::Result<bool> {
            Err(self.0.into())
        }
        fn target(&self) -> io::Result<Vec<u8>> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_file_that_a_scan_cannot_read_is_kept_by_its_name() {
        let (to, seen) = std::sync::mpsc::sync_channel(4);
        let scan = Scan(Mutex::new(to));
        assert!(scan.visit(&Broken(io::ErrorKind::Other), &mut Vec::new()).is_err(), "the error is told");
        let Seen::Unread { place, ino } = seen.recv().expect("the name") else { panic!("it was not read") };
        assert_eq!((place.parent, &place.name[..], ino), (1, &b"bad"[..], 7));
        // A name that is gone has a change of its own.
        assert!(scan.visit(&Broken(io::ErrorKind::NotFound), &mut Vec::new()).is_err());
        drop(scan);
        assert!(seen.recv().is_err());
    }
}
