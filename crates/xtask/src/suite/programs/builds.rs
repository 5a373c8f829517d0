//! Building a program on the mount: cargo with its locks, hard links and fingerprints, and a program that runs from there.

use std::fs;
use std::path::Path;

use anyhow::{Result, bail};

use super::super::sys::*;
use super::super::{Bench, Needs, Test};

pub const TESTS: &[(Needs, Test)] = &[(Needs::Shared, ("programs::cargo_build", cargo_build))];

/// A library of some modules, a binary and a test.
fn write_crate(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir.join("src"))?;
    fs::write(
        dir.join("Cargo.toml"),
        "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
    )?;
    let modules: String = (0..8).map(|n| format!("pub mod m{n};\n")).collect();
    fs::write(dir.join("src/lib.rs"), modules)?;
    for n in 0..8 {
        fs::write(
            dir.join(format!("src/m{n}.rs")),
            format!(
                "pub fn f(x: u64) -> u64 {{ x * {n} + 1 }}\n#[test]\nfn t() {{ assert_eq!(f(2), {}); }}\n",
                2 * n + 1
            ),
        )?;
    }
    fs::write(dir.join("src/main.rs"), "fn main() { println!(\"{}\", small::m3::f(7)); }\n")?;
    Ok(())
}

fn cargo_build(b: &mut Bench) -> Result<()> {
    let dir = b.dir("cargo")?;
    write_crate(&dir)?;
    let target = format!("--target-dir={}", dir.join("target").display());
    let cargo = |args: &[&str]| run("cargo", &[args, &["--offline", &target]].concat(), &dir);
    cargo(&["build"])?;
    ensure_eq(
        run(&dir.join("target/debug/small").display().to_string(), &[], &dir)?.trim(),
        "22",
        "what it prints",
    )?;
    // Nothing changed: nothing is built. One file changed: it is seen by its time, and built.
    let again = cargo(&["build", "-v"])?;
    if again.contains("Running") {
        bail!("built again though nothing changed: {again}");
    }
    fs::write(dir.join("src/m3.rs"), "pub fn f(x: u64) -> u64 { x * 100 }\n")?;
    cargo(&["build"])?;
    ensure_eq(
        run(&dir.join("target/debug/small").display().to_string(), &[], &dir)?.trim(),
        "700",
        "after a change",
    )?;
    cargo(&["test", "--quiet"])?;
    Ok(fs::remove_dir_all(dir)?)
}
