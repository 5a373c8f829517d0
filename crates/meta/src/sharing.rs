//! Several sessions at once: the rules' view of other sessions, and the state that each session is shown.
//!
//! meta-H1: the size in a record of state `Shared` is the one that its writers reported, while the `era` of the report lasts. After it
//! only `proven` bytes are certain, and a session that finds the file reads its objects, as with any file of a dead session.
//! meta-H2: an inode that a session has open keeps its records when its last name is removed.

use types::*;
use wire::meta::{FileState, Inode};

use crate::records::InodeRecord;
use crate::{Ctx, Txn};

/// The MDT's knowledge of its sessions, beside the records. If `Ctx::sharing` is `None`, there is one session.
pub trait Sharing {
    /// True if several sessions share the file system now.
    fn is_shared(&self) -> bool;
    fn is_alive(&self, session: SessionId) -> bool;
    /// True if the asking session has the file open, as far as the MDT was told.
    fn is_open_here(&self, fid: Fid) -> bool;
    /// A session other than the asking one that has the file open.
    fn opened_elsewhere(&self, fid: Fid) -> Option<SessionId>;
    /// True if another session has it open for writing.
    fn written_elsewhere(&self, fid: Fid) -> bool;
    /// True if another session holds a lease of its content.
    fn leased_elsewhere(&self, fid: Fid) -> bool;
    /// The asking session holds the exclusive lease of the file's content with this token.
    fn holds_alone(&self, fid: Fid, token: u64) -> bool;
    /// Changes when earlier hints are no longer reliable: a session was evicted, or the MDT restarted.
    fn era(&self) -> u64;
    /// The common lease counter of all sessions, so that they do not fence each other; `None`: the caller assigns one by `set_lease`.
    fn lease(&self) -> Option<u32>;
    fn set_lease(&self, counter: u32);
    /// The newest lease counter that any session got: no object has seen a higher version.
    fn newest_lease(&self) -> u32;
    /// True if removed inodes stay as orphans of the session that removes them.
    fn keeps_removed(&self) -> bool;
}

impl Ctx<'_> {
    pub fn is_shared(&self) -> bool {
        self.sharing.is_some_and(|s| s.is_shared())
    }
    /// Another session that has the file open (meta-H2).
    pub fn opened_elsewhere(&self, fid: Fid) -> Option<SessionId> {
        self.sharing.filter(|s| s.is_shared())?.opened_elsewhere(fid)
    }
    /// Another session may cache its content. It holds the lease since before this rule runs, or reads the content after it.
    pub fn leased_elsewhere(&self, fid: Fid) -> bool {
        self.sharing.filter(|s| s.is_shared()).is_some_and(|s| s.leased_elsewhere(fid))
    }
    /// A replay restores state that its client knows; keeping a removed inode then would leave an orphan that no client releases.
    pub fn keeps_removed(&self) -> bool {
        !self.replay && self.sharing.is_some_and(|s| s.keeps_removed())
    }
    fn is_alive(&self, session: SessionId) -> bool {
        self.sharing.is_some_and(|s| s.is_alive(session))
    }
    fn is_era(&self, era: u64) -> bool {
        // 0: reported before the first era began.
        era != 0 && self.sharing.is_some_and(|s| s.era() == era)
    }
}

/// The state of a file that the asking session writes.
pub fn writing(ctx: &Ctx<'_>, inode: &InodeRecord) -> FileState {
    match ctx.sharing {
        Some(sharing) if sharing.is_shared() => {
            FileState::Shared { era: sharing.era(), proven: proven(inode) }
        }
        _ => FileState::Writing(ctx.session),
    }
}

/// How many bytes of the recorded size are flushed.
pub fn proven(inode: &InodeRecord) -> u64 {
    match inode.state {
        FileState::Shared { proven, .. } => proven.min(inode.attr.size),
        // The updates of a lone session were flushed, and it sent all of them before other sessions came. (`is_left_over` finds a dead
        // session.)
        FileState::Settled | FileState::Writing(_) => inode.attr.size,
        FileState::Truncating { size, .. } => size,
    }
}

/// True if a session that is gone left the file unsettled, so that the objects must be read.
pub fn is_left_over(ctx: &Ctx<'_>, inode: &InodeRecord) -> bool {
    match inode.state {
        FileState::Settled => false,
        FileState::Writing(s) => s != ctx.session && !(ctx.is_shared() && ctx.is_alive(s)),
        FileState::Shared { era, .. } => !ctx.is_era(era),
        FileState::Truncating { .. } => true,
    }
}

/// The purpose for which an inode is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum For {
    /// Attributes only.
    Looking,
    /// Use of the content: a shrink in progress must be completed first.
    Using,
}

impl InodeRecord {
    /// The inode as the asking session sees it (meta-H1). Live sessions are trusted; files of dead ones are `Writing(0)`.
    pub fn shown(&self, ctx: &Ctx<'_>, whom: For) -> Inode {
        let mut inode = self.to_wire();
        let is_shared = ctx.is_shared();
        let shared = FileState::Shared { era: 0, proven: 0 };
        inode.state = match self.state {
            FileState::Writing(s) if s != ctx.session && is_shared && ctx.is_alive(s) => shared,
            FileState::Shared { era, .. } if ctx.is_era(era) && is_shared => shared,
            FileState::Shared { era, .. } if ctx.is_era(era) => FileState::Writing(ctx.session),
            FileState::Shared { proven, .. } => {
                inode.attr.size = proven;
                FileState::Writing(SessionId(0))
            }
            FileState::Truncating { session, .. }
                if whom == For::Looking && is_shared && ctx.is_alive(session) =>
            {
                shared
            }
            state => state,
        };
        inode
    }
}

/// The lease counter for reading. A read leaves no version at objects, so a lone session needs no counter of its own: the newest one is
/// as high as any that an object has seen. Sharing sessions use the common one; `None` if it is not assigned yet.
pub fn lease_to_read(ctx: &Ctx<'_>) -> Option<u32> {
    let sharing = ctx.sharing?;
    if sharing.is_shared() { sharing.lease() } else { Some(sharing.newest_lease()) }
}

/// The lease counter for content: a common one for all sharing sessions, unless a dead session must be fenced.
pub fn lease(ctx: &Ctx<'_>, txn: &mut dyn Txn, is_left_over: bool) -> u32 {
    let Some(sharing) = ctx.sharing.filter(|s| s.is_shared()) else { return txn.next_lease() };
    if let Some(counter) = sharing.lease().filter(|_| !is_left_over) {
        return counter;
    }
    let counter = txn.next_lease();
    sharing.set_lease(counter);
    counter
}
