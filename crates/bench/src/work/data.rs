//! Reads and writes: where each transfer lies, and the loops that move them.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use ring::Ring;
use rustix::fs::{Advice, OFlags};

use super::Shared;
use super::meter::{Clock, Counted, Did, Gauge, now_ns};
use super::order::Turns;
use crate::aligned::Aligned;
use crate::content::Content;
use crate::job::{Data, DataOp, Engine, Files, Flush, Order};
use crate::pattern::{Checked, Mark, next};

/// One worker's part of a data job.
pub struct Mover<'a> {
    data: &'a Data,
    content: &'a Content,
    path: PathBuf,
    /// As content names the file.
    file: u64,
    place: Place,
    turns: Turns,
    /// Decides between reads and writes of a mix.
    dice: u64,
    seed: u64,
    way: Way,
    /// Transfers that were done.
    done: u64,
    stop: &'a AtomicBool,
}

enum Way {
    Plain(Aligned),
    Uring(Box<Ring>),
    Null(Aligned),
}

/// Where the transfers of one worker lie in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    transfer_bytes: u64,
    transfers_per_block: u64,
    /// Of the first block, and from one block to the next.
    first: u64,
    stride: u64,
}

impl Place {
    /// The place of worker `whose` of `workers`.
    pub fn new(data: &Data, whose: u32, workers: u32) -> Place {
        let block = data.block_bytes;
        let (rank, sharers) = match &data.files {
            Files::Own { .. } => (0, 1),
            Files::Shared { .. } => (u64::from(whose), u64::from(workers)),
            Files::Given { paths } => {
                let count = paths.len().max(1) as u64;
                let (whose, workers) = (u64::from(whose), u64::from(workers));
                (whose / count, (workers - whose % count).div_ceil(count))
            }
        };
        Place {
            transfer_bytes: data.transfer_bytes,
            transfers_per_block: block / data.transfer_bytes.max(1),
            first: rank * block,
            stride: sharers * block,
        }
    }

    /// Bytes from the file's begin to transfer `turn`.
    pub fn offset(&self, turn: u64) -> u64 {
        let (segment, transfer) = (turn / self.transfers_per_block, turn % self.transfers_per_block);
        self.first + segment * self.stride + transfer * self.transfer_bytes
    }
}

