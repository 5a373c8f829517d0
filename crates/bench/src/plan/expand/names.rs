//! `names` of a phase made a work, and the trees around it.

use super::super::finding::Trouble;
use super::super::schema::{NamesSpec, Quantity};
use super::super::value::Variables;
use super::data::{optional, order_of, sharers, small};
use super::state::State;
use super::{PlannedPart, PlannedPhase, Program, merge, unknown};
use crate::job::{Job, Limit, Names, NamesOp, Work};

const OPS: [(&str, NamesOp); 10] = [
    ("make-tree", NamesOp::MakeTree),
    ("create", NamesOp::Create),
    ("stat", NamesOp::Stat),
    ("read", NamesOp::Read),
    ("remove", NamesOp::Remove),
    ("make-dir", NamesOp::MakeDir),
    ("stat-dir", NamesOp::StatDir),
    ("remove-dir", NamesOp::RemoveDir),
    ("remove-tree", NamesOp::RemoveTree),
    ("ask", NamesOp::Ask),
];

/// The work, and whether content is verified.
pub fn resolve(
    common: &toml::Table,
    own: &toml::Table,
    workers: u32,
    vars: &Variables,
    state: &mut State,
) -> Result<(Names, bool), Trouble> {
    let spec: NamesSpec = merge(common, own, ["branch", "total"]).map_err(|t| t.at("names"))?;
    let op = OPS.iter().find(|(word, _)| *word == spec.op).map(|(_, op)| *op);
    let op = op.ok_or_else(|| unknown(&spec.op, &OPS.map(|(word, _)| word)).at("names.op"))?;
    let items_per_dir = vars.whole(&spec.items_per_dir).map_err(|t| t.at("names.items-per-dir"))?;
    if items_per_dir == 0 {
        return Err(Trouble::new("no item would be made", "give 1 at least").at("names.items-per-dir"));
    }
    let (branch, depth, leaves_only) = match optional(vars, &spec.total, "names.total")? {
        None => {
            let branch = small(vars, &spec.branch, "names.branch")?.unwrap_or(1).max(1);
            (branch, small(vars, &spec.depth, "names.depth")?.unwrap_or(0), spec.leaves_only)
        }
        Some(_) if spec.branch.is_some() => {
            let trouble = Trouble::new("it has `branch` and `total`", "leave one of them out");
            return Err(trouble.at("names.branch"));
        }
        // The published rule: as many directories as hold the total, shared out; each worker has one at least.
        Some(total) => {
            let dirs = (total / items_per_dir / sharers(workers, vars)).clamp(1, u64::from(u32::MAX));
            (dirs as u32, 1, true)
        }
    };
    let root =
        super::data::plain_name(spec.name.as_deref().unwrap_or("tree")).map_err(|t| t.at("names.name"))?;
    if depth > crate::work::DEPTH_MAX {
        let what = format!("a tree of {depth} levels is too deep");
        return Err(Trouble::new(what, format!("give {} at most", crate::work::DEPTH_MAX)).at("names.depth"));
    }
    let version = match op {
        NamesOp::Create => state.next_version(),
        _ => state.tree(&root).map_or(0, |tree| tree.version),
    };
    let names = Names {
        op,
        root,
        shared: spec.shared,
        branch,
        depth,
        leaves_only,
        items_per_dir,
        write_bytes: one_call(vars, &spec.write, "names.write")?,
        read_bytes: one_call(vars, &spec.read, "names.read")?,
        open_to_write: spec.open_to_write,
        flush: spec.flush,
        shift: small(vars, &spec.shift, "names.shift")?.unwrap_or(0),
        order: order_of(spec.order.as_deref()).map_err(|t| t.at("names.order"))?,
        epochs: small(vars, &spec.epochs, "names.epochs")?.unwrap_or(1).max(1),
        version,
        null: spec.null,
    };
    check_amount(&names, workers, spec.total.is_some())?;
    Ok((names, spec.verify.unwrap_or(true) && !spec.null))
}

/// Bytes that are moved by one call.
fn one_call(vars: &Variables, quantity: &Option<Quantity>, field: &str) -> Result<u64, Trouble> {
    let bytes = optional(vars, quantity, field)?.unwrap_or(0);
    let most = ring::BUFFER_BYTES_MAX as u64;
    if bytes > most {
        let what = format!("{bytes} bytes are more than one call moves");
        return Err(Trouble::new(what, format!("give {most} at most")).at(field));
    }
    Ok(bytes)
}

/// All that is done, and all that it moves, can be counted.
fn check_amount(names: &Names, workers: u32, has_total: bool) -> Result<(), Trouble> {
    // Saturated, it is too much.
    let items = names.items_per_worker().saturating_mul(u64::from(workers));
    let items = items.saturating_mul(u64::from(names.epochs));
    let bytes = items.saturating_mul(names.write_bytes.max(names.read_bytes).max(1));
    if bytes <= i64::MAX as u64 {
        return Ok(());
    }
    let what = format!(
        "{} directories of {} items of {workers} workers are more than can be counted",
        names.item_dirs(),
        names.items_per_dir
    );
    let field = match (has_total, names.items_per_dir > names.item_dirs()) {
        (true, _) => "names.total",
        (false, true) => "names.items-per-dir",
        (false, false) => "names.depth",
    };
    Err(Trouble::new(what, "give less").at(field))
}

/// The phase that makes a tree which nothing made before.
pub fn make_tree(job: &Job, state: &mut State) -> Option<PlannedPhase> {
    let Work::Names(names) = &job.work else { return None };
    let is_makers = matches!(names.op, NamesOp::Create | NamesOp::MakeDir | NamesOp::Ask);
    if !is_makers || state.tree(&names.root).is_some() {
        return None;
    }
    let phase = tree_phase(job, names, NamesOp::MakeTree, "make");
    state.note(&[&phase.parts[0].job]);
    Some(phase)
}

/// The phases that remove trees which are empty for sure. Others go with the point's directory.
pub fn remove_trees(state: &State, phases: &[PlannedPhase]) -> Vec<PlannedPhase> {
    let works = || phases.iter().flat_map(|phase| &phase.parts).map(|part| &part.job);
    let by_outside = phases.iter().any(|phase| phase.program != Program::Stria);
    let limited = works().any(|job| job.limit.seconds.is_some());
    let makers = works().filter_map(|job| match &job.work {
        Work::Names(names) if names.op == NamesOp::MakeTree => Some((job, names)),
        _ => None,
    });
    let empty = makers.filter(|(_, names)| {
        let tree = state.tree(&names.root);
        !by_outside && !limited && tree.is_some_and(|tree| tree.was_emptied())
    });
    empty.map(|(job, names)| tree_phase(job, names, NamesOp::RemoveTree, "remove")).collect()
}

fn tree_phase(job: &Job, names: &Names, op: NamesOp, verb: &str) -> PlannedPhase {
    let work = Work::Names(Names { op, ..names.clone() });
    let job = Job { work, limit: Limit::default(), ..job.clone() };
    PlannedPhase {
        name: format!("{verb} {}", names.root.display()),
        cold: false,
        measured: false,
        program: Program::Stria,
        against: None,
        parts: vec![PlannedPart { name: String::new(), job, file_system: 0 }],
    }
}
