//! The model of a gateway: the mount that it serves, its server's settings, and its exports or shares. Pure: nothing here touches the host.
//!
//! cli-GM1: all texts of a gateway derive from `nfs.toml` and `smb.toml` alone: the same model gives the same bytes.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::places::Places;
use super::{asking, ganesha, samba};
use crate::exit::Failure;

/// The default port of NFS.
pub const NFS_PORT: u16 = 2049;
/// The default port of SMB.
pub const SMB_PORT: u16 = 445;
/// The MOUNT service of NFS 3: a fixed port, so that a firewall can pass it.
pub const MOUNTD_PORT: u16 = 20_048;
/// The usual value of NFS servers: a client that was away for less gets its locks back.
pub const GRACE_SEC: u32 = 90;
/// The lock service of NFS 3.
pub const LOCKS_PORT: u16 = 32_803;

/// The mount that a gateway serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    pub point: PathBuf,
    /// `NID:/fsname`, if the gateway owns this mount. Otherwise another unit or fstab makes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// As after `-o` of `stria mount`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// Where the server listens, and the site's own configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    pub port: u16,
    /// The only address that it listens on; without it, all addresses of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<IpAddr>,
    /// A file of the site in the server's own language.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include: Option<PathBuf>,
}

/// The users of NFS clients that are mapped to the anonymous user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Squash {
    #[default]
    Root,
    All,
    None,
}

impl Squash {
    pub fn word(self) -> &'static str {
        match self {
            Squash::Root => "root",
            Squash::All => "all",
            Squash::None => "none",
        }
    }
}

/// A directory that NFS clients may mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Export {
    /// The id in the server's tables. It stays with the path as long as the export exists: clients' handles contain it.
    pub id: u16,
    /// From the root of the file system; clients mount it under the same name.
    pub path: String,
    #[serde(default)]
    pub read_only: bool,
    #[serde(default)]
    pub squash: Squash,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anonuid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anongid: Option<u32>,
    /// Empty: every host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The gateway looks up a user's groups itself; clients send 16 at most.
    #[serde(default)]
    pub server_groups: bool,
}

/// A directory that SMB clients may connect to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    pub name: String,
    /// From the root of the file system.
    pub path: String,
    #[serde(default)]
    pub read_only: bool,
    /// All access happens as this user of the gateway's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub squash: Option<String>,
    /// Empty: every host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Only these users may connect; `@NAME` is a group. Empty: every user with an SMB password.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// Access without a password, as the guest account.
    #[serde(default)]
    pub guest: bool,
    /// Only SMB clients of this gateway use the directory, so they may cache it.
    #[serde(default)]
    pub exclusive: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nfs {
    /// Versions: 3, 4.
    pub protocols: Vec<u8>,
    /// How long a started server waits until clients reclaim locks and open files; 0: not at all.
    pub grace_sec: u32,
    /// The highest export id so far.
    #[serde(default)]
    pub last_id: u16,
    pub mount: Mount,
    pub server: Server,
    #[serde(default, rename = "export")]
    pub exports: Vec<Export>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Smb {
    pub workgroup: String,
    pub mount: Mount,
    pub server: Server,
    #[serde(default, rename = "share")]
    pub shares: Vec<Share>,
}

/// An export or share as it is shown to users and programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The name that clients use: the path of an export, the name of a share.
    pub name: String,
    /// From the root of the file system.
    pub path: String,
    /// The directory on this host.
    pub directory: PathBuf,
    /// `ro` or `rw`.
    pub access: &'static str,
    /// NFS: `root`, `all` or `none`. SMB: the user of all access, or `none`.
    pub squash: String,
    /// Empty: every host.
    pub hosts: Vec<String>,
    /// The other words of the option.
    pub options: Vec<String>,
}

/// The state of an entry at a running server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Served,
    /// The entry is for other hosts, and the server hides it from this one.
    Hidden,
    /// Not served, with the reason.
    Not(String),
}

/// Whether a running server has reported that it read its configuration again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reread {
    Seen,
    /// Not in time. It may still serve by the previous configuration.
    Unseen,
}

