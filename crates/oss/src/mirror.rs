//! An OST as a member of a mirror: the requests that it serves in each role, and its side of the seams of crate `pair`.
//!
//! oss-P9: a standby serves reads of clients that name the mirror's epoch, while its seat says so, and no other requests (`Moved`: the client
//!     asks for the map). A client names the epoch that the primary told after that client's replay, so nothing is missing. A member that orders serves while its companion says so
//!     (`NotReady` otherwise). Both are looked at before a request is carried out and before its answer leaves. Numbers of this member and
//!     its own damage and scrub are served always.
//! oss-P12: a request that met a trouble of this member's medium is sent again, and not refused, if the other member takes over for that
//!     trouble (pair-S11, pair-S12): a full medium, a part of the index or a page that cannot be read, a write that is refused.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use pair::{Copied, Filled, Filling, Logged, Place, Replica};
use store::{Companion, Engine, Shipped, StoreError};
use types::{Code, Epoch, Fault, Incarnation, ObjectId, Seq};
use wire::object::{DamageClear, DamageList, Read, ScrubControl};
use wire::ost::{OstSpace, OstStat};
use wire::pair::{CompareRanges, CompareRangesReply, ListLostReply, PageOf, PageWanted};
use wire::session::{Attach, TargetStat};
use wire::{Header, Request};

use crate::{Core, Ost};

/// An entry that finds the log full is put off for so long. Then it waits for the checkpoint, or fails with the reason: a medium without
/// space must not stop the other member too.
const PUT_OFF_MAX: Duration = Duration::from_secs(10);

/// The part that this member plays.
#[derive(Default)]
pub enum Role {
    #[default]
    Unmirrored,
    /// With the seat, it may serve reads.
    Standby(Option<Arc<dyn Reading>>),
    /// It orders, or is about to.
    Ordering(Arc<dyn pair::Companion>),
}

/// The seat, as a standby sees it that serves reads.
pub trait Reading: Send + Sync {
    /// True while this member has every entry that was answered, in this epoch.
    fn serves_reads_of(&self, epoch: Epoch) -> bool;
}

impl Reading for pair::Seat {
    fn serves_reads_of(&self, epoch: Epoch) -> bool {
        pair::Seat::serves_reads_of(self, epoch)
    }
}

/// The companion in the store's words: the store lies below crate `pair`.
struct Adapted(Arc<dyn pair::Companion>);

impl Companion for Adapted {
    fn order(&self, count: u32) -> Result<store::Place, Fault> {
        let Place { line, first, last } = self.0.order(count)?;
        Ok(store::Place { line, first, last })
    }
    fn commit(&self, place: store::Place, content: &[u8]) -> Result<(), Fault> {
        self.0.commit(of_pair(place), content)
    }
    fn flushed(&self) -> Seq {
        self.0.flushed()
    }
    fn flush(&self, want: Seq) -> Result<(), Fault> {
        self.0.flush(want)
    }
    fn stage(&self, pages: &[u8]) -> Option<store::StageId> {
        self.0.stage(pages).map(|id| store::StageId(id.0))
    }
    fn stage_beside(&self, pages: &[u8], meanwhile: &mut dyn FnMut()) -> Option<store::StageId> {
        self.0.stage_beside(pages, meanwhile).map(|id| store::StageId(id.0))
    }
}

fn of_pair(place: store::Place) -> Place {
    let store::Place { line, first, last } = place;
    Place { line, first, last }
}

impl Core {
    pub fn incarnation(&self) -> Incarnation {
        Incarnation(self.incarnation.load(Ordering::Acquire))
    }

    /// True if the other member takes over for a trouble of this one's medium.
    pub fn hands_over(&self) -> bool {
        let has_trouble = self.engine.as_ref().is_some_and(|engine| engine.volume().trouble().is_some());
        has_trouble
            && match &*self.role.read() {
                Role::Unmirrored => false,
                Role::Standby(_) => true,
                Role::Ordering(companion) => companion.hands_over(),
            }
    }

    /// oss-P12: the fault that a client is told of.
    pub fn of_member(&self, fault: Fault) -> Fault {
        let is_of_medium = matches!(fault.code, Code::Io | Code::Damaged | Code::NoSpace);
        match is_of_medium && self.hands_over() {
            true => Fault::new(Code::NotReady, fault.detail),
            false => fault,
        }
    }

    /// oss-P9.
    pub fn check_role(&self, head: &Header) -> Result<(), Fault> {
        if is_of_member(head.call) {
            return Ok(());
        }
        match &*self.role.read() {
            Role::Unmirrored => Ok(()),
            Role::Standby(Some(seat)) if is_reading(head) && seat.serves_reads_of(head.epoch) => Ok(()),
            Role::Standby(_) => {
                let what = "this member of the mirror does not serve; ask for the map";
                Err(Fault::new(Code::Moved, what))
            }
            Role::Ordering(companion) if companion.serves() => Ok(()),
            Role::Ordering(_) => {
                Err(Fault::new(Code::NotReady, "this member of the mirror may not serve now; try again"))
            }
        }
    }

