//! Suites that run on a mounted file system of real processes. Each test gets its own directory on the mount.
//!
//! A test is a function `fn(&mut Bench) -> Result<()>`; a failure prints the line that repeats it. Tests that kill or fill
//! get a cluster of their own, the others share one per wiring. Short or long, everything runs on the wirings `local` (all in one
//! process), `tcp`, and `two`, where the file system is mounted twice over TCP: a test acts at one place (`Bench::dir`) and looks at
//! the other (`Bench::look`). On `pair`, where targets are mirrored, the long form runs what makes sense there, the short one a few tests.

mod admin;
mod cases;
mod changelog;
mod claims;
mod content;
mod crash;
mod cut;
mod damage;
mod dash;
mod data;
mod drain;
pub mod drills;
mod equal;
mod find;
mod first;
mod fsx;
mod full;
mod gateways;
mod guard;
mod guards;
mod handles;
mod host;
mod hosts;
mod idmap;
mod index;
mod jobs;
mod json;
mod kinds;
mod leases;
mod life;
mod limit;
mod load;
mod locks;
mod manage;
mod measured;
mod metrics;
mod mgs;
mod mounting;
mod names;
mod nodemaps;
mod overlay;
mod pairs;
mod params;
mod pjdfstest;
mod posix;
mod programs;
mod report;
mod revoke;
mod routers;
mod schema;
mod semantics;
pub mod storm;
pub mod sys;
mod tls;
mod why;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use testkit::{Cluster, Rng, Shape, Wiring};

/// How much of a suite to run, on each wiring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    pub kills: u64,
    /// Random operations on names, over all seeds; others do a fixed part of it.
    pub operations: u64,
    pub seeds: u64,
    /// Of all workers of a storm on names.
    pub storm_calls: u64,
    pub tree_files: usize,
    /// Entries of a large directory.
    pub entries: usize,
    /// Of each database.
    pub transactions: u64,
    /// How long programs run that take a time and not a count.
    pub load_seconds: u64,
    /// Sessions at one MDT and one OST at a time.
    pub sessions: u64,
    /// Sequences of 200 calls that are compared with ext4, in one process; over TCP a fifth of it.
    pub sequences: u64,
}

impl Scale {
    /// `make test`.
    pub const SHORT: Scale = Scale {
        kills: 20,
        operations: 100_000,
        seeds: 1,
        storm_calls: 25_000,
        tree_files: 5_000,
        entries: 100_000,
        transactions: 400,
        load_seconds: 3,
        sessions: 500,
        sequences: 2_000,
    };
    /// `cargo xtask long`: 300 kills and 3 × 10^6 operations on the three wirings together.
    pub const LONG: Scale = Scale {
        kills: 100,
        operations: 1_000_000,
        seeds: 4,
        storm_calls: 1_000_000,
        tree_files: 50_000,
        entries: 1_000_000,
        transactions: 8_000,
        load_seconds: 60,
        sessions: 10_000,
        sequences: 100_000,
    };

    /// On this wiring. With two mounts the short form does less of everything that takes long.
    fn on(self, wiring: Wiring) -> Scale {
        match wiring {
            Wiring::Two if self.is_short() => {
                // Each of the six roles, and all.
                Scale { kills: 7, tree_files: self.tree_files / 5, entries: self.entries / 10, ..self }
            }
            // Each kill of a server is a fail-over.
            Wiring::Pair if self.is_short() => Scale { kills: 4, ..self },
            // With two mounts more can fail.
            Wiring::Tcp if self.is_short() => Scale { kills: 8, ..self },
            _ => self,
        }
    }
    fn is_short(&self) -> bool {
        self.sequences == Scale::SHORT.sequences
    }

    pub fn operations_per_seed(&self) -> u64 {
        self.operations / self.seeds
    }
}

/// The environment of a test.
pub struct Bench {
    pub cluster: Cluster,
    pub seed: u64,
    pub scale: Scale,
}

