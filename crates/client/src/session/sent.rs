//! What each request of a session has beside its bytes: how it is sent again, what it changes of all that is cached, and what its answer has
//! that may be cached.

use lease::Touch;
use types::{Fid, ObjectId, h64};
use wire::accessed::Accessed;
use wire::meta::{
    Create, CreateReply, CreateWith, GetAttr, GetAttrs, Inode, LeaseDir, Link, Lookup, MakeDir, OpenReply,
    ReadDir, RemoveDir, RemoveXattr, Rename, RenameReply, SetXattr, Symlink, Tmpfile, Unlink, UnlinkReply,
    WriteInline, WriteInlineReply,
};
use wire::object::{self, Capability};
use wire::{Reader, Request, Wire};

/// What an answer has that may be cached.
pub(crate) enum Wish<'a> {
    Nothing,
    /// The inode of this name in this directory.
    Name(Fid, &'a [u8]),
    /// Names in this directory. The caller keeps them.
    Names(Fid),
    /// Attributes of this inode. The caller keeps them.
    Attr(Fid),
}

/// The changes that are shipped before a request (client-U2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum After {
    Nothing,
    All,
    /// Those of this name in this directory.
    Name(Fid, u64),
    /// Those of these files, and in these directories.
    Of(Vec<Fid>),
}

/// A request of a session.
pub(crate) trait Sent: Request {
    /// Once the answer is known, turns the body into the one for a replay.
    fn amend(_body: &mut [u8], _reply: &Self::Reply) {}
    /// What a change touches of all that this client may cache.
    fn touches(&self, fid: Fid) -> Vec<Touch> {
        vec![Touch::Attr { fid }]
    }
    /// What the answer has that may be cached.
    fn wish(&self) -> Wish<'_> {
        Wish::Nothing
    }
    /// The inode of the name that was looked up or made.
    fn named(_reply: &Self::Reply) -> Option<&Inode> {
        None
    }
    /// It removes its name.
    const REMOVES: bool = false;
    /// It changes names: a client's changes of names are carried out in their order.
    const NAMES: bool = false;
    /// Carried out twice, it would change more, or be refused for its own change.
    const IS_ONCE: bool = Self::NAMES;
    /// It is sent later than its change was made, and only in the session of that (client-U8).
    const IS_LATE: bool = false;
    /// The waiting changes that bear on it.
    fn after(&self, fid: Fid) -> After {
        match Self::NAMES {
            true => After::All,
            false => After::Of(vec![fid]),
        }
    }
}

macro_rules! sent {
    ($($t:path),* $(,)?) => { $(impl Sent for $t {})* };
}
sent!(
    wire::meta::SetAttr,
    wire::meta::ReadLink,
    wire::meta::GetXattr,
    wire::meta::ListXattr,
    wire::meta::Open,
    wire::meta::OpenRead,
    wire::meta::Release,
    wire::meta::ReadInline,
    wire::meta::Grow,
    wire::meta::Switch,
    wire::meta::MoveTail,
    wire::meta::Migrate,
    wire::meta::CutOver,
    wire::meta::DropPending,
    wire::meta::Repoint,
    wire::meta::Settle,
    wire::meta::Truncate,
    wire::meta::SetStripe,
    wire::meta::GetStripe,
    wire::lock::Lock,
    wire::lock::TestLock,
    wire::lock::CancelLock,
    wire::lock::DropOwner,
    wire::lock::AwaitLocks,
    wire::meta::SetFlags,
    wire::object::Write,
    wire::object::Read,
    wire::object::Truncate,
    wire::object::Glimpse,
    wire::object::Grant,
    wire::object::Reserve,
    wire::object::SeekReserved,
    wire::object::Release,
    wire::object::Punch,
    wire::object::Seek,
    wire::object::LockRange,
    wire::object::UnlockRange,
    wire::meta::AllocateInline,
    wire::meta::SeekInline,
    wire::object::List,
    wire::object::ReportMissing,
    wire::shared::Enter,
    wire::shared::Hold,
    wire::shared::Leave,
);

