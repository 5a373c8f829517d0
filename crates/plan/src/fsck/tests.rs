use super::*;
use types::{Component, Generation, SessionId, Time};
use wire::codec::Bytes;
use wire::meta::Inode;

fn attr(fid: u64, kind: Kind, nlink: u32, size: u64) -> Attr {
    let t = Time::default();
    Attr {
        fid: Fid(fid),
        kind,
        mode: 0o644,
        uid: 0,
        gid: 0,
        nlink,
        rdev: 0,
        size,
        blocks: 0,
        atime: t,
        mtime: t,
        ctime: t,
        btime: t,
    }
}
fn layout(generation: u32, written: u64) -> Layout {
    let comp = Component {
        end: u64::MAX,
        stripe_size: 1 << 20,
        mirrors: vec![MirrorId(5), MirrorId(6)],
        written: vec![written],
    };
    Layout { generation: Generation(generation), components: vec![comp] }
}
fn inode(attr: Attr, layout: Option<Layout>, state: FileState) -> ScanRecord {
    ScanRecord::Inode {
        inode: Inode { attr, layout, state, flags: 0 },
        inline_bytes: 0,
        parents: vec![],
        pending: None,
    }
}
fn entry(parent: u64, name: &str, fid: u64, kind: Kind) -> ScanRecord {
    ScanRecord::Entry { parent: Fid(parent), name: Bytes(name.into()), fid: Fid(fid), kind }
}
fn stat(fid: u64, generation: u32, stripe: u16, len: u64) -> ObjectStat {
    let object =
        ObjectId { fid: Fid(fid), generation: Generation(generation), component: 0, stripe, snapshot: 0 };
    ObjectStat { object, exists: true, len, used: len, reserved_end: 0, mtime: Time::default() }
}

/// `/d/f`: striped, 10 bytes in stripe 0; settled.
fn healthy() -> Vec<ScanRecord> {
    vec![
        inode(attr(1, Kind::Dir, 3, 0), None, FileState::Settled),
        entry(1, "d", 20, Kind::Dir),
        inode(attr(20, Kind::Dir, 2, 0), None, FileState::Settled),
        entry(20, "f", 21, Kind::File),
        inode(attr(21, Kind::File, 1, 10), Some(layout(1, 1)), FileState::Settled),
    ]
}
fn round(records: Vec<ScanRecord>, objects: Vec<(u32, ObjectStat)>) -> Round {
    let mut r = Round::new();
    records.into_iter().for_each(|x| r.add_record(x));
    objects.into_iter().for_each(|(m, s)| r.add_object(MirrorId(m), s));
    r
}
fn found(extra: Vec<ScanRecord>, objects: Vec<(u32, ObjectStat)>) -> Vec<(Problem, String)> {
    let records = healthy().into_iter().chain(extra).collect();
    round(records, objects).findings().into_iter().map(|f| (f.kind, f.path)).collect()
}

#[test]
fn a_whole_system_has_no_findings() {
    let r = round(healthy(), vec![(5, stat(21, 1, 0, 10))]);
    assert_eq!(r.findings(), []);
    let c = r.counts();
    assert_eq!((c.entries, c.inodes, c.striped_files, c.objects, c.object_bytes), (2, 3, 1, 1, 10));
}

