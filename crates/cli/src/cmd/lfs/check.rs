//! `stria lfs check`: whether targets answer the mounts of this host, in Lustre's lines.

use std::ffi::OsString;
use std::path::Path;

use crate::cmd::df::targets_of;
use crate::cmd::lfs::words::mounts_named;
use crate::cmd::status::target_name;
use crate::exit::{Exit, Failure};
use crate::reach;
use crate::space::TargetSpace;

/// The targets that the first word means: MDTs, OSTs.
fn meant(word: &str) -> Result<(bool, bool), Failure> {
    match word {
        "osts" | "ost" => Ok((false, true)),
        "mds" | "mdts" | "mdt" => Ok((true, false)),
        "servers" | "all" => Ok((true, true)),
        other => {
            let what = format!("lfs check {other}").trim_end().to_owned();
            let why = "it does not say which servers";
            Err(Failure::unusable(
                what,
                why,
                "give osts, mds, servers or all, and a path on a mount if you like",
            ))
        }
    }
}

/// Of the words behind `check`: 0 if all targets are active.
pub fn run(words: &[OsString]) -> anyhow::Result<Exit> {
    let (mdts, osts) = meant(&words.first().map_or("".into(), |word| word.to_string_lossy()))?;
    let mounts = match words.get(1) {
        Some(path) => {
            let (point, source) = reach::mount_of(Path::new(path))?;
            vec![(point, source.fsname)]
        }
        None => mounts_named(None),
    };
    if mounts.is_empty() {
        let next = "mount one, or look with `stria status --mgs NID`";
        return Err(Failure::unusable("lfs check", "no Stria file system is mounted here", next).into());
    }
    let mut are_active = true;
    for (point, fsname) in mounts {
        for target in targets_of(&point)?.iter().filter(|t| if t.is_mdt() { mdts } else { osts }) {
            are_active &= target.is_up();
            outln!("{}", line(&point, &fsname, target));
        }
    }
    Ok(if are_active { Exit::Done } else { Exit::Findings })
}

/// `home-OST0003-osc-ffff0123456789ab active.`: Lustre tells mounts apart by the number at the end.
fn line(point: &Path, fsname: &str, target: &TargetSpace) -> String {
    let device = if target.is_mdt() { "mdc" } else { "osc" };
    let name = target_name(fsname, target.is_mdt(), target.index);
    let state = if target.is_up() { "active" } else { "inactive" };
    format!("{name}-{device}-ffff{:012x} {state}.", number_of(point))
}

/// The same number for a mount point at each call: FNV-1a, 48 bits of it.
fn number_of(point: &Path) -> u64 {
    let bytes = point.as_os_str().as_encoded_bytes();
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_name_the_device_and_the_state_as_lustre_writes_them() {
        let target = |json: &str| serde_json::from_str::<TargetSpace>(json).expect("an answer of a mount");
        let point = Path::new("/mnt/home");
        let ost = line(point, "home", &target(r#"{"kind":"ost","index":10}"#));
        let words: Vec<&str> = ost.split(' ').collect();
        assert!(
            words[0].starts_with("home-OST000a-osc-ffff") && words[0].len() == "home-OST000a-osc-".len() + 16
        );
        assert_eq!(words[1..], ["active."]);
        let mdt = line(point, "home", &target(r#"{"kind":"mdt","index":0,"state":"down"}"#));
        assert!(mdt.starts_with("home-MDT0000-mdc-ffff") && mdt.ends_with(" inactive."), "{mdt}");
        assert_ne!(number_of(point), number_of(Path::new("/mnt/work")));
    }

    #[test]
    fn a_word_chooses_targets_and_another_one_is_refused_in_one_line() {
        assert_eq!(
            ["osts", "mds", "servers"].map(|word| meant(word).ok()),
            [Some((false, true)), Some((true, false)), Some((true, true))]
        );
        let refused = meant("mgts").expect_err("there is none").to_string();
        assert!(refused.starts_with("lfs check mgts: ") && refused.contains("osts, mds, servers or all"));
    }
}
