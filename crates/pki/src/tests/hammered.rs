//! Mutated certificates and lists: 100,000 inputs, none of which panics.

use hammer::{Dice, Hammer};
use rustls_pki_types::CertificateDer;

use super::kit::*;
use crate::authority::Reason;
use crate::der;
use crate::identity::{Identity, Role, Serial};
use crate::trust::{CA_PEM, CRL_PEM, NODE_KEY, NODE_PEM, Trust};

/// Runs of 10,000 inputs.
const RUNS: usize = 5;
/// webpki keeps what it found for its errors, and owns a copy of each serial.
const BLOW_UP: usize = 64;
const SLACK: usize = 64 << 10;

#[test]
fn mutated_certificates_are_judged_or_refused() {
    let site = Site::new();
    let server = site.server();
    let seeds = [site.client(), site.server()].map(|trust| trust.chain()[0].to_vec());
    for run in 0..RUNS {
        let name = format!("certificate {run}");
        let hammer = Hammer::new(&name).seeds(seeds.clone()).random_len_max(900).bound(BLOW_UP, SLACK);
        let outcome = hammer.run(
            |bytes| {
                let _ = der::validity(bytes);
                server.identity_of(&[CertificateDer::from(bytes.to_vec())]).ok()
            },
            |bytes, identity: Identity| {
                assert_eq!(identity.cluster.as_str(), "alpha");
                bytes.len()
            },
        );
        assert!(outcome.accepted < outcome.inputs / 2, "{outcome:?}");
    }
}

#[test]
fn mutated_lists_are_taken_or_refused() {
    let mut site = Site::new();
    site.authority.revoke("c1", None, Reason::KeyCompromise, now()).unwrap();
    let server = site.trust(Role::Admin, "mds");
    let (number, seed) = server.crl();
    for run in 0..RUNS {
        let name = format!("list {run}");
        let hammer = Hammer::new(&name).seeds([seed.clone()]).random_len_max(900).bound(BLOW_UP, SLACK);
        hammer.run(
            |bytes| {
                let parts = der::list_parts(bytes).map(|parts| parts.number);
                server.set_crl(bytes).ok().map(|_| parts)
            },
            |bytes, _| bytes.len(),
        );
        assert_eq!(server.crl(), (number, seed.clone()), "no mutation has our CA's signature");
    }
}

#[test]
fn mutated_fields_and_names_are_read_or_refused() {
    let site = Site::new();
    let list = site.server().crl().1;
    let certificate = site.server().chain()[0].to_vec();
    let hammer = Hammer::new("list parts").seeds([list.clone()]).bound(BLOW_UP, SLACK);
    hammer.run(|bytes| der::list_parts(bytes).map(drop), |bytes, ()| bytes.len());
    let hammer = Hammer::new("validity").seeds([certificate]).bound(BLOW_UP, SLACK);
    hammer.run(der::validity, |bytes, _| bytes.len());
    let hammer = Hammer::new("split").seeds([[&list[..], &list].concat()]).bound(BLOW_UP, SLACK);
    let parts = |bytes: &[u8]| der::split(bytes).map(|parts| parts.concat());
    hammer.run(parts, |bytes, parts| {
        assert_eq!(parts, bytes);
        bytes.len()
    });
    let uri = |bytes: &[u8]| Identity::parse(std::str::from_utf8(bytes).ok()?, Serial(1)).ok();
    let hammer = Hammer::new("uri").seeds(["stria://alpha/server/mds.site"]).text().bound(BLOW_UP, SLACK);
    hammer.run(uri, |bytes, identity| {
        assert_eq!(identity.uri().as_bytes(), bytes, "one identity, two URIs");
        bytes.len()
    });
}

#[test]
fn mutated_files_of_a_folder_are_loaded_or_refused() {
    let site = Site::new();
    let dir = site.copied(Role::Server, "mds");
    let mut dice = Dice::new(7);
    let files = [CA_PEM, CRL_PEM, NODE_PEM, NODE_KEY];
    let good = files.map(|file| std::fs::read(dir.join(file)).unwrap());
    let mut refused = 0;
    for n in 0..2_000 {
        let place = n % files.len();
        let mut bytes = good[place].clone();
        for _ in 0..=dice.below(3) {
            dice.mutate(&mut bytes, &good);
        }
        put(&dir, files[place], &bytes);
        refused += u32::from(Trust::load(&dir).is_err());
        put(&dir, files[place], &good[place]);
    }
    assert!(refused > 1_000, "{refused}");
}
