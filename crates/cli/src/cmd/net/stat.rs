//! `stria net stat`: counters of connections, by peer.

use clap::Args;
use serde::Serialize;
use types::size::human;
use wire::fabric::{NetStat, NetStatReply, PeerStat};

use super::{Process, processes};
use crate::cmd::damage::Where;
use crate::exit::{Exit, Failure};

/// Show, for a mount and for each server, its connections by peer: frames and bytes since the process began, requests under way, how often
/// requests waited, connections opened and refused.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria net stat /mnt/stria\nExample: stria net stat --mgs 10.0.0.5@tcp -j")]
pub struct Stat {
    #[command(flatten)]
    place: Where,
}

/// One process.
#[derive(Debug, Serialize)]
struct Line {
    process: String,
    /// Threads that serve; 0 for a mount.
    workers: u32,
    connections: u32,
    memory_bytes: u64,
    memory_bytes_max: u64,
    peers: Vec<Peer>,
    /// Peers that are left out, the least busy ones.
    others: u32,
}

#[derive(Debug, Serialize)]
struct Peer {
    peer: String,
    connections: u32,
    under_way: u32,
    frames_out: u64,
    frames_in: u64,
    bytes_out: u64,
    bytes_in: u64,
    waits: u64,
    connects: u64,
    failures: u64,
}

impl Stat {
    pub fn run(self) -> anyhow::Result<Exit> {
        let (reach, _) = self.place.reach()?;
        let (mut lines, mut silent) = (Vec::new(), None);
        for process in processes(&self.place, &reach)? {
            match process.ask(&reach, &NetStat {}, "stria.net") {
                Ok(stat) => lines.push(line_of(&process, stat)),
                Err(e) => {
                    eprintln!("stria: {}: {e:#}", process.name());
                    let why = "it did not tell of its connections";
                    silent = Some(Failure::failed(process.name(), why, "`stria status` shows what is up"));
                }
            }
        }
        match self.place.json {
            true => outln!("{}", serde_json::to_string_pretty(&lines)?),
            false => lines.iter().for_each(|line| out!("{}", line.text())),
        }
        silent.map_or(Ok(Exit::Done), |failure| Err(failure.into()))
    }
}

fn line_of(process: &Process, stat: NetStatReply) -> Line {
    let NetStatReply { workers, connections, memory_bytes, memory_bytes_max, peers, others, .. } = stat;
    let peer_of = |p: PeerStat| Peer {
        peer: p.peer,
        connections: p.connections,
        under_way: p.under_way,
        frames_out: p.frames_out,
        frames_in: p.frames_in,
        bytes_out: p.bytes_out,
        bytes_in: p.bytes_in,
        waits: p.waits,
        connects: p.connects,
        failures: p.failures,
    };
    let peers = peers.into_iter().map(peer_of).collect();
    Line { process: process.name(), workers, connections, memory_bytes, memory_bytes_max, peers, others }
}

impl Line {
    fn text(&self) -> String {
        let mut out = format!("{}: {} connections", self.process, self.connections);
        if self.workers > 0 {
            let (used, max) = (human(self.memory_bytes), human(self.memory_bytes_max));
            out += &format!(", {} threads serve, frames take {used} of {max}", self.workers);
        }
        out += &format!(
            "\n    {:<22} {:>5} {:>5} {:>10} {:>10} {:>7} {:>7} {:>7} {:>7} {:>6}\n",
            "peer", "conns", "busy", "frames out", "frames in", "out", "in", "waits", "opened", "failed"
        );
        for p in &self.peers {
            out += &format!(
                "    {:<22} {:>5} {:>5} {:>10} {:>10} {:>7} {:>7} {:>7} {:>7} {:>6}\n",
                p.peer,
                p.connections,
                p.under_way,
                p.frames_out,
                p.frames_in,
                human(p.bytes_out),
                human(p.bytes_in),
                p.waits,
                p.connects,
                p.failures
            );
        }
        if self.others > 0 {
            out += &format!("    and {} peers more\n", self.others);
        }
        out
    }
}
