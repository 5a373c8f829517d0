use types::*;
use wire::meta::{FileState, OpenRead, OpenReadReply, OpenReply, Settle};
use wire::object::RIGHT_READ;
use wire::shared::{Enter, LeaseKind};

use crate::Space;
use crate::inode::{load_inode, store_inode};
use crate::open::open_read;
use crate::sharing::Sharing;
use crate::testing::*;

/// An MDT's view of its sessions.
struct Others {
    is_shared: bool,
    lease: Option<u32>,
}

const NEWEST: u32 = 77;
const ALIVE: SessionId = SessionId(8);

impl Sharing for Others {
    fn leased_elsewhere(&self, _: Fid) -> bool {
        false
    }
    fn keeps_removed(&self) -> bool {
        false
    }
    fn is_shared(&self) -> bool {
        self.is_shared
    }
    fn is_alive(&self, session: SessionId) -> bool {
        session == ALIVE
    }
    fn is_open_here(&self, _: Fid) -> bool {
        false
    }
    fn opened_elsewhere(&self, _: Fid) -> Option<SessionId> {
        None
    }
    fn written_elsewhere(&self, _: Fid) -> bool {
        false
    }
    fn holds_alone(&self, _: Fid, _: u64) -> bool {
        false
    }
    fn era(&self) -> u64 {
        5
    }
    fn lease(&self) -> Option<u32> {
        self.lease
    }
    fn set_lease(&self, _: u32) {
        panic!("an open for reading draws no lease")
    }
    fn newest_lease(&self) -> u32 {
        NEWEST
    }
}

fn look(w: &World, fid: Fid, others: &Others) -> Option<OpenReply> {
    let req = OpenRead { fid, read: true, held: None, cred: Cred::root(), want: 0 };
    let OpenReadReply { open, .. } = World::with_ctx(false, Space::AMPLE, |ctx| {
        open_read(&crate::Ctx { sharing: Some(others), judge: None, ..*ctx }, &w.txn, req, &mut Buf::new())
            .unwrap()
    });
    open
}

#[test]
fn an_open_for_reading_has_the_lease_that_no_object_is_above() {
    let mut w = World::new();
    let f = w.file(ROOT, "f");
    let mut inode = load_inode(&w.txn, f).unwrap();
    let part = Component { end: u64::MAX, stripe_size: 65536, mirrors: vec![MirrorId(1)], written: vec![1] };
    inode.layout = Some(Layout { generation: Generation(3), components: vec![part] });
    let alone = Others { is_shared: false, lease: Some(5) };
    let among = |lease| Others { is_shared: true, lease };
    let (mine, eras) = (SessionId(7), |era| FileState::Shared { era, proven: 0 });
    let cut = FileState::Truncating { session: ALIVE, size: 0 };
    //             state                            asked among        lease
    let table = [
        (FileState::Settled, &alone, Some(NEWEST)),
        (FileState::Writing(mine), &alone, Some(NEWEST)),
        (FileState::Writing(ALIVE), &alone, None),
        (FileState::Settled, &among(Some(5)), Some(5)),
        (FileState::Settled, &among(None), None),
        (FileState::Writing(ALIVE), &among(Some(5)), Some(5)),
        (FileState::Writing(SessionId(9)), &among(Some(5)), None),
        (eras(5), &among(Some(5)), Some(5)),
        (eras(4), &among(Some(5)), None),
        (cut, &among(Some(5)), None),
    ];
    for (state, others, want) in table {
        inode.state = state;
        store_inode(&mut w.txn, &inode);
        let before = w.txn.records.clone();
        let open = look(&w, f, others);
        let cap = open.map(|open| open.cap.expect("a file with objects has one"));
        assert!(cap.iter().all(|cap| (cap.rights, cap.generation) == (RIGHT_READ, Generation(3))));
        assert_eq!(cap.map(|cap| cap.lease_counter), want, "{state:?}, shared: {}", others.is_shared);
        assert!(w.txn.records == before);
    }
}

#[test]
fn an_open_for_reading_is_allowed_or_refused_as_any_open() {
    let mut w = World::new();
    let f = w.file(ROOT, "f");
    let mut inode = load_inode(&w.txn, f).unwrap();
    (inode.attr.uid, inode.attr.mode) = (ALICE, 0o600);
    store_inode(&mut w.txn, &inode);
    let ask =
        |w: &mut World, fid, read, uid| w.call(OpenRead { fid, read, held: None, cred: cred(uid), want: 0 });
    assert!(ask(&mut w, f, true, ALICE).is_ok_and(|r| r.open.is_some_and(|o| o.cap.is_none())));
    assert_eq!(ask(&mut w, f, true, BOB), Err(Code::Access));
    assert_eq!(ask(&mut w, Fid(999), true, ALICE), Err(Code::Stale));
    // meta-J1, meta-J2: a judged session acts as its own user, and proves a renewal by the capability of an open.
    w.judged = Some(BOB);
    assert_eq!(ask(&mut w, f, true, ALICE), Err(Code::Access));
    assert_eq!(ask(&mut w, f, false, ALICE), Err(Code::Access));
    w.judged = Some(ALICE);
    let open = ask(&mut w, f, true, BOB).unwrap().open.unwrap();
    let again = OpenRead { fid: f, read: false, held: open.cap, cred: cred(BOB), want: 0 };
    assert!(w.call(again).is_ok());
}

