//! Locks among processes, on one mount and on two: the same results as ext4, and the release at the end of a process, client or server.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use testkit::{Role, Wiring};

use super::sys::*;
use super::{Bench, Needs, Test};

pub const TESTS: &[Test] = &[
    ("locks::fcntl_ranges_as_on_the_local_file_system", fcntl_ranges),
    ("locks::random_requests_end_as_on_the_local_file_system", random_requests),
    ("locks::waits_end_with_the_lock_a_signal_or_the_process", waits),
    ("locks::a_circle_is_edeadlk", circle),
    ("locks::closing_gives_back_what_it_should", closing),
    ("locks::flock_and_open_file_descriptions", descriptions),
];
pub const OWN: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Local), ("locks::the_mount_of_up_and_another_one_never_hold_one_lock", beside_up)),
    (Needs::Own, ("locks::a_restart_of_the_mdt_loses_no_lock", restart)),
    (Needs::Only(Wiring::Two), ("locks::a_dead_client_holds_no_lock", dead_client)),
    (Needs::Only(Wiring::Two), ("locks::a_client_that_was_given_up_hears_of_it", evicted_client)),
];

/// Longest wait for an answer that must come.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// How long an answer that must not come is waited for: a wrong one comes within milliseconds.
const NO_ANSWER: Duration = Duration::from_millis(150);

/// A process that takes locks as it is told (`locker`).
struct Agent {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

impl Agent {
    fn start() -> Result<Agent> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child =
            command.arg("locker").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("locker")?;
        let orders = child.stdin.take().context("its input")?;
        let out = BufReader::new(child.stdout.take().context("its output")?);
        let (tell, answers) = channel();
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        Ok(Agent { child, orders, answers })
    }

    /// One that has `path` open as descriptor 0.
    fn at(path: &Path) -> Result<Agent> {
        let mut agent = Agent::start()?;
        agent.expect(&format!("open 0 rw {}", path.display()), "ok")?;
        Ok(agent)
    }

    fn begin(&mut self, order: &str) -> Result<()> {
        writeln!(self.orders, "{order}").context("the locker is gone")
    }
    fn answer(&mut self) -> Result<String> {
        self.answers.recv_timeout(ANSWER_MAX).context("the locker does not answer")
    }
    fn ask(&mut self, order: &str) -> Result<String> {
        self.begin(order)?;
        self.answer().with_context(|| order.to_owned())
    }
    fn expect(&mut self, order: &str, want: &str) -> Result<()> {
        ensure_eq(self.ask(order)?.as_str(), want, order)
    }
    fn expect_answer(&mut self, want: &str, what: &str) -> Result<()> {
        ensure_eq(self.answer()?.as_str(), want, what)
    }
    fn expect_waiting(&mut self, what: &str) -> Result<()> {
        match self.answers.recv_timeout(NO_ANSWER) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Ok(answer) => bail!("{what}: {answer}, and should wait"),
            Err(e) => bail!("{what}: {e}"),
        }
    }
    fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A file with 100 bytes, and a process at each mount that has it open.
fn two_at_one_file(b: &Bench, name: &str) -> Result<(Agent, Agent, std::path::PathBuf)> {
    let path = b.dir(name)?.join("f");
    std::fs::write(&path, [b'x'; 100])?;
    Ok((Agent::at(&path)?, Agent::at(&b.look(&path))?, path))
}

