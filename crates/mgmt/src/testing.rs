//! A cluster map for tests: an MDT and two OSTs of file system *home*, without second members.

use types::*;
use wire::map::{ClusterMap, FileSystem, Mirror, Target};

pub fn map() -> ClusterMap {
    let mut map = ClusterMap { version: 5, ..ClusterMap::empty() };
    map.file_systems.push(FileSystem {
        id: FsId(1),
        name: "home".into(),
        uuid: Uuid([1; 16]),
        secret: Uuid([2; 16]),
        inline_max: 0,
        commit_interval_ms: 1000,
    });
    for (id, is_mdt, index) in [(1, true, 0), (2, false, 0), (3, false, 1)] {
        map.mirrors.push(Mirror::alone(MirrorId(id), FsId(1), is_mdt, Epoch(1), TargetId(id + 10)));
        map.targets.push(Target {
            id: TargetId(id + 10),
            fs: FsId(1),
            is_mdt,
            index,
            uuid: Uuid([id as u8; 16]),
            node: NodeId(1),
            mirror: MirrorId(id),
            state: 1,
            bytes_total: 0,
        });
    }
    map
}
