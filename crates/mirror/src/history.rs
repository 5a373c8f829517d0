//! A log's history: which line each of its entries belongs to. Two histories tell how far two logs are the same.
//!
//! mirror-J1: two logs are the same up to the smaller end of the greatest line that both have. A sequence without its line proves nothing:
//! two members may each have ordered an entry of that number, in different epochs.

use crate::planted::{Rule, kept};
use crate::types::{Line, MirrorSeq, Position};

#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct History {
    /// Lines with entries, each with the sequence of its first; both rise. One line for each epoch with writes, until it is forgotten.
    lines: Vec<(Line, MirrorSeq)>,
    end: MirrorSeq,
}

impl History {
    pub fn end(&self) -> Position {
        self.position(self.end)
    }

    /// The full name of the entry with this sequence; `ZERO` if the history does not reach so far back.
    pub fn position(&self, seq: MirrorSeq) -> Position {
        let line = self.lines.iter().rev().find(|(_, first)| *first <= seq);
        line.map_or(Position::ZERO, |(line, _)| Position { line: *line, seq })
    }

    /// True if the log has, or once had, this very entry. A client's mark that is not held was lost, and is to be replayed.
    pub fn holds(&self, at: Position) -> bool {
        at == Position::ZERO || (at.seq <= self.end && self.position(at.seq) == at)
    }

