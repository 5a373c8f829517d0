//! The new place of a tail, the parts that stay, and the refusals. The mirrors are 1 and 2; the file's first stripe is on 1.

use wire::meta::{Grow, SetStripe, Settle, StripeSpec, Truncate, WrittenBits};

use super::*;
use crate::testing::*;

const NOW: Time = Time { sec: 100, nsec: 0 };
const M: u64 = 1 << 20;
const END: u64 = u64::MAX;

/// Each component's end and mirrors.
type Shape = Vec<(u64, Vec<u32>)>;

fn component(end: u64, stripe_count: u16, start: u16) -> StripeComponent {
    StripeComponent { end, stripe_size: 0, stripe_count, start }
}

/// A file with objects, of this striping (`None`: the default), on mirrors outside `avoid`.
fn file(w: &mut World, wanted: &[StripeComponent], avoid: &[u32]) -> Fid {
    // The second of two fids uses the first of two mirrors.
    let fid = ["f", "g"].map(|name| w.file(ROOT, name)).into_iter().find(|f| f.counter() % 2 == 0).unwrap();
    if !wanted.is_empty() {
        let spec = Some(StripeSpec { components: wanted.to_vec(), inline_max: None });
        w.call(SetStripe { fid, spec, now: NOW, cred: cred(0) }).unwrap();
    }
    let avoid = avoid.iter().map(|m| MirrorId(*m)).collect();
    assert!(w.call(Grow { fid, now: NOW, held: None, avoid }).unwrap().switched);
    fid
}

fn request(w: &World, fid: Fid, from: u64, keep: u16, avoid: &[u32]) -> MoveTail {
    let Layout { generation, components } = w.inode(fid).layout.unwrap();
    let avoid = avoid.iter().map(|m| MirrorId(*m)).collect();
    MoveTail { fid, generation, components: components.len() as u16, from, keep, avoid, now: NOW, held: None }
}

fn shape(w: &World, fid: Fid) -> Shape {
    let layout = w.inode(fid).layout.unwrap();
    assert!(layout.is_valid());
    layout.components.iter().map(|c| (c.end, c.mirrors.iter().map(|m| m.0).collect())).collect()
}

fn default() -> Shape {
    vec![(64 * M, vec![1]), (1024 * M, vec![2, 1]), (END, vec![2, 1])]
}

#[test]
fn new_files_avoid_full_osts_as_far_as_there_are_others() {
    let named = [component(END, 1, 0)];
    //           striping  avoided  shape
    let table: &[(&[StripeComponent], &[u32], Shape)] = &[
        (&[], &[], default()),
        (&[], &[1], vec![(64 * M, vec![2]), (1024 * M, vec![2]), (END, vec![2])]),
        (&[], &[2, 1], default()),
        (&[component(END, 2, stripe::ALL)], &[2], vec![(END, vec![1])]),
        (&named, &[1], vec![(END, vec![1])]),
    ];
    for (wanted, avoid, want) in table {
        let mut w = World::new();
        let fid = file(&mut w, wanted, avoid);
        assert_eq!(shape(&w, fid), *want, "{wanted:?} {avoid:?}");
    }
}

#[test]
fn the_tail_goes_where_there_is_room_and_what_is_there_stays() {
    let at = 10 * M + 7;
    let any = stripe::ALL;
    //           striping  from  shape without mirror 1
    let table: &[(&[StripeComponent], u64, Shape)] = &[
        (
            &[],
            at,
            vec![
                (at, vec![1]),
                (at, vec![2, 1]),
                (at, vec![2, 1]),
                (64 * M, vec![2]),
                (1024 * M, vec![2]),
                (END, vec![2]),
            ],
        ),
        (
            &[],
            64 * M,
            vec![
                (64 * M, vec![1]),
                (64 * M, vec![2, 1]),
                (64 * M, vec![2, 1]),
                (1024 * M, vec![2]),
                (END, vec![2]),
            ],
        ),
        (&[component(END, 2, any)], 0, vec![(0, vec![1, 2]), (END, vec![2])]),
        // The user chose the first OST of a later component.
        (
            &[component(M, 1, any), component(END, 1, 0)],
            5,
            vec![(5, vec![1]), (5, vec![1]), (M, vec![2]), (END, vec![1])],
        ),
    ];
    for (wanted, from, want) in table {
        let mut w = World::new();
        let fid = file(&mut w, wanted, &[]);
        let before = w.inode(fid);
        let moved = w.call(request(&w, fid, *from, 0, &[1])).unwrap();
        let after = w.inode(fid);
        assert_eq!(moved.inode.layout, after.layout);
        assert_eq!(shape(&w, fid), *want, "{wanted:?} from {from}");
        let rest = |i: &InodeRecord| (i.generation, i.attr, i.state);
        assert_eq!(rest(&after), rest(&before), "the layout and nothing else");
    }
}

