//! Revocation lists in the map. The caller has verified them.

use types::{Code, Fault, Uuid};
use wire::codec::Bytes;
use wire::map::ClusterMap;

use crate::register::check_size;

/// The map with these lists. With `keys`, each file system gets another key of its capabilities (mgmt-K1): those are all keys that a server
/// or an administrator may know, whichever targets it has. `keys` has one for each file system.
///
/// `None`: the map has these lists, so nothing changes.
pub fn publish_crls(
    map: &ClusterMap,
    crls: &[u8],
    keys: Option<&[Uuid]>,
) -> Result<Option<ClusterMap>, Fault> {
    if *map.crls == *crls {
        return Ok(None);
    }
    let mut next = map.clone();
    next.crls = Bytes(crls.to_vec());
    if let Some(keys) = keys {
        give_keys(&mut next, keys)?;
    }
    next.version += 1;
    check_size(&next)?;
    Ok(Some(next))
}

/// Gives each file system another key of its capabilities.
pub(crate) fn give_keys(map: &mut ClusterMap, keys: &[Uuid]) -> Result<(), Fault> {
    if keys.len() < map.file_systems.len() {
        return Err(Fault::new(Code::Busy, "a file system was made meanwhile; try again"));
    }
    for (fs, key) in map.file_systems.iter_mut().zip(keys) {
        fs.secret = *key;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::FsId;
    use wire::map::FileSystem;

    fn map() -> ClusterMap {
        let fs = |n: u8| FileSystem {
            id: FsId(n.into()),
            name: format!("fs{n}"),
            uuid: Uuid([n; 16]),
            secret: Uuid([100 + n; 16]),
            inline_max: 0,
            commit_interval_ms: 1000,
        };
        ClusterMap { version: 7, file_systems: vec![fs(1), fs(2)], ..ClusterMap::empty() }
    }

    #[test]
    fn new_lists_make_a_version_and_the_same_ones_make_none() {
        let next = publish_crls(&map(), b"list", None).unwrap().unwrap();
        assert_eq!(next, ClusterMap { version: 8, crls: Bytes(b"list".to_vec()), ..map() });
        assert_eq!(publish_crls(&next, b"list", Some(&[Uuid([1; 16]); 2])), Ok(None), "no key changes again");
    }

    #[test]
    fn k1_every_file_system_gets_another_key() {
        let keys = [Uuid([8; 16]), Uuid([9; 16])];
        let next = publish_crls(&map(), b"list", Some(&keys)).unwrap().unwrap();
        let secrets: Vec<Uuid> = next.file_systems.iter().map(|fs| fs.secret).collect();
        assert_eq!(secrets, keys);
        assert_eq!(next.file_systems[0].uuid, map().file_systems[0].uuid, "it is the same file system");
        assert_eq!(publish_crls(&map(), b"list", Some(&keys[..1])).unwrap_err().code, Code::Busy);
    }

    #[test]
    fn lists_that_do_not_fit_are_refused() {
        let large = vec![0; crate::MAP_BYTES_MAX];
        assert_eq!(publish_crls(&map(), &large, None).unwrap_err().code, Code::NoSpace);
    }
}
