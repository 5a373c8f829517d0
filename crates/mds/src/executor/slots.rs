//! Slots: the last request of each slot of each session, with its reply. A repeated request is answered from here.
//!
//! Slots change together with the log entry of their request (mds-M4), and checkpoints have them as records of kind 8. Refusals are not
//! recorded: a refused request that is sent again is judged again. So gaps in a slot's sequences are normal.

use std::collections::HashMap;
use std::sync::Arc;

use kv::{Batch, Change, Value, record_bytes};
use object::slots::{Admission, Done as SlotDone, admit, check_slot, unknown};
use types::{Fault, Key, Seq, SessionId};
use wire::session::SLOTS;
use wire::{Malformed, Reader, Wire};

use crate::records::record::{Member, Origin};
use crate::sessions::{KIND_SESSION, session_of_key};

/// Key kind of slot records in checkpoints.
pub const KIND_SLOT: u8 = meta::keys::SLOT;

/// The last request of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Last {
    pub sequence: u32,
    /// Seq of the operation.
    pub seq: Seq,
    /// The reply's body without its head.
    pub reply: Arc<[u8]>,
}

/// How the executor treats a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    New,
    Repeat(Last),
    /// Carried out by an entry up to this one. Its reply is gone.
    Old(Seq),
}

/// All slots. The sessions are those of the table's records of kind 7.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// Of each session the slots up to the last one that was used, since most clients use few. Shared with a checkpoint that is being
    /// written.
    sessions: HashMap<SessionId, Arc<Vec<Option<Last>>>>,
    /// Bytes of all slots in a checkpoint.
    bytes: u64,
}

impl Slots {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn admit(&self, origin: &Origin) -> Result<Verdict, Fault> {
        check_slot(origin.session, origin.slot)?;
        let slots = self.sessions.get(&origin.session).ok_or_else(|| unknown(origin.session))?;
        let Some(Some(last)) = slots.get(origin.slot as usize) else { return Ok(Verdict::New) };
        let done = SlotDone { sequence: last.sequence, seq: last.seq, answer: 0 };
        Ok(match admit(done, origin.sequence) {
            Admission::New => Verdict::New,
            Admission::Repeat(_) => Verdict::Repeat(last.clone()),
            Admission::Old => Verdict::Old(last.seq),
        })
    }

    pub fn check_session(&self, session: SessionId) -> Result<(), Fault> {
        if self.sessions.contains_key(&session) { Ok(()) } else { Err(unknown(session)) }
    }

    /// The highest sequence that was carried out in each slot.
    pub fn sequences(&self, session: SessionId) -> Vec<u32> {
        let used = self.sessions.get(&session).into_iter().flat_map(|slots| slots.iter());
        let mut all: Vec<_> = used.map(|slot| slot.as_ref().map_or(0, |last| last.sequence)).collect();
        all.resize(SLOTS as usize, 0);
        all
    }

    /// Applies an entry: replies of its members, and sessions that began or ended. `first`: seq of the first member.
    pub fn apply(&mut self, members: &[Member], first: Seq, changes: &Batch) {
        // Few entries change a session record, so one byte of the key decides.
        for Change { key, value } in
            changes.0.iter().filter(|c| c.key.as_bytes().first() == Some(&KIND_SESSION))
        {
            match (session_of_key(key), value) {
                (Some(session), Some(_)) => self.begin(session),
                (Some(session), None) => self.end(session),
                (None, _) => {}
            }
        }
        for (member, seq) in members.iter().zip(first.0..) {
            if let Some(Origin { session, slot, sequence }) = member.origin {
                self.note(session, slot, Last { sequence, seq: Seq(seq), reply: member.reply.clone() });
            }
        }
    }

    /// True if these members were the last of their slots, with these seqs and replies. Members of ended sessions left nothing.
    pub fn shows(&self, members: &[Member], first: Seq) -> bool {
        members.iter().zip(first.0..).all(|(member, seq)| {
            let Some(Origin { session, slot, sequence }) = member.origin else { return true };
            let Some(slots) = self.sessions.get(&session) else { return true };
            let last = Last { sequence, seq: Seq(seq), reply: member.reply.clone() };
            slots.get(slot as usize) == Some(&Some(last))
        })
    }

    pub fn begin(&mut self, session: SessionId) {
        self.sessions.entry(session).or_default();
    }

    fn end(&mut self, session: SessionId) {
        let slots = self.sessions.remove(&session);
        let bytes = slots.iter().flat_map(|slots| slots.iter().flatten()).map(slot_bytes).sum::<u64>();
        assert!(self.bytes >= bytes, "mds-I1: the ended session's slots are in the sum");
        self.bytes -= bytes;
        debug_assert!(self.bytes == 0 || !self.sessions.is_empty(), "mds-I1: without sessions the sum is 0");
    }

    /// Notes the last request of a slot. Does nothing if the session is unknown: then it ended later in the log.
    fn note(&mut self, session: SessionId, slot: u32, last: Last) {
        let Some(slots) = self.sessions.get_mut(&session).filter(|_| slot < SLOTS).map(Arc::make_mut) else {
            return;
        };
        if slots.len() <= slot as usize {
            slots.resize(slot as usize + 1, None);
        }
        let place = &mut slots[slot as usize];
        self.bytes += slot_bytes(&last);
        if let Some(old) = place.replace(last) {
            assert!(self.bytes >= slot_bytes(&old), "mds-I1: the replaced slot is in the sum");
            self.bytes -= slot_bytes(&old);
        }
    }