/// [S-locks] fcntl locks of bytes: they split, merge and convert, reach to the end of the file, and count from where they are told to.
fn fcntl_ranges(b: &mut Bench) -> Result<()> {
    let (mut one, mut two, path) = two_at_one_file(b, "fcntl_ranges")?;
    let shown = |agent: &mut Agent, want: &[&str]| -> Result<()> {
        // The ranges that the other holds, from the first byte to the last.
        let (mut at, mut found) = (0i64, vec![]);
        loop {
            let answer = agent.ask(&format!("test 0 posix w set {at} 0"))?;
            let words: Vec<&str> = answer.split(' ').collect();
            let [kind, start, len, _] = words[..] else { break };
            found.push(format!("{kind} {start} {len}"));
            let (start, len): (i64, i64) = (start.parse()?, len.parse()?);
            if len == 0 {
                break;
            }
            at = start + len;
        }
        ensure_eq(found.iter().map(String::as_str).collect::<Vec<_>>().as_slice(), want, "locks")
    };
    for (order, want) in [
        ("lock 0 posix w set 10 10", vec!["w 10 10"]),
        ("lock 0 posix w set 30 10", vec!["w 10 10", "w 30 10"]),
        ("lock 0 posix w set 20 10", vec!["w 10 30"]),
        ("lock 0 posix r set 15 10", vec!["w 10 5", "r 15 10", "w 25 15"]),
        ("lock 0 posix u set 20 10", vec!["w 10 5", "r 15 5", "w 30 10"]),
        ("lock 0 posix u set 0 0", vec![]),
        ("lock 0 posix w end -10 0", vec!["w 90 0"]),
        ("lock 0 posix u end 10 0", vec!["w 90 20"]),
        ("lock 0 posix u end -100 -0", vec![]),
        ("lock 0 posix r set 50 -10", vec!["r 40 10"]),
        ("lock 0 posix w cur 5 2", vec!["w 5 2", "r 40 10"]),
    ] {
        one.expect(order, "ok")?;
        shown(&mut two, &want).context(order)?;
    }
    one.expect("lock 0 posix w set -5 2", "EINVAL")?;
    two.expect("lock 0 posix r set 40 1", "ok")?;
    two.expect("lock 0 posix w set 40 1", "EAGAIN")?;
    two.expect("lock 0 posix r set 5 1", "EAGAIN")?;
    one.expect("lock 0 posix w set 40 1", "EAGAIN")?;
    // A read-only descriptor takes no write lock, and the other way round.
    one.expect(&format!("open 1 r {}", path.display()), "ok")?;
    one.expect("lock 1 posix w set 60 1", "EBADF")?;
    one.expect(&format!("open 2 w {}", path.display()), "ok")?;
    one.expect("lock 2 posix r set 60 1", "EBADF")?;
    // Within a mount the holder is named; another mount's processes have no numbers here.
    let pid = if b.cluster.second.is_some() { 0 } else { one.child.id() };
    two.expect("test 0 posix w set 5 1", &format!("w 5 2 {pid}"))
}

/// [S-locks] [S-flock] Whatever three processes ask for, without waiting, is answered as on the local file system.
fn random_requests(b: &mut Bench) -> Result<()> {
    let mut rng = b.rng();
    for round in 0..b.scale.seeds * 20 {
        let name = format!("random_requests{round}");
        let there = b.dir(&name)?.join("f");
        let here = b.cluster.dir.join(&name);
        let mut agents = vec![];
        for path in [&there, &here] {
            File::create(path)?;
            let agent = |n| if path == &there { Agent::at(&b.turn(n, path)) } else { Agent::at(path) };
            agents.push([agent(0)?, agent(1)?, agent(2)?]);
        }
        let mut is_open = [false; 3];
        for _ in 0..60 {
            let who = rng.below(3) as usize;
            let kind = *rng.pick(&["r", "w", "u"]);
            let fd = rng.below(2);
            let (start, len) = (rng.below(20), rng.below(10));
            let uses_second = |fd| if fd == 1 && !is_open[who] { vec!["open 1 rw"] } else { vec![] };
            let (before, order) = match rng.below(10) {
                0..5 => (vec![], format!("lock 0 posix {kind} set {start} {len}")),
                5 => (uses_second(fd), format!("lock {fd} ofd {kind} set {start} {len}")),
                6 | 7 => (uses_second(fd), format!("flock {fd} {kind}")),
                // The kernel tells of a last close without waiting for the answer: only what is given back before it is gone after it.
                8 if is_open[who] => (vec!["flock 1 u", "lock 1 ofd u set 0 0"], "close 1".to_owned()),
                _ => (vec![], format!("test 0 posix w set {start} {len}")),
            };
            is_open[who] = (is_open[who] || !before.is_empty()) && order != "close 1";
            let mut said = vec![];
            for (agents, path) in agents.iter_mut().zip([b.turn(who as u64, &there), here.clone()]) {
                for order in &before {
                    match order.starts_with("open") {
                        true => agents[who].expect(&format!("{order} {}", path.display()), "ok")?,
                        false => agents[who].expect(order, "ok")?,
                    }
                }
                let answer = agents[who].ask(&order)?;
                // Of several locks in the way any may be named.
                said.push(if order.starts_with("test") && answer != "free" {
                    "held".to_owned()
                } else {
                    answer
                });
            }
            ensure_eq(&said[0], &said[1], &format!("round {round}, process {who}: {order}"))?;
        }
        drop(agents);
        std::fs::remove_file(here)?;
    }
    Ok(())
}

