//! A session: one connection to the kernel, from INIT until the device reports that the mount is gone.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use crate::calls::Calls;
use crate::clone::clone_device;
use crate::dispatch::dispatch;
use crate::encode::Body;
use crate::init::{KernelConfig, MAJOR, MINOR_MIN};
use crate::interrupt::Interrupts;
use crate::reply::{Channel, Raw};
use crate::request::{self, HEADER_LEN, Operation};
use crate::{Filesystem, InitFlags, MAX_WRITE_BYTES, Notifier, Request, RequestId};

/// Space for a request's header and arguments, beside the data of the largest write. The kernel refuses a read into less.
const OVERHEAD: usize = 4096;

/// A file system and the device that it serves.
pub struct Session<F> {
    fs: F,
    device: Arc<OwnedFd>,
    interrupts: Arc<Interrupts>,
    long_setxattr: bool,
    calls: Arc<Calls>,
}

impl<F: Filesystem> Session<F> {
    /// Waits for INIT and answers it. `device` belongs to a mount that was just made.
    pub fn start(mut fs: F, device: OwnedFd) -> io::Result<Session<F>> {
        let mut buffer = vec![0; MAX_WRITE_BYTES as usize + OVERHEAD];
        let device = Arc::new(device);
        let interrupts = Arc::new(Interrupts::default());
        let calls = Arc::new(Calls::default());
        loop {
            let Some(bytes) = next(&device, &mut buffer)? else {
                return Err(Errno::NODEV.into());
            };
            let Some((header, body)) = request::header(bytes) else { return Err(Errno::PROTO.into()) };
            let channel = Arc::new(Channel {
                fd: device.as_fd().try_clone_to_owned()?,
                interrupts: interrupts.clone(),
                calls: calls.clone(),
                thread: 0,
            });
            let raw = Raw::new(header.unique, header.opcode, channel);
            let Some(Operation::Init(init)) = request::operation(header.opcode, body, false) else {
                raw.error(crate::Errno::EIO);
                continue;
            };
            if init.major > MAJOR {
                // The kernel will send INIT again, with this major version.
                raw.body(Body::<64>::new().u32(MAJOR).bytes());
                continue;
            }
            if init.major < MAJOR || init.minor < MINOR_MIN {
                raw.error(crate::Errno::from_i32(Errno::PROTO.raw_os_error()));
                let (major, minor) = (init.major, init.minor);
                return Err(io::Error::other(format!(
                    "this kernel speaks FUSE {major}.{minor}; {MAJOR}.{MINOR_MIN} (Linux 5.4) is the oldest that is understood"
                )));
            }
            let mut config = KernelConfig::new(&init);
            let rq = Request {
                unique: header.unique,
                uid: header.uid,
                gid: header.gid,
                pid: header.pid,
                kills_privileges: false,
                is_flock: false,
                is_flush: false,
                interrupted: None,
            };
            if let Err(error) = fs.init(&rq, &mut config) {
                raw.error(crate::Errno::EIO);
                return Err(error);
            }
            raw.body(config.answer().bytes());
            fs.started(Notifier(device.clone()));
            let long_setxattr = config.agreed().contains(InitFlags::FUSE_SETXATTR_EXT);
            return Ok(Session { fs, device, interrupts, long_setxattr, calls });
        }
    }

    pub fn notifier(&self) -> Notifier {
        Notifier(self.device.clone())
    }

    /// The requests of the session are counted there.
    pub fn counting(self, calls: Arc<Calls>) -> Session<F> {
        Session { calls, ..self }
    }

    /// Serves requests on `threads` threads, the calling one among them, until the mount is gone. The thread that read a request calls
    /// `around` with its opcode and the work of serving it; `around` must run the work once.
    pub fn run(self, threads: usize, around: impl Fn(u32, &mut dyn FnMut()) + Sync) -> io::Result<()> {
        let Session { mut fs, device, interrupts, long_setxattr, calls } = self;
        let channels = (0..threads.max(1))
            .map(|thread| {
                let fd = own_device(&device, thread)?;
                let (interrupts, calls) = (interrupts.clone(), calls.clone());
                Ok(Arc::new(Channel { fd, interrupts, calls, thread }))
            })
            .collect::<io::Result<Vec<_>>>()?;
        let serve = |channel: &Arc<Channel>| {
            // Filled with ones: pages of zeros would only be promised. The memory must be there for requests that come when memory is
            // short.
            let mut buffer = vec![1; MAX_WRITE_BYTES as usize + OVERHEAD];
            while let Some(bytes) = next(&channel.fd, &mut buffer)? {
                dispatch(&fs, channel, long_setxattr, bytes, &around);
            }
            Ok(())
        };
        let result = std::thread::scope(|scope| {
            let spawn = |(n, channel): (usize, &Arc<Channel>)| {
                let channel = channel.clone();
                let serve = &serve;
                std::thread::Builder::new()
                    .name(format!("fuse-{n}"))
                    .spawn_scoped(scope, move || serve(&channel))
            };
            // If the system has no more threads, fewer serve.
            let started = |thread: io::Result<_>| {
                thread.inspect_err(|error| tracing::warn!(%error, "one serving thread fewer: the system cannot start more")).ok()
            };
            let others: Vec<_> = channels.iter().enumerate().skip(1).map(spawn).filter_map(started).collect();
            let first = serve(&channels[0]);
            let panicked = |_| Err(io::Error::other("a serving thread panicked"));
            others.into_iter().map(|t| t.join().unwrap_or_else(panicked)).fold(first, Result::and)
        });
        fs.destroy();
        result
    }
}

impl<F> AsFd for Session<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// The descriptor of a serving thread. Each thread has its own: the kernel keeps a list and a lock per clone. If the device cannot be
/// opened again (a container that got only this descriptor), all threads share one.
fn own_device(device: &OwnedFd, thread: usize) -> io::Result<OwnedFd> {
    if thread > 0 {
        match clone_device(device) {
            Ok(clone) => return Ok(clone),
            Err(error) => tracing::debug!(%error, "serving threads share one device"),
        }
    }
    device.as_fd().try_clone_to_owned()
}

/// The next request; `None` when the mount is gone.
fn next(device: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<&[u8]>> {
    loop {
        match rustix::io::read(&device, &mut *buffer) {
            Ok(len) if len >= HEADER_LEN => return Ok(Some(&buffer[..len])),
            Ok(_) => return Err(Errno::PROTO.into()),
            // ENOENT: the request was cancelled while it was read.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
            // ECONNABORTED: the mount ended while a request was being handed over.
            Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
            Err(e) => return Err(e.into()),
        }
    }
}

#[allow(dead_code, reason = "a promise to the compiler: replies go to other threads")]
fn replies_may_travel() {
    fn is_send<T: Send>() {}
    is_send::<(crate::ReplyEmpty, crate::ReplyLock, crate::ReplyDirectory, Request, RequestId, Notifier)>();
}
