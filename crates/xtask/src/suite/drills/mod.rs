//! Drills of a pair: one server, its link, its disk or the management service fails under probes and writes, and comes back.
//! `cargo xtask drill` runs them by name or at random, and prints a table; suites run some of them.

mod beside;
mod fault;
pub mod media;
mod probe;
pub mod scene;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use rustix::process::Signal;
use testkit::Rng;

pub use beside::{Beside, Program};
pub use fault::Fault;
use media::Ill;
pub use scene::{Row, SERVERS, Scene};

/// The delay of each operation of a slow disk.
const SLOW: Duration = Duration::from_millis(50);

/// A drill by its name.
pub struct Drill {
    pub name: &'static str,
    pub faults: Vec<Fault>,
}

/// Every drill, in the order of the table.
pub fn all() -> Vec<Drill> {
    let sec = Duration::from_secs;
    let [one, two] = SERVERS;
    let drill = |name, faults: &[Fault]| Drill { name, faults: faults.to_vec() };
    // Each server in turn. Its primaries move away before it stops.
    let in_turn = |server| [Fault::Drained(server), Fault::Stopped(server)];
    vec![
        drill("kill-primary", &[Fault::Balanced, Fault::Killed(one)]),
        drill("kill-backup", &[Fault::Drained(two), Fault::Killed(two)]),
        drill("kill-both", &[Fault::Both]),
        drill("stop", &[Fault::Drained(two), Fault::Stopped(one)]),
        drill("stop-both", &[Fault::Balanced, Fault::BothStopped]),
        drill("pause-1", &[Fault::Drained(two), Fault::Frozen(one, sec(1))]),
        drill("pause-5", &[Fault::Drained(two), Fault::Frozen(one, sec(5))]),
        drill("pause-backup", &[Fault::Drained(two), Fault::Frozen(two, sec(10))]),
        drill("pause-30", &[Fault::Drained(two), Fault::Frozen(one, sec(30))]),
        drill("link-down", &[Fault::Drained(two), Fault::Away(one, sec(5))]),
        drill("link-down-30", &[Fault::Drained(two), Fault::Away(one, sec(30))]),
        drill("link-down-backup", &[Fault::Drained(two), Fault::Away(two, sec(10))]),
        drill("cut", &[Fault::Drained(two), Fault::Cut(sec(5))]),
        drill("cut-one-way", &[Fault::Drained(two), Fault::CutOneWay(one, sec(5))]),
        drill("cut-other-way", &[Fault::Drained(two), Fault::CutOneWay(two, sec(5))]),
        drill("mgs", &[Fault::MgsKilled(sec(5))]),
        drill("hand-over", &[Fault::Drained(one), Fault::Balanced, Fault::Switched]),
        drill("rolling", &[in_turn(one), in_turn(two)].concat()),
        drill("two-in-a-row", &[Fault::Drained(two), Fault::Killed(one), Fault::Killed(two)]),
        drill("power-primary", &[Fault::Drained(two), Fault::PowerLost(&SERVERS[..1], 1)]),
        drill("power-both", &[Fault::PowerLost(&SERVERS, 2), Fault::PowerLost(&SERVERS, 3)]),
        drill("slow-disk-primary", &[Fault::Drained(two), Fault::Disk(one, Ill::Slow(SLOW))]),
        drill("slow-disk-backup", &[Fault::Drained(two), Fault::Disk(two, Ill::Slow(SLOW))]),
        drill("full-disk-primary", &[Fault::Drained(two), Fault::Disk(one, Ill::Full)]),
        drill("full-disk-backup", &[Fault::Drained(two), Fault::Disk(two, Ill::Full)]),
        drill("reads-fail-primary", &[Fault::Drained(two), Fault::Disk(one, Ill::Reads)]),
        drill("reads-fail-backup", &[Fault::Drained(two), Fault::Disk(two, Ill::Reads)]),
        drill("flushes-fail-primary", &[Fault::Drained(two), Fault::Disk(one, Ill::Flushes)]),
        drill("flushes-fail-backup", &[Fault::Drained(two), Fault::Disk(two, Ill::Flushes)]),
        drill("flushes-fail-and-killed", &[Fault::Drained(two), Fault::FlushForgotten(one, Signal::KILL)]),
        drill("flushes-fail-and-stopped", &[Fault::Drained(two), Fault::FlushForgotten(one, Signal::TERM)]),
    ]
}

