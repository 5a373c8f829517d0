//! Equal to ext4: random sequences of 200 calls by three users on the mount and on an ext4 must give the same values and the same
//! errors, and in the end the same tree. With two mounts the calls take turns between them. A sequence that differs is made as short
//! as it can be and printed.
//!
//! `O_DIRECT` is asked for here only: it must give what ext4 gives without. Not compared: sizes of directories, inode numbers,
//! blocks, atime of what is read, times of fifos; what `SEEK_HOLE` and `SEEK_DATA` find between the offset and the end. mmap is for
//! `fsx`, which has it.

mod act;
mod call;
mod reference;
mod tree;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;
use testkit::Wiring;

use self::act::{Outcome, Side};
use self::call::{Call, IMMUTABLE, Node, Step};
use self::reference::Reference;
use super::{Bench, Test, skip};

pub const TESTS: &[Test] = &[("equal::random_calls_give_what_ext4_gives", random_calls)];

const CALLS: usize = 200;
/// So many show whether they have one cause; each takes a while to be made shorter.
const FAILURES_MAX: usize = 4;

fn random_calls(b: &mut Bench) -> Result<()> {
    let reference = Reference::new(&b.cluster.dir)?;
    if !reference.is_ext4() {
        ensure!(b.scale.is_short(), "the long form needs mkfs.ext4 and a loop device to compare with");
        return skip("no mkfs.ext4, or no loop device: nothing to compare with");
    }
    let pair = Pair { b, reference: &reference, times: reference.tells_times()? };
    // Over TCP the calls are the same and take several times as long.
    let part = match b.cluster.wiring() {
        Wiring::Local => 1,
        Wiring::Two if b.scale.is_short() => 10,
        _ => 5,
    };
    let count = b.scale.sequences / part;
    println!(
        "       {count} sequences against ext4 on a loop device{}",
        if pair.times { "" } else { "; its times are too coarse to compare" }
    );
    let mut failures = Vec::new();
    for seed in b.seed..b.seed + count {
        let done = seed - b.seed;
        if done > 0 && done.is_multiple_of(10_000) {
            println!("       {done} sequences done, {} differ", failures.len());
        }
        let mut steps = call::sequence(seed, CALLS);
        if b.cluster.second.is_some() {
            // To the kernel the mounts are two file systems: descriptors, fifos, the process as an owner of fcntl locks, and what
            // `chattr +i` forbids to descriptors of before are of one of them (SEMANTICS, exceptions).
            let is_of_one_mount = |call: &Call| match call {
                Call::LinkFd(..) | Call::Lock(..) | Call::Mknod(_, Node::Fifo, _) => true,
                Call::SetFlags(_, flags) => flags & IMMUTABLE != 0,
                _ => false,
            };
            steps.retain(|s| !is_of_one_mount(&s.call));
        }
        if let Some(what) = pair.differ(&steps)? {
            let (steps, what) = shrink(&pair, steps, what)?;
            let lines: Vec<String> =
                steps.iter().enumerate().map(|(n, s)| format!("         {n}: {s}")).collect();
            failures.push(format!(
                "seed {seed} begins with this, made shorter:\n{}\n       {what}",
                lines.join("\n")
            ));
        }
        if failures.len() == FAILURES_MAX {
            break;
        }
    }
    if !failures.is_empty() {
        bail!("{}", failures.join("\n       "));
    }
    Ok(())
}

/// The two sides; each run gets new directories on both.
struct Pair<'a> {
    b: &'a Bench,
    reference: &'a Reference,
    times: bool,
}

impl Pair<'_> {
    /// The first difference, if any.
    fn differ(&self, steps: &[Step]) -> Result<Option<String>> {
        let ours = self.b.cluster.mount.join("equal");
        let theirs = self.reference.dir.join("equal");
        for dir in [&ours, &theirs] {
            fs::create_dir_all(dir.join("w"))?;
            for made in [dir.clone(), dir.join("w")] {
                fs::set_permissions(made, Permissions::from_mode(0o777))?;
            }
        }
        let seen = self.b.look(&ours);
        let mut places: Vec<PathBuf> = vec![ours.join("w")];
        if seen != ours {
            places.push(seen.join("w"));
        }
        let two = places.len() > 1;
        let got = act::act(&Side { places, two, direct: true, times: self.times }, steps)?;
        let want =
            act::act(&Side { places: vec![theirs.join("w")], two, direct: false, times: self.times }, steps)?;
        let is_immutable = |s: &Step| matches!(s.call, Call::SetFlags(_, flags) if flags & IMMUTABLE != 0);
        let immutable = steps.iter().any(is_immutable);
        // For a call with two reasons to fail, or with nothing to do (a copy from past the end), ext4 refuses for the flag. Here the
        // kernel does not know the flag and gives the other answer first (SEMANTICS, exceptions).
        let is_same = |n: usize, g: &Outcome, w: &Outcome| {
            let said = g.as_deref().unwrap_or("0");
            let other_answer = match &steps[n].call {
                Call::Access(..) => true,
                Call::Write(..) | Call::Pwrite(..) | Call::CopyRange { .. } => {
                    said.split([',', ';']).next() == Some("0")
                }
                _ => g.is_err(),
            };
            g == w || immutable && *w == Err(Errno::PERM) && other_answer
        };
        let mut outcomes = got.iter().zip(&want).enumerate();
        let call = outcomes.position(|(n, (g, w))| !is_same(n, g, w)).map(|n| {
            format!(
                "call {n} of {}: {:?} gives {:?}\n         ext4: {:?}",
                steps.len(),
                steps[n].call,
                got[n],
                want[n]
            )
        });
        let difference = match call {
            Some(difference) => Some(difference),
            None => trees_differ(&[&ours, &seen], &theirs)?,
        };
        for dir in [&ours, &theirs] {
            if immutable {
                tree::make_mutable(dir)?;
            }
            fs::remove_dir_all(dir).with_context(|| dir.display().to_string())?;
        }
        Ok(difference)
    }
}

fn trees_differ(ours: &[&Path], theirs: &Path) -> Result<Option<String>> {
    let want = tree::tree(theirs)?;
    for place in ours {
        if let Some(what) = tree::difference(&tree::tree(place)?, &want) {
            return Ok(Some(format!("the tree: {what}")));
        }
    }
    Ok(None)
}

/// A shrinking that takes longer has made the sequence short enough.
const SHRINK: Duration = Duration::from_secs(60);

/// Leaves out ever smaller runs of calls as long as something still differs (Zeller and Hildebrandt 2002).
fn shrink(pair: &Pair, mut steps: Vec<Step>, mut what: String) -> Result<(Vec<Step>, String)> {
    let began = Instant::now();
    if pair.differ(&steps)?.is_none() {
        return Ok((steps, format!("{what}\n       but it did not differ again: a matter of time")));
    }
    let mut run = steps.len() / 2;
    while run > 0 && began.elapsed() < SHRINK {
        let (mut at, mut left_out) = (0, false);
        while at < steps.len() && began.elapsed() < SHRINK {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + run).min(steps.len()));
            match pair.differ(&fewer)? {
                Some(still) => (steps, what, left_out) = (fewer, still, true),
                None => at += run,
            }
        }
        if !left_out || run > 1 {
            run /= 2;
        }
    }
    Ok((steps, what))
}
