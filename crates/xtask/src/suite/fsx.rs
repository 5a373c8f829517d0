//! fsx 0.3: random operations on one file, each read compared with the expected content: by mmap too, with holes, copies and
//! allocations. Then two at once, on two mounts where there are two.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use super::sys::*;
use super::{Bench, Test};

pub const TESTS: &[Test] = &[
    ("fsx::every_operation_on_one_file", one_file),
    ("fsx::two_processes_on_two_files", two_files),
    ("fsx::two_processes_take_turns_on_one_file", turns),
];

/// Around what stays inline, and over several objects.
const SIZES: [u64; 3] = [48 << 10, 256 << 10, 4 << 20];

fn one_file(b: &mut Bench) -> Result<()> {
    let dir = b.dir("fsx")?;
    for (n, size) in SIZES.into_iter().enumerate() {
        for seed in b.seed..b.seed + 2 * b.scale.seeds {
            let file = b.turn(seed, &dir).join(format!("file{n}"));
            finish(start(b, &file, size, seed, operations(b))?)?;
        }
    }
    Ok(fs::remove_dir_all(dir)?)
}

/// Each has a file of its own and, with two mounts, a mount of its own.
fn two_files(b: &mut Bench) -> Result<()> {
    let dir = b.dir("fsx-two-files")?;
    for size in SIZES {
        let mut running = Vec::new();
        for n in 0..2 {
            running.push(start(
                b,
                &b.turn(n, &dir).join(format!("file{n}")),
                size,
                b.seed + n,
                operations(b),
            )?);
        }
        running.into_iter().try_for_each(finish)?;
    }
    Ok(fs::remove_dir_all(dir)?)
}

/// One file, guarded by `flock` of another file on the mount: each process truncates and overwrites the content that the other left.
/// If the lock let both in, one would read bytes of the other.
fn turns(b: &mut Bench) -> Result<()> {
    let dir = b.dir("fsx-turns")?;
    let players: Vec<_> = (0..2u64)
        .map(|n| {
            let place = b.turn(n, &dir);
            let config = config(b, SIZES[1])?;
            let artifacts = b.cluster.dir.display().to_string();
            let (program, seed) = (cargo_program("fsx", "0.3")?, b.seed + n);
            // Both use the same names, so they share state through the file system only.
            Ok(std::thread::spawn(move || -> Result<()> {
                for round in 0..10 {
                    let seed = (seed + 2 * round).to_string();
                    let fsx =
                        [program.as_str(), "-N", "100", "-S", &seed, "-f", &config, "-P", &artifacts, "file"];
                    run("flock", &[&["lock"][..], &fsx].concat(), &place)?;
                }
                Ok(())
            }))
        })
        .collect::<Result<_>>()?;
    for player in players {
        player.join().map_err(|_| anyhow::anyhow!("a player panicked"))??;
    }
    Ok(fs::remove_dir_all(dir)?)
}

fn operations(b: &Bench) -> u64 {
    b.scale.operations_per_seed() / 50
}

fn config(b: &Bench, size: u64) -> Result<String> {
    let path = b.cluster.dir.join(format!("fsx-{size}.toml"));
    fs::write(
        &path,
        format!(
            "flen = {size}\n[opsize]\nmin = 1\nmax = 65536\n[weights]\nclose_open = 2\ninvalidate = 2\nread = 20\n\
             write = 20\nmapread = 10\nmapwrite = 10\ntruncate = 5\nfsync = 1\nfdatasync = 1\npunch_hole = 5\n\
             posix_fallocate = 3\ncopy_file_range = 5\nsendfile = 3\nposix_fadvise = 2\n"
        ),
    )?;
    Ok(path.display().to_string())
}

fn start(b: &Bench, file: &Path, size: u64, seed: u64, operations: u64) -> Result<(Child, String)> {
    let program = cargo_program("fsx", "0.3")?;
    let (config, artifacts) = (config(b, size)?, b.cluster.dir.display().to_string());
    let (operations, seed, file) = (operations.to_string(), seed.to_string(), file.display().to_string());
    let args = ["-N", &operations, "-S", &seed, "-f", &config, "-P", &artifacts, &file];
    let child = Command::new(&program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| program.clone())?;
    Ok((child, format!("fsx {}", args.join(" "))))
}

fn finish((child, what): (Child, String)) -> Result<()> {
    let out = child.wait_with_output()?;
    if out.status.success() {
        return Ok(());
    }
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    bail!("{what}: {}\n{}", out.status, said.lines().take(25).collect::<Vec<_>>().join("\n"))
}
