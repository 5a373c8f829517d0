//! Where the files of a gateway are.

use std::path::{Path, PathBuf};

/// Below `/`, or below what `--base` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    base: PathBuf,
    kind: &'static str,
}

impl Places {
    pub fn new(base: &Path, kind: &'static str) -> Places {
        Places { base: base.to_owned(), kind }
    }
    pub fn of(&self, kind: &'static str) -> Places {
        Places { base: self.base.clone(), kind }
    }
    /// The host's own places: systemd looks there.
    pub fn are_the_hosts(&self) -> bool {
        self.base == Path::new("/")
    }
    /// The value of `--base`, if it is not the default.
    pub fn base_option(&self) -> Option<String> {
        (!self.are_the_hosts()).then(|| self.base.display().to_string())
    }
    pub fn dir(&self) -> PathBuf {
        self.base.join("etc/stria/gateway")
    }
    /// The model, which `enable` and `disable` change and everything else is made of.
    pub fn kept(&self) -> PathBuf {
        self.dir().join(format!("{}.toml", self.kind))
    }
    /// What the server reads.
    pub fn config(&self) -> PathBuf {
        self.dir().join(if self.kind == "nfs" { "ganesha.conf" } else { "smb.conf" })
    }
    /// One `enable` or `disable` at a time.
    pub fn lock(&self) -> PathBuf {
        self.dir().join(".lock")
    }
    pub fn unit_dir(&self) -> PathBuf {
        self.base.join("etc/systemd/system")
    }
    pub fn unit_name(&self) -> String {
        format!("stria-gateway-{}.service", self.kind)
    }
    pub fn unit(&self) -> PathBuf {
        self.unit_dir().join(self.unit_name())
    }
    pub fn mount_unit(&self, point: &Path) -> PathBuf {
        self.unit_dir().join(super::units::mount_unit_name(point))
    }
    /// What the server must find again after a restart: recovery records, accounts.
    pub fn state(&self) -> PathBuf {
        self.base.join("var/lib/stria/gateway").join(self.kind)
    }
    /// Gone with a reboot.
    pub fn run(&self) -> PathBuf {
        self.base.join("run/stria/gateway").join(self.kind)
    }
    pub fn pid_file(&self) -> PathBuf {
        self.run().join(if self.kind == "nfs" { "ganesha.pid" } else { "smbd.pid" })
    }
    pub fn log(&self) -> PathBuf {
        self.base.join("var/log/stria").join(format!("gateway-{}.log", self.kind))
    }
    /// Every directory that the server needs, with what others may do there.
    pub fn server_dirs(&self) -> Vec<(PathBuf, u32)> {
        let mut dirs = vec![(self.state(), 0o755), (self.run(), 0o755)];
        if self.kind == "smb" {
            dirs.extend([
                // The accounts with their password hashes.
                (self.state().join("private"), 0o700),
                (self.state().join("state"), 0o755),
                (self.state().join("cache"), 0o755),
                (self.run().join("ncalrpc"), 0o755),
            ]);
        }
        dirs
    }
}