/// [S-locks] [S-flock] A wait ends with the lock, with a signal, or with the process; meanwhile the mount serves others.
fn waits(b: &mut Bench) -> Result<()> {
    for take in ["lock 0 posix w set 0 10", "lock 0 ofd w set 0 10", "flock 0 w"] {
        let (mut one, mut two, path) = two_at_one_file(b, &format!("waits-{}", take.replace(' ', "-")))?;
        let release = take.replace(" w", " u");
        one.expect(take, "ok")?;
        two.expect(take, "EAGAIN")?;
        two.begin(&format!("{take} wait"))?;
        two.expect_waiting(take)?;
        one.expect(&release, "ok")?;
        two.expect_answer("ok", take)?;
        one.expect(take, "EAGAIN")?;
        // More waiting lock requests than threads that serve the mount: it goes on serving.
        let mut many = vec![];
        for n in 0..24 {
            let mut agent = Agent::at(&b.turn(n, &path))?;
            agent.begin(&format!("{take} wait"))?;
            many.push(agent);
        }
        many[23].expect_waiting(take)?;
        ensure_eq(std::fs::read(&path)?.len(), 100, "size")?;
        // A killed process leaves the queue, and its exit does not wait for the lock.
        many.pop().context("one of many")?.kill()?;
        two.expect(&release, "ok")?;
        for _ in 0..23 {
            let at = served(&many)?;
            many.remove(at).expect(&release, "ok")?;
        }
        one.expect(take, "ok")?;
    }
    // flock(1) waits with a timer whose signal interrupts it.
    let (mut one, _two, path) = two_at_one_file(b, "waits-signal")?;
    one.expect("flock 0 w", "ok")?;
    let look = b.look(&path);
    let ended = Command::new("flock").args(["-w", "0.2"]).arg(&look).arg("true").status()?;
    ensure_eq(ended.code(), Some(1), "flock -w")?;
    one.expect("flock 0 u", "ok")?;
    let ended = Command::new("flock").args(["-w", "60"]).arg(&look).arg("true").status()?;
    ensure_eq(ended.code(), Some(0), "flock -w of a free lock")
}

/// Index of the waiting agent that got its lock.
fn served(agents: &[Agent]) -> Result<usize> {
    let until = std::time::Instant::now() + ANSWER_MAX;
    while std::time::Instant::now() < until {
        for (at, agent) in agents.iter().enumerate() {
            if let Ok(answer) = agent.answers.recv_timeout(Duration::from_millis(1)) {
                ensure_eq(answer.as_str(), "ok", "a wait's end")?;
                return Ok(at);
            }
        }
    }
    bail!("no agent gets the free lock")
}

/// [S-locks] A request that would close a circle of waits fails with `EDEADLK`.
fn circle(b: &mut Bench) -> Result<()> {
    let (mut one, mut two, path) = two_at_one_file(b, "circle")?;
    let other = path.with_file_name("g");
    File::create(&other)?;
    one.expect(&format!("open 1 rw {}", other.display()), "ok")?;
    two.expect(&format!("open 1 rw {}", b.look(&other).display()), "ok")?;
    one.expect("lock 0 posix w set 0 1", "ok")?;
    two.expect("lock 1 posix w set 0 1", "ok")?;
    one.begin("lock 1 posix r set 0 1 wait")?;
    one.expect_waiting("the first waits")?;
    two.expect("lock 0 posix r set 0 1 wait", "EDEADLK")?;
    two.expect("lock 1 posix u set 0 0", "ok")?;
    one.expect_answer("ok", "the first is served")?;
    // Two that read, and both want to write.
    two.expect("lock 0 posix r set 50 1", "ok")?;
    one.expect("lock 0 posix r set 50 1", "ok")?;
    one.begin("lock 0 posix w set 50 1 wait")?;
    one.expect_waiting("the first waits")?;
    two.expect("lock 0 posix w set 50 1 wait", "EDEADLK")
}

