//! Revocation lists: one of each CA of the bundle.
//!
//! The set travels as DER lists one after another, and lies in `crl.pem` as PEM blocks. All lists that one command writes have one number.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm};
use webpki::{BorrowedCertRevocationList, CertRevocationList, EndEntityCert};

use crate::der;
use crate::identity::Serial;

/// Signatures that count, for certificates, lists and handshakes.
pub const ALGORITHMS: [&dyn SignatureVerificationAlgorithm; 2] =
    [webpki::ring::ECDSA_P256_SHA256, webpki::ring::ED25519];

/// Why bytes are no revocation list of this cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadList {
    /// It is cut or changed.
    #[error("the revocation list cannot be read")]
    Malformed,
    /// It names a CA of the bundle, and that CA has not signed it.
    #[error("the revocation list has no signature of this cluster's CA")]
    Signature,
}

/// A revocation list whose signature is verified.
#[derive(Debug)]
pub struct List {
    pub number: u64,
    pub der: Vec<u8>,
    pub serials: BTreeSet<Serial>,
    pub parsed: CertRevocationList<'static>,
}

impl List {
    /// The list, and the place of its CA in `cas`. `None` if a CA signed it that is not in the bundle: a rotation may have begun or ended.
    fn read(bytes: &[u8], cas: &[CertificateDer<'_>]) -> Result<Option<(usize, List)>, BadList> {
        let malformed = |_| BadList::Malformed;
        let parts = der::list_parts(bytes).ok_or(BadList::Malformed)?;
        let borrowed = BorrowedCertRevocationList::from_der(bytes).map_err(malformed)?;
        let owned = CertRevocationList::from(borrowed.to_owned().map_err(malformed)?);
        let Some((place, ca)) = cas.iter().enumerate().find_map(|(n, ca)| {
            let ca = EndEntityCert::try_from(ca).ok()?;
            (ca.subject() == owned.issuer()).then_some((n, ca))
        }) else {
            return Ok(None);
        };
        // A list for a part of the certificates would hide the others.
        if owned.issuing_distribution_point().is_some() {
            return Err(BadList::Malformed);
        }
        // pki-T2: another cluster of the same name has a CA of the same name.
        if !ALGORITHMS.iter().any(|a| ca.verify_signature(*a, parts.signed, parts.signature).is_ok()) {
            return Err(BadList::Signature);
        }
        let mut serials = BTreeSet::new();
        for revoked in &borrowed {
            let serial = revoked.map_err(malformed)?.serial_number;
            serials.insert(Serial::from_der(serial).ok_or(BadList::Malformed)?);
        }
        let (number, der) = (parts.number, bytes.to_vec());
        Ok(Some((place, List { number, der, serials, parsed: owned })))
    }
}

/// The serials that lists name. No signature is verified.
pub fn serials(lists: &[u8]) -> BTreeSet<Serial> {
    let mut serials = BTreeSet::new();
    for list in der::split(lists).unwrap_or_default() {
        let Ok(list) = BorrowedCertRevocationList::from_der(list) else { continue };
        let revoked = (&list).into_iter().filter_map(Result::ok);
        serials.extend(revoked.filter_map(|revoked| Serial::from_der(revoked.serial_number)));
    }
    serials
}

/// The newest list of each CA, in the order of the bundle.
#[derive(Clone, Debug, Default)]
pub struct Lists(Vec<Option<Arc<List>>>);

impl Lists {
    /// These lists where they are newer, those of before elsewhere.
    pub fn with(
        &self,
        lists: impl IntoIterator<Item = impl AsRef<[u8]>>,
        cas: &[CertificateDer<'_>],
    ) -> Result<Lists, BadList> {
        let mut newest = self.0.clone();
        newest.resize(cas.len(), None);
        for bytes in lists {
            if let Some((place, list)) = List::read(bytes.as_ref(), cas)?
                && newest[place].as_ref().is_none_or(|old| old.number < list.number)
            {
                newest[place] = Some(Arc::new(list));
            }
        }
        Ok(Lists(newest))
    }

    /// The place of a CA without a list.
    pub fn missing(&self) -> Option<usize> {
        self.0.iter().position(Option::is_none)
    }

    pub fn iter(&self) -> impl Iterator<Item = &List> {
        self.0.iter().flatten().map(Arc::as_ref)
    }

    pub fn is_revoked(&self, serial: Serial) -> bool {
        self.iter().any(|list| list.serials.contains(&serial))
    }

    /// Lists of one CA, in both.
    pub fn pairs<'l>(&'l self, other: &'l Lists) -> impl Iterator<Item = (&'l List, &'l List)> {
        let both = self.0.iter().zip(&other.0);
        both.filter_map(|(a, b)| Some((a.as_deref()?, b.as_deref()?)))
    }

    /// The highest number.
    pub fn number(&self) -> u64 {
        self.iter().map(|list| list.number).max().unwrap_or(0)
    }

    /// The lists one after another.
    pub fn bytes(&self) -> Vec<u8> {
        self.iter().flat_map(|list| list.der.iter().copied()).collect()
    }

    /// Serials that these lists name and `before` does not.
    pub fn newer_than(&self, before: &Lists) -> Vec<Serial> {
        let all = self.iter().flat_map(|list| &list.serials);
        all.filter(|serial| !before.is_revoked(**serial)).copied().collect()
    }

    pub fn is_same(&self, other: &Lists) -> bool {
        let is_same = |(a, b): (&List, &List)| a.der == b.der;
        self.iter().count() == other.iter().count() && self.iter().zip(other.iter()).all(is_same)
    }
}
