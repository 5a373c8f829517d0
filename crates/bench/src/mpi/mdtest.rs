//! `stria bench mdtest`: mdtest's options become jobs on names, the outcomes its summary.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::table::{Moment, Spread, file_system};
use super::words::{Given, Known, refuse};
use super::{Bench, Form};
use crate::job::{Job, Limit, Names, NamesOp, Order, Work};
use crate::tools::{mdtest_title, mdtest_tree_dirs};

const KNOWN: Known = Known {
    flags: "CDEFLPRTXZrtuvy",
    valued: "abBdefGiIlnNpsVwWz",
    words: &[("verify-read", "X"), ("np=", "np"), ("random-seed=", "seed")],
    refused: &[
        ("-A", "leave it out; -X checks what is read"),
        ("-c", "leave it out; each worker makes its own items"),
        ("-k", "leave it out; files are made by open(2), as programs make them"),
        ("-S", "leave it out; one file for all is `stria bench ior` without -F"),
        ("-x", "leave it out; a run is not split by time"),
        ("-Y", "take -y: each file is synced"),
        ("--posix.odirect", "leave it out; direct I/O is measured by `stria bench ior`"),
    ],
};

#[derive(Clone, Debug, PartialEq)]
pub struct Mdtest {
    dir: PathBuf,
    iterations: u32,
    branch: u32,
    depth: u32,
    leaves_only: bool,
    items: u64,
    items_per_dir: u64,
    unique: bool,
    dirs_only: bool,
    files_only: bool,
    create: bool,
    stat: bool,
    read: bool,
    remove: bool,
    write_bytes: u64,
    read_bytes: u64,
    sync: bool,
    stride: u32,
    random: bool,
    verify: bool,
    delay: u64,
    seed: u64,
    tasks: u32,
    verbose: u32,
    rate: bool,
    time: bool,
}

/// The rows of the summary, in mdtest's order. Renames are not measured.
const ROWS: [NamesOp; 9] = [
    NamesOp::MakeDir,
    NamesOp::StatDir,
    NamesOp::RemoveDir,
    NamesOp::Create,
    NamesOp::Stat,
    NamesOp::Read,
    NamesOp::Remove,
    NamesOp::MakeTree,
    NamesOp::RemoveTree,
];

/// Operations as mdtest counts them and seconds, of each iteration of a phase.
type Measured = Vec<(NamesOp, f64, f64)>;

impl Mdtest {
    pub fn parse(args: &[String]) -> Result<Mdtest> {
        let mut mdtest = Mdtest {
            dir: "out".into(),
            iterations: 1,
            branch: 1,
            depth: 0,
            leaves_only: false,
            items: 0,
            items_per_dir: 0,
            unique: false,
            dirs_only: false,
            files_only: false,
            create: false,
            stat: false,
            read: false,
            remove: false,
            write_bytes: 0,
            read_bytes: 0,
            sync: false,
            stride: 0,
            random: false,
            verify: false,
            delay: 0,
            seed: 0,
            tasks: 1,
            verbose: 0,
            rate: true,
            time: false,
        };
        for given in KNOWN.read(args)? {
            mdtest.take(&given)?;
        }
        mdtest.complete()?;
        Ok(mdtest)
    }

