//! A member that takes the whole content of the other one in place of its own.

use std::time::{Duration, Instant};

use disk::volume::Volume;
use mirror::on_map::{member_of, members_of};
use pair::{Copied, LogLines, Replica};
use types::{Code, Fault, MirrorId, TargetId};
use wire::map::ClusterMap;

use super::told::Between;
use super::{Holding, Kind, Over, Place};

/// Longest wait until the map has the other member alone.
const OUT_MAX: Duration = Duration::from_secs(5);

/// The reason for which the content of a member counts for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Its medium may have lost what was acknowledged.
    Lost,
    /// A part of it cannot be read. The rest is sound.
    Unreadable,
}

/// True if a member whose content cannot be opened may take the other one's in its place: an MDT with damage that is out of sync by the newest
/// map, while the other member is in sync. So nothing is lost that the mirror has.
pub fn may_be_replaced(map: &ClusterMap, mirror: MirrorId, target: TargetId, fault: &Fault) -> bool {
    let Some(mirror) = map.mirror(mirror).filter(|mirror| mirror.is_mdt) else { return false };
    let (Some(members), Some(me)) = (members_of(mirror), member_of(mirror, target)) else { return false };
    fault.code == Code::Damaged && !members.is_in_sync(me) && members.is_in_sync(me.other())
}

impl Place {
    /// Replaces the content by that of the other member.
    pub(super) fn copy_content(&self) -> Result<(), Fault> {
        let how = &self.around.how;
        let (me, post) = (self.me()?, self.post());
        let members = self.two_members()?;
        let settings = match &how.kind {
            Kind::Mdt(settings) => settings,
            Kind::Ost(settings) => {
                // Its next life has the note, and is filled by entries.
                self.note_filling()?;
                let ost = oss::Ost::open(how.media.clone(), settings.clone())?;
                ost.stand_by()?;
                let emptied = ost.make_empty(&|| self.state.lock().is_stopping);
                return emptied.and(ost.stop(true));
            }
        };
        // 1. A half-filled target must never count as one that has its own content.
        self.note_filling()?;
        self.state.lock().between = Between::Copying { parts: 0 };
        // 2. The copy's lines are those of its last part.
        let (mut lines, mut copy) = (LogLines::default(), 0);
        mds::fill(how.media.main.clone(), settings.clone(), &mut |part| {
            if self.state.lock().is_stopping {
                return Err(Fault::new(Code::NotReady, "this member is stopping"));
            }
            let reply = post.copy_all(copy, part)?;
            copy = reply.copy;
            self.state.lock().between = Between::Copying { parts: part + 1 };
            lines = LogLines::of(&reply.lines);
            Ok(Copied { copy, is_last: reply.is_last, end: reply.lines.end, content: reply.content.0 })
        })?;
        // 3. The content is whole, and the note says so from here on.
        let standby = mds::Standby::open(how.media.main.clone(), settings.clone())?;
        let note = pair::copied_note(&standby.note(), (me, &members), &lines, &boot_id()?)?;
        standby.keep_note(&note)?;
        standby.close()
    }

    fn two_members(&self) -> Result<mirror::Members, Fault> {
        let none = || Fault::new(Code::NotReady, "its mirror has no other member to take the content from");
        self.members().ok_or_else(none)
    }

    /// From here on the content counts for nothing, over any restart, until the other member has filled this one.
    fn note_filling(&self) -> Result<(), Fault> {
        let how = &self.around.how;
        let (me, members, boot_id) = (self.me()?, self.two_members()?, boot_id()?);
        match &how.kind {
            Kind::Mdt(_) => {
                let disk = how.media.main.clone();
                let note = pair::filling_note(&mds::note_on(disk.clone())?, (me, &members), &boot_id)?;
                mds::keep_note_on(disk, &note)
            }
            Kind::Ost(settings) => {
                let ost = oss::Ost::open(how.media.clone(), settings.clone())?;
                ost.keep_note(&pair::filling_note(&ost.note()?, (me, &members), &boot_id)?)?;
                ost.stop(true)
            }
        }
    }

    /// pair-S14: a restart must not forget that the medium has lost something. The volume that failed keeps nothing, so it is opened anew.
    pub(super) fn note_doubt(&self) {
        self.state.lock().doubt = Some(Doubt::Lost);
        if let Err(fault) = self.keep_doubt() {
            let (target, path) = (self.id(), self.around.how.path.display());
            tracing::error!(%target, %path, %fault, "a member of a mirror whose medium has failed could not note that; before its server is started again, have the other member go on alone, or replace it (`stria target replace`)");
        }
    }

