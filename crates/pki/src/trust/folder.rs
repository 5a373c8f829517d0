//! A node's folder: `ca.pem`, `crl.pem`, `node.pem`, `node.key`; and `crl-map.pem`, which processes write.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use webpki::EndEntityCert;

use crate::crl::{BadList, Lists};
use crate::facts::{Facts, identity_in};
use crate::identity::Identity;
use crate::refused::Refused;
use crate::{der, unix};

pub const CA_PEM: &str = "ca.pem";
pub const CRL_PEM: &str = "crl.pem";
pub const NODE_PEM: &str = "node.pem";
pub const NODE_KEY: &str = "node.key";
/// The lists of the cluster map, as a process of this node kept them.
pub const CRL_MAP_PEM: &str = "crl-map.pem";
const FILES: [&str; 5] = [CA_PEM, CRL_PEM, NODE_PEM, NODE_KEY, CRL_MAP_PEM];
/// Bounds of files, so that a wrong one does not fill the memory: a list of 300,000 serials, and a bundle of hundreds of CAs.
const LIST_BYTES_MAX: u64 = 16 << 20;
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A file of a node's folder cannot be used. The text says file, reason and remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub path: PathBuf,
    pub why: Why,
    /// This node, as far as its certificate can be read.
    pub node: Option<Box<Identity>>,
}

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// There is no such file.
    #[error("it is missing")]
    Missing,
    /// The system refuses.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// It is no PEM file, or lacks what it should hold.
    #[error("it holds no {0}")]
    Empty(&'static str),
    /// Other users may read the key.
    #[error("other users may read it (mode {0:03o})")]
    Open(u32),
    /// Key and certificate are of two issues.
    #[error("the key does not belong to node.pem")]
    Mismatch,
    /// The list is not of this cluster, or is cut.
    #[error("{0}")]
    List(BadList),
    /// A CA of the bundle has no list.
    #[error("it lacks the revocation list of a CA in ca.pem")]
    NoList,
    /// The certificate's time is over.
    #[error("this node's certificate expired on {0}")]
    Expired(String),
    /// The certificate's time is ahead.
    #[error("this node's certificate is not valid before {0}")]
    NotYetValid(String),
    /// A running process found the folder of another node.
    #[error("it is of another node; this process is {0}")]
    OtherNode(String),
    /// Peers would refuse it.
    #[error("peers would refuse this node: {0}")]
    Refused(Refused),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.path.display(), self.why, self.next())
    }
}

impl std::error::Error for Fault {}

impl Fault {
    /// The remedy.
    pub fn next(&self) -> String {
        let role = self.node.as_ref().map_or("ROLE".into(), |node| node.role.to_string());
        let node = self.node.as_ref().map_or("NODE".into(), |node| node.node.to_string());
        let dir = self.path.parent().unwrap_or(Path::new(""));
        let copy = format!("copy the folder nodes/{node}.{role} of the CA directory to {}", dir.display());
        match &self.why {
            Why::OtherNode(_) => "start the process anew, or copy its own folder back".into(),
            Why::Open(_) => format!("`chmod 600 {}`", self.path.display()),
            Why::Unreadable(_) => "check its permissions and the medium".into(),
            Why::NotYetValid(_) => "set the clocks of this host and of the CA's host".into(),
            Why::Missing | Why::Empty(_) | Why::Mismatch | Why::List(_) | Why::NoList => {
                format!("{copy} again")
            }
            Why::Expired(_) | Why::Refused(_) => {
                format!("run `stria cluster issue {node} --role {role}`, and {copy}")
            }
        }
    }
}

/// A usable folder.
#[derive(Debug)]
pub struct Found {
    pub identity: Identity,
    pub key: Arc<CertifiedKey>,
    pub facts: Facts,
}

impl Found {
    /// Reads all files. Lists of `before` count where the folder has none that is newer.
    pub fn read(dir: &Path, before: &Lists, now: SystemTime) -> Result<Found, Fault> {
        let mut node = None;
        Found::try_read(dir, before, now, &mut node).map_err(|(name, why)| Fault {
            path: dir.join(name),
            why,
            node,
        })
    }

    fn try_read(
        dir: &Path,
        before: &Lists,
        now: SystemTime,
        node: &mut Option<Box<Identity>>,
    ) -> Result<Found, (&'static str, Why)> {
        // 1. The node's certificate: whatever is wrong later, the remedy names the node.
        let chain = certificates(dir, NODE_PEM)?;
        let parsed = EndEntityCert::try_from(&chain[0]).map_err(|_| (NODE_PEM, Why::Empty("certificate")))?;
        let identity = identity_in(&parsed).map_err(|refused| (NODE_PEM, Why::Refused(refused)))?;
        *node = Some(Box::new(identity.clone()));
        // 2. The key.
        let key = key(dir, &chain)?;
        // 3. CAs, and their lists.
        let cas = certificates(dir, CA_PEM)?;
        let anchor = |ca| webpki::anchor_from_trusted_cert(ca).map(|anchor| anchor.to_owned());
        let anchors = cas.iter().map(anchor).collect::<Result<Vec<_>, _>>();
        let anchors = anchors.map_err(|_| (CA_PEM, Why::Empty("CA certificate")))?;
        // Lists of before are verified again, as the CAs may be others.
        let kept: Vec<&[u8]> = before.iter().map(|list| &list.der[..]).collect();
        let lists = Lists::default().with(&kept, &cas).unwrap_or_default();
        let lists = lists.with(read_lists(dir)?, &cas).map_err(|bad| (CRL_PEM, Why::List(bad)))?;
        let lists = with_kept(dir, &lists, &cas);
        if lists.missing().is_some() {
            return Err((CRL_PEM, Why::NoList));
        }
        // 4. Judge the node as its peers will.
        let facts = Facts { cluster: identity.cluster.clone(), cas, anchors, lists };
        let at = UnixTime::since_unix_epoch(Duration::from_secs(unix(now)));
        facts.identity(&chain, at).map_err(|refused| (NODE_PEM, refusal(refused, &chain[0])))?;
        Ok(Found { identity, key, facts })
    }
}

