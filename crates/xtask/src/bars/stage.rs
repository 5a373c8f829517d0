//! The stage of a measurement: one fully written image, a loop device with direct I/O, ext4 with journal, and on it the file systems that are
//! compared, all mounted at once.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::mount::{UnmountFlags, unmount};
use testkit::cluster::is_mounted;
use testkit::{Cluster, Shape, Wiring};

pub struct Stage {
    base: PathBuf,
    disk: LoopDisk,
    pub ext4: PathBuf,
    yardsticks: Vec<(Child, PathBuf)>,
    stria: Option<Cluster>,
}

/// One file system under test.
pub struct Side {
    pub name: &'static str,
    pub dir: PathBuf,
}

fn run(program: &str, args: &[&str]) -> Result<String> {
    let out = Command::new(program).args(args).output().with_context(|| program.to_owned())?;
    if !out.status.success() {
        bail!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&out.stderr));
    }
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// A loop device with direct I/O on a fully written image; detached on drop.
pub struct LoopDisk {
    pub device: String,
}

impl LoopDisk {
    /// Makes (or takes again) the image below `base`.
    pub fn set(base: &Path, gib: u64) -> Result<LoopDisk> {
        fs::create_dir_all(base)?;
        let image = base.join("disk.img");
        let text = image.display().to_string();
        // Discarded ranges of the device are holes of the image: the first write there would pay for allocation.
        let is_whole =
            fs::metadata(&image).is_ok_and(|m| m.len() >= gib << 30 && m.blocks() * 512 >= gib << 30);
        if !is_whole {
            println!("writing a {gib} GiB image: {text}");
            let count = format!("count={}", gib * 64);
            run(
                "dd",
                &["if=/dev/zero", &format!("of={text}"), "bs=16M", &count, "oflag=direct", "status=none"],
            )?;
        }
        let device = run("losetup", &["--direct-io=on", "--show", "-f", &text])?;
        let disk = LoopDisk { device };
        disk.forbid_discard()?;
        Ok(disk)
    }

    /// A discarded range would become a hole of the image, and the next write there would pay for its allocation.
    fn forbid_discard(&self) -> Result<()> {
        let name = self.device.trim_start_matches("/dev/");
        // Kernels before 6.17 have no switch for the second: there a punched range is written as zeros, and stays a hole.
        for limit in ["discard_max_bytes", "write_zeroes_unmap_max_bytes"] {
            let path = PathBuf::from(format!("/sys/block/{name}/queue/{limit}"));
            if path.exists() {
                fs::write(&path, "0").with_context(|| path.display().to_string())?;
            }
        }
        Ok(())
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _ = run("losetup", &["-d", &self.device]);
    }
}

impl Stage {
    /// Makes (or takes again) the image below `base` and a fresh ext4 on it.
    pub fn set(base: &Path, gib: u64) -> Result<Stage> {
        let disk = LoopDisk::set(base, gib)?;
        let ext4 = base.join("ext4");
        let stage = Stage { base: base.to_owned(), disk, ext4, yardsticks: Vec::new(), stria: None };
        run(
            "mkfs.ext4",
            &["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", &stage.disk.device],
        )?;
        fs::create_dir_all(&stage.ext4)?;
        run("mount", &[&stage.disk.device, &stage.ext4.display().to_string()])?;
        Ok(stage)
    }

    /// Starts Stria, pass-through and null, all on the ext4, and gives the four sides.
    pub fn sides(&mut self, stria: &Path, yardstick_dir: &Path) -> Result<[Side; 4]> {
        let shape = Shape { wiring: Wiring::Local, osts: 4, ost_size: "2G".into(), tls: false, etcd: vec![] };
        let cluster = Cluster::start(stria, &self.ext4.join("stria"), shape)?;
        let stria_dir = cluster.mount.clone();
        self.stria = Some(cluster);
        let source = self.ext4.join("pass-source");
        fs::create_dir_all(&source)?;
        let pass = self.yardstick(&yardstick_dir.join("passfs"), "pass", Some(&source))?;
        let null = self.yardstick(&yardstick_dir.join("nullfs"), "null", None)?;
        let plain = self.ext4.join("plain");
        fs::create_dir_all(&plain)?;
        Ok([
            Side { name: "stria", dir: stria_dir },
            Side { name: "pass-through", dir: pass },
            Side { name: "null", dir: null },
            Side { name: "ext4", dir: plain },
        ])
    }

    fn yardstick(&mut self, program: &Path, name: &str, source: Option<&Path>) -> Result<PathBuf> {
        let mnt = self.base.join(name);
        if is_mounted(&mnt) {
            unmount(&mnt, UnmountFlags::DETACH)?;
        }
        fs::create_dir_all(&mnt)?;
        let mut command = Command::new(program);
        if let Some(source) = source {
            command.arg(source);
        }
        let child =
            command.arg(&mnt).stdin(Stdio::null()).spawn().with_context(|| program.display().to_string())?;
        self.yardsticks.push((child, mnt.clone()));
        let until = Instant::now() + Duration::from_secs(10);
        while !is_mounted(&mnt) {
            if Instant::now() > until {
                bail!("{} did not mount within 10 s", program.display());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(mnt)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.stria = None;
        for (child, mnt) in &mut self.yardsticks {
            let _ = unmount(mnt.as_path(), UnmountFlags::DETACH);
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = unmount(&self.ext4, UnmountFlags::DETACH);
    }
}
