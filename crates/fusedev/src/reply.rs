//! Replies. Any thread may send one, once; dropping a reply sends EIO.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::calls::Calls;
use crate::encode::{self, Body, ENTRY_LEN};
use crate::interrupt::Interrupts;
use crate::{Errno, FileAttr, FileHandle, FopenFlags, Generation, RequestId, StatxAttr, opcode};

/// A descriptor of the device, with the state of the whole connection.
pub(crate) struct Channel {
    pub fd: OwnedFd,
    pub interrupts: Arc<Interrupts>,
    pub calls: Arc<Calls>,
    /// Number of the thread that receives from it.
    pub thread: usize,
}

/// The one reply that a request expects.
pub(crate) struct Raw {
    unique: RequestId,
    /// `None` after the reply was sent.
    channel: Option<Arc<Channel>>,
    /// The request is in the table of interruptible requests.
    waits: bool,
    opcode: u32,
    begun: Instant,
    /// Content in the request.
    pub bytes_in: usize,
}

impl Raw {
    pub fn new(unique: RequestId, opcode: u32, channel: Arc<Channel>) -> Raw {
        Raw { unique, channel: Some(channel), waits: false, opcode, begun: Instant::now(), bytes_in: 0 }
    }

    /// Notes that the request is in the table of interruptible requests.
    pub fn set_waiting(&mut self) {
        self.waits = true;
    }

    pub fn parts(mut self, parts: [&[u8]; 2]) {
        self.send(0, parts);
    }
    pub fn body(self, body: &[u8]) {
        self.parts([body, &[]]);
    }
    pub fn error(mut self, errno: Errno) {
        self.send(-errno.code(), [&[], &[]]);
    }

    fn send(&mut self, error: i32, parts: [&[u8]; 2]) {
        let Some(channel) = self.channel.take() else { return };
        if self.waits {
            channel.interrupts.leave(self.unique);
        }
        let body_len = parts[0].len() + parts[1].len();
        let bytes_out = if self.opcode == opcode::READ { body_len } else { 0 };
        // Before the answer: a program that has it finds its request counted.
        let (took, bytes) = (self.begun.elapsed(), self.bytes_in + bytes_out);
        channel.calls.count(channel.thread, self.opcode, took, -error, bytes);
        let len = 16 + body_len;
        let mut head = Body::<16>::new();
        head.u32(len as u32).u32(error as u32).u64(self.unique.0);
        let slices = [IoSlice::new(head.bytes()), IoSlice::new(parts[0]), IoSlice::new(parts[1])];
        match rustix::io::writev(&channel.fd, &slices) {
            Ok(_) => {}
            // The caller was killed, or the mount is gone: no process waits for the reply.
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NODEV) => {}
            Err(error) => tracing::warn!(%error, len, "the kernel refused a reply"),
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if self.channel.is_some() {
            tracing::warn!(
                unique = self.unique.0,
                "a request was dropped without an answer; its caller gets EIO"
            );
            self.send(-Errno::EIO.code(), [&[], &[]]);
        }
    }
}

macro_rules! replies {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $($(#[$doc])*
        pub struct $name(pub(crate) Raw);

        impl $name {
            pub fn error(self, errno: Errno) {
                self.0.error(errno);
            }
        })*
    };
}
pub(crate) use replies;

replies! {
    ReplyEmpty;
    ReplyData;
    /// The entry that was looked up or created.
    ReplyEntry;
    ReplyAttr;
    ReplyStatx;
    ReplyOpen;
    ReplyWrite;
    ReplyStatfs;
    /// An entry that was created and opened; also a file without a name.
    ReplyCreate;
    ReplyLock;
    ReplyIoctl;
    ReplyLseek;
}

impl ReplyEmpty {
    pub fn ok(self) {
        self.0.body(&[]);
    }
}

impl ReplyData {
    pub fn data(self, data: &[u8]) {
        self.0.body(data);
    }
}

impl ReplyEntry {
    pub fn entry(self, ttl: &Duration, attr: &FileAttr, generation: Generation) {
        self.entry_with_ttls(ttl, ttl, attr, generation);
    }

    pub fn entry_with_ttls(
        self,
        attr_ttl: &Duration,
        entry_ttl: &Duration,
        attr: &FileAttr,
        generation: Generation,
    ) {
        let mut body = Body::<ENTRY_LEN>::new();
        encode::put_entry(&mut body, attr_ttl, entry_ttl, attr, generation);
        self.0.body(body.bytes());
    }

    /// The name does not exist, and the kernel may cache that for `ttl`.
    pub fn absent(self, ttl: &Duration) {
        let mut body = Body::<ENTRY_LEN>::new();
        body.u64(0).u64(0).u64(ttl.as_secs()).u64(0).u32(ttl.subsec_nanos());
        self.0.body(body.bytes());
    }
}

impl ReplyAttr {
    pub fn attr(self, ttl: &Duration, attr: &FileAttr) {
        self.0.body(encode::attr(ttl, attr).bytes());
    }
}

impl ReplyStatx {
    pub fn statx(self, ttl: &Duration, attr: &FileAttr, more: &StatxAttr) {
        self.0.body(encode::statx(ttl, attr, more).bytes());
    }
}

impl ReplyOpen {
    pub fn opened(self, fh: FileHandle, flags: FopenFlags) {
        let mut body = Body::<16>::new();
        encode::put_open(&mut body, fh, flags);
        self.0.body(body.bytes());
    }
}

impl ReplyWrite {
    pub fn written(self, size: u32) {
        self.0.body(Body::<8>::new().u32(size).bytes());
    }
}

impl ReplyStatfs {
    #[allow(clippy::too_many_arguments, reason = "one per field of statfs(2)")]
    pub fn statfs(
        self,
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
    ) {
        let mut body = Body::<80>::new();
        body.u64(blocks).u64(bfree).u64(bavail).u64(files).u64(ffree);
        body.u32(bsize).u32(namelen).u32(frsize);
        self.0.body(body.bytes());
    }
}

impl ReplyCreate {
    pub fn created(
        self,
        attr_ttl: &Duration,
        entry_ttl: &Duration,
        attr: &FileAttr,
        generation: Generation,
        fh: FileHandle,
        flags: FopenFlags,
    ) {
        let mut body = Body::<{ ENTRY_LEN + 16 }>::new();
        encode::put_entry(&mut body, attr_ttl, entry_ttl, attr, generation);
        encode::put_open(&mut body, fh, flags);
        self.0.body(body.bytes());
    }
}

impl ReplyLock {
    /// The conflicting lock, or one of type `F_UNLCK` if there is none.
    pub fn locked(self, start: u64, end: u64, typ: i32, pid: u32) {
        self.0.body(Body::<24>::new().u64(start).u64(end).u32(typ as u32).u32(pid).bytes());
    }
}

impl ReplyIoctl {
    pub fn ioctl(self, result: i32, data: &[u8]) {
        self.0.parts([Body::<16>::new().u32(result as u32).bytes(), data]);
    }
}

impl ReplyLseek {
    pub fn offset(self, offset: i64) {
        self.0.body(Body::<8>::new().u64(offset as u64).bytes());
    }
}
