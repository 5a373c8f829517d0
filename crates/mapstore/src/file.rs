//! The map in a directory: two copies, `map.a` and `map.b`.
//!
//! A change goes to one copy by a temporary file, fsync, rename and fsync of the directory; that commits it. Then it goes to
//! the other copy in the same way. A crash at any point therefore leaves a whole copy of the old or the new map, and a copy that
//! is damaged later has a twin. Opening makes the copies equal again.
//!
//! mapstore-F1: a change needs no new space. The temporary file changes places with the copy that it replaces, and each of the three keeps space
//! for a larger map. So a full disk below the targets too does not keep a mirror from going on without a member.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{CWD, FallocateFlags, RenameFlags, fallocate, renameat_with};
use rustix::io::Errno;
use wire::map::ClusterMap;

use crate::form::{FORM_VERSION, Unreadable, decode, encode};
use crate::{MapStore, StoreError};

/// The order in which copies are written and read.
const COPIES: [&str; 2] = ["map.a", "map.b"];
const TEMPORARY: &str = "map.tmp";
const LOCK: &str = "lock";
/// Least space of each file.
const RESERVED_BYTES_MIN: u64 = 256 << 10;
/// Largest file that is read: twice the largest map that a frame can carry, so that a wrong file does not fill the memory.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// The store in one directory, held by a lock until dropped.
#[derive(Debug)]
pub struct FileStore {
    dir: PathBuf,
    state: Mutex<State>,
    _lock: Lock,
}

/// The lock of a directory, released when dropped.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a child that another thread has just forked shares the open file until it calls exec.
        // A failure changes nothing: the kernel releases the lock with the last descriptor.
        let _ = self.0.unlock();
    }
}

#[derive(Debug)]
struct State {
    map: ClusterMap,
    /// A change failed half way: the files must be read again before the map is used.
    is_doubtful: bool,
    warning: Option<String>,
}

/// The content of one copy's file.
enum Copy {
    Absent,
    Good(Box<ClusterMap>),
    Bad(String),
}

impl FileStore {
    /// Opens the store in `dir`, or makes it (also the directory). Refused while another process has it open.
    pub fn open(dir: &Path) -> Result<FileStore, StoreError> {
        fs::create_dir_all(dir).map_err(|e| io_error("making", dir, e))?;
        let lock = lock(dir)?;
        let (map, warning) = recover(dir)?;
        // A full disk is none of an error here: the next change may find space.
        let _ = temporary(&dir.join(TEMPORARY), &encode(&map));
        let state = Mutex::new(State { map, is_doubtful: false, warning });
        Ok(FileStore { dir: dir.to_path_buf(), state, _lock: lock })
    }

    /// Makes a store with `map`, of any version, where none is: for a map that was lost or moved.
    pub fn make(dir: &Path, map: &ClusterMap) -> Result<(), StoreError> {
        if COPIES.iter().any(|name| dir.join(name).exists()) {
            return Err(StoreError::Taken { dir: dir.to_path_buf() });
        }
        let store = FileStore::open(dir)?;
        let mut state = store.lock_state();
        let bytes = encode(map);
        write_copy(dir, COPIES[0], &bytes)?;
        write_copy(dir, COPIES[1], &bytes)?;
        state.map = map.clone();
        Ok(())
    }

    /// Was a store ever opened in `dir`? Changes nothing.
    pub fn is_in(dir: &Path) -> bool {
        [COPIES[0], COPIES[1], LOCK].iter().any(|name| dir.join(name).exists())
    }

    /// Damage that opening found and repaired, for the log; returned once.
    pub fn take_warning(&self) -> Option<String> {
        self.lock_state().warning.take()
    }

    /// Deletes a store's files, and the directory if nothing else is in it. For taking a whole cluster down.
    pub fn delete(dir: &Path) -> Result<(), StoreError> {
        if !dir.exists() {
            return Ok(());
        }
        let lock = lock(dir)?;
        for name in [COPIES[0], COPIES[1], TEMPORARY, LOCK] {
            let path = dir.join(name);
            match fs::remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(io_error("removing", &path, e)),
                _ => {}
            }
        }
        drop(lock);
        match fs::remove_dir(dir) {
            Err(e) if e.kind() != io::ErrorKind::DirectoryNotEmpty => Err(io_error("removing", dir, e)),
            _ => Ok(()),
        }
    }

    fn lock_state(&self) -> std::sync::MutexGuard<'_, State> {
        // If a thread panicked in the middle of a change, `is_doubtful` is still set.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, state: &mut State) -> Result<(), StoreError> {
        if state.is_doubtful {
            let (map, warning) = recover(&self.dir)?;
            *state = State { map, is_doubtful: false, warning };
        }
        Ok(())
    }
}

impl MapStore for FileStore {
    fn load(&self) -> Result<ClusterMap, StoreError> {
        let mut state = self.lock_state();
        self.settle(&mut state)?;
        Ok(state.map.clone())
    }

    fn compare_and_swap(&self, expected: u64, next: &ClusterMap) -> Result<(), StoreError> {
        let mut state = self.lock_state();
        self.settle(&mut state)?;
        check_versions(state.map.version, expected, next.version)?;
        let bytes = encode(next);
        // The first copy commits. Until the second one is done too, a failure leaves the files in doubt.
        state.is_doubtful = true;
        write_copy(&self.dir, COPIES[0], &bytes)?;
        write_copy(&self.dir, COPIES[1], &bytes)?;
        state.map = next.clone();
        state.is_doubtful = false;
        Ok(())
    }
}

