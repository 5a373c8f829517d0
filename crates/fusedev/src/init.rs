//! INIT: the negotiation of kernel and file system before the first request.

use crate::InitFlags;
use crate::encode::Body;
use crate::request::Init;

/// Largest data of one request or reply. The kernel's own limit is 256 pages, unless root raised it.
pub const MAX_WRITE_BYTES: u32 = 1 << 20;
/// The protocol version of this crate; kernels with a later minor version stay compatible.
pub const MAJOR: u32 = 7;
pub const MINOR: u32 = 45;
/// Linux 5.4. INIT and requests have had their present lengths since then.
pub const MINOR_MIN: u32 = 31;
const PAGE: u32 = 4096;

/// The connection's limits and capabilities, to be set in `Filesystem::init`.
#[derive(Clone, Debug)]
pub struct KernelConfig {
    offered: InitFlags,
    wanted: InitFlags,
    minor: u32,
    max_write: u32,
    max_pages: u16,
    max_readahead: u32,
    max_readahead_offered: u32,
    max_background: u16,
}

impl KernelConfig {
    pub(crate) fn new(init: &Init) -> KernelConfig {
        let always = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_BIG_WRITES
            | InitFlags::FUSE_MAX_PAGES
            | InitFlags::FUSE_SETXATTR_EXT
            | InitFlags::FUSE_INIT_EXT;
        KernelConfig {
            offered: init.flags,
            wanted: always & init.flags,
            minor: init.minor,
            max_write: MAX_WRITE_BYTES,
            max_pages: 0,
            max_readahead: init.max_readahead,
            max_readahead_offered: init.max_readahead,
            max_background: 16,
        }
    }

    /// The capabilities that the kernel offers.
    pub fn capabilities(&self) -> InitFlags {
        self.offered
    }

    /// The kernel's minor version of the protocol.
    pub fn minor(&self) -> u32 {
        self.minor
    }

    /// `Err` holds the capabilities that the kernel lacks; then none is added.
    pub fn add_capabilities(&mut self, wanted: InitFlags) -> Result<(), InitFlags> {
        let lacking = wanted - self.offered;
        if !lacking.is_empty() {
            return Err(lacking);
        }
        self.wanted |= wanted;
        Ok(())
    }

    /// The capabilities that both sides have agreed on.
    pub fn agreed(&self) -> InitFlags {
        self.wanted
    }

    /// Each setter returns the previous value, or as error the nearest value that it accepts.
    pub fn set_max_write(&mut self, bytes: u32) -> Result<u32, u32> {
        match bytes {
            0..PAGE => Err(PAGE),
            PAGE..=MAX_WRITE_BYTES => Ok(std::mem::replace(&mut self.max_write, bytes)),
            _ => Err(MAX_WRITE_BYTES),
        }
    }

    /// Pages of the caller's memory that one request may touch, if that is more than the largest write fills. The kernel cuts it to its limit.
    pub fn set_max_pages(&mut self, pages: u16) {
        self.max_pages = pages;
    }

    pub fn set_max_readahead(&mut self, bytes: u32) -> Result<u32, u32> {
        match bytes {
            0 => Err(1),
            _ if bytes > self.max_readahead_offered => Err(self.max_readahead_offered),
            _ => Ok(std::mem::replace(&mut self.max_readahead, bytes)),
        }
    }

    pub fn set_max_background(&mut self, requests: u16) -> Result<u16, u16> {
        match requests {
            0 => Err(1),
            _ => Ok(std::mem::replace(&mut self.max_background, requests)),
        }
    }

    pub(crate) fn answer(&self) -> Body<64> {
        let flags = self.wanted.bits();
        let congestion = (self.max_background as u32 * 3 / 4) as u16;
        let mut body = Body::new();
        body.u32(MAJOR).u32(MINOR).u32(self.max_readahead).u32(flags as u32);
        body.u16(self.max_background).u16(congestion).u32(self.max_write);
        // Time granularity of 1 ns; at least as many pages per request as the largest write fills.
        let pages = self.max_pages.max(self.max_write.div_ceil(PAGE) as u16);
        body.u32(1).u16(pages).u16(0).u32((flags >> 32) as u32);
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(flags: InitFlags) -> KernelConfig {
        KernelConfig::new(&Init { major: 7, minor: 45, max_readahead: 131_072, flags })
    }

    #[test]
    fn only_what_the_kernel_offers_is_agreed_on() {
        let mut config = config(
            InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP | InitFlags::FUSE_INIT_EXT,
        );
        assert_eq!(config.agreed(), InitFlags::FUSE_INIT_EXT);
        let wish = InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_FLOCK_LOCKS;
        assert_eq!(config.add_capabilities(wish), Err(InitFlags::FUSE_FLOCK_LOCKS));
        config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).unwrap();
        let answer = config.answer();
        assert_eq!(answer.bytes()[..8], [7, 0, 0, 0, 45, 0, 0, 0]);
        assert_eq!(answer.bytes()[12..16], (1u32 << 30).to_ne_bytes());
        assert_eq!(answer.bytes()[32..36], (1u32 << 4).to_ne_bytes());
    }

    #[test]
    fn limits_are_kept_and_the_nearest_is_named() {
        let mut config = config(InitFlags::empty());
        assert_eq!(config.set_max_write(MAX_WRITE_BYTES + 1), Err(MAX_WRITE_BYTES));
        assert_eq!(config.set_max_write(65_536), Ok(MAX_WRITE_BYTES));
        assert_eq!(config.set_max_readahead(4 << 20), Err(131_072));
        assert_eq!(config.set_max_background(0), Err(1));
        let pages =
            |config: &KernelConfig| u16::from_ne_bytes(config.answer().bytes()[28..30].try_into().unwrap());
        assert_eq!(pages(&config), 16);
        config.set_max_pages(300);
        assert_eq!(pages(&config), 300);
    }
}
