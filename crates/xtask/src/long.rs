//! `cargo xtask long`: full counts of everything, and its output kept with commit and date as proof.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs the long forms in turn and writes `docs/proof/long.txt`, also when something fails: then it says so.
pub fn run(bin: &Path, parent: &Path, seed: u64) -> Result<()> {
    let me = std::env::current_exe()?;
    let dir = parent.display().to_string();
    let seed = seed.to_string();
    let mut out = header()?;
    let mut failed = false;
    let unit = ["test", "--workspace", "--quiet", "--release"];
    failed |= !step(
        &mut out,
        Command::new("cargo").args(unit).env("STRIA_LONG", "1"),
        "cargo test (STRIA_LONG=1)",
    )?;
    let suite = ["suite", "--scale", "long", "--seed", &seed, "--dir", &dir];
    failed |= !step(
        &mut out,
        Command::new(&me).args(suite).env("STRIA_BIN", bin),
        "cargo xtask suite --scale long",
    )?;
    fs::create_dir_all("docs/proof")?;
    fs::write("docs/proof/long.txt", &out)?;
    println!("written: docs/proof/long.txt");
    if failed {
        bail!("something failed; see docs/proof/long.txt");
    }
    Ok(())
}

fn header() -> Result<String> {
    let ask = |program: &str, args: &[&str]| -> Result<String> {
        let out = Command::new(program).args(args).output().with_context(|| program.to_owned())?;
        Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
    };
    Ok(format!(
        "cargo xtask long\ncommit {}\ndate {}\nkernel {}\n",
        ask("git", &["describe", "--always", "--dirty", "--abbrev=12"])?,
        ask("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"])?,
        ask("uname", &["-r"])?
    ))
}

/// Runs one part; keeps the lines that say something passed or failed.
fn step(out: &mut String, command: &mut Command, title: &str) -> Result<bool> {
    println!("+ {title}");
    let result = command.stdin(Stdio::null()).output()?;
    let text =
        format!("{}{}", String::from_utf8_lossy(&result.stdout), String::from_utf8_lossy(&result.stderr));
    print!("{text}");
    out.push_str(&format!("\n== {title}: {}\n", if result.status.success() { "passed" } else { "FAILED" }));
    let telling = ["test result:", "ok     ", "FAILED", "passed,", "panicked", "again:"];
    for line in text.lines().filter(|l| telling.iter().any(|t| l.contains(t))) {
        out.push_str(line);
        out.push('\n');
    }
    Ok(result.status.success())
}
