//! Grants: pages that are kept for a client's write-back cache, whatever other clients write meanwhile.
//!
//! store-Q1: a granted page is a promised one (store-R1 of `space`); `Space::promised_pages` counts the granted pages too.
//! store-Q2: all grants together are at most a share of the pages open to every writer at that time, and one session's a smaller share.
//! As a target fills, new grants shrink to nothing, and the last pages are open to every writer. A grant shrinks only when its holder
//! spends it or asks for less, when its session ends, or when it is not renewed.
//! store-Q3: grants are in memory only. No acknowledged change depends on one, so a start has none, and clients ask anew.

use std::collections::HashMap;

use types::{PAGE_SIZE, SessionId};

use crate::state::engine::Engine;
use crate::state::space::{Space, reserve_pages};

/// Shares (1/n) of the pages that would be open to every writer without grants: all grants together, and one session's.
const ALL_SHARE: u64 = 8;
const ONE_SHARE: u64 = 32;
/// A grant that is not renewed for so long lapses: its client is dead, or disconnected for longer than the MDT keeps sessions.
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

/// Pages that were taken out of a session's grant.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    session: SessionId,
    pages: u64,
}

impl Grants {
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Takes pages out of a session's grant, all or none. The caller decides what becomes of them.
    pub fn spend(&mut self, session: SessionId, pages: u64) -> Option<Spent> {
        let grant = self.by_session.get_mut(&session).filter(|g| g.pages >= pages)?;
        grant.pages -= pages;
        assert!(self.pages >= pages, "the sum of the grants has each grant");
        self.pages -= pages;
        self.check_sum();
        Some(Spent { session, pages })
    }

    /// Whether a session's grant has so many pages.
    pub fn has(&self, session: SessionId, pages: u64) -> bool {
        self.by_session.get(&session).is_some_and(|grant| grant.pages >= pages)
    }

    /// Returns spent pages that were not needed. If the session has ended meanwhile, they become open to every writer.
    pub fn put_back(&mut self, spent: Spent) {
        if let Some(grant) = self.by_session.get_mut(&spent.session) {
            grant.pages += spent.pages;
            self.pages += spent.pages;
        }
        self.check_sum();
    }

    fn end(&mut self, session: SessionId) {
        self.pages -= self.by_session.remove(&session).map_or(0, |g| g.pages);
        self.check_sum();
    }

    fn lapse(&mut self, now_sec: u64) {
        self.by_session.retain(|_, grant| {
            let is_kept = grant.until_sec >= now_sec;
            self.pages -= if is_kept { 0 } else { grant.pages };
            is_kept
        });
        self.check_sum();
    }

    fn check_sum(&self) {
        debug_assert_eq!(
            self.pages,
            self.by_session.values().map(|g| g.pages).sum(),
            "the sum of the grants"
        );
    }
}

impl Space {
    /// Sets a session's grant to `wish` pages, or to as many as store-Q2 allows; returns its size. A wish for more never shrinks it.
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
        self.grants.check_sum();
        assert!(pages >= have.min(wish), "store-Q2: a wish for more never shrinks a grant");
        let is_covered = pages <= have || self.promised_pages() <= self.free_pages();
        assert!(is_covered, "store-Q1: a grant that grows is covered by free pages");
        pages
    }
}

impl Engine {
    pub(crate) fn set_grant(&self, session: SessionId, bytes: u64, now_sec: u64) -> u64 {
        let wish = bytes / PAGE_SIZE as u64;
        let pages = self.space.lock().grant(session, wish, now_sec + GRANT_SEC);
        // Checked afterwards, so that a session that ends concurrently leaves no grant behind.
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
