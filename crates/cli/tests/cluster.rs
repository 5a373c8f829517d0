//! The story of `stria cluster`: a CA from its begin through revocation and rotation, by the binary.

#![allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let dir = std::env::temp_dir().join(format!("stria-cluster-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Place(dir)
    }
    fn ca(&self) -> String {
        self.0.join("ca").to_str().unwrap().to_owned()
    }
    /// `stria cluster LINE --dir CA`.
    fn run(&self, line: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stria"));
        command.arg("cluster").args(line.split_whitespace()).args(["--dir", &self.ca()]);
        command.output().unwrap()
    }
    /// The standard output of a command that succeeds.
    fn done(&self, line: &str) -> String {
        let out = self.run(line);
        assert_eq!(out.status.code(), Some(0), "{line}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }
    /// The error line of a command that is refused.
    fn refused(&self, line: &str, code: i32) -> String {
        let out = self.run(line);
        let text = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(code), "{line}: {text}");
        text
    }
    fn list(&self) -> serde_json::Value {
        serde_json::from_str(&self.done("list -j")).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn each_command_says_what_to_copy_where() {
    let place = Place::new("story");
    let ca = place.ca();
    let made = place.done("init --name alpha --node mds1");
    assert!(made.contains("made the CA of cluster alpha"), "{made}");
    assert!(made.contains(&format!("scp -p {ca}/nodes/mds1.server/* mds1:/etc/stria/tls/")), "{made}");
    assert!(made.contains("nodes/mds1.admin/* mds1:/etc/stria/admin/"), "{made}");
    assert!(place.refused("init --name alpha --node mds1", 2).contains("has a CA already, of cluster alpha"));

    let added = place.done("add-node login1 --role client --days 100");
    assert!(added.contains("issued the client certificate"), "{added}");
    assert!(added.contains("login1.client/* login1:/etc/stria/tls/"), "{added}");
    let key = fs::metadata(format!("{ca}/nodes/login1.client/node.key")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    place.done("issue login1 --role client");

    let listed = place.list();
    let certificates = listed["certificates"].as_array().unwrap();
    assert_eq!((certificates.len(), listed["revocation_list"].as_u64()), (4, Some(1)));
    let serial = certificates[1]["serial"].as_str().unwrap();
    assert_eq!(certificates[1]["newest"], false);
    let table = place.done("list");
    assert!(table.contains(&format!("client  {}  1    ", &serial[..10])), "{table}");

    let revoked = place.done(&format!("revoke {} --reason superseded", &serial[..10]));
    assert!(revoked.contains("revoked client certificate"), "{revoked}");
    assert!(revoked.contains(&format!("scp -p {ca}/crl.pem mds1:/etc/stria/tls/")), "{revoked}");
    assert!(revoked.contains("stria cluster publish --mgs NID"), "{revoked}");
    assert!(place.done("revoke login1").contains("was revoked before"));
    assert!(place.refused("revoke nobody", 2).contains("; `stria cluster list` shows"));

    place.done("add-node login2 --role client");
    assert!(place.refused("rotate --finish", 2).contains("no rotation is under way"));
    let rotated = place.done("rotate");
    assert!(rotated.contains("made CA 2, and issued 3 certificates again by it"), "{rotated}");
    assert!(
        rotated.contains(&format!("scp -p {ca}/crl.pem {ca}/ca.pem login2:/etc/stria/tls/")),
        "{rotated}"
    );
    assert!(rotated.contains(&format!("stria cluster rotate --finish --dir {ca}")), "{rotated}");
    assert!(place.refused("rotate", 2).contains("a rotation to CA 2 is under way"));

    let listed = place.list();
    let newest = &listed["certificates"][2];
    assert_eq!((newest["node"].as_str(), newest["generation"].as_u64()), (Some("login2"), Some(2)));
}

#[test]
fn folder_of_a_second_role_does_not_overwrite_the_servers() {
    let place = Place::new("roles");
    place.done("init --name alpha --node mds1");
    assert!(place.done("add-node mds1 --role client").contains("mds1:/etc/stria/tls-client/"));
    assert!(place.done("add-node login1 --role client").contains("login1:/etc/stria/tls/"));
    let rotated = place.done("rotate");
    for to in ["mds1:/etc/stria/tls/", "mds1:/etc/stria/tls-client/", "mds1:/etc/stria/admin/"] {
        let lines = rotated.lines().filter(|line| line.ends_with(to)).count();
        assert_eq!(lines, 2, "the CAs and the folder go to {to}: {rotated}");
    }
}

#[test]
fn finish_is_refused_while_a_node_has_only_an_old_certificate() {
    let place = Place::new("finish");
    place.done("init --name alpha --node mds1");
    place.done("add-node login1 --role client");
    place.done("rotate");
    let serial = place.list()["certificates"][0]["serial"].as_str().unwrap().to_owned();
    place.done(&format!("revoke {serial}"));
    let text = place.refused("rotate --finish", 1);
    assert!(text.contains("not issued again: client login1 ("), "{text}");
    assert!(place.done("rotate --finish --yes").contains("of login1 counts no longer"));
    assert_eq!(place.list()["rotating"], false);
}

#[test]
fn list_warns_of_certificates_that_expire_soon() {
    let place = Place::new("soon");
    place.done("init --name alpha --node mds1");
    place.done("add-node login1 --role client --days 10");
    let text = place.refused("list", 1);
    assert!(text.contains("the client certificate of login1 expires on"), "{text}");
    assert!(text.contains("`stria cluster issue login1 --role client --dir"), "{text}");
    // A newer one makes the warning go.
    place.done("issue login1 --role client");
    place.done("list");
}

#[test]
fn wrong_words_are_refused_before_anything_is_written() {
    let place = Place::new("words");
    for line in ["init --name Alpha", "init --name -", "add-node x --role root", "add-node x --days 0"] {
        let text = place.refused(line, 2);
        assert!(!text.is_empty(), "{line}");
    }
    assert!(place.refused("add-node oss1", 2).contains("has no CA; give its --dir"));
    assert!(!place.0.join("ca").exists());
}

/// Another implementation reads what this one writes.
#[test]
fn openssl_verifies_certificates_against_the_bundle_and_the_list() {
    let place = Place::new("openssl");
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("openssl is not installed: not looked at");
        return;
    }
    place.done("init --name alpha --node mds1");
    place.done("add-node login1 --role client");
    let verify = |folder: &str| {
        let dir = format!("{}/nodes/{folder}", place.ca());
        let out = Command::new("openssl")
            .args(["verify", "-x509_strict", "-crl_check", "-CAfile", "ca.pem", "-CRLfile", "crl.pem"])
            .args(["-purpose", "sslserver", "node.pem"])
            .current_dir(&dir)
            .output()
            .unwrap();
        let text = [out.stdout, out.stderr].concat();
        (out.status.success(), String::from_utf8_lossy(&text).into_owned())
    };
    let (is_good, text) = verify("mds1.server");
    assert!(is_good, "{text}");
    place.done("revoke login1");
    let (is_good, text) = verify("login1.client");
    assert!(!is_good && text.contains("revoked"), "{text}");
}
