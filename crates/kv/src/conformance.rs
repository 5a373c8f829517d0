//! The promises of every `Engine`, as one function that each implementation's tests call: `all(Table::new)`.
//!
//! It panics at the first broken promise and names the step. The random part is seeded, so a failure repeats.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use types::{Key, Seq};

use crate::{Batch, Damage, Engine, Miss, Size, Tidied, Value, View, record_bytes};

/// Runs every check on empty engines made by `make`.
pub fn all<E: Engine>(make: impl Fn() -> E) {
    all_of(&make, &|_| make());
}

/// As `all`, for engines with a medium: `again` makes an empty engine over the medium of another.
pub fn all_of<E: Engine>(make: &dyn Fn() -> E, again: &dyn Fn(&E) -> E) {
    a_batch_is_seen_whole_by_later_views_only(&make());
    the_later_change_of_a_key_counts(&make());
    ranges_are_half_open_and_stop_on_demand(&make());
    damage_is_reported_with_its_key(&make());
    a_checkpoint_opens_whole_or_not_at_all(&make(), again);
    random_batches_agree_with_a_model(&make(), again, true);
    beside_who_moves(&make(), |kv| random_batches_agree_with_a_model(kv, again, false));
}

/// Runs `check` while a mover thread moves changes to the tree.
fn beside_who_moves<E: Engine>(kv: &E, check: impl FnOnce(&E)) {
    let is_over = AtomicBool::new(false);
    thread::scope(|s| {
        s.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                kv.move_changes(Duration::from_millis(1));
            }
        });
        // Ends the mover also when `check` panics. Otherwise the scope would wait for ever and hide the panic.
        let _end = Ends(&is_over);
        check(kv);
    });
}

/// Sets the flag when dropped, also by a panic, so that other threads end.
pub(crate) struct Ends<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
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

/// kv-K7: loads the leaves that the changes need, then applies them.
fn applied<E: Engine>(kv: &E, upto: Seq, batch: Batch) {
    while let Err(what) = kv.admits(batch.keys()) {
        kv.load(what).expect("the medium is sound");
    }
    kv.apply(upto, batch);
}

/// kv-K5: makes a checkpoint durable, then evicts as much as possible.
fn shrunk<E: Engine>(kv: &E) {
    written(kv, &kv.snapshot(), &[]).expect("a Vec takes all");
    kv.end_checkpoint(true);
    while kv.tidy() != Tidied::Done {}
}

/// kv-K7: loads what is absent; the same view then shows it.
fn looked_up<E: Engine>(kv: &E, view: &impl View, key: &Key) -> Result<Option<Vec<u8>>, Damage> {
    loop {
        match view.get(key) {
            Ok(value) => return Ok(value.map(|v| v.into_owned())),
            Err(Miss::Damage(d)) => return Err(d),
            Err(Miss::Absent(what)) => kv.load(what).expect("the medium is sound"),
        }
    }
}

fn value_of<E: Engine>(kv: &E, view: &impl View, n: u32) -> Option<Vec<u8>> {
    looked_up(kv, view, &key(n)).expect("no damage was done")
}

/// The first `max` records of a range, and the damage that ended it.
fn listed<E: Engine>(
    kv: &E,
    view: &impl View,
    from: &Key,
    to: &Key,
    max: usize,
) -> (Vec<(Key, Vec<u8>)>, Option<Damage>) {
    loop {
        let mut out = Vec::new();
        let end = view.range(from, to, &mut |k, v| {
            out.push((*k, v.to_vec()));
            out.len() < max
        });
        match end {
            Ok(()) => return (out, None),
            Err(Miss::Damage(d)) => return (out, Some(d)),
            Err(Miss::Absent(what)) => kv.load(what).expect("the medium is sound"),
        }
    }
}

