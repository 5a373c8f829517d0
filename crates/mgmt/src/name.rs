//! Names of file systems, targets and mirrors.

use types::{Code, Fault};
use wire::map::{ClusterMap, MemberState, Mirror, Target};

/// Longest name in bytes, as in Lustre: it is part of target names (`name-OST0003`), mount sources and device labels.
pub const FS_NAME_MAX: usize = 8;

/// Accepts 1 to 8 ASCII letters, digits, `-` and `_`.
pub fn check_fs_name(name: &str) -> Result<(), Fault> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let why = if name.is_empty() {
        "it is empty"
    } else if name.len() > FS_NAME_MAX {
        "it is longer than 8 characters"
    } else if !name.chars().all(is_fine) {
        "it has characters other than letters, digits, '-' and '_'"
    } else {
        return Ok(());
    };
    let shown: String = name.chars().take(40).collect();
    Err(Fault::new(Code::Invalid, format!("file system name {shown:?}: {why}; choose another name")))
}

/// `home-OST0003`. All members of a mirror have this name.
pub fn target_name(fs: &str, is_mdt: bool, index: u32) -> String {
    format!("{fs}-{}{index:04x}", if is_mdt { "MDT" } else { "OST" })
}

/// The name of a target alone in its mirror, else with its id: `home-OST0003 (target 9)`.
pub fn member_name(map: &ClusterMap, target: &Target) -> String {
    let fs = map.fs(target.fs).map_or("?", |f| f.name.as_str());
    let name = target_name(fs, target.is_mdt, target.index);
    match map.mirror(target.mirror).is_some_and(|m| m.members.len() > 1) {
        true => format!("{name} (target {})", target.id),
        false => name,
    }
}

/// The name that all members of a mirror have.
pub fn mirror_name(map: &ClusterMap, mirror: &Mirror) -> String {
    let fs = map.fs(mirror.fs).map_or("?", |f| f.name.as_str());
    let index = map.target(mirror.primary).map_or(0, |t| t.index);
    target_name(fs, mirror.is_mdt, index)
}

/// The word for people and tools.
pub fn state_word(state: MemberState) -> &'static str {
    match state {
        MemberState::Out => "out",
        MemberState::Filling => "filling",
        MemberState::InSync => "in sync",
    }
}

/// `target 4 on oss1 (in sync), target 9 on oss2 (out)`.
pub(crate) fn members_text(map: &ClusterMap, mirror: &Mirror) -> String {
    let text = |member: &wire::map::Member| {
        let node = map.target(member.target).and_then(|t| map.node(t.node));
        let host = node.map_or("?", |n| n.name.as_str());
        format!("target {} on {host} ({})", member.target, state_word(member.state))
    };
    mirror.members.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for name in ["a", "scratch", "A-b_9", "12345678"] {
            assert_eq!(check_fs_name(name), Ok(()), "{name}");
        }
        for (name, why) in [
            ("", "empty"),
            ("123456789", "longer"),
            ("a b", "characters"),
            ("a/b", "characters"),
            ("é", "characters"),
            ("a.b", "characters"),
        ] {
            let fault = check_fs_name(name).expect_err(name);
            assert_eq!(fault.code, Code::Invalid);
            assert!(fault.detail.contains(why), "{name}: {fault}");
        }
    }
}
