//! Parses the values of `--export` and `--share`. It checks each word, so that none can break the generated texts.

use std::net::IpAddr;
use std::path::Path;

use super::model::{Export, Share, Squash};

/// Parses `PATH[:WORD,…]`.
pub fn export(text: &str, point: &Path) -> Result<Export, String> {
    let (path, words) = split_path(text)?;
    let mut export = Export {
        id: 0,
        path: normal_path(&path, point)?,
        read_only: false,
        squash: Squash::Root,
        anonuid: None,
        anongid: None,
        hosts: vec![],
        server_groups: false,
    };
    for (word, value) in words {
        match (word, value) {
            ("ro", None) => export.read_only = true,
            ("rw", None) => export.read_only = false,
            ("squash", Some("root")) | ("root_squash", None) => export.squash = Squash::Root,
            ("squash", Some("all")) | ("all_squash", None) => export.squash = Squash::All,
            ("squash", Some("none")) | ("no_root_squash", None) => export.squash = Squash::None,
            ("squash", _) => {
                return Err(format!("{}: write squash=root, squash=all or squash=none", shown(word, value)));
            }
            ("anonuid", Some(id)) => export.anonuid = Some(number(word, id)?),
            ("anongid", Some(id)) => export.anongid = Some(number(word, id)?),
            ("hosts", Some(hosts)) => add_host(&mut export.hosts, hosts)?,
            ("groups", Some("server")) => export.server_groups = true,
            _ => {
                let words = "ro, rw, squash=root|all|none, anonuid=N, anongid=N, hosts=HOST, groups=server";
                return Err(format!("{} is no word of an export; there are {words}", shown(word, value)));
            }
        }
    }
    Ok(export)
}

/// Parses `NAME=PATH[:WORD,…]`.
pub fn share(text: &str, point: &Path) -> Result<Share, String> {
    let (name, rest) = text.split_once('=').ok_or(format!("'{text}' has no name: write NAME=PATH"))?;
    check_share_name(name)?;
    let (path, words) = split_path(rest)?;
    let path = normal_path(&path, point)?;
    // Samba expands % as a variable, and strips spaces at both ends.
    if path.contains('%') || path.trim() != path {
        return Err(format!(
            "'{path}': Samba has no paths with % or with a space at the end; share another directory"
        ));
    }
    let mut share = Share {
        name: name.to_owned(),
        path,
        read_only: false,
        squash: None,
        hosts: vec![],
        users: vec![],
        guest: false,
        exclusive: false,
    };
    for (word, value) in words {
        match (word, value) {
            ("ro", None) => share.read_only = true,
            ("rw", None) => share.read_only = false,
            ("squash", Some("none")) => share.squash = None,
            ("squash", Some(user)) => share.squash = Some(user_name(user)?),
            ("hosts", Some(hosts)) => add_samba_host(&mut share.hosts, hosts)?,
            ("users", Some(user)) => share.users.push(user_name(user)?),
            ("guest", None) => share.guest = true,
            ("exclusive", None) => share.exclusive = true,
            _ => {
                let words = "ro, rw, squash=USER, hosts=HOST, users=NAME or users=@GROUP, guest, exclusive";
                return Err(format!("{} is no word of a share; there are {words}", shown(word, value)));
            }
        }
    }
    Ok(share)
}

fn shown(word: &str, value: Option<&str>) -> String {
    value.map_or(format!("'{word}'"), |value| format!("'{word}={value}'"))
}

type Words<'a> = Vec<(&'a str, Option<&'a str>)>;

/// Splits at the first colon without a backslash before it.
fn split_path(text: &str) -> Result<(String, Words<'_>), String> {
    let mut path = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' if chars.peek().is_some_and(|(_, next)| *next == ':') => {
                path.push(':');
                chars.next();
            }
            ':' => {
                let words = text[at + 1..].split(',').filter(|w| !w.is_empty());
                return Ok((
                    path,
                    words.map(|w| w.split_once('=').map_or((w, None), |(k, v)| (k, Some(v)))).collect(),
                ));
            }
            _ => path.push(c),
        }
    }
    Ok((path, vec![]))
}

