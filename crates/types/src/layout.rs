//! Layouts: the map from a file's bytes to objects, as pure arithmetic.
//!
//! A layout is a list of components by file offset; component `c` covers `[end of c-1, end of c)` and is striped over its
//! mirrors, round-robin in units of `stripe_size`, counted from the page in which the component starts.
//! types-I1: component ends never fall and the last is `u64::MAX`.  types-I2: `stripe_size` is a power of two ≥ 64 KiB.
//! types-I3: `mirrors.len()` is the stripe count, ≥ 1.  types-I4: written bit `s` of a component belongs to its stripe `s`.
//!
//! A tail that moved to other mirrors (decision 0050) may leave a component that ends at any byte. It may also leave *empty* components,
//! which end where they start: they hold no byte of the file, and later components keep their numbers.

use crate::{Fid, Generation, MirrorId, ObjectId, PAGE_SIZE};

/// Smallest stripe size in bytes (the write unit of QLC drives, Lustre's minimum too).
pub const STRIPE_SIZE_MIN: u32 = 64 * 1024;
/// Default stripe size in bytes: one FUSE request.
pub const STRIPE_SIZE: u32 = 1 << 20;
/// Most stripes of a component and most components; bounds decoding and object ids.
pub const STRIPES_MAX: usize = 2000;
pub const COMPONENTS_MAX: usize = 32;
/// End offsets of the default progressive layout: one stripe to 64 MiB, four to 1 GiB, then all (capped at `WIDE_MAX`).
pub const PROGRESSIVE_ENDS: [u64; 2] = [64 << 20, 1 << 30];
pub const PROGRESSIVE_COUNTS: [u16; 2] = [1, 4];
/// Most stripes that the default layout takes.
pub const WIDE_MAX: usize = 160;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// File offset where this component ends; `u64::MAX` = to the end of any file.
    pub end: u64,
    /// Bytes.
    pub stripe_size: u32,
    /// The mirror of each stripe, in stripe order.
    pub mirrors: Vec<MirrorId>,
    /// Bit `s` set: object `s` holds flushed bytes, so its absence is damage and not a hole. One u64 per 64 stripes.
    pub written: Vec<u64>,
}

impl Component {
    pub fn is_written(&self, stripe: u16) -> bool {
        self.written.get(stripe as usize / 64).is_some_and(|w| w >> (stripe % 64) & 1 == 1)
    }
    /// Adds the written bits of another copy of the same component.
    pub fn learn_written(&mut self, other: &Component) {
        if self.written.len() < other.written.len() {
            self.written.resize(other.written.len(), 0);
        }
        self.written.iter_mut().zip(&other.written).for_each(|(mine, theirs)| *mine |= theirs);
    }
    pub fn set_written(&mut self, stripe: u16) {
        let word = stripe as usize / 64;
        if self.written.len() <= word {
            self.written.resize(word + 1, 0);
        }
        self.written[word] |= 1 << (stripe % 64);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub generation: Generation,
    pub components: Vec<Component>,
}

/// One object's share of a file range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub object: ObjectId,
    pub mirror: MirrorId,
    /// Offset in the object, bytes.
    pub object_offset: u64,
    /// Offset in the file, bytes.
    pub file_offset: u64,
    /// Bytes; ≥ 1.
    pub len: usize,
    /// The layout's written bit for this object.
    pub written: bool,
}

impl Layout {
    /// True if types-I1 to types-I3 hold. A decoded layout is checked once, when it is received.
    pub fn is_valid(&self) -> bool {
        let mut start = 0;
        !self.components.is_empty()
            && self.components.len() <= COMPONENTS_MAX
            && self.components.last().is_some_and(|c| c.end == u64::MAX)
            && self.components.iter().all(|c| {
                let ok = c.end >= start
                    && c.stripe_size >= STRIPE_SIZE_MIN
                    && c.stripe_size.is_power_of_two()
                    && (1..=STRIPES_MAX).contains(&c.mirrors.len())
                    && c.written.len() <= STRIPES_MAX.div_ceil(64);
                start = c.end;
                ok
            })
    }

