//! Joins results of one plan: runs under several labels (0, 1 and 2 routers), or a run that was continued.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use crate::record::{End, Results};

/// One result of several, in their order. Times of a later one come after those of the earlier ones, repeats too.
pub fn join(all: Vec<Results>) -> Result<Results> {
    let mut all = all.into_iter();
    let Some(mut whole) = all.next() else { anyhow::bail!("there is no result") };
    for mut next in all {
        ensure!(
            (&next.header.plan, &next.header.scale) == (&whole.header.plan, &whole.header.scale),
            "the results are of two plans or scales: {} at {}, and {} at {}",
            whole.header.plan.name,
            whole.header.scale,
            next.header.plan.name,
            next.header.scale
        );
        let seconds = length(&whole);
        let repeats = repeats(&whole);
        for record in &mut next.records {
            let key = (record.step.clone(), serde_json::to_string(&record.point)?, record.phase.clone());
            record.repeat += repeats.get(&key).copied().unwrap_or(0);
            if let Some(timeline) = &mut record.outcome.timeline {
                timeline.begin_seconds += seconds;
            }
        }
        next.samples.iter_mut().flat_map(|some| &mut some.rows).for_each(|(at, _)| *at += seconds);
        whole.header.command = format!("{}\n{}", whole.header.command, next.header.command);
        for (name, theirs) in next.header.values {
            let ours = whole.header.values.entry(name).or_insert(theirs.clone());
            add_value(ours, theirs);
        }
        for pair in next.header.system {
            if !whole.header.system.contains(&pair) {
                whole.header.system.push(pair);
            }
        }
        for host in next.header.hosts {
            if !whole.header.hosts.contains(&host) {
                whole.header.hosts.push(host);
            }
        }
        // One machine has one set of limits: that of the first run that measured them.
        whole.limits = whole.limits.or(next.limits);
        whole.records.extend(next.records);
        whole.skipped.extend(next.skipped);
        whole.outputs.extend(next.outputs);
        whole.samples.extend(next.samples);
        whole.warnings.extend(next.warnings);
        whole.end = match (whole.end, next.end) {
            (Some(a), Some(b)) => Some(End {
                complete: a.complete && b.complete,
                why: [a.why, b.why].into_iter().filter(|why| !why.is_empty()).collect::<Vec<_>>().join("; "),
                seconds: a.seconds + b.seconds,
            }),
            _ => None,
        };
    }
    Ok(whole)
}

/// A label that differs between the runs has all its values.
fn add_value(ours: &mut serde_json::Value, theirs: serde_json::Value) {
    match ours {
        ours if *ours == theirs => {}
        serde_json::Value::Array(list) if list.contains(&theirs) => {}
        serde_json::Value::Array(list) if !theirs.is_array() => list.push(theirs),
        ours => *ours = vec![ours.clone(), theirs].into(),
    }
}

/// Seconds that a result covers, also if it ended without a word.
fn length(results: &Results) -> f64 {
    let end = |record: &crate::record::Record| {
        Some(record.outcome.timeline.as_ref()?.begin_seconds + record.outcome.last_done)
    };
    let records = results.records.iter().filter_map(end);
    let samples = results.samples.iter().flat_map(|some| &some.rows).map(|(at, _)| *at);
    let said = results.end.iter().map(|end| end.seconds);
    records.chain(samples).chain(said).filter(|seconds| seconds.is_finite()).fold(0.0, f64::max)
}

/// How many repeats each measurement has.
fn repeats(results: &Results) -> BTreeMap<(String, String, String), u32> {
    let mut all = BTreeMap::new();
    for record in &results.records {
        let point = serde_json::to_string(&record.point).unwrap_or_default();
        let most = all.entry((record.step.clone(), point, record.phase.clone())).or_insert(0);
        *most = (record.repeat + 1).max(*most);
    }
    all
}
