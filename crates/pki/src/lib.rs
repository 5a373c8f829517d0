//! Certificates of a cluster: the CA directory that issues them, and the trust that a process builds from its folder.
//!
//! [`Authority`] is the CA directory of the administrator. [`Trust`] is what a server, client or tool loads from its folder: rustls
//! configurations and the check of a peer. An [`Identity`] is what a certificate says. Decision 0058 has the reasons.
//!
//! pki-T1: a peer has an identity only if its certificate chains directly to a CA of the bundle, is in its time, is on no revocation
//! list, has both usages, and has exactly one URI, which names this cluster.
//! pki-T2: the revocation list of a CA is replaced only by one with a higher number and that CA's signature.
//! pki-T3: a folder that cannot be used changes nothing, except that a newer revocation list in it counts.
//! pki-T4: the cluster map's lists are replaced by an administrator's only if this cluster's CAs signed them and each number rises.
//! pki-R1: a role may make the calls that `may.rs` lists for it, and no others. Only a server's certificate serves.
//! pki-A1: a command that is killed at any point leaves a CA directory in its old or its new state; the next command completes it.
//! pki-A2: the serial of a certificate is used once, and numbers of revocation lists rise.

mod authority;
mod ca;
mod crl;
mod der;
mod facts;
mod identity;
mod may;
mod publish;
mod refused;
mod trust;

pub use authority::{
    Authority, AuthorityError, CA_DAYS, Leftover, Listed, NODE_DAYS, NODE_DAYS_MAX, Reason, Record,
    Revocation, Revoked, State,
};
pub use crl::{BadList, serials};
pub use identity::{BadIdentity, Identity, Name, Owner, Role, Serial};
pub use may::{may, refusal};
pub use publish::{NotPublished, Published};
pub use refused::Refused;
pub use trust::{
    ALPN, ALPN_CIRCUIT, CA_PEM, CRL_MAP_PEM, CRL_PEM, Change, Fault, NODE_KEY, NODE_PEM, Reload, Trust, Why,
    circuit_name, server_name,
};

#[cfg(test)]
mod tests;

/// The day of a time in seconds since 1970, as `2027-12-28`.
pub fn day(sec: u64) -> String {
    let time = i64::try_from(sec).ok().and_then(|sec| time::OffsetDateTime::from_unix_timestamp(sec).ok());
    time.map_or("a day out of range".into(), |time| time.date().to_string())
}

fn unix(now: std::time::SystemTime) -> u64 {
    now.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
