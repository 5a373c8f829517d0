//! The index: names in directories, and what `stat` and the layout tell of each file.
//!
//! index-I1: names, attributes and the number of the last applied change are committed together. So a stop at any moment loses no change, and
//! the next start reads those behind that number.
//!
//! index-I4: one process writes an index. A second one would apply changes behind which the first has read already.
//!
//! index-I5: only its owner reads an index. It has the names of all files, also of those below directories that are closed to others.
//!
//! index-I2: a file of which the attributes could not be read is kept in `stale` and read again, until it is read or has no name.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use find::{Kind, Stat};
use rusqlite::{Connection, OptionalExtension, Row, params};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use types::Time;

use crate::Unusable;
use crate::change::{Names, Place};

const FORM: u64 = 1;
/// Seconds after which an index that has not looked for changes is old. It looks each second; a scan of a moved tree takes longer.
const OLD_SEC: u64 = 60;
/// How long a command waits while another one commits.
const BUSY: Duration = Duration::from_secs(10);

const TABLES: &str = "
    CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE entries(id INTEGER PRIMARY KEY, parent INTEGER NOT NULL, name BLOB NOT NULL, ino INTEGER NOT NULL, UNIQUE(parent, name));
    CREATE INDEX entries_ino ON entries(ino);
    CREATE TABLE inodes(
        ino INTEGER PRIMARY KEY, kind INTEGER NOT NULL, mode INTEGER NOT NULL, nlink INTEGER NOT NULL, uid INTEGER NOT NULL,
        gid INTEGER NOT NULL, size INTEGER NOT NULL, blocks INTEGER NOT NULL, atime INTEGER NOT NULL, mtime INTEGER NOT NULL,
        ctime INTEGER NOT NULL, btime INTEGER, stripes INTEGER, stripe_size INTEGER, first_ost INTEGER, osts TEXT, inline INTEGER,
        listed INTEGER NOT NULL DEFAULT 0);
    CREATE INDEX inodes_size ON inodes(size);
    CREATE INDEX inodes_mtime ON inodes(mtime);
    CREATE INDEX inodes_uid ON inodes(uid);
    CREATE INDEX inodes_unlisted ON inodes(ino) WHERE kind = 1 AND listed = 0;
    CREATE TABLE stale(ino INTEGER PRIMARY KEY);
    CREATE TABLE made(ino INTEGER PRIMARY KEY);
    CREATE TABLE history(day INTEGER PRIMARY KEY, files INTEGER NOT NULL, bytes INTEGER NOT NULL);
    CREATE VIRTUAL TABLE names USING fts5(name, content='', contentless_delete=1, tokenize='trigram');
";

/// Attributes and striping of one file.
#[derive(Clone, Debug)]
pub struct Inode {
    pub kind: Kind,
    pub stat: Stat,
    pub striping: Option<Stripes>,
}

/// The part of a layout that searches ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stripes {
    pub count: u32,
    pub size: u32,
    pub first: Option<i64>,
    pub osts: Vec<u32>,
    pub is_inline: bool,
}

pub struct Db(Connection);

/// How far an index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The first scan is not complete.
    Scanning,
    Following,
}

impl Db {
    /// Opens an index for changes; a new one is empty.
    pub fn open(path: &Path) -> Result<Db> {
        private(path).with_context(|| path.display().to_string())?;
        let connection = Connection::open(path).with_context(|| path.display().to_string())?;
        let db = Db(connection);
        db.prepare().with_context(|| path.display().to_string())?;
        Ok(db)
    }

    fn prepare(&self) -> Result<()> {
        self.0.busy_timeout(BUSY)?;
        self.0.pragma_update(None, "journal_mode", "WAL")?;
        // A change is acknowledged after its commit, and the MDT drops it then.
        self.0.pragma_update(None, "synchronous", "FULL")?;
        let tables: i64 = self.0.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
        if tables == 0 {
            let begun = self.0.unchecked_transaction()?;
            begun.execute_batch(TABLES)?;
            begun.commit()?;
            self.set("form", FORM)?;
        }
        self.check_form()
    }

    /// Opens an index that is there, for reading.
    pub fn open_existing(path: &Path) -> Result<Db> {
        let what =
            || Unusable(format!("{}: there is no index; make it with `stria index run`", path.display()));
        if !path.exists() {
            return Err(what().into());
        }
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let connection =
            Connection::open_with_flags(path, flags).with_context(|| path.display().to_string())?;
        connection.busy_timeout(BUSY)?;
        let db = Db(connection);
        db.check_form().map_err(|_| what())?;
        Ok(db)
    }

