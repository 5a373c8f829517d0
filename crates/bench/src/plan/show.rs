//! Prints a plan before it runs: its phases at one scale, the time and the space that they need.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;
use types::size::human;

use super::environment::Environment;
use super::estimate::{self, Estimate};
use super::expand::{self, PlannedPart, PlannedPhase, PlannedPoint, PlannedStep, Program, expand};
use super::finding::Findings;
use super::schema::{Need, Plan, Quantities, Step};
use crate::job::{Data, DataOp, Engine, Files, Flush, Job, Names, Order, Work};
use crate::needs;
use crate::tools::Found;
use crate::wrap::{paragraphs, wrap};

/// The whole text.
pub fn text(plan: &Plan, scale_name: &str, environment: &Environment) -> Result<String, Findings> {
    let steps = expand(plan, scale_name, environment)?;
    let mut out = String::new();
    head(&mut out, plan, scale_name, environment);
    let mut all = Estimate::default();
    let mut space = 0;
    let mut found = Found::default();
    for step in &plan.steps {
        let planned = steps.iter().find(|planned| planned.id == step.id);
        line(&mut out, "");
        line(&mut out, format!("{}: {}", step.id, step.title));
        match planned {
            None => line(&mut out, format!("  not at {scale_name}: only at {}", step.scales.join(", "))),
            Some(planned) => {
                if of_step(&mut out, step, planned, environment, &mut found) {
                    all += estimate::of_step(planned);
                    space = space.max(estimate::space_bytes(planned));
                }
            }
        }
    }
    let programs: Vec<&str> = found.all().map(|(_, version)| version).collect();
    if !programs.is_empty() {
        line(&mut out, "");
        line(&mut out, format!("programs here: {}", programs.join(", ")));
    }
    if let Some(scale) = plan.scales.get(scale_name) {
        let [least, most] = scale.repeats.map(|n| f64::from(n) * all.seconds);
        let time = match scale.repeats[0] == scale.repeats[1] {
            true => duration(least),
            false => format!("{} to {}", duration(least), duration(most)),
        };
        line(&mut out, "");
        line(
            &mut out,
            format!(
                "in all about {time} on a medium of 500 MB/s, 20,000 random operations and 10,000 names a second; \
                 nothing new is begun after {}; needs {} of room",
                duration(scale.budget_seconds as f64),
                human(space)
            ),
        );
    }
    Ok(out)
}

/// The same for programs. Of a step that is not run at this scale there is its name only.
pub fn json(plan: &Plan, scale_name: &str, environment: &Environment) -> Result<Value, Findings> {
    let steps = expand(plan, scale_name, environment)?;
    let mut found = Found::default();
    let (mut all, mut space) = (Estimate::default(), 0);
    let mut shown = Vec::new();
    for step in &plan.steps {
        let planned = steps.iter().find(|planned| planned.id == step.id);
        let skipped = planned.and_then(|_| missing(step, environment, &mut found));
        let each = planned.map(estimate::of_step).unwrap_or_default();
        let bytes_kept = planned.map_or(0, estimate::space_bytes);
        if planned.is_some() && skipped.is_none() {
            all += each;
            space = space.max(bytes_kept);
        }
        let first = planned.and_then(|planned| planned.points.first());
        let phases = first.map_or(&[][..], |point| &point.phases).iter().map(|phase| {
            let on_first = phase.parts.iter().filter(|part| part.file_system == 0);
            let parts = on_first.map(|part| format!("{}, {}", kind(&part.job), amount(&part.job)));
            serde_json::json!({
                "name": phase.name,
                "measured": phase.measured,
                "cold": phase.cold,
                "program": phase.program.title(),
                "parts": parts.collect::<Vec<_>>(),
            })
        });
        shown.push(serde_json::json!({
            "id": step.id,
            "title": step.title,
            "at_this_scale": planned.is_some(),
            "skipped": skipped,
            "points": planned.map_or(0, |planned| planned.points.len()),
            "phases": phases.collect::<Vec<_>>(),
            "bytes_moved": each.bytes,
            "names": each.names,
            "seconds": each.seconds,
            "bytes_kept": bytes_kept,
        }));
    }
    let scale = plan.scales.get(scale_name);
    Ok(serde_json::json!({
        "name": plan.name,
        "title": plan.title,
        "study": plan.study,
        "about": plan.about.trim(),
        "scale": scale_name,
        "scales": plan.scales.keys().collect::<Vec<_>>(),
        "repeats": scale.map(|scale| scale.repeats),
        "budget_seconds": scale.map(|scale| scale.budget_seconds),
        "values": expand::variables(plan, scale_name, environment).map(|vars| vars.values().clone()),
        "seconds": all.seconds,
        "bytes_kept": space,
        "steps": shown,
    }))
}

