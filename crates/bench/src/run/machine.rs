//! The machine of a run: its limits before the first step, and its use during each row.

use anyhow::Result;

use super::Running;
use crate::limits::{self, Site};
use crate::record::{Line, Outcome};
use crate::system;
use crate::usage::{Usage, Watch};
use crate::work::now_ns;

impl Running<'_> {
    /// Records the limits of this machine, and begins to watch its use.
    pub(super) fn limits(&mut self) -> Result<()> {
        let Some(wanted) = &self.settings.limits else { return Ok(()) };
        let dir = &self.workspace.dirs[0];
        let file_system = system::mount_of(dir).map_or_else(String::new, |mount| mount.file_system);
        let site = Site {
            dir,
            file_system: &file_system,
            has_hosts: self.settings.hosts.is_some(),
            has_targets: !self.settings.environment.targets.is_empty(),
            budget_seconds: self.budget_seconds(),
        };
        let device = limits::backing(dir, wanted.device_dir.as_deref(), &file_system);
        self.progress.say("measuring the limits of this machine");
        let measured = limits::measure(wanted, &site, &device, &self.settings.stop);
        self.recorder.write(&Line::Limits(measured))?;
        // Workers on hosts use processors that this machine cannot see.
        if !site.has_hosts {
            self.watch = Watch::start(device.ok().map(|device| device.counters)).ok();
        }
        Ok(())
    }

    /// The use of the machine during an outcome. A program outside does not tell when it began: then since its start.
    pub(super) fn usage_of(&self, outcome: &Outcome, released_ns: u64) -> Option<Usage> {
        let begin = outcome.timeline.as_ref().map(|timeline| timeline.begin_seconds);
        let (begin, end) = match begin.filter(|begin| *begin > 0.0) {
            Some(begin) => (begin, begin + outcome.last_done.max(outcome.seconds)),
            None => (released_ns as f64 / 1e9, now_ns() as f64 / 1e9),
        };
        self.watch.as_ref()?.between(begin, end)
    }
}
