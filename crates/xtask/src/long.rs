//! `cargo xtask long`: full counts of everything, and its output kept with commit, date and machine as proof.
//!
//! It is of parts, because it takes hours: each can be run by itself, and has a proof of its own.
//!
//! xtask-L1: what is proven is a commit: a tree with changes is refused at the beginning, and at the end.  xtask-L2: every test is counted by
//! its own line. The proof keeps counts per test program, and each failure and skip in full; a passed test leaves no line of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use crate::binary;

const PROOFS: &str = "docs/proof";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Tests of crates and stories.
    Crates,
    /// Suites on mounted file systems, by wiring.
    Local,
    Tcp,
    Two,
    /// Mirrored targets.
    Pair,
}

impl Part {
    fn name(self) -> String {
        self.to_possible_value().expect("no part is skipped").get_name().to_owned()
    }
    fn proof(self) -> String {
        format!("{PROOFS}/long-{}.txt", self.name())
    }
}

/// Results of the parts.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

/// Builds, runs the parts in turn and writes the proof of each when it ends, also when something failed: then it says so.
pub fn run(parts: &[Part], parent: &Path, seed: u64) -> Result<()> {
    // 1. The commit and the binary of this proof.
    ensure!(std::env::var_os("STRIA_BIN").is_none(), "long tests what it builds itself: unset STRIA_BIN");
    refuse_changes()?;
    let commit = commit()?;
    super::cargo(&["build", "--release", "--quiet", "--package", "stria", "--package", "stria-index"])?;
    let bin = binary()?;

    let mut bad = Vec::new();
    for part in parts {
        // 2. The part.
        let mut out = header(*part, &commit, &bin, seed)?;
        let mut counts = Counts::default();
        let is_good = match part {
            // As `cargo test` builds them, so that overflows are found too.
            Part::Crates => steps(
                &mut out,
                &mut counts,
                Command::new("cargo").args(["test", "--workspace", "--no-fail-fast"]).env("STRIA_LONG", "1"),
                "STRIA_LONG=1 cargo test --workspace",
            )?,
            Part::Local | Part::Tcp | Part::Two | Part::Pair => {
                let (wiring, seed) = (part.name(), seed.to_string());
                let suite = ["suite", "--scale", "long", "--wiring", &wiring, "--seed", &seed, "--dir"];
                let mut command = Command::new(std::env::current_exe()?);
                command.args(suite).arg(parent).env("STRIA_BIN", &bin);
                // Those with two mounts have certificates too, which they lack in the short form.
                command.env(testkit::cluster::TLS_VARIABLE, "on");
                let title = format!("cargo xtask suite --scale long --wiring {wiring} --seed {seed}");
                steps(&mut out, &mut counts, &mut command, &title)?
            }
        };

        // 3. Its proof.
        let sum = format!("{} skipped\n{} passed, {} failed\n", counts.skipped, counts.passed, counts.failed);
        out.push_str(&format!("\n{sum}"));
        refuse_changes()?;
        ensure!(self::commit()? == commit, "another commit was checked out meanwhile: nothing is proven");
        fs::create_dir_all(PROOFS)?;
        let proof = part.proof();
        fs::write(&proof, without_parent(&out, parent)).with_context(|| proof.clone())?;
        print!("\nwritten: {proof}\n{sum}");
        if !is_good || counts.failed > 0 {
            bad.push(proof);
        }
    }
    ensure!(bad.is_empty(), "something failed; see {}", bad.join(", "));
    Ok(())
}

/// Removes the parent directory from the output, so that a proof does not depend on the machine.
fn without_parent(out: &str, parent: &Path) -> String {
    out.replace(&parent.display().to_string(), "DIR")
}

fn ask(program: &str, args: &[&str]) -> Result<String> {
    let out = Command::new(program).args(args).output().with_context(|| program.to_owned())?;
    ensure!(out.status.success(), "{program} {}: {}", args.join(" "), String::from_utf8_lossy(&out.stderr));
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

fn commit() -> Result<String> {
    ask("git", &["rev-parse", "HEAD"])
}

/// xtask-L1. Files of proofs may differ, since runs write them.
fn refuse_changes() -> Result<()> {
    let status = ask("git", &["status", "--porcelain"])?;
    let changed: Vec<&str> = status.lines().filter(|line| !line.contains(PROOFS)).collect();
    if !changed.is_empty() {
        bail!("the tree differs from its commit, so a proof would be of neither:\n{}", changed.join("\n"));
    }
    Ok(())
}

fn header(part: Part, commit: &str, bin: &Path, seed: u64) -> Result<String> {
    let cpu_info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu_info.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or_default();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = memory.lines().next().unwrap_or_default().trim_start_matches("MemTotal:").trim();
    Ok(format!(
        "cargo xtask long --part {} --seed {seed}\ncommit {commit}\nbegun {}\nmachine {} cores,{}; {memory}\nkernel {}\n{}\n{}\n",
        part.name(),
        ask("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"])?,
        std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        model.trim_start_matches([' ', '\t', ':']),
        ask("uname", &["-srm"])?,
        ask("rustc", &["--version"])?,
        ask(&bin.display().to_string(), &["--version"])?,
    ))
}

