//! Compares two results: which series changed, by how much, and whether the change is significant.

mod records;

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use crate::record::Results;
use crate::report;
use crate::report::number::number;
use crate::stats::{self, Change, Estimate};
use crate::wrap::wrap;

/// Which way a value is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Higher,
    Lower,
}

/// One measured quantity of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub title: String,
    pub unit: String,
    pub better: Better,
    pub samples: Vec<f64>,
}

/// The part of a result that is compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The measured plan and the file system.
    pub name: String,
    /// How: two results that differ in it are not of the same thing.
    pub settings: Vec<(String, String)>,
    pub series: Vec<Series>,
}

impl Measured {
    /// Reads the output of `stria bench run` or `quick` with `--out`: the directory, or its records file.
    pub fn read(path: &Path) -> Result<Measured> {
        Ok(Measured::of(&Results::read(&report::records_of(path))?))
    }
}

/// The verdict on a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    Better,
    Worse,
    /// The change is not significant, or too small to matter.
    Same,
    /// Too few samples: no difference could be significant.
    TooFew,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    pub title: String,
    pub unit: String,
    pub better: Better,
    pub before: Estimate,
    pub after: Estimate,
    /// `None` if a side has no samples, or some that are not positive.
    pub change: Option<Change>,
    pub finding: Finding,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub before: String,
    pub after: String,
    /// Settings that differ: name, before, after.
    pub differences: Vec<(String, String, String)>,
    /// Differences up to this part of a value do not matter, however sure they are.
    pub tolerance: f64,
    pub lines: Vec<Line>,
    /// Rows that only one side has.
    pub alone: Vec<String>,
}

/// Of the table: with its figures a line has a hundred.
const TITLE_COLUMNS: usize = 23;

impl Comparison {
    /// Rows are matched by their title and unit, in the order of `before`.
    pub fn new(before: &Measured, after: &Measured, tolerance: f64) -> Comparison {
        let find = |from: &Measured, s: &Series| {
            from.series.iter().find(|o| (&o.title, &o.unit) == (&s.title, &s.unit)).cloned()
        };
        let lines = before.series.iter().filter_map(|b| Some(line(b, &find(after, b)?, tolerance)));
        let only = |of: &Measured, other: &Measured| -> Vec<String> {
            of.series.iter().filter(|s| find(other, s).is_none()).map(|s| s.title.clone()).collect()
        };
        let setting = |of: &Measured, name: &str| {
            of.settings.iter().find(|(n, _)| n == name).map_or("-".to_owned(), |(_, value)| value.clone())
        };
        let mut names: Vec<&String> = Vec::new();
        for (name, _) in before.settings.iter().chain(&after.settings) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let differences = names.into_iter().filter_map(|name| {
            let (b, a) = (setting(before, name), setting(after, name));
            (a != b).then(|| (name.clone(), b, a))
        });
        Comparison {
            before: before.name.clone(),
            after: after.name.clone(),
            differences: differences.collect(),
            tolerance,
            lines: lines.collect(),
            alone: [only(before, after), only(after, before)].concat(),
        }
    }

    pub fn count(&self, finding: Finding) -> usize {
        self.lines.iter().filter(|l| l.finding == finding).count()
    }

    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers, strings and lists")
    }

    /// The table that people read.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let mut say = |text: String| {
            writeln!(out, "{}", wrap(text.trim_end(), 4)).expect("writing to a string cannot fail")
        };
        say(format!("before  {}", self.before));
        say(format!("after   {}", self.after));
        for (name, before, after) in &self.differences {
            say(format!("not the same: {name} {before} before, {after} after"));
        }
        say(String::new());
        let wide = self.lines.iter().map(|l| l.title.chars().count()).max().unwrap_or(0).min(TITLE_COLUMNS);
        say(format!(
            "{:<wide$} {:>6} {:>11} {:>11} {:>7} {:>13} {:>6} {:>7}  {}",
            "", "unit", "before", "after", "ratio", "95 %", "larger", "p", ""
        ));
        for l in &self.lines {
            let [before, after] = [l.before, l.after].map(|e| number(e.median));
            let change = l.change.map_or(format!("{:>7} {:>13} {:>6} {:>7}", "-", "-", "-", "-"), |c| {
                let interval = format!("{:.2}-{:.2}", c.ratio.low, c.ratio.high);
                let larger = format!("{:.0} %", c.superiority * 100.0);
                format!("{:>7.2} {interval:>13} {larger:>6} {:>7.4}", c.ratio.median, c.p)
            });
            let word = match l.finding {
                Finding::Better => "better",
                Finding::Worse => "WORSE",
                Finding::Same => "",
                Finding::TooFew => "too few",
            };
            // A title that has no room stands on a line of its own.
            let title = if l.title.chars().count() > wide { "" } else { &l.title };
            if title.is_empty() {
                say(l.title.clone());
            }
            say(format!("{:<wide$} {:>6} {before:>11} {after:>11} {change}  {word}", title, l.unit));
        }
        say(String::new());
        if !self.alone.is_empty() {
            say(format!("in one result only: {}", self.alone.join(", ")));
        }
        let [better, worse, few] = [Finding::Better, Finding::Worse, Finding::TooFew].map(|f| self.count(f));
        let told = self.lines.len() - few;
        say(format!(
            "{} rows: {better} better, {worse} worse, {} the same within {:.0} % or by chance, {few} with too few samples (4 on each side are the fewest)",
            self.lines.len(),
            told - better - worse,
            self.tolerance * 100.0,
        ));
        say(format!(
            "ratio: after / before, median over all pairs; larger: how often a sample of after is; p: how likely chance alone does this \
             (of {told} rows {:.1} come below 0.05 by chance)",
            told as f64 * stats::ALPHA
        ));
        out
    }
}

