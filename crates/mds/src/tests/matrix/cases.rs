//! The calls of the matrix: what is there before, the request, and a later request that a second effect would undo or repeat.

use types::*;
use wire::accessed::{Accessed, ReadTime};
use wire::meta::*;
use wire::shared::{Enter, LeaseKind};
use wire::{Request, Wire};

use super::super::rig::{Rig, SECRET};

/// Body and bulk of a request.
pub type Asked = (Vec<u8>, Vec<u8>);

pub struct Case {
    pub name: &'static str,
    pub call: u16,
    /// Makes the tree that the request starts from. The other functions are given the fids that it made, in order.
    pub prepare: fn(&Rig) -> Vec<Fid>,
    pub ask: fn(&[Fid]) -> Asked,
    /// Changes what the request changed; it may look at its answer.
    pub change: fn(&Rig, &[Fid], &[u8]),
}

/// The body of a request, and no bulk.
fn plain<R: Request>(request: R) -> Asked {
    (request.to_bytes(), vec![])
}

const NOW: Time = Time { sec: 20, nsec: 0 };
const LATER: Time = Time { sec: 30, nsec: 0 };
const PAGE: usize = PAGE_SIZE;

fn name(text: &str) -> wire::codec::Bytes {
    text.as_bytes().into()
}

fn done<R: Request>(rig: &Rig, request: R) -> R::Reply {
    rig.ask(&request, rig.session).unwrap()
}

fn create(text: &str) -> Create {
    Create {
        parent: Fid::ROOT,
        name: name(text),
        kind: Kind::File,
        mode: 0o644,
        umask: 0,
        rdev: 0,
        exclusive: true,
        read: true,
        write: true,
        append: false,
        now: NOW,
        cred: Cred::root(),
        want: Fid(0),
    }
}

fn create_with(text: &str, bytes: &[u8]) -> CreateWith {
    CreateWith {
        parent: Fid::ROOT,
        name: name(text),
        mode: 0o644,
        umask: 0,
        crcs: crc::fragment_crcs(0, bytes),
        now: NOW,
        written: LATER,
        cred: Cred::root(),
        want: Fid(0),
    }
}

fn admin() -> wire::object::Capability {
    object::cap::make_admin(&SECRET, 1 << 40)
}

fn migrate(fid: Fid) -> Migrate {
    Migrate { fid, cap: admin(), generation: Generation(1), token: 0, avoid: vec![], now: LATER }
}

/// A file with objects, and a pending layout of generation 2.
fn migrating(rig: &Rig) -> Vec<Fid> {
    let fid = file(rig, "f", b"");
    done(rig, grow(fid));
    done(rig, migrate(fid));
    vec![fid]
}

fn mkdir(text: &str) -> MakeDir {
    let (now, cred) = (NOW, Cred::root());
    MakeDir { parent: Fid::ROOT, name: name(text), mode: 0o755, umask: 0, now, cred, want: Fid(0) }
}

fn rename(from: &str, to: &str) -> Rename {
    let (parent, new_parent, now, cred) = (Fid::ROOT, Fid::ROOT, LATER, Cred::root());
    let (name, new_name) = (name(from), name(to));
    Rename { parent, name, new_parent, new_name, flags: 0, hold: false, now, cred, want: Fid(0) }
}

fn unlink(text: &str, held: bool) -> Unlink {
    Unlink { parent: Fid::ROOT, name: name(text), held, now: LATER, cred: Cred::root() }
}

fn link(fid: Fid, text: &str) -> Link {
    Link { fid, parent: Fid::ROOT, name: name(text), now: LATER, cred: Cred::root() }
}

fn set_mode(fid: Fid, mode: u32) -> SetAttr {
    let none = Time::default();
    let (valid, now, cred) = (SET_MODE, LATER, Cred::root());
    SetAttr { fid, valid, mode, uid: 0, gid: 0, atime: none, mtime: none, now, held: None, cred }
}

fn set_xattr(fid: Fid, value: &str) -> SetXattr {
    let (value, now, cred) = (name(value), LATER, Cred::root());
    SetXattr { fid, name: name("user.a"), value, flags: 0, now, cred }
}

fn set_flags(fid: Fid, flags: u32) -> SetFlags {
    SetFlags { fid, flags, now: LATER, cred: Cred::root() }
}

