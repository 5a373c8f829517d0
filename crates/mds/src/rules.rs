//! The interface to the rules. `MetaRules` are the rules of crate `meta`. Tests have small rules of their own, so that they test the
//! executor's promises whatever the rules are.

use meta::{Ctx, Txn, View};
use types::{Buf, Cred, Fault, Fid, Generation, Key, Layout, SessionId, Time};

pub trait Rules: Send + Sync {
    /// Does the call change things? `None`: no such call.
    fn is_mutation(&self, call: u16) -> Option<bool>;
    /// Carries out a mutating call; the reply body without its head.
    fn mutate(
        &self,
        ctx: &Ctx<'_>,
        txn: &mut dyn Txn,
        call: u16,
        body: &[u8],
        bulk: &[u8],
    ) -> Result<Vec<u8>, Fault>;
    /// Answers a reading call: the body without its head goes to the end of `reply`, bulk bytes go to `out`.
    fn read(
        &self,
        ctx: &Ctx<'_>,
        view: &dyn View,
        call: u16,
        body: &[u8],
        reply: &mut Vec<u8>,
        out: &mut Buf,
    ) -> Result<(), Fault>;
    /// The user that a request claims to act for.
    fn claimed(&self, _call: u16, _body: &[u8]) -> Option<Cred> {
        None
    }
    /// Makes a new name space.
    fn format(&self, txn: &mut dyn Txn, now: Time);
    /// Was `format` ever done here?
    fn is_formatted(&self, view: &dyn View) -> bool;
    /// Records without which no start or no change is possible. Checkpoints have them twice.
    fn needed(&self) -> Vec<Key> {
        Vec::new()
    }
    /// Up to `max` files behind `after` that were unlinked while they were open, with the sessions that hold them.
    fn orphans(&self, view: &dyn View, after: Fid, max: usize) -> Vec<(Fid, SessionId)>;
    /// The session that holds an orphan, if this is an orphan's record.
    fn orphan_in(&self, key: &Key, value: &[u8]) -> Option<SessionId>;
    /// Ends an orphan: its objects go to the unlink log, for the purge.
    fn reap(&self, txn: &mut dyn Txn, fid: Fid) -> Result<(), Fault>;
    /// An orphan's holder releases it: it passes to `next`, or ends.
    fn leave_orphan(&self, txn: &mut dyn Txn, fid: Fid, next: Option<SessionId>) -> Result<(), Fault>;
    /// The session that keeps an orphan.
    fn orphan_holder(&self, view: &dyn View, fid: Fid) -> Option<SessionId>;
    /// No session has the file open for writing any more.
    fn rest(&self, txn: &mut dyn Txn, fid: Fid, era: u64) -> Result<(), Fault>;
    /// Up to `max` files of the unlink log, in the order of their records. It reads no record behind the last one.
    fn dead_list(&self, view: &dyn View, max: usize) -> Vec<(Fid, Layout)>;
    /// Is this a record of the unlink log?
    fn is_dead(&self, key: &Key) -> bool;
    /// Removes a record of the unlink log, after its objects were destroyed.
    fn forget_dead(&self, txn: &mut dyn Txn, fid: Fid, generation: Generation);
    /// Are the records those of `meta::counts`?
    fn counts(&self) -> bool {
        false
    }
    /// Inodes in use.
    fn inodes(&self, view: &dyn View) -> u64;
}

/// The rules of crate `meta`.
#[derive(Clone, Copy, Debug, Default)]
pub struct MetaRules;

impl Rules for MetaRules {
    fn is_mutation(&self, call: u16) -> Option<bool> {
        meta::is_mutation(call)
    }
    fn mutate(
        &self,
        ctx: &Ctx<'_>,
        txn: &mut dyn Txn,
        call: u16,
        body: &[u8],
        bulk: &[u8],
    ) -> Result<Vec<u8>, Fault> {
        meta::mutate(ctx, txn, call, body, bulk)
    }
    fn read(
        &self,
        ctx: &Ctx<'_>,
        view: &dyn View,
        call: u16,
        body: &[u8],
        reply: &mut Vec<u8>,
        out: &mut Buf,
    ) -> Result<(), Fault> {
        meta::read(ctx, view, call, body, reply, out)
    }
    fn claimed(&self, call: u16, body: &[u8]) -> Option<Cred> {
        meta::claimed(call, body)
    }
    fn format(&self, txn: &mut dyn Txn, now: Time) {
        meta::format(txn, now)
    }
    fn is_formatted(&self, view: &dyn View) -> bool {
        view.get(&meta::keys::inode(Fid::ROOT)).is_some()
    }
    fn needed(&self) -> Vec<Key> {
        let (totals, counted) = (meta::keys::TOTAL, meta::keys::COUNTS);
        let [totals, counted] = [totals, counted].map(meta::keys::kind_start);
        vec![meta::keys::inode(Fid::ROOT), totals, counted]
    }
    fn orphans(&self, view: &dyn View, after: Fid, max: usize) -> Vec<(Fid, SessionId)> {
        meta::orphans(view, after, max)
    }
    fn orphan_in(&self, key: &Key, value: &[u8]) -> Option<SessionId> {
        meta::orphan_in(key, value)
    }
    fn reap(&self, txn: &mut dyn Txn, fid: Fid) -> Result<(), Fault> {
        meta::reap(txn, fid)
    }
    fn leave_orphan(&self, txn: &mut dyn Txn, fid: Fid, next: Option<SessionId>) -> Result<(), Fault> {
        meta::leave_orphan(txn, fid, next)
    }
    fn orphan_holder(&self, view: &dyn View, fid: Fid) -> Option<SessionId> {
        meta::orphan_holder(view, fid)
    }
    fn rest(&self, txn: &mut dyn Txn, fid: Fid, era: u64) -> Result<(), Fault> {
        meta::rest(txn, fid, era)
    }
    fn dead_list(&self, view: &dyn View, max: usize) -> Vec<(Fid, Layout)> {
        meta::dead_list(view, max)
    }
    fn is_dead(&self, key: &Key) -> bool {
        meta::is_dead(key)
    }
    fn forget_dead(&self, txn: &mut dyn Txn, fid: Fid, generation: Generation) {
        meta::forget_dead(txn, fid, generation)
    }
    fn counts(&self) -> bool {
        true
    }
    fn inodes(&self, view: &dyn View) -> u64 {
        meta::totals(view).inodes
    }
}
