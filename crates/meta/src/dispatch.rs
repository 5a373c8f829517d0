//! Dispatch by call number: decodes the request, runs its rule, encodes the reply body (without its head).
//!
//! Bodies that do not decode are `BadRequest`. Numbers that are not metadata calls, or are of the other sort (read or change), are
//! `Unsupported`.

use types::{Buf, Code, Fault};
use wire::accessed::Accessed;
use wire::codec::Malformed;
use wire::meta::*;
use wire::shared::Enter;
use wire::{Request, Wire};

use crate::judge::Claimed;
use crate::{Ctx, Txn, View};
use crate::{
    accessed, below, create, fallocate, flags, getattr, grow, inline, link, lookup, migrate, mkdir, open,
    path_of, readdir, readlink, reap, rename, rmdir, scan, setattr, settle, stripe, symlink, tail, tmpfile,
    truncate, unlink, xattr,
};

/// Usual size of a reply in bytes: an inode and a few more fields.
const REPLY_BYTES: usize = 192;

macro_rules! table {
    ($($request:ident)*) => { &[$(($request::CALL, $request::MUTATES)),*] };
}

/// Every metadata call, and whether it changes records.
const CALLS: &[(u16, bool)] = table! {
    Lookup GetAttr SetAttr Create MakeDir Symlink Link Unlink RemoveDir Rename ReadLink ReadDir GetXattr SetXattr RemoveXattr
    ListXattr Open Release ReadInline Grow Switch Settle Truncate SetStripe GetStripe PathOf Scan SetFlags Tmpfile
    OpenRead CreateWith WriteInline GetAttrs PathsOf MoveTail Migrate CutOver DropPending Repoint AllocateInline SeekInline Enter Accessed
};

/// The lowest number of a metadata call. All of them lie within the length of `KINDS`.
const FIRST: u16 = 0x0200;

/// Indexed by call number less `FIRST`, so that a request needs no search.
const KINDS: [Option<bool>; 0x80] = {
    let (mut kinds, mut n) = ([None; 0x80], 0);
    while n < CALLS.len() {
        let (number, mutates) = CALLS[n];
        kinds[(number - FIRST) as usize] = Some(mutates);
        n += 1;
    }
    kinds
};

/// True if `call` changes records; `None` if it is not a metadata call.
pub fn is_mutation(call: u16) -> Option<bool> {
    *KINDS.get(usize::from(call.checked_sub(FIRST)?))?
}

/// Carries out a call that changes records. After an error the transaction must be dropped.
pub fn mutate(
    ctx: &Ctx<'_>,
    txn: &mut dyn Txn,
    call: u16,
    body: &[u8],
    bulk: &[u8],
) -> Result<Vec<u8>, Fault> {
    below::check(ctx, txn, call, body)?;
    match call {
        SetAttr::CALL => answer_as(ctx, body, |r| setattr::setattr(ctx, txn, r)),
        Create::CALL => answer_as(ctx, body, |r| create::create(ctx, txn, r)),
        CreateWith::CALL => answer_as(ctx, body, |r| create::create_with(ctx, txn, r, bulk)),
        MakeDir::CALL => answer_as(ctx, body, |r| mkdir::mkdir(ctx, txn, r)),
        Symlink::CALL => answer_as(ctx, body, |r| symlink::symlink(ctx, txn, r)),
        Link::CALL => answer_as(ctx, body, |r| link::link(ctx, txn, r)),
        Unlink::CALL => answer_as(ctx, body, |r| unlink::unlink(ctx, txn, r)),
        RemoveDir::CALL => answer_as(ctx, body, |r| rmdir::rmdir(ctx, txn, r)),
        Rename::CALL => answer_as(ctx, body, |r| rename::rename(ctx, txn, r)),
        SetXattr::CALL => answer_as(ctx, body, |r| xattr::set_xattr(ctx, txn, r)),
        RemoveXattr::CALL => answer_as(ctx, body, |r| xattr::remove_xattr(ctx, txn, r)),
        Open::CALL => answer_as(ctx, body, |r| open::open(ctx, txn, r)),
        Accessed::CALL => answer_as(ctx, body, |r| accessed::accessed(ctx, txn, r)),
        Enter::CALL => answer(body, |r| open::enter(ctx, txn, r)),
        Release::CALL => answer(body, |r| reap::release(ctx, txn, r)),
        WriteInline::CALL => answer(body, |r| inline::write_inline(ctx, txn, r, bulk)),
        AllocateInline::CALL => answer(body, |r| fallocate::allocate_inline(ctx, txn, r)),
        Grow::CALL => answer(body, |r| grow::grow(ctx, txn, r)),
        Switch::CALL => answer(body, |r| grow::switch(ctx, txn, r)),
        MoveTail::CALL => answer(body, |r| tail::move_tail(ctx, txn, r)),
        Migrate::CALL => answer(body, |r| migrate::migrate(ctx, txn, r)),
        CutOver::CALL => answer(body, |r| migrate::cut_over(ctx, txn, r)),
        DropPending::CALL => answer(body, |r| migrate::drop_pending(ctx, txn, r)),
        Repoint::CALL => answer(body, |r| migrate::repoint(ctx, txn, r)),
        Settle::CALL => answer(body, |r| settle::settle(ctx, txn, r)),
        Truncate::CALL => answer_as(ctx, body, |r| truncate::truncate(ctx, txn, r)),
        SetStripe::CALL => answer_as(ctx, body, |r| stripe::set_stripe(ctx, txn, r)),
        SetFlags::CALL => answer_as(ctx, body, |r| flags::set_flags(ctx, txn, r)),
        Tmpfile::CALL => answer_as(ctx, body, |r| tmpfile::tmpfile(ctx, txn, r)),
        _ => Err(unsupported(call)),
    }
}

