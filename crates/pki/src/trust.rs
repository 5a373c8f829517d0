//! A node's folder in use: rustls configurations, and the check of peers.
//!
//! The whole state is swapped at once. A configuration that was taken before a swap goes on with this node's certificate of then, but
//! judges peers by the state of now.

mod folder;
mod verifier;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::crl::{BadList, Lists};
use crate::der;
use crate::facts::Facts;
use crate::identity::{Identity, Name, Serial};
use crate::publish::{NotPublished, Published};
use crate::refused::Refused;
use crate::unix;
pub use folder::{CA_PEM, CRL_MAP_PEM, CRL_PEM, Fault, NODE_KEY, NODE_PEM, Why};
use folder::{Found, Stamps};
use verifier::Verifier;

/// The protocol that both sides must speak.
pub const ALPN: &[u8] = b"stria/1";
/// The protocol in which a circuit through a router is asked for. A router cannot pass such a handshake off as a node's.
pub const ALPN_CIRCUIT: &[u8] = b"stria-circuit/1";
/// Servers whose sessions a client remembers, eight of each: several times the nodes of a large cluster.
const REMEMBERED_SERVERS: usize = 4096;

/// This node's certificate, and what it trusts.
#[derive(Debug)]
pub struct Trust {
    dir: PathBuf,
    state: ArcSwap<State>,
    facts: Arc<ArcSwap<Facts>>,
    /// The files as they were looked at last. A thread that swaps the state holds the lock.
    seen: Mutex<Stamps>,
}

#[derive(Debug)]
struct State {
    identity: Identity,
    not_after: u64,
    key: Arc<CertifiedKey>,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    circuit_client: Arc<ClientConfig>,
    circuit_server: Arc<ServerConfig>,
}

/// The difference after a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Close the connections of these, and end their sessions.
    pub revoked: Vec<Serial>,
    /// CAs came or went: judge every connection's chain again by [`Trust::identity_of`].
    pub has_new_cas: bool,
    /// This node has another certificate. Other ends know it by connections that are dialled from now on.
    pub has_new_certificate: bool,
    /// Number of the revocation list of now.
    pub list_number: u64,
}

/// The outcome of [`Trust::reload_if_changed`]. Both may be there: a broken folder with a newer revocation list (pki-T3).
#[derive(Debug, Default)]
pub struct Reload {
    pub change: Option<Change>,
    /// Reported once per change of the files.
    pub fault: Option<Fault>,
}

impl Trust {
    /// Loads a node's folder, by the clock of now.
    pub fn load(dir: &Path) -> Result<Arc<Trust>, Fault> {
        Trust::load_at(dir, SystemTime::now())
    }

    /// Loads a node's folder. Refused if this node's own certificate would be refused by its peers.
    pub fn load_at(dir: &Path, now: SystemTime) -> Result<Arc<Trust>, Fault> {
        let seen = Stamps::of(dir);
        let found = Found::read(dir, &Lists::default(), now)?;
        let facts = Arc::new(ArcSwap::from_pointee(found.facts));
        let state = State::new(found.identity, found.key, &facts);
        Ok(Arc::new(Trust {
            dir: dir.to_owned(),
            state: ArcSwap::from_pointee(state),
            facts,
            seen: Mutex::new(seen),
        }))
    }

    /// This node's identity.
    pub fn identity(&self) -> Identity {
        self.state.load().identity.clone()
    }

