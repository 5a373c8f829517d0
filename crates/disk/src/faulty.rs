//! A medium that fails on demand: errors of reads, writes and flushes, flipped bits, and a sparse file whose host is full.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use parking_lot::Mutex;

use crate::{Disk, end_within};

/// The operation that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Read,
    Write,
    Flush,
    Discard,
}

/// The calls that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Never,
    Always,
    /// The next one.
    Once,
    /// So many more succeed, then all fail.
    After(u64),
}

/// Passes everything to the medium below, unless told to fail. A failed write has changed nothing, unless it is set to be short; a
/// failed discard has changed nothing; a failed flush has flushed nothing.
pub struct FaultyDisk {
    below: Arc<dyn Disk>,
    plan: Mutex<[When; 4]>,
    /// Number of failed calls of each kind.
    failed: Mutex<[u64; 4]>,
    /// A failed write writes so many 256ths of its bytes.
    short: AtomicU8,
    host: Mutex<Host>,
    unreadable: Mutex<Vec<Range<u64>>>,
    is_hung: AtomicBool,
    is_lost: AtomicBool,
}

/// The host file system; this medium pretends to be a sparse file on it.
#[derive(Default)]
struct Host {
    is_full: bool,
    /// Blocks that were written or reserved through this disk, and not discarded since.
    backed: BTreeSet<u64>,
}

impl Host {
    fn back(&mut self, offset: u64, len: u64) -> io::Result<()> {
        let blocks = offset / HOST_BLOCK_BYTES..(offset + len).div_ceil(HOST_BLOCK_BYTES);
        if self.is_full && blocks.clone().any(|b| !self.backed.contains(&b)) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.backed.extend(blocks);
        Ok(())
    }
}

/// Allocation unit of most file systems.
const HOST_BLOCK_BYTES: u64 = 4096;

impl FaultyDisk {
    pub fn new(below: Arc<dyn Disk>) -> FaultyDisk {
        FaultyDisk {
            below,
            plan: Mutex::new([When::Never; 4]),
            failed: Mutex::default(),
            short: AtomicU8::new(0),
            host: Mutex::default(),
            unreadable: Mutex::default(),
            is_hung: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
        }
    }

    /// From now on the host has no block left: only what was written or reserved through this disk before can be written.
    pub fn fill_host(&self) {
        self.host.lock().is_full = true;
    }

    /// The host has free space again.
    pub fn empty_host(&self) {
        self.host.lock().is_full = false;
    }

    /// Sets which calls of `op` fail from now on.
    pub fn fail(&self, op: Op, when: When) {
        self.plan.lock()[op as usize] = when;
    }

    /// From now on a write that fails has written so many 256ths of its bytes, from the first on.
    pub fn shorten_failed_writes(&self, share: u8) {
        self.short.store(share, Ordering::Relaxed);
    }

    /// Number of calls of `op` that were made to fail.
    pub fn failed(&self, op: Op) -> u64 {
        self.failed.lock()[op as usize]
    }

    /// From now on reads that touch these bytes fail.
    pub fn make_unreadable(&self, bytes: Range<u64>) {
        self.unreadable.lock().push(bytes);
    }

    /// Sets whether everything fails as on a device that hangs.
    pub fn hang(&self, is_hung: bool) {
        self.is_hung.store(is_hung, Ordering::Relaxed);
    }
    /// Sets whether the device has hung for too long.
    pub fn give_up(&self, is_lost: bool) {
        self.is_lost.store(is_lost, Ordering::Relaxed);
    }

    fn check_not_hung(&self) -> io::Result<()> {
        match self.is_hung.load(Ordering::Relaxed) {
            true => Err(io::Error::new(io::ErrorKind::TimedOut, "injected: the device hangs")),
            false => Ok(()),
        }
    }

    /// Flips one bit (0 to 7) of the byte at `offset`, on the medium and for good.
    pub fn flip_bit(&self, offset: u64, bit: u8) -> io::Result<()> {
        let mut byte = [0];
        self.below.read_at(&mut byte, offset)?;
        byte[0] ^= 1 << (bit & 7);
        self.below.write_at(&byte, offset)
    }

    fn pass(&self, op: Op) -> io::Result<()> {
        let mut plan = self.plan.lock();
        let when = &mut plan[op as usize];
        let (now, next) = match *when {
            When::Never => (true, When::Never),
            When::Always | When::After(0) => (false, When::Always),
            When::Once => (false, When::Never),
            When::After(n) => (true, When::After(n - 1)),
        };
        *when = next;
        if now {
            return Ok(());
        }
        self.failed.lock()[op as usize] += 1;
        Err(io::Error::other(format!("injected failure of a {op:?}")))
    }
}

