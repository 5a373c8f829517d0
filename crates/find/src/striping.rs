//! The striping of a file, as its mount tells it.

use std::io;
use std::path::Path;

use rustix::io::Errno;
use serde::Deserialize;

/// The attribute of files and directories of which the value is JSON.
const ATTRIBUTE: &str = "stria.layout.json";
/// The largest value of an attribute (`XATTR_SIZE_MAX`).
const VALUE_MAX: usize = 64 * 1024;

/// The layout of one file or directory, as its mount tells it.
#[derive(Clone, Debug, Deserialize)]
pub struct Striping {
    pub fid: String,
    pub is_dir: bool,
    pub inline_max: u32,
    /// OSTs of the file system.
    pub osts: u32,
    /// The options of `setstripe`; none: the default.
    pub set: Option<String>,
    /// Of the layout; none: there are no objects.
    pub generation: Option<u32>,
    pub components: Vec<Part>,
}

/// One component of a layout.
#[derive(Clone, Debug, Deserialize)]
pub struct Part {
    pub start: u64,
    /// None: the end of the file.
    pub end: Option<u64>,
    /// -1: all OSTs.
    pub stripe_count: i32,
    pub stripe_size: u32,
    /// -1: any. None: the OST was removed.
    pub stripe_index: Option<i64>,
    /// OST, object, whether it has content.
    pub objects: Vec<(Option<u32>, String, bool)>,
}

impl Striping {
    /// None: it is on no Stria file system, or on one whose mount is of an older version.
    pub fn of(path: &Path) -> io::Result<Option<Striping>> {
        let mut value = vec![0; VALUE_MAX];
        let len = match rustix::fs::lgetxattr(path, ATTRIBUTE, &mut value[..]) {
            Ok(len) => len,
            Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
            Err(other) => return Err(other.into()),
        };
        serde_json::from_slice(&value[..len]).map(Some).map_err(io::Error::from)
    }

    /// The last component with content, or the first.
    pub fn part_in_use(&self) -> Option<&Part> {
        let has_content = |part: &&Part| part.objects.iter().any(|(_, _, written)| *written);
        self.components.iter().rev().find(has_content).or(self.components.first())
    }

    /// The stripes of the part in use; all OSTs count as so many.
    pub fn count(&self) -> u32 {
        let count = self.part_in_use().map_or(0, |part| part.stripe_count);
        u32::try_from(count).unwrap_or(self.osts)
    }

    /// True if the content is in the MDT.
    pub fn is_inline(&self) -> bool {
        !self.is_dir && self.generation.is_none()
    }

    /// Indexes of the OSTs that have an object of it.
    pub fn osts_in_use(&self) -> impl Iterator<Item = u32> {
        self.components.iter().flat_map(|part| part.objects.iter().filter_map(|(ost, _, _)| *ost))
    }
}
