//! IOzone in throughput mode: a process and a file per worker.

use anyhow::{Context, Result, bail, ensure};

use super::place::{check_length, place};
use super::{Part, Said, Tool, data, only, refuse_limits, text};
use crate::job::{Data, DataOp, Engine, Files, Flush, Order};
use crate::record::Outcome;

pub struct Iozone;

impl Tool for Iozone {
    fn program(&self) -> &'static str {
        "iozone"
    }

    fn version_args(&self) -> &'static [&'static str] {
        &["-v"]
    }

    fn version(&self, printed: &str) -> Option<String> {
        let (_, rest) = printed.split_once("Version $Revision:")?;
        Some(rest.split('$').next()?.trim().to_owned())
    }

    fn command(&self, parts: &[Part]) -> Result<Vec<String>> {
        let job = only(parts, "iozone")?;
        let data = data(job, "iozone")?;
        refuse_limits(job, "iozone")?;
        ensure!(job.limit.seconds.is_none(), "iozone ends after all bytes; leave `seconds` out");
        ensure!(
            matches!(data.files, Files::Own { .. }),
            "iozone has a file per process; take `files = \"own\"`, or ior"
        );
        ensure!(data.engine == Engine::Sync, "iozone is driven with plain calls; take depth 1, or fio");
        ensure!(data.shift == 0, "iozone's processes read their own files; leave `shift` out");
        ensure!(data.flush != Flush::Each, "iozone is driven with a flush at the end; take fio");
        let size = data.block_bytes * data.segments;
        ensure!(size % 1024 == 0 && data.transfer_bytes % 1024 == 0, "iozone's sizes are multiples of 1 KiB");
        check_length(job, data)?;
        // Without -x it stops all when the first one is done; with -+n it does not do each thing twice.
        let mut words: Vec<String> =
            ["iozone", test(data)?, "-+n", "-x", "-w", "-c"].map(String::from).into();
        if data.op == DataOp::Write && data.flush == Flush::End {
            words.push("-e".into());
        }
        if data.direct {
            words.push("-I".into());
        }
        let kib = |bytes: u64| format!("{}k", bytes / 1024);
        words.extend(["-r".into(), kib(data.transfer_bytes), "-s".into(), kib(size)]);
        words.extend(["-t".into(), job.workers.to_string(), "-F".into()]);
        for worker in 0..job.workers {
            words.push(text(&place(data, job.workers, worker).path)?.into());
        }
        Ok(words)
    }

    fn parse(&self, said: &Said, parts: &[Part]) -> Result<Vec<Outcome>> {
        let job = only(parts, "iozone")?;
        let data = data(job, "iozone")?;
        let (what, is_read) = match (data.op, data.order) {
            (DataOp::Read, Order::Sequential) => ("readers", true),
            (DataOp::Read, Order::Random) => ("random readers", true),
            (_, Order::Sequential) => ("initial writers", false),
            (_, Order::Random) => ("random writers", false),
        };
        let children = rate("Children", what, &said.stdout)?;
        let parent = rate("Parent", what, &said.stdout)?;
        ensure!(children > 0.0, "iozone's rate of {what} is 0");
        let bytes = u64::from(job.workers) * data.block_bytes * data.segments;
        let seconds = bytes as f64 / (children * 1024.0);
        let mut outcome = Outcome {
            seconds,
            first_done: seconds,
            last_done: seconds,
            ops: bytes / data.transfer_bytes,
            bytes,
            read_bytes: if is_read { bytes } else { 0 },
            ..Outcome::default()
        };
        // iozone's reports show the sum of the processes' own rates; this one counts from the first start to the last end.
        outcome.extra.insert("parent_mib_per_second".into(), parent / 1024.0);
        Ok(vec![outcome])
    }
}

fn test(data: &Data) -> Result<&'static str> {
    Ok(match (data.op, data.order, data.create) {
        (DataOp::Mixed { .. }, ..) => bail!("iozone's mixes cannot be told a share per transfer; take fio"),
        (DataOp::Write, Order::Sequential, true) => "-i0",
        (DataOp::Write, Order::Sequential, false) => {
            bail!("iozone writes files anew; leave `overwrite` out, or take ior")
        }
        (DataOp::Write, Order::Random, true) => {
            bail!("iozone's random writes need files that are there; write them first and say `overwrite`")
        }
        (DataOp::Read, Order::Sequential, _) => "-i1",
        (_, Order::Random, _) => "-i2",
    })
}

/// KiB per second in `Children see throughput for  2 initial writers = ...`.
fn rate(who: &str, what: &str, printed: &str) -> Result<f64> {
    let head = format!("{who} sees throughput for").replace("Children sees", "Children see");
    let found = printed.lines().find_map(|line| {
        let (title, value) = line.trim().strip_prefix(&head)?.split_once('=')?;
        let title: Vec<&str> = title.split_whitespace().skip(1).collect();
        (title.join(" ") == what).then(|| value.split_whitespace().next())?
    });
    let word = found.with_context(|| format!("iozone printed no rate of {what}"))?;
    word.parse().with_context(|| format!("iozone's rate of {what}: {word}"))
}
