//! The page, top to bottom.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::figure::Shown;
use super::grid::{Grid, columns};
use super::group::{Group, OURS, groups, is_as_published, program_of, word};
use super::number::{duration, escape, grouped, stated, tick};
use super::tables;
use super::{CSV, JSON, PAGE_BYTES_MAX, csv, figure, first, incomplete, remarks, series};
use crate::plan::expand::is_at;
use crate::plan::schema::{Step, TableKind};
use crate::record::Results;

const STYLE: &str = include_str!("style.css");
/// bench-RP1, enforced by the browser: no script and no request, also if a name contains markup.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// Where published values stand beside rates of other amounts.
const PUBLISHED_NOTE: &str = "<p class=\"soft\">Published values are of other amounts than this scale has, so no percentage of them is shown.</p>\n";
/// Warnings of samplers, and lines of uneven ones, in the page.
const WARNINGS_MAX: usize = 8;
const UNEVEN_MAX: usize = 200;

/// Bytes of the page for the parts that grow with the number of records.
#[derive(Clone, Copy)]
struct Room {
    /// Of CSV and of JSON each, encoded.
    download: usize,
    commands: usize,
    outputs: usize,
    plan: usize,
    skipped_lines: usize,
}

const AMPLE: Room =
    Room { download: 220_000, commands: 120_000, outputs: 100_000, plan: 60_000, skipped_lines: 300 };
const TIGHT: Room = Room { download: 0, commands: 20_000, outputs: 20_000, plan: 20_000, skipped_lines: 50 };

/// The whole page.
pub fn html(results: &Results) -> String {
    let page = page(results, AMPLE);
    if page.len() < PAGE_BYTES_MAX { page } else { self::page(results, TIGHT) }
}

macro_rules! put {
    ($out:expr, $($text:tt)*) => { write!($out, $($text)*).expect("writing to a string cannot fail") };
}

fn page(results: &Results, room: Room) -> String {
    let plan = &results.header.plan;
    let groups = groups(results);
    let mut out = String::new();
    let title = escape(&format!("{} ({})", plan.title, results.header.scale));
    put!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\
         <meta name=\"color-scheme\" content=\"light dark\"><meta name=\"generator\" content=\"stria {}\">\
         <link rel=\"icon\" href=\"data:,\"><title>{title}</title>\n<style>\n{STYLE}</style></head>\n<body>\n<header>",
        escape(&results.header.version)
    );
    head(&mut out, results, &groups);
    out.push_str("</header>\n<main>\n");
    figures(&mut out, results, &groups);
    let mut grids = tables::of_plan(results, &groups);
    grids.extend(tables::ratios(&groups));
    if !grids.is_empty() {
        out.push_str("<h2 id=\"tables\">Tables</h2>\n");
        if has_published(results) && !is_as_published(results) {
            out.push_str(PUBLISHED_NOTE);
        }
        grids.iter().for_each(|g| out.push_str(&g.html()));
    }
    uneven(&mut out, &groups);
    outputs(&mut out, results, room);
    if !groups.is_empty() {
        out.push_str("<h2 id=\"series\">Everything that was measured</h2>\n");
        out.push_str(&series::grid(&groups).html());
    }
    skipped(&mut out, results, room);
    how(&mut out, results, &groups, room);
    downloads(&mut out, results, &groups, room);
    out.push_str("</main>\n</body></html>\n");
    out
}

