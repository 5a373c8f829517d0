//! Each step of each call that changes records: whatever the MDT or the link goes through at it, the request takes effect once.
//!
//! For every call (`cases.rs`) a medium is recorded from before the request until after a flush that follows its answer. So the
//! events of the recording are the steps: the request is lost (nothing happened yet), it is not in the log yet, its entry is torn, it
//! is in the log and not answered, it is answered, it is flushed. At each the MDT is killed or loses power in each way; or only the
//! link breaks, and the MDT goes on. Then the client does what clients do: it attaches and sends the request again, as one that was
//! answered or as one that was not.
//!
//! These must hold: recovery finds all of the effect or nothing of it; nothing that a kill may not take is gone, and nothing that was
//! flushed; the answer to the repeat is a success; the effect is there once; and a copy that comes late, after a later request
//! changed the same things, changes nothing any more.

mod cases;

use std::collections::BTreeMap;
use std::sync::Arc;

use disk::Crash;
use kv::{Engine, View};
use meta::keys;
use types::*;
use wire::meta::{
    Create, CreateReply, CreateWith, Inode, MakeDir, OpenReply, Rename, RenameReply, Symlink, Tmpfile,
    WriteInline,
};
use wire::{Flags, Header, Request, Wire};

use super::meta_rules::{fresh, rig};
use super::rig::{Rig, Said};
use cases::{CASES, Case};

/// A slot that nothing else uses.
const SLOT: u32 = 5;
const SEQUENCE: u32 = 1;

/// Every record of the name space, its totals among them.
type Records = BTreeMap<Key, Vec<u8>>;

fn records(rig: &Rig) -> Records {
    let mut found = Records::new();
    let each = rig.mdt.core.kv.snapshot().each(&mut |key, value, _| {
        // Sessions and counters change with each start. Counts are folded into their records when there are many (`tests/counts.rs`).
        if matches!(key.as_bytes()[0], keys::ENTRY..keys::SESSION | keys::TOTAL) {
            found.insert(*key, value.to_vec());
        }
        Ok(())
    });
    each.unwrap();
    found
}

/// How many there are of each kind: what is the same if a file got another number.
fn shape(records: &Records) -> BTreeMap<u8, usize> {
    let mut shape = BTreeMap::new();
    records.keys().for_each(|key| *shape.entry(key.as_bytes()[0]).or_default() += 1);
    shape
}

/// A client's copy of one request, for its replay.
#[derive(Clone)]
struct Sent {
    call: u16,
    body: Vec<u8>,
    bulk: Vec<u8>,
}

impl Sent {
    fn new(case: &Case, fids: &[Fid]) -> Sent {
        let (body, bulk) = (case.ask)(fids);
        Sent { call: case.call, body, bulk }
    }

    fn send(&self, rig: &Rig, flags: u16) -> Said {
        let (call, session) = (self.call, rig.session);
        let head = Header { call, session, slot: SLOT, sequence: SEQUENCE, flags, ..Header::default() };
        rig.send_bulk(head, &self.body, &self.bulk, &mut Buf::new())
    }

    /// As it is sent again once its answer is known: a creation asks for the number that it got, and a write has its turn.
    fn answered(&self, reply: &[u8]) -> Sent {
        if let (WriteInline::CALL, Ok(was)) = (self.call, WriteInline::from_bytes(&self.body)) {
            let body = WriteInline { in_section: true, ..was }.to_bytes();
            return Sent { body, ..self.clone() };
        }
        let made = match self.call {
            Create::CALL => CreateReply::from_bytes(reply).unwrap().open.inode.attr.fid,
            Tmpfile::CALL | CreateWith::CALL => OpenReply::from_bytes(reply).unwrap().inode.attr.fid,
            MakeDir::CALL | Symlink::CALL => Inode::from_bytes(reply).unwrap().attr.fid,
            Rename::CALL => RenameReply::from_bytes(reply).unwrap().whiteout,
            _ => return self.clone(),
        };
        let mut sent = self.clone();
        let at = sent.body.len() - 8;
        sent.body[at..].copy_from_slice(&made.0.to_le_bytes());
        sent
    }
}

/// One call, carried out once without trouble, with the film of it.
struct Scene {
    case: &'static Case,
    fids: Vec<Fid>,
    sent: Sent,
    recording: disk::Recording,
    before: Records,
    after: Records,
    reply: Vec<u8>,
    /// Events until the answer, and until all was flushed.
    answered: usize,
    flushed: usize,
}

impl Scene {
    fn play(case: &'static Case) -> Scene {
        let (rig, disk) = fresh();
        let fids = (case.prepare)(&rig);
        let sent = Sent::new(case, &fids);
        rig.mdt.flush().unwrap();
        let before = records(&rig);
        disk.record();
        let (seq, reply) = sent.send(&rig, 0).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let answered = disk.events();
        rig.mdt.flush().unwrap();
        let flushed = disk.events();
        let after = records(&rig);
        assert!(seq.0 > 0 && after != before && answered > 0, "{}: it changes something", case.name);
        let recording = disk.take_recording().unwrap();
        Scene { case, fids, sent, recording, before, after, reply, answered, flushed }
    }

