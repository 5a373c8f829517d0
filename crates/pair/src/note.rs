//! The note of a member, which lies beside its log, and the beginning of a life from note and log.
//!
//! ```text
//! 0 version 1   1 bits   2 life u32   6 boot id, 16 bytes   22 epoch of the map u32   26 primary   27 states, 2 bytes
//! 29 epoch under which it asked to be alone u32   33 number of lines u16   35 lines: line u32, first seq u64
//! ```
//!
//! Bits: 1 whole, 2 filling, 4 asked, 8 a clean stop, 16 free (its promise was over at that stop), 32 doubted.
//!
//! pair-S14: a medium that failed may have dropped what was acknowledged, and it may read well until its pages are read anew. So the doubt is in
//!     the note. A member with it begins as one that lost power, claims less than any entry before the MGS, and is filled once its map has it out. Alone by
//!     its map it is the best copy that there is, and the doubt ends.

use mirror::{Ending, History, Line, MemberId, MemberState, Members, MirrorSeq, Standing};
use types::{Code, Epoch, Fault, Incarnation, MirrorId, Seq};
use wire::Malformed;
use wire::codec::{Reader, Wire};
use wire::pair::{LinesOf, MembersOf};

use crate::{NOTE_BYTES_MAX, letters};

const VERSION: u8 = 1;
/// A line is an epoch with writes: a member that was away for so many of them is filled.
const LINES_MAX: usize = 100;
const LINE_BYTES: usize = 4 + 8;
const HEAD_BYTES: usize = 35;
const _: () = assert!(HEAD_BYTES + LINES_MAX * LINE_BYTES <= NOTE_BYTES_MAX, "a note fits its place");

const WHOLE: u8 = 1;
const FILLING: u8 = 2;
const ASKED: u8 = 4;
const CLEAN: u8 = 8;
const FREE: u8 = 16;
const DOUBTED: u8 = 32;

/// Lines of the entries that the log has, each with the first seq that it has of it, and the last seq. A log without entries has no lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogLines {
    pub lines: Vec<(Epoch, Seq)>,
    pub end: Seq,
}

