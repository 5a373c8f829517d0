//! The size that the objects of a file prove, and the cuts that a shrink makes in them.

use types::{Layout, ObjectId, PAGE_SIZE, Time};
use wire::meta::WrittenBits;
use wire::object::ObjectStat;

/// The result of a glimpse of all objects of a file.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Proven {
    /// Bytes.
    pub size: u64,
    /// 512-byte units.
    pub blocks: u64,
    /// The latest mtime of the objects; `None` if there are no objects.
    pub mtime: Option<Time>,
    /// The objects that exist.
    pub written: Vec<WrittenBits>,
}

/// Adds up a glimpse. Objects of another generation are ignored.
pub fn proven(layout: &Layout, stats: &[ObjectStat]) -> Proven {
    let mut out = Proven::default();
    for stat in stats.iter().filter(|s| s.exists && s.object.generation == layout.generation) {
        let ObjectId { component, stripe, .. } = stat.object;
        out.size = out.size.max(layout.size_from(component, stripe, stat.len));
        out.blocks += stat.used / 512;
        out.mtime = out.mtime.max(Some(stat.mtime));
        set_bit(&mut out.written, component, stripe);
    }
    out
}

/// Sets the bit of an object in a list that has at most one record per component.
pub fn set_bit(written: &mut Vec<WrittenBits>, component: u16, stripe: u16) {
    let at = match written.iter().position(|w| w.component == component) {
        Some(at) => at,
        None => {
            written.push(WrittenBits { component, bits: Vec::new() });
            written.len() - 1
        }
    };
    let (bits, word) = (&mut written[at].bits, stripe as usize / 64);
    if bits.len() <= word {
        bits.resize(word + 1, 0);
    }
    bits[word] |= 1 << (stripe % 64);
    debug_assert!(has_bit(written, component, stripe), "a set bit is found again");
}

/// Is the object's bit set in the list?
pub fn has_bit(written: &[WrittenBits], component: u16, stripe: u16) -> bool {
    let bits = written.iter().find(|w| w.component == component).map(|w| w.bits.as_slice());
    bits.and_then(|b| b.get(stripe as usize / 64)).is_some_and(|w| w >> (stripe % 64) & 1 == 1)
}

/// The cuts of a shrink to `size` bytes: each object that is longer than its share of the rest, or has space reserved past it, with its
/// new length.
pub fn cuts(layout: &Layout, size: u64, stats: &[ObjectStat]) -> Vec<(ObjectId, u64)> {
    let longer = |s: &ObjectStat| {
        let keep = layout.object_len(s.object.component, s.object.stripe, size);
        let is_past = s.len > keep || s.reserved_end > keep.next_multiple_of(PAGE_SIZE as u64);
        // A reserving object that is shorter than `keep` is extended to it, which is the length that the file's size implies anyway.
        (s.exists && s.object.generation == layout.generation && is_past).then_some((s.object, keep))
    };
    let cuts: Vec<(ObjectId, u64)> = stats.iter().filter_map(longer).collect();
    assert!(cuts.iter().all(|(_, keep)| *keep <= size), "an object is never cut to more than the file has");
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Component, Fid, Generation, MirrorId};

    const UNIT: u64 = 1 << 20;

    fn layout() -> Layout {
        let comp = |end, n: u32| Component {
            end,
            stripe_size: UNIT as u32,
            mirrors: (0..n).map(MirrorId).collect(),
            written: vec![],
        };
        Layout { generation: Generation(2), components: vec![comp(4 * UNIT, 1), comp(u64::MAX, 3)] }
    }

    fn stat(component: u16, stripe: u16, exists: bool, len: u64, sec: i64) -> ObjectStat {
        let object = layout().object(Fid(9), component, stripe);
        let (used, mtime) = (len.next_multiple_of(4096), Time::new(sec, 0));
        ObjectStat { object, exists, len, used, reserved_end: 0, mtime }
    }

    #[test]
    fn the_furthest_byte_proves_the_size() {
        let none = stat(1, 0, false, 0, 99);
        let foreign = ObjectStat {
            object: ObjectId { generation: Generation(1), ..none.object },
            exists: true,
            ..stat(1, 0, true, 1 << 30, 99)
        };
        //           stats                                                     size            blocks mtime
        let table = [
            (vec![none.clone()], 0, 0, None),
            (vec![stat(0, 0, true, 10, 5), none.clone()], 10, 8, Some(5)),
            (vec![stat(0, 0, true, 10, 5), stat(1, 1, true, 1, 3)], 5 * UNIT + 1, 16, Some(5)),
            (vec![stat(1, 2, true, UNIT + 1, 7), foreign], 4 * UNIT + 5 * UNIT + 1, 2056, Some(7)),
        ];
        for (stats, size, blocks, mtime) in table {
            let got = proven(&layout(), &stats);
            assert_eq!((got.size, got.blocks), (size, blocks));
            assert_eq!(got.mtime.map(|t| t.sec), mtime);
        }
        let got =
            proven(&layout(), &[stat(1, 2, true, 1, 1), stat(0, 0, true, 1, 1), stat(1, 0, true, 1, 1)]);
        assert!(has_bit(&got.written, 1, 2) && has_bit(&got.written, 1, 0) && has_bit(&got.written, 0, 0));
        assert!(
            !has_bit(&got.written, 1, 1) && !has_bit(&got.written, 5, 0) && !has_bit(&got.written, 1, 900)
        );
        assert_eq!(got.written.len(), 2);
    }

    #[test]
    fn a_shrink_cuts_only_what_is_longer() {
        let stats = [
            stat(0, 0, true, 4 * UNIT, 1),
            stat(1, 0, true, 2 * UNIT, 1),
            stat(1, 1, true, 3, 1),
            stat(1, 2, false, 0, 1),
        ];
        let cut = |size| -> Vec<(u16, u16, u64)> {
            cuts(&layout(), size, &stats).into_iter().map(|(o, len)| (o.component, o.stripe, len)).collect()
        };
        assert_eq!(cut(100 * UNIT), []);
        assert_eq!(cut(5 * UNIT + 1), [(1, 0, UNIT), (1, 1, 1)]);
        assert_eq!(cut(4 * UNIT), [(1, 0, 0), (1, 1, 0)]);
        assert_eq!(cut(7), [(0, 0, 7), (1, 0, 0), (1, 1, 0)]);
        let reserving = |end| [ObjectStat { reserved_end: end, ..stat(0, 0, true, 10, 1) }];
        assert_eq!(cuts(&layout(), 4097, &reserving(8192)), []);
        assert_eq!(cuts(&layout(), 4096, &reserving(8192)), [(stat(0, 0, true, 0, 1).object, 4096)]);
    }
}