/// The program of a gateway's server.
pub struct Daemon {
    pub program: &'static str,
    /// Arguments for systemd, which wants it in the foreground.
    pub foreground: Vec<String>,
    /// Arguments without systemd: the server goes into the background itself.
    pub background: Vec<String>,
}

/// The common interface of NFS and SMB gateways.
pub trait Kind: Serialize + DeserializeOwned + Clone + PartialEq {
    const NAME: &'static str;
    const SERVER: &'static str;
    /// The name of one served directory (export, share), also as an option.
    const ENTRY: &'static str;
    /// Required programs and libraries, each with its directories and its Debian package.
    fn needs(&self) -> Vec<Need>;
    fn mount(&self) -> &Mount;
    fn server(&self) -> &Server;
    fn entries(&self) -> Vec<Entry>;
    fn daemon(at: &Places) -> Daemon;
    /// The server's configuration.
    fn config(&self, at: &Places) -> String;
    /// Services of the distribution that the server needs, and those that conflict with it.
    fn friends_and_foes(&self) -> (Vec<&'static str>, Vec<&'static str>);
    /// The end of that part of the configuration which the server reads only when it starts.
    fn ends_global(text: &str) -> usize;
    /// Refuses a start without the services that the server needs.
    fn check_neighbours(&self) -> Result<(), Failure>;
    /// Whether the server answers.
    fn answers(&self) -> io::Result<()>;
    /// Makes the running server read its configuration again; `gone` are entries that it served until now.
    fn reload(&self, at: &Places, gone: &[String]) -> anyhow::Result<Reread>;
    /// The state of each entry, in order. An error if the server cannot be queried.
    fn served(&self, at: &Places) -> io::Result<Vec<Seen>>;
    /// Whether the server serves entries that are not in the model.
    fn serves_more(&self, at: &Places) -> bool;
}

/// A file that a package installs.
#[derive(Debug)]
pub struct Need {
    pub package: &'static str,
    /// A file name.
    pub file: &'static str,
    /// Directories that may hold it; `*` stands for one component.
    pub dirs: &'static [&'static str],
}

const PROGRAM_DIRS: &[&str] =
    &["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/sbin", "/bin"];
const GANESHA_DIRS: &[&str] = &["/usr/lib/*/ganesha", "/usr/lib64/ganesha", "/usr/lib/ganesha"];
const SAMBA_DIRS: &[&str] = &["/usr/lib/*/samba/vfs", "/usr/lib64/samba/vfs", "/usr/lib/samba/vfs"];

const fn program(package: &'static str, file: &'static str) -> Need {
    Need { package, file, dirs: PROGRAM_DIRS }
}

impl Kind for Nfs {
    const NAME: &'static str = "nfs";
    const SERVER: &'static str = "NFS-Ganesha";
    const ENTRY: &'static str = "export";

    fn needs(&self) -> Vec<Need> {
        let mut needs = vec![
            program("nfs-ganesha", "ganesha.nfsd"),
            Need { package: "nfs-ganesha-vfs", file: "libfsalvfs.so", dirs: GANESHA_DIRS },
        ];
        if self.has_v3() {
            needs.push(program("rpcbind", "rpcbind"));
        }
        needs
    }
    fn mount(&self) -> &Mount {
        &self.mount
    }
    fn server(&self) -> &Server {
        &self.server
    }
    fn entries(&self) -> Vec<Entry> {
        self.exports.iter().map(|e| e.entry(&self.mount.point)).collect()
    }
    fn daemon(at: &Places) -> Daemon {
        ganesha::daemon(at)
    }
    fn config(&self, at: &Places) -> String {
        ganesha::config(self, at)
    }
    fn friends_and_foes(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        let friends = if self.has_v3() { vec!["rpcbind.service", "rpc-statd.service"] } else { vec![] };
        (friends, vec!["nfs-ganesha.service", "nfs-server.service"])
    }
    fn ends_global(text: &str) -> usize {
        text.find("\nEXPORT {").unwrap_or(text.len())
    }
    fn check_neighbours(&self) -> Result<(), Failure> {
        if self.has_v3() { super::host::check_rpcbind() } else { Ok(()) }
    }
    fn answers(&self) -> io::Result<()> {
        asking::nfs_answers(self)
    }
    fn reload(&self, at: &Places, _gone: &[String]) -> anyhow::Result<Reread> {
        asking::nfs_reload(at)
    }
    fn served(&self, _at: &Places) -> io::Result<Vec<Seen>> {
        asking::nfs_served(self)
    }
    fn serves_more(&self, _at: &Places) -> bool {
        asking::nfs_serves_more(self)
    }
}

