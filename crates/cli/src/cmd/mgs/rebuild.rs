//! `stria mgs rebuild`: makes a lost cluster map from the superblocks of all targets.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Context;
use bench::wrap::wrap;
use clap::Args;
use mapstore::{EtcdStore, FileStore};
use mgmt::Fresh;
use mgmt::rebuild::{Facts, Missing, Unclear, rebuild};
use types::{Code, Fault, Uuid, hash};
use wire::map::{ClusterMap, MemberState};

use crate::cmd::manage::facts::Line;
use crate::config::{self, Keeping, Mgs};
use crate::exit::{Exit, Failure};
use crate::serve::register::new_uuid;

/// Make a cluster map that was lost with all its copies, from the superblocks of all targets: `stria target show` prints them on each server. Refused
/// if a map is there. Targets keep ids, indexes and content. File systems get new keys. Routes, nodemaps and revocation lists must be given again, and
/// clients mount anew. A mirror of two with one member given makes no map, unless --without gives the other member up. Neither does a gap in the
/// indexes of targets.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria target show /dev/nvme1n1 /dev/nvme2n1 > oss1.json     (on each server)
Example: stria mgs rebuild --config mgs.toml mds.json oss1.json oss2.json --dry-run
Exit codes: 0 the map is made; 1 it is not; 2 it could not be tried.")]
pub struct Rebuild {
    /// Files with the facts of all targets.
    #[arg(value_name = "FACTS", required = true)]
    facts: Vec<PathBuf>,
    /// The configuration of `stria mgs`, with `dir` or `etcd`.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Give up the missing member of this mirror, such as home-OST0003, or this missing target: what only that one has is lost. May be given several
    /// times.
    #[arg(long, value_name = "NAME")]
    without: Vec<String>,
    /// Show the map that would be made. Nothing is written.
    #[arg(long, conflicts_with = "confirm")]
    dry_run: bool,
    /// With --without: do it. The token is that of --dry-run.
    #[arg(long, value_name = "TOKEN")]
    confirm: Option<String>,
}

impl Rebuild {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        let config: Mgs = config::read(&self.config)?;
        let keeping = config.keeping().map_err(|why| anyhow::anyhow!(why))?;
        let facts = read(&self.facts)?;
        let without: BTreeSet<String> = self.without.iter().cloned().collect();
        let map = match rebuild(&facts, &without, fresh)? {
            Ok(map) => map,
            Err(unclear) => return Err(refuse(unclear).into()),
        };
        out!("{}", text(&map, &facts));
        highest(&map).iter().for_each(|line| outln!("{}", wrap(line, 4)));
        let token = token_of(&map, &without);
        if !without.is_empty() {
            let names = self.without.join(", ");
            let warning = format!(
                "WARNING: what is missing of {names} is given up: the other member of a mirror, or the target itself. What only that one has is lost for good, \
                 also if it is found later. If it can be found, stop here, and give its facts too."
            );
            out!("{}\n", wrap(&warning, 4));
        }
        match (self.dry_run, without.is_empty(), &self.confirm) {
            (true, true, _) => {
                outln!("nothing was written; without --dry-run the map is made");
                Ok(Exit::Findings)
            }
            (true, ..) | (_, false, None) => {
                outln!("nothing was written; to do it: --confirm {token}");
                Ok(Exit::Findings)
            }
            (false, false, Some(given)) if *given != token => {
                let next = "look again with --dry-run, and use the token that it shows";
                Err(Failure::failed("rebuild", format!("the token {given:?} is not for this map"), next)
                    .into())
            }
            _ => {
                let place = keep(&keeping, &map)?;
                outln!(
                    "a cluster map with {} targets is in {place}; start its management service, then the servers",
                    map.targets.len()
                );
                Ok(Exit::Done)
            }
        }
    }
}

fn fresh() -> Result<Fresh, Fault> {
    let random = || new_uuid().map_err(|e| Fault::new(Code::Io, format!("random bytes of the kernel: {e}")));
    Ok(Fresh { fs_uuid: random()?, secret: random()? })
}

fn read(files: &[PathBuf]) -> anyhow::Result<Vec<Facts>> {
    let mut all = vec![];
    for file in files {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let bad = |why: String| {
            Failure::unusable(file.display(), why, "give a file that `stria target show` printed")
        };
        let lines: Vec<Line> = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
        for line in lines {
            all.push(line.facts().map_err(bad)?);
        }
    }
    Ok(all)
}

fn refuse(unclear: Unclear) -> Failure {
    match unclear {
        Unclear::Conflict(why) => Failure::failed("rebuild", why, "no map was made"),
        Unclear::Missing(Missing { members, targets }) => {
            let of = |what: &str, names: &[String]| match names {
                [] => None,
                _ => Some(format!("{what} {}", names.join(", "))),
            };
            let lacking =
                [of("one member of two is missing of", &members), of("there are no facts of", &targets)];
            let why = lacking.into_iter().flatten().collect::<Vec<_>>().join("; ");
            let next = "give the facts of these devices too; --without NAME gives up one that is lost for good, or was removed from the cluster";
            Failure::failed("rebuild", why, next)
        }
    }
}

/// Stores the map where none is; returns the place.
fn keep(keeping: &Keeping, map: &ClusterMap) -> anyhow::Result<String> {
    match keeping {
        Keeping::Dir(dir) => {
            FileStore::make(dir, map)?;
            Ok(dir.display().to_string())
        }
        Keeping::Etcd(reach) => {
            let store = EtcdStore::at(reach)?;
            store.create(map)?;
            Ok(store.describe())
        }
    }
}

