//! Letters and requests of the rules in the form of the wire.

use mirror::promise::Token;
use mirror::{
    Ends, History, Letter, Line, MemberId, MemberState, Members, MirrorSeq, Note, Position, Request,
};
use types::{Epoch, Seq};
use wire::Malformed;
use wire::codec::Bytes;
use wire::pair::{AskingOf, At, Letter as Sent, LinesOf, MembersOf, NoteOf, TokenOf};

use crate::{Logged, Place};

pub fn seq(seq: MirrorSeq) -> Seq {
    Seq(seq.0)
}
pub fn mirror_seq(seq: Seq) -> MirrorSeq {
    MirrorSeq(seq.0)
}

/// A letter other than an entry.
pub fn sent(letter: &Letter) -> Sent {
    let note = match &letter.note {
        Note::Hello { history, flushed, is_whole, is_filling } => NoteOf::Hello {
            history: lines(history),
            flushed: seq(*flushed),
            is_whole: *is_whole,
            is_filling: *is_filling,
        },
        Note::Start { after } => NoteOf::Start { after: at(*after) },
        Note::Fill { history } => NoteOf::Fill { history: lines(history) },
        Note::Entry { .. } => unreachable!("entries have a content: `sent_entry`"),
        Note::Ack { end, flushed, is_whole, is_filling } => NoteOf::Ack {
            end: seq(*end),
            flushed: seq(*flushed),
            is_whole: *is_whole,
            is_filling: *is_filling,
        },
        Note::Join { up_to } => NoteOf::Join { up_to: seq(*up_to) },
        Note::Ask(token) => NoteOf::Ask(token_of(token)),
        Note::Promise(token) => NoteOf::Promise(token_of(token)),
        Note::Return(token) => NoteOf::Return(token_of(token)),
        Note::Leaving => NoteOf::Leaving,
    };
    around(letter, note)
}

/// The letter for an entry of the log, as `Member::entry` made it.
pub fn sent_entry(letter: &Letter, entry: Logged) -> Sent {
    let Note::Entry { before, at: last } = letter.note else { unreachable!("it is an entry") };
    let note = NoteOf::Entry {
        before: at(before),
        at: at(last),
        first: entry.place.first,
        content: Bytes(entry.content),
    };
    around(letter, note)
}

fn around(letter: &Letter, note: NoteOf) -> Sent {
    let Ends { from, to } = letter.ends;
    Sent { map: members_of(&letter.map), from, to: to.unwrap_or_default(), note }
}

/// A letter that arrived, and its entry.
pub fn received(sent: Sent) -> Result<(Letter, Option<Logged>), Malformed> {
    let mut entry = None;
    let note = match sent.note {
        NoteOf::Hello { history: lines, flushed, is_whole, is_filling } => {
            Note::Hello { history: history(&lines)?, flushed: mirror_seq(flushed), is_whole, is_filling }
        }
        NoteOf::Start { after } => Note::Start { after: position(after) },
        NoteOf::Fill { history: lines } => Note::Fill { history: history(&lines)? },
        NoteOf::Entry { before, at, first, content } => {
            let is_behind = before.seq < first && first <= at.seq && before.line <= at.line;
            if !is_behind {
                return Err(Malformed("seqs of an entry"));
            }
            let place = Place { line: at.line, first, last: at.seq };
            entry = Some(Logged { place, content: content.0 });
            Note::Entry { before: position(before), at: position(at) }
        }
        NoteOf::Ack { end, flushed, is_whole, is_filling } => {
            Note::Ack { end: mirror_seq(end), flushed: mirror_seq(flushed), is_whole, is_filling }
        }
        NoteOf::Join { up_to } => Note::Join { up_to: mirror_seq(up_to) },
        NoteOf::Ask(token) => Note::Ask(token_from(&token)),
        NoteOf::Promise(token) => Note::Promise(token_from(&token)),
        NoteOf::Return(token) => Note::Return(token_from(&token)),
        NoteOf::Leaving => Note::Leaving,
    };
    let to = Some(sent.to).filter(|to| to.0 != 0);
    Ok((Letter { map: members(&sent.map)?, ends: Ends { from: sent.from, to }, note }, entry))
}

pub fn asking(request: Request) -> AskingOf {
    match request {
        Request::Fetch { epoch } => AskingOf::Fetch { epoch },
        Request::Ask { epoch, is_whole, end, is_planned } => {
            AskingOf::Alone { epoch, is_whole, end: at(end), is_planned }
        }
        Request::InSync { epoch } => AskingOf::InSync { epoch },
        Request::Resyncing { epoch, is_under_way } => AskingOf::Resyncing { epoch, is_under_way },
    }
}