/// kv-K1, for readers and for snapshots.
fn a_batch_is_seen_whole_by_later_views_only<E: Engine>(kv: &E) {
    let (before, read_before) = (kv.snapshot(), kv.reader());
    applied(kv, Seq(1), batch(&[(1, Some(b"one")), (2, Some(b"two"))]));
    let (between, read_between) = (kv.snapshot(), kv.reader());
    applied(kv, Seq(7), batch(&[(1, None), (2, Some(b"second"))]));
    let (after, read_after) = (kv.snapshot(), kv.reader());
    fn shows<E: Engine>(kv: &E, view: &impl View, seq: u64, want: [Option<&[u8]>; 2]) {
        let got = [1, 2].map(|n| value_of(kv, view, n));
        assert_eq!(got, want.map(|w| w.map(<[u8]>::to_vec)), "a view does not change");
        assert_eq!(view.seq(), Seq(seq), "and knows its last entry");
    }
    let old = Some(&b"one"[..]);
    shows(kv, &before, 0, [None, None]);
    shows(kv, &read_before, 0, [None, None]);
    shows(kv, &between, 1, [old, Some(b"two")]);
    shows(kv, &read_between, 1, [old, Some(b"two")]);
    shows(kv, &after, 7, [None, Some(b"second")]);
    shows(kv, &read_after, 7, [None, Some(b"second")]);
}

fn the_later_change_of_a_key_counts<E: Engine>(kv: &E) {
    applied(kv, Seq(1), batch(&[(5, Some(b"a")), (5, None), (5, Some(b"c")), (6, Some(b"x")), (6, None)]));
    let view = kv.reader();
    assert_eq!(value_of(kv, &view, 5).as_deref(), Some(&b"c"[..]));
    assert_eq!(value_of(kv, &view, 6), None);
    let size = Size { records: 1, bytes: record_bytes(&key(5), 1) };
    assert_eq!((view.size(), kv.figures().size), (size, size));
}

