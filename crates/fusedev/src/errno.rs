//! Error numbers, under their C names.

use std::io;

/// An error for the caller; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(i32);

macro_rules! errnos {
    ($($name:ident = $rustix:ident,)*) => {
        impl Errno {
            $(pub const $name: Errno = Errno(rustix::io::Errno::$rustix.raw_os_error());)*
        }
    };
}

errnos! {
    E2BIG = TOOBIG,
    EACCES = ACCESS,
    EAGAIN = AGAIN,
    EBADF = BADF,
    EBUSY = BUSY,
    ECANCELED = CANCELED,
    ECONNABORTED = CONNABORTED,
    EDEADLK = DEADLK,
    EDQUOT = DQUOT,
    EEXIST = EXIST,
    EFAULT = FAULT,
    EFBIG = FBIG,
    EINTR = INTR,
    EINVAL = INVAL,
    EIO = IO,
    EISDIR = ISDIR,
    ELOOP = LOOP,
    EMFILE = MFILE,
    EMLINK = MLINK,
    ENAMETOOLONG = NAMETOOLONG,
    ENFILE = NFILE,
    ENODATA = NODATA,
    ENODEV = NODEV,
    ENOENT = NOENT,
    ENOLCK = NOLCK,
    ENOMEM = NOMEM,
    ENOSPC = NOSPC,
    ENOSYS = NOSYS,
    ENOTCONN = NOTCONN,
    ENOTDIR = NOTDIR,
    ENOTEMPTY = NOTEMPTY,
    ENOTTY = NOTTY,
    ENXIO = NXIO,
    EOPNOTSUPP = OPNOTSUPP,
    EOVERFLOW = OVERFLOW,
    EPERM = PERM,
    EPIPE = PIPE,
    ERANGE = RANGE,
    EROFS = ROFS,
    ESPIPE = SPIPE,
    ESTALE = STALE,
    ETIMEDOUT = TIMEDOUT,
    ETXTBSY = TXTBSY,
    EXDEV = XDEV,
}

impl Errno {
    /// The error of `getxattr` for a missing attribute.
    pub const NO_XATTR: Errno = Errno::ENODATA;

    /// The kernel takes 1 to 999; any other number becomes EIO.
    pub const fn from_i32(code: i32) -> Errno {
        match code {
            1..=999 => Errno(code),
            _ => Errno::EIO,
        }
    }

    pub const fn code(self) -> i32 {
        self.0
    }
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Errno {
        Errno::from_i32(error.raw_os_error().unwrap_or(0))
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Errno {
        Errno::from_i32(error.raw_os_error())
    }
}
