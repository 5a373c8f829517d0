//! Objects of all OSTs and inodes of the MDT side by side, in the order of files.
//!
//! For each range of files the objects are listed first, so that an object that is made meanwhile is missing from the list rather than without
//! an inode. The unlink log comes last, since it has the files that were removed meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use plan::fsck::{File, Round};
use types::{Fault, Fid, MirrorId};
use wire::codec::Bytes;
use wire::meta::{Scan, ScanRecord};
use wire::object::{Capability, List, ObjectStat};

use crate::Fs;
use crate::session::link::Link;

/// The key behind which a scan goes on.
pub type Cursor = Bytes;

/// Kinds of records, in the order of a scan.
const INODES: u8 = 2;
const DEAD: u8 = 6;

/// The cursor before the first inode.
pub fn inodes() -> Cursor {
    cursor(INODES, None)
}

/// The cursor before the first record of a kind, or behind the record of a file.
fn cursor(kind: u8, behind: Option<Fid>) -> Cursor {
    let mut key = vec![kind];
    key.extend(behind.into_iter().flat_map(|fid| fid.0.to_be_bytes()));
    Bytes(key)
}

/// Objects of one mirror, a page at a time.
struct Mirror {
    id: MirrorId,
    link: Arc<Link>,
    listed: Vec<ObjectStat>,
    more: bool,
}

impl Mirror {
    /// The file up to which all objects are listed.
    fn reaches(&self) -> Fid {
        match self.listed.last() {
            // Further objects of the last file may be on the next page.
            Some(last) if self.more => Fid(last.object.fid.0.saturating_sub(1)),
            _ if self.more => Fid(0),
            _ => Fid(u64::MAX),
        }
    }

    fn next_page(&mut self, fs: &Fs, cap: &Capability, max: u32) -> Result<(), Fault> {
        let after = self.listed.last().map(|stat| stat.object);
        let reply = self.link.ask(Fid(0), &List { cap: cap.clone(), after, max }, fs.deadline())?.reply;
        self.more = reply.more && !reply.objects.is_empty();
        self.listed.extend(reply.objects);
        Ok(())
    }
}

/// Runs one round. Also returns the cursor of the unlink log.
pub fn round(fs: &Fs, cap: &Capability, page: u32) -> Result<(Round, Cursor), Fault> {
    let mut round = Round::default();
    let osts = fs.cluster.osts().into_iter();
    let mut mirrors: Vec<Mirror> =
        osts.map(|(id, link)| Mirror { id, link, listed: Vec::new(), more: true }).collect();
    let mut behind = Fid(0);
    loop {
        // 1. List objects up to a file. Mirrors with larger pages have some beyond it.
        let mut objects = BTreeMap::<Fid, Vec<(MirrorId, ObjectStat)>>::new();
        for mirror in &mut mirrors {
            while mirror.more && mirror.reaches() <= behind {
                mirror.next_page(fs, cap, page)?;
            }
        }
        let upto = mirrors.iter().map(Mirror::reaches).min().unwrap_or(Fid(u64::MAX));
        for mirror in &mut mirrors {
            let here = mirror.listed.partition_point(|stat| stat.object.fid <= upto);
            // The last one stays while there are more, since the next page begins behind it.
            let rest = mirror.listed.split_off(here);
            for stat in std::mem::replace(&mut mirror.listed, rest) {
                objects.entry(stat.object.fid).or_default().push((mirror.id, stat));
            }
        }
        // 2. Scan the inodes of this range.
        scan(fs, cursor(INODES, Some(behind)), page, &mut |record| {
            let ScanRecord::Inode { inode, .. } = &record else { return false };
            let fid = inode.attr.fid;
            if fid > upto {
                return false;
            }
            let mut file = File::new(fid);
            for (mirror, stat) in objects.remove(&fid).into_iter().flatten() {
                file.add_object(mirror, stat);
            }
            file.add_record(record);
            round.add_file(&file);
            true
        })?;
        // 3. Take objects without an inode.
        for (fid, of_it) in objects {
            let mut file = File::new(fid);
            of_it.into_iter().for_each(|(mirror, stat)| file.add_object(mirror, stat));
            round.add_file(&file);
        }
        if upto == Fid(u64::MAX) {
            break;
        }
        behind = upto;
    }
    let queue = cursor(DEAD, None);
    scan(fs, queue.clone(), page, &mut |record| {
        if let ScanRecord::Dead { fid, layout } = record {
            round.add_dead(fid, layout.generation);
        }
        true
    })?;
    Ok((round, queue))
}

/// Scans records behind a cursor, until `each` returns true or the kind of the cursor's first byte ends.
pub fn scan(
    fs: &Fs,
    mut after: Cursor,
    page: u32,
    each: &mut dyn FnMut(ScanRecord) -> bool,
) -> Result<(), Fault> {
    let kind = after.first().copied();
    loop {
        let reply = fs.ask(Fid::ROOT, &Scan { after: after.clone(), max: page })?;
        for record in reply.records {
            if !each(record) {
                return Ok(());
            }
        }
        if !reply.more || reply.last.first().copied() > kind {
            return Ok(());
        }
        after = reply.last;
    }
}

/// The inode record of a file, if it has one.
pub fn inode(fs: &Fs, fid: Fid) -> Result<Option<ScanRecord>, Fault> {
    first(fs, cursor(INODES, Some(Fid(fid.0.saturating_sub(1)))), |record| match record {
        ScanRecord::Inode { inode, .. } => inode.attr.fid == fid,
        _ => false,
    })
}

/// True if the unlink log has a record of the file.
pub fn is_dead(fs: &Fs, fid: Fid) -> Result<bool, Fault> {
    let of_it = |record: &ScanRecord| matches!(record, ScanRecord::Dead { fid: dead, .. } if *dead == fid);
    Ok(first(fs, cursor(DEAD, Some(fid)), of_it)?.is_some())
}

fn first(fs: &Fs, after: Cursor, is_it: impl Fn(&ScanRecord) -> bool) -> Result<Option<ScanRecord>, Fault> {
    let reply = fs.ask(Fid::ROOT, &Scan { after, max: 1 })?;
    Ok(reply.records.into_iter().next().filter(is_it))
}
