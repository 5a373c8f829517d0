//! Making a FUSE mount: by `mount(2)` as root, through `fusermount3` as somebody else.

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

/// Mounts for plain users.
const HELPER: &str = "fusermount3";

/// How a mount is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Shown as the source.
    pub source: String,
    /// The type is shown as `fuse.<subtype>`.
    pub subtype: String,
    /// Read-only, nosuid and their like: what the kernel itself minds.
    pub flags: MountFlags,
    /// Others than who mounts may use it.
    pub allow_other: bool,
    /// Largest read request, if it is to be smaller than the largest write.
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

/// Mounts at `point`, an absolute path; the device of the new connection, on which INIT waits.
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

/// What kernel and helper are told in the same words.
fn words(options: &Options) -> Vec<String> {
    let mut words = vec!["default_permissions".to_owned()];
    words.extend(options.allow_other.then(|| "allow_other".to_owned()));
    words.extend(options.max_read.map(|bytes| format!("max_read={bytes}")));
    words
}

/// The helper makes the mount and sends the device over the socket that it finds at its standard input.
fn by_helper(point: &Path, options: &Options) -> Result<OwnedFd, Error> {
    let failed = |e: rustix::io::Errno| Error::Helper(format!("a socket for it: {}", io::Error::from(e)));
    let (ours, its) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(failed)?;
    let mut command = Command::new(HELPER);
    command.arg("-o").arg(helper_options(options)).arg("--").arg(point).env("_FUSE_COMMFD", "0");
    command.stdin(Stdio::from(its)).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut helper = match command.spawn() {
        Ok(helper) => helper,
        // EACCES: a directory of PATH that may not be searched, and it is in none of the others.
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            return Err(Error::NoHelper);
        }
        Err(e) => return Err(Error::Helper(e.to_string())),
    };
    // It holds the helper's end of the socket: while it lives, the end of a helper that failed would go unnoticed.
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
    // The helper ends an option at a comma unless a backslash stands before it.
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
