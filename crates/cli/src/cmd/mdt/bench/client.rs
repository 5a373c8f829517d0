//! The client's part of the rows over TCP. It is a separate process for both sides and prints its result as JSON.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use net::Fabric;
use types::SessionId;
use wire::HEADER_LEN;

use super::asked::{Asked, Sizes};
use super::load::{Figure, World, looks};
use super::plain::Caller;
use super::rig::MDT;
use super::tree::Tree;
use crate::cmd::measure::threads::cpu_seconds;
use crate::exit::Exit;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Talk {
    Stat,
    Create,
    Echo,
}

/// Arguments of the client's process. It writes a `Figure` to its standard output.
#[derive(Clone, Debug, Args)]
pub struct Client {
    #[arg(long)]
    pub address: String,
    #[arg(long, value_enum)]
    pub talk: Talk,
    #[arg(long)]
    pub connections: usize,
    /// Requests of a frame.
    #[arg(long)]
    pub together: usize,
    #[arg(long)]
    pub seconds: f64,
    #[arg(long)]
    pub seed: u64,
    /// Files of the tree.
    #[arg(long)]
    pub entries: u64,
    /// Files that may be made.
    #[arg(long)]
    pub files_max: u64,
    #[arg(long)]
    pub session: u64,
    /// The slots' sequences begin after this one.
    #[arg(long)]
    pub sequence: u32,
    /// Of bodies.
    #[arg(long)]
    pub request_bytes: usize,
    #[arg(long)]
    pub reply_bytes: usize,
}

impl Client {
    pub fn run(&self) -> anyhow::Result<Exit> {
        let time = Duration::from_secs_f64(self.seconds);
        let stop = Arc::new(AtomicBool::new(false));
        if self.talk == Talk::Echo {
            let (request, reply) = (self.request_bytes + HEADER_LEN, self.reply_bytes + HEADER_LEN);
            let figure = looks(self.connections, self.entries, (time, self.seed, &stop), |_| {
                let mut caller = Caller::connect(&self.address, request, reply)?;
                Ok(move |_| caller.call())
            });
            return tell(&figure?);
        }
        let fabric = Fabric::new(None);
        let peer = fabric.peer_at(&self.address, MDT);
        let lanes = Arc::new(std::array::from_fn(|_| AtomicU32::new(self.sequence)));
        let session = SessionId(self.session);
        let tree = Tree { entries: self.entries };
        let mut asked = Asked { peer, session, lanes, dirs: vec![] };
        asked.find_dirs(tree)?;
        let mut world = World::new(asked, tree, self.files_max, false, stop);
        let many = (self.connections, self.together);
        let figure = match (self.talk, self.together) {
            (Talk::Stat, 1) => return tell(&world.stat(self.connections, time, self.seed)?),
            (Talk::Stat, _) => return tell(&world.stat_together(many, time, self.seed)?),
            (_, 1) => world.create(self.connections, time)?,
            _ => world.create_together(many, time)?,
        };
        // Reported before the row's files are removed, since the removal does not count.
        tell(&figure)?;
        world.clear()?;
        Ok(Exit::Done)
    }

    /// Runs it as a separate process; adds its CPU time to this one's.
    pub fn started(&self) -> anyhow::Result<Figure> {
        let mut command = Command::new(std::env::current_exe()?);
        let talk = self.talk.to_possible_value().context("each has a name")?;
        command.args(["mdt", "bench-client", "--address", &self.address, "--talk", talk.get_name()]);
        let numbers = [
            ("--connections", self.connections as u64),
            ("--together", self.together as u64),
            ("--seed", self.seed),
            ("--entries", self.entries),
            ("--files-max", self.files_max),
            ("--session", self.session),
            ("--sequence", self.sequence.into()),
            ("--request-bytes", self.request_bytes as u64),
            ("--reply-bytes", self.reply_bytes as u64),
        ];
        for (name, number) in numbers {
            command.args([name, &number.to_string()]);
        }
        command.args(["--seconds", &self.seconds.to_string()]);
        let before = cpu_seconds();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("the client")?;
        let mut said = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut said)?;
        }
        let cpu = cpu_seconds() - before;
        let status = child.wait()?;
        ensure!(status.success(), "the client's process ended with {status}");
        let mut figure: Figure = serde_json::from_str(&said).context("what the client said")?;
        figure.cpu_seconds += cpu;
        Ok(figure)
    }

    pub fn with_sizes(self, sizes: Sizes) -> Client {
        Client { request_bytes: sizes.request, reply_bytes: sizes.reply, ..self }
    }
}

fn tell(figure: &Figure) -> anyhow::Result<Exit> {
    outln!("{}", serde_json::to_string(figure)?);
    Ok(Exit::Done)
}
