//! Requests to many objects or targets at a time: sends all, then waits for all answers.
//!
//! client-KY1: servers hear of another key of capabilities one after another, so tries with a refused capability have pauses.
//! client-KY2: a refusal of this node's revoked certificate ends a call at once.
//! client-KY3: an OST's refusal of a ticket by a former key waits for the MDT's next one.

use std::sync::Arc;
use std::time::Instant;

use plan::settle::Mark;
use types::{Buf, Code, Fault, Fid, Layout, MirrorId, ObjectId};
use wire::object::{Capability, Glimpse, ObjectStat, Truncate};
use wire::session::Flush;

use crate::Fs;
use crate::cache::files::File;
use crate::session::link::Link;
use crate::session::request::{Answer, IN_FLIGHT_MAX, Patience, Pending};
use crate::session::sent::Sent;

/// Most objects in one glimpse; a target refuses more than 2048.
const GLIMPSE_MAX: usize = 1024;

/// Why a request to objects was not carried out, in the form that its verb handles.
pub(crate) enum Stopped {
    /// The capability is missing, expired or fenced: open again, then try again. Has the refused lease version.
    Refresh(Option<Lease>),
    /// The content exceeds the inline limit, or the file has objects by now.
    NeedLayout,
    NotInline,
    /// A truncation must be finished first.
    Cut,
    /// These mirrors have no free space. `seen`: components of the layout that this client knew.
    Full {
        fault: Fault,
        mirrors: Vec<MirrorId>,
        seen: usize,
    },
    Failed(Fault),
}
/// A capability's lease version.
pub(crate) type Lease = (u32, u32);

pub(crate) fn lease_of(cap: &Capability) -> Lease {
    (cap.lease_epoch, cap.lease_counter)
}

impl Stopped {
    /// The fault for a caller without a remedy.
    pub fn fault(self) -> Fault {
        match self {
            Stopped::Failed(fault) | Stopped::Full { fault, .. } => fault,
            Stopped::Refresh(_) | Stopped::Cut => Code::Fenced.into(),
            Stopped::NeedLayout => Code::NeedLayout.into(),
            Stopped::NotInline => Code::NotInline.into(),
        }
    }

    /// Adds the capability that a refresh replaces, or the layout that a file moves on from.
    pub fn with(self, cap: &Capability, layout: &Layout) -> Stopped {
        match self {
            Stopped::Refresh(_) => Stopped::Refresh(Some(lease_of(cap))),
            Stopped::Full { fault, mirrors, .. } => {
                Stopped::Full { fault, mirrors, seen: layout.components.len() }
            }
            other => other,
        }
    }
}

/// Refuses an answer that does not describe the objects that were asked for, in their order. A layout is indexed by the ids of an answer.
fn check_described(asked: &[ObjectId], described: &[ObjectStat]) -> Result<(), String> {
    if asked.len() != described.len() {
        return Err(format!("asked for {} objects, it described {}", asked.len(), described.len()));
    }
    match asked.iter().zip(described).find(|(asked, stat)| **asked != stat.object) {
        Some((asked, stat)) => Err(format!("asked for object {asked}, it described {}", stat.object)),
        None => Ok(()),
    }
}

impl From<Fault> for Stopped {
    fn from(fault: Fault) -> Stopped {
        match fault.code {
            Code::Fenced => Stopped::Refresh(None),
            Code::NeedLayout => Stopped::NeedLayout,
            Code::NotInline => Stopped::NotInline,
            _ => Stopped::Failed(fault),
        }
    }
}

impl Fs {
    /// Others worked on the file until a moment ago.
    pub(crate) fn check_stale(&self, file: &File) -> Result<(), Stopped> {
        match file.meta.lock().is_stale {
            true => Err(Stopped::Refresh(None)),
            false => Ok(()),
        }
    }

    /// Sends one request to each link and waits for all. The first fault is the result, after all have ended.
    pub(crate) fn ask_all<R: Sent>(
        &self,
        fid: Fid,
        asked: &[(Arc<Link>, R)],
        deadline: Instant,
    ) -> Result<Vec<Answer<R::Reply>>, Fault> {
        self.ask_each(fid, asked, deadline).into_iter().collect()
    }

    /// As `ask_all`, with the outcome of each request.
    pub(crate) fn ask_each<R: Sent>(
        &self,
        fid: Fid,
        asked: &[(Arc<Link>, R)],
        deadline: Instant,
    ) -> Vec<Result<Answer<R::Reply>, Fault>> {
        let mut answers = Vec::with_capacity(asked.len());
        for window in asked.chunks(IN_FLIGHT_MAX) {
            let mut bufs: Vec<Buf> = window.iter().map(|_| Buf::new()).collect();
            let mut pending = Vec::with_capacity(window.len());
            // 1. Send all requests that can be sent without a wait.
            let (mut is_any_slot_held, mut is_any_under_way) = (false, false);
            for ((link, req), into) in window.iter().zip(&mut bufs) {
                let mut made =
                    Pending::new(link, fid, req, &[], into, deadline, Patience::of(is_any_slot_held));
                if let Ok(Some(p)) = &mut made {
                    is_any_slot_held = true;
                    is_any_under_way |= p.send(Patience::of(is_any_under_way));
                }
                pending.push(made);
            }
            // 2. Receive all answers. Then send the others, and repeat failed ones (client-C6).
            pending.iter_mut().filter_map(|made| made.as_mut().ok()?.as_mut()).for_each(Pending::land);
            let first: Vec<_> =
                pending.into_iter().map(|made| made.and_then(|p| p.map(Pending::run).transpose())).collect();
            // 3. Last those that found no slot or no space. This thread holds no slot now, so they may wait.
            for (answer, (link, req)) in first.into_iter().zip(window) {
                answers.push(answer.and_then(|a| a.map_or_else(|| link.ask(fid, req, deadline), Ok)));
            }
        }
        assert_eq!(answers.len(), asked.len(), "each request has one outcome");
        answers
    }

