//! The map in memory, its store, and the servers' reports: an event comes in, the next map is stored.

use std::cell::Cell;

use mapstore::{MapStore, Standing, StoreError};
use mgmt::{
    Fresh, Reports, apply_create_fs, apply_register, apply_removal, change_routes, next_states, nodemap,
    params::change_params, plan_removal, publish_crls, refuse_second_copy, set_draining,
};
use pki::Trust;
use types::{Code, Fault, TargetId, Uuid};
use wire::map::{ClusterMap, Nodemap};
use wire::mgmt::{
    ChangeNodemaps, ChangeParams, ChangeParamsReply, ChangeRoutes, CreateFs, CreateFsReply, Heartbeat,
    PlanRemoval, PlanRemovalReply, PublishCrl, PublishCrlReply, Register, RegisterReply, Remove, RemoveReply,
    SetDraining, SetDrainingReply,
};
use wire::pair::{AskMembers, AskMembersReply, AskingOf};

use crate::members::{self, Mirrors};
use crate::{fault, random};

/// Lost races against other users of a shared store, in a row, before a change is abandoned.
const ATTEMPTS_MAX: u32 = 8;
/// Shortest time between two reviews of the states: a map change costs two flushes.
const REVIEW_MS: u64 = 500;

pub struct State {
    store: Box<dyn MapStore>,
    map: ClusterMap,
    /// A change failed half way: `map` may be older than the store until it is loaded again.
    is_doubtful: bool,
    reports: Reports,
    /// Requests and signs of life of the members of mirrors.
    mirrors: Mirrors,
    reviewed_ms: u64,
    /// The term in which this process led last. At the begin of another one it loads the map, and what it heard before counts no more.
    term: i64,
    /// All servers stop with this process: no member goes on alone any more, so either has everything afterwards.
    pub keeps_pairs: bool,
    /// The map was loaded with other revocation lists than before.
    has_new_lists: bool,
}

/// No term of a store.
const NO_TERM: i64 = -1;

impl State {
    pub fn load(store: Box<dyn MapStore>, now_ms: u64) -> Result<State, Fault> {
        let map = store.load().map_err(fault)?;
        let (reports, mirrors) = (Reports::new(now_ms), Mirrors::default());
        let term = if store.is_shared() { NO_TERM } else { 0 };
        Ok(State {
            store,
            map,
            is_doubtful: false,
            keeps_pairs: false,
            reports,
            mirrors,
            reviewed_ms: now_ms,
            term,
            has_new_lists: false,
        })
    }

    pub fn standing(&self) -> Standing {
        self.store.standing()
    }

    pub fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    /// It leads, and has loaded the map in this term.
    pub fn leads(&self) -> bool {
        matches!(self.store.standing(), Standing::Leads { term } if term == self.term)
    }

    /// Refuses if this process does not lead. At the begin of a term it takes the newest map, and is as silent about deaths as after a restart
    /// (mgs-M6).
    pub fn lead(&mut self, now_ms: u64) -> Result<(), Fault> {
        let term = match self.store.standing() {
            Standing::Leads { term } => term,
            other => {
                // Nothing was heard meanwhile, and the same term may go on afterwards: a lease outlives a lost quorum.
                self.term = NO_TERM;
                return Err(fault(StoreError::NotLeading { why: other.why() }));
            }
        };
        if term == self.term {
            return Ok(());
        }
        self.reload()?;
        (self.reports, self.mirrors) = (Reports::new(now_ms), Mirrors::default());
        (self.reviewed_ms, self.term) = (now_ms, term);
        tracing::info!(version = self.map.version, "this management service leads now");
        Ok(())
    }

    /// Takes the newest map of a store that another process may have changed.
    pub fn look(&mut self, now_ms: u64) -> Result<(), Fault> {
        match self.store.standing() {
            Standing::Leads { .. } => {
                self.lead(now_ms)?;
                // A change that timed out may have been stored after the map was loaded again.
                self.reload()
            }
            Standing::Follows { .. } | Standing::NoLeader => {
                self.term = NO_TERM;
                self.reload()
            }
            Standing::NoQuorum { .. } => {
                self.term = NO_TERM;
                Ok(())
            }
        }
    }

    /// True once after the map was loaded with other revocation lists.
    pub fn take_new_lists(&mut self) -> bool {
        std::mem::take(&mut self.has_new_lists)
    }

    pub fn map(&self) -> &ClusterMap {
        &self.map
    }

