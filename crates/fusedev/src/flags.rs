//! Flag words of the protocol.

use bitflags::bitflags;

bitflags! {
    /// Capabilities of kernel and file system, negotiated in INIT.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct InitFlags: u64 {
        const FUSE_ASYNC_READ = 1 << 0;
        /// The file system handles fcntl locks.
        const FUSE_POSIX_LOCKS = 1 << 1;
        const FUSE_ATOMIC_O_TRUNC = 1 << 3;
        const FUSE_EXPORT_SUPPORT = 1 << 4;
        const FUSE_BIG_WRITES = 1 << 5;
        /// The file system applies the umask.
        const FUSE_DONT_MASK = 1 << 6;
        const FUSE_SPLICE_WRITE = 1 << 7;
        const FUSE_SPLICE_MOVE = 1 << 8;
        const FUSE_SPLICE_READ = 1 << 9;
        /// The file system handles flock locks.
        const FUSE_FLOCK_LOCKS = 1 << 10;
        const FUSE_HAS_IOCTL_DIR = 1 << 11;
        const FUSE_AUTO_INVAL_DATA = 1 << 12;
        const FUSE_DO_READDIRPLUS = 1 << 13;
        const FUSE_READDIRPLUS_AUTO = 1 << 14;
        const FUSE_ASYNC_DIO = 1 << 15;
        const FUSE_WRITEBACK_CACHE = 1 << 16;
        const FUSE_NO_OPEN_SUPPORT = 1 << 17;
        const FUSE_PARALLEL_DIROPS = 1 << 18;
        const FUSE_HANDLE_KILLPRIV = 1 << 19;
        /// The kernel checks ACLs, which it reads as extended attributes.
        const FUSE_POSIX_ACL = 1 << 20;
        const FUSE_ABORT_ERROR = 1 << 21;
        const FUSE_MAX_PAGES = 1 << 22;
        const FUSE_CACHE_SYMLINKS = 1 << 23;
        const FUSE_NO_OPENDIR_SUPPORT = 1 << 24;
        const FUSE_EXPLICIT_INVAL_DATA = 1 << 25;
        const FUSE_MAP_ALIGNMENT = 1 << 26;
        const FUSE_SUBMOUNTS = 1 << 27;
        const FUSE_HANDLE_KILLPRIV_V2 = 1 << 28;
        const FUSE_SETXATTR_EXT = 1 << 29;
        /// The second word of flags is valid.
        const FUSE_INIT_EXT = 1 << 30;
        const FUSE_SECURITY_CTX = 1 << 32;
        const FUSE_HAS_INODE_DAX = 1 << 33;
        const FUSE_CREATE_SUPP_GROUP = 1 << 34;
        const FUSE_HAS_EXPIRE_ONLY = 1 << 35;
        /// Allows shared mappings of files that are open for direct I/O.
        const FUSE_DIRECT_IO_ALLOW_MMAP = 1 << 36;
        const FUSE_PASSTHROUGH = 1 << 37;
        const FUSE_NO_EXPORT_SUPPORT = 1 << 38;
        const FUSE_HAS_RESEND = 1 << 39;
        /// Allows idmapped mounts. Requests that create nothing then do not name their caller (`UNKNOWN_ID`).
        const FUSE_ALLOW_IDMAP = 1 << 40;
        const FUSE_OVER_IO_URING = 1 << 41;
        const FUSE_REQUEST_TIMEOUT = 1 << 42;
    }

    /// How the kernel may treat an open file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct FopenFlags: u32 {
        /// I/O bypasses the page cache.
        const FOPEN_DIRECT_IO = 1 << 0;
        /// Cached pages stay valid over this open.
        const FOPEN_KEEP_CACHE = 1 << 1;
        const FOPEN_NONSEEKABLE = 1 << 2;
        /// The kernel may cache the listing.
        const FOPEN_CACHE_DIR = 1 << 3;
        const FOPEN_STREAM = 1 << 4;
        /// The kernel sends no FLUSH at close.
        const FOPEN_NOFLUSH = 1 << 5;
        const FOPEN_PARALLEL_DIRECT_WRITES = 1 << 6;
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct WriteFlags: u32 {
        /// The write comes from the page cache: the kernel picked some file handle of the inode.
        const FUSE_WRITE_CACHE = 1 << 0;
        const FUSE_WRITE_LOCKOWNER = 1 << 1;
        /// Set-id bits must be cleared: the writer lacks CAP_FSETID.
        const FUSE_WRITE_KILL_SUIDGID = 1 << 2;
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct RenameFlags: u32 {
        const RENAME_NOREPLACE = 1 << 0;
        const RENAME_EXCHANGE = 1 << 1;
        const RENAME_WHITEOUT = 1 << 2;
    }

    /// The permissions that `access` checks; empty: whether the file exists.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct AccessFlags: i32 {
        const X_OK = 1;
        const W_OK = 2;
        const R_OK = 4;
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct IoctlFlags: u32 {
        const FUSE_IOCTL_COMPAT = 1 << 0;
        const FUSE_IOCTL_UNRESTRICTED = 1 << 1;
        const FUSE_IOCTL_RETRY = 1 << 2;
        const FUSE_IOCTL_32BIT = 1 << 3;
        const FUSE_IOCTL_DIR = 1 << 4;
        const FUSE_IOCTL_COMPAT_X32 = 1 << 5;
    }

    /// Linux defines none yet.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct CopyFileRangeFlags: u64 {
        const _ = !0;
    }

    /// Linux never sends these; `chattr` comes as an ioctl.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct BsdFileFlags: u32 {
        const _ = !0;
    }
}

/// Flags of `open(2)`, as the kernel sends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpenFlags(pub i32);

/// The access mode of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types, reason = "the names that C gives them")]
pub enum OpenAccMode {
    O_RDONLY,
    O_WRONLY,
    O_RDWR,
}

impl OpenFlags {
    /// The fourth value (3: neither reading nor writing, for ioctls only) counts as both.
    pub fn acc_mode(self) -> OpenAccMode {
        match self.0 & 3 {
            0 => OpenAccMode::O_RDONLY,
            1 => OpenAccMode::O_WRONLY,
            _ => OpenAccMode::O_RDWR,
        }
    }
}
