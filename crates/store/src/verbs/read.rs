//! Reading: extents under a short read lock, bytes outside it, every page verified.
//!
//! A place that a reader may have seen is not reused before the reader is done (readers.rs). So bytes that do not match their CRC are
//! damage, unless the page was rewritten meanwhile; a second try tells the two apart.

use std::io;
use std::sync::Arc;

use types::crc::{ZERO_PAGE, crc32c};
use types::{Buf, ObjectId, PAGE_SIZE, Seq};

use crate::Read;
use crate::records::error::{DamageKind, StoreError};
use crate::records::extent::{Extent, Site};
use crate::records::index::State;
use crate::records::patch::Patch;
use crate::state::engine::Engine;

const PAGE: u64 = PAGE_SIZE as u64;

/// A byte range of an object, cut at the object's end, and the places of its pages.
struct View {
    offset: u64,
    end: u64,
    /// Extents, without pages that a whole patch hides.
    pieces: Vec<(u32, Extent)>,
    /// Patches over them.
    patches: Vec<(u32, Arc<Patch>)>,
}

/// The sources of a page's bytes, when the page is read for a partial change of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Below {
    pub site: Option<Site>,
    /// The last log entry that patched it.
    pub patched: Option<Seq>,
}

impl Below {
    pub fn of(state: &State, page: u32) -> Below {
        Below { site: state.extents.site(page), patched: state.patches.get(page).map(|p| p.seq()) }
    }
    pub fn is_hole(&self) -> bool {
        *self == Below::default()
    }
}

fn below_of(state: &State, page: u32) -> (Below, Option<Arc<Patch>>) {
    (Below::of(state, page), state.patches.get(page).cloned())
}

/// The first page that could not be read.
struct Bad {
    page: u32,
    why: Unread,
}

/// Why a page's bytes cannot be returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    Damage(DamageKind),
    /// The device hangs, or there is no memory. The page need not be damaged.
    NotNow,
}

impl From<io::Error> for Unread {
    fn from(e: io::Error) -> Unread {
        if disk::is_passing(&e) { Unread::NotNow } else { Unread::Damage(DamageKind::Medium) }
    }
}

const ROTTEN: Unread = Unread::Damage(DamageKind::Checksum);

impl Engine {
    pub(crate) fn read_object(
        &self,
        r: &Read<'_>,
        into: &mut Buf,
        crcs: &mut Vec<u32>,
    ) -> Result<bool, StoreError> {
        into.clear();
        crcs.clear();
        let _reading = self.readers.begin();
        let mut bad = None;
        for _ in 0..2 {
            let Some(object) = self.index.find(&r.object)? else {
                (r.gate)(&Default::default()).map_err(StoreError::Refused)?;
                into.clear();
                crcs.clear();
                return Ok(false);
            };
            let view = view_of(&object.read(), r)?;
            let Some(view) = view else {
                into.clear();
                crcs.clear();
                return Ok(false);
            };
            match self.fill(&view, into, crcs) {
                Ok(()) => return Ok(true),
                // The page may have been rewritten meanwhile.
                Err(found) => bad = Some(found),
            }
        }
        into.clear();
        let bad = bad.expect("two rounds that failed");
        Err(self.unread(r.object, bad.page, bad.why))
    }

    /// Reads and verifies one whole page; zeros if it is a hole. A caller that compares the returned `Below` later holds a `Reading`
    /// from before this call on.
    pub(crate) fn read_page(
        &self,
        id: ObjectId,
        page: u32,
        bytes: &mut [u8; PAGE_SIZE],
    ) -> Result<Below, StoreError> {
        let Some(object) = self.index.find(&id)? else {
            bytes.fill(0);
            return Ok(Below::default());
        };
        let mut unread = Unread::NotNow;
        for _ in 0..2 {
            let (below, patch) = below_of(&object.read(), page);
            match self.read_below(&below, patch.as_deref(), bytes) {
                Ok(()) => return Ok(below),
                // The page may have been rewritten meanwhile.
                Err(why) => unread = why,
            }
        }
        Err(self.unread(id, page, unread))
    }

    /// The error for a page that cannot be read: damage of the page, or `Hung`, which is no damage.
    pub(crate) fn unread(&self, object: ObjectId, page: u32, why: Unread) -> StoreError {
        let offset = page as u64 * PAGE;
        match why {
            Unread::NotNow => StoreError::Hung { object, offset },
            Unread::Damage(kind) => StoreError::Damaged { object, offset, kind },
        }
    }

