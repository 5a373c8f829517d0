//! `stria mgs move`: copies the cluster map of a stopped management service from its directory into etcd.

use std::path::{Path, PathBuf};

use clap::Args;
use mapstore::etcd::Reach;
use mapstore::{EtcdStore, FileStore, MapStore};

use crate::config::{self, Keeping, Mgs};
use crate::exit::{Exit, Failure};
use crate::serve::keeper::MOVED;

/// Copy the cluster map from a directory into etcd. The management service must be stopped. Refused if etcd has a map. The directory stays as it is:
/// keep it as a backup, and start no management service with it any more.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria mgs move --from /var/lib/stria/mgs --config mgs-etcd.toml")]
pub struct Move {
    /// The directory of the map: `dir` of the old configuration.
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// The new configuration of `stria mgs`, with `etcd`.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

impl Move {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        let config: Mgs = config::read(&self.config)?;
        match config.keeping().map_err(|why| anyhow::anyhow!(why))? {
            Keeping::Etcd(reach) => {
                let (version, place) = copy(&self.from, &reach)?;
                outln!("version {version} of the cluster map is in {place}");
                outln!(
                    "start `stria mgs --config {}`; start none with {} any more",
                    self.config.display(),
                    self.from.display()
                );
                Ok(Exit::Done)
            }
            Keeping::Dir(_) => {
                let (why, next) =
                    ("it has no `etcd`", "give the new configuration, with `etcd` and `etcd_prefix`");
                Err(Failure::unusable(self.config.display(), why, next).into())
            }
        }
    }
}

/// Returns the version of the map, and where it is now.
fn copy(from: &Path, reach: &Reach) -> anyhow::Result<(u64, String)> {
    if !FileStore::is_in(from) {
        let next = "give `dir` of the old configuration";
        return Err(Failure::unusable(from.display(), "no cluster map is there", next).into());
    }
    // Its lock keeps a management service from changing the map meanwhile.
    let store = FileStore::open(from)?;
    let map = store.load()?;
    let etcd = EtcdStore::at(reach)?;
    etcd.create(&map)?;
    if etcd.load()? != map {
        let why = "the map that was read back is another one";
        let next = "look whether another process uses the same prefix; the directory is unchanged";
        return Err(Failure::failed(etcd.describe(), why, next).into());
    }
    // Two services over two copies of the map would both admit members.
    std::fs::write(from.join(MOVED), format!("{}\n", etcd.describe()))?;
    Ok((map.version, etcd.describe()))
}

#[cfg(test)]
mod tests {
    use mapstore::conformance::sample;
    use mapstore::etcd::testing::{Etcd, is_installed};

    use super::*;
    use crate::testdir::TestDir;

    #[test]
    fn a_map_moves_into_etcd_once_and_its_directory_stays() {
        if !is_installed("moving a map into etcd") {
            return;
        }
        let (etcd, dir) = (Etcd::start(1), TestDir::new("mgs-move"));
        let reach = etcd.reach("/stria/moved");
        let none = copy(dir.path(), &reach).unwrap_err().to_string();
        assert!(none.contains("no cluster map is there"), "{none}");
        let store = FileStore::open(dir.path()).unwrap();
        store.compare_and_swap(0, &sample(1)).unwrap();
        let used = copy(dir.path(), &reach).unwrap_err().to_string();
        assert!(used.contains("in use by another process"), "{used}");
        drop(store);
        assert_eq!(copy(dir.path(), &reach).unwrap().0, 1);
        assert_eq!(EtcdStore::at(&reach).unwrap().load().unwrap(), sample(1));
        assert_eq!(FileStore::open(dir.path()).unwrap().load().unwrap(), sample(1));
        let again = copy(dir.path(), &reach).unwrap_err().to_string();
        assert!(again.contains("a cluster map of version 1 is in etcd"), "{again}");
    }
}
