//! Linearizability checker for recorded histories of name space calls. A history holds, for each call of concurrent clients, its
//! start time, end time and result. It is *linearizable* if the reference model of the name space gives the same results for some
//! sequential order, in which each call takes effect between its start and its end. A call without an end takes effect at some
//! moment after its start, or never.
//!
//! The search is Wing and Gong's, with Lowe's set of visited configurations. A configuration is the set of completed calls and the
//! name space after them. The checker refuses a history only after it has tried every order.
//!
//! A history can be written as text, so that a refused one can be kept and judged again: see `History::parse`.

mod text;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use meta::model::{Model, Node};
use parking_lot::Mutex;
use types::{Code, Kind};

/// The directories that names are in. They are there from the beginning to the end.
pub const DIRS: [char; 2] = ['d', 'e'];
/// A configuration names the calls that are done by bits.
const CALLS_MAX: usize = 128;

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub dir: char,
    pub name: char,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Create(Place),
    Link {
        fid: u64,
        to: Place,
    },
    Unlink(Place),
    Rename {
        from: Place,
        to: Place,
        noreplace: bool,
    },
    /// By name.
    Stat(Place),
    /// By number.
    Look(u64),
    List(char),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Done,
    File {
        fid: u64,
        nlink: u32,
    },
    /// In order of names.
    Names(Vec<(char, u64)>),
    No(Code),
}

/// A call of a client. Times come from one counter that all clients share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub client: u32,
    pub op: Op,
    pub began: u64,
    /// End time and result. `None`: unknown whether the call took effect.
    pub ended: Option<(u64, Said)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(pub Vec<Call>);

/// Records a history while the clients run.
#[derive(Default)]
pub struct Recorder {
    now: AtomicU64,
    calls: Mutex<Vec<Call>>,
}

impl Recorder {
    /// Runs and records a call. `run` returns its result, or `None` if that is unknown.
    pub fn call(&self, client: u32, op: Op, run: impl FnOnce() -> Option<Said>) -> Option<Said> {
        let at = {
            let mut calls = self.calls.lock();
            let began = self.now.fetch_add(1, Ordering::SeqCst);
            calls.push(Call { client, op, began, ended: None });
            calls.len() - 1
        };
        let said = run();
        if let Some(said) = said.clone() {
            let ended = self.now.fetch_add(1, Ordering::SeqCst);
            self.calls.lock()[at].ended = Some((ended, said));
        }
        said
    }

    pub fn history(self) -> History {
        History(self.calls.into_inner())
    }
}

/// Why a history is not linearizable: the longest order that the model accepts, and the calls of which none can come next.
#[derive(Debug)]
pub struct Refusal {
    told: Vec<Call>,
    stuck_at: Vec<Call>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "no order of these calls is possible; the longest begins with")?;
        self.told.iter().try_for_each(|call| writeln!(f, "  {call}"))?;
        writeln!(f, "and none of these can be next:")?;
        self.stuck_at.iter().try_for_each(|call| writeln!(f, "  {call}"))
    }
}

impl History {
    /// Searches for a sequential order; the refusal shows how far the search came.
    pub fn judge(&self) -> Result<(), Refusal> {
        self.judge_as(None)
    }

    /// As `judge`, of calls that came through the kernels of so many mounts: client `n` at mount `n % mounts`. Two exceptions of docs/SEMANTICS.md
    /// hold there.
    ///
    /// 1. A kernel looks up the two names of a rename one after the other, and answers by itself that it is done if both are the same file. Another
    ///    mount may have moved the file between the two looks.
    /// 2. While a call that changes names waits for its answer, a look at these names by the same mount may tell what was there before.
    pub fn judge_of_kernels(&self, mounts: u32) -> Result<(), Refusal> {
        self.judge().or_else(|_| self.judge_as(Some(mounts)))
    }

