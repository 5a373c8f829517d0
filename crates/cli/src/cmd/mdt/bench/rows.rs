//! The rows: what each measures, by how many threads, and its baseline.

use serde::Serialize;

use crate::cmd::measure;

/// A row of the table.
#[derive(Debug, PartialEq, Serialize)]
pub struct Row {
    pub name: &'static str,
    pub title: &'static str,
    pub work: Work,
    pub threads: usize,
    /// Requests in one frame.
    pub together: usize,
    pub against: Against,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Work {
    /// Creates empty files, each thread in a new directory of its own, and does not keep them open.
    Create,
    /// Removes the files that the same number of threads created.
    Remove,
    /// Stats by directory and name; all files are equally likely.
    Stat,
    /// Lists whole directories with attributes; an operation is an entry.
    List,
    /// Of ten operations, six stat any file, two create one in the thread's own directory, and two remove one there.
    Mixed,
    /// The rate of stats by two threads relative to one thread.
    Scaling {
        /// Files that another thread creates meanwhile, per second.
        made_per_second: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Against {
    /// System calls on an ext4 on the same device.
    Ext4,
    /// A loop that reads a hash table.
    Hash,
    /// A server that replies to each request at once, with as many bytes.
    Echo,
}

impl Against {
    pub fn title(self) -> &'static str {
        match self {
            Against::Ext4 => "ext4",
            Against::Hash => "hash table",
            Against::Echo => "echo",
        }
    }
}

impl Row {
    /// Whether it runs on ext4. Only such rows take part in the state that is kept from one row to the next.
    pub fn has_ext4(&self) -> bool {
        self.against == Against::Ext4
    }
    pub fn is_tcp(&self) -> bool {
        self.against == Against::Echo
    }
    pub fn unit(&self) -> &'static str {
        match self.work {
            Work::Scaling { .. } => "times",
            Work::List => "entries/s",
            _ => "op/s",
        }
    }
}

const fn row(name: &'static str, title: &'static str, work: Work, threads: usize, against: Against) -> Row {
    Row { name, title, work, threads, together: 1, against }
}

const fn together(name: &'static str, title: &'static str, work: Work, together: usize) -> Row {
    Row { together, ..row(name, title, work, CONNECTIONS, Echo) }
}

use Against::{Echo, Ext4, Hash};
use Work::{Create, List, Mixed, Remove, Scaling, Stat};

/// Creates per second beside the second scaling row.
const MADE_PER_SECOND: u32 = 20_000;
const CONNECTIONS: usize = 16;

/// In the order of their run: read-only rows come first, and each row that creates is followed by one that removes.
pub const ROWS: &[Row] = &[
    row("stat-1", "warm stat, 1 thread", Stat, 1, Ext4),
    row("stat-2", "warm stat, 2 threads", Stat, 2, Ext4),
    row("stat-4", "warm stat, 4 threads", Stat, 4, Ext4),
    row("readdirplus-1", "readdirplus, 1 thread", List, 1, Ext4),
    row("readdirplus-2", "readdirplus, 2 threads", List, 2, Ext4),
    row("readdirplus-4", "readdirplus, 4 threads", List, 4, Ext4),
    row("scaling", "stat, 2 threads ÷ 1", Scaling { made_per_second: 0 }, 2, Hash),
    row(
        "scaling-writer",
        "stat, 2 threads ÷ 1, beside a writer",
        Scaling { made_per_second: MADE_PER_SECOND },
        2,
        Hash,
    ),
    row("tcp-stat", "stat over TCP, 16 connections", Stat, CONNECTIONS, Echo),
    row("tcp-create", "create over TCP, 16 connections", Create, CONNECTIONS, Echo),
    together("tcp-stat-16", "stat over TCP, 16 in a frame", Stat, 16),
    together("tcp-stat-64", "stat over TCP, 64 in a frame", Stat, 64),
    // A session has slots for this many at once.
    together("tcp-create-16", "create over TCP, 4 x 16 in a frame", Create, 16),
    together("tcp-create-64", "create over TCP, 1 x 64 in a frame", Create, 64),
    row("create-1", "create, 1 thread", Create, 1, Ext4),
    row("remove-1", "remove, 1 thread", Remove, 1, Ext4),
    row("create-2", "create, 2 threads", Create, 2, Ext4),
    row("remove-2", "remove, 2 threads", Remove, 2, Ext4),
    row("create-4", "create, 4 threads", Create, 4, Ext4),
    row("remove-4", "remove, 4 threads", Remove, 4, Ext4),
    row("mixed-1", "mixed, 1 thread", Mixed, 1, Ext4),
    row("mixed-2", "mixed, 2 threads", Mixed, 2, Ext4),
    row("mixed-4", "mixed, 4 threads", Mixed, 4, Ext4),
];

/// The rows whose name contains one of the words in `wanted`, which are separated by commas.
pub fn named(wanted: &str) -> Vec<&'static Row> {
    measure::named(ROWS, |row| row.name, wanted)
}
