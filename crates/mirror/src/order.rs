//! The order of entries: own log, other's log, answer.
//!
//! ```text
//! primary   1 take the next position   2 append to its own log   3 ship         5 acknowledged: apply, answer
//! backup                                                         4 append, apply, acknowledge
//! ```
//!
//! mirror-O1: the primary appends an entry before it ships it. So a backup never has an entry that its primary has not.
//! mirror-O2: an entry is answered when each member in sync has it. From the moment at which a second member may be declared in sync, that
//!     is both (mirror-J2).
//! mirror-O3: a backup appends an entry only behind the entry before it, by line and sequence, and acknowledges its end: all up to there.
//! mirror-O4: the reported flushed sequence is the smallest of the members in sync.
//! mirror-O5: an acknowledgement counts only between the two lives of the members that exchanged greetings, under one epoch.
//! mirror-O6: a greeting of an earlier life is answered. A letter to a later life tells its receiver that its number was used before, as on a
//!     medium that was put back old. It ends, and begins again above that number.

use crate::history::History;
use crate::planted::{Rule, kept};
use crate::types::{MirrorSeq, Position};

/// How many members must have an entry before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    One,
    Both,
}

/// mirror-O2: entries up to here may be applied and answered.
pub fn answerable(copies: Copies, own_end: MirrorSeq, acked: MirrorSeq) -> MirrorSeq {
    match copies {
        Copies::Both if kept(Rule::AnswerAfterAck) => own_end.min(acked),
        _ => own_end,
    }
}

/// mirror-O4: what an answer may report as flushed.
pub fn flushed(copies: Copies, own: MirrorSeq, other: MirrorSeq) -> MirrorSeq {
    match copies {
        Copies::One => own,
        Copies::Both if kept(Rule::SmallerFlushed) => own.min(other),
        Copies::Both => own.max(other),
    }
}

/// The place of an entry for the log that it reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    Append,
    /// It is there already: acknowledge again.
    Known,
    /// An entry before it is missing: acknowledge the end, so that the primary ships from there.
    Gap,
}

/// mirror-O3.
pub fn arrival(history: &History, before: Position, at: Position) -> Arrival {
    let end = history.end();
    if end == before || (!kept(Rule::NoGaps) && at.seq > end.seq) {
        Arrival::Append
    } else if history.holds(at) {
        Arrival::Known
    } else {
        Arrival::Gap
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Line;

    #[test]
    fn entries_are_appended_without_gaps() {
        let at = |line, seq| Position { line: Line(line), seq: MirrorSeq(seq) };
        let mut history = History::default();
        history.append(at(1, 1));
        let table = [
            ("the next one", at(1, 1), at(1, 2), Arrival::Append),
            ("the next one of a new line", at(1, 1), at(4, 2), Arrival::Append),
            ("once more", Position::ZERO, at(1, 1), Arrival::Known),
            ("one too far", at(1, 2), at(1, 3), Arrival::Gap),
            ("behind an entry of another line", at(2, 1), at(2, 2), Arrival::Gap),
            ("the same sequence of another line", Position::ZERO, at(2, 1), Arrival::Gap),
        ];
        for (name, before, entry, want) in table {
            assert_eq!(arrival(&history, before, entry), want, "{name}");
        }
    }

    #[test]
    fn answers_and_flush_marks_follow_the_slower_member() {
        let (less, more) = (MirrorSeq(3), MirrorSeq(5));
        assert_eq!((answerable(Copies::Both, more, less), answerable(Copies::One, more, less)), (less, more));
        assert_eq!((flushed(Copies::Both, less, more), flushed(Copies::Both, more, less)), (less, less));
        assert_eq!(flushed(Copies::One, more, less), more);
    }
}