fn line(before: &Series, after: &Series, tolerance: f64) -> Line {
    let change = stats::change(&before.samples, &after.samples);
    let finding = change.map_or(Finding::TooFew, |c| finding(&c, before.better, tolerance));
    Line {
        title: before.title.clone(),
        unit: before.unit.clone(),
        better: before.better,
        before: stats::estimate(&before.samples),
        after: stats::estimate(&after.samples),
        change,
        finding,
    }
}

fn finding(change: &Change, better: Better, tolerance: f64) -> Finding {
    let gain = match better {
        Better::Higher => change.ratio.median,
        Better::Lower => 1.0 / change.ratio.median,
    };
    match () {
        _ if !change.could_tell => Finding::TooFew,
        _ if !change.is_significant() => Finding::Same,
        _ if gain > 1.0 + tolerance => Finding::Better,
        _ if gain < 1.0 / (1.0 + tolerance) => Finding::Worse,
        _ => Finding::Same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(rows: &[(&str, Better, &[f64])]) -> Measured {
        let series = |(title, better, samples): &(&str, Better, &[f64])| Series {
            title: title.to_string(),
            unit: "ops/s".into(),
            better: *better,
            samples: samples.to_vec(),
        };
        Measured { name: "x".into(), settings: Vec::new(), series: rows.iter().map(series).collect() }
    }

    #[test]
    fn each_row_is_judged_by_which_way_is_better() {
        let (low, high): (&[f64], &[f64]) =
            (&[10.0, 10.5, 11.0, 11.5, 12.0], &[20.0, 20.5, 21.0, 21.5, 22.0]);
        let near: &[f64] = &[12.01, 12.02, 12.03, 12.04, 12.05];
        let rows = [
            ("a", Better::Higher, low, high, Finding::Better),
            ("b", Better::Higher, high, low, Finding::Worse),
            ("c", Better::Lower, low, high, Finding::Worse),
            ("d", Better::Lower, high, low, Finding::Better),
            ("mixed", Better::Higher, low, &[9.9, 10.2, 11.2, 11.7, 12.5], Finding::Same),
            ("sure but small", Better::Higher, &[12.0, 11.99, 11.98, 11.97], near, Finding::Same),
            ("three", Better::Higher, &low[..3], &high[..3], Finding::TooFew),
            ("none", Better::Higher, low, &[], Finding::TooFew),
        ];
        let before: Vec<_> = rows.iter().map(|r| (r.0, r.1, r.2)).collect();
        let after: Vec<_> = rows.iter().map(|r| (r.0, r.1, r.3)).collect();
        let compared = Comparison::new(&measured(&before), &measured(&after), 0.05);
        for (line, row) in compared.lines.iter().zip(&rows) {
            assert_eq!(line.finding, row.4, "{}", line.title);
        }
        let table = compared.table();
        assert!(
            table.contains("WORSE") && table.contains("8 rows: 2 better, 2 worse, 2 the same"),
            "{table}"
        );
    }

    #[test]
    fn what_only_one_side_has_and_what_was_set_otherwise_is_said() {
        let samples: &[f64] = &[1.0; 5];
        let mut before = measured(&[("a", Better::Higher, samples), ("gone", Better::Higher, samples)]);
        let mut after = measured(&[("a", Better::Higher, samples), ("new", Better::Lower, samples)]);
        before.settings = vec![("workers".into(), "4".into()), ("direct".into(), "false".into())];
        after.settings = vec![("workers".into(), "8".into()), ("direct".into(), "false".into())];
        let compared = Comparison::new(&before, &after, 0.0);
        assert_eq!((compared.lines.len(), compared.alone.join(" ")), (1, "gone new".into()));
        assert_eq!(compared.differences, [("workers".into(), "4".into(), "8".into())]);
        assert!(compared.table().contains("not the same: workers 4 before, 8 after"));
    }
}
