//! The NIDs of a node, and which of them work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::SockAddr;

/// The pause after the first failed connect, and the longest one.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Rails {
    all: Vec<Rail>,
    /// Of the last rail that was added or renewed.
    generation: u64,
}

struct Rail {
    nid: Arc<str>,
    /// The address that answered last. It saves the look-up of a name.
    address: Option<SockAddr>,
    trouble: Option<Trouble>,
    generation: u64,
}

/// The failure of the last connect.
pub(super) struct Trouble {
    failures: u32,
    why: String,
    retry_at: Instant,
    /// A thread is connecting again right now.
    is_trying: bool,
}

impl Rails {
    pub fn new(nids: &[String]) -> Rails {
        let mut rails = Rails::default();
        rails.set(nids);
        rails
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Sets the NIDs. False: they are the same.
    pub fn set(&mut self, nids: &[String]) -> bool {
        if self.all.iter().map(|rail| &*rail.nid).eq(nids.iter().map(String::as_str)) {
            return false;
        }
        let mut before = std::mem::take(&mut self.all);
        for nid in nids {
            let known = before.iter().position(|rail| *rail.nid == **nid).map(|i| before.swap_remove(i));
            self.generation += 1;
            let (nid, generation) = (Arc::from(nid.as_str()), self.generation);
            self.all.push(known.unwrap_or(Rail { nid, address: None, trouble: None, generation }));
        }
        true
    }

    /// A connect that began before is not kept, and troubles are forgotten.
    pub fn forget(&mut self) {
        for i in 0..self.all.len() {
            self.all[i].trouble = None;
            self.renew(&self.all[i].nid.clone());
        }
    }

    /// A connect to this rail that began before is not kept.
    pub fn renew(&mut self, nid: &str) {
        self.generation += 1;
        let generation = self.generation;
        self.of(nid).into_iter().for_each(|rail| rail.generation = generation);
    }

    /// 0: the node has no such NID.
    pub fn generation(&self, nid: &str) -> u64 {
        self.get(nid).map_or(0, |rail| rail.generation)
    }

    pub fn address(&self, nid: &str) -> Option<SockAddr> {
        self.get(nid)?.address.clone()
    }
    pub fn set_address(&mut self, nid: &str, address: Option<SockAddr>) {
        self.of(nid).into_iter().for_each(|rail| rail.address = address.clone());
    }

    /// A rail's part of the lanes: at least one.
    pub fn share(&self, lanes: usize) -> usize {
        lanes.div_ceil(self.all.len().max(1))
    }

    /// The rails without trouble.
    pub fn working(&self) -> impl Iterator<Item = &Arc<str>> {
        self.all.iter().filter(|rail| rail.trouble.is_none()).map(|rail| &rail.nid)
    }

    /// A rail in trouble whose pause is over. It is marked as tried.
    pub fn due(&mut self, now: Instant) -> Option<Arc<str>> {
        let is_due = |t: &Trouble| !t.is_trying && now >= t.retry_at;
        let rail = self.all.iter_mut().find(|rail| rail.trouble.as_ref().is_some_and(is_due))?;
        if let Some(trouble) = &mut rail.trouble {
            trouble.is_trying = true;
        }
        Some(rail.nid.clone())
    }

    /// net-N1: after a failure, one attempt at a time, and none before its pause is over. The error has the reason of each rail.
    pub fn attempt(&mut self, now: Instant) -> Result<Arc<str>, String> {
        if let Some(nid) = self.due(now) {
            return Ok(nid);
        }
        let told = |rail: &Rail| {
            let trouble = rail.trouble.as_ref()?;
            let left = trouble.retry_at.saturating_duration_since(now).as_millis() + 1;
            Some(match trouble.is_trying {
                true => format!("{}: {} (being tried again)", rail.nid, trouble.why),
                false => format!("{}: {} (next attempt in {left} ms)", rail.nid, trouble.why),
            })
        };
        let whys: Vec<String> = self.all.iter().filter_map(told).collect();
        Err(if whys.is_empty() { "the node has no address".into() } else { whys.join("; ") })
    }

    /// All rails: those without trouble first.
    pub fn best_first(&self) -> Vec<Arc<str>> {
        let mut all: Vec<&Rail> = self.all.iter().collect();
        all.sort_by_key(|rail| rail.trouble.is_some());
        all.into_iter().map(|rail| rail.nid.clone()).collect()
    }

    /// The outcome of an attempt is not kept: it may be made again at once.
    pub fn give_back(&mut self, nid: &str) {
        if let Some(trouble) = self.of(nid).and_then(|rail| rail.trouble.as_mut()) {
            trouble.is_trying = false;
        }
    }

    pub fn work(&mut self, nid: &str) {
        self.of(nid).into_iter().for_each(|rail| rail.trouble = None);
    }

    pub fn fail(&mut self, nid: &str, why: &str, now: Instant) {
        let Some(rail) = self.of(nid) else { return };
        let failures = rail.trouble.as_ref().map_or(0, |t| t.failures).saturating_add(1);
        let pause = PAUSE_MIN.saturating_mul(1 << (failures - 1).min(10)).min(PAUSE_MAX);
        let retry_at = now + pause.mul_f64(jitter());
        rail.trouble = Some(Trouble { failures, why: why.to_string(), retry_at, is_trying: false });
    }

    fn get(&self, nid: &str) -> Option<&Rail> {
        self.all.iter().find(|rail| *rail.nid == *nid)
    }
    fn of(&mut self, nid: &str) -> Option<&mut Rail> {
        self.all.iter_mut().find(|rail| *rail.nid == *nid)
    }
}

/// A factor from 0.5 to 1, drawn anew each time, so that the clients of a restarted server do not all come at once.
fn jitter() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(Instant::now());
    0.5 + (random % 1024) as f64 / 2048.0
}
