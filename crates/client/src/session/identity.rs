//! State that all parts of a client share.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{OnceLock, Weak};

use net::Bell;
use parking_lot::{Condvar, Mutex};
use types::{FsId, SessionId, Uuid};
use wire::object::Mac;
use wire::session::Claims;

use crate::Fs;
use crate::cache::leased::Leased;
use crate::session::doubts::Doubts;
use crate::session::ear::Ear;
use crate::session::gone::Gone;
use crate::session::jobs::Jobs;
use crate::session::locks::Locks;
use crate::session::losses::Losses;
use crate::session::root::Root;
use crate::session::sharing::Sharing;
use crate::session::unshipped::Unshipped;

/// State that all links of a client share.
pub(crate) struct Identity {
    pub fs: FsId,
    pub fs_uuid: Uuid,
    pub client: Uuid,
    pub name: String,
    pub observer: bool,
    pub claims: Claims,
    pub wants_own_locks: bool,
    /// The MDT leaves locks to this client's kernel.
    pub own_locks: AtomicBool,
    /// From the MDT's answer to attach: see `AttachReply::judges`, `knows_groups`.
    pub judges: AtomicBool,
    pub knows_groups: AtomicBool,
    pub root: Root,
    pub retain_bytes_max: usize,
    /// The session that the MDT gave; 0 before, and for observers.
    pub session: AtomicU64,
    /// That session, and what OSTs ask for when it attaches there.
    pub ticket: Mutex<(SessionId, Mac)>,
    pub losses: Losses,
    pub doubts: Doubts,
    pub locks: Locks,
    pub gone: Gone,
    pub sharing: Sharing,
    pub leased: Leased,
    pub unshipped: Unshipped,
    pub ear: Ear,
    pub jobs: Jobs,
    /// Answers of the MDT to keep-alives.
    pub alive_answers: AtomicU64,
    /// Rings for a keep-alive at once.
    pub alive: Bell,
    /// The same for OSTs.
    pub alive_osts: Bell,
    /// Fetches a newer cluster map, in the background.
    pub map_wanted: Mutex<Option<Box<dyn Fn() + Send + Sync>>>,
    /// The MDT that gives replay turns; 0: not known.
    pub mdt: AtomicU32,
    /// The client. A link to an OST asks the MDT through it for capabilities (client-KY4).
    pub owner: OnceLock<Weak<Fs>>,
    pub aborted: AtomicBool,
    /// Threads wait here between two tries, so that `abort` ends the wait.
    pub sleepers: (Mutex<()>, Condvar),
}

impl Identity {
    /// A target may have moved: a newer map is fetched.
    pub fn want_map(&self) {
        self.map_wanted.lock().iter().for_each(|want| want());
    }
}
