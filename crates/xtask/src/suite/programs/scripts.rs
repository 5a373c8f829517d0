//! Our own scripts in Python and Go (`tests/programs`): they use what the languages' libraries use, and must pass on ext4 too.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::super::sys::*;
use super::super::{Bench, Needs, Test};

pub const TESTS: &[(Needs, Test)] =
    &[(Needs::Shared, ("programs::python", python)), (Needs::Shared, ("programs::go", go))];

/// One of `tests/programs`.
pub fn script(name: &str) -> Result<String> {
    let path = PathBuf::from("tests/programs").join(name);
    let path = path
        .canonicalize()
        .with_context(|| format!("{}: run from the root of the checkout", path.display()))?;
    Ok(path.display().to_string())
}

/// The scripts say `ok` per test; one that runs none shows nothing.
pub fn judge(command: &mut Command, count_min: usize) -> Result<()> {
    let out = command.output().with_context(|| format!("{:?} (installed?)", command.get_program()))?;
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    let passed = text.lines().filter(|l| l.starts_with("ok ")).count();
    if !out.status.success() || passed < count_min {
        let failed: Vec<&str> = text.lines().filter(|l| !l.starts_with("ok ")).collect();
        bail!("{}; {passed} passed: {}", out.status, failed.join("\n"));
    }
    Ok(())
}

fn python(b: &mut Bench) -> Result<()> {
    let dir = b.dir("python")?;
    for (name, count_min) in [("os_calls.py", 14), ("files.py", 10)] {
        let mut command = Command::new("python3");
        judge(command.arg(script(name)?).arg(&dir).env("PYTHONDONTWRITEBYTECODE", "1"), count_min)?;
    }
    Ok(fs::remove_dir_all(dir)?)
}

/// The program is built on the mount, with Go's build cache there, and runs from there.
fn go(b: &mut Bench) -> Result<()> {
    let dir = b.dir("go")?;
    let program = dir.join("os_calls");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(script("os_calls.go")?).current_dir(&dir);
    build
        .env("GOCACHE", dir.join("cache"))
        .env("GO111MODULE", "off")
        .env("GOFLAGS", "")
        .env("CGO_ENABLED", "0");
    let out = build.output().context("go (installed?)")?;
    ensure_eq(out.status.success(), true, &format!("go build: {}", String::from_utf8_lossy(&out.stderr)))?;
    judge(Command::new(program).arg(&dir), 12)?;
    Ok(fs::remove_dir_all(dir)?)
}
