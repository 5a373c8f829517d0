//! Verifying parts of objects, and the scrub's state over crashes.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::*;

/// Parts of any size cover each page once, holes take no time, and each bad page is named once.
#[test]
fn parts_cover_every_page_once() {
    let rig = Rig::new();
    // Pages 0..3, 7, and 300 with its hole before it; scattered on the medium by writing in parts.
    for (page, pages) in [(7u64, 1), (1, 2), (0, 1), (300, 70)] {
        rig.write(id(1), page * 4096, &pattern(page, pages * 4096)).unwrap();
    }
    for page in [2, 7, 340] {
        rig.flip(rig.place(id(1), page));
    }
    let want: Vec<_> = [2u64, 7, 340].map(|page| (page * 4096, DamageKind::Checksum)).into();
    for pages_max in [1, 2, 3, 5, 64, 65, 1000] {
        let (mut next, mut pages, mut bad, mut parts) = (Some(0), 0, vec![], 0);
        while let Some(from) = next {
            let found = rig.store.verify(id(1), from, pages_max).unwrap();
            assert!(found.pages <= pages_max && found.next.is_none_or(|n| n > from));
            (next, pages, parts) = (found.next, pages + found.pages, parts + 1);
            bad.extend(found.bad);
        }
        assert_eq!((pages, &bad), (74, &want), "parts of {pages_max}");
        assert_eq!(parts, 74u32.div_ceil(pages_max), "parts of {pages_max}");
    }
    assert_eq!(rig.store.verify(id(2), 0, 9).unwrap(), Verified::default(), "an absent object has no pages");
}

/// A page that is replaced while it is verified is no damage: neither the old bytes nor what later lies in their place.
#[test]
fn what_changes_meanwhile_is_no_damage() {
    let rig = Rig::new();
    let stop = AtomicBool::new(false);
    rig.write(id(1), 0, &pattern(1, 32 * 4096)).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..400u64 {
                rig.write(id(1), round * 5 % 24 * 4096, &pattern(round, 8 * 4096)).unwrap();
                rig.write(id(2), 0, &pattern(round + 9, 8 * 4096)).unwrap();
                if round % 4 == 0 {
                    rig.seal();
                    rig.store.destroy(&[id(2)], None).unwrap();
                }
            }
            stop.store(true, Ordering::Release);
        });
        let mut passes = 0;
        while !stop.load(Ordering::Acquire) {
            assert_eq!(rig.store.verify(id(1), 0, 1000).unwrap().bad, []);
            passes += 1;
        }
        writer.join().unwrap();
        assert!(passes > 0);
    });
}

#[test]
fn the_state_survives_crashes_and_checkpoints() {
    let rig = Rig::new();
    assert_eq!(rig.store.scrub(), Scrub::default());
    rig.store.set_scrub(crate::records::scrub_state::sample()).unwrap();
    rig.store.flush().unwrap();
    let again = rig.crashed(Crash::DropAll);
    assert_eq!(again.store.scrub(), crate::records::scrub_state::sample(), "from the log");
    again.store.checkpoint().unwrap();
    let third = again.crashed(Crash::DropAll);
    assert_eq!(third.store.scrub(), crate::records::scrub_state::sample(), "from the checkpoint");
}

/// A page that cannot be read because the device hangs is not reported as damaged, and is readable later.
#[test]
fn a_device_that_hangs_makes_no_damage() {
    let disk = Arc::new(disk::FaultyDisk::new(Arc::new(SimDisk::new(MEDIUM_BYTES))));
    Engine::format(&*disk, label(), false).unwrap();
    let store = Engine::open(disk.clone()).unwrap();
    // Large enough not to lie in the log.
    let bytes = pattern(1, 32 * 4096);
    write(&store, id(1), 0, &bytes, None).unwrap();
    disk.hang(true);
    let gate = &|_: &crate::Attrs| Ok(());
    let read = |offset, len| {
        let (mut into, mut crcs) = (types::Buf::new(), vec![]);
        let r = Read { object: id(1), offset, len, gate };
        store.read(&r, &mut into, &mut crcs).map(|_| into.to_vec())
    };
    for (offset, len) in [(0, 32 * 4096), (4096, 100)] {
        let e = read(offset, len).unwrap_err();
        assert!(matches!(&e, StoreError::Hung { .. }), "{e}");
    }
    assert!(matches!(store.verify(id(1), 0, 9), Err(StoreError::Hung { .. })));
    disk.hang(false);
    assert_eq!(read(0, 32 * 4096).unwrap(), bytes);
    // The same errors of a device that does not hang are damage.
    disk.fail(disk::Op::Read, disk::When::Always);
    assert!(matches!(read(0, 4096), Err(StoreError::Damaged { kind: DamageKind::Medium, .. })));
}

