//! `stria ost bench` as it is called: what it measures on a small file, and what it refuses.

#![allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should")]

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A file for one test, gone when it is dropped.
struct Device(PathBuf);

impl Device {
    fn new(name: &str, bytes: u64) -> Device {
        let path = std::env::temp_dir().join(format!("stria-ost-bench-{name}-{}", std::process::id()));
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
    command.args(["ost", "bench"]).arg(device.path()).args(words.split_whitespace()).output().unwrap()
}

#[test]
fn rows_have_figures_in_every_state() {
    let device = Device::new("rows", 128 << 20);
    let states = "--states fresh,full,aged --age 2000";
    let out = bench(&device, &format!("--no-fio --pairs 2 --seconds 0.05 --soak-seconds 1 {states} --json"));
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(String::from_utf8_lossy(&out.stderr).contains("is overwritten"));
    let said: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(said["object_bytes"], 32 << 20);
    let rows = said["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 30, "{said}");
    for row in rows {
        let (name, state) = (row["row"].as_str().unwrap(), row["state"].as_str().unwrap());
        assert!(row["engine"]["value"]["median"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["fio"].is_null(), "{row}");
        assert_eq!(row["ratio"].is_null(), state == "fresh", "{row}");
        let samples = row["engine"]["samples"].as_array().unwrap().len();
        let wanted = if name.starts_with("soak") || state != "fresh" { 1 } else { 2 };
        assert_eq!(samples, wanted, "{row}");
    }
}

#[test]
fn what_holds_something_is_refused_and_stays_as_it_is() {
    let device = Device::new("foreign", 64 << 20);
    let bytes = vec![7; 1 << 20];
    std::fs::write(device.path(), [&bytes[..], &vec![0; 63 << 20]].concat()).unwrap();
    let out = bench(&device, "--no-fio --seconds 0.05");
    assert_eq!(out.status.code(), Some(2));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("it holds: data of no known kind") && said.contains("--force"), "{said}");
    assert_eq!(std::fs::read(device.path()).unwrap()[..1 << 20], bytes);
    let out = bench(&device, "--no-fio --seconds 0.05 --rows latency --force");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(String::from_utf8_lossy(&out.stdout).contains("4 KiB read latency QD 1"));
}

/// Some keep what they know at the end: the first MiB of such a device may well be zeros.
#[test]
fn what_lies_at_the_end_only_is_seen_named_and_stays_as_it_is() {
    const BYTES: u64 = 64 << 20;
    let cases: [(&str, u64, &[u8]); 3] = [
        ("Linux RAID member (md 1.0)", BYTES - 8192, b"\xfc\x4e\x2b\xa9"),
        ("Linux RAID member (md 0.90)", BYTES - 65_536, b"\xfc\x4e\x2b\xa9"),
        ("GPT partition table (the copy at the end", BYTES - 512, b"EFI PART"),
    ];
    for (name, at, magic) in cases {
        let device = Device::new("tail", BYTES);
        let file = std::fs::File::options().write(true).open(device.path()).unwrap();
        file.write_all_at(magic, at).unwrap();
        let before = std::fs::read(device.path()).unwrap();
        let out = bench(&device, "--no-fio --seconds 0.05 --rows latency");
        assert_eq!(out.status.code(), Some(2), "{name}");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(said.contains(&format!("it holds: {name}")) && said.contains("--force"), "{said}");
        assert!(std::fs::read(device.path()).unwrap() == before, "{name}: the device was written");
    }
}

#[test]
fn a_size_that_cannot_be_is_refused_before_anything_is_written() {
    let device = Device::new("size", 64 << 20);
    for words in ["--size 33M", "--size 1K", "--size 33M --force"] {
        let out = bench(&device, words);
        assert_eq!(out.status.code(), Some(2), "{words}");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(said.contains("at most half of the device"), "{words}: {said}");
    }
    assert!(std::fs::read(device.path()).unwrap().iter().all(|b| *b == 0));
}

#[test]
fn what_cannot_be_measured_is_refused_before_anything_is_written() {
    let device = Device::new("refused", 16 << 20);
    for (words, why) in [
        ("--rows none-such", "rows are: seq-write"),
        ("--seconds 0", "give seconds"),
        ("--pairs 0", "1..=1000"),
        ("", "at least 32 MiB"),
    ] {
        let out = bench(&device, words);
        assert_eq!(out.status.code(), Some(2), "{words}");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(said.contains(why), "{words}: {said}");
    }
    assert!(std::fs::read(device.path()).unwrap().iter().all(|b| *b == 0));
}

#[test]
fn the_log_may_be_on_a_second_device_which_is_refused_as_the_first() {
    let (device, log) = (Device::new("log-main", 64 << 20), Device::new("log", 8 << 20));
    let words = "--no-fio --pairs 1 --seconds 0.05 --soak-seconds 0.1 --rows burst,flush";
    let with_log = |words: &str| bench(&device, &format!("{words} --log-device {}", log.path().display()));
    let is_blank = |d: &Device| std::fs::read(d.path()).unwrap().iter().all(|b| *b == 0);
    // 1. Unusable devices are refused before either is written: too small, the same, or with data.
    let file = std::fs::File::options().write(true).open(log.path()).unwrap();
    file.set_len(4095 << 10).unwrap();
    let refused = |words: &str, log: &Device, why: &str| {
        let out = bench(&device, &format!("{words} --log-device {}", log.path().display()));
        assert_eq!(out.status.code(), Some(2), "{why}");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(said.contains(why) && said.contains(&log.path().display().to_string()), "{why}: {said}");
        assert!(is_blank(&device), "{why}");
    };
    refused(words, &log, "at least 4 MiB");
    file.set_len(8 << 20).unwrap();
    refused(words, &device, "in use");
    file.write_all_at(b"EFI PART", (8 << 20) - 512).unwrap();
    refused(words, &log, "it holds: GPT partition table");
    // 2. Both are used, and the log is where it shall be.
    let out = with_log(&format!("{words} --force --json"));
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(told.contains(&format!("and {} are overwritten", log.path().display())), "{told}");
    let said: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(said["log_bytes"], (8 << 20) - (128 << 10));
    assert_eq!(said["log_device"], log.path().to_str().unwrap());
    assert!(
        said["rows"].as_array().unwrap().iter().all(|r| r["engine"]["value"]["median"].as_f64() > Some(0.0))
    );
    let bytes = std::fs::read(log.path()).unwrap();
    assert!(bytes.starts_with(b"STRIALOG"));
    assert!(bytes[1 << 20..].iter().any(|b| *b != 0), "entries went there");
}
