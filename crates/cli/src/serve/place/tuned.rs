//! Parameters of a target: tools read and set them here, whichever member of its mirror it is, and the cluster map's values are taken.

use std::sync::Arc;

use mgmt::params::{Param, Params, Scope};
use net::{Answer, Service};
use pair::FillPace;
use parking_lot::Mutex;
use types::{Fault, TargetId};
use wire::codec::Wire;
use wire::map::ClusterMap;
use wire::params::{ParamList, ParamSet};
use wire::{Empty, Header, Request, unlogged_reply};

use super::front::parse;
use super::{Kind, Place};
use crate::logs;

/// A target's service, with its parameters.
pub struct Tuned {
    kind: Kind,
    /// Of the file system.
    base: Box<dyn Fn(Param) -> u64 + Send + Sync>,
    inner: Arc<dyn Service>,
}

impl Kind {
    pub fn params(&self) -> &Arc<Params> {
        match self {
            Kind::Mdt(settings) => &settings.params,
            Kind::Ost(settings) => &settings.params,
        }
    }

    fn scope(&self) -> Scope {
        Scope::of_target(matches!(self, Kind::Mdt(_)))
    }

    /// How a primary of this target fills the other member.
    pub fn pace(&self) -> Arc<dyn Fn() -> FillPace + Send + Sync> {
        let (params, base) = (self.params().clone(), self.base(Param::ResyncRate));
        Arc::new(move || FillPace {
            rate: params.get(Param::ResyncRate).unwrap_or(base),
            is_paused: params.is_on(Param::ResyncPause),
        })
    }

    /// The configuration's value.
    fn base(&self, param: Param) -> u64 {
        match (self, param) {
            (Kind::Mdt(settings), Param::RecordMemory) => settings.cache_bytes,
            (Kind::Mdt(_), Param::ScrubEvery) => mds::SCRUB_EVERY_MS,
            (Kind::Mdt(_), Param::ScrubRate) => mds::SCRUB_RATE,
            (Kind::Ost(settings), Param::ResyncRate) => settings.resync_rate,
            (Kind::Ost(settings), Param::SmallWriteMax) => settings.store.patch_bytes_max.into(),
            (Kind::Ost(settings), Param::SmallWriteMemory) => settings.store.overlay_bytes_max,
            (_, Param::LogLevel) => logs::level_at_start(),
            _ => 0,
        }
    }
}

impl Kind {
    /// Takes the values of the map, and follows the level of log lines, which all targets of a process share: the last change counts.
    pub fn begin(&self, map: &ClusterMap, target: TargetId) {
        let before = Mutex::new(None);
        self.params().on_change(move |params| {
            let now = params.get(Param::LogLevel);
            if std::mem::replace(&mut *before.lock(), now) != now {
                logs::set_level(now);
            }
            true
        });
        self.params().follow(map, target);
    }
}

impl Place {
    /// `inner` with the calls for parameters.
    pub(super) fn tuned(&self, inner: Arc<dyn Service>) -> Arc<dyn Service> {
        let (me, kind) = (self.me.clone(), self.around.how.kind.clone());
        let own = kind.clone();
        let base = move |param: Param| {
            let place = me.upgrade();
            let fs = place.and_then(|place| {
                let map = place.state.lock().map.clone();
                map.target(place.id()).and_then(|me| map.fs(me.fs)).cloned()
            });
            match (param, fs) {
                (Param::CommitInterval, Some(fs)) => fs.commit_interval_ms.into(),
                (Param::InlineMax, Some(fs)) => fs.inline_max.into(),
                _ => own.base(param),
            }
        };
        Arc::new(Tuned { kind, base: Box::new(base), inner })
    }
}

impl Service for Tuned {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        let outcome = match head.call {
            ParamList::CALL | ParamSet::CALL => {
                answer.check_role(head.call).and_then(|()| self.answer(head.call, body))
            }
            _ => return self.inner.serve(head, body, bulk, answer),
        };
        answer.bulk.clear();
        answer.body = unlogged_reply(outcome);
    }
}

impl Tuned {
    fn answer(&self, call: u16, body: &[u8]) -> Result<Vec<u8>, Fault> {
        let params = self.kind.params();
        if call == ParamList::CALL {
            parse::<ParamList>(body)?;
            return Ok(params.list(self.kind.scope(), &self.base).to_bytes());
        }
        let request = parse::<ParamSet>(body)?;
        params.set(&request.changes, self.kind.scope())?;
        tracing::info!(changes = ?request.changes, "parameters were set");
        Ok(Empty {}.to_bytes())
    }
}