    fn keep_doubt(&self) -> Result<(), Fault> {
        let volume = Volume::open(self.around.how.media.clone())?;
        let malformed = |why: wire::Malformed| Fault::new(Code::Damaged, why.to_string());
        match pair::doubted_note(&volume.note()).map_err(malformed)? {
            Some(note) => Ok(volume.set_note(&note)?),
            None => Ok(()),
        }
    }

    /// The life ended for this. The next one begins after a pause.
    pub(super) fn doubt(&self, doubt: Doubt, fault: Fault) -> Result<Over, Fault> {
        self.state.lock().doubt = Some(doubt);
        Err(fault)
    }

    /// An administrator doubts this content, or its medium is in trouble. First the map must say that this member is out: the other one has
    /// asked for that. If it does not, content of which only a part is lost may be the last one, and is kept.
    pub(super) fn give_up_content(&self) -> Result<Holding, Fault> {
        let (me, until) = (self.me()?, Instant::now() + OUT_MAX);
        while self.two_members()?.is_in_sync(me) {
            let mut state = self.state.lock();
            if !state.is_stopping && !self.changed.wait_until(&mut state, until).timed_out() {
                continue;
            }
            let (doubt, target) = (state.doubt.filter(|_| !state.is_stopping), self.id());
            drop(state);
            match doubt {
                Some(Doubt::Unreadable) => {
                    tracing::warn!(%target, "the other member of its mirror did not take over, so it goes on with what it can read");
                    self.state.lock().keeps_content = true;
                }
                // pair-S14. Its seat hears of it when the other one does take over.
                Some(Doubt::Lost) => {
                    self.keep_doubt()?;
                    tracing::warn!(%target, "the other member of its mirror did not take over, so it serves nothing until that one does, or may have lost more");
                }
                None => {}
            }
            if doubt.is_some() {
                self.state.lock().doubt = None;
                return Ok(Holding::Whole);
            }
            let why = "the other member has not gone on alone yet, so this one keeps its content; give an order to fill it again";
            return Err(Fault::new(Code::NotReady, why));
        }
        self.note_filling()?;
        self.state.lock().doubt = None;
        Ok(Holding::Doubted)
    }
}

/// The kernel's name for this run of the machine: a process that was killed within it has lost nothing of its log.
pub(super) fn boot_id() -> Result<[u8; 16], Fault> {
    let path = "/proc/sys/kernel/random/boot_id";
    let text = std::fs::read_to_string(path)
        .map_err(|e| Fault::new(Code::Io, format!("read {path}: {e}; mount /proc")))?;
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|s| u8::from_str_radix(s, 16).ok());
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| Fault::new(Code::Io, format!("{path} has no uuid: {}", text.trim())))
}

#[cfg(test)]
mod tests {
    use types::{Epoch, FsId};
    use wire::map::{Member, MemberState, Mirror};

    use super::*;

    fn map_of(is_mdt: bool, [other, own]: [MemberState; 2]) -> ClusterMap {
        let mut mirror = Mirror::alone(MirrorId(2), FsId(1), is_mdt, Epoch(3), TargetId(4));
        mirror.members[0].state = other;
        mirror.members.push(Member { target: TargetId(9), state: own });
        let mut map = ClusterMap::empty();
        map.mirrors.push(mirror);
        map
    }

    #[test]
    fn only_a_damaged_mdt_out_of_sync_beside_one_in_sync_is_replaced() {
        use MemberState::{Filling, InSync, Out};
        let (damaged, passing) = (Fault::new(Code::Damaged, ""), Fault::new(Code::Io, ""));
        let table = [
            ("out", [InSync, Out], &damaged, true),
            ("being filled", [InSync, Filling], &damaged, true),
            ("in sync", [InSync, InSync], &damaged, false),
            ("the only one", [Out, InSync], &damaged, false),
            ("beside one that is out", [Out, Out], &damaged, false),
            ("not readable now", [InSync, Out], &passing, false),
        ];
        for (name, states, fault, want) in table {
            let is_replaced =
                |is_mdt| may_be_replaced(&map_of(is_mdt, states), MirrorId(2), TargetId(9), fault);
            assert_eq!((is_replaced(true), is_replaced(false)), (want, false), "{name}");
        }
        let own = map_of(true, [InSync, Out]);
        assert!(!may_be_replaced(&own, MirrorId(2), TargetId(5), &damaged), "not a member");
    }
}
