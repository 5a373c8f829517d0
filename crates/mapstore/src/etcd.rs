//! The map in etcd, so that several management services share it and one of them leads.
//!
//! The map is written in *parts* below etcd's request limit; a *head* names them. A change writes its parts under a name of their own, and one
//! transaction then puts the head and deletes all other parts, if head and leader are as they were. A change that was cut short leaves parts
//! that no head names; the next change deletes them. Keys and values: `docs/formats/map.md`.
//!
//! mapstore-E1: only the transaction that puts a head changes the map. It compares the head's revision and, in a management service, the
//!     revision at which the leader's key was made. So no clock has a say about the right to change the map.
//! mapstore-E2: a head and its parts are read at one revision. Missing, cut or changed parts are an error.
//! mapstore-E3: a store that does not know the outcome of a change does not lead until etcd has answered a read that came later.

mod gateway;
mod head;
mod lead;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use types::crc::crc32c;
use wire::map::ClusterMap;

pub use gateway::Reach;
use gateway::{Failed, Gateway, b64, bytes_of, number_of};
use head::Head;
use lead::Lead;

use crate::file::check_versions;
use crate::form::{FORM_VERSION, Unreadable, decode, encode};
use crate::{MapStore, Standing, StoreError};

/// Largest value: a third of etcd's request limit of 1.5 MiB, since the request has other fields, and JSON a third more.
const PART_BYTES_MAX: usize = 512 << 10;
/// Largest number of parts: twice the largest map that a frame can carry.
const PARTS_MAX: usize = 16;
/// Loads that meet a compaction, before the store gives up. Each one needs that many changes to pass it.
const LOADS_MAX: u32 = 8;
/// Changes and bytes after which old revisions are dropped. etcd's default quota is 2 GiB.
const CHANGES_KEPT: u32 = 64;
const BYTES_KEPT: usize = 16 << 20;

/// A user of the map in etcd.
pub struct EtcdStore {
    keys: Arc<Keys>,
    /// Changes go one after the other.
    written: Mutex<Written>,
    lead: Mutex<Option<Lead>>,
    /// Of a management service: it changes the map only as the leader. A tool changes the map of a cluster that no service serves.
    is_service: bool,
    news: Arc<News>,
}

/// Called when another process has changed the map, or leads.
#[derive(Default)]
struct News(Mutex<Option<Arc<dyn Fn() + Send + Sync>>>);

impl News {
    fn tell(&self) {
        // Without the lock: the hearer may drop the store.
        let hear = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        hear.iter().for_each(|hear| hear());
    }
}

/// Changes and bytes since the last compaction.
struct Written {
    changes: u32,
    bytes: usize,
}

/// The keys of one map.
struct Keys {
    gateway: Gateway,
    prefix: String,
}

/// A head in etcd.
struct Stored {
    head: Head,
    /// The revision that put it.
    mod_revision: i64,
    /// A revision at which its parts are there.
    revision: i64,
}

impl EtcdStore {
    /// The store at `reach`. Nothing is asked of etcd yet.
    pub fn at(reach: &Reach) -> Result<EtcdStore, StoreError> {
        EtcdStore::of(reach, false)
    }

    /// The store of a management service, which changes nothing before it leads.
    pub fn service(reach: &Reach) -> Result<EtcdStore, StoreError> {
        EtcdStore::of(reach, true)
    }

    fn of(reach: &Reach, is_service: bool) -> Result<EtcdStore, StoreError> {
        let prefix = reach.prefix.trim_end_matches('/').to_owned();
        let gateway = Gateway::new(reach).map_err(|why| StoreError::EtcdConfig { why })?;
        // The first change compacts: earlier processes may have ended before they did.
        let written = Mutex::new(Written { changes: CHANGES_KEPT, bytes: 0 });
        let keys = Arc::new(Keys { gateway, prefix });
        Ok(EtcdStore { keys, written, lead: Mutex::new(None), is_service, news: Arc::default() })
    }

    /// Stores `map` where none is; refused where one is.
    pub fn create(&self, map: &ClusterMap) -> Result<(), StoreError> {
        match self.keys.put(map, 0, None) {
            Ok(_) => Ok(()),
            Err(Lost::Failed(e)) => Err(e),
            // It may be this very call's, if etcd answered late: then the caller uses it by the next start.
            Err(Lost::Race) => {
                let version = self.keys.head("reading")?.head.version;
                Err(StoreError::EtcdTaken { prefix: self.keys.prefix.clone(), version })
            }
        }
    }

