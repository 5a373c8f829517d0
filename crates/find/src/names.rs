//! Names of users and groups, as this host knows them.

use std::collections::HashMap;

use nix::unistd::{Gid, Group, Uid, User};
use parking_lot::Mutex;

type Cache = Mutex<HashMap<u32, Option<String>>>;

/// Names by number, each looked up once.
#[derive(Default)]
pub struct Names {
    users: Cache,
    groups: Cache,
}

fn cached(cache: &Cache, id: u32, find: impl FnOnce() -> Option<String>) -> Option<String> {
    // A look-up may ask a server, and other threads ask for other names meanwhile.
    let known = cache.lock().get(&id).cloned();
    known.unwrap_or_else(|| {
        let found = find();
        cache.lock().insert(id, found.clone());
        found
    })
}

impl Names {
    /// None: this host knows no such user.
    pub fn user(&self, uid: u32) -> Option<String> {
        cached(&self.users, uid, || User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name))
    }

    /// None: this host knows no such group.
    pub fn group(&self, gid: u32) -> Option<String> {
        cached(&self.groups, gid, || {
            Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|group| group.name)
        })
    }
}

/// The number of a user, by name or number.
pub fn uid_of(word: &str) -> Result<u32, String> {
    let found = User::from_name(word).ok().flatten().map(|user| user.uid.as_raw());
    found.or_else(|| word.parse().ok()).ok_or_else(|| format!("this host knows no user '{word}'"))
}

/// The number of a group, by name or number.
pub fn gid_of(word: &str) -> Result<u32, String> {
    let found = Group::from_name(word).ok().flatten().map(|group| group.gid.as_raw());
    found.or_else(|| word.parse().ok()).ok_or_else(|| format!("this host knows no group '{word}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_a_name_and_a_number() {
        let names = Names::default();
        assert_eq!((names.user(0).as_deref(), names.user(0).as_deref()), (Some("root"), Some("root")));
        assert_eq!(names.group(0).as_deref(), Some("root"));
        assert_eq!((uid_of("root"), gid_of("root"), uid_of("4711")), (Ok(0), Ok(0), Ok(4711)));
        assert!(uid_of("no such user").is_err() && names.user(3_999_999_999).is_none());
    }
}
