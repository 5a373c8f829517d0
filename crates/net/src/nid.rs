//! NIDs: the address of a node. `address:port@net` (`10.0.0.5:7010@tcp0`) or `unix:/path@local0`.
//!
//! The net selects the transport: `tcp`, `tcp0`, `tcp1` ... is TCP, `local0` is unix sockets. The default is `tcp0`, or `local0` for a unix
//! path. Any other net (`o2ib`) is refused, because no transport here supports it.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use socket2::{Domain, SockAddr, Socket, Type};

/// Longest NID in bytes: a unix path (107) or a host name with port, and the net; it must fit the handshake's field.
pub const NID_MAX: usize = 192;

/// Why a net is refused.
pub const UNKNOWN_NET: &str = "its net is not supported, known: tcp (tcp0, tcp1, ...)";

/// A parsed NID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nid {
    pub address: Address,
    pub net: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `host:port`; the host may be a name, a literal or a bracketed IPv6 literal.
    Tcp(String),
    Unix(PathBuf),
}

/// The text is not a NID. Carries the text and the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{nid:?} is no address: {why}; write host:port@net (10.0.0.5:7010@tcp0) or unix:/path@local0")]
pub struct BadNid {
    pub nid: String,
    pub why: &'static str,
}

impl Nid {
    /// Reads a NID, with or without `@net`.
    pub fn parse(text: &str) -> Result<Nid, BadNid> {
        let bad = |why| BadNid { nid: text.to_string(), why };
        if text.len() > NID_MAX {
            return Err(bad("it is too long"));
        }
        let (address, net) = match text.rsplit_once('@') {
            Some((_, "")) => return Err(bad("the net's name is empty")),
            Some((address, net)) => (address, Some(net)),
            None => (text, None),
        };
        if let Some(path) = address.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(bad("the path is empty"));
            }
            let net = net.unwrap_or("local0");
            if !is_numbered(net, "local") {
                return Err(bad("a unix socket's net is local0"));
            }
            return Ok(Nid { address: Address::Unix(path.into()), net: net.into() });
        }
        let net = net.unwrap_or("tcp0");
        if !is_numbered(net, "tcp") {
            return Err(bad(UNKNOWN_NET));
        }
        let (host, port) = address.rsplit_once(':').ok_or_else(|| bad("the port is missing"))?;
        if host.is_empty() {
            return Err(bad("the host is empty"));
        }
        if port.parse::<u16>().is_err() {
            return Err(bad("the port is no number from 0 to 65535"));
        }
        Ok(Nid { address: Address::Tcp(address.into()), net: net.into() })
    }
}

/// Is the net this kind, with or without a number?
fn is_numbered(net: &str, kind: &str) -> bool {
    net.strip_prefix(kind).is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()))
}

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::Tcp(address) => write!(f, "{address}@{}", self.net),
            Address::Unix(path) => write!(f, "unix:{}@{}", path.display(), self.net),
        }
    }
}

impl Address {
    /// The socket addresses of it. A host name is looked up by the resolver, which may take long.
    pub(crate) fn resolve(&self) -> io::Result<Vec<SockAddr>> {
        match self {
            Address::Unix(path) => Ok(vec![SockAddr::unix(path)?]),
            Address::Tcp(text) => match text.parse::<SocketAddr>() {
                Ok(literal) => Ok(vec![literal.into()]),
                Err(_) => Ok(text.to_socket_addrs()?.map(SockAddr::from).collect()),
            },
        }
    }
}

/// A stream socket of the family of `to`.
pub(crate) fn socket_for(to: &SockAddr) -> io::Result<Socket> {
    let domain = if to.is_unix() { Domain::UNIX } else { to.domain() };
    Socket::new(domain, Type::STREAM, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nids_are_read_and_written() {
        let table = [
            ("127.0.0.1:7010@tcp0", Ok("127.0.0.1:7010@tcp0")),
            ("127.0.0.1:7010", Ok("127.0.0.1:7010@tcp0")),
            ("mds1:7010@tcp1", Ok("mds1:7010@tcp1")),
            ("mds1:7010@tcp", Ok("mds1:7010@tcp")),
            ("mds1:7010@o2ib", Err(UNKNOWN_NET)),
            ("mds1:7010@tcp:19010", Err(UNKNOWN_NET)),
            ("mds1:7010@local0", Err(UNKNOWN_NET)),
            ("unix:/run/stria.sock@tcp", Err("a unix socket's net is local0")),
            ("[::1]:7010@tcp0", Ok("[::1]:7010@tcp0")),
            ("unix:/run/stria.sock", Ok("unix:/run/stria.sock@local0")),
            ("unix:/run/stria.sock@local0", Ok("unix:/run/stria.sock@local0")),
            ("", Err("the port is missing")),
            ("host", Err("the port is missing")),
            (":70", Err("the host is empty")),
            ("host:70000", Err("the port is no number from 0 to 65535")),
            ("host:70@", Err("the net's name is empty")),
            ("unix:@local0", Err("the path is empty")),
        ];
        for (text, want) in table {
            let got = Nid::parse(text);
            match want {
                Ok(shown) => assert_eq!(got.expect(text).to_string(), shown),
                Err(why) => assert_eq!(got.expect_err(text).why, why, "{text}"),
            }
        }
        assert!(Nid::parse(&format!("{}:1", "h".repeat(NID_MAX))).is_err());
    }
}
