//! Mount options, as after `-o`: the common options of the field, what they mean here, and a refusal of all others.

use std::time::Duration;

use fuse::{JobId, MountFlags};
use mgmt::params::{JOBIDS, Param, READ_AHEAD_MAX, WRITE_BEHIND_MAX};
use net::routes::{check_net, parse_route};

use crate::exit::Failure;
use crate::nets::Nets;

/// The options of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Flags that the kernel applies: read-only, nosuid and so on.
    pub flags: MountFlags,
    /// `None`: other users may use it if root mounts.
    pub allow_other: Option<bool>,
    /// The mount may be idmapped.
    pub idmap: bool,
    /// Locks exclude those of other mounts, also where the servers are in the mount's process. `None`: not there.
    pub flock: Option<bool>,
    /// How the job of a request is found, if that is said.
    pub jobid: Option<JobId>,
    /// Largest read request, if limited.
    pub max_read: Option<u32>,
    /// Most bytes of buffered writes on their way to the OSTs; 0: `write` waits for them.
    pub write_behind: Option<u64>,
    /// Bytes that the kernel reads ahead for each open file.
    pub read_ahead: Option<u64>,
    pub op_timeout: Option<Duration>,
    /// Silence after which the host of a server counts as dead.
    pub dead_after: Option<Duration>,
    /// How long a mount waits for its servers. Zero: one try.
    pub retry: Duration,
    /// Nets that this host is on, and routes to others.
    pub nets: Nets,
}

/// Without `dead_after=`.
pub const DEAD_AFTER: Duration = Duration::from_secs(2);
/// Without `retry=`: longer than a server takes to boot.
pub const RETRY: Duration = Duration::from_secs(300);
/// A week. A longer wait means for ever, which a service manager does better.
const RETRY_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// As in nfs(5): minutes, or seconds with the suffix `s`.
fn retry(value: &str) -> Option<Duration> {
    let (number, unit_sec) = value.strip_suffix('s').map_or((value, 60), |number| (number, 1));
    let seconds = number.parse::<u64>().ok()?.checked_mul(unit_sec)?;
    Some(Duration::from_secs(seconds)).filter(|wait| *wait <= RETRY_MAX)
}

/// Stands for a variable that is none of the words before it.
const OTHER_VARIABLE: u64 = JOBIDS.len() as u64 - 1;

/// The value of the parameter.
fn number(jobid: &JobId) -> u64 {
    let is_it = |word: &&str| JobId::parse(word).as_ref() == Ok(jobid);
    let known = &JOBIDS[..OTHER_VARIABLE as usize];
    known.iter().position(is_it).map_or(OTHER_VARIABLE, |at| at as u64)
}

/// Accepted without effect: Stria always behaves so, or only mount(8) uses them.
const WITHOUT_EFFECT: [&str; 12] = [
    "acl",
    "_netdev",
    "user_xattr",
    "lazystatfs",
    "default_permissions",
    "auto",
    "noauto",
    "nofail",
    "nouser",
    "nogroup",
    "noowner",
    "fg",
];
/// Options of mount(8), ext4 or the field that Stria cannot follow, each with the reason.
const REFUSED: [(&str, &str); 6] = [
    ("noacl", "POSIX ACLs always decide; leave it out"),
    ("nouser_xattr", "extended attributes are always there; leave it out"),
    ("noflock", "flock locks are always there and hold among all mounts; leave it out"),
    ("strictatime", "access times are kept as by relatime; leave it out"),
    ("norelatime", "access times are kept as by relatime, or not at all with noatime; leave it out"),
    ("remount", "use `mount -o remount,... DIR`"),
];
/// Flags that `user` and similar options imply unless a later option reverts them, as in mount(8).
const UNTRUSTED: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);
/// A page: the kernel accepts no less.
const MAX_READ_MIN: u32 = 4096;

/// The kernel flags that an option sets, and those that it clears.
fn flags_of(word: &str) -> Option<(MountFlags, MountFlags)> {
    let none = MountFlags::empty();
    Some(match word {
        "ro" => (MountFlags::RDONLY, none),
        "rw" => (none, MountFlags::RDONLY),
        "nosuid" => (MountFlags::NOSUID, none),
        "suid" => (none, MountFlags::NOSUID),
        "nodev" => (MountFlags::NODEV, none),
        "dev" => (none, MountFlags::NODEV),
        "noexec" => (MountFlags::NOEXEC, none),
        "exec" => (none, MountFlags::NOEXEC),
        "noatime" => (MountFlags::NOATIME, MountFlags::RELATIME),
        "atime" => (none, MountFlags::NOATIME),
        "relatime" => (MountFlags::RELATIME, MountFlags::NOATIME),
        "nodiratime" => (MountFlags::NODIRATIME, none),
        "diratime" => (none, MountFlags::NODIRATIME),
        "sync" => (MountFlags::SYNCHRONOUS, none),
        "async" => (none, MountFlags::SYNCHRONOUS),
        "dirsync" => (MountFlags::DIRSYNC, none),
        "defaults" => (none, UNTRUSTED | MountFlags::RDONLY | MountFlags::SYNCHRONOUS),
        "user" | "users" | "group" => (UNTRUSTED, none),
        "owner" => (MountFlags::NOSUID | MountFlags::NODEV, none),
        _ => return None,
    })
}

