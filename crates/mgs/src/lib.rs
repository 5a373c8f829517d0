//! The management service: keeps the cluster map, registers targets, watches heartbeats. It is target 0 of its process.
//!
//! The rules are in `mgmt`, the storage in `mapstore`; this crate waits, applies, stores and answers. It has no thread of its own: each
//! request updates the states. It is never needed for I/O: while it is down the map does not change.
//!
//! mgs-M1: a change is stored before it is answered.
//! mgs-M2: secrets go to certificates of servers and administrators only. Without TLS a peer that claims to be a server is believed.
//! mgs-M3: a revocation list counts at the management service itself before the map with it is stored. From then on each request by a revoked
//!     certificate is refused, also one that came before and waited; its connection is closed a little later.
//! mgs-M4: the members of a mirror change by a member's request, an admission or a removal. Heartbeats, silence, a server that leaves and a
//!     known member that registers again change none of them.
//! mgs-M5: of several management services one leads, and only it changes the map. Its answer about a mirror's members is by the map of now. The
//!     others refuse with `NotReady`, and answer for the map with the newest one that they could load, never an older one than the asker has.
//! mgs-M6: a management service that begins to lead counts nothing as silence that it did not hear itself.

mod members;
mod random;
mod state;

use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use mapstore::{EtcdStore, FileStore, MapStore, Standing, StoreError};
use net::{Answer, Line, Service};
use parking_lot::{Mutex, MutexGuard};
use pki::{Refused, Role, Trust};
use types::{Code, Fault, Seq, TargetId, Uuid};
use wire::map::ClusterMap;
use wire::mgmt::{
    ChangeNodemaps, ChangeNodemapsReply, ChangeParams, ChangeRoutes, ChangeRoutesReply, CreateFs, GetMap,
    GetMapReply, Heartbeat, HeartbeatReply, MgsStat, MgsStatReply, PlanRemoval, PublishCrl, Register, Remove,
    SetDraining,
};
use wire::notice::{NewMap, WatchMap, WatchMapReply};
use wire::object::Mac;
use wire::pair::AskMembers;
use wire::session::{Flush, KeepAlive, KeepAliveReply, TargetStat, TargetStatReply};
use wire::{Empty, Header, Malformed, ReplyHead, Request, Wire, encode_reply};

use state::State;

/// The target id of the MGS in every hub.
pub const MGS: TargetId = TargetId(0);

/// Lines of processes that watch the map.
struct Watchers {
    lines: Vec<Line>,
    /// Closed lines are dropped when there are so many, so that each costs little.
    prune_at: usize,
}

/// Gives a map's revocation lists to the process.
type TakeLists = Box<dyn Fn(&ClusterMap) + Send + Sync>;

/// A running management service; add it to a `net::Hub` as `MGS`.
pub struct Mgs {
    state: Mutex<State>,
    /// Processes that are told of a newer map.
    watchers: Mutex<Watchers>,
    /// Its certificates.
    trust: OnceLock<Arc<Trust>>,
    /// Has everything done that follows from the lists of a map.
    take_lists: OnceLock<TakeLists>,
    /// Time zero of its clock.
    begun: Instant,
}

impl Mgs {
    /// Opens or makes the map in the directory `path`. Refused while another process has it open, and if the map is damaged.
    pub fn open(path: &Path) -> Result<Arc<Mgs>, Fault> {
        let store = FileStore::open(path).map_err(fault)?;
        if let Some(warning) = store.take_warning() {
            tracing::error!(
                "the cluster map was damaged, and its second copy is used: {warning}; look at the disk that holds it"
            );
        }
        Mgs::over(Box::new(store))
    }

    /// True if the directory `path` has a map. A map that was only opened before counts too, though it is empty.
    pub fn is_in(path: &Path) -> bool {
        FileStore::is_in(path)
    }

    /// Starts the service over any store.
    pub fn over(store: Box<dyn MapStore>) -> Result<Arc<Mgs>, Fault> {
        let state = State::load(store, 0)?;
        Ok(Arc::new(Mgs {
            state: Mutex::new(state),
            watchers: Mutex::new(Watchers { lines: vec![], prune_at: 64 }),
            trust: OnceLock::new(),
            take_lists: OnceLock::new(),
            begun: Instant::now(),
        }))
    }