fn set_stripe(fid: Fid, inline_max: Option<u32>) -> SetStripe {
    let spec = inline_max.map(|max| StripeSpec { components: vec![], inline_max: Some(max) });
    SetStripe { fid, spec, now: LATER, cred: Cred::root() }
}

fn write_inline(fid: Fid, place: Place, bytes: &[u8]) -> WriteInline {
    let (in_section, crcs) = (true, crc::fragment_crcs(0, bytes));
    WriteInline { fid, place, in_section, crcs, now: LATER, held: None }
}

fn truncate(fid: Fid, size: u64) -> Truncate {
    Truncate { fid, size, now: LATER, held: None, cred: Cred::root() }
}

fn grow(fid: Fid) -> Grow {
    Grow { fid, now: LATER, held: None, avoid: vec![] }
}

fn settle(fid: Fid, generation: u32, size: u64, done: bool) -> Settle {
    let (generation, mtime) = (Generation(generation), LATER);
    Settle {
        fid,
        generation,
        size,
        blocks: 8,
        mtime,
        written: vec![],
        done,
        hint: false,
        is_part: false,
        held: None,
    }
}

fn open(fid: Fid, truncate: bool) -> Open {
    let (read, write, append, keep_write, held) = (true, true, false, false, None);
    Open { fid, read, write, append, truncate, keep_write, held, now: LATER, cred: Cred::root() }
}

fn enter(fid: Fid) -> Enter {
    Enter { fid, token: 1, floor: 0, kind: LeaseKind::Shared, write: true, now: LATER, held: None }
}

/// A file with these bytes in its record.
fn file(rig: &Rig, text: &str, bytes: &[u8]) -> Fid {
    let fid = done(rig, create(text)).open.inode.attr.fid;
    if !bytes.is_empty() {
        rig.ask_with(&write_inline(fid, Place::At(0), bytes), rig.session, bytes).unwrap();
    }
    fid
}

/// A file with objects, of which the MDT was told everything.
fn settled(rig: &Rig, text: &str, size: u64) -> Fid {
    let fid = file(rig, text, b"");
    let made = done(rig, grow(fid));
    assert!(made.switched);
    done(rig, settle(fid, made.layout.generation.0, size, true));
    fid
}

fn overwrite(rig: &Rig, fid: Fid) {
    rig.ask_with(&write_inline(fid, Place::At(0), b"later"), rig.session, b"later").unwrap();
}

