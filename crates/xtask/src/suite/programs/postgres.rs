//! PostgreSQL as a plain user: initdb with checksums, pgbench, crashes of the database and of the file system, recovery.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use testkit::{Role, Wiring};

use super::super::sys::*;
use super::super::{Bench, Needs, Test};
use super::databases::Committer;

pub const TESTS: &[(Needs, Test)] = &[(Needs::Own, ("programs::postgresql", postgresql))];

const READY: Duration = Duration::from_secs(60);

pub struct Postgres {
    programs: PathBuf,
    uid: u32,
    data: PathBuf,
    /// Socket and log, on the local file system.
    run: PathBuf,
    server: Option<Child>,
}

/// Every program of the database runs as this user: PostgreSQL refuses root.
fn plain_user() -> Result<u32> {
    let passwd = fs::read_to_string("/etc/passwd")?;
    let uid_of = |name: &str| {
        let line = passwd.lines().find(|l| l.split(':').next() == Some(name))?;
        line.split(':').nth(2)?.parse().ok()
    };
    uid_of("postgres").or_else(|| uid_of("nobody")).context("neither a user postgres nor nobody")
}

/// Debian keeps a directory per version; the newest is taken.
fn programs() -> Result<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .context("PostgreSQL is not installed: scripts/deps test")?
        .flatten()
        .map(|e| e.path().join("bin"))
        .filter(|p| p.join("initdb").exists())
        .collect();
    found.sort();
    found.pop().context("no initdb below /usr/lib/postgresql")
}

impl Postgres {
    pub fn make(data: PathBuf, run: PathBuf) -> Result<Postgres> {
        let postgres = Postgres { programs: programs()?, uid: plain_user()?, data, run, server: None };
        for dir in [&postgres.data, &postgres.run] {
            fs::create_dir(dir)?;
            chown(dir, Some(postgres.uid), Some(postgres.uid))?;
        }
        let data = postgres.data.display().to_string();
        postgres.run("initdb", &["-k", "-A", "trust", "-U", "p", "-D", &data])?;
        Ok(postgres)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={}", self.uid), &format!("--regid={}", self.uid), "--clear-groups"]);
        command.arg(self.programs.join(program)).current_dir(&self.run).env("HOME", &self.run);
        command.env("PGHOST", &self.run).env("PGUSER", "p").env("PGDATABASE", "postgres").env("LC_ALL", "C");
        command.stdin(Stdio::null());
        command
    }

