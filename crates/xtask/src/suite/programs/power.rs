//! SQLite on a mount whose media lose power: the servers run in this process, over simulated disks that drop, reorder and tear
//! what was not flushed. What a kill leaves in the page cache is gone here.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use fuse::{MountOptions, Mounted, Unmount};
use testkit::Wiring;
use testkit::story::{Story, StoryShape, Who};

use super::super::{Bench, Needs, Test};
use super::sqlite;

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Tcp), ("programs::sqlite_power_cut_of_servers", servers_lose_power)),
    (
        Needs::Only(Wiring::Two),
        ("programs::sqlite_power_cut_beside_another_mount", servers_of_two_lose_power),
    ),
    (Needs::Only(Wiring::Local), ("programs::sqlite_power_cut_of_all", all_lose_power)),
];

/// A story with its client mounted.
struct Powered {
    story: Story,
    mounted: Option<Mounted>,
    point: PathBuf,
}

impl Powered {
    fn begin(b: &Bench, name: &str) -> Result<Powered> {
        let wiring = if b.cluster.wiring() == Wiring::Local { Wiring::Local } else { Wiring::Tcp };
        let shape = StoryShape { ost_bytes: 128 << 20, ..StoryShape::lively(wiring) };
        let point = b.cluster.dir.join(name);
        fs::create_dir(&point)?;
        let mut powered = Powered { story: Story::begin(shape), mounted: None, point };
        powered.mount()?;
        Ok(powered)
    }

    fn mount(&mut self) -> Result<()> {
        let options = MountOptions::new("power");
        self.mounted = Some(fuse::mount(self.story.fs().clone(), &self.point, &options)?);
        Ok(())
    }

    fn unmount(&mut self) -> Result<()> {
        match self.mounted.take() {
            Some(mounted) => Ok(mounted.unmount(Unmount::Force)?),
            None => Ok(()),
        }
    }
}

impl Drop for Powered {
    fn drop(&mut self) {
        let _ = self.unmount();
    }
}

/// [S-replay] OSTs and the MDT lose power under a running database: the client replays the lost requests.
fn servers_lose_power(b: &mut Bench) -> Result<()> {
    let mut powered = Powered::begin(b, "power-servers")?;
    let db = powered.point.join("db");
    sqlite::make(&db, "WAL")?;
    let mut committer = sqlite::committer(&db, 0, 1)?;
    let mut rng = b.rng();
    for round in 0..b.scale.kills / 2 {
        committer.wait_for(committer.acknowledged() + 1 + rng.below(30))?;
        let who = *rng.pick(&[Who::Mdt, Who::Ost(0), Who::Ost(1), Who::Ost(1)]);
        powered.story.power_cut(who, b.seed * 1000 + round);
        powered.story.start(who);
        committer
            .wait_for(committer.acknowledged() + 1)
            .with_context(|| format!("round {round}: {who:?} lost power"))?;
    }
    let last = committer.finish(true)?;
    sqlite::check(&db, &[last])?;
    powered.unmount()
}

/// [S-replay] [S-several-mounts] The same with two mounts, each with a database that goes on; the one reads the other's in the end.
fn servers_of_two_lose_power(b: &mut Bench) -> Result<()> {
    let mut powered = Powered::begin(b, "power-two")?;
    let point = b.cluster.dir.join("power-beside");
    fs::create_dir(&point)?;
    let second = fuse::mount(powered.story.beside(), &point, &MountOptions::new("beside"))?;
    let (mut rng, kills, seed) = (b.rng(), b.scale.kills, b.seed);
    let outcome = (|| {
        let dbs = [powered.point.join("first.db"), point.join("second.db")];
        dbs.iter().try_for_each(|db| sqlite::make(db, "DELETE"))?;
        let mut committers = [sqlite::committer(&dbs[0], 0, 1)?, sqlite::committer(&dbs[1], 0, 1)?];
        for round in 0..kills / 2 {
            let who = *rng.pick(&[Who::Mdt, Who::Ost(0), Who::Ost(1), Who::Ost(1)]);
            powered.story.power_cut(who, seed * 1000 + round);
            powered.story.start(who);
            for committer in &mut committers {
                committer
                    .wait_for(committer.acknowledged() + 1 + rng.below(5))
                    .with_context(|| format!("round {round}: {who:?} lost power"))?;
            }
        }
        let [first, second] = committers.map(|committer| committer.finish(true));
        sqlite::check(&point.join("first.db"), &[first?])?;
        sqlite::check(&powered.point.join("second.db"), &[second?])
    })();
    second.unmount(Unmount::Force)?;
    outcome?;
    powered.unmount()
}

/// [S-fsync] All power is lost, the database's too: every transaction that it acknowledged is there, and no half of another.
fn all_lose_power(b: &mut Bench) -> Result<()> {
    let mut powered = Powered::begin(b, "power-all")?;
    let mut rng = b.rng();
    for journal in ["WAL", "DELETE"] {
        let db = powered.point.join(journal);
        sqlite::make(&db, journal)?;
        let mut last = 0;
        for round in 0..b.scale.kills / 4 {
            let mut committer = sqlite::committer(&db, 0, last + 1)?;
            committer.wait_for(last + 1 + rng.below(40))?;
            // Not what it says later: SQLite takes a directory that it can't open for one that needs no flush.
            last = committer.acknowledged();
            powered.story.unmount_dead();
            powered.unmount()?;
            committer.kill()?;
            powered.story.power_cut_and_remount(b.seed * 1000 + round);
            powered.mount()?;
            sqlite::check(&db, &[last]).with_context(|| format!("{journal}, round {round}"))?;
            last = sqlite::last_row(&db)?;
        }
    }
    powered.unmount()
}
