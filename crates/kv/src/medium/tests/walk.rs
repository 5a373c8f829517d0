//! Walks over a whole version.

use super::*;

/// A version of any size can be walked: leaves loaded for the walk are dropped on request, and the latest changes are still in it.
#[test]
fn what_was_brought_for_a_state_is_forgotten() {
    let mut scene = Scene::new(TIGHT);
    scene.change(2000);
    scene.checkpoint().unwrap();
    let mut scene = Scene::open(scene.disk, scene.model, TIGHT);
    scene.come();
    let (view, all) = (scene.table.snapshot(), scene.model.keys().copied().collect::<Vec<_>>());
    // All records, and the leaves that were loaded for them.
    let list = |view: &<Table as Engine>::Snap| {
        let (before, end) = (scene.table.figures().loads, Key::new(&[0xff; 9]).unwrap());
        loop {
            let mut seen = Vec::new();
            let all = view.range(&Key::default(), &end, &mut |key, _| {
                seen.push(*key);
                true
            });
            match all {
                Ok(()) => return (seen, scene.table.figures().loads - before),
                Err(Miss::Absent(what)) => scene.table.load(what).unwrap(),
                Err(miss) => panic!("{miss}"),
            }
        }
    };
    let (seen, brought) = list(&view);
    assert!(seen == all && brought > 10, "{brought} leaves");
    scene.shrink();
    assert!(list(&view) == (all.clone(), 0), "it keeps them");
    let view = scene.table.forgotten(&view);
    let (seen, again) = list(&view);
    assert!(seen == all && again > 10, "{again} leaves");
}

/// kv-H1: a thread that read some time ago keeps no pages from a checkpoint that found no free space.
#[test]
fn a_checkpoint_that_fails_frees_what_nobody_reads() {
    let mut scene = Scene::new(TIGHT);
    scene.change(1500);
    scene.checkpoint().unwrap();
    scene.shrink();
    let seq = scene.table.reader().seq();
    let reading = scene.table.snapshot();
    scene.change(1500);
    scene.checkpoint().unwrap();
    let kept = || scene.on_medium().ground.area.pages_used() - scene.pages_named();
    let free = || scene.table.end_checkpoint(false);
    free();
    assert!(kept() > 10 && reading.seq() == seq, "{}: a reader holds them", kept());
    drop(reading);
    assert!(kept() > 10, "{}", kept());
    free();
    assert_eq!(kept(), 0);
}

/// Leaves that were loaded at the start are put in the tree when all are loaded, however few: that saves a search one step.
#[test]
fn what_a_start_brought_is_put_in_its_place() {
    let mut scene = Scene::new(WIDE);
    scene.change(2000);
    scene.checkpoint().unwrap();
    let scene = Scene::open(scene.disk, scene.model, WIDE);
    let filled = || scene.on_medium().ground.filled_bytes();
    let mut from = Key::default();
    while scene.table.warm(&mut from).unwrap() {}
    assert!(filled() > 100 << 10, "{}", filled());
    while scene.table.tidy() != Tidied::Done {}
    assert_eq!(filled(), 0);
    assert_eq!(model_of(&scene.table), scene.model);
}

/// After a failed checkpoint `tidy` does not examine again what cannot be evicted.
#[test]
fn only_a_checkpoint_that_counts_wakes_who_tidies() {
    let mut scene = Scene::new(TIGHT);
    scene.change(1500);
    scene.table.move_changes(Duration::ZERO);
    let steps = || (0..99).map(|_| scene.table.tidy()).take_while(|tidied| *tidied != Tidied::Done);
    assert!(steps().collect::<Vec<_>>().contains(&Tidied::Unwritten));
    assert_eq!(steps().count(), 0);
    scene.table.checkpoint(&scene.table.snapshot(), &mut std::iter::empty(), &mut Vec::new()).unwrap();
    scene.table.end_checkpoint(false);
    assert_eq!(steps().count(), 0);
    scene.checkpoint().unwrap();
    assert!(steps().count() > 0);
    assert_eq!(scene.table.figures().evictions, scene.table.figures().leaves);
}

/// The changed leaves exceed the bound of memory and must stay until a checkpoint has written them: `tidy` waits for that, even beside a
/// thread that reads the same leaf again and again.
#[test]
fn nobody_goes_round_and_round_before_a_checkpoint() {
    let mut scene = Scene::of(8 << 20, 64 << 10);
    let beside = |n: u8| Key::new(&[0xff, n]).unwrap();
    for n in 0..60 {
        scene.change_one(beside(n), Some(Value::new(&[n; 300])));
        scene.model.insert(beside(n), vec![n; 300]);
    }
    scene.change(3000);
    scene.checkpoint().unwrap();
    for _ in 0..2 {
        scene.change(3000);
        assert!(scene.table.figures().memory_bytes > 2 * scene.table.figures().memory_bytes_max);
        let mut steps = 0;
        while scene.table.tidy() != Tidied::Done {
            scene.get(&beside(55)).unwrap();
            steps += 1;
            assert!(steps < 20, "{:?}", scene.table.figures());
        }
        scene.checkpoint().unwrap();
        scene.shrink();
        let figures = scene.table.figures();
        assert!(figures.memory_bytes <= figures.memory_bytes_max / 8 * 9, "{figures:?}");
    }
}
