use super::*;
use crate::record::End;

fn sample(repeats: u32) -> Results {
    sample::results(sample::plan(), "small", repeats)
}

/// Where developers may look at it: `STRIA_REPORT_DIR=/tmp/r cargo test -p stria-bench report`.
#[test]
fn a_page_has_each_figure_and_table_of_its_plan() {
    let results = sample(7);
    let page = html(&results);
    if let Some(dir) = std::env::var_os("STRIA_REPORT_DIR") {
        let dir = PathBuf::from(dir);
        write(&results, &dir).unwrap();
        sample::save(&results, &dir.join(RECORDS));
    }
    for figure in ["near", "far", "names", "bars", "time"] {
        assert!(page.contains(&format!("data-figure=\"{figure}\"")), "{figure}");
    }
    assert!(
        !page.contains("data-figure=\"absent\"") && page.contains("no routers: this file system has none")
    );
    assert_eq!(page.matches("<svg ").count(), 8, "one picture each, and two of a family with a far one");
    for table in ["rates", "peak", "spread", "needs", "dirs", "targets"] {
        assert!(page.contains(&format!("id=\"table-{table}\"")), "{table}");
    }
    assert!(page.contains("Views of the file system") && page.contains("df -hT /mnt"));
    for word in ["NaN", "inf", "<script", " src=", "url("] {
        assert!(!page.contains(word), "{word}");
    }
    assert!(page.contains("content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\""));
    let outside = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!outside.contains("http://") && !outside.contains("https://"));
    assert_eq!(page.matches("<svg ").count(), page.matches("<desc ").count());
    assert_eq!(page.matches("<table>").count(), page.matches("<caption>").count());
    assert!(page.len() < 400_000, "{}", page.len());
}

/// Also to look at: with `STRIA_REPORT_DIR` each plan's page is in a directory of its own.
#[test]
fn each_plan_of_ours_makes_a_page_at_each_scale() {
    for (name, _) in crate::plan::BUILT_IN {
        let plan = crate::plan::load(name).unwrap();
        for scale in plan.scales.keys() {
            let results = sample::of_plan(plan.clone(), scale, 3);
            if let Some(dir) = std::env::var_os("STRIA_REPORT_DIR") {
                write(&results, &PathBuf::from(dir).join(format!("{name}-{scale}"))).unwrap();
            }
            let page = html(&results);
            assert!(page.len() < PAGE_BYTES_MAX && !page.contains("NaN"), "{name} {scale}: {}", page.len());
            let steps: Vec<&str> = plan
                .steps
                .iter()
                .filter(|s| crate::plan::expand::is_at(s, scale))
                .map(|s| s.id.as_str())
                .collect();
            for figure in &plan.figures {
                let wanted = figure.series.iter().any(|s| steps.contains(&s.step.as_str()));
                let found = page.contains(&format!("data-figure=\"{}\"", figure.id));
                assert_eq!(found, wanted, "{name} {scale}: figure {}", figure.id);
            }
            // A row of one point is measured where the scale sweeps that far.
            let is_there = |r: &crate::plan::schema::TableRow| r.at.is_empty() || scale == "full";
            let groups = groups(&results);
            let made = tables::of_plan(&results, &groups);
            for table in plan.tables.iter().filter(|t| t.kind != crate::plan::schema::TableKind::Outputs) {
                let wanted =
                    table.rows.iter().filter(|r| steps.contains(&r.step.as_str()) && is_there(r)).count();
                let found =
                    made.iter().find(|g| g.id == format!("table-{}", table.id)).map_or(0, |g| g.rows.len());
                assert!(found >= wanted, "{name} {scale}: table {} has {found} rows of {wanted}", table.id);
            }
        }
    }
}

fn cells<'a>(grids: &'a [grid::Grid], id: &str, row: usize) -> Vec<&'a str> {
    let grid = grids.iter().find(|g| g.id == id).unwrap();
    grid.rows[row].iter().map(String::as_str).collect()
}

/// Rates of a phase at a number of threads, one per repeat.
fn set_rates(results: &mut Results, step: &str, phase: &str, threads: u64, rates: &[f64]) {
    let at = results.records.iter_mut().filter(|r| (&*r.step, &*r.phase) == (step, phase));
    for r in at.filter(|r| r.point.get("threads").and_then(|v| v.as_u64()) == Some(threads)) {
        let rate = rates[r.repeat as usize];
        r.outcome.seconds = 1.0;
        (r.outcome.ops, r.outcome.bytes) = (rate as u64, rate as u64);
    }
}