impl Disk for FaultyDisk {
    fn size(&self) -> u64 {
        self.below.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.pass(Op::Read)?;
        self.check_not_hung()?;
        let end = end_within(self.size(), offset, buf.len() as u64)?;
        if self.unreadable.lock().iter().any(|bad| bad.start < end && offset < bad.end) {
            return Err(io::Error::other("injected: these bytes cannot be read"));
        }
        self.below.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        end_within(self.size(), offset, buf.len() as u64)?;
        self.check_not_hung()?;
        if let Err(e) = self.pass(Op::Write) {
            let part = buf.len() * self.short.load(Ordering::Relaxed) as usize / 256;
            self.below.write_at(&buf[..part], offset)?;
            return Err(e);
        }
        self.host.lock().back(offset, buf.len() as u64)?;
        self.below.write_at(buf, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.check_not_hung()?;
        self.pass(Op::Flush)?;
        self.below.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_not_hung()?;
        self.pass(Op::Discard)?;
        self.below.discard(offset, len)?;
        let whole = offset.div_ceil(HOST_BLOCK_BYTES)..(offset + len) / HOST_BLOCK_BYTES;
        self.host.lock().backed.retain(|b| !whole.contains(b));
        Ok(())
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        end_within(self.size(), offset, len)?;
        self.host.lock().back(offset, len)?;
        self.below.reserve(offset, len)
    }

    fn lost(&self) -> Option<String> {
        self.is_lost.load(Ordering::Relaxed).then(|| "injected: the device hangs".into())
    }

    fn will_read(&self, offset: u64, len: u64) {
        self.below.will_read(offset, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDisk;

    fn disk() -> FaultyDisk {
        FaultyDisk::new(Arc::new(MemDisk::new(1 << 20)))
    }

    #[test]
    fn without_a_plan_it_keeps_the_contract_of_a_disk() {
        crate::conformance::check(&disk());
    }

    #[test]
    fn fails_what_and_when_it_was_told() {
        let d = disk();
        d.fail(Op::Write, When::After(2));
        assert_eq!([(); 4].map(|_| d.write_at(&[1], 0).is_ok()), [true, true, false, false]);
        assert!(d.flush().is_ok() && d.read_at(&mut [0], 0).is_ok());
        d.fail(Op::Flush, When::Once);
        assert_eq!([(); 2].map(|_| d.flush().is_ok()), [false, true]);
        d.fail(Op::Read, When::Always);
        assert!(d.read_at(&mut [0], 0).is_err());
        d.fail(Op::Read, When::Never);
        assert!(d.read_at(&mut [0], 0).is_ok());
        d.fail(Op::Discard, When::Once);
        assert!(d.discard(0, 1).is_err());
        assert_eq!([Op::Read, Op::Write, Op::Flush, Op::Discard].map(|op| d.failed(op)), [1, 2, 1, 1]);
    }

    #[test]
    fn a_full_host_has_room_for_what_it_has_already() {
        let d = disk();
        d.write_at(&[1; 4096], 4096).unwrap();
        d.reserve(16384, 8192).unwrap();
        d.fill_host();
        assert_eq!([4096, 16384, 20480].map(|at| d.write_at(&[2; 4096], at).is_ok()), [true; 3]);
        let full = |r: io::Result<()>| r.is_err_and(|e| crate::is_full(&e));
        assert!(full(d.write_at(&[2], 0)) && full(d.write_at(&[2; 2], 8191)) && full(d.reserve(0, 1)));
        d.discard(4096, 4096).unwrap();
        assert!(full(d.write_at(&[2], 4096)));
        d.empty_host();
        d.write_at(&[2], 4096).unwrap();
    }

    #[test]
    fn a_short_write_leaves_its_first_bytes_and_fails() {
        let d = disk();
        d.fail(Op::Write, When::Once);
        d.shorten_failed_writes(128);
        assert!(d.write_at(&[7; 100], 0).is_err());
        let mut buf = [0; 100];
        d.read_at(&mut buf, 0).unwrap();
        assert_eq!((buf[..50] == [7; 50], buf[50..] == [0; 50]), (true, true));
    }

    #[test]
    fn a_failed_write_changes_nothing_and_a_flip_one_bit() {
        let d = disk();
        d.fail(Op::Write, When::Once);
        assert!(d.write_at(&[0xff; 8], 0).is_err());
        d.flip_bit(3, 7).unwrap();
        let mut buf = [0; 8];
        d.read_at(&mut buf, 0).unwrap();
        assert_eq!(buf, [0, 0, 0, 0x80, 0, 0, 0, 0]);
    }
}
