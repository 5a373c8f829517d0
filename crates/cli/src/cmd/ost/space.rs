//! `stria ost space`: the use of the OSTs' space: free space and its fragmentation, objects, and waste.

use std::time::SystemTime;

use clap::Args;
use serde::Serialize;
use types::ObjectId;
use types::size::human;
use wire::map::Target;
use wire::ost::{OstAmount, OstClass, OstObjects, OstSpace, OstSpaceReply};

use super::{OnOsts, ask, ask_each, ended, ratio, shown};
use crate::exit::Exit;
use crate::reach::Reach;

/// Show how the space of OSTs is used: free, used, waiting, reserved, granted to clients; waste by sub-block class; how free space and objects are
/// fragmented. It looks at every object, a few at a time; nobody waits for it.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: stria ost space --dir /tmp/s --target 0\nExample: stria ost space /mnt/stria -j"
)]
pub struct Space {
    #[command(flatten)]
    on: OnOsts,
}

#[derive(Debug, Serialize)]
struct Line {
    target: String,
    bytes_total: u64,
    bytes_used: u64,
    bytes_free: u64,
    bytes_waiting: u64,
    bytes_discarding: u64,
    bytes_reserved: u64,
    bytes_reserve: u64,
    bytes_granted: u64,
    grants: Vec<Grant>,
    sub_block_bytes: u64,
    objects: u64,
    objects_with_bytes: u64,
    bytes_stored: u64,
    bytes_allocated: u64,
    /// Percentage of the stored bytes.
    waste_percent: Option<f64>,
    classes: Vec<Class>,
    fragments_per_object: Option<f64>,
    fragments_per_gib: Option<f64>,
    fragments_max: u64,
    free_runs: Vec<Runs>,
    largest_run_bytes: u64,
    /// Percentage of the free space.
    free_in_runs_from_1m_percent: Option<f64>,
}

/// Space that is granted to a client.
#[derive(Debug, Serialize)]
struct Grant {
    session: u64,
    bytes: u64,
}

/// Extents of up to `bytes` and of more than half that; the last class has longer ones, too.
#[derive(Debug, Serialize)]
struct Class {
    bytes: u64,
    extents: u64,
    bytes_allocated: u64,
    bytes_stored: u64,
}

/// Free runs of at least `bytes` and of less than twice that.
#[derive(Debug, Serialize)]
struct Runs {
    bytes: u64,
    count: u64,
    bytes_free: u64,
}

const PAGE: u64 = types::PAGE_SIZE as u64;
const MIB: u64 = 1 << 20;

impl Space {
    pub fn run(self) -> anyhow::Result<Exit> {
        let reach = self.on.reach()?;
        let osts = self.on.osts(&reach)?;
        let (answers, silent) = ask_each(&reach, &osts, |ost| survey(&reach, ost));
        let lines: Vec<Line> = answers.into_iter().map(|(name, s)| line_of(name, &s)).collect();
        match self.on.place.json {
            true => outln!("{}", serde_json::to_string_pretty(&lines)?),
            false => lines.iter().for_each(print_line),
        }
        ended(silent)
    }
}

/// Joins all parts of one OST's answer.
fn survey(reach: &Reach, ost: &Target) -> anyhow::Result<OstSpaceReply> {
    let part = |after: Option<ObjectId>| {
        let cap = reach.capability(SystemTime::now());
        ask(reach, ost, &OstSpace { cap, after })
    };
    let mut whole = part(None)?;
    let mut next = whole.next_after;
    while next.is_some() {
        let more = part(next)?;
        add(&mut whole.objects, &more.objects);
        next = more.next_after;
    }
    Ok(whole)
}