    /// Begins to lead, or to wait for that, as `name`: the NIDs by which others reach this process.
    pub fn lead(&self, name: &str) -> std::io::Result<()> {
        let news = self.news.clone();
        let lead = Lead::start(self.keys.clone(), name, move || news.tell())?;
        *self.lead_state() = Some(lead);
        Ok(())
    }

    /// Ceases to lead in good order, so that another one need not wait for the lease.
    pub fn stop(&self) {
        // Without the lock, which the thread may wait for.
        let lead = self.lead_state().take();
        drop(lead);
    }

    /// The members of etcd and the prefix, for messages.
    pub fn describe(&self) -> String {
        format!("etcd at {} below {}", self.keys.gateway.describe(), self.keys.prefix)
    }

    fn lead_state(&self) -> std::sync::MutexGuard<'_, Option<Lead>> {
        self.lead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The leader's revision that a change compares. An error: this process does not lead.
    fn term(&self) -> Result<Option<i64>, StoreError> {
        match self.standing() {
            Standing::Leads { term } => Ok(self.is_service.then_some(term)),
            other => Err(StoreError::NotLeading { why: other.why() }),
        }
    }

    fn compact(&self, written: &mut Written, revision: i64, bytes: usize) {
        (written.changes, written.bytes) = (written.changes + 1, written.bytes + bytes);
        if written.changes < CHANGES_KEPT && written.bytes < BYTES_KEPT {
            return;
        }
        *written = Written { changes: 0, bytes: 0 };
        let body = json!({ "revision": revision.to_string() });
        match self.keys.gateway.change("/v3/kv/compaction", &body) {
            // The compaction of another user may have gone further.
            Ok(_) | Err(Failed::Compacted) => {}
            Err(e) => tracing::debug!("old revisions in etcd were not dropped: {}", e.why()),
        }
    }
}

impl MapStore for EtcdStore {
    fn load(&self) -> Result<ClusterMap, StoreError> {
        self.keys.load()
    }

    fn compare_and_swap(&self, expected: u64, next: &ClusterMap) -> Result<(), StoreError> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        // 1. Only a leader changes the map.
        let term = self.term()?;
        // 2. The versions, by the head of now.
        let stored = self.keys.head("changing").inspect_err(|_| self.doubt())?;
        check_versions(stored.head.version, expected, next.version)?;
        // 3. Parts, and the head by compare-and-swap.
        match self.keys.put(next, stored.mod_revision, term) {
            Ok((revision, bytes)) => {
                self.compact(&mut written, revision, bytes);
                Ok(())
            }
            Err(Lost::Failed(e)) => {
                self.doubt();
                Err(e)
            }
            // 4. Another process was faster, or leads.
            Err(Lost::Race) => {
                let found = self.keys.head("changing").inspect_err(|_| self.doubt())?.head.version;
                match found == expected {
                    true => {
                        self.doubt();
                        Err(StoreError::NotLeading { why: "another process has begun to lead".into() })
                    }
                    false => Err(StoreError::Conflict { expected, found }),
                }
            }
        }
    }

    fn standing(&self) -> Standing {
        match &*self.lead_state() {
            Some(lead) => lead.standing(),
            None if self.is_service => Standing::NoLeader,
            None => Standing::Leads { term: 0 },
        }
    }

    fn confirm(&self, version: u64) -> Result<(), StoreError> {
        let term = self.term()?;
        let found = self.keys.head_and_leader("reading").inspect_err(|_| self.doubt())?;
        let lost = |why: &str| {
            self.doubt();
            StoreError::NotLeading { why: why.into() }
        };
        match found {
            (_, leader) if term.is_some_and(|term| term != leader) => {
                Err(lost("another process has begun to lead; ask it"))
            }
            (stored, _) if stored.head.version != version => {
                Err(StoreError::Conflict { expected: version, found: stored.head.version })
            }
            _ => Ok(()),
        }
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn on_news(&self, hear: Box<dyn Fn() + Send + Sync>) {
        *self.news.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(hear.into());
    }
}