impl LogLines {
    /// The lines of a copy.
    pub fn of(lines: &LinesOf) -> LogLines {
        LogLines { lines: lines.lines.iter().map(|at| (at.line, at.seq)).collect(), end: lines.end }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub life: Incarnation,
    pub boot_id: [u8; 16],
    pub standing: Standing,
    /// The last stop was a clean one; and then, whether the promise was over.
    pub stop: Option<bool>,
    /// pair-S14.
    pub is_doubted: bool,
    pub lines: Vec<(Line, MirrorSeq)>,
}

impl Kept {
    pub fn encode(&self) -> Vec<u8> {
        let Standing { map, is_whole, asked, is_filling } = self.standing;
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let bits = bit(is_whole, WHOLE)
            | bit(is_filling, FILLING)
            | bit(asked.is_some(), ASKED)
            | bit(self.stop.is_some(), CLEAN)
            | bit(self.stop == Some(true), FREE)
            | bit(self.is_doubted, DOUBTED);
        let lines = &self.lines[self.lines.len().saturating_sub(LINES_MAX)..];
        let members = letters::members_of(&map);
        let mut out = Vec::with_capacity(HEAD_BYTES + lines.len() * LINE_BYTES);
        out.extend_from_slice(&[VERSION, bits]);
        self.life.put(&mut out);
        out.extend_from_slice(&self.boot_id);
        map.epoch.put(&mut out);
        out.push(members.primary);
        out.extend_from_slice(&members.states);
        asked.unwrap_or_default().put(&mut out);
        (lines.len() as u16).put(&mut out);
        for (line, first) in lines {
            line.0.put(&mut out);
            first.0.put(&mut out);
        }
        assert!(out.len() <= NOTE_BYTES_MAX, "a note fits its place");
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Kept, Malformed> {
        let mut r = Reader::new(bytes);
        let (version, bits) = (u8::get(&mut r)?, u8::get(&mut r)?);
        if version != VERSION {
            return Err(Malformed("version of a member's note"));
        }
        if bits >= DOUBTED << 1 || bits & (CLEAN | FREE) == FREE {
            return Err(Malformed("bits of a member's note"));
        }
        let life = Incarnation::get(&mut r)?;
        let boot_id = r.take(16)?.try_into().expect("take gave 16 bytes");
        let epoch = Epoch::get(&mut r)?;
        let (primary, states) = (u8::get(&mut r)?, r.take(2)?.to_vec());
        let map = letters::members(&MembersOf { epoch, primary, states })?;
        let asked = Epoch::get(&mut r)?;
        if bits & ASKED == 0 && asked != Epoch(0) {
            return Err(Malformed("asking of a member's note"));
        }
        let count = usize::from(u16::get(&mut r)?);
        if count > LINES_MAX || r.remaining() != count * LINE_BYTES {
            return Err(Malformed("lines of a member's note"));
        }
        let mut lines = Vec::with_capacity(count);
        for _ in 0..count {
            lines.push((Line(u32::get(&mut r)?), MirrorSeq(u64::get(&mut r)?)));
        }
        if !lines.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1) {
            return Err(Malformed("lines of a member's note"));
        }
        let standing = Standing {
            map,
            is_whole: bits & WHOLE != 0,
            asked: (bits & ASKED != 0).then_some(asked),
            is_filling: bits & FILLING != 0,
        };
        let stop = (bits & CLEAN != 0).then_some(bits & FREE != 0);
        Ok(Kept { life, boot_id, standing, stop, is_doubted: bits & DOUBTED != 0, lines })
    }
}

/// The standing of a member, by its note: the newest map that it knows, and what it has. One in doubt is not whole. `None`: it has no note, so it was never a member of two.
pub fn noted_standing(note: &[u8]) -> Result<Option<Standing>, Malformed> {
    if note.is_empty() {
        return Ok(None);
    }
    let Kept { standing, is_doubted, .. } = Kept::decode(note)?;
    Ok(Some(Standing { is_whole: standing.is_whole && !is_doubted, ..standing }))
}

/// Refuses a target whose note is of another mirror: seqs and lines of it mean something else there. `of`: the mirror by its superblock, which was
/// written with the note. `now`: that of the registration.
pub fn check_note_is_of(note: &[u8], of: MirrorId, now: MirrorId) -> Result<(), Fault> {
    if note.is_empty() || of == MirrorId(0) || of == now {
        return Ok(());
    }
    let why =
        format!("this device was a member of mirror {of}, by its note, and was registered for mirror {now}");
    let next = "give the device that belongs here, or format this one anew and have the mirror fill it";
    Err(Fault::new(Code::Invalid, format!("{why}; {next}")))
}

/// The state in which a life begins.
pub struct Beginning {
    pub life: Incarnation,
    pub standing: Standing,
    pub history: History,
    pub ending: Ending,
    /// pair-S14.
    pub is_doubted: bool,
}

/// `map`: the newest one that the caller knows. `was_clean`: the target's volume was closed, so that the log ends as it was left.
pub fn begin(
    note: &[u8],
    (me, map): (MemberId, &Members),
    log: &LogLines,
    was_clean: bool,
    boot_id: &[u8; 16],
) -> Result<Beginning, Fault> {
    if note.is_empty() {
        return first_life(me, map, log);
    }
    let kept = Kept::decode(note).map_err(|why| {
        let next = "restore the target, or replace it and have the mirror fill it again";
        Fault::new(
            Code::Damaged,
            format!("the note of this member of a mirror cannot be read ({why}); {next}"),
        )
    })?;
    let is_alone = map.is_sole(me) && kept.standing.map.epoch <= map.epoch;
    let is_doubted = kept.is_doubted && !is_alone;
    let ending = match kept.stop {
        _ if is_doubted => Ending::PowerLost,
        Some(is_free) if was_clean => Ending::Clean { is_free },
        _ if kept.boot_id == *boot_id => Ending::Killed,
        _ => Ending::PowerLost,
    };
    let newest = kept.standing.map.epoch.max(map.epoch);
    let life = Incarnation(kept.life.0.saturating_add(1)).max(first_of(newest));
    // A member that was being filled has no history that says anything.
    let history = match kept.standing.is_filling {
        true => History::default(),
        false => joined(&kept.lines, log, kept.standing.map.epoch)?,
    };
    Ok(Beginning { life, standing: kept.standing, history, ending, is_doubted })
}

/// The target never was a member. Its content counts only if the map has it in sync.
fn first_life(me: MemberId, map: &Members, log: &LogLines) -> Result<Beginning, Fault> {
    // A pair has entries only once both members have kept notes, so entries without a note are of an old medium.
    let is_whole = map.is_in_sync(me) && (map.is_sole(me) || log.end == Seq(0));
    let is_filling = !is_whole && log.end > Seq(0);
    let history = if is_whole { joined(&[], log, map.epoch)? } else { History::default() };
    let standing = Standing { map: *map, is_whole, asked: None, is_filling };
    let (life, ending) = (first_of(map.epoch), Ending::Clean { is_free: false });
    Ok(Beginning { life, standing, history, ending, is_doubted: false })
}

/// pair-S1. The other member may know lives of a target that was lost; the epoch rose when this one took its place.
fn first_of(epoch: Epoch) -> Incarnation {
    Incarnation(epoch.0.saturating_mul(1 << 12).saturating_add(1))
}

/// The lines of the note that begin before what the log has, then those of the log (pair-S3).
fn joined(noted: &[(Line, MirrorSeq)], log: &LogLines, epoch: Epoch) -> Result<History, Fault> {
    let first = log.lines.first().map_or(Seq(u64::MAX), |(_, first)| *first);
    let is_before = |(_, begin): &&(Line, MirrorSeq)| begin.0 < first.0 && begin.0 <= log.end.0;
    let mut lines: Vec<_> = noted.iter().filter(is_before).copied().collect();
    for (line, first) in &log.lines {
        if lines.last().is_none_or(|(last, _)| *last != Line::of(*line)) {
            lines.push((Line::of(*line), letters::mirror_seq(*first)));
        }
    }
    if lines.is_empty() && log.end > Seq(0) {
        // Entries from before the mirror: nothing is known but the last one.
        lines.push((Line::of(epoch), letters::mirror_seq(log.end)));
    }
    History::new(lines, letters::mirror_seq(log.end)).ok_or_else(|| {
        let next = "restore the target, or replace it and have the mirror fill it again";
        Fault::new(
            Code::Damaged,
            format!("the log and the note of this member of a mirror do not belong together; {next}"),
        )
    })
}

/// pair-S14: the note of a member whose medium has failed. `None`: it has no note, or says so already.
pub fn doubted_note(note: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
    if note.is_empty() {
        return Ok(None);
    }
    let kept = Kept::decode(note)?;
    // Half-filled content counts for nothing anyway.
    let is_news = !kept.is_doubted && !kept.standing.is_filling;
    Ok(is_news.then(|| Kept { is_doubted: true, stop: None, ..kept }.encode()))
}

/// The note of a target whose content is about to be replaced by the other member's: until `copied_note` it counts as half filled.
pub fn filling_note(
    note: &[u8],
    (me, map): (MemberId, &Members),
    boot_id: &[u8; 16],
) -> Result<Vec<u8>, Fault> {
    let before = begin(note, (me, map), &LogLines::default(), false, boot_id)?;
    let map = if before.standing.map.epoch < map.epoch { *map } else { before.standing.map };
    // It might be the only one that has what was answered.
    if map.is_in_sync(me) {
        return Err(Fault::new(
            Code::Invalid,
            "a member in sync keeps its content; the mirror decides first",
        ));
    }
    let standing = Standing { map, is_whole: false, asked: None, is_filling: true };
    let (life, boot_id) = (before.life, *boot_id);
    Ok(Kept { life, boot_id, standing, stop: None, is_doubted: false, lines: vec![] }.encode())
}

/// The note of a target that now has the other member's whole content up to `copy.end`. `note`: the one of before, if it is still there.
pub fn copied_note(
    note: &[u8],
    (me, map): (MemberId, &Members),
    copy: &LogLines,
    boot_id: &[u8; 16],
) -> Result<Vec<u8>, Fault> {
    let before = begin(note, (me, map), &LogLines::default(), false, boot_id)?;
    let history = joined(&[], copy, map.epoch)?;
    let map = if before.standing.map.epoch < map.epoch { *map } else { before.standing.map };
    let is_in_sync = map.states[me.index()] == MemberState::InSync;
    if is_in_sync {
        return Err(Fault::new(Code::Invalid, "a member in sync takes no copy of the other one"));
    }
    let standing = Standing { map, is_whole: false, asked: None, is_filling: false };
    let (life, boot_id, lines) = (before.life, *boot_id, history.lines().to_vec());
    Ok(Kept { life, boot_id, standing, stop: None, is_doubted: false, lines }.encode())
}

#[cfg(test)]
mod tests;