#[test]
fn tables_say_what_was_measured_and_published() {
    let mut results = sample(2);
    // These rates are beyond the sample's device, and a cached row is no share of a published one.
    results.limits = None;
    set_rates(&mut results, "seq", "write", 1, &[1e9, 1e9]);
    set_rates(&mut results, "seq", "write", 2, &[4e9, 4e9]);
    set_rates(&mut results, "seq", "write", 4, &[2.0e9, 2.4e9]);
    set_rates(&mut results, "seq", "write", 8, &[3e9, 3e9]);
    set_rates(&mut results, "meta", "create", 1, &[1.0, 1.0]);
    set_rates(&mut results, "meta", "create", 2, &[2003.0, 1343.0]);
    set_rates(&mut results, "meta", "create", 4, &[28_000.0, 28_000.0]);
    set_rates(&mut results, "meta", "create", 8, &[26_000.0, 26_000.0]);
    let groups = groups(&results);
    let grids = tables::of_plan(&results, &groups);
    assert_eq!(
        cells(&grids, "table-rates", 0),
        ["write", "MB/s", "2,200", "2,000 – 2,400", "2", "3,200.44", "69 %"]
    );
    let mut divided = results.clone();
    divided.header.values.insert("drives".into(), 2.into());
    divided
        .header
        .plan
        .tables
        .iter_mut()
        .for_each(|t| t.rows.iter_mut().for_each(|r| r.per = Some("drives".into())));
    let grids_of_each = tables::of_plan(&divided, &groups);
    assert_eq!(cells(&grids_of_each, "table-rates", 0)[2..4], ["1,100", "1,000 – 1,200"]);
    assert_eq!(
        cells(&grids, "table-peak", 0),
        ["write", "GB/s", "4.00", "–", "threads 2", "2.20", "40.9", "40", "9.8 %"]
    );
    assert_eq!(
        cells(&grids, "table-spread", 0)[2..],
        ["2,003", "1,343", "1,673", "330", "2", "31,128.9", "29,821.9", "30,475.4", "652.6", "5.5 %"]
    );
    assert_eq!(
        cells(&grids, "table-needs", 0)[1..],
        ["ops/s", "2,600,000", "56,000", "4,300,000", "100 %", "28,000", "2,156,000", "93"]
    );
    assert_eq!(cells(&grids, "table-needs", 1)[7], "does not scale");
    let dirs: Vec<Vec<&str>> = (0..4).map(|row| cells(&grids, "table-dirs", row)[1..].to_vec()).collect();
    assert_eq!(dirs[0], ["1", "2,048", "1,024", "2,097,152"]);
    assert_eq!(dirs[3], ["8", "256", "1,024", "2,097,152"]);
    assert!(text(&results).contains("not measured\nskipped routers: no routers"));
}

/// Names that a small scale finds in a cache are no share of what a study measured on disks.
#[test]
fn a_share_of_a_published_value_is_shown_only_where_it_measures_the_same() {
    let of_published = |results: &Results| {
        let groups = groups(results);
        let columns = tables::of_plan(results, &groups).into_iter().flat_map(|grid| grid.columns);
        columns.filter(|column| column.name.starts_with("of published")).count()
    };
    let mut results = sample(2);
    results.limits = None;
    assert_eq!(of_published(&results), 4, "rates, peak, spread, targets");
    assert!(!html(&results).contains("no percentage of them is shown"));
    results.header.set = vec!["total".into()];
    assert_eq!(of_published(&results), 0, "the amount was set by the user");
    assert!(html(&results).contains("no percentage of them is shown"));
    results.header.set.clear();
    results.header.plan.scales.values_mut().for_each(|scale| scale.as_published = false);
    assert_eq!(of_published(&results), 0, "the scale is a small one");
}

/// Drives by name: one is slow in the median of its repeats, another in one of them only.
#[test]
fn each_target_has_its_own_figures() {
    let mut results = sample(3);
    let rates = [[700.0, 740.0, 720.0], [730.0, 90.0, 728.0], [500.0, 510.0, 505.0], [700.0, 710.0, 715.0]];
    let is_read = |r: &&mut crate::record::Record| (&*r.step, &*r.phase) == ("seq", "read");
    for r in results.records.iter_mut().filter(is_read).filter(|r| r.workers == 4) {
        (r.outcome.seconds, r.outcome.bytes) = (1.0, 2_600_000_000);
        for (target, rates) in r.outcome.per_target.iter_mut().zip(rates) {
            (target.seconds, target.bytes) = (0.5, (rates[r.repeat as usize] * 0.5e6) as u64);
        }
    }
    let groups = groups(&results);
    let grids = tables::of_plan(&results, &groups);
    let wanted = ["MB/s", "4", "505", "715", "728", "71 %", "drive.2", "2,600", "7,300", "9.8 %", "175,500"];
    assert_eq!(cells(&grids, "table-targets", 0)[1..], wanted);
    let read: serde_json::Value = serde_json::from_str(&json(&results)).unwrap();
    let series = read["series"].as_array().unwrap();
    let is_it = |s: &&serde_json::Value| s["phase"] == "read" && s["workers"] == 4 && s["step"] == "seq";
    assert_eq!(series.iter().find(is_it).unwrap()["per_target"]["drive.2"].as_f64(), Some(505.0));
    assert!(csv(&results).lines().next().unwrap().contains(",target.drive.3.mb_per_second,"));
}

