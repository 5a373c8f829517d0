//! Mount options as after `-o`: those that users of the field write, what they mean here, and a refusal of all others.

use std::time::Duration;

use fuse::MountFlags;

use crate::exit::Failure;

/// What a mount was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What the kernel minds: read-only, nosuid and their like.
    pub flags: MountFlags,
    /// `None`: others may use it if root mounts.
    pub allow_other: Option<bool>,
    /// Largest read request, if smaller ones are wanted.
    pub max_read: Option<u32>,
    pub op_timeout: Duration,
}

/// Taken and without effect: what they ask for is always so, or is the mount helper's own business.
const WITHOUT_EFFECT: [&str; 14] = [
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
    "async",
    "norelatime",
];
/// Taken though the kernel's FUSE does it per node only until leases exist: locks are local to one node.
const LOCAL_LOCKS: [&str; 4] = ["flock", "localflock", "noflock", "retry"];
/// What `user` and its like take away unless a later word gives it back: as mount(8) has it.
const UNTRUSTED: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);
/// A page: the kernel takes no less.
const MAX_READ_MIN: u32 = 4096;

/// What a word does to the kernel's flags: those that it sets, those that it takes away.
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
        "dirsync" => (MountFlags::DIRSYNC, none),
        "defaults" => (none, UNTRUSTED | MountFlags::RDONLY | MountFlags::SYNCHRONOUS),
        "user" | "users" | "group" => (UNTRUSTED, none),
        "owner" => (MountFlags::NOSUID | MountFlags::NODEV, none),
        _ => return None,
    })
}

impl Options {
    pub fn new(op_timeout: Duration) -> Options {
        Options { flags: MountFlags::empty(), allow_other: None, max_read: None, op_timeout }
    }

    /// What stands after each `-o`, in order.
    pub fn apply_all(&mut self, lists: &[String]) -> Result<(), Failure> {
        lists.iter().try_for_each(|list| {
            self.apply(list).map_err(|why| Failure::unusable("mount option", why, "see `stria mount --help`"))
        })
    }

    /// Applies a comma-separated list. An option that would silently do nothing that it promises is refused.
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
            "no_allow_other" => self.allow_other = Some(false),
            "max_read" => {
                let bytes = value.parse().ok().filter(|bytes| *bytes >= MAX_READ_MIN);
                self.max_read =
                    Some(bytes.ok_or(format!("'{option}': give bytes, at least {MAX_READ_MIN}"))?);
            }
            "op_timeout" => {
                let seconds = value.parse().ok().filter(|s: &u64| *s > 0);
                self.op_timeout = seconds
                    .map(Duration::from_secs)
                    .ok_or(format!("'{option}': give seconds, at least 1"))?;
            }
            _ if WITHOUT_EFFECT.contains(&name) || LOCAL_LOCKS.contains(&name) || name.starts_with("x-") => {}
            "noacl" => return Err("'noacl': POSIX ACLs always decide; leave it out".into()),
            "strictatime" => {
                return Err("'strictatime': access times are kept as by relatime; leave it out".into());
            }
            "remount" => {
                return Err("'remount': use `mount -i -o remount,...`, which asks the kernel only".into());
            }
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
        options.apply("ro,op_timeout=7,no_allow_other,max_read=65536").unwrap();
        let want = Options {
            flags: MountFlags::RDONLY,
            allow_other: Some(false),
            max_read: Some(65_536),
            op_timeout: Duration::from_secs(7),
        };
        assert_eq!(options, want);
        for bad in ["noacl", "cheese", "op_timeout=0", "op_timeout", "max_read=17", "strictatime", "remount"]
        {
            assert!(options.apply(bad).is_err(), "{bad}");
        }
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
            (
                "sync,dirsync,nodiratime",
                MountFlags::SYNCHRONOUS | MountFlags::DIRSYNC | MountFlags::NODIRATIME,
            ),
        ];
        for (list, want) in table {
            let mut options = Options::new(Duration::from_secs(60));
            options.apply(list).unwrap();
            assert_eq!(options.flags, want, "{list}");
        }
    }
}
