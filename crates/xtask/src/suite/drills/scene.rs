//! The site of drills: two client hosts, a host for the management service, and a pair; and one drill on it, from its event until both
//! members of each mirror are in sync again.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use testkit::cluster::is_in_sync;
use testkit::hosts::{Plan, Site};

use super::super::hosts::{FS, under_writes_at};
use super::super::sys::ensure_eq;
use super::fault::Fault;
use super::media::{FOLDER, Ill, Medium};
use super::probe::{Kind, Probes, Seen};

pub const CLUSTER: &str = "alpha";
/// The servers of the pair. Host `s1` has the first members, and so the primaries at the start.
pub const SERVERS: [&str; 2] = ["s1", "s2"];
/// Longest wait for both members to be in sync: a member may have to be filled.
const IN_SYNC_MAX: Duration = Duration::from_secs(90);
/// Begins the name of a directory of a drill's writers.
const DIR: &str = "drill-";
const LOOK_EACH: Duration = Duration::from_millis(50);

/// Two client hosts, a host for the management service, and a pair.
pub fn plan() -> Plan {
    let hosts = ["c0", "c1", "s0", "s1", "s2"];
    let plan = hosts.iter().fold(Plan::new(), |plan, host| plan.host(host, &["tcp0"]));
    let plan = plan.cluster(CLUSTER, "s0").fs(FS, "s1", &["s1"]).mirrored("s2", &["s2"]).osts(1, "1G");
    plan.mount(FS, "c0").mount(FS, "c1")
}

/// A pair, and the disks of its servers if they can fall ill.
pub struct Scene {
    /// Dropped first: its servers end before their disks do.
    pub site: Site,
    media: Vec<Medium>,
    drills: u64,
    /// Remarks of a drill beside its times.
    notes: Vec<String>,
}

/// The outcome of a drill, a row of the table.
pub struct Row {
    pub what: String,
    pub seen: Vec<(Kind, Seen)>,
    /// Longest time of a write of 20 KB with `fsync`.
    pub writes: Duration,
    /// From the moment when everything runs again until all members are in sync.
    pub in_sync_after: Duration,
    pub notes: Vec<String>,
}

impl Row {
    pub fn errors(&self) -> u64 {
        self.seen.iter().map(|(_, seen)| seen.errors).sum()
    }
    pub fn first_error(&self) -> Option<&str> {
        self.seen.iter().find_map(|(_, seen)| seen.first_error.as_deref())
    }
    /// The longest call of each probe: `0.3, 0.3, 0.4, 0.3 s`.
    pub fn stalls(&self) -> String {
        let all: Vec<_> =
            self.seen.iter().map(|(_, seen)| format!("{:.1}", seen.longest.as_secs_f64())).collect();
        format!("{} s", all.join(", "))
    }
    pub fn longest(&self) -> Duration {
        self.seen.iter().map(|(_, seen)| seen.longest).max().unwrap_or_default().max(self.writes)
    }
}

impl Scene {
    /// Keeps the site's logs after a failure, and says where they are.
    pub fn kept(&mut self, outcome: Result<()>) -> Result<()> {
        outcome.map_err(|fault| {
            self.site.keep();
            fault.context(format!("logs are in {}", self.site.dir().display()))
        })
    }

    /// Starts what the plan has. `media`: the disks of both servers can fall ill.
    pub fn begin(bin: &Path, parent: &Path, media: bool) -> Result<Scene> {
        let plan = match media {
            true => SERVERS.iter().fold(plan(), |plan, server| plan.images_in(server, FOLDER)),
            false => plan(),
        };
        let site = Site::make(bin, parent, plan)?;
        let mut scene = Scene { site, media: vec![], drills: 0, notes: vec![] };
        for server in SERVERS.iter().filter(|_| media) {
            scene.media.push(Medium::mount(&scene.site, server)?);
        }
        scene.site.start_all()?;
        let took = scene.wait_in_sync()?;
        println!("       both members in sync after {:.1} s", took.as_secs_f64());
        Ok(scene)
    }

    pub fn medium(&self, server: &str) -> Result<&Medium> {
        self.media
            .iter()
            .find(|medium| medium.host() == server)
            .context("the disks of this site cannot fall ill")
    }
    /// The file system on both client hosts.
    pub fn mounts(&self) -> Result<[PathBuf; 2]> {
        Ok([self.mount("c0")?, self.mount("c1")?])
    }
    pub fn mount(&self, host: &str) -> Result<PathBuf> {
        self.site.mount(FS, host)
    }
    /// `--mgs` of a command on host s0.
    pub fn mgs(&self) -> Result<String> {
        Ok(self.site.plan().mgs_nids(CLUSTER, "s0")?.join(","))
    }

    /// `stria` with words of a command, on host s0.
    pub fn command(&self, words: &str) -> Result<()> {
        let mgs = self.mgs()?;
        let all: Vec<&str> = words.split_whitespace().chain(["--mgs", &mgs]).collect();
        let (code, text) = self.site.stria("s0", CLUSTER, &all)?;
        ensure_eq(code, 0, &format!("{words}: {text}"))
    }

    /// The mirrors of the site, as `stria mirror list` shows them.
    pub fn mirrors(&self) -> Result<Vec<serde_json::Value>> {
        let mgs = self.mgs()?;
        let (code, text) = self.site.stria("s0", CLUSTER, &["mirror", "list", "-j", "--mgs", &mgs])?;
        ensure!(code == 0 || code == 1, "mirror list: {code}: {text}");
        let found: serde_json::Value = serde_json::from_str(&text).with_context(|| text.clone())?;
        Ok(found.as_array().context("a list")?.clone())
    }

