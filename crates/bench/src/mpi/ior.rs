//! `stria bench ior`: IOR's options become write and read jobs, the outcomes its table.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::table::{Moment, Spread, cell, file_system, size};
use super::words::{Given, Known, refuse};
use super::{Bench, Page};
use crate::job::{Data, DataOp, Engine, Files, Flush, Job, Limit, Order, Work};
use crate::record::Outcome;

const KNOWN: Known = Known {
    flags: "CeEFgkKmqrRvwWYzB",
    valued: "aAbdDGiNoOQstTX",
    words: &[("posix", "posix"), ("posix.odirect", "B"), ("np=", "N"), ("engine=", "engine")],
    refused: &[
        ("-c", "collective I/O needs MPI-IO: leave it out"),
        ("-f", "give the script's options here, a command per test"),
        ("-H", "hints are MPI-IO's: leave it out"),
        ("-I", "data sets are HDF5's: leave it out"),
        ("-j", "leave it out; `stria bench run` shows each worker's share"),
        ("-J", "alignment is HDF5's: leave it out"),
        ("-l", "leave it out; content is random, with stamps that -R checks"),
        ("-M", "leave it out; memory is not filled, take -C and a -b of twice the memory against caches"),
        ("-n", "leave it out; the number of workers is -np N"),
        ("-p", "leave it out; nothing is preallocated"),
        ("-P", "shared pointers are MPI-IO's: leave it out"),
        ("-S", "strided access is MPI-IO's: take -s segments"),
        ("-u", "leave it out; files of all workers are in one directory"),
        ("-U", "hints are MPI-IO's: leave it out"),
        ("-V", "views are MPI-IO's: leave it out"),
        ("-x", "leave it out; a short transfer is an error"),
        ("-y", "leave it out; measure the two mounts one by one"),
        ("-Z", "take -C, which shifts all tasks by -Q"),
    ],
};

/// A run as the options say it.
#[derive(Clone, Debug, PartialEq)]
pub struct Ior {
    pub(super) path: PathBuf,
    pub(super) own_files: bool,
    pub(super) write: bool,
    pub(super) read: bool,
    pub(super) check_write: bool,
    pub(super) check_read: bool,
    pub(super) keep: bool,
    pub(super) existing: bool,
    pub(super) many_files: bool,
    pub(super) transfer: u64,
    pub(super) block: u64,
    pub(super) segments: u64,
    pub(super) tasks: u32,
    pub(super) reorder: bool,
    pub(super) offset: u32,
    pub(super) random: bool,
    direct: bool,
    pub(super) flush: Flush,
    engine: Engine,
    pub(super) repeats: u32,
    pub(super) delay: u64,
    pub(super) deadline: Option<u64>,
    pub(super) minutes: u64,
    seed: u64,
    pub(super) reference: u64,
    pub(super) verbose: u32,
    /// In place of the table.
    json: bool,
    /// Where table or JSON goes in place of the standard output.
    file: Option<PathBuf>,
}

impl Default for Ior {
    /// IOR's own defaults.
    fn default() -> Ior {
        Ior {
            path: "testFile".into(),
            own_files: false,
            write: false,
            read: false,
            check_write: false,
            check_read: false,
            keep: false,
            existing: false,
            many_files: false,
            transfer: 256 << 10,
            block: 1 << 20,
            segments: 1,
            tasks: 1,
            reorder: false,
            offset: 1,
            random: false,
            direct: false,
            flush: Flush::Never,
            engine: Engine::Sync,
            repeats: 1,
            delay: 0,
            deadline: None,
            minutes: 0,
            seed: 0,
            reference: 0,
            verbose: 0,
            json: false,
            file: None,
        }
    }
}

impl Ior {
    pub fn parse(args: &[String]) -> Result<Ior> {
        let mut ior = Ior::default();
        for given in KNOWN.read(args)? {
            ior.take(&given)?;
        }
        if !(ior.write || ior.read || ior.check_write || ior.check_read) {
            (ior.write, ior.read) = (true, true);
        }
        ior.check()?;
        Ok(ior)
    }