fn ranges_are_half_open_and_stop_on_demand<E: Engine>(kv: &E) {
    for n in 0..100 {
        applied(kv, Seq(n as u64), batch(&[(n * 2, Some(&n.to_le_bytes()))]));
    }
    let view = kv.reader();
    let seen = |from: u32, to: u32, max: usize| {
        let (records, damage) = listed(kv, &view, &key(from), &key(to), max);
        assert_eq!(damage, None);
        let number = |k: &Key| u32::from_be_bytes(k.as_bytes().try_into().expect("our keys have four bytes"));
        records.iter().map(|(k, _)| number(k)).collect::<Vec<_>>()
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

/// kv-K3, kv-K8.
fn damage_is_reported_with_its_key<E: Engine>(kv: &E) {
    applied(kv, Seq(1), batch(&[(1, Some(b"good")), (3, Some(b"good"))]));
    let mut b = Batch::new();
    b.put(key(2), Value::stored(b"changed", 0x1234));
    applied(kv, Seq(2), b);
    let view = kv.snapshot();
    assert_eq!(
        value_of(kv, &view, 1).as_deref(),
        Some(&b"good"[..]),
        "a neighbour's damage is not one's own"
    );
    assert_eq!(looked_up(kv, &view, &key(2)), Err(Damage::of(key(2))), "the CRC is wrong");
    let (seen, end) = listed(kv, &view, &key(0), &key(9), 99);
    assert_eq!(end, Some(Damage::of(key(2))), "the CRC is wrong");
    assert_eq!(seen, [(key(1), b"good".to_vec())], "what came before the damage is good");
    assert!(written(kv, &view, &[]).is_err(), "a checkpoint does not launder it");
}

/// A checkpoint's bytes, or its error.
fn written<E: Engine>(kv: &E, of: &E::Snap, rest: &[(Key, Value)]) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    kv.checkpoint(of, &mut rest.iter().cloned(), &mut out).map(|()| out)
}

/// kv-K2.
fn a_checkpoint_opens_whole_or_not_at_all<E: Engine>(kv: &E, again: &dyn Fn(&E) -> E) {
    for n in 0..300u32 {
        applied(kv, Seq(10 + n as u64), batch(&[(n, Some(&vec![n as u8; n as usize * 7 % 500]))]));
    }
    let of = kv.snapshot();
    applied(kv, Seq(400), batch(&[(0, Some(b"later"))]));
    let owners = (key(9999), Value::new(b"the owner's"));
    let bytes = written(kv, &of, std::slice::from_ref(&owners)).expect("a Vec takes all");
    let open = |mut bytes: &[u8]| {
        let mut rest = Vec::new();
        let opened = again(kv).open(of.seq(), &mut bytes, &mut |k, v| {
            let is_rest = *k == owners.0;
            rest.extend(is_rest.then(|| (*k, v.clone())));
            is_rest
        });
        opened.map(|kv| (kv, rest))
    };
    let (opened, rest) = open(&bytes).expect("it is whole");
    let view = opened.snapshot();
    assert_eq!((view.seq(), view.size()), (Seq(309), of.size()));
    assert_eq!(value_of(&opened, &view, 0).as_deref(), Some(&b""[..]), "as the snapshot was");
    assert_eq!(rest, std::slice::from_ref(&owners));
    assert_eq!(value_of(&opened, &view, 9999), None, "the owner's record is not the table's");
    applied(&opened, Seq(310), batch(&[(0, None)]));
    for at in (0..bytes.len()).step_by(bytes.len() / 97) {
        assert!(open(&bytes[..at]).is_err(), "cut at {at}");
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        assert!(open(&changed).is_err(), "changed at {at}");
    }
}

/// kv-K1, kv-K2, kv-K5 under random batches, compared with a plain map; snapshots taken on the way stay true to the end.
/// `moves`: now and then changes are moved to the tree.
fn random_batches_agree_with_a_model<E: Engine>(kv: &E, again: &dyn Fn(&E) -> E, moves: bool) {
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
        applied(kv, Seq(step), b);
        let (some, view) = (key(random(700) as u32), kv.reader());
        assert_eq!(looked_up(kv, &view, &some), Ok(model.get(&some).cloned()), "{some:?} in step {step}");
        if moves && random(30) == 0 {
            kv.move_changes(Duration::ZERO);
        }
        if step % 130 == 0 {
            shrunk(kv);
        }
        if step % 500 == 0 {
            kept.push((kv.snapshot(), model.clone()));
        }
    }
    kept.push((kv.snapshot(), model));
    for (snap, model) in &kept {
        agrees(kv, snap, model);
        let bytes = written(kv, snap, &[]).expect("a Vec takes all");
        let opened =
            again(kv).open(snap.seq(), &mut &bytes[..], &mut |_, _| false).expect("the stream is whole");
        agrees(&opened, &opened.snapshot(), model);
    }
}

fn agrees<E: Engine>(kv: &E, snap: &E::Snap, model: &BTreeMap<Key, Vec<u8>>) {
    let (all, damage) =
        listed(kv, snap, &Key::default(), &Key::new(&[0xff; 23]).expect("23 bytes fit"), usize::MAX);
    assert_eq!(damage, None);
    assert!(all.iter().map(|(k, v)| (k, v)).eq(model.iter()), "the records differ from the model's");
    for n in 0..700 {
        assert_eq!(value_of(kv, snap, n).as_ref(), model.get(&key(n)), "get {n}");
    }
    let mut each = Vec::new();
    let taken = snap.each(&mut |k, v, crc| {
        assert_eq!(Value::new(v).crc(), crc);
        each.push((*k, v.to_vec()));
        Ok(())
    });
    assert!(taken.is_ok() && each == all, "each shows what range shows");
    let bytes = model.iter().map(|(k, v)| record_bytes(k, v.len())).sum();
    assert_eq!(snap.size(), Size { records: model.len() as u64, bytes });
}
