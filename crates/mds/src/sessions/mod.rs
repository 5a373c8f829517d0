//! Sessions: the clients that may send requests, and the time of each one's last sign of life.
//!
//! The table is authoritative (records of kind 7, written at attach and at a session's end). This list is what requests read, without a lock.
//!
//! mds-S1: a session in the list has its record in the table.
//! mds-S2: the list is in the order of session ids, and a newer id is higher.

pub mod catch_up;
pub mod grace;
pub mod locks;
pub mod overdue;
pub mod shared;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use meta::View;
use net::notices::Outbox;
use types::{Code, Cred, Fault, Key, SessionId, Uuid, Word};
use wire::session::Claims;
use wire::{Malformed, Reader, Wire};

/// Key kind of sessions' records: `(7, session u64)` → client uuid, name.
pub const KIND_SESSION: u8 = meta::keys::SESSION;
/// Longest client name in bytes; longer ones are cut. Host, pid and mount point fit.
pub const NAME_BYTES_MAX: usize = 256;

/// Resolution of a client's last sign of life: a small part of the session time-out.
const SEEN_EACH_MS: u64 = 16;

#[derive(Debug)]
pub struct Session {
    pub id: SessionId,
    /// The client's own id. The same client gets the same session again.
    pub client: Uuid,
    pub name: String,
    /// Users that it may act for.
    pub claims: Claims,
    seen_ms: AtomicU64,
    /// Entries since this start that gave the session an orphan.
    pub orphaned: AtomicU64,
    /// Lock requests with a lower number are late copies.
    pub lock_floor: AtomicU64,
    /// What the client is told without a request of its own.
    pub notices: Arc<Outbox>,
}

impl Session {
    pub fn new(id: SessionId, client: Uuid, name: &str, claims: Claims, now_ms: u64) -> Session {
        let mut end = name.len().min(NAME_BYTES_MAX);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        assert!(end <= NAME_BYTES_MAX, "a client's name has its bound");
        Session {
            id,
            client,
            name: name[..end].to_string(),
            claims,
            seen_ms: AtomicU64::new(now_ms),
            orphaned: AtomicU64::new(0),
            lock_floor: AtomicU64::new(0),
            notices: Outbox::new(),
        }
    }

    /// Notes a sign of life. All threads of a client read this word, so it is written rarely.
    pub fn touch(&self, now_ms: u64) {
        if now_ms >= self.seen_ms.load(Ordering::Relaxed) + SEEN_EACH_MS {
            self.seen_ms.fetch_max(now_ms, Ordering::Relaxed);
        }
    }
    /// Milliseconds since the last sign of life, or up to `SEEN_EACH_MS` more.
    pub fn silent_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.seen_ms.load(Ordering::Relaxed))
    }

    /// The only user that it may act for; `None`: it may act for any user.
    pub fn one_user(&self) -> Option<&Cred> {
        match &self.claims {
            Claims::All => None,
            Claims::User(cred) => Some(cred),
        }
    }

    pub fn to_record(&self) -> (Key, Vec<u8>) {
        let mut value = Vec::with_capacity(20 + self.name.len());
        self.client.put(&mut value);
        self.name.put(&mut value);
        self.claims.put(&mut value);
        (session_key(self.id), value)
    }

    fn from_record(key: &Key, value: &[u8], now_ms: u64) -> Result<Session, Malformed> {
        let id = session_of_key(key).ok_or(Malformed("key of a session"))?;
        let r = &mut Reader::new(value);
        let (client, name, claims) = (Uuid::get(r)?, String::get(r)?, Claims::get(r)?);
        r.end()?;
        Ok(Session::new(id, client, &name, claims, now_ms))
    }
}

pub fn session_key(id: SessionId) -> Key {
    let mut bytes = [KIND_SESSION; 9];
    bytes[1..].copy_from_slice(&id.0.to_be_bytes());
    Key::new(&bytes).expect("9 bytes fit")
}

/// The session whose record `key` names, if it is such a key.
pub fn session_of_key(key: &Key) -> Option<SessionId> {
    let (kind, id) = key.as_bytes().split_first()?;
    Some(SessionId(u64::from_be_bytes(id.try_into().ok()?))).filter(|_| *kind == KIND_SESSION)
}

/// The list of sessions. A change replaces the whole list.
#[derive(Default)]
pub struct Sessions(ArcSwap<List>);

/// In the order of ids (mds-S2).
#[derive(Default)]
pub struct List(Vec<(SessionId, Arc<Session>)>);

impl List {
    fn at(&self, id: SessionId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&id, |(id, _)| *id)
    }
    pub fn get(&self, id: SessionId) -> Option<&Arc<Session>> {
        self.at(id).ok().map(|at| &self.0[at].1)
    }
    fn all(&self) -> impl Iterator<Item = &Arc<Session>> {
        self.0.iter().map(|(_, session)| session)
    }
    fn with(&self, session: &Arc<Session>) -> List {
        let mut list = self.0.clone();
        // mds-S2: a newer id is higher, so it mostly goes to the end.
        match self.at(session.id) {
            Ok(at) => list[at].1 = session.clone(),
            Err(at) => list.insert(at, (session.id, session.clone())),
        }
        debug_assert!(
            list.windows(2).all(|two| two[0].0 < two[1].0),
            "mds-S2: the list is in the order of ids"
        );
        List(list)
    }
    fn without(&self, id: SessionId) -> List {
        List(self.0.iter().filter(|(other, _)| *other != id).cloned().collect())
    }
}