    fn take(&mut self, given: &Given) -> Result<()> {
        match given.name.as_str() {
            // The time of a worker's own directories is part of the tree's.
            "t" => {}
            "a" if given.value.eq_ignore_ascii_case("posix") => {}
            "a" => {
                return refuse(
                    format!("-a {} is not there", given.value),
                    "take -a POSIX: the file system's own calls",
                );
            }
            "b" => self.branch = given.small()?,
            "B" => default_only(given, "0", "phases have barriers always: leave it out")?,
            "C" => self.create = true,
            "d" => self.dir = given.path(),
            "D" => self.dirs_only = true,
            "e" => self.read_bytes = given.size()?,
            "E" => self.read = true,
            "f" => default_only(given, "1", "take -np N, a command per number of tasks")?,
            "F" => self.files_only = true,
            "G" | "seed" => self.seed = given.number()?,
            "i" => self.iterations = given.small()?,
            "I" => self.items_per_dir = given.size()?,
            "l" => default_only(given, "0", "take -np N, a command per number of tasks")?,
            "L" => self.leaves_only = true,
            "n" => self.items = given.size()?,
            "N" => self.stride = given.small()?,
            "np" => self.tasks = given.small()?,
            "p" => self.delay = given.number()?,
            "P" => (self.rate, self.time) = (true, true),
            "r" => self.remove = true,
            "R" => self.random = true,
            "s" => default_only(given, "1", "take -np N, a command per number of tasks")?,
            "T" => self.stat = true,
            "u" => self.unique = true,
            "v" => self.verbose += 1,
            "V" => self.verbose = given.small()?,
            "w" => self.write_bytes = given.size()?,
            "W" => default_only(given, "0", "leave it out; -n or -I say how much is made")?,
            "X" => self.verify = true,
            "y" => self.sync = true,
            "z" => self.depth = given.small()?,
            "Z" => (self.rate, self.time) = (false, true),
            other => unreachable!("an option that is known and not taken: {other}"),
        }
        Ok(())
    }

    fn complete(&mut self) -> Result<()> {
        if !(self.create || self.stat || self.read || self.remove) {
            (self.create, self.stat, self.read, self.remove) = (true, true, true, true);
        }
        // Both or neither: both kinds of items.
        if self.dirs_only == self.files_only {
            (self.dirs_only, self.files_only) = (false, false);
        }
        if self.items > 0 && self.items_per_dir > 0 {
            return refuse("-n and -I both say how much is made", "give one of the two");
        }
        if self.depth > 0 && self.branch == 0 {
            return refuse("-b 0 makes no tree of -z levels", "give -b 1 or more");
        }
        if self.tasks == 0 || self.iterations == 0 {
            return refuse("there is nothing to do", "give -np and -i of 1 or more");
        }
        if self.dir.to_string_lossy().contains('@') {
            return refuse(
                "-d with several directories is not understood here",
                "give one, a command per directory",
            );
        }
        if self.create && self.read && !self.dirs_only && self.read_bytes > self.write_bytes {
            let why = format!("-e {} reads more than -w {} writes", self.read_bytes, self.write_bytes);
            return refuse(why, format!("give -w {} too", self.read_bytes));
        }
        if self.items > 0 {
            // All of a task's items, spread over the tree.
            self.items_per_dir = self.items / self.names(NamesOp::Create, Path::new("")).item_dirs().max(1);
        }
        if self.items_per_dir == 0 {
            return refuse("there are no items, or fewer than directories", "give -n or -I a larger number");
        }
        Ok(())
    }

    fn names(&self, op: NamesOp, root: &Path) -> Names {
        // Each phase shifts by one more stride, so that no worker finds its items in its own cache.
        let strides = match op {
            NamesOp::Stat | NamesOp::StatDir => 1,
            NamesOp::Read => 2,
            NamesOp::Remove | NamesOp::RemoveDir => 3,
            _ => 0,
        };
        Names {
            op,
            root: if self.unique { root.to_owned() } else { root.join("mdtest_tree.0") },
            shared: !self.unique,
            branch: self.branch,
            depth: self.depth,
            leaves_only: self.leaves_only,
            items_per_dir: self.items_per_dir,
            write_bytes: self.write_bytes,
            read_bytes: self.read_bytes,
            open_to_write: true,
            flush: self.sync,
            shift: (u64::from(self.stride) * strides % u64::from(self.tasks)) as u32,
            order: if self.random && op == NamesOp::Stat { Order::Random } else { Order::Sequential },
            epochs: 1,
            version: 1,
            null: false,
        }
    }

    pub fn job(&self, op: NamesOp, root: &Path) -> Job {
        Job {
            work: Work::Names(self.names(op, root)),
            workers: self.tasks,
            limit: Limit::default(),
            // Written with stamps always: a later run may check them.
            verify: self.verify || op == NamesOp::Create,
            seed: self.seed,
            forget_pages: false,
            holds: Vec::new(),
        }
    }