/// meta-J2: `stat` of a file that another session writes takes a shared lease.
#[test]
fn a_shared_lease_shows_attributes_to_users_who_may_not_read() {
    let mut w = World::new();
    let f = w.file(ROOT, "f");
    w.edit(f, |inode| inode.attr.size = 5);
    w.judged = Some(BOB);
    let enter = |w: &mut World, kind, write| {
        w.call(Enter { fid: f, token: 1, floor: 1, kind, write, now: Time::default(), held: None })
    };
    let open = enter(&mut w, LeaseKind::Shared, false).unwrap().open.unwrap();
    assert_eq!((open.inode.attr.size, open.cap), (5, None));
    assert_eq!(enter(&mut w, LeaseKind::Exclusive, false), Err(Code::Access));
    assert_eq!(enter(&mut w, LeaseKind::Many, false), Err(Code::Access));
    assert_eq!(enter(&mut w, LeaseKind::Shared, true), Err(Code::Access));
}

/// Unwritten ranges read as zeros. No content comes that is longer than wanted, is not inline, or is not read.
#[test]
fn content_comes_along_if_it_is_wanted_and_fits() {
    let mut w = World::new();
    let f = w.file(ROOT, "f");
    w.edit(f, |inode| inode.attr.size = 5000);
    let ask = |w: &World, read, want| {
        let mut out = Buf::new();
        let req = OpenRead { fid: f, read, held: None, cred: Cred::root(), want };
        let reply =
            World::with_ctx(false, Space::AMPLE, |ctx| open_read(ctx, &w.txn, req, &mut out)).unwrap();
        (reply.crcs, out.len())
    };
    let zeros = types::crc::fragment_crcs(0, &[0; 5000]);
    assert_eq!(ask(&w, true, 5000), (Some(zeros), 5000));
    assert_eq!(ask(&w, true, 4999), (None, 0));
    assert_eq!(ask(&w, false, 9999), (None, 0));
    w.edit(f, |inode| inode.attr.size = 0);
    assert_eq!(ask(&w, true, 1), (Some(vec![]), 0));
    let part = Component { end: u64::MAX, stripe_size: 65536, mirrors: vec![MirrorId(1)], written: vec![1] };
    w.edit(f, |inode| inode.layout = Some(Layout { generation: Generation(3), components: vec![part] }));
    assert_eq!(ask(&w, true, 9999), (None, 0));
}

/// meta-H1, decision 0055: a writer that lives does not know what a dead one wrote beside it. Each tells the blocks that it added.
#[test]
fn a_settle_by_one_of_several_writers_adds_to_the_record_and_ends_no_recovery() {
    let mut w = World::new();
    let f = w.file(ROOT, "f");
    let others = Others { is_shared: true, lease: Some(5) };
    let part = Component { end: u64::MAX, stripe_size: 65536, mirrors: vec![MirrorId(1)], written: vec![1] };
    let layout = Layout { generation: Generation(3), components: vec![part] };
    let mut settle = |era, size, is_part, hint| {
        w.edit(f, |inode| {
            inode.layout = Some(layout.clone());
            (inode.attr.size, inode.attr.blocks) = (8192, 16);
            inode.state = FileState::Shared { era, proven: 4096 };
        });
        let (generation, blocks, mtime, written) = (Generation(3), 8, Time::new(9, 0), vec![]);
        let req = Settle {
            fid: f,
            generation,
            size,
            blocks,
            mtime,
            written,
            done: true,
            hint,
            is_part,
            held: None,
        };
        World::with_ctx(false, Space::AMPLE, |ctx| {
            let ctx = crate::Ctx { sharing: Some(&others), judge: None, ..*ctx };
            crate::settle::settle(&ctx, &mut w.txn, req).unwrap();
        });
        let inode = load_inode(&w.txn, f).unwrap();
        (inode.attr.size, inode.attr.blocks, inode.state)
    };
    let shared = |era, proven| FileState::Shared { era, proven };
    //  era, size, is_part, hint        size   blocks  state
    let table = [
        ((5, 9000, true, true), (9000, 24, shared(5, 4096))),
        ((5, 5000, true, true), (8192, 24, shared(5, 4096))),
        ((5, 6000, true, false), (8192, 24, shared(5, 6000))),
        ((5, 9000, false, true), (9000, 8, shared(5, 4096))),
        ((5, 8192, false, false), (8192, 8, FileState::Settled)),
        // Of an earlier era: the objects are asked still.
        ((4, 9000, true, true), (9000, 24, shared(4, 4096))),
        ((4, 6000, true, false), (8192, 24, shared(4, 6000))),
        ((4, 6000, false, false), (6000, 8, FileState::Settled)),
    ];
    for ((era, size, is_part, hint), want) in table {
        assert_eq!(settle(era, size, is_part, hint), want, "era {era}, {size}, {is_part}, {hint}");
    }
}