fn refusal(refused: Refused, certificate: &[u8]) -> Why {
    match (refused, der::validity(certificate)) {
        (Refused::Expired, Some((_, end))) => Why::Expired(crate::day(end)),
        (Refused::NotYetValid, Some((begin, _))) => Why::NotYetValid(crate::day(begin)),
        (refused, _) => Why::Refused(refused),
    }
}

fn certificates(dir: &Path, name: &'static str) -> Result<Vec<CertificateDer<'static>>, (&'static str, Why)> {
    let text = bytes(dir, name, FILE_BYTES_MAX)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    all.ok().filter(|all| !all.is_empty()).ok_or((name, Why::Empty("certificate")))
}

/// The lists in `crl.pem`.
pub fn read_lists(dir: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, (&'static str, Why)> {
    let text = bytes(dir, CRL_PEM, LIST_BYTES_MAX)?;
    let all: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&text).collect();
    all.ok().filter(|all| !all.is_empty()).ok_or((CRL_PEM, Why::Empty("revocation list")))
}

/// These lists, or newer ones that a process kept. Kept lists of another cluster do not count: the folder may have been replaced.
pub fn with_kept(dir: &Path, lists: &Lists, cas: &[CertificateDer<'_>]) -> Lists {
    let text = bytes(dir, CRL_MAP_PEM, LIST_BYTES_MAX).unwrap_or_default();
    let kept = CertificateRevocationListDer::pem_slice_iter(&text).filter_map(Result::ok);
    kept.fold(lists.clone(), |lists, list| lists.with([list], cas).unwrap_or(lists))
}

/// Keeps lists for the next start. A crash leaves the file of before or the new one.
pub fn keep(dir: &Path, lists: &Lists) -> io::Result<()> {
    let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    let block =
        |list: &crate::crl::List| pem::encode_config(&pem::Pem::new("X509 CRL", list.der.clone()), lines);
    let text: String = lists.iter().map(block).collect();
    // Several processes of a host share the folder.
    let fresh = dir.join(format!("{CRL_MAP_PEM}.{}", std::process::id()));
    let written = File::create(&fresh)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&fresh, dir.join(CRL_MAP_PEM)))
        .and_then(|()| File::open(dir)?.sync_all());
    if written.is_err() {
        // The directory may be read-only, so the file may not be there.
        let _ = fs::remove_file(&fresh);
    }
    written
}

fn key(dir: &Path, chain: &[CertificateDer<'static>]) -> Result<Arc<CertifiedKey>, (&'static str, Why)> {
    let empty = || (NODE_KEY, Why::Empty("key for ECDSA P-256 or Ed25519"));
    let text = bytes(dir, NODE_KEY, FILE_BYTES_MAX)?;
    let key = PrivateKeyDer::from_pem_slice(&text).map_err(|_| empty())?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key).map_err(|_| empty())?;
    let key = CertifiedKey::new(chain.to_vec(), key);
    key.keys_match().map_err(|_| (NODE_KEY, Why::Mismatch))?;
    Ok(Arc::new(key))
}

fn bytes(dir: &Path, name: &'static str, max: u64) -> Result<Vec<u8>, (&'static str, Why)> {
    let unreadable = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => (name, Why::Missing),
        _ => (name, Why::Unreadable(e.to_string())),
    };
    let file = File::open(dir.join(name)).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.permissions().mode() & 0o777;
    if name == NODE_KEY && mode & 0o077 != 0 {
        return Err((name, Why::Open(mode)));
    }
    let mut bytes = Vec::new();
    // A longer file is cut here, and then found to be no PEM.
    file.take(max).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

/// Marks of the files by which a change is seen.
#[derive(Debug, PartialEq, Eq)]
pub struct Stamps([Option<Stamp>; FILES.len()]);

type Stamp = (i64, i64, u64, u64, u32);

impl Stamps {
    pub fn of(dir: &Path) -> Stamps {
        Stamps(FILES.map(|name| {
            let meta = fs::metadata(dir.join(name)).ok()?;
            Some((meta.mtime(), meta.mtime_nsec(), meta.len(), meta.ino(), meta.mode()))
        }))
    }
}