/// Runs a test command, shows all that it prints, counts results and keeps the lines of `is_kept`. False: it failed.
fn steps(out: &mut String, counts: &mut Counts, command: &mut Command, title: &str) -> Result<bool> {
    println!("+ {title}");
    let began = Instant::now();
    // One pipe for both, so that lines stay in their order.
    let (reader, writer) = std::io::pipe()?;
    let mut child = command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer).spawn()?;
    // The command keeps its ends of the pipe, and the reader would wait for them for ever.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut kept = String::new();
    let mut has_failed = false;
    for line in BufReader::new(reader).lines() {
        let line = line?;
        println!("{line}");
        counts.add(&line);
        if is_kept(&line, &mut has_failed) {
            kept.push_str(without_place(&line));
            kept.push('\n');
        }
    }
    let is_good = child.wait()?.success();
    let verdict = if is_good { "passed" } else { "FAILED" };
    out.push_str(&format!("\n== {title}: {verdict} in {:.0} s\n{kept}", began.elapsed().as_secs_f64()));
    Ok(is_good)
}

/// Where a test program lies says something of the machine only.
fn without_place(line: &str) -> &str {
    let is_program = line.starts_with("     Running ");
    line.split(" (").next().filter(|_| is_program).unwrap_or(line).trim_end()
}

/// Does the proof keep this line? `has_failed`: the last result was a failure, so that the remarks below it tell why.
fn is_kept(line: &str, has_failed: &mut bool) -> bool {
    let is_remark = line.strip_prefix("       ").is_some_and(|l| l.starts_with(|c: char| !c.is_whitespace()));
    if is_remark {
        return *has_failed;
    }
    let is_failure = line.starts_with("FAILED") || line.starts_with("test ") && line.ends_with("... FAILED");
    let is_skip = line.starts_with("skip ");
    if is_failure || is_skip || line.starts_with("ok ") || line.starts_with("test ") {
        *has_failed = is_failure || is_skip;
    }
    let begins = ["test result:", "     Running ", "   Doc-tests ", "error"];
    is_failure
        || is_skip
        || begins.iter().any(|b| line.starts_with(b))
        || line.ends_with(" skipped, each for the reason above")
        || line.contains("panicked at")
        || line.ends_with(" failed")
}

impl Counts {
    /// Each test by its own line; sums that are printed of them are not counted again.
    fn add(&mut self, line: &str) {
        let is_test = line.starts_with("test ") && !line.starts_with("test result:");
        self.passed += (is_test && line.ends_with("... ok") || line.starts_with("ok ")) as u64;
        self.skipped += line.starts_with("skip ") as u64;
        self.failed += (is_test && line.ends_with("... FAILED") || line.starts_with("FAILED ")) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_does_not_name_the_directory_it_ran_in() {
        let out =
            without_parent("pjdfstest on /data/suites/local/c1-1/mnt: 397 passed", Path::new("/data/suites"));
        assert_eq!(out, "pjdfstest on DIR/local/c1-1/mnt: 397 passed");
    }

    #[test]
    fn results_are_kept_and_counted_once() {
        let mut out = String::new();
        let mut counts = Counts::default();
        let text = "   Compiling x\n     Running tests/a.rs (target/a)\ntest a::b ... ok\ntest c ... FAILED\ntest d ... ignored\n\
            thread 'c' panicked at a.rs:1:\ntest result: FAILED. 1 passed; 1 failed; 1 ignored\n\
            ok     Local life::x (1.0 s)\n       3 sequences against ext4\nFAILED Tcp life::y (2.0 s): why\n       again: so\n\
            skip   Two life::z: no such device\n1 passed, 1 failed\n";
        let mut command = Command::new("sh");
        command.args(["-c", "printf '%s' \"$0\"; echo 'test late ... ok' >&2; exit 3", text]);
        assert!(!steps(&mut out, &mut counts, &mut command, "a part").unwrap());
        assert_eq!(counts, Counts { passed: 3, failed: 2, skipped: 1 });
        let kept: Vec<&str> = out.lines().skip(2).collect();
        let expected = [
            "     Running tests/a.rs",
            "test c ... FAILED",
            "thread 'c' panicked at a.rs:1:",
            "test result: FAILED. 1 passed; 1 failed; 1 ignored",
            "FAILED Tcp life::y (2.0 s): why",
            "       again: so",
            "skip   Two life::z: no such device",
            "1 passed, 1 failed",
        ];
        assert_eq!(kept, expected, "passed tests and their remarks leave no line");
        assert!(out.starts_with("\n== a part: FAILED in 0 s\n"), "{out}");
    }
}
