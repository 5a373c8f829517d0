//! Whose rights a request has: the one place that turns what a session may claim, and what its request claims, into the `Cred`
//! that rules go by.
//!
//! A session that may act for anybody is taken at its word, unless the MDT looks groups up itself or squashes root: then each
//! request is judged by the `Cred` in it as far as that is believed. One user's session is that user, whatever its requests say.

use std::collections::HashMap;
use std::process::Command;
use std::sync::Arc;

use parking_lot::Mutex;
use types::Cred;

use crate::Core;

/// How long a user's groups are taken for true. A user who was given a group waits so long for it; who lost one has it so long.
const GROUPS_TTL_MS: u64 = 10_000;
/// Users whose groups are remembered; past it all are forgotten and looked up anew.
const USERS_MAX: usize = 16 * 1024;
/// The group of a user whom the server does not know: nobody's.
const NO_GROUP: u32 = 65_534;

/// Who says in which groups a user is.
#[derive(Clone, Default)]
pub enum Groups {
    /// The client, as its kernel says.
    #[default]
    Client,
    /// The server's user database; what a client says of groups is believed only as far as that agrees.
    Server(Arc<dyn UserDatabase>),
}

/// Whom root becomes.
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

/// This machine's, as its name service knows it: asked through `id`, which brings whatever modules are configured.
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

/// Groups that were looked up a moment ago, and when.
pub type Known = Mutex<HashMap<u32, (u64, Option<Vec<u32>>)>>;

/// Whom a request is judged as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    pub cred: Cred,
    /// The session may act for anybody (but root, where that is squashed).
    pub is_anybody: bool,
}

impl Core {
    /// Whom a request is judged as; `None`: its session is taken at its word. `user`: the one that the session may act for.
    pub fn judged(&self, user: Option<&Cred>, call: u16, body: &[u8]) -> Option<Judged> {
        if user.is_none() && !self.judges() {
            return None;
        }
        let is_anybody = user.is_none();
        // A request that does not say for whom it is, is the client's own: root's.
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

    /// What is left of a claim. That a kernel has judged it is none: this MDT judges.
    fn believed(&self, claimed: Cred) -> Cred {
        let claimed = claimed.unchecked();
        let cred = match (&self.settings.groups, claimed.uid) {
            (Groups::Client, _) | (_, 0) => claimed,
            (Groups::Server(users), uid) => match self.groups_of(users.as_ref(), uid) {
                // Of the groups that are the user's, any may be the one that new files get (newgrp).
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

    /// Asked outside every lock: the answer may take its time.
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
