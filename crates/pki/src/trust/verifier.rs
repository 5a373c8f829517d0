//! The verifiers that rustls calls in a handshake; both ask [`Facts`].

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::crl::ALGORITHMS;
use crate::facts::Facts;

static SCHEMES: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: &ALGORITHMS,
    mapping: &[
        (SignatureScheme::ECDSA_NISTP256_SHA256, &[webpki::ring::ECDSA_P256_SHA256]),
        (SignatureScheme::ED25519, &[webpki::ring::ED25519]),
    ],
};

#[derive(Debug)]
pub struct Verifier {
    /// Shared with [`super::Trust`], so that a list which arrives later counts in configurations of before.
    facts: Arc<ArcSwap<Facts>>,
}

impl Verifier {
    pub fn new(facts: Arc<ArcSwap<Facts>>) -> Verifier {
        Verifier { facts }
    }

    fn judge(&self, certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
        self.facts.load().identity(std::slice::from_ref(certificate), now)?;
        Ok(())
    }
}

/// TLS 1.2 is not compiled in.
fn refuse_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered))
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.judge(certificate, now)?;
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        refuse_tls12()
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &SCHEMES)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.supported_schemes()
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // A node has one certificate, so it needs no hint which to send.
        &[]
    }
    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.judge(certificate, now)?;
        Ok(ClientCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        refuse_tls12()
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &SCHEMES)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.supported_schemes()
    }
}