/// The numbers of states are those of the cluster map.
pub fn members_of(members: &Members) -> MembersOf {
    let state = |state: &MemberState| match state {
        MemberState::Out => 0,
        MemberState::Resyncing => 1,
        MemberState::InSync => 2,
    };
    let primary = members.primary.index() as u8;
    MembersOf { epoch: members.epoch, primary, states: members.states.iter().map(state).collect() }
}

pub fn members(of: &MembersOf) -> Result<Members, Malformed> {
    let state = |number: &u8| match number {
        0 => Ok(MemberState::Out),
        1 => Ok(MemberState::Resyncing),
        2 => Ok(MemberState::InSync),
        _ => Err(Malformed("state of a member")),
    };
    let [a, b] = of.states.as_slice() else { return Err(Malformed("number of members")) };
    let primary = MemberId::BOTH.get(usize::from(of.primary)).ok_or(Malformed("primary of a mirror"))?;
    Ok(Members { epoch: of.epoch, primary: *primary, states: [state(a)?, state(b)?] })
}

pub fn lines(history: &History) -> LinesOf {
    let line = |(line, first): &(Line, MirrorSeq)| At { line: Epoch(line.0), seq: seq(*first) };
    LinesOf { lines: history.lines().iter().map(line).collect(), end: seq(history.end().seq) }
}

pub fn history(of: &LinesOf) -> Result<History, Malformed> {
    let lines = of.lines.iter().map(|at| (Line::of(at.line), mirror_seq(at.seq))).collect();
    History::new(lines, mirror_seq(of.end)).ok_or(Malformed("lines of a log"))
}

fn at(position: Position) -> At {
    At { line: Epoch(position.line.0), seq: seq(position.seq) }
}
fn position(at: At) -> Position {
    Position { line: Line::of(at.line), seq: mirror_seq(at.seq) }
}
fn token_of(token: &Token) -> TokenOf {
    TokenOf { life: token.life, number: token.number, sent_ms: token.sent_ms }
}
fn token_from(of: &TokenOf) -> Token {
    Token { life: of.life, number: of.number, sent_ms: of.sent_ms }
}

#[cfg(test)]
mod tests {
    use types::Incarnation;

    use super::*;

    fn letter(note: Note) -> Letter {
        let map = Members {
            epoch: Epoch(6),
            primary: MemberId::B,
            states: [MemberState::Resyncing, MemberState::InSync],
        };
        Letter { map, ends: Ends { from: Incarnation(7), to: None }, note }
    }
    fn position(line: u32, seq: u64) -> Position {
        Position { line: Line(line), seq: MirrorSeq(seq) }
    }

    #[test]
    fn letters_survive_the_way() {
        let log = History::new(vec![(Line(2), MirrorSeq(1)), (Line(5), MirrorSeq(4))], MirrorSeq(9));
        let (history, flushed) = (log.expect("lines rise"), MirrorSeq(3));
        let token = Token { life: Incarnation(7), number: 8, sent_ms: 9 };
        let notes = [
            Note::Hello { history: history.clone(), flushed, is_whole: true, is_filling: false },
            Note::Start { after: position(5, 9) },
            Note::Fill { history },
            Note::Ack { end: MirrorSeq(9), flushed, is_whole: false, is_filling: true },
            Note::Join { up_to: MirrorSeq(9) },
            Note::Ask(token),
            Note::Promise(token),
            Note::Return(token),
            Note::Leaving,
        ];
        for note in notes {
            assert_eq!(received(sent(&letter(note.clone()))), Ok((letter(note), None)));
        }
        let place = Place { line: Epoch(6), first: Seq(10), last: Seq(12) };
        let entry = Logged { place, content: b"entry".to_vec() };
        let told = letter(Note::Entry { before: position(5, 9), at: position(6, 12) });
        assert_eq!(received(sent_entry(&told, entry.clone())), Ok((told, Some(entry))));
    }

    #[test]
    fn letters_that_cannot_be_are_refused() {
        let good = sent(&letter(Note::Leaving));
        let map = |primary, states: &[u8]| MembersOf { epoch: Epoch(6), primary, states: states.to_vec() };
        for map in [map(2, &[2, 2]), map(0, &[2]), map(0, &[2, 2, 2]), map(0, &[2, 3])] {
            assert!(received(Sent { map, ..good.clone() }).is_err());
        }
        let at = |line, seq| At { line: Epoch(line), seq: Seq(seq) };
        let entry =
            |before, at, first| NoteOf::Entry { before, at, first: Seq(first), content: Bytes::default() };
        let falling = LinesOf { lines: vec![at(2, 4), at(3, 4)], end: Seq(9) };
        for note in [
            entry(at(1, 3), at(1, 5), 6),
            entry(at(1, 3), at(1, 5), 3),
            entry(at(1, 0), at(1, 0), 0),
            entry(at(2, 3), at(1, 5), 4),
            NoteOf::Fill { history: falling },
        ] {
            assert!(received(Sent { note: note.clone(), ..good.clone() }).is_err(), "{note:?}");
        }
    }
}