/// Forty objects in leaves of a few each, and nothing of them in memory.
fn in_leaves() -> Rig {
    let settings = Settings { leaf_bytes: 100, ..PLACING };
    let rig = Rig::open_with(Rig::new().disk, settings);
    for n in 0..40 {
        rig.write(id(n), 0, &pattern(n, 5000)).unwrap();
    }
    rig.store.close().unwrap();
    let rig = rig.crashed(Crash::DropAll);
    assert!(rig.store.index.leaves_now().leaves.len() > 4);
    rig
}

/// Looks at all of them, call by call: their bytes, and the bad ones.
fn all_leaves(store: &Engine) -> (u64, Vec<BadLeaf>) {
    let (mut bytes, mut bad, mut after) = (0, vec![], Some(ObjectId::default()));
    while let Some(begin) = after {
        let found = store.verify_leaves(begin, id(39)).unwrap();
        (bytes, after) = (bytes + found.bytes, found.end);
        bad.extend(found.bad);
    }
    (bytes, bad)
}

/// Lets a leaf rot: the object before it, its first, the last that it has, and its place.
fn rot_a_leaf(rig: &Rig) -> (ObjectId, ObjectId, ObjectId, u64) {
    let base = rig.store.index.leaves_now();
    let [leaf, next] = [&base.leaves[2], &base.leaves[3]];
    let before = |id: ObjectId| ObjectId { fid: Fid(id.fid.0 - 1), ..id };
    let at = rig.store.index.leaves.places(leaf).next().unwrap().start;
    rig.flip(at + 9);
    (before(leaf.first), leaf.first, before(next.first), at)
}

#[test]
fn a_cold_leaf_with_rot_is_found_and_the_others_are_listed() {
    let rig = in_leaves();
    let begin = ObjectId::default();
    let all: u64 = rig.store.index.leaves_now().leaves.iter().map(|leaf| leaf.place.bytes).sum();
    let well = VerifiedLeaves { bytes: all, bad: None, end: None };
    assert_eq!(rig.store.verify_leaves(begin, id(39)).unwrap(), well);
    let (before, first, last, at) = rot_a_leaf(&rig);
    assert_eq!(all_leaves(&rig.store), (all, vec![BadLeaf { first, at, is_saved: false }]));
    assert!(rig.store.health().index_damage.unwrap().contains(&format!("medium offset {at}")));
    // Each leaf belongs to the step that comes to its first object.
    assert_eq!(rig.store.verify_leaves(begin, before).unwrap().bad, None);
    let found = rig.store.verify_leaves(before, first).unwrap();
    assert_eq!((found.bad.is_some(), found.end), (true, None));
    assert_eq!(rig.store.verify_leaves(first, id(39)).unwrap().bad, None);
    // The listing by parts tells the objects that are readable.
    assert!(matches!(rig.store.list(None, 100), Err(StoreError::Index { .. })));
    let others: Vec<_> = (0..40).map(id).filter(|id| !(first..=last).contains(id)).collect();
    for max in [1, 3, 100] {
        let (mut listed, mut after) = (vec![], None);
        loop {
            let page = rig.store.list_readable(after, max).unwrap();
            assert!(page.objects.len() <= max);
            listed.extend(page.objects.iter().map(|(id, _)| *id));
            let Some(end) = page.end else { break };
            assert!(after < Some(end));
            after = Some(end);
        }
        assert_eq!(listed, others, "{max} at once");
    }
}

#[test]
fn a_leaf_that_memory_has_yet_is_written_anew_by_the_next_checkpoint() {
    let rig = in_leaves();
    let old = rig.store.index.leaves_now();
    rig.store.stat(old.leaves[2].first).unwrap();
    let (_, first, _, at) = rot_a_leaf(&rig);
    assert_eq!(all_leaves(&rig.store).1, [BadLeaf { first, at, is_saved: true }]);
    assert_eq!(rig.store.health().index_damage, None, "nothing is lost");
    // No object of it was changed, nor any other.
    rig.store.checkpoint().unwrap();
    assert_eq!(all_leaves(&rig.store).1, []);
    let now = rig.store.index.leaves_now();
    let stayed = old.leaves.iter().filter(|leaf| now.leaves.iter().any(|l| Arc::ptr_eq(l, leaf))).count();
    assert_eq!(stayed, old.leaves.len() - 1);
    let again = rig.crashed(Crash::DropAll);
    for n in 0..40 {
        assert_eq!(again.content(id(n)).unwrap(), pattern(n, 5000), "{n}");
    }
}

