//! mdtest: a task per worker, one of its phases at a time. Its files stay for the next phase.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};

use super::{Part, Said, Tool, names, only, refuse_limits, text, under_mpi};
use crate::job::{Names, NamesOp, Order, Work};
use crate::plan::Program;
use crate::record::Outcome;

pub struct Mdtest;

impl Tool for Mdtest {
    fn program(&self) -> &'static str {
        "mdtest"
    }

    fn version_args(&self) -> &'static [&'static str] {
        &["-a", "DUMMY", "-C", "-n", "1", "-d", "none"]
    }

    fn version(&self, printed: &str) -> Option<String> {
        let line = printed.lines().find_map(|line| line.strip_prefix("mdtest-"))?;
        Some(line.split_whitespace().next()?.to_owned())
    }

    fn command(&self, parts: &[Part]) -> Result<Vec<String>> {
        let job = only(parts, "mdtest")?;
        let names = names(job, "mdtest")?;
        refuse_limits(job, "mdtest")?;
        ensure!(job.limit.seconds.is_none(), "mdtest ends after all items; leave `seconds` out");
        ensure!(names.epochs <= 1, "mdtest goes over its items once; leave `epochs` out");
        ensure!(
            names.order == Order::Sequential || names.op == NamesOp::Stat,
            "mdtest has a random order for stat only"
        );
        // Each of its phases takes the names of the task one stride further than the phase before, whether or not that one runs.
        let strides = match names.op {
            NamesOp::Stat | NamesOp::StatDir => 1,
            NamesOp::Read => 2,
            NamesOp::Remove | NamesOp::RemoveDir => 3,
            _ => 0,
        };
        ensure!(
            names.shift == 0 || strides > 0 && names.shift % strides == 0,
            "mdtest shifts what is stat by N tasks, what is read by 2 N, what is removed by 3 N: give such a shift"
        );
        let mut words = vec!["mdtest".into(), "-a".into()];
        words.push(if names.null { "DUMMY" } else { "POSIX" }.into());
        words.extend(phase(names)?.iter().map(|word| word.to_string()));
        let mut number = |option: &str, n: u64| words.extend([option.into(), n.to_string()]);
        number("-b", names.branch.into());
        number("-z", names.depth.into());
        if matches!(names.op, NamesOp::MakeTree | NamesOp::RemoveTree) {
            number("-n", 0);
        } else {
            number("-I", names.items_per_dir);
            number("-w", names.write_bytes);
            number("-e", names.read_bytes);
        }
        if names.shift > 0 {
            number("-N", u64::from(names.shift / strides));
        }
        let flags = [
            ("-L", names.leaves_only),
            ("-u", !names.shared),
            ("-y", names.flush),
            ("-R", names.order == Order::Random),
        ];
        words.extend(flags.iter().filter(|(_, on)| *on).map(|(word, _)| word.to_string()));
        words.extend(["-d".into(), text(&names.root)?.into()]);
        Ok(under_mpi(job.workers, words))
    }

    fn parse(&self, said: &Said, parts: &[Part]) -> Result<Vec<Outcome>> {
        let job = only(parts, "mdtest")?;
        let names = names(job, "mdtest")?;
        let title = title(names.op).context("mdtest has no such phase")?;
        let rates = rates(&said.stdout);
        let rate = rates.get(title).with_context(|| format!("mdtest printed no rate of {title}"))?.mean;
        ensure!(rate > 0.0, "mdtest's rate of {title} is 0: nothing was done");
        let tree = matches!(names.op, NamesOp::MakeTree | NamesOp::RemoveTree);
        let all_items = u64::from(job.workers).saturating_mul(names.items_per_worker());
        // It counts the directories of one tree, also where each task has its own.
        let ops = if tree { tree_dirs(names) } else { all_items };
        let seconds = ops as f64 / rate;
        let trees = if names.shared { 1 } else { u64::from(job.workers) };
        let bytes_each = match names.op {
            NamesOp::Create => names.write_bytes,
            NamesOp::Read => names.read_bytes,
            _ => 0,
        };
        let bytes = if tree { 0 } else { ops * bytes_each };
        Ok(vec![Outcome {
            seconds,
            first_done: seconds,
            last_done: seconds,
            ops: if tree { ops * trees } else { ops },
            bytes,
            read_bytes: if names.op == NamesOp::Read { bytes } else { 0 },
            ..Outcome::default()
        }])
    }
}

/// Its removal of items ends with the tree: when that phase comes there is nothing left for it.
pub fn has_no_tree(program: Program, parts: &[Part]) -> bool {
    let gone = |job: &crate::job::Job| match &job.work {
        Work::Names(names) => names.op == NamesOp::RemoveTree && !names.root.join("test-dir.0-0").exists(),
        Work::Data(_) => false,
    };
    program == Program::Mdtest && parts.iter().all(|(_, job)| gone(job))
}

/// Directories of one tree.
pub fn tree_dirs(names: &Names) -> u64 {
    (0..=names.depth).map(|n| u64::from(names.branch).saturating_pow(n)).fold(0, u64::saturating_add)
}

fn phase(names: &Names) -> Result<&'static [&'static str]> {
    Ok(match names.op {
        NamesOp::MakeTree => &["-C"],
        NamesOp::RemoveTree => &["-r"],
        NamesOp::Create => &["-C", "-F"],
        NamesOp::Stat => &["-T", "-F"],
        NamesOp::Read => &["-E", "-F"],
        NamesOp::Remove => &["-r", "-F"],
        NamesOp::MakeDir => &["-C", "-D"],
        NamesOp::StatDir => &["-T", "-D"],
        NamesOp::RemoveDir => &["-r", "-D"],
        NamesOp::Ask => bail!("mdtest does not ask again and again for one file; our own workers do"),
    })
}

/// Name of the operation in mdtest's table.
pub fn title(op: NamesOp) -> Option<&'static str> {
    Some(match op {
        NamesOp::MakeTree => "Tree creation",
        NamesOp::RemoveTree => "Tree removal",
        NamesOp::Create => "File creation",
        NamesOp::Stat => "File stat",
        NamesOp::Read => "File read",
        NamesOp::Remove => "File removal",
        NamesOp::MakeDir => "Directory creation",
        NamesOp::StatDir => "Directory stat",
        NamesOp::RemoveDir => "Directory removal",
        NamesOp::Ask => return None,
    })
}

/// Operations per second over the iterations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    pub max: f64,
    pub min: f64,
    pub mean: f64,
    pub deviation: f64,
}

/// The rows of `SUMMARY rate`, of 3.x (with colons) and 4.x.
pub fn rates(printed: &str) -> BTreeMap<String, Rates> {
    let lines = printed.lines().skip_while(|line| !line.starts_with("SUMMARY rate"));
    lines
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().filter(|word| *word != ":").collect();
            let (title, numbers) = words.split_at(words.len().checked_sub(4)?);
            let numbers: Vec<f64> = numbers.iter().map(|word| word.parse()).collect::<Result<_, _>>().ok()?;
            let [max, min, mean, deviation] = numbers[..] else { return None };
            (!title.is_empty()).then(|| (title.join(" "), Rates { max, min, mean, deviation }))
        })
        .collect()
}
