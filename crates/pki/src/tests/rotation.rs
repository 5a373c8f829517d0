//! A rotation of the CA while nodes connect.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustls_pki_types::CertificateDer;

use super::kit::*;
use crate::authority::{AuthorityError, Leftover, Reason};
use crate::identity::Role;
use crate::refused::Refused;
use crate::trust::{CA_PEM, CRL_PEM, Trust};

#[test]
fn old_and_new_certificates_pass_until_the_rotation_is_finished() {
    let mut site = Site::new();
    let dirs = [(Role::Client, "c1"), (Role::Server, "mds")].map(|(role, node)| site.copied(role, node));
    let [client, server] = [&dirs[0], &dirs[1]].map(|dir| Trust::load(dir).unwrap());
    meet(&client, &server).unwrap();
    let old_chain: Vec<CertificateDer> = client.chain();

    let again = site.authority.rotate(now()).unwrap();
    assert_eq!(again.len(), 3, "admin and server of mds, client c1");
    assert!(matches!(site.authority.rotate(now()), Err(AuthorityError::Rotating { generation: 2 })));
    meet(&client, &server).unwrap();
    // 1. Each host gets the bundle.
    for dir in &dirs {
        for file in [CRL_PEM, CA_PEM] {
            put(dir, file, &std::fs::read(site.authority.dir().join(file)).unwrap());
        }
    }
    let reload = client.reload_if_changed();
    assert_eq!((reload.fault, reload.change.unwrap().has_new_cas), (None, true));
    meet(&client, &server).unwrap();
    server.reload_if_changed().change.unwrap();
    meet(&client, &server).unwrap();
    // 2. The server gets its new certificate, then the client.
    copy(&site.dir(Role::Server, "mds"), &dirs[1]);
    assert!(server.reload_if_changed().change.unwrap().has_new_certificate);
    meet(&client, &server).unwrap();
    copy(&site.dir(Role::Client, "c1"), &dirs[0]);
    assert!(client.reload_if_changed().change.unwrap().has_new_certificate);
    meet(&client, &server).unwrap();
    assert!(server.identity_of(&old_chain).is_ok());
    // Old and new certificates of one node can be revoked apart, each by its own CA.
    let old = site.authority.list(now()).into_iter().filter(|l| l.record.generation == 1).count();
    assert_eq!(old, 3);

    // 3. The end.
    assert_eq!(site.authority.finish(Leftover::Refuse, now()).unwrap(), []);
    assert!(matches!(site.authority.finish(Leftover::Refuse, now()), Err(AuthorityError::NotRotating)));
    copy(&site.dir(Role::Server, "mds"), &dirs[1]);
    let change = server.reload_if_changed().change.unwrap();
    assert!(change.has_new_cas && !change.has_new_certificate);
    assert_eq!(server.identity_of(&old_chain), Err(Refused::UnknownCa));
    meet(&client, &server).unwrap();
}

#[test]
fn no_handshake_fails_while_the_ca_is_rotated() {
    let mut site = Site::new();
    let dirs = [(Role::Client, "c1"), (Role::Server, "mds")].map(|(role, node)| site.copied(role, node));
    let [client, server] = [&dirs[0], &dirs[1]].map(|dir| Trust::load(dir).unwrap());
    let (is_over, count) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let handshakes = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let ends = connect(client.client_config(), server.server_config());
                let ends = ends.unwrap_or_else(|e| panic!("{e:?}"));
                server.identity_of(ends.server.peer_certificates().unwrap()).unwrap();
                client.identity_of(ends.client.peer_certificates().unwrap()).unwrap();
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Two more have ended: one of them began after this call.
        let one_more = || {
            let seen = count.load(Ordering::Relaxed);
            while count.load(Ordering::Relaxed) < seen + 2 && !handshakes.is_finished() {
                std::thread::yield_now();
            }
        };
        let reload = || {
            for trust in [&client, &server] {
                assert_eq!(trust.reload_if_changed().fault, None);
                one_more();
            }
        };
        for _ in 0..3 {
            site.authority.rotate(now()).unwrap();
            let bundle = |file: &str| std::fs::read(site.authority.dir().join(file)).unwrap();
            let files = [CRL_PEM, CA_PEM].map(|file| (file, bundle(file)));
            dirs.iter().for_each(|dir| files.iter().for_each(|(file, bytes)| put(dir, file, bytes)));
            reload();
            let folders = [(Role::Client, "c1"), (Role::Server, "mds")];
            let copy_all = |site: &Site| {
                let with_dir = folders.iter().zip(&dirs);
                with_dir.for_each(|((role, node), dir)| copy(&site.dir(*role, node), dir));
            };
            copy_all(&site);
            reload();
            site.authority.finish(Leftover::Refuse, now()).unwrap();
            copy_all(&site);
            reload();
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn both_cas_revoke_during_a_rotation() {
    let mut site = Site::new();
    let old = site.client();
    site.authority.rotate(now()).unwrap();
    let (new, server) = (site.client(), site.server());
    site.authority.revoke(&old.identity().serial.to_string(), None, Reason::Superseded, now()).unwrap();
    let lists = site.admin().crl().1;
    let change = server.set_crl(&lists).unwrap().unwrap();
    assert_eq!(change.revoked, [old.identity().serial]);
    assert_eq!(server.identity_of(&old.chain()), Err(Refused::Revoked));
    assert!(server.identity_of(&new.chain()).is_ok());
    site.authority.revoke("c1", None, Reason::Superseded, now()).unwrap();
    server.set_crl(&site.admin().crl().1).unwrap().unwrap();
    assert_eq!(server.identity_of(&new.chain()), Err(Refused::Revoked));
}

#[test]
fn node_without_the_new_ca_takes_the_list_of_the_old_one() {
    let mut site = Site::new();
    let behind = Trust::load(&site.copied(Role::Server, "mds")).unwrap();
    let client = site.client();
    site.authority.rotate(now()).unwrap();
    site.authority.revoke("c1", None, Reason::KeyCompromise, now()).unwrap();
    let change = behind.set_crl(&site.admin().crl().1).unwrap().unwrap();
    assert_eq!(change.revoked, [client.identity().serial]);
    // After the end there is no list of the old CA any more; the last one stays.
    site.authority.finish(Leftover::Drop, now()).unwrap();
    assert_eq!(behind.set_crl(&site.admin().crl().1), Ok(None));
    assert_eq!(behind.check(&client.identity()), Err(Refused::Revoked));
}

#[test]
fn finish_names_certificates_without_a_successor() {
    let mut site = Site::new();
    site.authority.rotate(now()).unwrap();
    let new = site.client().identity().serial;
    site.authority.revoke(&new.to_string(), None, Reason::Unspecified, now()).unwrap();
    let Err(AuthorityError::Left { left }) = site.authority.finish(Leftover::Refuse, now()) else {
        panic!("c1 has a valid certificate of the old CA only")
    };
    assert_eq!(left.iter().map(|r| (r.node.as_str(), r.generation)).collect::<Vec<_>>(), [("c1", 1)]);
    assert!(site.authority.is_rotating());
    assert_eq!(site.authority.finish(Leftover::Drop, now()).unwrap(), left);
    assert!(!site.authority.is_rotating());
}
