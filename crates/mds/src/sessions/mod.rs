//! Sessions: the clients that may send requests, and the time of each one's last sign of life.
//!
//! The table is authoritative (records of kind 7, written at attach and at a session's end). This list is what requests read, without a lock.
//!
//! mds-S1: a session in the list has its record in the table.
//! mds-S2: the list is in the order of session ids, and a newer id is higher.

pub mod below;
pub mod catch_up;
pub mod grace;
pub mod leases;
pub mod locks;
pub mod makers;
pub mod nodemap;
pub mod overdue;
pub mod owner;
pub mod recalls;
pub mod serials;
pub mod shared;
mod told;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use meta::View;
use net::notices::Outbox;
use parking_lot::Mutex;
use types::{Code, Cred, Fault, Fid, Key, SessionId, Uuid, Word};
use wire::session::Claims;
use wire::{Malformed, Reader, Wire};

use owner::Holder;

/// Key kind of sessions' records: `(7, session u64)` → client uuid, name, claims, owner.
pub const KIND_SESSION: u8 = meta::keys::SESSION;
/// Longest client name in bytes; longer ones are cut. Host, pid and mount point fit.
pub const NAME_BYTES_MAX: usize = 256;

/// Resolution of a client's last sign of life: a small part of the session time-out.
const SEEN_EACH_MS: u64 = 16;

/// The root of a session, for its record: after a restart the path may be another directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRoot {
    pub path: String,
    pub top: Fid,
}