    pub fn is_standby(&self) -> bool {
        matches!(&*self.role.read(), Role::Standby(_))
    }

    /// store-RP7.
    pub fn await_entries(&self, object: &ObjectId) -> Result<(), Fault> {
        match self.engine.as_ref().is_none_or(|engine| engine.await_entries(object)) {
            true => Ok(()),
            false => {
                let why = "a change of this object waits for the mirror's other member; try again";
                Err(Fault::new(Code::NotReady, why))
            }
        }
    }

    pub fn engine(&self) -> Result<&Arc<Engine>, Fault> {
        self.engine.as_ref().ok_or_else(|| Fault::new(Code::Unsupported, "this store is in no mirror"))
    }
}

/// A read, or the attach before it. Epoch 0 is that of clients that know none.
fn is_reading(head: &Header) -> bool {
    head.epoch != Epoch(0) && matches!(head.call, Read::CALL | Attach::CALL)
}

/// Calls about this member itself.
fn is_of_member(call: u16) -> bool {
    matches!(
        call,
        TargetStat::CALL
            | OstStat::CALL
            | OstSpace::CALL
            | DamageList::CALL
            | DamageClear::CALL
            | ScrubControl::CALL
    )
}

impl Ost {
    /// From now on this member takes entries of its mirror, and no requests. To be called before the first request.
    pub fn stand_by(&self) -> Result<(), Fault> {
        let engine = self.core.engine()?;
        *self.core.role.write() = Role::Standby(None);
        engine.stand_by();
        Ok(())
    }

    /// The standby serves reads while `seat` says so.
    pub fn read_beside(&self, seat: Arc<dyn Reading>) {
        let mut role = self.core.role.write();
        if matches!(&*role, Role::Standby(_)) {
            *role = Role::Standby(Some(seat));
        }
    }

    /// The other member, which gives pages that this one cannot read. `None`: none does any more.
    pub fn set_peer(&self, peer: Option<Arc<dyn pair::Peer>>) {
        *self.core.peer.write() = peer;
    }

    /// Ends the standby: begins a new life, and serves as `companion` says. `above`: the highest incarnation that the mirror ever showed.
    /// The whole log is flushed.
    pub fn promote(
        &self,
        above: Incarnation,
        companion: Arc<dyn pair::Companion>,
    ) -> Result<Incarnation, Fault> {
        let adapted: Arc<dyn Companion> = Arc::new(Adapted(companion.clone()));
        let incarnation = self.core.engine()?.promote(above, Some(adapted))?;
        self.core.incarnation.store(incarnation.0, Ordering::Release);
        *self.core.role.write() = Role::Ordering(companion);
        Ok(incarnation)
    }

    /// Mirrors a running OST that serves, or ends that (`None`). Its life goes on, so clients notice nothing.
    pub fn set_companion(&self, companion: Option<Arc<dyn pair::Companion>>) -> Result<(), Fault> {
        let engine = self.core.engine()?;
        let mut role = self.core.role.write();
        if matches!(&*role, Role::Standby(_)) {
            return Err(Fault::new(Code::Invalid, "a standby has no companion before it takes over"));
        }
        *role = match &companion {
            Some(companion) => Role::Ordering(companion.clone()),
            None => Role::Unmirrored,
        };
        // Requests that passed the gate may hold the tail until their commit; they do not need the role until then.
        drop(role);
        engine.set_companion(companion.map(|companion| Arc::new(Adapted(companion)) as _));
        Ok(())
    }

    /// Removes the whole content of a member that has no life at present, and is to be filled.
    pub fn make_empty(&self, is_stopping: &dyn Fn() -> bool) -> Result<(), Fault> {
        let target = self.label().target;
        tracing::info!(%target, "it becomes empty, and is filled by the other member of its mirror then");
        Ok(self.core.engine()?.make_empty(is_stopping)?)
    }

    /// store-RP6, with its bound. Without threads there is nothing to wait for.
    fn takes(&self, engine: &Engine, content: &[u8]) -> bool {
        let mut since = self.core.put_off.lock();
        if !self.core.settings.background || engine.has_room_to_follow(content) {
            *since = None;
            return true;
        }
        self.core.bell.ring();
        let entry = types::hash::h64(content);
        // Another one may be the next after a change of primaries.
        if since.is_none_or(|(other, _)| other != entry) {
            *since = Some((entry, Instant::now()));
        }
        since.is_some_and(|(_, first)| first.elapsed() >= PUT_OFF_MAX)
    }

