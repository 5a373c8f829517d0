//! Runs on several hosts and several file systems, under a label, with a sampler.

use std::collections::BTreeSet;

use super::*;
use crate::hosts::tests::{Fate, hosts};
use crate::plan::schema::{Quantities, Quantity};
use crate::report;

const SEVERAL: &str = r#"
name = "several"
title = "Several"
about = "Small."
labels = { routers = [0, 1, 2] }
[scales.min]
repeats = [1, 1]
budget-seconds = 600

[[steps]]
id = "s"
title = "On each"
sweep = { threads = ["$hosts * 2"], fs = [1, 2, 3] }
ppn = 2
file-systems = "$fs"
placement = "block"
data = { transfer = "64K", block = "256K" }
[[steps.phases]]
name = "write"
data = { op = "write" }
[[steps.phases]]
name = "both"
cold = true
together = [{ name = "w", data = { op = "write", name = "b" } }, { name = "r", data = { op = "read", shift = 1 } }]

[[figures]]
id = "bars"
title = "Bars"
kind = "bars"
unit = "MB/s"
series = [
  { name = "w", step = "s", phase = "write", at = { fs = 2, routers = 1 }, summed = true },
  { name = "w of fs2", step = "s", phase = "write.fs2", at = { fs = 2, routers = 1 } },
]
[[figures]]
id = "router"
title = "Router"
kind = "timeline"
unit = "MB/s"
sampled = { fields = ["mb"] }
series = [{ name = "all", step = "s", phase = "*", at = { fs = 2, routers = 1 } }]

[[tables]]
id = "op"
title = "Op"
kind = "operations"
rows = [{ name = "w", step = "s", phase = "write", unit = "MB/s", summed = true, at = { fs = 2 }, published = { mean = 1.0 } }]
[[tables]]
id = "fs"
title = "File systems"
kind = "file-systems"
rows = [{ name = "w", step = "s", phase = "write", unit = "MB/s", at = { fs = 2 } }]
"#;

/// Two directories that each of the hosts has under a name of its own, and the label.
fn several(dir: &TestDir, fates: &[Fate], routers: u64) -> Settings {
    let made = |name: &str| {
        let there = |host: &str| dir.path().join(host).join(name);
        std::fs::create_dir_all(there("h1")).unwrap();
        std::fs::create_dir_all(dir.path().join("h2")).unwrap();
        std::os::unix::fs::symlink(there("h1"), there("h2")).ok();
        let on_hosts = dir.path().join("{host}").join(name).display().to_string();
        Root { here: there("h1"), on_hosts }
    };
    let mut environment =
        Environment { hosts: 2, file_systems: 2, ram: 1 << 30, cpus: 2, ..Environment::default() };
    environment.overrides.insert("routers".into(), Quantities::One(Quantity::Whole(routers)));
    Settings {
        dirs: vec![made("a"), made("b")],
        out: dir.path().join(format!("out{routers}")),
        environment,
        hosts: Some(hosts(fates)),
        launch: "reach {host}".into(),
        ..settings(dir)
    }
}

