//! Tests of meta-M1 to meta-M4: whatever step a drain reaches, and whatever comes late, the file has one whole layout.

use hammer::Dice;
use wire::meta::{Grow, MoveTail, SetStripe, Settle, StripeComponent, StripeSpec, Truncate, WrittenBits};
use wire::object::{Capability, Mac};

use super::*;
use crate::sharing::Sharing;
use crate::testing::*;
use crate::{Space, View, keys, stripe::ALL};

const NOW: Time = Time { sec: 100, nsec: 0 };
const OSTS: [MirrorId; 3] = [MirrorId(1), MirrorId(2), MirrorId(3)];

fn cap() -> Capability {
    Capability {
        fid: Fid(0),
        generation: Generation(0),
        rights: 4,
        lease_epoch: 0,
        lease_counter: 0,
        session: SessionId(0),
        expiry_sec: 0,
        mac: Mac::default(),
    }
}

/// A rule with three OSTs, of which some drain. A refusal changes nothing.
fn run<T>(
    w: &mut World,
    draining: &[MirrorId],
    rule: impl FnOnce(&Ctx<'_>, &mut dyn Txn) -> Result<T, Fault>,
) -> Result<T, Code> {
    run_among(w, draining, None, rule)
}

fn run_among<T>(
    w: &mut World,
    draining: &[MirrorId],
    sharing: Option<&dyn Sharing>,
    rule: impl FnOnce(&Ctx<'_>, &mut dyn Txn) -> Result<T, Fault>,
) -> Result<T, Code> {
    let mut txn = w.txn.clone();
    let done = World::with_ctx(false, Space::AMPLE, |ctx| {
        rule(&Ctx { ost_mirrors: &OSTS, draining, sharing, judge: None, ..*ctx }, &mut txn)
    });
    if done.is_ok() {
        w.txn = txn;
    }
    done.map_err(|fault| fault.code)
}

fn begin(w: &mut World, fid: Fid, draining: &[MirrorId]) -> Result<Layout, Code> {
    let generation = w.inode(fid).layout.map_or(Generation(0), |l| l.generation);
    let req = Migrate { fid, cap: cap(), generation, token: 0, avoid: vec![], now: NOW };
    run(w, draining, |ctx, txn| migrate(ctx, txn, req)).map(|reply| reply.layout)
}

fn cut(w: &mut World, fid: Fid, from: Generation, to: Generation, size: u64) -> Result<CutOverReply, Code> {
    let written = vec![WrittenBits { component: 0, bits: vec![1] }];
    let req =
        CutOver { fid, cap: cap(), from, generation: to, token: 0, size, blocks: 24, written, now: NOW };
    run(w, &[], |ctx, txn| cut_over(ctx, txn, req))
}

/// A settled file of `size` bytes with one stripe on each OST.
fn striped(w: &mut World, name: &str, size: u64) -> Fid {
    let fid = w.file(ROOT, name);
    let component = StripeComponent { end: u64::MAX, stripe_size: 0, stripe_count: ALL, start: ALL };
    let spec = Some(StripeSpec { components: vec![component], inline_max: None });
    run(w, &[], |ctx, txn| {
        crate::stripe::set_stripe(ctx, txn, SetStripe { fid, spec, now: NOW, cred: Cred::root() })
    })
    .expect("striped");
    run(w, &[], |ctx, txn| crate::grow::grow(ctx, txn, Grow { fid, now: NOW, held: None, avoid: vec![] }))
        .expect("objects");
    settle(w, fid, size).expect("settled");
    fid
}

fn settle(w: &mut World, fid: Fid, size: u64) -> Result<(), Code> {
    let generation = w.inode(fid).layout.map(|l| l.generation).unwrap_or_default();
    let req = Settle {
        fid,
        generation,
        size,
        blocks: size / 512,
        mtime: Time::new(50, 0),
        written: vec![WrittenBits { component: 0, bits: vec![1] }],
        done: true,
        hint: false,
        is_part: false,
        held: None,
    };
    run(w, &[], |ctx, txn| crate::settle::settle(ctx, txn, req)).map(drop)
}

fn mirrors(layout: &Layout) -> Vec<MirrorId> {
    let mut all: Vec<_> = layout.components.iter().flat_map(|c| c.mirrors.clone()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// meta-M1.
#[test]
fn one_entry_replaces_the_layout_and_buries_the_old_one() {
    let mut w = World::new();
    let fid = striped(&mut w, "f", 10_000);
    let before = w.inode(fid);
    let old = before.layout.clone().expect("objects");
    let new = begin(&mut w, fid, &OSTS[..1]).expect("begun");
    assert_eq!((new.generation, mirrors(&new)), (Generation(2), OSTS[1..].to_vec()));
    assert_eq!((w.inode(fid).layout, w.inode(fid).pending), (before.layout, Some(new.clone())));
    cut(&mut w, fid, old.generation, new.generation, 10_000).expect("switched");
    let after = w.inode(fid);
    let layout = after.layout.clone().expect("objects");
    assert_eq!((layout.generation, after.pending, after.attr.blocks), (new.generation, None, 24));
    assert!(layout.components[0].is_written(0) && !layout.components[0].is_written(1));
    assert!(w.has(keys::dead(fid, old.generation)) && !w.has(keys::dead(fid, new.generation)));
    assert_eq!(
        (after.attr.size, after.attr.mtime, after.attr.ctime, after.state),
        (before.attr.size, before.attr.mtime, before.attr.ctime, FileState::Settled)
    );
}

#[test]
fn what_changed_meanwhile_refuses_the_switch() {
    let empty = |w: &mut World, fid| {
        drop(w.call(Truncate { fid, size: 0, now: NOW, held: None, cred: cred(0) }).unwrap());
    };
    let longer = |w: &mut World, fid| settle(w, fid, 20_000).unwrap();
    let again = |w: &mut World, fid| drop(begin(w, fid, &OSTS[..1]).unwrap());
    let dropped = |w: &mut World, fid| {
        let req = DropPending { fid, cap: cap(), generation: Generation(2), token: 0 };
        run(w, &[], |ctx, txn| drop_pending(ctx, txn, req)).map(drop).unwrap();
        assert!(w.has(keys::dead(fid, Generation(2))), "meta-I3: its objects go");
    };
    for change in [empty as fn(&mut World, Fid), longer, again, dropped] {
        let mut w = World::new();
        let fid = striped(&mut w, "f", 10_000);
        let new = begin(&mut w, fid, &OSTS[..1]).expect("begun");
        change(&mut w, fid);
        let before = w.txn.records.clone();
        assert_eq!(cut(&mut w, fid, Generation(1), new.generation, 10_000).unwrap_err(), Code::Stale);
        assert!(w.txn.records == before, "meta-I1");
    }
    // Nor does the end of a growth switch it.
    let mut w = World::new();
    let fid = striped(&mut w, "f", 10_000);
    let generation = begin(&mut w, fid, &OSTS[..1]).expect("begun").generation;
    let req = wire::meta::Switch { fid, generation, written: vec![], now: NOW, held: None };
    assert_eq!(w.call(req).unwrap_err(), Code::Stale);
}

#[test]
fn orphans_unknown_sizes_and_inline_files_are_left() {
    let mut w = World::new();
    let fid = striped(&mut w, "f", 10_000);
    w.edit(fid, |i| i.state = FileState::Writing(SessionId(99)));
    assert_eq!(begin(&mut w, fid, &[]).unwrap_err(), Code::Stale);
    w.edit(fid, |i| i.state = FileState::Truncating { session: SessionId(7), size: 3 });
    assert_eq!(begin(&mut w, fid, &[]).unwrap_err(), Code::Stale);
    w.edit(fid, |i| i.state = FileState::Settled);
    w.unlink(ROOT, "f", true).expect("unlinked");
    assert_eq!(begin(&mut w, fid, &[]).unwrap_err(), Code::Stale);
    let inline = w.file(ROOT, "inline");
    assert_eq!(begin(&mut w, inline, &[]).unwrap_err(), Code::Stale);
    let other = striped(&mut w, "g", 10_000);
    assert_eq!(begin(&mut w, other, &OSTS).unwrap_err(), Code::NoSpace, "all of them drain");
}

/// meta-M3.
#[test]
fn a_stripe_without_an_object_changes_its_ost_and_one_with_an_object_does_not() {
    let mut w = World::new();
    let fid = striped(&mut w, "f", 10_000);
    let layout = w.inode(fid).layout.expect("objects");
    let on = |stripe: usize| layout.components[0].mirrors[stripe];
    let move_off = |w: &mut World, draining: MirrorId, empty: MirrorId| {
        let (generation, components, token) = (Generation(1), 1, 0);
        let req = Repoint { fid, cap: cap(), generation, components, token, empty: vec![empty], now: NOW };
        run(w, &[draining], |ctx, txn| repoint(ctx, txn, req))
    };
    assert_eq!(move_off(&mut w, on(0), on(0)).unwrap_err(), Code::BadRequest, "it has an object");
    move_off(&mut w, on(2), on(1)).expect("changes nothing");
    assert_eq!(w.inode(fid).layout.as_ref(), Some(&layout), "only away from an OST that drains");
    move_off(&mut w, on(1), on(1)).expect("moved");
    let now = w.inode(fid).layout.expect("objects");
    assert_eq!((now.generation, now.components.len()), (Generation(1), 1), "objects keep their names");
    assert!([on(0), on(2)].contains(&now.components[0].mirrors[1]));
    assert_eq!([0, 2].map(|s| now.components[0].mirrors[s]), [0, 2].map(on));
    let stale = Repoint {
        fid,
        cap: cap(),
        generation: Generation(1),
        components: 2,
        token: 0,
        empty: vec![on(0)],
        now: NOW,
    };
    assert_eq!(run(&mut w, &[on(0)], |ctx, txn| repoint(ctx, txn, stale)).unwrap_err(), Code::Stale);
}

/// Sessions beside others; `holds`: the token of this one's exclusive lease.
struct Held {
    holds: u64,
}

impl Sharing for Held {
    fn is_shared(&self) -> bool {
        true
    }
    fn is_alive(&self, _: SessionId) -> bool {
        true
    }
    fn is_open_here(&self, _: Fid) -> bool {
        true
    }
    fn opened_elsewhere(&self, _: Fid) -> Option<SessionId> {
        None
    }
    fn written_elsewhere(&self, _: Fid) -> bool {
        true
    }
    fn leased_elsewhere(&self, _: Fid) -> bool {
        false
    }
    fn holds_alone(&self, _: Fid, token: u64) -> bool {
        token == self.holds
    }
    fn era(&self) -> u64 {
        5
    }
    fn lease(&self) -> Option<u32> {
        Some(1)
    }
    fn set_lease(&self, _: u32) {}
    fn newest_lease(&self) -> u32 {
        1
    }
    fn keeps_removed(&self) -> bool {
        false
    }
}

/// meta-M2.
#[test]
fn beside_other_sessions_a_migration_begins_and_ends_under_its_lease() {
    let mut w = World::new();
    let fid = striped(&mut w, "f", 10_000);
    w.edit(fid, |i| i.state = FileState::Shared { era: 5, proven: 10 });
    let ask = |w: &mut World, holds, token| {
        let req = Migrate { fid, cap: cap(), generation: Generation(1), token, avoid: vec![], now: NOW };
        run_among(w, &OSTS[..1], Some(&Held { holds }), |ctx, txn| migrate(ctx, txn, req))
    };
    assert_eq!(ask(&mut w, 8, 7).unwrap_err(), Code::Stale);
    let generation = ask(&mut w, 7, 7).expect("begun").layout.generation;
    let end = |w: &mut World, holds| {
        let (from, token, written) = (Generation(1), 7, vec![]);
        let req =
            CutOver { fid, cap: cap(), from, generation, token, size: 10_000, blocks: 8, written, now: NOW };
        run_among(w, &OSTS[..1], Some(&Held { holds }), |ctx, txn| cut_over(ctx, txn, req))
    };
    assert_eq!(end(&mut w, 9).unwrap_err(), Code::Stale, "another session may have written since");
    end(&mut w, 7).expect("switched");
    let proven = FileState::Shared { era: 5, proven: 10_000 };
    assert_eq!(w.inode(fid).state, proven, "what was copied is flushed");
}

/// meta-M4.
#[test]
fn new_layouts_leave_draining_osts_out() {
    let make = |start: u16, count: u16, draining: &[MirrorId]| {
        let component = StripeComponent { end: u64::MAX, stripe_size: 0, stripe_count: count, start };
        let spec = StripeSpec { components: vec![component], inline_max: None };
        World::with_ctx(false, Space::AMPLE, |ctx| {
            let ctx = Ctx { ost_mirrors: &OSTS, draining, judge: None, ..*ctx };
            let layout = crate::stripe::make_layout(&ctx, Fid(77), Some(&spec), Generation(1), &[]);
            layout.expect("made").components[0].mirrors.clone()
        })
    };
    let [one, two, three] = OSTS;
    let mut all = make(ALL, ALL, &[two]);
    all.sort_unstable();
    assert_eq!(all, [one, three]);
    assert_eq!(make(1, 1, &[]), [two]);
    assert_eq!(make(1, 1, &[two]), [three], "in place of a named one comes the next");
    assert_eq!(make(2, 2, &[three]), [one, two]);
    assert_eq!(make(1, 1, &OSTS), [two], "there is no other one");
    // A tail moves to none of them either.
    let mut w = World::new();
    let fid = striped(&mut w, "f", 10_000);
    let layout = w.inode(fid).layout.expect("objects");
    let (generation, components) = (layout.generation, layout.components.len() as u16);
    let tail = |avoid: Vec<MirrorId>| MoveTail {
        fid,
        generation,
        components,
        from: 10_000,
        keep: 1,
        avoid,
        now: NOW,
        held: None,
    };
    let full = run(&mut w, &[two], |ctx, txn| crate::tail::move_tail(ctx, txn, tail(vec![one, three])));
    assert_eq!(full.unwrap_err(), Code::NoSpace);
    let moved = run(&mut w, &[two], |ctx, txn| crate::tail::move_tail(ctx, txn, tail(vec![one])));
    let layout = moved.expect("moved").inode.layout.expect("objects");
    assert_eq!(layout.components.last().map(|c| c.mirrors.clone()), Some(vec![three]));
}

/// Drains at their own pace, some of which died, beside truncations, growth and removal: each object of a layout that is or was named is
/// named once, by the file or by the unlink log.
#[test]
fn at_any_step_every_generation_is_the_files_or_is_buried() {
    let (mut switched, mut refused) = (0, 0);
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let mut w = World::new();
        let fid = striped(&mut w, "f", 10_000);
        let mut drains: Vec<(Generation, Generation, u64)> = vec![];
        for _ in 0..40 {
            match dice.below(6) {
                0 | 1 => {
                    let from = w.inode(fid).layout.map(|l| l.generation);
                    let draining = OSTS[dice.below(3)];
                    if let Ok(new) = begin(&mut w, fid, &[draining]) {
                        assert!(!mirrors(&new).contains(&draining));
                        let from = from.expect("it has objects");
                        drains.push((from, new.generation, w.inode(fid).attr.size));
                    }
                }
                2 | 3 if !drains.is_empty() => {
                    let (from, to, size) = drains.swap_remove(dice.below(drains.len()));
                    match cut(&mut w, fid, from, to, size) {
                        Ok(_) => switched += 1,
                        Err(code) => {
                            refused += 1;
                            assert_eq!(code, Code::Stale);
                        }
                    }
                }
                4 if dice.below(8) == 0 => {
                    w.call(Truncate { fid, size: 0, now: NOW, held: None, cred: cred(0) }).unwrap();
                    let grow = Grow { fid, now: NOW, held: None, avoid: vec![] };
                    run(&mut w, &[], |ctx, txn| crate::grow::grow(ctx, txn, grow)).unwrap();
                }
                5 => {
                    let size = w.inode(fid).attr.size + dice.below(3) as u64;
                    settle(&mut w, fid, size).expect("settled");
                }
                _ => {}
            }
            let inode = w.inode(fid);
            let held = [&inode.layout, &inode.pending].map(|l| l.as_ref().map(|l| l.generation));
            for generation in (1..=inode.generation.0).map(Generation) {
                let is_dead = w.txn.get(&keys::dead(fid, generation)).is_some();
                assert_eq!(held.contains(&Some(generation)), !is_dead, "seed {seed}: {generation}");
            }
        }
    }
    assert!(switched > 300 && refused > 300, "{switched} switched, {refused} refused");
}

/// The index of an OST is that of `stria df`, in whatever order the OSTs registered.
#[test]
fn striping_names_the_first_ost_by_its_index_and_not_by_its_place() {
    let made = |start: u16| {
        let component = StripeComponent { end: u64::MAX, stripe_size: 0, stripe_count: 1, start };
        let spec = StripeSpec { components: vec![component], inline_max: None };
        World::with_ctx(false, Space::AMPLE, |ctx| {
            let ctx = Ctx { ost_mirrors: &OSTS, ost_indexes: &[4, 0, 2], judge: None, ..*ctx };
            let layout = crate::stripe::make_layout(&ctx, Fid(77), Some(&spec), Generation(1), &[]);
            layout.expect("made").components[0].mirrors[0]
        })
    };
    assert_eq!([4, 0, 2].map(made), OSTS);
}