impl EtcdStore {
    /// mapstore-E3.
    fn doubt(&self) {
        self.lead_state().iter().for_each(Lead::doubt);
    }
}

/// The reason that a head was not put.
enum Lost {
    /// Definite: head or leader are others.
    Race,
    Failed(StoreError),
}

fn away(doing: &'static str) -> impl Fn(Failed) -> StoreError {
    move |failed| StoreError::EtcdAway { doing, why: failed.why() }
}

impl Keys {
    fn head_key(&self) -> String {
        format!("{}/head", self.prefix)
    }

    fn leader_key(&self) -> String {
        format!("{}/leader", self.prefix)
    }

    /// Parts of all maps, in the order of versions.
    fn part_key(&self, rest: &str) -> String {
        format!("{}/map/{rest}", self.prefix)
    }

    fn damaged(&self, why: impl Into<String>) -> StoreError {
        StoreError::EtcdDamaged { prefix: self.prefix.clone(), why: why.into() }
    }

    /// The head of now.
    fn head(&self, doing: &'static str) -> Result<Stored, StoreError> {
        Ok(self.head_and_leader(doing)?.0)
    }

    /// The head of now, and the revision at which the leader's key was made; 0: there is none.
    fn head_and_leader(&self, doing: &'static str) -> Result<(Stored, i64), StoreError> {
        let [head, leader] = [self.head_key(), self.leader_key()]
            .map(|key| json!({ "request_range": { "key": b64(key.as_bytes()) } }));
        let asked = json!({ "success": [head, leader] });
        let answer = self.gateway.read("/v3/kv/txn", &asked).map_err(away(doing))?;
        let odd = || self.damaged("an answer of etcd has another form");
        let revision = answer.get("header").and_then(|h| number_of(h, "revision")).ok_or_else(odd)?;
        let kv = |n: usize| answer.get("responses")?.get(n)?.get("response_range")?.get("kvs")?.get(0);
        let leader = kv(1).map_or(Some(0), |kv| number_of(kv, "create_revision")).ok_or_else(odd)?;
        // mapstore-I2: no head is no empty map.
        let head = kv(0).ok_or_else(|| StoreError::EtcdAbsent { prefix: self.prefix.clone() })?;
        let (value, mod_revision) =
            bytes_of(head, "value").zip(number_of(head, "mod_revision")).ok_or_else(odd)?;
        let head = Head::parse(&value).map_err(|why| self.damaged(why))?;
        if head.parts > PARTS_MAX {
            return Err(self.damaged(format!("the head names {} parts", head.parts)));
        }
        Ok((Stored { head, mod_revision, revision }, leader))
    }

    fn load(&self) -> Result<ClusterMap, StoreError> {
        for _ in 0..LOADS_MAX {
            let stored = self.head("loading")?;
            match self.read_parts(&stored) {
                Ok(bytes) => return self.decoded(&stored.head, &bytes?),
                // Changes have passed this load; a newer head names other parts.
                Err(Failed::Compacted) => {}
                Err(e) => return Err(away("loading")(e)),
            }
        }
        let why = "it was changed and compacted at each of several tries".to_owned();
        Err(StoreError::EtcdAway { doing: "loading", why })
    }

    /// mapstore-E2.
    fn read_parts(&self, stored: &Stored) -> Result<Result<Vec<u8>, StoreError>, Failed> {
        let mut bytes = Vec::with_capacity(stored.head.bytes.min(PARTS_MAX * PART_BYTES_MAX));
        for part in 0..stored.head.parts {
            let key = self.part_key(&format!("{}/{part:04}", stored.head.stamp()));
            let asked = json!({ "key": b64(key.as_bytes()), "revision": stored.revision.to_string() });
            let answer = self.gateway.read("/v3/kv/range", &asked)?;
            let value = answer.get("kvs").and_then(|kvs| kvs.get(0)).and_then(|kv| bytes_of(kv, "value"));
            match value {
                Some(value) => bytes.extend(value),
                None => return Ok(Err(self.damaged(format!("{key} is missing or unreadable")))),
            }
        }
        Ok(Ok(bytes))
    }

