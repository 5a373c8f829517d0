//! A growing file moves on: where an OST is full and others are not, what follows the last byte of the file goes to those (decision 0050).
//!
//! client-E1: the layout is changed by who owns the body, has the file in its turn, and has asked the objects: behind the place where it changes
//!     they have no byte and no reserved space.
//! client-E2: a mirror that refused is not gone back to within the same call, so a call moves a file on at most once per OST.

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
use crate::session::sharing::Section;
use crate::upkeep::room::Tries;

/// How long what OSTs say of their room is good for. Who writes fills one no faster than within a few of these.
const KNOWN_FOR: Duration = Duration::from_secs(1);
/// An OST that does not say in this time has no room for anybody who waits.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// New files avoid an OST for so long after it refused something. Then one tries it again.
const FULL_FOR: Duration = Duration::from_secs(5);
/// An MDT that does not answer for so long keeps nobody from hearing that there is no space.
const MOVE_MAX: Duration = Duration::from_secs(5);

/// Bytes that each OST has for more; nothing of one that does not say.
type Rooms = Vec<(MirrorId, Option<u64>)>;

/// What this client knows of the room of OSTs.
#[derive(Default)]
pub(crate) struct Elsewhere {
    rooms: Mutex<Option<(Instant, Rooms)>>,
    /// Mirrors that refused something, and when they did so last.
    full: Mutex<BTreeMap<MirrorId, Instant>>,
}

/// What a call wants of an OST that refused it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Want {
    /// Its first byte that found no room, or may have found none.
    pub at: u64,
    pub len: u64,
}

impl Fs {
    /// Mirrors that new objects should not be on.
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
            // All refused something: those that did so first may have room by now.
            full.pop();
        }
        Vec::new()
    }

    /// These refused a call. True if it is the first time for one of them, and others have room for as much as it wants.
    pub(crate) fn is_room_elsewhere(&self, mirrors: &[MirrorId], tries: &mut Tries) -> bool {
        let now = Instant::now();
        self.elsewhere.full.lock().extend(mirrors.iter().map(|m| (*m, now)));
        let before = tries.refused.len();
        tries.refused.extend(mirrors);
        tries.refused.len() > before && avoided(&self.rooms(), &tries.refused, tries.want.len).is_some()
    }

    /// Mirrors of the call's section refused what it wants; `seen` components had the layout then. True if the file goes on elsewhere, so that
    /// it is worth another try.
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
            // Another thread was first.
            return Ok(true);
        }
        let Some(cap) = file.meta.lock().cap.clone() else { return Ok(false) };
        // 1. client-E1: where does the last object end?
        let objects = self.objects_there(file, layout, section.is_among_others());
        let stats = self.glimpse(&cap, objects.into_iter(), deadline)?;
        let (from, keep) = (end_of(layout, &stats), kept(&stats));
        if from > tries.want.at {
            return Ok(false);
        }
        let Some(avoid) = avoided(&self.rooms(), &tries.refused, tries.want.len) else { return Ok(false) };
        // 2. The MDT changes it, durably.
        match self.ask_to_move(file, layout, (from, keep), avoid, deadline) {
            Ok(changed) => {
                *layout = changed;
                tracing::debug!("file {} goes on elsewhere from {from} on", file.fid);
                Ok(true)
            }
            // It stays where it is, or is opened anew before its objects are used: that goes after the change, if it is still to come.
            Err(fault) => {
                if !is_definite(fault.code) {
                    file.distrust();
                }
                tracing::debug!("file {} stays on full OSTs: {fault}", file.fid);
                Ok(false)
            }
        }
    }

    /// Objects that may exist. Who is among others knows of those only that the MDT was told of.
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

    /// As of a moment ago.
    fn rooms(&self) -> Rooms {
        let mut rooms = self.elsewhere.rooms.lock();
        if let Some((at, rooms)) = &*rooms
            && at.elapsed() < KNOWN_FOR
        {
            return rooms.clone();
        }
        let osts = self.cluster.osts();
        let asked: Vec<_> = osts.iter().map(|(_, link)| (link.clone(), TargetStat {})).collect();
        let answers = self.ask_each(Fid(0), &asked, Instant::now() + ANSWER_MAX);
        let free = answers.into_iter().map(|a| a.ok().map(|a| a.reply.bytes_available));
        let said: Vec<_> = osts.into_iter().map(|(mirror, _)| mirror).zip(free).collect();
        *rooms = Some((Instant::now(), said.clone()));
        said
    }
}

/// Where the last byte or reserved page of these objects is.
fn end_of(layout: &Layout, stats: &[ObjectStat]) -> u64 {
    let end =
        |s: &ObjectStat| layout.size_from(s.object.component, s.object.stripe, s.len.max(s.reserved_end));
    stats.iter().filter(|s| s.exists).map(end).max().unwrap_or(0)
}

/// Components up to the last one that has objects.
fn kept(stats: &[ObjectStat]) -> u16 {
    stats.iter().filter(|s| s.exists).map(|s| s.object.component + 1).max().unwrap_or(0)
}
