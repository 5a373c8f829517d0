//! Real programs on the mount: cp, rsync, tar, git, fio with verification, fsx.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use testkit::Rng;

use super::sys::*;
use super::{Bench, Test};

pub const TESTS: &[Test] = &[
    ("programs::cp_and_rsync_of_a_tree", copy_a_tree),
    ("programs::tar", tar),
    ("programs::git", git),
    ("programs::fio_verify", fio_verify),
    ("programs::fsx", fsx),
];

/// A tree like a source tree: many small files, some larger, symlinks, hard links, modes. Kept between tests of one run.
pub fn source_tree(parent: &Path, files: usize, seed: u64) -> Result<PathBuf> {
    let root = parent.join(format!("tree-{files}-{seed}"));
    if root.exists() {
        return Ok(root);
    }
    let mut rng = Rng::new(seed);
    for n in 0..files {
        let dir = root.join(format!("d{}/e{}", n / 500, n / 50 % 10));
        if n % 50 == 0 {
            fs::create_dir_all(&dir)?;
        }
        let size = match rng.below(100) {
            0..10 => 0,
            10..70 => rng.below(6_000),
            70..97 => rng.below(60_000),
            97..99 => rng.below(300_000),
            _ => rng.below(1_500_000),
        };
        let mut data = vec![0u8; size as usize];
        rng.fill(&mut data);
        fs::write(dir.join(format!("file{n}.c")), &data)?;
        if n % 100 == 7 {
            std::os::unix::fs::symlink(format!("file{n}.c"), dir.join(format!("link{n}")))?;
        }
    }
    Ok(root)
}

fn tree(b: &Bench) -> Result<PathBuf> {
    source_tree(&b.cluster.dir.join("source"), b.scale.tree_files, b.seed)
}

fn copy_a_tree(b: &mut Bench) -> Result<()> {
    let source = tree(b)?;
    let dir = b.dir("copies")?;
    let want = tree_digest(&source)?;
    run("cp", &["-a", &source.display().to_string(), "cp"], &dir)?;
    ensure_eq(tree_digest(&dir.join("cp"))? == want, true, "cp -a: the copy equals the source")?;
    let from = format!("{}/", source.display());
    run("rsync", &["-a", &from, "rsync/"], &dir)?;
    let again = run("rsync", &["-acin", "--delete", &from, "rsync/"], &dir)?;
    if !again.trim().is_empty() {
        bail!("rsync -c finds differences: {again}");
    }
    b.cluster.restart()?;
    ensure_eq(tree_digest(&dir.join("cp"))? == want, true, "cp -a: the copy after a restart")?;
    run("rm", &["-rf", "cp", "rsync"], &dir)?;
    Ok(())
}

fn tar(b: &mut Bench) -> Result<()> {
    let source = tree(b)?;
    let dir = b.dir("tar")?;
    run("tar", &["-cf", &dir.join("t.tar").display().to_string(), "."], &source)?;
    fs::create_dir(dir.join("x"))?;
    run("tar", &["-xf", "../t.tar"], &dir.join("x"))?;
    run("tar", &["-df", "../t.tar"], &dir.join("x"))?;
    ensure_eq(
        tree_digest(&dir.join("x"))? == tree_digest(&source)?,
        true,
        "the tree from the archive equals the source",
    )?;
    Ok(fs::remove_dir_all(dir)?)
}

fn git(b: &mut Bench) -> Result<()> {
    let source = tree(b)?;
    let dir = b.dir("git")?;
    let ident = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "gc.auto=0"];
    let repo = dir.join("repo");
    run("cp", &["-r", &source.join("d0").display().to_string(), "repo"], &dir)?;
    run("git", &["init", "-q"], &repo)?;
    run("git", &["add", "-A"], &repo)?;
    run("git", &[&ident[..], &["commit", "-qm", "one"]].concat(), &repo)?;
    fs::write(repo.join("new"), "two")?;
    run("git", &["add", "-A"], &repo)?;
    run("git", &[&ident[..], &["commit", "-qm", "two"]].concat(), &repo)?;
    run("git", &["clone", "-q", "--no-hardlinks", "repo", "clone"], &dir)?;
    run("git", &["repack", "-adq"], &dir.join("clone"))?;
    run("git", &["fsck", "--strict"], &dir.join("clone"))?;
    let status = run("git", &["status", "--porcelain"], &dir.join("clone"))?;
    ensure_eq(status.trim(), "", "git status of a fresh clone")?;
    Ok(fs::remove_dir_all(dir)?)
}

fn fio_verify(b: &mut Bench) -> Result<()> {
    let dir = b.dir("fio")?;
    for (name, rw, bs) in
        [("seq", "write", "1m"), ("random", "randwrite", "4k"), ("odd", "randwrite", "1k-70k")]
    {
        run(
            "fio",
            &[
                &format!("--name={name}"),
                "--size=48m",
                &format!("--rw={rw}"),
                &format!("--bs={bs}"),
                "--numjobs=2",
                "--verify=crc32c",
                "--verify_fatal=1",
                "--do_verify=1",
                "--ioengine=psync",
                "--fallocate=none",
                "--randrepeat=1",
                "--group_reporting",
            ],
            &dir,
        )?;
    }
    Ok(fs::remove_dir_all(dir)?)
}

/// fsx without mmap: `cargo install fsx --version 0.3` brings it.
fn fsx(b: &mut Bench) -> Result<()> {
    let program = fsx_program()?;
    let dir = b.dir("fsx")?;
    // Sizes around inline_max and over several objects.
    for (n, len) in ["48k", "256k", "4m"].iter().enumerate() {
        let bytes = match *len {
            "48k" => 48 << 10,
            "256k" => 256 << 10,
            _ => 4 << 20,
        };
        let config = dir.join(format!("fsx{n}.toml"));
        fs::write(&config, fsx_config(bytes))?;
        for seed in 0..b.scale.seeds {
            let ops = (b.scale.operations_per_seed() / 10).to_string();
            let seed = (b.seed + seed).to_string();
            run(
                &program,
                &["-N", &ops, "-S", &seed, "-f", &config.display().to_string(), &format!("file{n}")],
                &dir,
            )?;
        }
    }
    Ok(fs::remove_dir_all(dir)?)
}

fn fsx_config(file_len: u64) -> String {
    format!(
        "flen = {file_len}\nnomsyncafterwrite = true\n[opsize]\nmin = 1\nmax = 65536\n[weights]\nclose_open = 2\n\
         read = 20\nwrite = 20\nmapread = 0\nmapwrite = 0\ntruncate = 5\nfsync = 2\nfdatasync = 2\ninvalidate = 0\n\
         punch_hole = 0\nposix_fallocate = 0\ncopy_file_range = 0\nsendfile = 0\nposix_fadvise = 0\n"
    )
}

fn fsx_program() -> Result<String> {
    let installed = std::env::var("HOME").map(|h| format!("{h}/.cargo/bin/fsx")).unwrap_or_default();
    for program in ["fsx", &installed] {
        if Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success()) {
            return Ok(program.to_owned());
        }
    }
    bail!("fsx is not installed: cargo install fsx --version 0.3.0 --locked")
}
