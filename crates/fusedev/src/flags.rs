//! The protocol's flag words.

use bitflags::bitflags;

bitflags! {
    /// What kernel and file system can do, agreed on in INIT.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct InitFlags: u64 {
        const FUSE_ASYNC_READ = 1 << 0;
        /// fcntl locks are asked of the file system.
        const FUSE_POSIX_LOCKS = 1 << 1;
        const FUSE_ATOMIC_O_TRUNC = 1 << 3;
        const FUSE_EXPORT_SUPPORT = 1 << 4;
        const FUSE_BIG_WRITES = 1 << 5;
        /// The file system applies the umask.
        const FUSE_DONT_MASK = 1 << 6;
        const FUSE_SPLICE_WRITE = 1 << 7;
        const FUSE_SPLICE_MOVE = 1 << 8;
        const FUSE_SPLICE_READ = 1 << 9;
        /// flock is asked of the file system.
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
        /// Shared mappings of files that are open for direct I/O.
        const FUSE_DIRECT_IO_ALLOW_MMAP = 1 << 36;
        const FUSE_PASSTHROUGH = 1 << 37;
        const FUSE_NO_EXPORT_SUPPORT = 1 << 38;
        const FUSE_HAS_RESEND = 1 << 39;
        /// Mounts may be idmapped; requests that make nothing do not say who asks (`UNKNOWN_ID`).
        const FUSE_ALLOW_IDMAP = 1 << 40;
        const FUSE_OVER_IO_URING = 1 << 41;
        const FUSE_REQUEST_TIMEOUT = 1 << 42;
    }

    /// What the kernel may do with an open file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct FopenFlags: u32 {
        /// Past the page cache.
        const FOPEN_DIRECT_IO = 1 << 0;
        /// Cached pages stay valid over this open.
        const FOPEN_KEEP_CACHE = 1 << 1;
        const FOPEN_NONSEEKABLE = 1 << 2;
        /// A listing may be cached.
        const FOPEN_CACHE_DIR = 1 << 3;
        const FOPEN_STREAM = 1 << 4;
        /// No FLUSH at close.
        const FOPEN_NOFLUSH = 1 << 5;
        const FOPEN_PARALLEL_DIRECT_WRITES = 1 << 6;
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct WriteFlags: u32 {
        /// From the page cache: the file handle is a guess.
        const FUSE_WRITE_CACHE = 1 << 0;
        const FUSE_WRITE_LOCKOWNER = 1 << 1;
        /// The writer may not keep set-id bits.
        const FUSE_WRITE_KILL_SUIDGID = 1 << 2;
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct RenameFlags: u32 {
        const RENAME_NOREPLACE = 1 << 0;
        const RENAME_EXCHANGE = 1 << 1;
        const RENAME_WHITEOUT = 1 << 2;
    }

    /// What `access` asks for; none: whether the file is there.
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

    /// None are defined yet.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct CopyFileRangeFlags: u64 {
        const _ = !0;
    }

    /// Never sent on Linux, where `chattr` comes as an ioctl.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct BsdFileFlags: u32 {
        const _ = !0;
    }
}

/// Flags of `open(2)` as the kernel passes them on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpenFlags(pub i32);

/// What an open file may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types, reason = "the names that C gives them")]
pub enum OpenAccMode {
    O_RDONLY,
    O_WRONLY,
    O_RDWR,
}

impl OpenFlags {
    /// The fourth value (3: neither, for ioctls only) counts as both.
    pub fn acc_mode(self) -> OpenAccMode {
        match self.0 & 3 {
            0 => OpenAccMode::O_RDONLY,
            1 => OpenAccMode::O_WRONLY,
            _ => OpenAccMode::O_RDWR,
        }
    }
}
