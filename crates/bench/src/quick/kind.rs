//! The rows: what is measured, in which unit, and which way is better.

use serde::{Deserialize, Serialize};

/// What a row measures. The order of `ALL` lets readers use what writers left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Each worker writes a file of its own, front to back, and flushes it.
    NnWrite,
    /// Each worker reads another one's file, cold.
    NnRead,
    /// Workers read 4 KiB at random places, cold.
    RandomRead,
    /// One worker, one 4 KiB read at a time, cold: its median latency.
    ReadLatency,
    /// Workers overwrite 4 KiB at random places of their files; the flush at the end counts.
    RandomWrite,
    /// All workers write one file, interleaved, and flush it.
    SharedWrite,
    /// All workers read that file, cold.
    SharedRead,
    /// One worker overwrites 4 KiB and calls fsync, again and again.
    Fsync,
    EmptyCreate,
    /// Cold, as are all reads and stats of names.
    EmptyStat,
    EmptyRead,
    EmptyRemove,
    SmallCreate,
    SmallStat,
    SmallRead,
    SmallRemove,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Higher,
    Lower,
}

impl Kind {
    pub const ALL: [Kind; 16] = [
        Kind::NnWrite,
        Kind::NnRead,
        Kind::RandomRead,
        Kind::ReadLatency,
        Kind::RandomWrite,
        Kind::SharedWrite,
        Kind::SharedRead,
        Kind::Fsync,
        Kind::EmptyCreate,
        Kind::EmptyStat,
        Kind::EmptyRead,
        Kind::EmptyRemove,
        Kind::SmallCreate,
        Kind::SmallStat,
        Kind::SmallRead,
        Kind::SmallRemove,
    ];

    /// What the table says.
    pub fn title(self) -> &'static str {
        match self {
            Kind::NnWrite => "N-N sequential write",
            Kind::NnRead => "N-N sequential read",
            Kind::RandomRead => "random 4 KiB read",
            Kind::ReadLatency => "4 KiB read latency, one at a time",
            Kind::RandomWrite => "random 4 KiB write",
            Kind::SharedWrite => "N-1 sequential write",
            Kind::SharedRead => "N-1 sequential read",
            Kind::Fsync => "4 KiB overwrite + fsync, one worker",
            Kind::EmptyCreate => "empty files: create",
            Kind::EmptyStat => "empty files: stat",
            Kind::EmptyRead => "empty files: open, read, close",
            Kind::EmptyRemove => "empty files: remove",
            Kind::SmallCreate => "4 KiB files: create",
            Kind::SmallStat => "4 KiB files: stat",
            Kind::SmallRead => "4 KiB files: open, read, close",
            Kind::SmallRemove => "4 KiB files: remove",
        }
    }

    pub fn unit(self) -> &'static str {
        match self {
            Kind::NnWrite | Kind::NnRead | Kind::SharedWrite | Kind::SharedRead => "MiB/s",
            Kind::ReadLatency => "us",
            _ => "ops/s",
        }
    }

    pub fn better(self) -> Better {
        if self == Kind::ReadLatency { Better::Lower } else { Better::Higher }
    }
}