#[derive(Debug)]
pub struct Session {
    pub id: SessionId,
    /// The client's own id. The same client gets the same session again.
    pub client: Uuid,
    pub name: String,
    /// Users that it may act for.
    pub claims: Claims,
    /// mds-S3: its owner; `None`: it was begun over a connection without TLS.
    pub holder: Option<Holder>,
    /// mds-N5: the root by which it was begun.
    pub root: Option<KeptRoot>,
    /// mds-S5: of its owner's certificates.
    pub serials: serials::Serials,
    seen_ms: AtomicU64,
    /// The entry that began it since this start; its attach is answered once that is flushed.
    pub begun: AtomicU64,
    /// Entries since this start that gave the session an orphan.
    pub orphaned: AtomicU64,
    /// Lock requests with a lower number are late copies.
    pub lock_floor: AtomicU64,
    /// mds-K5 has refused it a lock, which the log tells once.
    pub was_lock_refused: AtomicBool,
    /// Its client has attached to this start, and so knows that it holds no lease.
    pub has_attached: AtomicBool,
    /// mds-L4: when its lease was renewed last, boot time.
    leased_ms: AtomicU64,
    /// mds-N1; `None`: no request came since this start.
    pub place: ArcSwapOption<nodemap::Place>,
    /// Notices to the client.
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
            holder: None,
            root: None,
            serials: serials::Serials::default(),
            seen_ms: AtomicU64::new(now_ms),
            begun: AtomicU64::new(0),
            orphaned: AtomicU64::new(0),
            lock_floor: AtomicU64::new(0),
            was_lock_refused: AtomicBool::new(false),
            has_attached: AtomicBool::new(false),
            leased_ms: AtomicU64::new(0),
            place: ArcSwapOption::empty(),
            notices: Outbox::new(),
        }
    }

    pub fn held_by(self, holder: Option<Holder>) -> Session {
        Session { holder, ..self }
    }
    pub fn below(self, root: Option<KeptRoot>) -> Session {
        Session { root, ..self }
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
        // A record without an owner and a root is as earlier releases wrote it.
        match (&self.holder, &self.root) {
            (Some(holder), _) => holder.uri.put(&mut value),
            (None, Some(_)) => String::new().put(&mut value),
            (None, None) => {}
        }
        if let Some(KeptRoot { path, top }) = &self.root {
            path.put(&mut value);
            top.put(&mut value);
        }
        (session_key(self.id), value)
    }

    fn from_record(key: &Key, value: &[u8], now_ms: u64) -> Result<Session, Malformed> {
        let id = session_of_key(key).ok_or(Malformed("key of a session"))?;
        let r = &mut Reader::new(value);
        let (client, name, claims) = (Uuid::get(r)?, String::get(r)?, Claims::get(r)?);
        let holder = match r.remaining() {
            0 => None,
            _ => Some(String::get(r)?)
                .filter(|uri| !uri.is_empty())
                .map(|uri| Holder::from_uri(&uri))
                .transpose()?,
        };
        let root = match r.remaining() {
            0 => None,
            _ => Some(KeptRoot { path: String::get(r)?, top: Fid::get(r)? }),
        };
        r.end()?;
        Ok(Session::new(id, client, &name, claims, now_ms).held_by(holder).below(root))
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

/// Most sessions of a chunk. A change copies one chunk and the list of chunks: some hundred references among 32,768 sessions.
const CHUNK_MAX: usize = 256;

/// The list of sessions. A change replaces the list and one chunk of it.
#[derive(Default)]
pub struct Sessions {
    list: ArcSwap<List>,
    /// The session of each client.
    by_client: Mutex<HashMap<Uuid, SessionId>>,
    /// Every session was heard of at this boot time or later, so that a look for silent ones mostly looks at none.
    heard_since_ms: AtomicU64,
}

/// In the order of ids (mds-S2).
#[derive(Default)]
pub struct List {
    /// None is empty.
    chunks: Vec<Arc<Chunk>>,
    count: usize,
}

type Chunk = Vec<(SessionId, Arc<Session>)>;

impl List {
    fn of(all: &[(SessionId, Arc<Session>)]) -> List {
        let chunks = all.chunks(CHUNK_MAX).map(|some| Arc::new(some.to_vec())).collect();
        List { chunks, count: all.len() }
    }

    /// The chunk that has `id`, or into which it would go.
    fn chunk_of(&self, id: SessionId) -> usize {
        self.chunks.partition_point(|chunk| chunk[0].0 <= id).saturating_sub(1)
    }
    pub fn get(&self, id: SessionId) -> Option<&Arc<Session>> {
        let chunk = self.chunks.get(self.chunk_of(id))?;
        at(chunk, id).ok().map(|at| &chunk[at].1)
    }
    fn all(&self) -> impl Iterator<Item = &Arc<Session>> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).map(|(_, session)| session)
    }

    fn with(&self, session: &Arc<Session>) -> List {
        let (mut chunks, n) = (self.chunks.clone(), self.chunk_of(session.id));
        let mut chunk = chunks.get(n).map_or(vec![], |chunk| chunk.to_vec());
        let found = at(&chunk, session.id);
        match found {
            Ok(at) => chunk[at].1 = session.clone(),
            Err(at) => chunk.insert(at, (session.id, session.clone())),
        }
        // A newer id is higher, so it mostly goes to the end: then the full chunk stays full, and another one begins.
        let cut = if found == Err(CHUNK_MAX) { CHUNK_MAX } else { CHUNK_MAX / 2 };
        let rest = if chunk.len() > CHUNK_MAX { chunk.split_off(cut) } else { vec![] };
        let parts = [chunk, rest].into_iter().filter(|part| !part.is_empty()).map(Arc::new);
        chunks.splice(n..(n + 1).min(chunks.len()), parts);
        List { chunks, count: self.count + usize::from(found.is_err()) }
    }

    fn without(&self, id: SessionId) -> List {
        let (mut chunks, n) = (self.chunks.clone(), self.chunk_of(id));
        if chunks.get(n).is_none_or(|chunk| at(chunk, id).is_err()) {
            return List { chunks, count: self.count };
        }
        // Chunks that shrink are joined, so that their number follows that of the sessions.
        let is_small = |two: &&[Arc<Chunk>]| two.iter().map(|c| c.len()).sum::<usize>() <= CHUNK_MAX / 2;
        let two = |first: usize| chunks.get(first..first + 2).filter(is_small).map(|_| first..first + 2);
        let range = two(n).or_else(|| two(n.checked_sub(1)?)).unwrap_or(n..n + 1);
        let old = chunks[range.clone()].iter().flat_map(|chunk| chunk.iter());
        let left: Chunk = old.filter(|(other, _)| *other != id).cloned().collect();
        chunks.splice(range, (!left.is_empty()).then(|| Arc::new(left)));
        List { chunks, count: self.count - 1 }
    }

    fn is_in_order(&self) -> bool {
        let is_full = self.chunks.iter().all(|chunk| !chunk.is_empty() && chunk.len() <= CHUNK_MAX);
        is_full && self.all().is_sorted_by(|a, b| a.id < b.id) && self.all().count() == self.count
    }
}

