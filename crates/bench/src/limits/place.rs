//! Which device holds the data of a measured directory, and which way leads to it.

use std::path::{Path, PathBuf};

/// A block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// `/dev/nvme0n1`.
    pub name: String,
    /// Its counters: `/sys/dev/block/259:0/stat`.
    pub counters: PathBuf,
    /// A directory on it; `None`: the measured one is.
    pub dir: Option<PathBuf>,
}

/// The device under a directory; else the reason why it is not known.
pub fn backing(dir: &Path, device_dir: Option<&Path>, file_system: &str) -> Result<Device, String> {
    if let Some(given) = device_dir {
        let found =
            block_device(given).ok_or_else(|| format!("{}: it is on no block device", given.display()))?;
        return Ok(Device { dir: Some(given.to_owned()), ..found });
    }
    if let Some(device) = block_device(dir) {
        return Ok(device);
    }
    // Servers of one machine tell their directory by the address of their socket.
    if let Some(store) = store_of(file_system) {
        let found = block_device(&store)
            .ok_or_else(|| format!("{}: the servers' directory is on no block device", store.display()))?;
        return Ok(Device { dir: Some(store), ..found });
    }
    let kind = file_system.split(' ').next().unwrap_or_default();
    Err(match kind {
        "tmpfs" | "ramfs" => "the file system is in memory and has no device".into(),
        _ => "the mount does not tell its device: give a directory on it with --device-dir".into(),
    })
}

fn block_device(dir: &Path) -> Option<Device> {
    let id = rustix::fs::stat(dir).ok()?.st_dev;
    let numbers = format!("{}:{}", rustix::fs::major(id), rustix::fs::minor(id));
    let link = PathBuf::from("/sys/dev/block").join(numbers);
    let name = std::fs::canonicalize(&link).ok()?.file_name()?.to_string_lossy().into_owned();
    Some(Device { name: format!("/dev/{name}"), counters: link.join("stat"), dir: None })
}

/// `fuse.stria on unix:/data/fs/run/stria.sock@local0:/stria`: `/data/fs`, where `stria up` keeps its targets.
fn store_of(file_system: &str) -> Option<PathBuf> {
    let (_, socket) = file_system.split_once(" on unix:")?;
    let (socket, _) = socket.rsplit_once('@')?;
    let store = Path::new(socket).parent()?.parent()?;
    store.is_dir().then(|| store.to_owned())
}

/// The host part of a network source: `10.0.0.1@tcp:/fs`, `10.0.0.1:988@tcp:/fs`, `server:/export`.
pub fn server_of(file_system: &str) -> Option<String> {
    let (_, source) = file_system.split_once(" on ")?;
    if source.starts_with("unix:") || source.starts_with('/') {
        return None;
    }
    let (address, _) = source.rsplit_once(":/")?;
    let address = address.split(['@', ',']).next()?;
    let host = match address.strip_prefix('[') {
        Some(rest) => rest.split(']').next()?,
        None => address.split(':').next()?,
    };
    (!host.is_empty()).then(|| host.to_owned())
}

/// Does a mount reach its servers over a network?
pub fn uses_network(file_system: &str) -> bool {
    server_of(file_system).is_some()
}
