//! IOR: a task per worker, under mpirun where there is more than one.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::{Part, Said, Tool, data, only, refuse_limits, text, under_mpi};
use crate::job::{Data, DataOp, Engine, Files, Flush, Job, Order};
use crate::record::Outcome;

pub struct Ior;

impl Tool for Ior {
    fn program(&self) -> &'static str {
        "ior"
    }

    fn version_args(&self) -> &'static [&'static str] {
        &["-a", "DUMMY", "-w", "-b", "8", "-t", "8", "-o", "none"]
    }

    fn version(&self, printed: &str) -> Option<String> {
        let line = printed.lines().find_map(|line| line.strip_prefix("IOR-"))?;
        Some(line.split(':').next()?.trim().to_owned())
    }

    fn command(&self, parts: &[Part]) -> Result<Vec<String>> {
        let job = only(parts, "ior")?;
        let data = data(job, "ior")?;
        refuse_limits(job, "ior")?;
        let mut words = vec!["ior".into(), "-a".into()];
        words.push(match data.engine {
            Engine::Sync => "POSIX".into(),
            Engine::Null => "DUMMY".into(),
            Engine::Uring { .. } => bail!("ior has plain calls only; take depth 1, or fio"),
        });
        words.extend(["-v", "-k", "-i", "1"].map(String::from));
        words.push(match data.op {
            DataOp::Write => "-w".into(),
            DataOp::Read => "-r".into(),
            DataOp::Mixed { .. } => bail!("ior cannot mix reads and writes; take fio"),
        });
        let sizes = [("-t", data.transfer_bytes), ("-b", data.block_bytes), ("-s", data.segments)];
        words.extend(sizes.iter().flat_map(|(option, n)| [option.to_string(), n.to_string()]));
        words.extend(flags(job, data)?);
        let path = match &data.files {
            Files::Own { stem } => stem,
            Files::Shared { path } => path,
            Files::Given { paths } => match &paths[..] {
                [path] => path,
                _ => bail!("ior has one file, or one per task; take fio for several given ones"),
            },
        };
        words.extend(["-o".into(), text(path)?.into()]);
        Ok(under_mpi(job.workers, words))
    }

    fn parse(&self, said: &Said, parts: &[Part]) -> Result<Vec<Outcome>> {
        let job = only(parts, "ior")?;
        let data = data(job, "ior")?;
        let access = if data.op == DataOp::Read { "read" } else { "write" };
        let told = rows(&said.stdout)?;
        let row = told.iter().find(|row| row.access == access);
        let row = row.with_context(|| format!("ior printed no row of {access}"))?;
        let all = u64::from(job.workers) * data.segments * data.block_bytes;
        // Less than that was done when the time was over.
        let bytes = match (job.limit.seconds, aggregate(&said.stdout, access)) {
            (Some(_), Some(bytes)) => bytes.next_multiple_of(data.transfer_bytes).min(all),
            _ => all,
        };
        ensure!(row.total_seconds > 0.0, "ior tells of no time: make it longer");
        let mib = bytes as f64 / f64::from(1 << 20);
        // Whichever has more digits of the two: both are printed with two after the point, or six below 1.
        let seconds = if row.mib_per_second > 10.0 { mib / row.mib_per_second } else { row.total_seconds };
        let mut outcome = Outcome {
            seconds,
            first_done: seconds,
            last_done: seconds,
            ops: bytes / data.transfer_bytes,
            bytes,
            read_bytes: if data.op == DataOp::Read { bytes } else { 0 },
            ..Outcome::default()
        };
        let parts = [("open", row.open), ("access", row.access_seconds), ("close", row.close)];
        for (name, value) in parts {
            if let Some(value) = value {
                outcome.extra.insert(format!("{name}_seconds"), value);
            }
        }
        Ok(vec![outcome])
    }
}

