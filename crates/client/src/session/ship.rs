//! Makes and removes small files here first, and ships that to the MDT in bulk (decision 0057).
//!
//! A change is carried out here only where its outcome is certain: the MDT has leased the directory to this client for it, the client has the
//! directory's names, and the kernel has checked the caller's rights. New files get no attributes there that only the MDT could tell. Then
//! the change waits for its frame, about `LINGER`. Another client that comes to the directory waits until all changes in it are shipped.
//!
//! client-U5: what is answered from here is what the MDT will answer: attributes are compared when the answer comes.
//! client-U6: a change that the MDT refuses is a loss, of its file and its directory: it is logged, and fsync reports it.

use std::sync::Weak;
use std::time::{Duration, Instant};

use types::crc::fragment_crcs;
use types::{Attr, Code, Cred, Fault, Fid, Kind, Time};
use wire::codec::Bytes;
use wire::meta::{
    CreateWith, FLAG_APPEND, FLAG_IMMUTABLE, FileState, Inode, LEASED_FIDS_MAX, LeaseDir, LeaseDirReply,
    LeaveDir, OpenReply, Place, Unlink, UnlinkReply,
};
use wire::{Malformed, Reader, Request, Wire};

use crate::Fs;
use crate::cache::api::{Handle, Mode, OpenFlags};
use crate::cache::files::{File, For};
use crate::cache::leased::{Fate, Known};
use crate::session::identity::Identity;
use crate::session::jobs::set_job;
use crate::session::link::Link;
use crate::session::request::Answer;
use crate::session::section::RETURN_MAX;
use crate::session::sent::{After, Sent};
use crate::session::unshipped::{Change, DirLease, LINGER, May, What};
use crate::wait_for_bell;

/// Longest time of one try to ship. A slow MDT is asked again, under the slots of the first try (client-C3).
const TRY_MAX: Duration = Duration::from_secs(5);
/// Changes in a directory that are sent at once before its lease is asked for: a directory of few files costs no request more.
const TRIES: u32 = 2;
/// Longest name.
const NAME_MAX: usize = 255;
/// Bits of a mode.
const MODE_BITS: u32 = 0o7777;

/// A request that is sent later than its change was made. The cache has had the change since then.
struct Late<R>(R);

impl<R: Wire> Wire for Late<R> {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        R::get(r).map(Late)
    }
}
impl<R: Sent> Request for Late<R> {
    const CALL: u16 = R::CALL;
    const MUTATES: bool = R::MUTATES;
    type Reply = R::Reply;
}
impl<R: Sent> Sent for Late<R> {
    fn amend(body: &mut [u8], reply: &R::Reply) {
        R::amend(body, reply);
    }
    fn touches(&self, _: Fid) -> Vec<lease::Touch> {
        vec![]
    }
    const NAMES: bool = R::NAMES;
    const IS_LATE: bool = true;
    fn after(&self, _: Fid) -> After {
        After::Nothing
    }
}

impl Fs {
    /// The lease of `dir`, if changes in it may wait. Asks for it when it is due.
    fn may_wait(&self, dir: Fid, deadline: Instant) -> Option<DirLease> {
        let is_held = self.id.leased.is_valid() || !self.is_shared();
        if !self.settings.ships_names || !is_held || self.is_stopping() {
            return None;
        }
        let mdt = self.mdt(dir).ok().filter(|mdt| mdt.keeps() && mdt.is_attached())?;
        match self.id.unshipped.may(dir, TRIES) {
            May::There => None,
            May::Here(lease) => Some(lease).filter(|lease| lease.number > 0 || !self.is_shared()),
            May::Ask => self.ask_for_dir(&mdt, dir, deadline),
        }
    }

    fn ask_for_dir(&self, mdt: &Link, dir: Fid, deadline: Instant) -> Option<DirLease> {
        let (unshipped, sharing) = (&self.id.unshipped, &self.id.sharing);
        let (seasons, times) = (self.seasons_shared(), sharing.times_told());
        let asked = mdt.ask(dir, &LeaseDir { dir, count: LEASED_FIDS_MAX }, deadline);
        let Some(Answer { reply, mark, .. }) = asked.ok().filter(|answer| answer.reply.count > 0) else {
            unshipped.leased(dir, None, || false);
            return None;
        };
        let LeaseDirReply { first, count, inline_max, number } = reply;
        let lease = DirLease { number, inline_max };
        // A restarted MDT is told of the leases that it finds here. Others that came meanwhile found none.
        let is_so = || {
            let is_same = self.seasons_shared() == seasons && sharing.times_told() == times;
            is_same && mdt.is_in(mark.at) && (number > 0 || !self.is_shared())
        };
        if unshipped.leased(dir, Some((lease, first.0..first.0 + u64::from(count))), is_so) {
            return Some(lease);
        }
        if number > 0 {
            self.leave_dir(dir, number);
        }
        None
    }

