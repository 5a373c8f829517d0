//! Readdir: entries in cookie order, `.` and `..` in front.
//!
//! A listing promises names. Attributes come with them as far as they are at hand. A caller that needs those of one file asks
//! for that file, waits for its servers, and gets their error.

use std::time::{Duration, Instant};

use types::hash::COOKIE_DOTDOT;
use types::{Cred, Fault, Fid};
use wire::meta::{DirEntry, ReadDir};

use crate::Fs;
use crate::cache::api::DirItem;
use crate::cache::leased::Leave;
use crate::cache::listing::{ENTRIES_MAX, dots};

/// Longest that one call waits for attributes, all its entries together. Some ten files that a dead client left unsettled are
/// recovered in that time; with thousands of them on an OST that is down, `ls` still shows names.
const ATTRIBUTES_WAIT_MAX: Duration = Duration::from_secs(1);

impl Fs {
    /// Up to `max` entries after `cookie` (0 = from the start), with attributes if `plus`. Empty: the end. For root.
    pub fn readdir(&self, dir: Fid, cookie: u64, max: usize, plus: bool) -> Result<Vec<DirItem>, Fault> {
        self.readdir_as(dir, cookie, max, plus, &Cred::root())
    }

    /// As `readdir`, on behalf of `cred`.
    pub fn readdir_as(
        &self,
        dir: Fid,
        cookie: u64,
        max: usize,
        plus: bool,
        cred: &Cred,
    ) -> Result<Vec<DirItem>, Fault> {
        let max = max.clamp(1, ENTRIES_MAX);
        let deadline = self.deadline();
        let mut until = deadline.min(Instant::now() + ATTRIBUTES_WAIT_MAX);
        let mut items = Vec::with_capacity(max.min(256));
        let mut after = cookie.max(COOKIE_DOTDOT);
        loop {
            let req = ReadDir { dir, cookie: after, max: max as u32, plus, cred: cred.clone() };
            let reply = self.ask_until(dir, &req, deadline)?.reply;
            if items.is_empty() {
                items.extend(dots(dir, reply.parent, cookie));
            }
            let Some(last) = reply.entries.last().map(|e| e.cookie) else { break };
            for entry in reply.entries {
                items.push(self.item(entry, &mut until));
            }
            // A page that was cut short by its size and not by `max` is as good as a full one.
            if !items.is_empty() || !reply.more {
                break;
            }
            after = last;
        }
        items.truncate(max);
        Ok(items)
    }

    /// After the first file whose attributes cannot be had, nothing more is waited for in this call: the same server is asked
    /// for the next one.
    fn item(&self, entry: DirEntry, until: &mut Instant) -> DirItem {
        let DirEntry { name, fid, kind, cookie, inode } = entry;
        let attr = inode.and_then(|inode| {
            let known = self.attr_until(&inode, None, *until);
            known.inspect_err(|_| *until = Instant::now()).ok()
        });
        DirItem { name: name.0, fid, kind, cookie, attr, leave: Leave::default() }
    }
}
