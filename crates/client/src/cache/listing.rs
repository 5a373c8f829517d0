//! Listings of one directory as of one moment, while there are other clients.
//!
//! A program lists a directory by several requests, from cookie to cookie. A name that another client gives a file meanwhile may lie behind
//! the place that is reached, and its old name before it: the listing would have neither. So a listing that begins while this client shares
//! is fetched whole, in one request, and goes on from what was fetched. A lone mount does not need this: its kernel locks a
//! directory against renames while a program asks for the next entries.
//!
//! client-D1: a kept listing serves only the thread that began it, because the right to read was judged for that thread.
//! client-D2: a directory of more names than one answer has goes on from cookie to cookie after these.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use types::hash::{COOKIE_DOT, COOKIE_DOTDOT};
use types::{Cred, Fault, Fid, Kind};
use wire::meta::ReadDir;

use crate::Fs;
use crate::cache::api::DirItem;

/// Most entries asked for at once: with attributes and layouts they must fit a reply's 4 MiB.
pub(crate) const ENTRIES_MAX: usize = 4096;

/// Listings that are kept: the MDT ends an answer at 1 MiB of records, so they take 20 MiB at most. The oldest goes first.
const LISTINGS_MAX: usize = 16;
/// A kept listing that is idle for so long is dropped; a later request continues from its cookie.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// The thread that lists: its number, 0 if that is not known, and its user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lister {
    pub pid: u32,
    pub uid: u32,
}

struct Name {
    name: Box<[u8]>,
    fid: Fid,
    kind: Kind,
    cookie: u64,
}

/// A directory's first names, in cookie order.
struct Listing {
    parent: Fid,
    names: Vec<Name>,
    /// There were more.
    more: bool,
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
    /// As `readdir_as`, for a thread that lists the directory from its beginning on. Among other clients, entries are as they were when it
    /// began (client-D2), and come without attributes, which nobody may keep then.
    pub fn readdir_of(
        &self,
        lister: Lister,
        dir: Fid,
        cookie: u64,
        max: usize,
        plus: bool,
        cred: &Cred,
    ) -> Result<Vec<DirItem>, Fault> {
        let of = (dir, lister);
        let listing = match cookie {
            _ if !self.is_shared() || lister.pid == 0 => None,
            0 => {
                let listing = Arc::new(self.fetch_listing(dir, cred)?);
                self.listings.keep(of, listing.clone());
                Some(listing)
            }
            _ => self.listings.find(of),
        };
        let Some(listing) = listing else { return self.readdir_as(dir, cookie, max, plus, cred) };
        let rest = listing.names.partition_point(|n| n.cookie <= cookie);
        let names = listing.names[rest..].iter().map(|n| DirItem {
            name: n.name.to_vec(),
            fid: n.fid,
            kind: n.kind,
            cookie: n.cookie,
            attr: None,
        });
        let items: Vec<_> = dots(dir, listing.parent, cookie).chain(names).take(max.max(1)).collect();
        match items.is_empty() && listing.more {
            true => self.readdir_as(dir, cookie, max, plus, cred),
            false => Ok(items),
        }
    }

    fn fetch_listing(&self, dir: Fid, cred: &Cred) -> Result<Listing, Fault> {
        let (cookie, max, plus) = (COOKIE_DOTDOT, ENTRIES_MAX as u32, false);
        let req = ReadDir { dir, cookie, max, plus, cred: cred.clone() };
        let reply = self.ask_until(dir, &req, self.deadline())?.reply;
        let name = |e: wire::meta::DirEntry| Name {
            name: e.name.0.into_boxed_slice(),
            fid: e.fid,
            kind: e.kind,
            cookie: e.cookie,
        };
        let names = reply.entries.into_iter().map(name).collect();
        Ok(Listing { parent: reply.parent, names, more: reply.more })
    }
}

/// `.` and `..`, as far as they lie after `cookie`.
pub(crate) fn dots(dir: Fid, parent: Fid, cookie: u64) -> impl Iterator<Item = DirItem> {
    [(&b"."[..], dir, COOKIE_DOT), (b"..", parent, COOKIE_DOTDOT)]
        .into_iter()
        .filter(move |(_, _, c)| *c > cookie)
        .map(|(name, fid, cookie)| DirItem { name: name.to_vec(), fid, kind: Kind::Dir, cookie, attr: None })
}
