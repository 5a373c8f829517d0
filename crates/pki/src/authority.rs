//! The CA directory: it issues, revokes and rotates, and keeps a folder per node for the administrator to copy.
//!
//! A command plans all files that it changes and hands them to the folder, which writes them all or none (pki-A1).

mod folder;
mod records;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rcgen::{KeyPair, PublicKeyData};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};

use crate::ca::Ca;
use crate::identity::{Identity, Name, Role, Serial};
use crate::trust::{CA_PEM, CRL_PEM, NODE_KEY, NODE_PEM};
use crate::{der, unix};
use folder::{Folder, Plan};
use records::{About, Issued};
pub use records::{Listed, Reason, Record, Revocation, State};

/// 13 months, so that a yearly renewal has a month of slack.
pub const NODE_DAYS: u32 = 397;
/// Longest life of a node's certificate.
pub const NODE_DAYS_MAX: u32 = 3650;
/// Life of a CA.
pub const CA_DAYS: u32 = 3650;
const DAY_SEC: u64 = 86_400;

const ABOUT: &str = "cluster.toml";
const CA_KEY: &str = "ca.key";
const RECORDS: &str = "issued.json";
const NODES: &str = "nodes";

/// Why a command on the CA directory failed. Drop the [`Authority`] then. Only after `Io` may the directory have changed.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// There is no CA.
    #[error("{} has no CA", .dir.display())]
    None { dir: PathBuf },
    /// `init` finds one.
    #[error("{} has a CA already, of cluster {cluster}", .dir.display())]
    Exists { dir: PathBuf, cluster: Name },
    /// Another command has the lock.
    #[error("another command works in {}", .dir.display())]
    InUse { dir: PathBuf },
    /// The system refuses. The next command completes a change that was committed.
    #[error("{doing} {}: {source}", .path.display())]
    Io { doing: &'static str, path: PathBuf, source: std::io::Error },
    /// A file was edited, or its medium is damaged.
    #[error("{} cannot be used: {why}", .path.display())]
    Damaged { path: PathBuf, why: String },
    /// Other users may read the CA's key.
    #[error("{} may be read by other users (mode {mode:03o})", .path.display())]
    OpenKey { path: PathBuf, mode: u32 },
    /// `--days`.
    #[error("a certificate is valid for 1 to {NODE_DAYS_MAX} days")]
    Days,
    /// The CA's own time is over.
    #[error("the CA expired on {day}")]
    CaExpired { day: String },
    /// Nothing was issued under that name or serial.
    #[error("no certificate was issued for {which}")]
    Unknown { which: String },
    /// The beginning of a serial is that of several.
    #[error("several serials begin with {which}")]
    Ambiguous { which: String },
    /// `rotate` while the bundle has two CAs.
    #[error("a rotation to CA {generation} is under way")]
    Rotating { generation: u32 },
    /// `rotate --finish` while the bundle has one CA.
    #[error("no rotation is under way")]
    NotRotating,
    /// `rotate --finish` would end valid certificates.
    #[error("the earlier CA still has certificates that were not issued again: {}", names(.left))]
    Left { left: Vec<Record> },
    /// The library refuses, or there is no randomness.
    #[error("making a certificate: {0}")]
    Make(String),
}

fn names(left: &[Record]) -> String {
    let name = |r: &Record| format!("{} {} ({})", r.role, r.node, r.serial.short());
    left.iter().map(name).collect::<Vec<_>>().join(", ")
}

impl From<rcgen::Error> for AuthorityError {
    fn from(error: rcgen::Error) -> AuthorityError {
        AuthorityError::Make(error.to_string())
    }
}

/// Certificates that `revoke` found.
#[derive(Debug, Default)]
pub struct Revoked {
    pub now: Vec<Record>,
    pub before: Vec<Record>,
}

/// The CA directory, locked until dropped.
#[derive(Debug)]
pub struct Authority {
    folder: Folder,
    cluster: Name,
    /// The current CA, and during a rotation the earlier one.
    cas: Vec<Ca>,
    issued: Issued,
}

