//! The client: the one implementation of names and file I/O. FUSE, tools and libraries are doors to it.
//!
//! Promises:
//! - `write` returns when its targets have acknowledged its bytes, so a kill of this process loses no acknowledged byte. Over TCP it loses new small
//!   files, their bytes, and removals that were not shipped yet (client-U1; `Settings::ships_names`), and what `write_cached` has taken over of open
//!   files (`Settings::write_behind`).
//! - `fsync` returns when bytes, size and the file's entry are durable.
//! - Every byte that is read was checked against the CRC of its writer.
//! - Every call ends within `Settings::op_timeout`.
//!
//! Refuses:
//! - a second try of a request that may have been carried out, except under its old slot and sequence, or where the repeat is known by its fid
//!   (client-U1);
//! - success after a loss. A file that lost acknowledged bytes is *errored*: `EIO` until its last descriptor is closed.
//!
//! All methods of `Fs` take `&self` and may be called from many threads.
//!
//! Invariants, cited where they are kept:
//! - client-C1: Locks of one file are taken in the order `order`, `body`, `whole`, `meta`; none is held while a name lock is taken.
//! - client-C2: The MDT is told sizes and written bits only as they stood before a flush of the bytes that prove them (rule plan-O3).
//! - client-C3: A slot is used for its next request only when the outcome of the one before is known.
//! - client-C4: A file is in the table before its `Open` is sent, and stays until it is closed and settled.
//! - client-C5: Nothing new is sent to a restarted target before its lost requests were replayed.
//! - client-C6: A thread with requests under way waits for nothing that other threads may hold.
//!
//! ```text
//! Fs::connect(fabric, map, fs_id, settings) -> Result<Arc<Fs>, Fault>
//! shutdown() -> Result<(), Fault>     abort()      set_map(ClusterMap)      session() -> SessionId
//! lookup(parent, name) -> Attr        // `.` and `..` too
//! getattr(fid) -> Attr       setattr(fid, &SetAttr, &Cred) -> Attr
//! create(parent, name, mode, OpenFlags, &Cred) -> (Attr, Handle)
//! put(parent, name, mode, &[u8], &Cred) -> Attr               // a whole file, closed
//! tmpfile(parent, mode, OpenFlags, &Cred) -> (Attr, Handle)      flags(fid) -> u32    set_flags(fid, u32, &Cred)
//! mknod(parent, name, Kind, mode, rdev, &Cred) -> Attr           mkdir(parent, name, mode, &Cred) -> Attr
//! symlink(parent, name, target, &Cred) -> Attr                   readlink(fid) -> Vec<u8>
//! link(fid, parent, name, &Cred) -> Attr     unlink(parent, name, &Cred)     rmdir(parent, name, &Cred)
//! rename(parent, name, new_parent, new_name, flags, &Cred)
//! open(fid, OpenFlags) -> (Handle, Attr)     read(Handle, offset, len, &mut Buf)     write(Handle, offset, &[u8])
//! copy(from, offset, to, offset, len) -> u64
//! fallocate(Handle, offset, len, Allocate)   seek(Handle, offset, Whence) -> Option<u64>
//! flush(Handle)    fsync(Handle, data_only)    release(Handle)    fsync_dir(fid)
//! readdir(dir, cookie, max, plus) -> Vec<DirItem>      // empty = the end; `.` and `..` are cookies 1 and 2
//! getxattr(fid, name) -> Vec<u8>      setxattr(fid, name, value, flags, &Cred)
//! listxattr(fid) -> Vec<Vec<u8>>      removexattr(fid, name, &Cred)
//! get_lock(Handle, &FileLock) -> Option<FileLock>                set_lock(Handle, &FileLock) -> LockAnswer
//! await_lock(Handle, &FileLock, unique, done)      interrupt_lock(unique)      close_locks(Handle, owner)
//! lookup_as, open_as, readdir_as, getxattr_as, listxattr_as: the same for the user of a `Cred`, where it matters (`is_judged`)
//! statfs() -> StatFs                  target_stats() -> Vec<TargetStatReply>
//! fsck::check(&Fs, secret: &Uuid) -> Report      drain::drain(&Fs, secret: &Uuid, MirrorId, &How, stop, tell) -> Report
//! ```

mod cache;
pub mod drain;
mod errno;
mod fs;
pub mod fsck;
mod session;
mod upkeep;
mod verbs;

pub use cache::api::{Allocate, DirItem, Handle, Mode, OpenFlags, SetAttr, Settings, StatFs, Tuned};
pub use cache::leased::{Kernel, Leave, TimeOuts, now_ms as boot_ms};
pub use cache::listing::Lister;
pub use errno::errno_of;
pub use fs::Fs;
pub(crate) use fs::{wait_for_bell, wait_for_stop};
pub use plan::spans::Whence;
pub use session::guarded::{GUARDED_MAX, Guard};
pub use session::jobs::set_job;
pub use session::locks::{FileLock, LockAnswer, LockDone};
pub use session::root::Root;
pub use session::section::DropPages;
pub use upkeep::room::WAITERS_MAX;
pub use verbs::du::Du;
pub use verbs::lookup::Replying;
pub use verbs::xattr::TRACE_ATTRIBUTE;
pub use wire::meta::{FLAG_APPEND, FLAG_IMMUTABLE, FLAG_NOATIME, FLAG_NODUMP};
pub use wire::session::Claims;
