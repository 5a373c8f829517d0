//! The content of a certificate: cluster, role and node in one URI, and the serial.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Longest name of a cluster or node: a DNS label, so that hosts' names fit.
const NAME_BYTES_MAX: usize = 63;
const SCHEME: &str = "stria://";

/// The name of a cluster or a node: `[a-z0-9][a-z0-9.-]{0,62}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl Name {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = BadIdentity;
    fn from_str(text: &str) -> Result<Name, BadIdentity> {
        let is_first = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let is_next = |b: u8| is_first(b) || b == b'.' || b == b'-';
        match text.as_bytes() {
            [first, rest @ ..] if is_first(*first) && rest.iter().all(|b| is_next(*b)) => {
                match text.len() <= NAME_BYTES_MAX {
                    true => Ok(Name(text.to_owned())),
                    false => Err(BadIdentity::Name),
                }
            }
            _ => Err(BadIdentity::Name),
        }
    }
}

impl TryFrom<String> for Name {
    type Error = BadIdentity;
    fn try_from(text: String) -> Result<Name, BadIdentity> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The rights of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Runs MGS, MDTs and OSTs.
    Server,
    /// Mounts.
    Client,
    /// Administers the cluster; may drain and destroy.
    Admin,
    /// Joins nets; sees no frame.
    Router,
}

impl Role {
    pub const ALL: [Role; 4] = [Role::Server, Role::Client, Role::Admin, Role::Router];

    pub fn as_str(self) -> &'static str {
        match self {
            Role::Server => "server",
            Role::Client => "client",
            Role::Admin => "admin",
            Role::Router => "router",
        }
    }
}