impl Options {
    pub fn new() -> Options {
        Options {
            flags: MountFlags::empty(),
            allow_other: None,
            idmap: false,
            flock: None,
            max_read: None,
            write_behind: None,
            read_ahead: None,
            jobid: None,
            op_timeout: None,
            dead_after: None,
            retry: RETRY,
            nets: Nets::default(),
        }
    }

    /// Those that are values of parameters. They hold against kept ones.
    pub fn given(&self) -> Vec<(Param, u64)> {
        let ms = |time: Duration| time.as_millis() as u64;
        let given = [
            (Param::MountDeadAfter, self.dead_after.map(ms)),
            (Param::MountJobId, self.jobid.as_ref().map(number)),
            (Param::MountOpTimeout, self.op_timeout.map(ms)),
            (Param::MountReadAhead, self.read_ahead),
            (Param::MountWriteBehind, self.write_behind),
        ];
        given.into_iter().filter_map(|(param, value)| Some((param, value?))).collect()
    }

    /// The way of this value of the parameter.
    pub fn jobid_of(&self, value: u64) -> JobId {
        let word = JOBIDS.get(value as usize).filter(|_| value < OTHER_VARIABLE);
        let known = word.and_then(|word| JobId::parse(word).ok());
        known.or_else(|| self.jobid.clone()).unwrap_or_default()
    }

    /// Applies the value of each `-o`, in order.
    pub fn apply_all(&mut self, lists: &[String]) -> Result<(), Failure> {
        lists.iter().try_for_each(|list| {
            self.apply(list).map_err(|why| Failure::unusable("mount option", why, "see `stria mount --help`"))
        })
    }

    /// Applies a comma-separated list. An option that would silently have no effect is refused.
    pub fn apply(&mut self, list: &str) -> Result<(), String> {
        list.split(',').filter(|o| !o.is_empty()).try_for_each(|option| self.apply_one(option))
    }

