//! The space of a target, as the mount's `stria.df` attribute reports it.

use serde::{Deserialize, Serialize};
use wire::session::TargetStatReply;

/// MDT or OST, in the attribute's spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Mdt,
    Ost,
}

/// Whether a target serves, in the attribute's spelling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Older mounts report only serving targets, without this field.
    #[default]
    Up,
    Down,
}

/// The numbers of one target for `df`; other fields are ignored. In bytes, and inodes (MDT) or objects (OST). All are 0 if the target is
/// down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetSpace {
    pub kind: Kind,
    pub index: u32,
    #[serde(default)]
    pub state: State,
    /// An OST that gets no new objects.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
    /// Why it is down.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    #[serde(default)]
    pub bytes_total: u64,
    #[serde(default)]
    pub bytes_free: u64,
    #[serde(default)]
    pub bytes_available: u64,
    #[serde(default)]
    pub files_total: u64,
    #[serde(default)]
    pub files_free: u64,
}

impl TargetSpace {
    /// The answer of a target, or the reason why there is none.
    pub fn of(kind: Kind, index: u32, answer: anyhow::Result<TargetStatReply>) -> TargetSpace {
        match answer {
            Ok(s) => TargetSpace {
                kind,
                index,
                state: State::Up,
                draining: false,
                why: String::new(),
                bytes_total: s.bytes_total,
                bytes_free: s.bytes_free,
                bytes_available: s.bytes_available,
                files_total: s.files_total,
                files_free: s.files_free,
            },
            Err(e) => TargetSpace {
                kind,
                index,
                state: State::Down,
                draining: false,
                why: format!("{e:#}"),
                bytes_total: 0,
                bytes_free: 0,
                bytes_available: 0,
                files_total: 0,
                files_free: 0,
            },
        }
    }

    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    pub fn is_mdt(&self) -> bool {
        self.kind == Kind::Mdt
    }
}
