//! What an engine is told when it is opened.

use crate::records::rewrite::LEAF_BYTES;

/// How the engine treats small writes, and what memory it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Writes of fewer bytes go into the log with their bytes, if they change pages that are there or parts of pages; 0: none does.
    pub patch_bytes_max: u32,
    /// The same of writes of whole pages where none is yet. Such a write needs no old bytes, so that a medium whose writes return from
    /// memory gains nothing by it.
    pub patch_new_bytes_max: u32,
    /// Also writes of whole pages that replace others; if not, only those of parts of pages, which need the old bytes. A file in the page
    /// cache takes a page wherever it goes for the price of a copy, and the log would be a second one.
    pub patch_whole: bool,
    /// Of memory for bytes that are in the log only. Half of the log bounds it too.
    pub overlay_bytes_max: u64,
    /// What a destager writes begins and ends at multiples of this: the drive's own unit (4 KiB of common NVMe drives, 64 KiB of some
    /// QLC ones), bytes, a power of two of at least 4 KiB. Where free space is in smaller pieces, those are used. (Above 1 MiB it is so only
    /// if the data region begins at such a multiple; it begins at a whole MiB.)
    pub write_unit: u32,
    /// Of memory for the index: objects that were used lately or changed since the last checkpoint.
    pub index_bytes_max: u64,
    /// Bytes of a leaf of the index, about.
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