    fn read_below(
        &self,
        below: &Below,
        patch: Option<&Patch>,
        bytes: &mut [u8; PAGE_SIZE],
    ) -> Result<(), Unread> {
        bytes.fill(0);
        if let Some(site) = below.site.filter(|_| patch.is_none_or(|p| !p.is_whole())) {
            self.read_site(site, bytes)?;
        }
        if let Some(patch) = patch {
            patch.lay_over(bytes, 0);
        }
        Ok(())
    }

    pub(crate) fn read_site(&self, site: Site, bytes: &mut [u8; PAGE_SIZE]) -> Result<(), Unread> {
        let read = self.vol.disk().read_many(&mut [(self.at(site.page), bytes)]);
        read.map_err(Unread::from)?;
        if crc32c(bytes) == site.crc { Ok(()) } else { Err(ROTTEN) }
    }

    /// Reads pages from their places in one call: a slow device takes as long for a page as for many.
    pub(crate) fn read_sites(&self, sites: &[Site], bytes: &mut [u8]) -> Result<(), Unread> {
        assert_eq!(sites.len() * PAGE_SIZE, bytes.len(), "each place has a page");
        if sites.is_empty() {
            return Ok(());
        }
        let (mut parts, mut rest) = (Vec::new(), &mut *bytes);
        for run in sites.chunk_by(|a, b| b.page == a.page + 1) {
            let (part, more) = rest.split_at_mut(run.len() * PAGE_SIZE);
            parts.push((self.at(run[0].page), part));
            rest = more;
        }
        self.vol.disk().read_many(&mut parts).map_err(Unread::from)?;
        let mut pages = sites.iter().zip(bytes.chunks_exact(PAGE_SIZE));
        if pages.all(|(site, page)| crc32c(page) == site.crc) { Ok(()) } else { Err(ROTTEN) }
    }

    /// Fills `into` with the view's bytes and `crcs` with their fragments' CRCs.
    fn fill(&self, view: &View, into: &mut Buf, crcs: &mut Vec<u32>) -> Result<(), Bad> {
        crcs.clear();
        let out = into.space((view.end - view.offset) as usize);
        if out.is_empty() {
            return Ok(());
        }
        self.read_runs(view, out)?;
        self.check_pages(view, out, crcs)?;
        let pages = view.end.div_ceil(PAGE) - view.offset / PAGE;
        assert_eq!(crcs.len() as u64, pages, "a read returns one CRC per page");
        lay_patches(view, out, crcs);
        Ok(())
    }

    /// Calls `each` with `(place on the medium, object page, pages)` of each maximal run that is contiguous in both.
    fn for_each_run(&self, view: &View, mut each: impl FnMut(u64, u32, u32)) {
        let mut pieces = view.pieces.iter();
        let Some((page, e)) = pieces.next() else { return };
        let (mut start, mut page, mut pages) = (e.run.start, *page, e.run.pages);
        for (next, e) in pieces {
            if *next == page + pages && e.run.start == start + pages as u64 {
                pages += e.run.pages;
                continue;
            }
            each(start, page, pages);
            (start, page, pages) = (e.run.start, *next, e.run.pages);
        }
        each(start, page, pages);
    }

    /// Reads the pages that the view covers whole directly into the caller's buffer, all runs in one call.
    fn read_runs(&self, view: &View, out: &mut [u8]) -> Result<(), Bad> {
        let mut parts: Vec<(u64, &mut [u8])> = Vec::with_capacity(view.pieces.len());
        let mut firsts = Vec::with_capacity(view.pieces.len());
        // The buffer after the parts so far, and the offset where it begins.
        let (mut rest, mut begin) = (out, 0);
        self.for_each_run(view, |start, page, pages| {
            let first = page.max(view.offset.div_ceil(PAGE) as u32);
            let limit = (page + pages).min((view.end / PAGE) as u32);
            if first >= limit {
                return;
            }
            let at = (first as u64 * PAGE - view.offset) as usize;
            let (_, behind) = std::mem::take(&mut rest).split_at_mut(at - begin);
            let (part, behind) = behind.split_at_mut((limit - first) as usize * PAGE_SIZE);
            begin = at + part.len();
            rest = behind;
            parts.push((self.at(start + (first - page) as u64), part));
            firsts.push(first);
        });
        if parts.is_empty() || self.vol.disk().read_many(&mut parts).is_ok() {
            return Ok(());
        }
        // Find the page that fails within the run, so that the damage list has no sound pages.
        for ((place, part), first) in parts.into_iter().zip(firsts) {
            for (i, bytes) in part.chunks_exact_mut(PAGE_SIZE).enumerate() {
                if let Err(e) = self.vol.disk().read_many(&mut [(place + i as u64 * PAGE, bytes)]) {
                    return Err(Bad { page: first + i as u32, why: e.into() });
                }
            }
        }
        Ok(())
    }