/// Requests about the whole file system, or about a directory with all that lies below it.
macro_rules! about_all {
    ($($t:path),* $(,)?) => { $(impl Sent for $t {
        fn after(&self, _: Fid) -> After {
            After::All
        }
    })* };
}
about_all!(
    wire::check::Check,
    wire::check::Repair,
    wire::meta::PathOf,
    wire::meta::Counts,
    wire::meta::Scan,
    wire::purge::Dying,
    wire::session::Detach,
    wire::session::Flush,
    wire::session::TargetStat,
);

impl Sent for wire::shared::Close {
    fn after(&self, _: Fid) -> After {
        After::Of(self.fids.clone())
    }
}
impl Sent for wire::meta::LeaveDir {
    fn after(&self, _: Fid) -> After {
        After::Nothing
    }
}
impl Sent for wire::meta::WatchDir {
    fn after(&self, _: Fid) -> After {
        After::Nothing
    }
}
impl Sent for LeaseDir {
    fn after(&self, _: Fid) -> After {
        After::Nothing
    }
}
impl Sent for GetAttrs {
    fn after(&self, _: Fid) -> After {
        After::Of(self.fids.clone())
    }
}
impl Sent for SetXattr {
    const IS_ONCE: bool = true;
}
impl Sent for RemoveXattr {
    const IS_ONCE: bool = true;
}
impl Sent for WriteInline {
    const IS_ONCE: bool = true;
    /// A replayed write was carried out before, so it is carried out again even if an abandoned migration shows again after the restart.
    fn amend(body: &mut [u8], _: &WriteInlineReply) {
        let Ok(was) = WriteInline::from_bytes(body) else { return };
        body.copy_from_slice(&WriteInline { in_section: true, ..was }.to_bytes());
    }
}

/// A request that makes a name: it changes the name and its directory, and its answer has the inode.
macro_rules! makes_name {
    ($reply:ident: $of:ty => $inode:expr) => {
        fn touches(&self, fid: Fid) -> Vec<Touch> {
            touches(fid, self.parent, &self.name)
        }
        fn wish(&self) -> Wish<'_> {
            Wish::Name(self.parent, &self.name)
        }
        fn named($reply: &$of) -> Option<&Inode> {
            $inode
        }
        const NAMES: bool = true;
    };
}

/// mds-GR1: an inode that the MDT kept is kept again, for the calls that found it.
impl Sent for Unlink {
    fn amend(body: &mut [u8], reply: &UnlinkReply) {
        let Ok(was) = Unlink::from_bytes(body) else { return };
        body.copy_from_slice(&Unlink { held: was.held || reply.kept, ..was }.to_bytes());
    }
    fn touches(&self, fid: Fid) -> Vec<Touch> {
        touches(fid, self.parent, &self.name)
    }
    const REMOVES: bool = true;
    const NAMES: bool = true;
}
impl Sent for RemoveDir {
    fn amend(body: &mut [u8], reply: &UnlinkReply) {
        let Ok(was) = RemoveDir::from_bytes(body) else { return };
        body.copy_from_slice(&RemoveDir { held: was.held || reply.kept, ..was }.to_bytes());
    }
    fn touches(&self, fid: Fid) -> Vec<Touch> {
        touches(fid, self.parent, &self.name)
    }
    const REMOVES: bool = true;
    const NAMES: bool = true;
}

