//! `mount -o remount,…`: new flags for an existing mount. The kernel keeps them, and the mount's process follows the mount table.

use std::path::Path;

use mgmt::params::{Kind, Param};

use crate::exit::{Exit, Failure};
use crate::mounts::FS_TYPE;
use crate::options::Options;
use crate::shell;

const WORD: &str = "remount";

/// Whether `remount` is among the values of `-o`.
pub fn is_asked(lists: &[String]) -> bool {
    words(lists).any(|word| word == WORD)
}

/// How to treat flags that are not named.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unnamed {
    Stay,
    /// mount(8) itself adds the flags that are to stay, and omits options that mean an unset flag.
    Go,
}

/// Other options must agree with the mount: mount(8) repeats those of the mount table and of fstab.
pub fn run(point: &Path, lists: &[String], others: Unnamed) -> anyhow::Result<Exit> {
    let point = super::absolute(point)?;
    let what = format!("remount {}", point.display());
    let present = fuse::present(&point).map_err(|e| Failure::failed(&what, e, "try again"))?;
    let Some(present) = present.filter(|mount| mount.fs_type == FS_TYPE) else {
        let next = "give the mount point; findmnt -t fuse.stria lists them";
        return Err(Failure::unusable(what, "no file system of Stria is mounted there", next).into());
    };
    let mut options = Options::new();
    if others == Unnamed::Stay {
        options.flags = present.flags;
    }
    let is_new = |word: &&str| *word != WORD && !present.words.iter().any(|known| known == word);
    let new: Vec<String> = words(lists).filter(is_new).map(str::to_owned).collect();
    options.apply_all(&new)?;
    let has_others = present.words.iter().any(|word| word == "allow_other");
    if options.allow_other.is_some_and(|others| others != has_others) || options.max_read.is_some() {
        let why = "allow_other and max_read do not change while it is mounted";
        return Err(Failure::unusable(what, why, "unmount it, and mount it with them").into());
    }
    // mount(8) repeats the times of fstab, which stay as they are.
    let is_time = |param: Param| matches!(param.def().kind, Kind::Time);
    if let Some((param, _)) = options.given().iter().find(|(param, _)| !is_time(*param)) {
        let name = param.def().name;
        let why = format!("{} is a parameter of the mount", name.trim_start_matches("mount."));
        let next = format!("`stria set-param {name}=VALUE --mount {}` changes it", shell::path(&point));
        return Err(Failure::unusable(what, why, next).into());
    }
    fuse::remount(&point, options.flags).map_err(|e| Failure::failed(what, e, "only root may"))?;
    Ok(Exit::Done)
}

fn words(lists: &[String]) -> impl Iterator<Item = &str> {
    lists.iter().flat_map(|list| list.split(','))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_found_wherever_it_stands() {
        let lists = |words: &[&str]| words.iter().map(|w| w.to_string()).collect::<Vec<_>>();
        assert!(is_asked(&lists(&["ro,remount"])));
        assert!(is_asked(&lists(&["nosuid", "remount,rw"])));
        assert!(!is_asked(&lists(&["ro,x-remount"])));
        assert!(!is_asked(&[]));
    }

    #[test]
    fn what_is_no_mount_of_ours_is_named() {
        for point in ["/", "/no such mount point"] {
            let said =
                run(Path::new(point), &["remount,ro".to_owned()], Unnamed::Stay).unwrap_err().to_string();
            assert!(said.contains("no file system of Stria is mounted there"), "{said}");
        }
    }
}
