//! pjdfstest 0.2, about 400 tests of what each call must do and refuse, run as root with two other users. Its working directory lies
//! on the mount; with two mounts the tests run once more on the second. All must pass but those in `SKIPPED`, and docs/pjdfstest.md
//! gives the reason of each.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use super::sys::cargo_program;
use super::{Bench, Needs, Test};

/// Its own cluster: it mounts the file system read-only for a moment, again and again.
pub const TESTS: &[(Needs, Test)] = &[(Needs::Own, ("pjdfstest::everything_passes", everything_passes))];

/// Tests that cannot run on any FUSE file system.
const SKIPPED: &[&str] = &["link::link_count_max"];
/// It had this many when this was written; fewer means that something of it was not run.
const TESTS_MIN: usize = 398;

/// Users that every Debian has. `naptime` is what its tests wait for times to differ: ours differ by nanoseconds.
const CONFIG: &str = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nstat_st_birthtime = {}\nutime_now = {}\n\
                      utimensat = {}\n[dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n\
                      [settings]\nnaptime = 0.005\n";

fn everything_passes(b: &mut Bench) -> Result<()> {
    let elsewhere = b.cluster.dir.join("another-file-system");
    fs::create_dir(&elsewhere)?;
    let config = b.cluster.dir.join("pjdfstest.toml");
    fs::write(&config, format!("{CONFIG}allow_remount = false\n"))?;
    // Those that mount it read-only get a run of their own: other tests leave files open, and a remount finds it busy.
    let remounts = b.cluster.dir.join("pjdfstest-remounts.toml");
    fs::write(&remounts, format!("{CONFIG}allow_remount = true\n"))?;
    plain_mount(&b.cluster.dir.join("bin"))?;
    for mount in b.cluster.mounts() {
        let all = pass_on(mount, &config, &["--secondary-fs", &elsewhere.display().to_string()])?;
        let read_only = pass_on(mount, &remounts, &["erofs"])?;
        let left: Vec<&String> = all
            .skipped
            .iter()
            .filter(|s| !read_only.passed.contains(s) && !SKIPPED.contains(&s.as_str()))
            .collect();
        ensure!(left.is_empty(), "skipped, but docs/pjdfstest.md does not say so: {left:?}");
        let passed = all.passed.len() + read_only.passed.len();
        ensure!(passed + SKIPPED.len() >= TESTS_MIN, "only {passed} passed");
        println!("       pjdfstest on {}: {passed} passed, skipped: {}", mount.display(), SKIPPED.join(", "));
    }
    Ok(())
}

/// A `mount` that remounts by itself: the one of the system asks the FUSE helper where there is one, and that knows no remount.
fn plain_mount(bin: &Path) -> Result<()> {
    fs::create_dir(bin)?;
    let script = bin.join("mount");
    fs::write(&script, "#!/bin/sh\nPATH=${PATH#*:} exec mount -i \"$@\"\n")?;
    Ok(fs::set_permissions(script, Permissions::from_mode(0o755))?)
}

struct Outcome {
    passed: Vec<String>,
    skipped: Vec<String>,
}

fn pass_on(mount: &Path, config: &Path, args: &[&str]) -> Result<Outcome> {
    let out = Command::new(cargo_program("pjdfstest", "0.2")?)
        .args([Path::new("--configuration-file"), config, Path::new("--path"), mount])
        .args(args)
        .current_dir(mount)
        .env("PATH", format!("{}:{}", config.with_file_name("bin").display(), std::env::var("PATH")?))
        .env("RUST_BACKTRACE", "0")
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&out.stdout);
    let with = |word: &str| -> Vec<String> {
        said.lines().filter_map(|l| l.strip_suffix(word)).map(|l| l.trim().to_owned()).collect()
    };
    let failed = with(" FAILED");
    ensure!(
        failed.is_empty() && out.status.success(),
        "{}: {} failed: {}\n{}{}",
        mount.display(),
        failed.len(),
        failed.join(", "),
        reasons(&said),
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(Outcome { passed: with(" ok"), skipped: with(" skipped") })
}

/// The line after each that says FAILED.
fn reasons(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    let failed = lines.windows(2).filter(|pair| pair[0].ends_with(" FAILED"));
    failed
        .map(|pair| format!("         {} {}\n", pair[0].trim_end_matches(" FAILED").trim(), pair[1].trim()))
        .collect()
}