/// A replayed creation asks for the fid that the first answer gave: `want`, the last field of these bodies.
fn want(body: &mut [u8], fid: Fid) {
    assert!(body.len() >= 8, "the body of a creation ends with the wanted fid");
    let at = body.len() - 8;
    body[at..].copy_from_slice(&fid.0.to_le_bytes());
}
/// The file that an answered creation made.
pub(crate) fn made_by(call: u16, body: &[u8]) -> Option<Fid> {
    let makes = matches!(
        call,
        Create::CALL | CreateWith::CALL | MakeDir::CALL | Symlink::CALL | Tmpfile::CALL | Rename::CALL
    );
    let last = body.last_chunk::<8>().filter(|_| makes)?;
    Some(Fid(u64::from_le_bytes(*last))).filter(|fid| fid.0 != 0)
}
impl Sent for Create {
    fn amend(body: &mut [u8], reply: &CreateReply) {
        if reply.made {
            want(body, reply.open.inode.attr.fid)
        }
    }
    makes_name!(reply: CreateReply => Some(&reply.open.inode).filter(|_| reply.made));
}
impl Sent for CreateWith {
    fn amend(body: &mut [u8], reply: &OpenReply) {
        want(body, reply.inode.attr.fid)
    }
    makes_name!(reply: OpenReply => Some(&reply.inode));
}
impl Sent for Tmpfile {
    fn amend(body: &mut [u8], reply: &OpenReply) {
        want(body, reply.inode.attr.fid)
    }
}
impl Sent for MakeDir {
    fn amend(body: &mut [u8], reply: &Inode) {
        want(body, reply.attr.fid)
    }
    makes_name!(reply: Inode => Some(reply));
}
impl Sent for Rename {
    const NAMES: bool = true;
    fn amend(body: &mut [u8], reply: &RenameReply) {
        want(body, reply.whiteout)
    }
    fn touches(&self, fid: Fid) -> Vec<Touch> {
        let mut all = touches(fid, self.parent, &self.name);
        all.extend(touches(self.new_parent, self.new_parent, &self.new_name));
        all
    }
}
impl Sent for Symlink {
    fn amend(body: &mut [u8], reply: &Inode) {
        want(body, reply.attr.fid)
    }
    makes_name!(reply: Inode => Some(reply));
}
impl Sent for Link {
    const NAMES: bool = true;
    fn touches(&self, fid: Fid) -> Vec<Touch> {
        touches(fid, self.parent, &self.name)
    }
}
impl Sent for Accessed {
    fn after(&self, _: Fid) -> After {
        After::Of(self.reads.iter().map(|read| read.fid).collect())
    }
    fn touches(&self, _: Fid) -> Vec<Touch> {
        self.reads.iter().map(|read| Touch::Attr { fid: read.fid }).collect()
    }
}
impl Sent for Lookup {
    fn after(&self, _: Fid) -> After {
        After::Name(self.parent, h64(&self.name))
    }
    fn wish(&self) -> Wish<'_> {
        // Its answer lies in another directory.
        if *self.name == b".."[..] {
            return Wish::Nothing;
        }
        Wish::Name(self.parent, &self.name)
    }
    fn named(reply: &Inode) -> Option<&Inode> {
        Some(reply)
    }
}
impl Sent for ReadDir {
    /// It may have attributes of directories in which changes wait.
    fn after(&self, _: Fid) -> After {
        After::All
    }
    fn wish(&self) -> Wish<'_> {
        Wish::Names(self.dir)
    }
}
impl Sent for GetAttr {
    fn wish(&self) -> Wish<'_> {
        Wish::Attr(self.fid)
    }
}

/// A change of a name, and of the attributes of its directory and of what the request concerns.
fn touches(fid: Fid, dir: Fid, name: &[u8]) -> Vec<Touch> {
    let mut all = vec![Touch::Attr { fid: dir }, Touch::Name { dir, h64: h64(name) }];
    if fid != dir {
        all.push(Touch::Attr { fid });
    }
    all
}

/// As `amend`, for a request and a reply that are encoded already.
pub(crate) fn amend_sent(call: u16, body: &mut [u8], reply: &[u8]) {
    fn amend<R: Sent>(body: &mut [u8], reply: &[u8]) {
        if let Ok(reply) = R::Reply::from_bytes(reply) {
            R::amend(body, &reply);
        }
    }
    match call {
        WriteInline::CALL => amend::<WriteInline>(body, reply),
        Unlink::CALL => amend::<Unlink>(body, reply),
        RemoveDir::CALL => amend::<RemoveDir>(body, reply),
        Create::CALL => amend::<Create>(body, reply),
        CreateWith::CALL => amend::<CreateWith>(body, reply),
        Tmpfile::CALL => amend::<Tmpfile>(body, reply),
        MakeDir::CALL => amend::<MakeDir>(body, reply),
        Symlink::CALL => amend::<Symlink>(body, reply),
        Rename::CALL => amend::<Rename>(body, reply),
        _ => {}
    }
}