/// Carries out a call that only reads: the reply's body is appended to `reply`, its bulk bytes go to `out`. After an error their content
/// is void.
pub fn read(
    ctx: &Ctx<'_>,
    view: &dyn View,
    call: u16,
    body: &[u8],
    reply: &mut Vec<u8>,
    out: &mut Buf,
) -> Result<(), Fault> {
    below::check(ctx, view, call, body)?;
    match call {
        Lookup::CALL => {
            let LookupRef { parent, name, mut cred } =
                LookupRef::from_bytes(body).map_err(malformed(call))?;
            if let Some(judge) = &ctx.judge {
                cred.clone_from(&judge.cred);
            }
            lookup::lookup(ctx, view, parent, name, &cred)?.put(reply);
            Ok(())
        }
        GetAttr::CALL => tell(body, reply, |r| getattr::getattr(ctx, view, r)),
        GetAttrs::CALL => tell(body, reply, |r| getattr::getattrs(ctx, view, r)),
        ReadLink::CALL => tell(body, reply, |r| readlink::readlink(ctx, view, r)),
        ReadDir::CALL => tell_as(ctx, body, reply, |r| readdir::readdir(ctx, view, r)),
        GetXattr::CALL => tell_as(ctx, body, reply, |r| xattr::get_xattr(ctx, view, r)),
        ListXattr::CALL => tell_as(ctx, body, reply, |r| xattr::list_xattr(ctx, view, r)),
        ReadInline::CALL => tell(body, reply, |r| inline::read_inline(ctx, view, r, out)),
        OpenRead::CALL => tell_as(ctx, body, reply, |r| open::open_read(ctx, view, r, out)),
        SeekInline::CALL => tell(body, reply, |r| fallocate::seek_inline(ctx, view, r)),
        GetStripe::CALL => tell(body, reply, |r| stripe::get_stripe(ctx, view, r)),
        PathOf::CALL => tell(body, reply, |r| path_of::path_of(ctx, view, r)),
        PathsOf::CALL => tell(body, reply, |r| path_of::paths_of(ctx, view, r)),
        Scan::CALL => tell(body, reply, |r| scan::scan(ctx, view, r)),
        _ => Err(unsupported(call)),
    }
}

fn answer<R: Request>(
    body: &[u8],
    rule: impl FnOnce(R) -> Result<R::Reply, Fault>,
) -> Result<Vec<u8>, Fault> {
    let mut reply = Vec::with_capacity(REPLY_BYTES);
    tell(body, &mut reply, rule)?;
    Ok(reply)
}

/// As `answer`, appended to a body that has a head already.
fn tell<R: Request>(
    body: &[u8],
    reply: &mut Vec<u8>,
    rule: impl FnOnce(R) -> Result<R::Reply, Fault>,
) -> Result<(), Fault> {
    let request = R::from_bytes(body).map_err(malformed(R::CALL))?;
    rule(request)?.put(reply);
    Ok(())
}

fn malformed(call: u16) -> impl Fn(Malformed) -> Fault {
    move |e| Fault::new(Code::BadRequest, format!("call {call:#06x}: {e}"))
}

/// As `answer`, for a request with a `Cred`: in a judged session the judge's `Cred` replaces it (meta-J1).
fn answer_as<R: Claimed>(
    ctx: &Ctx<'_>,
    body: &[u8],
    rule: impl FnOnce(R) -> Result<R::Reply, Fault>,
) -> Result<Vec<u8>, Fault> {
    answer(body, |request| rule(judged(ctx, request)))
}

fn tell_as<R: Claimed>(
    ctx: &Ctx<'_>,
    body: &[u8],
    reply: &mut Vec<u8>,
    rule: impl FnOnce(R) -> Result<R::Reply, Fault>,
) -> Result<(), Fault> {
    tell(body, reply, |request| rule(judged(ctx, request)))
}

fn judged<R: Claimed>(ctx: &Ctx<'_>, mut request: R) -> R {
    if let Some(judge) = &ctx.judge {
        request.cred_mut().clone_from(&judge.cred);
    }
    request
}

fn unsupported(call: u16) -> Fault {
    Fault::new(Code::Unsupported, format!("{call:#06x} is no metadata call of this sort"))
}

#[cfg(test)]
mod tests;
