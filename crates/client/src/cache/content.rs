//! Content of small files that came with their open, and is read from here.
//!
//! client-K1: content is kept if no change of the file was under way here when it was requested, and none has begun since. A change
//! drops the kept content when it begins. So a read finds here the bytes that the MDT has.
//! client-K2: content is valid while this client is alone and no other has attached since.  client-K3: kept content is bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use types::crc::verify_fragments;
use types::{Attr, Buf, INLINE_MAX};

use crate::Fs;
use crate::cache::files::File;

/// client-K3: of a client. As many opens of small files as a mount has threads take a fourth of it.
const CONTENT_BYTES_MAX: usize = 4 << 20;

/// Of a file.
#[derive(Default)]
pub(crate) struct Kept {
    /// Changes that have begun, and those of them that have not ended.
    changes: u64,
    under_way: u32,
    content: Option<Content>,
}

struct Content {
    bytes: Vec<u8>,
    season: u64,
    /// client-K3: of all files.
    all: Arc<AtomicUsize>,
}

impl Drop for Content {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

impl Kept {
    fn begin_change(&mut self) {
        self.changes += 1;
        self.under_way += 1;
        self.content = None;
    }
    fn end_change(&mut self) {
        self.under_way -= 1;
    }
}

/// client-K1: from the beginning of a change to its end.
pub(crate) struct Changing(Arc<File>);

impl Changing {
    pub fn begin(file: &Arc<File>) -> Changing {
        file.meta.lock().content.begin_change();
        Changing(file.clone())
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.0.meta.lock().content.end_change();
    }
}

/// The generation counters at the time of the request for content; `None`: content is not wanted.
pub(crate) struct Wish(Option<(u64, u64)>);

impl Wish {
    pub fn bytes_max(&self) -> u32 {
        self.0.map_or(0, |_| INLINE_MAX)
    }
}

impl Fs {
    /// Before the MDT is asked.
    pub(crate) fn wish_for(&self, file: &File) -> Wish {
        let season = self.seasons_shared();
        let has_room = self.content_bytes.load(Ordering::Relaxed) < CONTENT_BYTES_MAX;
        if self.is_shared() || self.settings.observer || !has_room {
            return Wish(None);
        }
        let meta = file.meta.lock();
        let is_quiet = meta.content.under_way == 0 && meta.content.content.is_none();
        Wish(is_quiet.then_some((season, meta.content.changes)))
    }

    /// Keeps the content that the MDT sent. Content with a wrong checksum is dropped; a later read asks for it again.
    pub(crate) fn keep_content(&self, file: &File, wish: Wish, attr: &Attr, bytes: &[u8], crcs: &[u32]) {
        let Some((season, changes)) = wish.0 else { return };
        if bytes.len() as u64 != attr.size || verify_fragments(0, bytes, crcs).is_err() {
            return;
        }
        let mut meta = file.meta.lock();
        let others = self.content_bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        let content = Content { bytes: bytes.to_vec(), season, all: self.content_bytes.clone() };
        if meta.content.changes == changes && others + bytes.len() <= CONTENT_BYTES_MAX {
            meta.content.content = Some(content);
        }
    }

    /// The bytes at `offset`, if they are here.
    pub(crate) fn read_kept(&self, file: &File, offset: u64, len: usize, into: &mut Buf) -> bool {
        let meta = file.meta.lock();
        let is_good = |c: &&Content| !self.is_shared() && c.season == self.seasons_shared();
        let Some(content) = meta.content.content.as_ref().filter(is_good) else { return false };
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(content.bytes.len());
        let to = from.saturating_add(len).min(content.bytes.len());
        into.set(&content.bytes[from..to]);
        true
    }
}
