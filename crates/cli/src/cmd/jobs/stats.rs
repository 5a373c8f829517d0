//! `stria jobstats`: requests since the servers' start.

use clap::Args;
use serde::Serialize;

use super::sample::Sample;
use super::{By, Line, Order, sort, table};
use crate::cmd::damage::Where;
use crate::exit::{Exit, Failure};

/// Show what jobs, users, clients and targets have asked of the servers since these were started: requests, bytes, errors, and the time that
/// the servers took. A job is that of the scheduler (SLURM_JOB_ID, PBS_JOBID, LSB_JOBID, FLUX_JOB_ID or JOB_ID in the program's environment),
/// otherwise the program's name and user, as tar.1000. A job that is idle for ten minutes goes to (others).
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria jobstats /mnt/stria
Example: stria jobstats --by user --order bytes --mgs 10.0.0.5@tcp
An answer from the cache of a mount is not a request. Small files are sent later, several in one frame, which counts for one job.
Mount option: jobid_var=auto, disable, procname_uid, cgroup, or the name of a variable.
Exit codes: 0 all targets answered; 1 one did not; 2 the file system could not be asked.")]
pub struct JobStats {
    #[command(flatten)]
    place: Where,
    /// Rows.
    #[arg(long, value_enum, default_value = "job")]
    by: By,
    /// Order of the rows.
    #[arg(long, value_enum, default_value = "time")]
    order: Order,
    /// Show so many rows; 0: all.
    #[arg(short = 'n', long, default_value_t = 20)]
    rows: usize,
}

#[derive(Debug, Serialize)]
struct Report {
    by: By,
    rows: Vec<Line>,
}

impl JobStats {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        let (reach, fid) = self.place.reach()?;
        if fid.is_some() {
            let next = "give the mount point, or --dir";
            return Err(Failure::unusable("jobstats", "jobs are of the whole file system", next).into());
        }
        let (sample, silent) = Sample::take(&reach);
        let mut rows = sample.rows(self.by);
        sort(&mut rows, self.order);
        let count = rows.len();
        rows.truncate(if self.rows == 0 { usize::MAX } else { self.rows });
        match self.place.json {
            // The error line says why there is nothing. An empty report would say that there were no requests.
            _ if sample.is_empty() && silent.is_some() => {}
            true => {
                let report = Report { by: self.by, rows: rows.iter().map(Line::from).collect() };
                outln!("{}", serde_json::to_string_pretty(&report)?);
            }
            false if rows.is_empty() && silent.is_some() => {}
            false if rows.is_empty() => outln!("no requests of jobs yet"),
            false => {
                out!("{}", table(self.by, &rows, None));
                if count > rows.len() {
                    outln!("{} more rows; -n 0 shows all", count - rows.len());
                }
            }
        }
        match silent {
            Some(failure) => Err(failure.into()),
            None => Ok(Exit::Done),
        }
    }
}
