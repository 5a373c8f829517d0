//! Extended attributes of a path, by which tools query a mount without knowing its servers.

use std::io;
use std::path::Path;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// Largest value that the kernel supports (`XATTR_SIZE_MAX`).
const VALUE_MAX: usize = 64 * 1024;

/// The whole value; symlinks are followed.
pub fn get(path: &Path, name: &str) -> io::Result<Vec<u8>> {
    let mut value = vec![0; VALUE_MAX];
    let len = rustix::fs::getxattr(path, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

/// As `get`; `None` if there is no such attribute.
pub fn find(path: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
    match get(path, name) {
        Err(e) if e.raw_os_error() == Some(Errno::NODATA.raw_os_error()) => Ok(None),
        other => other.map(Some),
    }
}

pub fn set(path: &Path, name: &str, value: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::setxattr(path, name, value, XattrFlags::empty())?)
}

pub fn remove(path: &Path, name: &str) -> io::Result<()> {
    Ok(rustix::fs::removexattr(path, name)?)
}
