//! Lines that tell the administrator which file to copy where.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::SystemTime;

use pki::{Authority, Name, Record, Role, State};

use crate::shell;

/// Where a process looks for its folder.
const TLS_DIR: &str = "/etc/stria/tls";
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

/// The folder of a node, to its host. Modes are kept: the key is for its owner only.
pub fn copy_folder(authority: &Authority, role: Role, node: &Name) {
    let from = shell::path(&authority.node_dir(role, node));
    match this_host().as_ref() == Some(node) {
        true => outln!("  mkdir -p -m 700 {TLS_DIR} && cp -p {from}/* {TLS_DIR}/"),
        false => outln!("  ssh {node} mkdir -p -m 700 {TLS_DIR} && scp -p {from}/* {node}:{TLS_DIR}/"),
    }
}

/// Files of the CA directory, to every host with a valid certificate, or to those with the role.
pub fn copy_files(authority: &Authority, files: &[&str], role: Option<Role>, now: SystemTime) {
    let paths: Vec<String> = files.iter().map(|file| shell::path(&authority.dir().join(file))).collect();
    let paths = paths.join(" ");
    let listed = authority.list(now);
    let valid = listed.iter().filter(|l| l.state == State::Valid);
    let with_role = valid.filter(|l| role.is_none_or(|role| role == l.record.role));
    let nodes: BTreeSet<&Name> = with_role.map(|l| &l.record.node).collect();
    for node in nodes {
        match this_host().as_ref() == Some(node) {
            true => outln!("  cp -p {paths} {TLS_DIR}/"),
            false => outln!("  scp -p {paths} {node}:{TLS_DIR}/"),
        }
    }
}
