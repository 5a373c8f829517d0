//! The door of the page: it opens for browsers of this host that have the token.
//!
//! cli-DA2: each request for figures needs the token in the header `Authorization`. The page without figures needs none: its script keeps the token,
//! and sends it. There is no cookie, which a browser would send to every port of this host. Each request must also name this host as a loopback
//! address: a page of another site that has its own name resolved to 127.0.0.1 gets nothing (DNS rebinding).

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::exit::Failure;

/// Bytes of chance in a token.
const RANDOM: usize = 32;
/// The parameter of an address that has the token, for the script of the page.
const PARAMETER: &str = "token";
/// The files that a browser loads before the script has the token. They are the same for all.
const SHELL: [&str; 3] = ["/", "/page.css", "/page.js"];

/// The secret that a browser must have.
pub struct Token(String);

/// The parts of a request that decide.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// Header `Host`, if there is exactly one.
    pub host: Option<&'a str>,
    /// Header `Authorization`.
    pub authorization: Option<&'a str>,
    pub path: &'a str,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It gets an answer.
    Admit,
    /// There is no token, or another one.
    NoToken,
    /// It names another host.
    OtherHost,
}

impl Token {
    /// The token of a state directory. The first call makes it.
    pub fn of(path: &Path) -> Result<Token, Failure> {
        match fs::read_to_string(path) {
            Ok(text) => Token::check(path, text.trim()),
            Err(e) if e.kind() == ErrorKind::NotFound => Token::make(path).map_err(|e| {
                Failure::unusable(path.display(), e, "let this user write there, or give another --state")
            }),
            Err(e) => {
                Err(Failure::unusable(path.display(), e, "be the user that made it, or give another --state"))
            }
        }
    }

    fn check(path: &Path, text: &str) -> Result<Token, Failure> {
        let mode = path.metadata().map_or(0, |about| about.mode());
        if mode & 0o077 != 0 {
            let why = format!("other users may read the token (mode {:o})", mode & 0o777);
            return Err(Failure::unusable(path.display(), why, "remove it; the next start makes a new one"));
        }
        if text.len() != 2 * RANDOM || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            let why = "it has no token of this version";
            return Err(Failure::unusable(path.display(), why, "remove it; the next start makes a new one"));
        }
        Ok(Token(text.to_owned()))
    }

    fn make(path: &Path) -> std::io::Result<Token> {
        let mut bytes = [0; RANDOM];
        let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        assert_eq!(got, RANDOM, "the kernel gives so few bytes at once");
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        // Under its name only when it is whole.
        let new = path.with_extension("new");
        match fs::remove_file(&new) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(format!("{text}\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        Ok(Token(text))
    }

    /// The address with which a browser gets the token.
    pub fn url(&self, address: SocketAddr) -> String {
        format!("http://{address}/?{PARAMETER}={}", self.0)
    }

    /// Takes the same time for every wrong token of this length, so that no part of it can be found by trying.
    fn is(&self, given: &str) -> bool {
        let differences = self.0.bytes().zip(given.bytes()).fold(0, |all, (own, other)| all | (own ^ other));
        differences == 0 && self.0.len() == given.len()
    }

    /// Judges a request.
    pub fn judge(&self, asked: &Asked) -> Verdict {
        if !asked.host.is_some_and(is_loopback) {
            return Verdict::OtherHost;
        }
        let bearer = asked.authorization.and_then(|line| line.strip_prefix("Bearer ")).map(str::trim);
        match SHELL.contains(&asked.path) || bearer.is_some_and(|token| self.is(token)) {
            true => Verdict::Admit,
            false => Verdict::NoToken,
        }
    }
}

/// True of a `Host` that is a loopback address or `localhost`. Its port is that of the browser's side, which a tunnel may change.
fn is_loopback(host: &str) -> bool {
    if let Ok(address) = host.parse::<SocketAddr>() {
        return address.ip().is_loopback();
    }
    if let Ok(ip) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return ip.is_loopback();
    }
    let (name, port) = host.split_once(':').unwrap_or((host, "80"));
    name.eq_ignore_ascii_case("localhost") && port.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::testdir::TestDir;

    fn token() -> Token {
        Token("ab".repeat(RANDOM))
    }

    #[test]
    fn a_request_for_figures_needs_the_token() {
        let (token, right) = (token(), "ab".repeat(RANDOM));
        let wrong = format!("Bearer {}c", &right[..2 * RANDOM - 1]);
        let right = format!("Bearer {right}");
        let judge =
            |authorization, path| token.judge(&Asked { host: Some("127.0.0.1:9720"), authorization, path });
        for path in ["/api/state.json", "/api/history.json", "/none", "//", "/page.html"] {
            for (name, authorization, expected) in [
                ("nothing", None, Verdict::NoToken),
                ("a wrong token", Some(&wrong[..]), Verdict::NoToken),
                ("a part", Some(&right[..20]), Verdict::NoToken),
                ("an empty one", Some("Bearer "), Verdict::NoToken),
                ("another scheme", Some(&right["Bearer ".len()..]), Verdict::NoToken),
                ("the token", Some(&right[..]), Verdict::Admit),
            ] {
                assert_eq!(judge(authorization, path), expected, "{path} with {name}");
            }
        }
        for path in SHELL {
            assert_eq!(judge(None, path), Verdict::Admit, "{path} has no figures");
        }
    }

    #[test]
    fn only_loopback_names_are_answered() {
        let right = format!("Bearer {}", "ab".repeat(RANDOM));
        let judge = |host| token().judge(&Asked { host, authorization: Some(&right), path: "/" });
        for host in
            ["127.0.0.1:9720", "127.0.0.1", "localhost:1", "LOCALHOST", "[::1]:9720", "[::1]", "127.9.9.9:1"]
        {
            assert_eq!(judge(Some(host)), Verdict::Admit, "{host}");
        }
        for host in [
            "evil.example:9720",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.5:9720",
            "0.0.0.0:9720",
            "[::]:1",
            "localhost:x",
            "",
        ] {
            assert_eq!(judge(Some(host)), Verdict::OtherHost, "{host}");
        }
        assert_eq!(judge(None), Verdict::OtherHost);
    }

    #[test]
    fn the_token_is_kept_for_its_user_alone() {
        let dir = TestDir::new("dash-token");
        let path = dir.path().join("token");
        let first = Token::of(&path).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(Token::of(&path).unwrap().0, first.0);
        let other = Token::of(&dir.path().join("other")).unwrap();
        assert!(other.0 != first.0 && first.is(&first.0) && !first.is(&other.0));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let refused = Token::of(&path).err().unwrap().to_string();
        assert!(refused.contains("other users may read the token (mode 640)"), "{refused}");
        fs::remove_file(&path).unwrap();
        let short = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path);
        short.unwrap().write_all(b"abc\n").unwrap();
        assert!(Token::of(&path).is_err());
    }
}
