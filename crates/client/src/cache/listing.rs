//! Listings of a directory that have one state, beside other clients.
//!
//! A program lists a directory by several requests, from cookie to cookie. If another client renames a file meanwhile, its new name may lie
//! before the reached place and its old name behind it, so that the listing would have neither. So beside other clients the first
//! request fetches the whole listing, and later ones are answered from it. A lone mount does not need that, since its kernel allows no rename
//! in a directory during a request for entries.
//!
//! client-D1: a kept listing is for the thread that began it only, since that thread's right to read was checked.
//! client-D2: if a directory has more names than one answer, the listing goes on from cookie to cookie behind them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use types::hash::{COOKIE_DOT, COOKIE_DOTDOT};
use types::{Cred, Fault, Fid, Kind};
use wire::meta::ReadDir;

use crate::Fs;
use crate::cache::api::DirItem;
use crate::cache::leased::{Known, Leave};

/// Most entries asked for at once: with attributes and layouts they must fit a reply's 4 MiB.
pub(crate) const ENTRIES_MAX: usize = 4096;

/// Most kept listings. The MDT ends an answer at 1 MiB of records, so they take 20 MiB at most. The oldest is dropped first.
const LISTINGS_MAX: usize = 16;
/// A listing that is not continued for this time is dropped. A later request goes on from its cookie.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// The thread that lists: its number (0: not known) and its user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lister {
    pub pid: u32,
    pub uid: u32,
}

pub(crate) struct Name {
    pub name: Box<[u8]>,
    pub fid: Fid,
    pub kind: Kind,
    pub cookie: u64,
}

/// A directory's first names, in cookie order.
pub(crate) struct Listing {
    pub parent: Fid,
    pub names: Vec<Name>,
    /// The directory has more names.
    pub more: bool,
}

struct Kept {
    of: (Fid, Lister),
    used: Instant,
    listing: Arc<Listing>,
}

#[derive(Default)]
pub(crate) struct Listings(Mutex<VecDeque<Kept>>);

impl Listings {
    fn keep(&self, of: (Fid, Lister), listing: Arc<Listing>) {
        let (mut kept, used) = (self.0.lock(), Instant::now());
        kept.retain(|k| k.of != of && k.used.elapsed() < IDLE_MAX);
        if kept.len() == LISTINGS_MAX {
            kept.pop_front();
        }
        kept.push_back(Kept { of, used, listing });
    }

    fn find(&self, of: (Fid, Lister)) -> Option<Arc<Listing>> {
        let mut kept = self.0.lock();
        kept.retain(|k| k.used.elapsed() < IDLE_MAX);
        let at = kept.iter().position(|k| k.of == of)?;
        let mut found = kept.remove(at)?;
        found.used = Instant::now();
        let listing = found.listing.clone();
        kept.push_back(found);
        Some(listing)
    }
}

impl Fs {
    /// As `readdir_as`, for a thread that lists the directory from its beginning on. Beside other clients the entries have the state of the begin
    /// (client-D2), and no attributes, since those could not be cached.
    pub fn readdir_of(
        &self,
        lister: Lister,
        dir: Fid,
        cookie: u64,
        max: usize,
        plus: bool,
        cred: &Cred,
    ) -> Result<Vec<DirItem>, Fault> {
        let (of, is_own) = ((dir, lister), lister.pid != 0);
        let cached = if self.may_use_cached(cred) { self.id.leased.listing(dir) } else { None };
        let listing = match cookie {
            0 => {
                let listing = match cached {
                    Some(cached) => cached,
                    None => self.fetch_listing(dir, plus, cred)?,
                };
                if is_own {
                    self.listings.keep(of, listing.clone());
                }
                Some(listing)
            }
            _ => self.listings.find(of).filter(|_| is_own).or(cached),
        };
        // Beside other clients without attributes: they could not be cached.
        let plus_here = plus && !self.is_shared();
        let Some(listing) = listing else { return self.readdir_as(dir, cookie, max, plus_here, cred) };
        let rest = listing.names.partition_point(|n| n.cookie <= cookie);
        let names = listing.names[rest..].iter().map(|n| DirItem {
            name: n.name.to_vec(),
            fid: n.fid,
            kind: n.kind,
            cookie: n.cookie,
            attr: None,
            leave: Leave::default(),
        });
        let items: Vec<_> = dots(dir, listing.parent, cookie).chain(names).take(max.max(1)).collect();
        match items.is_empty() && listing.more {
            true => self.readdir_as(dir, cookie, max, plus_here, cred),
            false => Ok(items
                .into_iter()
                .map(|item| if plus { self.with_attr(dir, item) } else { item })
                .collect()),
        }
    }

    /// Attributes come from the cache only: a listing waits for no file.
    fn with_attr(&self, dir: Fid, item: DirItem) -> DirItem {
        match self.id.leased.name(dir, &item.name) {
            Some((Known::There(fid, Some(inode)), leave)) if fid == item.fid => {
                let attr = self.attr_until(&inode, None, Instant::now()).ok();
                DirItem { attr, leave, ..item }
            }
            _ => item,
        }
    }

    /// Asks for all names of a directory with their attributes, so that none of them needs a request.
    pub(crate) fn fetch_all(&self, dir: Fid, cred: &Cred) {
        if let Err(fault) = self.fetch_listing(dir, true, cred) {
            tracing::debug!(%fault, "a directory's names are not cached");
        }
    }

    fn fetch_listing(&self, dir: Fid, plus: bool, cred: &Cred) -> Result<Arc<Listing>, Fault> {
        let (cookie, max) = (COOKIE_DOTDOT, ENTRIES_MAX as u32);
        let req = ReadDir { dir, cookie, max, plus, cred: cred.clone() };
        let answer = self.ask_until(dir, &req, self.deadline())?;
        let (reply, told) = (answer.reply, answer.told);
        let mut inodes = HashMap::new();
        let name = |e: wire::meta::DirEntry| {
            e.inode.map(|inode| inodes.insert(e.fid, inode));
            Name { name: e.name.0.into_boxed_slice(), fid: e.fid, kind: e.kind, cookie: e.cookie }
        };
        let names = reply.entries.into_iter().map(name).collect();
        let listing = Arc::new(Listing { parent: reply.parent, names, more: reply.more });
        self.id.leased.keep_listing(&told, dir, &listing, &inodes);
        Ok(listing)
    }
}

/// `.` and `..`, as far as they lie after `cookie`.
pub(crate) fn dots(dir: Fid, parent: Fid, cookie: u64) -> impl Iterator<Item = DirItem> {
    [(&b"."[..], dir, COOKIE_DOT), (b"..", parent, COOKIE_DOTDOT)]
        .into_iter()
        .filter(move |(_, _, c)| *c > cookie)
        .map(|(name, fid, cookie)| DirItem {
            name: name.to_vec(),
            fid,
            kind: Kind::Dir,
            cookie,
            attr: None,
            leave: Leave::default(),
        })
}