/// The path from the root of the file system. A path below the mount point means the same as one without the mount point.
pub fn normal_path(path: &str, point: &Path) -> Result<String, String> {
    if !path.starts_with('/') {
        return Err(format!("'{path}' is no path from the root of the file system on: write /{path}"));
    }
    if path.chars().any(|c| c.is_control() || c == '"' || c == '\\') {
        return Err(format!(
            "{path:?} has characters that cannot stand in the server's configuration; rename the directory"
        ));
    }
    let below =
        if point == Path::new("/") { Err(()) } else { Path::new(path).strip_prefix(point).map_err(|_| ()) };
    let below = below.ok().and_then(Path::to_str).unwrap_or(path);
    let mut normal = String::new();
    for part in below.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            return Err(format!(
                "'{path}': a path with .. may lead out of the file system; write the whole path"
            ));
        }
        normal.push('/');
        normal.push_str(part);
    }
    Ok(if normal.is_empty() { "/".to_owned() } else { normal })
}

/// Accepts the names that Samba and common clients accept.
fn check_share_name(name: &str) -> Result<(), String> {
    const RESERVED: [&str; 4] = ["global", "homes", "printers", "ipc$"];
    /// Older clients do not show longer names.
    const CHARS_MAX: usize = 80;
    let is_char = |c: char| c.is_alphanumeric() || "-_.$ ".contains(c);
    let is_good = !name.is_empty()
        && name.chars().count() <= CHARS_MAX
        && name.chars().all(is_char)
        && name.trim() == name;
    if !is_good || RESERVED.contains(&name.to_lowercase().as_str()) {
        return Err(format!(
            "'{name}' is no name of a share: letters, digits, -, _, . and $, and not one of {}",
            RESERVED.join(", ")
        ));
    }
    Ok(())
}

/// A path that stands in configurations and units: of a mount point or file.
pub fn check_point(path: &Path) -> Result<(), String> {
    check_text(path.to_str().ok_or_else(|| format!("{}: a path that is no UTF-8", path.display()))?)
}

/// Any text that stands in configurations and units: a newline in it would begin a line of its own there.
pub fn check_text(text: &str) -> Result<(), String> {
    if text.chars().any(|c| c.is_control() || "\"\\%".contains(c)) {
        return Err(format!(
            "{text:?} has characters that cannot stand in the server's configuration; choose another path"
        ));
    }
    Ok(())
}

/// NetBIOS limits a workgroup to 15 bytes.
pub fn check_workgroup(name: &str) -> Result<(), String> {
    let is_char = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_good = (1..=15).contains(&name.len()) && name.chars().all(is_char);
    if is_good { Ok(()) } else { Err(format!("'{name}' is no workgroup: 1 to 15 letters and digits")) }
}

fn user_name(name: &str) -> Result<String, String> {
    let plain = name.strip_prefix('@').unwrap_or(name);
    let is_char = |c: char| c.is_ascii_alphanumeric() || "-_.$".contains(c);
    if plain.is_empty() || !plain.chars().all(is_char) {
        return Err(format!("'{name}' is no user, and no @group"));
    }
    Ok(name.to_owned())
}

fn number(word: &str, text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("'{word}={text}': give a number"))
}

/// `*` means every host, as an empty list does.
fn add_host(hosts: &mut Vec<String>, host: &str) -> Result<(), String> {
    let host = self::host(host)?;
    if host != "*" && !hosts.contains(&host) {
        hosts.push(host);
    }
    Ok(())
}

