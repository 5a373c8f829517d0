//! Hosts as threads of the test, and hosts that fail in every way.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::crew::{Crew, Inside, Root};
use crate::job::*;
use crate::runner::Runner;
use crate::testdir::TestDir;

/// The behaviour of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Works,
    /// Its command cannot be started.
    NotFound,
    /// It ends at once, with words.
    Refuses,
    /// It takes orders and says nothing.
    Silent,
    /// It has another version.
    Other,
    /// It works until the first order to begin, then its connection ends.
    DiesAtGo,
}

/// Hosts in threads, each with its fate; workers are threads too.
pub struct Threads(pub Vec<(&'static str, Fate)>);

/// A writer that fails when the order to begin has come.
struct UntilGo<W> {
    to: W,
    is_over: Arc<AtomicBool>,
}

impl<W: Write> Write for UntilGo<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self.is_over.load(Ordering::Relaxed) {
            true => Err(std::io::ErrorKind::BrokenPipe.into()),
            false => self.to.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}

impl Dial for Threads {
    fn dial(&self, host: &str) -> Result<Pipes> {
        let fate = self.0.iter().find(|(name, _)| *name == host).map_or(Fate::NotFound, |(_, fate)| *fate);
        let (orders_out, orders_in) = std::io::pipe()?;
        let (answers_out, mut to) = std::io::pipe()?;
        let from = BufReader::new(orders_out);
        match fate {
            Fate::NotFound => bail!("no such program"),
            Fate::Works => drop(std::thread::spawn(move || serve(from, to, &Inside, "1"))),
            Fate::Other => drop(std::thread::spawn(move || serve(from, to, &Inside, "0.9"))),
            Fate::Refuses => to.write_all(b"Permission denied\nplease leave\n")?,
            Fate::Silent => {
                std::thread::spawn(move || {
                    // The answers' end is kept open until the orders end.
                    let lines = from.lines().map_while(Result::ok).count();
                    drop((lines, to));
                });
            }
            Fate::DiesAtGo => {
                let is_over = Arc::new(AtomicBool::new(false));
                let (orders_out, mut orders_in) = std::io::pipe()?;
                let output = UntilGo { to, is_over: is_over.clone() };
                std::thread::spawn(move || serve(BufReader::new(orders_out), output, &Inside, "1"));
                std::thread::spawn(move || {
                    for line in from.lines().map_while(Result::ok) {
                        if line.contains("\"go\"") {
                            is_over.store(true, Ordering::Relaxed);
                            return;
                        }
                        orders_in.write_all((line + "\n").as_bytes()).unwrap();
                    }
                });
            }
        }
        Ok(Pipes {
            input: Box::new(orders_in),
            output: Box::new(BufReader::new(answers_out)),
            errors: None,
            child: None,
        })
    }

    fn shown(&self, host: &str) -> String {
        format!("reach {host}")
    }
}

/// Hosts `h1`, `h2`, … with these fates.
pub fn hosts(fates: &[Fate]) -> Hosts {
    let known = ["h1", "h2", "h3"];
    let all: Vec<(&'static str, Fate)> = known.into_iter().zip(fates.iter().copied()).collect();
    let names = all.iter().map(|(name, _)| (*name).to_owned()).collect();
    Hosts { names, dial: Arc::new(Threads(all)), silence: Duration::from_secs(60), version: "1".into() }
}

fn write_job(stem: &Path, workers: u32) -> Job {
    let data = Data {
        op: DataOp::Write,
        order: Order::Sequential,
        files: Files::Own { stem: stem.into() },
        transfer_bytes: 64 << 10,
        block_bytes: 256 << 10,
        segments: 1,
        shift: 0,
        ops_max: None,
        engine: Engine::Sync,
        direct: false,
        flush: Flush::End,
        create: true,
        version: 1,
        accept: vec![1],
        read_back: 0,
    };
    let limit = Limit::default();
    let work = Work::Data(data);
    Job { work, workers, limit, verify: true, seed: 7, forget_pages: false, holds: Vec::new() }
}

#[test]
fn names_of_hosts_are_words_and_never_options_or_paths() {
    assert_eq!(names("h1, node-2.example,user@h3,[fe80::1%eth0]").unwrap().len(), 4);
    let many = vec!["h"; HOSTS_MAX + 1].join(",");
    for bad in ["", "h1,,h2", "-oProxyCommand=x", "a b", "../h1", "h1,h1", "h;1", many.as_str()] {
        assert!(names(bad).is_err(), "{bad}");
    }
}

#[test]
fn processes_are_placed_round_robin_or_in_blocks() {
    use Placement::{Block, RoundRobin};
    let table: [(Placement, usize, &[u32], &[usize]); 7] = [
        (RoundRobin, 2, &[4], &[0, 1, 0, 1]),
        (Block, 2, &[4], &[0, 0, 1, 1]),
        (Block, 2, &[3], &[0, 0, 1]),
        (RoundRobin, 3, &[2, 2], &[0, 1, 2, 0]),
        (Block, 2, &[2, 2], &[0, 1, 0, 1]),
        (Block, 4, &[2], &[0, 2]),
        (RoundRobin, 1, &[3], &[0, 0, 0]),
    ];
    for (placement, hosts, parts, want) in table {
        assert_eq!(place(placement, hosts, parts), want, "{placement:?} {hosts} {parts:?}");
    }
}

#[test]
fn a_command_for_several_hosts_names_the_host() {
    let command = Command::new("ip netns exec {host} env A={host}", 2, "/bin/stria".into(), &[]).unwrap();
    assert_eq!(command.shown("h2"), "ip netns exec h2 env A=h2");
    let said = Command::new("ssh h1", 2, "/bin/stria".into(), &[]).unwrap_err().to_string();
    assert!(said.contains("{host}"), "{said}");
    assert!(Command::new("env", 1, "/bin/stria".into(), &[]).is_ok());
}

#[test]
fn two_hosts_share_the_workers_and_each_has_its_own_paths() {
    let dir = TestDir::new("hosts-two");
    for host in ["h1", "h2"] {
        std::fs::create_dir(dir.path().join(host)).unwrap();
    }
    let here = dir.path().join("h1");
    let on_hosts = dir.path().join("{host}").display().to_string();
    for (placement, of_h1) in [(Placement::RoundRobin, [0, 2]), (Placement::Block, [0, 1])] {
        let mut crew = Crew::on_hosts(hosts(&[Fate::Works, Fate::Works]), "/".into(), Arc::default());
        crew.set_roots(vec![Root { here: here.clone(), on_hosts: on_hosts.clone() }]);
        crew.set_placement(placement);
        let stem = here.join(placement.title());
        for _ in 0..2 {
            let outcome = crew.run(&[(String::new(), write_job(&stem, 4))], 4).unwrap().remove(0);
            assert_eq!((outcome.ops, outcome.bytes, outcome.per_worker.len()), (16, 1 << 20, 4));
            let hosts: Vec<_> =
                outcome.per_host.iter().map(|h| (h.host.as_str(), h.workers, h.bytes)).collect();
            assert_eq!(hosts, [("h1", 2, 512 << 10), ("h2", 2, 512 << 10)]);
            assert!(outcome.seconds >= outcome.last_done && outcome.per_host.iter().all(|h| h.seconds > 0.0));
        }
        let is_there = |host: &str, worker: u32| {
            dir.path().join(host).join(format!("{}.{worker}", placement.title())).exists()
        };
        for worker in 0..4 {
            let is_of_h1 = of_h1.contains(&worker);
            assert_eq!(
                (is_there("h1", worker), is_there("h2", worker)),
                (is_of_h1, !is_of_h1),
                "{placement:?}"
            );
        }
        crew.settle().unwrap();
    }
}

/// The other hosts' workers end with the phase, and a next one reaches the hosts anew.
#[test]
fn a_host_that_fails_fails_the_phase_by_its_name() {
    let table = [
        (Fate::NotFound, "host h2: reach h2: no such program"),
        (
            Fate::Refuses,
            "host h2 (reach h2): it ended before it was there; it last said: Permission denied | please leave",
        ),
        (Fate::Silent, "host h2 (reach h2): it is silent for 0.2 s; it said nothing"),
        (Fate::Other, "host h2 (reach h2): it has stria 0.9 and this is 1"),
        (Fate::DiesAtGo, "host h2 (reach h2): it ended"),
    ];
    for (fate, want) in table {
        let dir = TestDir::new("hosts-fail");
        let mut both = hosts(&[Fate::Works, fate]);
        if fate == Fate::Silent {
            both.silence = Duration::from_millis(200);
        }
        let mut crew = Crew::on_hosts(both, "/".into(), Arc::default());
        let job = Job {
            // Only a failure of the phase ends this.
            limit: Limit { seconds: Some(3600.0), pace: Some(0.01), ..Limit::default() },
            ..write_job(&dir.path().join("data"), 2)
        };
        for _ in 0..2 {
            let said = format!("{:#}", crew.run(&[(String::new(), job.clone())], 2).unwrap_err());
            assert!(said.starts_with(want), "{fate:?}: {said}");
        }
    }
}

#[test]
fn a_worker_that_fails_is_told_with_its_host() {
    let dir = TestDir::new("hosts-worker");
    let mut crew = Crew::on_hosts(hosts(&[Fate::Works, Fate::Works]), "/".into(), Arc::default());
    std::fs::create_dir_all(dir.path().join("data.1/full")).unwrap();
    let job = write_job(&dir.path().join("data"), 2);
    let said = format!("{:#}", crew.run(&[(String::new(), job)], 2).unwrap_err());
    assert!(said.starts_with("host h2: worker 1: ") && said.contains("data.1"), "{said}");
}
