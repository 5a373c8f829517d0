//! The interface between executor and rules. `MetaRules` are the rules of crate `meta`. Tests have a few simple rules of their own, so that
//! they show the executor's promises for any rules.

use lease::Touch;
use meta::below::{Below, Check};
use meta::ids::Ids;
use meta::{Ctx, Txn, View};
use types::{Buf, Cred, Fault, Fid, Generation, Key, Layout, SessionId, Time};

pub trait Rules: Send + Sync {
    /// True if the call changes something. `None`: there is no such call.
    fn is_mutation(&self, call: u16) -> Option<bool>;
    /// Carries out a mutating call. Returns the reply's body without its head.
    fn mutate(
        &self,
        ctx: &Ctx<'_>,
        txn: &mut dyn Txn,
        call: u16,
        body: &[u8],
        bulk: &[u8],
    ) -> Result<Vec<u8>, Fault>;
    /// Answers a reading call. Appends the body without its head to `reply`, and bulk bytes to `out`.
    fn read(
        &self,
        ctx: &Ctx<'_>,
        view: &dyn View,
        call: u16,
        body: &[u8],
        reply: &mut Vec<u8>,
        out: &mut Buf,
    ) -> Result<(), Fault>;
    /// The credentials that a request claims.
    fn claimed(&self, _call: u16, _body: &[u8]) -> Option<Cred> {
        None
    }
    /// True if a node that may only read must not make the call.
    fn is_change(&self, call: u16, _body: &[u8]) -> bool {
        self.is_mutation(call) == Some(true)
    }
    /// The request with mapped ids; `None`: it has none.
    fn request_ids(&self, _call: u16, _body: &[u8], _ids: &Ids<'_>) -> Result<Option<Vec<u8>>, Fault> {
        Ok(None)
    }
    /// The reply to `body` with mapped ids; `None`: it has none.
    fn reply_ids(&self, _: u16, _body: &[u8], _reply: &[u8], _: &Ids<'_>) -> Result<Option<Vec<u8>>, Fault> {
        Ok(None)
    }
    /// How a call is checked against its session's root.
    fn root_check(&self, _call: u16, _body: &[u8]) -> Result<Check, Fault> {
        Ok(Check::Free)
    }
    /// Refuses a call that names a file outside of its session's root.
    fn check_root(&self, _: &Ctx<'_>, _: &dyn View, _call: u16, _body: &[u8]) -> Result<(), Fault> {
        Ok(())
    }
    /// True if the file exists and the session may use it.
    fn may_hold(&self, _: &Ctx<'_>, _: &dyn View, _: Fid) -> Result<bool, Fault> {
        Ok(true)
    }
    fn is_dir_below(&self, _: &dyn View, _: &dyn Below, _: Fid) -> bool {
        false
    }
    /// The directory of a path, name by name.
    fn dir_of_path(&self, _: &dyn View, _: &mut dyn Iterator<Item = &str>) -> Result<Option<Fid>, Fault> {
        Ok(None)
    }
    /// Makes a new name space.
    fn format(&self, txn: &mut dyn Txn, now: Time);
    /// True if `format` was done here.
    fn is_formatted(&self, view: &dyn View) -> bool;
    /// Records that a start or any change needs. Checkpoints have a copy of each.
    fn needed(&self) -> Vec<Key> {
        Vec::new()
    }
    /// Up to `max` orphans behind `after`, with the sessions that hold them.
    fn orphans(&self, view: &dyn View, after: Fid, max: usize) -> Vec<(Fid, SessionId)>;
    /// The session that holds an orphan, if this is its record.
    fn orphan_in(&self, key: &Key, value: &[u8]) -> Option<SessionId>;
    /// Removes an orphan. Its objects go to the unlink log.
    fn reap(&self, txn: &mut dyn Txn, fid: Fid) -> Result<(), Fault>;
    /// Releases an orphan. Its next holder is `next`; without one it is removed.
    fn leave_orphan(&self, txn: &mut dyn Txn, fid: Fid, next: Option<SessionId>) -> Result<(), Fault>;
    /// The session that holds an orphan.
    fn orphan_holder(&self, view: &dyn View, fid: Fid) -> Option<SessionId>;
    /// The last writer of the file has closed it.
    fn rest(&self, txn: &mut dyn Txn, fid: Fid, era: u64) -> Result<(), Fault>;
    /// Up to `max` records of the unlink log, in order. Reads none behind the last.
    fn dead_list(&self, view: &dyn View, max: usize) -> Vec<(Fid, Layout)>;
    /// True for keys of the unlink log.
    fn is_dead(&self, key: &Key) -> bool;
    /// Deletes a record of the unlink log, after its objects were destroyed.
    fn forget_dead(&self, txn: &mut dyn Txn, fid: Fid, generation: Generation);
    /// What a change of this record touches, of all that clients may cache.
    fn touch_of(&self, _key: &Key) -> Option<Touch> {
        None
    }
    /// The directory of an inode with this record.
    fn parent_in(&self, _fid: Fid, _record: &[u8]) -> Option<Fid> {
        None
    }
    /// The inode with this record is a directory that has subdirectories.
    fn has_dirs(&self, _fid: Fid, _record: &[u8]) -> bool {
        false
    }
    /// The directory whose lease a request may ask for.
    fn leased_dir(&self, _call: u16, _body: &[u8]) -> Option<Fid> {
        None
    }
    /// The directory of the inode whose attributes a call asks for by fid.
    fn dir_of_attributes(&self, _view: &dyn View, _call: u16, _body: &[u8]) -> Option<Fid> {
        None
    }
    /// The inodes whose attributes a reading call answers, as of now. `None`: their attributes are not leased.
    fn answers_for(&self, _view: &dyn View, _call: u16, _body: &[u8]) -> Option<Vec<Fid>> {
        None
    }
    /// The directory of an inode.
    fn parent_of(&self, _view: &dyn View, _fid: Fid) -> Option<Fid> {
        None
    }
    /// Directories that a call is about (`meta::concerned`).
    fn concerned(&self, _view: &dyn View, _call: u16, _body: &[u8]) -> Vec<Fid> {
        Vec::new()
    }
    /// The inline limit that a directory sets; `None`: it cannot be leased for changes (`meta::plain_dir`).
    fn plain_dir(&self, _view: &dyn View, _dir: Fid) -> Option<Option<u32>> {
        None
    }
    /// True if the rules use `meta::counts`.
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
    fn is_change(&self, call: u16, body: &[u8]) -> bool {
        meta::ids::is_change(call, body)
    }
    fn request_ids(&self, call: u16, body: &[u8], ids: &Ids<'_>) -> Result<Option<Vec<u8>>, Fault> {
        meta::ids::request_ids(call, body, ids)
    }
    fn reply_ids(
        &self,
        call: u16,
        body: &[u8],
        reply: &[u8],
        ids: &Ids<'_>,
    ) -> Result<Option<Vec<u8>>, Fault> {
        meta::ids::reply_ids(call, body, reply, ids)
    }
    fn root_check(&self, call: u16, body: &[u8]) -> Result<Check, Fault> {
        meta::below::named(call, body)
    }
    fn check_root(&self, ctx: &Ctx<'_>, view: &dyn View, call: u16, body: &[u8]) -> Result<(), Fault> {
        meta::below::check(ctx, view, call, body)
    }
    fn may_hold(&self, ctx: &Ctx<'_>, view: &dyn View, fid: Fid) -> Result<bool, Fault> {
        ctx.may_hold(view, fid)
    }
    fn is_dir_below(&self, view: &dyn View, root: &dyn Below, dir: Fid) -> bool {
        meta::below::is_dir_below(root, view, dir)
    }
    fn dir_of_path(
        &self,
        view: &dyn View,
        names: &mut dyn Iterator<Item = &str>,
    ) -> Result<Option<Fid>, Fault> {
        meta::below::dir_of_path(view, names)
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
    fn touch_of(&self, key: &Key) -> Option<Touch> {
        if let Some((dir, h64, _)) = meta::keys::parse_entry(key) {
            return Some(Touch::Name { dir, h64 });
        }
        meta::keys::fid_of_inode(key).map(|fid| Touch::Attr { fid })
    }
    fn parent_in(&self, fid: Fid, record: &[u8]) -> Option<Fid> {
        meta::parent_in(fid, record)
    }
    fn has_dirs(&self, fid: Fid, record: &[u8]) -> bool {
        meta::has_dirs(fid, record)
    }
    fn leased_dir(&self, call: u16, body: &[u8]) -> Option<Fid> {
        meta::leased_dir(call, body)
    }
    fn dir_of_attributes(&self, view: &dyn View, call: u16, body: &[u8]) -> Option<Fid> {
        meta::dir_of_attributes(view, call, body)
    }
    fn answers_for(&self, view: &dyn View, call: u16, body: &[u8]) -> Option<Vec<Fid>> {
        meta::answers_for(view, call, body)
    }
    fn parent_of(&self, view: &dyn View, fid: Fid) -> Option<Fid> {
        meta::parent_of(view, fid)
    }
    fn concerned(&self, view: &dyn View, call: u16, body: &[u8]) -> Vec<Fid> {
        meta::concerned(view, call, body)
    }
    fn plain_dir(&self, view: &dyn View, dir: Fid) -> Option<Option<u32>> {
        meta::plain_dir(view, dir)
    }
    fn counts(&self) -> bool {
        true
    }
    fn inodes(&self, view: &dyn View) -> u64 {
        meta::totals(view).inodes
    }
}
