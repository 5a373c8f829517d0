//! The survey agrees with what was written, with the allocator, and with itself taken in parts.

use super::*;

/// Of all objects, in parts of about `objects_max`.
fn whole(store: &Engine, objects_max: u64) -> (Survey, u32) {
    let (mut sum, mut at, mut parts) = (Survey::default(), Cursor::default(), 0);
    loop {
        let (part, next) = store.survey(at, objects_max).unwrap();
        sum.add(&part);
        parts += 1;
        match next {
            Some(next) => at = Cursor::behind(next.after()),
            None => return (sum, parts),
        }
    }
}

#[test]
fn space_is_told_to_the_byte() {
    let rig = Rig::placing();
    rig.write(id(1), 0, &pattern(1, 500)).unwrap();
    rig.write(id(2), 0, &pattern(2, 70_000)).unwrap();
    rig.write(id(3), 1 << 20, &pattern(3, 1 << 20)).unwrap();
    rig.store.fence(id(4), 9).unwrap();
    let (s, _) = whole(&rig.store, u64::MAX);
    assert_eq!((s.objects, s.objects_with_bytes, s.fragments, s.fragments_max), (3, 3, 3, 1));
    let class = |i: usize| (s.classes[i].extents, s.classes[i].bytes_allocated, s.classes[i].bytes_stored);
    assert_eq!(class(0), (1, 4096, 500));
    assert_eq!(class(5), (1, 18 * 4096, 70_000), "18 pages are in the class of 32");
    assert_eq!(class(8), (1, 1 << 20, 1 << 20));
    let space = rig.store.space();
    assert_eq!(space.bytes_total - space.bytes_free, s.bytes_allocated());
    assert_eq!((space.bytes_waiting, space.sub_block_bytes), (0, 4096));
    // An overwrite in the middle: three pieces, and the old page waits.
    rig.write(id(3), (1 << 20) + 40_960, &pattern(4, 4096)).unwrap();
    let (s, _) = whole(&rig.store, u64::MAX);
    assert_eq!((s.fragments, s.fragments_max), (5, 3));
    assert_eq!(rig.store.space().bytes_waiting, 4096);
}

#[test]
fn free_runs_are_what_the_allocator_has() {
    let rig = Rig::sized(200 << 20);
    let total = rig.store.space();
    assert_eq!(total.largest_run_bytes, total.bytes_free, "one run, across windows and pieces");
    // Every other of 64 places of 64 KiB is freed.
    for i in 0..64 {
        rig.write(id(i), 0, &pattern(i, 64 << 10)).unwrap();
    }
    let gone: Vec<ObjectId> = (0..64).step_by(2).map(id).collect();
    rig.store.destroy(&gone, None).unwrap();
    rig.seal();
    rig.store.flush().unwrap();
    let s = rig.store.space();
    assert_eq!(s.free_runs.iter().map(|c| c.bytes).sum::<u64>(), s.bytes_free);
    assert_eq!(s.free_runs[4], Amount { count: 32, bytes: 32 * (64 << 10) });
    assert_eq!(s.free_runs.iter().map(|c| c.count).sum::<u64>(), 33);
    assert_eq!(s.largest_run_bytes, s.bytes_free - s.free_runs[4].bytes);
}

#[test]
fn parts_of_a_survey_add_up() {
    let rig = Rig::new();
    for i in 0..700 {
        rig.write(id(i), 0, &pattern(i, 100 + i as usize * 11)).unwrap();
    }
    let (all, parts) = whole(&rig.store, u64::MAX);
    assert_eq!((all.objects, parts), (700, 1));
    for objects_max in [1, 100, 256, 500] {
        let (sum, parts) = whole(&rig.store, objects_max);
        assert_eq!(sum, all);
        assert!(u64::from(parts) > 1, "{objects_max}: {parts}");
    }
    assert_eq!(
        rig.store.survey(Cursor::behind(Some(id(u64::MAX - 100))), 9).unwrap(),
        (Survey::default(), None)
    );
}

/// The mode that the comparison with fixed sub-blocks is drawn from.
#[test]
fn fixed_sub_blocks_round_up_and_come_back_whole() {
    let rig = Rig::placing();
    rig.write(id(9), 0, &pattern(9, 5000)).unwrap();
    rig.store.set_sub_block(SubBlock::of_bytes(32 << 10).unwrap()).unwrap();
    assert_eq!(rig.store.space().sub_block_bytes, 4096, "from the next opening on");
    let rig = rig.crashed(Crash::DropAll);
    let empty = rig.store.space();
    assert_eq!(empty.sub_block_bytes, 32 << 10);
    rig.write(id(1), 0, &pattern(1, 500)).unwrap();
    rig.write(id(2), 0, &pattern(2, 100_000)).unwrap();
    let taken = |rig: &Rig| (empty.bytes_free - rig.store.space().bytes_free) >> 10;
    assert_eq!(taken(&rig), 32 + 128);
    let (s, _) = whole(&rig.store, u64::MAX);
    assert_eq!(s.bytes_allocated() >> 10, 32 + 32 + 128, "with what was there before");
    assert_eq!(s.bytes_stored(), 5000 + 500 + 100_000);
    assert_eq!(
        empty.bytes_total / (32 << 10),
        (empty.bytes_free >> 15) + 1,
        "what was there takes one of them"
    );
    // The same after a crash, and all of it comes back.
    rig.store.flush().unwrap();
    let rig = rig.crashed(Crash::DropAll);
    assert_eq!(taken(&rig), 32 + 128);
    assert_eq!(rig.content(id(2)).unwrap(), pattern(2, 100_000));
    rig.store.destroy(&[id(1), id(2), id(9)], None).unwrap();
    rig.seal();
    rig.store.flush().unwrap();
    assert_eq!(rig.store.space().bytes_free, empty.bytes_free + (32 << 10));
}
