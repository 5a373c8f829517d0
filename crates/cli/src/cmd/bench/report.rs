//! `stria bench report`: makes page, CSV and JSON of a result again from its records.

use std::path::{Path, PathBuf};

use anyhow::Context;
use bench::record::Results;
use bench::report;
use clap::Args;

use crate::exit::{Exit, Failure};

/// Make the report of a result again from its records: a page that opens anywhere, CSV and JSON with every number.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria bench report out --out /tmp/report.html
         stria bench report none one two --out all")]
pub struct Report {
    /// The directory that `stria bench run --out` wrote, or its records.jsonl. Several of one plan are joined: runs with 0, 1 and 2
    /// routers.
    #[arg(required = true, value_name = "RESULT")]
    results: Vec<PathBuf>,
    /// Where to: a file ending in .html for the page alone, else a directory [default: beside the records of one result].
    #[arg(long, value_name = "FILE|DIR")]
    out: Option<PathBuf>,
    /// JSON output: what `summary.json` has.
    #[arg(short = 'j', long)]
    json: bool,
}

impl Report {
    pub fn run(self) -> anyhow::Result<Exit> {
        let unusable = |e: anyhow::Error| {
            Failure::unusable(
                "bench report",
                format!("{e:#}"),
                "give the directory that `stria bench run --out` wrote, or its records.jsonl",
            )
        };
        let records: Vec<PathBuf> = self.results.iter().map(|result| report::records_of(result)).collect();
        let all = records.iter().map(|path| Results::read(path)).collect::<anyhow::Result<Vec<_>>>();
        let results = all.and_then(report::join).map_err(unusable)?;
        if records.len() > 1 && self.out.is_none() {
            let (why, next) =
                ("several results have no one place", "say with --out where the report shall be");
            return Err(Failure::unusable("bench report", why, next).into());
        }
        let beside = records[0].parent().unwrap_or(Path::new("."));
        let page = match &self.out {
            Some(file) if file.extension().is_some_and(|e| e == "html") && !file.is_dir() => {
                std::fs::write(file, report::html(&results)).with_context(|| file.display().to_string())?;
                file.clone()
            }
            out => report::write(&results, out.as_deref().unwrap_or(beside))?,
        };
        if self.json {
            outln!("{}", report::json(&results));
            return Ok(Exit::Done);
        }
        out!("{}", report::text(&results));
        outln!("\nreport: {}", page.display());
        Ok(Exit::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;

    /// An empty result: header and end.
    const RECORDS: &str = r#"{"line":"header","format":1,"version":"0","plan":{"name":"none","title":"Nothing","about":"","scales":{},"steps":[]},"scale":"min","values":{},"dir":"/d","file_system":"x on y","command":"stria","begun":"","system":[]}
{"line":"end","complete":true,"why":"","seconds":1.0}
"#;

    #[test]
    fn a_report_is_written_beside_the_records_or_where_it_is_wanted() {
        let dir = TestDir::new("bench-report");
        let records = dir.path().join("records.jsonl");
        std::fs::write(&records, RECORDS).unwrap();
        let run = |result: &Path, out: Option<PathBuf>| {
            Report { results: vec![result.to_owned()], out, json: false }.run()
        };
        assert_eq!(run(dir.path(), None).unwrap(), Exit::Done);
        let page = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
        assert!(page.contains("<h1>Nothing</h1>"));
        assert!(dir.path().join("summary.csv").exists() && dir.path().join("summary.json").exists());
        let file = dir.path().join("one.html");
        run(&records, Some(file.clone())).unwrap();
        assert_eq!(std::fs::read_to_string(file).unwrap(), page);
        let other = dir.path().join("a/b");
        run(&records, Some(other.clone())).unwrap();
        assert!(other.join("report.html").exists());
        // Two of one plan are one, where there is a place for it.
        let both = |out| Report { results: vec![records.clone(), records.clone()], out, json: false }.run();
        assert_eq!(both(Some(dir.path().join("both"))).unwrap(), Exit::Done);
        assert!(both(None).unwrap_err().to_string().contains("--out"));
    }

    #[test]
    fn what_is_no_result_is_refused_with_what_to_give() {
        let dir = TestDir::new("bench-report-bad");
        let bad = dir.path().join("bad.jsonl");
        std::fs::write(&bad, "{}\n").unwrap();
        for result in [bad, dir.path().to_owned(), dir.path().join("none")] {
            let said = Report { results: vec![result.clone()], out: None, json: false }.run().unwrap_err();
            assert_eq!(crate::exit::code_of(&said), Exit::Unusable);
            let said = said.to_string();
            assert!(said.contains(result.to_str().unwrap()) && said.contains("records.jsonl"), "{said}");
        }
    }
}