/// The rule of compare-and-swap, the same for all stores.
pub(crate) fn check_versions(found: u64, expected: u64, next: u64) -> Result<(), StoreError> {
    if found != expected {
        return Err(StoreError::Conflict { expected, found });
    }
    match expected.checked_add(1) == Some(next) {
        true => Ok(()),
        false => Err(StoreError::Sequence { expected, next }),
    }
}

fn io_error(doing: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError::Io { doing, path: path.to_path_buf(), source }
}

fn lock(dir: &Path) -> Result<Lock, StoreError> {
    let path = dir.join(LOCK);
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|e| io_error("opening", &path, e))?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path }),
        Err(TryLockError::Error(e)) => Err(io_error("locking", &path, e)),
    }
}

/// Reads both copies, takes the newest whole one, and makes the other equal to it. Also returns what was wrong.
fn recover(dir: &Path) -> Result<(ClusterMap, Option<String>), StoreError> {
    let copies = [read_copy(dir, COPIES[0])?, read_copy(dir, COPIES[1])?];
    let best = copies.iter().filter_map(|c| if let Copy::Good(map) = c { Some(&**map) } else { None });
    let Some(best) = best.max_by_key(|m| m.version).cloned() else {
        return match copies.iter().all(|c| matches!(c, Copy::Absent)) {
            true => Ok((ClusterMap::empty(), None)),
            // mapstore-I2: a damaged map is not an empty one.
            false => {
                Err(StoreError::Damaged { dir: dir.to_path_buf(), why: what_is_wrong(&copies).join("; ") })
            }
        };
    };
    let bytes = encode(&best);
    for (name, copy) in COPIES.iter().zip(&copies) {
        if !matches!(copy, Copy::Good(map) if **map == best) {
            write_copy(dir, name, &bytes)?;
        }
    }
    let wrong = what_is_wrong(&copies);
    let warning = (!wrong.is_empty()).then(|| {
        format!(
            "{}: {}; put right with version {} of the other copy",
            dir.display(),
            wrong.join("; "),
            best.version
        )
    });
    Ok((best, warning))
}

/// Reports damage only: a crash between the two writes normally leaves an older or absent copy.
fn what_is_wrong(copies: &[Copy; 2]) -> Vec<String> {
    let bad = COPIES.iter().zip(copies).filter_map(|(name, copy)| match copy {
        Copy::Bad(why) => Some(format!("{name}: {why}")),
        _ => None,
    });
    bad.collect()
}

fn read_copy(dir: &Path, name: &str) -> Result<Copy, StoreError> {
    let path = dir.join(name);
    match fs::metadata(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Copy::Absent),
        Err(e) => return Err(io_error("reading", &path, e)),
        Ok(meta) if meta.len() > FILE_BYTES_MAX => {
            return Ok(Copy::Bad(format!("{} bytes long", meta.len())));
        }
        Ok(_) => {}
    }
    match fs::read(&path) {
        Ok(bytes) => match decode(&bytes) {
            Ok(map) => Ok(Copy::Good(Box::new(map))),
            Err(Unreadable::Damaged(what)) => Ok(Copy::Bad(what.to_string())),
            Err(Unreadable::OtherForm(form)) => {
                Err(StoreError::OtherForm { path, form, known: FORM_VERSION })
            }
        },
        // A read error of the medium costs this copy only.
        Err(e) => Ok(Copy::Bad(e.to_string())),
    }
}

/// Replaces a copy atomically: after a crash the file has the old or the new bytes.
fn write_copy(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
    let (new, path) = (dir.join(TEMPORARY), dir.join(name));
    temporary(&new, bytes).map_err(|e| io_error("writing", &new, e))?;
    // An exchange would move a directory out of the way.
    if fs::symlink_metadata(&path).is_ok_and(|there| !there.is_file()) {
        return Err(io_error("replacing", &path, io::ErrorKind::IsADirectory.into()));
    }
    match renameat_with(CWD, &new, CWD, &path, RenameFlags::EXCHANGE) {
        Ok(()) => {}
        // There is no copy yet, or the file system below cannot exchange names.
        Err(Errno::NOENT | Errno::INVAL | Errno::NOSYS) => {
            fs::rename(&new, &path).map_err(|e| io_error("renaming a new file to", &path, e))?;
        }
        Err(e) => return Err(io_error("renaming a new file to", &path, e.into())),
    }
    // Without this the rename itself may be lost with the power.
    File::open(dir).and_then(|d| d.sync_all()).map_err(|e| io_error("flushing", dir, e))
}

/// Writes the temporary file over what is there, and flushes it. mapstore-F1: it keeps space for twice as much.
fn temporary(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // The map holds the keys of capabilities: no other user may read it.
    let mut file = File::options().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    if file.metadata()?.len() > bytes.len() as u64 {
        file.set_len(bytes.len() as u64)?;
    }
    let reserved = RESERVED_BYTES_MIN.max(2 * bytes.len() as u64);
    // Without more space the present blocks may suffice. If they do not, the write fails with the reason.
    let _ = fallocate(&file, FallocateFlags::KEEP_SIZE, 0, reserved);
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests;
