//! The operations of an active session, one after the other: stat, a write and a read of 4 KiB at the OST, a directory made and removed.
//!
//! A directory is made once and removed once: a second execution of either request is refused, and counts as an error.

use std::time::{Duration, Instant, SystemTime};

use types::crc::{fragment_crcs, verify_fragments};
use types::{Buf, Cred, Fid, Kind, ObjectId};
use wire::codec::Bytes;
use wire::meta::{Create, GetAttr, Grow, MakeDir, RemoveDir};
use wire::object::{Capability, Read, Write};

use super::link::Said;
use super::session::Session;
use super::worker::Shared;

/// Pause between two operations of an active session.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of a write.
const WRITE_BYTES: usize = 4096;

/// Operations of an active session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// Makes the session's file; the first operation.
    Create,
    /// Gives the file a layout and the session a capability.
    Grow,
    Stat,
    Write,
    Read,
    MakeDir,
    RemoveDir,
}

impl Op {
    pub const ALL: [Op; 7] =
        [Op::Create, Op::Grow, Op::Stat, Op::Write, Op::Read, Op::MakeDir, Op::RemoveDir];

    pub fn name(self) -> &'static str {
        match self {
            Op::Create => "create",
            Op::Grow => "grow",
            Op::Stat => "stat",
            Op::Write => "write",
            Op::Read => "read",
            Op::MakeDir => "mkdir",
            Op::RemoveDir => "rmdir",
        }
    }

    fn next(self) -> Op {
        match self {
            Op::Create => Op::Grow,
            Op::Grow | Op::RemoveDir => Op::Stat,
            Op::Stat => Op::Write,
            Op::Write => Op::Read,
            Op::Read => Op::MakeDir,
            Op::MakeDir => Op::RemoveDir,
        }
    }
}

/// The session's file.
struct Own {
    fid: Fid,
    cap: Option<Capability>,
    object: Option<ObjectId>,
}

pub struct Work {
    op: Op,
    /// When the present operation began. That its session must attach first counts, too.
    begun: Option<Instant>,
    /// Its sequence once it was sent; 0: it changes nothing.
    sequence: Option<u32>,
    /// Writes so far; each has other bytes.
    writes: u64,
    own: Option<Own>,
    pub due: Instant,
}

impl Default for Work {
    fn default() -> Work {
        Work { op: Op::Create, begun: None, sequence: None, writes: 0, own: None, due: Instant::now() }
    }
}

impl Work {
    /// The file that the session has open.
    pub fn open_file(&self) -> Option<Fid> {
        self.own.as_ref().map(|own| own.fid)
    }

    pub fn is_begun(&self) -> bool {
        self.begun.is_some()
    }
    pub fn begin_if_due(&mut self) {
        if self.begun.is_none() && Instant::now() >= self.due {
            self.begun = Some(Instant::now());
        }
    }

    /// One try of the operation that has begun. `Err`: when the session is to be stepped again.
    pub fn step(&mut self, session: &mut Session, shared: &Shared) -> Result<(), Instant> {
        let Some(begun) = self.begun else { return Ok(()) };
        let is_at_ost = matches!(self.op, Op::Write | Op::Read);
        let changes = !matches!(self.op, Op::Stat | Op::Read);
        let link = if is_at_ost { &mut session.ost } else { &mut session.mdt };
        let sequence = *self.sequence.get_or_insert_with(|| if changes { link.next_sequence() } else { 0 });
        let said = self.attempt(session, sequence);
        let link = if is_at_ost { &mut session.ost } else { &mut session.mdt };
        match said {
            Said::Done(()) => shared.done(self.op, begun.elapsed()),
            Said::Again => return Err(Instant::now() + link.pause()),
            Said::Detached => return Err(Instant::now()),
            Said::Refused(fault) => {
                shared.failed(format!("session {}: {}: {fault}", session.n, self.op.name()));
            }
        }
        self.op = if self.own.is_none() { Op::Create } else { self.op.next() };
        (self.begun, self.sequence) = (None, None);
        self.due = Instant::now() + PAUSE;
        Ok(())
    }

