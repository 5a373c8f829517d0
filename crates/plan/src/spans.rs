//! Ranges of any length as spans of objects; and the search for data and holes in a file from the answers of its objects.
//!
//! Stripes are round robin, so a contiguous range of a file is contiguous in each object. A range of terabytes has as many spans as there
//! are objects, and a search for data or holes asks each object once.

use types::{FILE_SIZE_MAX, Fid, Layout, MirrorId, ObjectId};
use wire::object::Sought;

/// One object's share of a file range; `begin < end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub object: ObjectId,
    pub mirror: MirrorId,
    /// Offsets in the object, bytes.
    pub begin: u64,
    pub end: u64,
    /// The layout's written bit.
    pub written: bool,
}

/// The spans of `[begin, end)`. The span with the range's last byte comes last.
pub fn spans(layout: &Layout, fid: Fid, begin: u64, end: u64) -> Vec<Span> {
    let span = |(object, mirror, written): (ObjectId, MirrorId, bool)| {
        let len = |size| layout.object_len(object.component, object.stripe, size);
        Span { object, mirror, begin: len(begin), end: len(end), written }
    };
    let mut all: Vec<Span> = layout.objects(fid).map(span).filter(|s| s.begin < s.end).collect();
    let is_last = |s: &Span| layout.size_from(s.object.component, s.object.stripe, s.end) == end;
    if let Some(at) = all.iter().position(is_last) {
        let last = all.remove(at);
        all.push(last);
    }
    // A component that starts within a page has a hole before its first byte, which its spans include.
    debug_assert!(
        all.iter().map(|s| s.end - s.begin).sum::<u64>() >= end.saturating_sub(begin),
        "the spans cover the whole range"
    );
    debug_assert!(begin >= end || all.last().is_some_and(is_last), "the last span has the last byte");
    all
}

/// The target of `SEEK_DATA` and `SEEK_HOLE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    Data,
    Hole,
}

/// The first byte at or after `offset`, in a file of `size` bytes, that lies in a page with data (or in one without). `sought` has the
/// answer for each span of `[offset, size)`. `None`: there is none; every file has a hole at its end. A written object that is missing
/// counts as data, so that a program that copies the file meets the error.
pub fn found(
    layout: &Layout,
    size: u64,
    offset: u64,
    whence: Whence,
    sought: impl Iterator<Item = (Span, Sought)>,
) -> Option<u64> {
    if offset >= size {
        return None;
    }
    let in_file = |span: &Span, at: u64| match at < span.end {
        // A page may hold the start of a component. Its bytes before that belong to the component before.
        true => {
            let at = layout.size_from(span.object.component, span.object.stripe, at + 1) - 1;
            at.max(layout.start_of(span.object.component as usize))
        }
        false => u64::MAX,
    };
    let first = sought.map(|(span, s)| match whence {
        _ if !s.exists && span.written => match whence {
            Whence::Data => in_file(&span, span.begin),
            Whence::Hole => u64::MAX,
        },
        Whence::Data => s.data.map_or(u64::MAX, |at| in_file(&span, at.max(span.begin))),
        Whence::Hole => in_file(&span, s.hole.max(span.begin)),
    });
    let first = first.min().unwrap_or(u64::MAX);
    assert!(first >= offset, "a search never goes back");
    match whence {
        Whence::Data => Some(first).filter(|at| *at < size),
        Whence::Hole => Some(first.min(size)),
    }
}

