//! Leaves whose bytes are not the written ones, and reads that fail.

use disk::Trouble;

use super::*;

/// kv-K9: each leaf in turn.
#[test]
fn a_leaf_that_rots_takes_its_own_records() {
    let mut scene = Scene::new(WIDE);
    scene.change(2000);
    scene.checkpoint().unwrap();
    let homes = scene.on_medium().state.lock().named.clone();
    for (n, home) in homes.iter().enumerate() {
        let disk = scene.disk.crash(Crash::KeepAll);
        let victim = scene.on_medium().ground.area.begin(&home.place) + home.place.bytes / 2;
        let mut byte = [0];
        disk.read_at(&mut byte, victim).unwrap();
        disk.write_at(&[byte[0] ^ 4], victim).unwrap();
        let mut again = Scene::open(Arc::new(disk), scene.model.clone(), TIGHT);
        let next = homes.get(n + 1).map(|home| home.first);
        let is_in = |key: &Key| *key >= home.first && next.is_none_or(|next| *key < next);
        // 1. Its keys are damaged, and no others.
        let sound = |again: &Scene, known: &[Key]| {
            for key in scene.model.keys() {
                let want = match is_in(key) && !known.contains(key) {
                    true => Err(Damage::of(*key)),
                    false => Ok(again.model.get(key).cloned()),
                };
                assert_eq!(again.get(key), want, "leaf {n}");
            }
        };
        sound(&again, &[]);
        assert_eq!((again.table.figures().broken, again.table.lost()), (1, 1));
        assert!(matches!(again.volume.trouble(), Some(Trouble::Unreadable(_))), "a mirror hears of it");
        // Keys behind its last record are not affected.
        let all = Key::new(&[0xff; 9]).unwrap();
        let behind = Key::new(&[home.last.as_bytes(), &[0]].concat()).unwrap();
        assert_eq!(again.get(&behind), Ok(None), "leaf {n}");
        assert!(again.list(&behind, &all, None).iter().eq(scene.model.range(behind..).map(|(key, _)| key)));
        // 2. Keys that are changed in the damaged range are known again, over checkpoints and starts.
        let inside: Vec<Key> = scene.model.keys().filter(|key| is_in(key)).copied().collect();
        let known: Vec<Key> =
            inside.iter().enumerate().filter(|(i, _)| i % 5 < 3).map(|(_, key)| *key).collect();
        let mut batch = Batch::new();
        for (i, key) in known.iter().enumerate() {
            if i % 3 == 1 {
                batch.delete(*key);
                again.model.remove(key);
            } else {
                batch.put(*key, Value::new(b"anew"));
                again.model.insert(*key, b"anew".to_vec());
            }
        }
        let seq = again.volume.append(Epoch(1), &[0; 8]).unwrap();
        again.load_for(&batch);
        again.table.apply(seq, batch);
        sound(&again, &known);
        // Known keys are also listed before they move to the tree.
        let listed = again.list(&Key::default(), &all, Some(&mut 0));
        assert!(
            listed.iter().eq(again.model.keys().filter(|key| !is_in(key) || known.contains(key))),
            "leaf {n}"
        );
        again.shrink();
        sound(&again, &known);
        again.checkpoint().unwrap();
        let mut again = Scene::open(again.disk, again.model, TIGHT);
        // The checkpoint names the lost ranges, divided at the known keys.
        assert!((1..=1 + known.len() as u64).contains(&again.table.lost()), "leaf {n}");
        sound(&again, &known);
        // All records around the lost ranges are listed.
        let listed = again.list(&Key::default(), &all, Some(&mut 0));
        assert!(listed.iter().eq(again.model.keys().filter(|key| !is_in(key) || known.contains(key))));
        // 3. The leaf is lost for good: its pages are free, and a listing ends there.
        again.model.retain(|key, _| !is_in(key) || known.contains(key));
        assert_eq!(again.table.snapshot().size().records, again.model.len() as u64);
        let (first, end) = (Key::default(), Key::new(&[0xff; 9]).unwrap());
        let mut seen = Vec::new();
        let listed = loop {
            seen.clear();
            match again.table.snapshot().range(&first, &end, &mut |key, _| {
                seen.push(*key);
                true
            }) {
                Err(Miss::Absent(what)) => again.table.load(what).unwrap(),
                end => break end,
            }
        };
        let lost = listed.err().and_then(|miss| match miss {
            Miss::Damage(damage) if is_in(&damage.key) => Some(damage.key),
            _ => None,
        });
        let lost = lost.unwrap_or_else(|| panic!("leaf {n}"));
        assert!(seen.iter().eq(again.model.keys().take_while(|key| **key < lost)), "leaf {n}");
        again.checkpoint().unwrap();
        let used = again.on_medium().ground.area.pages_used();
        assert_eq!(used, again.pages_named(), "leaf {n}");
    }
    assert!(homes.len() > 10, "{}", homes.len());
}