fn at(chunk: &Chunk, id: SessionId) -> Result<usize, usize> {
    chunk.binary_search_by_key(&id, |(id, _)| *id)
}

/// The sessions of a table at a start. Each counts as heard of now, so that after a restart every client has its whole time-out.
pub struct Load {
    now_ms: u64,
    list: Vec<(SessionId, Arc<Session>)>,
    bad: Option<String>,
}

impl Load {
    pub fn new(now_ms: u64) -> Load {
        Load { now_ms, list: vec![], bad: None }
    }

    /// Reads sessions behind those that were read. A read that meets an absent record ends there, and goes on once it is loaded.
    pub fn go_on(&mut self, view: &dyn View) {
        let Load { now_ms, list, bad } = self;
        let begin = |kind: u8| Key::new(&[kind]).expect("a byte fits");
        let from = list.last().map_or(begin(KIND_SESSION), |(id, _)| session_key(*id).after());
        // mds-S2: the order of keys is that of ids.
        view.range(&from, &begin(KIND_SESSION + 1), &mut |key, value| {
            match Session::from_record(key, value, *now_ms) {
                Ok(s) => list.push((s.id, Arc::new(s))),
                Err(why) => *bad = Some(format!("session record {key:?} cannot be read: {why}")),
            }
            bad.is_none()
        });
    }

    pub fn end(self) -> Result<Sessions, Fault> {
        let Load { now_ms, list, bad } = self;
        if let Some(why) = bad {
            return Err(Fault::new(Code::Damaged, why));
        }
        let by_client = Mutex::new(list.iter().map(|(id, session)| (session.client, *id)).collect());
        let list = ArcSwap::from_pointee(List::of(&list));
        Ok(Sessions { list, by_client, heard_since_ms: AtomicU64::new(now_ms) })
    }
}

impl Sessions {
    /// The present list, for one request. Takes no reference count.
    pub fn now(&self) -> Guard<Arc<List>> {
        self.list.load()
    }
    pub fn words(&self) -> Vec<Word> {
        let list = self.list.load();
        let first = list.all().next();
        let of = |s: &Arc<Session>| {
            [Word::of("a session's last sign of life", &s.seen_ms), Word::count("count of a session", s)]
        };
        let chunk = list.chunks.first().map(|chunk| Word::count("count of a chunk of sessions", chunk));
        let list = Word::count("count of the list of sessions", &list);
        first.into_iter().flat_map(of).chain(chunk).chain([list]).collect()
    }
    pub fn ids(&self) -> Vec<SessionId> {
        self.list.load().all().map(|s| s.id).collect()
    }
    pub fn each(&self, tell: impl FnMut(&Arc<Session>)) {
        self.list.load().all().for_each(tell);
    }
    pub fn count(&self) -> usize {
        self.list.load().count
    }
    pub fn get(&self, id: SessionId) -> Option<Arc<Session>> {
        self.list.load().get(id).cloned()
    }
    pub fn check(&self, id: SessionId) -> Result<(), Fault> {
        self.list.load().get(id).map(drop).ok_or_else(|| object::slots::unknown(id))
    }
    /// The session of a client.
    pub fn of_client(&self, client: Uuid) -> Option<Arc<Session>> {
        let id = self.by_client.lock().get(&client).copied()?;
        self.get(id)
    }

    /// Sessions that were silent for `limit_ms`.
    pub fn silent(&self, limit_ms: u64, now_ms: u64) -> Vec<Arc<Session>> {
        if now_ms < self.heard_since_ms.load(Ordering::SeqCst).saturating_add(limit_ms) {
            return vec![];
        }
        let list = self.list.load();
        // A session that is added meanwhile is heard of later than this.
        let since = list.all().map(|s| s.seen_ms.load(Ordering::Relaxed)).min().unwrap_or(now_ms);
        self.heard_since_ms.store(since.min(now_ms), Ordering::SeqCst);
        list.all().filter(|s| s.silent_ms(now_ms) >= limit_ms).cloned().collect()
    }

    /// The only user that session `id` may act for; `None`: it may act for any user. A session that has ended is an error.
    pub fn one_user(&self, id: SessionId) -> Result<Option<Cred>, Fault> {
        let sessions = self.list.load();
        let session = sessions.get(id).ok_or_else(|| object::slots::unknown(id))?;
        Ok(session.one_user().cloned())
    }

