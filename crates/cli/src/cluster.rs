//! `D/cluster.toml`: the description of a `stria up` directory. It is written before anything else is made, and deleted last.
//!
//! cli-C1: `ready = false` until every target was formatted and registered. No target was served before that, so an interrupted first run
//! starts over. With `ready = true` a missing image is an error and never replaced by a blank one.
//! cli-C2: only files named by `files()` are ever deleted.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::exit::Failure;
use crate::shell;
use types::Size;

const FORMAT: u32 = 1;
const NAME: &str = "cluster.toml";
const TITLE: &str =
    "# Made by `stria up`: what this directory holds. It is read, and refused if edited beyond sense.\n";

/// Entries that an empty directory may have: those of a mount point, and those of an interrupted start.
const HARMLESS: [&str; 3] = ["lost+found", "run", "cluster.new"];

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    format: u32,
    pub ready: bool,
    pub fsname: String,
    pub mdts: u32,
    pub osts: u32,
    pub mdt_size: Size,
    pub ost_size: Size,
    /// The inline limit set on the root directory when it was made; `None` = the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline_max: Option<Size>,
    /// Two server processes with a member of each mirror.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pair: bool,
}

/// The content of a directory.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// The directory is missing or empty.
    Empty,
    Cluster(Cluster),
}

impl Cluster {
    pub fn new(
        fsname: String,
        osts: u32,
        mdt_size: Size,
        ost_size: Size,
        inline_max: Option<Size>,
    ) -> Cluster {
        let (format, ready, pair) = (FORMAT, false, false);
        Cluster { format, ready, fsname, mdts: 1, osts, mdt_size, ost_size, inline_max, pair }
    }

    /// Examines `dir`; refuses foreign content.
    pub fn find(dir: &Path) -> anyhow::Result<Found> {
        Cluster::find_beside(dir, None)
    }

    /// As `find`, but an empty mount point within the directory is not foreign.
    pub fn find_beside(dir: &Path, mount: Option<&Path>) -> anyhow::Result<Found> {
        match fs::read_to_string(dir.join(NAME)) {
            Ok(text) => Ok(Found::Cluster(Cluster::parse(dir, &text)?)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => check_empty(dir, mount),
            Err(e) => Err(Failure::unusable(dir.display(), e, "check the path and its permissions").into()),
        }
    }

    /// As `find`, for commands that need an existing cluster.
    pub fn existing(dir: &Path) -> anyhow::Result<Cluster> {
        match Cluster::find(dir)? {
            Found::Cluster(cluster) => Ok(cluster),
            Found::Empty => {
                let next = format!("make one with `stria up --dir {}`", shell::path(dir));
                Err(Failure::unusable(dir.display(), "there is no Stria cluster", next).into())
            }
        }
    }

    fn parse(dir: &Path, text: &str) -> Result<Cluster, Failure> {
        let refuse = |why: String| {
            Failure::unusable(
                dir.join(NAME).display(),
                why,
                "it was made by another version or edited; restore it",
            )
        };
        let cluster: Cluster = toml::from_str(text).map_err(|e| refuse(e.message().to_owned()))?;
        match cluster.format {
            FORMAT => Ok(cluster),
            other => Err(refuse(format!("format {other} is not known here, {FORMAT} is"))),
        }
    }

    /// Writes the file so that a crash leaves either the old or the new one.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let new = dir.join("cluster.new");
        let mut file = File::create(&new)?;
        let body = toml::to_string(self).map_err(io::Error::other)?;
        file.write_all([TITLE, &body].concat().as_bytes())?;
        file.sync_all()?;
        fs::rename(new, dir.join(NAME))?;
        File::open(dir)?.sync_all()
    }

    pub fn mdt_image(&self, dir: &Path, index: u32) -> PathBuf {
        dir.join(format!("mdt{index:04x}.img"))
    }
    pub fn ost_image(&self, dir: &Path, index: u32) -> PathBuf {
        dir.join(format!("ost{index:04x}.img"))
    }

    /// The image of a server's member of a mirror, in a pair.
    pub fn member_image(&self, dir: &Path, is_mdt: bool, index: u32, server: u32) -> PathBuf {
        let first = if is_mdt { self.mdt_image(dir, index) } else { self.ost_image(dir, index) };
        match server {
            0 => first,
            _ => first.with_extension(format!("{server}.img")),
        }
    }

    /// Images in target order, MDTs first, with their sizes. In a pair those of the second server come last.
    pub fn images_with_sizes(&self, dir: &Path) -> Vec<(PathBuf, u64)> {
        let of = |server| {
            let mdts =
                (0..self.mdts).map(move |i| (self.member_image(dir, true, i, server), self.mdt_size.0));
            mdts.chain(
                (0..self.osts).map(move |i| (self.member_image(dir, false, i, server), self.ost_size.0)),
            )
        };
        (0..self.servers()).flat_map(of).collect()
    }

    fn servers(&self) -> u32 {
        if self.pair { 2 } else { 1 }
    }

    /// The images of `images_with_sizes`.
    pub fn images(&self, dir: &Path) -> Vec<PathBuf> {
        self.images_with_sizes(dir).into_iter().map(|(image, _)| image).collect()
    }

    /// Directory of the management service's map.
    pub fn mgs_dir(dir: &Path) -> PathBuf {
        dir.join("mgs")
    }

    /// Most bytes that the targets may take on the disk below.
    pub fn bytes_promised(&self) -> u64 {
        let (mdts, osts) = (self.mdts as u64, self.osts as u64);
        let of_one =
            mdts.saturating_mul(self.mdt_size.0).saturating_add(osts.saturating_mul(self.ost_size.0));
        of_one.saturating_mul(if self.pair { 2 } else { 1 })
    }

