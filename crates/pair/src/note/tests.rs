//! Notes as bytes, and the beginnings of lives.

use super::*;
use MemberId::{A, B};
use MemberState::{InSync, Out};
use hammer::Hammer;

const BOOT: [u8; 16] = [7; 16];

fn map(epoch: u32, b: MemberState) -> Members {
    Members { epoch: Epoch(epoch), primary: A, states: [InSync, b] }
}
fn kept(lines: &[(u32, u64)]) -> Kept {
    let standing = Standing { map: map(5, InSync), is_whole: true, asked: Some(Epoch(5)), is_filling: false };
    let lines = lines.iter().map(|(line, first)| (Line(*line), MirrorSeq(*first))).collect();
    Kept { life: Incarnation(40_000), boot_id: BOOT, standing, stop: Some(true), is_doubted: false, lines }
}
fn log(lines: &[(u32, u64)], end: u64) -> LogLines {
    LogLines { lines: lines.iter().map(|(line, first)| (Epoch(*line), Seq(*first))).collect(), end: Seq(end) }
}
fn lines_of(history: &History) -> Vec<(u32, u64)> {
    history.lines().iter().map(|(line, first)| (line.0, first.0)).collect()
}

#[test]
fn a_note_has_exactly_one_form_and_broken_ones_are_refused() {
    let filling = Standing { is_whole: false, asked: None, is_filling: true, ..kept(&[]).standing };
    let notes = [
        kept(&[]),
        kept(&[(1, 1), (4, 9)]),
        Kept { standing: filling, stop: None, ..kept(&[(2, 7)]) },
        Kept { stop: Some(false), ..kept(&[(2, 7)]) },
        Kept { is_doubted: true, stop: None, ..kept(&[(2, 7)]) },
    ];
    let bytes: Vec<_> = notes.iter().map(Kept::encode).collect();
    for (note, bytes) in notes.iter().zip(&bytes) {
        assert_eq!(Kept::decode(bytes).as_ref(), Ok(note));
        assert!((0..bytes.len()).all(|len| Kept::decode(&bytes[..len]).is_err()), "a cut note");
    }
    Hammer::new("note of a member").seeds(bytes).run(
        |bytes| Kept::decode(bytes).ok(),
        |bytes, note| {
            assert_eq!(note.encode(), bytes);
            bytes.len()
        },
    );
}