fn add(sum: &mut OstObjects, part: &OstObjects) {
    sum.objects += part.objects;
    sum.with_bytes += part.with_bytes;
    sum.fragments += part.fragments;
    sum.fragments_max = sum.fragments_max.max(part.fragments_max);
    sum.bytes_reserved += part.bytes_reserved;
    for (s, p) in sum.classes.iter_mut().zip(&part.classes) {
        s.extents += p.extents;
        s.bytes_allocated += p.bytes_allocated;
        s.bytes_stored += p.bytes_stored;
    }
}

fn line_of(target: String, s: &OstSpaceReply) -> Line {
    let o = &s.objects;
    let sum = |of: fn(&OstClass) -> u64| o.classes.iter().map(of).sum::<u64>();
    let (stored, allocated) = (sum(|c| c.bytes_stored), sum(|c| c.bytes_allocated));
    let percent = |part: u64, whole: u64| ratio(part, whole).map(|r| r * 100.0);
    let class = |(i, c): (u32, &OstClass)| Class {
        bytes: PAGE << i,
        extents: c.extents,
        bytes_allocated: c.bytes_allocated,
        bytes_stored: c.bytes_stored,
    };
    let runs = |(i, r): (u32, &OstAmount)| Runs { bytes: PAGE << i, count: r.count, bytes_free: r.bytes };
    let free_runs: Vec<Runs> = (0..).zip(&s.free_runs).map(runs).filter(|r| r.count > 0).collect();
    let in_large = free_runs.iter().filter(|r| r.bytes >= MIB).map(|r| r.bytes_free).sum();
    Line {
        target,
        bytes_total: s.bytes_total,
        bytes_used: s.bytes_total.saturating_sub(s.bytes_free + s.bytes_waiting + s.bytes_discarding),
        bytes_free: s.bytes_free,
        bytes_waiting: s.bytes_waiting,
        bytes_discarding: s.bytes_discarding,
        bytes_reserved: s.bytes_reserved,
        bytes_reserve: s.bytes_reserve,
        bytes_granted: s.grants.iter().map(|g| g.bytes).sum(),
        grants: s.grants.iter().map(|g| Grant { session: g.session.0, bytes: g.bytes }).collect(),
        sub_block_bytes: s.sub_block_bytes,
        objects: o.objects,
        objects_with_bytes: o.with_bytes,
        bytes_stored: stored,
        bytes_allocated: allocated,
        waste_percent: percent(allocated.saturating_sub(stored), stored),
        classes: (0..).zip(&o.classes).map(class).filter(|c| c.extents > 0).collect(),
        fragments_per_object: ratio(o.fragments, o.with_bytes),
        fragments_per_gib: ratio(o.fragments, stored).map(|r| r * (1u64 << 30) as f64),
        fragments_max: o.fragments_max,
        free_in_runs_from_1m_percent: percent(in_large, free_runs.iter().map(|r| r.bytes_free).sum()),
        free_runs,
        largest_run_bytes: s.largest_run_bytes,
    }
}

