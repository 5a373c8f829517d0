//! `cargo xtask bars share`: what a second mount costs. One mount over TCP, two mounts of which one idles, two that work apart, two on the
//! same files, `stria up` and ext4, all on one loop device. The sides alternate; a ratio is of two sides of one round.

mod work;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, ensure};
use bench::stats::estimate;
use testkit::{Cluster, Shape, Wiring};

use super::stage::Stage;
use super::verdicts::{Bar, verdicts};
use super::warm::Warm;
use work::{Place, Row};

pub struct Settings {
    pub bin: PathBuf,
    pub base: PathBuf,
    pub gib: u64,
    pub rounds: usize,
}

/// A side of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    One,
    Idle,
    Apart,
    Together,
    Up,
    Ext4,
}

impl Side {
    const ALL: [Side; 6] = [Side::One, Side::Idle, Side::Apart, Side::Together, Side::Up, Side::Ext4];

    fn title(self) -> &'static str {
        match self {
            Side::One => "one mount",
            Side::Idle => "second mount idle",
            Side::Apart => "two mounts apart",
            Side::Together => "two mounts together",
            Side::Up => "stria up",
            Side::Ext4 => "ext4",
        }
    }
}

type Values = BTreeMap<(Side, Row), Vec<f64>>;

pub fn share(settings: &Settings) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "bars need root: loop device, mounts, dropping caches");
    let stage = Stage::set(&settings.base, settings.gib)?;
    let (alone, shared, up) = (stage.ext4.join("alone"), stage.ext4.join("shared"), stage.ext4.join("up"));
    let start = |dir: &Path, wiring| {
        fs::create_dir_all(dir)?;
        Cluster::start(
            &settings.bin,
            dir,
            Shape { wiring, osts: 4, ost_size: "1G".into(), tls: false, etcd: vec![] },
        )
    };
    let one = start(&alone, Wiring::Tcp)?;
    let two = start(&shared, Wiring::Two)?;
    let local = start(&up, Wiring::Local)?;
    let plain = stage.ext4.join("plain");
    fs::create_dir_all(&plain)?;
    let both: Vec<PathBuf> = two.mounts().cloned().collect();
    ensure!(both.len() == 2, "the cluster has two mounts");
    let place = |side| match side {
        Side::One => Place { mounts: vec![one.mount.clone()], is_together: false },
        Side::Idle => Place { mounts: vec![both[0].clone()], is_together: false },
        Side::Apart => Place { mounts: both.clone(), is_together: false },
        Side::Together => Place { mounts: both.clone(), is_together: true },
        Side::Up => Place { mounts: vec![local.mount.clone()], is_together: false },
        Side::Ext4 => Place { mounts: vec![plain.clone()], is_together: false },
    };
    let warm = Warm::start()?;
    let (began, mut values) = (Instant::now(), Values::new());
    for round in 0..settings.rounds {
        let mut order = Side::ALL;
        // A B, then B A: drift of the machine hits all sides alike.
        if round % 2 == 1 {
            order.reverse();
        }
        for side in order {
            let rates = work::run(&place(side), round, &|| warm.settle())?;
            for (row, rate) in Row::ALL.into_iter().zip(rates) {
                values.entry((side, row)).or_default().push(rate);
            }
        }
        println!("round {} of {}, {:.0} s", round + 1, settings.rounds, began.elapsed().as_secs_f64());
    }
    drop(warm);
    let report = format!("{}\n{}", table(&values), verdicts(&bars(&values)));
    println!("\n{report}");
    fs::write(settings.base.join("bars-share.md"), &report)?;
    drop((one, two, local));
    drop(stage);
    Ok(())
}

fn table(values: &Values) -> String {
    let mut out = String::from("Medians, per second (content: MiB per second)\n\n| row |");
    Side::ALL.iter().for_each(|side| _ = write!(out, " {} |", side.title()));
    out += "\n|---|---:|---:|---:|---:|---:|---:|\n";
    for row in Row::ALL {
        let _ = write!(out, "| {} |", row.title());
        for side in Side::ALL {
            let value = values.get(&(side, row)).map_or(f64::NAN, |v| estimate(v).median);
            let _ = write!(out, " {value:.0} |");
        }
        out.push('\n');
    }
    out
}

/// The bars of the issue *Leases*.
fn bars(values: &Values) -> Vec<Bar> {
    let mut bars = Vec::new();
    let mut add = |row: Row, side: Side, other: Side, bar: f64| {
        let ratios = match (values.get(&(side, row)), values.get(&(other, row))) {
            (Some(a), Some(b)) => a.iter().zip(b).map(|(a, b)| a / b).collect(),
            _ => Vec::new(),
        };
        let what = format!("{}: {} ÷ {}", row.title(), side.title(), other.title());
        bars.push(Bar::of_ratio(what, (!ratios.is_empty()).then(|| estimate(&ratios)), bar));
    };
    for row in Row::ALL {
        add(row, Side::Idle, Side::One, 0.95);
        add(row, Side::Apart, Side::One, 0.85);
    }
    for side in [Side::One, Side::Idle] {
        for (row, bar) in [
            (Row::Create, 0.7),
            (Row::StatCold, 0.5),
            (Row::StatWarm, 0.95),
            (Row::Remove, 0.7),
            (Row::SmallRead, 0.5),
            (Row::StreamWrite, 0.7),
            (Row::StreamRead, 0.7),
            (Row::OddWrite, 0.7),
            (Row::OddRead, 0.7),
        ] {
            add(row, side, Side::Up, bar);
        }
    }
    // The best peer with two mounts ÷ ext4.
    for side in [Side::Idle, Side::Apart] {
        for (row, peer) in [
            (Row::Create, 0.066),
            (Row::StatCold, 0.063),
            (Row::StatWarm, 0.58),
            (Row::SmallRead, 0.048),
            (Row::Remove, 0.067),
        ] {
            add(row, side, Side::Ext4, peer);
        }
    }
    add(Row::StatWarm, Side::One, Side::Ext4, 0.7);
    add(Row::OddWrite, Side::Apart, Side::One, 0.8);
    bars
}