    /// The MDT stopped when `event` events had happened, and is there again.
    fn at(&self, event: usize, crash: Crash, was_answered: bool) {
        let name = self.case.name;
        let when =
            format!("{name}: {crash:?} at event {event} of {}, answered: {was_answered}", self.flushed);
        let rig = rig(Arc::new(self.recording.crash_at(event, crash)));
        // 1. All of it or nothing.
        let found = records(&rig);
        let is_there = found == self.after;
        assert!(is_there || found == self.before, "{when}: half of it is there");
        let must_be = event >= self.flushed || (event >= self.answered && crash == Crash::KeepAll);
        assert!(is_there || !must_be, "{when}: it is gone");
        assert!(!is_there || event > 0, "{when}: it is there before it was asked for");
        // 2. The client is back, and sends it again.
        let slots = rig.attach(1).unwrap().slots;
        assert_eq!(slots[SLOT as usize] >= SEQUENCE, is_there, "{when}: what the slot says");
        let (sent, flags) = match was_answered {
            true => (self.sent.answered(&self.reply), Flags::REPLAY),
            false => (self.sent.clone(), 0),
        };
        // The file that it makes has its earlier number, unless no answer told that number.
        let after = (is_there || was_answered).then_some(&self.after);
        self.check_repeats(&rig, &self.fids, (&sent, flags), after, &when);
    }

    /// Sends it until it is done, and late. `after`: exactly what is there then.
    fn check_repeats(
        &self,
        rig: &Rig,
        fids: &[Fid],
        (sent, flags): (&Sent, u16),
        after: Option<&Records>,
        when: &str,
    ) {
        let (_, reply) = sent.send(rig, flags).unwrap_or_else(|e| panic!("{when}: sent again: {e}"));
        let once = records(rig);
        match after {
            Some(after) => assert!(once == *after, "{when}: sent again, it has another effect"),
            None => assert_eq!(shape(&once), shape(&self.after), "{when}: sent again"),
        }
        let again = sent.send(rig, flags).unwrap_or_else(|e| panic!("{when}: once more: {e}"));
        assert_eq!(again.1, reply, "{when}: a copy gets the same answer");
        assert!(records(rig) == once, "{when}: a copy has an effect");
        // A later request changes the same things, and then the last copy comes.
        (self.case.change)(rig, fids, &reply);
        let changed = records(rig);
        assert!(changed != once, "{when}: the later request changes something");
        sent.send(rig, flags).unwrap_or_else(|e| panic!("{when}: late: {e}"));
        assert!(records(rig) == changed, "{when}: a late copy has an effect");
        assert_eq!(rig.mdt.core.sessions.count(), 1, "{when}");
    }

    /// Only the link breaks: the request or its answer is lost, and the MDT goes on.
    fn at_cut_links(&self) {
        for is_request_lost in [true, false] {
            let (rig, _) = fresh();
            let fids = (self.case.prepare)(&rig);
            let sent = Sent::new(self.case, &fids);
            let done = (!is_request_lost).then(|| {
                sent.send(&rig, 0).unwrap();
                records(&rig)
            });
            let when = format!("{}: the link breaks, request lost: {is_request_lost}", self.case.name);
            self.check_repeats(&rig, &fids, (&sent, 0), done.as_ref(), &when);
        }
    }
}

/// Each way in which power fails, and a kill.
fn crashes(seed: u64) -> [Crash; 6] {
    let torn = Crash::Torn(seed.wrapping_add(1));
    [Crash::KeepAll, Crash::DropAll, Crash::Writes(seed), Crash::Sectors(seed), Crash::Torn(seed), torn]
}

/// [S-exactly-once] `STRIA_LONG=1`: with more ways to lose power.
#[test]
fn each_call_takes_effect_once_whatever_happens_at_each_of_its_steps() {
    let rounds = if std::env::var_os("STRIA_LONG").is_some() { 40 } else { 1 };
    let mut told = 0;
    for case in CASES {
        let scene = Scene::play(case);
        scene.at_cut_links();
        for event in 0..=scene.flushed {
            for crash in (0..rounds).flat_map(|round| crashes(round * 2 + 1)) {
                scene.at(event, crash, false);
                if event >= scene.answered {
                    scene.at(event, crash, true);
                }
                told += 1;
            }
        }
    }
    println!("{} calls, {told} steps", CASES.len());
}

/// A call that is added comes into the matrix.
#[test]
fn every_call_that_changes_records_is_in_the_matrix() {
    let has = |call: u16| CASES.iter().any(|case| case.call == call);
    let missing = (0..=u16::MAX).filter(|call| meta::is_mutation(*call) == Some(true) && !has(*call));
    let missing: Vec<String> = missing.map(|call| format!("{call:#06x}")).collect();
    assert!(missing.is_empty(), "calls without a case in matrix/cases.rs: {missing:?}");
}
