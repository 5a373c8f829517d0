//! File handles (`name_to_handle_at`, `open_by_handle_at`), by which file servers over a mount identify files.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use testkit::{Role, Wiring};

use super::programs::script;
use super::sys::*;
use super::{Bench, Needs, Test};

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Shared, ("handles::find_what_the_kernel_forgot", forgotten)),
    (Needs::Shared, ("handles::of_removed_and_of_foreign_files_are_stale", stale)),
    (Needs::Only(Wiring::Local), ("handles::outlive_restarts_of_all", restarts)),
    (Needs::Only(Wiring::Tcp), ("handles::outlive_a_remount_and_a_killed_mds", remount)),
];

fn handles(arguments: &[&str]) -> Result<Vec<String>> {
    let mut command = Command::new("python3");
    let out = command.arg(script("handles.py")?).args(arguments).output().context("python3 (installed?)")?;
    if !out.status.success() {
        bail!("handles.py: {}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    }
    Ok(String::from_utf8(out.stdout)?.lines().map(str::to_owned).collect())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

pub fn take(paths: &[&Path]) -> Result<Vec<String>> {
    let paths: Vec<String> = paths.iter().map(|p| text(p)).collect();
    let words: Vec<&str> = ["take"].into_iter().chain(paths.iter().map(String::as_str)).collect();
    handles(&words)
}

/// The result of opening each handle on the file system at `mount`.
pub fn open(mount: &Path, taken: &[String]) -> Result<Vec<String>> {
    let mount = text(mount);
    let words: Vec<&str> = ["open", &mount].into_iter().chain(taken.iter().map(String::as_str)).collect();
    handles(&words)
}

/// Twice: the first time takes marks of recent use away.
fn drop_caches() -> Result<()> {
    (0..2).try_for_each(|_| fs::write("/proc/sys/vm/drop_caches", "2").context("drop_caches"))
}

/// A file, one of two names in a deep directory, that directory, the root; and what their handles must show.
struct Tree {
    mount: PathBuf,
    taken: Vec<String>,
    want: Vec<String>,
}

impl Tree {
    fn make(b: &Bench, name: &str) -> Result<Tree> {
        let dir = b.dir(name)?;
        let deep = dir.join("a/b/c");
        fs::create_dir_all(&deep)?;
        fs::write(dir.join("file"), "of the file")?;
        fs::write(deep.join("two"), "of two names")?;
        fs::hard_link(deep.join("two"), dir.join("names"))?;
        let mount = b.cluster.mount.clone();
        let taken = take(&[&dir.join("file"), &deep.join("two"), &deep, &mount])?;
        // The files are renamed before their handles are used.
        fs::rename(dir.join("file"), dir.join("a/renamed"))?;
        fs::rename(dir.join("a/b"), dir.join("moved"))?;
        fs::remove_file(dir.join("moved/c/two"))?;
        fs::write(dir.join("moved/c/new"), "")?;
        let want = vec![
            "of the file".into(),
            "of two names".into(),
            format!("{} new", text(&dir.join("moved/c"))),
            text(&mount),
        ];
        Ok(Tree { mount, taken, want })
    }

    /// At `mount`, which shows the same file system.
    fn check_at(&self, mount: &Path, when: &str) -> Result<()> {
        let mut got = open(mount, &self.taken)?;
        // The root's names are whatever other tests have left.
        if let Some(root) = got.last_mut() {
            *root = root.split(' ').next().unwrap_or_default().to_owned();
        }
        let here = |line: &String| line.replace(&text(&self.mount), &text(mount));
        ensure_eq(got, self.want.iter().map(here).collect(), when)
    }

    fn check(&self, when: &str) -> Result<()> {
        self.check_at(&self.mount, when)
    }
}

/// [S-handles] A file is found by its handle whatever became of its name, also when the kernel knows nothing of it any more, and at
/// another mount.
fn forgotten(b: &mut Bench) -> Result<()> {
    let tree = Tree::make(b, "forgotten")?;
    tree.check("at once")?;
    drop_caches()?;
    tree.check("after the caches were dropped")?;
    let other = b.look(&tree.mount.join("forgotten"));
    tree.check_at(other.parent().context("a mount")?, "at the other mount")
}

/// [S-handles] A removed file's handle is ESTALE, also after its name is created again; while the file is open, its handle works.
/// Another generation belongs to another file system.
fn stale(b: &mut Bench) -> Result<()> {
    let dir = b.dir("stale")?;
    let (file, held, sub) = (dir.join("file"), dir.join("held"), dir.join("sub"));
    for path in [&file, &held] {
        fs::write(path, "old")?;
    }
    fs::create_dir(&sub)?;
    let mut taken = take(&[&file, &held, &sub])?;
    let descriptor = File::open(&held)?;
    fs::remove_file(&file)?;
    fs::remove_file(&held)?;
    fs::remove_dir(&sub)?;
    fs::write(&file, "new")?;
    fs::create_dir(&sub)?;
    let is = |wants: [&str; 3]| wants.map(str::to_owned).to_vec();
    drop_caches()?;
    ensure_eq(open(&dir, &taken)?, is(["ESTALE", "old", "ESTALE"]), "removed, one of them open")?;
    drop(descriptor);
    ensure_eq(open(&b.look(&dir), &taken)?, is(["ESTALE"; 3]), "removed and closed, at the other mount")?;

    // Length and type, number in two words, generation.
    taken = take(&[&file, &sub, &b.cluster.mount])?;
    for handle in &mut taken {
        let last = handle.pop().context("a handle")?;
        handle.push(if last == '0' { '1' } else { '0' });
    }
    ensure_eq(open(&dir, &taken)?, is(["ESTALE"; 3]), "of another generation")?;
    drop_caches()?;
    ensure_eq(open(&dir, &taken)?, is(["ESTALE"; 3]), "of another generation, when nothing is cached")
}

/// [S-handles] Over a stop and start, and over a kill.
fn restarts(b: &mut Bench) -> Result<()> {
    let tree = Tree::make(b, "restarts")?;
    b.cluster.restart()?;
    tree.check("after a restart")?;
    b.cluster.kill_all_and_start()?;
    tree.check("after a kill")
}

/// [S-handles] Over a mount that goes and comes, and an MDS that is killed.
fn remount(b: &mut Bench) -> Result<()> {
    let tree = Tree::make(b, "remount")?;
    b.cluster.terminate(Role::Mount, Duration::from_secs(20))?;
    b.cluster.start_role(Role::Mount)?;
    b.cluster.wait_mounted()?;
    tree.check("after a remount")?;
    b.cluster.kill(Role::Mds)?;
    b.cluster.start_role(Role::Mds)?;
    drop_caches()?;
    tree.check("after the MDS was killed")
}