/// [S-locks] A process that closes any descriptor of a file, or ends, gives back its fcntl locks of it; others' stay.
fn closing(b: &mut Bench) -> Result<()> {
    let (mut one, mut two, path) = two_at_one_file(b, "closing")?;
    for how in ["r", "rw"] {
        one.expect("lock 0 posix w set 0 1", "ok")?;
        two.expect("lock 0 posix w set 0 1", "EAGAIN")?;
        one.expect(&format!("open 1 {how} {}", path.display()), "ok")?;
        one.expect("close 1", "ok")?;
        two.expect("lock 0 posix w set 0 1", "ok")?;
        two.expect("lock 0 posix u set 0 1", "ok")?;
    }
    // A descriptor that another process has, too, is closed all the same.
    one.expect("lock 0 posix w set 0 1", "ok")?;
    one.expect("lend 0", "ok")?;
    one.expect("close 0", "ok")?;
    two.expect("lock 0 posix w set 0 1", "ok")?;
    // A process that is killed.
    let mut third = Agent::at(&path)?;
    third.expect("lock 0 posix w set 20 1", "ok")?;
    third.expect("flock 0 w", "ok")?;
    two.begin("lock 0 posix w set 20 1 wait")?;
    two.expect_waiting("held by the third")?;
    third.kill()?;
    two.expect_answer("ok", "the third was killed")?;
    two.expect("flock 0 w wait", "ok")
}

/// [S-flock] flock and open file description locks belong to the open file: they go with its last descriptor, in whatever process.
fn descriptions(b: &mut Bench) -> Result<()> {
    for take in ["lock 0 ofd w set 0 1", "flock 0 w"] {
        let (mut one, mut two, path) = two_at_one_file(b, &format!("descriptions-{}", take[..5].trim()))?;
        one.expect(take, "ok")?;
        // The same process, through another open: it is another's.
        one.expect(&format!("open 1 rw {}", path.display()), "ok")?;
        one.expect(&take.replace(" 0 ", " 1 ").replacen("set 1", "set 0", 1), "EAGAIN")?;
        one.expect("close 1", "ok")?;
        two.expect(take, "EAGAIN")?;
        // Its last descriptor is in another process.
        one.expect("lend 0", "ok")?;
        one.expect("close 0", "ok")?;
        two.expect(take, "EAGAIN")?;
        two.begin(&format!("{take} wait"))?;
        two.expect_waiting("the borrower has it")?;
        one.expect("unlend", "ok")?;
        two.expect_answer("ok", "the last descriptor is closed")?;
    }
    // fcntl and flock do not know of each other; fcntl locks of both kinds do.
    let (mut one, mut two, _) = two_at_one_file(b, "descriptions-kinds")?;
    one.expect("flock 0 w", "ok")?;
    two.expect("lock 0 posix w set 0 0", "ok")?;
    one.expect("lock 0 ofd r set 5 1", "EAGAIN")?;
    // A refused change of a flock gives up the old one.
    two.expect("flock 0 r", "EAGAIN")?;
    one.expect("flock 0 r", "ok")?;
    two.expect("flock 0 r", "ok")?;
    one.expect("flock 0 w", "EAGAIN")?;
    two.expect("flock 0 w", "ok")
}

