//! Which peers a handshake lets in, on both sides.

use std::io::Write;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, IsCa, SanType};
use rustls::sign::SingleCertAndKey;
use rustls::{AlertDescription, ClientConfig, Error, HandshakeKind, PeerIncompatible, ServerConnection};

use super::kit::*;
use crate::authority::Reason;
use crate::ca::Ca;
use crate::identity::{Role, Serial};
use crate::refused::Refused;
use crate::trust::{Trust, Why};

#[test]
fn nodes_of_one_cluster_know_each_other() {
    let site = Site::new();
    let mut ends = meet(&site.client(), &site.server()).unwrap();
    assert_eq!(ends.server.alpn_protocol(), Some(&b"stria/1"[..]));
    assert_eq!(ends.server.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
    assert_eq!(ends.server.server_name(), None, "names of nodes are not sent");
    ends.client.writer().write_all(b"frame").unwrap();
    let mut bytes = Vec::new();
    ends.client.write_tls(&mut bytes).unwrap();
    ends.server.read_tls(&mut &bytes[..]).unwrap();
    assert_eq!(ends.server.process_new_packets().unwrap().plaintext_bytes_to_read(), 5);
}

type Change = fn(&mut CertificateParams);

/// Certificates by the right CA, or one of its name, that must not count.
fn wrong_certificates(site: &Site) -> Vec<(&'static str, Arc<SingleCertAndKey>, Refused)> {
    let uri = |text: &str| SanType::URI(text.try_into().unwrap());
    let odd = |change: Change| site.odd(change);
    let foreign =
        Ca::make(&name("alpha"), 1, Serial(9), crate::unix(now()), crate::unix(now() + DAY)).unwrap();
    let cluster = site.authority.cluster().clone();
    let of_other = |ca: &Ca| super::kit::odd(ca, &cluster, |_| {});
    let unknown =
        Ca::make(&name("beta"), 1, Serial(9), crate::unix(now()), crate::unix(now() + DAY)).unwrap();
    vec![
        (
            "expired",
            odd(|p| (p.not_before, p.not_after) = ((now() - 2 * DAY).into(), (now() - DAY).into())),
            Refused::Expired,
        ),
        ("not yet valid", odd(|p| p.not_before = (now() + DAY / 2).into()), Refused::NotYetValid),
        ("a CA of our name with another key", of_other(&foreign), Refused::UnknownCa),
        ("an unknown CA", super::kit::odd(&unknown, &name("beta"), |_| {}), Refused::UnknownCa),
        (
            "another cluster by the same CA",
            site.odd(|p| p.subject_alt_names = vec![uri("stria://beta/client/odd")]),
            Refused::OtherCluster,
        ),
        ("no URI", odd(|p| p.subject_alt_names.clear()), Refused::MalformedName),
        (
            "a name of DNS instead of a URI",
            odd(|p| p.subject_alt_names = vec![SanType::DnsName("mds".try_into().unwrap())]),
            Refused::MalformedName,
        ),
        (
            "two URIs",
            site.odd(|p| p.subject_alt_names.push(uri("stria://alpha/admin/odd"))),
            Refused::MalformedName,
        ),
        (
            "a URI of another form",
            site.odd(|p| p.subject_alt_names = vec![uri("stria://alpha/owner/odd")]),
            Refused::MalformedName,
        ),
        ("no usage", odd(|p| p.extended_key_usages.clear()), Refused::WrongUsage),
        (
            "one usage",
            odd(|p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]),
            Refused::WrongUsage,
        ),
        (
            "other usages",
            odd(|p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning]),
            Refused::WrongUsage,
        ),
        ("a CA", odd(|p| p.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained)), Refused::WrongUsage),
    ]
}

#[test]
fn server_refuses_wrong_certificates_of_clients() {
    let site = Site::new();
    let (client, server) = (site.client(), site.server());
    assert!(connect(client_with(&client, site.odd(|_| {})), server.server_config()).is_ok());
    for (what, own, why) in wrong_certificates(&site) {
        let chain = own_chain(&own);
        let failed = connect(client_with(&client, own), server.server_config()).err().expect(what);
        let error = failed.server.expect(what);
        assert_eq!(Refused::of(&error), Some(why), "{what}: {error}");
        assert!(matches!(failed.client, Some(Error::AlertReceived(_))), "{what}: {:?}", failed.client);
        assert_eq!(server.identity_of(&chain), Err(why), "{what}");
    }
}

