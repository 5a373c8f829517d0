//! Where the engine's CPU time goes: the ten functions with the most of it, by perf.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Rows whose CPU is promised to be told, and how they are called.
const ROWS: &[(&str, &str)] = &[("read-4k", "per 4 KiB read"), ("seq-write", "per GiB written")];
const TOP: usize = 10;
/// A small object, so that the writes before a reading row are few in comparison.
const SIZE: &str = "64M";

/// As lists; without perf a line that says so.
pub fn profiles(bin: &Path, device: &str, base: &Path) -> String {
    let mut out = String::new();
    for (row, title) in ROWS {
        let _ = writeln!(out, "CPU {title} ({row}), the ten functions with the most:\n");
        match profile(bin, device, base, row) {
            Ok(lines) => lines.iter().for_each(|line| {
                let _ = writeln!(out, "- {line}");
            }),
            Err(error) => {
                let _ = writeln!(out, "- no profile: {error:#}");
            }
        }
        out.push('\n');
    }
    out
}

fn profile(bin: &Path, device: &str, base: &Path, row: &str) -> Result<Vec<String>> {
    let data = base.join("perf.data");
    let mut record = Command::new("perf");
    record.args(["record", "--quiet", "-F", "997", "-o"]).arg(&data).arg("--").arg(bin);
    record
        .args(["ost", "bench", device, "--force", "--no-fio", "--rows", row, "--pairs", "1", "--size", SIZE]);
    output(&mut record)?;
    let mut report = Command::new("perf");
    report.args(["report", "--stdio", "--no-children", "--sort", "symbol", "-i"]).arg(&data);
    let text = output(&mut report);
    let _ = std::fs::remove_file(&data);
    Ok(top(&text?))
}

fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_owned();
    let out = command.stdin(Stdio::null()).output().with_context(|| name.display().to_string())?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr).trim());
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The first lines of a report, without its head.
fn top(report: &str) -> Vec<String> {
    let lines = report.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    // Two columns of registers, of which nothing is known here.
    let words =
        |line: &str| line.split_whitespace().filter(|word| *word != "-").collect::<Vec<_>>().join(" ");
    lines.take(TOP).map(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_report_is_left_out() {
        let report = "# To display\n#\n# Overhead  Symbol\n# ........\n#\n    30.11%  [.] crc   -   -\n     2.00%  [k] copy\n\n\n";
        assert_eq!(top(report), ["30.11% [.] crc", "2.00% [k] copy"]);
    }
}