fn flags(job: &Job, data: &Data) -> Result<Vec<String>> {
    let mut words: Vec<String> = Vec::new();
    let mut flag = |on: bool, word: &str| {
        if on {
            words.push(word.into());
        }
    };
    flag(matches!(data.files, Files::Own { .. }), "-F");
    flag(data.op == DataOp::Write && !data.create, "-E");
    flag(data.order == Order::Random, "-z");
    flag(data.direct, "--posix.odirect");
    if data.op == DataOp::Write {
        flag(data.flush == Flush::End, "-e");
        flag(data.flush == Flush::Each, "-Y");
    }
    if data.shift != 0 {
        ensure!(
            data.op == DataOp::Read,
            "ior shifts tasks for reading only; leave `shift` out of what writes"
        );
        ensure!(
            data.order == Order::Sequential || matches!(data.files, Files::Own { .. }),
            "ior cannot shift tasks and draw random places in one file; take files of their own"
        );
        flag(true, "-C");
        words.extend(["-Q".into(), data.shift.to_string()]);
    }
    if let Some(seconds) = job.limit.seconds {
        ensure!(seconds >= 1.0, "ior's time is whole seconds, at least 1");
        words.extend(["-D".into(), (seconds.round() as u64).to_string()]);
    }
    Ok(words)
}

/// A row of IOR's results. Values that IOR does not print there are `None`.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Row {
    /// `write`, `read`.
    pub access: String,
    pub mib_per_second: f64,
    pub iops: Option<f64>,
    pub open: Option<f64>,
    /// From the first transfer to the last.
    pub access_seconds: Option<f64>,
    pub close: Option<f64>,
    pub total_seconds: f64,
    /// From 0.
    pub iteration: usize,
}

/// The rows of writes and reads, of the table of 3.x and 4.x or of a JSON summary. Rows of removals are left out.
pub fn rows(printed: &str) -> Result<Vec<Row>> {
    if printed.trim_start().starts_with('{') {
        return json_rows(printed);
    }
    let mut header: Vec<String> = Vec::new();
    let mut rows = Vec::new();
    for line in printed.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.first() {
            Some(&"access") if words.contains(&"iter") => {
                header = words.iter().map(|word| word.to_lowercase()).collect();
            }
            Some(&("write" | "read")) if !header.is_empty() && words.len() == header.len() => {
                rows.push(row(&header, &words).with_context(|| format!("a row of ior: {line}"))?);
            }
            Some(&"Max" | &"Summary") => header.clear(),
            _ => {}
        }
    }
    ensure!(!header.is_empty() || !rows.is_empty(), "ior printed no table");
    Ok(rows)
}

/// By the names in the header: 3.0 has no columns of IOPS and latency.
fn row(header: &[String], words: &[&str]) -> Result<Row> {
    let column = |name: &str| header.iter().position(|title| title == name).map(|at| words[at]);
    let maybe = |name: &str| column(name).and_then(|word| word.parse::<f64>().ok());
    let number = |name: &str| maybe(name).with_context(|| format!("no number under {name}"));
    Ok(Row {
        access: words[0].into(),
        mib_per_second: number("bw(mib/s)")?,
        iops: maybe("iops"),
        open: maybe("open(s)"),
        access_seconds: maybe("wr/rd(s)"),
        close: maybe("close(s)"),
        total_seconds: number("total(s)")?,
        iteration: number("iter")? as usize,
    })
}

fn json_rows(printed: &str) -> Result<Vec<Row>> {
    let told: Value = serde_json::from_str(printed).context("ior's JSON cannot be read")?;
    let mut rows: Vec<Row> = Vec::new();
    let results = told["tests"].as_array().into_iter().flatten();
    for result in results.flat_map(|test| test["Results"].as_array().into_iter().flatten()) {
        let access = result["access"].as_str().unwrap_or_default().to_owned();
        let (Some(mib), Some(total)) = (result["bwMiB"].as_f64(), result["totalTime"].as_f64()) else {
            continue;
        };
        rows.push(Row {
            mib_per_second: mib,
            iops: result["iops"].as_f64(),
            open: result["openTime"].as_f64(),
            access_seconds: result["wrRdTime"].as_f64(),
            close: result["closeTime"].as_f64(),
            total_seconds: total,
            iteration: rows.iter().filter(|row| row.access == access).count(),
            access,
        });
    }
    Ok(rows)
}

/// Bytes that were moved, by the table of all tests.
fn aggregate(printed: &str, access: &str) -> Option<u64> {
    let mut lines = printed.lines().skip_while(|line| !line.starts_with("Operation"));
    let header: Vec<&str> = lines.next()?.split_whitespace().collect();
    let row: Vec<&str> = lines
        .map(|line| line.split_whitespace().collect())
        .find(|row: &Vec<&str>| row.first() == Some(&access))?;
    // "API" and "RefNum" stand behind it.
    let at = header.iter().position(|title| *title == "aggs(MiB)")?;
    let mib: f64 = row.get(at)?.parse().ok()?;
    Some((mib * f64::from(1 << 20)).round() as u64)
}
