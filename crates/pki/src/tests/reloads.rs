//! Faults of a folder, at the start and while the process runs.

use std::fs;
use std::time::SystemTime;

use super::kit::*;
use crate::authority::Reason;
use crate::identity::Role;
use crate::refused::Refused;
use crate::trust::{CA_PEM, CRL_PEM, Fault, NODE_KEY, NODE_PEM, Trust, Why};

#[test]
fn each_fault_of_a_folder_says_file_and_remedy() {
    let site = Site::new();
    let other = Site::new();
    let good = site.dir(Role::Client, "c1");
    let read = |dir: &std::path::Path, file: &str| fs::read(dir.join(file)).unwrap();
    let again = "copy the folder nodes/c1.client of the CA directory to";
    let issue = "run `stria cluster issue c1 --role client`, and copy the folder nodes/c1.client";
    let loads = |change: &dyn Fn(&std::path::Path), now: SystemTime| -> Fault {
        let place = Place::new();
        copy(&good, place.path());
        assert!(Trust::load(place.path()).is_ok());
        change(place.path());
        Trust::load_at(place.path(), now).unwrap_err()
    };
    type Do<'a> = &'a dyn Fn(&std::path::Path);
    let table: [(Do, &str, Why, &str); 12] = [
        (&|d| fs::remove_file(d.join(NODE_PEM)).unwrap(), NODE_PEM, Why::Missing, "nodes/NODE.ROLE"),
        (&|d| fs::remove_file(d.join(CRL_PEM)).unwrap(), CRL_PEM, Why::Missing, again),
        (&|d| put(d, NODE_PEM, b"hello"), NODE_PEM, Why::Empty("certificate"), "nodes/NODE.ROLE"),
        (&|d| put(d, CA_PEM, b""), CA_PEM, Why::Empty("certificate"), again),
        (&|d| put(d, CRL_PEM, b""), CRL_PEM, Why::Empty("revocation list"), again),
        (
            &|d| put(d, NODE_KEY, &read(&good, NODE_PEM)),
            NODE_KEY,
            Why::Empty("key for ECDSA P-256 or Ed25519"),
            again,
        ),
        (
            &|d| put(d, NODE_KEY, &read(&other.dir(Role::Client, "c1"), NODE_KEY)),
            NODE_KEY,
            Why::Mismatch,
            again,
        ),
        (&|d| set_mode(&d.join(NODE_KEY), 0o640), NODE_KEY, Why::Open(0o640), "`chmod 600 "),
        (
            &|d| put(d, CRL_PEM, &read(other.authority.dir(), CRL_PEM)),
            CRL_PEM,
            Why::List(crate::BadList::Signature),
            again,
        ),
        (&|d| put(d, CRL_PEM, &read(Site::of("beta").authority.dir(), CRL_PEM)), CRL_PEM, Why::NoList, again),
        (
            &|d| {
                put(d, CA_PEM, &read(other.authority.dir(), CA_PEM));
                put(d, CRL_PEM, &read(other.authority.dir(), CRL_PEM));
            },
            NODE_PEM,
            Why::Refused(Refused::UnknownCa),
            issue,
        ),
        (&|d| put(d, NODE_PEM, &read(d, CA_PEM)), NODE_PEM, Why::Refused(Refused::MalformedName), "NODE"),
    ];
    for (change, file, why, remedy) in table {
        let fault = loads(change, now());
        assert_eq!((fault.path.file_name().unwrap().to_str().unwrap(), &fault.why), (file, &why));
        assert!(fault.to_string().contains(remedy), "{fault}");
    }
    let late = loads(&|_| {}, now() + 60 * DAY);
    let day = crate::day(crate::unix(now() + 30 * DAY));
    assert!(
        late.to_string().contains(&format!("this node's certificate expired on {day}; {issue}")),
        "{late}"
    );
    let early = loads(&|_| {}, now() - DAY);
    assert!(matches!(early.why, Why::NotYetValid(_)), "{early}");
}

