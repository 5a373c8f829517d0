//! A name space of one flat directory: enough to see whether what was promised for it is kept.
//! Names `(1, name)` → fid; inodes `(2, fid)` → name; orphans `(5, fid)` → session; dead `(6, fid)` → layout.

use std::sync::Arc;

use meta::{Ctx, Txn, View};
use types::*;
use wire::meta::{FileState, Grow, Inode, Truncate, TruncateReply};
use wire::{Reader, Request, Wire};

use crate::Rules;

pub const MAKE: u16 = 0x7001;
pub const REMOVE: u16 = 0x7002;
pub const LIST: u16 = 0x7003;
pub const NOTHING: u16 = 0x7004;
/// Removes while open: an orphan of the session.
pub const REMOVE_HELD: u16 = 0x7005;
/// Draws more ids than a transaction may.
pub const GREEDY: u16 = 0x7006;
/// Makes a capability with a new lease number.
pub const LEASE: u16 = 0x7007;

/// Adds the bytes of its body and does not care whether the MDT is full.
pub const FAT: u16 = 0x7008;

/// Looks at as many records as its body begins with, then makes what has the name that follows; without one it is refused.
pub const WALK: u16 = 0x7009;

/// Files of such names have their object on a mirror that no map knows.
pub const LOST: &str = "lost";

pub struct FlatRules;

fn key(kind: u8, rest: &[u8]) -> Key {
    Key::new(&[&[kind], rest].concat()).unwrap()
}
fn fid_key(kind: u8, fid: Fid) -> Key {
    key(kind, &fid.0.to_be_bytes())
}
fn fid_of(bytes: &[u8]) -> Fid {
    Fid(u64::from_be_bytes(bytes.try_into().unwrap()))
}

/// A body: the wanted fid, then the name.
pub fn body(want: Fid, name: &str) -> Vec<u8> {
    [&want.0.to_le_bytes(), name.as_bytes()].concat()
}

/// One object on mirror 2.
pub fn layout() -> Layout {
    let component =
        Component { end: u64::MAX, stripe_size: 1 << 20, mirrors: vec![MirrorId(2)], written: vec![1] };
    Layout { generation: Generation(1), components: vec![component] }
}

fn all(view: &dyn View, kind: u8, f: &mut dyn FnMut(&[u8], &[u8])) {
    view.range(&key(kind, &[]), &key(kind + 1, &[]), &mut |k, v| {
        f(&k.as_bytes()[1..], v);
        true
    });
}

fn make(ctx: &Ctx<'_>, txn: &mut dyn Txn, want: Fid, name: &[u8]) -> Result<Vec<u8>, Fault> {
    if ctx.space.is_full {
        return Err(Fault::new(Code::NoSpace, "full"));
    }
    if txn.get(&key(1, name)).is_some() {
        return Err(Code::Exists.into());
    }
    let fid = if ctx.replay && want != Fid(0) { want } else { txn.next_fid() };
    txn.put(key(1, name), fid.0.to_be_bytes().to_vec());
    txn.put(fid_key(2, fid), name.to_vec());
    Ok(fid.to_bytes())
}

fn remove(ctx: &Ctx<'_>, txn: &mut dyn Txn, name: &[u8], held: bool) -> Result<Vec<u8>, Fault> {
    let fid = fid_of(&txn.get(&key(1, name)).ok_or(Code::NotFound)?);
    txn.delete(&key(1, name));
    if held {
        txn.put(fid_key(5, fid), ctx.session.to_bytes());
    } else {
        txn.delete(&fid_key(2, fid));
        let mut layout = layout();
        if name.starts_with(LOST.as_bytes()) {
            layout.components[0].mirrors = vec![MirrorId(77)];
        }
        txn.put(fid_key(6, fid), layout.to_bytes());
    }
    Ok(fid.to_bytes())
}

fn truncate(body: &[u8]) -> Vec<u8> {
    let req = Truncate::from_bytes(body).unwrap();
    let t = Time::default();
    let attr = Attr {
        fid: req.fid,
        kind: Kind::File,
        mode: 0,
        uid: 0,
        gid: 0,
        nlink: 1,
        rdev: 0,
        size: req.size,
        blocks: 0,
        atime: t,
        mtime: t,
        ctime: t,
        btime: t,
    };
    TruncateReply {
        inode: Inode { attr, layout: None, state: FileState::Settled, flags: 0 },
        cap: None,
        pending: true,
    }
    .to_bytes()
}