    fn check_form(&self) -> Result<()> {
        match self.number("form")? {
            Some(FORM) => Ok(()),
            _ => Err(Unusable("the index is of another version: remove it, and make it anew".into()).into()),
        }
    }

    pub fn connection(&self) -> &Connection {
        &self.0
    }

    pub fn text(&self, key: &str) -> Result<Option<String>> {
        let found = self.0.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0));
        Ok(found.optional()?)
    }

    pub fn number(&self, key: &str) -> Result<Option<u64>> {
        Ok(self.text(key)?.and_then(|text| text.parse().ok()))
    }

    pub fn set(&self, key: &str, value: impl ToString) -> Result<()> {
        self.0.execute("INSERT OR REPLACE INTO meta VALUES (?1, ?2)", params![key, value.to_string()])?;
        Ok(())
    }

    pub fn state(&self) -> Result<State> {
        Ok(match self.text("state")?.as_deref() {
            Some("following") => State::Following,
            _ => State::Scanning,
        })
    }

    /// The warning of an index that has not looked for changes for a while. A first scan that goes on has a word of its own.
    pub fn old(&self, now_sec: u64) -> Result<Option<String>> {
        let looked = self.number("looked_sec")?;
        let ago = looked.map(|looked| now_sec.saturating_sub(looked)).filter(|ago| *ago > OLD_SEC);
        Ok(ago.map(|ago| {
            format!("the index has not looked for changes for {ago} s; see that `stria index run` runs")
        }))
    }

    pub fn root(&self) -> Result<u64> {
        self.number("root")?.context("the index has no root")
    }

    /// Forgets all files.
    pub fn clear(&self) -> Result<()> {
        Ok(self.0.execute_batch(
            "BEGIN; DELETE FROM entries; DELETE FROM inodes; DELETE FROM stale; DELETE FROM made; DELETE FROM names;
             INSERT OR REPLACE INTO meta VALUES ('state', 'scanning'); COMMIT;",
        )?)
    }

    /// All changes of `work`, or none.
    pub fn commit<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let begun = self.0.unchecked_transaction()?;
        let done = work()?;
        begun.commit()?;
        Ok(done)
    }

    /// A name stands for this file now.
    pub fn put_name(&self, place: &Place, ino: u64) -> Result<()> {
        if self.at(place)? == Some(ino) {
            return Ok(());
        }
        self.drop_name(place, None)?;
        let sql = "INSERT INTO entries(parent, name, ino) VALUES (?1, ?2, ?3)";
        self.0.prepare_cached(sql)?.execute(params![place.parent as i64, place.name, ino as i64])?;
        let id = self.0.last_insert_rowid();
        let text = String::from_utf8_lossy(&place.name);
        self.0
            .prepare_cached("INSERT INTO names(rowid, name) VALUES (?1, ?2)")?
            .execute(params![id, text])?;
        Ok(())
    }

    /// Removes a name; if `of` is given, only while it stands for that file.
    pub fn drop_name(&self, place: &Place, of: Option<u64>) -> Result<()> {
        let found = self
            .0
            .prepare_cached("SELECT id, ino FROM entries WHERE parent = ?1 AND name = ?2")?
            .query_row(params![place.parent as i64, place.name], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)? as u64))
            })
            .optional()?;
        let Some((id, ino)) = found.filter(|(_, ino)| of.is_none_or(|of| of == *ino)) else { return Ok(()) };
        self.0.prepare_cached("DELETE FROM entries WHERE id = ?1")?.execute([id])?;
        self.0.prepare_cached("DELETE FROM names WHERE rowid = ?1")?.execute([id])?;
        // Its attributes count its names.
        self.mark_stale(ino)
    }

    pub fn at(&self, place: &Place) -> Result<Option<u64>> {
        let mut found = self.0.prepare_cached("SELECT ino FROM entries WHERE parent = ?1 AND name = ?2")?;
        let ino = found.query_row(params![place.parent as i64, place.name], |row| row.get::<_, i64>(0));
        Ok(ino.optional()?.map(|ino| ino as u64))
    }

    pub fn places_of(&self, ino: u64) -> Result<Vec<Place>> {
        let mut found = self.0.prepare_cached("SELECT parent, name FROM entries WHERE ino = ?1")?;
        let places = found.query_map([ino as i64], |row| {
            Ok(Place { parent: row.get::<_, i64>(0)? as u64, name: row.get(1)? })
        })?;
        Ok(places.collect::<rusqlite::Result<_>>()?)
    }

    /// Applies a change to names. Attributes of the files that it names are read later.
    pub fn apply(&self, ino: u64, names: &Names) -> Result<()> {
        self.mark_stale(ino)?;
        let parent = |place: &Place| self.mark_stale(place.parent);
        match names {
            Names::Added(place) => {
                parent(place)?;
                self.put_name(place, ino)
            }
            Names::DirectoryMade(place) => {
                parent(place)?;
                self.put_name(place, ino)?;
                self.0.prepare_cached("INSERT OR IGNORE INTO made VALUES (?1)")?.execute([ino as i64])?;
                Ok(())
            }
            Names::Removed(place) => {
                parent(place)?;
                self.drop_name(place, Some(ino))
            }
            Names::Moved { from, to, exchanged, replaced } => {
                parent(from)?;
                parent(to)?;
                self.drop_name(from, Some(ino))?;
                self.put_name(to, ino)?;
                if let Some(other) = exchanged {
                    self.put_name(from, *other)?;
                    self.mark_stale(*other)?;
                }
                replaced.map_or(Ok(()), |other| self.mark_stale(other))
            }
            Names::Same => Ok(()),
        }
    }

    pub fn mark_stale(&self, ino: u64) -> Result<()> {
        self.0.prepare_cached("INSERT OR IGNORE INTO stale VALUES (?1)")?.execute([ino as i64])?;
        Ok(())
    }

    pub fn stale(&self) -> Result<Vec<u64>> {
        self.numbers("SELECT ino FROM stale")
    }

    fn numbers(&self, sql: &str) -> Result<Vec<u64>> {
        let mut found = self.0.prepare_cached(sql)?;
        let all = found.query_map([], |row| row.get::<_, i64>(0).map(|n| n as u64))?;
        Ok(all.collect::<rusqlite::Result<_>>()?)
    }

    /// Directories of which the index may miss entries: they were found and not read.
    pub fn unlisted(&self) -> Result<Vec<u64>> {
        self.numbers("SELECT ino FROM inodes WHERE kind = 1 AND listed = 0")
    }

    pub fn mark_listed(&self, ino: u64) -> Result<()> {
        self.0.prepare_cached("UPDATE inodes SET listed = 1 WHERE ino = ?1")?.execute([ino as i64])?;
        Ok(())
    }

    /// The file has no name any more.
    pub fn forget(&self, ino: u64) -> Result<()> {
        self.0.prepare_cached("DELETE FROM inodes WHERE ino = ?1")?.execute([ino as i64])?;
        self.0.prepare_cached("DELETE FROM stale WHERE ino = ?1")?.execute([ino as i64])?;
        self.0.prepare_cached("DELETE FROM made WHERE ino = ?1")?.execute([ino as i64])?;
        Ok(())
    }

    /// Attributes of a file that were read just now.
    pub fn put_inode(&self, inode: &Inode) -> Result<()> {
        let Inode { kind, stat, striping } = inode;
        let osts = striping.as_ref().map(|s| {
            // With commas around each, so that `,3,` is found as it is.
            let all: String = s.osts.iter().map(|ost| format!("{ost},")).collect();
            format!(",{all}")
        });
        let made = "SELECT 1 FROM made WHERE ino = ?1";
        let is_made = self.0.prepare_cached(made)?.exists([stat.ino as i64])?;
        let sql = "INSERT INTO inodes VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18)
            ON CONFLICT(ino) DO UPDATE SET kind=?2, mode=?3, nlink=?4, uid=?5, gid=?6, size=?7, blocks=?8, atime=?9, mtime=?10,
                ctime=?11, btime=?12, stripes=?13, stripe_size=?14, first_ost=?15, osts=?16, inline=?17, listed=max(listed, ?18)";
        self.0.prepare_cached(sql)?.execute(params![
            stat.ino as i64,
            code(*kind),
            stat.mode,
            stat.nlink as i64,
            stat.uid,
            stat.gid,
            stat.size as i64,
            stat.blocks as i64,
            nanos(stat.atime),
            nanos(stat.mtime),
            nanos(stat.ctime),
            stat.btime.map(nanos),
            striping.as_ref().map(|s| s.count),
            striping.as_ref().map(|s| s.size),
            striping.as_ref().and_then(|s| s.first),
            osts,
            striping.as_ref().map(|s| s.is_inline),
            is_made,
        ])?;
        self.0.prepare_cached("DELETE FROM stale WHERE ino = ?1")?.execute([stat.ino as i64])?;
        if is_made {
            self.0.prepare_cached("DELETE FROM made WHERE ino = ?1")?.execute([stat.ino as i64])?;
        }
        Ok(())
    }

    /// Notes the sums of a day since 1970, for the growth.
    pub fn note_sums(&self, day: u64) -> Result<()> {
        if self.number("noted")? == Some(day) {
            return Ok(());
        }
        let sql = "INSERT OR REPLACE INTO history SELECT ?1, count(*), coalesce(sum(size), 0) FROM inodes WHERE kind = ?2";
        self.0.execute(sql, [day as i64, code(Kind::File)])?;
        self.set("noted", day)
    }

    pub fn count(&self, table: &str) -> Result<u64> {
        let sql = format!("SELECT count(*) FROM {table}");
        Ok(self.0.query_row(&sql, [], |row| row.get::<_, i64>(0))? as u64)
    }
}

