//! `stria mirror verify` of an MDT: the primary compares its records with the other member's, while it is in use (decision 0076). `compare.rs` has
//! the rules.
//!
//! Nothing is mended here: a member whose records differ takes the whole content anew, by an administrator's order.

use std::time::Duration;

use kv::{Engine, View};
use meta::stretch;
use parking_lot::Mutex;
use types::{Code, Fault, Fid, Key, Seq};
use wire::pair::{
    CompareRecordsReply, CompareStep, KeySeen, PartSeen, RecordDifference, VerifyRecords, VerifyRecordsReply,
    record_difference as found, verify_state,
};

use crate::Core;
use crate::records::look::end;
use crate::upkeep::compare::{Part, Side, bytes, hash_of, key_of};

/// Differences that are kept for the answer.
const KEPT_MAX: usize = 100;
/// Pause after a step that failed, and how many of these end a run.
const AGAIN: Duration = Duration::from_millis(500);
const AGAIN_MAX: u32 = 20;
/// How often a run begins anew since a member dropped its state.
const BEGINS_MAX: u32 = 5;
/// Pause between two ranges, so that requests have half of the medium at least.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// Pause while there is no work.
const REST: Duration = Duration::from_secs(60);

/// The last comparison.
#[derive(Default)]
pub struct Verifier {
    run: Mutex<Run>,
    /// Of the run that is under way. One thread works on it.
    work: Mutex<Option<Work>>,
}

#[derive(Clone, Default)]
struct Run {
    state: u8,
    done: u64,
    of: u64,
    seq: Seq,
    found: u64,
    differences: Vec<RecordDifference>,
    why: String,
    ended_sec: u64,
    begins: u32,
    /// Steps that failed, one after the other.
    missed: u32,
}

/// Both members' state.
struct Work {
    own: Side,
    /// That of the other member.
    run: u64,
    at: Key,
}

impl Core {
    pub fn on_verify_records(&self, req: &VerifyRecords) -> Result<VerifyRecordsReply, Fault> {
        self.check_admin(&req.cap)?;
        if req.starts {
            self.pair.peer().ok_or_else(not_of_two)?;
            let mut run = self.verifier.run.lock();
            if run.state != verify_state::RUNNING {
                *run = Run { state: verify_state::RUNNING, ..Run::default() };
            }
            drop(run);
            self.bells.verify.ring();
        }
        let Run { state, done, of, seq, found, differences, why, ended_sec, .. } =
            self.verifier.run.lock().clone();
        Ok(VerifyRecordsReply { state, done, of, seq, found, differences, why, ended_sec })
    }

    /// One step of a comparison. Returns the pause before the next.
    pub fn verify_round(&self) -> Duration {
        let mut run = self.verifier.run.lock().clone();
        if run.state != verify_state::RUNNING {
            return REST;
        }
        let begun = std::time::Instant::now();
        let before = run.clone();
        let pause = match self.verify_step(&mut run) {
            Ok(()) => {
                run.missed = 0;
                begun.elapsed().min(PAUSE_MAX)
            }
            Err(fault) => {
                // The step is taken again, and notes its findings then.
                run = Run { begins: run.begins, ..before };
                let is_dropped = fault.code == Code::Stale;
                if is_dropped {
                    *self.verifier.work.lock() = None;
                }
                run.missed += 1;
                if run.missed >= AGAIN_MAX
                    || run.begins >= BEGINS_MAX && is_dropped
                    || self.pair.peer().is_none()
                {
                    (run.state, run.why) = (verify_state::FAILED, fault.to_string());
                }
                AGAIN
            }
        };
        if run.state != verify_state::RUNNING {
            run.ended_sec = self.clock.wall().sec.max(0) as u64;
            self.end_work();
            let (target, Run { done, found, .. }) = (self.volume.label().target, &run);
            tracing::info!(%target, records = done, found, "comparison with the other member ended");
        }
        *self.verifier.run.lock() = run;
        pause
    }

    fn verify_step(&self, run: &mut Run) -> Result<(), Fault> {
        let mut work = self.verifier.work.lock();
        let Some(work) = work.as_mut() else {
            let (begun, seq) = self.begin_to_verify()?;
            run.begins += 1;
            (run.seq, run.done, run.found, run.differences) = (seq, 0, 0, Vec::new());
            run.of = self.kv.figures().size.records + begun.own.rest();
            *work = Some(begun);
            return Ok(());
        };
        // 1. The content of both members there.
        let mut own = work.own.part(&self.kv, &work.at, &end())?;
        let (run_there, from) = (work.run, bytes(&work.at));
        let (until, limit) = (bytes(&own.until), own.until);
        let step = CompareStep::Hash { run: run_there, from: from.clone(), until };
        let (seen, seen_until, seen_lost) = self.ask_for_part(step, &work.at, &limit)?;
        own.cut(&seen_until);
        // 2. If that differs: each record.
        if (own.records.len() as u64, &own.hash()[..]) != (seen.records, &seen.hash[..]) {
            let step = CompareStep::Keys { run: run_there, from, until: bytes(&seen_until) };
            let (seen, until, _) = self.ask_for_part(step, &work.at, &seen_until)?;
            if until != seen_until {
                return Err(Fault::new(Code::Stale, "the other member gave another range; begin anew"));
            }
            self.note_differing(&own, &seen.keys, run)?;
        }
        run.done += own.records.len() as u64;
        // 3. mds-CM3.
        let next = match (own.lost_until, seen_lost) {
            (Some(lost), _) => {
                self.note_lost(found::LOST_PRIMARY, &own.until, &lost, run);
                self.skip_there(run_there, (own.until, lost), run)?
            }
            // It lies before the end of this member's part, which was cut there.
            (None, Some(lost)) => {
                self.note_lost(found::LOST_FOLLOWER, &seen_until, &lost, run);
                self.skip_here(&work.own, (seen_until, lost), run)?
            }
            (None, None) => own.next(),
        };
        assert!(next > work.at, "each step goes on");
        work.at = next;
        if next >= end() {
            run.state = verify_state::ENDED;
        }
        Ok(())
    }