impl Rules for FlatRules {
    fn is_mutation(&self, call: u16) -> Option<bool> {
        match call {
            MAKE
            | REMOVE
            | REMOVE_HELD
            | NOTHING
            | GREEDY
            | LEASE
            | FAT
            | WALK
            | Truncate::CALL
            | Grow::CALL => Some(true),
            LIST => Some(false),
            _ => None,
        }
    }
    fn mutate(
        &self,
        ctx: &Ctx<'_>,
        txn: &mut dyn Txn,
        call: u16,
        body: &[u8],
        _: &[u8],
    ) -> Result<Vec<u8>, Fault> {
        let mut r = Reader::new(body);
        match call {
            MAKE => make(ctx, txn, Wire::get(&mut r).unwrap(), r.take(r.remaining()).unwrap()),
            REMOVE | REMOVE_HELD | Grow::CALL => remove(ctx, txn, &body[8..], call == REMOVE_HELD),
            NOTHING => Ok(b"nothing".to_vec()),
            GREEDY => {
                (0..200_000).for_each(|_| _ = txn.next_fid());
                txn.put(key(1, b"greedy"), vec![]);
                Ok(vec![])
            }
            FAT => {
                let fid = txn.next_fid();
                txn.put(fid_key(3, fid), body.to_vec());
                Ok(vec![])
            }
            WALK => {
                let looks = u64::get(&mut r).unwrap();
                (0..looks).for_each(|_| _ = txn.get(&key(1, b"way")));
                match r.take(r.remaining()).unwrap() {
                    [] => Err(Code::Invalid.into()),
                    name => make(ctx, txn, Fid(0), name),
                }
            }
            LEASE => {
                let counter = txn.next_lease();
                txn.put(key(3, b"lease"), counter.to_bytes());
                Ok((ctx.make_cap)(Fid(20), Generation(1), 1, counter).to_bytes())
            }
            _ => {
                txn.put(key(3, b"truncating"), body.to_vec());
                Ok(truncate(body))
            }
        }
    }
    fn read(
        &self,
        _: &Ctx<'_>,
        view: &dyn View,
        _: u16,
        _: &[u8],
        reply: &mut Vec<u8>,
        out: &mut Buf,
    ) -> Result<(), Fault> {
        let mut names: Vec<(wire::codec::Bytes, Fid)> = vec![];
        all(view, 1, &mut |name, fid| names.push((name.into(), fid_of(fid))));
        out.set(b"bulk");
        for (name, fid) in names {
            name.put(reply);
            fid.put(reply);
        }
        Ok(())
    }
    fn format(&self, txn: &mut dyn Txn, _: Time) {
        txn.put(fid_key(2, Fid::ROOT), vec![])
    }
    fn is_formatted(&self, view: &dyn View) -> bool {
        view.get(&fid_key(2, Fid::ROOT)).is_some()
    }
    fn orphans(&self, view: &dyn View, after: Fid, max: usize) -> Vec<(Fid, SessionId)> {
        let mut out = vec![];
        all(view, 5, &mut |fid, owner| out.push((fid_of(fid), SessionId::from_bytes(owner).unwrap())));
        out.retain(|(fid, _)| *fid > after);
        out.truncate(max);
        out
    }
    fn orphan_in(&self, key: &Key, value: &[u8]) -> Option<SessionId> {
        (key.as_bytes()[0] == 5).then(|| SessionId::from_bytes(value).unwrap())
    }
    fn reap(&self, txn: &mut dyn Txn, fid: Fid) -> Result<(), Fault> {
        txn.delete(&fid_key(5, fid));
        txn.delete(&fid_key(2, fid));
        txn.put(fid_key(6, fid), layout().to_bytes());
        Ok(())
    }
    fn leave_orphan(&self, txn: &mut dyn Txn, fid: Fid, _: Option<SessionId>) -> Result<(), Fault> {
        self.reap(txn, fid)
    }
    fn rest(&self, _: &mut dyn Txn, _: Fid, _: u64) -> Result<(), Fault> {
        Ok(())
    }
    fn orphan_holder(&self, view: &dyn View, fid: Fid) -> Option<SessionId> {
        SessionId::from_bytes(&view.get(&fid_key(5, fid))?).ok()
    }
    fn dead_list(&self, view: &dyn View, max: usize) -> Vec<(Fid, Layout)> {
        let mut out = vec![];
        view.range(&key(6, &[]), &key(7, &[]), &mut |k, l| {
            out.push((fid_of(&k.as_bytes()[1..]), Layout::from_bytes(l).unwrap()));
            out.len() < max
        });
        out
    }
    fn is_dead(&self, key: &Key) -> bool {
        key.as_bytes()[0] == 6
    }
    fn forget_dead(&self, txn: &mut dyn Txn, fid: Fid, _: Generation) {
        txn.delete(&fid_key(6, fid))
    }
    fn inodes(&self, view: &dyn View) -> u64 {
        let mut n = 0;
        all(view, 2, &mut |_, _| n += 1);
        n
    }
}

pub fn flat() -> Arc<dyn Rules> {
    Arc::new(FlatRules)
}