impl Drill {
    pub fn what(&self) -> String {
        let is_hand_over = |fault: &&Fault| matches!(fault, Fault::Drained(_) | Fault::Balanced);
        // Moves of primaries before the event only make it one of the primary, or of the backup.
        let lead = self.faults.iter().take_while(is_hand_over).count();
        let moves = self.faults.iter().filter(is_hand_over).count();
        // More of them are the event itself.
        let told = if moves > 1 { &self.faults[..] } else { &self.faults[lead..] };
        told.iter().map(Fault::to_string).collect::<Vec<_>>().join("; then ")
    }
    pub fn needs_media(&self) -> bool {
        self.faults.iter().any(|fault| fault.needs_media())
    }
    pub fn stall_max(&self) -> Duration {
        self.faults.iter().map(|fault| fault.stall_max()).max().unwrap_or_default()
    }
}

/// Fails if programs saw an error, or one call took longer than the event may cost.
pub fn judge(row: &Row, longest: Duration) -> Result<()> {
    if let Some(first) = row.first_error() {
        bail!("{}: {} calls of programs failed; the first: {first}", row.what, row.errors());
    }
    ensure!(
        row.longest() < longest,
        "{}: a call took {:?}, and may take {longest:?}; longest write, create, read, stat: {}",
        row.what,
        row.longest(),
        row.stalls()
    );
    Ok(())
}

/// `cargo xtask drill`.
#[derive(Args)]
pub struct Settings {
    /// Drills by name, or `list`; all, if none is named.
    names: Vec<String>,
    /// So many random drills, of all kinds. Beside programs no disk falls ill.
    #[arg(long, conflicts_with = "names")]
    random: Option<u64>,
    /// So many losses of power, of one server or both.
    #[arg(long, conflicts_with_all = ["names", "random"])]
    power: Option<u64>,
    /// Beside random drills run fio with checksums, SQLite, PostgreSQL and recorded histories.
    #[arg(long, requires = "random")]
    beside: bool,
    /// All of them are events of this drill.
    #[arg(long, value_name = "NAME", requires = "random")]
    of: Option<String>,
    /// Beside them run many recorded histories without pauses.
    #[arg(long, requires = "random", conflicts_with = "beside")]
    busy: bool,
    /// No event, but full load for so many minutes: no member may be given up.
    #[arg(long, value_name = "MINUTES", conflicts_with_all = ["names", "random"])]
    quiet: Option<u64>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The site's directory; default: one below the system's temporary directory.
    #[arg(long)]
    dir: Option<std::path::PathBuf>,
}

pub fn run(bin: &Path, settings: &Settings) -> Result<()> {
    if settings.names.first().is_some_and(|name| name == "list") {
        all().iter().for_each(|drill| println!("{:22} {}", drill.name, drill.what()));
        return Ok(());
    }
    let parent = crate::work_dir(settings.dir.clone());
    if let Some(minutes) = settings.quiet {
        return no_false_fail_over(bin, &parent, Duration::from_secs(60 * minutes));
    }
    let mut table = Table::default();
    let programs: &[Program] = match (settings.beside, settings.busy) {
        (true, _) => &ALL_PROGRAMS,
        (false, true) => &BUSY_PROGRAMS,
        (false, false) => &[],
    };
    let of = settings.of.as_deref().map(known_drill).transpose()?;
    match (settings.random, settings.power) {
        (Some(count), _) => {
            random(bin, &parent, (count, settings.seed), (programs, of.as_ref()), &mut table)?
        }
        (None, Some(count)) => power(bin, &parent, (count, settings.seed), &mut table)?,
        (None, None) => by_name(bin, &parent, &settings.names, &mut table)?,
    }
    println!("\n{}", table.text);
    ensure!(table.failed.is_empty(), "failed: {}", table.failed.join(", "));
    Ok(())
}

fn known_drill(name: &str) -> Result<Drill> {
    let found = all().into_iter().find(|drill| drill.name == name);
    found.with_context(|| format!("there is no drill {name}; `cargo xtask drill list` shows them"))
}

fn by_name(bin: &Path, parent: &Path, names: &[String], table: &mut Table) -> Result<()> {
    names.iter().try_for_each(|name| known_drill(name).map(drop))?;
    let wanted =
        all().into_iter().filter(|drill| names.is_empty() || names.iter().any(|name| name == drill.name));
    let (ill, plain): (Vec<Drill>, Vec<Drill>) = wanted.partition(Drill::needs_media);
    for (drills, media) in [(plain, false), (ill, true)] {
        let mut scene = None;
        for drill in drills {
            let mut now = match scene.take() {
                Some(scene) => scene,
                None => Scene::begin(bin, parent, media)?,
            };
            let outcome = now.drill(&drill.what(), &drill.faults);
            let outcome = outcome.and_then(|row| now.look_at_all().map(|()| row));
            // The rest of a failed drill would be the next one's failure.
            if table.add(drill.name, outcome, drill.stall_max()) {
                now.clear()?;
                scene = Some(now);
            } else {
                now.site.keep();
                println!("       logs are in {}", now.site.dir().display());
            }
        }
    }
    Ok(())
}