    /// Another client wants a directory. False: it is none that was leased here.
    pub(crate) fn dir_recalled(&self, dir: Fid, number: u64) -> bool {
        if !self.id.unshipped.is_wanted(dir, number) {
            return false;
        }
        self.leave_dir(dir, number);
        true
    }

    /// mds-Z1: after all changes in it. The MDT asks again for a lease whose return fails.
    pub(crate) fn leave_dir(&self, dir: Fid, number: u64) {
        let deadline = Instant::now() + RETURN_MAX;
        if self.id.unshipped.wait_for(&After::Of(vec![dir]), deadline) {
            _ = self.ask_until(dir, &LeaveDir { dir, number }, deadline);
        }
    }

    /// Makes a new file here. The name is locked. `None`: the MDT must be asked.
    pub(crate) fn make_here(
        &self,
        (parent, name): (Fid, &[u8]),
        Mode { bits, umask }: Mode,
        flags: OpenFlags,
        cred: &Cred,
        deadline: Instant,
    ) -> Option<Result<(Attr, Handle), Fault>> {
        if flags.sync || !is_name(name) || !self.may_use_cached(cred) {
            return None;
        }
        if !matches!(self.id.leased.name(parent, name), Some((Known::Absent, _))) {
            return None;
        }
        let lease = self.may_wait(parent, deadline)?;
        if !self.id.unshipped.wait_for_room(deadline) {
            return Some(Err(slow()));
        }
        // Looked at again under the lease: another client may have made it before that was granted.
        if !matches!(self.id.leased.name(parent, name), Some((Known::Absent, _))) {
            return None;
        }
        let fid = self.id.unshipped.take_fid()?;
        let (before, now, mode) = (self.xattrs_set(), self.now(), bits & MODE_BITS);
        let attr = Attr {
            fid,
            kind: Kind::File,
            mode: mode & !(umask & 0o777),
            uid: cred.uid,
            gid: cred.gid,
            nlink: 1,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        };
        let why = if flags.write { For::Writing } else { For::Reading };
        let file = self.files.pin(fid, why);
        {
            let mut body = match file.own_body(deadline) {
                Ok(body) => body,
                Err(fault) => {
                    self.files.unpin(&file, why);
                    return Some(Err(fault));
                }
            };
            (body.is_loaded, body.layout) = (true, None);
            let mut meta = file.meta.lock();
            meta.progress.start_anew(0, 0, now);
            (meta.session, meta.inline_max) = (self.session(), Some(lease.inline_max));
        }
        self.note_bare(&file, before);
        let inode = Inode { attr, layout: None, state: FileState::Settled, flags: 0 };
        let what = What::Make { file: file.clone(), attr, umask, mode, bytes: vec![] };
        // The MDT notes it as open here when it hears of it.
        _ = self.id.sharing.note_open(&file);
        if !self.id.unshipped.add(lease, Change::new((parent, name), fid, (self.session(), now), cred, what))
        {
            self.files.unpin(&file, why);
            return None;
        }
        self.id.leased.changed_here((parent, name), Fate::Made(name, &inode), now, self.session());
        Some(Ok((attr, self.files.add_handle(file, flags))))
    }

    /// Writes into a new file that waits. `None`: the MDT must be asked. The caller has the file's body.
    pub(crate) fn write_here(&self, file: &File, place: Place, data: &[u8], now: Time) -> Option<Attr> {
        if self.id.unshipped.is_empty() {
            return None;
        }
        let inline_max = file.meta.lock().inline_max? as usize;
        let attr = self.id.unshipped.write(file.fid, |bytes, attr| {
            let (at, data) = match place {
                Place::At(offset) => (usize::try_from(offset).ok()?, data),
                Place::End => (bytes.len(), data),
                Place::Within(offset) => {
                    let at = usize::try_from(offset).ok()?;
                    (at, &data[..data.len().min(bytes.len().saturating_sub(at))])
                }
            };
            // A hole has no blocks, and the MDT makes one only by a write of its own.
            if at > bytes.len() {
                return None;
            }
            if data.is_empty() {
                return Some(*attr);
            }
            let end = at + data.len();
            if end > inline_max {
                return None;
            }
            bytes.resize(bytes.len().max(end), 0);
            bytes[at..end].copy_from_slice(data);
            (attr.size, attr.blocks) = (bytes.len() as u64, (bytes.len() as u64).div_ceil(512));
            (attr.mtime, attr.ctime) = (now, now);
            Some(*attr)
        })?;
        self.id.leased.written_here(attr);
        Some(attr)
    }

