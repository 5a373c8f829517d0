//! Several sessions at once: what the rules are told of the others, and what state each session is shown.
//!
//! meta-H1: the size in a record of state `Shared` is what its writers said, as long as the `era` lasts in which it was said. After it
//! only `proven` bytes are sure; who finds the file so asks its objects, as with any file that a dead session left.
//! meta-H2: an inode that a session has open keeps its records, whoever takes its last name.

use types::*;
use wire::meta::{FileState, Inode};

use crate::records::InodeRecord;
use crate::{Ctx, Txn};

/// What an MDT knows of its sessions beside the records. Without it (`Ctx::sharing` is `None`) there is one session.
pub trait Sharing {
    /// Do several sessions share the file system now?
    fn is_shared(&self) -> bool;
    fn is_alive(&self, session: SessionId) -> bool;
    /// Another session than the asking one that has the file open.
    fn opened_elsewhere(&self, fid: Fid) -> Option<SessionId>;
    /// Has another session it open for writing?
    fn written_elsewhere(&self, fid: Fid) -> bool;
    /// Changes whenever hints of before cannot be trusted any more: a session was evicted, or the MDT restarted.
    fn era(&self) -> u64;
    /// The lease counter that all sessions have in common, so that they do not fence each other; `None`: draw one, and tell it.
    fn lease(&self) -> Option<u32>;
    fn set_lease(&self, counter: u32);
    /// The newest lease counter that was given to anybody: no object has seen a higher version.
    fn newest_lease(&self) -> u32;
    /// Do removed inodes stay as orphans of the session that removes them?
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
    /// A replay brings back what its client knows; a late keep would leave an orphan that no client releases.
    pub fn keeps_removed(&self) -> bool {
        !self.replay && self.sharing.is_some_and(|s| s.keeps_removed())
    }
    fn is_alive(&self, session: SessionId) -> bool {
        self.sharing.is_some_and(|s| s.is_alive(session))
    }
    fn is_era(&self, era: u64) -> bool {
        // 0: said before the first era began.
        era != 0 && self.sharing.is_some_and(|s| s.era() == era)
    }
}

/// The state of a file that the asking session begins, or goes on, to write.
pub fn writing(ctx: &Ctx<'_>, inode: &InodeRecord) -> FileState {
    match ctx.sharing {
        Some(sharing) if sharing.is_shared() => {
            FileState::Shared { era: sharing.era(), proven: proven(inode) }
        }
        _ => FileState::Writing(ctx.session),
    }
}

/// How much of the recorded size is flushed.
pub fn proven(inode: &InodeRecord) -> u64 {
    match inode.state {
        FileState::Shared { proven, .. } => proven.min(inode.attr.size),
        // What a lone session told was flushed; it told all before others came (a session that died is found by `is_left_over`).
        FileState::Settled | FileState::Writing(_) => inode.attr.size,
        FileState::Truncating { size, .. } => size,
    }
}

/// Did a session that is gone leave it unsettled? Then the objects must be asked.
pub fn is_left_over(ctx: &Ctx<'_>, inode: &InodeRecord) -> bool {
    match inode.state {
        FileState::Settled => false,
        FileState::Writing(s) => s != ctx.session && !(ctx.is_shared() && ctx.is_alive(s)),
        FileState::Shared { era, .. } => !ctx.is_era(era),
        FileState::Truncating { .. } => true,
    }
}

/// For whom an inode is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum For {
    /// Who asks for attributes only.
    Looking,
    /// Who is about to use the content: a shrink that is under way must be finished first.
    Using,
}

impl InodeRecord {
    /// As the asking session is to see it (meta-H1): others that live are trusted, what dead ones left is `Writing(0)`.
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

/// The lease of who only reads. Reading leaves no version at objects, so who is alone needs none of its own: the newest that was given
/// is as high as any that an object has seen. Those who share have one in common; `None` if none was drawn yet.
pub fn lease_to_read(ctx: &Ctx<'_>) -> Option<u32> {
    let sharing = ctx.sharing?;
    if sharing.is_shared() { sharing.lease() } else { Some(sharing.newest_lease()) }
}

/// The number of a lease for content: one for all who share, unless a dead session is to be fenced.
pub fn lease(ctx: &Ctx<'_>, txn: &mut dyn Txn, is_left_over: bool) -> u32 {
    let Some(sharing) = ctx.sharing.filter(|s| s.is_shared()) else { return txn.next_lease() };
    if let Some(counter) = sharing.lease().filter(|_| !is_left_over) {
        return counter;
    }
    let counter = txn.next_lease();
    sharing.set_lease(counter);
    counter
}
