//! Grants: pages that are kept for a client, whatever others write meanwhile, until it writes what it still holds.
//!
//! store-Q1: a granted page is a promised one (store-R1 of `space`); together they are what `Space::promised_pages` says.
//! store-Q2: no more is granted than a share of what anybody could take at that time, and less to one session: as a target fills, new grants
//! shrink to nothing, and the last pages are anybody's. Nobody's grant is made smaller but by its holder, by the end of its session, and
//! by not being renewed.
//! store-Q3: they are in memory only. Nothing that was acknowledged rests on one, so a start has none, and clients ask anew.

use std::collections::HashMap;

use types::{PAGE_SIZE, SessionId};

use crate::state::engine::Engine;
use crate::state::space::{Space, reserve_pages};

/// Of what anybody could take if nothing were granted: all grants together, and one session's.
const ALL_SHARE: u64 = 8;
const ONE_SHARE: u64 = 32;
/// A grant that is not renewed for so long goes: its client is dead, or cut off for longer than the MDT lets sessions live.
pub const GRANT_SEC: u64 = 60;

#[derive(Debug, Default)]
pub struct Grants {
    by_session: HashMap<SessionId, Grant>,
    /// Their sum.
    pages: u64,
}

#[derive(Debug)]
struct Grant {
    pages: u64,
    until_sec: u64,
}

/// Pages that came out of a session's grant.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    session: SessionId,
    pages: u64,
}

impl Grants {
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Takes pages out of a session's grant, all or none: it is theirs to say what becomes of them.
    pub fn spend(&mut self, session: SessionId, pages: u64) -> Option<Spent> {
        let grant = self.by_session.get_mut(&session).filter(|g| g.pages >= pages)?;
        grant.pages -= pages;
        self.pages -= pages;
        Some(Spent { session, pages })
    }

    /// Could a session spend so many?
    pub fn has(&self, session: SessionId, pages: u64) -> bool {
        self.by_session.get(&session).is_some_and(|grant| grant.pages >= pages)
    }

    /// They are not needed after all. Of a session that has ended meanwhile they are anybody's.
    pub fn put_back(&mut self, spent: Spent) {
        if let Some(grant) = self.by_session.get_mut(&spent.session) {
            grant.pages += spent.pages;
            self.pages += spent.pages;
        }
    }

    fn end(&mut self, session: SessionId) {
        self.pages -= self.by_session.remove(&session).map_or(0, |g| g.pages);
    }

    fn lapse(&mut self, now_sec: u64) {
        self.by_session.retain(|_, grant| {
            let is_kept = grant.until_sec >= now_sec;
            self.pages -= if is_kept { 0 } else { grant.pages };
            is_kept
        });
    }
}

impl Space {
    /// Makes a session's grant as large as it wishes, or as can be; never smaller than it is if it wishes for more. How large it is.
    fn grant(&mut self, session: SessionId, wish: u64, until_sec: u64) -> u64 {
        let have = self.grants.by_session.get(&session).map_or(0, |g| g.pages);
        // store-Q2
        let open = self.unpromised_pages() + self.grants.pages;
        let open = open.saturating_sub(reserve_pages(self.total_pages()));
        let room = (open / ALL_SHARE).saturating_sub(self.grants.pages);
        let pages = wish.min(have.max((open / ONE_SHARE).min(have + room)));
        self.grants.end(session);
        if pages > 0 {
            self.grants.by_session.insert(session, Grant { pages, until_sec });
            self.grants.pages += pages;
        }
        pages
    }
}

impl Engine {
    pub(crate) fn set_grant(&self, session: SessionId, bytes: u64, now_sec: u64) -> u64 {
        let wish = bytes / PAGE_SIZE as u64;
        let pages = self.space.lock().grant(session, wish, now_sec + GRANT_SEC);
        // Looked at afterwards, so that one that ends at the same time leaves none behind.
        if !self.sessions.lock().contains_key(&session) {
            self.end_grant(session);
            return 0;
        }
        pages * PAGE_SIZE as u64
    }

    pub(crate) fn end_grant(&self, session: SessionId) {
        self.space.lock().grants.end(session);
    }

    pub(crate) fn lapse(&self, now_sec: u64) {
        self.space.lock().grants.lapse(now_sec);
    }

    /// Each session's bytes, in the order of their ids.
    pub(crate) fn grant_list(&self) -> Vec<(SessionId, u64)> {
        let space = self.space.lock();
        let mut all: Vec<_> =
            space.grants.by_session.iter().map(|(id, g)| (*id, g.pages * PAGE_SIZE as u64)).collect();
        all.sort_unstable();
        all
    }
}
