//! fio with verification, and fsx.

use std::fs;
use std::process::Command;

use anyhow::{Result, bail};

use super::super::sys::*;
use super::super::{Bench, Needs, Test};

pub const TESTS: &[(Needs, Test)] =
    &[(Needs::Shared, ("programs::fio_verify", fio_verify)), (Needs::Shared, ("programs::fsx", fsx))];

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
