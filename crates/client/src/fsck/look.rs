//! A confirmed finding is looked at alone before it is reported.
//!
//! A page of a scan is one moment and the next page another one, so a directory whose subdirectories come and go, or a file
//! that grows and is cut again and again, can look wrong in both rounds. L1: a look between two equal answers about the inode
//! was at something that stood still: it decides. L2: what never stands still is reported if each look showed it.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::Duration;

use plan::fsck::{About, Finding, Problem, Round, still_shows};
use types::{Code, Fault, Fid, Kind};
use wire::codec::Bytes;
use wire::meta::{GetAttr, Inode, ReadDir, ScanRecord};
use wire::object::Capability;

use super::How;
use crate::Fs;

/// Looks at one finding, and the pause between two of them: nothing is busy for all of that time without a gap.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);
/// More than this is no coincidence of two listings, and would take too long: the rest is reported as it was found.
const LOOKS_MAX: usize = 1000;

/// Those of `findings` that still show. `round` is where they were found.
pub(super) fn again(
    fs: &Fs,
    cap: &Capability,
    round: &Round,
    findings: Vec<Finding>,
) -> Result<Vec<Finding>, Fault> {
    let mut shown = Vec::new();
    for (n, finding) in findings.into_iter().enumerate() {
        if n >= LOOKS_MAX {
            shown.push(finding);
        } else if let Some(finding) = look(fs, cap, round, finding)? {
            shown.push(finding);
        }
    }
    Ok(shown)
}

fn look(fs: &Fs, cap: &Capability, round: &Round, finding: Finding) -> Result<Option<Finding>, Fault> {
    let fid = finding.about.fid();
    let (mut shows, mut before) = (Some(finding.clone()), inode(fs, fid)?);
    for _ in 0..TRIES {
        let told = match &before {
            // An inode that went took everything but its objects along.
            None if matches!(finding.about, About::Inode(_)) => return Ok(None),
            _ => still_shows(&finding, &about(fs, cap, round, &finding, before.clone())?),
        };
        let after = inode(fs, fid)?;
        if after == before {
            return Ok(told); // L1
        }
        shows = shows.and(told);
        before = after;
        sleep(PAUSE);
    }
    Ok(shows) // L2
}

/// What the finding can be told from, as it is now.
fn about(
    fs: &Fs,
    cap: &Capability,
    round: &Round,
    finding: &Finding,
    inode: Option<Inode>,
) -> Result<Round, Fault> {
    let mut look = Round::new();
    let fid = finding.about.fid();
    let layout = inode.as_ref().and_then(|i| i.layout.clone());
    let kind = inode.as_ref().map_or(Kind::File, |i| i.attr.kind);
    let is_dir = kind == Kind::Dir;
    let links = inode.as_ref().map_or(0, |i| i.attr.nlink);
    if finding.kind == Problem::UnreachableInode && inode.is_some() && links == 0 {
        // Without a name it is somebody's orphan, or lost. Its orphan record comes with the last name's end and goes with the
        // inode, so it is there now or never was.
        super::scan(fs, Bytes::default(), How::TOOL.page, |_, record| {
            if matches!(record, ScanRecord::Orphan { fid: orphan, .. } if orphan == fid) {
                look.add_record(record);
            }
        })?;
    }
    if let Some(inode) = inode {
        look.add_record(ScanRecord::Inode { inode, inline_bytes: 0, parents: vec![], pending: None });
    }
    let names_are_judged = match finding.kind {
        Problem::UnreachableInode | Problem::TwoNames | Problem::DanglingEntry | Problem::WrongKind => true,
        Problem::LinkCount => !is_dir,
        _ => false,
    };
    if !names_are_judged && links > 0 && fid != Fid::ROOT {
        // Its own name is not in question: any will do.
        look.add_record(ScanRecord::Entry { parent: Fid::ROOT, name: b"."[..].into(), fid, kind });
    }
    match finding.kind {
        Problem::LinkCount if is_dir => entries(fs, fid, &mut look, |_, kind| kind == Kind::Dir)?,
        Problem::LinkCount
        | Problem::UnreachableInode
        | Problem::TwoNames
        | Problem::DanglingEntry
        | Problem::WrongKind => {
            let mut parents = round.parents_of(fid);
            if let About::Name { parent, .. } = &finding.about {
                parents = BTreeSet::from([*parent]);
            }
            for parent in parents {
                entries(fs, parent, &mut look, |named, _| named == fid)?;
            }
        }
        Problem::OrphanObject | Problem::MissingObject | Problem::MisplacedObject | Problem::SizeMismatch => {
            let mut objects: BTreeSet<_> = layout
                .iter()
                .flat_map(|l| l.objects(fid))
                .map(|(object, mirror, _)| (mirror, object))
                .collect();
            if let About::Object(object, mirror) = finding.about {
                objects.retain(|(_, o)| *o == object);
                objects.insert((mirror, object));
            }
            let known: Vec<_> =
                objects.into_iter().filter(|(mirror, _)| fs.cluster.has_mirror(*mirror)).collect();
            for of_one in known.chunk_by(|a, b| a.0 == b.0) {
                let asked = of_one.iter().map(|(mirror, object)| (*object, *mirror));
                let stats = fs.glimpse(cap, asked, fs.deadline())?;
                stats.into_iter().filter(|s| s.exists).for_each(|s| look.add_object(of_one[0].0, s));
            }
        }
        Problem::SlowPurge => {}
    }
    Ok(look)
}

fn inode(fs: &Fs, fid: Fid) -> Result<Option<Inode>, Fault> {
    match fs.ask(fid, &GetAttr { fid }) {
        Ok(inode) => Ok(Some(inode)),
        Err(fault) if fault.code == Code::Stale => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// Adds the wanted entries of a directory; of one that is gone there are none.
fn entries(fs: &Fs, dir: Fid, look: &mut Round, is_wanted: impl Fn(Fid, Kind) -> bool) -> Result<(), Fault> {
    let mut cookie = 0;
    loop {
        let reply = match fs
            .ask(dir, &ReadDir { dir, cookie, max: How::TOOL.page, plus: false, cred: types::Cred::root() })
        {
            Err(fault) if matches!(fault.code, Code::Stale | Code::NotDir) => return Ok(()),
            reply => reply?,
        };
        let last = reply.entries.last().map(|e| e.cookie);
        for e in reply.entries.into_iter().filter(|e| is_wanted(e.fid, e.kind)) {
            look.add_record(ScanRecord::Entry { parent: dir, name: e.name, fid: e.fid, kind: e.kind });
        }
        match last {
            Some(last) if reply.more => cookie = last,
            _ => return Ok(()),
        }
    }
}
