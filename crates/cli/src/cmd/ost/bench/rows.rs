//! The rows: one kind of request each, at a fixed depth, until a limit.

use serde::Serialize;

use crate::cmd::measure;

/// A row of the table.
#[derive(Debug, PartialEq, Serialize)]
pub struct Row {
    pub name: &'static str,
    pub title: &'static str,
    pub work: Work,
    /// The order of offsets.
    pub order: Order,
    /// Bytes of a request.
    pub block: usize,
    /// Concurrent requests.
    pub depth: usize,
    pub unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Work {
    Read,
    Write,
    /// Each thread flushes each write before its next one.
    WriteFlush,
    /// Writes until the log is half full, or the row's time is over.
    Burst,
    /// Writes for the soak's time.
    Soak,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Order {
    /// Blocks in order, over all threads.
    Sequential,
    Uniform,
    /// Zipf with this exponent in tenths; popular blocks are spread over the whole object.
    Zipf(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// MiB/s.
    Bytes,
    /// Operations per second.
    Ops,
    /// Median in microseconds; lower is better.
    Latency,
}

impl Unit {
    pub fn is_lower_better(self) -> bool {
        self == Unit::Latency
    }
    pub fn name(self) -> &'static str {
        match self {
            Unit::Bytes => "MiB/s",
            Unit::Ops => "op/s",
            Unit::Latency => "µs",
        }
    }
}

impl Row {
    pub fn is_soak(&self) -> bool {
        self.work == Work::Soak
    }
    pub fn writes(&self) -> bool {
        self.work != Work::Read
    }
}

const MIB: usize = 1 << 20;

const fn row(
    name: &'static str,
    title: &'static str,
    (work, order): (Work, Order),
    (block, depth): (usize, usize),
    unit: Unit,
) -> Row {
    Row { name, title, work, order, block, depth, unit }
}

use Order::{Sequential, Uniform, Zipf};
use Work::{Burst, Read, Soak, Write, WriteFlush};

/// In the order of their run: reads come while the object is as written in order; small overwrites come last.
pub const ROWS: &[Row] = &[
    row("seq-write", "1 MiB sequential write QD 8", (Write, Sequential), (MIB, 8), Unit::Bytes),
    row("seq-read", "1 MiB sequential read QD 8", (Read, Sequential), (MIB, 8), Unit::Bytes),
    row("read-64k", "64 KiB random read QD 16", (Read, Uniform), (64 << 10, 16), Unit::Bytes),
    row("read-4k", "4 KiB random read QD 16", (Read, Uniform), (4096, 16), Unit::Ops),
    row("latency-4k", "4 KiB read latency QD 1", (Read, Uniform), (4096, 1), Unit::Latency),
    row("write-64k", "64 KiB random write QD 16", (Write, Uniform), (64 << 10, 16), Unit::Bytes),
    row("sync-4k", "4 KiB write + flush, 16 writers", (WriteFlush, Uniform), (4096, 16), Unit::Ops),
    row("burst-4k", "4 KiB overwrite QD 16, burst", (Burst, Uniform), (4096, 16), Unit::Ops),
    row("soak-uniform", "4 KiB overwrite QD 16, soak", (Soak, Uniform), (4096, 16), Unit::Ops),
    row("soak-zipf", "4 KiB overwrite QD 16, soak zipf 0.9", (Soak, Zipf(9)), (4096, 16), Unit::Ops),
];

/// The row that fills half of the log.
pub fn burst() -> &'static Row {
    ROWS.iter().find(|row| row.work == Burst).expect("the table has one")
}

/// The rows whose name contains one of the words in `wanted`, which are separated by commas.
pub fn named(wanted: &str) -> Vec<&'static Row> {
    measure::named(ROWS, |row| row.name, wanted)
}
