//! What every `Kv` must do, as one function that each implementation's tests call: `all(Table::new)`.
//!
//! It panics at the first promise that is broken, naming the step; the random part is seeded, so a failure repeats.

use std::collections::BTreeMap;

use types::Key;

use crate::{Batch, Kv, Size, Snapshot, Value, load_checkpoint, record_bytes, write_checkpoint};

/// Runs every check on tables made by `make`.
pub fn all<K: Kv>(make: impl Fn() -> K) {
    a_batch_is_seen_whole_by_later_snapshots_only(&make());
    the_later_change_of_a_key_counts(&make());
    ranges_are_half_open_and_stop_on_demand(&make());
    damage_is_reported_with_its_key(&make());
    random_batches_agree_with_a_model(&make());
}

fn key(n: u32) -> Key {
    Key::new(&n.to_be_bytes()).expect("four bytes fit")
}

fn batch(changes: &[(u32, Option<&[u8]>)]) -> Batch {
    let mut b = Batch::new();
    for (n, value) in changes {
        match value {
            Some(v) => b.put(key(*n), Value::new(v)),
            None => b.delete(key(*n)),
        }
    }
    b
}

fn value_of<S: Snapshot>(snap: &S, n: u32) -> Option<Vec<u8>> {
    snap.get(&key(n)).expect("no damage was done").map(|v| v.to_vec())
}

/// K1.
fn a_batch_is_seen_whole_by_later_snapshots_only<K: Kv>(kv: &K) {
    let before = kv.snapshot();
    kv.apply(batch(&[(1, Some(b"one")), (2, Some(b"two"))]));
    let between = kv.snapshot();
    kv.apply(batch(&[(1, None), (2, Some(b"second"))]));
    let after = kv.snapshot();
    assert_eq!([value_of(&before, 1), value_of(&before, 2)], [None, None], "a snapshot does not change");
    assert_eq!(value_of(&between, 1).as_deref(), Some(&b"one"[..]), "a snapshot does not change");
    assert_eq!(value_of(&between, 2).as_deref(), Some(&b"two"[..]));
    assert_eq!(value_of(&after, 1), None, "a deleted record is gone");
    assert_eq!(value_of(&after, 2).as_deref(), Some(&b"second"[..]));
}

fn the_later_change_of_a_key_counts<K: Kv>(kv: &K) {
    kv.apply(batch(&[(5, Some(b"a")), (5, None), (5, Some(b"c")), (6, Some(b"x")), (6, None)]));
    let snap = kv.snapshot();
    assert_eq!(value_of(&snap, 5).as_deref(), Some(&b"c"[..]));
    assert_eq!(value_of(&snap, 6), None);
    assert_eq!(snap.size(), Size { records: 1, bytes: record_bytes(&key(5), 1) });
}

fn ranges_are_half_open_and_stop_on_demand<K: Kv>(kv: &K) {
    for n in 0..100 {
        kv.apply(batch(&[(n * 2, Some(&n.to_le_bytes()))]));
    }
    let snap = kv.snapshot();
    let seen = |from: u32, to: u32, max: usize| {
        let mut out = Vec::new();
        snap.range(&key(from), &key(to), &mut |k, _| {
            out.push(u32::from_be_bytes(k.as_bytes().try_into().expect("our keys have four bytes")));
            out.len() < max
        })
        .expect("no damage was done");
        out
    };
    assert_eq!(seen(4, 10, 99), [4, 6, 8], "from is inside, to is outside");
    assert_eq!(seen(3, 9, 99), [4, 6, 8], "bounds need not be keys");
    assert_eq!(seen(0, 1000, 3), [0, 2, 4], "false stops");
    assert!(
        seen(10, 10, 99).is_empty() && seen(10, 4, 99).is_empty(),
        "an empty range is empty, not a panic"
    );
    assert_eq!(seen(190, 1000, 99), [190, 192, 194, 196, 198]);
}

/// K3.
fn damage_is_reported_with_its_key<K: Kv>(kv: &K) {
    kv.apply(batch(&[(1, Some(b"good")), (3, Some(b"good"))]));
    let mut b = Batch::new();
    b.put(key(2), Value::stored(b"changed", 0x1234));
    kv.apply(b);
    let snap = kv.snapshot();
    assert_eq!(value_of(&snap, 1).as_deref(), Some(&b"good"[..]), "a neighbour's damage is not one's own");
    assert_eq!(snap.get(&key(2)).expect_err("the CRC is wrong").key, key(2));
    let mut seen = Vec::new();
    let end = snap.range(&key(0), &key(9), &mut |k, _| {
        seen.push(*k);
        true
    });
    assert_eq!(end.expect_err("the CRC is wrong").key, key(2));
    assert_eq!(seen, [key(1)], "what came before the damage is good");
}

/// K1, K2, K5 under random batches, compared with a plain map; snapshots taken on the way stay true to the end.
fn random_batches_agree_with_a_model<K: Kv>(kv: &K) {
    let mut model = BTreeMap::<Key, Vec<u8>>::new();
    let mut kept = Vec::new();
    let mut state = 0x243f_6a88_85a3_08d3u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for step in 0..3000 {
        let mut b = Batch::new();
        for _ in 0..1 + random(8) {
            let k = key(random(700) as u32);
            // More puts than deletes at first, more deletes at the end: the tree grows and shrinks.
            if random(10) < if step < 1500 { 7 } else { 3 } {
                let v = vec![random(256) as u8; random(200) as usize];
                b.put(k, Value::new(&v));
                model.insert(k, v);
            } else {
                b.delete(k);
                model.remove(&k);
            }
        }
        kv.apply(b);
        if step % 500 == 0 {
            kept.push((kv.snapshot(), model.clone()));
        }
    }
    kept.push((kv.snapshot(), model));
    for (snap, model) in &kept {
        agrees(snap, model);
        let mut bytes = Vec::new();
        write_checkpoint(snap, &mut bytes).expect("a Vec takes all");
        let loaded = load_checkpoint(&mut &bytes[..]).expect("the stream is whole");
        agrees(&loaded.snapshot(), model);
    }
}

fn agrees<S: Snapshot>(snap: &S, model: &BTreeMap<Key, Vec<u8>>) {
    let mut all = Vec::new();
    snap.range(&Key::default(), &Key::new(&[0xff; 23]).expect("23 bytes fit"), &mut |k, v| {
        all.push((*k, v.to_vec()));
        true
    })
    .expect("no damage was done");
    assert!(all.iter().map(|(k, v)| (k, v)).eq(model.iter()), "the records differ from the model's");
    for n in 0..700 {
        assert_eq!(value_of(snap, n).as_ref(), model.get(&key(n)), "get {n}");
    }
    let bytes = model.iter().map(|(k, v)| record_bytes(k, v.len())).sum();
    assert_eq!(snap.size(), Size { records: model.len() as u64, bytes });
}
