use super::*;
use types::{Attr, Component, Kind, SessionId, Time};
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
fn stat(fid: u64, generation: u32, stripe: u16, len: u64) -> ObjectStat {
    let object =
        ObjectId { fid: Fid(fid), generation: Generation(generation), component: 0, stripe, snapshot: 0 };
    ObjectStat { object, exists: true, len, used: len, reserved_end: 0, mtime: Time::default() }
}

/// A settled file of 10 bytes in stripe 0.
fn healthy() -> ScanRecord {
    inode(attr(21, Kind::File, 1, 10), Some(layout(1, 1)), FileState::Settled)
}
fn file(record: Option<ScanRecord>, objects: &[(u32, ObjectStat)]) -> File {
    let fid = objects.first().map_or(Fid(21), |(_, stat)| stat.object.fid);
    let mut file = File::new(fid);
    record.into_iter().for_each(|record| file.add_record(record));
    objects.iter().for_each(|(m, s)| file.add_object(MirrorId(*m), s.clone()));
    file
}
fn found(record: ScanRecord, objects: &[(u32, ObjectStat)]) -> Vec<Problem> {
    file(Some(record), objects).findings().into_iter().map(|f| f.kind).collect()
}

#[test]
fn a_whole_file_has_no_findings() {
    let mut round = Round::default();
    round.add_file(&file(Some(healthy()), &[(5, stat(21, 1, 0, 10))]));
    assert_eq!((round.objects, round.object_bytes), (1, 10));
    assert_eq!(round.finish(), []);
}

#[test]
fn each_problem_is_told() {
    let ok = || (5, stat(21, 1, 0, 10));
    let pending = ScanRecord::Inode {
        inode: Inode { attr: attr(30, Kind::File, 1, 0), layout: None, state: FileState::Settled, flags: 0 },
        inline_bytes: 0,
        parents: vec![],
        pending: Some(layout(7, 0)),
    };
    type Case = (&'static str, Vec<(u32, ObjectStat)>, Vec<Problem>);
    let table: Vec<Case> = vec![
        ("missing object", vec![], vec![Problem::MissingObject]),
        ("wrong mirror", vec![(6, stat(21, 1, 0, 10))], vec![Problem::MisplacedObject]),
        ("old generation", vec![ok(), (5, stat(21, 0, 0, 3))], vec![Problem::OrphanObject]),
        ("stripe past the count", vec![ok(), (5, stat(21, 1, 2, 3))], vec![Problem::OrphanObject]),
        (
            "two copies of an object, the right one listed first",
            vec![ok(), (6, stat(21, 1, 0, 10))],
            vec![Problem::MisplacedObject],
        ),
        (
            "two copies of an object, the right one listed last",
            vec![(4, stat(21, 1, 0, 10)), ok()],
            vec![Problem::MisplacedObject],
        ),
        ("longer objects", vec![(5, stat(21, 1, 0, 11))], vec![Problem::SizeMismatch]),
    ];
    for (name, objects, want) in table {
        assert_eq!(found(healthy(), &objects), want, "{name}");
    }
    assert_eq!(found(pending, &[(5, stat(30, 7, 0, 3))]), [], "pending layout");
    let nobodys = file(None, &[(5, stat(40, 2, 1, 3))]);
    assert_eq!(nobodys.findings()[0].kind, Problem::OrphanObject);
    let mut round = Round::default();
    round.add_file(&nobodys);
    round.add_dead(Fid(40), Generation(2));
    assert_eq!(round.finish(), [], "being purged");
}

#[test]
fn sizes_of_files_being_written_are_not_judged() {
    let writing = inode(attr(21, Kind::File, 1, 0), Some(layout(1, 0)), FileState::Writing(SessionId(3)));
    assert_eq!(found(writing, &[(5, stat(21, 1, 0, 999))]), []);
}

/// plan-K1, over rounds: the numbers of a finding may change between them, its subject and kind may not.
#[test]
fn only_what_stays_is_reported() {
    let size = |fid, what: &str| finding(Problem::SizeMismatch, About::Inode(Fid(fid)), what.into(), "");
    let first = [size(20, "3 settled"), size(21, "")];
    let other = finding(Problem::SlowPurge, About::Inode(Fid(21)), String::new(), "");
    let again = size(20, "5 settled");
    assert_eq!(confirmed(&first, vec![again.clone(), other]), [again]);
}

/// plan-K1, for a look at one finding: it is reported as it shows now, or not at all.
#[test]
fn what_does_not_show_when_looked_at_alone_is_dropped() {
    let look = |len| file(Some(healthy()), &[(5, stat(21, 1, 0, len))]);
    let whole = look(12).findings();
    assert_eq!(still_shows(&whole[0], &look(10)), None);
    let told = still_shows(&whole[0], &look(15)).expect("15 is wrong too");
    assert_eq!(told.what, "fid 0x15: 10 bytes settled, objects prove 15");
}
