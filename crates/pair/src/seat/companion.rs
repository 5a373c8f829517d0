//! The mirror, as the target that orders sees it.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mirror::Role;
use mirror::order::Copies;
use mirror::promise::ASK_MS;
use parking_lot::MutexGuard;
use types::{Buf, Code, Epoch, Fault, ObjectId, PAGE_SIZE, Seq};
use wire::pair::{
    CompareRanges, CompareRangesReply, CompareRecords, CompareRecordsReply, CompareStep, FetchPages,
    ListLost, ListLostReply, PageOf, PageWanted, page_form,
};

use super::{End, Seat, Shared, State, kept};
use crate::letters::{mirror_seq, seq};
use crate::{Companion, Logged, Peer, Place, RecordPeer, StageId};

/// Longest wait for contact with the other member: its promise has run out by then, and the map changes.
const CONTACT_MAX: Duration = Duration::from_secs(3);
/// Tries to fetch pages of a member in sync that refuses, and the longest pause between them.
const FETCHES: u32 = 5;
const FETCH_AGAIN: Duration = Duration::from_millis(200);
/// A member that is alone has its callers ship entries to the other one if that lacks fewer seqs. So a join ends, however fast entries come.
const NEAR: u64 = 64;

impl Companion for Seat {
    fn serves(&self) -> bool {
        self.shared.clock.boot_ms() < self.shared.serves_until_ms.load(Ordering::Acquire)
    }

    fn order(&self, count: u32) -> Result<Place, Fault> {
        self.shared.order_entry(&mut self.shared.state.lock(), count)
    }

    fn commit(&self, place: Place, content: &[u8]) -> Result<(), Fault> {
        self.shared.commit(place, content)
    }

    fn committed(&self) -> Seq {
        let state = self.shared.state.lock();
        seq(state.member.answerable(self.shared.clock.boot_ms()))
    }

    fn flushed(&self) -> Seq {
        flushed(&self.shared.state.lock())
    }

    fn flush(&self, want: Seq) -> Result<(), Fault> {
        self.shared.flush(want)
    }

    fn hands_over(&self) -> bool {
        let state = self.shared.state.lock();
        match &state.end {
            Some(end) => matches!(end, End::Failed(_) | End::Medium(_) | End::Unreadable(_)),
            None => state.is_leaving || self.shared.end_of_medium(&state).is_some(),
        }
    }

    fn stage(&self, pages: &[u8]) -> Option<StageId> {
        self.shared.stage(pages, None)
    }

    fn stage_beside(&self, pages: &[u8], meanwhile: &mut dyn FnMut()) -> Option<StageId> {
        self.shared.stage(pages, Some(meanwhile))
    }
}

impl Peer for Seat {
    fn fetch(&self, object: ObjectId, wanted: &[PageWanted], bytes: &mut Buf) -> Result<Vec<PageOf>, Fault> {
        let shared = &self.shared;
        let len = (wanted.len() * PAGE_SIZE) as u32;
        let mut tries = 0;
        let (before, pages) = loop {
            tries += 1;
            let before = shared.await_both()?;
            let request =
                FetchPages { mirror: shared.mirror, epoch: before, object, len, pages: wanted.to_vec() };
            match shared.post.fetch(&request, bytes) {
                Ok(reply) => break (before, reply.pages),
                // The other member may have begun a moment ago as well.
                Err(fault) if fault.code != Code::NotReady || tries == FETCHES => return Err(fault),
                Err(_) => _ = shared.changed.wait_for(&mut shared.state.lock(), FETCH_AGAIN),
            }
        };
        // A member that was declared out meanwhile may have given pages that lack changes.
        let after = shared.epoch_of_both(&shared.state.lock())?;
        let sound = pages.iter().filter(|page| page.form == page_form::SOUND).count();
        match after == before && pages.len() == wanted.len() && bytes.len() == sound * PAGE_SIZE {
            true => Ok(pages),
            false => Err(Fault::new(
                Code::NotReady,
                "the mirror changed while its other member gave pages; try again",
            )),
        }
    }

    fn compare(&self, wanted: CompareRanges) -> Result<CompareRangesReply, Fault> {
        let shared = &self.shared;
        let before = shared.epoch_of_both(&shared.state.lock())?;
        let request = CompareRanges { mirror: shared.mirror, epoch: before, ..wanted };
        let reply = shared.post.compare(&request)?;
        let after = shared.epoch_of_both(&shared.state.lock())?;
        match after == before && reply.differ.len() == request.ranges.len() {
            true => Ok(reply),
            false => Err(Fault::new(
                Code::NotReady,
                "the mirror changed while its other member compared ranges; try again",
            )),
        }
    }
}

impl Seat {
    /// Damage of the other member, which is in sync, that it cannot repair.
    pub fn lost_at_other(&self) -> Result<ListLostReply, Fault> {
        let shared = &self.shared;
        let epoch = shared.epoch_of_both(&shared.state.lock())?;
        shared.post.list_lost(&ListLost { mirror: shared.mirror, epoch })
    }
}

