use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use types::*;
use wire::codec::Bytes;

use super::*;
use crate::records::EntryRecord;
use crate::sharing::Sharing;
use crate::testing::{ROOT, World, bytes, cred};
use crate::{Space, keys};
use wire::accessed::ReadTime;

/// A root that remembers directories until the test forgets them.
struct Cached {
    top: Fid,
    known: RefCell<HashSet<Fid>>,
}

impl Cached {
    fn new(top: Fid) -> Cached {
        Cached { top, known: RefCell::default() }
    }
}

impl Below for Cached {
    fn top(&self) -> Fid {
        self.top
    }
    fn has(&self, dir: Fid) -> bool {
        self.known.borrow().contains(&dir)
    }
    fn learn(&self, dirs: &[Fid]) {
        self.known.borrow_mut().extend(dirs);
    }
}

/// Files that this session has open.
#[derive(Default)]
struct Opens(BTreeSet<Fid>);

impl Sharing for Opens {
    fn is_shared(&self) -> bool {
        true
    }
    fn is_alive(&self, _: SessionId) -> bool {
        true
    }
    fn is_open_here(&self, fid: Fid) -> bool {
        self.0.contains(&fid)
    }
    fn opened_elsewhere(&self, _: Fid) -> Option<SessionId> {
        None
    }
    fn written_elsewhere(&self, _: Fid) -> bool {
        false
    }
    fn leased_elsewhere(&self, _: Fid) -> bool {
        false
    }
    fn holds_alone(&self, _: Fid, _: u64) -> bool {
        false
    }
    fn era(&self) -> u64 {
        1
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

fn below<T>(root: &Cached, opens: &Opens, f: impl FnOnce(&Ctx<'_>) -> T) -> T {
    World::with_ctx(false, Space::AMPLE, |ctx| {
        f(&Ctx { root: Some(root), sharing: Some(opens), judge: None, ..*ctx })
    })
}

/// A request of the session below `root`, through the dispatch.
fn call<R: Request>(w: &mut World, root: &Cached, opens: &Opens, req: &R) -> Result<R::Reply, Code> {
    let body = req.to_bytes();
    let answer = below(root, opens, |ctx| {
        if !R::MUTATES {
            let mut reply = vec![];
            return crate::read(ctx, &w.txn, R::CALL, &body, &mut reply, &mut Buf::new()).map(|()| reply);
        }
        let mut overlay = w.txn.clone();
        let answer = crate::mutate(ctx, &mut overlay, R::CALL, &body, &[]);
        if answer.is_ok() {
            w.txn = overlay;
        }
        answer
    });
    answer.map(|b| R::Reply::from_bytes(&b).unwrap()).map_err(|f| f.code)
}

/// Every file under `dir` by a walk of the whole tree, without parent hints.
fn walked(w: &World, dir: Fid) -> BTreeSet<Fid> {
    let (mut found, mut todo) = (BTreeSet::from([dir]), vec![dir]);
    while let Some(dir) = todo.pop() {
        w.txn.range(&keys::entry_after(dir, 0), &keys::entries_end(dir), &mut |_, value| {
            let entry = EntryRecord::decode(value).unwrap();
            if found.insert(entry.fid) && entry.kind == Kind::Dir {
                todo.push(entry.fid);
            }
            true
        });
    }
    found
}

/// All inodes, with their kinds and link counts.
fn inodes(w: &World) -> BTreeMap<Fid, InodeRecord> {
    let mut all = BTreeMap::new();
    let [begin, end] = [keys::INODE, keys::INODE + 1].map(keys::kind_start);
    w.txn.range(&begin, &end, &mut |key, value| {
        let fid = keys::fid_of_inode(key).unwrap();
        all.insert(fid, InodeRecord::decode(fid, value).unwrap());
        true
    });
    all
}

#[test]
fn r1_a_file_is_reached_if_a_walk_of_the_tree_finds_it_below_the_root() {
    for seed in 1..=8 {
        let mut dice = hammer::Dice::new(seed);
        let mut w = World::new();
        let top = w.dir(ROOT, "top");
        let root = Cached::new(top);
        // Some of the files are open in the session.
        let mut opens = Opens::default();
        let (mut inside, mut outside) = (0, 0);
        for _ in 0..600 {
            let now = inodes(&w);
            let named: Vec<Fid> = now.values().filter(|i| i.attr.nlink > 0).map(|i| i.fid()).collect();
            let dirs: Vec<Fid> = named.iter().copied().filter(|fid| now[fid].is_dir()).collect();
            let pick = |dice: &mut hammer::Dice, of: &[Fid]| of[dice.below(of.len())];
            let name = |dice: &mut hammer::Dice| format!("n{}", dice.below(6));
            let (dir, other) = (pick(&mut dice, &dirs), pick(&mut dice, &dirs));
            let (one, two) = (name(&mut dice), name(&mut dice));
            match dice.below(8) {
                0 | 1 => _ = w.mkdir(dir, &one, 0o755),
                2 => _ = w.create(dir, &one),
                3 => _ = w.link(pick(&mut dice, &named), dir, &one),
                4 => _ = w.unlink(dir, &one, dice.below(2) == 0),
                5 => _ = w.rmdir(dir, &one),
                // The root itself may move, and directories move over its bounds.
                _ => {
                    let flags = if dice.below(3) == 0 { RENAME_EXCHANGE } else { 0 };
                    if w.rename((dir, &one), (other, &two), flags, false).is_ok() {
                        root.known.borrow_mut().clear();
                    }
                }
            }
            if dice.below(5) == 0 {
                opens.0.insert(pick(&mut dice, &named));
            }
            let (tree, now) = (walked(&w, top), inodes(&w));
            for (fid, inode) in &now {
                let is_file = !inode.is_dir();
                // In this world each orphan belongs to the session.
                let is_orphan = inode.attr.nlink == 0;
                let is_open = is_file && opens.0.contains(fid);
                let (may_use, may_name) = below(&root, &opens, |ctx| {
                    let may = |named| may(ctx, &root, &w.txn, named).unwrap();
                    (may(Named::Use(*fid)), may(Named::Name(*fid)))
                });
                assert_eq!(may_use, tree.contains(fid) || is_orphan || is_open, "seed {seed}: {fid}");
                assert_eq!(may_name, tree.contains(fid) || is_orphan, "seed {seed}: {fid}");
                let dir_below = is_dir_below(&root, &w.txn, *fid);
                assert_eq!(dir_below, !is_file && tree.contains(fid), "seed {seed}: {fid}");
                *(if may_use { &mut inside } else { &mut outside }) += 1;
            }
        }
        assert!(inside > 500 && outside > 500, "both happen: {inside}, {outside}");
    }
}

#[test]
fn an_orphan_of_another_session_is_outside() {
    let mut w = World::new();
    let top = w.dir(ROOT, "top");
    let file = w.file(top, "f");
    w.unlink(top, "f", true).unwrap();
    let (root, none) = (Cached::new(top), Opens::default());
    call(&mut w, &root, &none, &GetAttr { fid: file }).unwrap();
    use crate::Txn;
    w.txn.put(keys::orphan(file), crate::records::encode_orphan(SessionId(8)));
    assert_eq!(call(&mut w, &root, &none, &GetAttr { fid: file }).unwrap_err(), Code::Stale);
    let open = Opens(BTreeSet::from([file]));
    call(&mut w, &root, &open, &GetAttr { fid: file }).unwrap();
}

/// A tree with the root `/in`: `/in/dir/f`, `/in/shared` that is `/out/shared` too, and `/out/dir/g`.
struct Tree {
    w: World,
    root: Cached,
    none: Opens,
    dir: Fid,
    f: Fid,
    shared: Fid,
    out: Fid,
    out_dir: Fid,
    g: Fid,
}

impl Tree {
    fn new() -> Tree {
        let mut w = World::new();
        let (top, out) = (w.dir(ROOT, "in"), w.dir(ROOT, "out"));
        let (dir, out_dir) = (w.dir(top, "dir"), w.dir(out, "dir"));
        let (f, g, shared) = (w.file(dir, "f"), w.file(out_dir, "g"), w.file(out, "shared"));
        w.link(shared, top, "shared").unwrap();
        Tree { w, root: Cached::new(top), none: Opens::default(), dir, f, shared, out, out_dir, g }
    }
    fn call<R: Request>(&mut self, req: R) -> Result<R::Reply, Code> {
        call(&mut self.w, &self.root, &self.none, &req)
    }
    fn lookup(&mut self, parent: Fid, name: &str) -> Result<Fid, Code> {
        self.call(Lookup { parent, name: bytes(name), cred: cred(0) }).map(|i| i.attr.fid)
    }
}

#[test]
fn the_root_is_its_own_parent_and_paths_begin_there() {
    let mut t = Tree::new();
    let (top, dir, f, shared) = (t.root.top, t.dir, t.f, t.shared);
    assert_eq!(t.lookup(top, ".."), Ok(top));
    assert_eq!(t.lookup(dir, ".."), Ok(top));
    assert_eq!(t.lookup(ROOT, "in"), Err(Code::Stale));
    let list = |dir| ReadDir { dir, cookie: 0, max: 10, plus: true, cred: cred(0) };
    assert_eq!(t.call(list(top)).unwrap().parent, top);
    assert_eq!(t.call(list(dir)).unwrap().parent, top);
    assert_eq!(t.call(list(t.out)).unwrap_err(), Code::Stale);
    let path = |path: &str| Bytes(path.as_bytes().to_vec());
    for (fid, want) in [(f, "/dir/f"), (shared, "/shared"), (top, "/"), (ROOT, "/"), (dir, "/dir")] {
        assert_eq!(t.call(PathOf { fid }).unwrap().path, path(want));
        let all = t.call(PathsOf { fid }).unwrap();
        assert_eq!((all.names, all.paths), (1, vec![path(want)]), "the other names are not told");
    }
    assert_eq!(t.call(PathsOf { fid: t.g }).unwrap_err(), Code::Stale);
    let seen = t.call(GetAttrs { fids: vec![f, t.g, shared, ROOT, Fid(999)] }).unwrap().inodes;
    assert_eq!(seen.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true, false, false]);
    assert_eq!(t.call(Scan { after: Bytes(vec![]), max: 9 }).unwrap_err(), Code::Access);
}

#[test]
fn nothing_goes_over_the_bounds_of_the_root() {
    let mut t = Tree::new();
    let (top, dir, f, g, shared, out, out_dir) = (t.root.top, t.dir, t.f, t.g, t.shared, t.out, t.out_dir);
    let now = Time::new(500, 0);
    let link = |fid, parent| Link { fid, parent, name: bytes("new"), now, cred: cred(0) };
    assert_eq!(t.call(link(g, top)).unwrap_err(), Code::Stale);
    assert_eq!(t.call(link(f, out)).unwrap_err(), Code::Stale);
    let rename = |parent, name: &str, new_parent, flags| Rename {
        parent,
        name: bytes(name),
        new_parent,
        new_name: bytes("moved"),
        flags,
        hold: false,
        now,
        cred: cred(0),
        want: Fid(0),
    };
    for flags in [0, RENAME_EXCHANGE, RENAME_WHITEOUT] {
        assert_eq!(t.call(rename(out_dir, "g", dir, flags)).unwrap_err(), Code::Stale);
        assert_eq!(t.call(rename(dir, "f", out, flags)).unwrap_err(), Code::Stale);
    }
    let reads = |fid| ReadTime { fid, atime: Time::new(900, 0), sure: true };
    let before = t.w.attr(g).atime;
    t.call(Accessed { reads: vec![reads(g), reads(f)], cred: cred(0) }).unwrap();
    assert_eq!((t.w.attr(g).atime, t.w.attr(f).atime), (before, Time::new(900, 0)));
    // A file that the session has open, and that was moved out, is used but not brought back.
    t.w.rename((dir, "f"), (out, "f"), 0, false).unwrap();
    assert_eq!(t.call(GetAttr { fid: f }).unwrap_err(), Code::Stale);
    t.none.0.insert(f);
    t.call(GetAttr { fid: f }).unwrap();
    assert_eq!(t.call(link(f, top)).unwrap_err(), Code::Stale);
    // The last name inside goes.
    t.call(GetAttr { fid: shared }).unwrap();
    t.w.unlink(top, "shared", false).unwrap();
    assert_eq!(t.call(GetAttr { fid: shared }).unwrap_err(), Code::Stale);
    // A file without a name gets one inside.
    let tmp =
        Tmpfile { parent: dir, mode: 0o644, umask: 0, exclusive: false, now, cred: cred(0), want: Fid(0) };
    let made = t.call(tmp.clone()).unwrap().inode.attr.fid;
    t.call(link(made, dir)).unwrap();
    assert_eq!(t.call(Tmpfile { parent: out, ..tmp }).unwrap_err(), Code::Stale);
}

/// meta-R3. Each call of every conversation, and how it is checked if a session below a root sends it to an MDT.
#[test]
fn r3_each_call_is_checked_in_one_way() {
    const FREE: &[&str] = &[
        "Attach",
        "KeepAlive",
        "Detach",
        "Flush",
        "TargetStat",
        "Listen",
        "CatchUp",
        "Dying",
        "MetaRelease",
        "Leave",
        "LeaveDir",
        "Close",
        "CancelLock",
        "DropOwner",
        "AwaitLocks",
    ];
    const EACH: &[&str] = &["GetAttrs", "Accessed", "Hold", "Reclaim", "Batch"];
    const FIRST: &[&str] = &[
        "Lookup",
        "Create",
        "CreateWith",
        "MakeDir",
        "Symlink",
        "Unlink",
        "RemoveDir",
        "ReadDir",
        "Tmpfile",
        "LeaseDir",
        "Counts",
        "GetAttr",
        "SetAttr",
        "ReadLink",
        "GetXattr",
        "SetXattr",
        "RemoveXattr",
        "ListXattr",
        "Open",
        "OpenRead",
        "Enter",
        "ReadInline",
        "WriteInline",
        "AllocateInline",
        "SeekInline",
        "Grow",
        "Switch",
        "MoveTail",
        "Settle",
        "MetaTruncate",
        "SetStripe",
        "GetStripe",
        "SetFlags",
        "PathOf",
        "PathsOf",
    ];
    // Decoded in full: the tests of this file and of the MDT send them.
    const FULL: &[&str] = &["Rename", "Link", "Lock", "TestLock", "WatchDir"];
    let body = [Fid(77).to_bytes(), vec![0; 64]].concat();
    let mut seen = BTreeSet::new();
    for (call, name) in wire::ALL_CALLS.iter().copied().flatten() {
        // Objects have calls of the same names.
        let name = match *name {
            "Release" | "Truncate" if (0x200..0x300).contains(call) => format!("Meta{name}"),
            name => name.to_owned(),
        };
        let in_list = |list: &[&str]| list.contains(&name.as_str());
        if in_list(FULL) {
            seen.insert(name);
            continue;
        }
        let want = match () {
            () if in_list(FREE) => Check::Free,
            () if in_list(EACH) => Check::Each,
            () if in_list(FIRST) => Check::Files(vec![Named::Use(Fid(77))]),
            () => Check::Refused,
        };
        assert_eq!(named(*call, &body), Ok(want.clone()), "{name} ({call:#06x})");
        if want != Check::Refused {
            seen.insert(name);
        }
    }
    let all = [FREE, EACH, FIRST, FULL].concat();
    assert_eq!(seen.len(), all.len(), "each name in the lists is a call");
    // Calls of the metadata rules that are refused: those of administrators' tools.
    let is_refused =
        |call: &u16| crate::is_mutation(*call).is_some() && named(*call, &body) == Ok(Check::Refused);
    let refused = wire::ALL_CALLS.iter().copied().flatten().filter(|(call, _)| is_refused(call));
    assert_eq!(
        refused.map(|(_, name)| *name).collect::<Vec<_>>(),
        ["Scan", "Migrate", "CutOver", "DropPending", "Repoint"]
    );
    let unlock = |kind| Lock {
        fid: Fid(77),
        space: wire::lock::LockSpace::Posix,
        owner: 1,
        start: 0,
        end: 9,
        kind,
        pid: 1,
        wait: false,
        ticket: 1,
        turn: wire::lock::Turn { number: 1, floor: 1 },
    };
    let check = |kind| named(Lock::CALL, &unlock(kind).to_bytes()).unwrap();
    assert_eq!(check(LockKind::Unlock), Check::Free);
    assert_eq!(check(LockKind::Read), Check::Files(vec![Named::Existing(Fid(77))]));
    let watch = named(WatchDir::CALL, &WatchDir { dir: Fid(77) }.to_bytes()).unwrap();
    assert_eq!(watch, Check::Files(vec![Named::Existing(Fid(77))]));
    assert_eq!(named(Lookup::CALL, &[1, 2]).unwrap_err().code, Code::BadRequest);
}

/// Each call whose body begins with its file, with the file of another and without a body that decodes: refused before it is decoded.
#[test]
fn calls_that_name_a_file_outside_are_refused_as_if_there_were_none() {
    let t = Tree::new();
    for fid in [t.g, t.out, t.out_dir, ROOT] {
        let body = [fid.to_bytes(), vec![0; 64]].concat();
        for (call, name) in wire::ALL_CALLS.iter().copied().flatten() {
            let Ok(Check::Files(_)) = named(*call, &body) else { continue };
            let fault = below(&t.root, &t.none, |ctx| check(ctx, &t.w.txn, *call, &body)).unwrap_err();
            assert_eq!(fault, Fault::from(Code::Stale), "{name} of {fid}");
        }
    }
}

#[test]
fn a_path_of_names_leads_to_a_directory() {
    let t = Tree::new();
    let look = |path: &str| dir_of_path(&t.w.txn, path.split('/').skip(1)).unwrap();
    assert_eq!(look("/in/dir"), Some(t.dir));
    assert_eq!(look("/out"), Some(t.out));
    assert_eq!(look("/in/dir/f"), None, "a file");
    assert_eq!(look("/in/none/dir"), None);
}