    fn take(&mut self, given: &Given) -> Result<()> {
        match given.name.as_str() {
            // Barriers stand between all phases; the first error ends all; a repetition is as random as the one before.
            "posix" | "g" | "q" | "K" | "X" => {}
            "a" if given.value.eq_ignore_ascii_case("posix") => {}
            "a" => {
                return refuse(
                    format!("-a {} is not there", given.value),
                    "take -a POSIX: the file system's own calls",
                );
            }
            "A" => self.reference = given.number()?,
            "b" => self.block = given.size()?,
            "B" => self.direct = true,
            "C" => self.reorder = true,
            "d" => self.delay = given.number()?,
            "D" => self.deadline = Some(given.number()?).filter(|seconds| *seconds > 0),
            "e" => self.flush = Flush::End,
            "E" => self.existing = true,
            "F" => self.own_files = true,
            "G" => self.seed = given.number()?,
            "i" => self.repeats = given.small()?,
            "k" => self.keep = true,
            "m" => self.many_files = true,
            "N" => self.tasks = given.small()?,
            "o" => self.path = given.path(),
            "O" => self.directives(&given.value)?,
            "Q" => self.offset = given.small()?,
            "r" => self.read = true,
            "R" => self.check_read = true,
            "s" => self.segments = given.number()?,
            "t" => self.transfer = given.size()?,
            "T" => self.minutes = given.number()?,
            "v" => self.verbose += 1,
            "w" => self.write = true,
            "W" => self.check_write = true,
            "Y" => self.flush = Flush::Each,
            "z" => self.random = true,
            "engine" => self.engine = engine(&given.value)?,
            other => unreachable!("an option that is known and not taken: {other}"),
        }
        Ok(())
    }

    /// `-O`: output directives; those without an effect here are accepted.
    fn directives(&mut self, value: &str) -> Result<()> {
        for one in value.split(',') {
            match one.split_once('=') {
                Some(("summaryFormat", format)) if format.eq_ignore_ascii_case("json") => self.json = true,
                Some(("summaryFormat", "default")) => self.json = false,
                Some(("summaryFile", path)) if !path.is_empty() => self.file = Some(path.into()),
                Some(("stoneWallingWearOut" | "minTimeDuration", "0")) => {}
                _ => {
                    return refuse(
                        format!("-O {one} is not understood here"),
                        "leave it out; summaryFormat=JSON and summaryFile=FILE are, and `stria bench run` writes CSV",
                    );
                }
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        if self.transfer == 0 || self.block == 0 || !self.block.is_multiple_of(self.transfer) {
            let why = format!("-b {} is no multiple of -t {}", self.block, self.transfer);
            return refuse(why, "give a block of whole transfers");
        }
        let all = self.block.checked_mul(self.segments).and_then(|n| n.checked_mul(u64::from(self.tasks)));
        if all.is_none_or(|all| all == 0) {
            return refuse(
                "there is nothing to move, or more than a file can hold",
                "look at -b, -s and -np",
            );
        }
        if self.direct && !self.transfer.is_multiple_of(512) {
            return refuse("direct I/O moves whole sectors", "give a -t that is a multiple of 4k");
        }
        if self.random && self.reorder && !self.own_files {
            return refuse("-z and -C do not go together in one file", "take -F, or one of the two");
        }
        let reads = self.read || self.check_read || self.check_write;
        if self.random && self.write && reads && self.deadline.is_some() {
            let why = "-z and -D: what is read would not be what was written until the time was over";
            return refuse(why, "leave one of the two out, or write and read in two runs");
        }
        if self.repeats == 0 {
            return refuse("-i 0 does nothing", "give 1 or more");
        }
        Ok(())
    }

    fn path_of(&self, repeat: u32) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        if self.many_files && self.repeats > 1 {
            path.push(format!(".{repeat}"));
        }
        // Relative to where the user is; workers may be elsewhere.
        std::path::absolute(&path).unwrap_or_else(|_| path.into())
    }

    /// The job of one access in one repetition.
    pub fn job(&self, op: DataOp, repeat: u32) -> Job {
        let is_write = op == DataOp::Write;
        let path = self.path_of(repeat);
        let data = Data {
            op,
            order: if self.random { Order::Random } else { Order::Sequential },
            files: if self.own_files { Files::Own { stem: path } } else { Files::Shared { path } },
            transfer_bytes: self.transfer,
            block_bytes: self.block,
            segments: self.segments,
            shift: if self.reorder && !is_write { self.offset % self.tasks } else { 0 },
            ops_max: None,
            engine: self.engine,
            direct: self.direct,
            flush: if is_write { self.flush } else { Flush::Never },
            create: is_write && !self.existing,
            version: version_of(repeat),
            accept: self.accepted(op, repeat),
            read_back: 0,
        };
        Job {
            work: Work::Data(data),
            workers: self.tasks,
            limit: Limit { seconds: self.deadline.map(|seconds| seconds as f64), ..Limit::default() },
            // Written with stamps always: a later run may check them.
            verify: is_write || self.check_read,
            seed: self.seed,
            forget_pages: false,
            holds: Vec::new(),
        }
    }

    /// Data that this run wrote must have this repetition's version. A read-only run finds the last version of an earlier run.
    fn accepted(&self, op: DataOp, repeat: u32) -> Vec<u64> {
        match self.write || op == DataOp::Write {
            true => vec![version_of(repeat)],
            false => (0..self.repeats.max(REPEATS_KNOWN)).map(version_of).collect(),
        }
    }

    fn bytes(&self) -> u64 {
        self.block * self.segments * u64::from(self.tasks)
    }

    pub fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        let Some(path) = &self.file else { return self.run_to_page(bench) };
        // Open the output before any measurement, so that an unwritable path fails early.
        let mut file = File::create(path).with_context(|| format!("making {}", path.display()))?;
        bench.page.line(format_args!("Writing output to {}", path.display()))?;
        let (runner, command) = (&mut *bench.runner, bench.command.clone());
        self.run_to_page(&mut Bench { runner, page: Page { to: &mut file }, command })
    }

