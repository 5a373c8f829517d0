//! Trees copied and packed by cp, rsync and tar: the copies are equal.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use testkit::Rng;

use super::super::sys::*;
use super::super::{Bench, Needs, Test};

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Shared, ("programs::cp_and_rsync_of_a_tree", copy_a_tree)),
    (Needs::Shared, ("programs::tar", tar)),
    (Needs::Shared, ("programs::rsync_hard_links_acls_xattrs", rsync_all)),
    (Needs::Shared, ("programs::tar_xattrs_acls", tar_all)),
];

/// A tree like a source tree: many small files, some larger, symlinks, hard links, modes. Kept between tests of one run.
pub fn source_tree(parent: &Path, files: usize, seed: u64) -> Result<PathBuf> {
    let root = parent.join(format!("tree-{files}-{seed}"));
    if root.exists() {
        return Ok(root);
    }
    let mut rng = Rng::new(seed);
    for n in 0..files {
        let dir = root.join(format!("d{}/e{}", n / 500, n / 50 % 10));
        if n % 50 == 0 {
            fs::create_dir_all(&dir)?;
        }
        let size = match rng.below(100) {
            0..10 => 0,
            10..70 => rng.below(6_000),
            70..97 => rng.below(60_000),
            97..99 => rng.below(300_000),
            _ => rng.below(1_500_000),
        };
        let mut data = vec![0u8; size as usize];
        rng.fill(&mut data);
        fs::write(dir.join(format!("file{n}.c")), &data)?;
        if n % 100 == 7 {
            std::os::unix::fs::symlink(format!("file{n}.c"), dir.join(format!("link{n}")))?;
        }
    }
    Ok(root)
}

pub fn tree(b: &Bench) -> Result<PathBuf> {
    source_tree(&b.cluster.dir.join("source"), b.scale.tree_files, b.seed)
}

fn copy_a_tree(b: &mut Bench) -> Result<()> {
    let source = tree(b)?;
    let dir = b.dir("copies")?;
    let want = tree_digest(&source)?;
    run("cp", &["-a", &source.display().to_string(), "cp"], &dir)?;
    ensure_eq(tree_digest(&dir.join("cp"))? == want, true, "cp -a: the copy equals the source")?;
    let from = format!("{}/", source.display());
    run("rsync", &["-a", &from, "rsync/"], &dir)?;
    let again = run("rsync", &["-acin", "--delete", &from, "rsync/"], &dir)?;
    if !again.trim().is_empty() {
        bail!("rsync -c finds differences: {again}");
    }
    b.cluster.restart()?;
    ensure_eq(tree_digest(&dir.join("cp"))? == want, true, "cp -a: the copy after a restart")?;
    run("rm", &["-rf", "cp", "rsync"], &dir)?;
    Ok(())
}

fn tar(b: &mut Bench) -> Result<()> {
    let source = tree(b)?;
    let dir = b.dir("tar")?;
    run("tar", &["-cf", &dir.join("t.tar").display().to_string(), "."], &source)?;
    fs::create_dir(dir.join("x"))?;
    run("tar", &["-xf", "../t.tar"], &dir.join("x"))?;
    run("tar", &["-df", "../t.tar"], &dir.join("x"))?;
    ensure_eq(
        tree_digest(&dir.join("x"))? == tree_digest(&source)?,
        true,
        "the tree from the archive equals the source",
    )?;
    Ok(fs::remove_dir_all(dir)?)
}

