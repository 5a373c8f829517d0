//! `data` of a phase made a work.

use std::path::PathBuf;

use super::super::finding::Trouble;
use super::super::schema::{DataSpec, Quantity};
use super::super::value::Variables;
use super::state::{State, reach};
use super::{merge, unknown};
use crate::job::{Data, DataOp, Engine, Files, Flush, Order};

/// Direct I/O moves whole pages.
const DIRECT_BYTES: u64 = 4096;
/// Offsets are signed.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// Files in place of devices.
const DEVICES_MAX: u32 = 1 << 16;
/// Writes that each worker reads back after random overwrites: enough to detect a file system that loses writes.
const READ_BACK: u32 = 256;

/// The work, and whether content is verified.
pub fn resolve(
    common: &toml::Table,
    own: &toml::Table,
    workers: u32,
    vars: &Variables,
    targets: &[PathBuf],
    state: &mut State,
) -> Result<(Data, bool), Trouble> {
    let spec: DataSpec = merge(common, own, ["block", "total"]).map_err(|t| t.at("data"))?;
    let op = op_of(&spec, vars).map_err(|t| t.at("data.op"))?;
    let order = order_of(spec.order.as_deref()).map_err(|t| t.at("data.order"))?;
    let transfer_bytes = vars.whole(&spec.transfer).map_err(|t| t.at("data.transfer"))?;
    if transfer_bytes == 0 {
        return Err(Trouble::new("a transfer of 0 bytes moves nothing", "give a size").at("data.transfer"));
    }
    if transfer_bytes > ring::BUFFER_BYTES_MAX as u64 {
        let what = format!("a transfer of {transfer_bytes} bytes is more than one call moves");
        let next = format!("give {} at most", ring::BUFFER_BYTES_MAX);
        return Err(Trouble::new(what, next).at("data.transfer"));
    }
    if spec.direct && !transfer_bytes.is_multiple_of(DIRECT_BYTES) {
        let what = format!("direct I/O and transfers of {transfer_bytes} bytes do not go together");
        let next = format!("take a multiple of {DIRECT_BYTES}, or leave `direct` out");
        return Err(Trouble::new(what, next).at("data.transfer"));
    }
    let segments = optional(vars, &spec.segments, "data.segments")?.unwrap_or(1).max(1);
    let mut block_bytes = block_of(&spec, transfer_bytes, segments, workers, vars)?;
    let engine = engine_of(&spec, vars)?;
    let writes = op != DataOp::Read;
    let (files, is_new) = files_of(&spec, op, workers, vars, targets, state)?;
    let create = op == DataOp::Write && !spec.overwrite && is_new;
    // A total that phases share is rounded by each one's transfers: a later one has no more than was written.
    let is_shared_total = spec.total.is_some() && !own.contains_key("total") && !own.contains_key("block");
    if let Some(most) = state.block_most(&files, segments, workers).filter(|_| is_shared_total && !create) {
        block_bytes = block_bytes.min((most / transfer_bytes).max(1) * transfer_bytes);
    }
    let reached = block_bytes.checked_mul(segments).and_then(|bytes| bytes.checked_mul(u64::from(workers)));
    if reached.is_none_or(|bytes| bytes > FILE_BYTES_MAX) {
        let what =
            format!("{segments} x {block_bytes} bytes of {workers} workers are more than a file can have");
        let fields = [("data.segments", spec.segments.is_some()), ("data.block", spec.block.is_some())];
        let field = fields.into_iter().find(|(_, is_said)| *is_said).map_or("data.total", |(field, _)| field);
        return Err(Trouble::new(what, "give less than 8 EiB in all").at(field));
    }
    let version = if writes { state.next_version() } else { 0 };
    let flush = match spec.flush.as_deref() {
        None if writes => Flush::End,
        None | Some("never") => Flush::Never,
        Some("end") => Flush::End,
        Some("each") => Flush::Each,
        Some(word) => return Err(unknown(word, &["never", "end", "each"]).at("data.flush")),
    };
    let is_overwrite = op == DataOp::Write && !create;
    let mut data = Data {
        op,
        order,
        files,
        transfer_bytes,
        block_bytes,
        segments,
        shift: small(vars, &spec.shift, "data.shift")?.unwrap_or(0),
        ops_max: optional(vars, &spec.ops, "data.ops")?,
        engine,
        direct: spec.direct,
        flush,
        create,
        version,
        accept: Vec::new(),
        read_back: if is_overwrite && order == Order::Random { READ_BACK } else { 0 },
    };
    if op != DataOp::Write {
        data.accept = state.versions(&data.files, reach(&data, workers).1);
    }
    if writes {
        data.accept.push(version);
    }
    let verify = spec.verify.unwrap_or(true) && engine != Engine::Null;
    Ok((data, verify))
}

fn op_of(spec: &DataSpec, vars: &Variables) -> Result<DataOp, Trouble> {
    match (spec.op.as_str(), &spec.read_percent) {
        ("write", _) => Ok(DataOp::Write),
        ("read", _) => Ok(DataOp::Read),
        ("mixed", Some(percent)) => match vars.count(percent)? {
            read_percent @ 0..=100 => Ok(DataOp::Mixed { read_percent }),
            more => Err(Trouble::new(format!("{more} % of reads are too many"), "give 100 at most")),
        },
        ("mixed", None) => Err(Trouble::new("a mix needs its share of reads", "give read-percent")),
        (word, _) => Err(unknown(word, &["write", "read", "mixed"])),
    }
}

pub fn order_of(word: Option<&str>) -> Result<Order, Trouble> {
    match word {
        None | Some("sequential") => Ok(Order::Sequential),
        Some("random") => Ok(Order::Random),
        Some(word) => Err(unknown(word, &["sequential", "random"])),
    }
}