/// Opens a file that only its owner reads, and makes it if it is missing. SQLite gives its own files beside it the same mode.
fn private(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options().write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// The right to write an index, until it is dropped (index-I4).
pub struct Writer {
    _locked: File,
}

impl Writer {
    /// # Errors
    /// Another process writes this index.
    pub fn of(path: &Path) -> Result<Writer> {
        // Beside the index: a lock of its own file would end with any descriptor that SQLite closes.
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let file = private(Path::new(&name)).with_context(|| name.display().to_string())?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Writer { _locked: file }),
            Err(Errno::WOULDBLOCK) => {
                let path = path.display();
                Err(Unusable(format!("{path}: another `stria index run` writes it; end that one first"))
                    .into())
            }
            Err(other) => Err(other).with_context(|| name.display().to_string()),
        }
    }
}

/// Columns of `inodes`, as `inode_of` reads them.
pub const COLUMNS: &str = "i.ino, i.kind, i.mode, i.nlink, i.uid, i.gid, i.size, i.blocks, i.atime, i.mtime, i.ctime, i.btime, \
    i.stripes, i.stripe_size, i.first_ost, i.osts, i.inline";

/// The inode of a row that has `COLUMNS` from column `at` on.
pub fn inode_of(row: &Row<'_>, at: usize) -> rusqlite::Result<Inode> {
    let number = |n: usize| row.get::<_, i64>(at + n);
    let size = |n: usize| number(n).map(|value| value as u64);
    let count: Option<u32> = row.get(at + 12)?;
    let striping = match count {
        None => None,
        Some(count) => {
            let osts: String = row.get(at + 15)?;
            Some(Stripes {
                count,
                size: row.get(at + 13)?,
                first: row.get(at + 14)?,
                osts: osts.split(',').filter_map(|ost| ost.parse().ok()).collect(),
                is_inline: row.get(at + 16)?,
            })
        }
    };
    let stat = Stat {
        ino: size(0)?,
        mode: row.get(at + 2)?,
        nlink: size(3)?,
        uid: row.get(at + 4)?,
        gid: row.get(at + 5)?,
        size: size(6)?,
        blocks: size(7)?,
        atime: time(number(8)?),
        mtime: time(number(9)?),
        ctime: time(number(10)?),
        btime: row.get::<_, Option<i64>>(at + 11)?.map(time),
    };
    let kind = kind_of(number(1)?);
    Ok(Inode { kind, stat, striping })
}

