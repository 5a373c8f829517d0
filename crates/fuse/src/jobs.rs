//! The job of a request: from the environment, the control group or the name of the calling process.
//!
//! fuse-J1: a request waits at most `LOOK_MAX` for `/proc` of its caller. The kernel reads a process's environment under locks that the
//! process may hold while it waits for this very request. An example is `execve`, which closes files under `exec_update_lock`.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use client::Fs;
use fusedev::Request;
use parking_lot::{Mutex, RwLock};
use rustix::time::{ClockId, clock_gettime};

/// How a process' job is found, as Lustre's `jobid_var`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum JobId {
    /// By the variable of a known scheduler, else by name and user.
    #[default]
    Auto,
    /// Jobs are not told.
    Disable,
    /// By program name and user: `tar.1000`.
    ProcnameUid,
    /// The last part of the path of the control group.
    Cgroup,
    /// The value of this variable, else by name and user.
    Variable(String),
}

/// Variables of schedulers: Slurm, PBS, LSF, Flux, Grid Engine.
const VARIABLES: [&str; 5] = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "JOB_ID"];
/// After so long a process is looked at again: it may have executed another program, or its number is another's. A launcher changes its
/// directory, and then executes the program of the job: at first it is soon.
const FRESH_MIN: Duration = Duration::from_millis(1);
const FRESH_MAX: Duration = Duration::from_secs(30);
/// Processes that are known; then all are forgotten.
const KNOWN_MAX: usize = 16_384;
const SHARDS: usize = 16;
/// How long a request waits until its caller has been looked at (fuse-J1).
const LOOK_MAX: Duration = Duration::from_millis(10);
/// After a look that took longer, the caller's requests go on without one for so long.
const SLOW_FOR: Duration = Duration::from_secs(1);
/// Looks at a time. Each that cannot end keeps a thread until its caller goes on.
const LOOKS_MAX: usize = 8;

impl JobId {
    pub fn parse(word: &str) -> Result<JobId, String> {
        Ok(match word {
            "auto" => JobId::Auto,
            "disable" => JobId::Disable,
            "procname_uid" => JobId::ProcnameUid,
            "cgroup" => JobId::Cgroup,
            name if !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => {
                JobId::Variable(name.to_owned())
            }
            _ => return Err(
                "give auto, disable, procname_uid, cgroup, or the name of a variable such as SLURM_JOB_ID"
                    .into(),
            ),
        })
    }

    /// The job of a process. One that is gone, or outside of this pid namespace, has none.
    fn of(&self, pid: u32, uid: u32) -> Option<String> {
        let read = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).ok();
        let by_variables = |names: &[&str]| {
            let environment = read("environ")?;
            names.iter().find_map(|name| value_in(&environment, name))
        };
        let by_name = || {
            let name = read("comm")?;
            Some(format!("{}.{uid}", String::from_utf8_lossy(&name).trim_end()))
        };
        match self {
            _ if pid == 0 => None,
            JobId::Disable => None,
            JobId::Auto => by_variables(&VARIABLES).or_else(by_name),
            JobId::Variable(name) => by_variables(&[name]).or_else(by_name),
            JobId::ProcnameUid => by_name(),
            JobId::Cgroup => read("cgroup").and_then(|text| last_part(&text)).or_else(by_name),
        }
    }
}

/// The way of a mount, which may change while it is in use.
#[derive(Debug, Default)]
pub struct JobIds {
    by: RwLock<JobId>,
    /// Odd while jobs are not told. It rises with each change, so that callers that are known are looked at again.
    turn: AtomicU32,
}

impl JobIds {
    pub fn new(by: JobId) -> JobIds {
        let turn = AtomicU32::new((by == JobId::Disable).into());
        JobIds { by: RwLock::new(by), turn }
    }

    pub fn set(&self, by: JobId) {
        let mut before = self.by.write();
        if *before != by {
            let turn = (self.turn.load(Ordering::Relaxed) | 1).wrapping_add(1);
            self.turn.store(turn + u32::from(by == JobId::Disable), Ordering::Release);
            *before = by;
        }
    }

    /// `None`: jobs are not told.
    fn turn(&self) -> Option<u32> {
        Some(self.turn.load(Ordering::Acquire)).filter(|turn| turn.is_multiple_of(2))
    }
}

fn value_in(environment: &[u8], name: &str) -> Option<String> {
    let of = |entry: &[u8]| {
        let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        (!value.is_empty()).then(|| String::from_utf8_lossy(value).into_owned())
    };
    environment.split(|byte| *byte == 0).find_map(of)
}

/// Of a line such as `0::/system.slice/job_17.scope`.
fn last_part(cgroup: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(cgroup);
    let path = text.lines().last()?.rsplit(':').next()?;
    path.rsplit('/').next().filter(|part| !part.is_empty()).map(str::to_owned)
}

