//! Structure of a plan's file. `docs/bench-plans.md` describes it for authors of plans.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::hosts::Placement;
use crate::record::Unit;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    pub name: String,
    pub title: String,
    /// The published study that it reproduces, with the system that was measured there; empty for a plan of our own.
    #[serde(default)]
    pub study: String,
    /// Purpose and method of the measurement.
    pub about: String,
    /// Hosts whose workers take part, and the command that reaches each: `ssh {host}`. Options of a run override both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<String>,
    /// A command that prints a line of JSON with numbers now and then, throughout the run: `["stria", "router", "stat", …]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sampler: Vec<String>,
    /// Names for the circumstances of a run, with the values that they may have: `routers = [0, 1, 2]`. A run has one value, by
    /// default the first; each point has it, so that results of several runs can be joined.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Vec<u64>>,
    /// `min`, `small`, `full`.
    pub scales: BTreeMap<String, Scale>,
    pub steps: Vec<Step>,
    #[serde(default)]
    pub figures: Vec<Figure>,
    #[serde(default)]
    pub tables: Vec<Table>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Scale {
    /// Each point is measured at least so often, and at most.
    pub repeats: [u32; 2],
    /// Between the two: until the 95 % interval of the median is narrower than this share of it (whole width).
    #[serde(default)]
    pub narrow: f64,
    /// Its amounts are those of the published study: only then is a share of a published value shown.
    #[serde(default, skip_serializing_if = "is_false")]
    pub as_published: bool,
    /// Seconds for the whole plan. When they are over, points are measured once and steps that have not begun are skipped.
    pub budget_seconds: u64,
    /// Values of `$name`: a number, a size, or a list for sweeps.
    #[serde(default)]
    pub values: BTreeMap<String, Quantities>,
}

