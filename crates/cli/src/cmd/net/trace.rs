//! `stria net trace`: frames as they go.

use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use wire::Flags;
use wire::fabric::{FRAMES_MAX, NetTrace, Traced};

use super::{Process, processes};
use crate::cmd::damage::Where;
use crate::exit::{Exit, Failure};
use crate::reach::Reach;

/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(200);

/// Show frames that a mount and the servers send and receive, from now on until Ctrl-C. Tracing is off otherwise, and goes off 10 s after
/// the last look. Content is not shown.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: stria net trace /mnt/stria --count 50\nExample: stria net trace --dir /tmp/s --process mount --seconds 5"
)]
pub struct Trace {
    #[command(flatten)]
    place: Where,
    /// Only processes whose name contains this: mount, management, or a server's name.
    #[arg(long, value_name = "NAME")]
    process: Option<String>,
    /// End after so many frames.
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    /// End after so many seconds.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
}

/// A frame.
#[derive(Debug, Serialize)]
struct Line<'a> {
    process: &'a str,
    at_us: u64,
    peer: &'a str,
    /// From the process.
    is_out: bool,
    is_reply: bool,
    call: &'a str,
    target: u32,
    session: u64,
    request: u64,
    body_bytes: u32,
    bulk_bytes: u32,
}

/// A process, and how far it was read.
struct Source {
    process: Process,
    name: String,
    after: u64,
}

impl Trace {
    pub fn run(self) -> anyhow::Result<Exit> {
        let (reach, _) = self.place.reach()?;
        let is_wanted = |name: &str| self.process.as_ref().is_none_or(|part| name.contains(part));
        let sources = processes(&self.place, &reach)?.into_iter().map(|process| {
            let name = process.name();
            Source { process, name, after: 0 }
        });
        let mut sources: Vec<Source> = sources.filter(|source| is_wanted(&source.name)).collect();
        if sources.is_empty() {
            let next = "`stria net stat` names the processes";
            return Err(Failure::unusable("net trace", "no process has such a name", next).into());
        }
        let until = self.seconds.map(|s| Instant::now() + Duration::from_secs(s));
        let mut left = self.count.unwrap_or(u64::MAX);
        loop {
            for source in &mut sources {
                left = self.show(&reach, source, left)?;
            }
            if left == 0 || until.is_some_and(|until| Instant::now() >= until) {
                return Ok(Exit::Done);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Shows the frames since the last look, at most `left`. Returns how many are left.
    fn show(&self, reach: &Reach, source: &mut Source, mut left: u64) -> anyhow::Result<u64> {
        let request = NetTrace { after: source.after, max: FRAMES_MAX as u32 };
        let attribute = format!("stria.net.trace.{}", source.after);
        let reply = source.process.ask(reach, &request, &attribute)?;
        if reply.lost > 0 {
            eprintln!("stria: {}: {} frames went by unseen", source.name, reply.lost);
        }
        for frame in reply.frames {
            source.after = frame.number;
            if left > 0 {
                self.print(&source.name, &frame)?;
                left -= 1;
            }
        }
        Ok(left)
    }

    fn print(&self, process: &str, frame: &Traced) -> anyhow::Result<()> {
        let unknown = format!("{:#06x}", frame.call);
        let line = Line {
            process,
            at_us: frame.at_us,
            peer: &frame.peer,
            is_out: frame.is_out,
            is_reply: frame.flags & Flags::REPLY != 0,
            call: if frame.call == wire::frame::PING {
                "Ping"
            } else {
                wire::call_name(frame.call).unwrap_or(&unknown)
            },
            target: frame.target,
            session: frame.session,
            request: frame.request,
            body_bytes: frame.body_bytes,
            bulk_bytes: frame.bulk_bytes,
        };
        match self.place.json {
            true => outln!("{}", serde_json::to_string(&line)?),
            false => outln!("{}", line.text()),
        }
        Ok(())
    }
}

impl Line<'_> {
    fn text(&self) -> String {
        let (sec, us) = (self.at_us / 1_000_000, self.at_us % 1_000_000);
        let way = if self.is_out { "to" } else { "from" };
        let kind = if self.is_reply { "answer" } else { "request" };
        format!(
            "{:02}:{:02}:{:02}.{us:06} {}: {way} {}: {kind} {} {}, target {}, session {}, {} + {} bytes",
            sec / 3600 % 24,
            sec / 60 % 60,
            sec % 60,
            self.process,
            self.peer,
            self.request,
            self.call,
            self.target,
            self.session,
            self.body_bytes,
            self.bulk_bytes
        )
    }
}
