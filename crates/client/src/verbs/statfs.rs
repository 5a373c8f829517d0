//! Statfs and the targets' own numbers.

use std::fmt::Write;
use std::time::{Duration, Instant};

use types::{Code, Fault, Fid, NAME_MAX, PAGE_SIZE, TargetId};
use wire::session::{TargetStat, TargetStatReply};

use crate::Fs;
use crate::cache::api::StatFs;
use crate::session::cluster::About;

/// Validity of the numbers. Without it a program that asks after every write would double the requests.
const CACHED: Duration = Duration::from_secs(1);
/// Longest wait for a target, so that `df` shows the others while one is down.
const PATIENCE: Duration = Duration::from_secs(5);

impl Fs {
    pub fn statfs(&self) -> Result<StatFs, Fault> {
        let cached = *self.statfs_cache.lock();
        if let Some((_, stat)) = cached.filter(|(at, _)| at.elapsed() < CACHED) {
            return Ok(stat);
        }
        let stats = self.target_stats()?;
        let mut sum = StatFs { block_size: PAGE_SIZE as u32, name_max: NAME_MAX as u32, ..StatFs::default() };
        for stat in &stats {
            match stat.is_mdt {
                true => {
                    sum.files_total += stat.files_total;
                    sum.files_free += stat.files_free;
                }
                false => {
                    sum.bytes_total += stat.bytes_total;
                    sum.bytes_free += stat.bytes_free;
                    sum.bytes_available += stat.bytes_available;
                }
            }
        }
        *self.statfs_cache.lock() = Some((Instant::now(), sum));
        Ok(sum)
    }

    /// Numbers of every target that answers, the MDT first. Fails only if none answers.
    pub fn target_stats(&self) -> Result<Vec<TargetStatReply>, Fault> {
        let mut failed = None;
        let answered = self.ask_targets().into_iter().filter_map(|(_, answer)| match answer {
            Ok(stat) => Some(stat),
            Err(fault) => {
                failed = Some(fault);
                None
            }
        });
        let stats: Vec<TargetStatReply> = answered.collect();
        match (stats.is_empty(), failed) {
            (true, Some(fault)) => Err(fault),
            (true, None) => Err(Fault::new(Code::NotReady, "there is no target")),
            (false, _) => Ok(stats),
        }
    }

    /// Every target of the map, the MDT first, with its numbers or the reason why there are none.
    fn ask_targets(&self) -> Vec<(About, Result<TargetStatReply, Fault>)> {
        let deadline = self.deadline().min(Instant::now() + PATIENCE);
        let targets = self.cluster.targets();
        let ask = |about: About| {
            // A share of the time per target, so that a dead one leaves time for the others.
            let left = deadline.saturating_duration_since(Instant::now());
            let share = Instant::now() + left / 2;
            let answer = about.link.ask(Fid(0), &TargetStat {}, share).map(|answer| answer.reply);
            if let Err(fault) = &answer {
                tracing::warn!("{} does not say its numbers: {fault}", about.link.describe());
            }
            (about, answer)
        };
        targets.into_iter().map(ask).collect()
    }

    /// The value of the attribute `stria.df`. A target that does not answer has a reason instead of numbers.
    pub(crate) fn df_json(&self) -> Result<String, Fault> {
        let mut out = String::from("[");
        for (n, (about, answer)) in self.ask_targets().iter().enumerate() {
            let (comma, kind) = (if n == 0 { "" } else { "," }, if about.is_mdt { "mdt" } else { "ost" });
            let About { target: TargetId(target), index, .. } = about;
            let is_draining = self.cluster.is_draining(about.link.mirror);
            let draining = if is_draining { ",\"draining\":true" } else { "" };
            let begin =
                format!("{comma}{{\"target\":{target},\"kind\":\"{kind}\",\"index\":{index}{draining}");
            match answer {
                Ok(s) => write!(
                    out,
                    "{begin},\"state\":\"up\",\"uuid\":\"{}\",\"bytes_total\":{},\"bytes_free\":{},\
                     \"bytes_available\":{},\"files_total\":{},\"files_free\":{},\"sessions\":{},\"damage_count\":{}}}",
                    s.uuid, s.bytes_total, s.bytes_free, s.bytes_available, s.files_total, s.files_free,
                    s.sessions, s.damage_count
                ),
                Err(fault) => write!(out, "{begin},\"state\":\"down\",\"why\":{}}}", quoted(&fault.to_string())),
            }
            .expect("a String takes any text");
        }
        out.push(']');
        Ok(out)
    }
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
