use std::collections::BTreeMap;

use hammer::Dice;

use super::*;

type Model = BTreeMap<Key, Option<Vec<u8>>>;

fn key(n: u64) -> Key {
    Key::new(&n.to_be_bytes()[6..]).unwrap()
}

fn shown<'a>(changes: impl Iterator<Item = (&'a Key, Option<&'a Value>)>) -> Vec<(Key, Option<Vec<u8>>)> {
    changes.map(|(key, value)| (*key, value.map(|value| value.raw().to_vec()))).collect()
}

fn check(recent: &Recent, model: &Model, rng: &mut Dice) {
    assert_eq!(shown(recent.iter()), model.clone().into_iter().collect::<Vec<_>>());
    let (from, to) = (key(rng.below(70) as u64), key(rng.below(70) as u64));
    let within: Vec<_> = match from < to {
        true => model.range(from..to).map(|(k, v)| (*k, v.clone())).collect(),
        false => Vec::new(),
    };
    assert_eq!(shown(recent.range(&from, Some(&to))), within);
    for n in 0..70 {
        let got = recent.get(&key(n)).map(|value| value.map(|value| value.raw().to_vec()));
        assert_eq!(got, model.get(&key(n)).cloned());
    }
}

/// States of all ages, of rows with and without room, changed and looked at in turns.
#[test]
fn each_state_is_a_map_of_its_own() {
    for seed in 1..=30 {
        let rng = &mut Dice::new(seed);
        let mut states = vec![(Recent::with_room(rng.below(200)), Model::new())];
        for _ in 0..400 {
            let at = rng.below(states.len());
            // Mostly the newest one of its row, as a table does.
            let at = if rng.below(8) > 0 { states.len() - 1 } else { at };
            let (mut recent, mut model) = states[at].clone();
            for _ in 0..1 + rng.below(6) {
                let key = key(rng.below(64) as u64);
                let value = (rng.below(4) > 0).then(|| rng.next().to_le_bytes());
                recent.add(key, value.map(|bytes| Value::new(&bytes)));
                model.insert(key, value.map(|bytes| bytes.to_vec()));
            }
            match states.len() {
                9 => states[at] = (recent, model),
                _ => states.push((recent, model)),
            }
            let (recent, model) = &states[rng.below(states.len())];
            check(recent, model, rng);
        }
        states.iter().for_each(|(recent, model)| check(recent, model, rng));
    }
}

#[test]
fn the_newest_state_adds_to_its_row_and_an_older_one_gets_its_own() {
    let mut newest = Recent::with_room(4);
    newest.add(key(1), None);
    let mut older = newest.clone();
    newest.add(key(2), None);
    assert!(Arc::ptr_eq(&newest.row, &older.row));
    older.add(key(3), None);
    assert!(!Arc::ptr_eq(&newest.row, &older.row));
    assert_eq!(shown(newest.iter()), [(key(1), None), (key(2), None)]);
    assert_eq!(shown(older.iter()), [(key(1), None), (key(3), None)]);
}

/// A row that is full is left with what can be seen: of one key the latest.
#[test]
fn a_key_that_changes_again_and_again_takes_little() {
    let mut recent = Recent::with_room(16);
    (0..1000).for_each(|_| recent.add(key(7), None));
    assert!(
        recent.changes() <= 32 && recent.row.nodes.len() <= 64,
        "{} of {}",
        recent.changes(),
        recent.row.nodes.len()
    );
}

/// kv-N1, kv-N2: a reader beside the writer sees the state that it was given, whole and in order.
#[test]
fn readers_beside_a_writer() {
    const CHANGES: u64 = 20_000;
    let published = parking_lot::Mutex::new((0, Recent::with_room(512)));
    // Each change writes its number; the model of a state is what all keys were at its number.
    let at = |n: u64| n.wrapping_mul(0x9e37_79b9) % 61;
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                let mut last = 0;
                while last < CHANGES {
                    let (upto, recent) = published.lock().clone();
                    last = upto;
                    let mut keys = Vec::new();
                    for (key, value) in recent.iter() {
                        let n = u64::from_le_bytes(value.unwrap().raw().try_into().unwrap());
                        assert!(n <= upto, "a later change shows");
                        assert_eq!(*key, super::tests::key(at(n)));
                        let later = (n + 1..=upto).take(200).find(|later| at(*later) == at(n));
                        assert_eq!(later, None, "an earlier change hides the latest");
                        keys.push(*key);
                    }
                    assert!(keys.is_sorted_by(|a, b| a < b));
                    assert!(upto < 61 * 4 || keys.len() == 61, "{} keys at {upto}", keys.len());
                }
            });
        }
        for n in 1..=CHANGES {
            let (_, mut recent) = published.lock().clone();
            recent.add(key(at(n)), Some(Value::new(&n.to_le_bytes())));
            *published.lock() = (n, recent);
        }
    });
}

/// A search must stay short: about as many of a higher level as there should be.
#[test]
fn levels_are_spread() {
    let count = |at_least: usize| (0..640).filter(|n| levels(*n) >= at_least).count();
    assert_eq!(count(1), 640);
    assert!((110..=210).contains(&count(2)), "{}", count(2));
    assert!((20..=70).contains(&count(3)), "{}", count(3));
    assert!((4..=25).contains(&count(4)), "{}", count(4));
    // No long stretch of the row without: neighbours in time are often neighbours in order.
    let longest = (0..640).collect::<Vec<_>>().split(|n| levels(*n) >= 2).map(|run| run.len()).max();
    assert!(longest.is_some_and(|longest| longest <= 24), "{longest:?}");
}

/// Most keys that are asked for have no change: that must be seen without a search.
#[test]
fn few_keys_without_a_change_are_searched_for() {
    let mut recent = Recent::with_room(320);
    // Such keys as there are: entries of a directory, numbers in a row.
    let of =
        |kind: u8, n: u64| Key::new(&[&[kind][..], &7u64.to_be_bytes(), &n.to_be_bytes()].concat()).unwrap();
    let hash = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for n in 0..160 {
        recent.add(of(1, n), None);
        recent.add(of(2, hash(n)), None);
    }
    for other in [|n: u64| (1, n), |n: u64| (2, n.wrapping_mul(0x9e37_79b9_7f4a_7c15)), |n: u64| (3, n)] {
        let keys = (160..4160).map(other).map(|(kind, n)| of(kind, n));
        let searched = keys.filter(|key| recent.row.may_have(key)).count();
        assert!(searched < 400, "{searched} of 4000");
    }
}
