//! The leader's side of a worker process (`worker.rs`), and a server's use of the machine.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};

/// Latencies in microseconds by operation, and errors.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    pub took: BTreeMap<String, Vec<u32>>,
    pub errors: u64,
    /// Some of them in full.
    pub shown: Vec<String>,
}

impl Stats {
    pub fn add(&mut self, other: Stats) {
        for (op, times) in other.took {
            self.took.entry(op).or_default().extend(times);
        }
        self.errors += other.errors;
        self.shown.extend(other.shown);
    }
}

/// A worker process; killed if the load ends before it.
pub struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    pub fn start(mut command: Command) -> Result<Process> {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("load worker")?;
        let input = child.stdin.take().context("its input")?;
        let output = BufReader::new(child.stdout.take().context("its output")?);
        Ok(Process { child, input, output })
    }

    /// Gives an order. `hear` waits for its end.
    pub fn order(&mut self, what: &str) -> Result<()> {
        Ok(writeln!(self.input, "{what}")?)
    }

    /// Waits until the order is carried out.
    pub fn hear(&mut self) -> Result<Stats> {
        let mut stats = Stats::default();
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                bail!("a load worker ended: {}", self.child.wait()?);
            }
            match line.trim_end().split_once(' ').unwrap_or((line.trim_end(), "")) {
                ("ok", _) => return Ok(stats),
                ("errors", count) => stats.errors = count.parse()?,
                ("error", why) => stats.shown.push(why.to_string()),
                ("took", rest) => {
                    let (op, times) = rest.split_once(' ').unwrap_or((rest, ""));
                    let times = times.split_whitespace().map(str::parse).collect::<Result<Vec<u32>, _>>()?;
                    stats.took.insert(op.to_string(), times);
                }
                _ => bail!("a load worker said {line:?}"),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Memory, threads and files of a server process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taken {
    pub rss_bytes: u64,
    pub threads: u64,
    pub files: u64,
}

impl Taken {
    pub fn by(pid: u32) -> Result<Taken> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let number = |name: &str| -> Result<u64> {
            let line = status.lines().find_map(|l| l.strip_prefix(name)).with_context(|| name.to_string())?;
            Ok(line.split_whitespace().next().context("a number")?.parse()?)
        };
        let files = std::fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64;
        Ok(Taken { rss_bytes: number("VmRSS:")? << 10, threads: number("Threads:")?, files })
    }
}

/// The kernel's own memory, of which sockets are a part.
pub fn kernel_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|l| l.strip_prefix("Slab:")).context("Slab")?;
    Ok(line.split_whitespace().next().context("a number")?.parse::<u64>()? << 10)
}