    /// Images that are missing. The second list has those of a pair whose content the other server has.
    pub fn missing(&self, dir: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let mdts = (0..self.mdts).map(|index| (true, index));
        let targets = mdts.chain((0..self.osts).map(|index| (false, index)));
        let (mut lost, mut doubled) = (Vec::new(), Vec::new());
        for (is_mdt, index) in targets {
            let members = (0..self.servers()).map(|server| self.member_image(dir, is_mdt, index, server));
            let (there, away): (Vec<_>, Vec<_>) = members.partition(|image| image.exists());
            if there.is_empty() { &mut lost } else { &mut doubled }.extend(away);
        }
        (lost, doubled)
    }

    /// All files of Stria in `dir`, except those under `run`. The file that marks the directory as Stria's comes last.
    pub fn files(&self, dir: &Path) -> Vec<PathBuf> {
        let mut files = self.images(dir);
        files.extend([dir.join("cluster.new"), dir.join(NAME)]);
        files
    }
}

fn check_empty(dir: &Path, mount: Option<&Path>) -> anyhow::Result<Found> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Found::Empty),
        Err(e) => {
            return Err(Failure::unusable(dir.display(), e, "check the path and its permissions").into());
        }
        Ok(entries) => entries,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let leads_to_mount = mount.is_some_and(|mount| is_only_way(&entry.path(), mount));
        if !leads_to_mount && !HARMLESS.iter().any(|h| *h == name) {
            let why =
                format!("it is not empty and not a Stria cluster (there is {})", name.to_string_lossy());
            return Err(Failure::unusable(dir.display(), why, "give a new or empty directory").into());
        }
    }
    Ok(Found::Empty)
}

/// Whether the directory holds only the way to the mount point, and the mount point is empty.
fn is_only_way(path: &Path, mount: &Path) -> bool {
    let Ok(entries) = fs::read_dir(path) else { return false };
    mount.starts_with(path) && entries.flatten().all(|below| is_only_way(&below.path(), mount))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;

    fn cluster() -> Cluster {
        Cluster::new("demo".into(), 4, Size(8 << 30), Size(2 << 30), None)
    }

    #[test]
    fn what_is_written_is_found_again() {
        let dir = TestDir::new("cluster-found");
        assert_eq!(Cluster::find(dir.path()).unwrap(), Found::Empty);
        cluster().write(dir.path()).unwrap();
        assert_eq!(Cluster::find(dir.path()).unwrap(), Found::Cluster(cluster()));
        assert_eq!(Cluster::find(&dir.path().join("not/there")).unwrap(), Found::Empty);
    }

    #[test]
    fn an_image_of_a_pair_is_lost_only_with_its_other_member() {
        let dir = TestDir::new("cluster-missing");
        let pair = Cluster { pair: true, ..cluster() };
        pair.images(dir.path()).iter().for_each(|image| fs::write(image, "x").unwrap());
        assert_eq!(pair.missing(dir.path()), (vec![], vec![]));
        let [first, second] = [0, 1].map(|server| pair.member_image(dir.path(), false, 2, server));
        fs::remove_file(&first).unwrap();
        assert_eq!(pair.missing(dir.path()), (vec![], vec![first.clone()]));
        fs::remove_file(&second).unwrap();
        assert_eq!(pair.missing(dir.path()), (vec![first, second.clone()], vec![]));
        let alone = cluster();
        assert_eq!(alone.missing(dir.path()), (vec![alone.ost_image(dir.path(), 2)], vec![]));
    }

    #[test]
    fn foreign_content_is_refused_and_an_interrupted_start_is_not() {
        let dir = TestDir::new("cluster-foreign");
        fs::create_dir(dir.path().join("run")).unwrap();
        fs::create_dir(dir.path().join("lost+found")).unwrap();
        assert_eq!(Cluster::find(dir.path()).unwrap(), Found::Empty);
        fs::write(dir.path().join("thesis.tex"), "x").unwrap();
        let refused = Cluster::find(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("thesis.tex") && refused.contains("new or empty"), "{refused}");
    }

    #[test]
    fn an_empty_mount_point_within_the_directory_is_not_foreign() {
        let dir = TestDir::new("cluster-mount");
        let mount = dir.path().join("a/mnt");
        fs::create_dir_all(&mount).unwrap();
        assert!(Cluster::find(dir.path()).is_err());
        assert_eq!(Cluster::find_beside(dir.path(), Some(&mount)).unwrap(), Found::Empty);
        assert!(Cluster::find_beside(dir.path(), Some(Path::new("/mnt"))).is_err());
        fs::write(dir.path().join("a/notes.txt"), "mine").unwrap();
        assert!(Cluster::find_beside(dir.path(), Some(&mount)).is_err());
    }

    #[test]
    fn an_unknown_key_or_format_is_refused() {
        let dir = TestDir::new("cluster-unknown");
        let mut later = cluster();
        later.format = 9;
        later.write(dir.path()).unwrap();
        assert!(Cluster::find(dir.path()).unwrap_err().to_string().contains("format 9"));
        fs::write(dir.path().join(NAME), "format = 1\nraid = 6\n").unwrap();
        assert!(Cluster::existing(dir.path()).unwrap_err().to_string().contains("raid"));
    }

    #[test]
    fn only_our_files_are_named_and_the_proof_comes_last() {
        let files = cluster().files(Path::new("/d"));
        assert_eq!(files[0], Path::new("/d/mdt0000.img"));
        assert_eq!(files[4], Path::new("/d/ost0003.img"));
        assert_eq!(files.last().unwrap(), Path::new("/d/cluster.toml"));
        assert_eq!(cluster().bytes_promised(), 16 << 30);
    }
}
