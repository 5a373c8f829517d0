//! The part of the cluster map that clients may see.

use types::Uuid;
use wire::map::ClusterMap;

/// The map without the file systems' secrets, with which a client could make capabilities.
pub fn client_view(map: &ClusterMap) -> ClusterMap {
    let mut map = map.clone();
    for fs in &mut map.file_systems {
        fs.secret = Uuid::default();
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::FsId;
    use wire::map::FileSystem;

    #[test]
    fn only_the_secret_is_hidden() {
        let mut map = ClusterMap::empty();
        map.version = 9;
        map.file_systems.push(FileSystem {
            id: FsId(1),
            name: "a".into(),
            uuid: Uuid([1; 16]),
            secret: Uuid([2; 16]),
            inline_max: 3,
            commit_interval_ms: 4,
        });
        let seen = client_view(&map);
        assert_eq!(seen.file_systems[0].secret, Uuid([0; 16]));
        map.file_systems[0].secret = Uuid([0; 16]);
        assert_eq!(seen, map);
    }
}