/// A number, or text: a size (`8M`), a variable (`$threads`), or a product (`2 * $ram / $threads`), from left to right.
/// Variables are those of the scale, those that the step sweeps, labels, and `ram` (bytes of memory), `cpus`, `hosts` (their number),
/// `threads` if not given: 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Quantity {
    Whole(u64),
    Real(f64),
    Text(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Quantities {
    Many(Vec<Quantity>),
    One(Quantity),
}

/// Phases that follow one another at each point of a sweep, in a directory of their own that is removed after the point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Step {
    pub id: String,
    pub title: String,
    #[serde(default)]
    pub about: String,
    /// Needs of the step; if one is not met, the step is skipped with a message.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// The scales at which it is run. Empty: all.
    #[serde(default)]
    pub scales: Vec<String>,
    /// Parameters and their values; every combination is a point. `threads` is the number of workers.
    #[serde(default)]
    pub sweep: BTreeMap<String, Quantities>,
    /// Worker processes; the workers are spread round-robin over them. Without it: a process each, up to 64.
    pub processes: Option<Quantity>,
    /// In place of it: worker processes of each host, of each part that runs at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ppn: Option<Quantity>,
    #[serde(default)]
    pub placement: Placement,
    /// Each phase does its work on so many file systems at once, with as many workers on each: the first of those that were given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_systems: Option<Quantity>,
    /// Fields common to all phases; a phase's own fields override them.
    #[serde(default)]
    pub data: toml::Table,
    #[serde(default)]
    pub names: toml::Table,
    #[serde(default)]
    pub phases: Vec<Phase>,
    /// Commands whose output is kept instead of phases; `{dir}` is the measured directory. Programs that are not there: a line.
    #[serde(default)]
    pub commands: Vec<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// Programs.
    Fio,
    Ior,
    Mdtest,
    Iozone,
    /// Workers on more than one host.
    Hosts,
    /// Routers between clients and servers: the label `routers` says their number.
    Routers,
    /// Mirrors; preload library: parts of Stria that do not exist yet.
    Mirrors,
    Preload,
    /// Two mounted file systems, to be measured at once.
    TwoFileSystems,
    /// `O_DIRECT` on the measured file system.
    Direct,
    /// io_uring.
    Uring,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Phase {
    pub name: String,
    /// Caches are defeated before it.
    #[serde(default)]
    pub cold: bool,
    /// The phase only prepares later ones: no record.
    #[serde(default)]
    pub unmeasured: bool,
    pub data: Option<toml::Table>,
    pub names: Option<toml::Table>,
    /// Several works at once, each a record of its own (`phase` = `NAME.PART`), and one of all together (`NAME`).
    #[serde(default)]
    pub together: Vec<Part>,
    /// `stria` (default), `fio`, `ior`, `mdtest`, `iozone`: the program that does it, with the same parameters.
    pub engine: Option<String>,
    /// A second engine that does the same, repeat by repeat in turn; the ratio of the two is shown.
    pub against: Option<String>,
    pub seconds: Option<Quantity>,
    pub warmup_seconds: Option<Quantity>,
    /// Operations per second of each worker.
    pub pace: Option<Quantity>,
    /// Workers, if not `$threads`.
    pub workers: Option<Quantity>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Part {
    pub name: String,
    pub workers: Option<Quantity>,
    pub data: Option<toml::Table>,
    pub names: Option<toml::Table>,
    pub pace: Option<Quantity>,
}

/// `data` of a phase, over that of its step.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DataSpec {
    /// `write`, `read`, `mixed`.
    pub op: String,
    /// Of `mixed`: reads in percent.
    pub read_percent: Option<Quantity>,
    /// `sequential` (default), `random`.
    pub order: Option<String>,
    /// `own` (default): a file per worker; `shared`: one; `given`: the files or devices that `--targets` named, or, without that
    /// option, `$devices` files of `total / $devices` bytes that a phase before wrote as `own`.
    pub files: Option<String>,
    /// The file's name; phases of one step meet in it. Default `data`.
    pub name: Option<String>,
    pub transfer: Quantity,
    /// Bytes of each worker's block. Without it: `total / max(threads, fewest) / segments`, whole transfers of it.
    pub block: Option<Quantity>,
    pub segments: Option<Quantity>,
    /// Bytes over all workers.
    pub total: Option<Quantity>,
    /// With fewer workers than this each has as much as if there were so many.
    pub fewest: Option<Quantity>,
    /// Share of each block, from its begin, that is used: `0.05` of a filled device.
    pub footprint: Option<f64>,
    pub shift: Option<Quantity>,
    pub ops: Option<Quantity>,
    /// In flight by each worker; 1 (default) is plain calls, more is io_uring.
    pub depth: Option<Quantity>,
    /// `uring` at depth 1 too, or `null`.
    pub engine: Option<String>,
    #[serde(default)]
    pub direct: bool,
    /// `never`, `end` (default of writes), `each`.
    pub flush: Option<String>,
    /// A write that changes files that are there.
    #[serde(default)]
    pub overwrite: bool,
    pub verify: Option<bool>,
}

/// `names` of a phase, over that of its step. The words are mdtest's.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NamesSpec {
    /// `make-tree`, `create`, `stat`, `read`, `remove`, `make-dir`, `stat-dir`, `remove-dir`, `remove-tree`, `ask`. `make-tree`
    /// and `remove-tree` are done unmeasured where no phase names them.
    pub op: String,
    #[serde(default)]
    pub shared: bool,
    /// Default `tree`.
    pub name: Option<String>,
    pub branch: Option<Quantity>,
    pub depth: Option<Quantity>,
    #[serde(default)]
    pub leaves_only: bool,
    pub items_per_dir: Quantity,
    /// Files over all workers. `branch` follows: `total / items-per-dir / threads` directories for each worker, at least 1.
    pub total: Option<Quantity>,
    pub write: Option<Quantity>,
    pub read: Option<Quantity>,
    /// `read` opens for reading and writing, as mdtest does.
    #[serde(default)]
    pub open_to_write: bool,
    #[serde(default)]
    pub flush: bool,
    pub shift: Option<Quantity>,
    pub order: Option<String>,
    pub epochs: Option<Quantity>,
    #[serde(default)]
    pub null: bool,
    pub verify: Option<bool>,
}