/// A tree in which everything that has attributes has some: hard links over directories, xattrs, ACLs with masks, a default
/// ACL, owners, set-id bits, times before 1970 and to the nanosecond, a fifo, names that are no text, a sparse file.
fn rich_tree(root: &Path) -> Result<()> {
    fs::create_dir_all(root.join("a/b"))?;
    for n in 0..40 {
        let path = root.join(format!("a/f{n}"));
        fs::write(&path, format!("file {n}\n").repeat(n * 400))?;
        if n % 3 == 0 {
            fs::hard_link(&path, root.join(format!("a/b/link{n}")))?;
        }
        for (name, size) in [("user.small", 3 + n), ("user.large", n * 40)] {
            set_xattr(&path, name, &vec![n as u8; size], rustix::fs::XattrFlags::empty())?;
        }
        std::os::unix::fs::chown(&path, Some(1000 + n as u32 % 3), Some(2000))?;
    }
    let script = "setfacl -m u:1001:rw,g:2001:r,m::r a/f1; setfacl -m u:1001:rwx a/f2; setfacl -m d:u:1001:rx,u:1002:rwx a/b; \
        chmod 6755 a/f3; chmod 1777 a; touch -d '1965-01-02 03:04:05.123456789' a/f4; touch -d '2040-01-01' a/b; mkfifo a/fifo; \
        ln -s ../nowhere a/dangling; printf x > \"$(printf 'a/\\377\\001name')\"; truncate -s 5M a/sparse; \
        printf end >> a/sparse; setfattr -n user.dir -v yes a/b; touch -h -d '2001-01-01' a/dangling";
    run("sh", &["-ec", script], root).map(drop)
}

/// The output of getfacl and getfattr for a tree, by name.
fn attributes(root: &Path) -> Result<String> {
    run(
        "sh",
        &[
            "-ec",
            "find . ! -type l -print0 | sort -z | xargs -0 getfacl -np; find . ! -type l -print0 | sort -z | xargs -0 getfattr -h -d -m ^user",
        ],
        root,
    )
}

fn rsync_all(b: &mut Bench) -> Result<()> {
    let (source, dir) = (b.cluster.dir.join("rich-rsync"), b.dir("rsync-all")?);
    rich_tree(&source)?;
    let again = |from: &Path, to: &Path| {
        let (from, to) = (format!("{}/", from.display()), format!("{}/", to.display()));
        run("rsync", &["-aHAX", "--sparse", &from, &to], &dir)?;
        let differ = run("rsync", &["-aHAXcin", "--delete", &from, &to], &dir)?;
        ensure_eq(differ.trim(), "", "what a second rsync -aHAXc finds to do")
    };
    // There, within the mount, and back.
    again(&source, &dir.join("one"))?;
    again(&dir.join("one"), &dir.join("two"))?;
    let back = b.cluster.dir.join("rich-back");
    again(&dir.join("two"), &back)?;
    ensure_eq(attributes(&back)?, attributes(&source)?, "ACLs and attributes after the way there and back")?;
    ensure_eq(tree_digest(&back)? == tree_digest(&source)?, true, "content after the way there and back")?;
    Ok(fs::remove_dir_all(dir)?)
}

fn tar_all(b: &mut Bench) -> Result<()> {
    let (source, dir) = (b.cluster.dir.join("rich-tar"), b.dir("tar-all")?);
    rich_tree(&source)?;
    let how = ["--xattrs", "--xattrs-include=user.*", "--acls", "--numeric-owner", "--sparse"];
    let pack = |archive: &Path, tree: &Path| {
        run("tar", &[&["-cf", &archive.display().to_string()], &how[..], &["."]].concat(), tree)
    };
    let unpack = |archive: &Path, tree: &Path| {
        fs::create_dir(tree)?;
        run("tar", &[&["-xpf", &archive.display().to_string()], &how[..]].concat(), tree)?;
        run("tar", &["-df", &archive.display().to_string()], tree)
    };
    pack(&dir.join("1.tar"), &source)?;
    unpack(&dir.join("1.tar"), &dir.join("x"))?;
    ensure_eq(
        attributes(&dir.join("x"))?,
        attributes(&source)?,
        "ACLs and attributes of what tar unpacked on the mount",
    )?;
    pack(&dir.join("2.tar"), &dir.join("x"))?;
    let back = b.cluster.dir.join("rich-untar");
    unpack(&dir.join("2.tar"), &back)?;
    ensure_eq(attributes(&back)?, attributes(&source)?, "ACLs and attributes after the way there and back")?;
    ensure_eq(tree_digest(&back)? == tree_digest(&source)?, true, "content after the way there and back")?;
    Ok(fs::remove_dir_all(dir)?)
}