    /// Adds the written bits of another copy of the same layout. Components that only one copy has stay unchanged.
    pub fn learn_written(&mut self, other: &Layout) {
        self.components
            .iter_mut()
            .zip(&other.components)
            .for_each(|(mine, theirs)| mine.learn_written(theirs));
    }

    pub fn object(&self, fid: Fid, component: u16, stripe: u16) -> ObjectId {
        ObjectId { fid, generation: self.generation, component, stripe, snapshot: 0 }
    }

    /// File offset where component `c` begins.
    pub fn start_of(&self, component: usize) -> u64 {
        if component == 0 { 0 } else { self.components[component - 1].end }
    }

    /// File offset of the first byte of component `c`'s objects: pages of objects are pages of the file, wherever the component starts.
    fn base_of(&self, component: usize) -> u64 {
        let start = self.start_of(component);
        start - start % PAGE_SIZE as u64
    }

    /// The component that holds the byte at `offset`.
    pub fn component_at(&self, offset: u64) -> usize {
        self.components.partition_point(|c| c.end <= offset)
    }

    /// The pieces of `[offset, offset + len)` in file order. Neighbours in the same object (one-stripe components) are merged.
    pub fn split(&self, fid: Fid, offset: u64, len: usize) -> Vec<Piece> {
        let mut out: Vec<Piece> = Vec::new();
        let (mut at, end) = (offset, offset.saturating_add(len as u64));
        while at < end {
            let c = self.component_at(at);
            let Some(comp) = self.components.get(c) else { break };
            let unit = comp.stripe_size as u64;
            let within = at - self.base_of(c);
            let (row, stripe) =
                (within / unit / comp.mirrors.len() as u64, within / unit % comp.mirrors.len() as u64);
            let piece = Piece {
                object: self.object(fid, c as u16, stripe as u16),
                mirror: comp.mirrors[stripe as usize],
                object_offset: row * unit + within % unit,
                file_offset: at,
                len: (unit - within % unit).min(comp.end.min(end) - at) as usize,
                written: comp.is_written(stripe as u16),
            };
            at += piece.len as u64;
            match out.last_mut() {
                Some(last)
                    if last.object == piece.object
                        && last.object_offset + last.len as u64 == piece.object_offset =>
                {
                    last.len += piece.len
                }
                _ => out.push(piece),
            }
        }
        out
    }

