//! The paths of a gateway's files.

use std::path::{Path, PathBuf};

/// All paths lie below `/`, or below the directory of `--base`.
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
    /// The default places, where systemd looks for units.
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
    /// The model; `enable` and `disable` change it, and all other files derive from it.
    pub fn kept(&self) -> PathBuf {
        self.dir().join(format!("{}.toml", self.kind))
    }
    /// The server's configuration.
    pub fn config(&self) -> PathBuf {
        self.dir().join(if self.kind == "nfs" { "ganesha.conf" } else { "smb.conf" })
    }
    /// The lock that admits one `enable` or `disable` at a time.
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
    /// Files that the server needs after a restart: recovery records, accounts.
    pub fn state(&self) -> PathBuf {
        self.base.join("var/lib/stria/gateway").join(self.kind)
    }
    /// Files that go with a reboot.
    pub fn run(&self) -> PathBuf {
        self.base.join("run/stria/gateway").join(self.kind)
    }
    pub fn pid_file(&self) -> PathBuf {
        self.run().join(if self.kind == "nfs" { "ganesha.pid" } else { "smbd.pid" })
    }
    pub fn log(&self) -> PathBuf {
        self.base.join("var/log/stria").join(format!("gateway-{}.log", self.kind))
    }
    /// The directories that the server needs, with their modes.
    pub fn server_dirs(&self) -> Vec<(PathBuf, u32)> {
        let mut dirs = vec![(self.state(), 0o755), (self.run(), 0o755)];
        if self.kind == "smb" {
            dirs.extend([
                // Accounts with their password hashes.
                (self.state().join("private"), 0o700),
                (self.state().join("state"), 0o755),
                (self.state().join("cache"), 0o755),
                (self.run().join("ncalrpc"), 0o755),
            ]);
        }
        dirs
    }
}