    /// Removes a file here. The name is locked. `None`: the MDT must be asked.
    pub(crate) fn remove_here(
        &self,
        (parent, name): (Fid, &[u8]),
        cred: &Cred,
        deadline: Instant,
    ) -> Option<Result<(), Fault>> {
        if !is_name(name) || !self.may_use_cached(cred) {
            return None;
        }
        let Some((Known::There(fid, Some(inode)), _)) = self.id.leased.name(parent, name) else {
            return None;
        };
        let Inode { attr, flags, .. } = &inode;
        if attr.kind == Kind::Dir || attr.nlink != 1 || flags & (FLAG_IMMUTABLE | FLAG_APPEND) != 0 {
            return None;
        }
        let lease = self.may_wait(parent, deadline)?;
        if !self.id.unshipped.wait_for_room(deadline) {
            return Some(Err(slow()));
        }
        // No open comes between the look and the removal.
        let _fid_lock = match self.names.lock_fid(fid, deadline) {
            Ok(lock) => lock,
            Err(fault) => return Some(Err(fault)),
        };
        if self.files.is_held(fid) {
            return None;
        }
        // As in `make_here`.
        match self.id.leased.name(parent, name) {
            Some((Known::There(found, Some(again)), _)) if found == fid && again.attr.nlink == 1 => {}
            _ => return None,
        }
        let now = self.now();
        if !self
            .id
            .unshipped
            .add(lease, Change::new((parent, name), fid, (self.session(), now), cred, What::Remove))
        {
            return None;
        }
        self.id.gone.remember(Attr { nlink: 0, ctime: now, ..*attr });
        if let Some(file) = self.files.get(fid) {
            file.meta.lock().is_gone = true;
        }
        self.id.leased.changed_here((parent, name), Fate::Removed, now, self.session());
        Some(Ok(()))
    }

    // ---- shipping ----

    /// Ships all changes that were made by now.
    pub(crate) fn ship_all(&self, deadline: Instant) -> Result<(), Fault> {
        match self.id.unshipped.wait_for(&After::All, deadline) {
            true => Ok(()),
            false => Err(slow()),
        }
    }

    /// As `ship_all`, at the client's end: its threads have ended.
    pub(crate) fn ship_rest(&self, deadline: Instant) {
        while !self.id.unshipped.is_empty() && Instant::now() < deadline && self.ship_some(deadline) {}
        lose_all(&self.id, "this mount ended before the MDT had heard of it");
    }

    /// Sends one frame. False: nothing waits, or the MDT does not answer.
    fn ship_some(&self, deadline: Instant) -> bool {
        let unshipped = &self.id.unshipped;
        let Ok(mdt) = self.mdt(Fid::ROOT) else { return false };
        let mut changes = unshipped.take(self.is_stopping());
        let mut is_answered = !changes.is_empty();
        // client-U8.
        changes.retain(|(at, change)| {
            let is_ours = change.session == self.session();
            if !is_ours {
                lose(&self.id, change, "its session was ended");
                unshipped.sent(*at, true);
            }
            is_ours
        });
        // One tag for the frame: among jobs that change names at the same time, the last one counts.
        set_job(changes.last().map_or(0, |(_, change)| change.job));
        let (makes, removes): (Vec<_>, Vec<_>) =
            changes.iter().partition(|(_, change)| matches!(change.what, What::Make { .. }));
        // A frame has changes of one kind.
        let asked: Vec<_> = makes
            .iter()
            .filter_map(|(_, change)| {
                let What::Make { attr, umask, mode, bytes, .. } = &change.what else { return None };
                Some((change.parent, create_of(change, attr, (*umask, *mode), bytes), &bytes[..]))
            })
            .collect();
        let made = if asked.is_empty() { vec![] } else { mdt.ask_together(&asked, deadline) };
        for ((at, change), answer) in makes.iter().zip(made) {
            let is_done = self.was_made(change, answer);
            is_answered &= is_done;
            unshipped.sent(*at, is_done);
        }
        let asked: Vec<_> =
            removes.iter().map(|(_, change)| (change.parent, unlink_of(change), &[][..])).collect();
        let removed = if asked.is_empty() { vec![] } else { mdt.ask_together(&asked, deadline) };
        let mut gone = Vec::new();
        for ((at, change), answer) in removes.iter().zip(removed) {
            let is_done = self.was_removed(change, answer, &mut gone);
            is_answered &= is_done;
            unshipped.sent(*at, is_done);
        }
        set_job(0);
        unshipped.end();
        // It may ask the MDT, and so comes after the end of the frame.
        gone.iter().for_each(|gone| self.note_removed(gone, deadline));
        is_answered
    }

