//! Dispatch of one request: from its bytes to the method that answers it.

use std::sync::Arc;

use crate::reply::{Channel, Raw};
use crate::request::{self, Header, Operation};
use crate::*;

/// A wrapper around the work of serving a request; it gets the request's opcode.
pub(crate) trait Around: Fn(u32, &mut dyn FnMut()) + Sync {}
impl<T: Fn(u32, &mut dyn FnMut()) + Sync> Around for T {}

/// Requests that have no reply.
fn is_silent(opcode: u32) -> bool {
    matches!(opcode, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT | opcode::NOTIFY_REPLY)
}

/// Serves the request in `bytes`. `around` gets the request's opcode and the work. Work that never blocks runs outside it: forgets, and
/// interrupts of requests that are not in the table of interruptible ones.
pub(crate) fn dispatch<F: Filesystem>(
    fs: &F,
    channel: &Arc<Channel>,
    long_setxattr: bool,
    bytes: &[u8],
    around: &impl Around,
) {
    // fusedev-I1: without a header there is no request id to reply to. The kernel sends no such request.
    let Some((header, body)) = request::header(bytes) else {
        tracing::warn!(len = bytes.len(), "the kernel sent a request without a valid header");
        return;
    };
    let operation = request::operation(header.opcode, body, long_setxattr);
    if is_silent(header.opcode) {
        return operation
            .into_iter()
            .for_each(|operation| serve_silent(fs, channel, &header, operation, around));
    }
    let mut raw = Raw::new(header.unique, header.opcode, channel.clone());
    let Some(operation) = operation else {
        tracing::warn!(
            opcode = header.opcode,
            len = bytes.len(),
            "the kernel sent a request that cannot be read"
        );
        return raw.error(Errno::EINVAL);
    };
    if let Operation::Write { data, .. } = &operation {
        raw.bytes_in = data.len();
    }
    let mut once = Some((raw, operation));
    around(header.opcode, &mut || {
        if let Some((raw, operation)) = once.take() {
            serve(fs, channel, &header, operation, raw);
        }
    });
}

fn request_of(header: &Header) -> Request {
    Request {
        unique: header.unique,
        uid: header.uid,
        gid: header.gid,
        pid: header.pid,
        kills_privileges: false,
        is_flock: false,
        is_flush: false,
        interrupted: None,
    }
}

fn serve_silent<F: Filesystem>(
    fs: &F,
    channel: &Channel,
    header: &Header,
    operation: Operation<'_>,
    around: &impl Around,
) {
    let rq = request_of(header);
    match operation {
        Operation::Forget { lookups } => fs.forget(&rq, header.node, lookups),
        Operation::BatchForget { pairs } => {
            request::forgets(pairs).for_each(|(ino, lookups)| fs.forget(&rq, ino, lookups));
        }
        Operation::NotifyReply { bytes } => fs.retrieved(header.unique.0, bytes),
        // The call may block: the file system may have to cancel a queued lock at a server.
        Operation::Interrupt { unique } if channel.interrupts.interrupt(unique) => {
            around(header.opcode, &mut || fs.interrupt(unique));
        }
        _ => {}
    }
}