#[test]
fn each_file_system_and_each_host_has_its_figures_and_runs_join_by_their_label() {
    let dir = TestDir::new("run-several");
    plan::check::check(&parse(SEVERAL), &Environment::here()).unwrap();
    let mut all = Vec::new();
    for routers in [0, 1] {
        let mut settings = Settings { ..several_once(&dir, routers) };
        settings.samplers =
            vec![vec!["printf".into(), "{\"mb\":7}\\n".into()], vec!["no-such-sampler".into()]];
        let ran = run(&parse(SEVERAL), &settings, Inside).unwrap();
        assert_eq!(ran.failed, 0, "{:?}", results(&settings).skipped);
        let results = results(&settings);
        assert_eq!(results.header.hosts, ["h1", "h2"]);
        let phases = |fs: u64| -> Vec<&str> {
            results.records.iter().filter(|r| r.point["fs"] == fs).map(|r| r.phase.as_str()).collect()
        };
        assert_eq!(phases(1), ["write", "both.w", "both.r", "both"]);
        let both = ["both.w.fs1", "both.w.fs2", "both.r.fs1", "both.r.fs2", "both.w", "both.r", "both"];
        assert_eq!(phases(2), [&["write.fs1", "write.fs2", "write"], &both[..]].concat());
        assert!(phases(3).is_empty() && results.skipped[0].why.contains("points with 3 file systems"));
        for record in &results.records {
            assert_eq!(record.point["routers"], routers);
            let hosts: Vec<(&str, u64)> =
                record.outcome.per_host.iter().map(|h| (h.host.as_str(), h.bytes)).collect();
            let half = record.outcome.bytes / 2;
            assert_eq!(hosts, [("h1", half), ("h2", half)], "{}", record.phase);
            let targets: BTreeSet<&str> =
                record.outcome.per_target.iter().map(|t| t.target.as_str()).collect();
            assert!(targets.contains("fs1") || record.phase.ends_with("fs2"), "{targets:?}");
        }
        let whole = results.records.iter().find(|r| r.phase == "both" && r.point["fs"] == 2).unwrap();
        // Two parts on each of two file systems, of four workers in four processes each.
        assert_eq!((whole.workers, whole.processes, whole.outcome.bytes), (16, 16, 4 << 20));
        assert_eq!(whole.outcome.checked.pages, 2 * 16, "the reads");
        // One number came, and both samplers are gone: warnings, and no failure.
        assert_eq!(results.samples.iter().map(|s| s.rows.len()).sum::<usize>(), 1);
        assert_eq!(results.warnings.len(), 2, "{:?}", results.warnings);
        all.push(results);
    }
    let mut joined = report::join(all).unwrap();
    assert_eq!(joined.header.values["routers"], serde_json::json!([0, 1]));
    // The samples stand in the middle of the phases.
    let begin = |r: &Record| r.outcome.timeline.as_ref().map(|t| t.begin_seconds);
    let of_one = |r: &&Record| r.point["routers"] == 1 && r.point["fs"] == 2;
    let first = joined.records.iter().filter(of_one).filter_map(begin).fold(f64::INFINITY, f64::min);
    joined.samples[0].rows = vec![(first + 1e-6, vec![Some(7.0)])];
    let page = report::html(&joined);
    for id in ["fig-bars-1", "fig-router-1"] {
        assert!(page.contains(&format!("id=\"{id}")), "no {id}");
    }
    let text = report::text(&joined);
    for wanted in [
        "workers on: h1, h2",
        "Op",
        "Stdev",
        "published Mean",
        "fs2",
        "warning: sampler",
        "all over the slowest",
    ] {
        assert!(text.contains(wanted), "no {wanted} in\n{text}");
    }
    assert!(report::csv(&joined).lines().next().unwrap().contains("host.h2.mb_per_second"));
    let other = parse(&SEVERAL.replace("Several\"", "Other\""));
    let mut stranger = joined.clone();
    stranger.header.plan = other;
    assert!(report::join(vec![joined, stranger]).is_err());
}

fn several_once(dir: &TestDir, routers: u64) -> Settings {
    std::fs::remove_dir_all(dir.path().join("measured")).ok();
    several(dir, &[Fate::Works, Fate::Works], routers)
}

#[test]
fn a_host_that_dies_fails_the_step_by_its_name_and_leaves_nothing() {
    let dir = TestDir::new("run-dies");
    let settings = several(&dir, &[Fate::Works, Fate::DiesAtGo], 0);
    let ran = run(&parse(SEVERAL), &settings, Inside).unwrap();
    assert_eq!((ran.records, ran.failed), (0, 1));
    let results = results(&settings);
    let failed = results.skipped.iter().find(|s| s.failed).unwrap();
    assert!(failed.why.starts_with("host h2 (reach h2): it ended"), "{}", failed.why);
}

#[test]
fn a_label_has_one_of_the_values_of_the_plan() {
    let plan = parse(SEVERAL);
    for (text, is_right) in [("2", true), ("3", false)] {
        let mut environment = Environment { ram: 1 << 30, cpus: 2, ..Environment::default() };
        environment
            .overrides
            .insert("routers".into(), Quantities::One(Quantity::Whole(text.parse().unwrap())));
        let expanded = plan::expand(&plan, "min", &environment);
        assert_eq!(expanded.is_ok(), is_right, "{text}");
        if let Ok(steps) = expanded {
            assert!(steps[0].points.iter().all(|point| point.values["routers"] == 2));
        }
    }
}