    /// Starts the service over the map in etcd, which others may use too. `begin_to_lead` of the store comes later.
    pub fn over_etcd(store: Arc<EtcdStore>) -> Result<Arc<Mgs>, Fault> {
        let mgs = Mgs::over(Box::new(store.clone()))?;
        let heard: Weak<Mgs> = Arc::downgrade(&mgs);
        store.on_news(Box::new(move || heard.upgrade().iter().for_each(|mgs| mgs.look())));
        Ok(mgs)
    }

    /// Another process has changed the map, or this one begins or ceases to lead.
    fn look(&self) {
        let mut state = self.state.lock();
        let before = state.map().version;
        if let Err(e) = state.look(self.now_ms()) {
            tracing::debug!("the newest cluster map was not loaded: {e}");
        }
        self.after(state, before);
    }

    /// Another map was loaded: lists are taken, and watchers are told.
    fn after(&self, mut state: MutexGuard<'_, State>, before: u64) {
        if state.take_new_lists() {
            self.take_lists(state.map());
        }
        let version = state.map().version;
        drop(state);
        if version != before {
            self.tell_version(version);
        }
    }

    /// mgs-M3, for lists that another management service stored.
    fn take_lists(&self, map: &ClusterMap) {
        if let Some(Err(bad)) = self.trust.get().map(|trust| trust.set_crl(&map.crls)) {
            tracing::error!(
                "the revocation lists of the cluster map were not taken: {bad}; is the management service the right one?"
            );
        }
        self.take_lists.get().iter().for_each(|take| take(map));
    }

    /// Deletes the map in the directory `path`, to remove a whole cluster. Refused while a process has it open.
    pub fn delete(path: &Path) -> Result<(), Fault> {
        FileStore::delete(path).map_err(fault)
    }

    /// The present map, with secrets.
    pub fn map(&self) -> ClusterMap {
        self.state.lock().map().clone()
    }

    /// The servers are about to stop, all of them: no member is alone from here on.
    pub fn keep_pairs(&self) {
        self.state.lock().keeps_pairs = true;
    }

    /// Lets administrators publish revocation lists, which `trust` verifies, and has `trust` judge by the map's lists (mgs-M3). Called before
    /// the first connection.
    pub fn judge_by(&self, trust: Arc<Trust>) {
        if let Err(bad) = trust.set_crl(&self.state.lock().map().crls) {
            tracing::error!(
                "the revocation lists of the cluster map were not taken: {bad}; is the management service the right one?"
            );
        }
        assert!(self.trust.set(trust).is_ok(), "a process has one set of certificates");
    }

    /// `take` gets the map of now, and the map after each list. The process's `Trust` judges by the list already.
    pub fn on_lists(&self, take: impl Fn(&ClusterMap) + Send + Sync + 'static) {
        let state = self.state.lock();
        take(state.map());
        assert!(self.take_lists.set(Box::new(take)).is_ok(), "lists are taken at one place");
    }

    fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    fn dispatch(&self, head: &Header, body: &[u8], answer: &mut Answer<'_>) -> Result<Vec<u8>, Fault> {
        answer.check_role(head.call)?;
        match head.call {
            WatchMap::CALL => {
                // Notices of maps are not acknowledged: the newest one counts.
                let line = answer.line(Arc::new(|_: &Header, _: &[u8]| {}));
                let no_line = || Fault::new(Code::BadRequest, "this connection has no line for notices");
                let line = line.ok_or_else(no_line)?;
                self.answer::<WatchMap>(answer, body, |state, _, _| {
                    // Before the version is read, so that a later map is told.
                    self.watchers.lock().add(line);
                    Ok(WatchMapReply { version: state.map().version })
                })
            }
            Register::CALL => {
                self.answer::<Register>(answer, body, |state, req, now_ms| state.register(&req, now_ms))
            }
            GetMap::CALL => {
                let may = may_know_secrets(answer);
                self.answer::<GetMap>(answer, body, |state, req, _| {
                    let request = GetMap { server: req.server && may, ..req };
                    // mgs-M5: its map may be behind the leader's.
                    let is_behind = state.map().version < req.known_version && !state.leads();
                    if is_behind { Ok(GetMapReply { map: None }) } else { Ok(get_map(state.map(), &request)) }
                })
            }
            Heartbeat::CALL => self.answer::<Heartbeat>(answer, body, |state, req, now_ms| {
                state.heartbeat(&req, now_ms)?;
                Ok(HeartbeatReply { version: state.map().version })
            }),
            ChangeRoutes::CALL => self.answer::<ChangeRoutes>(answer, body, |state, req, _| {
                state.change_routes(&req)?;
                Ok(ChangeRoutesReply { version: state.map().version })
            }),
            ChangeNodemaps::CALL => self.answer::<ChangeNodemaps>(answer, body, |state, req, _| {
                state.change_nodemaps(&req)?;
                Ok(ChangeNodemapsReply { version: state.map().version })
            }),
            PublishCrl::CALL => self.answer::<PublishCrl>(answer, body, |state, req, _| {
                let reply = state.publish_crl(&req, self.trust.get().map(|trust| &**trust));
                // Also after a failure: the list counts, though it may not be in the map.
                self.take_lists.get().iter().for_each(|take| take(state.map()));
                reply
            }),
            AskMembers::CALL => {
                self.answer::<AskMembers>(answer, body, |state, req, now_ms| state.ask_members(&req, now_ms))
            }
            CreateFs::CALL => self.answer::<CreateFs>(answer, body, |state, req, _| state.create_fs(&req)),
            SetDraining::CALL => {
                self.answer::<SetDraining>(answer, body, |state, req, _| state.set_draining(&req))
            }
            ChangeParams::CALL => {
                self.answer::<ChangeParams>(answer, body, |state, req, _| state.change_params(&req))
            }
            PlanRemoval::CALL => self
                .answer::<PlanRemoval>(answer, body, |state, req, now_ms| state.plan_removal(&req, now_ms)),
            Remove::CALL => {
                self.answer::<Remove>(answer, body, |state, req, now_ms| state.remove(&req, now_ms))
            }
            MgsStat::CALL => self.answer::<MgsStat>(answer, body, |state, _, _| Ok(mgs_stat(state))),
            // Every answered change is durable already, and there are no sessions to end.
            Flush::CALL => self.answer::<Flush>(answer, body, |_, _, _| Ok(Empty {})),
            KeepAlive::CALL => self.answer::<KeepAlive>(answer, body, |_, _, _| {
                Ok(KeepAliveReply { mode: 0, outbox: 0, notices: 0, ticket: Mac::default() })
            }),
            TargetStat::CALL => self.answer::<TargetStat>(answer, body, |state, _, _| Ok(stat(state.map()))),
            other => {
                let why = format!("the management service does not know call {other:#06x}");
                Err(Fault::new(Code::Unsupported, why))
            }
        }
    }

    /// Decodes, refuses revoked certificates, refuses changes if another one leads, updates the states of silent targets, applies, which stores, and
    /// encodes the reply.
    fn answer<R: Request>(
        &self,
        from: &Answer<'_>,
        body: &[u8],
        apply: impl FnOnce(&mut State, R, u64) -> Result<R::Reply, Fault>,
    ) -> Result<Vec<u8>, Fault> {
        let request = R::from_bytes(body).map_err(|Malformed(what)| {
            Fault::new(Code::BadRequest, format!("a request with a malformed {what}"))
        })?;
        let mut state = self.state.lock();
        // With the lock: this request may have waited for the one that brought the list.
        self.refuse_revoked(from)?;
        let before = state.map().version;
        let now_ms = self.now_ms();
        let ready = state.lead(now_ms).and_then(|()| state.review(now_ms));
        // A map in etcd is told from memory when etcd does not answer, and by those that do not lead.
        let reply = match ready {
            Err(fault) if !(state.is_shared() && only_reads(R::CALL)) => Err(fault),
            _ => apply(&mut state, request, now_ms),
        };
        let version = state.map().version;
        self.after(state, before);
        Ok(encode_reply(&ReplyHead::done(Seq(0), Seq(version)), Some(&reply?)))
    }

