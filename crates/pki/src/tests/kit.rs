//! A CA directory in a temporary place, and handshakes in memory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, SanType};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, Error, HandshakeKind, ServerConfig, ServerConnection};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::authority::Authority;
use crate::ca::{Ca, node_params};
use crate::identity::{Identity, Name, Role, Serial};
use crate::trust::{Trust, server_name};

pub const DAY: Duration = Duration::from_secs(86_400);

pub fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub fn now() -> SystemTime {
    SystemTime::now()
}

/// A directory that goes with its owner.
pub struct Place(PathBuf);

impl Place {
    pub fn new() -> Place {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("stria-pki-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Place(dir)
    }
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Copies a directory with all modes.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// A cluster with the nodes `mds` (server) and `c1` (client).
pub struct Site {
    pub place: Place,
    pub authority: Authority,
}

impl Site {
    pub fn new() -> Site {
        Site::of("alpha")
    }
    pub fn of(cluster: &str) -> Site {
        let place = Place::new();
        let mut authority =
            Authority::init(&place.path().join("ca"), &name(cluster), &name("mds"), now()).unwrap();
        authority.issue(Role::Client, &name("c1"), 30, now()).unwrap();
        Site { place, authority }
    }
    pub fn dir(&self, role: Role, node: &str) -> PathBuf {
        self.authority.node_dir(role, &name(node))
    }
    pub fn trust(&self, role: Role, node: &str) -> Arc<Trust> {
        Trust::load(&self.dir(role, node)).unwrap()
    }
    pub fn server(&self) -> Arc<Trust> {
        self.trust(Role::Server, "mds")
    }
    /// Loaded anew, so with the newest list.
    pub fn admin(&self) -> Arc<Trust> {
        Trust::load(&self.dir(Role::Server, "mds")).unwrap()
    }
    pub fn client(&self) -> Arc<Trust> {
        self.trust(Role::Client, "c1")
    }
    /// The folder of a node, copied to a host.
    pub fn copied(&self, role: Role, node: &str) -> PathBuf {
        let host = self.place.path().join(format!("host-{node}.{role}"));
        copy(&self.dir(role, node), &host);
        host
    }
    /// A certificate by this cluster's CA that the authority would not issue.
    pub fn odd(&self, change: impl FnOnce(&mut CertificateParams)) -> Arc<SingleCertAndKey> {
        odd(self.authority.current_ca(), self.authority.cluster(), change)
    }
}

/// A good certificate of `alpha`, but for the change, by `ca`, which has the name of `cluster`'s CA.
pub fn odd(ca: &Ca, cluster: &Name, change: impl FnOnce(&mut CertificateParams)) -> Arc<SingleCertAndKey> {
    let identity =
        Identity { cluster: name("alpha"), role: Role::Client, node: name("odd"), serial: Serial(1 << 100) };
    let mut params = node_params(&identity, crate::unix(now()), crate::unix(now() + DAY));
    params.subject_alt_names = vec![SanType::URI(identity.uri().try_into().unwrap())];
    change(&mut params);
    // The other kind of key that nodes may have.
    let algorithm = if params.subject_alt_names.len() == 1 { &PKCS_ED25519 } else { &PKCS_ECDSA_P256_SHA256 };
    let key = KeyPair::generate_for(algorithm).unwrap();
    let certificate = params.signed_by(&key, &ca.issuer(cluster)).unwrap();
    with_key(vec![certificate.der().clone()], &key)
}

pub fn with_key(chain: Vec<CertificateDer<'static>>, key: &KeyPair) -> Arc<SingleCertAndKey> {
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
    Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key)))
}

/// The configuration of a client that sends another certificate than its own.
pub fn client_with(trust: &Trust, own: Arc<SingleCertAndKey>) -> Arc<ClientConfig> {
    let mut config = (*trust.client_config()).clone();
    config.client_auth_cert_resolver = own;
    Arc::new(config)
}

pub fn server_with(trust: &Trust, own: Arc<SingleCertAndKey>) -> Arc<ServerConfig> {
    let mut config = (*trust.server_config()).clone();
    config.cert_resolver = own;
    Arc::new(config)
}

/// Both ends after a handshake.
pub struct Ends {
    pub client: ClientConnection,
    pub server: ServerConnection,
}

impl Ends {
    pub fn kind(&self) -> HandshakeKind {
        assert_eq!(self.client.handshake_kind(), self.server.handshake_kind());
        self.client.handshake_kind().unwrap()
    }
}

/// The first error of each side.
#[derive(Debug, Default, PartialEq)]
pub struct Failed {
    pub client: Option<Error>,
    pub server: Option<Error>,
}

/// A handshake in memory, and the tickets behind it.
pub fn connect(client: Arc<ClientConfig>, server: Arc<ServerConfig>) -> Result<Ends, Box<Failed>> {
    let mut client = ClientConnection::new(client, server_name("mds")).unwrap();
    let mut server = ServerConnection::new(server).unwrap();
    let mut failed = Failed::default();
    loop {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let is_quiet = bytes.is_empty();
        let mut rest = &bytes[..];
        while !rest.is_empty() && failed.server.is_none() {
            server.read_tls(&mut rest).unwrap();
            failed.server = server.process_new_packets().err();
        }
        bytes.clear();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        if is_quiet && bytes.is_empty() {
            break;
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() && failed.client.is_none() {
            client.read_tls(&mut rest).unwrap();
            failed.client = client.process_new_packets().err();
        }
    }
    if failed != Failed::default() {
        return Err(failed.into());
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok(Ends { client, server })
}

/// The handshake of two nodes, each of which knows the other.
pub fn meet(client: &Trust, server: &Trust) -> Result<Ends, Box<Failed>> {
    let ends = connect(client.client_config(), server.server_config())?;
    let of_client = server.identity_of(ends.server.peer_certificates().unwrap()).unwrap();
    assert_eq!(of_client, client.identity());
    let of_server = client.identity_of(ends.client.peer_certificates().unwrap()).unwrap();
    assert_eq!(of_server, server.identity());
    Ok(ends)
}

/// Writes a file as `scp` does: in place.
pub fn put(dir: &Path, file: &str, bytes: &[u8]) {
    fs::write(dir.join(file), bytes).unwrap();
}

pub fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}