fn line(out: &mut String, text: impl AsRef<str>) {
    // Under the first words of a phase, where it is one.
    let indent = if text.as_ref().starts_with("  ") { 19 } else { 0 };
    writeln!(out, "{}", wrap(text.as_ref(), indent)).expect("writing to a string cannot fail");
}

fn head(out: &mut String, plan: &Plan, scale_name: &str, environment: &Environment) {
    line(out, format!("{}: {}", plan.name, plan.title));
    if !plan.study.is_empty() {
        line(out, format!("study: {}", plan.study));
    }
    writeln!(out, "\n{}\n", paragraphs(&plan.about)).expect("writing to a string cannot fail");
    let Some(scale) = plan.scales.get(scale_name) else { return };
    let others: Vec<&str> =
        plan.scales.keys().map(String::as_str).filter(|name| *name != scale_name).collect();
    let [least, most] = scale.repeats;
    let repeats = match least == most {
        true => format!("{least} repeats"),
        false => format!("{least} to {most} repeats"),
    };
    let narrow = match scale.narrow > 0.0 && least != most {
        true => format!(", until the 95 % interval is narrower than {} %", scale.narrow * 100.0),
        false => String::new(),
    };
    line(out, format!("scale {scale_name} (also: {}): {repeats}{narrow}", others.join(", ")));
    let Some(vars) = expand::variables(plan, scale_name, environment) else { return };
    let evaluated = vars.values();
    for (name, said) in scale.values.keys().filter_map(|name| Some((name, evaluated.get(name)?))) {
        let written = match scale.values.get(name) {
            Some(Quantities::One(super::schema::Quantity::Text(text))) if text.contains('$') => {
                format!("  ({text})")
            }
            _ => String::new(),
        };
        line(out, format!("  {name} = {}{written}", word(said)));
    }
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(word).collect::<Vec<_>>().join(", "),
        Value::Number(number) if number.as_u64().is_some_and(|n| n >= 1 << 20 && n % 4096 == 0) => {
            types::Size(number.as_u64().unwrap_or(0)).to_string()
        }
        other => other.to_string(),
    }
}