    fn judge_as(&self, mounts: Option<u32>) -> Result<(), Refusal> {
        assert!(self.0.len() <= CALLS_MAX, "{} calls are more than a configuration has bits", self.0.len());
        let (visited, order, longest) = Default::default();
        let mut search = Search { calls: &self.0, mounts, visited, order, longest };
        if search.goes_on(0, &World::new()) {
            return Ok(());
        }
        let done = search.longest.iter().fold(0u128, |done, n| done | 1 << n);
        let call = |n: usize| self.0[n].clone();
        Err(Refusal {
            told: search.longest.iter().copied().map(call).collect(),
            stuck_at: search.next(done).into_iter().map(call).collect(),
        })
    }
}

struct Search<'a> {
    calls: &'a [Call],
    /// `None`: calls reach the file system directly.
    mounts: Option<u32>,
    visited: HashSet<(u128, Vec<u64>)>,
    order: Vec<usize>,
    longest: Vec<usize>,
}

impl Search<'_> {
    /// Whether every call that ended can be ordered after the calls in `done`. Calls without an end may be left out.
    fn goes_on(&mut self, done: u128, world: &World) -> bool {
        let is_told = |(n, call): (usize, &Call)| call.ended.is_none() || done & 1 << n != 0;
        if self.calls.iter().enumerate().all(is_told) {
            return true;
        }
        if self.order.len() > self.longest.len() {
            self.longest.clone_from(&self.order);
        }
        if !self.visited.insert((done, world.key(self.calls))) {
            return false;
        }
        for n in self.next(done) {
            let call = &self.calls[n];
            let mut then = world.clone();
            if then.under_way.remove(&n).is_some() {
                if self.goes_on_after(n, done, &then) {
                    return true;
                }
                continue;
            }
            if then.takes(n, call) && self.goes_on_after(n, done, &then) {
                return true;
            }
            let Some(mounts) = self.mounts else { continue };
            let is_told_old =
                world.tells_old(call, |of| self.calls[of].client % mounts == call.client % mounts);
            let is_answered = is_told_old || world.is_one_file(n, call);
            if is_answered && self.goes_on_after(n, done, world) {
                return true;
            }
            let mut then = world.clone();
            if then.looks_at_old_name(n, call) && self.goes_on(done, &then) {
                return true;
            }
            let mut then = world.clone();
            if then.takes_before_answer(n, call) && self.goes_on(done, &then) {
                return true;
            }
        }
        false
    }

    fn goes_on_after(&mut self, n: usize, done: u128, then: &World) -> bool {
        self.order.push(n);
        let goes_on = self.goes_on(done | 1 << n, then);
        if !goes_on {
            self.order.pop();
        }
        goes_on
    }

    /// The calls that may take effect next: those that began before the first end of any remaining call. Calls that ended come first,
    /// since the others may be left out.
    fn next(&self, done: u128) -> Vec<usize> {
        let left = || (0..self.calls.len()).filter(|n| done & 1 << n == 0);
        let end = |n: usize| self.calls[n].ended.as_ref().map(|(at, _)| *at);
        let first_end = left().filter_map(end).min().unwrap_or(u64::MAX);
        let mut next: Vec<_> = left().filter(|n| self.calls[*n].began < first_end).collect();
        next.sort_by_key(|n| end(*n).unwrap_or(u64::MAX));
        next
    }
}

/// The model, and the inode number of each of its files. A file whose create call has no end gets the first number seen for it.
#[derive(Clone)]
struct World {
    model: Model,
    dirs: HashMap<char, Node>,
    /// For each node, the call that created it, and its number once that is known.
    files: HashMap<Node, (usize, Option<u64>)>,
    /// The file that a kernel has found under the old name of a rename, by the call.
    looked: BTreeMap<usize, Node>,
    /// Names that calls without an answer have changed, with the files that these led to before.
    under_way: BTreeMap<usize, Vec<(Place, Option<Node>)>>,
}

impl World {
    fn new() -> World {
        let mut model = Model::default();
        let dirs = DIRS.map(|dir| (dir, model.make(0, &name(dir), Kind::Dir).expect("nothing is there yet")));
        World {
            model,
            dirs: dirs.into(),
            files: HashMap::new(),
            looked: BTreeMap::new(),
            under_way: BTreeMap::new(),
        }
    }