    /// The phases of one iteration, in mdtest's order.
    pub fn phases(&self) -> Vec<NamesOp> {
        let mut phases = Vec::new();
        let mut add = |on: bool, op: NamesOp| {
            if on {
                phases.push(op);
            }
        };
        let (dirs, files) = (!self.files_only, !self.dirs_only);
        add(self.create, NamesOp::MakeTree);
        add(dirs && self.create, NamesOp::MakeDir);
        add(dirs && self.stat, NamesOp::StatDir);
        add(dirs && self.remove, NamesOp::RemoveDir);
        add(files && self.create, NamesOp::Create);
        add(files && self.stat, NamesOp::Stat);
        add(files && self.read, NamesOp::Read);
        add(files && self.remove, NamesOp::Remove);
        add(self.remove, NamesOp::RemoveTree);
        phases
    }

    /// The phases; then the table, or a JSON object in its place.
    pub fn run(&self, bench: &mut Bench<'_>, form: Form) -> Result<()> {
        if form == Form::Table {
            self.header(bench)?;
        }
        let mut measured = Measured::new();
        let result =
            (0..self.iterations).try_for_each(|number| self.iterate(bench, form, number, &mut measured));
        match form {
            Form::Table => {
                self.summary(bench, &measured)?;
                bench.page.line(format_args!("-- finished at {} --\n", Moment::now().short()))?;
            }
            Form::Json => {
                let json = self.json(&bench.command, &measured);
                bench.page.line(format_args!("{json:#}"))?;
            }
        }
        result
    }

    /// Rows that were measured, with their spread over iterations.
    fn json(&self, command: &str, measured: &Measured) -> Value {
        let spread = |of: Vec<f64>| {
            let Spread { max, min, mean, sample_deviation, .. } = Spread::of(&of);
            json!({ "max": max, "min": min, "mean": mean, "deviation": sample_deviation })
        };
        let row = |op: NamesOp| {
            let of: Vec<_> = measured.iter().filter(|(phase, ..)| *phase == op).collect();
            (!of.is_empty()).then(|| {
                json!({
                    "operation": mdtest_title(op).unwrap_or_default(),
                    "ops_per_second": spread(of.iter().map(|(_, ops, seconds)| ops / seconds).collect()),
                    "seconds": spread(of.iter().map(|(_, _, seconds)| *seconds).collect()),
                })
            })
        };
        json!({
            "version": concat!("stria ", env!("CARGO_PKG_VERSION")),
            "command": command,
            "path": self.dir.to_string_lossy(),
            "tasks": self.tasks,
            "iterations": self.iterations,
            "items": self.names(NamesOp::Create, Path::new("")).items_per_worker() * u64::from(self.tasks),
            "rows": ROWS.into_iter().filter_map(row).collect::<Vec<_>>(),
        })
    }

    fn iterate(&self, bench: &mut Bench<'_>, form: Form, number: u32, measured: &mut Measured) -> Result<()> {
        let dir = std::path::absolute(&self.dir).context("the current directory")?;
        let root = dir.join(format!("test-dir.{number}-0"));
        if self.create {
            if root.exists() {
                return refuse(
                    format!("{}: something is there already", root.display()),
                    "remove it, or run with -r and the options that made it",
                );
            }
            std::fs::create_dir_all(&root).with_context(|| format!("making {}", root.display()))?;
        }
        let done = self.phases().into_iter().try_for_each(|op| self.phase(bench, form, op, &root, measured));
        if self.remove || done.is_err() && self.create {
            // The root is empty unless a phase failed; then the whole tree of this run is removed.
            match done.is_err() && self.create {
                true => std::fs::remove_dir_all(&root).ok(),
                false => std::fs::remove_dir(&root).ok(),
            };
        }
        done
    }

