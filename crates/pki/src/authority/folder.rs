//! Files of the CA directory, written all or none.
//!
//! A plan is stored in `pending.json` first; that commits it. Then each file is replaced by a temporary file and rename. A command that
//! finds `pending.json` carries it out again: each file is written whole, so that twice is as good as once.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::AuthorityError;

const LOCK: &str = "lock";
const PENDING: &str = "pending.json";
const SECRET: u32 = 0o600;
const PUBLIC: u32 = 0o644;
/// Largest file that is read, so that a wrong one does not fill the memory: 50,000 nodes' folders in a plan.
const FILE_BYTES_MAX: u64 = 512 << 20;

/// Files that one command writes.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    files: Vec<Planned>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Planned {
    path: PathBuf,
    mode: u32,
    text: String,
}

impl Plan {
    pub fn write(&mut self, path: PathBuf, text: String) {
        self.files.push(Planned { path, mode: PUBLIC, text });
    }
    /// Only the owner may read it.
    pub fn write_secret(&mut self, path: PathBuf, text: String) {
        self.files.push(Planned { path, mode: SECRET, text });
    }
}

/// The directory, locked until dropped.
#[derive(Debug)]
pub struct Folder {
    dir: PathBuf,
    _lock: File,
    /// For tests: steps until the command is killed.
    pub(super) steps_left: std::cell::Cell<Option<u64>>,
}

impl Folder {
    /// Opens the directory, and makes it if need be.
    pub fn make(dir: &Path) -> Result<Folder, AuthorityError> {
        make_dir(dir).map_err(|e| io_error("making", dir, e))?;
        Folder::open(dir)
    }

    /// Opens the directory, and completes what a killed command has begun.
    pub fn open(dir: &Path) -> Result<Folder, AuthorityError> {
        if !dir.is_dir() {
            return Err(AuthorityError::None { dir: dir.to_owned() });
        }
        let folder = Folder::open_without_completion(dir)?;
        if let Some(text) = folder.read(PENDING)? {
            let plan: Plan =
                serde_json::from_str(&text).map_err(|e| folder.damaged(PENDING, e.to_string()))?;
            folder.apply(&plan)?;
        }
        Ok(folder)
    }

    pub(super) fn open_without_completion(dir: &Path) -> Result<Folder, AuthorityError> {
        let lock = lock(dir)?;
        Ok(Folder { dir: dir.to_owned(), _lock: lock, steps_left: std::cell::Cell::new(None) })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// `None` if there is no such file.
    pub fn read(&self, name: &str) -> Result<Option<String>, AuthorityError> {
        let path = self.dir.join(name);
        let file = match File::open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|e| io_error("reading", &path, e))?,
        };
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|e| io_error("reading", &path, e))?;
        Ok(Some(text))
    }

    pub fn must_read(&self, name: &str) -> Result<String, AuthorityError> {
        self.read(name)?.ok_or_else(|| self.damaged(name, "it is missing".into()))
    }

    /// Refuses a key that other users may read, as ssh does.
    pub fn refuse_open(&self, name: &str) -> Result<(), AuthorityError> {
        let path = self.dir.join(name);
        match fs::metadata(&path) {
            Ok(meta) if meta.permissions().mode() & 0o077 != 0 => {
                Err(AuthorityError::OpenKey { path, mode: meta.permissions().mode() & 0o777 })
            }
            _ => Ok(()),
        }
    }

    pub fn damaged(&self, name: &str, why: String) -> AuthorityError {
        AuthorityError::Damaged { path: self.dir.join(name), why }
    }

    /// Writes all files of the plan, or none.
    pub fn carry_out(&self, plan: &Plan) -> Result<(), AuthorityError> {
        let text = serde_json::to_string(plan).expect("a plan has no maps");
        // 1. Commit.
        self.replace(Path::new(PENDING), SECRET, text.as_bytes())?;
        // 2. Carry out.
        self.apply(plan)
    }

    pub(super) fn apply(&self, plan: &Plan) -> Result<(), AuthorityError> {
        for Planned { path, mode, text } in &plan.files {
            self.replace(path, *mode, text.as_bytes())?;
        }
        let pending = self.dir.join(PENDING);
        self.step(&pending)?;
        fs::remove_file(&pending).map_err(|e| io_error("removing", &pending, e))?;
        self.step(&self.dir)?;
        sync_dir(&self.dir)
    }

    /// After a crash the file has the old or the new bytes.
    fn replace(&self, path: &Path, mode: u32, bytes: &[u8]) -> Result<(), AuthorityError> {
        let path = self.dir.join(path);
        let parent = path.parent().unwrap_or(&self.dir);
        self.step(parent)?;
        make_dir(parent).map_err(|e| io_error("making", parent, e))?;
        let mut temporary = path.clone().into_os_string();
        temporary.push(".tmp");
        let temporary = PathBuf::from(temporary);
        let failed = |e| io_error("writing", &temporary, e);
        self.step(&temporary)?;
        // A remnant may have another mode, which opening would not change.
        match fs::remove_file(&temporary) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        let mut file =
            File::options().write(true).create_new(true).mode(mode).open(&temporary).map_err(failed)?;
        let (first, second) = bytes.split_at(bytes.len() / 2);
        file.write_all(first).map_err(failed)?;
        self.step(&temporary)?;
        file.write_all(second).and_then(|()| file.sync_all()).map_err(failed)?;
        self.step(&path)?;
        fs::rename(&temporary, &path).map_err(|e| io_error("renaming a new file to", &path, e))?;
        self.step(&path)?;
        // Without this the rename itself may be lost with the power.
        sync_dir(parent)
    }

    /// Where a test may kill the command.
    fn step(&self, path: &Path) -> Result<(), AuthorityError> {
        match self.steps_left.get() {
            Some(0) => Err(io_error("writing", path, io::Error::other("killed"))),
            left => {
                self.steps_left.set(left.map(|n| n - 1));
                Ok(())
            }
        }
    }
}

fn make_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    dir.parent().map_or(Ok(()), |parent| match parent.as_os_str().is_empty() {
        true => Ok(()),
        false => File::open(parent)?.sync_all(),
    })
}

fn sync_dir(dir: &Path) -> Result<(), AuthorityError> {
    File::open(dir).and_then(|d| d.sync_all()).map_err(|e| io_error("flushing", dir, e))
}

fn io_error(doing: &'static str, path: &Path, source: io::Error) -> AuthorityError {
    AuthorityError::Io { doing, path: path.to_owned(), source }
}

fn lock(dir: &Path) -> Result<File, AuthorityError> {
    let path = dir.join(LOCK);
    let file = File::options().create(true).truncate(false).write(true).mode(SECRET).open(&path);
    let file = file.map_err(|e| io_error("opening", &path, e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(AuthorityError::InUse { dir: dir.to_owned() }),
        Err(TryLockError::Error(e)) => Err(io_error("locking", &path, e)),
    }
}
