//! The ext4 to compare with: a new one on a loop device.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;

pub struct Reference {
    pub dir: PathBuf,
    mounted: bool,
}

impl Reference {
    pub fn new(parent: &Path) -> Result<Reference> {
        let (dir, image) = (parent.join("reference"), parent.join("reference.img"));
        fs::create_dir(&dir)?;
        File::create(&image)?.set_len(1 << 30)?;
        let quiet = |program: &str, args: &[&str]| {
            let mut command = Command::new(program);
            let run =
                command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
            run.is_ok_and(|s| s.success())
        };
        let (image, mount) = (image.display().to_string(), dir.display().to_string());
        // Reads change no atime on Stria; 256-byte inodes keep nanoseconds.
        let mounted = quiet("mkfs.ext4", &["-q", "-F", "-I", "256", "-O", "^has_journal", &image])
            && quiet("mount", &["-o", "loop,noatime", "-t", "ext4", &image, &mount]);
        Ok(Reference { dir, mounted })
    }

    /// False: none can be had here.
    pub fn is_ext4(&self) -> bool {
        self.mounted
    }

    /// Two changes of which one is looked at in between have different times (kernels from 6.13 on see to that).
    pub fn tells_times(&self) -> Result<bool> {
        let path = self.dir.join("times");
        let file = File::create(&path)?;
        let mut seen = Vec::new();
        for n in 0..20 {
            file.set_permissions(fs::Permissions::from_mode(0o600 + n % 2))?;
            let meta = file.metadata()?;
            seen.push((meta.ctime(), meta.ctime_nsec()));
        }
        fs::remove_file(path)?;
        seen.dedup();
        Ok(seen.len() == 20)
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        if self.mounted {
            let _ = rustix::mount::unmount(&self.dir, rustix::mount::UnmountFlags::DETACH);
        }
        let _ = fs::remove_dir_all(&self.dir);
        let _ = fs::remove_file(self.dir.with_extension("img"));
    }
}
