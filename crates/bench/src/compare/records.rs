//! Turns the records of a run into comparable series: one for each step, point, phase and program.

use super::{Better, Measured, Series};
use crate::record::Results;
use crate::report::{groups, word};

impl Measured {
    /// Each series in the unit in which its plan shows it.
    pub fn of(results: &Results) -> Measured {
        let header = &results.header;
        let plan = serde_json::to_string(&header.plan).unwrap_or_default();
        let mut settings = vec![
            // Two plans of one name may differ: by their sums that is seen.
            ("plan".to_owned(), format!("{} ({:08x})", header.plan.name, sum(&plan))),
            ("scale".to_owned(), header.scale.clone()),
            ("file system".to_owned(), header.file_system.clone()),
            ("program".to_owned(), header.version.clone()),
        ];
        // Memory is not set: it differs by a few pages from boot to boot, and stands with the system.
        let set = header.values.iter().filter(|(name, _)| name.as_str() != "ram");
        settings.extend(set.map(|(name, value)| (format!("${name}"), word(value))));
        let series = groups(results).into_iter().map(|group| Series {
            title: group.title(),
            unit: group.unit.title().to_owned(),
            better: if group.unit.is_lower_better() { Better::Lower } else { Better::Higher },
            samples: group.samples(group.unit),
        });
        Measured {
            name: format!("{} ({})", header.dir, header.file_system),
            settings,
            series: series.collect(),
        }
    }
}

/// FNV-1a: enough to see that two texts are not one.
fn sum(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::super::{Comparison, Finding};
    use super::*;
    use crate::report::sample;

    fn slowed(mut results: Results, step: &str, factor: u64) -> Results {
        for r in results.records.iter_mut().filter(|r| r.step == step) {
            (r.outcome.ops, r.outcome.bytes) = (r.outcome.ops / factor, r.outcome.bytes / factor);
        }
        results
    }

    #[test]
    fn runs_are_compared_by_step_point_and_phase() {
        let before = sample::results(sample::plan(), "small", 7);
        let mut after = slowed(before.clone(), "seq", 2);
        after.header.file_system = "ext4 on /dev/sda1".into();
        after.header.values.insert("extra".into(), serde_json::json!([1, 2]));
        after.header.plan.about.push('!');
        let compared = Comparison::new(&Measured::of(&before), &Measured::of(&after), 0.05);
        let worse: Vec<&str> =
            compared.lines.iter().filter(|l| l.finding == Finding::Worse).map(|l| l.title.as_str()).collect();
        assert_eq!(worse.len(), 20, "5 phases at 4 numbers of threads: {worse:?}");
        assert!(
            worse.iter().all(|title| title.starts_with("seq · "))
                && worse.contains(&"seq · both.r · threads 8")
        );
        let units: Vec<&str> = compared.lines.iter().map(|l| l.unit.as_str()).collect();
        assert!(units.contains(&"ops/s") && units.contains(&"MB/s"), "{units:?}");
        let said: Vec<&str> = compared.differences.iter().map(|(name, _, _)| name.as_str()).collect();
        assert_eq!(said, ["plan", "file system", "$extra"]);
        assert!(compared.alone.is_empty());
        let same = Comparison::new(&Measured::of(&before), &Measured::of(&before), 0.05);
        assert_eq!((same.count(Finding::Worse), same.differences.len()), (0, 0));
    }

    #[test]
    fn a_run_is_read_from_its_directory_or_its_records() {
        let dir = std::env::temp_dir().join(format!("stria-compare-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let results = sample::results(sample::plan(), "small", 1);
        sample::save(&results, &dir.join("records.jsonl"));
        let titles = |m: Measured| m.series.into_iter().map(|s| s.title).collect::<Vec<_>>();
        let wanted = titles(Measured::of(&results));
        for path in [dir.clone(), dir.join("records.jsonl")] {
            assert_eq!(titles(Measured::read(&path).unwrap()), wanted);
        }
        assert!(Measured::read(&dir.join("none")).is_err());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