/// A figure of the study: points of steps, drawn with the published values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Figure {
    pub id: String,
    pub title: String,
    pub kind: FigureKind,
    /// The swept parameter on the x axis of lines; seconds for a timeline; series are bars' groups.
    #[serde(default)]
    pub x: String,
    #[serde(default)]
    pub x_title: String,
    #[serde(default)]
    pub x_scale: AxisScale,
    pub unit: Unit,
    #[serde(default)]
    pub y_scale: AxisScale,
    /// Of a timeline: what the sampler printed is drawn in place of the workers' rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled: Option<Sampled>,
    pub series: Vec<Series>,
    #[serde(default)]
    pub published: Vec<Published>,
    /// The effect that the figure shows.
    #[serde(default)]
    pub about: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// Median with interval over x, a line per series.
    Lines,
    /// A bar with interval per series (and per value of `x`, if one is given).
    Bars,
    /// Throughput over the run's seconds, phases marked.
    Timeline,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AxisScale {
    #[default]
    Linear,
    Log2,
    Log10,
}

/// Fields of a sampler's lines. Their sum is drawn, from each series' first phase to its last, all series from the same begin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Sampled {
    /// Names of fields; `*` stands for any characters.
    pub fields: Vec<String>,
    /// A value times this is in the figure's unit; 1 without it.
    pub factor: Option<f64>,
}

/// Which records a series is made of: those of `step` and `phase` whose point has all of `at`. The phase `*` is all phases, of a
/// figure of samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Series {
    pub name: String,
    pub step: String,
    pub phase: String,
    #[serde(default)]
    pub at: BTreeMap<String, serde_json::Value>,
    /// The sum of the file systems' own rates, each over its own time, in place of all bytes over the time of the slowest.
    #[serde(default, skip_serializing_if = "is_false")]
    pub summed: bool,
}

/// The phase of a series of samples that takes all.
pub const ALL_PHASES: &str = "*";

fn is_false(word: &bool) -> bool {
    !word
}

/// A published value: a point of a series, or without `x` a line across. Its series is one of the figure's, or a name of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Published {
    pub series: String,
    pub x: Option<f64>,
    /// In the figure's or the table's unit.
    pub value: f64,
    /// Place in the publication: `Table 4, peak`.
    #[serde(rename = "where")]
    pub place: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Table {
    pub id: String,
    pub title: String,
    pub kind: TableKind,
    #[serde(default)]
    pub about: String,
    #[serde(default)]
    pub rows: Vec<TableRow>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TableKind {
    /// A row per series: median, interval, repeats, published, share of it; a line per point.
    Rates,
    /// A row per series over a sweep: peak, where, and sustained (the lowest median from the peak on), beside the published ones.
    Peak,
    /// Max, min, mean, standard deviation of the repeats, as mdtest prints them.
    Spread,
    /// Mean, max, min, standard deviation of the repeats of each operation, as eeyore prints them.
    Operations,
    /// A row per phase and point: the rate of each file system, their sum, and all bytes over the time of the slowest.
    FileSystems,
    /// Needed, measured, one block published, `blocks` blocks, efficiency.
    Requirements,
    /// Threads, directories per worker, files in all: the rule by which names were spread.
    Directories,
    /// A row per phase over its targets (`files = "given"`): slowest, median and fastest of them, and the total.
    Targets,
    /// Output of commands.
    Outputs,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TableRow {
    pub name: String,
    pub step: String,
    pub phase: String,
    #[serde(default)]
    pub at: BTreeMap<String, serde_json::Value>,
    pub unit: Unit,
    /// Of rates: a variable of the scale that the measured value is divided by, as in `devices` for a rate per drive.
    pub per: Option<String>,
    /// By column: `peak`, `sustained`, `max`, `min`, `mean`, `stddev`, `value`, `total`, `needed`,
    /// `block`.
    #[serde(default)]
    pub published: BTreeMap<String, f64>,
    /// Of requirements: building blocks of the published system, and whether its rate grows with them.
    pub blocks: Option<u32>,
    #[serde(default)]
    pub does_not_scale: bool,
    /// As of a figure's series.
    #[serde(default, skip_serializing_if = "is_false")]
    pub summed: bool,
}
