//! The MDT's side: a client's requests, in this process or over TCP. Requests are encoded and replies decoded completely.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, ensure};
use net::{Call, Peer};
use types::{Buf, Cred, Fid, Kind, SessionId};
use wire::codec::Bytes;
use wire::meta::{Create, Lookup, MakeDir, ReadDir, Unlink};
use wire::session::{Flush, SLOTS, TargetStat, TargetStatReply, next_sequence};
use wire::{Header, Request, decode_reply};

use super::tree::{Hand, Name, Side, Tree};

/// As in the client.
const ENTRIES_MAX: u32 = 4096;
const DEADLINE: Duration = Duration::from_secs(60);

/// The last sequence of each slot of the session; each hand has slots of its own.
pub type Lanes = Arc<[AtomicU32; SLOTS as usize]>;

/// The MDT to call, and the session to use.
pub struct Asked {
    pub peer: Arc<dyn Peer>,
    pub session: SessionId,
    pub lanes: Lanes,
    pub dirs: Vec<Fid>,
}

impl Asked {
    /// Finds the directories of an existing tree.
    pub fn find_dirs(&mut self, tree: Tree) -> anyhow::Result<()> {
        let mut hand = self.hand(0)?;
        let names = (0..tree.dirs()).map(|n| Name::new(b'd', n));
        self.dirs = names.map(|name| hand.look(Fid::ROOT, &name)).collect::<anyhow::Result<_>>()?;
        Ok(())
    }

    /// A hand with this many slots.
    pub fn hand_with(&self, thread: usize, slots: usize) -> anyhow::Result<Asker> {
        let slots = thread * slots..(thread + 1) * slots;
        ensure!(slots.end <= SLOTS as usize, "a session has {SLOTS} slots for all threads");
        let (peer, lanes) = (self.peer.clone(), self.lanes.clone());
        // All slots of a frame go on from the same sequence.
        let sequence = lanes[slots.start].load(Ordering::Relaxed);
        let sizes = Sizes::default();
        Ok(Asker { peer, session: self.session, lanes, slots, sequence, bulk: Buf::new(), sizes })
    }

    /// Marks all sequences up to here as used.
    pub fn raise(&self, sequence: u32) {
        self.lanes.iter().for_each(|lane| lane.store(sequence, Ordering::Relaxed));
    }

    pub fn target_stat(&self) -> anyhow::Result<TargetStatReply> {
        first(self, |hand| hand.ask(&TargetStat {}))
    }
}

impl Side for Asked {
    type Dir = Fid;
    type Hand = Asker;

    fn hand(&self, thread: usize) -> anyhow::Result<Asker> {
        self.hand_with(thread, 1)
    }
    fn dirs(&self) -> &[Fid] {
        &self.dirs
    }
    fn flush(&self) -> anyhow::Result<()> {
        first(self, |hand| hand.ask(&Flush {})).map(drop)
    }
}

/// Bytes of the bodies of the last request and of its reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    pub request: usize,
    pub reply: usize,
}

/// One thread's requests, one at a time.
pub struct Asker {
    peer: Arc<dyn Peer>,
    session: SessionId,
    lanes: Lanes,
    pub slots: Range<usize>,
    /// The last sequence of all its slots.
    pub sequence: u32,
    bulk: Buf,
    pub sizes: Sizes,
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.lanes[self.slots.clone()].iter().for_each(|lane| lane.store(self.sequence, Ordering::Relaxed));
    }
}

impl Asker {
    pub fn ask<R: Request>(&mut self, request: &R) -> anyhow::Result<R::Reply> {
        let mut head = Header { call: R::CALL, session: self.session, ..Header::default() };
        if R::MUTATES {
            self.sequence = next_sequence(self.sequence);
            (head.slot, head.sequence) = (self.slots.start as u32, self.sequence);
        }
        let (body, deadline) = (request.to_bytes(), Instant::now() + DEADLINE);
        self.sizes.request = body.len();
        let (_, reply) =
            self.peer.call(&mut Call { head, body, bulk: &[], into: &mut self.bulk, back: 0, deadline })?;
        self.sizes.reply = reply.len();
        let (_, said) = decode_reply::<R::Reply>(&reply)?;
        Ok(said?)
    }

    fn look(&mut self, parent: Fid, name: &Name) -> anyhow::Result<Fid> {
        let found = self.ask(&Lookup { parent, name: bytes(name), cred: Cred::root() })?;
        Ok(std::hint::black_box(found).attr.fid)
    }
}

pub fn bytes(name: &Name) -> Bytes {
    Bytes(name.bytes().to_vec())
}

pub fn create_request(parent: Fid, name: &Name) -> Create {
    Create {
        parent,
        name: bytes(name),
        kind: Kind::File,
        mode: 0o644,
        umask: 0,
        rdev: 0,
        exclusive: true,
        read: false,
        write: true,
        append: false,
        now: now(),
        cred: Cred::root(),
        want: Fid(0),
    }
}

fn now() -> types::Time {
    SystemTime::now().into()
}

impl Hand for Asker {
    type Dir = Fid;

    fn make_dir(&mut self, name: &Name) -> anyhow::Result<Fid> {
        let (name, cred) = (bytes(name), Cred::root());
        let request =
            MakeDir { parent: Fid::ROOT, name, mode: 0o755, umask: 0, now: now(), cred, want: Fid(0) };
        Ok(self.ask(&request)?.attr.fid)
    }

    /// A client that is alone reports no close of an empty file.
    fn create(&mut self, dir: &Fid, name: &Name) -> anyhow::Result<()> {
        let made = self.ask(&create_request(*dir, name))?;
        ensure!(made.made, "a file that is made was there");
        Ok(())
    }

    fn remove(&mut self, dir: &Fid, name: &Name) -> anyhow::Result<()> {
        let (name, cred) = (bytes(name), Cred::root());
        self.ask(&Unlink { parent: *dir, name, held: false, now: now(), cred }).map(drop)
    }

    fn stat(&mut self, dir: &Fid, name: &Name) -> anyhow::Result<()> {
        self.look(*dir, name).map(drop)
    }

    fn list(&mut self, dir: &Fid) -> anyhow::Result<u64> {
        let (mut cookie, mut count) = (0, 0);
        loop {
            let page =
                self.ask(&ReadDir { dir: *dir, cookie, max: ENTRIES_MAX, plus: true, cred: Cred::root() })?;
            count += page.entries.iter().filter(|e| e.inode.is_some()).count() as u64;
            let Some(last) = page.entries.last().filter(|_| page.more) else {
                return Ok(count);
            };
            cookie = last.cookie;
        }
    }
}

/// Sends one request by the first hand.
pub fn first<T>(side: &Asked, ask: impl FnOnce(&mut Asker) -> anyhow::Result<T>) -> anyhow::Result<T> {
    ask(&mut side.hand(0)?)
}

/// The sizes of a row's requests and replies by TCP, taken from the bodies in this process.
pub fn sizes(side: &Asked, creates: bool) -> anyhow::Result<Sizes> {
    let mut hand = side.hand(0)?;
    let dir = side.dirs.first().context("the tree has a directory")?;
    if creates {
        let name = Name::new(b's', 0);
        hand.create(dir, &name)?;
        let sizes = hand.sizes;
        hand.remove(dir, &name)?;
        return Ok(sizes);
    }
    hand.stat(dir, &Name::file(0))?;
    Ok(hand.sizes)
}
