//! How far an MDT trusts its clients: `groups` and `root_squash`, as options of `stria mds` and as keys of its file.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use clap::ValueEnum;
use serde::Deserialize;

use crate::config::{absent_key, key};

/// The source of a user's groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Groups {
    /// The client's kernel.
    #[default]
    Client,
    /// This server's user database, looked up every 10 s; what clients say of groups gains them nothing.
    Server,
}

/// The user that clients' root is mapped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct RootSquash {
    uid: u32,
    gid: u32,
}

impl FromStr for RootSquash {
    type Err = String;
    fn from_str(text: &str) -> Result<RootSquash, String> {
        let ids = text.split_once(':').and_then(|(u, g)| Some((u.parse().ok()?, g.parse().ok()?)));
        match ids {
            Some((0, _)) => Err("0 is root: leave the option out".into()),
            Some((uid, gid)) => Ok(RootSquash { uid, gid }),
            None => Err(format!("'{text}' is not UID:GID, for instance 65534:65534")),
        }
    }
}
impl TryFrom<String> for RootSquash {
    type Error = String;
    fn try_from(text: String) -> Result<RootSquash, String> {
        text.parse()
    }
}
impl fmt::Display for RootSquash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

/// The settings of an MDT for these options.
pub fn settings(groups: Groups, squash: Option<RootSquash>) -> mds::Settings {
    let groups = match groups {
        Groups::Client => mds::Groups::Client,
        Groups::Server => mds::Groups::Server(Arc::new(mds::MachineUsers)),
    };
    let squash = squash.map(|RootSquash { uid, gid }| mds::Squash { uid, gid });
    mds::Settings { groups, squash, ..mds::Settings::default() }
}

/// The keys of a configuration, with comments.
pub fn keys(groups: Groups, squash: Option<RootSquash>) -> String {
    let word = match groups {
        Groups::Client => "\"client\"",
        Groups::Server => "\"server\"",
    };
    let comment =
        "Source of a user's groups: \"client\", or \"server\" for the user database of this machine.";
    let groups = key(comment, "groups", word);
    let comment = "The user that clients' root is mapped to, as UID:GID; absent: it stays root.";
    match squash {
        Some(squash) => groups + &key(comment, "root_squash", format!("\"{squash}\"")),
        None => groups + &absent_key(comment, "root_squash", "\"65534:65534\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_squash_is_two_numbers_and_not_root() {
        assert_eq!("65534:5".parse(), Ok(RootSquash { uid: 65534, gid: 5 }));
        for bad in ["", "5", "5:", "a:b", "0:0", "-1:5"] {
            assert!(bad.parse::<RootSquash>().is_err(), "{bad}");
        }
    }
}