/// Samba knows names of a domain, and no other patterns.
fn add_samba_host(hosts: &mut Vec<String>, host: &str) -> Result<(), String> {
    let pattern = host.strip_prefix("*.").unwrap_or(host);
    // In `hosts allow` these words mean every host, hosts of this network, exceptions, and no host. A trailing dot makes a name a prefix.
    if ["ALL", "LOCAL", "EXCEPT", "FAIL"].iter().any(|word| host.eq_ignore_ascii_case(word)) {
        return Err(format!(
            "'hosts={host}': this word has a meaning of its own in Samba; write the host's whole name"
        ));
    }
    if host.ends_with('.') {
        return Err(format!(
            "'hosts={host}': Samba takes a name with a dot at the end for a prefix; leave the dot out"
        ));
    }
    if host != "*" && pattern.contains(['*', '?']) {
        return Err(format!("'hosts={host}': of patterns Samba knows *.DOMAIN only"));
    }
    add_host(hosts, host)
}

/// Parses an address, a network, a name, a pattern of names or a netgroup.
fn host(text: &str) -> Result<String, String> {
    let refuse = |why: &str| Err(format!("'hosts={text}': {why}"));
    if text == "*" {
        return Ok("*".into());
    }
    if let Some((address, bits)) = text.split_once('/') {
        let (Ok(address), Ok(bits)) = (address.parse::<IpAddr>(), bits.parse::<u32>()) else {
            return refuse("no network; write one such as 10.0.0.0/8");
        };
        return match network(address, bits) {
            Some(network) if network == address => Ok(format!("{address}/{bits}")),
            Some(network) => refuse(&format!("the network of this address is {network}/{bits}")),
            None => refuse("a network has 0 to 32 bits, of IPv6 to 128"),
        };
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    let name = text.strip_prefix('@').unwrap_or(text);
    let is_char =
        |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c) || (name == text && "*?".contains(c));
    // Only digits and dots: a mistyped address.
    let is_name = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '*' || c == '?')
        && name.chars().all(is_char)
        && name.chars().any(|c| c.is_ascii_alphabetic() || c == '*');
    if is_name { Ok(text.to_owned()) } else { refuse("no address, network, host name or @netgroup") }
}

/// Whether the server must resolve the host: a host name, domain or netgroup, not an address or network.
pub fn is_name(host: &str) -> bool {
    host.split('/').next().is_none_or(|address| address.parse::<IpAddr>().is_err())
}

/// The first address of a network that may be a host's.
pub fn first_of(network: IpAddr, bits: Option<u32>) -> IpAddr {
    match (network, bits) {
        (IpAddr::V4(a), Some(0..=30)) => IpAddr::V4((a.to_bits() | 1).into()),
        (IpAddr::V6(a), Some(0..=126)) => IpAddr::V6((a.to_bits() | 1).into()),
        _ => network,
    }
}