/// kv-H3: records that cannot be read for now are not lost, whichever call wants or changes them.
#[test]
fn a_read_that_fails_loses_nothing() {
    let mut scene = Scene::new(WIDE);
    scene.change(2000);
    scene.checkpoint().unwrap();
    let faulty = Arc::new(FaultyDisk::new(scene.disk.clone()));
    let volume = Volume::open(faulty.clone() as Arc<dyn Disk>).unwrap();
    let table = table_on(&volume, WIDE).unwrap();
    let homes = scene.on_medium().state.lock().named.clone();
    let bad = homes.len() / 2;
    let begin = scene.on_medium().ground.area.begin(&homes[bad].place);
    faulty.make_unreadable(begin..begin + 1);
    let first = |n: usize| homes[n].first;
    // 1. No call wants the leaf yet: read-ahead and warming load the others around it.
    let read = |from: Key, to: Key| loop {
        match table.snapshot().range(&from, &to, &mut |_, _| true) {
            Err(Miss::Absent(what)) => table.load(what)?,
            end => return Ok::<_, io::Error>(end),
        }
    };
    let mut what = match table.snapshot().range(&first(bad - 1), &first(bad + 2), &mut |_, _| true) {
        Err(Miss::Absent(what)) => what,
        end => panic!("{end:?}"),
    };
    if let Err(Miss::Absent(more)) = table.snapshot().get(&first(bad)) {
        what.join(more);
    }
    table.load(what).unwrap();
    let mut from = Key::default();
    while table.warm(&mut from).unwrap() {}
    assert_eq!(table.figures().loads, homes.len() as u64 - 1);
    read(first(bad + 1), Key::new(&[0xff; 9]).unwrap()).unwrap().unwrap();
    assert_eq!(volume.trouble(), None);
    // 2. A read that wants it gets an error, and so does a change.
    let batch = Batch(vec![Change { key: first(bad), value: Some(Value::new(b"anew")) }]);
    for _ in 0..3 {
        read(Key::default(), first(bad + 1)).unwrap_err();
        table.load(table.admits(batch.keys()).unwrap_err()).unwrap_err();
    }
    assert_eq!(table.figures().broken, 0);
    assert!(matches!(volume.trouble(), Some(Trouble::Unreadable(_))));
    // 3. A checkpoint names it as before.
    table.checkpoint(&table.snapshot(), &mut std::iter::empty(), &mut Vec::new()).unwrap();
    table.end_checkpoint(true);
    drop((table, volume));
    // 4. The whole medium fails for a while.
    let faulty = Arc::new(FaultyDisk::new(scene.disk.clone()));
    let volume = Volume::open(faulty.clone() as Arc<dyn Disk>).unwrap();
    let table = table_on(&volume, TIGHT).unwrap();
    faulty.fail(Op::Read, When::Always);
    let Err(Miss::Absent(what)) = table.snapshot().get(&first(bad)) else { panic!("it is away") };
    table.load(what.clone()).unwrap_err();
    table.load(table.admits(batch.keys()).unwrap_err()).unwrap_err();
    faulty.fail(Op::Read, When::Never);
    table.load(what).unwrap();
    assert!(table.snapshot().get(&first(bad)).unwrap().is_some());
    assert!(model_of(&table) == scene.model);
}