    /// Epochs of the mirrors: each change of members or of the primary raises one.
    pub fn epochs(&self) -> Result<Vec<u64>> {
        let epoch = |mirror: &serde_json::Value| mirror["epoch"].as_u64().context("a mirror has an epoch");
        self.mirrors()?.iter().map(epoch).collect()
    }

    /// Waits until all members are in sync. Returns the time.
    pub fn wait_in_sync(&self) -> Result<Duration> {
        let begin = Instant::now();
        loop {
            let mirrors = self.mirrors()?;
            ensure!(!mirrors.is_empty(), "the site has no mirrors");
            if mirrors.iter().all(is_in_sync) {
                return Ok(begin.elapsed());
            }
            if begin.elapsed() > IN_SYNC_MAX {
                bail!(
                    "members are not in sync within {IN_SYNC_MAX:?}: {mirrors:?}\nlogs:\n{}",
                    self.site.log_tails()
                );
            }
            std::thread::sleep(LOOK_EACH);
        }
    }

    /// Starts what has ended, by itself or by a drill, and waits until all members are in sync.
    fn restore(&mut self) -> Result<Duration> {
        for part in self.site.plan().parts() {
            if self.site.pid(&part).is_some()
                && let Some(status) = self.site.has_ended(&part)?
            {
                self.notes.push(format!("{part} ended: {status}"));
            }
        }
        self.site.start_all()?;
        self.wait_in_sync()
    }

    /// One event after another, each with time to be in sync again, under probes and writes. Programs must see no error, and each record
    /// that was synced is read on the other host.
    pub fn drill(&mut self, what: &str, faults: &[Fault]) -> Result<Row> {
        self.drills += 1;
        self.notes.clear();
        let name = format!("probes{}", self.drills);
        let probes = Probes::start(self.mount("c0")?.join(&name), self.mount("c1")?.join(&name))?;
        let mut in_sync_after = Duration::ZERO;
        let roots = self.mounts()?;
        let writes = under_writes_at(&roots, &format!("{DIR}{}", self.drills), || {
            for fault in faults {
                fault.happen(self)?;
                in_sync_after = in_sync_after.max(self.restore()?);
                fault.check(self)?;
                probes.go_on().with_context(|| format!("after: {fault}"))?;
            }
            // So that what is read comes from the media.
            fs::write("/proc/sys/vm/drop_caches", "1").context("drop the page cache")
        });
        let seen = probes.stop();
        // An error of a probe tells more than that of a wait for it.
        if let Ok(seen) = &seen
            && let Some(first) = seen.iter().find_map(|(_, seen)| seen.first_error.as_deref())
        {
            println!("       {what}: {first}");
        }
        let told = || format!("{what}\nlogs:\n{}", self.site.log_tails());
        let (writes, seen) = (writes.with_context(told)?, seen.with_context(told)?);
        let notes = std::mem::take(&mut self.notes);
        Ok(Row { what: what.to_owned(), seen, writes, in_sync_after, notes })
    }

    pub fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// Notes the words of `stria status` and of the map about a failing disk. A slow disk is no reason to give a member up.
    pub fn note_ill(&mut self, server: &str, ill: Ill) -> Result<()> {
        let mirrors = self.mirrors()?;
        let members =
            mirrors.iter().flat_map(|mirror| mirror["members"].as_array().cloned().unwrap_or_default());
        let out: Vec<_> =
            members.filter(|m| m["state"] != "in sync").map(|m| m["host"].to_string()).collect();
        let mgs = self.mgs()?;
        let (_, text) = self.site.stria("s0", CLUSTER, &["status", "--mgs", &mgs])?;
        let named: Vec<&str> = text.lines().filter(|line| line.contains("slow")).map(str::trim).collect();
        self.notes
            .push(format!("meanwhile out of sync: {}; `stria status` on slow ones: {named:?}", out.len()));
        if matches!(ill, Ill::Slow(_)) {
            ensure!(out.is_empty(), "the slow disk of {server} put members out of their mirrors: {out:?}");
        }
        Ok(())
    }

    /// Every file of the writers is read on both hosts, and a check of the file system finds nothing.
    pub fn look_at_all(&self) -> Result<()> {
        let read = |host: &str| -> Result<Vec<(PathBuf, Vec<u8>)>> {
            let root = self.mount(host)?;
            let mut files = Vec::new();
            for dir in self.dirs_of(host)? {
                for file in fs::read_dir(dir)? {
                    let path = file?.path();
                    files.push((path.strip_prefix(&root)?.to_owned(), fs::read(&path)?));
                }
            }
            files.sort();
            Ok(files)
        };
        let (one, two) = (read("c0")?, read("c1")?);
        let counts = format!("{} files on c0, {} on c1", one.len(), two.len());
        ensure!(!one.is_empty() && one == two, "{counts}, or other bytes");
        self.wait_in_sync()?;
        self.command("mirror verify --all")?;
        self.command("fsck")
    }

    /// The next drill writes to directories of its own.
    pub fn clear(&self) -> Result<()> {
        self.dirs_of("c0")?.iter().try_for_each(|dir| Ok(fs::remove_dir_all(dir)?))
    }

    /// Directories of the drills' writers. Programs beside have others.
    fn dirs_of(&self, host: &str) -> Result<Vec<PathBuf>> {
        let all = fs::read_dir(self.mount(host)?)?.map(|entry| Ok(entry?.path()));
        let all: Vec<PathBuf> = all.collect::<Result<_>>()?;
        let is_of_drill =
            |dir: &PathBuf| dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with(DIR));
        Ok(all.into_iter().filter(is_of_drill).collect())
    }
}