fn head(out: &mut String, results: &Results, groups: &[Group]) {
    let header = &results.header;
    put!(out, "<h1>{}</h1>", escape(&header.plan.title));
    if !header.plan.study.is_empty() {
        put!(out, "<p class=\"study\">Published study: {}</p>", escape(&header.plan.study));
    }
    if let Some(why) = incomplete(results) {
        put!(
            out,
            "<p class=\"warn\" role=\"alert\">Not all of the plan was measured: {}.</p>",
            escape(why.trim_end_matches('.'))
        );
    }
    let failed = results.skipped.iter().filter(|s| s.failed).count();
    if failed > 0 {
        let steps = if failed == 1 { "step" } else { "steps" };
        put!(
            out,
            "<p class=\"warn\" role=\"alert\">{failed} {steps} failed: see <a href=\"#skipped\">what was not measured</a>.</p>"
        );
    }
    for warning in results.warnings.iter().take(WARNINGS_MAX) {
        put!(out, "<p class=\"warn\" role=\"alert\">{}</p>", escape(&warning.text));
    }
    first::html(out, results, &first::judged(results, groups));
    remarks(out, results, groups);
    let took = results.end.as_ref().map(|e| duration(e.seconds));
    let steps: BTreeSet<&str> = groups.iter().map(|g| g.step).collect();
    let facts = [
        ("Plan and scale", format!("{}, {}", header.plan.name, header.scale)),
        ("Workers on", if header.hosts.is_empty() { "this machine".into() } else { header.hosts.join(", ") }),
        ("Begun", header.begun.clone()),
        ("Took", took.unwrap_or_else(|| "–".into())),
        ("Program", programs(results)),
        (
            "Measured",
            format!(
                "{} measurements of {} series in {} of {} steps; {} skipped, {failed} failed",
                grouped(results.records.len() as f64),
                groups.len(),
                steps.len(),
                header.plan.steps.iter().filter(|s| is_at(s, &header.scale)).count(),
                results.skipped.len() - failed
            ),
        ),
        ("Caches and content", honesty(results)),
    ];
    out.push_str("<dl class=\"facts\">");
    for (name, text) in facts {
        put!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(&text));
    }
    out.push_str("</dl>\n<nav aria-label=\"Parts of this page\">");
    let plan = &header.plan;
    let parts = [
        ("figures", "Figures", !plan.figures.is_empty()),
        ("tables", "Tables", !plan.tables.is_empty()),
        ("series", "All series", !groups.is_empty()),
        ("skipped", "Skipped", !results.skipped.is_empty()),
        ("how", "How it was measured", true),
        ("downloads", "Numbers as files", true),
    ];
    for (id, name, _) in parts.iter().filter(|(_, _, is_there)| *is_there) {
        put!(out, "<a href=\"#{id}\">{name}</a>");
    }
    out.push_str("</nav>");
}

/// Ours, and those of others that did a part of it, with their versions.
fn programs(results: &Results) -> String {
    let engines = results.records.iter().map(|r| r.engine.as_str());
    let others: BTreeSet<&str> = engines.filter(|e| program_of(e) != OURS).collect();
    let ours = format!("stria {}", results.header.version);
    others.into_iter().fold(ours, |all, one| format!("{all}, {one}"))
}

/// State of caches and verification, in one line.
fn honesty(results: &Results) -> String {
    use crate::cache::CacheState::{Advised, Dropped};
    let has = |cache| results.records.iter().any(|r| r.cache == cache);
    let caches = match (has(Dropped), has(Advised)) {
        (_, true) => {
            "for cold reads pages were only asked to go (no right to drop caches): they may be too good"
        }
        (true, false) => {
            "this machine's caches were dropped before cold reads; servers elsewhere keep theirs"
        }
        (false, false) => "no cold reads",
    };
    let sum = |of: fn(&crate::record::Record) -> u64| results.records.iter().map(of).sum::<u64>();
    let pages = sum(|r| r.outcome.checked.pages);
    match pages {
        0 => format!("{caches}; no content was checked"),
        n => format!("{caches}; {} pages of 4 KiB were read and found right", grouped(n as f64)),
    }
}

/// Dips and disagreements, in sentences.
fn remarks(out: &mut String, results: &Results, groups: &[Group]) {
    let all = remarks::remarks(results, groups);
    if all.is_empty() {
        return;
    }
    out.push_str("<h3 id=\"remarks\">What stands out</h3><ul class=\"plain remarks\">\n");
    for remark in all {
        put!(out, "<li>{}</li>\n", escape(&remark));
    }
    out.push_str("</ul>\n");
}

fn figures(out: &mut String, results: &Results, groups: &[Group]) {
    let figures = &results.header.plan.figures;
    if figures.is_empty() {
        return;
    }
    put!(
        out,
        "<h2 id=\"figures\">Figures</h2>\n<p class=\"soft\">Medians of the repeats with their 95 % intervals (with fewer than six \
         repeats: their range). What was published is hollow and dashed. Point at a mark to read it.</p>\n<div class=\"figures\">\n"
    );
    let mut all: Vec<Shown> = figures.iter().map(|figure| Shown::new(figure, groups)).collect();
    figure::align(&mut all);
    for shown in &all {
        let figure = shown.figure;
        let id = escape(&figure.id);
        let about =
            if figure.about.is_empty() { String::new() } else { format!("<p>{}</p>", escape(&figure.about)) };
        let title = escape(&figure.title);
        if !shown.has_data(results) {
            let why = match (&figure.sampled, results.samples.is_empty()) {
                (Some(_), true) => "no sampler printed numbers in this run: give one with --sampler.".into(),
                _ => missing(results, figure.series.iter().map(|s| s.step.as_str())),
            };
            put!(
                out,
                "<figure class=\"wide\" id=\"figure-{id}\"><figcaption><h3>{title}</h3>{about}<p>Nothing was measured for it: {}</p></figcaption></figure>\n",
                escape(&why)
            );
            continue;
        }
        let pictures = shown.pictures(results);
        let (wide, one) = match (pictures.len(), pictures.iter().any(|p| p.is_wide)) {
            (1, false) => ("", " one"),
            (1, true) => (" class=\"wide\"", " one"),
            _ => (" class=\"wide\"", ""),
        };
        put!(
            out,
            "<figure{wide} id=\"figure-{id}\" data-figure=\"{id}\"><figcaption><h3>{title}</h3>{about}</figcaption><div class=\"panels{one}\">"
        );
        for picture in pictures {
            let caption = if picture.caption.is_empty() {
                String::new()
            } else {
                format!("<h4>{}</h4>", escape(picture.caption))
            };
            put!(out, "<div>{caption}{}</div>", picture.svg);
        }
        out.push_str("</div>");
        published(out, shown);
        out.push_str("</figure>\n");
    }
    out.push_str("</div>\n");
}