    /// mds-CM1. No lock of the seat is held while the other member is asked, and it answers within a second.
    fn begin_to_verify(&self) -> Result<(Work, Seq), Fault> {
        let peer = self.pair.peer().ok_or_else(not_of_two)?;
        let seat = self.executor.lead();
        seat.check_open()?;
        let (snap, seq) = (self.kv.snapshot(), self.volume.last_seq());
        assert!(snap.seq() <= seq, "the log has what the table has");
        let CompareRecordsReply { run, .. } = peer.compare_records(CompareStep::Begin { seq })?;
        if run == 0 {
            let why = format!("the other member does not have exactly the entries up to {seq}; try again");
            return Err(Fault::new(Code::NotReady, why));
        }
        let (slots, counts) = (seat.slots.clone(), seat.counts.clone());
        drop(seat);
        let own = Side::of(&self.walks, snap, &slots, &counts);
        Ok((Work { own, run, at: Key::default() }, seq))
    }

    /// The other member's answer about a range, with the keys that it names.
    fn ask_for_part(
        &self,
        step: CompareStep,
        from: &Key,
        until: &Key,
    ) -> Result<(PartSeen, Key, Option<Key>), Fault> {
        let reply = self.pair.peer().ok_or_else(not_of_two)?.compare_records(step)?;
        let wrong = || Fault::new(Code::BadRequest, "the other member's answer is not about that range");
        let part = reply.part.ok_or_else(wrong)?;
        let (limit, lost) = (key_of(&part.until)?, part.lost_until.as_ref().map(key_of).transpose()?);
        let goes_on = lost.unwrap_or(limit) > *from || from == until;
        match from <= &limit && &limit <= until && lost.is_none_or(|lost| lost > limit) && goes_on {
            true => Ok((part, limit, lost)),
            false => Err(wrong()),
        }
    }

    /// Both lists are in the order of keys.
    fn note_differing(&self, own: &Part, theirs: &[KeySeen], run: &mut Run) -> Result<(), Fault> {
        let theirs = theirs.iter().map(|seen| Ok((key_of(&seen.key)?, seen.hash)));
        let mut theirs = theirs.collect::<Result<Vec<_>, Fault>>()?.into_iter().peekable();
        for (key, value) in &own.records {
            while let Some((only, _)) = theirs.next_if(|(their, _)| their < key) {
                self.note_record(found::ONLY_FOLLOWER, &only, run);
            }
            match theirs.next_if(|(their, _)| their == key) {
                Some((_, hash)) if hash == hash_of(value) => {}
                Some(_) => self.note_record(found::OTHER, key, run),
                None => self.note_record(found::ONLY_PRIMARY, key, run),
            }
        }
        theirs.for_each(|(only, _)| self.note_record(found::ONLY_FOLLOWER, &only, run));
        Ok(())
    }

    /// The pages that neither member can read, of a range that this one cannot. Returns its end.
    fn skip_there(&self, run_there: u64, (from, until): (Key, Key), run: &mut Run) -> Result<Key, Fault> {
        let mut at = from;
        while at < until {
            let step = CompareStep::Hash { run: run_there, from: bytes(&at), until: bytes(&until) };
            let (_, limit, lost) = self.ask_for_part(step, &at, &until)?;
            if let Some(lost) = lost {
                self.note_lost(found::LOST_FOLLOWER, &limit, &lost, run);
            }
            at = lost.unwrap_or(limit);
        }
        Ok(at)
    }

    /// The same of this member.
    fn skip_here(&self, own: &Side, (from, until): (Key, Key), run: &mut Run) -> Result<Key, Fault> {
        let mut at = from;
        while at < until {
            let part = own.part(&self.kv, &at, &until)?;
            if let Some(lost) = part.lost_until {
                self.note_lost(found::LOST_PRIMARY, &part.until, &lost, run);
            }
            run.done += part.records.len() as u64;
            at = part.next();
        }
        Ok(at)
    }

    fn note_record(&self, found: u8, key: &Key, run: &mut Run) {
        let (what, fid) = stretch::record(key);
        self.note_found(RecordDifference { found, what, fid }, run);
    }

    fn note_lost(&self, found: u8, first: &Key, until: &Key, run: &mut Run) {
        let (what, fid): (String, Option<Fid>) = match *until == first.after() {
            true => stretch::record(first),
            false => (stretch::of(first, until), None),
        };
        self.note_found(RecordDifference { found, what, fid }, run);
    }

    fn note_found(&self, difference: RecordDifference, run: &mut Run) {
        let (target, seq) = (self.volume.label().target, run.seq);
        if run.differences.len() < KEPT_MAX {
            let RecordDifference { found, what, .. } = &difference;
            tracing::error!(
                %target, %seq, found, what,
                "the members of the mirror have different records here, or one cannot read them: `stria mirror verify` tells more"
            );
            run.differences.push(difference);
        }
        run.found += 1;
    }

    /// Both members drop their state.
    fn end_work(&self) {
        let work = self.verifier.work.lock().take();
        if let (Some(Work { run, .. }), Some(peer)) = (work, self.pair.peer()) {
            // Otherwise the other one drops it after a while.
            let _ = peer.compare_records(CompareStep::End { run });
        }
    }
}

fn not_of_two() -> Fault {
    let why = "this MDT is not the primary of a mirror of two members; `stria mirror list` shows them";
    Fault::new(Code::Unsupported, why)
}
