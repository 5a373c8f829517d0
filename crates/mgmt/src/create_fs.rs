//! Making a file system before any of its targets registers.

use types::*;
use wire::map::ClusterMap;
use wire::mgmt::{CreateFs, CreateFsReply};

use crate::name::check_fs_name;
use crate::register::{Fresh, FsSettings, check_size, make_fs};

/// Bounds of the pause between background flushes. Shorter ones cost more than they save; longer ones lose more to a power cut than is expected.
pub const COMMIT_INTERVAL_MS_MIN: u32 = 10;
pub const COMMIT_INTERVAL_MS_MAX: u32 = 60_000;

/// Adds a file system without targets. A name that is there is `Exists`.
pub fn apply_create_fs(
    map: &ClusterMap,
    request: &CreateFs,
    fresh: &Fresh,
) -> Result<(ClusterMap, CreateFsReply), Fault> {
    check_fs_name(&request.name)?;
    let invalid = |why: String| Err(Fault::new(Code::Invalid, why));
    if request.inline_max > INLINE_MAX {
        return invalid(format!(
            "inline content of {} bytes; at most {INLINE_MAX} bytes of a file are inline",
            request.inline_max
        ));
    }
    if !(COMMIT_INTERVAL_MS_MIN..=COMMIT_INTERVAL_MS_MAX).contains(&request.commit_interval_ms) {
        return invalid(format!(
            "a commit interval of {} ms; it is {COMMIT_INTERVAL_MS_MIN} to {COMMIT_INTERVAL_MS_MAX} ms",
            request.commit_interval_ms
        ));
    }
    if let Some(fs) = map.fs_named(&request.name) {
        let why =
            format!("file system {:?} is already there, with uuid {}; choose another name", fs.name, fs.uuid);
        return Err(Fault::new(Code::Exists, why));
    }
    let mut next = map.clone();
    let settings =
        FsSettings { inline_max: request.inline_max, commit_interval_ms: request.commit_interval_ms };
    let fs = make_fs(&mut next, &request.name, settings, fresh)?;
    next.version += 1;
    check_size(&next)?;
    let reply = CreateFsReply { fs, version: next.version };
    Ok((next, reply))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply_register;
    use wire::map::Apart;
    use wire::mgmt::Register;

    fn fresh(seed: u8) -> Fresh {
        Fresh { fs_uuid: Uuid([seed; 16]), secret: Uuid([seed ^ 0xff; 16]) }
    }

    fn wish(name: &str) -> CreateFs {
        CreateFs { name: name.into(), inline_max: 4096, commit_interval_ms: 500 }
    }

    fn register(is_mdt: bool, uuid: u8) -> Register {
        Register {
            fs_name: "a".into(),
            is_mdt,
            index: u32::MAX,
            uuid: Uuid([uuid; 16]),
            target: TargetId(0),
            bytes_total: 1 << 30,
            node_name: "host".into(),
            nids: vec![],
            second: false,
            rack: String::new(),
            apart: Apart::Nothing,
        }
    }

    #[test]
    fn targets_of_a_file_system_that_was_made_register_in_any_order() {
        let (map, reply) = apply_create_fs(&ClusterMap::empty(), &wish("a"), &fresh(1)).expect("made");
        assert_eq!((reply.fs, reply.version, map.version), (FsId(1), 1, 1));
        let (map, ost) = apply_register(&map, &register(false, 7), &fresh(2)).expect("an OST first");
        let (map, mdt) = apply_register(&map, &register(true, 8), &fresh(3)).expect("then the MDT");
        assert_eq!((ost.index, mdt.index, map.file_systems.len()), (0, 0, 1));
        let fs = &map.file_systems[0];
        assert_eq!((fs.uuid, fs.inline_max, fs.commit_interval_ms), (Uuid([1; 16]), 4096, 500));
        assert_eq!(map.mdt_of(FsId(1), Fid::ROOT).expect("it has an MDT").primary, mdt.target);
    }

    #[test]
    fn refusals_say_why() {
        let map = apply_create_fs(&ClusterMap::empty(), &wish("a"), &fresh(1)).expect("made").0;
        let table = [
            (wish("a"), Code::Exists, "already there"),
            (wish("far too long"), Code::Invalid, "longer than 8"),
            (CreateFs { inline_max: INLINE_MAX + 1, ..wish("b") }, Code::Invalid, "at most 65536"),
            (CreateFs { commit_interval_ms: 9, ..wish("b") }, Code::Invalid, "10 to 60000 ms"),
            (CreateFs { commit_interval_ms: 60_001, ..wish("b") }, Code::Invalid, "10 to 60000 ms"),
        ];
        for (request, code, part) in table {
            let fault = apply_create_fs(&map, &request, &fresh(2)).expect_err(part);
            assert_eq!(fault.code, code, "{fault}");
            assert!(fault.detail.contains(part), "{fault}");
        }
        let (map, reply) =
            apply_create_fs(&map, &CreateFs { inline_max: 0, ..wish("b") }, &fresh(2)).expect("made");
        assert_eq!((reply.fs, map.file_systems.len()), (FsId(2), 2));
    }
}
