//! `stria find` on a mount: beside GNU's find, and by striping.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::sys::ensure_eq;
use super::{Bench, Test, set_stripe};

pub const TESTS: &[Test] =
    &[("find::what_find_finds", as_find), ("find::striping_and_places_are_tests", by_striping)];

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// A hundred entries, made at one mount and searched at another one.
fn as_find(b: &mut Bench) -> Result<()> {
    let dir = b.dir("find")?;
    for n in 0..20u32 {
        let below = dir.join(format!("d{}", n % 4)).join(format!("e{n}"));
        fs::create_dir_all(&below)?;
        fs::write(below.join(format!("f{n}.h5")), vec![1; 700 * n as usize])?;
        fs::write(below.join(format!("G{n}")), vec![1; 20_000 * n as usize])?;
        std::os::unix::fs::symlink("nowhere", below.join("link"))?;
        if n % 5 == 0 {
            fs::hard_link(below.join(format!("G{n}")), dir.join(format!("again{n}")))?;
        }
    }
    fs::create_dir(dir.join("empty"))?;
    let seen = b.look(&dir);
    for tests in [
        "-type f",
        "-name *.h5 -size +4k",
        "-iname g1*",
        "-type d -empty",
        "( -links 2 -o -type l ) ! -name again*",
        "-maxdepth 2 -type d",
        "-mindepth 3 -size -2048c",
        "-mmin -5 -perm -u+w -user root",
        "-path */d1/* -type f,l",
        "-printf %p|%s|%i|%n|%m|%y|%l|%u\\n",
    ] {
        let words: Vec<&str> = tests.split(' ').collect();
        let place = seen.display().to_string();
        let (code, own) = b.cluster.stria(&[&["find", &place], &words[..]].concat())?;
        ensure_eq(code, 0, &own)?;
        let theirs = Command::new("find").arg(&seen).args(&words).output().context("find")?;
        ensure_eq(sorted(&own), sorted(&String::from_utf8(theirs.stdout)?), tests)?;
        ensure!(!own.is_empty(), "{tests} finds nothing, which shows nothing");
    }
    let gone = seen.join("gone").display().to_string();
    let (code, said) = b.cluster.stria(&["find", &gone])?;
    ensure!(code == 1 && said.contains("No such file"), "{code}: {said}");
    let (code, said) = b.cluster.stria(&["find", "-nmae", "x"])?;
    ensure!(code == 2 && said.contains("'-nmae' is no test"), "{code}: {said}");
    Ok(())
}

fn by_striping(b: &mut Bench) -> Result<()> {
    let dir = b.dir("find_striping")?;
    fs::write(dir.join("inline"), "small")?;
    let make = |name: &str, options: &[&str]| -> Result<()> {
        set_stripe(b, options, &dir.join(name))?;
        Ok(fs::write(dir.join(name), vec![1; 3 << 20])?)
    };
    make("one", &["-c", "1", "-i", "1"])?;
    make("two", &["-c", "2", "-S", "256K"])?;
    let seen = b.look(&dir);
    let found = |tests: &str| names(b, &seen, tests);
    let same = |tests: &str, want: &str, what: &str| ensure_eq(found(tests)?, want.to_owned(), what);
    same("-stripe-count 1 -inline", "inline", "content in the MDT")?;
    same("-type f ! -inline", "one two", "content in objects")?;
    same("--stripe-count +1 -type f", "two", "more than one stripe")?;
    same("-S 256K", "two", "stripes of 256 KiB")?;
    same("-stripe-index 1 ! -stripe-count 2", "one", "by the first OST")?;
    ensure!(found("-ost stria-OST0001")?.contains("one"), "by an OST's name");
    same("-ost 900", "", "an OST that is not there")?;
    let (_, shown) =
        b.cluster.stria(&["find", &seen.display().to_string(), "-name", "one", "-printf", "%Lc %Li %Lo"])?;
    ensure_eq(shown, "1 1 1".to_owned(), "as -printf shows it")
}

/// The names that are found, in their order.
fn names(b: &Bench, dir: &Path, tests: &str) -> Result<String> {
    let words: Vec<&str> = tests.split(' ').collect();
    let place = dir.display().to_string();
    let (code, out) = b.cluster.stria(&[&["find", &place], &words[..], &["-printf", "%f\\n"]].concat())?;
    ensure_eq(code, 0, &out)?;
    Ok(sorted(&out).join(" "))
}
