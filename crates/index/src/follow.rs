//! `run`: one scan, then the changelog.
//!
//! index-I3: the consumer is registered before the scan begins, and all changes behind that moment are applied after it. A name that
//! the scan saw too early or too late is put right by the change that made the difference.

use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use find::Kind;

use crate::Unusable;
use crate::change::{Line, Place};
use crate::db::{Db, State, Writer};
use crate::live::{Live, Seen};
use crate::say;

/// Pause between two looks at the changelog.
const PAUSE: Duration = Duration::from_secs(1);
/// The MDT keeps changes until they are acknowledged; each time takes a request.
const ACKNOWLEDGE: Duration = Duration::from_secs(5);
/// Changes of one commit.
const PIECE: usize = 5_000;
/// Entries of one commit of a scan.
const SCANNED: usize = 20_000;
/// Entries that wait for the database.
const AHEAD: usize = 4_096;

/// Makes or follows the index. Ends only with `once`.
pub fn run(path: &Path, mount: &Path, once: bool, rebuild: bool) -> Result<bool> {
    let _writer = Writer::of(path)?;
    let db = Db::open(path)?;
    let mut waiting = Waiting { once, told: String::new() };
    let live = loop {
        match Live::at(mount).and_then(|live| belongs(&db, &live, path).map(|()| live)) {
            Ok(live) => break live,
            Err(error) => waiting.on(error)?,
        }
        thread::sleep(PAUSE);
    };
    let follower = Follower { db, live };
    if rebuild {
        follower.begin_anew()?;
    }
    let mut acknowledged = Instant::now();
    loop {
        match follower.step() {
            Ok(()) => waiting.told.clear(),
            Err(error) => waiting.on(error)?,
        }
        if once || acknowledged.elapsed() >= ACKNOWLEDGE {
            acknowledged = Instant::now();
            let done = follower.acknowledge();
            if once {
                done?;
                return Ok(true);
            }
        }
        thread::sleep(PAUSE);
    }
}

/// The judge of errors of `run`: it waits while a server or the mount is away.
struct Waiting {
    once: bool,
    /// The line that was written last.
    told: String,
}

impl Waiting {
    /// One line says that it waits, not one each second.
    ///
    /// # Errors
    /// The error itself, if waiting would not help or is not wanted.
    fn on(&mut self, error: anyhow::Error) -> Result<()> {
        if self.once || error.is::<Unusable>() {
            return Err(error);
        }
        let text = format!("{error:#}");
        if text != self.told {
            eprintln!("stria: {text}; waiting for it");
        }
        self.told = text;
        Ok(())
    }
}

/// Prints how far an index is.
pub fn status(path: &Path, json: bool) -> Result<bool> {
    let db = Db::open_existing(path)?;
    let state = db.state()?;
    let is_complete = state == State::Following;
    let (files, stale, upto) = (db.count("entries")?, db.count("stale")?, db.number("upto")?.unwrap_or(0));
    let word = if is_complete { "following" } else { "scanning" };
    let mount = db.text("mount")?.unwrap_or_default();
    let consumer = db.text("consumer")?.unwrap_or_default();
    let (looked, old) = (db.number("looked_sec")?.unwrap_or(0), db.old(now_sec())?);
    match json {
        true => say(serde_json::json!({ "mount": mount, "state": word, "names": files, "change": upto,
            "unread": stale, "consumer": consumer, "looked_sec": looked, "old": old.is_some() }))?,
        false => {
            let ago = now_sec().saturating_sub(looked);
            say(format!("{mount}: {word}; {files} names, up to change {upto}, {stale} files to read again"))?;
            say(format!("consumer {consumer} of the changelog; the last look was {ago} s ago"))?;
        }
    }
    old.iter().for_each(|warning| eprintln!("stria: {warning}"));
    Ok(is_complete)
}

pub fn now_sec() -> u64 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}