    pub fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        let out = self.command(program).args(args).output()?;
        if !out.status.success() {
            bail!(
                "{program} {}: {}{}",
                args.join(" "),
                String::from_utf8_lossy(&out.stderr),
                self.last_words()
            );
        }
        Ok(String::from_utf8(out.stdout)?)
    }

    pub fn last_words(&self) -> String {
        let log = fs::read_to_string(self.run.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(12).collect();
        format!("\nthe server's last words:\n{}", lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
    }

    /// Starts the server; it recovers by itself if it must.
    pub fn start(&mut self) -> Result<()> {
        let log = fs::File::options().create(true).append(true).open(self.run.join("log"))?;
        let mut command = self.command("postgres");
        command.arg("-D").arg(&self.data).arg("-k").arg(&self.run);
        for setting in
            ["listen_addresses=", "shared_buffers=16MB", "max_connections=20", "checkpoint_timeout=30s"]
        {
            command.args(["-c", setting]);
        }
        let mut server = command.stdout(log.try_clone()?).stderr(log).spawn()?;
        let until = Instant::now() + READY;
        while !self.command("pg_isready").stdout(Stdio::null()).status()?.success() {
            if server.try_wait()?.is_some() || Instant::now() > until {
                bail!("the database does not start{}", self.last_words());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        self.server = Some(server);
        Ok(())
    }

    pub fn sql(&self, text: &str) -> Result<String> {
        Ok(self.run("psql", &["-qAt", "-v", "ON_ERROR_STOP=1", "-c", text])?.trim().to_owned())
    }

    /// `kill -9` of the server and of all its workers.
    pub fn crash(&mut self) -> Result<()> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        let children =
            fs::read_to_string(format!("/proc/{0}/task/{0}/children", server.id())).unwrap_or_default();
        server.kill()?;
        server.wait()?;
        for pid in children.split_whitespace().filter_map(|p| Pid::from_raw(p.parse().ok()?)) {
            let _ = kill_process(pid, Signal::KILL);
            // The processes are orphans now; the shared memory is free when the last one has ended.
            let gone = || !Path::new(&format!("/proc/{pid}")).exists();
            super::super::semantics::wait_until("a worker of the database ends", || Ok(gone()))?;
        }
        Ok(())
    }

    /// Stops it in good order and has it verify the checksum of every page.
    pub fn stop_and_verify(&mut self) -> Result<()> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        let data = self.data.display().to_string();
        self.run("pg_ctl", &["-D", &data, "-m", "fast", "-w", "stop"])?;
        server.wait()?;
        self.run("pg_checksums", &["--check", "-D", &data]).map(drop)
    }

    pub fn committer(&self, first: u64) -> Result<Committer> {
        let mut command = self.command("psql");
        command.args(["-qAt", "-v", "ON_ERROR_STOP=1"]);
        Committer::start(command, first, |n| {
            format!("BEGIN; INSERT INTO ours VALUES ({n}, repeat(md5('{n}'), 20)); COMMIT; SELECT {n};")
        })
    }

    /// The four sums that pgbench keeps equal; every acknowledged row of ours; indexes that agree with their tables.
    pub fn check(&self, acknowledged: u64) -> Result<()> {
        let sums = self.sql(
            "SELECT count(DISTINCT s) FROM (SELECT sum(abalance) s FROM pgbench_accounts UNION ALL \
             SELECT sum(bbalance) FROM pgbench_branches UNION ALL SELECT sum(tbalance) FROM pgbench_tellers \
             UNION ALL SELECT coalesce(sum(delta), 0) FROM pgbench_history) x",
        )?;
        ensure_eq(sums.as_str(), "1", "different sums of accounts, branches, tellers and history")?;
        let ours = self.sql(&format!(
            "SELECT count(*) FROM ours WHERE n <= {acknowledged} AND data = repeat(md5(n::text), 20)"
        ))?;
        ensure_eq(ours.as_str(), acknowledged.to_string().as_str(), "acknowledged rows")?;
        self.run("pg_amcheck", &["--install-missing", "--heapallindexed", "postgres"]).map(drop)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let _ = self.crash();
    }
}

fn postgresql(b: &mut Bench) -> Result<()> {
    let mut postgres = Postgres::make(b.dir("postgres")?.join("data"), b.cluster.dir.join("pg"))?;
    postgres.start()?;
    let scale = b.scale.transactions.div_ceil(1000).to_string();
    postgres.run("pgbench", &["-q", "-i", "-s", &scale])?;
    postgres.sql("CREATE TABLE ours (n INT PRIMARY KEY, data TEXT)")?;
    let mut last = 0;
    for round in 0..b.scale.kills.div_ceil(10) {
        let mut load = postgres.command("pgbench");
        load.args(["-n", "-c", "3", "-T", "60"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut load = load.spawn()?;
        let mut ours = postgres.committer(last + 1)?;
        ours.wait_for(last + b.scale.transactions / 10)?;
        if b.cluster.wiring() != Wiring::Local {
            // Servers that die and come back are nothing that a database hears of.
            b.cluster.kill(Role::Oss((round % 2) as usize))?;
            b.cluster.start_role(Role::Oss((round % 2) as usize))?;
            ours.wait_for(ours.acknowledged() + 20).with_context(|| postgres.last_words())?;
        }
        // In turn: the database dies; the whole file system dies, and the database with it.
        let all_die = round % 2 == 1;
        if all_die {
            b.cluster.kill_all_and_start()?;
        }
        postgres.crash()?;
        load.kill()?;
        load.wait()?;
        last = ours.finish(false)?;
        postgres.start().with_context(|| format!("round {round}, all died: {all_die}"))?;
        postgres.check(last).with_context(|| format!("round {round}, all died: {all_die}"))?;
        last = postgres.sql("SELECT max(n) FROM ours")?.parse()?;
    }
    postgres.run("pgbench", &["-n", "-c", "3", "-t", &(b.scale.transactions / 3).to_string()])?;
    postgres.check(last)?;
    postgres.stop_and_verify()
}
