//! Splits a file range into pieces of objects, none larger than one request carries, and judges the answers.
//!
//! plan-R1: the pieces cover the range once, in file order.  plan-R2: a read never invents a byte. The range is damaged if a written
//! object is missing, or if an answer is longer than the request. Zeros stand only for holes.

use types::{BULK_MAX, Fid, Layout, Piece};

/// The pieces of `[offset, offset + len)` in file order, each at most `BULK_MAX` bytes.
pub fn pieces(layout: &Layout, fid: Fid, offset: u64, len: usize) -> Vec<Piece> {
    let mut pieces = layout.split(fid, offset, len);
    if pieces.iter().any(|p| p.len > BULK_MAX) {
        pieces = pieces.into_iter().flat_map(cut).collect();
    }
    debug_assert!(cover_once(&pieces, offset), "plan-R1: pieces follow one another in file order");
    debug_assert_eq!(
        pieces.iter().map(|p| p.len as u64).sum::<u64>(),
        offset.saturating_add(len as u64) - offset,
        "plan-R1: pieces cover the whole range"
    );
    assert!(pieces.iter().all(|p| (1..=BULK_MAX).contains(&p.len)), "a piece is what one request carries");
    pieces
}

/// True if each piece begins where the one before ends, the first at `offset`.
fn cover_once(pieces: &[Piece], offset: u64) -> bool {
    let mut at = offset;
    pieces.iter().all(|p| p.file_offset == std::mem::replace(&mut at, p.file_offset + p.len as u64))
}

/// Cuts a piece at multiples of `BULK_MAX` of its object, so that requests are aligned whatever the caller's offset is.
fn cut(piece: Piece) -> impl Iterator<Item = Piece> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == piece.len {
            return None;
        }
        let object_offset = piece.object_offset + at as u64;
        let room = BULK_MAX - (object_offset % BULK_MAX as u64) as usize;
        let len = room.min(piece.len - at);
        at += len;
        Some(Piece { object_offset, file_offset: piece.file_offset + (at - len) as u64, len, ..piece })
    })
}

/// The result of reading one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// This many bytes came. The rest of the piece lies past the object's end and reads as zeros.
    Bytes(usize),
    /// The object was never written: zeros.
    Hole,
    /// The object is missing although it holds flushed bytes. The caller reports it and fails the read.
    Missing,
    /// More bytes than requested: the answer cannot be trusted.
    Excess,
}

/// Judges the answer to the read of a piece: whether the object exists, and how many bytes came. `piece.written` is the layout's bit, or
/// is set because this client had written the object before it sent the read. A write that was acknowledged after that proves nothing:
/// the OST may have answered the read first.
pub fn judge(piece: &Piece, exists: bool, got: usize) -> Share {
    match (exists, piece.written) {
        (true, _) if got > piece.len => Share::Excess,
        (true, _) => Share::Bytes(got),
        (false, true) => Share::Missing,
        (false, false) => Share::Hole,
    }
}

/// How many bytes of a read of `len` at `offset` lie within a file of `size` bytes.
pub fn clip(size: u64, offset: u64, len: usize) -> usize {
    let clipped = size.saturating_sub(offset).min(len as u64) as usize;
    assert!(clipped <= len, "a read is never made longer");
    assert!(clipped == 0 || offset + clipped as u64 <= size, "a clipped read ends with the file");
    clipped
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Component, Generation, MirrorId};

    fn layout(mirrors: u32) -> Layout {
        let component = Component {
            end: u64::MAX,
            stripe_size: 1 << 20,
            mirrors: (0..mirrors).map(MirrorId).collect(),
            written: vec![1],
        };
        Layout { generation: Generation(1), components: vec![component] }
    }

    #[test]
    fn pieces_fit_requests_and_cover_the_range_once() {
        for (mirrors, offset, len) in [(1, 0, 5 << 20), (1, 4097, 3 << 20), (3, 77, 4 << 20), (1, 0, 10)] {
            let (mut at, end) = (offset as u64, offset as u64 + len as u64);
            for p in pieces(&layout(mirrors), Fid(7), at, len) {
                assert_eq!(p.file_offset, at);
                assert!(p.len <= BULK_MAX && p.len > 0);
                at += p.len as u64;
            }
            assert_eq!(at, end);
        }
    }

    #[test]
    fn an_unaligned_long_read_is_aligned_after_its_first_piece() {
        let got = pieces(&layout(1), Fid(7), 4096, 3 << 20);
        assert_eq!(got[0].len, BULK_MAX - 4096);
        assert!(got[1..].iter().all(|p| p.object_offset % BULK_MAX as u64 == 0));
    }

    #[test]
    fn zeros_stand_for_holes_only() {
        let whole = layout(1).split(Fid(7), 0, 100)[0];
        //           written exists got   share
        let table = [
            (true, true, 100, Share::Bytes(100)),
            (true, true, 40, Share::Bytes(40)),
            (false, true, 100, Share::Bytes(100)),
            (false, false, 0, Share::Hole),
            (true, false, 0, Share::Missing),
            (true, true, 101, Share::Excess),
        ];
        for (written, exists, got, want) in table {
            let piece = Piece { written, ..whole };
            assert_eq!(judge(&piece, exists, got), want, "{written} {exists} {got}");
        }
    }

    #[test]
    fn reads_end_with_the_file() {
        for (size, offset, len, want) in [(100, 0, 10, 10), (100, 95, 10, 5), (100, 100, 10, 0), (0, 7, 1, 0)]
        {
            assert_eq!(clip(size, offset, len), want);
        }
    }
}
