//! `stria fs`: the file systems of one management service.

use clap::{Args, Subcommand};
use serde::Serialize;
use types::Size;
use types::size::human;
use wire::mgmt::{CreateFs, RemovalKind};
use wire::session::TargetStat;

use crate::cmd::manage::Place;
use crate::cmd::manage::remove::Remove;
use crate::exit::Exit;
use crate::reach::Reach;

/// List, make and remove the file systems of a management service.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: stria fs list --mgs 10.0.0.5@tcp\nExample: stria fs create scratch --mgs 10.0.0.5@tcp"
)]
pub struct Fs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a file system, to which targets then register in any order. Without it the first MDT with a new name makes its file system.
    #[command(after_help = "\
Example: stria fs create scratch --mgs 10.0.0.5@tcp
Example: stria fs create db --inline-max 0 --commit-interval 100 --mgs 10.0.0.5@tcp")]
    Create(CreateFsArgs),
    /// Show each file system: its targets, those that do not answer, and its capacity. Exit code 1 if one does not.
    #[command(after_help = "Example: stria fs list --mgs 10.0.0.5@tcp")]
    List(Place),
    /// Remove a file system with all its targets from the cluster map. Their devices are not touched. Its servers must be stopped. Without --confirm
    /// it only shows what would be lost, and ends with exit code 1.
    #[command(after_help = "\
Example: stria fs remove scratch --dry-run --mgs 10.0.0.5@tcp
Example: stria fs remove scratch --mgs 10.0.0.5@tcp --confirm 20f4-ed4b-a77c")]
    Remove(RemoveFs),
}

#[derive(Debug, Args)]
struct CreateFsArgs {
    /// Its name: 1 to 8 letters, digits, '-' and '_'.
    name: String,
    /// Files up to this size lie in the MDT, 64K at most; 0: none does.
    #[arg(long, value_name = "SIZE", default_value = "64K")]
    inline_max: Size,
    /// Milliseconds between background flushes: what a power cut of all servers may lose.
    #[arg(long, value_name = "MS", default_value_t = mgmt::COMMIT_INTERVAL_MS)]
    commit_interval: u32,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
struct RemoveFs {
    /// The file system's name.
    name: String,
    #[command(flatten)]
    how: Remove,
}

impl Fs {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        match self.verb {
            Verb::Create(args) => args.run(),
            Verb::List(place) => list(&place),
            Verb::Remove(RemoveFs { name, how }) => how.run(RemovalKind::FileSystem, name, false),
        }
    }
}

#[derive(Debug, Serialize)]
struct Created {
    name: String,
    id: u32,
    map_version: u64,
}

impl CreateFsArgs {
    fn run(self) -> anyhow::Result<Exit> {
        let management = self.place.manage()?;
        // A larger one is refused as well.
        let inline_max = u32::try_from(self.inline_max.0).unwrap_or(u32::MAX);
        let wish = CreateFs { name: self.name.clone(), inline_max, commit_interval_ms: self.commit_interval };
        let reply = management.ask(&wish)?;
        let created = Created { name: self.name, id: reply.fs.0, map_version: reply.version };
        match self.place.json {
            true => outln!("{}", serde_json::to_string_pretty(&created)?),
            false => outln!(
                "file system {0} (id {1}) is made; next: start its `stria mds` and `stria oss` with fsname = \"{0}\"",
                created.name,
                created.id
            ),
        }
        Ok(Exit::Done)
    }
}

/// One file system.
#[derive(Debug, Serialize)]
struct Line {
    name: String,
    id: u32,
    uuid: String,
    /// Mirrors of MDTs and of OSTs. A target without a second member is a mirror of one.
    mdts: usize,
    osts: usize,
    /// Mirrors whose primary answers.
    #[serde(skip)]
    up: usize,
    /// Names of targets that do not answer.
    down: Vec<String>,
    /// Of OSTs that answer.
    bytes_total: u64,
    bytes_available: u64,
}

fn line_of(reach: &Reach) -> Line {
    let (fs, targets) = (reach.file_system(), reach.targets());
    let stats = reach.ask_all(&targets, |t| reach.ask(t.id, &TargetStat {}));
    let (mdts, all) = (reach.mdts().len(), reach.primaries().len());
    let mut line = Line {
        name: fs.name.clone(),
        id: fs.id.0,
        uuid: fs.uuid.to_string(),
        mdts,
        osts: all - mdts,
        up: 0,
        down: vec![],
        bytes_total: 0,
        bytes_available: 0,
    };
    for (target, stat) in targets.iter().zip(stats) {
        match stat {
            Ok(stat) if reach.is_primary(target) => {
                line.up += 1;
                if !target.is_mdt {
                    line.bytes_total += stat.bytes_total;
                    line.bytes_available += stat.bytes_available;
                }
            }
            Ok(_) => {}
            Err(_) => line.down.push(mgmt::member_name(&reach.map, target)),
        }
    }
    line
}

fn list(place: &Place) -> anyhow::Result<Exit> {
    let lines: Vec<Line> = place.manage()?.file_systems().iter().map(line_of).collect();
    match place.json {
        true => outln!("{}", serde_json::to_string_pretty(&lines)?),
        false if lines.is_empty() => {
            outln!(
                "there is no file system yet; `stria fs create` makes one, and so does a first `stria mds`"
            );
        }
        false => {
            outln!(
                "{:<9} {:>4} {:>5} {:>5} {:>5} {:>8} {:>8}  DOWN",
                "NAME",
                "ID",
                "MDTS",
                "OSTS",
                "UP",
                "SIZE",
                "FREE"
            );
            for Line { name, id, mdts, osts, up, down, bytes_total, bytes_available, .. } in &lines {
                let (size, free) = (human(*bytes_total), human(*bytes_available));
                let down = if down.is_empty() { "-".into() } else { down.join(", ") };
                outln!("{name:<9} {id:>4} {mdts:>5} {osts:>5} {up:>5} {size:>8} {free:>8}  {down}");
            }
        }
    }
    Ok(if lines.iter().all(|l| l.down.is_empty()) { Exit::Done } else { Exit::Findings })
}