fn has_published(results: &Results) -> bool {
    results.header.plan.tables.iter().flat_map(|table| &table.rows).any(|row| !row.published.is_empty())
}

fn published(out: &mut String, shown: &Shown) {
    if shown.published.is_empty() {
        return;
    }
    let unit = shown.unit().words();
    let known = shown.published.iter().map(|known| {
        let at = known.x.map(|x| format!(" at {}", tick(x))).unwrap_or_default();
        format!("{}{at}: {} ({})", known.name, stated(known.value), known.place)
    });
    let text = format!("Published, {unit}: {}.", known.collect::<Vec<_>>().join("; "));
    put!(out, "<p class=\"published\">{}</p>", escape(&text));
}

/// Why steps have no records.
fn missing<'a>(results: &Results, steps: impl Iterator<Item = &'a str>) -> String {
    let steps: BTreeSet<&str> = steps.collect();
    let whys: BTreeSet<&str> =
        results.skipped.iter().filter(|s| steps.contains(s.step.as_str())).map(|s| s.why.as_str()).collect();
    match whys.is_empty() {
        true => "its steps are not in this result.".into(),
        false => whys.into_iter().collect::<Vec<_>>().join("; "),
    }
}

/// One bad memory module of a cluster shows here.
fn uneven(out: &mut String, groups: &[Group]) {
    let lines = super::targets::uneven_lines(groups);
    if lines.is_empty() {
        return;
    }
    put!(
        out,
        "<h2 id=\"uneven\">Slower than its twins</h2>\n<p class=\"soft\">Hosts, file systems and devices below {:.0} % of the median of \
         the others, for each of their workers.</p>\n<ul class=\"plain\">",
        crate::uneven::UNEVEN * 100.0
    );
    for line in lines.iter().take(UNEVEN_MAX) {
        put!(out, "<li>{}</li>", escape(line));
    }
    if lines.len() > UNEVEN_MAX {
        put!(out, "<li>{} more are in summary.json.</li>", lines.len() - UNEVEN_MAX);
    }
    out.push_str("</ul>\n");
}

fn outputs(out: &mut String, results: &Results, room: Room) {
    if results.outputs.is_empty() {
        return;
    }
    let table = results.header.plan.tables.iter().find(|t| t.kind == TableKind::Outputs);
    put!(
        out,
        "<h2 id=\"outputs\">{}</h2>\n",
        escape(table.map_or("What commands said", |t| t.title.as_str()))
    );
    if let Some(table) = table {
        put!(out, "<p class=\"soft\">{}</p>", escape(&table.about));
    }
    let mut left = room.outputs;
    for output in &results.outputs {
        let text = cut(&output.text, left.min(room.outputs / 4));
        left = left.saturating_sub(text.len());
        put!(
            out,
            "<h3>{}</h3><pre tabindex=\"0\">{}</pre>\n",
            escape(&output.command),
            escape(text.trim_end())
        );
    }
}

fn skipped(out: &mut String, results: &Results, room: Room) {
    if results.skipped.is_empty() {
        return;
    }
    out.push_str("<h2 id=\"skipped\">Not measured</h2>\n");
    let rows = results
        .skipped
        .iter()
        .take(room.skipped_lines)
        .map(|s| vec![s.step.clone(), if s.failed { "failed" } else { "skipped" }.to_owned(), s.why.clone()])
        .collect();
    let more = results.skipped.len().saturating_sub(room.skipped_lines);
    let about = if more > 0 { format!("{more} more are in the records.") } else { String::new() };
    let title = "Steps that were not measured, and why".to_owned();
    out.push_str(
        &Grid { id: "table-skipped".into(), title, about, columns: columns(&["step", "~", "~why"]), rows }
            .html(),
    );
}