    /// mgs-M3.
    fn refuse_revoked(&self, from: &Answer<'_>) -> Result<(), Fault> {
        match (self.trust.get(), from.sender()) {
            (Some(trust), Some(sender)) if trust.is_revoked(sender.serial) => {
                Err(from.refuse(|who| format!("{}: {}", who.uri(), Refused::Revoked)))
            }
            _ => Ok(()),
        }
    }

    fn tell_version(&self, version: u64) {
        let body = NewMap { version }.to_bytes();
        let (call, body_len) = (NewMap::CALL, body.len() as u32);
        let head = Header { call, target: MGS, request: version, body_len, ..Header::default() };
        self.watchers.lock().lines.retain(|line| line.send(&head, &body));
    }
}

impl Watchers {
    fn add(&mut self, line: Line) {
        if self.lines.len() >= self.prune_at {
            self.lines.retain(Line::is_open);
            self.prune_at = 2 * self.lines.len().max(32);
        }
        self.lines.push(line);
    }
}

impl Service for Mgs {
    fn serve(&self, head: &Header, body: &[u8], _bulk: &[u8], answer: &mut Answer<'_>) {
        answer.body = self.dispatch(head, body, answer).unwrap_or_else(|fault| {
            tracing::debug!(call = head.call, "refused: {fault}");
            encode_reply(&ReplyHead::refused(&fault, Seq(0)), None::<&Empty>)
        });
    }
}

/// The file system's key is for servers, and for administrators' commands.
fn may_know_secrets(answer: &Answer<'_>) -> bool {
    answer.sender().is_none_or(|sender| matches!(sender.role, Role::Server | Role::Admin))
}

/// Answers without the map if the client has this version. Version 0 means that it has none, so the map is always sent.
fn get_map(map: &ClusterMap, request: &GetMap) -> GetMapReply {
    if request.known_version != 0 && request.known_version == map.version {
        return GetMapReply { map: None };
    }
    GetMapReply { map: Some(if request.server { map.clone() } else { mgmt::client_view(map) }) }
}

/// Calls that a management service answers which does not lead.
fn only_reads(call: u16) -> bool {
    [GetMap::CALL, WatchMap::CALL, MgsStat::CALL, TargetStat::CALL, KeepAlive::CALL, Flush::CALL]
        .contains(&call)
}

fn mgs_stat(state: &State) -> MgsStatReply {
    let standing = state.standing();
    MgsStatReply {
        store: if state.is_shared() { "etcd" } else { "file" }.into(),
        leads: state.leads(),
        why: standing.why(),
        leader: if let Standing::Follows { leader } = standing { leader } else { String::new() },
        version: state.map().version,
    }
}

/// The MGS has no medium to measure: it reports the number of targets and its map's version.
fn stat(map: &ClusterMap) -> TargetStatReply {
    TargetStatReply {
        target: MGS,
        is_mdt: false,
        index: 0,
        uuid: Uuid::default(),
        bytes_total: 0,
        bytes_free: 0,
        bytes_available: 0,
        files_total: map.targets.len() as u64,
        files_free: 0,
        sessions: 0,
        damage_count: 0,
        log_bytes_used: 0,
        log_bytes_total: 0,
        last_seq: Seq(map.version),
        failure: String::new(),
        superblock_copies: 0,
        late_bytes: 0,
        late_us: 0,
    }
}

/// Turns a store's error into a fault for the wire.
fn fault(e: StoreError) -> Fault {
    let code = match e {
        StoreError::Conflict { .. } | StoreError::InUse { .. } => Code::Busy,
        StoreError::Sequence { .. } => Code::Invalid,
        StoreError::Damaged { .. } => Code::Damaged,
        StoreError::OtherForm { .. } => Code::Unsupported,
        StoreError::Io { .. } => Code::Io,
        StoreError::EtcdAway { .. } | StoreError::NotLeading { .. } => Code::NotReady,
        StoreError::EtcdUnknown { .. } => Code::Timeout,
        StoreError::EtcdAbsent { .. } => Code::NotFound,
        StoreError::EtcdDamaged { .. } => Code::Damaged,
        StoreError::Taken { .. } | StoreError::EtcdTaken { .. } => Code::Exists,
        StoreError::EtcdConfig { .. } => Code::Invalid,
    };
    Fault::new(code, e.to_string())
}

#[cfg(test)]
mod tests;
