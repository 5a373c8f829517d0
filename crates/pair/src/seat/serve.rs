//! Calls of the other member.
//!
//! pair-S13: a target that was taken out of the mirror is not heard. Its server may not know that yet, and by its map it has the place of the
//!     present member.

use std::sync::Arc;

use mirror::{Letter, Note};
use net::Answer;
use parking_lot::MutexGuard;
use types::{Code, Fault};
use wire::codec::{Bytes, Wire};
use wire::pair::{
    CompareRanges, CompareRangesReply, CompareRecords, CompareRecordsReply, CopyAll, CopyAllReply,
    FetchPages, FetchPagesReply, FlushLog, Letters, LettersReply, ListLost, ListLostReply, Stage,
};
use wire::{Empty, Header, Malformed, Request, unlogged_reply};

use super::{End, Seat, Shared, State, kept};
use crate::letters::{self, mirror_seq};
use crate::{Copied, Logged, PAGES_MAX, Replica, StageId};

impl Seat {
    /// True of the calls that `serve` answers. Others of `wire::pair` are for the target's place.
    pub fn is_served(call: u16) -> bool {
        let of_content = [FetchPages::CALL, CompareRanges::CALL, CompareRecords::CALL, ListLost::CALL];
        [Letters::CALL, FlushLog::CALL, Stage::CALL, CopyAll::CALL].contains(&call)
            || of_content.contains(&call)
    }

    /// Answers a call of the other member to this target.
    pub fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        answer.bulk.clear();
        let mut pages = Vec::new();
        let allowed = answer.check_role(head.call);
        let outcome = allowed.and_then(|()| self.shared.dispatch(head, body, bulk, &mut pages));
        if outcome.is_ok() && !pages.is_empty() {
            answer.bulk.space(pages.len()).copy_from_slice(&pages);
        }
        answer.head.epoch = self.shared.state.lock().member.map().epoch;
        answer.body = unlogged_reply(outcome);
    }
}

impl Shared {
    fn dispatch(
        &self,
        head: &Header,
        body: &[u8],
        bulk: &[u8],
        pages: &mut Vec<u8>,
    ) -> Result<Vec<u8>, Fault> {
        match head.call {
            Letters::CALL => Ok(self.on_letters(parse(body)?)?.to_bytes()),
            FlushLog::CALL => Ok(self.on_flush_log(&parse(body)?)?.to_bytes()),
            Stage::CALL => Ok(self.on_stage(&parse(body)?, bulk)?.to_bytes()),
            CopyAll::CALL => Ok(self.on_copy_all(&parse(body)?)?.to_bytes()),
            FetchPages::CALL => Ok(self.on_fetch_pages(&parse(body)?, pages)?.to_bytes()),
            CompareRanges::CALL => Ok(self.on_compare(&parse(body)?)?.to_bytes()),
            ListLost::CALL => Ok(self.on_list_lost(&parse(body)?)?.to_bytes()),
            CompareRecords::CALL => Ok(self.on_compare_records(&parse(body)?)?.to_bytes()),
            call => Err(Fault::new(
                Code::Unsupported,
                format!("call {call:#06x} is none between members of a mirror"),
            )),
        }
    }

