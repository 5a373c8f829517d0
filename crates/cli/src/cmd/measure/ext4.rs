//! An ext4 on the device, to compare with the kernel's own file system. Needs root and mkfs.ext4.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

/// A mounted ext4; dropping it unmounts it.
pub struct Ext4 {
    pub dir: PathBuf,
}

impl Ext4 {
    /// Makes it with room for `inodes`, or as many as mkfs chooses. No lazy initialisation runs beside the measurement.
    pub fn make(device: &Path, inodes: Option<u64>) -> anyhow::Result<Ext4> {
        let device = device.display().to_string();
        let lazy = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
        let inodes = inodes.map(|n| ["-N".to_owned(), n.to_string()]);
        let words = ["-q", "-F", "-E", lazy].into_iter();
        let words = words.chain(inodes.iter().flatten().map(String::as_str)).chain([device.as_str()]);
        tool("mkfs.ext4", &words.collect::<Vec<_>>())?;
        let dir = std::env::temp_dir().join(format!("stria-bench-ext4-{}", std::process::id()));
        std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        // From here on, dropping `fs` removes it in any case.
        let fs = Ext4 { dir };
        tool("mount", &[&device, &fs.dir.display().to_string()])?;
        Ok(fs)
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let dir = self.dir.display().to_string();
        if let Err(error) = tool("umount", &[&dir]) {
            eprintln!("stria: {error:#}; see that {dir} is not mounted");
        }
        let _ = std::fs::remove_dir(&self.dir);
    }
}

fn tool(program: &str, args: &[&str]) -> anyhow::Result<()> {
    let out =
        Command::new(program).args(args).stdin(Stdio::null()).output().with_context(|| program.to_owned())?;
    ensure!(out.status.success(), "{program}: {}", String::from_utf8_lossy(&out.stderr).trim());
    Ok(())
}
