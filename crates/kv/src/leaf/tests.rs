use std::collections::BTreeMap;

use super::*;

type Model = BTreeMap<Key, Value>;

/// A repeatable random generator.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % n as u64) as usize
    }
    /// A key of few letters, so that many keys have a common prefix, or are a prefix of another.
    pub fn key(&mut self) -> Key {
        let len = self.below(KEY_MAX + 1);
        let bytes: Vec<u8> = (0..len).map(|at| if at % 3 == 0 { self.below(3) as u8 } else { 0 }).collect();
        Key::new(&bytes).unwrap()
    }
    pub fn value(&mut self) -> Value {
        let len = match self.below(10) {
            0 => SMALL_MAX + self.below(3),
            n => n * 5,
        };
        Value::new(&vec![self.below(256) as u8; len])
    }
}

fn leaves_of(model: &Model, leaf_bytes: usize) -> Vec<Arc<Leaf>> {
    pack(model.iter().map(|(key, value)| Piece::New(key, value)).collect(), leaf_bytes)
}

fn records_of(leaves: &[Arc<Leaf>]) -> Vec<(Key, Vec<u8>, u32)> {
    let all = leaves.iter().flat_map(|leaf| (0..leaf.records()).map(|i| leaf.record(i)));
    all.map(|(key, content)| (key, content.raw().to_vec(), content.crc())).collect()
}

fn agrees(leaves: &[Arc<Leaf>], model: &Model, leaf_bytes: usize) {
    let want: Vec<_> = model.iter().map(|(k, v)| (*k, v.raw().to_vec(), v.crc())).collect();
    assert_eq!(records_of(leaves), want);
    for leaf in leaves {
        assert!(leaf.records() == 1 || leaf.weight() <= leaf_bytes, "kv-L2: {} bytes", leaf.weight());
    }
}

#[test]
fn what_was_packed_is_found() {
    let mut dice = Dice::new(1);
    for round in 0..200 {
        let count = 1 + dice.below(20);
        let model: Model = (0..count).map(|_| (dice.key(), dice.value())).collect();
        let leaves = leaves_of(&model, 1 << 12);
        let [leaf] = &leaves[..] else { panic!("{} leaves", leaves.len()) };
        agrees(&leaves, &model, 1 << 12);
        for _ in 0..200 {
            let (key, to) = (dice.key(), dice.key());
            let found = leaf.get(&key).map(|content| content.raw().to_vec());
            assert_eq!(found, model.get(&key).map(|v| v.raw().to_vec()), "{key:?} in round {round}");
            let first = model.range(..key).count();
            assert_eq!(leaf.within(&key, None), first..model.len());
            assert_eq!(leaf.within(&key, Some(&to)), first..model.range(..to).count());
        }
    }
}

#[test]
fn edits_agree_with_a_model() {
    let mut dice = Dice::new(2);
    for _ in 0..300 {
        let leaf_bytes = 300 + dice.below(1500);
        let mut model: Model = (0..1 + dice.below(10)).map(|_| (dice.key(), dice.value())).collect();
        let old = leaves_of(&model, 1 << 12).remove(0);
        let edits: BTreeMap<Key, Option<Value>> = (0..dice.below(30))
            .map(|_| {
                let known = model.keys().nth(dice.below(model.len())).copied();
                let key = known.filter(|_| dice.below(2) == 0).unwrap_or_else(|| dice.key());
                (key, (dice.below(3) > 0).then(|| dice.value()))
            })
            .collect();
        let before = records_of(std::slice::from_ref(&old));
        let new = edited(&old, &edits.iter().map(|(k, v)| (k, v.as_ref())).collect::<Vec<_>>());
        let is_same = edits.iter().all(|(k, v)| v.is_none() && !model.contains_key(k));
        assert_eq!(new.is_none(), is_same);
        for (key, value) in &edits {
            match value {
                Some(value) => model.insert(*key, value.clone()),
                None => model.remove(key),
            };
        }
        if let Some(pieces) = new {
            agrees(&pack(pieces, leaf_bytes), &model, leaf_bytes);
        }
        assert_eq!(records_of(std::slice::from_ref(&old)), before, "the old one stays as it was");
    }
}

/// Appended inodes give full leaves, one after the other; records behind them stay behind.
#[test]
fn rows_at_the_end_leave_full_leaves() {
    let bytes = 4000;
    let value = Value::new(&[7; 100]);
    let key = |n: u32| Key::new(&n.to_be_bytes()).unwrap();
    let (behind, mut full) = (key(u32::MAX), Vec::new());
    let mut last = pack(vec![Piece::New(&behind, &value)], bytes).remove(0);
    for row in 0..100 {
        let keys: Vec<Key> = (0..10).map(|n| key(row * 10 + n)).collect();
        let edits: Vec<Edit<'_>> = keys.iter().map(|key| (key, Some(&value))).collect();
        let mut leaves = pack(edited(&last, &edits).unwrap(), bytes);
        last = leaves.pop().unwrap();
        full.extend(leaves);
    }
    assert_eq!(last.get(&behind).map(Content::raw), Some(value.raw()));
    let least = full.iter().map(|leaf| leaf.weight()).min();
    assert!(least > Some(bytes * 9 / 10), "{least:?}");
}

/// Names come at random places: leaves that were divided have free space on both sides.
#[test]
fn what_comes_between_divides_evenly() {
    let bytes = 4000;
    let value = Value::new(&[7; 100]);
    let key = |n: u32| Key::new(&n.to_be_bytes()).unwrap();
    let model: Model = (0..34).map(|n| (key(n * 10), value.clone())).collect();
    for at in [5, 155, 325, 331] {
        let old = leaves_of(&model, bytes);
        let leaves =
            pack(edited(&old[0], &[(&key(at), Some(&value)), (&key(at + 1), Some(&value))]).unwrap(), bytes);
        let weights: Vec<usize> = leaves.iter().map(|leaf| leaf.weight()).collect();
        assert!(weights.len() == 2 && weights.iter().all(|w| *w > bytes * 2 / 5), "{at}: {weights:?}");
    }
}

#[test]
fn a_copied_leaf_shares_large_values() {
    let (large, small) = (Value::new(&[1; SMALL_MAX + 1]), Value::new(&[2; SMALL_MAX]));
    let keys: Vec<Key> = (0..3).map(|n| Key::new(&[n]).unwrap()).collect();
    let old = pack(vec![Piece::New(&keys[0], &large), Piece::New(&keys[2], &small)], 4000);
    let new = pack(edited(&old[0], &[(&keys[1], Some(&small))]).unwrap(), 4000);
    let place = |leaf: &Leaf, n: usize| leaf.get(&keys[n]).unwrap().raw().as_ptr();
    assert_eq!(place(&old[0], 0), large.raw().as_ptr());
    assert_eq!(place(&new[0], 0), large.raw().as_ptr());
    assert_ne!(place(&new[0], 2), small.raw().as_ptr());
}
