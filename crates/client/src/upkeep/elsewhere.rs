//! A growing file moves on: if its OST is full and others are not, everything behind its last byte goes to those (decision 0050).
//!
//! client-E1: a thread changes the layout only while it owns the body and is in the file's section, and after it asked the objects. They have
//!     no byte and no reserved page behind the place of the change.
//! client-E2: a call does not return to a mirror that refused it, so it moves a file on at most once per OST.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use plan::elsewhere::avoided;
use types::{Code, Fault, Fid, Layout, MirrorId, ObjectId};
use wire::meta::MoveTail;
use wire::object::{Capability, ObjectStat};
use wire::session::TargetStat;

use crate::Fs;
use crate::cache::files::File;
use crate::session::request::is_definite;
use crate::session::section::Section;
use crate::upkeep::room::Tries;

/// Validity of the OSTs' free space. A writer needs several times as long to fill an OST.
const KNOWN_FOR: Duration = Duration::from_secs(1);
/// An OST that does not answer in this time counts as full.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// New files avoid an OST for this time after it refused a request.
const FULL_FOR: Duration = Duration::from_secs(5);
/// Longest wait for the MDT to move a file on. Then the write fails with `NoSpace`.
const MOVE_MAX: Duration = Duration::from_secs(5);

/// Free bytes of each OST; `None`: it did not answer.
type Rooms = Vec<(MirrorId, Option<u64>)>;

/// Free space of OSTs, as far as this client knows it.
#[derive(Default)]
pub(crate) struct Elsewhere {
    rooms: Mutex<Option<(Instant, Rooms)>>,
    /// Mirrors that refused a request, and the time of the last refusal.
    full: Mutex<BTreeMap<MirrorId, Instant>>,
}

/// The range that an OST refused.
#[derive(Clone, Copy, Default)]
pub(crate) struct Want {
    /// The first byte that found no space, or may have found none.
    pub at: u64,
    pub len: u64,
}

impl Fs {
    /// Mirrors that new objects avoid.
    pub(crate) fn mirrors_to_avoid(&self) -> Vec<MirrorId> {
        let mut full: Vec<(Instant, MirrorId)> = {
            let mut full = self.elsewhere.full.lock();
            full.retain(|_, at| at.elapsed() < FULL_FOR);
            full.iter().map(|(mirror, at)| (*at, *mirror)).collect()
        };
        full.sort_unstable_by(|a, b| b.cmp(a));
        while !full.is_empty() {
            let refused = full.iter().map(|(_, mirror)| *mirror).collect();
            if let Some(avoid) = avoided(&self.rooms(), &refused, 0) {
                return avoid;
            }
            // All refused something. Those that did so first may have free space by now.
            full.pop();
        }
        Vec::new()
    }

    /// Notes mirrors that refused a call. True if that is new for one of them, and other mirrors have space for the wanted range.
    pub(crate) fn is_room_elsewhere(&self, mirrors: &[MirrorId], tries: &mut Tries) -> bool {
        let now = Instant::now();
        self.elsewhere.full.lock().extend(mirrors.iter().map(|m| (*m, now)));
        let before = tries.refused.len();
        tries.refused.extend(mirrors);
        tries.refused.len() > before && avoided(&self.rooms(), &tries.refused, tries.want.len).is_some()
    }

