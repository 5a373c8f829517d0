//! Bringing a member up to date beside live writes: by the log, or by chunks.
//!
//! Each member keeps for each chunk of 8 MiB the position of the last entry that changed it: the chunk's *version*. A resync by chunks takes
//! these steps:
//!
//! ```text
//! 1 the receiver records that it is filling, and takes over the primary's history; entries follow from there
//! 2 the chunks whose versions differ are stale; an entry on a stale chunk is logged, and not applied
//! 3 per stale chunk: the primary reads it with its version, the receiver stages it, then asks `on_fill`
//! 4 a fill that fits is applied: the chunk is not stale any more. One that does not is redone
//! 5 nothing is stale: flush, record that the filling is complete; the join follows (mirror-J2)
//! ```
//!
//! mirror-F1: chunks are equal if their versions are. A checksum of 32 bits is equal by chance once in 2^32 chunks, and is never asked.
//! mirror-F2: a fill fits if the receiver has logged all entries up to the fill's version, and none on this chunk after it. Until the fill
//!     the chunk keeps its old version, so that a resync that begins anew finds it again.
//! mirror-F3: the record of a filling outlives the receiver. Until the filling is complete its history says nothing of its content, and a new
//!     resync compares all chunks again.
//! mirror-F4: any step may be the last one of a life: the next resync needs nothing but the versions.

use std::collections::BTreeMap;

use crate::planted::{Rule, kept};
use crate::types::{MirrorSeq, Position};

/// How a member is brought up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By the entries after this one.
    Log(MirrorSeq),
    Chunks,
}

/// `shared`: what both logs have, by `History::shared`; nothing of a member that was filling (mirror-F3). `first`: the oldest entry that the
/// primary's log still has.
pub fn way(shared: Option<Position>, first: MirrorSeq) -> Way {
    match shared {
        Some(shared) if shared.seq.next() >= first => Way::Log(shared.seq),
        _ => Way::Chunks,
    }
}

/// mirror-F1: chunks that differ, each with the primary's version; `ZERO` if the primary does not have it. Both lists are sorted by chunk.
pub fn stale<C: Ord + Copy>(
    primary: impl IntoIterator<Item = (C, Position)>,
    receiver: impl IntoIterator<Item = (C, Position)>,
) -> BTreeMap<C, Position> {
    let mut stale: BTreeMap<C, Position> = primary.into_iter().collect();
    for (chunk, version) in receiver {
        if stale.get(&chunk) == Some(&version) {
            stale.remove(&chunk);
        } else {
            stale.entry(chunk).or_insert(Position::ZERO);
        }
    }
    stale
}

/// The end of a staged fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Replace the chunk by it, and its version.
    Apply,
    /// An entry up to its version has not arrived yet: keep it staged.
    Wait,
    /// The chunk changed since it was read, or is not stale: drop it, and read a stale one again.
    Redo,
}

/// The receiver's side of a resync by chunks. In memory only (mirror-F4).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Filling<C: Ord> {
    /// Stale chunks, each with the last entry on it that is known of.
    stale: BTreeMap<C, Position>,
}

impl<C: Ord + Copy> Filling<C> {
    /// `stale`: by the function of that name, with the primary's versions at the end of the history that the receiver took over.
    pub fn new(stale: BTreeMap<C, Position>) -> Filling<C> {
        Filling { stale }
    }

    /// An entry is being logged. True: it is applied too, and its position is the chunk's version now.
    pub fn on_entry(&mut self, chunk: C, at: Position) -> bool {
        match self.stale.get_mut(&chunk) {
            Some(last) => {
                *last = at;
                !kept(Rule::StaleStays)
            }
            None => true,
        }
    }

    /// mirror-F2: a fill with this version is staged; the receiver's log ends at `end`.
    pub fn on_fill(&mut self, chunk: C, version: Position, end: Position) -> Fill {
        let Some(last) = self.stale.get(&chunk) else { return Fill::Redo };
        if kept(Rule::FillsFit) {
            if version.seq < last.seq {
                return Fill::Redo;
            }
            if version.seq > end.seq {
                return Fill::Wait;
            }
        }
        self.stale.remove(&chunk);
        Fill::Apply
    }

    /// Chunks that are stale yet, for the order of fills and for the progress that people see.
    pub fn left(&self) -> impl ExactSizeIterator<Item = C> {
        self.stale.keys().copied()
    }
    pub fn is_complete(&self) -> bool {
        self.stale.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Line;

    fn at(seq: u64) -> Position {
        Position { line: Line(1), seq: MirrorSeq(seq) }
    }

    #[test]
    fn log_is_used_while_it_has_the_entries() {
        assert_eq!(way(Some(at(7)), MirrorSeq(8)), Way::Log(MirrorSeq(7)));
        assert_eq!(way(Some(at(7)), MirrorSeq(1)), Way::Log(MirrorSeq(7)));
        assert_eq!(way(Some(at(7)), MirrorSeq(9)), Way::Chunks);
        assert_eq!(way(None, MirrorSeq(1)), Way::Chunks);
    }

    #[test]
    fn stale_chunks_are_those_of_other_versions_on_either_side() {
        let other_line = Position { line: Line(2), seq: MirrorSeq(3) };
        let primary = [(1, at(5)), (2, at(3)), (3, at(4))];
        let receiver = [(1, at(5)), (2, other_line), (4, at(2))];
        let want = [(2, at(3)), (3, at(4)), (4, Position::ZERO)];
        assert_eq!(stale(primary, receiver), BTreeMap::from(want));
    }

    #[test]
    fn fills_fit_between_the_last_entry_on_the_chunk_and_the_end() {
        let mut filling = Filling::new(BTreeMap::from([(1, at(5)), (2, at(3))]));
        assert!(filling.on_entry(9, at(6)), "a chunk that is not stale");
        assert!(!filling.on_entry(1, at(7)));
        assert_eq!(filling.on_fill(1, at(5), at(7)), Fill::Redo);
        assert_eq!(filling.on_fill(1, at(8), at(7)), Fill::Wait);
        assert_eq!(filling.on_fill(1, at(8), at(8)), Fill::Apply);
        assert!(filling.on_entry(1, at(9)) && !filling.is_complete());
        assert_eq!(filling.on_fill(1, at(8), at(9)), Fill::Redo, "it was filled already");
        assert_eq!(filling.left().collect::<Vec<_>>(), [2]);
        assert_eq!(filling.on_fill(2, at(3), at(9)), Fill::Apply);
        assert!(filling.is_complete());
    }
}
