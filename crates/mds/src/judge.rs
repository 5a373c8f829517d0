//! Credentials of a request: the one place that turns the claims of a session and of its request into the `Cred` that rules use.
//!
//! A session that may act for any user is believed, unless the MDT looks groups up itself or squashes root, or a nodemap changes ids. Then each request is judged by
//! the believed part of its `Cred`. A session of one user acts as that user, whatever its requests say.

use std::collections::HashMap;
use std::process::Command;
use std::sync::Arc;

use mgmt::nodemap::{caller, changes_ids};
use parking_lot::Mutex;
use types::Cred;
use wire::map::Nodemap;

use crate::Core;
use crate::sessions::nodemap::Terms;

/// Validity of looked-up groups. A user gains or loses a group with at most this delay.
const GROUPS_TTL_MS: u64 = 10_000;
/// Most users whose groups are remembered. Past it all are dropped and looked up anew.
const USERS_MAX: usize = 16 * 1024;
/// The group of a user that the server does not know (`nogroup`).
const NO_GROUP: u32 = 65_534;

/// Source of a user's groups.
#[derive(Clone, Default)]
pub enum Groups {
    /// The client's kernel.
    #[default]
    Client,
    /// The server's user database. Groups that a client claims count only if the database has them.
    Server(Arc<dyn UserDatabase>),
}

/// The user that root is mapped to.
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

/// This machine's name service, asked through `id`, so that all configured modules count.
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

/// Looked-up groups by user, and the time of the look.
pub type Known = Mutex<HashMap<u32, (u64, Option<Vec<u32>>)>>;

/// The credentials that a request is judged by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    pub cred: Cred,
    /// The session may act for any user (except root, if that is squashed).
    pub is_anybody: bool,
}

impl Core {
    /// The credentials to judge a request by. `None`: its session is believed. `user`: the one user that the session may act for.
    pub fn judged(
        &self,
        user: Option<&Cred>,
        terms: Option<&Terms>,
        call: u16,
        body: &[u8],
    ) -> Option<Judged> {
        let nodemap = terms.map(|terms| &**terms).filter(|nodemap| changes_ids(nodemap));
        if user.is_none() && nodemap.is_none() && !self.judges() {
            return None;
        }
        let is_anybody = user.is_none();
        // A request without credentials is the client's own, and has root's.
        let claimed = user.cloned().or_else(|| self.rules.claimed(call, body)).unwrap_or_else(Cred::root);
        Some(Judged { cred: self.believed(claimed, nodemap), is_anybody })
    }

    /// True if requests of sessions that may act for any user are judged one by one.
    pub fn judges(&self) -> bool {
        self.knows_groups() || self.settings.squash.is_some()
    }
    pub fn knows_groups(&self) -> bool {
        matches!(self.settings.groups, Groups::Server(_))
    }

    /// The believed part of a claim. A mark that a kernel has checked the request is dropped, since this MDT checks it.
    fn believed(&self, claimed: Cred, nodemap: Option<&Nodemap>) -> Cred {
        let claimed = claimed.unchecked();
        let claimed = nodemap.map_or_else(|| claimed.clone(), |nodemap| caller(nodemap, &claimed));
        let cred = match (&self.settings.groups, claimed.uid) {
            (Groups::Client, _) | (_, 0) => claimed,
            (Groups::Server(users), uid) => match self.groups_of(users.as_ref(), uid) {
                // The claimed group counts if it is one of the user's: newgrp(1) makes any of them the primary one.
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

    /// Looks groups up, outside every lock, since the answer may take long.
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
