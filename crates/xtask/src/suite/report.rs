//! The report of a result in a browser, as a user opens it: headless Chromium, wide and narrow.
//!
//! The page has no script, and forbids any. What must be measured in it (are all pictures there, does a label cover another, does the page scroll
//! sideways) is asked by a script that the test adds to a copy.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use bench::plan::Plan;
use bench::record::{Header, Latency, Line, Outcome, Record, Recorder, Skipped, Timeline};
use testkit::Wiring;

use super::sys::*;
use super::{Bench, Needs, Test};

pub const TESTS: &[(Needs, Test)] =
    &[(Needs::Only(Wiring::Local), ("report::opens_in_a_browser", opens_in_a_browser))];

/// A plan with a figure and a table of each kind; one figure has no data.
const PLAN: &str = include_str!("../../../bench/src/report/sample.toml");
/// The page's policy, and that of its copy, which allows the test's script.
const POLICY: (&str, &str) = ("default-src 'none';", "default-src 'none'; script-src 'unsafe-inline';");
/// Broken on purpose: a request to somewhere, and a console error.
const BROKEN: &str = "<img src=\"http://elsewhere.invalid/x.png\"><script>console.error('broken')</script>";
/// Labels may touch by so many pixels: boxes of text have room above and below the letters.
const TOUCH: u32 = 5;

fn opens_in_a_browser(b: &mut Bench) -> Result<()> {
    let dir = b.cluster.dir.join("report");
    fs::create_dir(&dir)?;
    // 1. records as a run leaves them, and the report of them
    let plan = write_records(&dir.join("records.jsonl"))?;
    let (code, out) = b.cluster.stria(&["bench", "report", &dir.display().to_string()])?;
    ensure_eq(code, 0, &format!("bench report: {out}"))?;
    let page = fs::read_to_string(dir.join("report.html"))?;
    // 2. checks in a browser
    for width in [1280, 420] {
        let seen = open(&dir, &page, width)?;
        ensure!(seen.said.is_empty(), "at {width} pixels the console says: {}", seen.said.join("; "));
        ensure_eq(seen.number("width")?, width as usize, "the window's width")?;
        ensure_eq(seen.number("figures")?, plan.figures.len() - 1, "figures with data")?;
        ensure_eq(seen.number("pictures")?, seen.number("drawn")?, "pictures of a size")?;
        ensure!(seen.number("pictures")? >= plan.figures.len() - 1, "a picture for each figure");
        ensure!(seen.number("tables")? >= plan.tables.len(), "tables: {}", seen.number("tables")?);
        ensure_eq(seen.number("captions")?, seen.number("tables")?, "tables that say what they are")?;
        ensure_eq(seen.text("overlaps")?, "", "labels that cover one another")?;
        ensure_eq(seen.number("sideways")?, 0, "pixels by which the page is too wide")?;
    }
    // 3. that a browser would have said it
    ensure!(page.contains(POLICY.0), "the page does not forbid scripts and requests");
    let broken = open(&dir, &page.replace("</main>", &format!("{BROKEN}</main>")), 1280)?;
    for word in ["broken", "elsewhere.invalid"] {
        ensure!(broken.said.iter().any(|line| line.contains(word)), "{word} went unseen: {:?}", broken.said);
    }
    Ok(())
}

/// Result of a page in a browser.
struct Seen {
    /// Lines of its console.
    said: Vec<String>,
    dom: String,
}

impl Seen {
    /// An attribute that the added script set.
    fn text(&self, name: &str) -> Result<&str> {
        let begin =
            self.dom.find(&format!("data-{name}=\"")).with_context(|| format!("no {name} in the page"))?;
        self.dom[begin..].split('"').nth(1).context("an attribute")
    }

    fn number(&self, name: &str) -> Result<usize> {
        self.text(name)?.parse().with_context(|| name.to_owned())
    }
}

