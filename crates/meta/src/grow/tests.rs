//! meta-O4 from the MDT's view: the file has its written content if a client dies at any step of an inline-to-object migration, and
//! also if requests arrive late.

use hammer::Dice;
use types::crc::fragment_crcs;
use wire::meta::{AllocateInline, Place, ReadInline, Truncate, WriteInline, WriteInlineReply};

use super::*;
use crate::testing::*;
use crate::{Space, keys};

const NOW: Time = Time { sec: 100, nsec: 0 };

/// How a write goes about it.
const FREE: bool = false;
const IN_SECTION: bool = true;

fn write(w: &mut World, fid: Fid, place: Place, how: bool, data: &[u8]) -> Result<WriteInlineReply, Code> {
    let crcs = fragment_crcs(0, data);
    w.call_with(WriteInline { fid, place, in_section: how, crcs, now: NOW, held: None }, data)
}

fn read_inline(w: &World, fid: Fid) -> Vec<u8> {
    let mut out = Buf::new();
    let req = ReadInline { fid, offset: 0, len: INLINE_MAX, held: None };
    World::with_ctx(false, Space::AMPLE, |ctx| inline::read_inline(ctx, &w.txn, req, &mut out))
        .expect("inline");
    out.to_vec()
}

fn begin(w: &mut World, fid: Fid) -> Generation {
    let given = w.call(Grow { fid, now: NOW, held: None, avoid: vec![] }).expect("grow");
    assert!(!given.switched);
    given.layout.generation
}

fn end(w: &mut World, fid: Fid, generation: Generation) -> Result<SwitchReply, Code> {
    w.call(Switch { fid, generation, written: vec![], now: NOW, held: None })
}

#[test]
fn who_has_no_section_waits_while_a_file_grows() {
    let mut w = World::new();
    let fid = w.file(ROOT, "f");
    write(&mut w, fid, Place::At(0), FREE, b"some").unwrap();
    let generation = begin(&mut w, fid);
    let before = w.inode(fid);
    for place in [Place::At(0), Place::End, Place::Within(1)] {
        assert_eq!(write(&mut w, fid, place, FREE, b"new").unwrap_err(), Code::NeedSection);
    }
    // A write that touches no byte within the file's size changes nothing.
    write(&mut w, fid, Place::Within(4), FREE, b"new").unwrap();
    assert_eq!((w.inode(fid), read_inline(&w, fid)), (before, b"some".to_vec()));
    end(&mut w, fid, generation).unwrap();
    assert_eq!(write(&mut w, fid, Place::End, FREE, b"new").unwrap_err(), Code::NotInline);
}

#[test]
fn who_has_a_section_gives_a_growth_up() {
    let cut = |w: &mut World, fid| {
        drop(w.call(Truncate { fid, size: 2, now: NOW, held: None, cred: cred(0) }).unwrap());
    };
    let punch = |w: &mut World, fid| {
        let (erase, allocate, grow) = (true, false, false);
        let req = AllocateInline { fid, offset: 1, len: 2, erase, allocate, grow, now: NOW, held: None };
        w.call(req).unwrap();
    };
    let over = |w: &mut World, fid| _ = write(w, fid, Place::At(1), IN_SECTION, b"new").unwrap();
    for (change, want) in [(cut as fn(&mut World, Fid), &b"so"[..]), (punch, b"s\0\0e"), (over, b"snew")] {
        let mut w = World::new();
        let fid = w.file(ROOT, "f");
        write(&mut w, fid, Place::At(0), FREE, b"some").unwrap();
        let generation = begin(&mut w, fid);
        change(&mut w, fid);
        assert_eq!(end(&mut w, fid, generation).unwrap_err(), Code::Stale, "it carries over what was");
        assert_eq!(read_inline(&w, fid), want);
        assert!(w.has(keys::dead(fid, generation)), "meta-I3: its objects go");
        write(&mut w, fid, Place::End, FREE, b"").unwrap();
        let reply = write(&mut w, fid, Place::End, FREE, b"more").unwrap();
        assert_eq!(reply.attr.size, want.len() as u64 + 4);
    }
}

#[test]
fn the_record_says_where_the_end_is() {
    let mut w = World::new();
    let fid = w.file(ROOT, "f");
    // Over a page's end, so that its fragments lie otherwise than they were sent.
    let data: Vec<u8> = (0..5000u32).map(|n| n as u8).collect();
    let mut want = Vec::new();
    for _ in 0..4 {
        want.extend_from_slice(&data);
        let reply = write(&mut w, fid, Place::End, FREE, &data).unwrap();
        assert_eq!(reply.attr.size, want.len() as u64);
    }
    write(&mut w, fid, Place::Within(19_000), FREE, &data).unwrap();
    want[19_000..].copy_from_slice(&data[..1000]);
    let reply = write(&mut w, fid, Place::Within(u64::MAX), FREE, &data).unwrap();
    assert_eq!((read_inline(&w, fid), reply.attr.size), (want, 20_000));
    let all = vec![1; INLINE_MAX as usize];
    assert_eq!(write(&mut w, fid, Place::End, FREE, &all).unwrap_err(), Code::NeedLayout);
    assert_eq!(write(&mut w, fid, Place::At(u64::MAX), FREE, &data).unwrap_err(), Code::FileTooBig);
}