    /// Lengths of objects, from every target that has some.
    pub(crate) fn glimpse(
        &self,
        cap: &Capability,
        objects: impl Iterator<Item = (ObjectId, MirrorId)>,
        deadline: Instant,
    ) -> Result<Vec<ObjectStat>, Fault> {
        let mut by_mirror: std::collections::BTreeMap<MirrorId, Vec<ObjectId>> = Default::default();
        objects.for_each(|(object, mirror)| by_mirror.entry(mirror).or_default().push(object));
        let mut asked = Vec::new();
        for (mirror, objects) in by_mirror {
            let link = self.ost(mirror, deadline)?;
            for part in objects.chunks(GLIMPSE_MAX) {
                asked.push((link.clone(), Glimpse { cap: cap.clone(), objects: part.to_vec() }));
            }
        }
        let mut stats = Vec::new();
        for ((link, req), answer) in asked.iter().zip(self.ask_all(cap.fid, &asked, deadline)?) {
            check_described(&req.objects, &answer.reply.objects)
                .map_err(|why| Fault::new(Code::Io, format!("{}: {why}", link.describe())))?;
            stats.extend(answer.reply.objects);
        }
        Ok(stats)
    }

    /// Cuts objects to lengths. The marks say where the cuts are logged.
    pub(crate) fn cut_objects(
        &self,
        cap: &Capability,
        layout: &Layout,
        cuts: &[(ObjectId, u64)],
        deadline: Instant,
    ) -> Result<Vec<Mark>, Fault> {
        let mut asked = Vec::new();
        for (object, len) in cuts {
            let mirror = layout.components[object.component as usize].mirrors[object.stripe as usize];
            asked.push((
                self.ost(mirror, deadline)?,
                Truncate { cap: cap.clone(), object: *object, len: *len },
            ));
        }
        Ok(self.ask_all(cap.fid, &asked, deadline)?.into_iter().map(|a| a.mark).collect())
    }

    /// Flushes these targets, all at once.
    pub(crate) fn flush_links(&self, links: Vec<Arc<Link>>, deadline: Instant) -> Result<(), Fault> {
        let asked: Vec<_> = links.into_iter().map(|link| (link, Flush {})).collect();
        self.ask_all(Fid(0), &asked, deadline).map(|_| ())
    }

    /// Makes everything durable that any client wrote to these objects.
    pub(crate) fn flush_objects(&self, layout: &Layout, fid: Fid, deadline: Instant) -> Result<(), Fault> {
        let mirrors: std::collections::BTreeSet<_> =
            layout.objects(fid).map(|(_, mirror, _)| mirror).collect();
        let links = mirrors.into_iter().map(|m| self.ost(m, deadline)).collect::<Result<Vec<_>, _>>()?;
        self.flush_links(links, deadline)
    }

    /// Makes the marks durable: flushes targets that have not reported them as flushed, and fails if a restart lost one of them.
    pub(crate) fn flush_marks(&self, file: &File, marks: &[Mark], deadline: Instant) -> Result<(), Fault> {
        let mut links = Vec::with_capacity(marks.len());
        for mark in marks {
            let link =
                self.cluster.link(mark.mirror).expect("client-M1: a link stays, and a mark came over it");
            links.push((link, mark));
        }
        let open: Vec<_> =
            links.iter().filter(|(link, mark)| !link.covers(mark)).map(|(link, _)| link.clone()).collect();
        match open.as_slice() {
            [] => {}
            [link] => link.flush(deadline)?,
            _ => self.flush_links(open, deadline)?,
        }
        if let Some((link, _)) = links.iter().find(|(link, mark)| link.has_lost(mark)) {
            let why =
                format!("file {}: {} restarted and lost acknowledged changes", file.fid, link.describe());
            file.meta.lock().poison.get_or_insert(Fault::new(Code::Io, why));
        }
        self.check_acknowledged(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Generation, Time};

    #[test]
    fn an_answer_about_other_objects_is_refused() {
        let layout = Layout { generation: Generation(1), components: Vec::new() };
        let [a, b] = [0, 1].map(|stripe| layout.object(Fid(7), 0, stripe));
        let stat = |object| ObjectStat {
            object,
            exists: false,
            len: 0,
            used: 0,
            reserved_end: 0,
            mtime: Time::default(),
        };
        assert_eq!(check_described(&[a, b], &[stat(a), stat(b)]), Ok(()));
        assert!(check_described(&[a, b], &[stat(a)]).unwrap_err().contains("described 1"));
        assert!(check_described(&[a], &[stat(a), stat(b)]).unwrap_err().contains("described 2"));
        assert!(check_described(&[a, b], &[stat(b), stat(a)]).is_err(), "another order");
        let beyond = ObjectId { component: 9, ..a };
        let refused = check_described(&[a], &[stat(beyond)]).unwrap_err();
        assert!(refused.contains(&beyond.to_string()), "{refused}");
    }
}