#[test]
fn each_problem_is_told_with_its_path() {
    let ok = || (5, stat(21, 1, 0, 10));
    let pending = ScanRecord::Inode {
        inode: Inode { attr: attr(30, Kind::File, 1, 0), layout: None, state: FileState::Settled, flags: 0 },
        inline_bytes: 0,
        parents: vec![],
        pending: Some(layout(7, 0)),
    };
    let dead = ScanRecord::Dead { fid: Fid(40), layout: layout(2, 1) };
    let orphan = ScanRecord::Orphan { fid: Fid(41), session: SessionId(1) };
    let file = |fid, nlink| inode(attr(fid, Kind::File, nlink, 0), None, FileState::Settled);
    let f = || "/d/f".to_string();
    let none = String::new;
    type Case = (&'static str, Vec<ScanRecord>, Vec<(u32, ObjectStat)>, Vec<(Problem, String)>);
    let table: Vec<Case> = vec![
        ("missing object", vec![], vec![], vec![(Problem::MissingObject, f())]),
        ("wrong mirror", vec![], vec![(6, stat(21, 1, 0, 10))], vec![(Problem::MisplacedObject, f())]),
        ("old generation", vec![], vec![ok(), (5, stat(21, 0, 0, 3))], vec![(Problem::OrphanObject, none())]),
        (
            "stripe past the count",
            vec![],
            vec![ok(), (5, stat(21, 1, 2, 3))],
            vec![(Problem::OrphanObject, none())],
        ),
        (
            "pending layout",
            vec![pending, entry(20, "g", 30, Kind::File)],
            vec![ok(), (5, stat(30, 7, 0, 3))],
            vec![],
        ),
        ("being purged", vec![dead], vec![ok(), (5, stat(40, 2, 1, 3))], vec![]),
        (
            "dangling",
            vec![entry(20, "x", 50, Kind::File)],
            vec![ok()],
            vec![(Problem::DanglingEntry, "/d/x".into())],
        ),
        (
            "dangling below nothing",
            vec![entry(99, "x", 50, Kind::File)],
            vec![ok()],
            vec![(Problem::DanglingEntry, "/<0x63>/x".into())],
        ),
        ("open orphan", vec![file(41, 0), orphan], vec![ok()], vec![]),
        ("no name", vec![file(42, 1)], vec![ok()], vec![(Problem::UnreachableInode, none())]),
        (
            "links",
            vec![entry(1, "h", 43, Kind::File), file(43, 2)],
            vec![ok()],
            vec![(Problem::LinkCount, "/h".into())],
        ),
        (
            "two copies of an object, the right one listed first",
            vec![],
            vec![ok(), (6, stat(21, 1, 0, 10))],
            vec![(Problem::MisplacedObject, f())],
        ),
        (
            "two copies of an object, the right one listed last",
            vec![],
            vec![(4, stat(21, 1, 0, 10)), ok()],
            vec![(Problem::MisplacedObject, f())],
        ),
        (
            "two names of a directory",
            vec![inode(attr(1, Kind::Dir, 4, 0), None, FileState::Settled), entry(1, "e", 20, Kind::Dir)],
            vec![ok()],
            vec![(Problem::TwoNames, "/d".into())],
        ),
        (
            "a name of the root",
            vec![inode(attr(20, Kind::Dir, 3, 0), None, FileState::Settled), entry(20, "r", 1, Kind::Dir)],
            vec![ok()],
            vec![(Problem::TwoNames, "/d/r".into())],
        ),
        (
            "a file that its name calls a directory",
            vec![entry(1, "k", 44, Kind::Dir), file(44, 1)],
            vec![ok()],
            vec![(Problem::WrongKind, "/k".into())],
        ),
        ("longer objects", vec![], vec![(5, stat(21, 1, 0, 11))], vec![(Problem::SizeMismatch, f())]),
    ];
    for (name, extra, objects, want) in table {
        assert_eq!(found(extra, objects), want, "{name}");
    }
}

#[test]
fn sizes_of_files_being_written_are_not_judged() {
    let writing = inode(attr(21, Kind::File, 1, 0), Some(layout(1, 0)), FileState::Writing(SessionId(3)));
    assert_eq!(found(vec![writing], vec![(5, stat(21, 1, 0, 999))]), []);
}

/// K1, over rounds: numbers and paths may change between them, the thing and what is wrong with it may not.
#[test]
fn only_what_stays_is_reported() {
    let links = |fid, path: &str, what: &str| {
        finding(Problem::LinkCount, About::Inode(Fid(fid)), what.into(), path.into(), "")
    };
    let first = [links(20, "/a", "3 recorded, 2 counted"), links(21, "/b", "")];
    let other = finding(Problem::SizeMismatch, About::Inode(Fid(21)), String::new(), "/b".into(), "");
    let again = links(20, "/moved", "5 recorded, 4 counted");
    assert_eq!(confirmed(&first, vec![again.clone(), other]), [again]);
}

/// K1, over a look at one finding: it is told anew, or not at all.
#[test]
fn what_does_not_show_when_looked_at_alone_is_dropped() {
    let file = |nlink| inode(attr(43, Kind::File, nlink, 0), None, FileState::Settled);
    let whole = healthy().into_iter().chain([entry(20, "h", 43, Kind::File), file(3)]).collect();
    let whole = round(whole, vec![(5, stat(21, 1, 0, 10))]);
    let [found] = &whole.findings()[..] else { panic!("one finding") };
    assert_eq!(whole.parents_of(Fid(43)), BTreeSet::from([Fid(20)]));
    let look = |nlink| round(vec![entry(20, "h", 43, Kind::File), file(nlink)], vec![]);
    assert_eq!(still_shows(found, &look(1)), None);
    let told = still_shows(found, &look(2)).expect("2 is wrong too");
    assert_eq!((told.what.as_str(), told.path.as_str()), ("fid 0x2b: 2 links recorded, 1 counted", "/d/h"));
}

#[test]
fn a_loop_in_the_tree_ends() {
    let r = round(vec![entry(60, "a", 61, Kind::Dir), entry(61, "b", 60, Kind::Dir)], vec![]);
    assert_eq!(r.findings().len(), 2);
}
