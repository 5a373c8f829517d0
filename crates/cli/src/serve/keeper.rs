//! `stria mgs`: the management service as a process, over a map in a directory or in etcd.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use anyhow::Context;
use mapstore::etcd::Reach;
use mapstore::{EtcdStore, StoreError};
use types::{Code, Fault};
use wire::map::ClusterMap;

use crate::config::{self, Keeping};
use crate::exit::{Exit, Failure};
use crate::serve::device::{self, Blank};
use crate::serve::register::{Wait, wait_for};
use crate::serve::role::{keep_files_private, listen, serve_until_stopped};
use crate::serve::servers::Servers;
use crate::serve::{host_name, metrics, prepare_process};
use crate::stop::{self, Event};
use crate::tls::{self, Part, Watch};

pub fn mgs(config: config::Mgs, blank: Blank) -> anyhow::Result<Exit> {
    crate::logs::start_for_servers();
    prepare_process();
    keep_files_private();
    let keeping = config.keeping().map_err(|why| anyhow::anyhow!(why))?;
    if let (Blank::Refuse, Keeping::Dir(dir)) = (blank, &keeping)
        && !mgs::Mgs::is_in(dir)
    {
        let why = "no cluster map is there";
        return Err(Failure::unusable(dir.display(), why, device::NOT_THERE_MAP).into());
    }
    let (_sender, events) = stop::listen()?;
    let trust = tls::trust(config.tls.as_deref(), Part::Server)?;
    tls::refuse_open(&config.listen.0, config.tls.as_deref(), trust.as_ref())?;
    let mut servers = Servers::with_trust(trust.clone());
    // 1. The map. In etcd it is read before others hear of this process.
    let (mgs, store) = match &keeping {
        Keeping::Dir(dir) => (of_dir(dir)?, None),
        Keeping::Etcd(reach) => of_etcd(reach, blank, &events).map(|(mgs, store)| (mgs, Some(store)))?,
    };
    servers.serve_mgs(mgs.clone());
    trust.iter().for_each(|trust| mgs.judge_by(trust.clone()));
    // 2. Serve.
    let (server, watch) = listen(&config.listen, &servers, trust)?;
    if let Some(feed) = watch.as_ref().map(Watch::feed) {
        mgs.on_lists(move |map| feed.take(map));
    }
    // 3. Lead, or wait for that: the name is what others are told, so it comes after the ports are known.
    let place = match (&store, &keeping) {
        (Some(store), _) => {
            store.lead(&leader_name(&server.nids()))?;
            store.describe()
        }
        (None, Keeping::Dir(dir)) => dir.display().to_string(),
        (None, Keeping::Etcd(_)) => unreachable!("a map in etcd has a store"),
    };
    let page = metrics::serve(config.metrics.as_deref(), servers.source("mgs"))?;
    tracing::info!(nid = %server.nid(), map = place, "management service is ready");
    serve_until_stopped(&events);
    // The next leader need not wait for the lease. This one then refuses changes.
    store.iter().for_each(|store| store.stop());
    server.stop();
    drop(page);
    servers.stop()?;
    Ok(Exit::Done)
}

/// Names the place to which the map of a directory was moved.
pub const MOVED: &str = "moved";

fn of_dir(dir: &Path) -> anyhow::Result<Arc<mgs::Mgs>> {
    if let Ok(place) = std::fs::read_to_string(dir.join(MOVED)) {
        let why = format!("its cluster map was moved to {}", place.trim());
        let next = "start the service with `etcd` in its configuration; to go back for good, stop those over etcd and delete the file `moved`";
        return Err(Failure::unusable(dir.display(), why, next).into());
    }
    mgs::Mgs::open(dir).with_context(|| format!("the cluster map in {}", dir.display()))
}

/// Waits for etcd, which may start later than this process after a loss of power.
fn of_etcd(
    reach: &Reach,
    blank: Blank,
    events: &Receiver<Event>,
) -> anyhow::Result<(Arc<mgs::Mgs>, Arc<EtcdStore>)> {
    let store = Arc::new(EtcdStore::service(reach)?);
    let what = format!("the cluster map in {}", store.describe());
    let wait = Wait::silent(&what, Some(events));
    if blank == Blank::Format {
        wait_for(&wait, || store.create(&ClusterMap::empty()).map_err(not_yet))?;
        tracing::info!("an empty cluster map was made in {}", store.describe());
    }
    let mgs = wait_for(&wait, || Ok(mgs::Mgs::over_etcd(store.clone())?))?;
    Ok((mgs, store))
}

/// An etcd that does not answer may do so soon.
fn not_yet(e: StoreError) -> anyhow::Error {
    match e {
        StoreError::EtcdAway { .. } | StoreError::EtcdUnknown { .. } => {
            Fault::new(Code::NotReady, e.to_string()).into()
        }
        other => other.into(),
    }
}

/// The NIDs that other management services tell as the leader's: the listening ones, with the host's name where they are wildcards.
fn leader_name(nids: &[String]) -> String {
    let of = |nid: &String| {
        let named = ["0.0.0.0:", "[::]:"].iter().find_map(|any| nid.strip_prefix(any));
        named.map_or_else(|| nid.clone(), |rest| format!("{}:{rest}", host_name()))
    };
    nids.iter().map(of).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_is_told_by_an_address_that_means_something_elsewhere() {
        let nids = ["10.0.0.5:7010@tcp0".to_owned(), "0.0.0.0:7010@tcp1".to_owned()];
        assert_eq!(leader_name(&nids), format!("10.0.0.5:7010@tcp0, {}:7010@tcp1", host_name()));
    }
}
