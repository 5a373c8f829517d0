//! Why a peer's certificate does not count.

use std::sync::Arc;

use rustls::{AlertDescription, CertificateError, OtherError};

/// Why a certificate gives no identity. [`Refused::reason`] is stable, for logs and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refused {
    /// It ended.
    #[error("its certificate has expired")]
    Expired,
    /// Its begin lies ahead: look at both clocks.
    #[error("its certificate is not valid yet")]
    NotYetValid,
    /// No CA of this cluster has signed it.
    #[error("its certificate is by no CA of this cluster")]
    UnknownCa,
    /// A CA of ours signed it for another cluster.
    #[error("its certificate is of another cluster")]
    OtherCluster,
    /// A revocation list names it.
    #[error("its certificate is revoked")]
    Revoked,
    /// It has no URI, several, or one that is no identity.
    #[error("its certificate names no node of Stria")]
    MalformedName,
    /// It lacks a usage, or is the certificate of a CA.
    #[error("its certificate is for another usage")]
    WrongUsage,
    /// There is none, or it cannot be read.
    #[error("it has no readable certificate")]
    NoCertificate,
}

impl Refused {
    pub const ALL: [Refused; 8] = [
        Refused::Expired,
        Refused::NotYetValid,
        Refused::UnknownCa,
        Refused::OtherCluster,
        Refused::Revoked,
        Refused::MalformedName,
        Refused::WrongUsage,
        Refused::NoCertificate,
    ];

    /// A word that does not change.
    pub fn reason(self) -> &'static str {
        match self {
            Refused::Expired => "expired",
            Refused::NotYetValid => "not-yet-valid",
            Refused::UnknownCa => "unknown-ca",
            Refused::OtherCluster => "other-cluster",
            Refused::Revoked => "revoked",
            Refused::MalformedName => "malformed-name",
            Refused::WrongUsage => "wrong-usage",
            Refused::NoCertificate => "no-certificate",
        }
    }

    /// The reason why this side refused the peer, from the error of a handshake.
    pub fn of(error: &rustls::Error) -> Option<Refused> {
        let certificate = match error {
            rustls::Error::NoCertificatesPresented => return Some(Refused::NoCertificate),
            rustls::Error::InvalidCertificate(certificate) => certificate,
            _ => return None,
        };
        Some(match certificate {
            CertificateError::Other(OtherError(other)) => *other.downcast_ref()?,
            CertificateError::Expired => Refused::Expired,
            CertificateError::NotValidYet => Refused::NotYetValid,
            CertificateError::Revoked => Refused::Revoked,
            CertificateError::UnknownIssuer => Refused::UnknownCa,
            CertificateError::InvalidPurpose => Refused::WrongUsage,
            _ => Refused::NoCertificate,
        })
    }

    /// The reason why the peer refused this side, as far as its alert tells it.
    pub fn by_peer(error: &rustls::Error) -> Option<Refused> {
        let rustls::Error::AlertReceived(alert) = error else { return None };
        Some(match alert {
            AlertDescription::CertificateExpired => Refused::Expired,
            AlertDescription::CertificateRevoked => Refused::Revoked,
            AlertDescription::UnknownCA => Refused::UnknownCa,
            AlertDescription::UnsupportedCertificate => Refused::WrongUsage,
            AlertDescription::CertificateUnknown => Refused::MalformedName,
            AlertDescription::CertificateRequired | AlertDescription::BadCertificate => {
                Refused::NoCertificate
            }
            _ => return None,
        })
    }
}

impl From<Refused> for rustls::Error {
    fn from(refused: Refused) -> rustls::Error {
        // Those with a variant of their own choose the alert that the peer sees.
        rustls::Error::InvalidCertificate(match refused {
            Refused::Expired => CertificateError::Expired,
            Refused::NotYetValid => CertificateError::NotValidYet,
            Refused::Revoked => CertificateError::Revoked,
            Refused::UnknownCa => CertificateError::UnknownIssuer,
            Refused::WrongUsage => CertificateError::InvalidPurpose,
            Refused::NoCertificate => CertificateError::BadEncoding,
            Refused::OtherCluster | Refused::MalformedName => {
                CertificateError::Other(OtherError(Arc::new(refused)))
            }
        })
    }
}

impl From<webpki::Error> for Refused {
    fn from(error: webpki::Error) -> Refused {
        use webpki::Error as E;
        match error {
            E::CertExpired { .. } => Refused::Expired,
            E::CertNotValidYet { .. } => Refused::NotYetValid,
            E::CertRevoked => Refused::Revoked,
            E::RequiredEkuNotFoundContext(_)
            | E::EmptyEkuExtension
            | E::CaUsedAsEndEntity
            | E::EndEntityUsedAsCa => Refused::WrongUsage,
            E::UnknownIssuer
            | E::UnknownRevocationStatus
            | E::InvalidSignatureForPublicKey
            | E::InvalidCrlSignatureForPublicKey
            | E::UnsupportedSignatureAlgorithmContext(_)
            | E::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => Refused::UnknownCa,
            _ => Refused::NoCertificate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_survives_the_error_of_a_handshake() {
        for refused in Refused::ALL {
            assert_eq!(Refused::of(&refused.into()), Some(refused));
        }
        assert_eq!(Refused::of(&rustls::Error::DecryptError), None);
    }
}
