//! Starts the command that reaches a host.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use anyhow::{Context, Result, ensure};

use super::{HOST, on_host, words};

/// Reaches hosts.
pub trait Dial: Send + Sync {
    /// Starts what reaches the host; does not wait for its first line.
    fn dial(&self, host: &str) -> Result<Pipes>;
    /// The command as a user would type it, for messages and for the record.
    fn shown(&self, host: &str) -> String;
}

/// The ends of the talk with a host.
pub struct Pipes {
    pub input: Box<dyn Write + Send>,
    pub output: Box<dyn BufRead + Send>,
    pub errors: Option<Box<dyn Read + Send>>,
    /// The command, if it is a process of this machine.
    pub child: Option<Child>,
}

/// A command such as `ssh {host}`, and the words that make this program a host's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    words: Vec<String>,
    /// This program on the hosts.
    program: PathBuf,
    arguments: Vec<String>,
}

impl Command {
    /// `launch` is split into words as a shell does it. Without `{host}` in it, several hosts would be one.
    pub fn new(launch: &str, hosts: usize, program: PathBuf, arguments: &[&str]) -> Result<Command> {
        let words = words(launch)?;
        ensure!(
            hosts < 2 || words.iter().any(|word| word.contains(HOST)),
            "the command has no {HOST}, so that all hosts would be one: write ssh {HOST}, or srun -w {HOST}"
        );
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        Ok(Command { words, program, arguments })
    }
}

impl Dial for Command {
    fn dial(&self, host: &str) -> Result<Pipes> {
        let mut words = self.words.iter().map(|word| on_host(word, host));
        let program = words.next().context("a command needs a word")?;
        let mut command = std::process::Command::new(&program);
        command.args(words).arg(&self.program).args(&self.arguments);
        // A process group of its own: Ctrl-C reaches only the coordinator, which then stops the workers.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().with_context(|| format!("starting {program}"))?;
        let input = child.stdin.take().context("its input is a pipe")?;
        let output = child.stdout.take().context("its output is a pipe")?;
        let errors = child.stderr.take().map(|errors| Box::new(errors) as Box<dyn Read + Send>);
        Ok(Pipes {
            input: Box::new(input),
            output: Box::new(BufReader::new(output)),
            errors,
            child: Some(child),
        })
    }

    fn shown(&self, host: &str) -> String {
        self.words.iter().map(|word| on_host(word, host)).collect::<Vec<_>>().join(" ")
    }
}