#[test]
fn two_programs_in_turn_are_compared_by_pairs() {
    let mut results = sample(9);
    // Pairs drift together by far more than they differ.
    for r in results.records.iter_mut().filter(|r| r.phase == "truth") {
        r.outcome.seconds = 1.0;
        r.outcome.bytes = (r.repeat as u64 + 1) * if r.engine == "fio" { 1_000_000 } else { 1_020_000 };
    }
    let groups = groups(&results);
    let mains: Vec<bool> = groups.iter().filter(|g| g.phase == "truth").map(|g| g.is_main).collect();
    assert_eq!(mains, [true, false, true, false]);
    let grid = tables::ratios(&groups).unwrap();
    assert_eq!(grid.rows.len(), 2, "a row per transfer");
    assert_eq!(grid.rows[0][2..], ["stria / fio", "5.10", "5.00", "1.02", "–", "9", "yes"]);
    for r in results.records.iter_mut().filter(|r| r.phase == "truth" && r.engine != "fio") {
        r.outcome.bytes *= 2;
    }
    assert_eq!(tables::ratios(&super::groups(&results)).unwrap().rows[0][8], "no");
}

#[test]
fn versions_of_programs_are_shown() {
    let mut results = sample(2);
    for r in results.records.iter_mut().filter(|r| r.engine == "fio") {
        r.engine = "fio 3.33".into();
    }
    let page = html(&results);
    assert!(page.contains("<dt>Program</dt><dd>stria 0.9.0, fio 3.33</dd>"));
    assert!(groups(&results).iter().any(|g| g.program == "fio"));
    let read: serde_json::Value = serde_json::from_str(&json(&results)).unwrap();
    assert_eq!(read["system"][0][1], "6.18.0");
}

#[test]
fn names_of_others_stay_text() {
    const BAD: &str = "\"><script>alert('x')</script><svg onload=x>\u{1b}[2J&{}";
    let mut plan = sample::plan();
    plan.title = BAD.into();
    plan.study = BAD.into();
    plan.about = BAD.into();
    for figure in &mut plan.figures {
        figure.title = BAD.into();
        figure.x_title = BAD.into();
        figure.about = BAD.into();
        figure.id = format!("{BAD}{}", figure.id);
        figure.series.iter_mut().for_each(|s| s.name = BAD.into());
        figure.published.iter_mut().for_each(|p| (p.series, p.place) = (BAD.into(), BAD.into()));
    }
    plan.tables.iter_mut().for_each(|t| (t.title, t.about) = (BAD.into(), BAD.into()));
    plan.tables.iter_mut().flat_map(|t| &mut t.rows).for_each(|r| r.name = BAD.into());
    let mut results = sample::results(plan, "small", 2);
    results.header.dir = BAD.into();
    results.header.command = BAD.into();
    results.header.file_system = BAD.into();
    results.header.scale = BAD.into();
    results.header.system = vec![(BAD.into(), BAD.into())];
    results.skipped = vec![crate::record::Skipped { step: BAD.into(), why: BAD.into(), failed: true }];
    results.outputs[0].text = BAD.into();
    results.outputs[0].command = BAD.into();
    results.end = Some(End { complete: false, why: BAD.into(), seconds: 1.0 });
    results.records.iter_mut().for_each(|r| (r.command, r.engine) = (BAD.into(), BAD.into()));
    let page = html(&results);
    // The plan's own kinds of elements, and no attribute that runs anything.
    assert!(!page.contains("<script") && !page.contains("<svg onload") && !page.contains('\u{1b}'));
    assert_eq!(page.matches("<svg ").count(), page.matches("</svg>").count());
    assert!(!text(&results).contains('\u{1b}'));
    assert!(text(&results).contains("NOT COMPLETE") && text(&results).contains("FAILED "));
}