    /// Verifies every page in order, fills holes and partial pages, and collects the CRCs of fragments.
    fn check_pages(&self, view: &View, out: &mut [u8], crcs: &mut Vec<u32>) -> Result<(), Bad> {
        let mut pieces = view.pieces.iter().peekable();
        let first = (view.offset / PAGE) as u32;
        let limit = view.end.div_ceil(PAGE) as u32;
        let mut page = first;
        while page < limit {
            match pieces.next_if(|(at, _)| *at == page) {
                Some((at, e)) => {
                    for (i, want) in e.crcs().iter().enumerate() {
                        let site = Site { page: e.run.start + i as u64, crc: *want };
                        crcs.push(self.check_page(view, out, at + i as u32, site)?);
                    }
                    page = at + e.run.pages;
                }
                None => {
                    let fragment = &mut out[fragment_of(view, page)];
                    fragment.fill(0);
                    crcs.push(if fragment.len() == PAGE_SIZE { ZERO_PAGE } else { crc32c(fragment) });
                    page += 1;
                }
            }
        }
        Ok(())
    }

    /// Verifies a whole page and returns the CRC of the fragment that the view has of it.
    fn check_page(&self, view: &View, out: &mut [u8], page: u32, site: Site) -> Result<u32, Bad> {
        let range = fragment_of(view, page);
        if range.len() == PAGE_SIZE {
            let crc = crc32c(&out[range]);
            return if crc == site.crc { Ok(crc) } else { Err(Bad { page, why: ROTTEN }) };
        }
        // The CRC covers the whole page, so the rest of it is needed too.
        let mut whole = [0; PAGE_SIZE];
        self.read_site(site, &mut whole).map_err(|why| Bad { page, why })?;
        let skip = ((view.offset + range.start as u64) % PAGE) as usize;
        let fragment = &whole[skip..skip + range.len()];
        out[range].copy_from_slice(fragment);
        Ok(crc32c(fragment))
    }
}

/// Lays the patches over pages that were checked, and sets the CRCs of their fragments.
fn lay_patches(view: &View, out: &mut [u8], crcs: &mut [u32]) {
    let first = (view.offset / PAGE) as u32;
    for (page, patch) in &view.patches {
        let range = fragment_of(view, *page);
        let skip = ((view.offset + range.start as u64) % PAGE) as usize;
        let fragment = &mut out[range];
        patch.lay_over(fragment, skip);
        let known = if fragment.len() == PAGE_SIZE { patch.whole_crc() } else { None };
        crcs[(page - first) as usize] = known.unwrap_or_else(|| crc32c(fragment));
    }
}

/// Extents of a page range, without the pages that whole patches hide: their bytes are not needed.
fn pieces_of(state: &State, first: u32, limit: u32) -> Vec<(u32, Extent)> {
    let hidden = state.patches.range(first, limit).filter(|(_, p)| p.is_whole()).map(|(page, _)| page);
    let mut pieces = Vec::new();
    let mut from = first;
    for page in hidden.chain([limit]) {
        pieces.extend(state.extents.range(from, page));
        from = page + 1;
    }
    pieces
}

/// The part of the view's buffer that lies in a page.
fn fragment_of(view: &View, page: u32) -> std::ops::Range<usize> {
    let begin = (page as u64 * PAGE).max(view.offset);
    let end = ((page as u64 + 1) * PAGE).min(view.end);
    (begin - view.offset) as usize..(end - view.offset) as usize
}

fn view_of(state: &Arc<State>, r: &Read<'_>) -> Result<Option<View>, StoreError> {
    (r.gate)(&state.attrs()).map_err(StoreError::Refused)?;
    if !state.exists {
        return Ok(None);
    }
    let end = r.offset.saturating_add(r.len as u64).min(state.len);
    let offset = r.offset.min(end);
    let (first, limit) = ((offset / PAGE) as u32, end.div_ceil(PAGE) as u32);
    if offset == end {
        return Ok(Some(View { offset, end, pieces: vec![], patches: vec![] }));
    }
    let patches: Vec<_> = state.patches.range(first, limit).map(|(page, p)| (page, p.clone())).collect();
    let pieces = match patches.is_empty() {
        true => state.extents.range(first, limit).collect(),
        false => pieces_of(state, first, limit),
    };
    let ends = |(page, e): &(u32, Extent)| page + e.run.pages;
    debug_assert!(pieces.is_sorted_by(|a, b| ends(a) <= b.0), "store-X1: extents of a read are in order");
    assert!(pieces.last().is_none_or(|last| ends(last) <= limit), "extents of a read end in its range");
    Ok(Some(View { offset, end, pieces, patches }))
}