#[test]
fn client_refuses_wrong_certificates_of_servers() {
    let site = Site::new();
    let (client, server) = (site.client(), site.server());
    for (what, own, why) in wrong_certificates(&site) {
        let failed = connect(client.client_config(), server_with(&server, own)).err().expect(what);
        let error = failed.client.expect(what);
        assert_eq!(Refused::of(&error), Some(why), "{what}: {error}");
        let told = Refused::by_peer(failed.server.as_ref().expect(what));
        assert!(told.is_some(), "{what}: the alert {:?} says nothing", failed.server);
    }
}

fn own_chain(own: &Arc<SingleCertAndKey>) -> Vec<rustls_pki_types::CertificateDer<'static>> {
    use rustls::client::ResolvesClientCert;
    own.resolve(&[], &[rustls::SignatureScheme::ECDSA_NISTP256_SHA256, rustls::SignatureScheme::ED25519])
        .map(|key| key.cert.clone())
        .unwrap()
}

#[test]
fn any_text_names_a_peer_for_the_memory_of_sessions() {
    let all = ["mds", "10.0.0.5", "fe80::1", "10.0.0.5:988@tcp0", "", "a..b", "-", "ä"];
    let names: std::collections::BTreeSet<String> =
        all.iter().map(|peer| crate::server_name(peer).to_str().into_owned()).collect();
    assert_eq!(names.len(), all.len());
}

#[test]
fn client_without_certificate_is_refused() {
    let site = Site::new();
    let (client, server) = (site.client(), site.server());
    let mut config = (*client.client_config()).clone();
    let without = ClientConfig::builder_with_provider(config.crypto_provider().clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    config.client_auth_cert_resolver = without.client_auth_cert_resolver;
    let failed = connect(Arc::new(config), server.server_config()).err().unwrap();
    assert_eq!(Refused::of(&failed.server.unwrap()), Some(Refused::NoCertificate));
    assert_eq!(Refused::by_peer(&failed.client.unwrap()), Some(Refused::NoCertificate));
    assert_eq!(server.identity_of(&[]), Err(Refused::NoCertificate));
}

#[test]
fn client_of_another_protocol_is_refused() {
    let site = Site::new();
    let mut config = (*site.client().client_config()).clone();
    config.alpn_protocols = vec![b"stria/2".to_vec()];
    let failed = connect(Arc::new(config), site.server().server_config()).err().unwrap();
    assert_eq!(failed.server, Some(Error::NoApplicationProtocol));
}

#[test]
fn tls_1_2_is_refused() {
    let site = Site::new();
    let mut server = ServerConnection::new(site.server().server_config()).unwrap();
    // Version, random, no session, one suite, no compression, and the extensions of a modern client of TLS 1.2.
    let groups = [0, 10, 0, 4, 0, 2, 0, 29];
    let schemes = [0, 13, 0, 4, 0, 2, 4, 3];
    let extensions = [&groups[..], &schemes].concat();
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0, 0, 2, 0xc0, 0x2b, 1, 0],
        &(extensions.len() as u16).to_be_bytes(),
        &extensions,
    ]
    .concat();
    let hello = [&[1, 0][..], &(body.len() as u16).to_be_bytes(), &body].concat();
    let record = [&[22, 3, 1][..], &(hello.len() as u16).to_be_bytes(), &hello].concat();
    server.read_tls(&mut &record[..]).unwrap();
    let error = server.process_new_packets().unwrap_err();
    let expected = PeerIncompatible::SupportedVersionsExtensionRequired;
    assert_eq!(error, Error::PeerIncompatible(expected));
    let mut answer = Vec::new();
    server.write_tls(&mut answer).unwrap();
    assert_eq!(answer.last(), Some(&u8::from(AlertDescription::ProtocolVersion)));
}

#[test]
fn session_is_resumed_and_shows_the_peer_again() {
    let site = Site::new();
    let (client, server) = (site.client(), site.server());
    assert_eq!(meet(&client, &server).unwrap().kind(), HandshakeKind::Full);
    for _ in 0..3 {
        assert_eq!(meet(&client, &server).unwrap().kind(), HandshakeKind::Resumed);
    }
}

