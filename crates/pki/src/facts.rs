//! The judgement of a certificate: pki-T1 in one place.

use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{
    CertRevocationList, EndEntityCert, ExpirationPolicy, ExtendedKeyUsageValidator, KeyPurposeId,
    KeyPurposeIdIter, KeyUsage, RevocationCheckDepth, RevocationOptionsBuilder, UnknownStatusPolicy,
};

use crate::crl::{ALGORITHMS, Lists};
use crate::identity::{Identity, Name, Serial};
use crate::refused::Refused;

/// The facts by which peers are judged.
#[derive(Clone, Debug)]
pub struct Facts {
    pub cluster: Name,
    /// CA certificates, the current one first.
    pub cas: Vec<CertificateDer<'static>>,
    pub anchors: Vec<TrustAnchor<'static>>,
    pub lists: Lists,
}

impl Facts {
    /// The identity of the peer whose chain this is; its own certificate is the first.
    pub fn identity(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<Identity, Refused> {
        let certificate = chain.first().ok_or(Refused::NoCertificate)?;
        let certificate = EndEntityCert::try_from(certificate)?;
        let lists: Vec<&CertRevocationList> = self.lists.iter().map(|list| &list.parsed).collect();
        // Lists do not expire: a cluster whose administrator is away must go on. New ones come from the cluster itself.
        let revocation = RevocationOptionsBuilder::new(&lists)
            .map_err(|_| Refused::UnknownCa)?
            .with_depth(RevocationCheckDepth::EndEntity)
            .with_status_policy(UnknownStatusPolicy::Deny)
            .with_expiration_policy(ExpirationPolicy::Ignore)
            .build();
        // No intermediate certificate counts, whatever the peer sends.
        certificate.verify_for_usage(
            &ALGORITHMS,
            &self.anchors,
            &[],
            now,
            BothUsages,
            Some(revocation),
            None,
        )?;
        let identity = identity_in(&certificate)?;
        match identity.cluster == self.cluster {
            true => Ok(identity),
            false => Err(Refused::OtherCluster),
        }
    }
}

/// The identity in a certificate; its signature is not looked at.
pub fn identity_in(certificate: &EndEntityCert<'_>) -> Result<Identity, Refused> {
    let mut uris = certificate.valid_uri_names();
    let (Some(uri), None) = (uris.next(), uris.next()) else { return Err(Refused::MalformedName) };
    let serial = Serial::from_der(certificate.serial()).ok_or(Refused::MalformedName)?;
    Identity::parse(uri, serial).map_err(|_| Refused::MalformedName)
}

/// A node answers and asks with one certificate, so both usages must be there.
struct BothUsages;

/// 1.3.6.1.5.5.7.3.1 and 1.3.6.1.5.5.7.3.2
const SERVER_AUTH: [u8; 8] = [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
const CLIENT_AUTH: [u8; 8] = [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];

impl ExtendedKeyUsageValidator for BothUsages {
    fn validate(&self, usages: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        let (mut is_server, mut is_client) = (false, false);
        for usage in usages {
            let usage = usage?;
            is_server |= usage == KeyPurposeId::new(&SERVER_AUTH);
            is_client |= usage == KeyPurposeId::new(&CLIENT_AUTH);
        }
        let missing = |oid: &'static [u8]| {
            let required = KeyUsage::required(oid);
            webpki::Error::RequiredEkuNotFoundContext(webpki::RequiredEkuNotFoundContext {
                required,
                present: vec![],
            })
        };
        match (is_server, is_client) {
            (true, true) => Ok(()),
            (false, _) => Err(missing(&SERVER_AUTH)),
            (true, false) => Err(missing(&CLIENT_AUTH)),
        }
    }
}
