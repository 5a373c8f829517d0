//! `cargo xtask bars pair`: what a second member of each target costs and gives.
//!
//! On one loop device: a file system with one member of each target beside one with two, both as processes over TCP. The sides alternate; a
//! ratio is of two sides of one round. Then a follower is filled anew, beside a plain copy. Last, servers as hosts whose disks have a
//! limited rate each.

mod capped;
mod work;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench::stats::estimate;
use testkit::cluster::is_in_sync;
use testkit::{Cluster, Shape, Wiring};

use super::stage::Stage;
use super::verdicts::{Bar, verdicts};
use super::warm::Warm;
use work::Row;

/// The mirror that is filled anew.
const FILLED: &str = "stria-OST0000";
/// Its content.
const RESYNC_MIB: u64 = 1024;
const RESYNC_ROUNDS: usize = 3;
const IN_SYNC_MAX: Duration = Duration::from_secs(300);

pub struct Settings {
    pub bin: PathBuf,
    pub base: PathBuf,
    pub gib: u64,
    pub rounds: usize,
    /// "shared" or "capped": only that stage.
    pub rows: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    One,
    Two,
}

type Values = BTreeMap<(Side, Row), Vec<f64>>;

pub fn pair(settings: &Settings) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "bars need root: loop device, mounts, dropping caches");
    let wants = |stage: &str| settings.rows.is_empty() || settings.rows.contains(stage);
    let (mut bars, mut report) = (Vec::new(), String::new());
    if wants("shared") {
        let stage = Stage::set(&settings.base, settings.gib)?;
        let start = |name: &str, wiring| {
            let dir = stage.ext4.join(name);
            fs::create_dir_all(&dir)?;
            let shape = Shape { wiring, osts: 4, ost_size: "2G".into(), tls: false, etcd: vec![] };
            Cluster::start(&settings.bin, &dir, shape)
        };
        let (one, mut two) = (start("one", Wiring::Tcp)?, start("two", Wiring::Pair)?);
        let warm = Warm::start()?;
        let values = rounds(settings.rounds, &one.mount, &two.mount, &warm)?;
        report += &table(&values);
        println!("{report}");
        bars.extend(shared_bars(&values));
        drop(one);
        bars.push(resync(&mut two, &stage.ext4, &warm)?);
    }
    if wants("capped") {
        let (text, capped) = capped::measure(settings)?;
        report += &text;
        bars.extend(capped);
    }
    let report = format!("{report}\n{}", verdicts(&bars));
    println!("\n{report}");
    fs::write(settings.base.join("bars-pair.md"), &report)?;
    Ok(())
}

fn rounds(count: usize, one: &Path, two: &Path, warm: &Warm) -> Result<Values> {
    let (began, mut values) = (Instant::now(), Values::new());
    for round in 0..count {
        let mut order = [(Side::One, one), (Side::Two, two)];
        // A B, then B A: drift of the machine hits both sides alike.
        if round % 2 == 1 {
            order.reverse();
        }
        for (side, mount) in order {
            for (row, rate) in work::run(mount, round, &|| warm.settle())? {
                values.entry((side, row)).or_default().push(rate);
            }
        }
        println!("round {} of {count}, {:.0} s", round + 1, began.elapsed().as_secs_f64());
    }
    Ok(values)
}

/// Ratios of two members to one, a round each.
fn ratios(values: &Values, row: Row) -> Vec<f64> {
    match (values.get(&(Side::Two, row)), values.get(&(Side::One, row))) {
        (Some(two), Some(one)) => two.iter().zip(one).map(|(two, one)| two / one).collect(),
        _ => Vec::new(),
    }
}

fn table(values: &Values) -> String {
    let mut out = String::from("| row, medians | one member | two members | ratio |\n|---|---:|---:|---:|\n");
    for row in Row::ALL {
        let median = |side| values.get(&(side, row)).map_or(f64::NAN, |v| estimate(v).median);
        let (one, two, ratio) = (median(Side::One), median(Side::Two), estimate(&ratios(values, row)).median);
        let _ = writeln!(out, "| {}, {} | {one:.0} | {two:.0} | {ratio:.2} |", row.title(), row.unit());
    }
    out
}