fn how(out: &mut String, results: &Results, groups: &[Group], room: Room) {
    let header = &results.header;
    put!(out, "<h2 id=\"how\">How it was measured</h2>\n<p>{}</p>\n", escape(&header.plan.about));
    put!(out, "<h3>Command</h3><pre tabindex=\"0\">{}</pre>\n", escape(&header.command));
    let mut pairs = |id: &str, title: &str, rows: Vec<Vec<String>>| {
        if !rows.is_empty() {
            let title = title.to_owned();
            let grid = Grid {
                id: id.into(),
                title,
                about: String::new(),
                columns: columns(&["name", "~value"]),
                rows,
            };
            out.push_str(&grid.html().replacen("class=\"table\"", "class=\"table long\"", 1));
        }
    };
    let values = header.values.iter().map(|(name, value)| vec![name.clone(), word(value)]).collect();
    pairs("table-values", &format!("Settings of the scale “{}”", header.scale), values);
    pairs("table-system", "System", header.system.iter().map(|(n, v)| vec![n.clone(), v.clone()]).collect());
    steps(out, &header.plan.steps);
    commands(out, groups, room);
    let plan = toml::to_string_pretty(&header.plan).or_else(|_| serde_json::to_string_pretty(&header.plan));
    put!(
        out,
        "<details><summary>The plan itself</summary><pre tabindex=\"0\">{}</pre></details>\n",
        escape(&cut(&plan.unwrap_or_default(), room.plan))
    );
}

fn steps(out: &mut String, steps: &[Step]) {
    let mut rows = Vec::new();
    for step in steps {
        let phases: Vec<&str> = step.phases.iter().map(|p| p.name.as_str()).collect();
        let swept: Vec<&str> = step.sweep.keys().map(String::as_str).collect();
        let about = if step.about.is_empty() {
            step.title.clone()
        } else {
            format!("{}: {}", step.title, step.about)
        };
        rows.push(vec![step.id.clone(), about, swept.join(", "), phases.join(", ")]);
    }
    let columns = columns(&["step", "~what", "~swept", "~phases"]);
    let grid = Grid { id: "table-steps".into(), title: "Steps".into(), about: String::new(), columns, rows };
    out.push_str(&grid.html().replacen("class=\"table\"", "class=\"table long\"", 1));
}

/// The commands and jobs of the first repeat of each series; those of later ones differ in seeds only.
fn commands(out: &mut String, groups: &[Group], room: Room) {
    let mut text = String::new();
    let mut shown = 0;
    for group in groups {
        let record = group.records[0];
        let next = format!("# {} ({})\n{}\n\n", group.title(), record.engine, record.command);
        if text.len() + next.len() > room.commands {
            break;
        }
        text.push_str(&next);
        shown += 1;
    }
    if shown < groups.len() {
        put!(text, "# {} more are in records.jsonl\n", groups.len() - shown);
    }
    put!(
        out,
        "<details><summary>Exact commands and jobs ({shown} of {})</summary><pre tabindex=\"0\">{}</pre></details>\n",
        groups.len(),
        escape(text.trim_end())
    );
}

fn downloads(out: &mut String, results: &Results, groups: &[Group], room: Room) {
    out.push_str("<h2 id=\"downloads\">Numbers as files</h2>\n<ul class=\"plain\">");
    let files = [
        (CSV, "text/csv", "every record, with all its numbers", csv::csv(results)),
        (
            JSON,
            "application/json",
            "a median with its interval for each series",
            series::json(results, groups),
        ),
    ];
    for (name, kind, what, text) in files {
        let data = encode(&text);
        match data.len() <= room.download {
            true => put!(
                out,
                "<li><a download=\"{name}\" href=\"data:{kind};charset=utf-8,{data}\">{name}</a>: {what} (in this page)</li>"
            ),
            false => put!(
                out,
                "<li><a href=\"{name}\">{name}</a>: {what} (a file beside this page: too large to be in it)</li>"
            ),
        }
    }
    out.push_str("<li>records.jsonl, a file beside this page: all of the above was made from it, and can be again: <code>stria bench report records.jsonl</code></li></ul>\n");
}

/// Encodes text for a quoted `data:` address.
fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 5 / 4);
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => out.push(byte as char),
            b'-' | b'_' | b'.' | b'~' | b',' | b':' | b';' | b'/' | b'(' | b')' | b'*' | b'!' | b'@'
            | b'=' | b'+' | b'[' | b']' | b'{' | b'}' => {
                out.push(byte as char);
            }
            other => put!(out, "%{other:02X}"),
        }
    }
    out
}

/// The beginning of a text, with a word if there was more.
fn cut(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let at = (0..=bytes).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}\n… {} bytes more are in records.jsonl", &text[..at], text.len() - at)
}