impl RecordPeer for Seat {
    fn compare_records(&self, step: CompareStep) -> Result<CompareRecordsReply, Fault> {
        let shared = &self.shared;
        let epoch = shared.epoch_of_both(&shared.state.lock())?;
        let request = CompareRecords { mirror: shared.mirror, epoch, step };
        let reply = shared.post.compare_records(&request)?;
        match shared.epoch_of_both(&shared.state.lock())? == epoch {
            true => Ok(reply),
            false => Err(Fault::new(
                Code::NotReady,
                "the mirror changed while its other member compared records; try again",
            )),
        }
    }
}

/// pair-S8.
fn flushed(state: &State) -> Seq {
    match state.member.copies() {
        Copies::One => Seq(u64::MAX),
        Copies::Both => state.flushed_floor,
    }
}

impl Shared {
    /// pair-S10: the epoch under which both members are in sync, and in contact.
    pub fn epoch_of_both(&self, state: &State) -> Result<Epoch, Fault> {
        self.check_life(state)?;
        let role = state.member.role(self.clock.boot_ms());
        let is_of_both = matches!(role, Role::Primary | Role::Backup) && state.member.map().is_pair();
        match is_of_both || !kept!(self, PagesAreOfBoth) {
            true => Ok(state.member.map().epoch),
            false => Err(Fault::new(
                Code::NotReady,
                "the members of the mirror are not in sync with each other now, so no page is taken from one for the other",
            )),
        }
    }

    /// As `epoch_of_both`. Members in sync by the map, that have just begun or lost contact, are waited for: a page that they have is not lost.
    fn await_both(&self) -> Result<Epoch, Fault> {
        let until = Instant::now() + CONTACT_MAX;
        let mut state = self.state.lock();
        loop {
            let refused = match self.epoch_of_both(&state) {
                Err(refused) if state.end.is_none() && state.member.map().is_pair() => refused,
                done => return done,
            };
            if self.changed.wait_until(&mut state, until).timed_out() {
                return Err(refused);
            }
        }
    }

    /// pair-S4.
    fn commit(&self, place: Place, content: &[u8]) -> Result<(), Fault> {
        let _wait = spent::waiting(spent::Cause::Mirror);
        let mut state = self.state.lock();
        // 1. The entry is at hand for the thread that ships.
        if self.is_shipped_here(&state, place) {
            let at = state.pending.partition_point(|entry| entry.place.first < place.first);
            state.pending.insert(at, Logged { place, content: content.to_vec() });
        }
        loop {
            self.check_life(&state)?;
            // 2. Each member that must have it has it, and one that is about to join as well.
            let answerable = state.member.answerable(self.clock.boot_ms());
            let is_answerable = mirror_seq(place.last) <= answerable || !kept!(self, CommitWaits);
            let is_shipped_here = self.is_shipped_here(&state, place);
            if is_answerable && !is_shipped_here {
                return Ok(());
            }
            // 3. This thread ships what is at hand, or waits for the one that does, for the sender, or for another epoch.
            if !is_shipped_here || state.is_shipping {
                self.changed.wait(&mut state);
            } else if !self.ship(&mut state) && self.is_shipped_here(&state, place) {
                // The log does not show the entry yet, which the target has appended.
                self.changed.wait_for(&mut state, Duration::from_millis(ASK_MS));
            }
        }
    }

    /// The other member takes entries, and lacks this one: it must have it, or lacks not much before it.
    fn is_shipped_here(&self, state: &State, place: Place) -> bool {
        let acked = state.member.peer_acked().filter(|acked| state.is_taking && acked.0 < place.last.0);
        acked.is_some_and(|acked| state.copies == Copies::Both || place.last.0 - acked.0 < NEAR)
    }

    fn flush(&self, want: Seq) -> Result<(), Fault> {
        let _wait = spent::waiting(spent::Cause::Mirror);
        let _turn = self.flush_turn.lock();
        let mut state = self.state.lock();
        loop {
            self.check_life(&state)?;
            if want <= flushed(&state) {
                return Ok(());
            }
            let replies = MutexGuard::unlocked(&mut state, || self.post.flush_log());
            let is_answered = self.hear_replies(&mut state, replies);
            if want > flushed(&state) {
                // The entries have not arrived there, or the member is away: its acknowledgement comes, or another epoch.
                let bound = if is_answered { ASK_MS / 10 } else { ASK_MS };
                self.changed.wait_for(&mut state, Duration::from_millis(bound));
            }
        }
    }

    fn stage(&self, pages: &[u8], meanwhile: Option<&mut dyn FnMut()>) -> Option<StageId> {
        let mut state = self.state.lock();
        if state.end.is_some() || !state.is_taking || state.member.peer_acked().is_none() {
            return None;
        }
        let to = state.member.peer_life()?;
        // Unique over the lives of both members.
        let (number, life) = (self.stages.fetch_add(1, Ordering::Relaxed), state.member.life());
        let id = (self.me.index() as u64) << 63 | u64::from(life.0) << 32 | (number & 0xffff_ffff);
        let staged = MutexGuard::unlocked(&mut state, || match meanwhile {
            Some(meanwhile) => self.post.stage_beside(to, StageId(id), pages, meanwhile),
            None => {
                let _wait = spent::waiting(spent::Cause::Mirror);
                self.post.stage(to, StageId(id), pages)
            }
        });
        if staged.is_err() {
            state.is_taking = false;
        }
        staged.ok().map(|()| StageId(id))
    }
}
