//! OSTs that are drained: they keep their objects until these have moved, and get no new ones.

use types::*;
use wire::map::{ClusterMap, Mirror};
use wire::mgmt::SetDraining;

use crate::name::{member_name, mirror_name};

/// The map with the mark set or taken back (mgmt-D1), and the mirror. `None`: it is as wanted already.
pub fn set_draining(
    map: &ClusterMap,
    request: &SetDraining,
) -> Result<Option<(ClusterMap, MirrorId)>, Fault> {
    let id = mirror_to_drain(map, &request.name)?;
    if map.is_draining(id) == request.draining {
        return Ok(None);
    }
    let mut next = map.clone();
    match request.draining {
        false => next.draining.retain(|mirror| *mirror != id),
        true => {
            let fs = map.mirror(id).map(|mirror| mirror.fs).unwrap_or_default();
            let is_other = |m: &&Mirror| m.id != id && !map.is_draining(m.id);
            if !map.ost_mirrors(fs).iter().any(is_other) {
                let why = format!(
                    "{} is the last OST of its file system that takes new objects; add another one, or take the mark of another one back",
                    request.name
                );
                return Err(Fault::new(Code::Invalid, why));
            }
            next.draining.push(id);
            next.draining.sort_unstable();
        }
    }
    next.version += 1;
    Ok(Some((next, id)))
}

/// The OST mirror of this name, of the target with this name, or of the target with this id in digits.
pub fn mirror_to_drain(map: &ClusterMap, name: &str) -> Result<MirrorId, Fault> {
    let target_of = |name: &str| {
        let by_name = map.targets.iter().find(|t| member_name(map, t) == name);
        by_name.or_else(|| map.targets.iter().find(|t| t.id.0.to_string() == name))
    };
    let by_name = map.mirrors.iter().find(|m| mirror_name(map, m) == name);
    let found = by_name.or_else(|| map.mirror(target_of(name)?.mirror)).ok_or_else(|| {
        let why = format!("no target {name:?} is in the cluster map; `stria status` lists them");
        Fault::new(Code::NotFound, why)
    })?;
    match found.is_mdt {
        false => Ok(found.id),
        true => Err(Fault::new(Code::Invalid, format!("{name} is an MDT; only OSTs are drained"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::map;

    fn set(map: &ClusterMap, name: &str, draining: bool) -> Result<Option<(ClusterMap, MirrorId)>, Fault> {
        set_draining(map, &SetDraining { name: name.into(), draining })
    }

    /// mgmt-D1.
    #[test]
    fn an_ost_is_marked_by_name_or_id_and_the_last_one_is_not() {
        let map = map();
        for name in ["home-OST0000", "12"] {
            let (next, mirror) = set(&map, name, true).unwrap().expect("a change");
            assert_eq!(
                (next.version, mirror, next.draining.as_slice()),
                (6, MirrorId(2), &[MirrorId(2)][..])
            );
            assert_eq!(set(&next, name, true), Ok(None), "as it is");
            let last = set(&next, "home-OST0001", true).unwrap_err();
            assert!(last.code == Code::Invalid && last.detail.contains("last OST"), "{last}");
            let (back, _) = set(&next, name, false).unwrap().expect("a change");
            assert_eq!((back.version, back.draining), (7, vec![]));
        }
        assert_eq!(set(&map, "home-MDT0000", true).unwrap_err().code, Code::Invalid);
        assert_eq!(set(&map, "home-OST0007", true).unwrap_err().code, Code::NotFound);
        assert_eq!(set(&map, "home-OST0001", false), Ok(None));
    }
}