    /// A history of these lines, each with its first sequence, that ends here. `None`: they do not rise.
    pub fn new(lines: Vec<(Line, MirrorSeq)>, end: MirrorSeq) -> Option<History> {
        let is_rising = lines.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1);
        let is_within = lines.last().is_none_or(|(_, first)| *first <= end);
        let has_begin = lines.first().map_or(end == MirrorSeq(0), |(_, first)| *first > MirrorSeq(0));
        (is_rising && is_within && has_begin).then_some(History { lines, end })
    }

    /// The lines that are known, each with the sequence of its first entry.
    pub fn lines(&self) -> &[(Line, MirrorSeq)] {
        &self.lines
    }

    /// Adds the entry that follows the last one. It takes all sequences up to its own.
    pub fn append(&mut self, at: Position) {
        let end = self.end();
        assert!(at.seq > end.seq, "{at:?} behind {end:?}: an entry is appended once");
        assert!(at.line >= end.line, "{at:?} behind {end:?}: lines rise");
        if at.line > end.line {
            // The first sequence of the entry, which may take several: `last_of` is the end of the line before.
            self.lines.push((at.line, end.seq.next()));
        }
        self.end = at.seq;
    }

    /// Drops all entries after this one.
    pub fn cut(&mut self, after: MirrorSeq) {
        self.end = self.end.min(after);
        self.lines.retain(|(_, first)| *first <= after);
    }

    /// Forgets lines that ended before `seq`: the log is trimmed, and no retained request is so old.
    pub fn forget(&mut self, seq: MirrorSeq) {
        let gone = self.lines.iter().skip(1).take_while(|(_, first)| *first <= seq).count();
        self.lines.drain(..gone);
    }

    /// mirror-J1: the last entry that both logs have. `None`: they may share more than is still known, so only chunks can be compared.
    pub fn shared(&self, other: &History) -> Option<Position> {
        if !kept(Rule::CutByLine) {
            return Some(self.position(self.end.min(other.end)));
        }
        let is_common = |(line, _): &&(Line, MirrorSeq)| other.lines.iter().any(|(l, _)| l == line);
        match self.lines.iter().rev().find(is_common) {
            Some((line, _)) => {
                let seq = self.last_of(*line).min(other.last_of(*line));
                Some(Position { line: *line, seq })
            }
            None => (self.is_complete() && other.is_complete()).then_some(Position::ZERO),
        }
    }

    /// The last entry of a line that the history has.
    fn last_of(&self, line: Line) -> MirrorSeq {
        let next = self.lines.iter().find(|(l, _)| *l > line);
        next.map_or(self.end, |(_, first)| MirrorSeq(first.0 - 1))
    }

    fn is_complete(&self) -> bool {
        self.lines.first().is_none_or(|(_, first)| *first == MirrorSeq(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(entries: &[(u32, u64)]) -> History {
        let mut history = History::default();
        for (line, seq) in entries {
            history.append(Position { line: Line(*line), seq: MirrorSeq(*seq) });
        }
        history
    }
    fn at(line: u32, seq: u64) -> Position {
        Position { line: Line(line), seq: MirrorSeq(seq) }
    }

    #[test]
    fn logs_are_the_same_up_to_the_smaller_end_of_the_last_common_line() {
        type Row = (&'static str, &'static [(u32, u64)], &'static [(u32, u64)], Position);
        let table: [Row; 6] = [
            ("both empty", &[], &[], Position::ZERO),
            ("one empty", &[(1, 1)], &[], Position::ZERO),
            ("a prefix", &[(1, 1), (1, 2)], &[(1, 1)], at(1, 1)),
            ("the same sequence under two lines", &[(1, 1), (1, 2)], &[(1, 1), (2, 2)], at(1, 1)),
            ("a line between", &[(1, 1), (3, 2), (3, 3)], &[(1, 1), (2, 2), (2, 3)], at(1, 1)),
            ("no common line", &[(1, 1)], &[(2, 1), (2, 2)], Position::ZERO),
        ];
        for (name, a, b, want) in table {
            assert_eq!(history(a).shared(&history(b)), Some(want), "{name}");
            assert_eq!(history(b).shared(&history(a)), Some(want), "{name}, from the other side");
        }
    }

    #[test]
    fn cut_ends_lines_and_marks_of_lost_entries_are_not_held() {
        let mut h = history(&[(1, 1), (1, 2), (3, 3)]);
        assert!(h.holds(at(1, 2)) && h.holds(at(3, 3)) && h.holds(Position::ZERO));
        assert!(!h.holds(at(1, 3)) && !h.holds(at(3, 4)));
        h.cut(MirrorSeq(1));
        assert_eq!(h.end(), at(1, 1));
        h.append(at(4, 2));
        assert!(!h.holds(at(1, 2)) && h.holds(at(4, 2)) && !h.holds(at(3, 3)));
    }

    #[test]
    fn line_begins_with_the_first_sequence_of_an_entry_that_takes_several() {
        let ours = history(&[(1, 2), (2, 5)]);
        assert_eq!(ours.lines(), [(Line(1), MirrorSeq(1)), (Line(2), MirrorSeq(3))]);
        assert_eq!(ours.position(MirrorSeq(2)), at(1, 2));
        assert_eq!(ours.shared(&history(&[(1, 2), (1, 4)])), Some(at(1, 2)), "3 and 4 are of another line");
    }

    #[test]
    fn history_of_given_lines_rises() {
        let lines = |lines: &[(u32, u64)], end| {
            let lines = lines.iter().map(|(line, first)| (Line(*line), MirrorSeq(*first))).collect();
            History::new(lines, MirrorSeq(end))
        };
        assert_eq!(lines(&[(1, 1), (2, 2)], 3).map(|h| h.end()), Some(at(2, 3)));
        assert_eq!(lines(&[], 0), Some(History::default()));
        for (bad, end) in
            [(&[(1, 1), (1, 2)][..], 3), (&[(1, 2), (2, 2)], 3), (&[(1, 4)], 3), (&[(1, 0)], 3), (&[], 3)]
        {
            assert_eq!(lines(bad, end), None, "{bad:?}, {end}");
        }
    }

    #[test]
    fn forgotten_lines_share_nothing_that_is_known() {
        let mut h = history(&[(1, 1), (2, 2), (3, 3)]);
        let old = history(&[(1, 1)]);
        h.forget(MirrorSeq(2));
        assert_eq!(h.position(MirrorSeq(2)), at(2, 2));
        assert_eq!(h.shared(&old), None);
        assert_eq!(h.shared(&history(&[(1, 1), (2, 2)])), Some(at(2, 2)));
        assert_eq!(h.shared(&History::default()), None);
    }
}
