//! Bringing a member up to date beside live writes: by the log, or by its whole content.
//!
//! A target that can be filled beside live writes takes these steps. Another one ends its life, takes a copy, and comes back.
//!
//! ```text
//! 1 the receiver records that it is filling, takes over the primary's history, and becomes empty; entries follow from there
//! 2 the primary orders fills as entries: each has the state of a part of the content, as of its place in the order
//! 3 the receiver applies all entries as they come; a fill replaces its part
//! 4 the last entry names the first one of this filling: flush, record that the filling is complete; the join follows (mirror-J2)
//! ```
//!
//! mirror-F1: a fill has the state of its part as of its place in the order. So a part that was filled is equal from there on.
//! mirror-F2: each part is filled between the first entry of a filling and the last. A part that does not exist needs no fill.
//! mirror-F3: the record of a filling outlives the receiver. Until the filling is complete its history says nothing of its content, and the
//!     next life is filled from the begin.
//! mirror-F4: any step may be the last one of a life: the next filling needs nothing of this one.
//! mirror-F5: a filling is complete by an entry that names the filling's first one, if the receiver took over a history that ends before that.
//!     A receiver may become empty again within one life, and then lacks fills that it has acknowledged.
//! mirror-F6: within a stream a `Fill` counts only if its history has more than the receiver's log, and the receiver has not said
//!     that it is whole. An earlier one may arrive late.

use crate::types::{MirrorSeq, Position};

/// How a member is brought up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By the entries after this one.
    Log(MirrorSeq),
    /// By the whole content.
    Whole,
}

/// `shared`: what both logs have, by `History::shared`; nothing of a member that was filling (mirror-F3). `first`: the oldest entry that the
/// primary's log still has.
pub fn way(shared: Option<Position>, first: MirrorSeq) -> Way {
    match shared {
        Some(shared) if shared.seq.next() >= first => Way::Log(shared.seq),
        _ => Way::Whole,
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
        assert_eq!(way(Some(at(7)), MirrorSeq(9)), Way::Whole);
        assert_eq!(way(None, MirrorSeq(1)), Way::Whole);
    }
}
