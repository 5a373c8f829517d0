//! Statfs and the targets' own numbers.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use types::{Code, Fault, Fid, NAME_MAX, PAGE_SIZE};
use wire::session::{TargetStat, TargetStatReply};

use crate::Fs;
use crate::api::StatFs;
use crate::link::Link;

/// How long numbers are good for: a program that asks after every write would double the requests.
const CACHED: Duration = Duration::from_secs(1);
/// Longest wait for one target: `df` of a cluster with a target down shows the others.
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

    /// The numbers of every target that answers, the MDT first. An error only if none does.
    pub fn target_stats(&self) -> Result<Vec<TargetStatReply>, Fault> {
        let deadline = self.deadline().min(Instant::now() + PATIENCE);
        let mut links: Vec<Arc<Link>> = vec![self.mdt(Fid::ROOT)?];
        links.extend(self.cluster.osts().into_iter().map(|(_, link)| link));
        let mut stats = Vec::with_capacity(links.len());
        let mut failed = None;
        for link in &links {
            // Each target has its share of the time, so that a dead one does not take the others'.
            let left = deadline.saturating_duration_since(Instant::now());
            let share = Instant::now() + left / 2;
            match link.ask(Fid(0), &TargetStat {}, share) {
                Ok(answer) => stats.push(answer.reply),
                Err(fault) => {
                    tracing::warn!("{} does not say its numbers: {fault}", link.describe());
                    failed = Some(fault);
                }
            }
        }
        match (stats.is_empty(), failed) {
            (true, Some(fault)) => Err(fault),
            (true, None) => Err(Fault::new(Code::NotReady, "there is no target")),
            (false, _) => Ok(stats),
        }
    }

    /// For the attribute `stria.df`.
    pub(crate) fn df_json(&self) -> Result<String, Fault> {
        let mut out = String::from("[");
        for (n, s) in self.target_stats()?.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            let kind = if s.is_mdt { "mdt" } else { "ost" };
            write!(
                out,
                "{comma}{{\"target\":{},\"kind\":\"{kind}\",\"index\":{},\"uuid\":\"{}\",\"bytes_total\":{},\"bytes_free\":{},\
                 \"bytes_available\":{},\"files_total\":{},\"files_free\":{},\"sessions\":{},\"damage_count\":{}}}",
                s.target, s.index, s.uuid, s.bytes_total, s.bytes_free, s.bytes_available, s.files_total, s.files_free,
                s.sessions, s.damage_count
            )
            .expect("a String takes any text");
        }
        out.push(']');
        Ok(out)
    }
}
