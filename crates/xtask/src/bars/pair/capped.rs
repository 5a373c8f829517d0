//! Two servers as hosts, each with a disk of limited rate: one client reads and writes one file.

use std::fmt::Write;

use anyhow::Result;
use bench::stats::estimate;

use super::super::verdicts::Bar;
use super::{Settings, work};
use crate::suite::drills::media::{FOLDER, Ill};
use crate::suite::drills::scene::{SERVERS, Scene};

/// Of each server's disk.
const CAP_MIB: u64 = 150;
const FILE_MIB: u64 = 256;
const ROUNDS: usize = 3;

pub fn measure(settings: &Settings) -> Result<(String, Vec<Bar>)> {
    let scene = Scene::begin(&settings.bin, &settings.base, true)?;
    let raw = scene.site.host_dir(SERVERS[0]).join(FOLDER).join("raw");
    let (mut reads, mut writes, mut report) = (Vec::new(), Vec::new(), String::new());
    let _ = writeln!(report, "\nDisks of {CAP_MIB} MiB/s; round 0 has no limit\n");
    report += "| round | raw write | raw read | write | read |\n|---|---:|---:|---:|---:|\n";
    for round in 0..=ROUNDS {
        if round == 1 {
            for server in SERVERS {
                scene.medium(server)?.fall_ill(Ill::Capped(CAP_MIB << 20))?;
            }
        }
        let file = scene.mount("c0")?.join(format!("capped{round}"));
        let rate = |seconds: f64| FILE_MIB as f64 / seconds;
        let (raw_write, raw_read) = (rate(work::write(&raw, FILE_MIB)?), rate(work::read(&raw, FILE_MIB)?));
        let (write, read) = (rate(work::write(&file, FILE_MIB)?), rate(work::read(&file, FILE_MIB)?));
        let _ = writeln!(report, "| {round} | {raw_write:.0} | {raw_read:.0} | {write:.0} | {read:.0} |");
        if round > 0 {
            reads.push(read / raw_read);
            writes.push(write / raw_write);
        }
        std::fs::remove_file(&file)?;
        std::fs::remove_file(&raw)?;
    }
    let bar = |what: &str, found: &[f64], wanted| Bar::of_ratio(what.into(), Some(estimate(found)), wanted);
    let bars = vec![
        bar("one file's read ÷ the rate of one server's disk", &reads, 1.8),
        bar("one file's write ÷ the rate of one server's disk", &writes, 0.9),
    ];
    Ok((report, bars))
}