impl Bench {
    pub fn rng(&self) -> Rng {
        Rng::new(self.seed)
    }
    /// A new empty directory on the mount.
    pub fn dir(&self, name: &str) -> Result<PathBuf> {
        let dir = self.cluster.mount.join(name);
        std::fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
        Ok(dir)
    }
    /// The same file as it is seen through the other mount; on wirings with one mount, through that one.
    pub fn look(&self, path: &Path) -> PathBuf {
        let below = |mount: &Path| path.strip_prefix(mount).ok().map(Path::to_owned);
        match (&self.cluster.second, below(&self.cluster.mount)) {
            (Some(second), Some(name)) => second.join(name),
            (Some(second), None) => {
                below(second).map_or(path.to_owned(), |name| self.cluster.mount.join(name))
            }
            (None, _) => path.to_owned(),
        }
    }
    /// The path for the n-th of calls that take turns between the mounts.
    pub fn turn(&self, n: u64, path: &Path) -> PathBuf {
        if n.is_multiple_of(2) { path.to_owned() } else { self.look(path) }
    }
}

/// `stria setstripe` with these options; fails with its output.
fn set_stripe(b: &Bench, options: &[&str], path: &Path) -> Result<()> {
    let path = path.display().to_string();
    let (code, out) = b.cluster.stria(&[&["setstripe"], options, &[path.as_str()]].concat())?;
    sys::ensure_eq(code, 0, &format!("setstripe {} {path}: {out}", options.join(" ")))
}

pub type Test = (&'static str, fn(&mut Bench) -> Result<()>);

/// Where a test may run and whether it needs a cluster of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Shares a cluster with other tests; runs on every wiring asked for.
    Shared,
    /// Kills, fills or damages: its own cluster; runs on every wiring asked for.
    Own,
    /// Its own cluster; makes sense on one wiring only.
    Only(Wiring),
    /// Only the servers, with one OST; with the tests over TCP.
    Load,
}

/// Why a test could not be run here, as its error: it neither passes nor fails, and is counted as skipped.
#[derive(Debug)]
struct Skip(String);

impl std::fmt::Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for Skip {}

fn skip<T>(reason: impl Into<String>) -> Result<T> {
    Err(Skip(reason.into()).into())
}

/// Every test, in the order in which they run.
pub fn all() -> Vec<(Needs, Test)> {
    let mut tests = Vec::new();
    tests.extend(semantics::TESTS.iter().map(|t| (Needs::Shared, *t)));
    tests.extend(find::TESTS.iter().map(|t| (Needs::Shared, *t)));
    tests.extend(jobs::TESTS.iter().map(|t| (Needs::Shared, *t)));
    tests.extend(kinds::TESTS.iter().map(|t| (Needs::Shared, *t)));
    tests.extend(guards::TESTS.iter().map(|t| (Needs::Shared, *t)));
    tests.extend(posix::TESTS.iter().map(|t| (Needs::Shared, *t)));
    tests.extend(locks::TESTS.iter().map(|t| (Needs::Shared, *t)));
    tests.extend(names::TESTS.iter().map(|t| (Needs::Shared, *t)));
    tests.extend(equal::TESTS.iter().map(|t| (Needs::Shared, *t)));
    tests.extend(content::TESTS.iter().map(|t| (Needs::Shared, *t)));
    tests.extend(fsx::TESTS.iter().map(|t| (Needs::Shared, *t)));
    tests.extend(storm::TESTS.iter().map(|t| (Needs::Shared, *t)));
    tests.extend(programs::all());
    tests.extend(data::TESTS.iter().map(|t| (Needs::Shared, *t)));
    tests.extend_from_slice(data::OWN);
    tests.extend_from_slice(pjdfstest::TESTS);
    tests.extend_from_slice(damage::TESTS);
    tests.extend_from_slice(crash::TESTS);
    tests.extend_from_slice(life::TESTS);
    tests.extend_from_slice(load::TESTS);
    tests.extend_from_slice(host::TESTS);
    tests.extend_from_slice(full::TESTS);
    tests.extend_from_slice(admin::TESTS);
    tests.extend_from_slice(first::TESTS);
    tests.extend_from_slice(json::TESTS);
    tests.extend_from_slice(cases::TESTS);
    tests.extend_from_slice(leases::TESTS);
    tests.extend_from_slice(changelog::TESTS);
    tests.extend_from_slice(mounting::TESTS);
    tests.extend_from_slice(handles::TESTS);
    tests.extend_from_slice(gateways::TESTS);
    tests.extend_from_slice(idmap::TESTS);
    tests.extend_from_slice(overlay::TESTS);
    tests.extend_from_slice(claims::TESTS);
    tests.extend_from_slice(measured::TESTS);
    tests.extend_from_slice(report::TESTS);
    tests.extend_from_slice(locks::OWN);
    tests.extend_from_slice(leases::OWN);
    tests.extend_from_slice(guard::OWN);
    tests.extend_from_slice(cut::OWN);
    tests.extend_from_slice(revoke::OWN);
    tests.extend_from_slice(tls::OWN);
    tests.extend_from_slice(hosts::OWN);
    tests.extend_from_slice(routers::OWN);
    tests.extend_from_slice(manage::OWN);
    tests.extend_from_slice(drain::OWN);
    tests.extend_from_slice(params::OWN);
    tests.extend_from_slice(nodemaps::OWN);
    tests.extend_from_slice(pairs::OWN);
    tests.extend_from_slice(mgs::OWN);
    tests.extend_from_slice(metrics::OWN);
    tests.extend_from_slice(dash::OWN);
    tests.extend_from_slice(index::OWN);
    tests.extend_from_slice(jobs::OWN);
    tests.extend_from_slice(why::OWN);
    tests
}