/// Names the map, without its new keys.
fn token_of(map: &ClusterMap, without: &BTreeSet<String>) -> String {
    let mut bytes = vec![];
    for mirror in &map.mirrors {
        bytes.extend_from_slice(&mirror.id.0.to_le_bytes());
        bytes.extend_from_slice(&mirror.epoch.0.to_le_bytes());
        mirror.members.iter().for_each(|m| bytes.extend_from_slice(&m.target.0.to_le_bytes()));
    }
    map.targets.iter().for_each(|t| bytes.extend_from_slice(&t.uuid.0));
    without.iter().for_each(|name| bytes.extend_from_slice(name.as_bytes()));
    let hash = hash::h64(&bytes) >> hash::COLLISION_BITS;
    format!("{:04x}-{:04x}-{:04x}", hash >> 32 & 0xffff, hash >> 16 & 0xffff, hash & 0xffff)
}

/// Of each file system what no superblock tells: a lost target of the highest index, and marks of draining OSTs.
fn highest(map: &ClusterMap) -> Vec<String> {
    let line = |fs: &wire::map::FileSystem| {
        let highest = |is_mdt| {
            let of = map.targets.iter().filter(|t| t.fs == fs.id && t.is_mdt == is_mdt);
            of.map(|t| t.index).max().map(|index| mgmt::target_name(&fs.name, is_mdt, index))
        };
        let names: Vec<String> = [highest(true), highest(false)].into_iter().flatten().collect();
        format!(
            "{}: the highest given are {}. No superblock tells of higher ones: if there were some, give their facts too. An OST that was draining gets new objects again until `stria target drain`.",
            fs.name,
            names.join(" and ")
        )
    };
    map.file_systems.iter().map(line).collect()
}

fn text(map: &ClusterMap, facts: &[Facts]) -> String {
    let none = Uuid::default();
    let mut out = String::new();
    for mirror in &map.mirrors {
        for member in &mirror.members {
            let of = facts.iter().find(|f| f.target == member.target);
            let (name, uuid) = of.map_or((String::new(), none), |f| (f.name(), f.uuid));
            let state = match member.state {
                // A loss of power took what it had not flushed.
                MemberState::InSync if of.and_then(|f| f.note.as_ref()).is_some_and(|n| !n.is_whole) => {
                    "lost power"
                }
                MemberState::InSync => "in sync",
                MemberState::Filling | MemberState::Out => "lacks changes",
            };
            let device = of.map_or("", |f| f.device.as_str());
            out += &format!(
                "{name:<20} target {:<6} epoch {:<6} {state:<14} {uuid}  {device}\n",
                member.target.0, mirror.epoch.0
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use mapstore::MapStore;
    use mgmt::rebuild::REBUILT_VERSION;

    use super::*;
    use crate::testdir::TestDir;

    fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn line(target: u32, is_mdt: bool, note: &str) -> String {
        format!(
            "{{\"device\":\"/d/{target}\",\"is_mdt\":{is_mdt},\"fsname\":\"home\",\"fs_uuid\":\"{}\",\"uuid\":\"{:032x}\",\"target\":{target},\
             \"index\":0,\"mirror\":{target},\"epoch\":4,\"bytes_total\":1024{note}}}",
            "a1".repeat(16),
            target + 1
        )
    }

    #[test]
    fn a_map_is_made_once_and_a_member_is_given_up_by_its_token_only() {
        let dir = TestDir::new("mgs-rebuild");
        let map_dir = dir.path().join("map");
        let config = write(dir.path(), "mgs.toml", &format!("dir = {:?}\n", map_dir.display().to_string()));
        let note =
            ",\"note\":{\"epoch\":8,\"primary\":1,\"states\":[0,2],\"is_whole\":true,\"is_filling\":false}";
        let facts =
            write(dir.path(), "facts.json", &format!("[{},{}]", line(1, true, ""), line(9, false, note)));
        let command = |without: &[&str], confirm: Option<&str>| Rebuild {
            facts: vec![facts.clone()],
            config: config.clone(),
            without: without.iter().map(|name| name.to_string()).collect(),
            dry_run: false,
            confirm: confirm.map(str::to_owned),
        };
        let refused = command(&[], None).run().unwrap_err().to_string();
        assert!(refused.contains("one member of two is missing of home-OST0000"), "{refused}");
        let without = ["home-OST0000"];
        assert_eq!(command(&without, None).run().unwrap(), Exit::Findings);
        assert!(
            command(&without, Some("1-2-3")).run().unwrap_err().to_string().contains("is not for this map")
        );
        assert!(!map_dir.exists(), "nothing was written so far");
        let names = without.iter().map(|name| name.to_string()).collect();
        let map = rebuild(&read(std::slice::from_ref(&facts)).unwrap(), &names, fresh).unwrap().unwrap();
        let token = token_of(&map, &names);
        assert_eq!(command(&without, Some(&token)).run().unwrap(), Exit::Done);
        let stored = FileStore::open(&map_dir).unwrap().load().unwrap();
        assert_eq!((stored.version, stored.targets.len()), (REBUILT_VERSION, 2));
        assert_eq!(stored.mirrors, map.mirrors);
        let told = highest(&map);
        assert!(told.len() == 1 && told[0].contains("home-MDT0000 and home-OST0000"), "{told:?}");
        let again = command(&without, Some(&token)).run().unwrap_err().to_string();
        assert!(again.contains("a cluster map is there already"), "{again}");
    }
}