#[test]
fn components_without_objects_go_when_there_are_many_and_those_with_objects_stay() {
    let mut w = World::new();
    let fid = file(&mut w, &[], &[]);
    // 1. The tail moves back and forth. Components that were begun stay.
    let mut moves = 0;
    let refused = loop {
        let from = moves * M;
        match w.call(request(&w, fid, from, 0, &[1 + moves as u32 % 2])) {
            Ok(_) => moves += 1,
            Err(code) => break code,
        }
        let all = shape(&w, fid);
        assert!(all.len() <= COMPONENTS_MAX && all.last().unwrap().1 == [2 - (moves as u32 - 1) % 2]);
        let begun: Vec<u64> = all.iter().map(|(end, _)| *end).filter(|end| *end < from).collect();
        assert!((1..moves).all(|n| n == moves - 1 || begun.contains(&(n * M))), "{begun:?}");
    };
    assert_eq!(refused, Code::NoSpace);
    assert!(moves > 20, "{moves}");
    // 2. meta-T1: two of these have objects, by the MDT's or by the client's knowledge.
    let mut w = World::new();
    let fid = file(&mut w, &[], &[]);
    for n in 0..4 {
        w.call(request(&w, fid, n * M, 0, &[1])).unwrap();
    }
    let old = w.inode(fid).layout.unwrap();
    assert_eq!(old.components.len(), 3 + 4 * 3);
    let written = vec![WrittenBits { component: 13, bits: vec![1] }];
    let (generation, mtime) = (old.generation, NOW);
    let told = Settle {
        fid,
        generation,
        size: 0,
        blocks: 0,
        mtime,
        written,
        done: false,
        hint: false,
        is_part: false,
        held: None,
    };
    w.call(told).unwrap();
    let old = w.inode(fid).layout.unwrap();
    for (keep, kept) in [(0, 14), (15, 15)] {
        let before = w.inode(fid);
        w.call(request(&w, fid, 3 * M + 1, keep, &[1])).unwrap();
        let new = w.inode(fid).layout.unwrap();
        assert_eq!(new.components.len(), kept + 3);
        let object = |c: &Component| (c.mirrors.clone(), c.written.clone());
        assert!(new.components[..kept].iter().map(object).eq(old.components[..kept].iter().map(object)));
        w.edit(fid, |inode| *inode = before);
    }
}

#[test]
fn what_is_not_so_is_refused() {
    let mut w = World::new();
    let fid = file(&mut w, &[component(M, 1, 0), component(END, 2, stripe::ALL)], &[]);
    let good = |w: &World| request(w, fid, 2 * M, 0, &[1]);
    // fault | expected refusal
    let table: [(MoveTail, Code); 7] = [
        (MoveTail { from: M - 1, ..good(&w) }, Code::NoSpace),
        (MoveTail { avoid: vec![MirrorId(1), MirrorId(2)], ..good(&w) }, Code::NoSpace),
        (MoveTail { generation: Generation(7), ..good(&w) }, Code::Stale),
        (MoveTail { components: 3, ..good(&w) }, Code::Stale),
        (MoveTail { from: FILE_SIZE_MAX + 1, ..good(&w) }, Code::FileTooBig),
        (MoveTail { fid: Fid(99), ..good(&w) }, Code::Stale),
        (MoveTail { fid: ROOT, ..good(&w) }, Code::Stale),
    ];
    let before = w.inode(fid);
    for (req, code) in table {
        assert_eq!(w.call(req.clone()).unwrap_err(), code, "{req:?}");
    }
    assert_eq!(w.inode(fid), before);
    w.edit(fid, |inode| inode.attr.size = 3 * M);
    assert!(w.call(Truncate { fid, size: 5, now: NOW, held: None, cred: cred(0) }).unwrap().pending);
    assert_eq!(w.call(good(&w)).unwrap_err(), Code::Stale, "a shrink is under way");
}
