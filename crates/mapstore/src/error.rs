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
    /// A map was to be made, and one is there, whole or not.
    #[error("{dir}: a cluster map is there already: give another directory, or move these files away first")]
    Taken { dir: PathBuf },
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
    /// Definite: nothing was stored, and nothing can be read: no member of etcd answers, or too few of them do.
    #[error(
        "{doing} the cluster map in etcd: {why}; start etcd's members (most of them are needed), or correct `etcd`"
    )]
    EtcdAway { doing: &'static str, why: String },
    /// Unknown for a change: etcd may have stored it, or may store it later.
    #[error("{doing} the cluster map in etcd: {why}; the change may have been stored, it is looked at again")]
    EtcdUnknown { doing: &'static str, why: String },
    /// etcd has no map below the prefix. A new cluster's map is made once, with `--format`.
    #[error(
        "no cluster map is in etcd below {prefix}: correct `etcd_prefix`, or make a new cluster's map with --format; \
         `stria mgs rebuild` makes a lost one"
    )]
    EtcdAbsent { prefix: String },
    /// The keys in etcd do not hold the map that was stored.
    #[error("the cluster map in etcd below {prefix} is damaged: {why}. Put back a snapshot of etcd")]
    EtcdDamaged { prefix: String, why: String },
    /// A new map was to be made, and one is there.
    #[error("a cluster map of version {version} is in etcd below {prefix}: start without --format to use it")]
    EtcdTaken { prefix: String, version: u64 },
    /// etcd cannot be reached the way that the configuration says.
    #[error("the configuration of etcd: {why}")]
    EtcdConfig { why: String },
    /// Definite: nothing was stored, as another process leads.
    #[error("this management service does not lead: {why}")]
    NotLeading { why: String },
}