/// Returns wrong bytes, while the medium below is unchanged.
struct WrongWay(Arc<SimDisk>);

impl Disk for WrongWay {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_at(buf, offset)?;
        buf[0] ^= 1;
        Ok(())
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(buf, offset)
    }
    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.discard(offset, len)
    }
    fn read_medium_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_at(buf, offset)
    }
}

#[test]
fn what_was_wrong_on_its_way_is_asked_of_the_medium() {
    let mut scene = Scene::new(WIDE);
    scene.change(500);
    scene.checkpoint().unwrap();
    let medium = Medium { disk: Arc::new(WrongWay(scene.disk.clone())), ..medium_of(&scene.volume, WIDE) };
    let table = Table::over(medium).unwrap();
    let mut stream = scene.volume.checkpoint_reader().unwrap().unwrap();
    let table = table.open(scene.volume.checkpoint_seq(), &mut stream, &mut |_, _| false).unwrap();
    for key in scene.model.keys() {
        while let Err(Miss::Absent(what)) = table.snapshot().get(key) {
            table.load(what).unwrap();
        }
        table.snapshot().get(key).unwrap();
    }
    assert_eq!(table.figures().broken, 0);
    assert!(model_of(&table) == scene.model);
}

/// Keys that never had a record are not lost, whatever happens to the leaf around them.
#[test]
fn a_bare_stretch_is_not_lost() {
    let key = |n: u64| Key::new(&n.to_be_bytes()).unwrap();
    let put = |scene: &mut Scene, numbers: &mut dyn Iterator<Item = u64>| {
        let mut batch = Batch::new();
        for n in numbers {
            batch.put(key(n), Value::new(&[7; 30]));
            scene.model.insert(key(n), vec![7; 30]);
        }
        let seq = scene.volume.append(Epoch(1), &[0; 8]).unwrap();
        scene.load_for(&batch);
        scene.table.apply(seq, batch);
    };
    let mut scene = Scene::new(WIDE);
    put(&mut scene, &mut (0..1000).chain(1500..2000));
    scene.checkpoint().unwrap();
    // The leaf around the empty range, and its records.
    let homes = scene.on_medium().state.lock().named.clone();
    let home = homes.iter().find(|home| home.first < key(1000) && home.last >= key(1500)).unwrap();
    let lost: Vec<u64> = (0..2000).filter(|n| (home.first..=home.last).contains(&key(*n))).collect();
    let at = scene.on_medium().ground.area.begin(&home.place) + 100;
    let mut byte = [0];
    scene.disk.read_at(&mut byte, at).unwrap();
    scene.disk.write_at(&[byte[0] ^ 4], at).unwrap();
    let mut scene = Scene::open(scene.disk, scene.model, TIGHT);
    while let Err(what) = scene.table.bare(&key(1000), &key(1500)) {
        scene.table.load(what).unwrap();
    }
    let leaves = scene.table.figures().leaves;
    put(&mut scene, &mut (1000..1400));
    let check = |scene: &Scene| {
        scene.checkpoint().unwrap();
        assert!(scene.table.figures().leaves < leaves + 20, "{}", scene.table.figures().leaves - leaves);
        for n in 0..2000 {
            let want = match lost.contains(&n) && !(1000..1500).contains(&n) {
                true => Err(Damage::of(key(n))),
                false => Ok(scene.model.get(&key(n)).cloned()),
            };
            assert_eq!(scene.get(&key(n)), want, "{n}");
        }
        let mut pieces = 0;
        let listed = scene.list(&key(0), &key(2000), Some(&mut pieces)).len();
        let known = scene.model.keys().filter(|k| scene.get(k).is_ok()).count();
        assert_eq!((listed, pieces), (known, 2));
        assert_eq!(scene.on_medium().ground.area.pages_used(), scene.pages_named());
    };
    check(&scene);
    assert_eq!(scene.table.bare(&key(1000), &key(1500)), Ok(()), "once more");
    check(&scene);
    let scene = Scene::open(scene.disk, scene.model, TIGHT);
    check(&scene);
}