    /// False: there is no answer.
    fn was_made(&self, change: &Change, answer: Result<Answer<OpenReply>, Fault>) -> bool {
        let What::Make { file, attr, .. } = &change.what else { return true };
        match answer {
            Ok(Answer { reply: OpenReply { inode, cap }, mark, .. }) => {
                let mut meta = file.meta.lock();
                meta.cap = cap.or(meta.cap.take());
                meta.flags = inode.flags;
                meta.saw(mark);
                drop(meta);
                self.id.leased.shipped(change.parent);
                if change.is_repeat && inode.attr.size != attr.size {
                    lose(&self.id, change, "the MDT has it with another length");
                } else if inode.attr.fid != change.fid {
                    lose(&self.id, change, "the MDT gave it another number; run fsck");
                } else if inode.attr != *attr && !change.is_repeat {
                    // client-U5. A change of the directory came between; what is cached goes.
                    tracing::warn!(
                        "file {}: the MDT has {:?}, and {attr:?} was expected",
                        change.fid,
                        inode.attr
                    );
                    self.id.leased.forget_all_of(change.parent);
                }
                true
            }
            Err(fault) => self.is_refused(change, &fault),
        }
    }

    fn was_removed(
        &self,
        change: &Change,
        answer: Result<Answer<UnlinkReply>, Fault>,
        gone: &mut Vec<UnlinkReply>,
    ) -> bool {
        match answer {
            Ok(answer) => {
                self.id.leased.shipped(change.parent);
                gone.push(answer.reply);
                true
            }
            // The first try was carried out.
            Err(fault) if fault.code == Code::NotFound && change.is_repeat => true,
            Err(fault) => self.is_refused(change, &fault),
        }
    }

    /// False: it is not known what came of it, so it is sent again.
    fn is_refused(&self, change: &Change, fault: &Fault) -> bool {
        if matches!(fault.code, Code::Timeout | Code::NotReady) {
            return false;
        }
        lose(&self.id, change, &fault.to_string());
        self.id.leased.forget_all_of(change.parent);
        true
    }

    fn ship_round(&self) {
        while !self.id.unshipped.is_empty() && !self.is_stopping() && self.ship_some(Instant::now() + TRY_MAX)
        {
        }
    }
}

/// client-U6.
fn lose(id: &Identity, change: &Change, why: &str) {
    let name = String::from_utf8_lossy(&change.name);
    let what = if matches!(change.what, What::Remove) { "removal" } else { "creation" };
    let why = format!("the {what} of '{name}' in directory {} did not reach the MDT: {why}", change.parent);
    id.losses.add(change.fid, &why);
    id.losses.add(change.parent, &why);
}

/// The session has ended, or the client ends: nothing that waits is sent any more.
pub(crate) fn lose_all(id: &Identity, why: &str) {
    id.unshipped.lose().iter().for_each(|change| lose(id, change, why));
}

fn create_of(change: &Change, attr: &Attr, (umask, mode): (u32, u32), bytes: &[u8]) -> Late<CreateWith> {
    Late(CreateWith {
        parent: change.parent,
        name: Bytes::from(&change.name[..]),
        mode,
        umask,
        crcs: fragment_crcs(0, bytes),
        now: change.now,
        written: attr.mtime,
        cred: change.cred.clone(),
        want: change.fid,
    })
}

fn unlink_of(change: &Change) -> Late<Unlink> {
    let (parent, name) = (change.parent, Bytes::from(&change.name[..]));
    Late(Unlink { parent, name, held: false, now: change.now, cred: change.cred.clone() })
}

/// Names that the MDT takes (`meta::names::validate`).
fn is_name(name: &[u8]) -> bool {
    let is_special = name.is_empty() || name == b"." || name == b"..";
    !is_special && name.len() <= NAME_MAX && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}

fn slow() -> Fault {
    Fault::new(Code::Timeout, "changes of names do not reach the MDT in time; see 'stria status'")
}

/// The thread that ships.
pub(crate) fn ship_loop(weak: &Weak<Fs>) {
    while !wait_for_bell(weak, LINGER, |id| &id.unshipped.bell) {
        let Some(fs) = weak.upgrade() else { return };
        fs.ship_round();
    }
}
