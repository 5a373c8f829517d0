//! Making certificates and revocation lists, by rcgen.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    RevokedCertParams, SanType, SerialNumber,
};
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

use crate::authority::{Reason, Record};
use crate::identity::{Identity, Name, Serial};

/// Certificates begin this much before they are made: hosts' clocks differ.
const CLOCK_SKEW_SEC: u64 = 3600;

/// A CA of the bundle, with its key.
#[derive(Debug)]
pub struct Ca {
    pub generation: u32,
    pub certificate: CertificateDer<'static>,
    pub not_after: u64,
    pub key: KeyPair,
}

/// A certificate and its key, as PEM.
#[derive(Debug)]
pub struct Made {
    pub certificate: String,
    pub key: String,
}

fn time(sec: u64) -> OffsetDateTime {
    let sec = i64::try_from(sec).unwrap_or(i64::MAX);
    // X.509 has no later year than 9999.
    OffsetDateTime::from_unix_timestamp(sec).unwrap_or(rcgen::date_time_ymd(9999, 1, 1))
}

fn number(value: u128) -> SerialNumber {
    let bytes = value.to_be_bytes();
    let zeros = bytes.iter().take_while(|b| **b == 0).count().min(bytes.len() - 1);
    SerialNumber::from_slice(&bytes[zeros..])
}

/// Each generation has a name of its own, by which its revocation list is found.
fn ca_params(cluster: &Name, generation: u32) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "Stria");
    params.distinguished_name.push(DnType::CommonName, format!("{cluster} CA {generation}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

impl Ca {
    pub fn make(
        cluster: &Name,
        generation: u32,
        serial: Serial,
        now: u64,
        not_after: u64,
    ) -> Result<Ca, rcgen::Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = ca_params(cluster, generation);
        params.serial_number = Some(number(serial.0));
        params.not_before = time(now.saturating_sub(CLOCK_SKEW_SEC));
        params.not_after = time(not_after);
        let certificate = params.self_signed(&key)?.der().clone();
        Ok(Ca { generation, certificate, not_after, key })
    }

    pub fn issuer(&self, cluster: &Name) -> Issuer<'_, &KeyPair> {
        Issuer::new(ca_params(cluster, self.generation), &self.key)
    }

    /// A certificate that says this identity, and a new key for it.
    pub fn issue(&self, identity: &Identity, now: u64, not_after: u64) -> Result<Made, rcgen::Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = node_params(identity, now, not_after);
        params.subject_alt_names = vec![SanType::URI(identity.uri().try_into()?)];
        let certificate = params.signed_by(&key, &self.issuer(&identity.cluster))?.pem();
        Ok(Made { certificate, key: key.serialize_pem() })
    }

    /// The revocation list of the certificates that this CA issued, as PEM.
    pub fn revoke(
        &self,
        cluster: &Name,
        records: &[Record],
        list_number: u64,
        now: u64,
    ) -> Result<String, rcgen::Error> {
        // An expired certificate is refused without a list.
        let is_on = |r: &&Record| r.generation == self.generation && r.not_after > now;
        let revoked = records.iter().filter(is_on).filter_map(|record| {
            let revoked = record.revoked.as_ref()?;
            Some(RevokedCertParams {
                serial_number: number(record.serial.0),
                revocation_time: time(revoked.sec),
                reason_code: code(revoked.reason),
                invalidity_date: None,
            })
        });
        let params = CertificateRevocationListParams {
            this_update: time(now),
            next_update: time(self.not_after.max(now + 1)),
            crl_number: number(u128::from(list_number)),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer(cluster))?.pem()
    }
}

/// All but the names of a node's certificate.
pub fn node_params(identity: &Identity, now: u64, not_after: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    // For people; programs believe the URI only.
    params.distinguished_name.push(DnType::CommonName, format!("{} {}", identity.role, identity.node));
    params.serial_number = Some(number(identity.serial.0));
    params.not_before = time(now.saturating_sub(CLOCK_SKEW_SEC));
    params.not_after = time(not_after);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    params
}

fn code(reason: Reason) -> Option<rcgen::RevocationReason> {
    match reason {
        // RFC 5280: no reason is written as none.
        Reason::Unspecified => None,
        Reason::KeyCompromise => Some(rcgen::RevocationReason::KeyCompromise),
        Reason::Superseded => Some(rcgen::RevocationReason::Superseded),
        Reason::Retired => Some(rcgen::RevocationReason::CessationOfOperation),
    }
}