impl Authority {
    /// Makes a CA in `dir`, and the first certificates: an administrator's and a server's for `host`.
    pub fn init(
        dir: &Path,
        cluster: &Name,
        host: &Name,
        now: SystemTime,
    ) -> Result<Authority, AuthorityError> {
        Authority::init_in(Folder::make(dir)?, cluster, host, now)
    }

    fn init_in(
        folder: Folder,
        cluster: &Name,
        host: &Name,
        now: SystemTime,
    ) -> Result<Authority, AuthorityError> {
        let now = unix(now);
        if let Some(text) = folder.read(ABOUT)? {
            let cluster = About::read(&text).map_err(|why| folder.damaged(ABOUT, why))?.name;
            return Err(AuthorityError::Exists { dir: folder.dir().to_owned(), cluster });
        }
        let ca = Ca::make(cluster, 1, fresh_serial()?, now, now + u64::from(CA_DAYS) * DAY_SEC)?;
        let (cluster, issued) = (cluster.clone(), Issued::default());
        let mut made = Authority { folder, cluster, cas: vec![ca], issued };
        let mut plan = Plan::default();
        for role in [Role::Admin, Role::Server] {
            made.add(role, host, u64::from(NODE_DAYS) * DAY_SEC, now, &mut plan)?;
        }
        made.commit(plan, true, now)?;
        Ok(made)
    }

    /// Opens the CA in `dir`, and completes what a killed command has begun.
    pub fn open(dir: &Path) -> Result<Authority, AuthorityError> {
        Authority::open_in(Folder::open(dir)?)
    }

    fn open_in(folder: Folder) -> Result<Authority, AuthorityError> {
        let none = || AuthorityError::None { dir: folder.dir().to_owned() };
        let about = folder.read(ABOUT)?.ok_or_else(none)?;
        let about = About::read(&about).map_err(|why| folder.damaged(ABOUT, why))?;
        let records = folder.must_read(RECORDS)?;
        let issued = Issued::read(&records).map_err(|why| folder.damaged(RECORDS, why))?;
        let cas = cas(&folder, about.generation)?;
        Ok(Authority { folder, cluster: about.name, cas, issued })
    }

    pub fn cluster(&self) -> &Name {
        &self.cluster
    }

    /// Number of the current CA; it rises with each rotation.
    pub fn generation(&self) -> u32 {
        self.cas[0].generation
    }

    pub fn is_rotating(&self) -> bool {
        self.cas.len() > 1
    }

    /// When the current CA ends, in seconds since 1970.
    pub fn ca_not_after(&self) -> u64 {
        self.cas[0].not_after
    }

    /// Number of the newest revocation list.
    pub fn list_number(&self) -> u64 {
        self.issued.list_number
    }

    /// The revocation lists, for [`Trust::set_crl`](crate::Trust::set_crl) of any node.
    pub fn lists(&self) -> Result<Vec<u8>, AuthorityError> {
        let text = self.folder.must_read(CRL_PEM)?;
        let mut bytes = Vec::new();
        for list in CertificateRevocationListDer::pem_slice_iter(text.as_bytes()) {
            bytes.extend_from_slice(&list.map_err(|e| self.folder.damaged(CRL_PEM, e.to_string()))?);
        }
        Ok(bytes)
    }

    pub fn dir(&self) -> &Path {
        self.folder.dir()
    }

    /// The folder that the administrator copies to the node.
    pub fn node_dir(&self, role: Role, node: &Name) -> PathBuf {
        self.folder.dir().join(node_dir(role, node))
    }

    #[cfg(test)]
    pub(crate) fn current_ca(&self) -> &Ca {
        &self.cas[0]
    }

    /// A new certificate in the node's folder. An earlier one stays valid.
    pub fn issue(
        &mut self,
        role: Role,
        node: &Name,
        days: u32,
        now: SystemTime,
    ) -> Result<Record, AuthorityError> {
        if !(1..=NODE_DAYS_MAX).contains(&days) {
            return Err(AuthorityError::Days);
        }
        let (now, mut plan) = (unix(now), Plan::default());
        let record = self.add(role, node, u64::from(days) * DAY_SEC, now, &mut plan)?;
        // The lists are as before; the folder gets them from their file.
        for name in [CA_PEM, CRL_PEM] {
            plan.write(node_dir(role, node).join(name), self.folder.must_read(name)?);
        }
        self.commit(plan, false, now)?;
        Ok(record)
    }

