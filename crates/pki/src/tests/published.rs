//! Revocation lists on their way through the cluster map.

use std::fs;

use super::kit::*;
use crate::authority::{Leftover, Reason};
use crate::identity::Role;
use crate::publish::NotPublished;
use crate::refused::Refused;
use crate::trust::{CRL_MAP_PEM, CRL_PEM, Trust};
use crate::{BadList, Published};

/// The lists that the administrator would send.
fn newest(site: &Site) -> Vec<u8> {
    site.admin().crl().1
}

fn lists_in(dir: &std::path::Path) -> Vec<u8> {
    Trust::load(dir).unwrap().crl().1
}

fn revoke(site: &mut Site, which: &str) {
    site.authority.revoke(which, Some(Role::Client), Reason::KeyCompromise, now()).unwrap();
}

#[test]
fn t4_a_newer_list_of_the_ca_is_published_and_others_are_not() {
    let mut site = Site::new();
    let mgs = Trust::load(&site.copied(Role::Server, "mds")).unwrap();
    let first = newest(&site);
    // 1. An empty map takes the list of the start; the second time nothing is new.
    let published = mgs.publish(&[], &first).unwrap();
    assert_eq!(published, Published { crls: first.clone(), number: 1, is_new: true });
    assert!(!mgs.publish(&first, &first).unwrap().is_new);
    // 2. A newer one, and then the older one again.
    revoke(&mut site, "c1");
    let second = newest(&site);
    let published = mgs.publish(&first, &second).unwrap();
    assert_eq!((published.number, published.is_new, &published.crls), (2, true, &second));
    let older = NotPublished::NotNewer { given: 1, known: 2 };
    assert_eq!(mgs.publish(&second, &first), Err(older), "the map has a newer one");
    mgs.set_crl(&second).unwrap();
    assert_eq!(mgs.publish(&[], &first), Err(older), "the management service has a newer one");
    // 3. Other content under the same number, as after a restored CA directory.
    let restored = Place::new();
    copy(site.authority.dir(), restored.path());
    let mut twin = crate::Authority::open(restored.path()).unwrap();
    site.authority.revoke("mds", Some(Role::Admin), Reason::Superseded, now()).unwrap();
    twin.revoke("mds", Some(Role::Admin), Reason::KeyCompromise, now()).unwrap();
    let (third, other) = (newest(&site), lists_in(&twin.node_dir(Role::Server, &name("mds"))));
    let same = NotPublished::NotNewer { given: 3, known: 3 };
    assert_eq!(mgs.publish(&third, &other), Err(same));
    // 4. Of other CAs, cut, and no list at all.
    let beta = newest(&Site::of("beta"));
    assert_eq!(mgs.publish(&second, &beta), Err(NotPublished::OtherCa));
    let forged = newest(&Site::new());
    assert_eq!(mgs.publish(&second, &forged), Err(NotPublished::Bad(BadList::Signature)));
    for bytes in [&second[..second.len() - 1], b"hello"] {
        assert_eq!(mgs.publish(&second, bytes), Err(NotPublished::Bad(BadList::Malformed)));
    }
    assert_eq!(mgs.publish(&second, &[]), Err(NotPublished::OtherCa));
}

#[test]
fn t4_a_rotation_publishes_the_lists_of_both_cas_and_then_of_one() {
    let mut site = Site::new();
    let host = site.copied(Role::Server, "mds");
    let mgs = Trust::load(&host).unwrap();
    let first = newest(&site);
    site.authority.rotate(now()).unwrap();
    let both = newest(&site);
    // The management service knows the earlier CA alone, so it publishes that CA's list alone.
    let published = mgs.publish(&first, &both).unwrap();
    assert!(published.is_new && published.crls.len() < both.len());
    copy(&site.dir(Role::Server, "mds"), &host);
    assert!(mgs.reload_if_changed().change.is_some());
    assert_eq!(mgs.publish(&published.crls, &both).unwrap().crls, both);
    site.authority.finish(Leftover::Refuse, now()).unwrap();
    copy(&site.dir(Role::Server, "mds"), &host);
    assert!(mgs.reload_if_changed().change.is_some());
    let one = newest(&site);
    assert_eq!(mgs.publish(&both, &one).unwrap().crls, one);
}

#[test]
fn t2_a_list_of_the_map_counts_after_a_restart_with_an_older_file() {
    let mut site = Site::new();
    let host = site.copied(Role::Server, "mds");
    let client = site.client();
    let server = Trust::load(&host).unwrap();
    let chain = client.chain();
    revoke(&mut site, "c1");
    assert!(server.identity_of(&chain).is_ok());
    let change = server.set_crl(&newest(&site)).unwrap().unwrap();
    assert_eq!(change.revoked, [client.identity().serial]);
    assert!(server.is_revoked(client.identity().serial));
    server.keep_crl().unwrap();
    // The administrator's file is as before, and a process that starts now refuses the client.
    let stamp = |file: &str| fs::metadata(host.join(file)).unwrap().modified().unwrap();
    let again = Trust::load(&host).unwrap();
    assert_eq!(again.identity_of(&chain), Err(Refused::Revoked));
    let kept = stamp(CRL_MAP_PEM);
    again.keep_crl().unwrap();
    assert_eq!(stamp(CRL_MAP_PEM), kept, "nothing is written twice");
    // Another process of the host, which heard nothing, finds the file.
    let sibling_host = Place::new();
    copy(&host, sibling_host.path());
    fs::remove_file(sibling_host.path().join(CRL_MAP_PEM)).unwrap();
    let sibling = Trust::load(sibling_host.path()).unwrap();
    assert!(sibling.identity_of(&chain).is_ok());
    copy(&host, sibling_host.path());
    assert_eq!(sibling.reload_if_changed().change.unwrap().list_number, 2);
    assert_eq!(sibling.identity_of(&chain), Err(Refused::Revoked));
    // A kept list that is cut, or of another cluster, stops no process.
    for text in [&b"hello"[..], &fs::read(Site::new().authority.dir().join(CRL_PEM)).unwrap()] {
        put(&host, CRL_MAP_PEM, text);
        assert!(Trust::load(&host).unwrap().identity_of(&chain).is_ok());
    }
}
