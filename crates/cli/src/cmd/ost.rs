//! `stria ost`: details of OSTs: activity and space of running ones, and the engine on a device without a cluster.

mod bench;
mod space;
mod stat;
mod waste;

use clap::{Args, Subcommand};
use wire::Request;
use wire::map::Target;

use crate::cmd::damage::Where;
use crate::exit::{Exit, Failure};
use crate::reach::Reach;

/// Look at OSTs closely: what running ones wrote and how their space is used; what the engine makes of a device.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: stria ost stat --dir /tmp/s --watch\nExample: stria ost bench /dev/nvme1n1 --force"
)]
pub struct Ost {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Bench(bench::Bench),
    Space(space::Space),
    Stat(stat::Stat),
    Waste(waste::Waste),
}

impl Ost {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        match self.verb {
            Verb::Bench(c) => c.run(),
            Verb::Space(c) => c.run(),
            Verb::Stat(c) => c.run(),
            Verb::Waste(c) => c.run(),
        }
    }
}

/// Selects OSTs of a file system.
#[derive(Debug, Args)]
struct OnOsts {
    #[command(flatten)]
    place: Where,
    /// Only this OST, by index; may be given several times.
    #[arg(long, visible_alias = "ost", value_name = "INDEX|all", value_parser = Wanted::parse, default_value = "all")]
    target: Vec<Wanted>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    All,
    Index(u32),
}

impl Wanted {
    fn parse(text: &str) -> Result<Wanted, String> {
        match text {
            "all" => Ok(Wanted::All),
            _ => text.parse().map(Wanted::Index).map_err(|_| "give an OST's index, or all".into()),
        }
    }
}

impl OnOsts {
    fn reach(&self) -> anyhow::Result<Reach> {
        let (reach, fid) = self.place.reach()?;
        match fid {
            None => Ok(reach),
            Some(_) => {
                let next = "give the mount point, or --dir";
                Err(Failure::unusable("ost", "it shows whole OSTs, not single files", next).into())
            }
        }
    }

    fn osts<'a>(&self, reach: &'a Reach) -> anyhow::Result<Vec<&'a Target>> {
        let all: Vec<&Target> = reach.targets().into_iter().filter(|t| !t.is_mdt).collect();
        for wanted in &self.target {
            if let Wanted::Index(index) = wanted
                && all.iter().all(|t| t.index != *index)
            {
                let next = "`stria status` lists the OSTs";
                return Err(
                    Failure::unusable(format!("OST {index}"), "there is none of this index", next).into()
                );
            }
        }
        let is_wanted = |t: &&Target| {
            self.target.iter().any(|w| matches!(w, Wanted::All) || *w == Wanted::Index(t.index))
        };
        Ok(all.into_iter().filter(is_wanted).collect())
    }
}

/// The answer of each OST, by name. OSTs that do not answer are reported at once; the last such error is the final one.
pub(super) fn ask_each<T>(
    reach: &Reach,
    targets: &[&Target],
    ask: impl Fn(&Target) -> anyhow::Result<T>,
) -> (Vec<(String, T)>, Option<Failure>) {
    let (mut answers, mut silent) = (Vec::new(), None);
    for target in targets {
        let name = mgmt::member_name(&reach.map, target);
        match ask(target) {
            Ok(answer) => answers.push((name, answer)),
            Err(e) => {
                eprintln!("stria: {name}: {e:#}");
                silent = Some(Failure::failed(
                    name,
                    "it did not report its state",
                    "`stria status` shows the target",
                ));
            }
        }
    }
    (answers, silent)
}

pub(super) fn ended(silent: Option<Failure>) -> anyhow::Result<Exit> {
    silent.map_or(Ok(Exit::Done), |f| Err(f.into()))
}

fn ask<R: Request>(reach: &Reach, ost: &Target, request: &R) -> anyhow::Result<R::Reply> {
    reach.ask(ost.id, request)
}

/// The ratio of two numbers; `None` if the second is zero.
fn ratio(a: u64, b: u64) -> Option<f64> {
    (b > 0).then(|| a as f64 / b as f64)
}

fn shown(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".into(), |r| format!("{r:.2}"))
}

pub(super) fn percent(part: u64, whole: u64) -> u64 {
    (u128::from(part) * 100).checked_div(whole.into()).unwrap_or(0) as u64
}

pub(super) fn time(seconds: u64) -> String {
    match seconds {
        0..600 => format!("{seconds} s"),
        600..36_000 => format!("{} min", seconds / 60),
        _ => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}