    /// Revokes certificates of a node, or one by its serial, and makes the lists anew.
    pub fn revoke(
        &mut self,
        which: &str,
        role: Option<Role>,
        reason: Reason,
        now: SystemTime,
    ) -> Result<Revoked, AuthorityError> {
        let now = unix(now);
        let mut revoked = Revoked::default();
        for n in self.issued.find(which, role)? {
            let record = &mut self.issued.certificates[n];
            match record.revoked {
                Some(_) => revoked.before.push(record.clone()),
                None => {
                    record.revoked = Some(Revocation { reason, sec: now });
                    revoked.now.push(record.clone());
                }
            }
        }
        if !revoked.now.is_empty() {
            self.commit(Plan::default(), true, now)?;
        }
        Ok(revoked)
    }

    /// Makes a new CA beside the current one, and issues every valid certificate again by the new CA.
    pub fn rotate(&mut self, now: SystemTime) -> Result<Vec<Record>, AuthorityError> {
        let now = unix(now);
        let generation = self.generation();
        if self.is_rotating() {
            return Err(AuthorityError::Rotating { generation });
        }
        let end = now + u64::from(CA_DAYS) * DAY_SEC;
        self.cas.insert(0, Ca::make(&self.cluster, generation + 1, fresh_serial()?, now, end)?);
        let mut plan = Plan::default();
        let valid: Vec<Record> = self.issued.newest_valid(now).cloned().collect();
        let again = valid.iter().map(|r| {
            let life = r.not_after.saturating_sub(r.issued_sec).max(DAY_SEC);
            self.add(r.role, &r.node, life, now, &mut plan)
        });
        let again = again.collect::<Result<Vec<Record>, _>>()?;
        self.commit(plan, true, now)?;
        Ok(again)
    }

    /// Ends a rotation: certificates of the earlier CA count no longer. Refused with [`AuthorityError::Left`] while there are valid ones
    /// without a successor, unless `drop_left`.
    pub fn finish(&mut self, drop_left: Leftover, now: SystemTime) -> Result<Vec<Record>, AuthorityError> {
        let now = unix(now);
        if !self.is_rotating() {
            return Err(AuthorityError::NotRotating);
        }
        let left = self.issued.left(self.generation(), now);
        if !left.is_empty() && drop_left == Leftover::Refuse {
            return Err(AuthorityError::Left { left });
        }
        self.cas.truncate(1);
        self.commit(Plan::default(), true, now)?;
        Ok(left)
    }

    /// All certificates, by node and role, the newest first.
    pub fn list(&self, now: SystemTime) -> Vec<Listed> {
        let oldest = self.cas.last().map_or(0, |ca| ca.generation);
        self.issued.list(oldest, unix(now))
    }

    /// Issues a certificate, and plans the files that only it has.
    fn add(
        &mut self,
        role: Role,
        node: &Name,
        life_sec: u64,
        now: u64,
        plan: &mut Plan,
    ) -> Result<Record, AuthorityError> {
        let ca = &self.cas[0];
        if ca.not_after <= now {
            return Err(AuthorityError::CaExpired { day: crate::day(ca.not_after) });
        }
        // webpki does not look at a CA's own time, so no certificate outlives its CA.
        let not_after = (now + life_sec).min(ca.not_after);
        // pki-A2
        let serial = fresh_serial()?;
        let identity = Identity { cluster: self.cluster.clone(), role, node: node.clone(), serial };
        let made = ca.issue(&identity, now, not_after)?;
        let generation = ca.generation;
        let node = node.clone();
        let record = Record { serial, role, node, generation, issued_sec: now, not_after, revoked: None };
        let dir = node_dir(role, &record.node);
        plan.write(dir.join(NODE_PEM), made.certificate);
        plan.write_secret(dir.join(NODE_KEY), made.key);
        self.issued.certificates.push(record.clone());
        Ok(record)
    }

