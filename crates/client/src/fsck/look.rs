//! Looks at a confirmed finding alone before it is reported.
//!
//! Two pages of a listing have different states, so a file that grows and is cut again and again can look wrong in both rounds.
//!
//! client-FS1: a look between two equal answers about the inode saw a stable file, so it decides.
//! client-FS2: a file that is never stable is reported if each look showed the finding.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::Duration;

use plan::fsck::{About, File, Finding, Problem, still_shows};
use types::Fault;
use wire::meta::ScanRecord;
use wire::object::Capability;

use super::sweep;
use crate::Fs;

/// Looks at one finding, and the pause between two looks. No file is busy for all of that time without a gap.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);
/// Most findings that are looked at alone. More are no coincidence of two listings; the rest is reported as found.
const LOOKS_MAX: usize = 1000;

/// The findings that still show.
pub(super) fn again(fs: &Fs, cap: &Capability, findings: Vec<Finding>) -> Result<Vec<Finding>, Fault> {
    let mut shown = Vec::new();
    for (n, finding) in findings.into_iter().enumerate() {
        if n >= LOOKS_MAX {
            shown.push(finding);
        } else if let Some(finding) = look(fs, cap, finding)? {
            shown.push(finding);
        }
    }
    Ok(shown)
}

fn look(fs: &Fs, cap: &Capability, finding: Finding) -> Result<Option<Finding>, Fault> {
    let fid = finding.about.fid();
    let (mut shows, mut before) = (Some(finding.clone()), sweep::inode(fs, fid)?);
    for _ in 0..TRIES {
        let told = match &before {
            // A removed inode leaves nothing but its objects.
            None if matches!(finding.about, About::Inode(_)) => return Ok(None),
            _ => still_shows(&finding, &about(fs, cap, &finding, before.clone())?),
        };
        let after = sweep::inode(fs, fid)?;
        if finding.kind == Problem::OrphanObject && sweep::is_dead(fs, fid)? {
            return Ok(None);
        }
        if after == before {
            return Ok(told); // client-FS1
        }
        shows = shows.and(told);
        before = after;
        sleep(PAUSE);
    }
    Ok(shows) // client-FS2
}

/// The present state of the finding's file.
fn about(fs: &Fs, cap: &Capability, finding: &Finding, inode: Option<ScanRecord>) -> Result<File, Fault> {
    let fid = finding.about.fid();
    let mut file = File::new(fid);
    let layout = match &inode {
        Some(ScanRecord::Inode { inode, .. }) => inode.layout.clone(),
        _ => None,
    };
    inode.into_iter().for_each(|record| file.add_record(record));
    let mut objects: BTreeSet<_> =
        layout.iter().flat_map(|l| l.objects(fid)).map(|(object, mirror, _)| (mirror, object)).collect();
    if let About::Object(object, mirror) = finding.about {
        objects.retain(|(_, o)| *o == object);
        objects.insert((mirror, object));
    }
    let known: Vec<_> = objects.into_iter().filter(|(mirror, _)| fs.cluster.has_mirror(*mirror)).collect();
    for of_one in known.chunk_by(|a, b| a.0 == b.0) {
        let asked = of_one.iter().map(|(mirror, object)| (*object, *mirror));
        let stats = fs.glimpse(cap, asked, fs.deadline())?;
        stats.into_iter().filter(|s| s.exists).for_each(|s| file.add_object(of_one[0].0, s));
    }
    Ok(file)
}