#[derive(Clone, Copy)]
struct Seen {
    pid: u32,
    uid: u32,
    tag: u32,
    /// Of `JobIds` when its job was found.
    turn: u32,
    /// By `now`.
    at: Duration,
    fresh_for: Duration,
}

/// A process whose job is looked for.
#[derive(Clone, Copy)]
struct Caller {
    pid: u32,
    uid: u32,
    turn: u32,
}

/// A clock that ticks every few milliseconds: to read it costs a request least.
fn now() -> Duration {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

impl Seen {
    fn is_of(&self, caller: Caller) -> bool {
        (self.pid, self.uid, self.turn) == (caller.pid, caller.uid, caller.turn)
    }
    fn is_fresh(&self) -> bool {
        now().saturating_sub(self.at) < self.fresh_for
    }
    /// How long a look holds, after one that held for so long.
    fn fresh_after(before: Option<Duration>) -> Duration {
        before.map_or(FRESH_MIN, |before| (before * 2).min(FRESH_MAX))
    }
}

/// Callers that a thread remembers: those of a program with several threads take turns.
const LAST_CALLERS: usize = 16;

thread_local! {
    /// The last callers of this thread by process, with the address of their `Callers`.
    static LAST: [Cell<Option<(usize, Seen)>>; LAST_CALLERS] = const { [const { Cell::new(None) }; LAST_CALLERS] };
}

/// Callers by process, with the tags of their jobs.
#[derive(Clone, Default)]
pub struct Callers(Arc<Known>);

#[derive(Default)]
struct Known {
    shards: [Mutex<HashMap<u32, Seen>>; SHARDS],
    looks: AtomicUsize,
}

/// A look that is under way.
struct Look(Callers);

impl Drop for Look {
    fn drop(&mut self) {
        self.0.0.looks.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Callers {
    /// Sets the job of the requests that this thread sends for `request`.
    pub fn begin(&self, by: &JobIds, fs: &Arc<Fs>, request: &Request) {
        // The thread may still have the tag of a request before the change.
        let Some(turn) = by.turn() else { return client::set_job(0) };
        let (pid, uid, me) = (request.pid(), request.uid(), Arc::as_ptr(&self.0).addr());
        let caller = Caller { pid, uid, turn };
        let is_right = |of: usize, seen: &Seen| of == me && seen.is_of(caller) && seen.is_fresh();
        let at = pid as usize % LAST_CALLERS;
        let last = LAST.with(|last| last[at].get());
        if let Some((_, seen)) = last.filter(|(of, seen)| is_right(*of, seen)) {
            return client::set_job(seen.tag);
        }
        let before = self.known(caller);
        let seen = match before.filter(Seen::is_fresh) {
            Some(seen) => Some(seen),
            // A caller that executes a program is known under its new name only afterwards.
            None if request.is_flush() => None,
            None => {
                let (by, fs) = (by.by.read().clone(), fs.clone());
                let tag = move || by.of(pid, uid).map_or(0, |job| fs.job_tag(&job, uid));
                self.look(caller, before, tag)
            }
        };
        LAST.with(|last| last[at].set(seen.map(|seen| (me, seen))));
        client::set_job(seen.or(before).map_or(0, |seen| seen.tag));
    }

    fn known(&self, caller: Caller) -> Option<Seen> {
        self.shard(caller.pid).lock().get(&caller.pid).filter(|seen| seen.is_of(caller)).copied()
    }

    fn shard(&self, pid: u32) -> &Mutex<HashMap<u32, Seen>> {
        &self.0.shards[pid as usize % SHARDS]
    }

    /// The result of `tag`, by a thread that may wait for the caller. None if that takes too long: a later request learns it.
    fn look(
        &self,
        caller: Caller,
        before: Option<Seen>,
        tag: impl FnOnce() -> u32 + Send + 'static,
    ) -> Option<Seen> {
        let Caller { pid, uid, turn } = caller;
        let looks = self.0.looks.fetch_add(1, Ordering::AcqRel);
        let look = Look(self.clone());
        if looks >= LOOKS_MAX {
            return None;
        }
        let (tell, told) = mpsc::sync_channel(1);
        let find = move || {
            let tag = tag();
            let fresh_for =
                Seen::fresh_after(before.filter(|seen| seen.tag == tag).map(|seen| seen.fresh_for));
            let seen = Seen { pid, uid, tag, turn, at: now(), fresh_for };
            look.0.keep(seen);
            let _ = tell.send(seen);
        };
        thread::Builder::new().name("caller".into()).spawn(find).ok()?;
        let seen = told.recv_timeout(LOOK_MAX).ok();
        if seen.is_none() && self.known(caller).is_none_or(|seen| !seen.is_fresh()) {
            let tag = before.map_or(0, |seen| seen.tag);
            self.keep(Seen { pid, uid, tag, turn, at: now(), fresh_for: SLOW_FOR });
        }
        seen
    }

    fn keep(&self, seen: Seen) {
        let mut known = self.shard(seen.pid).lock();
        if known.len() >= KNOWN_MAX / SHARDS {
            known.retain(|_, seen| seen.is_fresh());
            if known.len() >= KNOWN_MAX / SHARDS {
                known.clear();
            }
        }
        known.insert(seen.pid, seen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(pid: u32) -> Caller {
        Caller { pid, uid: 0, turn: 0 }
    }

    #[test]
    fn a_caller_is_looked_at_again_after_a_change_of_the_way() {
        let by = JobIds::new(JobId::Auto);
        let first = by.turn().expect("jobs are told");
        by.set(JobId::Auto);
        assert_eq!(by.turn(), Some(first));
        by.set(JobId::Disable);
        assert_eq!((by.turn(), JobIds::new(JobId::Disable).turn()), (None, None));
        by.set(JobId::Cgroup);
        let turn = by.turn().expect("jobs are told");
        assert_ne!(turn, first);
        let callers = Callers::default();
        callers.keep(Seen { pid: 5, uid: 0, tag: 1, turn: first, at: now(), fresh_for: FRESH_MAX });
        assert!(callers.known(Caller { turn, ..caller(5) }).is_none());
        assert!(callers.known(Caller { turn: first, ..caller(5) }).is_some());
    }

    #[test]
    fn a_variable_is_found_by_its_whole_name_and_an_empty_one_is_none() {
        let environment = b"A=1\0SLURM_JOB_ID_OLD=7\0SLURM_JOB_ID=4711\0PBS_JOBID=\0";
        assert_eq!(value_in(environment, "SLURM_JOB_ID").as_deref(), Some("4711"));
        assert_eq!(value_in(environment, "PBS_JOBID"), None);
        assert_eq!(value_in(environment, "JOB_ID"), None);
    }

    #[test]
    fn a_process_is_looked_at_again_soon_and_then_seldom() {
        let mut fresh_for = Seen::fresh_after(None);
        assert_eq!(fresh_for, FRESH_MIN);
        (0..20).for_each(|_| fresh_for = Seen::fresh_after(Some(fresh_for)));
        assert_eq!(fresh_for, FRESH_MAX);
    }

    #[test]
    fn a_caller_that_cannot_be_looked_at_delays_no_request_and_is_known_later() {
        let callers = Callers::default();
        let (go_on, wait) = mpsc::channel::<()>();
        let slow = move || {
            wait.recv().expect("the test goes on");
            9
        };
        assert!(callers.look(caller(5), None, slow).is_none());
        let for_now = callers.known(caller(5)).expect("an entry for a second");
        assert_eq!((for_now.tag, for_now.is_fresh()), (0, true));
        // Others are looked at meanwhile.
        assert_eq!(callers.look(caller(6), None, || 3).map(|seen| seen.tag), Some(3));
        go_on.send(()).expect("the look waits");
        while callers.known(caller(5)).is_none_or(|seen| seen.tag != 9) {
            thread::yield_now();
        }
    }

    #[test]
    fn looks_that_cannot_end_are_few() {
        let callers = Callers::default();
        let ends: Vec<_> = (0..LOOKS_MAX as u32)
            .map(|pid| {
                let (end, wait) = mpsc::channel::<()>();
                assert!(callers.look(caller(pid), None, move || wait.recv().map_or(1, |()| 1)).is_none());
                end
            })
            .collect();
        assert!(callers.look(caller(100), None, || unreachable!("one look too many")).is_none());
        drop(ends);
        while callers.0.looks.load(Ordering::Acquire) > 0 {
            thread::yield_now();
        }
        assert_eq!(callers.look(caller(100), None, || 4).map(|seen| seen.tag), Some(4));
    }

    #[test]
    fn a_control_group_is_named_by_the_last_part_of_its_path() {
        assert_eq!(last_part(b"0::/system.slice/slurmstepd.scope/job_17\n").as_deref(), Some("job_17"));
        assert_eq!(last_part(b"0::/\n"), None);
    }

    #[test]
    fn a_process_without_a_schedulers_variable_has_its_name_and_user() {
        let me = std::process::id();
        let comm = std::fs::read_to_string("/proc/self/comm").expect("comm");
        // The tests may themselves run in a job.
        let job = JobId::ProcnameUid.of(me, 7).expect("a job");
        assert_eq!(job, format!("{}.7", comm.trim_end()));
        assert_eq!(JobId::Variable("STRIA_NO_SUCH_VARIABLE".into()).of(me, 7), Some(job));
        assert_eq!((JobId::Auto.of(0, 7), JobId::Disable.of(me, 7)), (None, None));
    }

    #[test]
    fn words_are_ways_and_others_are_variables() {
        assert_eq!(JobId::parse("procname_uid"), Ok(JobId::ProcnameUid));
        assert_eq!(JobId::parse("MY_JOB"), Ok(JobId::Variable("MY_JOB".into())));
        assert!(JobId::parse("").is_err() && JobId::parse("a b").is_err());
    }
}