    fn attempt(&mut self, session: &mut Session, sequence: u32) -> Said<()> {
        let (id, n, cred) = (session.id, session.n, Cred::root());
        let (mdt, ost) = (&mut session.mdt, &mut session.ost);
        let now = types::Time::from(SystemTime::now());
        let dir_name = || Bytes(format!("load-dir-{n}").into_bytes());
        match (self.op, &mut self.own) {
            (Op::Create, own) => {
                let name = Bytes(format!("load-file-{n}").into_bytes());
                let req = Create {
                    parent: Fid::ROOT,
                    name,
                    kind: Kind::File,
                    mode: 0o644,
                    umask: 0,
                    rdev: 0,
                    exclusive: true,
                    read: true,
                    write: true,
                    append: false,
                    now,
                    cred,
                    want: Fid(0),
                };
                mdt.ask(id, sequence, &req).map(|made| {
                    *own = Some(Own { fid: made.open.inode.attr.fid, cap: made.open.cap, object: None });
                })
            }
            (_, None) => Said::Refused(wrong("the session has no file")),
            (Op::Grow, Some(own)) => {
                let req = Grow { fid: own.fid, now, held: own.cap.clone(), avoid: vec![] };
                mdt.ask(id, sequence, &req).map(|grown| {
                    own.object = Some(grown.layout.object(own.fid, 0, 0));
                    own.cap = Some(grown.cap);
                })
            }
            (Op::Stat, Some(own)) => mdt.ask(id, 0, &GetAttr { fid: own.fid }).map(drop),
            (Op::Write, Some(own)) => {
                let (Some(cap), Some(object)) = (own.cap.clone(), own.object) else {
                    return Said::Refused(wrong("the session's file has no objects"));
                };
                let bytes = content(n, self.writes + 1);
                let crcs = fragment_crcs(0, &bytes);
                let req = Write { cap, object, offset: 0, crcs, mtime: now, granted: false, lock: 0 };
                let said = ost.exchange(id, sequence, &req, &bytes, &mut Buf::new());
                said.map(|_| self.writes += 1)
            }
            (Op::Read, Some(own)) => {
                let (Some(cap), Some(object)) = (own.cap.clone(), own.object) else {
                    return Said::Refused(wrong("the session's file has no objects"));
                };
                let req = Read { cap, object, offset: 0, len: WRITE_BYTES as u32, lock: 0 };
                let mut bytes = Buf::new();
                match ost.exchange(id, 0, &req, &[], &mut bytes) {
                    Said::Done(read) if verify_fragments(0, &bytes, &read.crcs).is_err() => {
                        Said::Refused(wrong("bytes arrive changed"))
                    }
                    Said::Done(_) if bytes[..] != content(n, self.writes)[..] => {
                        Said::Refused(wrong("other bytes than were written"))
                    }
                    said => said.map(drop),
                }
            }
            (Op::MakeDir, Some(_)) => {
                let name = dir_name();
                let req = MakeDir { parent: Fid::ROOT, name, mode: 0o755, umask: 0, now, cred, want: Fid(0) };
                mdt.ask(id, sequence, &req).map(drop)
            }
            (Op::RemoveDir, Some(_)) => {
                let req = RemoveDir { parent: Fid::ROOT, name: dir_name(), held: false, now, cred };
                mdt.ask(id, sequence, &req).map(drop)
            }
        }
    }
}

fn wrong(what: &str) -> types::Fault {
    types::Fault::new(types::Code::Damaged, what)
}

/// The bytes of a session's n-th write.
fn content(session: u64, write: u64) -> Vec<u8> {
    let mut bytes = vec![0; WRITE_BYTES];
    crate::Rng::new(session << 32 | write).fill(&mut bytes);
    bytes
}
