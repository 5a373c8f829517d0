//! The user that a request is judged as: turns the claims of session and request into the `Cred` that rules go by. No other place does.
//!
//! A session that may act for all users is believed, unless the MDT looks up groups itself or squashes root. Then each request is judged
//! by its `Cred`, as far as that is believed. A session of one user always acts as that user.

use std::collections::HashMap;
use std::process::Command;
use std::sync::Arc;

use parking_lot::Mutex;
use types::Cred;

use crate::Core;

/// Validity of a user's looked-up groups. A user gains or loses a group with this delay at most.
const GROUPS_TTL_MS: u64 = 10_000;
/// Users whose groups are cached. A full cache is cleared.
const USERS_MAX: usize = 16 * 1024;
/// The group of a user that the server does not know (nogroup).
const NO_GROUP: u32 = 65_534;

/// The source of users' groups.
#[derive(Clone, Default)]
pub enum Groups {
    /// The client's kernel.
    #[default]
    Client,
    /// The server's user database. A client's claim of groups is believed only as far as the database agrees.
    Server(Arc<dyn UserDatabase>),
}

/// The user that root becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Squash {
    pub uid: u32,
    pub gid: u32,
}

/// A user database.
pub trait UserDatabase: Send + Sync {
    /// The user's groups, the primary one first; `None` if the user is not known.
    fn groups_of(&self, uid: u32) -> Option<Vec<u32>>;
}

/// This machine's user database, through the command `id`, which uses all configured modules of the name service.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineUsers;

impl UserDatabase for MachineUsers {
    fn groups_of(&self, uid: u32) -> Option<Vec<u32>> {
        let asked = Command::new("id").args(["-G", "--", &uid.to_string()]).output();
        let out = asked
            .inspect_err(|error| tracing::error!(%error, "the groups of users cannot be looked up"))
            .ok()
            .filter(|out| out.status.success())?;
        let text = String::from_utf8_lossy(&out.stdout);
        let groups: Vec<u32> = text.split_ascii_whitespace().filter_map(|g| g.parse().ok()).collect();
        (!groups.is_empty()).then_some(groups)
    }
}

/// Cached groups by uid, with the boot time of the lookup.
pub type Known = Mutex<HashMap<u32, (u64, Option<Vec<u32>>)>>;

/// The user that a request is judged as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    pub cred: Cred,
    /// The session may act for anybody (but root, where that is squashed).
    pub is_anybody: bool,
}

impl Core {
    /// The user that a request is judged as; `None`: its session is believed. `user`: the one that the session may act for.
    pub fn judged(&self, user: Option<&Cred>, call: u16, body: &[u8]) -> Option<Judged> {
        if user.is_none() && !self.judges() {
            return None;
        }
        let is_anybody = user.is_none();
        // A request without a user is the client's own, and so root's.
        let claimed = user.cloned().or_else(|| self.rules.claimed(call, body)).unwrap_or_else(Cred::root);
        Some(Judged { cred: self.believed(claimed), is_anybody })
    }

    /// Are requests of sessions that may act for anybody judged one by one?
    pub fn judges(&self) -> bool {
        self.knows_groups() || self.settings.squash.is_some()
    }
    pub fn knows_groups(&self) -> bool {
        matches!(self.settings.groups, Groups::Server(_))
    }

    /// The believed part of a claim. A claim that the client's kernel has checked access counts for nothing: this MDT checks.
    fn believed(&self, claimed: Cred) -> Cred {
        let claimed = claimed.unchecked();
        let cred = match (&self.settings.groups, claimed.uid) {
            (Groups::Client, _) | (_, 0) => claimed,
            (Groups::Server(users), uid) => match self.groups_of(users.as_ref(), uid) {
                // New files may get any of the user's groups (newgrp).
                Some(groups) => {
                    let gid = groups.iter().find(|g| **g == claimed.gid).or(groups.first());
                    Cred { uid, gid: gid.copied().unwrap_or(NO_GROUP), groups }
                }
                None => Cred { uid, gid: NO_GROUP, groups: Vec::new() },
            },
        };
        match self.settings.squash {
            Some(squash) if cred.uid == 0 => Cred { uid: squash.uid, gid: squash.gid, groups: Vec::new() },
            _ => cred,
        }
    }

    /// Looks groups up outside every lock, because a lookup may take long.
    fn groups_of(&self, users: &dyn UserDatabase, uid: u32) -> Option<Vec<u32>> {
        let now = self.clock.boot_ms();
        if let Some((asked, groups)) = self.known_groups.lock().get(&uid)
            && now.saturating_sub(*asked) < GROUPS_TTL_MS
        {
            return groups.clone();
        }
        let groups = users.groups_of(uid);
        let mut known = self.known_groups.lock();
        if known.len() >= USERS_MAX {
            known.clear();
        }
        known.insert(uid, (now, groups.clone()));
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_knows_its_users() {
        assert_eq!(MachineUsers.groups_of(0).and_then(|g| g.first().copied()), Some(0));
        assert_eq!(MachineUsers.groups_of(3_999_999_999), None);
    }
}