/// Bytes of each block: as given, or each worker's share of the total in whole transfers; then the footprint's share of that.
fn block_of(
    spec: &DataSpec,
    transfer: u64,
    segments: u64,
    workers: u32,
    vars: &Variables,
) -> Result<u64, Trouble> {
    let whole = |bytes: u64| (bytes / transfer).max(1) * transfer;
    let block = match (&spec.block, &spec.total) {
        (Some(block), None) => {
            let block = vars.whole(block).map_err(|t| t.at("data.block"))?;
            if block == 0 || !block.is_multiple_of(transfer) {
                let what = format!("transfers of {transfer} bytes do not divide a block of {block}");
                let next = "make the block a multiple of the transfer, or give `total`, which is rounded";
                return Err(Trouble::new(what, next).at("data.block"));
            }
            block
        }
        (None, Some(total)) => {
            let total = vars.whole(total).map_err(|t| t.at("data.total"))?;
            let fewest = optional(vars, &spec.fewest, "data.fewest")?.unwrap_or(1);
            whole(total / sharers(workers, vars).max(fewest) / segments)
        }
        (Some(_), Some(_)) => {
            let trouble = Trouble::new("it has `block` and `total`", "leave one of them out");
            return Err(trouble.at("data.block"));
        }
        (None, None) => {
            let next = "give `block`, of each worker, or `total`, of all together";
            return Err(Trouble::new("it does not say how many bytes", next).at("data.block"));
        }
    };
    match spec.footprint {
        None => Ok(block),
        Some(share) if share > 0.0 && share <= 1.0 => Ok(whole((block as f64 * share) as u64)),
        Some(share) => {
            let what = format!("a footprint of {share} is no share");
            Err(Trouble::new(what, "give more than 0 and at most 1").at("data.footprint"))
        }
    }
}

/// By how many a total is divided: `$threads` of the point if there are any, so that a phase with fewer workers takes the same
/// files.
pub fn sharers(workers: u32, vars: &Variables) -> u64 {
    let threads = Some(Quantity::Text("$threads".into())).filter(|_| vars.has("threads"));
    threads.and_then(|threads| vars.whole(&threads).ok()).unwrap_or(u64::from(workers)).max(1)
}

fn engine_of(spec: &DataSpec, vars: &Variables) -> Result<Engine, Trouble> {
    let depth = small(vars, &spec.depth, "data.depth")?.unwrap_or(1).max(1);
    if depth > ring::DEPTH_MAX {
        let what = format!("a depth of {depth} is more than the kernel takes");
        return Err(Trouble::new(what, format!("give {} at most", ring::DEPTH_MAX)).at("data.depth"));
    }
    match spec.engine.as_deref() {
        None if depth == 1 => Ok(Engine::Sync),
        None | Some("uring") => Ok(Engine::Uring { depth }),
        Some("null") => Ok(Engine::Null),
        Some(word) => Err(unknown(word, &["uring", "null"]).at("data.engine")),
    }
}

/// A name of something in the point's directory: nothing is made elsewhere.
pub fn plain_name(name: &str) -> Result<PathBuf, Trouble> {
    let path = PathBuf::from(name);
    let is_plain = |c| matches!(c, std::path::Component::Normal(_));
    if path.components().count() == 1 && path.components().all(is_plain) {
        return Ok(path);
    }
    Err(Trouble::new(format!("'{name}' is no plain name"), "give a name without directories"))
}

/// The files, and whether a plain write makes them.
fn files_of(
    spec: &DataSpec,
    op: DataOp,
    workers: u32,
    vars: &Variables,
    targets: &[PathBuf],
    state: &State,
) -> Result<(Files, bool), Trouble> {
    let name = plain_name(spec.name.as_deref().unwrap_or("data")).map_err(|t| t.at("data.name"))?;
    match spec.files.as_deref() {
        None | Some("own") => Ok((Files::Own { stem: name }, true)),
        Some("shared") => Ok((Files::Shared { path: name }, true)),
        Some("given") if !targets.is_empty() => Ok((Files::Given { paths: targets.to_vec() }, false)),
        Some("given") => {
            let devices = vars.count(&Quantity::Text("$devices".into())).map_err(|t| t.at("data.files"))?;
            if devices > DEVICES_MAX {
                let what = format!("{devices} files in place of devices are too many");
                return Err(Trouble::new(what, format!("give {DEVICES_MAX} at most")).at("data.files"));
            }
            let own = Files::Own { stem: name.clone() };
            if op == DataOp::Write && !spec.overwrite && !state.is_written(&own) {
                if workers != devices {
                    let what = format!("{workers} workers cannot make {devices} files");
                    let next = "give the first write workers = \"$devices\"";
                    return Err(Trouble::new(what, next).at("workers"));
                }
                return Ok((own, true));
            }
            let path = |n| PathBuf::from(format!("{}.{n}", name.display()));
            Ok((Files::Given { paths: (0..devices).map(path).collect() }, false))
        }
        Some(word) => Err(unknown(word, &["own", "shared", "given"]).at("data.files")),
    }
}

pub fn optional(vars: &Variables, quantity: &Option<Quantity>, field: &str) -> Result<Option<u64>, Trouble> {
    quantity.as_ref().map(|q| vars.whole(q)).transpose().map_err(|t| t.at(field))
}

pub fn small(vars: &Variables, quantity: &Option<Quantity>, field: &str) -> Result<Option<u32>, Trouble> {
    quantity.as_ref().map(|q| vars.count(q)).transpose().map_err(|t| t.at(field))
}