/// With two mounts these run in the long form only, or when asked for by name: load that one mount has borne already in this run, and
/// whose minutes would go to uncached paths.
const LONG_ON_TWO: &[&str] = &[
    "crash::orphans_of_a_killed_mount_are_freed",
    "kinds::link_limit",
    "mounting::short_memory",
    "programs::cargo_build",
    "programs::cp_and_rsync_of_a_tree",
    "programs::dbench",
    "programs::fio_verify",
    "programs::fs_mark",
    "programs::go",
    "programs::postgresql",
    "programs::sqlite_rollback_journal",
    "programs::stress_ng",
    "programs::tar",
];

/// Tests over TCP with one mount that the short form leaves to the other two wirings, where more can fail.
const LONG_ON_TCP: &[&str] = &[
    "crash::kill_any_process_loses_nothing_acknowledged",
    "cut::calls_go_on_after_a_link_was_away",
    "equal::random_calls_give_what_ext4_gives",
    "find::striping_and_places_are_tests",
    "find::what_find_finds",
    "fsx::every_operation_on_one_file",
    "hosts::answers_of_a_server_are_lost_under_writes",
    "kinds::link_limit",
    "names::random_operations_match_the_local_file_system",
    "programs::stress_ng",
    "programs::sqlite_after_a_kill_of_all",
    "programs::sqlite_rollback_journal",
    "semantics::big_directory",
];

/// Tests in one process that the short form leaves to the wirings with servers of their own, where more can fail.
const LONG_ON_LOCAL: &[&str] = &[
    "equal::random_calls_give_what_ext4_gives",
    "find::striping_and_places_are_tests",
    "find::what_find_finds",
    "jobs::a_program_is_started_beside_open_files",
    "kinds::link_limit",
    "mounting::short_memory",
    "names::random_operations_match_the_local_file_system",
    "programs::cp_and_rsync_of_a_tree",
    "programs::go",
    "programs::postgresql",
    "programs::tar",
    "semantics::big_directory",
];

/// Tests on mirrored file systems in the short form: the others find there what they find without mirrors.
const SHORT_ON_PAIR: &[&str] = &[
    "crash::kill_any_process_loses_nothing_acknowledged",
    "data::copy_range",
    "data::random_ranges",
    "locks::a_restart_of_the_mdt_loses_no_lock",
    "locks::random_requests_end_as_on_the_local_file_system",
    "metrics::prometheus_finds_every_documented_metric",
];

/// Tests of servers that are not mirrored: what they look at is another thing with mirrors.
const NOT_ON_PAIR: &[&str] = &[
    // A stopped member has its last changes in its log only. Rot in the logs of both members is no loss of names, and no member starts.
    "damage::names_that_an_mdt_lost_are_given_up",
];

