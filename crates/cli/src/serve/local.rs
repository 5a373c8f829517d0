//! A whole cluster in this process, from the directory of a `stria up`: MGS, MDT and OSTs over function calls.
//!
//! `stria up` uses it on the real media, and `stria fsck` of a stopped cluster on scratch media.

use std::fs;
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use client::Fs;
use disk::{Disk, FileDisk};
use mapstore::{FileStore, MapStore, StoreError};
use types::{Cred, Fid, Size};
use wire::map::ClusterMap;

use crate::cluster::{Cluster, Found};
use crate::exit::Failure;
use crate::reach::{self, MGS, Reach};
use crate::scratch::Scratch;
use crate::serve::device::Blank;
use crate::serve::host_name;
use crate::serve::register::MgsPeers;
use crate::serve::servers::{Domain, Node, Role, Servers, Wanted};
use crate::stop::Event;

/// How the media are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// To serve clients.
    Real,
    /// Read-only; writes of recovery stay in memory.
    Scratch,
}

/// The map of a stopped cluster, in memory: changes by registration are dropped at the end.
pub fn scratch_mgs(dir: &Path) -> anyhow::Result<Arc<mgs::Mgs>> {
    let map = FileStore::open(&Cluster::mgs_dir(dir))?.load()?;
    Ok(mgs::Mgs::over(Box::new(ScratchMap(Mutex::new(map))))?)
}

struct ScratchMap(Mutex<ClusterMap>);

impl MapStore for ScratchMap {
    fn load(&self) -> Result<ClusterMap, StoreError> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
    fn compare_and_swap(&self, expected: u64, next: &ClusterMap) -> Result<(), StoreError> {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if map.version != expected {
            return Err(StoreError::Conflict { expected, found: map.version });
        }
        *map = next.clone();
        Ok(())
    }
}

/// Marks the directory as that of a new cluster, and removes the files of an interrupted try.
pub fn claim(cluster: &Cluster, dir: &Path, mount: Option<&Path>) -> anyhow::Result<()> {
    // 1. No target in the directory was ever served (cli-C1): begin anew. The earlier try may have had more targets.
    let leftover = match Cluster::find_beside(dir, mount)? {
        Found::Cluster(earlier) if !earlier.ready => earlier.images(dir),
        Found::Cluster(_) => anyhow::bail!("{}: it became ready meanwhile", dir.display()),
        Found::Empty => vec![],
    };
    mgs::Mgs::delete(&Cluster::mgs_dir(dir))?;
    for image in leftover {
        match fs::remove_file(&image) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(e).with_context(|| image.display().to_string());
            }
            _ => {}
        }
    }
    // 2. From here on the directory is ours, even if this process is killed.
    cluster.write(dir).with_context(|| format!("write {}", dir.display()))
}

/// Makes the files of a new cluster in a claimed directory, until it is ready to serve.
pub fn make(
    cluster: &mut Cluster,
    dir: &Path,
    mgs: Arc<mgs::Mgs>,
    events: &Receiver<Event>,
) -> anyhow::Result<()> {
    make_images(cluster, dir)?;
    // Format and register everything once.
    let servers = start(cluster, dir, mgs, Media::Real, Blank::Format, None, Some(events))?;
    let set = cluster.inline_max.map_or(Ok(()), |max| set_inline_max(&servers, cluster, max.0));
    servers.stop()?;
    set?;
    // From here on a missing image is an error.
    cluster.ready = true;
    cluster.write(dir)?;
    Ok(())
}

pub fn make_images(cluster: &Cluster, dir: &Path) -> anyhow::Result<()> {
    for (image, size) in cluster.images_with_sizes(dir) {
        FileDisk::create(&image, size).with_context(|| format!("make {}", image.display()))?;
    }
    Ok(())
}

/// Starts all targets of the directory. In a ready cluster a blank target is an error: its content is lost.
pub fn start(
    cluster: &Cluster,
    dir: &Path,
    mgs: Arc<mgs::Mgs>,
    media: Media,
    blank: Blank,
    mdt_cache: Option<Size>,
    events: Option<&Receiver<Event>>,
) -> anyhow::Result<Servers> {
    let mut servers = Servers::new();
    servers.mdt.cache_bytes = crate::memory::mdt_cache(mdt_cache);
    // A cluster that is only examined is not scrubbed.
    servers.ost.scrub = matches!(media, Media::Real);
    servers.serve_mgs(mgs);
    let peers = MgsPeers::local(servers.fabric.clone());
    let node = Node {
        fsname: &cluster.fsname,
        mgs: peers.clone(),
        name: host_name(),
        nids: vec![],
        domain: Domain::default(),
        events,
    };
    for index in 0..cluster.mdts {
        let path = cluster.mdt_image(dir, index);
        let of_mdt = (Role::Mdt, path.as_path(), Wanted::first(Some(index)));
        servers.add_one(of_mdt, open(&path, media)?, blank, &node)?;
    }
    for index in 0..cluster.osts {
        let path = cluster.ost_image(dir, index);
        let of_ost = (Role::Ost, path.as_path(), Wanted::first(Some(index)));
        servers.add_one(of_ost, open(&path, media)?, blank, &node)?;
    }
    // The first targets joined with a map that lacked the last ones.
    servers.set_map(&map_of(&servers)?);
    servers.beat(peers)?;
    Ok(servers)
}

pub fn map_of(servers: &Servers) -> anyhow::Result<ClusterMap> {
    reach::get_map(&*servers.fabric.peer(MGS)?, true)
}

fn open(path: &Path, media: Media) -> anyhow::Result<Arc<dyn Disk>> {
    let failed = |e| {
        Failure::failed(
            path.display(),
            e,
            "check the file, its permissions, and whether another process uses it",
        )
    };
    Ok(match media {
        Media::Real => Arc::new(FileDisk::open(path).map_err(failed)?),
        Media::Scratch => Arc::new(Scratch::over(Arc::new(FileDisk::open_read_only(path).map_err(failed)?))),
    })
}

/// The inline limit of a file system is that of its root directory, which all others inherit.
fn set_inline_max(servers: &Servers, cluster: &Cluster, bytes: u64) -> anyhow::Result<()> {
    let reach = Reach::in_process(servers.fabric.clone(), &cluster.fsname)?;
    let settings =
        client::Settings { name: "stria up: first settings".into(), ..client::Settings::default() };
    let fs = Fs::connect(servers.fabric.clone(), reach.map, reach.fs, settings)?;
    let words = format!("--inline {bytes}");
    let result = fs.setxattr(Fid::ROOT, b"stria.layout", words.as_bytes(), 0, &Cred::root());
    fs.shutdown()?;
    result.with_context(|| format!("set --inline-max {bytes}"))
}
