//! The caller of a request: the kernel sends uid and gid; supplementary groups are read from `/proc`.
//!
//! If mounts may be idmapped, only the kernel knows the effective ids. It checks permissions itself and sends only the owner of what is
//! created.

use fusedev::{Request, UNKNOWN_ID};
use types::Cred;

use crate::door::Door;

impl Door {
    /// The caller's identity. Root has no groups here: no rule needs them.
    pub(crate) fn cred(&self, request: &Request) -> Cred {
        let (uid, gid) = (request.uid(), request.gid());
        match uid {
            _ if self.options.idmap => Cred::checked(uid, gid),
            0 => Cred { uid, gid, groups: Vec::new() },
            _ => Cred { uid, gid, groups: groups_of(request.pid()) },
        }
    }
}

/// Whether root is the caller. If the kernel does not name the user, the process decides.
pub fn is_root(request: &Request) -> bool {
    match request.uid() {
        UNKNOWN_ID => fsuid_of(request.pid()) == Some(0),
        uid => uid == 0,
    }
}

/// `None` for a process that is gone or invisible to this one.
fn fsuid_of(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok().filter(|_| pid != 0)?;
    parse_fsuid(&status)
}

/// The line holds the real, effective, saved and file system uid, in this order; the last one counts.
fn parse_fsuid(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().nth(3)?.parse().ok()
}

/// A process that is gone, or outside of this pid namespace (pid 0), has no groups: that gives it fewer rights, never more.
fn groups_of(pid: u32) -> Vec<u32> {
    if pid == 0 {
        return Vec::new();
    }
    std::fs::read_to_string(format!("/proc/{pid}/status")).map(|s| parse_groups(&s)).unwrap_or_default()
}

fn parse_groups(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    line.map(|l| l.split_ascii_whitespace().filter_map(|g| g.parse().ok()).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_from_a_status_file() {
        assert_eq!(
            parse_groups("Name:\tx\nGid:\t5\t5\t5\t5\nGroups:\t4 24 1000 \nNStgid:\t1\n"),
            vec![4, 24, 1000]
        );
        assert_eq!(parse_groups("Groups:\t \n"), Vec::<u32>::new());
        assert_eq!(parse_groups(""), Vec::<u32>::new());
    }

    #[test]
    fn the_user_of_a_process_is_read_from_a_status_file() {
        assert_eq!(parse_fsuid("Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t5\t5\t5\n"), Some(4));
        assert_eq!(parse_fsuid("Uid:\t1\n"), None);
        assert_eq!(fsuid_of(std::process::id()), Some(rustix::process::geteuid().as_raw()));
        assert_eq!((fsuid_of(0), fsuid_of(u32::MAX)), (None, None));
    }

    #[test]
    fn the_groups_of_this_process_are_found_and_those_of_none_are_not() {
        let ours = rustix::process::getgroups().unwrap();
        let seen = groups_of(std::process::id());
        assert!(ours.iter().all(|g| seen.contains(&g.as_raw())));
        assert_eq!(groups_of(0), Vec::<u32>::new());
        assert_eq!(groups_of(u32::MAX), Vec::<u32>::new());
    }
}