/// The address with all bits behind the first `bits` cleared.
pub fn network(address: IpAddr, bits: u32) -> Option<IpAddr> {
    match address {
        IpAddr::V4(a) => {
            let mask = u32::MAX.checked_shl(32_u32.checked_sub(bits)?).unwrap_or(0);
            Some(IpAddr::V4((a.to_bits() & mask).into()))
        }
        IpAddr::V6(a) => {
            let mask = u128::MAX.checked_shl(128_u32.checked_sub(bits)?).unwrap_or(0);
            Some(IpAddr::V6((a.to_bits() & mask).into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINT: &str = "/mnt/stria";

    fn plain(path: &str) -> Export {
        export(path, Path::new(POINT)).unwrap()
    }

    #[test]
    fn an_export_is_read_with_all_its_words() {
        let text = "/projects/a:ro,squash=all,anonuid=99,anongid=98,hosts=10.0.0.0/8,hosts=node*.site,hosts=fd00::/8,groups=server";
        let want = Export {
            id: 0,
            path: "/projects/a".into(),
            read_only: true,
            squash: Squash::All,
            anonuid: Some(99),
            anongid: Some(98),
            hosts: vec!["10.0.0.0/8".into(), "node*.site".into(), "fd00::/8".into()],
            server_groups: true,
        };
        assert_eq!(plain(text), want);
        for (word, squash) in [
            ("root_squash", Squash::Root),
            ("all_squash", Squash::All),
            ("no_root_squash", Squash::None),
            ("rw", Squash::Root),
        ] {
            assert_eq!(plain(&format!("/a:{word}")).squash, squash, "{word}");
        }
        assert_eq!(plain("/a:hosts=*").hosts, Vec::<String>::new());
    }

    #[test]
    fn paths_are_those_of_the_file_system() {
        for (given, want) in [
            ("/", "/"),
            ("/a//b/", "/a/b"),
            ("/./a", "/a"),
            ("/mnt/stria", "/"),
            ("/mnt/stria/a", "/a"),
            ("/mnt/striations", "/mnt/striations"),
            ("/a b", "/a b"),
            ("/a\\:b:ro", "/a:b"),
        ] {
            assert_eq!(plain(given).path, want, "{given}");
        }
        for bad in ["", "a", "/a/../b", "/a\nb", "/a\"b", "/a\\b"] {
            assert!(export(bad, Path::new(POINT)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn texts_that_would_break_a_unit_or_configuration_are_refused() {
        for bad in ["/a\nExecStart=/x", "10.0.0.5:/a\r", "a\"b", "a\\b", "50%", "\t"] {
            assert!(check_text(bad).is_err() && check_point(Path::new(bad)).is_err(), "{bad:?}");
        }
        assert!(check_text("unix:/d d/run/stria.sock@local0:/stria").is_ok());
    }

    #[test]
    fn names_are_told_from_addresses() {
        for (host, want) in
            [("10.0.0.0/8", false), ("fd00::1", false), ("*.site", true), ("@g", true), ("node1", true)]
        {
            assert_eq!(is_name(host), want, "{host}");
        }
    }

    #[test]
    fn words_and_hosts_that_make_no_sense_are_refused_by_name() {
        for (words, said) in [
            ("cheese", "'cheese' is no word of an export"),
            ("ro=1", "'ro=1' is no word"),
            ("squash=some", "write squash=root"),
            ("squash", "write squash=root"),
            ("anonuid=nobody", "give a number"),
            ("hosts=10.0.0.0/33", "0 to 32 bits"),
            ("hosts=10.0.0.5/8", "is 10.0.0.0/8"),
            ("hosts=10.0.0.256", "no address"),
            ("hosts=10.0/8", "no network"),
            ("hosts=a;b", "no address"),
            ("hosts=", "no address"),
            ("hosts=@", "no address"),
            ("hosts=a b", "no address"),
            ("hosts=fd00::/129", "to 128"),
        ] {
            let refused = export(&format!("/a:{words}"), Path::new(POINT)).unwrap_err();
            assert!(refused.contains(said), "{words}: {refused}");
        }
    }

    #[test]
    fn a_share_is_read_with_all_its_words_and_bad_ones_are_refused() {
        let text =
            "team=/projects/team:ro,squash=svc,hosts=10.1.0.0/16,users=ann,users=@staff,guest,exclusive";
        let share = share(text, Path::new(POINT)).unwrap();
        let want = Share {
            name: "team".into(),
            path: "/projects/team".into(),
            read_only: true,
            squash: Some("svc".into()),
            hosts: vec!["10.1.0.0/16".into()],
            users: vec!["ann".into(), "@staff".into()],
            guest: true,
            exclusive: true,
        };
        assert_eq!(share, want);
        for bad in [
            "/a",
            "=/a",
            "global=/a",
            "a]b=/a",
            "a/b=/a",
            " a=/a",
            "a=/50%",
            "a=/b ",
            "a=/b:squash=x y",
            "a=/b:users=",
            "a=/b:hosts=node*.site",
            "a=/b:hosts=ALL",
            "a=/b:hosts=local",
            "a=/b:hosts=Except",
            "a=/b:hosts=FAIL",
            "a=/b:hosts=node.",
            "a=/b:cheese",
        ] {
            assert!(super::share(bad, Path::new(POINT)).is_err(), "{bad}");
        }
    }
}