fn serve<F: Filesystem>(fs: &F, channel: &Channel, header: &Header, operation: Operation<'_>, raw: Raw) {
    let mut rq = request_of(header);
    let ino = header.node;
    rq.is_flush = matches!(operation, Operation::Flush { .. });
    fs.begins(&rq);
    match operation {
        Operation::Lookup { name } => fs.lookup(&rq, ino, name, ReplyEntry(raw)),
        Operation::GetAttr { fh } => fs.getattr(&rq, ino, fh, ReplyAttr(raw)),
        Operation::Statx { fh, flags, mask } => fs.statx(&rq, ino, fh, flags, mask, ReplyStatx(raw)),
        Operation::SetAttr(set) => {
            rq.kills_privileges = set.kills_privileges;
            fs.setattr(
                &rq,
                ino,
                set.mode,
                set.uid,
                set.gid,
                set.size,
                set.atime,
                set.mtime,
                set.ctime,
                set.fh,
                None,
                None,
                None,
                None,
                ReplyAttr(raw),
            );
        }
        Operation::ReadLink => fs.readlink(&rq, ino, ReplyData(raw)),
        Operation::Symlink { name, target } => fs.symlink(&rq, ino, name, target, ReplyEntry(raw)),
        Operation::MkNod { name, mode, rdev, umask } => {
            fs.mknod(&rq, ino, name, mode, umask, rdev, ReplyEntry(raw));
        }
        Operation::MkDir { name, mode, umask } => fs.mkdir(&rq, ino, name, mode, umask, ReplyEntry(raw)),
        Operation::Unlink { name } => fs.unlink(&rq, ino, name, ReplyEmpty(raw)),
        Operation::RmDir { name } => fs.rmdir(&rq, ino, name, ReplyEmpty(raw)),
        Operation::Rename { new_parent, name, new_name, flags } => {
            fs.rename(&rq, ino, name, new_parent, new_name, flags, ReplyEmpty(raw));
        }
        Operation::Link { ino: linked, name } => fs.link(&rq, linked, ino, name, ReplyEntry(raw)),
        Operation::Open { flags, kills_privileges } => {
            rq.kills_privileges = kills_privileges;
            fs.open(&rq, ino, flags, ReplyOpen(raw));
        }
        Operation::Read(r) => {
            fs.read(&rq, ino, r.fh, r.offset, r.size, r.flags, r.owner, ReplyData(raw));
        }
        Operation::Write { to, write_flags, data } => {
            fs.write(&rq, ino, to.fh, to.offset, data, write_flags, to.flags, to.owner, ReplyWrite(raw));
        }
        Operation::StatFs => fs.statfs(&rq, ino, ReplyStatfs(raw)),
        Operation::Release { fh, flags, flush, owner } => {
            fs.release(&rq, ino, fh, flags, owner, flush, ReplyEmpty(raw));
        }
        Operation::Fsync { fh, data_only } => fs.fsync(&rq, ino, fh, data_only, ReplyEmpty(raw)),
        Operation::SetXattr { name, value, flags, extra_flags } => {
            fs.setxattr(&rq, ino, name, value, flags, extra_flags, ReplyEmpty(raw));
        }
        Operation::GetXattr { name, size } => fs.getxattr(&rq, ino, name, size, ReplyXattr(raw)),
        Operation::ListXattr { size } => fs.listxattr(&rq, ino, size, ReplyXattr(raw)),
        Operation::RemoveXattr { name } => fs.removexattr(&rq, ino, name, ReplyEmpty(raw)),
        Operation::Flush { fh, owner } => fs.flush(&rq, ino, fh, owner, ReplyEmpty(raw)),
        Operation::OpenDir { flags } => fs.opendir(&rq, ino, flags, ReplyOpen(raw)),
        Operation::ReadDir { fh, cookie, size, flags, plus: false } => {
            fs.readdir(&rq, ino, fh, cookie, flags, ReplyDirectory::new(raw, size));
        }
        Operation::ReadDir { fh, cookie, size, flags, plus: true } => {
            fs.readdirplus(&rq, ino, fh, cookie, flags, ReplyDirectoryPlus::new(raw, size));
        }
        Operation::ReleaseDir { fh, flags } => fs.releasedir(&rq, ino, fh, flags, ReplyEmpty(raw)),
        Operation::FsyncDir { fh, data_only } => fs.fsyncdir(&rq, ino, fh, data_only, ReplyEmpty(raw)),
        Operation::GetLk(lock) => {
            rq.is_flock = lock.is_flock;
            let (start, end) = (lock.start, lock.end);
            fs.getlk(&rq, ino, lock.fh, lock.owner, start, end, lock.typ, lock.pid, ReplyLock(raw));
        }
        Operation::SetLk { lock, sleep } => {
            rq.is_flock = lock.is_flock;
            let mut raw = raw;
            if sleep {
                rq.interrupted = Some(channel.interrupts.enter(header.unique));
                raw.set_waiting();
            }
            let (start, end) = (lock.start, lock.end);
            fs.setlk(&rq, ino, lock.fh, lock.owner, start, end, lock.typ, lock.pid, sleep, ReplyEmpty(raw));
        }
        Operation::Access { mask } => fs.access(&rq, ino, mask, ReplyEmpty(raw)),
        Operation::Create(c) => {
            rq.kills_privileges = c.kills_privileges;
            fs.create(&rq, ino, c.name, c.mode, c.umask, c.flags, ReplyCreate(raw));
        }
        Operation::TmpFile(c) => fs.tmpfile(&rq, ino, c.mode, c.umask, c.flags, ReplyCreate(raw)),
        Operation::Ioctl { fh, flags, cmd, data, out_size } => {
            fs.ioctl(&rq, ino, fh, flags, cmd, data, out_size, ReplyIoctl(raw));
        }
        Operation::Fallocate { fh, offset, length, mode } => {
            fs.fallocate(&rq, ino, fh, offset, length, mode, ReplyEmpty(raw));
        }
        Operation::Lseek { fh, offset, whence } => {
            fs.lseek(&rq, ino, fh, offset, whence, ReplyLseek(raw));
        }
        Operation::CopyFileRange(c) => {
            let (to, reply) = ((c.ino_out, c.fh_out, c.offset_out), ReplyWrite(raw));
            fs.copy_file_range(&rq, ino, c.fh_in, c.offset_in, to.0, to.1, to.2, c.len, c.flags, reply);
        }
        Operation::SyncFs => fs.syncfs(&rq, ino, ReplyEmpty(raw)),
        // The session ends when the device reports it; `destroy` is called then.
        Operation::Destroy => raw.body(&[]),
        // The kernel sends INIT once; `Session::start` has answered it.
        Operation::Init(_) => raw.error(Errno::EIO),
        Operation::Unknown => raw.error(Errno::ENOSYS),
        Operation::Forget { .. }
        | Operation::BatchForget { .. }
        | Operation::Interrupt { .. }
        | Operation::NotifyReply { .. } => raw.body(&[]),
    }
}