/// client-KY4: puts another capability for the same objects into an encoded request to an OST. False: it has none of these objects.
pub(crate) fn renew_sent(call: u16, body: &mut [u8], cap: &Capability) -> bool {
    let changes_object = matches!(
        call,
        object::Write::CALL
            | object::Truncate::CALL
            | object::Reserve::CALL
            | object::Release::CALL
            | object::Punch::CALL
    );
    // In each of these bodies the capability is the first field, and the object is the next.
    let of = |body: &[u8]| {
        let mut r = Reader::new(body);
        Some((Capability::get(&mut r).ok()?, ObjectId::get(&mut r).ok()?))
    };
    let Some((_, object)) = of(body).filter(|_| changes_object) else { return false };
    if (cap.fid, cap.generation) != (object.fid, object.generation) {
        return false;
    }
    let new = cap.to_bytes();
    body[..new.len()].copy_from_slice(&new);
    assert_eq!(of(body), Some((cap.clone(), object)), "client-KY4: only the capability is another");
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Attr, Generation, Kind, SessionId, Time};
    use wire::meta::Place;

    /// A growth that was given up may stand there again when it is sent again.
    #[test]
    fn a_write_that_was_done_is_kept_as_one_in_a_section() {
        let (fid, now) = (Fid(7), Time::new(1, 0));
        let write =
            |in_section| WriteInline { fid, place: Place::End, in_section, crcs: vec![3], now, held: None };
        let mut body = write(false).to_bytes();
        amend_sent(WriteInline::CALL, &mut body, &[]);
        assert_eq!(body, write(false).to_bytes(), "nothing is known of it");
        let (kind, size) = (Kind::File, 3);
        let attr = Attr {
            fid,
            kind,
            mode: 0o644,
            uid: 0,
            gid: 0,
            nlink: 1,
            rdev: 0,
            size,
            blocks: 1,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        };
        amend_sent(WriteInline::CALL, &mut body, &WriteInlineReply { attr }.to_bytes());
        assert_eq!(body, write(true).to_bytes());
    }

    #[test]
    fn ky4_each_change_of_an_object_gets_another_capability_and_nothing_else_changes() {
        let cap = |generation, n| Capability {
            fid: Fid(7),
            generation: Generation(generation),
            rights: 3,
            lease_epoch: 1,
            lease_counter: n,
            session: SessionId(5),
            expiry_sec: 9,
            mac: object::Mac([n as u8; 16]),
        };
        let id = ObjectId { fid: Fid(7), generation: Generation(2), component: 0, stripe: 3, snapshot: 0 };
        let (offset, len, mtime) = (65536, 4096, Time::new(1, 0));
        let bodies = |cap: Capability| {
            let (object, crcs, granted, lock, keep) = (id, vec![3, 4], true, 0, true);
            [
                (object::Write::CALL, {
                    let cap = cap.clone();
                    object::Write { cap, object, offset, crcs, mtime, granted, lock }.to_bytes()
                }),
                (object::Truncate::CALL, object::Truncate { cap: cap.clone(), object, len }.to_bytes()),
                (object::Reserve::CALL, {
                    let cap = cap.clone();
                    object::Reserve { cap, object, offset, len, end: 9, mtime }.to_bytes()
                }),
                (object::Release::CALL, object::Release { cap: cap.clone(), object, offset, len }.to_bytes()),
                (object::Punch::CALL, object::Punch { cap, object, offset, len, keep, mtime }.to_bytes()),
            ]
        };
        for ((call, mut body), (_, wanted)) in bodies(cap(2, 1)).into_iter().zip(bodies(cap(2, 8))) {
            assert!(!renew_sent(call, &mut body, &cap(3, 8)), "that is for other objects");
            assert!(renew_sent(call, &mut body, &cap(2, 8)), "{call:#x}");
            assert_eq!(body, wanted, "{call:#x}");
        }
        let mut other = object::Grant { bytes: 5 }.to_bytes();
        assert!(!renew_sent(object::Grant::CALL, &mut other, &cap(2, 8)));
    }
}