    /// Notes a sign of life of `id`. False: there is no such session.
    pub fn touch(&self, id: SessionId, now_ms: u64) -> bool {
        self.list.load().get(id).map(|s| s.touch(now_ms)).is_some()
    }

    pub fn add(&self, session: Arc<Session>) {
        self.by_client.lock().insert(session.client, session.id);
        self.list.rcu(|list| list.with(&session));
        debug_assert!(self.count() > CHUNK_MAX || self.list.load().is_in_order(), "mds-S2: ids are in order");
    }
    pub fn remove(&self, id: SessionId) {
        if let Some(session) = self.get(id) {
            let mut by_client = self.by_client.lock();
            if by_client.get(&session.client) == Some(&id) {
                by_client.remove(&session.client);
            }
        }
        self.list.rcu(|list| list.without(id));
    }

    pub fn list(&self, now_ms: u64) -> Vec<(SessionId, String, u64)> {
        self.list.load().all().map(|s| (s.id, s.name.clone(), s.silent_ms(now_ms))).collect()
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
            (back.id, back.client, back.name, back.claims, back.holder),
            (session.id, session.client, session.name.clone(), session.claims.clone(), None)
        );
        // With an owner: its URI behind the claims.
        let uri = "stria://c/client/n";
        let session = session.held_by(Some(Holder::from_uri(uri).unwrap()));
        let (key, value) = session.to_record();
        let owned = "12000000".to_string() + &hex(uri.as_bytes());
        assert_eq!(hex(&value), "ab".repeat(16) + "04000000" + "686f7374" + USER + &owned);
        assert_eq!(Session::from_record(&key, &value, 0).unwrap().holder, session.holder);
        let bad = [&value[..value.len() - 1], b"/"].concat();
        assert!(Session::from_record(&key, &bad, 0).is_err(), "a URI that is no identity's");
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
    fn lists_of_many_sessions_are_like_an_ordered_map() {
        let new = |id: u64| Arc::new(Session::new(SessionId(id), Uuid([0; 16]), "host", Claims::All, 0));
        let (mut list, mut model) = (List::default(), std::collections::BTreeMap::new());
        let mut dice = hammer::Dice::new(1);
        for step in 0..6000u64 {
            // It grows at its end mostly, then shrinks to nothing.
            let id = if dice.below(4) == 0 { 1 + dice.below(4000) as u64 } else { 1 + step };
            match step < 2500 || dice.below(8) == 0 {
                true => {
                    list = list.with(&new(id));
                    model.insert(SessionId(id), ());
                }
                false => {
                    let id = model.keys().nth(dice.below(model.len().max(1))).copied();
                    list = list.without(id.unwrap_or(SessionId(9)));
                    id.map(|id| model.remove(&id));
                }
            }
            assert!(list.is_in_order());
            assert!(list.chunks.len() <= 2 + list.count / (CHUNK_MAX / 4), "{}", list.chunks.len());
        }
        assert!(list.all().map(|s| s.id).eq(model.keys().copied()));
        assert!((0..4100).all(|id| list.get(SessionId(id)).is_some() == model.contains_key(&SessionId(id))));
        assert_eq!(list.without(SessionId(u64::MAX)).count, list.count, "one that is not there");
    }

    #[test]
    fn silent_sessions_are_found_whatever_was_found_before() {
        let sessions = Sessions::default();
        let add = |id: u64, now| {
            let session = Session::new(SessionId(id), Uuid([id as u8; 16]), "host", Claims::All, now);
            sessions.add(Arc::new(session));
        };
        let silent = |now| sessions.silent(100, now).iter().map(|s| s.id.0).collect::<Vec<_>>();
        add(1, 1000);
        add(2, 1050);
        assert_eq!(silent(1099), [0u64; 0]);
        assert_eq!(silent(1100), [1]);
        sessions.touch(SessionId(1), 1100);
        add(3, 1110);
        assert_eq!((silent(1149), silent(1150)), (vec![], vec![2]));
        assert_eq!((silent(1199), silent(1300)), (vec![2], vec![1, 2, 3]), "nothing was ended");
        sessions.remove(SessionId(2));
        assert_eq!(sessions.of_client(Uuid([2; 16])).map(|s| s.id), None);
        assert_eq!(sessions.of_client(Uuid([3; 16])).map(|s| s.id), Some(SessionId(3)));
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