/// The end of a range; `None` past the maximum file size.
pub fn end_of(offset: u64, len: u64) -> Option<u64> {
    offset.checked_add(len).filter(|end| *end <= FILE_SIZE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Component, Generation, PAGE_SIZE};

    const UNIT: u64 = 64 << 10;

    fn layout() -> Layout {
        let comp = |end, n: u32| Component {
            end,
            stripe_size: UNIT as u32,
            mirrors: (0..n).map(MirrorId).collect(),
            written: vec![],
        };
        Layout {
            generation: Generation(2),
            components: vec![comp(2 * UNIT, 1), comp(11 * UNIT, 3), comp(u64::MAX, 2)],
        }
    }

    #[test]
    fn spans_are_what_pieces_add_up_to() {
        for (begin, end) in [(0, 1), (0, 20 * UNIT), (UNIT + 7, 12 * UNIT + 9), (5 * UNIT, 6 * UNIT), (9, 10)]
        {
            let got = spans(&layout(), Fid(9), begin, end);
            for s in &got {
                let pieces = layout().split(Fid(9), begin, (end - begin) as usize);
                let mine: Vec<_> = pieces.iter().filter(|p| p.object == s.object).collect();
                assert_eq!(mine.iter().map(|p| p.object_offset).min(), Some(s.begin));
                assert_eq!(mine.iter().map(|p| p.object_offset + p.len as u64).max(), Some(s.end));
                assert_eq!(mine.iter().map(|p| p.len as u64).sum::<u64>(), s.end - s.begin);
            }
            let last = got.last().unwrap();
            assert_eq!(layout().size_from(last.object.component, last.object.stripe, last.end), end);
        }
        assert_eq!(spans(&layout(), Fid(9), 5, 5), []);
    }

    /// Objects as maps of pages with data, compared with the same file as one map.
    #[test]
    fn bytes_and_holes_are_found_wherever_they_lie() {
        let page = PAGE_SIZE as u64;
        let pages = 25 * (UNIT / page);
        for seed in 0..60u64 {
            // Runs of a few pages, with and without bytes.
            let has = |p: u64| (p / (1 + seed % 7) * 2_654_435_761 + seed).is_multiple_of(3) && seed > 0;
            let size = pages * page - seed * 100;
            for offset in (0..size).step_by(9_001) {
                let ask = |span: &Span| {
                    let in_file =
                        |at: u64| layout().size_from(span.object.component, span.object.stripe, at + 1) - 1;
                    let mut at = span.begin;
                    let (mut data, mut hole) = (None, None);
                    while at < span.end.next_multiple_of(page) && (data.is_none() || hole.is_none()) {
                        match has(in_file(at) / page) {
                            true => data = data.or(Some(at)),
                            false => hole = hole.or(Some(at)),
                        }
                        at = (at / page + 1) * page;
                    }
                    Sought { object: span.object, exists: true, data, hole: hole.unwrap_or(at) }
                };
                let whole = |want: bool| {
                    (offset / page..size.div_ceil(page))
                        .find(|p| has(*p) == want)
                        .map(|p| (p * page).max(offset))
                };
                let answer = |whence| {
                    let all = spans(&layout(), Fid(9), offset, size);
                    found(&layout(), size, offset, whence, all.into_iter().map(|s| (s, ask(&s))))
                };
                assert_eq!(answer(Whence::Data), whole(true), "{seed} {offset}");
                assert_eq!(answer(Whence::Hole), Some(whole(false).unwrap_or(size)), "{seed} {offset}");
            }
        }
    }

    #[test]
    fn missing_bytes_are_bytes_and_nothing_is_past_the_end() {
        let span = spans(&layout(), Fid(9), 0, UNIT)[0];
        let gone = Sought { object: span.object, exists: false, data: None, hole: 0 };
        //           written  whence        at
        let table = [
            (true, Whence::Data, Some(0)),
            (true, Whence::Hole, Some(UNIT)),
            (false, Whence::Data, None),
            (false, Whence::Hole, Some(0)),
        ];
        for (written, whence, want) in table {
            let asked = [(Span { written, ..span }, gone.clone())];
            assert_eq!(found(&layout(), UNIT, 0, whence, asked.into_iter()), want, "{written} {whence:?}");
        }
        for whence in [Whence::Data, Whence::Hole] {
            assert_eq!(found(&layout(), UNIT, UNIT, whence, [].into_iter()), None);
        }
    }
}
