//! Pairs: drills on a file system whose targets are mirrors of two members on two servers. Each drill takes one server away under probes and
//! synced writes, looks that programs see no error, brings it back, and waits until both members are in sync (`drills`).

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::Wiring;
use testkit::hosts::Part;

use super::drills::media::Ill;
use super::drills::{ALL_PROGRAMS, Beside, Fault, Program, Scene, Table, judge, no_false_fail_over, random};
use super::hosts::{FS, need_hosts};
use super::json::SCHEMAS;
use super::routers::need_fio;
use super::schema::Schemas;
use super::semantics::wait_until;
use super::sys::ensure_eq;
use super::{Bench, Needs, Test, skip};

pub const OWN: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Tcp), ("pairs::either_server_may_be_killed_or_stopped", killed_or_stopped)),
    (Needs::Only(Wiring::Tcp), ("pairs::a_server_that_is_not_heard_is_replaced", not_heard)),
    (Needs::Only(Wiring::Tcp), ("pairs::a_server_whose_disk_fails_is_replaced", disk_fails)),
    (Needs::Only(Wiring::Tcp), ("pairs::programs_beside_a_lost_server_see_nothing", beside)),
    (Needs::Only(Wiring::Tcp), ("pairs::random_drills", random_drills)),
    (Needs::Only(Wiring::Tcp), ("pairs::random_drills_beside_programs", random_beside)),
    (Needs::Only(Wiring::Tcp), ("pairs::no_false_fail_over", full_load)),
    (Needs::Only(Wiring::Tcp), ("pairs::primaries_are_handed_over_by_command", handed_over)),
];

/// Longer than a server waits for its own promise, and a client for a host that does not answer.
const FROZEN: Duration = Duration::from_secs(12);
const CUT: Duration = Duration::from_secs(5);
const RANDOM_DRILLS: u64 = 200;
const RANDOM_BESIDE: u64 = 40;
const FULL_LOAD: Duration = Duration::from_secs(30 * 60);

fn pair(b: &Bench, media: bool) -> Result<Scene> {
    need_hosts()?;
    Scene::begin(b.cluster.bin(), &b.cluster.dir.join("site"), media)
}

/// One drill, judged by what its faults may cost.
fn drill(scene: &mut Scene, faults: &[Fault]) -> Result<()> {
    let what = faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("; then ");
    let row = scene.drill(&what, faults)?;
    row.notes.iter().for_each(|note| println!("       {note}"));
    let sec = |time: Duration| time.as_secs_f64();
    let (longest, after) = (sec(row.longest()), sec(row.in_sync_after));
    println!("       {what}: longest call {longest:.1} s, in sync again after {after:.1} s");
    let longest = faults.iter().map(|fault| fault.stall_max()).max().unwrap_or_default();
    judge(&row, longest).with_context(|| format!("logs:\n{}", scene.site.log_tails()))
}

fn drills(scene: &mut Scene, each: &[Fault]) -> Result<()> {
    each.iter().try_for_each(|fault| drill(scene, &[*fault]))?;
    scene.look_at_all()?;
    scene.site.stop_all()
}

/// [S-pair] The server with the primaries is killed, then the other one is stopped, then both are killed.
fn killed_or_stopped(b: &mut Bench) -> Result<()> {
    let mut scene = pair(b, false)?;
    both_read(&scene, &mut b.rng())?;
    drills(&mut scene, &[Fault::Killed("s1"), Fault::Stopped("s2"), Fault::Both])
}

/// [S-pair] Content of one OST's mirror comes from both of its servers.
fn both_read(scene: &Scene, rng: &mut testkit::Rng) -> Result<()> {
    scene.wait_in_sync()?;
    let servers = [Part::oss(FS, "s1"), Part::second_oss(FS, "s2")];
    // Bytes that the server has read, from its disk or its page cache.
    let read_by = |part: &Part| -> Result<u64> {
        let pid = scene.site.pid(part).with_context(|| format!("{part} does not run"))?;
        let text = std::fs::read_to_string(format!("/proc/{pid}/io"))?;
        let count = text.lines().find_map(|line| line.strip_prefix("rchar: ")).context("rchar")?;
        Ok(count.parse()?)
    };
    // A member that has just joined serves reads once the primary has promised, up to half a second later. Each file is read once only,
    // as clients cache it.
    let (mut data, mut tries, mut seen) = (vec![0; 16 << 20], 0, [0; 2]);
    let both = wait_until("each server gives a part of a file", || {
        tries += 1;
        let name = format!("both{tries}");
        let (writer, reader) = (scene.mount("c0")?.join(&name), scene.mount("c1")?.join(&name));
        rng.fill(&mut data);
        std::fs::write(&writer, &data)?;
        std::fs::File::open(&writer)?.sync_all()?;
        let before = [read_by(&servers[0])?, read_by(&servers[1])?];
        ensure!(std::fs::read(&reader)? == data, "the other client reads other bytes");
        seen = [read_by(&servers[0])? - before[0], read_by(&servers[1])? - before[1]];
        Ok(seen.iter().all(|read| *read >= 6 << 20))
    });
    both.with_context(|| format!("they have read {seen:?} bytes of {}", data.len()))
}