    /// When this node's certificate ends.
    pub fn not_after(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.state.load().not_after)
    }

    /// This node's certificate chain.
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.state.load().key.cert.clone()
    }

    /// For a connection that this node opens. Take it anew for each connection. Sessions are resumed within one configuration.
    pub fn client_config(&self) -> Arc<ClientConfig> {
        self.state.load().client.clone()
    }

    /// For a connection that this node accepts. Take it anew for each connection.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        self.state.load().server.clone()
    }

    /// For a circuit that this node asks a router for. It names the cluster, since a router may have certificates of several.
    pub fn circuit_client_config(&self) -> Arc<ClientConfig> {
        self.state.load().circuit_client.clone()
    }

    /// For a circuit that this router is asked for.
    pub fn circuit_server_config(&self) -> Arc<ServerConfig> {
        self.state.load().circuit_server.clone()
    }

    /// The identity of a peer, by the clock of now. After a resumption call it with the connection's `peer_certificates`: rustls does not
    /// look at them again.
    pub fn identity_of(&self, chain: &[CertificateDer<'_>]) -> Result<Identity, Refused> {
        self.identity_at(chain, SystemTime::now())
    }

    /// The identity of a peer.
    pub fn identity_at(&self, chain: &[CertificateDer<'_>], now: SystemTime) -> Result<Identity, Refused> {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(unix(now)));
        self.facts.load().identity(chain, now)
    }

    /// Does an identity that was believed still count? It looks at the cluster and the revocation list, and not at times and CAs, which
    /// only the chain shows.
    pub fn check(&self, identity: &Identity) -> Result<(), Refused> {
        let facts = self.facts.load();
        match identity {
            other if other.cluster != facts.cluster => Err(Refused::OtherCluster),
            one if facts.lists.is_revoked(one.serial) => Err(Refused::Revoked),
            _ => Ok(()),
        }
    }

    /// The revocation list: its number, and its bytes for [`Trust::set_crl`] of another node.
    pub fn crl(&self) -> (u64, Vec<u8>) {
        let facts = self.facts.load();
        (facts.lists.number(), facts.lists.bytes())
    }

    /// Takes a newer revocation list. `None`: it is no newer one.
    pub fn set_crl(&self, bytes: &[u8]) -> Result<Option<Change>, BadList> {
        let _seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        self.swap_lists(&der::split(bytes).ok_or(BadList::Malformed)?)
    }

    /// Keeps the lists in the folder, so that they count at the next start without a management service. Nothing is written if the folder
    /// has them.
    pub fn keep_crl(&self) -> io::Result<()> {
        let _seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let facts = self.facts.load();
        let none = Lists::default().with([[0u8; 0]; 0], &facts.cas).unwrap_or_default();
        let file = folder::read_lists(&self.dir).ok().and_then(|lists| none.with(lists, &facts.cas).ok());
        let kept = folder::with_kept(&self.dir, &file.unwrap_or(none), &facts.cas);
        match kept.with(facts.lists.iter().map(|list| &list.der), &facts.cas) {
            Ok(newest) if !newest.is_same(&kept) => folder::keep(&self.dir, &newest),
            _ => Ok(()),
        }
    }

    /// True if a revocation list names the serial.
    pub fn is_revoked(&self, serial: Serial) -> bool {
        self.facts.load().lists.is_revoked(serial)
    }

    /// The lists for the cluster map that has `known`, after an administrator gave `given` (pki-T4).
    pub fn publish(&self, known: &[u8], given: &[u8]) -> Result<Published, NotPublished> {
        let facts = self.facts.load();
        crate::publish::publish(&facts.lists, &facts.cas, known, given)
    }

    /// With `seen` locked.
    fn swap_lists(&self, lists: &[impl AsRef<[u8]>]) -> Result<Option<Change>, BadList> {
        let before = self.facts.load_full();
        let lists = before.lists.with(lists, &before.cas)?;
        if lists.is_same(&before.lists) {
            return Ok(None);
        }
        let change = Change {
            revoked: lists.newer_than(&before.lists),
            list_number: lists.number(),
            ..Change::default()
        };
        let Facts { cluster, cas, anchors, .. } = (*before).clone();
        self.facts.store(Arc::new(Facts { cluster, cas, anchors, lists }));
        if !change.revoked.is_empty() {
            // New configurations remember no session, so a revoked peer cannot resume one.
            let State { identity, key, .. } = &**self.state.load();
            self.state.store(Arc::new(State::new(identity.clone(), key.clone(), &self.facts)));
        }
        Ok(Some(change))
    }

    /// Loads the folder again if a file of it has changed. Cheap otherwise; call it each second.
    pub fn reload_if_changed(&self) -> Reload {
        self.reload_if_changed_at(SystemTime::now())
    }

    pub fn reload_if_changed_at(&self, now: SystemTime) -> Reload {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // Before the files are read: a file that changes meanwhile is seen the next time.
        let stamps = Stamps::of(&self.dir);
        if *seen == stamps {
            return Reload::default();
        }
        *seen = stamps;
        let before = self.facts.load_full();
        match Found::read(&self.dir, &before.lists, now).and_then(|found| self.refuse_other(found)) {
            Ok(found) => Reload { change: self.swap(&before, found), fault: None },
            Err(fault) => {
                // pki-T3: an operator may have copied the list alone, or half of the folder.
                let lists = folder::read_lists(&self.dir).ok();
                let change = lists.and_then(|lists| self.swap_lists(&lists).ok().flatten());
                Reload { change, fault: Some(fault) }
            }
        }
    }

    /// Peers know this process by its node, also where its serial changes.
    fn refuse_other(&self, found: Found) -> Result<Found, Fault> {
        let (own, new) = (self.identity(), &found.identity);
        match (&own.cluster, own.role, &own.node) == (&new.cluster, new.role, &new.node) {
            true => Ok(found),
            false => {
                let (path, why) = (self.dir.join(NODE_PEM), Why::OtherNode(own.to_string()));
                Err(Fault { path, why, node: Some(Box::new(own)) })
            }
        }
    }

    /// With `seen` locked.
    fn swap(&self, before: &Facts, found: Found) -> Option<Change> {
        let has_new_certificate = found.key.cert != self.state.load().key.cert;
        let change = Change {
            revoked: found.facts.lists.newer_than(&before.lists),
            has_new_cas: found.facts.cas != before.cas,
            has_new_certificate,
            list_number: found.facts.lists.number(),
        };
        let is_same_list = found.facts.lists.is_same(&before.lists);
        self.facts.store(Arc::new(found.facts));
        let is_same = change.revoked.is_empty() && !change.has_new_cas && !has_new_certificate;
        if !is_same {
            self.state.store(Arc::new(State::new(found.identity, found.key, &self.facts)));
        }
        (!is_same || !is_same_list).then_some(change)
    }
}

impl State {
    fn new(identity: Identity, key: Arc<CertifiedKey>, facts: &Arc<ArcSwap<Facts>>) -> State {
        const TLS13: &str = "TLS 1.3 is compiled in, and the provider has suites for it";
        let not_after = key.cert.first().and_then(|c| der::validity(c)).map_or(0, |(_, end)| end);
        let verifier = Arc::new(Verifier::new(facts.clone()));
        let own = Arc::new(SingleCertAndKey::from((*key).clone()));
        let versions = [&rustls::version::TLS13];
        let mut client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&versions)
            .expect(TLS13)
            .dangerous()
            .with_custom_certificate_verifier(verifier.clone())
            .with_client_cert_resolver(own.clone());
        client.alpn_protocols = vec![ALPN.to_vec()];
        // Names of nodes are for the client's memory of sessions only.
        client.enable_sni = false;
        client.resumption = rustls::client::Resumption::in_memory_sessions(8 * REMEMBERED_SERVERS);
        let mut server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&versions)
            .expect(TLS13)
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(own);
        server.alpn_protocols = vec![ALPN.to_vec()];
        match rustls::crypto::ring::Ticketer::new() {
            // Tickets keep no memory at the server, whatever the number of clients.
            Ok(ticketer) => server.ticketer = ticketer,
            // Without randomness for a key each connection is a full handshake.
            Err(_) => server.send_tls13_tickets = 0,
        }
        let mut circuit_client = client.clone();
        circuit_client.alpn_protocols = vec![ALPN_CIRCUIT.to_vec()];
        circuit_client.enable_sni = true;
        circuit_client.resumption = rustls::client::Resumption::disabled();
        let mut circuit_server = server.clone();
        circuit_server.alpn_protocols = vec![ALPN_CIRCUIT.to_vec()];
        // The bytes behind the greeting are the circuit's, so no ticket may follow it.
        circuit_server.send_tls13_tickets = 0;
        State {
            identity,
            not_after,
            key,
            client: Arc::new(client),
            server: Arc::new(server),
            circuit_client: Arc::new(circuit_client),
            circuit_server: Arc::new(circuit_server),
        }
    }
}

/// The suites in our order: AES has 10 rounds with 128 bits, and 14 with 256.
fn provider() -> Arc<CryptoProvider> {
    use rustls::crypto::ring::cipher_suite as suites;
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            suites::TLS13_AES_128_GCM_SHA256,
            suites::TLS13_AES_256_GCM_SHA384,
            suites::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        ..rustls::crypto::ring::default_provider()
    })
}

/// The name by which a circuit's dialler tells a router its cluster (SNI). A router with certificates of one cluster may pass over it.
pub fn circuit_name(cluster: &Name) -> ServerName<'static> {
    // The last label keeps a name of digits from being taken for an address, which SNI does not carry.
    server_name(&format!("{}.stria", cluster.as_str()))
}

/// The name by which a client remembers sessions with a peer: its host, its address, or any text that is one peer's. It is not sent,
/// and no certificate is compared with it.
pub fn server_name(peer: &str) -> ServerName<'static> {
    ServerName::try_from(peer.to_owned()).unwrap_or_else(|_| {
        let label: String = peer.bytes().take(30).map(|b| format!("{b:02x}")).collect();
        ServerName::try_from(format!("x{label}")).expect("a letter and hexadecimal digits are a DNS name")
    })
}
