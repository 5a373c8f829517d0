//! fio with verification.

use std::fs;

use anyhow::Result;

use super::super::sys::*;
use super::super::{Bench, Needs, Test};

pub const TESTS: &[(Needs, Test)] = &[(Needs::Shared, ("programs::fio_verify", fio_verify))];

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
