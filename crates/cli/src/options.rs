//! Mount options as after `-o`: those that users of the field write, what they mean here, and a refusal of all others.

use std::time::Duration;

/// What a mount was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub read_only: bool,
    /// `None`: others may use it if root mounts.
    pub allow_other: Option<bool>,
    pub op_timeout: Duration,
}

/// Taken and without effect: what they ask for is always so, or is the mount helper's own business.
const WITHOUT_EFFECT: [&str; 17] = [
    "rw",
    "defaults",
    "_netdev",
    "user_xattr",
    "lazystatfs",
    "default_permissions",
    "auto",
    "noauto",
    "nofail",
    "user",
    "nouser",
    "users",
    "dev",
    "suid",
    "exec",
    "atime",
    "fg",
];
/// Taken though the kernel's FUSE does it per node only until leases exist: locks are local to one node.
const LOCAL_LOCKS: [&str; 4] = ["flock", "localflock", "noflock", "retry"];

impl Options {
    pub fn new(op_timeout: Duration) -> Options {
        Options { read_only: false, allow_other: None, op_timeout }
    }

    /// Applies a comma-separated list. An option that would silently do nothing that it promises is refused.
    pub fn apply(&mut self, list: &str) -> Result<(), String> {
        list.split(',').filter(|o| !o.is_empty()).try_for_each(|option| self.apply_one(option))
    }

    fn apply_one(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name {
            "ro" => self.read_only = true,
            "allow_other" => self.allow_other = Some(true),
            "no_allow_other" => self.allow_other = Some(false),
            "op_timeout" => {
                let seconds = value.parse().ok().filter(|s: &u64| *s > 0);
                self.op_timeout = seconds
                    .map(Duration::from_secs)
                    .ok_or(format!("'{option}': give seconds, at least 1"))?;
            }
            _ if WITHOUT_EFFECT.contains(&name) || LOCAL_LOCKS.contains(&name) || name.starts_with("x-") => {}
            "acl" => return Err("'acl': POSIX ACLs are not there yet; leave it out".into()),
            _ => {
                return Err(format!("'{option}' is no option of this file system; see `stria mount --help`"));
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
        let mut options = Options::new(Duration::from_secs(60));
        options.apply("rw,_netdev,flock,user_xattr,retry=5,x-systemd.automount,,allow_other").unwrap();
        assert_eq!(options, Options { allow_other: Some(true), ..Options::new(Duration::from_secs(60)) });
        options.apply("ro,op_timeout=7,no_allow_other").unwrap();
        let want = Options { read_only: true, allow_other: Some(false), op_timeout: Duration::from_secs(7) };
        assert_eq!(options, want);
        for bad in ["acl", "cheese", "op_timeout=0", "op_timeout", "nosuid"] {
            assert!(options.apply(bad).is_err(), "{bad}");
        }
    }
}
