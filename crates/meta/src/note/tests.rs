use std::collections::BTreeMap;

use hammer::Hammer;
use wire::meta::*;

use super::*;
use crate::testing::{ALICE, ROOT, World, bytes, cred};

fn note() -> Note {
    Note {
        flags: CHANGE_LAST,
        parent: Fid(0x1122),
        name: b"new".to_vec(),
        old_parent: Fid(3),
        old_name: b"o".to_vec(),
        other: Fid(200),
        what: 7,
        ..Note::of(ChangeOp::Rename, Fid(16), Some(&Cred { uid: 1000, gid: 5, groups: vec![] }))
    }
}

fn record() -> ChangeRecord {
    ChangeRecord { bytes_before: 300, time: Time::new(1, 2), session: SessionId(9), note: note() }
}

fn consumer() -> ConsumerRecord {
    ConsumerRecord {
        name: "backup".into(),
        mask: 0x1fe,
        acked: 0x0102,
        acked_at: Time::new(3, 4),
        lost: (5, 6),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// As `docs/formats/meta.md` has them.
#[test]
fn golden() {
    let bytes = record().encode();
    let parts = [
        "01080101",     // version, op, flags, who is known
        "ac02",         // bytes before
        "0202",         // time
        "09",           // session
        "e80705",       // who
        "10a22203c801", // fid, parent, old parent, other
        "07",           // what
        "036e6577",     // name
        "016f",         // old name
    ];
    assert_eq!(hex(&bytes), parts.concat());
    assert_eq!(ChangeRecord::decode(&bytes), Ok(record()));
    let parts = [
        "01",
        "fe01000000000000",
        "0201000000000000",
        "030000000000000004000000",
        "0500000000000000",
        "0600000000000000",
        "066261636b7570",
    ];
    assert_eq!(hex(&consumer().encode()), parts.concat());
    let both = ChangelogRecord { number: 7, consumer: 8 };
    assert_eq!(hex(&both.encode()), "01070000000000000008000000");
    assert_eq!(hex(keys::change(0x0102).as_bytes()), "0e0000000000000102");
    assert_eq!(hex(keys::consumer(7).as_bytes()), "0f00000007");
    assert_eq!((number_of(&keys::change(9)), number_of(&keys::consumer(9))), (Some(9), None));
    let outer = keys::kind_start(keys::CONSUMER);
    assert_eq!((consumer_of(&keys::consumer(9)), consumer_of(&outer)), (Some(9), Some(0)));
}

#[test]
fn hammered() {
    fn same<T>(encode: fn(&T) -> Vec<u8>) -> impl FnMut(&[u8], T) -> usize {
        move |bytes, value| {
            assert_eq!(encode(&value), bytes, "one record, one byte form");
            bytes.len()
        }
    }
    let quiet = Note::of(ChangeOp::Write, Fid(1), None);
    let seeds = vec![record().encode(), ChangeRecord { note: quiet, ..record() }.encode()];
    Hammer::new("change").seeds(seeds).run(|b| ChangeRecord::decode(b).ok(), same(ChangeRecord::encode));
    let seeds = vec![consumer().encode()];
    Hammer::new("consumer")
        .seeds(seeds)
        .run(|b| ConsumerRecord::decode(b).ok(), same(ConsumerRecord::encode));
    let seeds = vec![ChangelogRecord { number: 7, consumer: 8 }.encode()];
    Hammer::new("numbers")
        .seeds(seeds)
        .run(|b| ChangelogRecord::decode(b).ok(), same(ChangelogRecord::encode));
}

/// The notes of the last request.
fn told(world: &mut World) -> Vec<Note> {
    std::mem::take(&mut world.txn.notes)
}

fn place(parent: Fid, name: &str) -> (Fid, Vec<u8>) {
    (parent, name.as_bytes().to_vec())
}

#[test]
fn notes_say_what_was_done() {
    let mut w = World::new();
    w.who = ALICE;
    w.txn.notes.clear();
    let root = |mut req: SetAttr| {
        req.cred = cred(0);
        req
    };
    let chmod = SetAttr {
        fid: ROOT,
        valid: SET_MODE | SET_ATIME | SET_TOUCH,
        mode: 0o777,
        uid: 0,
        gid: 0,
        atime: w.now,
        mtime: w.now,
        now: w.now,
        held: None,
        cred: cred(0),
    };
    w.call(root(chmod)).unwrap();
    let note = &told(&mut w)[0];
    assert_eq!((note.op, note.fid, note.what), (ChangeOp::SetAttr, ROOT, SET_MODE | SET_ATIME));
    assert_eq!(note.who, Some(Who { uid: 0, gid: 0 }));
    // Names.
    let f = w.file(ROOT, "f");
    let note = told(&mut w).remove(0);
    assert_eq!((note.op, note.fid, (note.parent, note.name)), (ChangeOp::Create, f, place(ROOT, "f")));
    assert_eq!(note.who, Some(Who { uid: ALICE, gid: ALICE }));
    let (now, who) = (w.now, cred(ALICE));
    w.call(Link { fid: f, parent: ROOT, name: bytes("g"), now, cred: who.clone() }).unwrap();
    let note = told(&mut w).remove(0);
    assert_eq!((note.op, note.fid, (note.parent, note.name)), (ChangeOp::Link, f, place(ROOT, "g")));
    for (name, flags) in [("f", 0), ("g", CHANGE_LAST)] {
        w.call(Unlink { parent: ROOT, name: bytes(name), held: false, now, cred: who.clone() }).unwrap();
        let note = told(&mut w).remove(0);
        assert_eq!((note.op, note.fid, note.flags), (ChangeOp::Unlink, f, flags), "{name}");
        assert_eq!((note.parent, note.name), place(ROOT, name));
    }
    let d = w.mkdir(ROOT, "d", 0o755).unwrap().fid;
    assert_eq!(told(&mut w)[0].op, ChangeOp::MakeDir);
    let (a, b) = (w.file(d, "a"), w.file(ROOT, "b"));
    told(&mut w);
    let rename = |flags, hold| Rename {
        parent: d,
        name: bytes("a"),
        new_parent: ROOT,
        new_name: bytes("b"),
        flags,
        hold,
        now,
        cred: who.clone(),
        want: Fid(0),
    };
    w.call(rename(RENAME_EXCHANGE, false)).unwrap();
    let note = told(&mut w).remove(0);
    assert_eq!((note.op, note.fid, note.other, note.flags), (ChangeOp::Rename, a, b, CHANGE_EXCHANGE));
    assert_eq!((note.parent, note.name), place(ROOT, "b"));
    assert_eq!((note.old_parent, note.old_name), place(d, "a"));
    w.call(rename(0, true)).unwrap();
    let note = told(&mut w).remove(0);
    assert_eq!((note.fid, note.other, note.flags), (b, a, CHANGE_LAST));
    // A whiteout is noted as a device that was made at the old name.
    let (away, back) = (rename(RENAME_WHITEOUT, false), rename(0, false));
    let away = Rename {
        parent: ROOT,
        name: back.new_name.clone(),
        new_parent: d,
        new_name: back.name.clone(),
        ..away
    };
    let whiteout = w.call(away).unwrap().whiteout;
    let notes = told(&mut w);
    assert_eq!((notes[0].op, notes[0].fid), (ChangeOp::Rename, b));
    assert_eq!((notes[1].op, notes[1].fid), (ChangeOp::MakeNode, whiteout));
    assert_eq!((notes[1].parent, notes[1].name.clone()), place(ROOT, "b"));
    w.call(back).unwrap();
    assert_eq!(told(&mut w)[0].other, whiteout);
    w.call(RemoveDir { parent: ROOT, name: bytes("d"), held: false, now, cred: who.clone() }).unwrap();
    assert_eq!(told(&mut w)[0].op, ChangeOp::RemoveDir);
    // Content and attributes.
    let crcs = crc::fragment_crcs(0, b"x");
    let (place, in_section) = (Place::At(0), false);
    w.call_with(WriteInline { fid: b, place, in_section, crcs, now, held: None }, b"x").unwrap();
    assert_eq!(told(&mut w)[0].op, ChangeOp::Write);
    w.call(Truncate { fid: b, size: 0, now, held: None, cred: who.clone() }).unwrap();
    assert_eq!(told(&mut w)[0].op, ChangeOp::Truncate);
    let value = bytes("v");
    w.call(SetXattr { fid: b, name: bytes("user.x"), value, flags: 0, now, cred: who.clone() }).unwrap();
    let note = told(&mut w).remove(0);
    assert_eq!((note.op, &note.name[..]), (ChangeOp::SetXattr, &b"user.x"[..]));
    w.call(RemoveXattr { fid: b, name: bytes("user.x"), now, cred: who.clone() }).unwrap();
    assert_eq!(told(&mut w)[0].op, ChangeOp::SetXattr);
    w.call(SetFlags { fid: b, flags: FLAG_NODUMP, now, cred: who.clone() }).unwrap();
    assert_eq!(told(&mut w)[0].what, WHAT);
    let grown = w.call(Grow { fid: b, now, held: None, avoid: vec![] }).unwrap();
    assert!(grown.switched);
    assert_eq!(told(&mut w)[0].op, ChangeOp::Layout);
    let settle = |size, done| Settle {
        fid: b,
        generation: grown.layout.generation,
        size,
        blocks: 8,
        mtime: Time::new(500, 0),
        written: vec![],
        done,
        hint: false,
        is_part: false,
        held: None,
    };
    w.call(settle(100, false)).unwrap();
    assert_eq!(told(&mut w)[0].op, ChangeOp::Write);
    w.call(settle(200, true)).unwrap();
    assert_eq!(told(&mut w)[0].op, ChangeOp::Close);
    // A request without effect makes no note, nor does a read.
    w.call(settle(200, true)).unwrap();
    w.call(GetAttr { fid: b }).unwrap();
    assert_eq!(told(&mut w), []);
}
const WHAT: u32 = wire::changelog::WHAT_FLAGS;

/// meta-N1: no note of a refused request is kept; a replay whose work was done already makes none.
#[test]
fn refusals_and_repeats_note_nothing() {
    let mut w = World::new();
    let fid = w.file(ROOT, "f");
    told(&mut w);
    assert!(w.create(ROOT, "f").is_err());
    assert!(w.mkdir(Fid(999), "d", 0o755).is_err());
    w.replay = true;
    let req = Create { want: fid, ..w.create_req(ROOT, "f") };
    w.call(req).unwrap();
    w.call(Link { fid, parent: ROOT, name: bytes("f"), now: w.now, cred: cred(0) }).unwrap();
    assert_eq!(told(&mut w), []);
}

/// meta-N2: the names that follow from the notes.
#[derive(Default)]
struct Mirror(BTreeMap<(Fid, Vec<u8>), Fid>);

impl Mirror {
    fn apply(&mut self, note: &Note) {
        let at = (note.parent, note.name.clone());
        match note.op {
            ChangeOp::Create
            | ChangeOp::MakeDir
            | ChangeOp::Symlink
            | ChangeOp::MakeNode
            | ChangeOp::Link => {
                assert_eq!(self.0.insert(at, note.fid), None, "{note:?}");
            }
            ChangeOp::Unlink | ChangeOp::RemoveDir => {
                assert_eq!(self.0.remove(&at), Some(note.fid), "{note:?}")
            }
            ChangeOp::Rename => {
                let old = (note.old_parent, note.old_name.clone());
                assert_eq!(self.0.remove(&old), Some(note.fid), "{note:?}");
                let other = Some(note.other).filter(|fid| *fid != Fid(0));
                assert_eq!(self.0.insert(at, note.fid), other, "{note:?}");
                if note.flags & CHANGE_EXCHANGE != 0 {
                    self.0.insert(old, note.other);
                }
            }
            _ => {}
        }
    }
}

#[test]
fn n2_a_mirror_made_from_the_notes_has_the_same_names() {
    for seed in 1..5 {
        let (mut w, mut dice) = (World::new(), hammer::Dice::new(seed));
        let (mut dirs, mut files, mut mirror) = (vec![ROOT], vec![], Mirror::default());
        let mut notes = 0;
        for _ in 0..5000 {
            let [parent, new_parent] = [(); 2].map(|()| dirs[dice.below(dirs.len())]);
            let [name, new_name] = [(); 2].map(|()| bytes(&format!("n{}", dice.below(5))));
            let (now, cred) = (w.now, cred(0));
            match dice.below(12) {
                0..2 => files.extend(w.create(parent, std::str::from_utf8(&name.0).unwrap()).map(|a| a.fid)),
                2 => {
                    let req = w.create_with_req(parent, std::str::from_utf8(&name.0).unwrap(), b"bytes");
                    files.extend(w.call_with(req, b"bytes").map(|r| r.inode.attr.fid));
                }
                3 => {
                    dirs.extend(w.mkdir(parent, std::str::from_utf8(&name.0).unwrap(), 0o755).map(|a| a.fid))
                }
                4 => drop(w.call(Unlink { parent, name, held: dice.below(2) == 0, now, cred })),
                5 => drop(w.call(RemoveDir { parent, name, held: false, now, cred })),
                6 if !files.is_empty() => {
                    let fid = files[dice.below(files.len())];
                    drop(w.call(Link { fid, parent, name, now, cred }));
                }
                7 => drop(w.call(Symlink { parent, name, target: bytes("t"), now, cred, want: Fid(0) })),
                8 => {
                    let tmpfile =
                        Tmpfile { parent, mode: 0o600, umask: 0, exclusive: false, now, cred, want: Fid(0) };
                    files.extend(w.call(tmpfile).map(|r| r.inode.attr.fid));
                }
                _ => {
                    let all = [0, 0, RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT];
                    let (flags, hold, want) = (all[dice.below(all.len())], dice.below(2) == 0, Fid(0));
                    drop(w.call(Rename { parent, name, new_parent, new_name, flags, hold, now, cred, want }));
                }
            }
            let told = told(&mut w);
            notes += told.len();
            told.iter().for_each(|note| mirror.apply(note));
        }
        assert!(notes > 800, "{notes} notes");
        let entries = w.txn.records.iter().filter(|(key, _)| key.as_bytes()[0] == keys::ENTRY);
        let names: BTreeMap<_, _> = entries
            .map(|(key, value)| {
                let entry = crate::records::EntryRecord::decode(value).unwrap();
                ((keys::parse_fid(key).unwrap(), entry.name), entry.fid)
            })
            .collect();
        assert_eq!(mirror.0, names, "seed {seed}");
    }
}