/// Runs the matching tests. `Ok` only if every test that could run passed; prints a line per test and one of counts, before it those that
/// were skipped.
pub fn run(
    bin: &Path,
    parent: &Path,
    scale: Scale,
    wirings: &[Wiring],
    only: Option<&str>,
    seed: u64,
) -> Result<()> {
    let (mut passed, mut failed, mut skipped) = (0, Vec::new(), 0);
    let mut tell_skip = |wiring: Wiring, name: &str, reason: &dyn std::fmt::Display| {
        skipped += 1;
        println!("skip   {wiring:?} {name}: {reason}");
    };
    for wiring in wirings {
        let (scale, is_short) = (scale.on(*wiring), scale.is_short());
        let (mut shared, mut plain): (Option<Bench>, Option<Bench>) = (None, None);
        for (needs, (name, test)) in all() {
            let wanted = only.is_none_or(|o| name.contains(o));
            let is_elsewhere = match needs {
                Needs::Only(only) => only != *wiring,
                Needs::Load => *wiring != Wiring::Tcp,
                Needs::Shared | Needs::Own => false,
            };
            let is_pair = *wiring == Wiring::Pair;
            let is_not_for_pairs = is_pair
                && (NOT_ON_PAIR.contains(&name)
                    || only.is_none() && is_short && !SHORT_ON_PAIR.contains(&name));
            if !wanted || is_elsewhere || is_not_for_pairs {
                continue;
            }
            let is_long = match *wiring {
                Wiring::Two => LONG_ON_TWO.contains(&name),
                Wiring::Tcp => LONG_ON_TCP.contains(&name),
                Wiring::Local => LONG_ON_LOCAL.contains(&name),
                Wiring::Pair | Wiring::Servers => false,
            };
            if only.is_none() && is_short && is_long {
                tell_skip(*wiring, name, &"in the long form only");
                continue;
            }
            let began = Instant::now();
            let has_tls = !WITHOUT_TLS.iter().any(|module| name.starts_with(module));
            let shared = if has_tls { &mut shared } else { &mut plain };
            let limit = limit::Limit::begin(parent, *wiring, name, is_short);
            let outcome = run_one(bin, parent, scale, *wiring, seed, needs, test, has_tls, shared);
            drop(limit);
            let took = began.elapsed().as_secs_f64();
            match outcome {
                Ok(()) => {
                    passed += 1;
                    println!("ok     {wiring:?} {name} ({took:.1} s)");
                }
                Err(e) if e.is::<Skip>() => tell_skip(*wiring, name, &e),
                Err(e) => {
                    println!("FAILED {wiring:?} {name} ({took:.1} s): {e:#}");
                    println!(
                        "       again: cargo xtask suite --wiring {} --only {name} --seed {seed}",
                        label(*wiring)
                    );
                    failed.push(format!("{wiring:?} {name}"));
                    *shared = None;
                }
            }
        }
    }
    if skipped > 0 {
        println!("{skipped} skipped, each for the reason above");
    }
    println!("{passed} passed, {} failed", failed.len());
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    if passed + skipped == 0 {
        bail!("no test matches");
    }
    Ok(())
}

fn label(wiring: Wiring) -> &'static str {
    match wiring {
        Wiring::Local => "local",
        Wiring::Tcp => "tcp",
        Wiring::Two => "two",
        Wiring::Servers => "servers",
        Wiring::Pair => "pair",
    }
}

/// Tests that run commands and mounts of their own, by the names of their modules. On their clusters connections have no TLS: a site may
/// choose that, and it must go on to work.
const WITHOUT_TLS: &[&str] =
    &["admin::", "changelog::", "claims::", "guard::", "host::", "json::", "manage::", "mounting::"];

#[allow(clippy::too_many_arguments, reason = "one call site; a struct would only name the same things")]
fn run_one(
    bin: &Path,
    parent: &Path,
    scale: Scale,
    wiring: Wiring,
    seed: u64,
    needs: Needs,
    test: fn(&mut Bench) -> Result<()>,
    has_tls: bool,
    shared: &mut Option<Bench>,
) -> Result<()> {
    let mut shape = if needs == Needs::Load { load::shape(scale) } else { Shape::small(wiring) };
    shape.tls &= has_tls;
    let fresh =
        || -> Result<Bench> { Ok(Bench { cluster: Cluster::start(bin, parent, shape)?, seed, scale }) };
    if needs != Needs::Shared {
        return test(&mut fresh()?);
    }
    if shared.is_none() {
        *shared = Some(fresh()?);
    }
    match shared {
        Some(bench) => test(bench),
        None => bail!("no cluster"),
    }
}
