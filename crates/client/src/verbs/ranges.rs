//! Calls that cross objects beside other writers: they lock their ranges at the OSTs (decision 0055).
//!
//! client-RL1: locks are taken one after the other, in the order of object ids, and the call begins when it has all. (Offsets do not order
//!     objects: stripes wrap.)
//! client-RL2: a call whose lock has ended, by time or with its OST, is refused there. It is begun anew as a whole.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use types::{Fault, MirrorId, ObjectId, Piece};
use wire::object::{Capability, LockRange, UnlockRange};

use crate::Fs;
use crate::cache::files::File;
use crate::session::link::Link;

/// Longest wait for an OST that does not answer an unlock. The lock ends by itself.
const UNLOCK_MAX: Duration = Duration::from_secs(1);

impl Fs {
    /// Runs `call` while the ranges of `pieces` are locked, with the number of the lock.
    pub(crate) fn under_locks<T, E: From<Fault>>(
        &self,
        file: &File,
        cap: &Capability,
        (pieces, write): (&[Piece], bool),
        deadline: Instant,
        call: impl FnOnce(u64) -> Result<T, E>,
    ) -> Result<T, E> {
        let lock = self.id.sharing.range_locks.fetch_add(1, Ordering::Relaxed) + 1;
        // 1. client-RL1.
        let mut asked: Vec<(Arc<Link>, Vec<ObjectId>)> = Vec::new();
        let mut take = |object: ObjectId, (mirror, range): (MirrorId, Range<u64>)| -> Result<(), Fault> {
            let link = self.ost(mirror, deadline)?;
            // Noted first: without an answer it may be locked.
            match asked.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &link)) {
                Some((_, objects)) => objects.push(object),
                None => asked.push((link.clone(), vec![object])),
            }
            let (offset, len) = (range.start, range.end - range.start);
            let req = LockRange { cap: cap.clone(), object, offset, len, write, lock };
            link.ask(file.fid, &req, deadline).map(drop)
        };
        let taken = ranges(pieces).into_iter().try_for_each(|(object, at)| take(object, at));
        // 2. The call.
        let done = taken.map_err(E::from).and_then(|()| call(lock));
        // 3. All together.
        let soon = deadline.min(Instant::now() + UNLOCK_MAX);
        let unlocks: Vec<_> =
            asked.into_iter().map(|(link, objects)| (link, UnlockRange { lock, objects })).collect();
        for fault in self.ask_each(file.fid, &unlocks, soon).into_iter().filter_map(Result::err) {
            tracing::debug!("file {}: a range lock ends by itself: {fault}", file.fid);
        }
        done
    }
}

/// The range of each object that the pieces touch.
fn ranges(pieces: &[Piece]) -> BTreeMap<ObjectId, (MirrorId, Range<u64>)> {
    let mut ranges = BTreeMap::new();
    for piece in pieces {
        let (begin, end) = (piece.object_offset, piece.object_offset + piece.len as u64);
        let (_, range) = ranges.entry(piece.object).or_insert((piece.mirror, begin..end));
        *range = range.start.min(begin)..range.end.max(end);
    }
    ranges
}
