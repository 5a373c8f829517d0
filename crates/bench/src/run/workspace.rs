//! The directories of a run: one of ours in each of the measured ones.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::crew::Root;

/// Directories of ours inside the measured ones, which go with all that is in them.
pub struct Workspace {
    /// By file system.
    pub dirs: Vec<PathBuf>,
    /// The measured directories, for hosts that have them under other names.
    pub roots: Vec<Root>,
}

impl Workspace {
    pub fn new(dirs: &[Root]) -> Result<Workspace> {
        let mut workspace = Workspace { dirs: Vec::new(), roots: Vec::new() };
        for Root { here, on_hosts } in dirs {
            let here = here.canonicalize().with_context(|| here.display().to_string())?;
            let path = here.join(format!("stria-bench.{}", std::process::id()));
            std::fs::create_dir(&path).with_context(|| format!("making {}", path.display()))?;
            workspace.dirs.push(path);
            workspace.roots.push(Root { here, on_hosts: on_hosts.clone() });
        }
        Ok(workspace)
    }

    /// Makes a directory of this name on each of the first `count` file systems.
    pub fn make(&self, name: &str, count: u32) -> Result<Vec<PathBuf>> {
        let make = |dir: &PathBuf| {
            let path = dir.join(name);
            make(&path)?;
            Ok(path)
        };
        self.dirs.iter().take(count as usize).map(make).collect()
    }
}

/// Makes a directory and those above it.
pub fn make(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).with_context(|| format!("making {}", path.display()))
}

/// Removes directories with all that is in them. The first error is told when all were tried.
pub fn remove(dirs: &[PathBuf]) -> Result<()> {
    let remove =
        |dir: &PathBuf| std::fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()));
    dirs.iter().map(remove).fold(Ok(()), Result::and)
}

impl Drop for Workspace {
    fn drop(&mut self) {
        for dir in &self.dirs {
            if let Err(error) = std::fs::remove_dir_all(dir) {
                eprintln!("stria bench: {} is left behind: {error}", dir.display());
            }
        }
    }
}