impl Nfs {
    pub fn has_v3(&self) -> bool {
        self.protocols.contains(&3)
    }
}

impl Export {
    fn entry(&self, point: &Path) -> Entry {
        let mut options = Vec::new();
        options.extend(self.anonuid.map(|id| format!("anonuid={id}")));
        options.extend(self.anongid.map(|id| format!("anongid={id}")));
        options.extend(self.server_groups.then(|| "groups=server".to_owned()));
        Entry {
            name: self.path.clone(),
            path: self.path.clone(),
            directory: directory(point, &self.path),
            access: access(self.read_only),
            squash: self.squash.word().to_owned(),
            hosts: self.hosts.clone(),
            options,
        }
    }
}

impl Kind for Smb {
    const NAME: &'static str = "smb";
    const SERVER: &'static str = "Samba";
    const ENTRY: &'static str = "share";

    fn needs(&self) -> Vec<Need> {
        vec![
            program("samba", "smbd"),
            program("samba-common-bin", "smbcontrol"),
            Need { package: "samba-vfs-modules", file: "acl_xattr.so", dirs: SAMBA_DIRS },
            Need { package: "samba-vfs-modules", file: "streams_xattr.so", dirs: SAMBA_DIRS },
        ]
    }
    fn mount(&self) -> &Mount {
        &self.mount
    }
    fn server(&self) -> &Server {
        &self.server
    }
    fn entries(&self) -> Vec<Entry> {
        self.shares.iter().map(|s| s.entry(&self.mount.point)).collect()
    }
    fn daemon(at: &Places) -> Daemon {
        samba::daemon(at)
    }
    fn config(&self, at: &Places) -> String {
        samba::config(self, at)
    }
    fn friends_and_foes(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        (vec![], vec!["smbd.service", "samba-ad-dc.service"])
    }
    fn ends_global(text: &str) -> usize {
        let begin = text.find("[global]").unwrap_or(0);
        text[begin..].find("\n[").map_or(text.len(), |at| begin + at)
    }
    fn check_neighbours(&self) -> Result<(), Failure> {
        Ok(())
    }
    fn answers(&self) -> io::Result<()> {
        asking::smb_answers(self)
    }
    fn reload(&self, at: &Places, gone: &[String]) -> anyhow::Result<Reread> {
        asking::smb_reload(at, gone).map(|()| Reread::Seen)
    }
    fn served(&self, at: &Places) -> io::Result<Vec<Seen>> {
        asking::smb_served(self, at)
    }
    fn serves_more(&self, at: &Places) -> bool {
        asking::smb_serves_more(self, at)
    }
}

impl Share {
    fn entry(&self, point: &Path) -> Entry {
        let mut options = Vec::new();
        options.extend(self.users.iter().map(|user| format!("users={user}")));
        options.extend(self.guest.then(|| "guest".to_owned()));
        options.extend(self.exclusive.then(|| "exclusive".to_owned()));
        Entry {
            name: self.name.clone(),
            path: self.path.clone(),
            directory: directory(point, &self.path),
            access: access(self.read_only),
            squash: self.squash.clone().unwrap_or_else(|| "none".to_owned()),
            hosts: self.hosts.clone(),
            options,
        }
    }
}

/// The path on this host of `/a` in the file system that is mounted at `point`.
pub fn directory(point: &Path, path: &str) -> PathBuf {
    let below = path.trim_start_matches('/');
    if below.is_empty() { point.to_owned() } else { point.join(below) }
}

fn access(read_only: bool) -> &'static str {
    if read_only { "ro" } else { "rw" }
}
