//! Repairs with a single safe answer, each a transaction of its own. No repair drops content, or a name that leads to an inode.

use types::*;
use wire::check::Wrong;

use crate::inode::{DIR_BLOCKS, DIR_SIZE, add_hint, load_inode, move_link, store_inode};
use crate::names::{self, Slot};
use crate::records::{EntryRecord, InodeRecord, Parent};
use crate::totals::{self, Totals};
use crate::{Txn, View, keys, reap};

use super::judge::{inode_of, is_name_of, subdirs_of};
use super::{Finding, Findings, Off};

/// The directory for files without a name.
pub const LOST_AND_FOUND: &[u8] = b"lost+found";

/// The effect of `repair`, for people; empty if there is no single safe answer.
pub fn repair_of(finding: &Finding) -> &'static str {
    match finding.wrong {
        Wrong::DamagedRecord if finding.lost_before().is_some() => {
            "they are given up for good: their names and content cannot be recovered afterwards"
        }
        Wrong::LostEntry | Wrong::DanglingEntry => "the name is removed",
        Wrong::MisplacedEntry => "the name is moved to the key of its hash",
        Wrong::WrongKind => "the name gets the kind of its inode",
        Wrong::BadHint => "the hints without a name are removed",
        Wrong::MissingHint => "the inode gets a hint for the name",
        Wrong::StaleOrphan => "the orphan's record is removed, and its inode if it has no name",
        Wrong::UnreachableInode => "it gets the name /lost+found/#FID",
        Wrong::LinkCount => "the count is set to what was counted",
        Wrong::Leftover => "the record is removed",
        Wrong::WrongCounts | Wrong::WrongTotals => "the sums are set to what was counted",
        Wrong::DamagedRecord
        | Wrong::MalformedRecord
        | Wrong::BadName
        | Wrong::DoubleName
        | Wrong::TwoNames
        | Wrong::Loop
        | Wrong::BadLayout => "",
    }
}