/// The index is of this file system.
fn belongs(db: &Db, live: &Live, path: &Path) -> Result<()> {
    let (root, identity) = live.identity()?;
    match db.text("identity")? {
        Some(of) if of != identity => {
            let (path, mount) = (path.display(), live.mount().display());
            let why = format!(
                "{path}: it is the index of another file system than {mount}; give another file with --db"
            );
            return Err(Unusable(why).into());
        }
        _ => {}
    }
    db.set("identity", identity)?;
    db.set("root", root)?;
    db.set("mount", live.mount().display())
}

struct Follower {
    db: Db,
    live: Live,
}

impl Follower {
    /// Forgets everything, and registers a consumer for what comes.
    fn begin_anew(&self) -> Result<()> {
        if let Some(name) = self.db.text("consumer")? {
            // It may be gone already.
            let _ = self.live.deregister(&name);
        }
        self.db.clear()?;
        let mut bytes = [0; 4];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        let name = format!("index-{:08x}", u32::from_le_bytes(bytes));
        // The name first: a start after a kill right here can remove the consumer.
        self.db.set("consumer", &name)?;
        self.db.set("upto", "")?;
        self.db.set("upto", self.live.register(&name)?)
    }

    /// The file system of the index is mounted now.
    fn check_mount(&self) -> Result<()> {
        let (_, identity) = self.live.identity()?;
        match self.db.text("identity")? == Some(identity) {
            true => Ok(()),
            false => Err(Unusable("another file system is mounted there now".into()).into()),
        }
    }

    fn step(&self) -> Result<()> {
        self.check_mount()?;
        if self.db.number("upto")?.is_none() {
            self.begin_anew()?;
        }
        if self.db.state()? == State::Scanning {
            self.db.clear()?;
            self.scan(self.live.mount(), None)?;
            // A mount that ended meanwhile leaves an empty directory, which is no file system without files.
            self.check_mount()?;
            self.db.set("state", "following")?;
        }
        let name = self.db.text("consumer")?.context("a consumer")?;
        let upto = self.db.number("upto")?.context("a number")?;
        let mut lost = None;
        let read = self.live.changes(&name, upto, PIECE, |lines| {
            lost = lines.iter().find_map(|line| match line {
                Line::Lost { to } => Some(*to),
                Line::Change { .. } => None,
            });
            if lost.is_some() {
                anyhow::bail!("changes are lost, so everything is scanned anew");
            }
            self.db.commit(|| self.apply(lines))
        });
        if let Some(to) = lost {
            eprintln!(
                "stria: the index was too far behind and has lost changes up to {to}: everything is scanned anew"
            );
            return self.begin_anew();
        }
        if let Err(error) = read {
            if !self.live.is_registered(&name)? {
                eprintln!("stria: the consumer {name} is gone: everything is scanned anew");
                return self.begin_anew();
            }
            return Err(error);
        }
        self.db.commit(|| {
            self.settle()?;
            self.db.note_sums(now_sec() / 86_400)
        })?;
        self.db.set("looked_sec", now_sec())
    }

    fn acknowledge(&self) -> Result<()> {
        let (Some(name), Some(upto)) = (self.db.text("consumer")?, self.db.number("upto")?) else {
            return Ok(());
        };
        if self.db.number("acknowledged")? == Some(upto) {
            return Ok(());
        }
        self.live.acknowledge(&name, upto)?;
        self.db.set("acknowledged", upto)
    }

    fn apply(&self, lines: &[Line]) -> Result<()> {
        let mut upto = 0;
        for line in lines {
            if let Line::Change { number, ino, names } = line {
                self.db.apply(*ino, names)?;
                upto = *number;
            }
        }
        self.settle()?;
        self.db.set("upto", upto)
    }

    /// Reads what changes have named: attributes, and directories of which the entries are not known.
    fn settle(&self) -> Result<()> {
        let root = self.db.root()?;
        for ino in self.db.stale()? {
            self.refresh(ino, root)?;
        }
        for ino in self.db.unlisted()? {
            if let Some(path) = self.path_of(ino, root)? {
                self.scan(&path, Some(ino))?;
            }
        }
        Ok(())
    }

