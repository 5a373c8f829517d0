//! A whole tree as text, which must be equal in the end.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{self as sys, AtFlags, CWD, FileType, Mode, OFlags};

use super::act;

/// Path → kind, mode, links, owner, size, mtime if a call set it, content, target, attributes, and the first name of the same inode.
pub fn tree(root: &Path) -> Result<BTreeMap<String, String>> {
    let mut out = BTreeMap::new();
    let mut first_name_of: BTreeMap<u64, String> = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(path) = todo.pop() {
        let key = path.strip_prefix(root)?.display().to_string();
        let stat = sys::statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW).with_context(|| key.clone())?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let mut text = act::shown(&stat);
        if kind != FileType::Fifo {
            text += &format!(" mtime {}", act::time_shown(stat.st_mtime, stat.st_mtime_nsec as i64));
        }
        match kind {
            FileType::Directory => {
                let mut below: Vec<_> = std::fs::read_dir(&path)?.collect::<std::io::Result<_>>()?;
                // The last is taken first, so that first names of inodes do not depend on the order of a listing.
                below.sort_by_key(|e| std::cmp::Reverse(e.file_name()));
                todo.extend(below.into_iter().map(|e| e.path()));
            }
            FileType::RegularFile => {
                let bytes = std::fs::read(&path).with_context(|| key.clone())?;
                text += &format!(" {}", act::content(&bytes));
            }
            FileType::Symlink => text += &format!(" to {}", std::fs::read_link(&path)?.display()),
            _ => {}
        }
        let path_text = path.to_str().context("names of this test are text")?;
        for name in act::xattr_names(path_text, true).with_context(|| key.clone())? {
            let mut value = vec![0; 70_000];
            let n = sys::lgetxattr(&path, name.as_str(), &mut value[..])
                .with_context(|| format!("{key}: {name}"))?;
            text += &format!(" {name}={}", act::content(&value[..n]));
        }
        let twin = first_name_of.entry(stat.st_ino).or_insert_with(|| key.clone());
        text += &format!(" same as /{twin}");
        out.insert(key, text);
    }
    Ok(out)
}

/// Takes `chattr` flags away that would keep files and directories from being removed.
pub fn make_mutable(root: &Path) -> Result<()> {
    let mut todo = vec![root.to_owned()];
    while let Some(path) = todo.pop() {
        let stat = sys::statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if !matches!(kind, FileType::RegularFile | FileType::Directory) {
            continue;
        }
        let fd = sys::open(&path, OFlags::RDONLY, Mode::empty())?;
        let flags = sys::ioctl_getflags(&fd)?;
        if flags.contains(sys::IFlags::IMMUTABLE) {
            sys::ioctl_setflags(&fd, flags.difference(sys::IFlags::IMMUTABLE))?;
        }
        if kind == FileType::Directory {
            for entry in std::fs::read_dir(&path)? {
                todo.push(entry?.path());
            }
        }
    }
    Ok(())
}

/// The first difference of two trees.
pub fn difference(ours: &BTreeMap<String, String>, reference: &BTreeMap<String, String>) -> Option<String> {
    let names = ours.keys().chain(reference.keys());
    let differs = names.min_by_key(|n| (ours.get(*n) == reference.get(*n), (*n).clone()))?;
    let (got, want) = (ours.get(differs), reference.get(differs));
    let absent = "is not there".to_owned();
    (got != want).then(|| {
        format!("/{differs}: {}\n         ext4: {}", got.unwrap_or(&absent), want.unwrap_or(&absent))
    })
}
