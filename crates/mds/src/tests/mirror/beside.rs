//! Checkpoints of a standby beside entries (mds-RP9).

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use disk::volume::Volume;
use disk::{Disk, SimDisk};
use pair::Replica;
use parking_lot::{Condvar, Mutex};

use super::two::{Sent, Two, settings, takes_over};
use crate::pair::planted::{Bug, is_found};
use crate::tests::rules::flat;
use crate::{Settings, Standby};

/// A medium whose checkpoints take as long as the test wants. A write of one by the thread that appends is noted, and goes through.
struct Slow {
    disk: Arc<SimDisk>,
    slots: Vec<Range<u64>>,
    appends: ThreadId,
    is_inline: AtomicBool,
    /// Writes of a checkpoint wait; and one does.
    gate: Mutex<(bool, bool)>,
    moved: Condvar,
}

impl Slow {
    fn over(disk: Arc<SimDisk>) -> Arc<Slow> {
        let volume = Volume::open_read_only(disk.clone() as Arc<dyn Disk>).unwrap();
        Arc::new(Slow {
            slots: volume.layout().slots.to_vec(),
            disk,
            appends: std::thread::current().id(),
            is_inline: AtomicBool::new(false),
            gate: Mutex::new((true, false)),
            moved: Condvar::new(),
        })
    }

    fn open(&self) {
        *self.gate.lock() = (false, false);
        self.moved.notify_all();
    }

    fn until_one_waits(&self) {
        let mut gate = self.gate.lock();
        let until = Instant::now() + Duration::from_secs(20);
        while !gate.1 {
            assert!(!self.moved.wait_until(&mut gate, until).timed_out(), "no checkpoint began");
        }
    }
}

impl Disk for Slow {
    fn size(&self) -> u64 {
        self.disk.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if self.slots.iter().any(|slot| slot.contains(&offset)) {
            if std::thread::current().id() == self.appends {
                self.is_inline.store(true, Ordering::SeqCst);
            } else {
                let mut gate = self.gate.lock();
                while gate.0 {
                    gate.1 = true;
                    self.moved.notify_all();
                    self.moved.wait(&mut gate);
                }
            }
        }
        self.disk.write_at(buf, offset)
    }
    fn flush(&self) -> io::Result<()> {
        self.disk.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.disk.discard(offset, len)
    }
}

/// Entries of more than two logs, and a standby that has none of them.
fn behind() -> (Two, Vec<Sent>, Arc<Slow>, Standby) {
    let two = Two::fresh();
    let capacity = two.rig.mdt.core.volume.log_capacity() as usize;
    let (mut bytes, mut sequence) = (0, 0);
    while bytes < 2 * capacity {
        sequence += 1;
        two.rig.make(1, sequence, &format!("file {sequence}")).unwrap();
        bytes += two.link.sent.lock().last().unwrap().entry.content.len();
    }
    let (sent, slow) = (two.link.sent.lock().clone(), Slow::over(Arc::new(two.b_before.copy())));
    let beside = Settings { background: true, ..settings(flat(), &Arc::default()) };
    let standby = Standby::open(slow.clone(), beside).unwrap();
    (two, sent, slow, standby)
}

/// As a seat does: an entry that is put off leaves the end as it was.
fn take(standby: &Standby, sent: &[Sent]) -> usize {
    let fit = sent.iter().take_while(|sent| {
        let is_fit = standby.can_append(&sent.entry.content);
        if is_fit {
            assert_eq!(standby.append(&sent.entry), Ok(()));
        }
        is_fit
    });
    fit.count()
}

fn entries_beside_a_slow_checkpoint() {
    let (two, sent, slow, standby) = behind();
    let mut taken = take(&standby, &sent);
    assert!(!slow.is_inline.load(Ordering::SeqCst), "an entry waits for a checkpoint");
    slow.until_one_waits();
    // The log is full, and the medium stands still. Nothing else does.
    assert!(taken > 0 && taken < sent.len(), "{taken} of {}", sent.len());
    assert_eq!(standby.last_seq(), sent[taken - 1].entry.place.last);
    Replica::keep_note(&standby, b"a note").unwrap();
    assert_eq!(Replica::flush(&standby).unwrap(), standby.last_seq());
    slow.open();
    let until = Instant::now() + Duration::from_secs(20);
    while taken < sent.len() {
        taken += take(&standby, &sent[taken..]);
        assert!(Instant::now() < until, "{taken} of {}", sent.len());
        std::thread::yield_now();
    }
    assert!(!slow.is_inline.load(Ordering::SeqCst), "an entry waits for a checkpoint");
    assert_eq!(standby.contents(), two.link.standby.contents());
}

#[test]
fn rp9_entries_and_notes_go_on_while_a_checkpoint_takes_long() {
    entries_beside_a_slow_checkpoint();
    assert!(is_found(Bug::ChecksInline, entries_beside_a_slow_checkpoint));
}

#[test]
fn rp9_a_take_over_ends_the_checkpoint_under_way() {
    let (_, sent, slow, standby) = behind();
    let taken = take(&standby, &sent);
    slow.until_one_waits();
    let rig = std::thread::scope(|scope| {
        scope.spawn(|| slow.open());
        takes_over(standby)
    });
    assert!(rig.mdt.core.volume.last_seq() > sent[taken - 1].entry.place.last, "it orders");
    rig.make(7, 1, "after it").unwrap();
}
