//! Who asks: the kernel sends uid and gid with each request; supplementary groups are read from `/proc`.

use fusedev::Request;
use types::Cred;

/// The caller's identity. For root the groups are left out: no rule asks for them.
pub fn cred_of(request: &Request) -> Cred {
    let groups = if request.uid() == 0 { Vec::new() } else { groups_of(request.pid()) };
    Cred { uid: request.uid(), gid: request.gid(), groups }
}

/// A process that is gone, or that lives in a pid name space which we cannot see (pid 0), has no groups here: fewer rights, never
/// more.
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
    fn the_groups_of_this_process_are_found_and_those_of_none_are_not() {
        let ours = rustix::process::getgroups().unwrap();
        let seen = groups_of(std::process::id());
        assert!(ours.iter().all(|g| seen.contains(&g.as_raw())));
        assert_eq!(groups_of(0), Vec::<u32>::new());
        assert_eq!(groups_of(u32::MAX), Vec::<u32>::new());
    }
}