    /// Identifies this world: each name with the call that created its file, and the numbers that no create result reported.
    fn key(&self, calls: &[Call]) -> Vec<u64> {
        let mut key = vec![];
        for dir in DIRS {
            let inode = self.model.inode(self.dirs[&dir]).expect("directories stay");
            for (name, node) in &inode.children {
                key.extend([u64::from(name[0]), self.files[node].0 as u64]);
            }
            key.push(u64::MAX);
        }
        let open_ended = self.files.values().filter(|(by, _)| calls[*by].ended.is_none());
        let mut seen: Vec<_> = open_ended.filter_map(|(by, fid)| Some((*by as u64, (*fid)?))).collect();
        seen.sort();
        key.extend(seen.into_iter().flat_map(|(by, fid)| [by, fid]));
        key.push(u64::MAX);
        key.extend(self.looked.iter().flat_map(|(call, node)| [*call as u64, self.files[node].0 as u64]));
        key.push(u64::MAX);
        for (call, names) in &self.under_way {
            key.push(*call as u64);
            key.extend(
                names.iter().map(|(_, node)| node.map_or(u64::MAX, |node| self.files[&node].0 as u64)),
            );
        }
        key
    }

    fn look_up(&self, at: Place) -> Option<Node> {
        self.model.lookup(self.dirs[&at.dir], &name(at.name)).ok()
    }

    /// Call `n` takes effect, and its mount has not heard so. False: it has changed no name, or the model gives another result.
    fn takes_before_answer(&mut self, n: usize, call: &Call) -> bool {
        let names = match (call.op, &call.ended) {
            (Op::Create(at), Some((_, Said::File { .. }))) | (Op::Unlink(at), Some((_, Said::Done))) => {
                vec![at]
            }
            (Op::Rename { from, to, .. }, Some((_, Said::Done))) => vec![from, to],
            _ => return false,
        };
        let before = names.into_iter().map(|at| (at, self.look_up(at))).collect();
        self.takes(n, call) && self.under_way.insert(n, before).is_none()
    }

    /// The result of a look is what was there before a call that is under way at the same mount.
    fn tells_old(&self, call: &Call, is_of_mount: impl Fn(usize) -> bool) -> bool {
        let (Op::Stat(at), Some((_, said))) = (call.op, &call.ended) else { return false };
        let tells = |before: &Option<Node>| match (before, said) {
            (None, Said::No(Code::NotFound)) => true,
            (Some(node), Said::File { fid, .. }) => self.files[node].1 == Some(*fid),
            _ => false,
        };
        let mut names = self.under_way.iter().filter(|(n, _)| is_of_mount(**n)).flat_map(|(_, names)| names);
        names.any(|(name, before)| *name == at && tells(before))
    }

    /// The kernel's look at the old name of rename `n`, which is done by its answer. False: it has looked, or there is nothing to see.
    fn looks_at_old_name(&mut self, n: usize, call: &Call) -> bool {
        let Op::Rename { from, noreplace: false, .. } = call.op else { return false };
        let is_done = call.ended.as_ref().is_some_and(|(_, said)| *said == Said::Done);
        match self.look_up(from) {
            Some(node) if is_done && !self.looked.contains_key(&n) => self.looked.insert(n, node).is_none(),
            _ => false,
        }
    }

    /// The kernel finds the file that it has seen under the old name of rename `n` under the new one, too.
    fn is_one_file(&self, n: usize, call: &Call) -> bool {
        let Op::Rename { to, .. } = call.op else { return false };
        let found = self.look_up(to);
        found.is_some() && found == self.looked.get(&n).copied()
    }