/// Removes old content: a created file starts without pages and blocks. For a shared file one worker does it, before all begin.
fn empty(path: &Path, data: &Data, worker: u32) -> Result<()> {
    if matches!(data.files, Files::Given { .. }) || (matches!(data.files, Files::Shared { .. }) && worker > 0)
    {
        return Ok(());
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Which file worker `whose` has, and how content names it.
pub fn file_of(data: &Data, whose: u32) -> (PathBuf, u64) {
    match &data.files {
        Files::Own { stem } => {
            let mut path = stem.clone().into_os_string();
            path.push(format!(".{whose}"));
            (path.into(), u64::from(whose))
        }
        Files::Shared { path } => (path.clone(), 0),
        Files::Given { paths } => {
            let index = whose as usize % paths.len().max(1);
            (paths.get(index).cloned().unwrap_or_default(), index as u64)
        }
    }
}

impl<'a> Mover<'a> {
    pub fn new(shared: &'a Shared<'a>, data: &'a Data, worker: u32) -> Result<Mover<'a>> {
        let job = shared.job;
        ensure!(data.transfer_bytes > 0, "a transfer of 0 bytes moves nothing");
        // A worker creates only its own files.
        let shift = if data.create { 0 } else { data.shift };
        let whose = job.shifted(worker, shift);
        let (path, file) = file_of(data, whose);
        let path = shared.root.join(path);
        let place = Place::new(data, whose, job.workers);
        let all = place.transfers_per_block.saturating_mul(data.segments);
        let count = job.holds.get(whose as usize).map_or(all, |held| all.min(*held));
        let mut seed = job.seed ^ (u64::from(worker) << 32) ^ data.version;
        let order_seed = next(&mut seed);
        let len = usize::try_from(data.transfer_bytes).context("the transfer size")?;
        let mark = Mark { file, version: data.version };
        let way = match data.engine {
            Engine::Uring { depth } => {
                let mut ring = Ring::new(depth, len).context("io_uring")?;
                let slots: Vec<_> = std::iter::from_fn(|| ring.take()).collect();
                for slot in slots {
                    shared.content.fill(mark, 0, &mut ring.buffer(slot)[..len]);
                    ring.give_back(slot);
                }
                Way::Uring(Box::new(ring))
            }
            engine => {
                let mut buffer = Aligned::new(len).context("memory for a transfer")?;
                shared.content.fill(mark, 0, buffer.get());
                if engine == Engine::Null { Way::Null(buffer) } else { Way::Plain(buffer) }
            }
        };
        if data.create && data.op == DataOp::Write && data.engine != Engine::Null {
            empty(&path, data, worker)?;
        }
        if job.forget_pages && data.op != DataOp::Write {
            let file = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
            // It is advice: a file system that does not take it is read as it is, and the record says "advised".
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).ok();
        }
        let turns = Turns::new(count, data.order, order_seed);
        Ok(Mover {
            data,
            content: shared.content,
            path,
            file,
            place,
            turns,
            dice: seed,
            seed: order_seed,
            way,
            done: 0,
            stop: shared.stop,
        })
    }

    pub fn run(&mut self, clock: Clock<'a>, gauge: &Gauge) -> Result<Counted> {
        let mut counted = Counted::new(&clock);
        if let Way::Null(buffer) = &mut self.way {
            let mut buffer = std::mem::replace(buffer, Aligned::new(0)?);
            let idle = |_: &mut [u8], _: u64| Ok(());
            self.plain_loop(&mut buffer, &clock, &mut counted, gauge, &mut idle.clone(), &mut idle.clone())?;
            counted.end_ns = now_ns();
            return Ok(counted);
        }
        let file = self.open()?;
        counted.opened_ns = now_ns();
        match std::mem::replace(&mut self.way, Way::Null(Aligned::new(0)?)) {
            Way::Uring(mut ring) => {
                let number = ring.add_file(file);
                self.uring_loop(&mut ring, number, &clock, &mut counted, gauge)?;
                if self.data.flush == Flush::End && self.data.op != DataOp::Read {
                    ring.file(number)
                        .sync_all()
                        .with_context(|| format!("flushing {}", self.path.display()))?;
                }
                counted.moved_ns = now_ns();
                ring.close_files();
                // Freeing buffers is no part of it.
                counted.end_ns = now_ns();
            }
            Way::Plain(mut buffer) | Way::Null(mut buffer) => {
                let flush = self.data.flush;
                let (each, end) = (flush == Flush::Each, flush == Flush::End && self.data.op != DataOp::Read);
                let mut read = |buffer: &mut [u8], offset: u64| Ok(file.read_exact_at(buffer, offset)?);
                let mut write = |buffer: &mut [u8], offset: u64| {
                    file.write_all_at(buffer, offset)?;
                    if each {
                        file.sync_all()?;
                    }
                    Ok(())
                };
                self.plain_loop(&mut buffer, &clock, &mut counted, gauge, &mut read, &mut write)?;
                if end {
                    file.sync_all().with_context(|| format!("flushing {}", self.path.display()))?;
                }
                counted.moved_ns = now_ns();
                drop(file);
                counted.end_ns = now_ns();
            }
        }
        self.done = counted.done;
        Ok(counted)
    }

    fn open(&self) -> Result<File> {
        let flags = if self.data.direct { OFlags::DIRECT.bits() as i32 } else { 0 };
        let writes = self.data.op != DataOp::Read;
        let opened = OpenOptions::new()
            .read(true)
            .write(writes)
            .create(writes && self.data.create)
            .truncate(false)
            .custom_flags(flags)
            .open(&self.path);
        opened.with_context(|| format!("opening {}", self.path.display()))
    }

    /// The next transfer's offset and operation; `None` at the end.
    fn next(&mut self, begun: u64) -> Option<(u64, Did)> {
        let most = self.data.ops_max.unwrap_or(u64::MAX);
        if begun >= most {
            return None;
        }
        let turn = match self.turns.next() {
            Some(turn) => turn,
            None => {
                self.turns.again();
                self.turns.next()?
            }
        };
        let did = match self.data.op {
            DataOp::Read => Did::Read,
            DataOp::Write => Did::Write,
            DataOp::Mixed { read_percent } => {
                if next(&mut self.dice) % 100 < u64::from(read_percent) {
                    Did::Read
                } else {
                    Did::Write
                }
            }
        };
        Some((self.place.offset(turn), did))
    }

    /// Is the work done after one round?
    fn is_one_round(&self, clock: &Clock<'_>) -> bool {
        // A first round leaves its data in the page cache, unless direct I/O bypasses it: a second round would measure that cache.
        self.data.order == Order::Sequential
            || self.data.create
            || !(self.data.direct || self.data.engine == Engine::Null)
            || !(clock.has_end() || self.data.ops_max.is_some())
    }

    fn rounds_limit(&self, clock: &Clock<'_>) -> u64 {
        if self.is_one_round(clock) { self.turns.len() } else { u64::MAX }
    }

    fn plain_loop(
        &mut self,
        buffer: &mut Aligned,
        clock: &Clock<'_>,
        counted: &mut Counted,
        gauge: &Gauge,
        read: &mut dyn FnMut(&mut [u8], u64) -> Result<()>,
        write: &mut dyn FnMut(&mut [u8], u64) -> Result<()>,
    ) -> Result<()> {
        let limit = self.rounds_limit(clock);
        let (data, content) = (self.data, self.content);
        let mark = Mark { file: self.file, version: data.version };
        let is_null = data.engine == Engine::Null;
        let buffer = buffer.get();
        let mut now = clock.begin_ns;
        let mut begun = 0;
        while begun < limit && !clock.is_over(now) {
            let Some((offset, did)) = self.next(begun) else { break };
            let Some(due) = clock.wait_turn(begun, now) else { break };
            begun += 1;
            let is_write = did == Did::Write;
            if is_write {
                content.refill(mark, offset, buffer);
            }
            let from = if due == now { now_ns() } else { due };
            let moved = if is_write { write(buffer, offset) } else { read(buffer, offset) };
            now = now_ns();
            moved.with_context(|| self.describe(did, offset))?;
            counted.count(did, buffer.len() as u64, from, now, gauge);
            if !is_write && !is_null {
                let checked = content.check(self.file, &data.accept, offset, buffer);
                counted.checked += checked.with_context(|| self.path.display().to_string())?;
            }
        }
        Ok(())
    }

    fn uring_loop(
        &mut self,
        ring: &mut Ring,
        number: usize,
        clock: &Clock<'_>,
        counted: &mut Counted,
        gauge: &Gauge,
    ) -> Result<()> {
        let limit = self.rounds_limit(clock);
        let (data, content) = (self.data, self.content);
        let len = data.transfer_bytes as usize;
        let mark = Mark { file: self.file, version: data.version };
        // For each slot: start time, offset, operation, and whether it is the flush after its write.
        let mut under_way: Vec<(u64, u64, Did, bool)> = Vec::new();
        let mut now = clock.begin_ns;
        let mut begun = 0;
        loop {
            while begun < limit && !clock.is_over(now) {
                let Some(slot) = ring.take() else { break };
                let Some((offset, did)) = self.next(begun) else {
                    ring.give_back(slot);
                    begun = limit;
                    break;
                };
                let before = now;
                let Some(due) = clock.wait_turn(begun, before) else {
                    ring.give_back(slot);
                    begun = limit;
                    break;
                };
                begun += 1;
                if did == Did::Write {
                    content.refill(mark, offset, &mut ring.buffer(slot)[..len]);
                }
                now = now_ns();
                let from = if due == before { now } else { due };
                if under_way.len() <= slot.index() {
                    under_way.resize(slot.index() + 1, (0, 0, Did::Other, false));
                }
                under_way[slot.index()] = (from, offset, did, false);
                match did {
                    Did::Write => ring.write(slot, number, offset, len)?,
                    _ => ring.read(slot, number, offset, len)?,
                }
            }
            let Some(done) = ring.wait()? else { return Ok(()) };
            now = now_ns();
            let (from, offset, did, is_flush) = under_way[done.slot.index()];
            let moved = done.result.with_context(|| self.describe(did, offset))?;
            if !is_flush && moved < len {
                self.finish(ring, done.slot, number, offset, moved, did)
                    .with_context(|| self.describe(did, offset))?;
                now = now_ns();
            }
            if did == Did::Write && data.flush == Flush::Each && !is_flush {
                under_way[done.slot.index()].3 = true;
                ring.fsync(done.slot, number)?;
                continue;
            }
            counted.count(did, len as u64, from, now, gauge);
            if did == Did::Read {
                let checked = content.check(self.file, &data.accept, offset, &ring.buffer(done.slot)[..len]);
                counted.checked += checked.with_context(|| self.path.display().to_string())?;
            }
            ring.give_back(done.slot);
        }
    }

    /// Moves the rest of a transfer that the kernel moved in part.
    fn finish(
        &self,
        ring: &mut Ring,
        slot: ring::Slot,
        number: usize,
        offset: u64,
        moved: usize,
        did: Did,
    ) -> Result<()> {
        let file = ring.file(number).try_clone()?;
        let rest = &mut ring.buffer(slot)[moved..self.data.transfer_bytes as usize];
        let at = offset + moved as u64;
        match did {
            Did::Write => file.write_all_at(rest, at)?,
            _ => file.read_exact_at(rest, at)?,
        }
        Ok(())
    }

    fn describe(&self, did: Did, offset: u64) -> String {
        let verb = if did == Did::Write { "writing" } else { "reading" };
        format!("{verb} {} bytes at {offset} of {}", self.data.transfer_bytes, self.path.display())
    }

    /// Reads back a part of this phase's writes and checks it. Bypasses the page cache as far as the file system allows: a cached page
    /// would be right even if the write was lost.
    pub fn read_back(&mut self) -> Result<Checked> {
        let mut checked = Checked::default();
        let data = self.data;
        if data.read_back == 0 || data.op != DataOp::Write || !self.content.is_stamped(0) {
            return Ok(checked);
        }
        let file = self.open()?;
        if !data.direct {
            // Only clean pages can go.
            file.sync_data().with_context(|| format!("flushing {}", self.path.display()))?;
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).ok();
        }
        let mut buffer = Aligned::new(data.transfer_bytes as usize)?;
        let turns = Turns::new(self.turns.len(), data.order, self.seed);
        let written = turns.take(self.done as usize).map(|turn| self.place.offset(turn));
        let telling = written.filter(|offset| {
            !data.transfer_bytes.is_multiple_of(4096)
                || data.transfer_bytes > 4096
                || self.content.is_stamped(*offset)
        });
        for offset in telling.take(data.read_back as usize) {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            file.read_exact_at(buffer.get(), offset).with_context(|| self.describe(Did::Read, offset))?;
            let found = self.content.check(self.file, &data.accept, offset, buffer.get());
            checked += found.with_context(|| format!("reading back {}", self.path.display()))?;
        }
        Ok(checked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Job, Limit, Work};
    use crate::testdir::TestDir;

    const TRANSFER: u64 = 64 << 10;

    /// Bytes that this thread's reads fetched from a medium.
    fn fetched() -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: ")).unwrap();
        line.parse().unwrap()
    }

    #[test]
    fn what_is_read_back_comes_from_the_medium() {
        let dir = TestDir::new("read-back");
        // Memory is the medium there.
        if rustix::fs::statfs(dir.path()).unwrap().f_type as u64 == 0x0102_1994 {
            return;
        }
        std::fs::write(dir.path().join("data"), vec![0; 8 * TRANSFER as usize]).unwrap();
        let data = Data {
            op: DataOp::Write,
            order: Order::Random,
            files: Files::Shared { path: "data".into() },
            transfer_bytes: TRANSFER,
            block_bytes: 8 * TRANSFER,
            segments: 1,
            shift: 0,
            ops_max: None,
            engine: Engine::Sync,
            direct: false,
            flush: Flush::Never,
            create: false,
            version: 2,
            accept: vec![2],
            read_back: 8,
        };
        let job = Job {
            work: Work::Data(data.clone()),
            workers: 1,
            limit: Limit::default(),
            verify: true,
            seed: 1,
            forget_pages: false,
            holds: Vec::new(),
        };
        let (content, stop) = (crate::work::content_of(&job), AtomicBool::new(false));
        let shared = Shared { job: &job, root: dir.path(), content: &content, stop: &stop };
        let mut mover = Mover::new(&shared, &data, 0).unwrap();
        mover.run(Clock::start(job.limit, &stop), &Gauge::default()).unwrap();
        let before = fetched();
        assert_eq!(mover.read_back().unwrap().pages, 8);
        assert!(fetched() - before >= 8 * TRANSFER, "{}", fetched() - before);
    }
}