    pub fn register(&mut self, request: &Register, now_ms: u64) -> Result<RegisterReply, Fault> {
        let fresh = Fresh { fs_uuid: random::uuid()?, secret: random::secret()? };
        // The rule borrows the reports while the map changes.
        let reports = std::mem::take(&mut self.reports);
        let reply = self.change(|map| {
            refuse_second_copy(map, &reports, request, now_ms)?;
            apply_register(map, request, &fresh).map(Some)
        });
        self.reports = reports;
        let reply = reply?;
        let reply = reply.expect("a registration always changes the map");
        self.reports.on_register(reply.target, now_ms);
        self.mirrors.on_alive(&self.map, &[reply.target], now_ms);
        tracing::info!(
            target_id = reply.target.0,
            fs = request.fs_name,
            index = reply.index,
            epoch = reply.epoch.0,
            node = request.node_name,
            "registered"
        );
        Ok(reply)
    }

    /// Adds and removes routes.
    pub fn change_routes(&mut self, request: &ChangeRoutes) -> Result<(), Fault> {
        self.change(|map| change_routes(map, request).map(|next| Some((next, ()))))?;
        for (what, routes) in [("removed", &request.remove), ("added", &request.add)] {
            for route in routes {
                tracing::info!(to = route.to, gateway = route.gateway, "a route was {what}");
            }
        }
        Ok(())
    }

    /// Adds, changes and removes nodemaps.
    pub fn change_nodemaps(&mut self, request: &ChangeNodemaps) -> Result<(), Fault> {
        let keys = self.keys()?;
        let before = self.keys_now();
        self.change(|map| nodemap::change_nodemaps(map, request, &keys).map(|next| Some((next, ()))))?;
        let names = |some: &[Nodemap]| some.iter().map(|n| n.name.as_str()).collect::<Vec<_>>().join(", ");
        tracing::info!(
            removed = names(&request.remove),
            added = names(&request.add),
            has_new_keys = before != self.keys_now(),
            "nodemaps were changed"
        );
        Ok(())
    }

    /// New keys, for as many file systems as may come until a change is stored.
    fn keys(&self) -> Result<Vec<Uuid>, Fault> {
        (0..=self.map.file_systems.len()).map(|_| random::secret()).collect()
    }

    fn keys_now(&self) -> Vec<Uuid> {
        self.map.file_systems.iter().map(|fs| fs.secret).collect()
    }

    /// Puts the lists into the map if this cluster's CAs signed them (pki-T4). `is_new` in the answer: the map has changed.
    pub fn publish_crl(
        &mut self,
        request: &PublishCrl,
        trust: Option<&Trust>,
    ) -> Result<PublishCrlReply, Fault> {
        let invalid = |why: String| Fault::new(Code::Invalid, why);
        let trust = trust.ok_or_else(|| {
            invalid("the management service has no certificate, so it can verify no revocation list".into())
        })?;
        let keys = self.keys()?;
        let keys = request.rotate_keys.then_some(&keys[..]);
        let published =
            |map: &ClusterMap| trust.publish(&map.crls, &request.crls).map_err(|e| invalid(e.to_string()));
        self.change(|map| {
            let lists = published(map)?;
            let next = publish_crls(map, &lists.crls, keys)?;
            // mgs-M3: before the map with its new keys can be asked for, also where storing it seems to fail.
            trust.set_crl(&lists.crls).map_err(|e| invalid(e.to_string()))?;
            Ok(next.map(|next| (next, ())))
        })
        .and_then(|changed| {
            let number = published(&self.map)?.number;
            if changed.is_some() {
                let has_new_keys = request.rotate_keys;
                tracing::warn!(number, has_new_keys, "a revocation list was published");
            }
            Ok(PublishCrlReply { version: self.map.version, number, is_new: changed.is_some() })
        })
    }

    pub fn create_fs(&mut self, request: &CreateFs) -> Result<CreateFsReply, Fault> {
        let fresh = Fresh { fs_uuid: random::uuid()?, secret: random::secret()? };
        let reply = self.change(|map| apply_create_fs(map, request, &fresh).map(Some))?;
        Ok(reply.expect("a new file system always changes the map"))
    }

    pub fn set_draining(&mut self, request: &SetDraining) -> Result<SetDrainingReply, Fault> {
        let changed = self.change(|map| set_draining(map, request))?;
        let (mirror, is_new) = match changed {
            Some(mirror) => (mirror, true),
            None => (mgmt::mirror_to_drain(&self.map, &request.name)?, false),
        };
        if is_new {
            tracing::warn!(
                name = request.name,
                draining = request.draining,
                "an OST's mark for draining changed"
            );
        }
        Ok(SetDrainingReply { mirror, version: self.map.version, is_new })
    }

