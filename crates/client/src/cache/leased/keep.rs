//! Answers that are cached.

use super::*;

impl Leased {
    /// The answer to a lookup has come; `None`: there is no such name.
    pub fn keep(&self, told: &Told, dir: Fid, name: &[u8], inode: Option<&Inode>) -> Leave {
        let mut shard = self.shard(dir).dirs.lock();
        let found = inode.map(|inode| (inode.attr.fid, Some(inode)));
        let leave = self.keep_in(&mut shard, told, (dir, name), found);
        drop(shard);
        self.make_room(dir);
        leave
    }

    pub(super) fn keep_in(
        &self,
        shard: &mut HashMap<Fid, Dir>,
        told: &Told,
        (dir, name): (Fid, &[u8]),
        found: Option<(Fid, Option<&Inode>)>,
    ) -> Leave {
        let Told { since, flags, me } = *told;
        let h64 = h64(name);
        let fid = found.map(|(fid, _)| fid);
        let has_name = flags & Flags::NAMES_LEASED != 0
            && self.holds(since, self.dirs.get(dir.0))
            && self.holds(since, self.names.get(name_hash(dir, h64)));
        let mut leave = Leave { since, dir, h64, fid: fid.unwrap_or_default(), has_name, ..Leave::default() };
        if !has_name || self.left_ms() == 0 {
            return Leave { has_name: false, ..leave };
        }
        let inode = found.and_then(|(_, inode)| inode).filter(|inode| {
            let is_leased = flags & Flags::ATTRS_LEASED != 0 && is_cacheable(inode, me);
            is_leased && self.holds(since, self.attrs.get(inode.attr.fid.0))
        });
        leave.has_attr = inode.is_some();
        let of = self.dir_in(shard, dir);
        of.is_held = true;
        let inode = inode.map(without_layout);
        let before = of.names.insert(h64, Name { name: name.into(), fid, inode });
        let replaced = before.as_ref().and_then(|name| name.fid).filter(|old| Some(*old) != fid);
        if before.is_none() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(old) = replaced {
            self.place_of(old).lock().remove(&old);
        }
        if let Some(fid) = fid {
            self.place_of(fid).lock().insert(fid, Place { dir, h64 });
        }
        leave
    }

    /// The answer to a `GetAttr` has come.
    pub fn keep_attr(&self, told: &Told, inode: &Inode) -> Leave {
        let Told { since, flags, me } = *told;
        let fid = inode.attr.fid;
        let none = Leave::default();
        if flags & Flags::ATTRS_LEASED == 0 || !is_cacheable(inode, me) {
            return none;
        }
        if fid == Fid::ROOT {
            // It lies in no directory, so its own lease counts.
            let mut shard = self.shard(fid).dirs.lock();
            let found = Some((fid, Some(inode)));
            let told = Told { flags: flags | Flags::NAMES_LEASED, ..*told };
            return self.keep_in(&mut shard, &told, (fid, NO_NAME), found);
        }
        let Some(Place { dir, h64 }) = self.place_of(fid).lock().get(&fid).copied() else { return none };
        let mut shard = self.shard(dir).dirs.lock();
        let of = shard.get_mut(&dir).filter(|of| of.is_held);
        let Some(name) = of.and_then(|of| of.names.get_mut(&h64)).filter(|name| name.fid == Some(fid)) else {
            return none;
        };
        let is_so = self.holds(since, self.dirs.get(dir.0)) && self.holds(since, self.attrs.get(fid.0));
        if !is_so || self.left_ms() == 0 {
            return none;
        }
        name.inode = Some(without_layout(inode));
        Leave { since, dir, h64, fid, has_attr: true, ..Leave::default() }
    }

    /// The answer to a request for all names of a directory has come.
    pub fn keep_listing(&self, told: &Told, dir: Fid, listing: &Arc<Listing>, inodes: &HashMap<Fid, Inode>) {
        let Told { since, flags, .. } = *told;
        let mut shard = self.shard(dir).dirs.lock();
        let is_so = flags & Flags::NAMES_LEASED != 0 && self.holds(since, self.dirs.get(dir.0));
        if !is_so {
            return;
        }
        let mut is_complete = !listing.more;
        for name in &listing.names {
            let found = (name.fid, inodes.get(&name.fid));
            let kept = self.keep_in(&mut shard, told, (dir, &name.name), Some(found));
            // Changed here meanwhile.
            is_complete &= kept.has_name;
        }
        let of = self.dir_in(&mut shard, dir);
        of.is_held = true;
        // Names that were removed here meanwhile are in the listing; names that were made here are in neither.
        is_complete &= self.holds(since, self.listings.get(dir.0));
        if is_complete {
            (of.is_complete, of.listing) = (true, Some(listing.clone()));
        }
        drop(shard);
        self.make_room(dir);
    }

    /// Drops whole directories, `last` as the last one, until the names are within their bound.
    pub(super) fn make_room(&self, last: Fid) {
        let is_over = || self.count.load(Ordering::Relaxed) > NAMES_MAX;
        if !is_over() {
            return;
        }
        for shard in &self.shards {
            let dirs: Vec<Fid> = shard.dirs.lock().keys().copied().filter(|dir| *dir != last).collect();
            dirs.into_iter().take_while(|_| is_over()).for_each(|dir| self.drop_for_room(dir));
        }
        if is_over() {
            self.drop_for_room(last);
        }
    }
}

/// Attributes of inodes with several links change by other names too. Those of a file that a dead session left must be recovered first.
/// Size and times of a file that is written may be known to another client only (client-CL5).
fn is_cacheable(inode: &Inode, me: SessionId) -> bool {
    let is_one = inode.attr.kind == Kind::Dir || inode.attr.nlink == 1;
    let is_known = match inode.state {
        FileState::Settled => true,
        FileState::Writing(session) => session == me,
        FileState::Shared { .. } | FileState::Truncating { .. } => false,
    };
    is_one && is_known
}

fn without_layout(inode: &Inode) -> Inode {
    Inode { layout: None, ..inode.clone() }
}