fn open(dir: &Path, page: &str, width: u32) -> Result<Seen> {
    // In a frame, because no window is narrower than 500 pixels; the frame tells the page around it what it found.
    let frame = dir.join("frame.html");
    fs::write(&frame, frame_of(width))?;
    let path = dir.join("opened.html");
    let page = page.replace(POLICY.0, POLICY.1);
    fs::write(&path, page.replace("</body>", &format!("<script>{}</script></body>", script())))?;
    let out = Command::new("chromium")
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args([
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ])
        // No name resolves: an external request fails, and the console shows it.
        .args([
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--enable-logging=stderr",
            "--timeout=30000",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .args(["--window-size=1400,900", "--virtual-time-budget=10000"])
        .arg(format!("file://{}", frame.display()))
        .stdin(Stdio::null())
        .output()
        .context("chromium (installed?)")?;
    ensure!(out.status.success(), "chromium: {}: {}", out.status, String::from_utf8_lossy(&out.stderr));
    let said = String::from_utf8_lossy(&out.stderr);
    let said = said.lines().filter(|line| line.contains(":CONSOLE")).map(str::to_owned).collect();
    Ok(Seen { said, dom: String::from_utf8_lossy(&out.stdout).into_owned() })
}

/// A page with the report in a frame; what the frame says becomes attributes of its body.
fn frame_of(width: u32) -> String {
    format!(
        "<!DOCTYPE html><title>frame</title><body>\
         <script>onmessage = e => Object.assign(document.body.dataset, e.data)</script>\
         <iframe src=\"opened.html\" width=\"{width}\" height=\"900\" style=\"border:0\"></iframe></body>"
    )
}

/// Counts and measures, and tells it to the page around.
fn script() -> String {
    format!(
        "const all = (s, e = document) => [...e.querySelectorAll(s)], said = {{}};
         const box = e => e.getBoundingClientRect();
         said.width = innerWidth;
         said.figures = all('[data-figure]').length;
         said.pictures = all('svg').length;
         said.drawn = all('svg').filter(s => box(s).width > 200 && box(s).height > 60 && s.querySelector('title')).length;
         said.tables = all('table').length;
         said.captions = all('table > caption').filter(c => c.textContent).length;
         said.sideways = Math.max(0, document.documentElement.scrollWidth - document.documentElement.clientWidth);
         const over = [];
         for (const svg of all('svg')) {{
           const texts = all('text', svg).map(t => [box(t), t.textContent.trim()]);
           texts.forEach(([a, s], i) => texts.slice(i + 1).forEach(([b, t]) => {{
             const x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
             const y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
             if (x > {TOUCH} && y > {TOUCH}) over.push(s + ' / ' + t);
           }}));
         }}
         said.overlaps = over.join(', ');
         parent.postMessage(said, '*');"
    )
}

/// A run of the plan with three repeats, as `stria bench run` writes it.
fn write_records(path: &Path) -> Result<Plan> {
    let plan: Plan = toml::from_str(PLAN)?;
    let mut recorder = Recorder::create(path)?;
    let words = |s: &str| s.to_owned();
    let header = Header {
        format: bench::record::FORMAT,
        version: words("test"),
        plan: plan.clone(),
        set: Vec::new(),
        scale: words("small"),
        values: BTreeMap::new(),
        dir: words("/mnt"),
        file_system: words("fuse.stria on fs"),
        hosts: Vec::new(),
        command: words("stria bench run"),
        begun: words("2026-01-01T00:00:00Z"),
        system: vec![(words("kernel"), words("6"))],
    };
    recorder.write(&Line::Header(Box::new(header)))?;
    let mut begin_seconds = 0.0;
    for step in &plan.steps {
        let swept = step.sweep.keys().next().map(String::as_str).unwrap_or_default();
        for (n, threads) in [1u64, 2, 4, 8].into_iter().enumerate() {
            for phase in &step.phases {
                let parts = phase.together.iter().map(|part| format!("{}.{}", phase.name, part.name));
                for name in parts.chain([phase.name.clone()]) {
                    for repeat in 0..3 {
                        let value =
                            serde_json::json!(if swept == "transfer" { threads << 16 } else { threads });
                        let amount = 70_000_000 * threads * (9 + u64::from(repeat)) + (n as u64) * 1_000_000;
                        let outcome = Outcome {
                            seconds: 1.0,
                            first_done: 0.9,
                            last_done: 1.0,
                            ops: amount / 100_000,
                            bytes: amount,
                            latency: [(words("op"), Latency(vec![(90_000, 10), (400_000, 3)]))].into(),
                            timeline: Some(Timeline {
                                width_seconds: 0.25,
                                ops: vec![amount / 400_000; 4],
                                bytes: vec![amount / 4; 4],
                                begin_seconds,
                            }),
                            ..Outcome::default()
                        };
                        recorder.write(&Line::Record(Box::new(Record {
                            step: step.id.clone(),
                            point: [(words(swept), value)].into(),
                            phase: name.clone(),
                            repeat,
                            workers: threads as u32,
                            processes: 1,
                            engine: phase.engine.clone().unwrap_or_else(|| words("sync")),
                            command: words("{}"),
                            cache: bench::CacheState::Dropped,
                            usage: None,
                            outcome,
                        })))?;
                        begin_seconds += 1.5;
                    }
                }
            }
        }
    }
    recorder.write(&Line::Skipped(Skipped {
        step: words("routers"),
        why: words("no routers"),
        failed: false,
    }))?;
    Ok(plan)
}
