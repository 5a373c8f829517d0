//! System calls in the form in which tests speak of them.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::io::Errno;

/// Fails unless `result` is the given error.
pub fn expect_errno<T>(result: io::Result<T>, want: Errno, what: &str) -> Result<()> {
    match result {
        Ok(_) => bail!("{what}: succeeded, expected {want:?}"),
        Err(e) if e.raw_os_error() == Some(want.raw_os_error()) => Ok(()),
        Err(e) => bail!("{what}: {e}, expected {want:?}"),
    }
}

pub fn ensure_eq<T: PartialEq + std::fmt::Debug>(got: T, want: T, what: &str) -> Result<()> {
    if got != want {
        bail!("{what}: {got:?}, expected {want:?}");
    }
    Ok(())
}

/// Fails with the first differing byte, not with megabytes of both.
pub fn ensure_same(got: &[u8], want: &[u8], what: &str) -> Result<()> {
    if got.len() != want.len() {
        bail!("{what}: {} bytes, expected {}", got.len(), want.len());
    }
    match got.iter().zip(want).position(|(a, b)| a != b) {
        Some(at) => bail!("{what}: byte {at} is {:#x}, expected {:#x}", got[at], want[at]),
        None => Ok(()),
    }
}

/// Runs a program; gives its output; fails with it if the exit code is not 0.
pub fn run(program: &str, args: &[&str], cwd: &Path) -> Result<String> {
    let out = Command::new(program).args(args).current_dir(cwd).stdin(Stdio::null()).output();
    let out = out.with_context(|| format!("{program} (installed?)"))?;
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if !out.status.success() {
        let tail: Vec<&str> = text.lines().rev().take(15).collect();
        bail!(
            "{program} {}: {}\n{}",
            args.join(" "),
            out.status,
            tail.into_iter().rev().collect::<Vec<_>>().join("\n")
        );
    }
    Ok(text)
}

/// Runs a shell script as another user with the given groups; gives its exit code.
pub fn as_user(uid: u32, groups: &str, cwd: &Path, script: &str) -> Result<i32> {
    let (u, g) = (format!("--reuid={uid}"), format!("--regid={uid}"));
    let groups = if groups.is_empty() { "--clear-groups".to_owned() } else { format!("--groups={groups}") };
    let status = Command::new("setpriv")
        .args([u.as_str(), g.as_str(), groups.as_str(), "sh", "-c", script])
        .current_dir(cwd)
        .stderr(Stdio::null())
        .stdin(Stdio::null())
        .status()
        .context("setpriv")?;
    Ok(status.code().unwrap_or(-1))
}

pub fn set_xattr(path: &Path, name: &str, value: &[u8], flags: rustix::fs::XattrFlags) -> io::Result<()> {
    Ok(rustix::fs::setxattr(path, name, value, flags)?)
}

pub fn get_xattr(path: &Path, name: &str) -> io::Result<Vec<u8>> {
    let mut buf = vec![0u8; 70_000];
    let n = rustix::fs::getxattr(path, name, &mut buf[..])?;
    buf.truncate(n);
    Ok(buf)
}

pub fn list_xattrs(path: &Path) -> io::Result<Vec<String>> {
    let mut buf = vec![0u8; 70_000];
    let n = rustix::fs::listxattr(path, &mut buf[..])?;
    Ok(buf[..n]
        .split(|b| *b == 0)
        .filter(|s| !s.is_empty())
        .map(|s| String::from_utf8_lossy(s).into_owned())
        .collect())
}

/// Checksum of a whole tree: names, kinds, modes, sizes, content, symlink targets, in name order.
pub fn tree_digest(root: &Path) -> Result<Vec<(String, u64)>> {
    let mut out = Vec::new();
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            let meta = fs::symlink_metadata(&path)?;
            let shown = path.strip_prefix(root)?.display().to_string();
            let mut hash = fnv(0, &meta.mode().to_le_bytes());
            if meta.is_dir() {
                todo.push(path);
            } else if meta.is_symlink() {
                hash = fnv(hash, fs::read_link(&path)?.as_os_str().as_bytes());
            } else if meta.is_file() {
                let bytes = fs::read(&path).with_context(|| shown.clone())?;
                hash = fnv(fnv(hash, &meta.len().to_le_bytes()), &bytes);
            }
            out.push((shown, hash));
        }
    }
    out.sort();
    Ok(out)
}

fn fnv(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(seed ^ 0xcbf2_9ce4_8422_2325, |h, b| (h ^ *b as u64).wrapping_mul(0x100_0000_01b3))
}

/// A test program that `cargo install` brings (`scripts/deps test`).
pub fn cargo_program(name: &str, version: &str) -> Result<String> {
    let home = std::env::var("CARGO_HOME")
        .or_else(|_| std::env::var("HOME").map(|h| format!("{h}/.cargo")))
        .unwrap_or_default();
    for program in [name.to_owned(), format!("{home}/bin/{name}")] {
        if Command::new(&program).arg("--version").output().is_ok_and(|o| o.status.success()) {
            return Ok(program);
        }
    }
    bail!("{name} is not installed: cargo install {name} --version ^{version} --locked")
}

/// Gives this thread, and threads that it starts, a table of open files of their own, with the standard streams only. A program that another thread
/// starts would inherit files of a mount, and its `execve` would close them first: with all servers down that waits, and the program may be one
/// of the servers.
pub fn own_files() {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_FILES).expect("a thread may have files of its own");
    // The copies of other threads' pipes would keep their readers waiting.
    let open = fs::read_dir("/proc/thread-self/fd").expect("proc is mounted");
    let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let others: Vec<i32> = numbers.filter(|number| *number > 2).collect();
    // The list itself has a number too, which is closed by now.
    others.into_iter().for_each(|number| _ = nix::unistd::close(number));
}