    /// Writes the state and what else is planned. With `has_new_lists`, the CA's files and lists go to each node's folder, too.
    fn commit(&mut self, mut plan: Plan, has_new_lists: bool, now: u64) -> Result<(), AuthorityError> {
        if has_new_lists {
            self.issued.list_number += 1;
            let (mut lists, mut bundle, mut keys) = (String::new(), String::new(), String::new());
            for ca in &self.cas {
                let certificates = &self.issued.certificates;
                lists += &ca.revoke(&self.cluster, certificates, self.issued.list_number, now)?;
                bundle += &pem(&ca.certificate);
                keys += &ca.key.serialize_pem();
            }
            let dirs: BTreeSet<PathBuf> =
                self.issued.certificates.iter().map(|r| node_dir(r.role, &r.node)).collect();
            for dir in dirs.into_iter().chain([PathBuf::new()]) {
                plan.write(dir.join(CRL_PEM), lists.clone());
                plan.write(dir.join(CA_PEM), bundle.clone());
            }
            plan.write_secret(CA_KEY.into(), keys);
            let about = About { name: self.cluster.clone(), generation: self.generation() };
            plan.write(ABOUT.into(), about.text());
        }
        plan.write(RECORDS.into(), self.issued.text());
        self.folder.carry_out(&plan)
    }
}

/// The fate of valid certificates of the earlier CA that have no successor when `finish` is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftover {
    Refuse,
    Drop,
}

fn node_dir(role: Role, node: &Name) -> PathBuf {
    Path::new(NODES).join(format!("{node}.{role}"))
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new("CERTIFICATE", certificate.to_vec()), lines)
}

/// The CAs of the bundle with their keys, the current one first.
fn cas(folder: &Folder, generation: u32) -> Result<Vec<Ca>, AuthorityError> {
    folder.refuse_open(CA_KEY)?;
    let damaged = |name: &str, why: &dyn std::fmt::Display| folder.damaged(name, why.to_string());
    let keys = folder.must_read(CA_KEY)?;
    let bundle = folder.must_read(CA_PEM)?;
    let certificates = CertificateDer::pem_slice_iter(bundle.as_bytes()).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|e| damaged(CA_PEM, &e))?;
    let mut keys = rustls_pki_types::PrivatePkcs8KeyDer::pem_slice_iter(keys.as_bytes());
    let mut cas = Vec::new();
    for (n, certificate) in certificates.into_iter().enumerate() {
        let key = keys.next().ok_or_else(|| damaged(CA_KEY, &"a key is missing"))?;
        let key = key.map_err(|e| damaged(CA_KEY, &e))?;
        let key = KeyPair::try_from(&key).map_err(|e| damaged(CA_KEY, &e))?;
        let parsed = webpki::EndEntityCert::try_from(&certificate).map_err(|e| damaged(CA_PEM, &e))?;
        if parsed.subject_public_key_info().as_ref() != key.subject_public_key_info() {
            return Err(damaged(CA_KEY, &"it does not belong to ca.pem"));
        }
        let (_, not_after) =
            der::validity(&certificate).ok_or_else(|| damaged(CA_PEM, &"it has no times"))?;
        let generation = generation.checked_sub(n as u32).ok_or_else(|| damaged(CA_PEM, &"too many CAs"))?;
        cas.push(Ca { generation, certificate, not_after, key });
    }
    if cas.is_empty() {
        return Err(damaged(CA_PEM, &"it has no certificate"));
    }
    Ok(cas)
}

/// 128 bits of the kernel's randomness.
fn fresh_serial() -> Result<Serial, AuthorityError> {
    let mut bytes = [0; 16];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match got {
        Ok(16) if bytes != [0; 16] => Ok(Serial(u128::from_be_bytes(bytes))),
        Ok(_) => Err(AuthorityError::Make("the kernel has no randomness yet".into())),
        Err(e) => Err(AuthorityError::Make(e.to_string())),
    }
}

#[cfg(test)]
mod tests;
