//! Changes that this client has carried out in directories that it leases for that, and that the MDT has not heard of: new small files, and removed
//! ones. Pure state; `ship` has the requests.
//!
//! client-U1: changes are shipped in the order in which they were made. One that does not depend on another may share a frame with it.
//! client-U2: a request to the MDT that a change may bear on waits until that change is shipped. Requests that change names wait for all.
//! client-U3: the content of a new file changes here only until the file is sent for the first time. So a file that is open is not sent yet if it is young and no
//!     call waits.
//! client-U4: a change is made here only while the directory's lease stands, which is looked at in the same step. The lease ends when the
//!     directory's attributes change, with the session, when another client wants it, and before others come in (client-H2).
//! client-U8: a change is sent in the session in which it was made, and in no later one: others may have changed the name since.
//! client-U7: beside other clients a file is removed here only if it was made under the same lease: no other client knows it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use net::Bell;
use parking_lot::{Condvar, Mutex, MutexGuard};
use types::{Attr, Cred, Fid, SessionId, Time};
use wire::shared::HeldDir;

use crate::cache::files::File;
use crate::session::jobs;
use crate::session::sent::After;

/// Changes that wait at most. Past it a call waits until some are shipped.
pub(crate) const WAITING_MAX: usize = 1024;
/// Bytes of content that wait at most.
const BYTES_MAX: usize = 16 << 20;
/// Longest time that a change waits for others to share its frame, and that a new file waits to be closed.
pub(crate) const LINGER: Duration = Duration::from_millis(50);
/// So many changes are shipped at once, without a wait for more.
pub(crate) const FRAME: usize = 32;
/// Bytes of content of one frame.
const FRAME_BYTES: usize = 512 << 10;
/// Leased directories, and directories that are about to be. Past it all are forgotten, and leased anew.
const DIRS_MAX: usize = 4096;

#[derive(Clone)]
pub(crate) enum What {
    /// A new file with its content, and the time at which that was written.
    Make {
        file: Arc<File>,
        attr: Attr,
        umask: u32,
        mode: u32,
        bytes: Vec<u8>,
    },
    Remove,
}

/// A change that waits.
#[derive(Clone)]
pub(crate) struct Change {
    pub parent: Fid,
    pub name: Box<[u8]>,
    pub h64: u64,
    pub fid: Fid,
    pub now: Time,
    pub cred: Cred,
    pub what: What,
    /// It was sent before, without an answer.
    pub is_repeat: bool,
    /// client-U8.
    pub session: SessionId,
    /// The tag of its job.
    pub job: u32,
    is_done: bool,
    since: Instant,
}

impl Change {
    pub fn new(
        (parent, name): (Fid, &[u8]),
        fid: Fid,
        (session, now): (SessionId, Time),
        cred: &Cred,
        what: What,
    ) -> Change {
        let (h64, name, cred) = (types::h64(name), name.into(), cred.clone());
        let since = Instant::now();
        let job = jobs::current();
        Change {
            parent,
            name,
            h64,
            fid,
            now,
            cred,
            what,
            is_repeat: false,
            session,
            job,
            is_done: false,
            since,
        }
    }
    fn bytes(&self) -> usize {
        if let What::Make { bytes, .. } = &self.what { bytes.len() } else { 0 }
    }
    /// client-U3.
    fn is_in_hand(&self) -> bool {
        let What::Make { file, .. } = &self.what else { return false };
        self.since.elapsed() < LINGER && file.meta.lock().pins > 0
    }
    fn makes(&self) -> bool {
        matches!(self.what, What::Make { .. })
    }
}

/// Files that are remembered as made under one lease.
const MADE_MAX: usize = 65_536;
/// A directory that the MDT did not lease is asked for again after this time.
const REFUSED_FOR: Duration = Duration::from_secs(1);

/// A directory's lease, as the MDT gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DirLease {
    /// 0: this client is alone.
    pub number: u64,
    /// Content up to this many bytes lies inline in new files.
    pub inline_max: u32,
}

/// A directory in which changes wait to be shipped, or may soon.
#[derive(Default)]
struct Dir {
    /// Changes that were sent at once, before a lease was asked for.
    sent: u32,
    lease: Option<DirLease>,
    refused: Option<Instant>,
    /// A thread asks for its lease. True: another client wants that lease already.
    asking: Option<bool>,
    /// client-U7.
    made: HashSet<Fid>,
}