    fn apply_one(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        if let Some((set, take)) = flags_of(name) {
            self.flags = self.flags.difference(take).union(set);
            return Ok(());
        }
        match name {
            "allow_other" => self.allow_other = Some(true),
            "idmap" => self.idmap = true,
            "noidmap" => self.idmap = false,
            "flock" => self.flock = Some(true),
            "localflock" => self.flock = Some(false),
            "no_allow_other" => self.allow_other = Some(false),
            "jobid_var" => {
                self.jobid = Some(JobId::parse(value).map_err(|why| format!("'{option}': {why}"))?);
            }
            "max_read" => {
                let bytes = value.parse().ok().filter(|bytes| *bytes >= MAX_READ_MIN);
                self.max_read =
                    Some(bytes.ok_or(format!("'{option}': give bytes, at least {MAX_READ_MIN}"))?);
            }
            "write_behind" => {
                let bytes = value.parse().ok().filter(|bytes| *bytes <= WRITE_BEHIND_MAX);
                self.write_behind =
                    Some(bytes.ok_or(format!("'{option}': give bytes, at most {WRITE_BEHIND_MAX}"))?);
            }
            "read_ahead" => {
                let bytes = value.parse().ok().filter(|bytes| *bytes <= READ_AHEAD_MAX);
                self.read_ahead =
                    Some(bytes.ok_or(format!("'{option}': give bytes, at most {READ_AHEAD_MAX}"))?);
            }
            "op_timeout" => {
                let seconds = value.parse().ok().filter(|s: &u64| *s > 0);
                let seconds = seconds.ok_or(format!("'{option}': give seconds, at least 1"))?;
                self.op_timeout = Some(Duration::from_secs(seconds));
            }
            "dead_after" => {
                let seconds = value.parse().ok().filter(|s: &f64| (0.1..=600.0).contains(s));
                let seconds = seconds.ok_or(format!("'{option}': give seconds, from 0.1 to 600"))?;
                self.dead_after = Some(Duration::from_secs_f64(seconds));
            }
            "net" => {
                check_net(value).map_err(|why| format!("'{option}': {why}"))?;
                self.nets.own.push(value.to_owned());
            }
            "route" => self.nets.routes.push(parse_route(value)?),
            "retry" => {
                let usage = "give minutes, or seconds as 30s; 0 tries once, a week is the most";
                self.retry = retry(value).ok_or(format!("'{option}': {usage}"))?;
            }
            _ if WITHOUT_EFFECT.contains(&name) || name.starts_with("x-") => {}
            _ => {
                let refused = REFUSED.iter().find(|(word, _)| *word == name);
                return Err(match refused {
                    Some((_, why)) => format!("'{name}': {why}"),
                    None => format!("'{option}' is no option of this file system"),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_options_are_taken_and_strange_ones_refused() {
        let mut options = Options::new();
        let usual = "rw,_netdev,localflock,flock,user_xattr,retry=5,x-systemd.automount,,allow_other";
        options.apply(usual).unwrap();
        let want = Options { allow_other: Some(true), flock: Some(true), ..Options::new() };
        assert_eq!(options, want);
        options
            .apply("localflock,ro,op_timeout=7,dead_after=0.5,no_allow_other,max_read=65536,write_behind=0,read_ahead=65536,idmap,jobid_var=MY_JOB")
            .unwrap();
        let want = Options {
            flags: MountFlags::RDONLY,
            allow_other: Some(false),
            idmap: true,
            flock: Some(false),
            max_read: Some(65_536),
            write_behind: Some(0),
            read_ahead: Some(65_536),
            jobid: Some(JobId::Variable("MY_JOB".into())),
            op_timeout: Some(Duration::from_secs(7)),
            dead_after: Some(Duration::from_millis(500)),
            retry: RETRY,
            nets: Nets::default(),
        };
        assert_eq!(options, want);
        let given = [
            (Param::MountDeadAfter, 500),
            (Param::MountJobId, OTHER_VARIABLE),
            (Param::MountOpTimeout, 7000),
            (Param::MountReadAhead, 65_536),
            (Param::MountWriteBehind, 0),
        ];
        assert_eq!((options.given(), Options::new().given()), (given.to_vec(), vec![]));
        for (list, seconds) in [("retry=2", 120), ("retry=30s", 30), ("retry=5,retry=0", 0)] {
            options.apply(list).unwrap();
            assert_eq!(options.retry, Duration::from_secs(seconds), "{list}");
        }
        options.apply("net=tcp0,route=tcp1=10.0.0.9:7020@tcp0").unwrap();
        let routes = ["tcp1 via 10.0.0.9:7020@tcp0".to_owned()];
        assert_eq!(options.nets, Nets::of(&["tcp0".to_owned()], &routes).unwrap());
        for bad in [
            "cheese",
            "op_timeout=0",
            "op_timeout",
            "max_read=17",
            "write_behind=all",
            "read_ahead=2000000000",
            "jobid_var=",
            "retry",
            "retry=1h",
            "retry=99999",
            "dead_after=0",
            "net=o2ib",
            "route=tcp1",
        ] {
            assert!(options.apply(bad).is_err(), "{bad}");
        }
        for (word, why) in REFUSED {
            assert_eq!(options.apply(word).unwrap_err(), format!("'{word}': {why}"));
        }
    }

    #[test]
    fn each_way_to_find_jobs_has_a_number() {
        let mut options = Options::new();
        options.apply("jobid_var=MY_JOB").unwrap();
        for (number_of_word, word) in JOBIDS.iter().enumerate().take(OTHER_VARIABLE as usize) {
            let jobid = JobId::parse(word).unwrap();
            assert_eq!(number(&jobid), number_of_word as u64, "{word}");
            assert_eq!(options.jobid_of(number_of_word as u64), jobid, "{word}");
        }
        assert_eq!(options.jobid_of(OTHER_VARIABLE), JobId::Variable("MY_JOB".into()));
        assert_eq!(Param::MountJobId.def().most, OTHER_VARIABLE - 1);
    }

    #[test]
    fn the_last_word_about_a_flag_counts_as_for_mount_8() {
        let table = [
            ("noatime", MountFlags::NOATIME),
            ("noatime,relatime", MountFlags::RELATIME),
            ("ro,nosuid,nodev,noexec,rw", UNTRUSTED),
            ("user", UNTRUSTED),
            ("user,exec,suid", MountFlags::NODEV),
            ("ro,user,defaults", MountFlags::empty()),
            ("sync,async", MountFlags::empty()),
            (
                "sync,dirsync,nodiratime",
                MountFlags::SYNCHRONOUS | MountFlags::DIRSYNC | MountFlags::NODIRATIME,
            ),
        ];
        for (list, want) in table {
            let mut options = Options::new();
            options.apply(list).unwrap();
            assert_eq!(options.flags, want, "{list}");
        }
    }
}