pub const CASES: &[Case] = &[
    Case {
        name: "SetAttr",
        call: SetAttr::CALL,
        prepare: |rig| vec![file(rig, "f", b"")],
        ask: |f| plain(set_mode(f[0], 0o600)),
        change: |rig, f, _| _ = done(rig, set_mode(f[0], 0o666)),
    },
    Case {
        name: "Create",
        call: Create::CALL,
        prepare: |_| vec![],
        ask: |_| plain(create("new")),
        change: |rig, _, _| _ = done(rig, rename("new", "moved")),
    },
    Case {
        name: "Create of what is there",
        call: Create::CALL,
        prepare: |rig| vec![settled(rig, "f", 9_000)],
        ask: |_| plain(Create { exclusive: false, ..create("f") }),
        change: |rig, f, _| _ = done(rig, settle(f[0], 1, 9_000, true)),
    },
    Case {
        name: "CreateWith",
        call: CreateWith::CALL,
        prepare: |_| vec![],
        ask: |_| (create_with("new", &[7; 5000]).to_bytes(), vec![7; 5000]),
        change: |rig, _, made| {
            let fid = OpenReply::from_bytes(made).unwrap().inode.attr.fid;
            overwrite(rig, fid);
            done(rig, rename("new", "moved"));
        },
    },
    Case {
        name: "MakeDir",
        call: MakeDir::CALL,
        prepare: |_| vec![],
        ask: |_| plain(mkdir("new")),
        change: |rig, _, _| _ = done(rig, rename("new", "moved")),
    },
    Case {
        name: "Symlink",
        call: Symlink::CALL,
        prepare: |_| vec![],
        ask: |_| {
            let (name, target, now, cred) = (name("new"), name("to/where"), NOW, Cred::root());
            plain(Symlink { parent: Fid::ROOT, name, target, now, cred, want: Fid(0) })
        },
        change: |rig, _, _| _ = done(rig, rename("new", "moved")),
    },
    Case {
        name: "Link",
        call: Link::CALL,
        prepare: |rig| vec![file(rig, "f", b"")],
        ask: |f| plain(link(f[0], "l")),
        change: |rig, _, _| _ = done(rig, unlink("l", false)),
    },
    Case {
        name: "Unlink",
        call: Unlink::CALL,
        prepare: |rig| vec![settled(rig, "f", 9_000)],
        ask: |_| plain(unlink("f", false)),
        change: |rig, _, _| _ = done(rig, create("f")),
    },
    Case {
        name: "Unlink of what is open",
        call: Unlink::CALL,
        prepare: |rig| vec![file(rig, "f", b"some")],
        ask: |_| plain(unlink("f", true)),
        change: |rig, _, _| _ = done(rig, create("f")),
    },
    Case {
        name: "RemoveDir",
        call: RemoveDir::CALL,
        prepare: |rig| vec![done(rig, mkdir("d")).attr.fid],
        ask: |_| {
            plain(RemoveDir {
                parent: Fid::ROOT,
                name: name("d"),
                held: false,
                now: LATER,
                cred: Cred::root(),
            })
        },
        change: |rig, _, _| _ = done(rig, mkdir("d")),
    },
    Case {
        name: "Rename",
        call: Rename::CALL,
        prepare: |rig| vec![file(rig, "f", b"")],
        ask: |_| plain(rename("f", "g")),
        change: |rig, _, _| _ = done(rig, rename("g", "f")),
    },
    Case {
        name: "Rename over another",
        call: Rename::CALL,
        prepare: |rig| vec![file(rig, "f", b"f"), settled(rig, "g", 9_000)],
        ask: |_| plain(rename("f", "g")),
        change: |rig, _, _| _ = done(rig, create("f")),
    },
    Case {
        name: "Rename that exchanges",
        call: Rename::CALL,
        prepare: |rig| vec![file(rig, "f", b"f"), done(rig, mkdir("g")).attr.fid],
        ask: |_| plain(Rename { flags: RENAME_EXCHANGE, ..rename("f", "g") }),
        change: |rig, _, _| _ = done(rig, Rename { flags: RENAME_EXCHANGE, ..rename("f", "g") }),
    },
    Case {
        name: "Rename that leaves a whiteout",
        call: Rename::CALL,
        prepare: |rig| vec![file(rig, "f", b"f")],
        ask: |_| plain(Rename { flags: RENAME_WHITEOUT, ..rename("f", "g") }),
        change: |rig, _, _| _ = done(rig, rename("g", "f")),
    },
    Case {
        name: "SetXattr",
        call: SetXattr::CALL,
        prepare: |rig| vec![file(rig, "f", b"")],
        ask: |f| plain(set_xattr(f[0], "1")),
        change: |rig, f, _| _ = done(rig, set_xattr(f[0], "2")),
    },
    Case {
        name: "RemoveXattr",
        call: RemoveXattr::CALL,
        prepare: |rig| {
            let fid = file(rig, "f", b"");
            done(rig, set_xattr(fid, "1"));
            vec![fid]
        },
        ask: |f| plain(RemoveXattr { fid: f[0], name: name("user.a"), now: LATER, cred: Cred::root() }),
        change: |rig, f, _| _ = done(rig, set_xattr(f[0], "2")),
    },
    Case {
        name: "Open that empties",
        call: Open::CALL,
        prepare: |rig| vec![file(rig, "f", b"some")],
        ask: |f| plain(open(f[0], true)),
        change: |rig, f, _| overwrite(rig, f[0]),
    },
    Case {
        name: "Open of objects",
        call: Open::CALL,
        prepare: |rig| vec![settled(rig, "f", 9_000)],
        ask: |f| plain(open(f[0], false)),
        change: |rig, f, _| _ = done(rig, settle(f[0], 1, 9_000, true)),
    },
    Case {
        name: "Release",
        call: Release::CALL,
        prepare: |rig| {
            let fid = settled(rig, "f", 9_000);
            done(rig, unlink("f", true));
            vec![fid]
        },
        ask: |f| plain(Release { fid: f[0] }),
        change: |rig, _, _| _ = done(rig, create("f")),
    },
    Case {
        name: "WriteInline",
        call: WriteInline::CALL,
        prepare: |rig| vec![file(rig, "f", b"some")],
        ask: |f| (write_inline(f[0], Place::At(2), &[7; 5000]).to_bytes(), vec![7; 5000]),
        change: |rig, f, _| overwrite(rig, f[0]),
    },
    Case {
        name: "WriteInline at the end, by one of several",
        call: WriteInline::CALL,
        prepare: |rig| vec![file(rig, "f", b"some")],
        ask: |f| {
            let write = write_inline(f[0], Place::End, &[7; 5000]);
            (WriteInline { in_section: false, ..write }.to_bytes(), vec![7; 5000])
        },
        change: |rig, f, _| overwrite(rig, f[0]),
    },
    Case {
        name: "WriteInline within the file",
        call: WriteInline::CALL,
        prepare: |rig| vec![file(rig, "f", b"some")],
        ask: |f| (write_inline(f[0], Place::Within(2), &[7; 5000]).to_bytes(), vec![7; 5000]),
        change: |rig, f, _| overwrite(rig, f[0]),
    },
    Case {
        name: "WriteInline that gives a growth up",
        call: WriteInline::CALL,
        prepare: |rig| {
            let fid = file(rig, "f", b"some");
            assert!(!done(rig, grow(fid)).switched);
            vec![fid]
        },
        ask: |f| (write_inline(f[0], Place::At(2), &[7; 5000]).to_bytes(), vec![7; 5000]),
        change: |rig, f, _| overwrite(rig, f[0]),
    },
    Case {
        name: "AllocateInline",
        call: AllocateInline::CALL,
        prepare: |rig| vec![file(rig, "f", &[5; 3 * PAGE])],
        ask: |f| {
            let (fid, offset, len, now) = (f[0], 0, 2 * PAGE as u64, LATER);
            plain(AllocateInline {
                fid,
                offset,
                len,
                erase: true,
                allocate: false,
                grow: false,
                now,
                held: None,
            })
        },
        change: |rig, f, _| overwrite(rig, f[0]),
    },
    Case {
        name: "Grow of an empty file",
        call: Grow::CALL,
        prepare: |rig| vec![file(rig, "f", b"")],
        ask: |f| plain(grow(f[0])),
        change: |rig, f, _| _ = done(rig, settle(f[0], 1, 9_000, true)),
    },
    Case {
        name: "Grow",
        call: Grow::CALL,
        prepare: |rig| vec![file(rig, "f", b"some")],
        ask: |f| plain(grow(f[0])),
        // A generation that never came to be is buried by the next.
        change: |rig, f, _| _ = done(rig, grow(f[0])),
    },
    Case {
        name: "Switch",
        call: Switch::CALL,
        prepare: |rig| {
            let fid = file(rig, "f", &[7; 5000]);
            assert!(!done(rig, grow(fid)).switched);
            vec![fid]
        },
        ask: |f| {
            let written = vec![WrittenBits { component: 0, bits: vec![1] }];
            plain(Switch { fid: f[0], generation: Generation(1), written, now: LATER, held: None })
        },
        change: |rig, f, _| _ = done(rig, truncate(f[0], 0)),
    },
    Case {
        name: "MoveTail",
        call: MoveTail::CALL,
        prepare: |rig| {
            let fid = file(rig, "f", b"");
            done(rig, grow(fid));
            vec![fid]
        },
        ask: |f| {
            let (fid, generation, avoid) = (f[0], Generation(1), vec![MirrorId(0)]);
            plain(MoveTail {
                fid,
                generation,
                components: 3,
                from: 9,
                keep: 0,
                avoid,
                now: LATER,
                held: None,
            })
        },
        change: |rig, f, _| _ = done(rig, truncate(f[0], 0)),
    },
    Case {
        name: "Migrate",
        call: Migrate::CALL,
        prepare: |rig| {
            let fid = file(rig, "f", b"");
            done(rig, grow(fid));
            vec![fid]
        },
        ask: |f| plain(migrate(f[0])),
        change: |rig, f, _| _ = done(rig, migrate(f[0])),
    },
    Case {
        name: "CutOver",
        call: CutOver::CALL,
        prepare: migrating,
        ask: |f| {
            let (fid, from, generation) = (f[0], Generation(1), Generation(2));
            let written = vec![WrittenBits { component: 0, bits: vec![1] }];
            plain(CutOver {
                fid,
                cap: admin(),
                from,
                generation,
                token: 0,
                size: 0,
                blocks: 16,
                written,
                now: LATER,
            })
        },
        change: |rig, f, _| _ = done(rig, truncate(f[0], 0)),
    },
    Case {
        name: "DropPending",
        call: DropPending::CALL,
        prepare: migrating,
        ask: |f| plain(DropPending { fid: f[0], cap: admin(), generation: Generation(2), token: 0 }),
        change: |rig, f, _| _ = done(rig, migrate(f[0])),
    },
    Case {
        name: "Repoint",
        call: Repoint::CALL,
        prepare: migrating,
        ask: |f| {
            let (fid, generation, empty) = (f[0], Generation(1), vec![MirrorId(0)]);
            plain(Repoint { fid, cap: admin(), generation, components: 3, token: 0, empty, now: LATER })
        },
        change: |rig, f, _| _ = done(rig, truncate(f[0], 0)),
    },
    Case {
        name: "Settle",
        call: Settle::CALL,
        prepare: |rig| {
            let fid = file(rig, "f", b"");
            done(rig, grow(fid));
            vec![fid]
        },
        ask: |f| plain(settle(f[0], 1, 9_000, true)),
        change: |rig, f, _| _ = done(rig, truncate(f[0], 0)),
    },
    Case {
        name: "Truncate in the record",
        call: Truncate::CALL,
        prepare: |rig| vec![file(rig, "f", &[7; 5000])],
        ask: |f| plain(truncate(f[0], 3)),
        change: |rig, f, _| overwrite(rig, f[0]),
    },
    Case {
        name: "Truncate of objects",
        call: Truncate::CALL,
        prepare: |rig| vec![settled(rig, "f", 90_000)],
        ask: |f| plain(truncate(f[0], 70_000)),
        change: |rig, f, _| {
            done(rig, settle(f[0], 1, 70_000, false));
            done(rig, settle(f[0], 1, 80_000, true));
        },
    },
    Case {
        name: "Truncate to nothing",
        call: Truncate::CALL,
        prepare: |rig| vec![settled(rig, "f", 90_000)],
        ask: |f| plain(truncate(f[0], 0)),
        change: |rig, f, _| overwrite(rig, f[0]),
    },
    Case {
        name: "SetStripe",
        call: SetStripe::CALL,
        prepare: |rig| vec![done(rig, mkdir("d")).attr.fid],
        ask: |f| plain(set_stripe(f[0], Some(4096))),
        change: |rig, f, _| _ = done(rig, set_stripe(f[0], None)),
    },
    Case {
        name: "SetFlags",
        call: SetFlags::CALL,
        prepare: |rig| vec![file(rig, "f", b"")],
        ask: |f| plain(set_flags(f[0], FLAG_NODUMP)),
        change: |rig, f, _| _ = done(rig, set_flags(f[0], 0)),
    },
    Case {
        name: "Tmpfile",
        call: Tmpfile::CALL,
        prepare: |_| vec![],
        ask: |_| {
            let (parent, now, cred, want) = (Fid::ROOT, NOW, Cred::root(), Fid(0));
            plain(Tmpfile { parent, mode: 0o600, umask: 0, exclusive: false, now, cred, want })
        },
        change: |rig, _, reply| {
            let made = OpenReply::from_bytes(reply).unwrap().inode.attr.fid;
            done(rig, link(made, "named"));
        },
    },
    Case {
        name: "Enter",
        call: Enter::CALL,
        prepare: |rig| vec![settled(rig, "f", 9_000)],
        ask: |f| plain(enter(f[0])),
        change: |rig, f, _| _ = done(rig, settle(f[0], 1, 9_000, true)),
    },
    Case {
        name: "Accessed",
        call: Accessed::CALL,
        prepare: |rig| vec![file(rig, "f", b"some")],
        ask: |f| {
            let reads = vec![ReadTime { fid: f[0], atime: Time::new(40, 0), sure: false }];
            plain(Accessed { reads, cred: Cred::root() })
        },
        change: |rig, f, _| {
            let atime = Time::new(1, 0);
            done(rig, SetAttr { valid: SET_ATIME, atime, ..set_mode(f[0], 0) });
        },
    },
];
