//! Verifying parts of objects, and the scrub's state over crashes.

use std::sync::atomic::{AtomicBool, Ordering};

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
    rig.store.set_scrub(crate::scrub::sample()).unwrap();
    rig.store.flush().unwrap();
    let again = rig.crashed(Crash::DropAll);
    assert_eq!(again.store.scrub(), crate::scrub::sample(), "from the log");
    again.store.checkpoint().unwrap();
    let third = again.crashed(Crash::DropAll);
    assert_eq!(third.store.scrub(), crate::scrub::sample(), "from the checkpoint");
}

/// What cannot be read since the device hangs is not damaged: nobody is told so, and later it is there.
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
