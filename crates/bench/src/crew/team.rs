//! The worker processes of a crew: of this machine, or of hosts.

use std::io::{BufRead, Write};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{LOOK, Launcher, Link, Seat, Stopped};
use crate::cache::CacheState;
pub(super) use crate::hosts::Heard;
use crate::hosts::{Fleet, Hosts, ToHost};
use crate::work::now_ns;
use crate::worker::Order;

/// Something that a host told; this machine is host 0 where there are no others.
pub struct Event {
    pub host: usize,
    pub heard: Heard,
}

pub struct Team {
    side: Side,
    sender: Sender<Event>,
    events: Receiver<Event>,
    /// When silent hosts are looked for again.
    look_ns: u64,
}

enum Side {
    Here { launcher: Box<dyn Launcher>, members: Vec<Member> },
    Hosts(Fleet),
}

struct Member {
    input: Option<Box<dyn Write + Send>>,
    child: Option<Child>,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.input = None;
        if let Some(child) = &mut self.child {
            // The worker ends when its input ends. This wait lasts as long as a call of it hangs in a file system.
            child.wait().ok();
        }
    }
}

impl Team {
    pub fn here(launcher: Box<dyn Launcher>) -> Team {
        Team::of(Side::Here { launcher, members: Vec::new() })
    }

    pub fn on_hosts(hosts: Hosts) -> Team {
        Team::of(Side::Hosts(Fleet::new(hosts)))
    }

    fn of(side: Side) -> Team {
        let (sender, events) = channel();
        Team { side, sender, events, look_ns: 0 }
    }

    /// How many hosts there are to place processes on.
    pub fn hosts(&self) -> usize {
        match &self.side {
            Side::Here { .. } => 1,
            Side::Hosts(fleet) => fleet.hosts.names.len(),
        }
    }

    /// `None` for this machine.
    pub fn host_name(&self, host: usize) -> Option<&str> {
        match &self.side {
            Side::Here { .. } => None,
            Side::Hosts(fleet) => Some(fleet.name(host)),
        }
    }

    /// Makes sure that there is a process for each seat.
    pub fn grow(&mut self, seats: &[Seat]) -> Result<()> {
        match &mut self.side {
            Side::Here { launcher, members } => {
                while members.len() < seats.len() {
                    let number = members.len();
                    members.push(Member::new(launcher.launch()?, number, self.sender.clone())?);
                }
                Ok(())
            }
            Side::Hosts(_) => self.reach(),
        }
    }

    fn reach(&mut self) -> Result<()> {
        let Side::Hosts(fleet) = &mut self.side else { return Ok(()) };
        let sender = self.sender.clone();
        fleet.reach(&(Arc::new(move |host, heard| sender.send(Event { host, heard }).is_ok()) as Arc<_>))
    }

    pub fn tell(&mut self, host: usize, process: usize, order: &Order) -> Result<()> {
        let text = serde_json::to_string(order)?;
        match &mut self.side {
            Side::Here { members, .. } => {
                let input = members[process].input.as_mut().context("a worker that is gone")?;
                let line = text + "\n";
                input
                    .write_all(line.as_bytes())
                    .and_then(|()| input.flush())
                    .context("a worker process has ended")
            }
            Side::Hosts(fleet) => {
                fleet.tell(host, ToHost::Process(process, &text));
                Ok(())
            }
        }
    }

    /// The next event, if one comes in time. A host that is silent is an error.
    pub fn next(&mut self, wait: Duration) -> Result<Option<Event>> {
        let event = match self.events.recv_timeout(wait) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => bail!("all workers are gone"),
        };
        // Also while others talk: hundreds of workers leave no pause.
        let now = now_ns();
        if let Side::Hosts(fleet) = &self.side
            && now >= self.look_ns
        {
            self.look_ns = now + LOOK.as_nanos() as u64;
            if let Some(why) = fleet.silent(now) {
                bail!("{why}");
            }
        }
        Ok(event)
    }

    /// Has all hosts write their dirty data back, or drop their caches too.
    pub fn caches(&mut self, drop: bool, stop: &AtomicBool) -> Result<Vec<CacheState>> {
        self.reach()?;
        let Side::Hosts(fleet) = &self.side else { return Ok(Vec::new()) };
        let count = fleet.hosts.names.len();
        for host in 0..count {
            fleet.tell(host, if drop { ToHost::Cool } else { ToHost::Settle });
        }
        let mut states = Vec::new();
        while states.len() < count {
            if stop.load(Ordering::Relaxed) {
                return Err(Stopped.into());
            }
            match self.next(LOOK)?.map(|event| event.heard) {
                Some(Heard::Cache(state)) => states.push(state),
                Some(Heard::Lost(why)) => bail!("{why}"),
                // A process that ended between phases is started anew.
                Some(Heard::Process { answer: None, .. }) => {
                    bail!("a worker process has ended between two phases")
                }
                Some(Heard::Process { .. }) | None => {}
            }
        }
        Ok(states)
    }

    /// Ends all workers, and forgets what they said last.
    pub fn disband(&mut self) {
        self.dismiss();
        let (sender, events) = channel();
        (self.sender, self.events) = (sender, events);
    }

    /// Closes all inputs before it waits for any worker, so that one that hangs does not keep the others running.
    fn dismiss(&mut self) {
        match &mut self.side {
            Side::Here { members, .. } => {
                members.iter_mut().for_each(|member| member.input = None);
                members.clear();
            }
            Side::Hosts(fleet) => fleet.dismiss(),
        }
    }

    #[cfg(test)]
    pub fn members(&self) -> usize {
        match &self.side {
            Side::Here { members, .. } => members.len(),
            Side::Hosts(_) => 0,
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.dismiss();
    }
}

impl Member {
    fn new(link: Link, number: usize, sender: Sender<Event>) -> Result<Member> {
        let Link { input, output, child } = link;
        let say = move |answer, at_ns| {
            sender.send(Event { host: 0, heard: Heard::Process { process: number, answer, at_ns } })
        };
        std::thread::Builder::new().name("answers".into()).spawn(move || {
            for line in output.lines() {
                let answer = line.ok().and_then(|l| serde_json::from_str(&l).ok());
                let is_end = answer.is_none();
                if say(answer, now_ns()).is_err() || is_end {
                    return;
                }
            }
            say(None, now_ns()).ok();
        })?;
        Ok(Member { input: Some(input), child })
    }
}