impl Sessions {
    /// Reads the sessions of the table. Each counts as heard of now, so that after a restart every client has its whole time-out.
    pub fn load(view: &dyn View, now_ms: u64) -> Result<Sessions, Fault> {
        let (from, to) = (Key::new(&[KIND_SESSION]), Key::new(&[KIND_SESSION + 1]));
        let (from, to) = (from.expect("a byte fits"), to.expect("a byte fits"));
        let mut list = Vec::new();
        let mut bad = None;
        // mds-S2: the order of keys is that of ids.
        view.range(&from, &to, &mut |key, value| {
            match Session::from_record(key, value, now_ms) {
                Ok(s) => list.push((s.id, Arc::new(s))),
                Err(why) => bad = Some(format!("session record {key:?} cannot be read: {why}")),
            }
            bad.is_none()
        });
        if let Some(why) = bad {
            return Err(Fault::new(Code::Damaged, why));
        }
        Ok(Sessions(ArcSwap::from_pointee(List(list))))
    }

    /// The present list, for one request. Takes no reference count.
    pub fn now(&self) -> Guard<Arc<List>> {
        self.0.load()
    }
    pub fn words(&self) -> Vec<Word> {
        let list = self.0.load();
        let first = list.all().next();
        let of = |s: &Arc<Session>| {
            [Word::of("a session's last sign of life", &s.seen_ms), Word::count("count of a session", s)]
        };
        let list = Word::count("count of the list of sessions", &list);
        first.into_iter().flat_map(of).chain([list]).collect()
    }
    pub fn ids(&self) -> Vec<SessionId> {
        self.0.load().0.iter().map(|(id, _)| *id).collect()
    }
    pub fn each(&self, tell: impl FnMut(&Arc<Session>)) {
        self.0.load().all().for_each(tell);
    }
    pub fn count(&self) -> usize {
        self.0.load().0.len()
    }
    pub fn get(&self, id: SessionId) -> Option<Arc<Session>> {
        self.0.load().get(id).cloned()
    }
    pub fn check(&self, id: SessionId) -> Result<(), Fault> {
        self.0.load().get(id).map(drop).ok_or_else(|| object::slots::unknown(id))
    }
    pub fn find(&self, is_it: impl Fn(&Session) -> bool) -> Option<Arc<Session>> {
        self.0.load().all().find(|s| is_it(s)).cloned()
    }

    /// The only user that session `id` may act for; `None`: it may act for any user. A session that has ended is an error.
    pub fn one_user(&self, id: SessionId) -> Result<Option<Cred>, Fault> {
        let sessions = self.0.load();
        let session = sessions.get(id).ok_or_else(|| object::slots::unknown(id))?;
        Ok(session.one_user().cloned())
    }

    /// Notes a sign of life of `id`. False: there is no such session.
    pub fn touch(&self, id: SessionId, now_ms: u64) -> bool {
        self.0.load().get(id).map(|s| s.touch(now_ms)).is_some()
    }

    pub fn add(&self, session: Arc<Session>) {
        self.0.rcu(|list| list.with(&session));
    }
    pub fn remove(&self, id: SessionId) {
        self.0.rcu(|list| list.without(id));
    }

    pub fn list(&self, now_ms: u64) -> Vec<(SessionId, String, u64)> {
        self.0.load().all().map(|s| (s.id, s.name.clone(), s.silent_ms(now_ms))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `docs/formats/mdt.md` has it.
    #[test]
    fn golden() {
        const USER: &str = "01e8030000e90300000100000005000000";
        let claims = Claims::User(types::Cred { uid: 1000, gid: 1001, groups: vec![5] });
        let session = Session::new(SessionId(0x0102), Uuid([0xab; 16]), "host", claims, 0);
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let (key, value) = session.to_record();
        assert_eq!(hex(key.as_bytes()), "070000000000000102");
        assert_eq!(hex(&value), "ab".repeat(16) + "04000000" + "686f7374" + USER);
        let back = Session::from_record(&key, &value, 0).unwrap();
        assert_eq!(
            (back.id, back.client, back.name, back.claims),
            (session.id, session.client, session.name, session.claims)
        );
    }
    #[test]
    fn sessions_are_found_among_many_in_whatever_order_they_came() {
        let (ids, now) = ([7u64, 1, 900, 3, 40, 2], 5);
        let sessions = Sessions::default();
        for id in ids {
            let client = Uuid([id as u8; 16]);
            sessions.add(Arc::new(Session::new(SessionId(id), client, "host", Claims::All, now)));
        }
        assert_eq!(sessions.ids(), [1, 2, 3, 7, 40, 900].map(SessionId));
        assert!(ids.iter().all(|id| sessions.get(SessionId(*id)).is_some_and(|s| s.id.0 == *id)));
        sessions.remove(SessionId(7));
        assert!(!sessions.touch(SessionId(7), now) && sessions.touch(SessionId(3), now));
        assert_eq!(sessions.count(), 5);
    }

    #[test]
    fn a_client_that_speaks_often_is_noted_rarely() {
        let session = Session::new(SessionId(1), Uuid([1; 16]), "host", Claims::All, 1000);
        session.touch(1000 + SEEN_EACH_MS - 1);
        assert_eq!(session.silent_ms(1000 + SEEN_EACH_MS), SEEN_EACH_MS, "nothing was written");
        session.touch(1000 + SEEN_EACH_MS);
        assert_eq!(session.silent_ms(1000 + SEEN_EACH_MS), 0);
    }
}