/// [S-pair] A server stands still, and the servers do not hear each other: one goes on, and nothing that the other one answers counts.
fn not_heard(b: &mut Bench) -> Result<()> {
    let faults =
        [Fault::Frozen("s1", CUT), Fault::Cut(CUT), Fault::Frozen("s1", FROZEN), Fault::CutOneWay("s2", CUT)];
    drills(&mut pair(b, false)?, if b.scale.is_short() { &faults[..2] } else { &faults })
}

/// [S-pair] Flushes of the disk of the server with the primaries fail: the other one takes over.
fn disk_fails(b: &mut Bench) -> Result<()> {
    drills(&mut pair(b, true)?, &[Fault::Disk("s1", Ill::Flushes)])
}

/// [S-pair] SQLite, fio and recorded histories go on while the server with the primaries is killed.
fn beside(b: &mut Bench) -> Result<()> {
    if b.scale.is_short() {
        return skip("in the long form only");
    }
    need_fio()?;
    let mut scene = pair(b, false)?;
    let programs = [Program::Fio, Program::Sqlite, Program::Histories];
    let beside = Beside::start(&scene.mounts()?, scene.site.dir(), &programs, b.seed)?;
    let outcome = drill(&mut scene, &[Fault::Killed("s1")]).and_then(|()| beside.wait());
    // An error of a program tells more than the probes' one.
    beside.finish().and(outcome)?;
    scene.look_at_all()?;
    scene.site.stop_all()
}

/// [S-pair] Many losses of all kinds, one after another, with time to be in sync between.
fn random_drills(b: &mut Bench) -> Result<()> {
    many(b, RANDOM_DRILLS, &[])
}

/// [S-pair] As `random_drills`, with databases, fio and histories beside.
fn random_beside(b: &mut Bench) -> Result<()> {
    need_fio()?;
    many(b, RANDOM_BESIDE, &ALL_PROGRAMS)
}

fn many(b: &mut Bench, count: u64, programs: &[Program]) -> Result<()> {
    if b.scale.is_short() {
        return skip("in the long form only");
    }
    need_hosts()?;
    let parent = b.cluster.dir.join("site");
    random(b.cluster.bin(), &parent, (count, b.seed), (programs, None), &mut Table::default())
}

/// [S-pair] Under full load no member is given up, though all answers are slow.
fn full_load(b: &mut Bench) -> Result<()> {
    if b.scale.is_short() {
        return skip("in the long form only");
    }
    need_hosts()?;
    need_fio()?;
    no_false_fail_over(b.cluster.bin(), &b.cluster.dir.join("site"), FULL_LOAD)
}

/// [S-pair] `drain` and `balance` move primaries under writes, and nothing is stopped. `switch` moves one. Then each server in turn is
/// drained, stopped and started.
fn handed_over(b: &mut Bench) -> Result<()> {
    let mut scene = pair(b, false)?;
    let schemas = Schemas::read(Path::new(SCHEMAS)).context("run from the root of the checkout")?;
    for (fault, moved, host) in
        [(Fault::Drained("s1"), 2, "s2"), (Fault::Balanced, 2, "s1"), (Fault::Switched, 1, "s2")]
    {
        drill(&mut scene, &[fault])?;
        let members = |mirror: &serde_json::Value| mirror["members"].as_array().cloned().unwrap_or_default();
        let mirrors = scene.mirrors()?;
        let primaries =
            mirrors.iter().flat_map(members).filter(|m| m["is_primary"] == true && m["host"] == host);
        ensure_eq(primaries.count(), moved, &format!("primaries on {host} after: {fault}"))?;
    }
    for (words, handed_over) in [("server drain s1", 1), ("server balance", 2), ("server rejoin s1", 0)] {
        let mgs = scene.mgs()?;
        let all: Vec<&str> = words.split_whitespace().chain(["-j", "--mgs", &mgs]).collect();
        let (code, text) = scene.site.stria("s0", "alpha", &all)?;
        ensure_eq(code, 0, &format!("{words}: {text}"))?;
        let value: serde_json::Value = serde_json::from_str(&text).with_context(|| text.clone())?;
        schemas.check(&format!("stria-{}-{}.json", all[0], all[1]), &value).with_context(|| text.clone())?;
        ensure_eq(value["handed_over"].as_array().map(Vec::len), Some(handed_over), words)?;
        scene.wait_in_sync()?;
    }
    let rolling: &[&'static str] = if b.scale.is_short() { &[] } else { &["s1", "s2"] };
    for server in rolling.iter().copied() {
        drill(&mut scene, &[Fault::Drained(server), Fault::Stopped(server)])?;
    }
    scene.look_at_all()?;
    scene.site.stop_all()
}