    /// Prints the rows that were measured, also when a later one failed.
    fn run_to_page(&self, bench: &mut Bench<'_>) -> Result<()> {
        let mut done = Rows::default();
        if self.json {
            let begun = Moment::now().long();
            let (mut nowhere, command) = (std::io::sink(), bench.command.clone());
            let page = Page { to: &mut nowhere };
            let result = self.repeat(&mut Bench { runner: &mut *bench.runner, page, command }, &mut done);
            let text = super::ior_json::text(self, &done, &bench.command, &begun);
            bench.page.line(format_args!("{text}"))?;
            return result;
        }
        self.header(bench)?;
        let result = self.repeat(bench, &mut done);
        self.summary(bench, &done)?;
        result
    }

    fn repeat(&self, bench: &mut Bench<'_>, done: &mut Rows) -> Result<()> {
        let begin = Instant::now();
        for repeat in 0..self.repeats {
            if repeat > 0 && self.minutes > 0 && begin.elapsed() > Duration::from_secs(60 * self.minutes) {
                return bench.page.line(format_args!("The time of -T is over after {repeat} repetitions."));
            }
            let accessed = self.accesses(bench, repeat, done);
            if !self.keep {
                let begin = Instant::now();
                self.remove(repeat);
                let dash = "-          -          -           -          -          -          -          -          ";
                let seconds = cell(Some(begin.elapsed().as_secs_f64()));
                if accessed.is_ok() && self.verbose > 0 {
                    bench.page.line(format_args!("remove    {dash}{seconds} {repeat:<4}"))?;
                }
            }
            accessed?;
        }
        Ok(())
    }

    /// Write, look at it, read.
    fn accesses(&self, bench: &mut Bench<'_>, repeat: u32, done: &mut Rows) -> Result<()> {
        let mut holds = Vec::new();
        if self.write {
            let outcome = self.access(bench, "write", self.job(DataOp::Write, repeat), repeat)?;
            if self.deadline.is_some() {
                holds = outcome.per_worker.iter().map(|share| share.done).collect();
            }
            done.write.push(outcome);
        }
        let read = |verify| Job { verify, holds: holds.clone(), ..self.job(DataOp::Read, repeat) };
        if self.check_write {
            bench.page.line(format_args!("Verifying contents of the file(s) just written."))?;
            bench.page.line(format_args!("{}", Moment::now().long()))?;
            let mut job = read(true);
            job.limit = Limit::default();
            bench.one("check", job)?;
        }
        if self.read || self.check_read {
            done.read.push(self.access(bench, "read", read(self.check_read), repeat)?);
        }
        Ok(())
    }

