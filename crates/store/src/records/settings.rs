//! Settings of an engine, given when it is opened.

use crate::records::rewrite::LEAF_BYTES;

/// Thresholds for small writes, and memory limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Writes of fewer bytes go into the log with their bytes, if they change existing pages or parts of pages. 0: no write does.
    pub patch_bytes_max: u32,
    /// The same limit, inclusive, for writes of whole pages that do not exist yet. Such a write needs no old bytes, so a medium that
    /// acknowledges writes from memory gains nothing by the log.
    pub patch_new_bytes_max: u32,
    /// Log also writes that replace whole pages. If false, only partial-page writes are logged, since these need the old bytes. A medium
    /// that is a file in the page cache takes a page at any place for one copy, and the log would be a second one.
    pub patch_whole: bool,
    /// Memory for bytes that are in the log only. Half of the log bounds it too.
    pub overlay_bytes_max: u64,
    /// The destager's writes begin and end at multiples of this: the drive's own unit (4 KiB of common NVMe drives, 64 KiB of some QLC
    /// ones). In bytes, a power of two of at least 4 KiB. If free space is in smaller pieces, those are used. (Above 1 MiB, the alignment
    /// holds only if the data region begins at such a multiple; it begins at a whole MiB.)
    pub write_unit: u32,
    /// Memory for the index: objects used lately or changed since the last checkpoint.
    pub index_bytes_max: u64,
    /// Target size of a leaf of the index, bytes.
    pub leaf_bytes: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            patch_bytes_max: 64 << 10,
            patch_new_bytes_max: 0,
            patch_whole: true,
            overlay_bytes_max: 256 << 20,
            write_unit: 4096,
            index_bytes_max: 512 << 20,
            leaf_bytes: LEAF_BYTES,
        }
    }
}
