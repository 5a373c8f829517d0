//! Changes by this client: what is read meanwhile is not cached, and what they touch is dropped.

use super::*;

/// A change by this client.
struct Change {
    since: Since,
    touches: Vec<Touch>,
}

/// A change by this client that is under way. Dropping it counts as a change whose outcome is not known.
pub(crate) struct OwnChange<'a> {
    leased: &'a Leased,
    change: Option<Change>,
}

impl OwnChange<'_> {
    /// It was answered with these flags.
    pub fn end(mut self, (flags, me): (u16, SessionId), fate: Fate<'_>) -> Leave {
        let change = self.change.take();
        change.map_or(Leave::default(), |change| self.leased.end(&change, (flags, me), fate))
    }
    /// It was refused, and is not carried out later.
    pub fn did_nothing(mut self) {
        self.change = None;
    }
}

impl Drop for OwnChange<'_> {
    fn drop(&mut self) {
        if let Some(change) = self.change.take() {
            self.leased.end(&change, (0, SessionId(0)), Fate::Other);
        }
    }
}

/// The effect of a change on the name that it is about.
#[derive(Clone, Copy)]
pub(crate) enum Fate<'a> {
    /// It has this new inode.
    Made(&'a [u8], &'a Inode),
    Removed,
    Other,
    Nothing,
}

impl Leased {
    /// A change by this client begins: what is read meanwhile is not cached.
    pub fn change(&self, touches: Vec<Touch>) -> OwnChange<'_> {
        self.stamp(&touches);
        OwnChange { leased: self, change: Some(Change { since: self.since(), touches }) }
    }

    fn stamp(&self, touches: &[Touch]) -> u64 {
        let stamp = self.clock.fetch_add(1, Ordering::SeqCst) + 1;
        for touch in touches {
            match *touch {
                Touch::Name { dir, h64 } => {
                    self.names.set(name_hash(dir, h64), stamp);
                    self.listings.set(dir.0, stamp);
                }
                Touch::Attr { fid } => self.attrs.set(fid.0, stamp),
            }
        }
        stamp
    }

    /// It has ended. `flags`: those of the answer.
    fn end(&self, change: &Change, (flags, me): (u16, SessionId), fate: Fate<'_>) -> Leave {
        if matches!(fate, Fate::Nothing) {
            return Leave::default();
        }
        // Another change by this client overlapped this one. Only the MDT knows their order.
        let at = change.since.at;
        let is_overtaken = |touch: &Touch| match *touch {
            Touch::Name { dir, h64 } => self.names.get(name_hash(dir, h64)) > at,
            Touch::Attr { .. } => false,
        };
        let was_changed = matches!(fate, Fate::Made(_, inode) if self.attrs.get(inode.attr.fid.0) > at);
        let fate = if was_changed || change.touches.iter().any(is_overtaken) { Fate::Other } else { fate };
        // The answer has the state after this client's own change, whose stamp is no reason against it.
        let since = Since { life: change.since.life, at: self.stamp(&change.touches) };
        let told = Told { since, flags, me };
        let (mut leave, mut moved) = (Leave::default(), Vec::new());
        for touch in &change.touches {
            match *touch {
                Touch::Attr { fid } => self.drop_attr(fid),
                Touch::Name { dir, h64 } => {
                    let mut shard = self.shard(dir).dirs.lock();
                    // Changes of others since the request left count.
                    let is_newest = self.holds(change.since, self.dirs.get(dir.0));
                    if let Some(of) = shard.get_mut(&dir) {
                        of.listing = None;
                        moved.extend(self.drop_name(of, h64));
                        if !is_newest || matches!(fate, Fate::Other) {
                            of.lose_names();
                        }
                    }
                    if let Fate::Made(name, inode) = fate {
                        let found = Some((inode.attr.fid, Some(inode)));
                        if is_newest {
                            leave = self.keep_in(&mut shard, &told, (dir, name), found);
                        }
                        if !leave.has_name
                            && let Some(of) = shard.get_mut(&dir)
                        {
                            of.lose_names();
                        }
                    }
                }
            }
        }
        match fate {
            // Under its new name the lease of another directory counts.
            Fate::Other => self.tell_kernel(&moved),
            Fate::Made(..) => self.make_room(leave.dir),
            // It may have been a directory.
            Fate::Removed => moved.iter().for_each(|fid| self.drop_dir(*fid)),
            Fate::Nothing => {}
        }
        leave
    }

    /// A change of a name that this client has carried out before the MDT (`session::ship`): as `change` and `end`. The directory's attributes
    /// stay cached, with new times.
    pub fn changed_here(&self, (dir, name): (Fid, &[u8]), fate: Fate<'_>, now: Time, me: SessionId) {
        let flags = Flags::NAMES_LEASED | Flags::ATTRS_LEASED;
        self.change(vec![Touch::Name { dir, h64: h64(name) }]).end((flags, me), fate);
        self.attr_here(dir, |inode| (inode.attr.mtime, inode.attr.ctime) = (now, now));
    }

    /// A file was written before the MDT has heard of it.
    pub fn written_here(&self, attr: Attr) {
        self.attr_here(attr.fid, |inode| inode.attr = attr);
    }

    /// Changes cached attributes in place. Answers to earlier requests are not kept.
    fn attr_here(&self, fid: Fid, change: impl FnOnce(&mut Inode)) {
        self.stamp(&[Touch::Attr { fid }]);
        let Some(Place { dir, h64 }) = self.place_of(fid).lock().get(&fid).copied() else { return };
        let mut shard = self.shard(dir).dirs.lock();
        let name = shard.get_mut(&dir).and_then(|of| of.names.get_mut(&h64));
        if let Some(inode) = name.filter(|name| name.fid == Some(fid)).and_then(|name| name.inode.as_mut()) {
            change(inode);
        }
    }

    /// Changes in the directory were shipped: answers about it from before are not kept.
    pub fn shipped(&self, dir: Fid) {
        self.stamp(&[Touch::Attr { fid: dir }]);
    }

    /// Nothing of this directory is as it was thought to be.
    pub fn forget_all_of(&self, dir: Fid) {
        self.forget(&[Forgotten { dir, h64: 0, fid: dir, whole: true }]);
    }

    fn drop_dir(&self, dir: Fid) {
        let gone = self.shard(dir).dirs.lock().remove(&dir);
        gone.into_iter().for_each(|of| self.dropped(of, &mut Vec::new()));
    }

    /// Drops a name, and returns its inode if there is one.
    pub(super) fn drop_name(&self, of: &mut Dir, h64: u64) -> Option<Fid> {
        let old = of.names.remove(&h64)?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        old.fid.inspect(|fid| _ = self.place_of(*fid).lock().remove(fid))
    }
}