    /// Applies call number `n`. False: the model gives another result, or the call has no end and changes nothing. The caller then
    /// drops this world.
    fn takes(&mut self, n: usize, call: &Call) -> bool {
        let said = call.ended.as_ref().map(|(_, said)| said);
        if said.is_none() && matches!(call.op, Op::Stat(_) | Op::Look(_) | Op::List(_)) {
            return false;
        }
        let outcome = match call.op {
            Op::Create(at) => self.create(n, at, said),
            Op::Link { fid, to } => self.link(fid, to, said),
            Op::Unlink(at) => self.model.unlink(self.dirs[&at.dir], &name(at.name)).map(|()| Said::Done),
            Op::Rename { from, to, noreplace } => {
                let (old, new) = (self.dirs[&from.dir], self.dirs[&to.dir]);
                let done = self.model.rename(old, &name(from.name), new, &name(to.name), (noreplace, false));
                done.map(|_| Said::Done)
            }
            Op::Stat(at) => self.stat(at, said),
            Op::Look(fid) => self.look(fid),
            Op::List(dir) => return said.is_some_and(|said| self.lists(dir, said)),
        };
        match (outcome, said) {
            // A refused call without a recorded result has no effect; the search covers that by leaving the call out.
            (outcome, None) => outcome.is_ok(),
            (Ok(outcome), Some(said)) => outcome == *said,
            (Err(code), Some(Said::No(other))) => code == *other,
            (Err(_), Some(_)) => false,
        }
    }

    fn create(&mut self, n: usize, at: Place, said: Option<&Said>) -> Result<Said, Code> {
        let node = self.model.make(self.dirs[&at.dir], &name(at.name), Kind::File)?;
        self.files.insert(node, (n, None));
        match said {
            Some(Said::File { fid, .. }) => self.file(node, *fid),
            _ => Ok(Said::Done),
        }
    }

    fn link(&mut self, fid: u64, to: Place, said: Option<&Said>) -> Result<Said, Code> {
        let (dir, name) = (self.dirs[&to.dir], name(to.name));
        let Some(node) = self.alive(fid) else {
            // A file without names cannot be linked again. While it is still open, the existing new name may be noticed first.
            let is_taken = self.model.lookup(dir, &name).is_ok();
            let is_exists = is_taken && said == Some(&Said::No(Code::Exists));
            return Err(if is_exists { Code::Exists } else { Code::Stale });
        };
        self.model.link(node, dir, &name)?;
        self.file(node, fid)
    }

    fn stat(&mut self, at: Place, said: Option<&Said>) -> Result<Said, Code> {
        let node = self.model.lookup(self.dirs[&at.dir], &name(at.name))?;
        match said {
            Some(Said::File { fid, .. }) => self.file(node, *fid),
            _ => Ok(Said::Done),
        }
    }

    fn look(&mut self, fid: u64) -> Result<Said, Code> {
        match self.alive(fid) {
            Some(node) => self.file(node, fid),
            None => Err(Code::Stale),
        }
    }

    fn lists(&mut self, dir: char, said: &Said) -> bool {
        let Said::Names(seen) = said else { return false };
        let children = self.model.inode(self.dirs[&dir]).expect("directories stay").children.clone();
        children.len() == seen.len()
            && children.iter().zip(seen).all(|((name, node), (other, fid))| {
                *name == self::name(*other) && self.file(*node, *fid).is_ok()
            })
    }

    /// The file that has this number and a name.
    fn alive(&self, fid: u64) -> Option<Node> {
        let has = |(node, (_, known)): (&Node, &(usize, Option<u64>))| (*known == Some(fid)).then_some(*node);
        self.files.iter().find_map(has).filter(|node| self.model.inode(*node).is_ok())
    }

    /// The file, if it has this number or may have it.
    fn file(&mut self, node: Node, fid: u64) -> Result<Said, Code> {
        let is_of_another = self.files.iter().any(|(n, (_, known))| *n != node && *known == Some(fid));
        let known = &mut self.files.get_mut(&node).expect("every file was made by a call").1;
        if is_of_another || *known.get_or_insert(fid) != fid {
            return Err(Code::Damaged);
        }
        Ok(Said::File { fid, nlink: self.model.inode(node)?.nlink })
    }
}

fn name(of: char) -> Vec<u8> {
    of.to_string().into_bytes()
}

/// The result of a failed call. For a request by number, several codes mean that the file has no names any more.
pub fn refused(op: Op, code: Code) -> Said {
    match op {
        Op::Link { .. } | Op::Look(_) if code == Code::NotFound => Said::No(Code::Stale),
        _ => Said::No(code),
    }
}

#[cfg(test)]
mod tests;