/// Why the step cannot be run on this machine. Whether a file system takes direct I/O is known only where one is measured.
fn missing(step: &Step, environment: &Environment, found: &mut Found) -> Option<String> {
    let of_machine = step.needs.iter().filter(|need| **need != Need::Direct);
    let reasons: Vec<String> =
        of_machine.filter_map(|need| needs::missing(*need, Path::new("/"), environment, found)).collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// Is it counted in the sums?
fn of_step(
    out: &mut String,
    step: &Step,
    planned: &PlannedStep,
    environment: &Environment,
    found: &mut Found,
) -> bool {
    let missing = missing(step, environment, found);
    if let Some(why) = &missing {
        line(out, format!("  SKIPPED here: {why}"));
    } else if !step.needs.is_empty() {
        let needs: Vec<String> =
            step.needs.iter().filter_map(|need| Some(word(&serde_json::to_value(need).ok()?))).collect();
        line(out, format!("  needs {}", needs.join(", ")));
    }
    for command in &planned.commands {
        line(out, format!("  output of: {}", command.join(" ")));
    }
    let (Some(first), Some(last)) = (planned.points.first(), planned.points.last()) else {
        return missing.is_none();
    };
    if !step.sweep.is_empty() {
        let of = |name: &String| {
            let mut values: Vec<String> = Vec::new();
            for value in planned.points.iter().filter_map(|point| point.values.get(name)).map(word) {
                if !values.contains(&value) {
                    values.push(value);
                }
            }
            format!("{name} {}", values.join(", "))
        };
        let swept: Vec<String> = step.sweep.keys().map(of).collect();
        line(out, format!("  {} points: {}", planned.points.len(), swept.join("; ")));
    }
    for phase in &first.phases {
        of_phase(out, phase, last);
    }
    let each = estimate::of_step(planned);
    let names = if each.names > 0 { format!(", {} names", each.names) } else { String::new() };
    line(
        out,
        format!(
            "  a repeat moves at most {}{names}, takes about {}, keeps at most {}",
            human(each.bytes),
            duration(each.seconds),
            human(estimate::space_bytes(planned))
        ),
    );
    missing.is_none()
}

/// The phase at the first point, and the differences at the last.
fn of_phase(out: &mut String, phase: &PlannedPhase, last: &PlannedPoint) {
    let mut said = Vec::new();
    let twin = last.phases.iter().find(|other| other.name == phase.name).unwrap_or(phase);
    // The same is done on each file system.
    let first = |part: &&PlannedPart| part.file_system == 0;
    for (part, other) in phase.parts.iter().filter(first).zip(twin.parts.iter().filter(first)) {
        let (begin, end) = (amount(&part.job), amount(&other.job));
        let amount = if begin == end { begin } else { format!("{begin} … {end}") };
        let name = if part.name.is_empty() { String::new() } else { format!("{}: ", part.name) };
        said.push(format!("{name}{}, {amount}", kind(&part.job)));
    }
    let mut also = Vec::new();
    if !phase.measured {
        also.push("unmeasured".to_string());
    }
    if phase.cold {
        also.push("cold".to_string());
    }
    if phase.program != Program::Stria {
        also.push(format!("by {}", phase.program.title()));
    }
    if let Some(against) = phase.against {
        also.push(format!("against {}", against.title()));
    }
    if let Some(limit) = phase.parts.first().map(|part| part.job.limit) {
        also.extend(limit.seconds.map(|seconds| format!("at most {}", duration(seconds))));
        also.extend(limit.pace.map(|pace| format!("{pace} a second each")));
    }
    let also = if also.is_empty() { String::new() } else { format!(" ({})", also.join(", ")) };
    line(out, format!("  {:<16} {}{also}", phase.name, said.join("; ")));
}

fn kind(job: &Job) -> String {
    match &job.work {
        Work::Data(data) => kind_of_data(data),
        Work::Names(names) => kind_of_names(names),
    }
}

fn kind_of_data(data: &Data) -> String {
    let mut said = match data.op {
        DataOp::Write if data.create => "write".to_string(),
        DataOp::Write => "overwrite".to_string(),
        DataOp::Read => "read".to_string(),
        DataOp::Mixed { read_percent } => format!("{read_percent} % reads"),
    };
    let files = match &data.files {
        Files::Own { .. } => "own files".to_string(),
        Files::Shared { .. } => "one file".to_string(),
        Files::Given { paths } => format!("{} given files or devices", paths.len()),
    };
    let order = if data.order == Order::Random { "random " } else { "" };
    let _ = write!(said, " {files}, {order}{}", types::Size(data.transfer_bytes));
    match data.engine {
        Engine::Sync => {}
        Engine::Uring { depth } => said.push_str(&format!(" x{depth} io_uring")),
        Engine::Null => said.push_str(" null"),
    }
    if data.direct {
        said.push_str(" direct");
    }
    if data.flush == Flush::Each {
        said.push_str(", flush after each");
    }
    said
}

fn kind_of_names(names: &Names) -> String {
    let op = serde_json::to_value(names.op).ok().as_ref().map(word).unwrap_or_default();
    let tree = if names.shared { " in one shared tree" } else { "" };
    let order = if names.order == Order::Random { ", random" } else { "" };
    let epochs = if names.epochs > 1 { format!(", {} times", names.epochs) } else { String::new() };
    format!("{op}{tree}{order}{epochs}")
}

fn amount(job: &Job) -> String {
    let workers = job.workers;
    let each = if workers == 1 { "1 worker".to_string() } else { format!("{workers} workers") };
    match &job.work {
        Work::Data(data) => {
            let bytes = data.block_bytes.saturating_mul(data.segments);
            let ops = data.ops_max.map_or(String::new(), |ops| format!(", {ops} each"));
            format!("{each} x {}{ops}", human(bytes))
        }
        Work::Names(names) => {
            let dirs = names.item_dirs();
            let bytes = match names.write_bytes {
                0 => String::new(),
                bytes => format!(" of {}", types::Size(bytes)),
            };
            let dirs = if dirs == 1 { String::new() } else { format!("{dirs} directories x ") };
            format!("{each} x {dirs}{}{bytes}", names.items_per_dir)
        }
    }
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.0} days", s / 86400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_each_step_and_phase_and_what_is_skipped() {
        let plan = super::super::load("lnet-routers").unwrap();
        let environment = Environment { ram: 24 << 30, cpus: 2, ..Environment::default() };
        let said = text(&plan, "small", &environment).unwrap();
        for step in &plan.steps {
            assert!(said.contains(&format!("\n{}: {}\n", step.id, step.title)), "{said}");
        }
        let parts = "both             write: write own files, 1M, 1 worker x 384.0M; read: read own files, 1M, 1 worker";
        for wanted in [
            "scale small (also: full, min): 4 to 5 repeats",
            "6 points: block 96M, 48M; fs 1, 2, 3; threads 1",
            parts,
            "in all about ",
        ] {
            assert!(said.contains(wanted), "no '{wanted}' in\n{said}");
        }
    }
}