    /// The state, if this life serves the mirror.
    fn living(&self, mirror: types::MirrorId) -> Result<MutexGuard<'_, State>, Fault> {
        if mirror != self.mirror {
            let why =
                format!("this target is a member of mirror {}, not of {mirror}; fetch the map", self.mirror);
            return Err(Fault::new(Code::Moved, why));
        }
        let state = self.state.lock();
        self.check_life(&state)?;
        Ok(state)
    }

    /// pair-S13.
    fn living_of(
        &self,
        mirror: types::MirrorId,
        from: types::TargetId,
    ) -> Result<MutexGuard<'_, State>, Fault> {
        if from != self.post.other() && kept!(self, SenderIsMember) {
            let why = format!("target {from} is no member of mirror {mirror} now; fetch the map");
            return Err(Fault::new(Code::Moved, why));
        }
        self.living(mirror)
    }

    fn on_letters(&self, request: Letters) -> Result<LettersReply, Fault> {
        let arrived = request.letters.into_iter().map(letters::received);
        let arrived = arrived.collect::<Result<Vec<_>, _>>().map_err(malformed)?;
        let mut state = self.living_of(request.mirror, request.from)?;
        let mut replies = Vec::new();
        for letter in arrived {
            self.flush_ahead(&mut state, &letter, &mut replies);
            self.hear(&mut state, letter, Some(&mut replies));
        }
        self.check_life(&state)?;
        Ok(LettersReply { letters: replies.iter().map(letters::sent).collect() })
    }

    /// A letter that has this member flush finds little to flush, since promises wait for that.
    fn flush_ahead(
        &self,
        state: &mut MutexGuard<'_, State>,
        (letter, entry): &(Letter, Option<Logged>),
        replies: &mut Vec<Letter>,
    ) {
        let (standing, replica) = (state.member.standing(), state.replica.clone());
        let is_end = |entry: &Logged| standing.is_filling && replica.filled_since(&entry.content).is_some();
        let is_due = match letter.note {
            Note::Join { .. } => !standing.is_whole,
            _ => entry.as_ref().is_some_and(is_end),
        };
        if state.end.is_some() || !is_due {
            return;
        }
        match MutexGuard::unlocked(state, || replica.flush()) {
            Ok(up_to) => self.event(state, None, Some(replies), |member, _, out| {
                member.on_flushed(mirror_seq(up_to), out);
            }),
            Err(fault) => self.end_life(state, End::Failed(fault)),
        }
    }

    fn on_flush_log(&self, request: &FlushLog) -> Result<LettersReply, Fault> {
        let replica = self.living_of(request.mirror, request.from)?.replica.clone();
        // Entries go on arriving meanwhile.
        let flushed = replica.flush();
        let (mut state, mut replies) = (self.living_of(request.mirror, request.from)?, Vec::new());
        match flushed {
            Ok(up_to) => self.event(&mut state, None, Some(&mut replies), |member, _, out| {
                member.on_flushed(mirror_seq(up_to), out);
            }),
            Err(fault) => self.end_life(&mut state, End::Failed(fault)),
        }
        self.check_life(&state)?;
        Ok(LettersReply { letters: replies.iter().map(letters::sent).collect() })
    }

    fn on_stage(&self, request: &Stage, pages: &[u8]) -> Result<Empty, Fault> {
        let state = self.living_of(request.mirror, request.from)?;
        if state.member.life() != request.to || !state.member.is_streaming() {
            return Err(Fault::new(
                Code::NotReady,
                "this member takes no entries now; its pages come with the log",
            ));
        }
        let replica = state.replica.clone();
        drop(state);
        replica.stage(StageId(request.id), pages)?;
        Ok(Empty {})
    }

    /// pair-S10: the target, if both members are in sync under this epoch.
    fn in_sync(&self, mirror: types::MirrorId, under: types::Epoch) -> Result<Arc<dyn Replica>, Fault> {
        let state = self.living(mirror)?;
        let epoch = self.epoch_of_both(&state)?;
        if epoch != under && kept!(self, PagesAreOfBoth) {
            let why = format!("this member knows epoch {epoch} of the mirror, not {under}; try again");
            return Err(Fault::new(Code::NotReady, why));
        }
        Ok(state.replica.clone())
    }

    fn on_compare(&self, request: &CompareRanges) -> Result<CompareRangesReply, Fault> {
        self.in_sync(request.mirror, request.epoch)?.compare(request)
    }

    fn on_compare_records(&self, request: &CompareRecords) -> Result<CompareRecordsReply, Fault> {
        self.in_sync(request.mirror, request.epoch)?.compare_records(request)
    }

    fn on_list_lost(&self, request: &ListLost) -> Result<ListLostReply, Fault> {
        self.in_sync(request.mirror, request.epoch)?.list_lost()
    }

    fn on_fetch_pages(&self, request: &FetchPages, bytes: &mut Vec<u8>) -> Result<FetchPagesReply, Fault> {
        let replica = self.in_sync(request.mirror, request.epoch)?;
        if request.pages.len() > PAGES_MAX {
            return Err(Fault::new(Code::BadRequest, format!("more than {PAGES_MAX} pages at once")));
        }
        let pages = replica.give_pages(request.object, &request.pages, bytes)?;
        Ok(FetchPagesReply { pages })
    }

    fn on_copy_all(&self, request: &CopyAll) -> Result<CopyAllReply, Fault> {
        let state = self.living_of(request.mirror, request.from)?;
        if !state.member.role(self.clock.boot_ms()).orders() {
            return Err(Fault::new(
                Code::NotReady,
                "only a member that orders gives its content away; ask again later",
            ));
        }
        let replica = state.replica.clone();
        drop(state);
        let Copied { copy, is_last, end, content } = replica.copy_out(request.copy, request.part)?;
        let mut history = self.living_of(request.mirror, request.from)?.member.history().clone();
        history.cut(mirror_seq(end));
        Ok(CopyAllReply { copy, is_last, lines: letters::lines(&history), content: Bytes(content) })
    }
}

fn parse<T: Wire>(body: &[u8]) -> Result<T, Fault> {
    T::from_bytes(body).map_err(malformed)
}
fn malformed(why: Malformed) -> Fault {
    Fault::new(Code::BadRequest, why.to_string())
}