/// Programs that may run beside drills.
pub const ALL_PROGRAMS: [Program; 4] = [Program::Fio, Program::Sqlite, Program::Postgres, Program::Histories];

/// Of `drill --busy`.
const BUSY_PROGRAMS: [Program; 8] = [Program::BusyHistories; 8];

/// Random drills, one after another on one site, beside programs. `of`: all events are of this drill.
pub fn random(
    bin: &Path,
    parent: &Path,
    (count, seed): (u64, u64),
    (programs, of): (&[Program], Option<&Drill>),
    table: &mut Table,
) -> Result<()> {
    // Programs beside would be as slow as a pass-through mount below the servers' images.
    let has_media = of.map_or(programs.is_empty(), Drill::needs_media);
    let mut scene = Scene::begin(bin, parent, has_media)?;
    let beside = Beside::start(&scene.mounts()?, scene.site.dir(), programs, seed)?;
    let draw = |rng: &mut Rng| match of {
        Some(drill) => *rng.pick(&drill.faults),
        None => Fault::random(rng, has_media),
    };
    let outcome = one_after_another(&mut scene, (count, seed), draw, table);
    let outcome = outcome.and_then(|()| beside.wait());
    scene.kept(beside.finish().and(outcome))?;
    scene.command("fsck")?;
    scene.site.stop_all()
}

/// Losses of power, one after another on one site. After each one all content is read, and the file system is checked.
pub fn power(bin: &Path, parent: &Path, (count, seed): (u64, u64), table: &mut Table) -> Result<()> {
    let mut scene = Scene::begin(bin, parent, true)?;
    let outcome = one_after_another(&mut scene, (count, seed), Fault::random_power, table);
    scene.kept(outcome)?;
    scene.site.stop_all()
}

/// Full load for a time, and no event: the epochs of the mirrors stay as they are, so no member was given up for being slow.
pub fn no_false_fail_over(bin: &Path, parent: &Path, time: Duration) -> Result<()> {
    let mut scene = Scene::begin(bin, parent, false)?;
    let epochs = scene.epochs()?;
    beside::under_load(&scene.mounts()?, scene.site.dir(), time, || {
        let now = scene.epochs()?;
        ensure!(
            now == epochs,
            "the epochs were {epochs:?} and are {now:?}; logs:\n{}",
            scene.site.log_tails()
        );
        Ok(())
    })?;
    println!("       {} s of full load, and the epochs of mirrors stay {epochs:?}", time.as_secs());
    scene.command("fsck")?;
    scene.site.stop_all()
}

fn one_after_another(
    scene: &mut Scene,
    (count, seed): (u64, u64),
    draw: impl Fn(&mut Rng) -> Fault,
    table: &mut Table,
) -> Result<()> {
    let mut rng = Rng::new(seed);
    for n in 0..count {
        let fault = draw(&mut rng);
        let outcome = scene.drill(&fault.to_string(), &[fault]);
        let outcome = match fault.needs_media() {
            true => outcome.and_then(|row| scene.look_at_all().map(|()| row)),
            false => outcome,
        };
        if !table.add(&format!("random-{n}"), outcome, fault.stall_max()) {
            bail!("random drill {n} of seed {seed} failed: {fault}\n{}", table.text);
        }
        scene.clear()?;
    }
    Ok(())
}

/// The table of outcomes, as `docs/reliability.md` has it.
#[derive(Default)]
pub struct Table {
    text: String,
    pub failed: Vec<String>,
}

impl Table {
    /// Adds a row and shows it. False: the drill failed.
    pub fn add(&mut self, name: &str, outcome: Result<Row>, longest: Duration) -> bool {
        if self.text.is_empty() {
            self.text = "| drill | event | errors | longest write, create, read, stat | in sync again | bytes lost |\n|---|---|---|---|---|---|\n".into();
        }
        let outcome = outcome.and_then(|row| judge(&row, longest).map(|()| row).context(name.to_owned()));
        let line = match &outcome {
            Ok(row) => {
                row.notes.iter().for_each(|note| println!("       {note}"));
                format!(
                    "| {name} | {} | {} | {} | {:.1} s | 0 |\n",
                    row.what,
                    row.errors(),
                    row.stalls(),
                    row.in_sync_after.as_secs_f64()
                )
            }
            Err(e) => {
                println!("FAILED {name}: {e:#}");
                self.failed.push(name.to_owned());
                format!("| {name} | failed: {} | | | | |\n", e.root_cause())
            }
        };
        print!("{line}");
        self.text.push_str(&line);
        outcome.is_ok()
    }
}