    fn decoded(&self, head: &Head, bytes: &[u8]) -> Result<ClusterMap, StoreError> {
        if bytes.len() != head.bytes || crc32c(bytes) != head.crc {
            return Err(self.damaged("its parts are not those that the head names"));
        }
        let map = decode(bytes).map_err(|unreadable| match unreadable {
            Unreadable::Damaged(what) => self.damaged(what.to_string()),
            Unreadable::OtherForm(form) => {
                StoreError::OtherForm { path: self.prefix.clone().into(), form, known: FORM_VERSION }
            }
        })?;
        match map.version == head.version {
            true => Ok(map),
            false => Err(self.damaged("the version of the map is not the head's")),
        }
    }

    /// Puts `map` if the head was last put at `mod_revision` (0: there is none) and, with a term, if the leader's key is of that revision.
    /// Returns the revision and the number of bytes.
    fn put(&self, map: &ClusterMap, mod_revision: i64, term: Option<i64>) -> Result<(i64, usize), Lost> {
        let bytes = encode(map);
        let nonce = head::nonce().map_err(|e| {
            Lost::Failed(StoreError::Io { doing: "reading", path: "/dev/urandom".into(), source: e })
        })?;
        let parts: Vec<&[u8]> = bytes.chunks(PART_BYTES_MAX).collect();
        let (version, crc) = (map.version, crc32c(&bytes));
        let head = Head { version, parts: parts.len(), bytes: bytes.len(), crc, nonce };
        if parts.len() > PARTS_MAX {
            let why = format!("the map has {} bytes, more than its largest size", bytes.len());
            return Err(Lost::Failed(StoreError::EtcdAway { doing: "changing", why }));
        }
        // 1. All parts but the last. No head names them yet.
        let stamp = head.stamp();
        let part = |n: usize| {
            let key = self.part_key(&format!("{stamp}/{n:04}"));
            json!({ "key": b64(key.as_bytes()), "value": b64(parts[n]) })
        };
        for n in 0..parts.len() - 1 {
            self.gateway.change("/v3/kv/put", &part(n)).map_err(|e| Lost::Failed(away("changing")(e)))?;
        }
        // 2. The last part and the head; the parts of other maps and of changes that were cut short go.
        let body = self.head_txn(&head, part(parts.len() - 1), mod_revision, term);
        let answer = self.gateway.change("/v3/kv/txn", &body).map_err(|e| {
            Lost::Failed(match e {
                Failed::Unsent(why) => StoreError::EtcdAway { doing: "changing", why },
                other => StoreError::EtcdUnknown { doing: "changing", why: other.why() },
            })
        })?;
        let revision = answer.get("header").and_then(|h| number_of(h, "revision"));
        match (answer.get("succeeded") == Some(&Value::Bool(true)), revision) {
            (true, Some(revision)) => Ok((revision, bytes.len())),
            (false, Some(_)) => Err(Lost::Race),
            (_, None) => {
                let why = "etcd's answer has another form".to_owned();
                Err(Lost::Failed(StoreError::EtcdUnknown { doing: "changing", why }))
            }
        }
    }

    /// mapstore-E1.
    fn head_txn(&self, head: &Head, last_part: Value, mod_revision: i64, term: Option<i64>) -> Value {
        let equal = |key: String, target: &str, field: &str, revision: i64| json!({ "key": b64(key.as_bytes()), "target": target, "result": "EQUAL", field: revision.to_string() });
        let mut compare = vec![equal(self.head_key(), "MOD", "mod_revision", mod_revision)];
        compare.extend(term.map(|term| equal(self.leader_key(), "CREATE", "create_revision", term)));
        let delete = |from: String, to: String| json!({ "request_delete_range": { "key": b64(from.as_bytes()), "range_end": b64(to.as_bytes()) } });
        let stamp = head.stamp();
        // '0' follows '/', so these two ranges hold all parts up to this version, without this map's own.
        let above = head::version_text(head.version.saturating_add(1));
        json!({
            "compare": compare,
            "success": [
                { "request_put": last_part },
                { "request_put": { "key": b64(self.head_key().as_bytes()), "value": b64(head.text().as_bytes()) } },
                delete(self.part_key(""), self.part_key(&format!("{stamp}/"))),
                delete(self.part_key(&format!("{stamp}0")), self.part_key(&above)),
            ],
        })
    }
}

#[cfg(test)]
mod tests;