/// The bars of the issue *Pairs*: each byte goes to the one disk twice.
fn shared_bars(values: &Values) -> Vec<Bar> {
    let bar = |row: Row| {
        let wanted = match row {
            Row::Write => 0.40,
            Row::Read => 0.95,
            Row::Overwrite => 0.35,
            Row::Create => 0.5,
        };
        let ratios = ratios(values, row);
        let what = format!("{}: two members ÷ one", row.title());
        Bar::of_ratio(what, (!ratios.is_empty()).then(|| estimate(&ratios)), wanted)
    };
    Row::ALL.map(bar).into()
}

/// The rate at which a follower is filled anew, beside that of a plain copy of as many bytes.
fn resync(pair: &mut Cluster, ext4: &Path, warm: &Warm) -> Result<Bar> {
    let file = pair.mount.join("filled");
    let (code, text) = pair.stria(&["setstripe", "-c", "1", "-i", "0", &file.display().to_string()])?;
    ensure!(code == 0, "setstripe: {text}");
    work::write(&file, RESYNC_MIB)?;
    let (from, to) = (ext4.join("copied"), ext4.join("copy"));
    work::write(&from, RESYNC_MIB)?;
    let mut found = Vec::new();
    for round in 0..RESYNC_ROUNDS {
        let mut times = [Duration::ZERO; 2];
        for is_plain in [round % 2 == 0, round % 2 == 1] {
            warm.settle()?;
            work::drop_caches()?;
            let before = written(ext4)?;
            times[usize::from(is_plain)] = if is_plain { copy(&from, &to)? } else { fill(pair)? };
            let mib = (written(ext4)? - before) >> 20;
            ensure!(mib >= RESYNC_MIB, "plain: {is_plain}: only {mib} MiB came to the disk by the end");
        }
        let [filled, copied] = times.map(|time| time.as_secs_f64());
        println!("filled anew in {filled:.2} s, copied in {copied:.2} s");
        found.push(copied / filled);
    }
    Ok(Bar::of_ratio("resync of 1 GiB ÷ a plain copy".into(), Some(estimate(&found)), 0.5))
}

fn copy(from: &Path, to: &Path) -> Result<Duration> {
    if to.exists() {
        fs::remove_file(to)?;
    }
    let begin = Instant::now();
    fs::copy(from, to)?;
    File::open(to)?.sync_all()?;
    Ok(begin.elapsed())
}

/// From the order until both members of OST 0 are in sync again.
fn fill(pair: &mut Cluster) -> Result<Duration> {
    let mgs = pair.mgs();
    let words = ["mirror", "resync", FILLED, "-j", "--mgs", &mgs];
    let asked = Instant::now();
    let token = loop {
        let (code, text) = pair.stria(&words)?;
        // The follower hears of the end of a fill a moment after the map has it.
        if code != 0 && text.contains("NotReady") && asked.elapsed() < IN_SYNC_MAX {
            std::thread::sleep(Duration::from_millis(100));
            continue;
        }
        let looked: serde_json::Value = serde_json::from_str(&text).with_context(|| text.clone())?;
        break looked["token"].as_str().context("a token")?.to_owned();
    };
    let (before, _) = filled(pair)?;
    let begin = Instant::now();
    let (code, text) = pair.stria(&[&words[..], &["--confirm", &token]].concat())?;
    ensure!(code == 0, "resync: {text}");
    loop {
        // The map still shows both members in sync until the MGS has heard of the order.
        let (epoch, is_whole) = filled(pair)?;
        if is_whole && epoch > before {
            return Ok(begin.elapsed());
        }
        ensure!(begin.elapsed() < IN_SYNC_MAX, "not in sync within {IN_SYNC_MAX:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Bytes that were written to the disk below `dir`.
fn written(dir: &Path) -> Result<u64> {
    let device = fs::metadata(dir)?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let stat = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat"))?;
    let sectors: u64 = stat.split_whitespace().nth(6).context("sectors written")?.parse()?;
    Ok(sectors * 512)
}

/// The epoch of OST 0, and whether both members are in sync.
fn filled(pair: &mut Cluster) -> Result<(u64, bool)> {
    let mgs = pair.mgs();
    let (_, text) = pair.stria(&["mirror", "list", "-j", "--mgs", &mgs])?;
    let mirrors: serde_json::Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    let all = mirrors.as_array().context("a list of mirrors")?;
    let own = all.iter().find(|mirror| mirror["name"] == FILLED).context("the mirror that is filled")?;
    Ok((own["epoch"].as_u64().context("an epoch")?, is_in_sync(own)))
}