/// The way of a call that changes names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum May {
    /// It changes names here, under this lease.
    Here(DirLease),
    /// It asks for the lease of the directory first, then calls `leased`.
    Ask,
    /// It asks the MDT.
    There,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Change>,
    /// Number of the first change in the queue.
    first: u64,
    /// Changes at the front that are being sent.
    under_way: usize,
    /// Numbers of the last changes of a name, a file, and in a directory.
    names: HashMap<(Fid, u64), u64>,
    fids: HashMap<Fid, u64>,
    in_dirs: HashMap<Fid, u64>,
    bytes: usize,
    /// Calls that wait until changes are shipped.
    waiters: usize,
    dirs: HashMap<Fid, Dir>,
    /// Fids for new files.
    spare: std::ops::Range<u64>,
}

#[derive(Default)]
pub(crate) struct Unshipped {
    state: Mutex<State>,
    changed: Condvar,
    count: AtomicUsize,
    frames: AtomicU64,
    /// Wakes the thread that ships.
    pub bell: Bell,
}

impl Unshipped {
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Frames that were shipped. It rises before their changes count as shipped.
    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::SeqCst)
    }

    // ---- directories ----

    /// May a change in `dir` wait? `tries_max`: changes in it that are sent at once, before its lease is asked for.
    pub fn may(&self, dir: Fid, tries_max: u32) -> May {
        let mut state = self.state.lock();
        if state.dirs.len() >= DIRS_MAX && !state.dirs.contains_key(&dir) {
            // Leases of others stay: their holder gives them back.
            state.dirs.retain(|_, of| of.asking.is_some() || of.lease.is_some_and(|lease| lease.number > 0));
            if state.dirs.len() >= DIRS_MAX {
                return May::There;
            }
        }
        let has_fids = !state.spare.is_empty();
        let of = state.dirs.entry(dir).or_default();
        if of.refused.is_some_and(|since| since.elapsed() < REFUSED_FOR) || of.asking.is_some() {
            return May::There;
        }
        match of.lease {
            Some(lease) if has_fids => return May::Here(lease),
            None if of.sent < tries_max => {
                of.sent += 1;
                return May::There;
            }
            _ => {}
        }
        of.asking = Some(false);
        May::Ask
    }

    /// The MDT's answer; `None`: it does not lease the directory. `is_so` says in the same step whether the answer still holds. True: the lease
    /// may be used.
    pub fn leased(
        &self,
        dir: Fid,
        granted: Option<(DirLease, std::ops::Range<u64>)>,
        is_so: impl FnOnce() -> bool,
    ) -> bool {
        let mut state = self.state.lock();
        let of = state.dirs.entry(dir).or_default();
        let is_wanted = of.asking.take().unwrap_or(true);
        let Some((lease, fids)) = granted.filter(|_| !is_wanted && is_so()) else {
            (of.refused, of.lease) = (Some(Instant::now()), None);
            return false;
        };
        // One that is held and only brings more fids goes on.
        if of.lease.is_none() {
            of.made.clear();
        }
        (of.lease, of.refused) = (Some(lease), None);
        // The rest of the last ones is not used: fids are plenty.
        state.spare = fids;
        true
    }

    pub fn end_lease(&self, dir: Fid) {
        if let Some(of) = self.state.lock().dirs.get_mut(&dir) {
            (of.lease, of.asking) = (None, of.asking.map(|_| true));
        }
    }
    pub fn end_leases(&self) {
        let mut state = self.state.lock();
        state.end_leases();
    }

    /// Another client wants the lease of this number. True: the directory is known here.
    pub fn is_wanted(&self, dir: Fid, number: u64) -> bool {
        let mut state = self.state.lock();
        let Some(of) = state.dirs.get_mut(&dir) else { return false };
        if of.lease.is_some_and(|lease| lease.number == number) {
            of.lease = None;
            of.sent = 0;
        }
        of.asking = of.asking.map(|_| true);
        true
    }

    /// client-H4, of directories. A lease whose answer is under way is not told, and so not used.
    pub fn held(&self) -> Vec<HeldDir> {
        let mut state = self.state.lock();
        for of in state.dirs.values_mut() {
            of.asking = of.asking.map(|_| true);
            // Of a time alone, which is over.
            of.lease = of.lease.filter(|lease| lease.number > 0);
        }
        let held = |(dir, of): (&Fid, &Dir)| {
            let lease = of.lease.filter(|lease| lease.number > 0)?;
            Some(HeldDir { dir: *dir, number: lease.number })
        };
        state.dirs.iter().filter_map(held).collect()
    }

    pub fn take_fid(&self) -> Option<Fid> {
        self.state.lock().spare.next().map(Fid)
    }

    // ---- changes ----

    /// client-U4. False: the lease has ended, and the caller undoes what it has done.
    pub fn add(&self, lease: DirLease, change: Change) -> bool {
        let mut state = self.state.lock();
        let Some(of) = state.dirs.get_mut(&change.parent).filter(|of| of.lease == Some(lease)) else {
            return false;
        };
        if lease.number > 0 {
            match change.makes() {
                true if of.made.len() < MADE_MAX => _ = of.made.insert(change.fid),
                true => {}
                // client-U7.
                false if !of.made.remove(&change.fid) => return false,
                false => {}
            }
        }
        let number = state.first + state.queue.len() as u64;
        state.names.insert((change.parent, change.h64), number);
        state.fids.insert(change.fid, number);
        state.in_dirs.insert(change.parent, number);
        state.bytes += change.bytes();
        state.queue.push_back(change);
        let len = state.queue.len();
        self.count.store(len, Ordering::SeqCst);
        drop(state);
        if len.is_multiple_of(FRAME) {
            self.bell.ring();
        }
        true
    }

    /// A new file that waits: it has what this client gave it.
    pub fn is_new(&self, fid: Fid) -> bool {
        if self.is_empty() {
            return false;
        }
        let state = self.state.lock();
        let change = state.fids.get(&fid).and_then(|at| state.queue.get((at - state.first) as usize));
        change.is_some_and(Change::makes)
    }

    /// client-U3: writes into a new file that waits. `write` is given the content and the attributes, and may refuse. `None`: the file does not wait.
    pub fn write<T>(&self, fid: Fid, write: impl FnOnce(&mut Vec<u8>, &mut Attr) -> Option<T>) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let mut state = self.state.lock();
        let at = (state.fids.get(&fid)? - state.first) as usize;
        if at < state.under_way {
            return None;
        }
        let change = state.queue.get_mut(at).expect("client-U1: the number of a change is its place");
        // A copy that was sent may have been carried out.
        if change.is_done || change.is_repeat {
            return None;
        }
        let before = change.bytes();
        let What::Make { bytes, attr, .. } = &mut change.what else { return None };
        let done = write(bytes, attr);
        let after = bytes.len();
        state.bytes = state.bytes + after - before;
        done
    }

    /// The changes that bear on a request to the MDT about `after`: the number behind the last of them.
    fn until(state: &State, after: &After) -> u64 {
        let behind = |number: Option<&u64>| number.map_or(0, |number| number + 1);
        match after {
            After::Nothing => 0,
            After::All => state.first + state.queue.len() as u64,
            After::Name(dir, h64) => behind(state.names.get(&(*dir, *h64))).max(behind(state.fids.get(dir))),
            After::Of(fids) => {
                let of = |fid: &Fid| behind(state.fids.get(fid)).max(behind(state.in_dirs.get(fid)));
                fids.iter().map(of).max().unwrap_or(0)
            }
        }
    }

    /// Does a change bear on what is asked about `fid`?
    pub fn bears_on(&self, fid: Fid) -> bool {
        if self.is_empty() {
            return false;
        }
        let state = self.state.lock();
        Self::until(&state, &After::Of(vec![fid])) > state.first
    }

    /// client-U2: waits until all changes that bear on it are shipped. False: the deadline has passed.
    pub fn wait_for(&self, after: &After, deadline: Instant) -> bool {
        if self.is_empty() {
            return true;
        }
        let mut state = self.state.lock();
        let until = Self::until(&state, after);
        self.wait_until(&mut state, deadline, |state| state.first >= until)
    }

    fn wait_until(
        &self,
        state: &mut MutexGuard<'_, State>,
        deadline: Instant,
        is_over: impl Fn(&State) -> bool,
    ) -> bool {
        let mut is_late = false;
        while !is_over(state) && !is_late {
            state.waiters += 1;
            self.bell.ring();
            is_late = self.changed.wait_until(state, deadline).timed_out();
            state.waiters -= 1;
        }
        is_over(state)
    }

    /// Waits until fewer changes wait. False: the deadline has passed.
    pub fn wait_for_room(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        self.wait_until(&mut state, deadline, |state| {
            state.queue.len() < WAITING_MAX && state.bytes < BYTES_MAX
        })
    }

    /// The first changes that may share a frame, of one kind. The caller sends them, then calls `sent` and `end`. `is_last`: the client ends.
    pub fn take(&self, is_last: bool) -> Vec<(usize, Change)> {
        let mut state = self.state.lock();
        assert_eq!(state.under_way, 0, "client-U1: one thread ships");
        let Some(first) = state.queue.front() else { return vec![] };
        let (makes, mut bytes, is_awaited) = (first.makes(), 0, state.waiters > 0 || is_last);
        let fits = |change: &&Change| {
            bytes += change.bytes();
            let is_due = is_awaited || !change.is_in_hand();
            is_due && change.makes() == makes && bytes <= FRAME_BYTES.max(change.bytes())
        };
        let count = state.queue.iter().take(FRAME).take_while(fits).count();
        state.under_way = count;
        let due = state.queue.iter().take(count).enumerate().filter(|(_, change)| !change.is_done);
        due.map(|(at, change)| (at, change.clone())).collect()
    }

    /// The change at this place has an answer; or it has none, and is sent again.
    pub fn sent(&self, at: usize, is_done: bool) {
        let mut state = self.state.lock();
        assert!(at < state.under_way, "client-U1: only what is under way has an answer");
        (state.queue[at].is_done, state.queue[at].is_repeat) = (is_done, true);
    }

    /// Nothing is under way any more. Drops the changes at the front that are done.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.under_way = 0;
        self.frames.fetch_add(1, Ordering::SeqCst);
        state.drop_done();
        self.count.store(state.queue.len(), Ordering::SeqCst);
        self.changed.notify_all();
    }

    /// The session has ended. Returns the changes that are lost; those that are under way have answers of their own.
    pub fn lose(&self) -> Vec<Change> {
        let mut state = self.state.lock();
        state.end_leases();
        let under_way = state.under_way;
        let mut lost = Vec::new();
        for change in state.queue.iter_mut().skip(under_way).filter(|change| !change.is_done) {
            change.is_done = true;
            lost.push(change.clone());
        }
        if under_way == 0 {
            state.drop_done();
        }
        self.count.store(state.queue.len(), Ordering::SeqCst);
        self.changed.notify_all();
        lost
    }
}