    pub fn change_params(&mut self, request: &ChangeParams) -> Result<ChangeParamsReply, Fault> {
        let changed = self.change(|map| Ok(change_params(map, request)?.map(|next| (next, ()))))?;
        if changed.is_some() {
            for change in &request.changes {
                let (targets, name) = (&change.targets, &change.name);
                tracing::info!(targets, name, value = ?change.value, "a kept parameter changed");
            }
        }
        Ok(ChangeParamsReply { version: self.map.version, is_new: changed.is_some() })
    }

    pub fn plan_removal(&self, request: &PlanRemoval, now_ms: u64) -> Result<PlanRemovalReply, Fault> {
        plan_removal(&self.map, &self.reports, request, now_ms)
    }

    pub fn remove(&mut self, request: &Remove, now_ms: u64) -> Result<RemoveReply, Fault> {
        // The rule borrows the reports while the map changes.
        let reports = std::mem::take(&mut self.reports);
        let done = self.change(|map| Ok(Some((apply_removal(map, &reports, request, now_ms)?, ()))));
        self.reports = reports;
        done?;
        self.reports.forget_removed(&self.map);
        self.mirrors.forget_removed(&self.map);
        tracing::warn!(kind = ?request.kind, name = request.name, "removed from the cluster map");
        Ok(RemoveReply { version: self.map.version })
    }

    pub fn heartbeat(&mut self, request: &Heartbeat, now_ms: u64) -> Result<(), Fault> {
        self.reports.on_heartbeat(&self.map, request, now_ms);
        // mgs-M4: a server that leaves changes no members. Its targets have returned their promises, and the other members ask.
        if !request.leaving {
            let is_its = |id: &&TargetId| self.map.target(**id).is_some_and(|t| t.node == request.node);
            let its: Vec<TargetId> = request.targets.iter().filter(is_its).copied().collect();
            self.mirrors.on_alive(&self.map, &its, now_ms);
        }
        self.restate(now_ms)
    }

    /// Decides a member's request about its mirror (mgs-M4), and answers with the members as they are then.
    pub fn ask_members(&mut self, request: &AskMembers, now_ms: u64) -> Result<AskMembersReply, Fault> {
        if self.keeps_pairs && matches!(request.asking, AskingOf::Alone { .. }) {
            return members::reply(&self.map, request, None, now_ms);
        }
        self.mirrors.on_request(&self.map, request, now_ms);
        // The rule borrows the reports while the map changes.
        let mirrors = std::mem::take(&mut self.mirrors);
        let kept = Cell::new(None);
        let done = self.change(|map| {
            let decided = mirrors.decide(map, request, now_ms)?;
            kept.set(decided.as_ref().err().copied());
            Ok(decided.ok().map(|next| (next, ())))
        });
        self.mirrors = mirrors;
        match done? {
            Some(()) => members::tell_change(&self.map, request),
            // mgs-M5: a change has shown that this process leads; an answer without one has not.
            None => self.store.confirm(self.map.version).map_err(fault)?,
        }
        members::reply(&self.map, request, kept.get(), now_ms)
    }

    /// Updates the states of silent targets. After a failed change it loads the map again first.
    pub fn review(&mut self, now_ms: u64) -> Result<(), Fault> {
        if self.is_doubtful {
            self.reload()?;
        }
        match now_ms.saturating_sub(self.reviewed_ms) >= REVIEW_MS {
            true => self.restate(now_ms),
            false => Ok(()),
        }
    }

    fn restate(&mut self, now_ms: u64) -> Result<(), Fault> {
        self.reviewed_ms = now_ms;
        // The rule borrows the reports while the map changes.
        let reports = std::mem::take(&mut self.reports);
        let done = self.change(|map| Ok(next_states(map, &reports, now_ms).map(|next| (next, ()))));
        self.reports = reports;
        done.map(|_| ())
    }

    /// Applies a rule and stores its map (mgs-M1). If another process changed the map meanwhile, it applies the rule again to the newer
    /// map.
    fn change<T>(
        &mut self,
        rule: impl Fn(&ClusterMap) -> Result<Option<(ClusterMap, T)>, Fault>,
    ) -> Result<Option<T>, Fault> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let Some((next, result)) = rule(&self.map)? else { return Ok(None) };
            match self.store.compare_and_swap(self.map.version, &next) {
                Ok(()) => {
                    self.map = next;
                    return Ok(Some(result));
                }
                Err(StoreError::Conflict { .. }) if attempt < ATTEMPTS_MAX => self.reload()?,
                Err(e) => {
                    // The map may have been stored, so it must be loaded again before it is used.
                    self.is_doubtful = true;
                    return Err(fault(e));
                }
            }
        }
    }

    fn reload(&mut self) -> Result<(), Fault> {
        let map = self.store.load().map_err(fault)?;
        self.has_new_lists |= map.crls != self.map.crls;
        (self.map, self.is_doubtful) = (map, false);
        Ok(())
    }
}