    /// The records of kind 8, in no particular order.
    pub fn records(&self) -> impl Iterator<Item = (Key, Value)> + '_ {
        self.sessions.iter().flat_map(|(session, slots)| {
            slots.iter().enumerate().filter_map(|(n, last)| {
                let last = last.as_ref()?;
                let mut value = Vec::with_capacity(12 + last.reply.len());
                last.sequence.put(&mut value);
                last.seq.put(&mut value);
                value.extend_from_slice(&last.reply);
                Some((slot_key(*session, n as u32), Value::new(&value)))
            })
        })
    }

    /// Takes back a record of kind 8 from a checkpoint.
    pub fn restore(&mut self, key: &Key, value: &[u8]) -> Result<(), Malformed> {
        let k = &mut Reader::new(key.as_bytes().get(1..).ok_or(Malformed("key of a slot"))?);
        let session = SessionId(u64::from_be_bytes(k.take(8)?.try_into().expect("take gave 8 bytes")));
        let slot = u32::from_be_bytes(k.take(4)?.try_into().expect("take gave 4 bytes"));
        k.end()?;
        if slot >= SLOTS {
            return Err(Malformed("slot number"));
        }
        let v = &mut Reader::new(value);
        let (sequence, seq) = (u32::get(v)?, Seq::get(v)?);
        self.begin(session);
        self.note(session, slot, Last { sequence, seq, reply: v.take(v.remaining())?.into() });
        Ok(())
    }

    /// Drops slots of sessions that are not in `known`, and adds empty ones for known sessions without slots. `known` is in order.
    pub fn keep_only(&mut self, known: &[SessionId]) {
        assert!(known.is_sorted(), "mds-S2: the list of sessions is in order");
        let is_gone = |s: &&SessionId| known.binary_search(s).is_err();
        let gone: Vec<SessionId> = self.sessions.keys().filter(is_gone).copied().collect();
        gone.into_iter().for_each(|s| self.end(s));
        known.iter().for_each(|s| self.begin(*s));
        debug_assert!(known.iter().all(|s| self.sessions.contains_key(s)), "mds-I2: every session has slots");
    }
}

fn slot_key(session: SessionId, slot: u32) -> Key {
    let mut bytes = [0u8; 13];
    bytes[0] = KIND_SLOT;
    bytes[1..9].copy_from_slice(&session.0.to_be_bytes());
    bytes[9..].copy_from_slice(&slot.to_be_bytes());
    Key::new(&bytes).expect("13 bytes fit")
}

fn slot_bytes(last: &Last) -> u64 {
    record_bytes(&slot_key(SessionId(0), 0), 12 + last.reply.len())
}

#[cfg(test)]
mod tests {
    use types::Code;

    use super::*;

    fn origin(slot: u32, sequence: u32) -> Origin {
        Origin { session: SessionId(3), slot, sequence }
    }

    fn done(slots: &mut Slots, slot: u32, sequence: u32, reply: &[u8]) {
        let member = Member { call: 1, origin: Some(origin(slot, sequence)), reply: reply.into() };
        slots.apply(&[member], Seq(sequence as u64), &Batch::new());
    }

    #[test]
    fn a_request_is_new_once_then_repeated_then_old() {
        let mut s = Slots::default();
        assert_eq!(s.admit(&origin(0, 1)).unwrap_err().code, Code::NoSession);
        s.begin(SessionId(3));
        assert_eq!(s.admit(&origin(0, 1)), Ok(Verdict::New));
        done(&mut s, 0, 1, b"one");
        assert!(
            matches!(s.admit(&origin(0, 1)), Ok(Verdict::Repeat(l)) if &l.reply[..] == b"one" && l.seq == Seq(1))
        );
        // 2 was refused and left no trace.
        done(&mut s, 0, 3, b"three");
        assert_eq!(s.admit(&origin(0, 1)), Ok(Verdict::Old(Seq(3))));
        assert_eq!(s.admit(&origin(1, 1)), Ok(Verdict::New), "slots are apart");
        assert_eq!(s.admit(&origin(SLOTS, 1)).unwrap_err().code, Code::BadRequest);
    }

    /// As `docs/formats/mdt.md` has it.
    #[test]
    fn golden() {
        let mut s = Slots::default();
        s.begin(SessionId(3));
        let origin = Origin { session: SessionId(3), slot: 5, sequence: 0x0102_0304 };
        // The second of two: its seq is the entry's and one.
        let second = Member { call: 1, origin: Some(origin), reply: b"re"[..].into() };
        let first = Member { call: 1, origin: None, reply: b"x"[..].into() };
        s.apply(&[first, second], Seq(0x1112_1314_1516_1717), &Batch::new());
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let (key, value) = s.records().next().unwrap();
        assert_eq!(hex(key.as_bytes()), "08000000000000000300000005");
        assert_eq!(hex(value.raw()), "0403020118171615141312117265");
    }

    #[test]
    fn records_bring_everything_back_and_bytes_are_true() {
        let mut s = Slots::default();
        s.begin(SessionId(3));
        done(&mut s, 0, 1, b"one");
        done(&mut s, 0, 2, b"second");
        done(&mut s, 63, 9, b"");
        let mut back = Slots::default();
        let mut bytes = 0;
        for (key, value) in s.records() {
            bytes += record_bytes(&key, value.raw().len());
            back.restore(&key, value.raw()).unwrap();
        }
        assert_eq!(back, s);
        assert_eq!(s.bytes(), bytes);
        back.keep_only(&[SessionId(4)]);
        assert_eq!(back.bytes(), 0);
        let admitted = |session| back.admit(&Origin { session, slot: 0, sequence: 1 }).is_ok();
        assert!(admitted(SessionId(4)) && !admitted(SessionId(3)));
    }
}