#[test]
fn revoked_client_is_refused_at_the_next_handshake_and_cannot_resume() {
    let mut site = Site::new();
    let (client, server) = (site.client(), site.server());
    let old_config = server.server_config();
    meet(&client, &server).unwrap();
    let (number, _) = server.crl();
    site.authority.revoke("c1", None, Reason::KeyCompromise, now()).unwrap();
    assert_eq!(server.check(&client.identity()), Ok(()), "the server does not know it yet");

    let bytes = site.admin().crl().1;
    let change = server.set_crl(&bytes).unwrap().unwrap();
    assert_eq!((change.revoked, change.list_number), (vec![client.identity().serial], number + 1));
    assert_eq!(server.check(&client.identity()), Err(Refused::Revoked));
    assert_eq!(server.identity_of(&client.chain()), Err(Refused::Revoked));
    let failed = meet(&client, &server).err().unwrap();
    assert_eq!(Refused::of(&failed.server.unwrap()), Some(Refused::Revoked));
    assert_eq!(Refused::by_peer(&failed.client.unwrap()), Some(Refused::Revoked));

    // The configuration of before still resumes, which is why the caller judges the chain again.
    let ends = connect(client.client_config(), old_config.clone()).unwrap();
    assert_eq!(ends.kind(), HandshakeKind::Resumed);
    assert_eq!(server.identity_of(ends.server.peer_certificates().unwrap()), Err(Refused::Revoked));
    // A full handshake with it is refused: it judges by the list of now.
    let failed = connect(fresh_client(&client), old_config).err().unwrap();
    assert_eq!(Refused::of(&failed.server.unwrap()), Some(Refused::Revoked));
    let again = Trust::load(&site.dir(Role::Client, "c1")).unwrap_err();
    assert_eq!(again.why, Why::Refused(Refused::Revoked));
}

/// The client with no memory of sessions.
fn fresh_client(trust: &Trust) -> Arc<ClientConfig> {
    let mut config = (*trust.client_config()).clone();
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}

#[test]
fn list_that_is_older_or_of_another_ca_changes_nothing() {
    let mut site = Site::new();
    let server = site.server();
    let (first, old) = server.crl();
    site.authority.revoke("c1", None, Reason::Unspecified, now()).unwrap();
    let new = site.admin().crl().1;
    assert!(server.set_crl(&new).unwrap().is_some());
    assert_eq!(server.set_crl(&new), Ok(None), "the same again");
    assert_eq!(server.set_crl(&old), Ok(None), "an older one");
    assert_eq!(server.crl(), (first + 1, new.clone()));

    // A cluster of our name has a CA of our CA's name.
    let mut other = Site::new();
    other.authority.revoke("c1", None, Reason::Unspecified, now()).unwrap();
    let theirs = other.admin().crl().1;
    assert_eq!(server.set_crl(&theirs), Err(crate::BadList::Signature));
    let stranger = Site::of("beta");
    assert_eq!(server.set_crl(&stranger.server().crl().1), Ok(None), "a CA that is not in the bundle");
    for cut in [1, new.len() / 2, new.len() - 1] {
        assert_eq!(server.set_crl(&new[..cut]), Err(crate::BadList::Malformed));
    }
    assert_eq!(server.crl(), (first + 1, new));
}

#[test]
fn certificate_counts_from_its_begin_to_its_end() {
    let mut site = Site::new();
    let begin = now();
    site.authority.issue(Role::Router, &name("r1"), 2, begin).unwrap();
    let (router, server) = (site.trust(Role::Router, "r1"), site.server());
    let chain = router.chain();
    let at = |time| server.identity_at(&chain, time).map(|identity| identity.role);
    assert_eq!(at(begin), Ok(Role::Router));
    assert_eq!(at(begin + DAY * 3 / 2), Ok(Role::Router));
    assert_eq!(at(begin + DAY * 5 / 2), Err(Refused::Expired));
    assert_eq!(at(begin - DAY), Err(Refused::NotYetValid));
    let end = router.not_after().duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(end, crate::unix(begin + DAY * 2));
}