/// Repairs finding `n` if it still shows. Counts need `counts_too_much` instead.
pub fn repair(txn: &mut dyn Txn, findings: &Findings, n: usize, now: Time) -> Result<bool, Fault> {
    let Some(finding) = findings.confirm(txn, n) else { return Ok(false) };
    let (key, fid) = (finding.key, keys::parse_fid(&finding.key).unwrap_or_default());
    match finding.wrong {
        Wrong::LostEntry | Wrong::DanglingEntry | Wrong::Leftover => txn.delete(&key),
        Wrong::MisplacedEntry => return put_in_place(txn, &key),
        Wrong::WrongKind => {
            let (at, entry) = entry_at(txn, &key)?;
            let inode = load_inode(txn, entry.fid)?;
            names::put_entry(txn, at, entry.fid, inode.attr.kind, &entry.name);
        }
        Wrong::BadHint => {
            let mut inode = load_inode(txn, fid)?;
            let mut kept = Vec::new();
            for hint in std::mem::take(&mut inode.parents) {
                if !kept.contains(&hint) && is_name_of(txn, hint, fid) {
                    kept.push(hint);
                }
            }
            inode.parents = kept;
            store_placed(txn, &inode);
        }
        Wrong::MissingHint => {
            let (at, entry) = entry_at(txn, &key)?;
            let mut inode = load_inode(txn, entry.fid)?;
            add_hint(&mut inode, at);
            store_placed(txn, &inode);
        }
        Wrong::StaleOrphan => {
            let names = inode_of(txn, fid).map_or(0, |inode| inode.parents.len());
            match names {
                0 => reap::reap(txn, fid)?,
                _ => txn.delete(&key),
            }
        }
        Wrong::UnreachableInode => find_a_place(txn, fid, now)?,
        Wrong::LinkCount => {
            let mut inode = load_inode(txn, fid)?;
            let named = inode.parents.iter().filter(|hint| is_name_of(txn, **hint, fid)).count() as u32;
            let names = named + findings.unhinted_now(txn, fid);
            inode.attr.nlink = match (fid == Fid::ROOT || names > 0, inode.is_dir()) {
                (true, true) => 2 + subdirs_of(txn, fid),
                _ => names,
            };
            store_inode(txn, &inode);
        }
        Wrong::WrongTotals => {
            let Off::Inodes(off) = finding.off else { return Ok(false) };
            let inodes = totals::totals(txn).inodes.wrapping_sub(off);
            txn.put(keys::kind_start(keys::TOTAL), Totals { inodes }.encode());
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// The repair of counts takes two entries, with no other entry between them: the first puts this record, the second deletes it.
///
/// A record that is put is a fold: its increase over the old record is taken from the rows, so the sum stays as wrong as before (meta-D3
/// of `counts`). A deleted record takes its sums along. So the first entry makes the record exactly the excess, and the second removes
/// it.
pub fn counts_too_much(view: &dyn View, findings: &Findings, n: usize) -> Option<(Key, Vec<u8>)> {
    let finding = findings.confirm(view, n)?;
    match finding.off {
        Off::Counts(off) => Some((keys::counts(keys::parse_fid(&finding.key)?), off.encode())),
        _ => None,
    }
}

/// Stores an inode whose first hint may have changed. Counts learn from an entry that a directory moves (`counts`, `may_move_dir`), so
/// the directory's entry is put again unchanged.
fn store_placed(txn: &mut dyn Txn, inode: &InodeRecord) {
    store_inode(txn, inode);
    let key = inode.parents.first().map(|first| names::key_of(*first)).filter(|_| inode.is_dir());
    if let Some(key) = key
        && let Some(value) = txn.get(&key).map(|value| value.into_owned())
    {
        txn.put(key, value);
    }
}

fn entry_at(txn: &dyn Txn, key: &Key) -> Result<(Parent, EntryRecord), Fault> {
    let gone = || Fault::new(Code::NotFound, format!("entry {key:?} is gone"));
    let (fid, h64, collision) = keys::parse_entry(key).ok_or_else(gone)?;
    let value = txn.get(key).ok_or_else(gone)?;
    let entry = EntryRecord::decode(&value).map_err(|_| gone())?;
    Ok((Parent { fid, h64, collision }, entry))
}

/// Moves an entry to the key at which lookups search for its name, if that is free. If the key already leads to the same inode, this
/// entry is redundant.
fn put_in_place(txn: &mut dyn Txn, key: &Key) -> Result<bool, Fault> {
    let (from, entry) = entry_at(txn, key)?;
    let mut inode = inode_of(txn, entry.fid);
    let to = match names::find_slot(txn, from.fid, &entry.name)? {
        Slot::Free(at) => at,
        Slot::Taken(found) if found.entry.fid == entry.fid => found.at,
        Slot::Taken(_) => return Ok(false),
    };
    txn.delete(key);
    names::put_entry(txn, to, entry.fid, entry.kind, &entry.name);
    if let Some(inode) = &mut inode {
        match inode.parents.contains(&to) {
            true => inode.parents.retain(|hint| *hint != from),
            false => move_link(inode, from, to),
        }
        store_inode(txn, inode);
    }
    Ok(true)
}

/// Gives the inode a name in /lost+found, which is made if it does not exist.
fn find_a_place(txn: &mut dyn Txn, fid: Fid, now: Time) -> Result<(), Fault> {
    let mut dir = match names::find_slot(txn, Fid::ROOT, LOST_AND_FOUND)? {
        Slot::Taken(found) => load_inode(txn, found.entry.fid)?,
        Slot::Free(at) => {
            let dir = lost_and_found(txn.next_fid(), at, now);
            let mut root = load_inode(txn, Fid::ROOT)?;
            root.attr.nlink += 1;
            store_inode(txn, &root);
            store_inode(txn, &dir);
            names::put_entry(txn, at, dir.fid(), Kind::Dir, LOST_AND_FOUND);
            totals::inode_made(txn);
            dir
        }
    };
    if !dir.is_dir() {
        return Err(Fault::new(Code::NotDir, "/lost+found is no directory; move it, and repair again"));
    }
    let mut inode = load_inode(txn, fid)?;
    let name = format!("#{fid}");
    let Slot::Free(at) = names::find_slot(txn, dir.fid(), name.as_bytes())? else {
        return Err(Fault::new(
            Code::Exists,
            format!("/lost+found/{name} is there; move it, and repair again"),
        ));
    };
    inode.parents = vec![at];
    inode.attr.ctime = now;
    inode.attr.nlink = if inode.is_dir() { 2 + subdirs_of(txn, fid) } else { 1 };
    store_inode(txn, &inode);
    names::put_entry(txn, at, fid, inode.attr.kind, name.as_bytes());
    if inode.is_dir() {
        dir.attr.nlink += 1;
        store_inode(txn, &dir);
    }
    Ok(())
}

fn lost_and_found(fid: Fid, at: Parent, now: Time) -> InodeRecord {
    let mut dir = InodeRecord::new(Attr {
        fid,
        kind: Kind::Dir,
        mode: 0o700,
        uid: 0,
        gid: 0,
        nlink: 2,
        rdev: 0,
        size: DIR_SIZE,
        blocks: DIR_BLOCKS,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
    });
    dir.parents.push(at);
    dir
}
