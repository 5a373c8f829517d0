//! `stria mdt bench` as it is called: what it measures on a small file, and what it refuses.

#![allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A file for one test, gone when it is dropped.
struct Device(PathBuf);

impl Device {
    fn new(name: &str, bytes: u64) -> Device {
        let path = std::env::temp_dir().join(format!("stria-mdt-bench-{name}-{}", std::process::id()));
        std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        Device(path)
    }
    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn bench(device: &Device, words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stria"));
    command.args(["mdt", "bench"]).arg(device.path()).args(words.split_whitespace()).output().unwrap()
}

fn rows(out: &Output) -> Vec<serde_json::Value> {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let said: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    said["rows"].as_array().unwrap().clone()
}

#[test]
fn rows_have_figures_and_those_within_the_turn_have_partners() {
    let device = Device::new("rows", 128 << 20);
    let out = bench(&device, "--no-ext4 --pairs 2 --seconds 0.05 --entries 2500 --json");
    assert!(String::from_utf8_lossy(&out.stderr).contains("is overwritten"));
    let rows = rows(&out);
    assert_eq!(rows.len(), 23);
    for row in rows {
        let side = |side: &str, what: &str| row[side][what].as_f64();
        assert!(row["mdt"]["value"]["median"].as_f64().unwrap() > 0.0, "{row}");
        assert!(side("mdt", "cpu_seconds_per_million").unwrap() > 0.0, "{row}");
        assert!(side("mdt", "memory_bytes").unwrap() > 1e6, "{row}");
        assert_eq!(row["mdt"]["samples"].as_array().unwrap().len(), 2, "{row}");
        assert_eq!(row["other"].is_null(), row["against"] == "ext4", "{row}");
        assert_eq!(row["ratio"].is_null(), row["against"] == "ext4", "{row}");
        let has_writer = row["row"] == "scaling-writer";
        assert_eq!(side("mdt", "made_per_second").unwrap() > 0.0, has_writer, "{row}");
        let changes =
            ["create", "remove", "mixed"].iter().any(|w| row["row"].as_str().unwrap().starts_with(w));
        assert_eq!(side("mdt", "flush_share").unwrap() > 0.0, changes, "{row}");
    }
}

/// Needs root and mkfs.ext4; without them the same command measures one side and says why.
#[test]
fn ext4_works_on_the_same_device_in_turns() {
    let device = Device::new("ext4", 128 << 20);
    let words =
        "--pairs 3 --seconds 0.05 --entries 2500 --rows create-2,remove-2,stat-1,readdirplus-1 --json";
    let out = bench(&device, words);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    for row in rows(&out) {
        if row["other"].is_null() {
            assert!(text.contains("only the MDT's side:"), "{text}");
            continue;
        }
        assert_eq!(row["other"]["samples"].as_array().unwrap().len(), 3, "{row}");
        assert!(row["ratio"]["median"].as_f64().unwrap() > 0.0, "{row}");
    }
}

#[test]
fn what_holds_something_is_refused_and_stays_as_it_is() {
    let device = Device::new("foreign", 128 << 20);
    let bytes = vec![7; 1 << 20];
    std::fs::write(device.path(), [&bytes[..], &vec![0; 127 << 20]].concat()).unwrap();
    let words = "--no-ext4 --seconds 0.05 --entries 1000 --pairs 1 --rows stat-1";
    let out = bench(&device, words);
    assert_eq!(out.status.code(), Some(2));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("it holds: data of no known kind") && said.contains("--force"), "{said}");
    assert_eq!(std::fs::read(device.path()).unwrap()[..1 << 20], bytes);
    let out = bench(&device, &format!("{words} --force"));
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(
        said.contains("warm stat, 1 thread") && said.contains("the first listing of all after it"),
        "{said}"
    );
}

#[test]
fn what_cannot_be_measured_is_refused_before_anything_is_written() {
    let device = Device::new("refused", 65 << 20);
    for (words, why) in [
        ("--rows none-such", "rows are: stat-1"),
        ("--seconds 0", "give seconds"),
        ("--pairs 0", "1..=1000"),
        ("--entries 0", "1..=900000000"),
        ("--entries 257", "give a device of at least 65 MiB"),
        ("", "give a device of at least 3970 MiB"),
    ] {
        let out = bench(&device, words);
        assert_eq!(out.status.code(), Some(2), "{words}");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(said.contains(why), "{words}: {said}");
    }
    assert!(std::fs::read(device.path()).unwrap().iter().all(|b| *b == 0));
}