/// Of `Kind::ALL`; a directory is 1.
pub fn code(kind: Kind) -> i64 {
    Kind::ALL.iter().position(|(own, _)| *own == kind).map_or(0, |at| at as i64)
}

fn kind_of(code: i64) -> Kind {
    usize::try_from(code).ok().and_then(|at| Kind::ALL.get(at)).map_or(Kind::File, |(kind, _)| *kind)
}

/// Nanoseconds since 1970; times that do not fit are at its bounds.
pub fn nanos(time: Time) -> i64 {
    let nanos = i128::from(time.sec) * 1_000_000_000 + i128::from(time.nsec);
    nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

fn time(nanos: i64) -> Time {
    Time::new(nanos.div_euclid(1_000_000_000), nanos.rem_euclid(1_000_000_000) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn empty() -> Db {
        let db = Db(Connection::open_in_memory().expect("memory"));
        db.prepare().expect("tables");
        db
    }

    fn place(parent: u64, name: &str) -> Place {
        Place { parent, name: name.into() }
    }

    #[test]
    fn names_follow_changes_in_their_order() {
        let db = empty();
        let (a, b) = (place(1, "a"), place(1, "b"));
        db.apply(10, &Names::Added(a.clone())).expect("added");
        db.apply(11, &Names::Added(b.clone())).expect("added");
        let moved = |from: &Place, to: &Place, exchanged, replaced| Names::Moved {
            from: from.clone(),
            to: to.clone(),
            exchanged,
            replaced,
        };
        db.apply(10, &moved(&a, &b, Some(11), None)).expect("exchanged");
        assert_eq!((db.at(&a).expect("a"), db.at(&b).expect("b")), (Some(11), Some(10)));
        db.apply(11, &moved(&a, &b, None, Some(10))).expect("replaced");
        assert_eq!((db.at(&a).expect("a"), db.at(&b).expect("b")), (None, Some(11)));
        // A removal of another file of that name came before, and is read late.
        db.apply(10, &Names::Removed(b.clone())).expect("passed over");
        assert_eq!(db.at(&b).expect("b"), Some(11));
        assert_eq!(db.stale().expect("stale"), [1, 10, 11]);
        assert_eq!(db.places_of(11).expect("places"), [b]);
    }

    #[test]
    fn all_of_a_commit_stands_or_nothing() {
        let db = empty();
        let failed: Result<()> = db.commit(|| {
            db.put_name(&place(1, "a"), 5)?;
            anyhow::bail!("the mount is gone")
        });
        assert!(failed.is_err());
        assert_eq!(db.at(&place(1, "a")).expect("a"), None);
    }

    #[test]
    fn an_index_is_old_a_minute_after_its_last_look() {
        let db = empty();
        assert_eq!(db.old(1_000_000).expect("a value"), None, "the first scan goes on");
        db.set("looked_sec", 1000).expect("set");
        let old = |now| db.old(now).expect("a value");
        assert_eq!((old(990), old(1000 + OLD_SEC)), (None, None));
        assert!(old(1100).is_some_and(|warning| warning.contains("for 100 s")));
    }

    #[test]
    fn only_its_owner_reads_an_index_and_one_process_writes_it() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("stria-index-{}", std::process::id()));
        let of = |end: &str| std::path::PathBuf::from(format!("{}{end}", path.display()));
        let writer = Writer::of(&path).expect("the first");
        let db = Db::open(&path).expect("opened");
        db.put_name(&place(1, "secret"), 5).expect("a name");
        for end in ["", "-wal", "-shm", ".lock"] {
            let mode = std::fs::metadata(of(end)).expect(end).permissions().mode();
            assert_eq!(mode & 0o077, 0, "{end}: {mode:o}");
        }
        assert!(Writer::of(&path).is_err_and(|error| error.is::<Unusable>()));
        drop(writer);
        assert!(Writer::of(&path).is_ok());
        drop(db);
        ["", "-wal", "-shm", ".lock"].iter().for_each(|end| drop(std::fs::remove_file(of(end))));
    }

    #[test]
    fn attributes_come_back_as_they_were() {
        let db = empty();
        let stat = Stat {
            ino: 1 << 40,
            mode: 0o644,
            nlink: 2,
            uid: 7,
            gid: 8,
            size: 5,
            blocks: 8,
            atime: Time::new(-1, 999_999_999),
            mtime: Time::new(1, 2),
            ctime: Time::new(3, 4),
            btime: None,
        };
        let stripes =
            Stripes { count: 2, size: 1 << 20, first: Some(3), osts: vec![3, 12], is_inline: false };
        let inode = Inode { kind: Kind::File, stat, striping: Some(stripes.clone()) };
        db.mark_stale(stat.ino).expect("marked");
        db.put_inode(&inode).expect("put");
        let sql = format!("SELECT {COLUMNS} FROM inodes i");
        let found = db.connection().query_row(&sql, [], |row| inode_of(row, 0)).expect("a row");
        assert_eq!(format!("{found:?}"), format!("{inode:?}"));
        assert_eq!(db.stale().expect("stale"), Vec::<u64>::new());
    }

    #[test]
    fn a_directory_that_a_change_made_is_complete_and_one_that_was_found_is_not() {
        let db = empty();
        let stat = |ino| Stat {
            ino,
            mode: 0o755,
            nlink: 2,
            uid: 0,
            gid: 0,
            size: 0,
            blocks: 0,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            btime: None,
        };
        let directory = |ino| Inode { kind: Kind::Directory, stat: stat(ino), striping: None };
        db.apply(20, &Names::DirectoryMade(place(1, "made"))).expect("made");
        db.put_inode(&directory(20)).expect("put");
        db.put_inode(&directory(21)).expect("put");
        assert_eq!(db.unlisted().expect("unlisted"), [21]);
        db.mark_listed(21).expect("marked");
        db.put_inode(&directory(21)).expect("put again");
        assert_eq!(db.unlisted().expect("unlisted"), Vec::<u64>::new());
    }
}
