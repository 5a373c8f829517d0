//! The programs that make namespaces, and the removal of namespaces of earlier processes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::PREFIX;

/// Where `ip netns` keeps names.
pub const NAMESPACES: &str = "/run/netns";

/// A program and the Debian package that has it.
pub struct Tool {
    program: &'static str,
    package: &'static str,
}

pub const IP: Tool = Tool { program: "ip", package: "iproute2" };
pub const TC: Tool = Tool { program: "tc", package: "iproute2" };
pub const NSENTER: Tool = Tool { program: "nsenter", package: "util-linux" };
pub const UNSHARE: Tool = Tool { program: "unshare", package: "util-linux" };

impl Tool {
    /// Looks in `PATH`, and where programs for root lie: these are not on the path of every shell.
    pub fn path(&self) -> io::Result<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
        let found = folders.map(|dir| dir.join(self.program)).find(|program| program.is_file());
        found.ok_or_else(|| {
            let Tool { program, package } = self;
            let text = format!("the program {program} is missing; install the package {package}");
            io::Error::new(io::ErrorKind::NotFound, text)
        })
    }

    /// Fails with the program's words.
    pub fn run(&self, args: &[&str]) -> io::Result<()> {
        self.output(args).map(drop)
    }

    fn output(&self, args: &[&str]) -> io::Result<String> {
        let out = Command::new(self.path()?).args(args).stdin(Stdio::null()).output()?;
        if !out.status.success() {
            let words = String::from_utf8_lossy(&out.stderr);
            return Err(io::Error::other(format!("{} {}: {}", self.program, args.join(" "), words.trim())));
        }
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }
}

/// Programs that namespaces need.
pub fn check() -> io::Result<()> {
    [IP, TC, NSENTER, UNSHARE].iter().try_for_each(|tool| tool.path().map(drop))?;
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => {
            let why = "hosts are network namespaces, which only root can make; run it as root";
            Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
        }
    }
}

/// Removes the namespaces of processes that are gone, and ends what still runs in them. `own`: also those with the pid of this process.
/// Two processes may do so at the same time, and each finds less than it looked for.
pub fn remove_stale(own: bool) {
    let Ok(names) = fs::read_dir(NAMESPACES) else { return };
    for name in names.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        let Some(pid) = owner(&name) else { continue };
        let is_stale = if pid == std::process::id() { own } else { !is_alive(pid) };
        if !is_stale {
            continue;
        }
        for pid in IP.output(&["netns", "pids", &name]).unwrap_or_default().lines() {
            if let Some(pid) = pid.trim().parse().ok().and_then(Pid::from_raw) {
                kill_process(pid, Signal::KILL).ok();
            }
        }
        IP.run(&["netns", "delete", &name]).ok();
    }
}

/// The process that made a namespace of this name.
fn owner(namespace: &str) -> Option<u32> {
    owner_of(namespace, PREFIX)
}

/// The pid in `PREFIX PID - ...`.
pub fn owner_of(name: &str, prefix: &str) -> Option<u32> {
    let (pid, _) = name.strip_prefix(prefix)?.split_once('-')?;
    pid.parse().ok()
}

pub fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// Unmounts everything below a folder, the deepest first. True if nothing is mounted there any more.
pub fn unmount_below(dir: &Path) -> bool {
    let Ok(table) = fs::read_to_string("/proc/self/mountinfo") else { return false };
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(Path::new);
    let mut points: Vec<&Path> = points.filter(|point| point.starts_with(dir)).collect();
    points.sort();
    let detach = |point: &&Path| rustix::mount::unmount(*point, rustix::mount::UnmountFlags::DETACH).is_ok();
    points.iter().rev().all(detach)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_names_the_process_that_made_it() {
        assert_eq!(owner("stria-4711-0-oss-1"), Some(4711));
        assert_eq!(owner("stria-4711"), None);
        assert_eq!(owner("stria4711-a"), None);
        assert_eq!(owner("stria-x-0-a"), None);
        assert!(is_alive(std::process::id()));
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let tool = Tool { program: "no-such-program-of-stria", package: "a-package" };
        let words = tool.path().unwrap_err().to_string();
        assert_eq!(words, "the program no-such-program-of-stria is missing; install the package a-package");
    }
}