impl FromStr for Role {
    type Err = BadIdentity;
    fn from_str(text: &str) -> Result<Role, BadIdentity> {
        Role::ALL.into_iter().find(|role| role.as_str() == text).ok_or(BadIdentity::Role)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The serial of a certificate: 128 random bits, so it names one certificate of all CAs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Serial(pub u128);

impl Serial {
    /// From a DER integer, which has no zeros before it but one that keeps it positive.
    pub fn from_der(bytes: &[u8]) -> Option<Serial> {
        let start = bytes.iter().position(|b| *b != 0)?;
        let digits = &bytes[start..];
        let is_negative = start == 0 && digits[0] & 0x80 != 0;
        (digits.len() <= 16 && start <= 1 && !is_negative)
            .then(|| Serial(digits.iter().fold(0, |sum, b| sum << 8 | u128::from(*b))))
    }

    /// The first digits, for people.
    pub fn short(self) -> String {
        self.to_string()[..Serial::SHORT].to_owned()
    }

    /// Digits of [`Serial::short`]; `revoke` refuses a beginning that several serials have.
    pub const SHORT: usize = 10;
}

impl FromStr for Serial {
    type Err = BadIdentity;
    fn from_str(text: &str) -> Result<Serial, BadIdentity> {
        let is_whole = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let number = is_whole.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        number.map(Serial).ok_or(BadIdentity::Serial)
    }
}

impl TryFrom<String> for Serial {
    type Error = BadIdentity;
    fn try_from(text: String) -> Result<Serial, BadIdentity> {
        text.parse()
    }
}

impl From<Serial> for String {
    fn from(serial: Serial) -> String {
        serial.to_string()
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A node as its certificate names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    pub cluster: Name,
    pub role: Role,
    pub node: Name,
    pub serial: Serial,
}

impl Identity {
    /// Reads `stria://CLUSTER/ROLE/NODE`.
    pub fn parse(uri: &str, serial: Serial) -> Result<Identity, BadIdentity> {
        let rest = uri.strip_prefix(SCHEME).ok_or(BadIdentity::Scheme)?;
        let parts: Vec<&str> = rest.split('/').collect();
        let [cluster, role, node] = parts[..] else { return Err(BadIdentity::Parts) };
        Ok(Identity { cluster: cluster.parse()?, role: role.parse()?, node: node.parse()?, serial })
    }

    /// The URI that [`Identity::parse`] reads.
    pub fn uri(&self) -> String {
        let Identity { cluster, role, node, .. } = self;
        format!("{SCHEME}{cluster}/{role}/{node}")
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of {}", self.role, self.node, self.cluster)
    }
}

/// A node in its role, as 16 bytes: the holder of sessions (decision 0061). The serial is no part of it, so that a renewed certificate keeps
/// the sessions of its node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Owner(pub [u8; 16]);

impl Identity {
    /// The first 16 bytes of BLAKE3 over the URI. Names are chosen by people, so a weaker hash could be made to collide.
    pub fn owner(&self) -> Owner {
        let mut owner = [0; 16];
        owner.copy_from_slice(&blake3::hash(self.uri().as_bytes()).as_bytes()[..16]);
        Owner(owner)
    }
}

/// Why a text is no identity, or no part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadIdentity {
    /// The URI is of another kind.
    #[error("an identity begins with stria://")]
    Scheme,
    /// Too few or too many parts.
    #[error("an identity is stria://CLUSTER/ROLE/NODE")]
    Parts,
    /// A cluster or node.
    #[error("a name has 1 to 63 of a-z, 0-9, '.' and '-', and begins with a letter or digit")]
    Name,
    /// No known role.
    #[error("a role is server, client, admin or router")]
    Role,
    /// Not 32 hexadecimal digits.
    #[error("a serial has 32 hexadecimal digits")]
    Serial,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_read_back_from_its_uri() {
        for role in Role::ALL {
            let (cluster, node) = ("c1".parse().unwrap(), "oss-1.site.example".parse().unwrap());
            let identity = Identity { cluster, role, node, serial: Serial(7) };
            assert_eq!(Identity::parse(&identity.uri(), Serial(7)), Ok(identity));
        }
    }

    #[test]
    fn an_owner_is_cluster_role_and_node_without_the_serial() {
        let of = |uri: &str, serial| Identity::parse(uri, Serial(serial)).unwrap().owner();
        let one = of("stria://c/client/n", 1);
        assert_eq!(one, of("stria://c/client/n", 2));
        for other in ["stria://d/client/n", "stria://c/admin/n", "stria://c/client/m"] {
            assert_ne!(one, of(other, 1), "{other}");
        }
        // Tickets carry it, so it stays what it is.
        assert_eq!(one.0[..4], [189, 145, 200, 210], "pinned");
    }

    #[test]
    fn malformed_uris_are_refused() {
        let long = format!("stria://c/server/{}", "n".repeat(64));
        let table = [
            ("", BadIdentity::Scheme),
            ("http://c/server/n", BadIdentity::Scheme),
            ("STRIA://c/server/n", BadIdentity::Scheme),
            ("stria:/c/server/n", BadIdentity::Scheme),
            ("stria://c/server", BadIdentity::Parts),
            ("stria://c/server/n/", BadIdentity::Parts),
            ("stria://c/server/n/x", BadIdentity::Parts),
            ("stria://c/owner/n", BadIdentity::Role),
            ("stria://c/Server/n", BadIdentity::Role),
            ("stria://c//n", BadIdentity::Role),
            ("stria:///server/n", BadIdentity::Name),
            ("stria://c/server/", BadIdentity::Name),
            ("stria://c/server/N", BadIdentity::Name),
            ("stria://c/server/n?x", BadIdentity::Name),
            ("stria://c/server/n#x", BadIdentity::Name),
            ("stria://c/server/n%20", BadIdentity::Name),
            ("stria://c/server/n\0", BadIdentity::Name),
            ("stria://u@c/server/n", BadIdentity::Name),
            ("stria://c:1/server/n", BadIdentity::Name),
            ("stria://-c/server/n", BadIdentity::Name),
            ("stria://c/server/..", BadIdentity::Name),
            ("stria://c/server/é", BadIdentity::Name),
            (&long, BadIdentity::Name),
        ];
        for (uri, why) in table {
            assert_eq!(Identity::parse(uri, Serial(1)), Err(why), "{uri}");
        }
        assert!(Identity::parse(&long[..long.len() - 1], Serial(1)).is_ok());
    }

    #[test]
    fn serial_of_der_is_a_positive_number_of_128_bits() {
        let table: [(&[u8], Option<u128>); 8] = [
            (&[], None),
            (&[0], None),
            (&[1], Some(1)),
            (&[0x80], None),
            (&[0, 0x80], Some(0x80)),
            (&[0, 0, 1], None),
            (&[0x7f; 16], Some(0x7f7f7f7f_7f7f7f7f_7f7f7f7f_7f7f7f7f)),
            (&[1; 17], None),
        ];
        for (der, number) in table {
            assert_eq!(Serial::from_der(der), number.map(Serial), "{der:?}");
        }
        assert_eq!(Serial::from_der(&[&[0][..], &[0xff; 16]].concat()), Some(Serial(u128::MAX)));
        assert_eq!(Serial(5).to_string().parse(), Ok(Serial(5)));
    }
}
