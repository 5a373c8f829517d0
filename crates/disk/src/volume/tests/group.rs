//! Group flush and its locks, with a device flush that waits at a gate.

use std::sync::mpsc;

use super::*;
use crate::Disk;

/// A medium whose flush waits at a gate until it may pass.
struct Gate {
    below: MemDisk,
    /// Number of flushes that may pass.
    passes: Mutex<u64>,
    opened: Condvar,
    /// Flushes that have begun.
    begun: Mutex<u32>,
    began: Condvar,
}

impl Gate {
    fn new() -> Arc<Gate> {
        let below = MemDisk::new(MEDIUM_BYTES);
        Volume::format(&below, &small(), false).unwrap();
        let (passes, begun) = (Mutex::new(u64::MAX), Mutex::new(0));
        Arc::new(Gate { below, passes, opened: Condvar::new(), begun, began: Condvar::new() })
    }
    fn shut(&self) {
        *self.passes.lock() = 0;
    }
    fn let_pass(&self, count: u64) {
        *self.passes.lock() = count;
        self.opened.notify_all();
    }
    fn open(&self) {
        self.let_pass(u64::MAX);
    }
    fn begun(&self) -> u32 {
        *self.begun.lock()
    }
    fn wait_for_flush(&self, count: u32) {
        let mut begun = self.begun.lock();
        while *begun < count {
            self.began.wait(&mut begun);
        }
    }
}

impl Disk for Gate {
    fn size(&self) -> u64 {
        self.below.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.below.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.below.write_at(buf, offset)
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.below.discard(offset, len)
    }
    fn flush(&self) -> io::Result<()> {
        *self.begun.lock() += 1;
        self.began.notify_all();
        let mut passes = self.passes.lock();
        while *passes == 0 {
            self.opened.wait(&mut passes);
        }
        *passes -= 1;
        self.below.flush()
    }
}

#[test]
fn v7_the_tail_is_not_held_during_a_flush_and_one_more_flush_serves_all_who_wait() {
    const WAITERS: u64 = 6;
    let gate = Gate::new();
    let volume = started(gate.clone());
    let before = gate.begun();
    volume.append(Epoch(1), b"first").unwrap();
    gate.shut();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| volume.flush().unwrap());
        gate.wait_for_flush(before + 1);
        // disk-V7: the flush waits at the gate; appends do not.
        let (appended, all_appended) = mpsc::channel();
        let waiters: Vec<_> = (0..WAITERS)
            .map(|_| {
                let (volume, appended) = (&volume, appended.clone());
                scope.spawn(move || {
                    let seq = volume.append(Epoch(1), b"later").unwrap();
                    appended.send(()).unwrap();
                    assert!(volume.flush().unwrap() >= seq);
                })
            })
            .collect();
        (0..WAITERS).for_each(|_| all_appended.recv().unwrap());
        assert_eq!(volume.flushed_seq(), Seq(0), "nothing is flushed before the device says so");
        gate.open();
        assert!(first.join().unwrap() >= Seq(1));
        waiters.into_iter().for_each(|w| w.join().unwrap());
    });
    assert_eq!(volume.flushed_seq(), Seq(1 + WAITERS));
    assert_eq!(gate.begun(), before + 2, "the flush at the gate, and one for all later callers");
    volume.flush().unwrap();
    assert_eq!(gate.begun(), before + 2, "nothing new, nothing to flush");
}

#[test]
fn many_threads_append_and_flush_and_nothing_is_lost() {
    let disk = formatted();
    let volume = started(disk.clone());
    std::thread::scope(|scope| {
        for t in 0..4u8 {
            let volume = &volume;
            scope.spawn(move || {
                for i in 0..20u8 {
                    let seq = volume.append(Epoch(1), &[t, i]).unwrap();
                    if i % 3 == 0 {
                        assert!(volume.flush().unwrap() >= seq);
                    }
                }
            });
        }
    });
    let flushed = volume.flush().unwrap();
    assert_eq!(flushed, Seq(80));
    let (_, seen) = reopen(Arc::new(disk.crash(crate::Crash::DropAll)));
    assert_eq!(seen.iter().map(|(seq, _, _)| *seq).collect::<Vec<_>>(), (1..=80).collect::<Vec<_>>());
    for t in 0..4 {
        let of_thread: Vec<u8> = seen.iter().filter(|(_, _, p)| p[0] == t).map(|(_, _, p)| p[1]).collect();
        assert_eq!(of_thread, (0..20).collect::<Vec<_>>());
    }
}

#[test]
fn who_waits_for_a_flush_that_fails_is_told() {
    let faulty = Arc::new(FaultyDisk::new(Gate::new()));
    let volume = started(faulty.clone());
    faulty.fail(Op::Flush, When::Always);
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    // An append may find that the volume has already failed.
                    volume.append(Epoch(1), b"x").and_then(|_| volume.flush()).is_err()
                })
            })
            .collect();
        assert!(all.into_iter().all(|t| t.join().unwrap()));
    });
    assert_eq!(volume.flushed_seq(), Seq(0));
}

#[test]
fn a_checkpoint_trims_the_log_only_once_both_superblocks_name_it() {
    let gate = Gate::new();
    let volume = started(gate.clone());
    volume.append(Epoch(1), &[1; 1000]).unwrap();
    let (at, before) = (volume.position(), gate.begun());
    // Checked afterwards: a panic inside would leave the other thread at the gate for ever.
    let mut used = Vec::new();
    gate.shut();
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| volume.checkpoint(at, &mut |w| w.write_all(b"state")).unwrap());
        // The slot's flush, then one for each superblock copy.
        for flush in 1..=3 {
            gate.wait_for_flush(before + flush);
            // The log stays in use meanwhile, and is valid from its old start.
            volume.append(Epoch(1), b"").unwrap();
            used.push((volume.log_used(), volume.position().pos));
            gate.let_pass(1);
        }
        checkpoint.join().unwrap();
    });
    assert!(used.iter().all(|(used, pos)| used == pos), "disk-V4: {used:?}");
    assert_eq!(volume.log_used(), 3 * 64);
}