#[test]
fn what_is_not_there_is_said() {
    let mut results = sample(1);
    results.end = None;
    results.records.truncate(1);
    let page = html(&results);
    assert!(page.contains("ended without a word") && !page.contains("NaN"));
    results.end = Some(End { complete: false, why: "Ctrl-C".into(), seconds: 3.0 });
    assert!(html(&results).contains("Not all of the plan was measured: Ctrl-C."));
    results.skipped[0].failed = true;
    let page = html(&results);
    assert!(page.contains("<td class=\"w\">failed</td><td class=\"w\">no routers"));
    assert!(page.contains("1 step failed") && page.contains("; 0 skipped, 1 failed"));
    results.records.clear();
    results.outputs.clear();
    let page = html(&results);
    assert!(!page.contains("<svg ") && page.contains("Nothing was measured for it") && !page.contains("NaN"));
    assert_eq!(csv(&results).lines().count(), 1);
    assert!(!text(&results).contains("NaN"));
    let read: serde_json::Value = serde_json::from_str(&json(&results)).unwrap();
    assert_eq!((read["complete"].as_bool(), read["series"].as_array().unwrap().len()), (Some(false), 0));
}

#[test]
fn nothing_measured_in_no_time_has_no_endless_rates() {
    let mut results = sample(3);
    for r in &mut results.records {
        r.outcome = crate::record::Outcome::default();
    }
    let page = html(&results);
    assert!(!page.contains("NaN") && !page.contains("inf"));
    assert!(!csv(&results).contains("NaN") && !json(&results).contains("NaN"));
}

/// The fields of a line, quoted or not.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut is_quoted) = (vec![String::new()], false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if is_quoted && chars.peek() == Some(&'"') => {
                chars.next();
                fields.last_mut().unwrap().push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            c => fields.last_mut().unwrap().push(c),
        }
    }
    fields
}

#[test]
fn csv_and_json_read_back() {
    let mut results = sample(2);
    results.records[0].step = "a,\"b\"".into();
    let text = csv(&results);
    let lines: Vec<Vec<String>> = text.split_terminator("\r\n").map(fields).collect();
    assert_eq!(lines.len(), results.records.len() + 1);
    assert!(lines.iter().all(|l| l.len() == lines[0].len()));
    let cell = |row: usize, name: &str| &lines[row + 1][lines[0].iter().position(|n| n == name).unwrap()];
    for (row, r) in results.records.iter().enumerate() {
        assert_eq!(cell(row, "step"), &r.step);
        assert_eq!(cell(row, "bytes").parse::<u64>().unwrap(), r.outcome.bytes);
        let rate: f64 = cell(row, "ops_per_second").parse().unwrap();
        assert!((rate / (r.outcome.ops as f64 / r.outcome.seconds) - 1.0).abs() < 1e-6);
        let p99: f64 = cell(row, "op_p99_us").parse().unwrap();
        assert!((p99 - r.outcome.latency["op"].quantile_us(0.99).unwrap()).abs() < 1e-3);
        let threads = r.point.get("threads").map(|v| v.to_string()).unwrap_or_default();
        assert_eq!(cell(row, "point.threads"), &threads);
    }
    let read: serde_json::Value = serde_json::from_str(&json(&results)).unwrap();
    let series = read["series"].as_array().unwrap();
    assert_eq!(series.len(), groups(&results).len());
    assert_eq!(series[2]["samples"].as_array().unwrap().len(), 2);
}

#[test]
fn a_page_stays_small_however_large_the_result() {
    let mut results = sample::results(sample::plan(), "full", 30);
    let more: Vec<_> = results
        .records
        .iter()
        .flat_map(|r| (0..20).map(|n| (n, r.clone())))
        .map(|(n, mut r)| {
            r.step = format!("another-{n}");
            r.command = "x".repeat(4000);
            r
        })
        .collect();
    results.records.extend(more);
    results.outputs[0].text = "line\n".repeat(100_000);
    assert!(results.records.len() > 30_000);
    let page = html(&results);
    assert!(page.len() < PAGE_BYTES_MAX, "{}", page.len());
    assert!(page.contains("href=\"summary.csv\"") && page.contains("more are in the CSV"));
}

#[test]
fn a_report_is_made_from_the_records_of_a_run() {
    let dir = std::env::temp_dir().join(format!("stria-report-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let results = sample(2);
    sample::save(&results, &dir.join(RECORDS));
    let read = Results::read(&records_of(&dir)).unwrap();
    // Not their last digits: JSON is read to within one of them.
    assert_eq!(read.records.len(), results.records.len());
    let page = write(&read, &dir.join("out")).unwrap();
    assert_eq!(std::fs::read_to_string(page).unwrap(), html(&read));
    assert_eq!(std::fs::read_to_string(dir.join("out").join("summary.csv")).unwrap(), csv(&read));
    std::fs::remove_dir_all(&dir).unwrap();
}
