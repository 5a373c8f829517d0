//! Which of several management services leads: the one whose lease holds the leader's key.
//!
//! A thread keeps the lease alive, looks at leader and head, and takes the leader's key when there is none. A leader that etcd has not
//! answered for `LEADS_MAX` takes itself for none, so that it refuses changes at once; that another process may lead is decided by etcd alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Keys;
use super::gateway::{Failed, b64, bytes_of, number_of};
use crate::Standing;

/// The lease ends this long after the last sign of life.
pub const LEASE_SEC: i64 = 5;
/// Time between two signs of life.
const ALIVE_EACH: Duration = Duration::from_secs(1);
/// Time between two looks at leader and head.
const LOOK_EACH: Duration = Duration::from_millis(500);
/// A leader without an answer for so long refuses changes: shorter than the lease.
const LEADS_MAX: Duration = Duration::from_secs(4);

/// This process among the management services. Dropping it gives the lease back.
pub struct Lead {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    place: Mutex<Place>,
    ends: Mutex<bool>,
    ended: Condvar,
    /// The outcome of a change is not known (mapstore-E3).
    is_doubtful: AtomicBool,
}

#[derive(Clone, Debug, Default)]
struct Place {
    /// The revision at which this process's leader key was made; 0: it has none.
    term: i64,
    /// When etcd last answered with this process as the leader; the time of the asking.
    heard: Option<Instant>,
    /// The leader's name, when it is another process.
    leader: String,
    /// The reason that etcd's last answer was none; empty: it was one.
    why: String,
    /// The revision that put the head.
    head: i64,
}

impl Lead {
    pub fn start(keys: Arc<Keys>, name: &str, tell: impl Fn() + Send + 'static) -> std::io::Result<Lead> {
        let place = Place { why: "etcd has not answered yet".into(), ..Place::default() };
        let shared = Arc::new(Shared {
            place: Mutex::new(place),
            ends: Mutex::new(false),
            ended: Condvar::new(),
            is_doubtful: AtomicBool::new(false),
        });
        let mut term = Term { keys, name: name.to_owned(), lease: 0, alive: None };
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name("map-lead".into()).spawn(move || {
            let mut before = (of_thread.standing(), 0);
            loop {
                // A change that fails during this look leaves its doubt to the next one.
                let was_doubtful = of_thread.is_doubtful.swap(false, Ordering::AcqRel);
                let next = term.look(of_thread.place());
                let failed = !next.why.is_empty();
                *of_thread.place.lock().unwrap_or_else(PoisonError::into_inner) = next;
                if failed && was_doubtful {
                    of_thread.is_doubtful.store(true, Ordering::Release);
                }
                let now = (of_thread.standing(), of_thread.place().head);
                if now != before {
                    tell();
                    before = now;
                }
                if of_thread.waits_for_end(LOOK_EACH) {
                    return term.give_back();
                }
            }
        })?;
        Ok(Lead { shared, thread: Some(thread) })
    }

    pub fn standing(&self) -> Standing {
        self.shared.standing()
    }

    pub fn doubt(&self) {
        self.shared.is_doubtful.store(true, Ordering::Release);
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        *self.shared.ends.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.ended.notify_all();
        // The thread itself may drop the last handle of the service that it told.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn place(&self) -> Place {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn standing(&self) -> Standing {
        let is_doubtful = self.is_doubtful.load(Ordering::Acquire);
        self.place().standing(Instant::now(), is_doubtful)
    }

