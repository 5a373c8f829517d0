//! The revocation lists of the cluster map: which ones an administrator may put there (pki-T4).

use rustls_pki_types::CertificateDer;

use crate::crl::{BadList, Lists};
use crate::der;

/// Lists for the cluster map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// In DER, one after another.
    pub crls: Vec<u8>,
    /// That of the newest list.
    pub number: u64,
    /// They differ from the map's.
    pub is_new: bool,
}

/// Why lists are not put into the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotPublished {
    /// They cannot be read, or are forged.
    #[error("{0}")]
    Bad(BadList),
    /// They are of CAs that the management service does not know.
    #[error("no revocation list in it is of a CA in the management service's ca.pem")]
    OtherCa,
    /// A list of the map, or of the management service's folder, has this number or a higher one, and other content.
    #[error("revocation list {given} is not newer than list {known}, which the cluster has")]
    NotNewer { given: u64, known: u64 },
}

/// `own`: the lists that the management service judges by.
pub fn publish(
    own: &Lists,
    cas: &[CertificateDer<'_>],
    known: &[u8],
    given: &[u8],
) -> Result<Published, NotPublished> {
    let bad = NotPublished::Bad;
    // The map's lists were verified when they came. One whose CA is gone since does not count any more.
    let before = own.with(der::split(known).unwrap_or_default(), cas).unwrap_or_else(|_| own.clone());
    let given = der::split(given).ok_or(bad(BadList::Malformed))?;
    let given = Lists::default().with(given, cas).map_err(bad)?;
    if given.iter().next().is_none() {
        return Err(NotPublished::OtherCa);
    }
    for (given, known) in given.pairs(&before) {
        if given.der != known.der && given.number <= known.number {
            return Err(NotPublished::NotNewer { given: given.number, known: known.number });
        }
    }
    let next = before.with(given.iter().map(|list| &list.der), cas).map_err(bad)?;
    let crls = next.bytes();
    Ok(Published { number: next.number(), is_new: crls != known, crls })
}
