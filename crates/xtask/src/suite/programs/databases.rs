//! Shared by the tests of databases: a client that commits transactions in sequence and remembers the acknowledged ones.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Longest wait for one more transaction, or for the shell's end: longer than servers are away, or a shell waits for another's lock.
const STUCK: Duration = Duration::from_secs(150);

/// A shell of a database with one transaction per line. It ends when it is told to, or when a transaction fails.
pub struct Committer {
    child: Child,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    feeder: JoinHandle<()>,
    reader: JoinHandle<()>,
    complaints: Option<JoinHandle<String>>,
}

impl Committer {
    /// Starts `command` and sends it the lines that `transaction` makes of `first`, `first` + 1 …, each when the one before is
    /// acknowledged. Each must print its own number, and nothing else, once it is committed.
    pub fn start(
        mut command: Command,
        first: u64,
        transaction: impl Fn(u64) -> String + Send + 'static,
    ) -> Result<Committer> {
        let program = format!("{:?} (installed?)", command.get_program());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context(program)?;
        let (Some(mut stdin), Some(stdout), Some(mut stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            bail!("no pipes to the database's shell");
        };
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicU64::new(first - 1));
        let (go_on, turn) = std::sync::mpsc::channel::<u64>();
        let (stopped, done) = (stop.clone(), acknowledged.clone());
        let feeder = std::thread::spawn(move || {
            let mut next = first;
            while !stopped.load(Ordering::Relaxed) {
                if writeln!(stdin, "{}", transaction(next)).and_then(|()| stdin.flush()).is_err() {
                    return;
                }
                // The reader ends with the shell.
                match turn.recv() {
                    Ok(n) => next = n + 1,
                    Err(_) => return,
                }
            }
        });
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(|l| l.ok()) {
                if let Ok(n) = line.trim().parse::<u64>() {
                    done.store(n, Ordering::SeqCst);
                    let _ = go_on.send(n);
                }
            }
        });
        let complaints = Some(std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        }));
        Ok(Committer { child, stop, acknowledged, feeder, reader, complaints })
    }

    /// The last transaction that the database has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Waits until `n` is acknowledged; fails with the shell's complaint if it ends before.
    pub fn wait_for(&mut self, n: u64) -> Result<()> {
        let (mut seen, mut since) = (self.acknowledged(), Instant::now());
        while self.acknowledged() < n {
            if self.acknowledged() > seen {
                (seen, since) = (self.acknowledged(), Instant::now());
            }
            if since.elapsed() > STUCK {
                self.child.kill()?;
                bail!("the database acknowledges nothing after {seen}, for {STUCK:?}");
            }
            if let Some(status) = self.child.try_wait()? {
                let complaints = self.complaints();
                bail!("the database's shell ended at {}: {status}: {complaints}", self.acknowledged());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Sends no more; gives the last acknowledged transaction. With `must_live`, fails if the shell complained of anything.
    pub fn finish(mut self, must_live: bool) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        // The feeder ends with the transaction under way and closes the shell's input; that ends the shell.
        let until = Instant::now() + STUCK;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if Instant::now() > until {
                self.child.kill()?;
                bail!("the database's shell does not end at {}, for {STUCK:?}", self.acknowledged());
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let complaints = self.complaints();
        let _ = self.feeder.join();
        let _ = self.reader.join();
        if must_live && (!status.success() || !complaints.is_empty()) {
            bail!("the database failed though its files were always there: {status}: {complaints}");
        }
        Ok(self.acknowledged.load(Ordering::SeqCst))
    }

    /// Of a shell that has ended.
    fn complaints(&mut self) -> String {
        self.complaints.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }

    pub fn kill(mut self) -> Result<u64> {
        self.child.kill()?;
        self.finish(false)
    }
}