#[test]
fn folder_that_does_not_change_is_not_loaded_again() {
    let site = Site::new();
    let dir = site.copied(Role::Server, "mds");
    let server = Trust::load(&dir).unwrap();
    let config = server.server_config();
    for _ in 0..3 {
        let reload = server.reload_if_changed();
        assert!(reload.change.is_none() && reload.fault.is_none());
    }
    // Touched, but the same.
    let text = fs::read(dir.join(NODE_PEM)).unwrap();
    fs::remove_file(dir.join(NODE_PEM)).unwrap();
    put(&dir, NODE_PEM, &text);
    let reload = server.reload_if_changed();
    assert!(reload.change.is_none() && reload.fault.is_none());
    assert!(std::sync::Arc::ptr_eq(&config, &server.server_config()), "sessions go on");
}

#[test]
fn new_certificate_is_taken_while_the_process_runs() {
    let mut site = Site::new();
    let dir = site.copied(Role::Server, "mds");
    let (server, client) = (Trust::load(&dir).unwrap(), site.client());
    let before = server.identity();
    site.authority.issue(Role::Server, &name("mds"), 10, now()).unwrap();
    // The operator's copy arrives file by file.
    let fresh = site.dir(Role::Server, "mds");
    put(&dir, NODE_PEM, &fs::read(fresh.join(NODE_PEM)).unwrap());
    let reload = server.reload_if_changed();
    assert_eq!(reload.fault.unwrap().why, Why::Mismatch);
    assert!(reload.change.is_none());
    assert!(server.reload_if_changed().fault.is_none(), "a fault is reported once");
    meet(&client, &server).unwrap();
    assert_eq!(server.identity(), before);
    put(&dir, NODE_KEY, &fs::read(fresh.join(NODE_KEY)).unwrap());
    let reload = server.reload_if_changed();
    assert!(reload.fault.is_none() && reload.change.unwrap().has_new_certificate);
    assert_ne!(server.identity().serial, before.serial);
    meet(&client, &server).unwrap();
}

#[test]
fn list_alone_is_taken_and_a_list_of_the_cluster_outlives_an_older_file() {
    let mut site = Site::new();
    let dir = site.copied(Role::Server, "mds");
    let (server, client) = (Trust::load(&dir).unwrap(), site.client());
    let old = fs::read(dir.join(CRL_PEM)).unwrap();
    site.authority.revoke("c1", None, Reason::Retired, now()).unwrap();
    put(&dir, CRL_PEM, &fs::read(site.authority.dir().join(CRL_PEM)).unwrap());
    let change = server.reload_if_changed().change.unwrap();
    assert_eq!(change.revoked, [client.identity().serial]);
    assert!(!change.has_new_cas && !change.has_new_certificate);
    // pki-T2
    put(&dir, CRL_PEM, &old);
    let reload = server.reload_if_changed();
    assert!(reload.change.is_none() && reload.fault.is_none());
    assert_eq!(server.check(&client.identity()), Err(Refused::Revoked));
}

#[test]
fn broken_folder_keeps_the_old_state_but_its_newer_list_counts() {
    let mut site = Site::new();
    let dir = site.copied(Role::Server, "mds");
    let (server, client) = (Trust::load(&dir).unwrap(), site.client());
    site.authority.revoke("c1", None, Reason::Retired, now()).unwrap();
    put(&dir, CRL_PEM, &fs::read(site.authority.dir().join(CRL_PEM)).unwrap());
    put(&dir, NODE_PEM, b"half");
    let reload = server.reload_if_changed();
    assert_eq!(reload.fault.unwrap().why, Why::Empty("certificate"));
    assert_eq!(reload.change.unwrap().revoked, [client.identity().serial]);
    assert_eq!(server.check(&client.identity()), Err(Refused::Revoked));
    assert!(server.identity_of(&server.chain()).is_ok());
}

#[test]
fn folder_of_another_node_is_refused_while_the_process_runs() {
    let site = Site::new();
    let dir = site.copied(Role::Server, "mds");
    let server = Trust::load(&dir).unwrap();
    copy(&site.dir(Role::Admin, "mds"), &dir);
    let fault = server.reload_if_changed().fault.unwrap();
    assert_eq!(fault.why, Why::OtherNode("server mds of alpha".into()));
    assert_eq!(server.identity().role, Role::Server);
}
