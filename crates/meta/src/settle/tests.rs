use types::*;
use wire::meta::{Grow, SET_MTIME, SetAttr, Settle};

use crate::testing::*;

const HAND: u64 = 1000;

fn at(sec: u64) -> Time {
    Time::new(sec as i64, 0)
}

/// Events for a striped file's mtime: set by a user at second `HAND`, or reported by a settle.
enum Event {
    SetByHand { to: u64 },
    Told { write: u64 },
}
use Event::{SetByHand, Told};

/// events | mtime after them
#[test]
fn among_writes_the_latest_counts_and_a_hand_overrules_those_before_it() {
    let table: &[(&[Event], u64)] = &[
        (&[Told { write: 900 }, Told { write: 950 }], 950),
        (&[Told { write: 950 }, Told { write: 900 }], 950),
        // Into the past: earlier writes stay overruled, later ones count.
        (&[Told { write: 900 }, SetByHand { to: 5 }, Told { write: 990 }], 5),
        (&[SetByHand { to: 5 }, Told { write: 1001 }], 1001),
        // Into the future: the same.
        (&[SetByHand { to: 9000 }, Told { write: 990 }], 9000),
        (&[SetByHand { to: 9000 }, Told { write: 1001 }], 1001),
        // The client reports the time that was set, then a write.
        (&[SetByHand { to: 9000 }, Told { write: 9000 }, Told { write: 1001 }], 1001),
        // After a write counted, only later ones do.
        (&[SetByHand { to: 9000 }, Told { write: 1005 }, Told { write: 1001 }, Told { write: 0 }], 1005),
    ];
    for (n, (events, want)) in table.iter().enumerate() {
        let mut w = World::new();
        let fid = w.file(ROOT, "f");
        let generation =
            w.call(Grow { fid, now: at(100), held: None, avoid: vec![] }).expect("grow").layout.generation;
        w.edit(fid, |i| i.attr.mtime = at(1));
        for event in *events {
            match *event {
                SetByHand { to } => {
                    let (mtime, atime, now) = (at(to), at(0), at(HAND));
                    let (valid, cred) = (SET_MTIME, cred(0));
                    w.call(SetAttr {
                        fid,
                        valid,
                        mode: 0,
                        uid: 0,
                        gid: 0,
                        atime,
                        mtime,
                        now,
                        held: None,
                        cred,
                    })
                    .expect("setattr");
                }
                Told { write } => {
                    let (mtime, written) = (at(write), vec![]);
                    w.call(Settle {
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
                    })
                    .expect("settle");
                }
            }
        }
        assert_eq!(w.attr(fid).mtime, at(*want), "row {n}");
    }
}

/// A client that caches content detects by mtime that it is old, though the writer's clock is behind.
#[test]
fn a_hint_always_moves_mtime_on() {
    let mut w = World::new();
    let fid = w.file(ROOT, "f");
    let generation =
        w.call(Grow { fid, now: at(100), held: None, avoid: vec![] }).expect("grow").layout.generation;
    let mut hint = |mtime, hint| {
        let (size, blocks, written) = (0, 0, vec![]);
        w.call(Settle {
            fid,
            generation,
            size,
            blocks,
            mtime,
            written,
            done: false,
            hint,
            is_part: false,
            held: None,
        })
        .expect("settle")
        .attr
    };
    let last = hint(Time::new(900, 999_999_998), true);
    assert_eq!(last.mtime, Time::new(900, 999_999_998));
    assert_eq!(hint(at(100), true).mtime, Time::new(900, 999_999_999));
    assert_eq!(hint(at(100), true).mtime, at(901));
    assert_eq!(hint(at(100), false).mtime, at(901), "only hints");
    assert!(hint(at(100), true).ctime >= at(901));
}
