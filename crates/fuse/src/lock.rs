//! Lock requests of the kernel, handed to the client.
//!
//! The kernel keeps no list of the locks that the servers hold. Each close of a descriptor must reach the door, since it ends the fcntl
//! locks of the closing process. So no file is opened with `FOPEN_NOFLUSH` if the servers hold the locks.

use client::{FileLock, Handle, LockAnswer};
use fusedev::{Errno, FileHandle, LockOwner, ReplyEmpty, ReplyLock, Request};
use types::Fault;
use wire::lock::{LockKind, LockSpace};

use crate::door::Door;
use crate::reply::errno;

/// Lock types of fcntl(2) on Linux.
const F_RDLCK: i32 = 0;
const F_WRLCK: i32 = 1;
const F_UNLCK: i32 = 2;

/// The arguments of a lock request.
pub struct LockAsked {
    pub fh: FileHandle,
    pub owner: LockOwner,
    pub start: u64,
    pub end: u64,
    pub typ: i32,
    pub pid: u32,
}

impl LockAsked {
    fn lock(&self, rq: &Request) -> Option<FileLock> {
        let space = if rq.is_flock() { LockSpace::Flock } else { LockSpace::Posix };
        let kind = match self.typ {
            F_RDLCK => LockKind::Read,
            F_WRLCK => LockKind::Write,
            F_UNLCK => LockKind::Unlock,
            _ => return None,
        };
        let LockAsked { start, end, pid, .. } = *self;
        (start <= end).then_some(FileLock { space, owner: self.owner.0, start, end, kind, pid })
    }
    fn handle(&self) -> Handle {
        Handle(self.fh.0)
    }
}

impl Door {
    pub(crate) fn test_lock(&self, rq: &Request, asked: &LockAsked, reply: ReplyLock) {
        let Some(lock) = asked.lock(rq) else { return reply.error(Errno::EINVAL) };
        match self.fs.get_lock(asked.handle(), &lock) {
            Ok(None) => reply.locked(0, 0, F_UNLCK, 0),
            Ok(Some(found)) => {
                let typ = if found.kind == LockKind::Write { F_WRLCK } else { F_RDLCK };
                reply.locked(found.start, found.end, typ, found.pid)
            }
            Err(fault) => reply.error(errno("getlk", &fault)),
        }
    }

    pub(crate) fn take_lock(&self, rq: &Request, asked: &LockAsked, sleep: bool, reply: ReplyEmpty) {
        let Some(lock) = asked.lock(rq) else { return reply.error(Errno::EINVAL) };
        if !sleep || lock.kind == LockKind::Unlock {
            return answer_lock(self.fs.set_lock(asked.handle(), &lock), reply);
        }
        let unique = rq.unique().0;
        self.fs.await_lock(asked.handle(), &lock, unique, Box::new(|answer| answer_lock(answer, reply)));
        // The signal came before the request was stored where `interrupt` finds it.
        if rq.is_interrupted() {
            self.fs.interrupt_lock(unique);
        }
    }
}

fn answer_lock(answer: Result<LockAnswer, Fault>, reply: ReplyEmpty) {
    match answer {
        Ok(LockAnswer::Granted) => reply.ok(),
        Ok(LockAnswer::Conflict) => reply.error(Errno::EAGAIN),
        Ok(LockAnswer::Deadlock) => reply.error(Errno::EDEADLK),
        Ok(LockAnswer::Full) => reply.error(Errno::ENOLCK),
        Ok(LockAnswer::Interrupted) => reply.error(Errno::EINTR),
        Err(fault) => reply.error(errno("setlk", &fault)),
    }
}