#[test]
fn one_failed_read_of_a_leaf_is_no_damage() {
    use disk::{FaultyDisk, Op, When};
    let rig = in_leaves();
    let disk = Arc::new(FaultyDisk::new(rig.disk.clone()));
    let store = Engine::open_with(disk.clone(), rig.settings).unwrap();
    disk.fail(Op::Read, When::Once);
    assert_eq!(all_leaves(&store).1, []);
    assert_eq!(disk.failed(Op::Read), 1);
    disk.fail(Op::Read, When::Always);
    let leaves = store.index.leaves_now().leaves.len();
    assert_eq!(all_leaves(&store).1.len(), leaves);
}

/// On a medium that lost all of them: each may take half a minute, and a stop waits for one call.
#[test]
fn one_call_reads_a_bounded_number_of_lost_leaves() {
    use disk::{FaultyDisk, Op, When};
    let rig = in_leaves();
    let disk = Arc::new(FaultyDisk::new(rig.disk.clone()));
    let store = Engine::open_with(disk.clone(), rig.settings).unwrap();
    let leaves = store.index.leaves_now().leaves.clone();
    disk.fail(Op::Read, When::Always);
    let reads_of = |call: &dyn Fn()| {
        let before = disk.failed(Op::Read);
        call();
        disk.failed(Op::Read) - before
    };
    for (i, leaf) in leaves.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| leaves[i].first);
        let (is_last, is_first) = (i + 1 == leaves.len(), i == 0);
        // Twice, and once for what a cache of the medium may have.
        let verify = || {
            let found = store.verify_leaves(before.unwrap_or_default(), id(39)).unwrap();
            assert_eq!(found.bad.map(|bad| bad.first), Some(leaf.first));
            assert_eq!(found.end, (!is_last).then_some(leaf.first));
        };
        assert_eq!(reads_of(&verify), 3);
        let list = || {
            let list = store.list_readable(before, 100).unwrap();
            assert_eq!((list.objects, list.end), (vec![], Some(leaf.first)));
        };
        assert_eq!(reads_of(&list), if is_first { 1 } else { 2 });
    }
}

/// Rot that only the medium has: a cache above it still has what was written. Past the cache go whole pages and nothing else.
struct Rotten {
    below: Arc<SimDisk>,
    bytes: Mutex<Vec<u64>>,
}

impl Disk for Rotten {
    fn size(&self) -> u64 {
        self.below.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.below.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.below.write_at(buf, offset)
    }
    fn flush(&self) -> io::Result<()> {
        self.below.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.below.discard(offset, len)
    }
    fn read_medium_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_at(buf, offset)?;
        if !offset.is_multiple_of(PAGE_SIZE as u64) || !buf.len().is_multiple_of(PAGE_SIZE) {
            return Ok(());
        }
        for at in self.bytes.lock().iter().filter_map(|at| at.checked_sub(offset)) {
            if let Some(byte) = buf.get_mut(at as usize) {
                *byte ^= 0x10;
            }
        }
        Ok(())
    }
}

#[test]
fn rot_below_a_cache_is_found_in_leaves_and_in_data() {
    let rig = in_leaves();
    let disk = Arc::new(Rotten { below: rig.disk.clone(), bytes: Mutex::default() });
    let store = Engine::open_with(disk.clone(), rig.settings).unwrap();
    assert_eq!(all_leaves(&store).1, []);
    let leaves = store.index.leaves_now().leaves.clone();
    let saved: Vec<BadLeaf> = leaves
        .iter()
        .map(|leaf| {
            let at = store.index.leaves.places(leaf).next().unwrap().start;
            disk.bytes.lock().push(at + leaf.place.bytes - 1);
            BadLeaf { first: leaf.first, at, is_saved: true }
        })
        .collect();
    assert_eq!(all_leaves(&store).1, saved, "and the cache has them yet");
    store.checkpoint().unwrap();
    assert_eq!(all_leaves(&store).1, [], "they lie elsewhere now");
    // The second page of an object, which is not full.
    assert_eq!(store.verify(id(5), 0, 9).unwrap().bad, []);
    let site = store.index.get(&id(5)).unwrap().read().extents.site(1).unwrap();
    disk.bytes.lock().push(store.at(site.page) + 3);
    assert_eq!(store.verify(id(5), 0, 9).unwrap().bad, [(4096, DamageKind::Checksum)]);
    assert_eq!(read(&store, id(5), 0, 5000).unwrap(), Some(pattern(5, 5000)), "what reads get is well");
}