    fn access(&self, bench: &mut Bench<'_>, name: &str, job: Job, repeat: u32) -> Result<Outcome> {
        if self.delay > 0 {
            if self.verbose > 0 {
                bench.page.line(format_args!("delaying {} seconds . . .", self.delay))?;
            }
            std::thread::sleep(Duration::from_secs(self.delay));
        }
        if self.verbose > 0 {
            let now = Moment::now().long();
            bench.page.line(format_args!("Commencing {name} performance test: {now}"))?;
        }
        let outcome = bench.one(name, job)?;
        bench.page.line(format_args!("{}", self.row(name, &outcome, repeat)))?;
        Ok(outcome)
    }

    /// The numbers of a row, from its rate to its whole time.
    pub(super) fn cells(&self, outcome: &Outcome) -> [Option<f64>; 9] {
        let seconds = outcome.seconds.max(1e-9);
        let known = |key: &str| outcome.extra.get(key).copied();
        let access = known("access_seconds").unwrap_or(seconds).max(1e-9);
        let latency = |share: &crate::record::WorkerShare| share.seconds / share.ops.max(1) as f64;
        let least = outcome.per_worker.iter().map(latency).reduce(f64::min);
        [
            Some(mib(outcome.bytes) / seconds),
            // Of the transfers alone, without opening and closing; the rate of bytes is of all.
            Some(outcome.ops as f64 / access),
            least,
            Some(self.block as f64 / 1024.0),
            Some(self.transfer as f64 / 1024.0),
            known("open_seconds"),
            Some(access),
            known("close_seconds"),
            Some(seconds),
        ]
    }

    fn row(&self, name: &str, outcome: &Outcome, repeat: u32) -> String {
        let cells = self.cells(outcome).map(cell);
        // One column is a space wider than the others.
        format!("{name:<9} {} {} {}  {} {repeat:<4}", cells[0], cells[1], cells[2], cells[3..].join(" "))
    }

    fn remove(&self, repeat: u32) {
        let path = self.path_of(repeat);
        let files: Vec<PathBuf> = match self.own_files {
            true => (0..self.tasks).map(|w| crate::tools::own_path(&path, u64::from(w))).collect(),
            false => vec![path],
        };
        for file in files {
            // A missing file is fine; other causes already showed as a failed write.
            std::fs::remove_file(file).ok();
        }
    }

    fn header(&self, bench: &mut Bench<'_>) -> Result<()> {
        let command = bench.command.clone();
        let now = Moment::now().long();
        let page = &mut bench.page;
        let version = env!("CARGO_PKG_VERSION");
        page.line(format_args!(
            "stria bench ior {version}: IOR's options and table, by processes of this host"
        ))?;
        page.line(format_args!("Began               : {now}"))?;
        page.line(format_args!("Command line        : {command}"))?;
        page.line(format_args!(
            "Machine             : Linux {}",
            rustix::system::uname().nodename().to_string_lossy()
        ))?;
        page.line(format_args!("TestID              : 0"))?;
        page.line(format_args!("StartTime           : {now}"))?;
        page.line(format_args!("Path                : {}", self.path.display()))?;
        page.line(format_args!("FS                  : {}", file_system(&self.path)))?;
        page.line(format_args!("Participating tasks : {}", self.tasks))?;
        if self.reorder {
            page.line(format_args!("Using reorderTasks '-C' (useful to avoid read cache in client)"))?;
        }
        page.line(format_args!("\nOptions: "))?;
        for (name, value) in self.options() {
            page.line(format_args!("{name:<20}: {value}"))?;
        }
        page.line(format_args!("\nResults: \n"))?;
        page.line(format_args!("access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter"))?;
        page.line(format_args!("------    ---------  ----       ----------  ---------- ---------  --------   --------   --------   --------   ----"))
    }

    pub(super) fn options(&self) -> Vec<(&'static str, String)> {
        let mut options = vec![
            ("api", "POSIX".to_owned()),
            ("apiVersion", String::new()),
            ("test filename", self.path.display().to_string()),
            ("access", if self.own_files { "file-per-process" } else { "single-shared-file" }.into()),
            ("type", "independent".into()),
            ("segments", self.segments.to_string()),
            ("ordering in a file", if self.random { "random" } else { "sequential" }.into()),
            (
                "ordering inter file",
                if self.reorder { "constant task offset" } else { "no tasks offsets" }.into(),
            ),
        ];
        if self.reorder {
            options.push(("task offset", self.offset.to_string()));
        }
        options.extend([
            ("nodes", "1".into()),
            ("tasks", self.tasks.to_string()),
            ("clients per node", self.tasks.to_string()),
            ("repetitions", self.repeats.to_string()),
            ("xfersize", size(self.transfer)),
            ("blocksize", size(self.block)),
            ("aggregate filesize", size(self.bytes())),
        ]);
        let more = [
            ("stonewallingTime", self.deadline.map(|seconds| seconds.to_string())),
            ("verbose", (self.verbose > 0).then(|| self.verbose.to_string())),
        ];
        options.extend(more.into_iter().filter_map(|(name, value)| Some((name, value?))));
        options
    }