/// [S-locks-restart] Locks and waits outlive a restart of the MDT, killed or stopped.
fn restart(b: &mut Bench) -> Result<()> {
    if b.cluster.wiring() == Wiring::Local {
        return Ok(());
    }
    let (mut one, mut two, path) = two_at_one_file(b, "restart")?;
    one.expect("lock 0 posix w set 0 10", "ok")?;
    one.expect("flock 0 w", "ok")?;
    two.expect("lock 0 posix w set 20 10", "ok")?;
    let mut waits = Agent::at(&b.look(&path))?;
    waits.begin("lock 0 posix w set 5 1 wait")?;
    waits.expect_waiting("held")?;
    for is_killed in [true, false, true] {
        match is_killed {
            true => b.cluster.kill(Role::Mds)?,
            false => b.cluster.terminate(Role::Mds, Duration::from_secs(30))?,
        }
        b.cluster.start_role(Role::Mds)?;
        two.expect("lock 0 posix w set 9 1", "EAGAIN")?;
        two.expect("flock 0 r", "EAGAIN")?;
        one.expect("lock 0 posix w set 20 1", "EAGAIN")?;
        one.expect("lock 0 posix w set 40 1", "ok")?;
        waits.expect_waiting("held")?;
    }
    one.expect("lock 0 posix u set 0 10", "ok")?;
    waits.expect_answer("ok", "given back after the restarts")
}

/// [S-locks] A lock is never given to the mount of `stria up` and to another one at once.
fn beside_up(b: &mut Bench) -> Result<()> {
    let (up, other) = (b.cluster.mount.clone(), b.cluster.dir.join("other"));
    std::fs::create_dir_all(&other)?;
    std::fs::write(up.join("beside"), "content")?;
    let source = format!("unix:{}/run/stria.sock:/stria", b.cluster.state_dir().display());
    let point = other.display().to_string();
    for flock in [false, true] {
        if flock {
            let dir = b.cluster.state_dir().display().to_string();
            b.cluster.stop()?;
            let up = up.display().to_string();
            let (code, out) = b.cluster.stria(&["up", "--dir", &dir, "--mount", &up, "-o", "flock"])?;
            anyhow::ensure!(code == 0, "{out}");
        }
        let (code, out) = b.cluster.stria(&["mount", &source, &point])?;
        anyhow::ensure!(code == 0, "{out}");
        let outcome = exclude(&up.join("beside"), &other.join("beside"), flock);
        run("umount", &[&point], Path::new("/"))?;
        outcome.with_context(|| format!("with `-o flock`: {flock}"))?;
    }
    let dir = b.cluster.state_dir().display().to_string();
    let (code, out) = b.cluster.stria(&["down", "--dir", &dir])?;
    anyhow::ensure!(code == 0, "{out}");
    b.cluster.start_all()
}

fn exclude(up: &Path, other: &Path, flock: bool) -> Result<()> {
    let (mut one, mut two) = (Agent::at(up)?, Agent::at(other)?);
    let (held, free) = if flock { ("EAGAIN", "ok") } else { ("ENOLCK", "ENOLCK") };
    one.expect("lock 0 posix w set 0 10", "ok")?;
    two.expect("lock 0 posix w set 0 10", held)?;
    two.expect("lock 0 posix w set 20 10", free)?;
    one.expect("flock 0 w", "ok")?;
    two.expect("flock 0 w", held)?;
    two.expect("lock 0 posix u set 0 100", "ok")
}

/// [S-locks-end] The locks of a client that dies are free after the session's time-out.
fn dead_client(b: &mut Bench) -> Result<()> {
    let (mut one, mut two, _) = two_at_one_file(b, "dead_client")?;
    one.expect("lock 0 posix w set 0 10", "ok")?;
    one.expect("flock 0 w", "ok")?;
    two.begin("lock 0 posix w set 0 1 wait")?;
    two.expect_waiting("held")?;
    b.cluster.kill(Role::Mount)?;
    two.expect_answer("ok", "its holder's client is dead")?;
    two.expect("flock 0 w wait", "ok")
}

/// [S-locks-end] A client whose session was ended while it was away does not go on as if it held its locks.
fn evicted_client(b: &mut Bench) -> Result<()> {
    let (mut one, mut two, _) = two_at_one_file(b, "evicted_client")?;
    one.expect("lock 0 posix w set 0 10", "ok")?;
    two.begin("lock 0 posix w set 0 1 wait")?;
    two.expect_waiting("held")?;
    b.cluster.freeze(Role::Mount)?;
    let freed = two.expect_answer("ok", "its holder's client is silent");
    b.cluster.thaw(Role::Mount)?;
    freed?;
    // The first call may have been in flight; no call may report success.
    one.expect("lock 0 posix w set 5 1", "EIO")?;
    one.expect("write 0 x", "EIO")
}
