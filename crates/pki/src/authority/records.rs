//! The memory of the CA directory: `cluster.toml` and `issued.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::AuthorityError;
use crate::identity::{Name, Role, Serial};

/// Shortest beginning of a serial that `revoke` takes.
const SERIAL_DIGITS_MIN: usize = 8;

/// `cluster.toml`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    pub name: Name,
    pub generation: u32,
}

impl About {
    pub fn read(text: &str) -> Result<About, String> {
        toml::from_str(text).map_err(|e| e.message().to_owned())
    }
    pub fn text(&self) -> String {
        let About { name, generation } = self;
        format!("# Written by `stria cluster`.\nname = \"{name}\"\ngeneration = {generation}\n")
    }
}

/// Why a certificate was revoked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    #[default]
    Unspecified,
    /// Its key, or its host, is in other hands.
    KeyCompromise,
    /// A newer certificate has replaced it.
    Superseded,
    /// Its host is gone.
    Retired,
}

impl Reason {
    pub const ALL: [Reason; 4] =
        [Reason::Unspecified, Reason::KeyCompromise, Reason::Superseded, Reason::Retired];

    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Unspecified => "unspecified",
            Reason::KeyCompromise => "key-compromise",
            Reason::Superseded => "superseded",
            Reason::Retired => "retired",
        }
    }
}

/// When and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    pub reason: Reason,
    pub sec: u64,
}

/// A certificate that was issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub serial: Serial,
    pub role: Role,
    pub node: Name,
    /// Number of the CA that signed it.
    pub generation: u32,
    pub issued_sec: u64,
    pub not_after: u64,
    pub revoked: Option<Revocation>,
}

impl Record {
    fn is_valid(&self, now: u64) -> bool {
        self.revoked.is_none() && self.not_after > now
    }
}

/// The state of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Valid,
    Expired,
    Revoked,
    /// Its CA was dropped by `rotate --finish`.
    Dropped,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            State::Valid => "valid",
            State::Expired => "expired",
            State::Revoked => "revoked",
            State::Dropped => "dropped",
        }
    }
}

/// A line of `list`.
#[derive(Clone, Debug)]
pub struct Listed {
    pub record: Record,
    pub state: State,
    /// Of the valid certificates of its node and role the one that ends last.
    pub is_newest: bool,
}

/// `issued.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Issued {
    /// Number of the newest revocation lists.
    pub list_number: u64,
    /// In the order of issue.
    pub certificates: Vec<Record>,
}

impl Issued {
    pub fn read(text: &str) -> Result<Issued, String> {
        serde_json::from_str(text).map_err(|e| e.to_string())
    }
    pub fn text(&self) -> String {
        let mut text =
            serde_json::to_string_pretty(self).expect("records have no maps with other keys than text");
        text.push('\n');
        text
    }

    /// Places of a node's certificates, or of the one with the serial.
    pub fn find(&self, which: &str, role: Option<Role>) -> Result<Vec<usize>, AuthorityError> {
        let places = |is_it: &dyn Fn(&Record) -> bool| -> Vec<usize> {
            let all = self.certificates.iter().enumerate();
            all.filter(|(_, r)| role.is_none_or(|role| role == r.role) && is_it(r)).map(|(n, _)| n).collect()
        };
        let mut found = places(&|r| r.node.as_str() == which);
        if found.is_empty() && which.len() >= SERIAL_DIGITS_MIN {
            let digits = which.to_ascii_lowercase();
            found = places(&|r| r.serial.to_string().starts_with(&digits));
            if found.len() > 1 {
                return Err(AuthorityError::Ambiguous { which: which.into() });
            }
        }
        match found.is_empty() {
            true => Err(AuthorityError::Unknown { which: which.into() }),
            false => Ok(found),
        }
    }

    /// Of each node and role the valid certificate that was issued last.
    pub fn newest_valid(&self, now: u64) -> impl Iterator<Item = &Record> {
        let valid = self.certificates.iter().filter(|r| r.is_valid(now));
        let newest: BTreeMap<(&Name, Role), &Record> = valid.map(|r| ((&r.node, r.role), r)).collect();
        newest.into_values()
    }

    /// Valid certificates of earlier CAs whose node and role have none of this one.
    pub fn left(&self, generation: u32, now: u64) -> Vec<Record> {
        let is_left = |r: &&&Record| r.generation < generation;
        let newest: Vec<&Record> = self.newest_valid(now).collect();
        newest.iter().filter(is_left).map(|r| (*r).clone()).collect()
    }

    pub fn list(&self, oldest_generation: u32, now: u64) -> Vec<Listed> {
        let state = |r: &Record| match r {
            r if r.revoked.is_some() => State::Revoked,
            r if r.not_after <= now => State::Expired,
            r if r.generation < oldest_generation => State::Dropped,
            _ => State::Valid,
        };
        let newest: Vec<Serial> = self.newest_valid(now).map(|r| r.serial).collect();
        let line = |r: &Record| {
            let state = state(r);
            let is_newest = state == State::Valid && newest.contains(&r.serial);
            Listed { record: r.clone(), state, is_newest }
        };
        let mut lines: Vec<Listed> = self.certificates.iter().rev().map(line).collect();
        lines.sort_by(|a, b| (&a.record.node, a.record.role).cmp(&(&b.record.node, b.record.role)));
        lines
    }
}
