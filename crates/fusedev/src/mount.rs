//! Makes a FUSE mount: by `mount(2)` as root, through `fusermount3` as another user.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::mount::MountFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};

/// The set-uid helper that mounts for plain users.
const HELPER: &str = "fusermount3";

/// Options of a mount.
#[derive(Clone, Debug)]
pub struct Options {
    /// The source in the mount table.
    pub source: String,
    /// The mount table shows the type `fuse.<subtype>`.
    pub subtype: String,
    /// Flags that the kernel itself applies: read-only, nosuid and so on.
    pub flags: MountFlags,
    /// Users other than the mounting one may use the mount.
    pub allow_other: bool,
    /// Largest read request, if it shall be smaller than the largest write.
    pub max_read: Option<u32>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("/dev/fuse: {0}; load the fuse module, and in a container pass the device in")]
    Device(io::Error),
    #[error("{0}; mounting needs root (CAP_SYS_ADMIN), or {HELPER} for other users")]
    Refused(io::Error),
    #[error(
        "{HELPER} is not installed, and only root can mount without it; install the package fuse3, or mount as root"
    )]
    NoHelper,
    #[error(
        "others than root may use allow_other only if /etc/fuse.conf says user_allow_other; write it there, or leave allow_other out"
    )]
    NoAllowOther,
    #[error("{HELPER}: {0}")]
    Helper(String),
}

/// Mounts at `point`, an absolute path. Returns the device of the new connection, on which INIT is pending.
pub fn mount(point: &Path, options: &Options) -> Result<OwnedFd, Error> {
    match rustix::process::geteuid().is_root() {
        true => by_system_call(point, options),
        false => by_helper(point, options),
    }
}

fn by_system_call(point: &Path, options: &Options) -> Result<OwnedFd, Error> {
    let device = File::options().read(true).write(true).open("/dev/fuse").map_err(Error::Device)?;
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut data = format!("fd={},rootmode=40000,user_id={uid},group_id={gid}", device.as_raw_fd());
    words(options).iter().for_each(|word| {
        data.push(',');
        data.push_str(word);
    });
    let data = CString::new(data).expect("numbers and fixed words have no NUL");
    let fs_type = format!("fuse.{}", options.subtype);
    rustix::mount::mount(options.source.as_str(), point, fs_type.as_str(), options.flags, data.as_c_str())
        .map_err(|e| Error::Refused(e.into()))?;
    Ok(device.into())
}

/// Options that kernel and helper take in the same form.
fn words(options: &Options) -> Vec<String> {
    let mut words = vec!["default_permissions".to_owned()];
    words.extend(options.allow_other.then(|| "allow_other".to_owned()));
    words.extend(options.max_read.map(|bytes| format!("max_read={bytes}")));
    words
}

/// The helper makes the mount and sends the device over the socket at its standard input.
fn by_helper(point: &Path, options: &Options) -> Result<OwnedFd, Error> {
    let failed = |e: rustix::io::Errno| Error::Helper(format!("a socket for it: {}", io::Error::from(e)));
    let (ours, its) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(failed)?;
    let mut command = Command::new(HELPER);
    command.arg("-o").arg(helper_options(options)).arg("--").arg(point).env("_FUSE_COMMFD", "0");
    command.stdin(Stdio::from(its)).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut helper = match command.spawn() {
        Ok(helper) => helper,
        // EACCES means that a directory of PATH cannot be searched and that no other one holds the helper.
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            return Err(Error::NoHelper);
        }
        Err(e) => return Err(Error::Helper(e.to_string())),
    };
    // `command` holds the helper's end of the socket. While it is open, a failing helper would not close the socket, and `recvmsg` would
    // block.
    drop(command);
    let device = receive_device(&ours);
    let mut said = String::new();
    if let Some(mut stderr) = helper.stderr.take() {
        stderr.read_to_string(&mut said).ok();
    }
    let status = helper.wait().map_err(|e| Error::Helper(e.to_string()))?;
    match device {
        Ok(Some(device)) => Ok(device),
        _ if said.contains("user_allow_other") => Err(Error::NoAllowOther),
        Ok(None) if said.trim().is_empty() => Err(Error::Helper(format!("it ended with {status}"))),
        Ok(None) => Err(Error::Helper(said.trim().trim_start_matches("fusermount3: ").to_owned())),
        Err(e) => Err(Error::Helper(e.to_string())),
    }
}

fn receive_device(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0; 1];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let device = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok(device)
}

fn helper_options(options: &Options) -> String {
    let known = [
        (MountFlags::NODEV, "nodev"),
        (MountFlags::NOSUID, "nosuid"),
        (MountFlags::NOEXEC, "noexec"),
        (MountFlags::NOATIME, "noatime"),
        (MountFlags::NODIRATIME, "nodiratime"),
        (MountFlags::SYNCHRONOUS, "sync"),
        (MountFlags::DIRSYNC, "dirsync"),
    ];
    // The helper ends an option at a comma that has no backslash before it.
    let plain = |text: &str| text.replace('\\', r"\\").replace(',', r"\,");
    let mut all = vec![
        format!("fsname={}", plain(&options.source)),
        format!("subtype={}", plain(&options.subtype)),
        if options.flags.contains(MountFlags::RDONLY) { "ro" } else { "rw" }.to_owned(),
    ];
    all.extend(
        known.iter().filter(|(flag, _)| options.flags.contains(*flag)).map(|(_, word)| word.to_string()),
    );
    all.extend(words(options));
    all.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helper_is_told_what_the_kernel_would_be() {
        let options = Options {
            source: r"10.0.0.5@tcp,10.0.0.6@tcp:/a\b".into(),
            subtype: "stria".into(),
            flags: MountFlags::RDONLY | MountFlags::NOATIME | MountFlags::NOSUID,
            allow_other: true,
            max_read: Some(65_536),
        };
        assert_eq!(
            helper_options(&options),
            r"fsname=10.0.0.5@tcp\,10.0.0.6@tcp:/a\\b,subtype=stria,ro,nosuid,noatime,default_permissions,allow_other,max_read=65536"
        );
    }
}