    fn refresh(&self, ino: u64, root: u64) -> Result<()> {
        let places = self.db.places_of(ino)?;
        if places.is_empty() && ino != root {
            return self.db.forget(ino);
        }
        let mut paths: Vec<PathBuf> =
            if ino == root { vec![self.live.mount().to_owned()] } else { Vec::new() };
        for place in &places {
            paths.extend(self.path_at(place, root)?);
        }
        // The name may stand for another file by now, or for none: changes behind these tell.
        let found =
            paths.iter().find_map(|path| self.live.look(path).ok().filter(|found| found.stat.ino == ino));
        found.map_or(Ok(()), |found| self.db.put_inode(&found))
    }

    /// None: a directory above has no name at this moment.
    fn path_of(&self, ino: u64, root: u64) -> Result<Option<PathBuf>> {
        if ino == root {
            return Ok(Some(self.live.mount().to_owned()));
        }
        match self.db.places_of(ino)?.first() {
            Some(place) => self.path_at(place, root),
            None => Ok(None),
        }
    }

    fn path_at(&self, place: &Place, root: u64) -> Result<Option<PathBuf>> {
        let mut names = vec![place.name.clone()];
        let mut at = place.parent;
        while at != root {
            // A loop can stand here between two changes of one exchange of directories.
            if names.len() > 4096 {
                return Ok(None);
            }
            let Some(above) = self.db.places_of(at)?.into_iter().next() else { return Ok(None) };
            names.push(above.name);
            at = above.parent;
        }
        names.reverse();
        Ok(Some(self.live.path(&names)))
    }

    /// Scans a directory. With `of` it is part of a commit, and must still be that directory.
    fn scan(&self, path: &Path, of: Option<u64>) -> Result<()> {
        let (to, seen) = sync_channel(AHEAD);
        let live = &self.live;
        thread::scope(|scope| {
            let scanning = scope.spawn(move || live.scan(path, to));
            let mut waiting = Vec::new();
            for one in &seen {
                if let (Seen::Start(inode), Some(of)) = (&one, of)
                    && inode.stat.ino != of
                {
                    break;
                }
                waiting.push(one);
                if waiting.len() >= SCANNED {
                    self.keep(std::mem::take(&mut waiting), of.is_some())?;
                }
            }
            drop(seen);
            self.keep(waiting, of.is_some())?;
            scanning.join().map_err(|_| anyhow::anyhow!("the scan panicked"))?.map(drop)
        })
    }

    fn keep(&self, seen: Vec<Seen>, is_in_commit: bool) -> Result<()> {
        let keep = || {
            for one in seen {
                match one {
                    Seen::Start(inode) => self.db.put_inode(&inode)?,
                    Seen::Entry { place, inode } => {
                        self.db.put_name(&place, inode.stat.ino)?;
                        self.db.put_inode(&inode)?;
                    }
                    Seen::Unread { place, ino } => {
                        self.db.put_name(&place, ino)?;
                        self.db.mark_stale(ino)?;
                    }
                    Seen::Listed(ino) => self.db.mark_listed(ino)?,
                }
            }
            Ok(())
        };
        if is_in_commit { keep() } else { self.db.commit(keep) }
    }
}

/// So that the numbers of `db::code` cannot change unseen: the index on a disk has them.
const _: () = assert!(matches!(Kind::ALL[1], (Kind::Directory, 'd')));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NoMount, code_of};

    #[test]
    fn a_mount_that_is_not_there_is_waited_for_unless_it_is_to_run_once() {
        let no_mount = || Live::at(Path::new("/proc")).map(drop).expect_err("/proc is no mount of Stria");
        assert!(no_mount().is::<NoMount>() && code_of(&no_mount()) == 2);
        let mut waiting = Waiting { once: false, told: String::new() };
        waiting.on(no_mount()).expect("it waits");
        assert!(waiting.told.contains("/proc: it is no mount of Stria"), "{}", waiting.told);
        let missing = Live::at(Path::new("/no/such/place")).map(drop).expect_err("no such place");
        waiting.on(missing).expect("the directory may be made later");
        let other = Unusable("another file system is mounted there now".into());
        assert!(waiting.on(other.into()).is_err(), "that one does not become this one");
        assert!(Waiting { once: true, told: String::new() }.on(no_mount()).is_err());
    }
}