    fn phase(
        &self,
        bench: &mut Bench<'_>,
        form: Form,
        op: NamesOp,
        root: &Path,
        measured: &mut Measured,
    ) -> Result<()> {
        if self.delay > 0 && matches!(op, NamesOp::MakeDir | NamesOp::Create) {
            std::thread::sleep(Duration::from_secs(self.delay));
        }
        let title = mdtest_title(op).unwrap_or_default();
        let outcome = bench.one(title, self.job(op, root))?;
        let is_tree = matches!(op, NamesOp::MakeTree | NamesOp::RemoveTree);
        // mdtest counts the directories of one tree, also where each task has its own.
        let ops = if is_tree { mdtest_tree_dirs(&self.names(op, root)) } else { outcome.ops };
        let seconds = outcome.seconds.max(1e-9);
        if self.verbose > 0 && form == Form::Table {
            let rate = ops as f64 / seconds;
            bench.page.line(format_args!("V-1:   {title:<18}: {seconds:>14.3} sec, {rate:>14.3} ops/sec"))?;
        }
        measured.push((op, ops as f64, seconds));
        Ok(())
    }

    fn header(&self, bench: &mut Bench<'_>) -> Result<()> {
        let command = bench.command.clone();
        let (tasks, version) = (self.tasks, env!("CARGO_PKG_VERSION"));
        let what = match (self.dirs_only, self.files_only) {
            (true, _) => "directories",
            (_, true) => "files",
            _ => "files/directories",
        };
        let items = self.names(NamesOp::Create, Path::new("")).items_per_worker() * u64::from(tasks);
        let page = &mut bench.page;
        page.line(format_args!("-- started at {} --\n", Moment::now().short()))?;
        page.line(format_args!("stria bench mdtest {version}: mdtest's options and table, with {tasks} total task(s) on 1 node(s)"))?;
        page.line(format_args!("Command line used: {command}"))?;
        if self.read_bytes == 0 && self.read && !self.dirs_only {
            page.line(format_args!(
                "WARNING: Read bytes is 0, thus, a read test will actually just open/close"
            ))?;
        }
        page.line(format_args!("Path                : {}", self.dir.display()))?;
        page.line(format_args!("FS                  : {}", file_system(&self.dir)))?;
        page.line(format_args!("{tasks} tasks, {items} {what}"))
    }

    fn summary(&self, bench: &mut Bench<'_>, measured: &Measured) -> Result<()> {
        for (word, is_wanted) in [("rate", self.rate), ("time", self.time)] {
            if !is_wanted {
                continue;
            }
            let page = &mut bench.page;
            page.line(format_args!("\nSUMMARY {word}: (of {} iterations)", self.iterations))?;
            page.line(format_args!(
                "   Operation                     Max            Min           Mean        Std Dev"
            ))?;
            page.line(format_args!(
                "   ---------                     ---            ---           ----        -------"
            ))?;
            for op in ROWS {
                let is_dir = matches!(op, NamesOp::MakeDir | NamesOp::StatDir | NamesOp::RemoveDir);
                let is_tree = matches!(op, NamesOp::MakeTree | NamesOp::RemoveTree);
                if !is_tree && (is_dir && self.files_only || !is_dir && self.dirs_only) {
                    continue;
                }
                let of = measured.iter().filter(|(phase, ..)| *phase == op);
                let values: Vec<f64> = match word {
                    "rate" => of.map(|(_, ops, seconds)| ops / seconds).collect(),
                    _ => of.map(|(_, _, seconds)| *seconds).collect(),
                };
                let Spread { max, min, mean, sample_deviation, .. } = Spread::of(&values);
                let title = mdtest_title(op).unwrap_or_default();
                page.line(format_args!(
                    "   {title:<22} {max:>14.3} {min:>14.3} {mean:>14.3} {sample_deviation:>14.3}"
                ))?;
            }
        }
        Ok(())
    }
}

fn default_only(given: &Given, default: &str, next: &str) -> Result<()> {
    if given.value == default {
        return Ok(());
    }
    refuse(format!("-{} {} is not understood here", given.name, given.value), next)
}
