//! Hosts whose workers take part: their names, the command that reaches each, and the placement of processes.
//!
//! bench-H1. One command reaches a host. It is started without a shell, and its standard input and output are the only connection.
//! bench-H2. A host that ends, cannot be reached or is silent fails the phase by its name, with the last lines of its command.
//! bench-H3. Clocks of hosts are never compared: times of a host count from its own release from the barrier.
//!
//! `dial` starts the command, `link` is the coordinator's end of it, `serve` the host's end, `line` has the lines between the two.

mod dial;
mod line;
mod link;
mod serve;
mod words;

#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};

pub use dial::{Command, Dial, Pipes};
pub(crate) use line::ToHost;
pub(crate) use link::{Fleet, Heard};
pub use serve::serve;
pub use words::words;

/// A run with more hosts than this would start as many commands at once.
const HOSTS_MAX: usize = 1024;
/// Of a name, which becomes a word of a command.
const NAME_MAX: usize = 255;
/// A host that is at work says so each second.
pub(crate) const BEAT: Duration = Duration::from_secs(1);
/// Without a line for so long a host is taken for dead: logins through directory services take up to 20 s.
pub const SILENCE: Duration = Duration::from_secs(30);

/// The hosts of a run.
#[derive(Clone)]
pub struct Hosts {
    pub names: Vec<String>,
    /// Starts the command of a host.
    pub dial: Arc<dyn Dial>,
    /// A host that says nothing for so long fails its phase.
    pub silence: Duration,
    /// Of this program: a host with another one is refused.
    pub version: String,
}

impl std::fmt::Debug for Hosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hosts").field("names", &self.names).field("silence", &self.silence).finish()
    }
}

/// Which host gets which process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Process `p` is on host `p mod n`.
    #[default]
    RoundRobin,
    /// The first processes are on the first host, the next ones on the second.
    Block,
}

impl Placement {
    pub fn title(self) -> &'static str {
        match self {
            Placement::RoundRobin => "round-robin",
            Placement::Block => "block",
        }
    }
}

/// The host of each process, for parts of so many processes that run at once; in the order of the parts.
pub fn place(placement: Placement, hosts: usize, parts: &[u32]) -> Vec<usize> {
    let hosts = hosts.max(1);
    let in_blocks = |count: &u32| {
        let count = *count as usize;
        (0..count).map(move |process| process * hosts / count)
    };
    match placement {
        // Counted on over the parts: parts of one process each do not all go to the first host.
        Placement::RoundRobin => (0..parts.iter().sum::<u32>() as usize).map(|at| at % hosts).collect(),
        Placement::Block => parts.iter().flat_map(in_blocks).collect(),
    }
}

/// `h1,h2,h3` as names. A name becomes part of a command, so that it may look neither like an option nor like a path.
pub fn names(text: &str) -> Result<Vec<String>> {
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    check_names(&names)?;
    Ok(names)
}

/// Refuses names that no host has, and a host that is named twice.
pub fn check_names(names: &[String]) -> Result<()> {
    ensure!(!names.is_empty(), "no host is named: give names with commas between, such as h1,h2");
    ensure!(names.len() <= HOSTS_MAX, "{} hosts are too many: give {HOSTS_MAX} at most", names.len());
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._-@:%[]".contains(c);
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        if name.is_empty() || name.len() > NAME_MAX || name.starts_with('-') || !name.chars().all(is_part) {
            bail!(
                "'{}' is no name of a host: use letters, digits and ._-@:%[], and no - at its begin",
                name.escape_debug()
            );
        }
        ensure!(seen.insert(name), "host {name} is named twice: name each once");
    }
    Ok(())
}

/// A path or word as it is on one host.
pub fn on_host(text: &str, host: &str) -> String {
    text.replace(HOST, host)
}

/// Stands for the name of the host.
pub const HOST: &str = "{host}";
