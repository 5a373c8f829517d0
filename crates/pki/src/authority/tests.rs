//! The CA directory: its verbs, and commands that are killed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::SystemTime;

use super::*;
use crate::tests::kit::{DAY, Place, Site, copy, name, now};
use crate::trust::Trust;

fn states(authority: &Authority, now: SystemTime) -> Vec<(String, State)> {
    let line = |l: Listed| (format!("{}.{}", l.record.node, l.record.role), l.state);
    authority.list(now).into_iter().map(line).collect()
}

#[test]
fn first_certificates_are_an_administrators_and_a_servers() {
    let place = Place::new();
    let dir = place.path().join("ca");
    let made = Authority::init(&dir, &name("alpha"), &name("mds"), now()).unwrap();
    assert_eq!((made.generation(), made.list_number(), made.is_rotating()), (1, 1, false));
    let files = ["cluster.toml", "ca.pem", "crl.pem", "issued.json", "nodes/mds.admin", "nodes/mds.server"];
    files.iter().for_each(|file| assert!(dir.join(file).exists(), "{file}"));
    for key in ["ca.key", "nodes/mds.admin/node.key", "nodes/mds.server/node.key"] {
        assert_eq!(fs::metadata(dir.join(key)).unwrap().permissions().mode() & 0o777, 0o600, "{key}");
    }
    assert!(matches!(Authority::open(&dir), Err(AuthorityError::InUse { .. })));
    drop(made);
    let again = Authority::init(&dir, &name("beta"), &name("mds"), now());
    assert!(matches!(again, Err(AuthorityError::Exists { cluster, .. }) if cluster == name("alpha")));
    let none = Authority::open(&place.path().join("elsewhere"));
    assert!(matches!(none, Err(AuthorityError::None { .. })));
    fs::set_permissions(dir.join("ca.key"), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(Authority::open(&dir), Err(AuthorityError::OpenKey { mode: 0o644, .. })));
}

#[test]
fn certificate_that_is_issued_again_has_a_new_serial_and_leaves_the_old_valid() {
    let mut site = Site::new();
    let old = site.client();
    let record = site.authority.issue(Role::Client, &name("c1"), 10, now()).unwrap();
    let new = site.client();
    assert_eq!(new.identity().serial, record.serial);
    assert_ne!(old.identity().serial, record.serial);
    let server = site.server();
    assert!(server.identity_of(&old.chain()).is_ok() && server.identity_of(&new.chain()).is_ok());
    let newest: Vec<bool> = site.authority.list(now()).iter().map(|l| l.is_newest).collect();
    assert_eq!(newest, [true, false, true, true], "two of c1, then server and admin of mds");
    for days in [0, NODE_DAYS_MAX + 1] {
        let refused = site.authority.issue(Role::Client, &name("c2"), days, now());
        assert!(matches!(refused, Err(AuthorityError::Days)));
    }
}

#[test]
fn no_certificate_outlives_its_ca() {
    let mut site = Site::new();
    let late = now() + (CA_DAYS - 10) * DAY;
    let record = site.authority.issue(Role::Client, &name("c2"), 100, late).unwrap();
    assert_eq!(record.not_after, site.authority.ca_not_after());
    let over = site.authority.issue(Role::Client, &name("c2"), 100, late + 20 * DAY);
    assert!(matches!(over, Err(AuthorityError::CaExpired { .. })));
}

#[test]
fn revoking_names_a_node_or_a_serial_and_twice_is_no_error() {
    let mut site = Site::new();
    let serial = site.client().identity().serial;
    let number = site.authority.list_number();
    let mut revoke = |which: &str, role| {
        let done = site.authority.revoke(which, role, Reason::Retired, now());
        done.map(|r| (r.now.len(), r.before.len())).map_err(|e| e.to_string())
    };
    assert!(revoke("nobody", None).unwrap_err().contains("no certificate was issued for nobody"));
    assert!(revoke("mds", Some(Role::Router)).is_err());
    assert!(revoke(&serial.to_string()[..4], None).is_err(), "too few digits");
    assert_eq!(revoke(&serial.short(), None), Ok((1, 0)));
    assert_eq!(revoke("c1", None), Ok((0, 1)));
    assert_eq!(revoke("mds", Some(Role::Admin)), Ok((1, 0)));
    assert_eq!(revoke("mds", None), Ok((1, 1)));
    assert_eq!(site.authority.list_number(), number + 3);
}