fn print_line(l: &Line) {
    let of_total = |bytes: u64| {
        let share = ratio(bytes, l.bytes_total).unwrap_or(0.0) * 100.0;
        format!("{:>8} {share:>5.1} %", human(bytes))
    };
    let unit = match l.sub_block_bytes {
        PAGE => "sub-blocks as large as each write needs".into(),
        n => format!("fixed sub-blocks of {}", human(n)),
    };
    outln!("{}: {}, {unit}", l.target, human(l.bytes_total));
    outln!("    used      {}", of_total(l.bytes_used));
    let reserved = (human(l.bytes_reserved), human(l.bytes_reserve));
    outln!(
        "    free      {}  ({} promised to files, {} kept for truncation)",
        of_total(l.bytes_free),
        reserved.0,
        reserved.1
    );
    if !l.grants.is_empty() {
        let each: Vec<_> =
            l.grants.iter().map(|g| format!("{} to session {}", human(g.bytes), g.session)).collect();
        outln!("    granted   {}  ({})", of_total(l.bytes_granted), each.join(", "));
    }
    outln!("    waiting   {}  (superseded; free after the next commit)", of_total(l.bytes_waiting));
    if l.bytes_discarding > 0 {
        outln!("    discarded {}  (free in a moment)", of_total(l.bytes_discarding));
    }
    outln!(
        "    objects   {}: {} stored in {}, waste {} % of what is stored",
        l.objects,
        human(l.bytes_stored),
        human(l.bytes_allocated),
        shown(l.waste_percent)
    );
    outln!(
        "    fragments {} per object, {} per GiB, {} at most",
        shown(l.fragments_per_object),
        shown(l.fragments_per_gib),
        l.fragments_max
    );
    if !l.classes.is_empty() {
        outln!(
            "    {:<16}{:>10}{:>12}{:>12}{:>10}",
            "extents up to",
            "count",
            "allocated",
            "stored",
            "waste"
        );
    }
    for c in &l.classes {
        let waste = c.bytes_allocated.saturating_sub(c.bytes_stored);
        outln!(
            "    {:<16}{:>10}{:>12}{:>12}{:>10}",
            human(c.bytes),
            c.extents,
            human(c.bytes_allocated),
            human(c.bytes_stored),
            human(waste)
        );
    }
    outln!(
        "    free runs: the largest {}, {} % of free space in runs of 1M and more",
        human(l.largest_run_bytes),
        shown(l.free_in_runs_from_1m_percent)
    );
    for r in &l.free_runs {
        outln!("    from {:<11}{:>10}{:>12}", human(r.bytes), r.count, human(r.bytes_free));
    }
}

#[cfg(test)]
mod tests {
    use types::SessionId;
    use wire::ost::OstGrant;

    use super::*;

    fn class(extents: u64, bytes_allocated: u64, bytes_stored: u64) -> OstClass {
        OstClass { extents, bytes_allocated, bytes_stored }
    }

    #[test]
    fn waste_and_fragments_are_of_what_is_stored() {
        let objects = OstObjects {
            objects: 3,
            with_bytes: 2,
            fragments: 5,
            fragments_max: 4,
            bytes_reserved: 0,
            classes: vec![class(1, 4096, 500), class(0, 0, 0), class(4, 1 << 30, (1 << 30) - 500)],
        };
        let run = |count, bytes| OstAmount { count, bytes };
        let mut free_runs = vec![run(0, 0); 32];
        (free_runs[0], free_runs[8]) = (run(2, 8192), run(1, 3 * 8192));
        let s = OstSpaceReply {
            bytes_total: 100_000,
            bytes_free: 32_768,
            bytes_waiting: 4096,
            bytes_discarding: 0,
            bytes_reserved: 0,
            bytes_reserve: 4096,
            grants: [(7, 4096), (9, 8192)].map(|(s, bytes)| OstGrant { session: SessionId(s), bytes }).into(),
            sub_block_bytes: 4096,
            free_runs,
            largest_run_bytes: 24_576,
            objects,
            next_after: None,
        };
        let mut doubled = s.clone();
        add(&mut doubled.objects, &s.objects);
        for (s, times) in [(s, 1), (doubled, 2)] {
            let l = line_of("t".into(), &s);
            assert_eq!((l.bytes_granted, l.grants.len()), (12_288, 2));
            assert_eq!(l.bytes_used, 100_000 - 32_768 - 4096);
            assert_eq!((l.bytes_stored, l.bytes_allocated), (times << 30, times * ((1 << 30) + 4096)));
            assert_eq!(l.waste_percent, Some(4096.0 / (1u64 << 30) as f64 * 100.0));
            assert_eq!((l.fragments_per_object, l.fragments_per_gib), (Some(2.5), Some(5.0)));
            assert_eq!(l.free_in_runs_from_1m_percent, Some(75.0));
            assert_eq!((l.classes.len(), l.free_runs.len(), l.fragments_max), (2, 2, 4));
        }
    }
}