    /// Moves the file on, after mirrors refused the call. `seen`: components of the layout then. True if the file has other components now, so
    /// that another try makes sense.
    pub(crate) fn move_on(
        &self,
        section: &Section<'_>,
        (mirrors, seen): (&[MirrorId], usize),
        tries: &mut Tries,
    ) -> Result<bool, Fault> {
        let (file, deadline) = (&section.file, section.deadline);
        if !self.is_room_elsewhere(mirrors, tries) {
            return Ok(false);
        }
        let _order = file.lock_order(deadline)?;
        let mut body = file.own_body(deadline)?;
        let Some(layout) = &mut body.layout else { return Ok(false) };
        if layout.components.len() != seen {
            // Another thread has moved it on.
            return Ok(true);
        }
        let Some(cap) = file.meta.lock().cap.clone() else { return Ok(false) };
        // 1. client-E1: find the end of the last object.
        let objects = self.objects_there(file, layout, section.is_among_others());
        let stats = self.glimpse(&cap, objects.into_iter(), deadline)?;
        let (from, keep) = (end_of(layout, &stats), kept(&stats));
        if from > tries.want.at {
            return Ok(false);
        }
        let Some(avoid) = avoided(&self.rooms(), &tries.refused, tries.want.len) else { return Ok(false) };
        // 2. The MDT changes the layout durably.
        match self.ask_to_move(file, layout, (from, keep), avoid, deadline) {
            Ok(changed) => {
                *layout = changed;
                tracing::debug!("file {} goes on elsewhere from {from} on", file.fid);
                Ok(true)
            }
            // The layout is unchanged, or the outcome is unknown. Then the file is opened anew before its objects are used, and the open comes
            // after a change that may still arrive.
            Err(fault) => {
                if !is_definite(fault.code) {
                    file.distrust();
                }
                tracing::debug!("file {} stays on full OSTs: {fault}", file.fid);
                Ok(false)
            }
        }
    }

    /// Objects that may exist. Beside other clients (`all`) that is every object of the layout, since this client knows only reported ones.
    fn objects_there(&self, file: &File, layout: &Layout, all: bool) -> Vec<(ObjectId, MirrorId)> {
        let meta = file.meta.lock();
        let is_there = |o: ObjectId, bit: bool| all || bit || meta.progress.has_written(o);
        layout.objects(file.fid).filter(|(o, _, bit)| is_there(*o, *bit)).map(|(o, m, _)| (o, m)).collect()
    }

    fn ask_to_move(
        &self,
        file: &Arc<File>,
        layout: &Layout,
        (from, keep): (u64, u16),
        avoid: Vec<MirrorId>,
        deadline: Instant,
    ) -> Result<Layout, Fault> {
        let (fid, generation, components) = (file.fid, layout.generation, layout.components.len() as u16);
        let held: Option<Capability> = file.held();
        let req = MoveTail { fid, generation, components, from, keep, avoid, now: self.now(), held };
        let answer = self.ask_until(fid, &req, deadline.min(Instant::now() + MOVE_MAX))?;
        let mut changed = answer
            .reply
            .inode
            .layout
            .filter(|l| l.generation == generation)
            .ok_or_else(|| Fault::new(Code::Stale, format!("file {fid}: its objects went meanwhile")))?;
        changed.learn_written(layout);
        file.meta.lock().saw(answer.mark);
        Ok(changed)
    }

    /// Free space of OSTs, at most `KNOWN_FOR` old.
    fn rooms(&self) -> Rooms {
        let mut rooms = self.elsewhere.rooms.lock();
        if let Some((at, rooms)) = &*rooms
            && at.elapsed() < KNOWN_FOR
        {
            return rooms.clone();
        }
        // A draining OST has no room for new objects.
        let osts = self.cluster.open_osts();
        let asked: Vec<_> = osts.iter().map(|(_, link)| (link.clone(), TargetStat {})).collect();
        let answers = self.ask_each(Fid(0), &asked, Instant::now() + ANSWER_MAX);
        let free = answers.into_iter().map(|a| a.ok().map(|a| a.reply.bytes_available));
        let said: Vec<_> = osts.into_iter().map(|(mirror, _)| mirror).zip(free).collect();
        *rooms = Some((Instant::now(), said.clone()));
        said
    }
}

/// End of the last byte or reserved page of these objects, as an offset in the file.
fn end_of(layout: &Layout, stats: &[ObjectStat]) -> u64 {
    let end =
        |s: &ObjectStat| layout.size_from(s.object.component, s.object.stripe, s.len.max(s.reserved_end));
    stats.iter().filter(|s| s.exists).map(end).max().unwrap_or(0)
}

/// Components up to the last one that has objects.
fn kept(stats: &[ObjectStat]) -> u16 {
    stats.iter().filter(|s| s.exists).map(|s| s.object.component + 1).max().unwrap_or(0)
}
