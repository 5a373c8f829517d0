//! Operations on names: trees, files, directories, with mdtest's meaning.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};

use anyhow::{Context, Result, ensure};
use rustix::fs::{Advice, AtFlags, Mode, OFlags, StatxFlags};

use super::Shared;
use super::meter::{Clock, Counted, Did, Gauge, now_ns};
use super::order::Turns;
use super::tree::Tree;
use crate::content::Content;
use crate::job::{Names, NamesOp, Order};
use crate::pattern::{Mark, next};

/// One worker's part of a names job.
pub struct Namer<'a> {
    names: &'a Names,
    content: &'a Content,
    /// Whose items are visited.
    whose: u32,
    tree: Tree,
    turns: Turns,
    bytes: Vec<u8>,
    /// Of `Ask`.
    file: Option<File>,
}

impl<'a> Namer<'a> {
    pub fn new(shared: &'a Shared<'a>, names: &'a Names, worker: u32) -> Result<Namer<'a>> {
        let job = shared.job;
        // A worker creates only its own items.
        let makes = matches!(names.op, NamesOp::Create | NamesOp::MakeDir);
        let shift = if makes { 0 } else { names.shift };
        let whose = job.shifted(worker, shift);
        let base = shared.root.join(&names.root);
        let root = if names.shared { base.clone() } else { base.join(format!("w.{whose}")) };
        let tree = Tree::new(names, &root)?;
        let mut seed = job.seed ^ (u64::from(worker) << 32) ^ 0x6e61_6d65;
        let all = tree.item_dirs().checked_mul(names.items_per_dir);
        let all = all.context("there are more than 2^64 items: lower items-per-dir, branch or depth")?;
        let is_of_tree = matches!(names.op, NamesOp::MakeTree | NamesOp::RemoveTree);
        let count = match names.op {
            // Of a shared tree one worker makes all.
            NamesOp::MakeTree | NamesOp::RemoveTree if names.shared && worker > 0 => 0,
            NamesOp::MakeTree | NamesOp::RemoveTree => tree.count(),
            NamesOp::Ask => names.items_per_dir,
            _ => job.holds.get(whose as usize).map_or(all, |held| all.min(*held)),
        };
        let order = if is_of_tree { Order::Sequential } else { names.order };
        let turns = Turns::new(count, order, next(&mut seed));
        // One byte more than there should be, so that a file that is too long shows.
        let len = names.write_bytes.max(names.read_bytes.saturating_add(1));
        let bytes = vec![0; usize::try_from(len).context("the bytes of a file")?];
        let mut namer = Namer { names, content: shared.content, whose, tree, turns, bytes, file: None };
        let len = names.write_bytes as usize;
        namer.content.fill(Mark { file: 0, version: names.version }, 0, &mut namer.bytes[..len]);
        if names.op == NamesOp::MakeTree && !names.null {
            // The parent of the trees is not measured; the first directory of each tree is.
            let above = if names.shared { base.parent().unwrap_or(&base) } else { &base };
            std::fs::create_dir_all(above).with_context(|| format!("making {}", above.display()))?;
        }
        if names.op == NamesOp::Ask && !names.null {
            let path = base.join(format!("ask.{worker}"));
            std::fs::create_dir_all(&base).with_context(|| format!("making {}", base.display()))?;
            namer.file = Some(File::create(&path).with_context(|| format!("making {}", path.display()))?);
            // The open file stays usable; its name would block the removal of the tree.
            std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
        if job.forget_pages && names.op == NamesOp::Read {
            namer.forget_pages(count)?;
        }
        Ok(namer)
    }

    fn forget_pages(&self, count: u64) -> Result<()> {
        let mut path = String::new();
        for index in 0..count {
            self.path(index, &mut path);
            let file = File::open(&path).with_context(|| path.clone())?;
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).ok();
        }
        Ok(())
    }

    /// Puts the path of item `index` into `path`.
    fn path(&self, index: u64, path: &mut String) {
        self.tree.item_dir(index / self.names.items_per_dir, path);
        let kind = match self.names.op {
            NamesOp::MakeDir | NamesOp::StatDir | NamesOp::RemoveDir => "dir",
            _ => "file",
        };
        let (whose, item) = (self.whose, index % self.names.items_per_dir);
        write!(path, "/{kind}.{whose}.{item}").expect("writing to a string cannot fail");
    }

    pub fn run(&mut self, clock: Clock<'a>, gauge: &Gauge) -> Result<Counted> {
        let mut counted = Counted::new(&clock);
        let mut path = String::with_capacity(4096);
        let mut now = clock.begin_ns;
        let mut begun = 0;
        'epochs: for epoch in 0..self.names.epochs.max(1) {
            if epoch > 0 {
                self.turns.again();
            }
            while !clock.is_over(now) {
                let Some(turn) = self.turns.next() else { continue 'epochs };
                let Some(due) = clock.wait_turn(begun, now) else { break 'epochs };
                begun += 1;
                let bytes = self.before(turn, &mut path);
                let from = if due == now { now_ns() } else { due };
                let done = if self.names.null { Ok(()) } else { self.operate(&path) };
                now = now_ns();
                done.with_context(|| format!("{} {path}", verb_of(self.names.op)))?;
                let did = match self.names.op {
                    NamesOp::Read => Did::Read,
                    _ => Did::Other,
                };
                counted.count(did, bytes, from, now, gauge);
                self.after(turn, &path, &mut counted)?;
            }
            break;
        }
        self.file = None;
        counted.end_ns = now_ns();
        Ok(counted)
    }

    /// The unmeasured preparation of an operation; returns the bytes that it will move.
    fn before(&mut self, turn: u64, path: &mut String) -> u64 {
        match self.names.op {
            NamesOp::MakeTree => self.tree.dir(turn, path),
            NamesOp::RemoveTree => self.tree.dir(self.tree.count() - 1 - turn, path),
            NamesOp::Ask => return 0,
            _ => self.path(turn, path),
        }
        match self.names.op {
            NamesOp::Create => {
                let len = self.names.write_bytes as usize;
                let mark = self.mark(turn);
                self.content.refill(mark, 0, &mut self.bytes[..len]);
                self.names.write_bytes
            }
            NamesOp::Read => self.names.read_bytes,
            _ => 0,
        }
    }

    fn mark(&self, turn: u64) -> Mark {
        Mark { file: u64::from(self.whose) << 32 | turn, version: self.names.version }
    }

    fn operate(&mut self, path: &str) -> Result<()> {
        match self.names.op {
            NamesOp::MakeTree | NamesOp::MakeDir => std::fs::create_dir(path)?,
            NamesOp::RemoveTree | NamesOp::RemoveDir => std::fs::remove_dir(path)?,
            NamesOp::Create => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                let mut file = File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))?);
                if self.names.write_bytes > 0 {
                    file.write_all(&self.bytes[..self.names.write_bytes as usize])?;
                }
                if self.names.flush {
                    file.sync_all()?;
                }
            }
            NamesOp::Read => {
                let access = if self.names.open_to_write { OFlags::RDWR } else { OFlags::RDONLY };
                let mut file = File::from(rustix::fs::open(path, access | OFlags::CLOEXEC, Mode::empty())?);
                let want = self.names.read_bytes as usize;
                // As mdtest: nothing to read is not asked for.
                if want == 0 {
                    return Ok(());
                }
                let whole = want as u64 == self.names.write_bytes;
                // A whole file is asked for one byte more, which a file that is too long gives.
                let ask = if whole { want + 1 } else { want };
                let got = file.read(&mut self.bytes[..ask])?;
                ensure!(got == want, "{got} bytes were read, not {want}");
            }
            // stat(2), as mdtest and most programs ask: statx(2) with the birth time is a request more on FUSE.
            NamesOp::Stat => {
                let len = rustix::fs::stat(path)?.st_size as u64;
                let want = self.names.write_bytes;
                ensure!(len == want, "it has {len} bytes, not {want}");
            }
            NamesOp::StatDir => {
                rustix::fs::stat(path)?;
            }
            NamesOp::Remove => std::fs::remove_file(path)?,
            NamesOp::Ask => {
                let file = self.file.as_ref().context("a file was made for it")?;
                let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
                rustix::fs::statx(file, "", flags, StatxFlags::BASIC_STATS)?;
            }
        }
        Ok(())
    }

    fn after(&mut self, turn: u64, path: &str, counted: &mut Counted) -> Result<()> {
        if self.names.null {
            return Ok(());
        }
        match self.names.op {
            NamesOp::Read => {
                let read = &self.bytes[..self.names.read_bytes as usize];
                let mark = self.mark(turn);
                let checked = self.content.check(mark.file, &[mark.version], 0, read);
                counted.checked += checked.with_context(|| path.to_owned())?;
                let is_whole = self.names.read_bytes > 0 && self.names.read_bytes == self.names.write_bytes;
                counted.checked.sizes += u64::from(is_whole);
            }
            NamesOp::Stat => counted.checked.sizes += 1,
            _ => {}
        }
        Ok(())
    }
}

/// For messages.
fn verb_of(op: NamesOp) -> &'static str {
    match op {
        NamesOp::MakeTree => "making the tree of",
        NamesOp::RemoveTree => "removing the tree of",
        NamesOp::Create => "creating",
        NamesOp::Stat | NamesOp::StatDir => "stat of",
        NamesOp::Read => "reading",
        NamesOp::Remove | NamesOp::RemoveDir => "removing",
        NamesOp::MakeDir => "making",
        NamesOp::Ask => "asking for the attributes of",
    }
}
