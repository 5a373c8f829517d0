//! Lines that tell the administrator which file to copy where.

use std::path::Path;
use std::time::SystemTime;

use pki::{Authority, Listed, Name, Record, Role};

use crate::shell;

/// Where a process looks for its folder.
const TLS_DIR: &str = "/etc/stria/tls";
/// Where an administrator's commands look for theirs.
const ADMIN_DIR: &str = "/etc/stria/admin";
pub const DEFAULT_DIR: &str = "/etc/stria/ca";

/// The name of this host, if it can be one of a node.
pub fn this_host() -> Option<Name> {
    let name = rustix::system::uname().nodename().to_str().ok()?.to_ascii_lowercase();
    name.parse().ok()
}

/// ` --dir DIR`, where it is another than the default.
pub fn dir_option(dir: &Path) -> String {
    match dir == Path::new(DEFAULT_DIR) {
        true => String::new(),
        false => format!(" --dir {}", shell::path(dir)),
    }
}

pub fn issued(record: &Record) {
    let Record { role, node, serial, not_after, .. } = record;
    outln!(
        "issued the {role} certificate {} of {node}, valid until {}",
        serial.short(),
        pki::day(*not_after)
    );
}

/// Where a folder goes on its host. A certificate of a second role must not overwrite the server's.
fn place(listed: &[Listed], role: Role, node: &Name) -> String {
    let is_server = |l: &Listed| l.is_newest && l.record.role == Role::Server && l.record.node == *node;
    match role {
        Role::Admin => ADMIN_DIR.into(),
        Role::Client | Role::Router if listed.iter().any(is_server) => format!("{TLS_DIR}-{role}"),
        Role::Server | Role::Client | Role::Router => TLS_DIR.into(),
    }
}

/// The folder of a node, to its host. Modes are kept: the key is for its owner only.
pub fn copy_folder(authority: &Authority, role: Role, node: &Name, now: SystemTime) {
    let from = shell::path(&authority.node_dir(role, node));
    let to = place(&authority.list(now), role, node);
    match this_host().as_ref() == Some(node) {
        true => outln!("  mkdir -p -m 700 {to} && cp -p {from}/* {to}/"),
        false => outln!("  ssh {node} mkdir -p -m 700 {to} && scp -p {from}/* {node}:{to}/"),
    }
}

/// Files of the CA directory, to every host with a valid certificate, or to those with the role.
pub fn copy_files(authority: &Authority, files: &[&str], role: Option<Role>, now: SystemTime) {
    let paths: Vec<String> = files.iter().map(|file| shell::path(&authority.dir().join(file))).collect();
    let paths = paths.join(" ");
    let listed = authority.list(now);
    let newest = listed.iter().filter(|l| l.is_newest).map(|l| &l.record);
    let with_role = newest.filter(|record| role.is_none_or(|role| role == record.role));
    for Record { role, node, .. } in with_role {
        let to = place(&listed, *role, node);
        match this_host().as_ref() == Some(node) {
            true => outln!("  cp -p {paths} {to}/"),
            false => outln!("  scp -p {paths} {node}:{to}/"),
        }
    }
}