/// An MDT that fills keeps room for names: new content goes to objects, and what has its pages keeps them.
#[test]
fn content_leaves_room_for_names() {
    let mut w = World::new();
    let (small, large, new) = (w.file(ROOT, "small"), w.file(ROOT, "large"), w.file(ROOT, "new"));
    write(&mut w, large, Place::At(0), FREE, &[1; 10_000]).unwrap();
    w.space = Space { is_full: false, inline_max: 4096 };
    write(&mut w, small, Place::At(0), FREE, &[2; 4096]).unwrap();
    assert_eq!(write(&mut w, small, Place::End, FREE, &[2]).unwrap_err(), Code::NeedLayout);
    assert_eq!(write(&mut w, new, Place::At(0), FREE, &[2; 4097]).unwrap_err(), Code::NeedLayout);
    assert_eq!(write(&mut w, large, Place::End, FREE, &[3]).unwrap_err(), Code::NeedLayout);
    // In place, and sizes that take no page.
    write(&mut w, large, Place::At(5_000), FREE, &[3; 5_000]).unwrap();
    let truncate = |size| Truncate { fid: small, size, now: Time::new(9, 0), held: None, cred: cred(0) };
    w.call(truncate(8192)).unwrap();
    assert_eq!(write(&mut w, small, Place::At(5_000), FREE, &[4]).unwrap_err(), Code::NeedLayout);
    let allocate = |fid, offset, len| AllocateInline {
        fid,
        offset,
        len,
        allocate: true,
        erase: false,
        grow: true,
        now: Time::new(9, 0),
        held: None,
    };
    w.call(allocate(large, 0, 10_000)).unwrap();
    assert_eq!(w.call(allocate(large, 0, 10_001)).unwrap_err(), Code::NeedLayout);
    // A file that stays small stays inline.
    w.space.inline_max = 0;
    write(&mut w, small, Place::At(0), FREE, &[5; 4096]).unwrap();
    let mut want = vec![1; 5_000];
    want.resize(10_000, 3);
    assert_eq!(read_inline(&w, large), want);
}

/// A client that migrates a file, at its own pace: it may die, or be evicted and continue all the same.
struct Mover {
    generation: Generation,
    /// The bytes copied so far, and the file's size at the start.
    copied: Vec<u8>,
    size: usize,
}

#[test]
fn nothing_that_was_written_is_lost_at_any_step_of_any_growth() {
    let (mut moved, mut waited, mut given_up) = (0, 0, 0);
    for seed in 0..400 {
        let mut dice = Dice::new(seed);
        let mut w = World::new();
        let fid = w.file(ROOT, "f");
        let mut want: Vec<u8> = Vec::new();
        let mut movers: Vec<Mover> = Vec::new();
        for step in 0..60u8 {
            let data = vec![step + 1; 1 + dice.below(9000)];
            let at = dice.below(20_000);
            let how = dice.below(12) == 0;
            match dice.below(8) {
                0..3 => {
                    let (place, from) = match dice.below(2) {
                        0 => (Place::At(at as u64), at),
                        _ => (Place::End, want.len()),
                    };
                    match write(&mut w, fid, place, how, &data) {
                        Ok(_) => {
                            want.resize(want.len().max(from + data.len()), 0);
                            want[from..from + data.len()].copy_from_slice(&data);
                        }
                        Err(code) => {
                            waited += (code == Code::NeedSection) as u32;
                            assert!(matches!(code, Code::NeedSection | Code::NeedLayout), "{code:?}");
                        }
                    }
                }
                3 if !want.is_empty() => {
                    let generation = begin(&mut w, fid);
                    movers.push(Mover { generation, copied: vec![], size: want.len() });
                }
                4 if dice.below(6) == 0 => {
                    w.call(Truncate { fid, size: at as u64, now: NOW, held: None, cred: cred(0) }).unwrap();
                    want.resize(at, 0);
                }
                5 | 6 if !movers.is_empty() => {
                    let who = dice.below(movers.len());
                    let now = read_inline(&w, fid);
                    let m = &mut movers[who];
                    let (from, to) = (m.copied.len(), m.size.min(m.copied.len() + 7000));
                    let bytes = now.get(from..to.min(now.len())).unwrap_or_default();
                    m.copied.extend_from_slice(bytes);
                    m.copied.resize(to, 0);
                }
                7 if !movers.is_empty() => {
                    let who = dice.below(movers.len());
                    let mover = movers.swap_remove(who);
                    if mover.copied.len() < mover.size {
                        continue;
                    }
                    match end(&mut w, fid, mover.generation) {
                        Ok(_) => {
                            assert!(
                                mover.copied == want,
                                "seed {seed} step {step}: what he copied is not the file"
                            );
                            moved += 1;
                            break;
                        }
                        Err(code) => {
                            given_up += 1;
                            assert_eq!(code, Code::Stale);
                        }
                    }
                }
                _ => {}
            }
            assert!(read_inline(&w, fid) == want, "seed {seed} step {step}");
        }
    }
    assert!(moved > 50 && waited > 200 && given_up > 100, "{moved} {waited} {given_up}");
}