    /// Lines of the log, each with its first mirror seq. The first is that of the checkpoint, with the last seq that the checkpoint has.
    pub fn lines(&self) -> Result<Vec<(Epoch, Seq)>, Fault> {
        Ok(self.core.engine()?.lines())
    }

    /// The last stop was in good order: nothing was replayed.
    pub fn was_clean(&self) -> bool {
        self.core.engine.as_ref().is_some_and(|engine| engine.volume().was_clean())
    }

    /// Mirror seq of the last entry in the state.
    pub fn last_seq(&self) -> Seq {
        self.core.store.last_seq()
    }

    /// The member's note as it was kept last; empty if there is none.
    pub fn note(&self) -> Result<Vec<u8>, Fault> {
        Ok(self.core.engine()?.volume().note())
    }

    pub fn incarnation(&self) -> Incarnation {
        self.core.incarnation()
    }
}

/// A filling in the words of crate `pair`.
struct FillingOf(store::Filling, Weak<Core>);

impl Filling for FillingOf {
    fn step(&mut self) -> Result<Filled, Fault> {
        let store::Filled { objects, objects_total, bytes, lost, end } = self.0.step()?;
        if let Some(core) = self.1.upgrade() {
            self.0.take_lost().into_iter().for_each(|(object, page)| core.note_given_as_lost(object, page));
        }
        Ok(Filled { objects, objects_total, bytes, lost, end })
    }
}

impl Replica for Ost {
    fn keep_note(&self, note: &[u8]) -> Result<(), Fault> {
        Ok(self.core.engine()?.volume().set_note(note)?)
    }

    fn flush(&self) -> Result<Seq, Fault> {
        Ok(self.core.engine()?.flush_own()?)
    }

    fn trouble(&self) -> Option<disk::Trouble> {
        self.core.engine.as_ref()?.volume().trouble()
    }

    fn first(&self) -> Seq {
        self.core.engine.as_ref().map_or(Seq(1), |engine| engine.first_seq())
    }

    fn entries(&self, after: Seq, bytes_max: usize) -> Result<Vec<Logged>, Fault> {
        let entries = match self.core.engine()?.entries(after, bytes_max) {
            // A checkpoint came in between. The seat sees that the log begins later (mirror-J6).
            Err(StoreError::Trimmed(_)) => vec![],
            entries => entries?,
        };
        let logged = |Shipped { place, content }| Logged { place: of_pair(place), content };
        Ok(entries.into_iter().map(logged).collect())
    }

    fn can_append(&self, content: &[u8]) -> bool {
        self.core
            .engine
            .as_ref()
            .is_some_and(|engine| engine.can_append(content) && self.takes(engine, content))
    }

    fn append(&self, entry: &Logged) -> Result<(), Fault> {
        let Place { line, first, last } = entry.place;
        let place = store::Place { line, first, last };
        Ok(self.core.engine()?.append_shipped(&Shipped { place, content: entry.content.clone() })?)
    }

    fn stage(&self, id: pair::StageId, pages: &[u8]) -> Result<(), Fault> {
        Ok(self.core.engine()?.stage(store::StageId(id.0), pages)?)
    }

    fn copy_out(&self, _copy: u64, _part: u64) -> Result<Copied, Fault> {
        Err(Fault::new(Code::Unsupported, "an OST gives no copy: it fills the other member by entries"))
    }

    fn give_pages(
        &self,
        object: ObjectId,
        wanted: &[PageWanted],
        bytes: &mut Vec<u8>,
    ) -> Result<Vec<PageOf>, Fault> {
        self.core.give_pages(object, wanted, bytes)
    }

    fn compare(&self, wanted: &CompareRanges) -> Result<CompareRangesReply, Fault> {
        self.core.compare(wanted)
    }

    fn list_lost(&self) -> Result<ListLostReply, Fault> {
        self.core.list_lost()
    }

    fn is_filled_live(&self) -> bool {
        self.core.engine.is_some()
    }

    fn is_emptied_at_once(&self) -> bool {
        self.core.engine.as_ref().is_none_or(|engine| engine.is_emptied_at_once())
    }

    fn begin_refill(&self, line: Epoch, end: Seq) -> Result<(), Fault> {
        let target = self.label().target;
        tracing::info!(%target, end = end.0, "it becomes empty, and is filled by the other member of its mirror");
        Ok(self.core.engine()?.begin_refill(line, end)?)
    }

    fn filled_since(&self, content: &[u8]) -> Option<Seq> {
        self.core.engine.as_ref()?.filled_since(content)
    }

    fn fill(&self) -> Result<Box<dyn Filling>, Fault> {
        let filling = store::Filling::new(self.core.engine()?.clone());
        Ok(Box::new(FillingOf(filling, Arc::downgrade(&self.core))))
    }
}
