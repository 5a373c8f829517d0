use std::collections::BTreeMap;

use super::*;
use crate::Value;
use crate::leaf::tests::Dice;

/// Large enough that one record is no quarter of a leaf.
const SHAPE: Shape = Shape { leaf_bytes: 2400, fanout: 8, changes: 256 };

/// Checks kv-T1 to kv-T3 below a child and returns how deep its leaves lie.
fn depth(at: &Child, from: Option<Key>, to: Option<Key>, is_root: bool) -> usize {
    match at {
        Child::Leaf(leaf, _) => {
            let (first, last) = (leaf.first(), leaf.key(leaf.records() - 1));
            assert!(from.is_none_or(|from| from <= first) && to.is_none_or(|to| last < to), "kv-T1");
            0
        }
        Child::Away(_) | Child::Lost(_) => 0,
        Child::Inner(inner) => {
            let n = inner.count;
            assert!(n <= SHAPE.fanout && n >= if is_root { 2 } else { 1 }, "kv-T3: {n} children");
            let depths = (0..n).map(|i| {
                let from = if i == 0 { from } else { Some(inner.firsts[i]) };
                depth(inner.child(i), from, inner.firsts().get(i + 1).copied().or(to), false)
            });
            let depths: Vec<usize> = depths.collect();
            assert!(depths.iter().all(|d| *d == depths[0]), "kv-T2: {depths:?}");
            // Neighbours of which one is small would have been joined.
            assert!(n == 1 || !inner.children().any(|(_, child)| SHAPE.is_small(&child)), "kv-T3");
            depths[0] + 1
        }
    }
}

fn leaves_in(tree: &Tree) -> Vec<Arc<Leaf>> {
    fn below(at: &Child, out: &mut Vec<Arc<Leaf>>) {
        match at {
            Child::Leaf(leaf, _) => out.push(leaf.clone()),
            Child::Inner(inner) => inner.children().for_each(|(_, child)| below(&child, out)),
            Child::Away(_) | Child::Lost(_) => panic!("all of it is in memory"),
        }
    }
    let mut out = Vec::new();
    tree.root.iter().for_each(|root| below(root, &mut out));
    out
}

fn keys_of(tree: &Tree, from: &Key, to: Option<&Key>) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut take = |key, _: Content<'_>| {
        keys.push(key);
        ControlFlow::<()>::Continue(())
    };
    let _ = tree.range(from, to, &mut take, &mut |gap| panic!("all of it is in memory: {gap:?}"));
    keys
}

#[test]
fn random_edits_keep_the_form() {
    let mut dice = Dice::new(3);
    let (mut tree, mut model) = (Tree::default(), BTreeMap::<Key, Value>::new());
    let mut deepest = 0;
    for step in 0..1200 {
        // It grows, and shrinks to nothing.
        let puts_of_ten = if step < 600 { 7 } else { 1 };
        let edits: BTreeMap<Key, Option<Value>> = (0..1 + dice.below(12))
            .map(|_| {
                let known = (!model.is_empty()).then(|| model.keys().nth(dice.below(model.len())).copied());
                let is_put = dice.below(10) < puts_of_ten;
                let key = known.flatten().filter(|_| !is_put).unwrap_or_else(|| dice.key());
                (key, is_put.then(|| dice.value()))
            })
            .collect();
        tree = tree.edit(&edits.iter().map(|(k, v)| (k, v.as_ref())).collect::<Vec<_>>(), &SHAPE);
        for (key, value) in edits {
            match value {
                Some(value) => model.insert(key, value),
                None => model.remove(&key),
            };
        }
        deepest = deepest.max(tree.root.as_ref().map_or(0, |root| depth(root, None, None, true)));
        let (from, to) = (dice.key(), dice.key());
        assert_eq!(tree.get(&from).unwrap().map(Content::raw), model.get(&from).map(Value::raw));
        assert!(keys_of(&tree, &from, None).iter().eq(model.range(from..).map(|(k, _)| k)));
        if from < to {
            assert!(keys_of(&tree, &from, Some(&to)).iter().eq(model.range(from..to).map(|(k, _)| k)));
        }
    }
    assert!(deepest >= 2, "{deepest}");
    let all: Vec<Key> = model.into_keys().collect();
    tree = tree.edit(&all.iter().map(|key| (key, None)).collect::<Vec<_>>(), &SHAPE);
    assert!(tree.root.is_none());
}

#[test]
fn a_change_copies_what_it_touches() {
    let key = |n: u32| Key::new(&n.to_be_bytes()).unwrap();
    let (keys, value) = ((0..1000).map(key).collect::<Vec<_>>(), Value::new(&[5; 40]));
    let old = Tree::default().edit(&keys.iter().map(|key| (key, Some(&value))).collect::<Vec<_>>(), &SHAPE);
    let other = Value::new(&[6; 40]);
    let new = old.edit(&[(&keys[500], Some(&other))], &SHAPE);
    let (before, after) = (leaves_in(&old), leaves_in(&new));
    let copied = before.iter().zip(&after).filter(|(a, b)| !Arc::ptr_eq(a, b)).count();
    assert_eq!((before.len(), copied), (after.len(), 1));
    assert_eq!(old.get(&keys[500]).unwrap().map(Content::raw), Some(value.raw()));
    assert_eq!(new.get(&keys[500]).unwrap().map(Content::raw), Some(other.raw()));
    // A delete of a missing key copies nothing.
    let same = new.edit(&[(&key(5000), None)], &SHAPE);
    assert!(leaves_in(&same).iter().zip(&after).all(|(a, b)| Arc::ptr_eq(a, b)));
}

/// Where a search looks before it has seen a leaf is where the record is, nearly: in the middle of all leaves it would be a quarter
/// of them away.
#[test]
fn a_share_says_where_in_its_leaf_a_record_is() {
    let mut dice = Dice::new(7);
    let name = |(directory, hash): (u64, u64)| {
        Key::new(&[&[1][..], &directory.to_be_bytes(), &hash.to_be_bytes(), &[0]].concat()).unwrap()
    };
    // Hashes of names in some directories, and numbers in a row.
    let names = (0..4000).map(|n| name((500 + n % 4, (dice.below(1 << 30) as u64) << 34))).collect();
    let numbers =
        (1000..5000u64).map(|n| Key::new(&[&[2][..], &n.to_be_bytes()].concat()).unwrap()).collect();
    for mut keys in [names, numbers] as [Vec<Key>; 2] {
        keys.sort();
        keys.dedup();
        let value = Value::new(&[5; 20]);
        let edits: Vec<_> = keys.iter().map(|key| (key, Some(&value))).collect();
        let tree = Tree::default().edit(&edits, &Shape::default());
        let away = |key: &Key| {
            let Some((Child::Leaf(leaf, records), share)) = tree.tip(key) else {
                panic!("all of it is here")
            };
            assert_eq!(usize::from(*records), leaf.records());
            share.part(leaf.records()).abs_diff(leaf.within(key, None).start) as f64 / leaf.records() as f64
        };
        let mean = keys.iter().map(away).sum::<f64>() / keys.len() as f64;
        assert!(leaves_in(&tree).len() > 30 && mean < 0.1, "{mean}");
    }
}