    fn summary(&self, bench: &mut Bench<'_>, done: &Rows) -> Result<()> {
        let page = &mut bench.page;
        for (title, outcomes) in [("Max Write: ", &done.write), ("Max Read:  ", &done.read)] {
            let rates = outcomes.iter().map(|outcome| outcome.bytes as f64 / outcome.seconds.max(1e-9));
            if let Some(max) = rates.reduce(f64::max) {
                let (mib, mb) = (max / f64::from(1 << 20), max / 1e6);
                page.line(format_args!("{title}{mib:.2} MiB/sec ({mb:.2} MB/sec)"))?;
            }
        }
        page.line(format_args!("\nSummary of all tests:"))?;
        page.line(format_args!("Operation   Max(MiB)   Min(MiB)  Mean(MiB)     StdDev   Max(OPs)   Min(OPs)  Mean(OPs)     StdDev    Mean(s) Stonewall(s) Stonewall(MiB) Test# #Tasks tPN reps fPP reord reordoff reordrand seed segcnt   blksiz    xsize aggs(MiB)   API RefNum"))?;
        for (name, outcomes) in [("write", &done.write), ("read", &done.read)] {
            if !outcomes.is_empty() {
                page.line(format_args!("{}", self.summary_row(name, outcomes)))?;
            }
        }
        page.line(format_args!("Finished            : {}", Moment::now().long()))
    }

    fn summary_row(&self, name: &str, outcomes: &[Outcome]) -> String {
        let rates = |of: fn(&Outcome) -> f64| {
            let values: Vec<f64> = outcomes.iter().map(|o| of(o) / o.seconds.max(1e-9)).collect();
            let spread = Spread::of(&values);
            format!(
                "{:>10.2} {:>10.2} {:>10.2} {:>10.2}",
                spread.max, spread.min, spread.mean, spread.deviation
            )
        };
        let mean = outcomes.iter().map(|o| o.seconds).sum::<f64>() / outcomes.len() as f64;
        // It counts transfers of whole size here, as the rate of bytes says.
        let (moved, ops) = (rates(|o| mib(o.bytes)), rates(|o| o.ops as f64));
        let bytes = mib(outcomes[0].bytes);
        let tasks = self.tasks;
        let stonewall = format!("{:>10} {:>13}", "NA", "NA");
        let settings = format!(
            "{:>5} {tasks:>6} {tasks:>3} {:>4} {:>3} {:>5} {:>8} {:>9} {:>4} {:>6} {:>8} {:>8} {bytes:>9.1} POSIX {:>6}",
            0,
            self.repeats,
            u8::from(self.own_files),
            u8::from(self.reorder),
            self.offset,
            0,
            0,
            self.segments,
            self.block,
            self.transfer,
            self.reference
        );
        format!("{name:<9} {moved} {ops} {mean:>10.5} {stonewall} {settings}")
    }
}

/// Repetitions that a run may have had whose files another run only reads and checks: each is tried.
const REPEATS_KNOWN: u32 = 32;

/// A repetition that wrote nothing must not pass for the one before.
fn version_of(repeat: u32) -> u64 {
    u64::from(repeat) + 1
}

#[derive(Default)]
pub(super) struct Rows {
    pub write: Vec<Outcome>,
    pub read: Vec<Outcome>,
}

pub(super) fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// `sync`, or io_uring with a depth: ours, not IOR's.
fn engine(value: &str) -> Result<Engine> {
    match value.strip_prefix("uring:").and_then(|depth| depth.parse().ok()) {
        _ if value == "sync" => Ok(Engine::Sync),
        _ if value == "null" => Ok(Engine::Null),
        Some(depth) if depth > 0 => Ok(Engine::Uring { depth }),
        _ => refuse(format!("--engine {value} is not there"), "give sync, uring:DEPTH or null"),
    }
}
