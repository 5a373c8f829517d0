//! Differences from ext4 that other tests found, one test each.

use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use anyhow::Result;
use rustix::io::Errno;

use super::sys::*;
use super::{Bench, Test};

pub const TESTS: &[Test] = &[("posix::a_running_program_keeps_its_text", running_program)];

/// `O_TRUNC` on a program that runs is refused before anything of it is cut.
fn running_program(b: &mut Bench) -> Result<()> {
    let program = b.dir("running_program")?.join("cat");
    fs::copy("/bin/cat", &program)?;
    fs::set_permissions(&program, Permissions::from_mode(0o755))?;
    let size = fs::metadata(&program)?.len();
    // It runs until its standard input is closed.
    let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    // Read-only with O_TRUNC is the form that only the truncation refuses.
    let cut = rustix::fs::open(&program, rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::TRUNC, 0.into());
    let refused = expect_errno(cut.map_err(Into::into), Errno::TXTBSY, "open with O_TRUNC");
    let write = expect_errno(OpenOptions::new().write(true).open(&program), Errno::TXTBSY, "open to write");
    let left = fs::metadata(&program)?.len();
    drop(child.stdin.take());
    let ended = child.wait()?;
    refused.and(write)?;
    ensure_eq(left, size, "size of the program")?;
    ensure_eq(ended.success(), true, "the program's end")
}