    /// Every object that the layout names, with its mirror and written bit.
    pub fn objects(&self, fid: Fid) -> impl Iterator<Item = (ObjectId, MirrorId, bool)> + '_ {
        self.components.iter().enumerate().flat_map(move |(c, comp)| {
            comp.mirrors
                .iter()
                .enumerate()
                .map(move |(s, m)| (self.object(fid, c as u16, s as u16), *m, comp.is_written(s as u16)))
        })
    }

    /// The length of object `(component, stripe)` in a file of `size` bytes without holes: the length to which a truncate cuts it.
    pub fn object_len(&self, component: u16, stripe: u16, size: u64) -> u64 {
        let comp = &self.components[component as usize];
        let (unit, width) = (comp.stripe_size as u64, comp.mirrors.len() as u64);
        let limit = size.min(comp.end);
        if limit <= self.start_of(component as usize) {
            return 0;
        }
        let within = limit - self.base_of(component as usize);
        let (rows, rest) = (within / (unit * width), within % (unit * width));
        rows * unit + rest.saturating_sub(stripe as u64 * unit).min(unit)
    }

    /// The file size that an object of `len` bytes proves: the file offset after its last byte. 0 for an empty object, and for one of an
    /// empty component.
    pub fn size_from(&self, component: u16, stripe: u16, len: u64) -> u64 {
        let Some(comp) = self.components.get(component as usize).filter(|_| len > 0) else { return 0 };
        if comp.end == self.start_of(component as usize) {
            return 0;
        }
        let (unit, width) = (comp.stripe_size as u64, comp.mirrors.len() as u64);
        let last = len - 1;
        let at = (last / unit)
            .saturating_mul(width)
            .saturating_add(stripe as u64)
            .saturating_mul(unit)
            .saturating_add(last % unit);
        self.base_of(component as usize).saturating_add(at).saturating_add(1).min(comp.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        let comp = |end, n: u32| Component {
            end,
            stripe_size: STRIPE_SIZE_MIN,
            mirrors: (0..n).map(MirrorId).collect(),
            written: vec![],
        };
        Layout {
            generation: Generation(3),
            components: vec![comp(256 << 10, 1), comp(2 << 20, 4), comp(u64::MAX, 7)],
        }
    }

    /// The tail of the second component has moved twice, from within a page. The second move came before anything was written there.
    fn moved() -> Layout {
        let mut l = layout();
        let comp = |end, n: u32| Component {
            end,
            mirrors: (0..n).map(MirrorId).collect(),
            ..layout().components[0].clone()
        };
        l.components[1].end = 1_000_001;
        l.components[2].end = 1_000_001;
        l.components.extend([comp(1_000_001, 2), comp(2 << 20, 3), comp(u64::MAX, 5)]);
        l
    }

    #[test]
    fn split_covers_every_byte_once_and_agrees_with_sizes() {
        for l in [layout(), moved()] {
            covers_and_agrees(l);
        }
    }

    fn covers_and_agrees(l: Layout) {
        assert!(l.is_valid());
        let mut at = 0;
        for (i, len) in
            [1usize, 4095, 65536, 70_000, 300_000, 1 << 20, 12_345, 9 << 20].into_iter().enumerate()
        {
            let pieces = l.split(Fid(9), at, len);
            let mut pos = at;
            for p in &pieces {
                assert_eq!(p.file_offset, pos, "range {i}");
                assert_eq!(p.object_offset % PAGE_SIZE as u64, pos % PAGE_SIZE as u64, "pages agree");
                pos += p.len as u64;
                // The last byte of the piece proves exactly its own file offset.
                let proven = l.size_from(p.object.component, p.object.stripe, p.object_offset + p.len as u64);
                assert_eq!(proven, pos);
                assert!(
                    l.object_len(p.object.component, p.object.stripe, pos) >= p.object_offset + p.len as u64
                );
            }
            assert_eq!(pos, at + len as u64);
            at = pos;
        }
    }

    #[test]
    fn object_len_adds_up_to_the_file() {
        let l = layout();
        for size in [0u64, 1, 65_536, 262_144, 262_145, 1 << 20, (2 << 20) + 1, 10_000_000] {
            let total: u64 =
                l.objects(Fid(9)).map(|(o, _, _)| l.object_len(o.component, o.stripe, size)).sum();
            assert_eq!(total, size);
            let proven = l.objects(Fid(9)).map(|(o, _, _)| {
                l.size_from(o.component, o.stripe, l.object_len(o.component, o.stripe, size))
            });
            assert_eq!(proven.max(), Some(size));
        }
    }

    /// Each byte of the file is in one object. A component that starts within a page has a hole before its first byte.
    #[test]
    fn a_moved_tail_keeps_what_objects_prove() {
        let l = moved();
        for size in
            [1_000_000, 1_000_001, 1_000_002, 1_003_520, 1_003_521, (2 << 20) - 1, (2 << 20) + 1, 9 << 20]
        {
            let lens = || l.objects(Fid(9)).map(|(o, _, _)| (o, l.object_len(o.component, o.stripe, size)));
            let hole = if size > 1_000_001 { 1_000_001 % PAGE_SIZE as u64 } else { 0 };
            assert_eq!(lens().map(|(_, len)| len).sum::<u64>(), size + hole);
            assert_eq!(lens().map(|(o, len)| l.size_from(o.component, o.stripe, len)).max(), Some(size));
            assert!(
                lens().filter(|(o, _)| [2, 3].contains(&o.component)).all(|(_, len)| len == 0),
                "they are empty"
            );
        }
        assert_eq!((l.size_from(2, 0, 77), l.size_from(3, 1, 77)), (0, 0), "of no byte of the file");
        assert_eq!((l.component_at(1_000_000), l.component_at(1_000_001)), (1, 4));
    }

    #[test]
    fn one_stripe_is_one_piece() {
        let l = layout();
        assert_eq!(l.split(Fid(9), 0, 256 << 10).len(), 1);
    }

    #[test]
    fn written_bits_reach_past_64() {
        let mut c = layout().components.remove(2);
        c.set_written(70);
        assert!(c.is_written(70) && !c.is_written(6) && !c.is_written(700));
    }
}