impl State {
    fn end_leases(&mut self) {
        // An answer that is under way is of an earlier time.
        self.dirs.retain(|_, of| of.asking.is_some());
        for of in self.dirs.values_mut() {
            (of.lease, of.asking) = (None, Some(true));
        }
        self.spare = 0..0;
    }

    fn drop_done(&mut self) {
        while self.queue.front().is_some_and(|change| change.is_done) {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        let Some(change) = self.queue.pop_front() else { return };
        let number = self.first;
        self.first += 1;
        self.bytes -= change.bytes();
        fn over<K: std::hash::Hash + Eq>(map: &mut HashMap<K, u64>, key: &K, number: u64) {
            if map.get(key) == Some(&number) {
                map.remove(key);
            }
        }
        over(&mut self.names, &(change.parent, change.h64), number);
        over(&mut self.fids, &change.fid, number);
        over(&mut self.in_dirs, &change.parent, number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::files::{Files, For};
    use types::Kind;

    const DIR: Fid = Fid(16);

    fn attr(fid: Fid) -> Attr {
        let now = Time::new(1, 0);
        let (mode, kind) = (0o644, Kind::File);
        let (uid, gid, nlink, rdev, size, blocks) = (0, 0, 1, 0, 0, 0);
        Attr {
            fid,
            kind,
            mode,
            uid,
            gid,
            nlink,
            rdev,
            size,
            blocks,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        }
    }

    fn leased(number: u64) -> (Unshipped, DirLease) {
        let unshipped = Unshipped::default();
        let lease = DirLease { number, inline_max: 1000 };
        assert_eq!(unshipped.may(DIR, 0), May::Ask);
        assert_eq!(unshipped.may(DIR, 0), May::There, "one thread asks");
        assert!(unshipped.leased(DIR, Some((lease, 100..200)), || true));
        assert_eq!(unshipped.may(DIR, 0), May::Here(lease));
        (unshipped, lease)
    }

    fn make(unshipped: &Unshipped, files: &Files, lease: DirLease, name: &str) -> Fid {
        let fid = unshipped.take_fid().unwrap();
        let file = files.pin(fid, For::Reading);
        files.unpin(&file, For::Reading);
        let what = What::Make { file, attr: attr(fid), umask: 0, mode: 0o644, bytes: vec![] };
        let made =
            Change::new((DIR, name.as_bytes()), fid, (SessionId(1), Time::new(1, 0)), &Cred::root(), what);
        assert!(unshipped.add(lease, made));
        fid
    }

    fn remove(unshipped: &Unshipped, lease: DirLease, name: &str, fid: Fid) -> bool {
        let now = (SessionId(1), Time::new(1, 0));
        unshipped.add(lease, Change::new((DIR, name.as_bytes()), fid, now, &Cred::root(), What::Remove))
    }

    fn write(unshipped: &Unshipped, fid: Fid) -> bool {
        unshipped
            .write(fid, |bytes, _| {
                bytes.push(1);
                Some(())
            })
            .is_some()
    }

    /// client-U1, client-U3.
    #[test]
    fn changes_are_shipped_in_order_and_a_file_is_written_here_until_it_is_sent() {
        let ((unshipped, lease), files) = (leased(0), Files::new());
        let (a, b) = (make(&unshipped, &files, lease, "a"), make(&unshipped, &files, lease, "b"));
        assert!(remove(&unshipped, lease, "a", a));
        let c = make(&unshipped, &files, lease, "c");
        assert!(write(&unshipped, b) && !write(&unshipped, a), "its last change is its removal");
        let frame = unshipped.take(false);
        assert_eq!(frame.iter().map(|(_, change)| change.fid).collect::<Vec<_>>(), [a, b], "of one kind");
        assert!(!write(&unshipped, b) && write(&unshipped, c));
        // The first has no answer.
        unshipped.sent(0, false);
        unshipped.sent(1, true);
        unshipped.end();
        assert!(!write(&unshipped, b) && unshipped.bears_on(b) && unshipped.is_new(c));
        let frame = unshipped.take(false);
        assert!(frame.len() == 1 && frame[0].1.is_repeat && frame[0].1.fid == a);
        unshipped.sent(0, false);
        unshipped.end();
        // A copy of it may have been carried out.
        assert!(!write(&unshipped, a));
        for rest in [vec![a], vec![a], vec![c]] {
            let frame = unshipped.take(false);
            assert_eq!(frame.iter().map(|(_, change)| change.fid).collect::<Vec<_>>(), rest);
            frame.iter().for_each(|(at, _)| unshipped.sent(*at, true));
            unshipped.end();
        }
        assert!(unshipped.is_empty() && !unshipped.bears_on(DIR) && unshipped.take(false).is_empty());
    }

    /// client-U2.
    #[test]
    fn a_request_waits_for_what_bears_on_it() {
        let ((unshipped, lease), files) = (leased(0), Files::new());
        let a = make(&unshipped, &files, lease, "a");
        let soon = || Instant::now() + Duration::from_millis(5);
        let waits = |after: After| !unshipped.wait_for(&after, soon());
        assert!(waits(After::All) && waits(After::Of(vec![Fid(1), a])) && waits(After::Of(vec![DIR])));
        assert!(waits(After::Name(DIR, types::h64(b"a"))) && !waits(After::Name(DIR, types::h64(b"b"))));
        assert!(!waits(After::Nothing) && !waits(After::Of(vec![Fid(1)])));
        assert_eq!(unshipped.lose().len(), 1);
        assert!(!waits(After::All) && unshipped.lose().is_empty());
        assert_eq!(unshipped.may(DIR, 0), May::Ask, "the lease went with the session");
    }

    /// client-U4, client-U7.
    #[test]
    fn a_change_needs_the_lease_and_a_removal_beside_others_a_file_of_that_lease() {
        let ((unshipped, lease), files) = (leased(5), Files::new());
        let a = make(&unshipped, &files, lease, "a");
        let b = make(&unshipped, &files, lease, "b");
        assert!(!remove(&unshipped, lease, "old", Fid(9)) && remove(&unshipped, lease, "a", a));
        // More fids are fetched under the lease.
        unshipped.state.lock().spare = 0..0;
        assert_eq!(unshipped.may(DIR, 0), May::Ask);
        let lease = DirLease { number: 6, ..lease };
        assert!(unshipped.leased(DIR, Some((lease, 300..400)), || true) && remove(&unshipped, lease, "b", b));
        assert_eq!(unshipped.held(), [HeldDir { dir: DIR, number: 6 }]);
        assert!(unshipped.is_wanted(DIR, 6) && !unshipped.is_wanted(Fid(1), 6));
        assert!(!remove(&unshipped, lease, "a", a) && unshipped.held().is_empty());
        // Another client wants the lease before its answer has come, or the answer is of an earlier time.
        for spoil in
            [&|| _ = unshipped.is_wanted(DIR, 6), &|| drop(unshipped.held()), &|| unshipped.end_leases()]
                as [&dyn Fn(); 3]
        {
            assert_eq!(unshipped.may(DIR, 0), May::Ask);
            spoil();
            assert!(!unshipped.leased(DIR, Some((lease, 200..300)), || true));
            let state = &mut *unshipped.state.lock();
            state.dirs.values_mut().for_each(|of| of.refused = None);
        }
    }
}
