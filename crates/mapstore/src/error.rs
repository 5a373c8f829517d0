//! Errors of a store.

use std::io;
use std::path::PathBuf;

/// Each variant says which file, what is wrong, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Definite: nothing was stored. Another caller changed the map; load it and try again.
    #[error("the cluster map is at version {found}, not {expected}: load it again")]
    Conflict { expected: u64, found: u64 },
    /// Definite: nothing was stored. The caller broke the rule that versions rise by one.
    #[error("version {next} cannot follow version {expected} of the cluster map")]
    Sequence { expected: u64, next: u64 },
    /// No copy of the map can be read.
    #[error("the cluster map in {dir} is damaged: {why}. Put back a good map.a or map.b from a backup")]
    Damaged { dir: PathBuf, why: String },
    /// A copy is of another release. Nothing was changed: the newer release's copy may be newer than the other one.
    #[error("{path} has form {form}, and this release knows {known}: start the release that wrote it")]
    OtherForm { path: PathBuf, form: u16, known: u16 },
    /// Another process has the store open.
    #[error(
        "{path} is in use by another process: stop the other management service or choose another directory"
    )]
    InUse { path: PathBuf },
    /// Unknown for a change: it may have been stored.
    #[error("{doing} {path}: {source}")]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
}