    fn waits_for_end(&self, most: Duration) -> bool {
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.ended.wait_timeout_while(ends, most, |ends| !*ends);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Place {
    fn standing(&self, now: Instant, is_doubtful: bool) -> Standing {
        let is_heard = self.heard.is_some_and(|at| now.saturating_duration_since(at) < LEADS_MAX);
        match self.term {
            term if term != 0 && is_heard && !is_doubtful => Standing::Leads { term },
            _ if !self.why.is_empty() => Standing::NoQuorum { why: self.why.clone() },
            0 if !self.leader.is_empty() => Standing::Follows { leader: self.leader.clone() },
            _ if is_doubtful => {
                Standing::NoQuorum { why: "etcd has not told the outcome of a change yet".into() }
            }
            0 => Standing::NoLeader,
            _ => Standing::NoQuorum { why: "etcd has not answered for seconds".into() },
        }
    }
}

/// The lease, as the thread has it.
struct Term {
    keys: Arc<Keys>,
    name: String,
    /// 0: none.
    lease: i64,
    /// When the last sign of life was sent.
    alive: Option<Instant>,
}

impl Term {
    /// One look: the lease, then leader and head, then the leader's key if there is none.
    fn look(&mut self, before: Place) -> Place {
        let asked = Instant::now();
        match self.try_look(asked, &before) {
            Ok(place) => place,
            Err(why) => Place { why, ..before },
        }
    }

    fn try_look(&mut self, asked: Instant, before: &Place) -> Result<Place, String> {
        self.stay_alive(asked)?;
        let (leader_key, head_key) = (self.keys.leader_key(), self.keys.head_key());
        let range = |key: &str| json!({ "request_range": { "key": b64(key.as_bytes()) } });
        // 1. Leader and head, at one revision.
        let both = json!({ "success": [range(&leader_key), range(&head_key)] });
        let answer = self.keys.gateway.read("/v3/kv/txn", &both).map_err(|e| e.why())?;
        let kv = |n: usize| answer.get("responses")?.get(n)?.get("response_range")?.get("kvs")?.get(0);
        let head = kv(1).and_then(|kv| number_of(kv, "mod_revision")).unwrap_or(0);
        let mut place = Place { head, heard: before.heard, ..Place::default() };
        match kv(0) {
            // 2. This process leads. Also when an earlier taking had no answer.
            Some(leader) if self.lease != 0 && number_of(leader, "lease") == Some(self.lease) => {
                place.term = number_of(leader, "create_revision").unwrap_or(0);
                place.heard = Some(asked);
            }
            Some(leader) => {
                let name = bytes_of(leader, "value").unwrap_or_default();
                place.leader = String::from_utf8_lossy(&name).into_owned();
            }
            // 3. None leads: take the key, bound to the lease.
            None => {
                if let Some(term) = self.take(&leader_key)? {
                    (place.term, place.heard) = (term, Some(asked));
                }
            }
        }
        Ok(place)
    }

    fn take(&self, leader_key: &str) -> Result<Option<i64>, String> {
        let key = b64(leader_key.as_bytes());
        let body = json!({
            "compare": [{ "key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0" }],
            "success": [{ "request_put": {
                "key": key, "value": b64(self.name.as_bytes()), "lease": self.lease.to_string(),
            } }],
        });
        let answer = self.keys.gateway.change("/v3/kv/txn", &body).map_err(|e| e.why())?;
        let is_taken = answer.get("succeeded") == Some(&Value::Bool(true));
        Ok(answer.get("header").filter(|_| is_taken).and_then(|header| number_of(header, "revision")))
    }

    fn stay_alive(&mut self, now: Instant) -> Result<(), String> {
        if self.lease != 0 {
            if self.alive.is_some_and(|at| now.saturating_duration_since(at) < ALIVE_EACH) {
                return Ok(());
            }
            let body = json!({ "ID": self.lease.to_string() });
            let answer = self.keys.gateway.change("/v3/lease/keepalive", &body).map_err(|e| e.why())?;
            let left = answer.get("result").and_then(|result| number_of(result, "TTL"));
            self.alive = Some(now);
            if left.is_some_and(|sec| sec > 0) {
                return Ok(());
            }
            // It ran out: etcd has deleted the leader's key with it.
            self.lease = 0;
        }
        let body = json!({ "TTL": LEASE_SEC.to_string() });
        let answer = self.keys.gateway.change("/v3/lease/grant", &body).map_err(|e| e.why())?;
        self.lease = number_of(&answer, "ID").filter(|id| *id != 0).ok_or("etcd granted no lease")?;
        self.alive = Some(now);
        Ok(())
    }

    /// A planned stop: the next leader need not wait for the lease.
    fn give_back(&self) {
        if self.lease == 0 {
            return;
        }
        let body = json!({ "ID": self.lease.to_string() });
        if let Err(e) = self.keys.gateway.change("/v3/lease/revoke", &body) {
            let failed: Failed = e;
            tracing::debug!("the lease in etcd was not given back: {}", failed.why());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_that_etcd_does_not_answer_refuses_changes_before_its_lease_ends() {
        let begun = Instant::now();
        let leads = Place { term: 9, heard: Some(begun), ..Place::default() };
        assert_eq!(leads.standing(begun, false), Standing::Leads { term: 9 });
        assert!(matches!(leads.standing(begun, true), Standing::NoQuorum { .. }), "mapstore-E3");
        let late = begun + LEADS_MAX;
        assert!(late < begun + Duration::from_secs(LEASE_SEC as u64));
        assert!(matches!(leads.standing(late, false), Standing::NoQuorum { .. }));
        let silent = Place { why: "no quorum".into(), ..leads.clone() };
        assert_eq!(silent.standing(begun, false), Standing::Leads { term: 9 }, "one lost answer is no loss");
        assert_eq!(silent.standing(late, false), Standing::NoQuorum { why: "no quorum".into() });
        let follows = Place { leader: "10.0.0.6:7010@tcp0".into(), ..Place::default() };
        assert_eq!(follows.standing(begun, false), Standing::Follows { leader: "10.0.0.6:7010@tcp0".into() });
        assert_eq!(Place::default().standing(begun, false), Standing::NoLeader);
    }
}