#[test]
fn list_shows_what_each_certificate_is_now() {
    let mut site = Site::new();
    site.authority.revoke("mds", Some(Role::Admin), Reason::Unspecified, now()).unwrap();
    let line = |text: &str, state| (text.to_owned(), state);
    let states_now = states(&site.authority, now());
    assert_eq!(states_now[0], line("c1.client", State::Valid));
    assert!(states_now.contains(&line("mds.admin", State::Revoked)));
    assert_eq!(states(&site.authority, now() + 31 * DAY)[0], line("c1.client", State::Expired));
    site.authority.rotate(now()).unwrap();
    site.authority.finish(Leftover::Refuse, now()).unwrap();
    let states_now = states(&site.authority, now());
    assert_eq!(states_now[..2], [line("c1.client", State::Valid), line("c1.client", State::Dropped)]);
}

#[test]
fn expired_certificate_leaves_the_list() {
    let mut site = Site::new();
    let serial = site.client().identity().serial;
    site.authority.revoke("c1", None, Reason::Unspecified, now()).unwrap();
    let server = site.server();
    assert!(server.check(&site_identity(&server, serial)).is_err());
    site.authority.revoke("mds", Some(Role::Admin), Reason::Unspecified, now() + 40 * DAY).unwrap();
    let server = site.server();
    assert!(server.check(&site_identity(&server, serial)).is_ok());
}

fn site_identity(trust: &Trust, serial: Serial) -> Identity {
    Identity { serial, ..trust.identity() }
}

#[test]
fn serials_with_zeros_in_front_can_be_revoked() {
    let site = Site::new();
    for serial in [1, 0x80, 0xff << 8, 1 << 127, u128::MAX] {
        let (cluster, ca) = (site.authority.cluster(), site.authority.current_ca());
        let identity = Identity { serial: Serial(serial), ..site.client().identity() };
        let made = ca.issue(&identity, 1_000, 2_000).unwrap();
        let chain = [CertificateDer::from_pem_slice(made.certificate.as_bytes()).unwrap()];
        let server = site.server();
        let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_500);
        assert_eq!(server.identity_at(&chain, at), Ok(identity.clone()), "{serial:x}");
        let record = Record {
            serial: identity.serial,
            role: identity.role,
            node: identity.node.clone(),
            generation: 1,
            issued_sec: 1_000,
            not_after: 2_000,
            revoked: Some(Revocation { reason: Reason::Unspecified, sec: 1_400 }),
        };
        let list = ca.revoke(cluster, &[record], 1 << 40, 1_500).unwrap();
        let list = rustls_pki_types::CertificateRevocationListDer::from_pem_slice(list.as_bytes()).unwrap();
        assert_eq!(server.set_crl(&list).unwrap().unwrap().revoked, [identity.serial]);
        assert_eq!(server.identity_at(&chain, at), Err(crate::Refused::Revoked));
    }
}

/// What a directory is, but for keys and times.
#[derive(Debug, PartialEq)]
struct Shape {
    generation: u32,
    is_rotating: bool,
    list_number: u64,
    certificates: usize,
    revoked: usize,
}

fn shape(a: &Authority) -> Shape {
    Shape {
        generation: a.generation(),
        is_rotating: a.is_rotating(),
        list_number: a.list_number(),
        certificates: a.issued.certificates.len(),
        revoked: a.issued.certificates.iter().filter(|r| r.revoked.is_some()).count(),
    }
}

/// Every folder is that of the newest certificate, and a process can start with it.
fn check_folders(a: &Authority) {
    assert!(!a.dir().join("pending.json").exists());
    for listed in a.list(now()).iter().filter(|l| l.is_newest) {
        let trust = Trust::load(&a.node_dir(listed.record.role, &listed.record.node)).unwrap();
        assert_eq!(trust.identity().serial, listed.record.serial);
        assert_eq!(trust.crl().0, a.list_number());
    }
}

type Verb = fn(&mut Authority) -> Result<(), AuthorityError>;