#[test]
fn golden_bytes() {
    let mut want = vec![1, WHOLE | ASKED | CLEAN | FREE, 0x40, 0x9c, 0, 0];
    want.extend([7; 16]);
    want.extend([5, 0, 0, 0, 0, 2, 2, 5, 0, 0, 0, 1, 0]);
    want.extend([4, 0, 0, 0, 9, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(kept(&[(4, 265)]).encode(), want);
}

#[test]
fn older_lines_than_the_last_hundred_are_forgotten() {
    let many: Vec<_> = (1..=150).map(|n| (n, u64::from(n) * 10)).collect();
    let note = Kept::decode(&kept(&many).encode()).expect("it is whole");
    assert_eq!(note.lines.len(), 100);
    assert_eq!(note.lines[0], (Line(51), MirrorSeq(510)));
}

#[test]
fn history_is_the_note_before_the_log_and_the_log_itself() {
    type Row<'a> = (&'a str, &'a [(u32, u64)], LogLines, Option<&'a [(u32, u64)]>);
    let table: [Row<'_>; 8] = [
        ("a log without a trimmed part", &[(1, 1)], log(&[(1, 1), (3, 8)], 9), Some(&[(1, 1), (3, 8)])),
        ("a trimmed line goes on", &[(1, 1), (3, 8)], log(&[(3, 20)], 30), Some(&[(1, 1), (3, 8)])),
        ("a log that is empty", &[(1, 1), (3, 8)], log(&[], 30), Some(&[(1, 1), (3, 8)])),
        ("a line without an entry", &[(1, 1), (3, 8)], log(&[(1, 1)], 7), Some(&[(1, 1)])),
        (
            "a line that was cut, then another",
            &[(1, 1), (3, 8)],
            log(&[(1, 5), (4, 8)], 9),
            Some(&[(1, 1), (4, 8)]),
        ),
        ("entries from before the mirror", &[], log(&[], 9), Some(&[(5, 9)])),
        ("nothing", &[], log(&[], 0), Some(&[])),
        ("a log of other lines", &[(4, 1)], log(&[(3, 8)], 9), None),
    ];
    for (name, noted, log, want) in table {
        let begun = begin(&kept(noted).encode(), (A, &map(5, InSync)), &log, true, &BOOT);
        match want {
            Some(want) => assert_eq!(lines_of(&begun.expect(name).history), want, "{name}"),
            None => assert_eq!(begun.err().expect(name).code, Code::Damaged, "{name}"),
        }
    }
}

#[test]
fn ending_is_told_by_the_volume_the_note_and_the_boot_id() {
    let ending = |stop, was_clean, boot_id| {
        let note = Kept { stop, ..kept(&[]) }.encode();
        begin(&note, (A, &map(5, InSync)), &log(&[], 0), was_clean, &boot_id).expect("it is whole").ending
    };
    assert_eq!(ending(Some(true), true, [1; 16]), Ending::Clean { is_free: true });
    assert_eq!(ending(Some(false), true, BOOT), Ending::Clean { is_free: false });
    assert_eq!(ending(Some(true), false, BOOT), Ending::Killed);
    assert_eq!(ending(None, true, BOOT), Ending::Killed);
    assert_eq!(ending(None, false, [1; 16]), Ending::PowerLost);
}

#[test]
fn a_doubt_lasts_until_the_member_is_filled_or_alone() {
    let note = Kept { standing: Standing { asked: None, ..kept(&[]).standing }, ..kept(&[(1, 1)]) }.encode();
    let doubted = doubted_note(&note).expect("it is whole").expect("it has no doubt yet");
    assert_eq!(doubted_note(&doubted), Ok(None), "it says so already");
    let is_whole = |note| noted_standing(note).expect("it is whole").expect("a note").is_whole;
    assert_eq!([is_whole(&note), is_whole(&doubted)], [true, false]);
    let is_doubted = |note: &[u8], b| {
        let begun = begin(note, (A, &map(6, b)), &log(&[(1, 1)], 9), true, &BOOT).expect("it is whole");
        assert_eq!(begun.ending == Ending::PowerLost, begun.is_doubted);
        begun.is_doubted
    };
    assert_eq!(
        [is_doubted(&note, InSync), is_doubted(&doubted, InSync), is_doubted(&doubted, Out)],
        [false, true, false]
    );
    // It was B, and the map has it out.
    let out = (B, &map(7, Out));
    let filling = filling_note(&doubted, out, &BOOT).expect("it is out");
    let copied = copied_note(&doubted, out, &log(&[(1, 1)], 9), &BOOT).expect("it is out");
    for (name, note) in [("filling", filling), ("copied", copied)] {
        assert!(!Kept::decode(&note).expect(name).is_doubted, "{name}");
    }
    let half = Kept { standing: Standing { is_filling: true, ..kept(&[]).standing }, ..kept(&[]) }.encode();
    assert_eq!(
        [doubted_note(&[]), doubted_note(&half)],
        [Ok(None), Ok(None)],
        "content that counts for nothing"
    );
}

#[test]
fn lives_rise_also_over_a_target_that_was_replaced() {
    let life = |note: &[u8], epoch| {
        begin(note, (A, &map(epoch, InSync)), &log(&[], 0), true, &BOOT).expect("it is whole").life
    };
    assert_eq!(life(&kept(&[]).encode(), 5), Incarnation(40_001));
    assert_eq!(life(&kept(&[]).encode(), 10), Incarnation(40_961));
    assert_eq!(life(&[], 10), Incarnation(40_961), "an empty target under a later epoch");
}

#[test]
fn a_target_without_a_note_counts_only_if_the_map_has_it_in_sync() {
    let begin = |me, b, end| begin(&[], (me, &map(5, b)), &log(&[], end), true, &BOOT).expect("no note");
    let whole = begin(A, Out, 9);
    assert!(whole.standing.is_whole && !whole.standing.is_filling && lines_of(&whole.history) == [(5, 9)]);
    let other = begin(B, Out, 9);
    assert!(
        !other.standing.is_whole && other.standing.is_filling,
        "its own content is nothing to the mirror"
    );
    let empty = begin(B, Out, 0);
    assert!(
        !empty.standing.is_whole && !empty.standing.is_filling,
        "an empty one may take the log from its begin"
    );
}

#[test]
fn a_copy_makes_a_member_that_is_not_whole_and_takes_the_log_from_there() {
    let filling = Standing { map: map(5, Out), is_whole: false, asked: None, is_filling: true };
    let note = Kept { standing: filling, stop: None, ..kept(&[]) }.encode();
    let copy = log(&[(1, 1), (4, 9)], 20);
    let copied = copied_note(&note, (B, &map(6, Out)), &copy, &BOOT).expect("it is out");
    let begun = begin(&copied, (B, &map(6, Out)), &log(&[], 20), false, &BOOT).expect("it is whole");
    assert!(!begun.standing.is_filling && !begun.standing.is_whole && begun.life > Incarnation(40_001));
    assert_eq!((lines_of(&begun.history), begun.history.end().seq), (vec![(1, 1), (4, 9)], MirrorSeq(20)));
    assert_eq!(copied_note(&note, (B, &map(6, InSync)), &copy, &BOOT).unwrap_err().code, Code::Invalid);
}