#[test]
fn command_that_is_killed_at_any_step_is_not_begun_or_completed_by_the_next() {
    let verbs: [(&str, Verb); 4] = [
        ("issue", |a| a.issue(Role::Client, &name("c2"), 10, now()).map(drop)),
        ("revoke", |a| a.revoke("c1", None, Reason::Unspecified, now()).map(drop)),
        ("rotate", |a| a.rotate(now()).map(drop)),
        ("finish", |a| a.finish(Leftover::Refuse, now()).map(drop)),
    ];
    let site = Site::new();
    let place = Place::new();
    let mut start = place.path().join("start");
    let dir = site.authority.dir().to_owned();
    drop(site.authority);
    copy(&dir, &start);
    for (verb, run) in verbs {
        let before = shape(&Authority::open(&start).unwrap());
        let after = place.path().join(format!("after-{verb}"));
        copy(&start, &after);
        let mut whole = Authority::open(&after).unwrap();
        run(&mut whole).unwrap();
        let wanted = shape(&whole);
        check_folders(&whole);
        assert_ne!(before, wanted, "{verb}");
        let (mut kills, mut completed) = (0, 0);
        loop {
            let killed = place.path().join("killed");
            copy(&start, &killed);
            let mut authority = Authority::open(&killed).unwrap();
            authority.folder.steps_left.set(Some(kills));
            let done = run(&mut authority);
            drop(authority);
            let found = Authority::open(&killed).unwrap();
            let is_complete = shape(&found) == wanted;
            assert!(is_complete || shape(&found) == before, "{verb} {kills}: {:?}", shape(&found));
            check_folders(&found);
            drop(found);
            fs::remove_dir_all(&killed).unwrap();
            if done.is_ok() {
                break;
            }
            kills += 1;
            completed += u32::from(is_complete);
        }
        assert!(kills > 20 && completed > 10, "{verb}: {completed} of {kills}");
        drop(whole);
        start = after;
    }
}

#[test]
fn killed_init_can_be_repeated_or_is_complete() {
    for kills in 0.. {
        let place = Place::new();
        let dir = place.path().join("ca");
        let folder = Folder::make(&dir).unwrap();
        folder.steps_left.set(Some(kills));
        let done = Authority::init_in(folder, &name("alpha"), &name("mds"), now()).map(drop);
        match Authority::init(&dir, &name("alpha"), &name("mds"), now()) {
            Ok(made) => check_folders(&made),
            Err(AuthorityError::Exists { .. }) => check_folders(&Authority::open(&dir).unwrap()),
            Err(other) => panic!("{kills}: {other}"),
        }
        if done.is_ok() {
            break;
        }
    }
}

#[test]
fn killed_completion_is_completed_by_the_next() {
    let site = Site::new();
    let dir = site.authority.dir().to_owned();
    let mut authority = site.authority;
    let number = authority.list_number();
    // Past the commit.
    authority.folder.steps_left.set(Some(9));
    authority.revoke("c1", None, Reason::Unspecified, now()).unwrap_err();
    drop(authority);
    let pending = fs::read_to_string(dir.join("pending.json")).unwrap();
    let plan: super::folder::Plan = serde_json::from_str(&pending).unwrap();
    for kills in 0.. {
        let folder = Folder::open_without_completion(&dir).unwrap();
        folder.steps_left.set(Some(kills));
        // The removal of the plan is the last step but one.
        if folder.apply(&plan).is_ok() || !dir.join("pending.json").exists() {
            break;
        }
    }
    let found = Authority::open(&dir).unwrap();
    assert_eq!(found.list_number(), number + 1);
    check_folders(&found);
}

#[test]
fn edited_files_are_refused_with_their_name() {
    let mut site = Site::new();
    site.authority.rotate(now()).unwrap();
    let dir = site.authority.dir().to_owned();
    drop(site.authority);
    let refused = |file: &str, text: &str| {
        let place = Place::new();
        copy(&dir, place.path());
        fs::write(place.path().join(file), text).unwrap();
        match Authority::open(place.path()) {
            Err(AuthorityError::Damaged { path, .. }) => assert_eq!(path, place.path().join(file)),
            other => panic!("{file}: {other:?}"),
        }
    };
    let text = |path: &Path| fs::read_to_string(path).unwrap();
    refused("cluster.toml", "name = \"A\"\ngeneration = 1\n");
    refused("cluster.toml", "");
    refused("issued.json", "{}");
    refused("ca.pem", "");
    refused("ca.key", "");
    let keys = text(&dir.join("ca.key"));
    let (_, second) = keys.split_at(keys.len() / 2);
    refused("ca.key", second);
}
