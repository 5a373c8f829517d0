//! Fuzzes the decoders of the header and every body with random and mutated bytes.
//!
//! It never panics, it allocates a small multiple of the bytes at hand, and what it accepts it writes back to the same bytes
//! (so no two byte strings mean the same value).

use std::collections::BTreeSet;
use std::fmt::Debug;

use hammer::{Dice, Hammer, peak_of};
use types::*;
use wire::codec::{Bytes, Wire};
use wire::frame::BODY_MAX;
use wire::{
    HEADER_LEN, Header, Reader, Request, accessed, batch, changelog, check, fabric, jobs, lock, map, mdt,
    meta, mgmt, notice, object, ost, pair, params, purge, router, session, shared,
};

/// The value that the bytes begin with, and its length.
fn decode<T: Wire>(bytes: &[u8]) -> Option<(T, usize)> {
    let mut reader = Reader::new(bytes);
    let value = T::get(&mut reader).ok()?;
    Some((value, bytes.len() - reader.remaining()))
}

/// Random strings, and mutations of those that decode and of seeds.
fn hammer<T: Wire + PartialEq + Debug>(name: &str) {
    let check = |bytes: &[u8], (value, len): (T, usize)| {
        let again = value.to_bytes();
        assert_eq!(again, &bytes[..len], "{name}: one value, two byte forms");
        assert_eq!(T::from_bytes(&again).as_ref(), Ok(&value), "{name}");
        len
    };
    let outcome = Hammer::new(name).seeds(seeds(name)).run(decode::<T>, check);
    assert!(outcome.accepted > 0, "no input was ever accepted for {name}: add a seed");
}

/// Every body and value of the wire, with seeds for those that chance does not find.
macro_rules! all_types {
    ($with:ident) => {
        $with! {
            requests {
                session::Attach, session::KeepAlive, session::Detach, session::Flush, session::TargetStat, jobs::TellJobs, jobs::JobStats,
                meta::Lookup, meta::GetAttr, meta::SetAttr, meta::Create, meta::MakeDir, meta::Symlink, meta::Link,
                meta::Unlink, meta::RemoveDir, meta::Rename, meta::ReadLink, meta::ReadDir, meta::GetXattr,
                meta::SetXattr, meta::RemoveXattr, meta::ListXattr, meta::Open, meta::Release, meta::ReadInline,
                meta::WriteInline, meta::Grow, meta::Switch, meta::MoveTail, meta::Migrate, meta::CutOver, meta::DropPending, meta::Repoint, meta::Settle, meta::Truncate, meta::SetStripe,
                meta::GetAttrs, batch::Batch, meta::CreateWith, meta::LeaseDir, meta::LeaveDir, meta::WatchDir,
                meta::GetStripe, meta::PathOf, meta::PathsOf, meta::Counts, meta::Scan, meta::SetFlags, meta::Tmpfile, meta::OpenRead, meta::AllocateInline, meta::SeekInline,
                accessed::Accessed, purge::Dying, check::Check, check::Repair, check::CopyOut,
                object::Write, object::Read, object::Truncate, object::Destroy, object::Glimpse, object::List,
                shared::Enter, shared::Leave, shared::Hold, shared::Close, shared::CatchUp,
                object::Verify, object::ReportMissing, object::DamageList, object::DamageClear,
                object::LockRange, object::UnlockRange, object::Grant, object::Reserve, object::Release, object::Punch, object::Seek, object::SeekReserved, object::ScrubControl,
                ost::OstStat, ost::OstSpace, mdt::MdtStat, mdt::MdtLeases, mdt::EvictSession, mdt::ScrubRecords,
                notice::Listen, notice::LookAround, notice::ModeChanged, notice::LocksFree, notice::Evicted, notice::Forget, notice::GiveBack, notice::WatchMap,
                notice::NewMap, fabric::NetStat, fabric::NetTrace, mgmt::Register, mgmt::GetMap, mgmt::MgsStat, mgmt::Heartbeat, mgmt::ChangeRoutes, mgmt::ChangeNodemaps, mgmt::PublishCrl, router::RouterStat, router::RouterDrain,
                mgmt::PlanRemoval, mgmt::Remove, mgmt::CreateFs, mgmt::SetDraining, mgmt::ChangeParams,
                lock::Lock, lock::TestLock, lock::CancelLock, lock::Reclaim, lock::DropOwner, lock::AwaitLocks,
                changelog::RegisterConsumer, changelog::DeregisterConsumer, changelog::ReadChanges, changelog::AckChanges,
                changelog::ListConsumers, pair::Letters, pair::FlushLog, pair::Stage, pair::CopyAll, pair::FetchPages, pair::CompareRanges, pair::VerifyMirror, pair::CompareRecords, pair::VerifyRecords, pair::ListLost, pair::Resync, pair::MemberStat, pair::HandOver, pair::AskMembers, params::ParamList, params::ParamSet,
            }
            values {
                notice::Taken, notice::Forgotten, notice::Wanted, mdt::ClientLeases, mdt::FileLease, mdt::LeaseWait, fabric::PeerStat, fabric::LinkStat, fabric::Traced, wire::ReplyHead, wire::Empty, Attr, Cred, Component, Layout, ObjectId, Time, Uuid, Kind, Bytes, String,
                object::Capability, object::ObjectStat, object::Damage, object::Mac,
                object::SeekFrom, object::Sought, object::ScrubPass,
                ost::OstWrites, ost::OstSizes, ost::OstUser, ost::OstSmall, ost::OstIndex, ost::OstAmount, ost::OstGrant, ost::OstObjects, ost::OstClass,
                meta::Inode, meta::DirEntry, meta::WrittenBits, meta::StripeSpec, meta::StripeComponent, meta::FileState,
                meta::ScanRecord, meta::UnlinkReply, meta::OpenReply, shared::OpenFile, shared::HeldSection, shared::CaughtUp,
                lock::HeldLock, lock::WaitingLock, lock::FoundLock, lock::Turn,
                batch::Op, batch::OpReply, check::Wrong, check::Looked, check::Finding, check::RawRecord, check::BackupHead, accessed::ReadTime, changelog::Change, changelog::Consumer, session::Claims, jobs::JobName, jobs::JobRow, jobs::JobCounts, map::ClusterMap, map::FileSystem, map::Node, map::Target, map::Mirror, map::IdsUsed, map::Route, map::Nodemap, map::IdRange, map::Squash, router::RouterRow, router::RouterSample, router::RouterFlow,
                mgmt::RemovalKind, pair::NoteOf, pair::AskingOf, pair::CompareStep, pair::MembersOf, pair::LinesOf, pair::Letter, pair::At, pair::TokenOf,
            }
        }
    };
}

fn attr() -> Attr {
    let t = Time::new(1, 2);
    Attr {
        fid: Fid(16),
        kind: Kind::File,
        mode: 0o644,
        uid: 1,
        gid: 2,
        nlink: 1,
        rdev: 0,
        size: 3,
        blocks: 8,
        atime: t,
        mtime: t,
        ctime: t,
        btime: t,
    }
}

fn layout() -> Layout {
    let part = |end, stripes: u32| Component {
        end,
        stripe_size: 65_536,
        mirrors: (1..=stripes).map(MirrorId).collect(),
        written: vec![3],
    };
    Layout { generation: Generation(2), components: vec![part(1 << 20, 1), part(u64::MAX, 4)] }
}

fn cluster_map() -> map::ClusterMap {
    map::ClusterMap { version: 7, draining: vec![MirrorId(2), MirrorId(4)], ..map::ClusterMap::empty() }
}

fn capability() -> object::Capability {
    object::Capability {
        fid: Fid(16),
        generation: Generation(2),
        rights: 3,
        lease_epoch: 1,
        lease_counter: 1,
        session: SessionId(1),
        expiry_sec: 99,
        mac: object::Mac([7; 16]),
    }
}

fn inode() -> meta::Inode {
    meta::Inode {
        attr: attr(),
        layout: Some(layout()),
        state: meta::FileState::Writing(SessionId(4)),
        flags: 0x10,
    }
}

fn open_reply() -> meta::OpenReply {
    meta::OpenReply { inode: inode(), cap: Some(capability()) }
}

/// Whole values of the types that hold a layout or an attribute: random bytes seldom are one.
fn notes() -> Vec<pair::NoteOf> {
    use pair::NoteOf::*;
    let at = |seq| pair::At { line: Epoch(7), seq: Seq(seq) };
    let history = pair::LinesOf { lines: vec![at(1), at(12)], end: Seq(15) };
    let token = pair::TokenOf { life: Incarnation(2), number: 5, sent_ms: 90_000 };
    vec![
        Hello { history: history.clone(), flushed: Seq(14), is_whole: true, is_filling: false },
        Start { after: at(15) },
        Fill { history },
        Entry { before: at(15), at: at(17), first: Seq(16), content: b"record"[..].into() },
        Ack { end: Seq(17), flushed: Seq(14), is_whole: true, is_filling: false },
        Join { up_to: Seq(17) },
        Ask(token.clone()),
        Promise(token.clone()),
        Return(token),
        Leaving,
    ]
}

fn letter(note: pair::NoteOf) -> pair::Letter {
    let map = pair::MembersOf { epoch: Epoch(7), primary: 1, states: vec![2, 0] };
    pair::Letter { map, from: Incarnation(2), to: Incarnation(3), note }
}

fn member_stat() -> pair::MemberStatReply {
    pair::MemberStatReply {
        role: "primary".into(),
        life: Incarnation(2),
        epoch: Epoch(7),
        end: pair::At { line: Epoch(7), seq: Seq(17) },
        flushed: Seq(16),
        acked: Some(Seq(17)),
        peer_flushed: Seq(15),
        is_whole: true,
        is_filling: false,
        is_asking: false,
        mgs_said: "said".into(),
        waits: "waits".into(),
        next: "next".into(),
        done: 3,
        of: 9,
        left_sec: 20,
    }
}

fn steps() -> Vec<pair::CompareStep> {
    use pair::CompareStep::*;
    let key = |n: u8| Bytes(vec![n, 7]);
    vec![
        Begin { seq: Seq(17) },
        Hash { run: 5, from: key(1), until: key(2) },
        Keys { run: 5, from: key(1), until: key(2) },
        End { run: 5 },
    ]
}

fn asking() -> pair::AskingOf {
    let end = pair::At { line: Epoch(7), seq: Seq(17) };
    pair::AskingOf::Alone { epoch: Epoch(7), is_whole: true, end, is_planned: false }
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let records = || {
        vec![
            meta::ScanRecord::Entry { parent: Fid(1), name: b"n"[..].into(), fid: Fid(16), kind: Kind::File },
            meta::ScanRecord::Inode {
                inode: inode(),
                inline_bytes: 0,
                parents: vec![Fid(1)],
                pending: Some(layout()),
            },
            meta::ScanRecord::Orphan { fid: Fid(16), session: SessionId(1) },
            meta::ScanRecord::Dead { fid: Fid(16), layout: layout() },
        ]
    };
    let entry = || meta::DirEntry {
        name: b"n"[..].into(),
        fid: Fid(16),
        kind: Kind::File,
        cookie: 256,
        inode: Some(inode()),
    };
    match name {
        "Attr" => vec![attr().to_bytes()],
        "pair::NoteOf" => notes().iter().map(Wire::to_bytes).collect(),
        "pair::Letter" => vec![letter(pair::NoteOf::Leaving).to_bytes()],
        "pair::Letters" => vec![
            pair::Letters {
                mirror: MirrorId(3),
                from: TargetId(5),
                letters: notes().into_iter().map(letter).collect(),
            }
            .to_bytes(),
        ],
        "pair::CompareStep" => steps().iter().map(Wire::to_bytes).collect(),
        "pair::CompareRecords" => {
            let of = |step| pair::CompareRecords { mirror: MirrorId(3), epoch: Epoch(7), step };
            steps().into_iter().map(|step| of(step).to_bytes()).collect()
        }
        "pair::AskingOf" => vec![asking().to_bytes(), pair::AskingOf::Fetch { epoch: Epoch(7) }.to_bytes()],
        "reply to pair::MemberStat" => vec![member_stat().to_bytes()],
        "pair::AskMembers" => {
            vec![pair::AskMembers { mirror: MirrorId(3), member: TargetId(9), asking: asking() }.to_bytes()]
        }
        "Layout" => vec![layout().to_bytes()],
        "Component" => layout().components.iter().map(Wire::to_bytes).collect(),
        "meta::Inode" => vec![inode().to_bytes()],
        "meta::OpenReply" => vec![open_reply().to_bytes()],
        "meta::DirEntry" => vec![entry().to_bytes()],
        "meta::ScanRecord" => records().iter().map(Wire::to_bytes).collect(),
        "reply to mgmt::Register" => vec![
            mgmt::RegisterReply {
                target: TargetId(3),
                index: 1,
                mirror: MirrorId(2),
                epoch: Epoch(5),
                node: NodeId(4),
                map: cluster_map(),
            }
            .to_bytes(),
        ],
        "map::ClusterMap" => vec![cluster_map().to_bytes()],
        "reply to mgmt::GetMap" => vec![mgmt::GetMapReply { map: Some(cluster_map()) }.to_bytes()],
        "reply to meta::Lookup" | "reply to meta::GetAttr" | "reply to meta::SetAttr" => {
            vec![inode().to_bytes()]
        }
        "reply to meta::MakeDir" | "reply to meta::Symlink" | "reply to meta::Link" => {
            vec![inode().to_bytes()]
        }
        "reply to meta::Switch"
        | "reply to meta::MoveTail"
        | "reply to meta::CutOver"
        | "reply to meta::Repoint"
        | "reply to meta::SetFlags" => {
            vec![inode().to_bytes()]
        }
        "reply to meta::OpenRead" => {
            vec![meta::OpenReadReply { open: Some(open_reply()), crcs: Some(vec![7]) }.to_bytes()]
        }
        "reply to meta::GetAttrs" => {
            vec![meta::GetAttrsReply { inodes: vec![Some(inode()), None, Some(inode())] }.to_bytes()]
        }
        "batch::Batch" => {
            let op = |call| batch::Op { call, slot: 3, sequence: 4, bulk_len: 0, body: b"body"[..].into() };
            vec![batch::Batch { ops: vec![op(0x0217), op(0x0202)] }.to_bytes()]
        }
        "reply to batch::Batch" => {
            let answer = batch::OpReply { bulk_len: 0, body: b"reply"[..].into() };
            vec![batch::BatchReply { answers: vec![answer.clone(), answer] }.to_bytes()]
        }
        "reply to meta::Open" | "reply to meta::Tmpfile" | "reply to meta::CreateWith" => {
            vec![open_reply().to_bytes()]
        }
        "reply to meta::Create" => vec![meta::CreateReply { made: true, open: open_reply() }.to_bytes()],
        "reply to meta::WriteInline" => vec![meta::WriteInlineReply { attr: attr() }.to_bytes()],
        "reply to meta::AllocateInline" => vec![meta::AllocateInlineReply { attr: attr() }.to_bytes()],
        "reply to meta::Settle" => vec![meta::SettleReply { attr: attr() }.to_bytes()],
        "reply to meta::Grow" => {
            let reply =
                meta::GrowReply { inode: inode(), layout: layout(), cap: capability(), switched: true };
            vec![reply.to_bytes()]
        }
        "reply to meta::Migrate" => {
            let reply = meta::MigrateReply { inode: inode(), layout: layout(), cap: capability() };
            vec![reply.to_bytes()]
        }
        "reply to meta::Truncate" => {
            vec![meta::TruncateReply { inode: inode(), cap: None, pending: true }.to_bytes()]
        }
        "reply to meta::GetStripe" => {
            vec![meta::GetStripeReply { spec: None, inode: inode(), inline_max: 9 }.to_bytes()]
        }
        "reply to meta::ReadDir" => {
            let reply = meta::ReadDirReply { parent: Fid(1), entries: vec![entry(), entry()], more: true };
            vec![reply.to_bytes()]
        }
        "reply to meta::Scan" => {
            vec![meta::ScanReply { records: records(), last: b"k"[..].into(), more: false }.to_bytes()]
        }
        "changelog::Change" => vec![change().to_bytes()],
        "reply to changelog::ReadChanges" => {
            let lost = Some(changelog::LostChanges { from: 2, to: 5 });
            let changes = vec![change(), change()];
            vec![changelog::ReadChangesReply { changes, upto: 9, more: true, lost }.to_bytes()]
        }
        "reply to ost::OstStat" | "reply to ost::OstSpace" => vec![ost_reply(name)],
        "reply to mdt::MdtStat" => vec![mdt_reply()],
        _ => vec![],
    }
}

fn mdt_reply() -> Vec<u8> {
    mdt::MdtStatReply {
        started_sec: 1,
        now_sec: 2,
        last_seq: 3,
        sessions: 4,
        records: 5,
        leaves: 6,
        room_bytes_used: 7,
        room_bytes_total: 8,
        inline_max: 9,
        inline_limit: 10,
        memory_bytes: 11,
        memory_bytes_max: 12,
        leaves_brought: 13,
        leaves_taken_out: 14,
        stretches_lost: 15,
        moves: 16,
        states_kept: 17,
        log_bytes_used: 18,
        log_bytes_total: 19,
        leases: 20,
        recalls: 21,
        recall_us: 22,
        recall_us_max: 23,
        failure: "24".into(),
    }
    .to_bytes()
}

fn change() -> changelog::Change {
    changelog::Change {
        number: 7,
        op: changelog::ChangeOp::Rename,
        flags: changelog::CHANGE_LAST,
        time: Time::new(1, 2),
        session: SessionId(3),
        who: Some(changelog::Who { uid: 4, gid: 5 }),
        fid: Fid(16),
        parent: Fid(1),
        name: b"n"[..].into(),
        old_parent: Fid(17),
        old_name: b"o"[..].into(),
        other: Fid(18),
        what: 6,
    }
}

fn ost_reply(name: &str) -> Vec<u8> {
    let sizes = |n| ost::OstSizes { counts: vec![n, 0, n + 1], bytes: n << 9 };
    let class = |n| ost::OstClass { extents: n, bytes_allocated: n << 12, bytes_stored: n << 11 };
    match name {
        "reply to ost::OstStat" => ost::OstStatReply {
            started_sec: 1,
            now_sec: 2,
            device_bytes: 3,
            writes: vec![ost::OstWrites { purpose: ost::purpose::LOG, sizes: sizes(4) }],
            reads: sizes(5),
            flushes: 6,
            bytes_discarded: 7,
            user: ost::OstUser { writes: 8, bytes_written: 9, reads: 10, bytes_read: 11 },
            small: ost::OstSmall {
                patched_writes: 12,
                patched_bytes: 13,
                destaged_pages: 14,
                destaged_bytes: 15,
                overlay_bytes: 16,
                overlay_bytes_max: 17,
            },
            log_bytes_used: 18,
            log_bytes_total: 19,
            service_since_sec: 20,
            service_bytes_written: 21,
            service_user_bytes_written: 22,
            log_device_bytes: 23,
            log_cut_entries: 24,
            log_cut_bytes: 25,
            index: ost::OstIndex {
                memory_bytes: 26,
                memory_bytes_max: 27,
                leaves: 28,
                leaves_loaded: 29,
                objects_changed: 30,
            },
            failure: "31".into(),
        }
        .to_bytes(),
        _ => ost::OstSpaceReply {
            bytes_total: 1,
            bytes_free: 2,
            bytes_waiting: 3,
            bytes_discarding: 4,
            bytes_reserved: 5,
            bytes_reserve: 6,
            grants: vec![],
            sub_block_bytes: 7,
            free_runs: vec![ost::OstAmount { count: 8, bytes: 9 }],
            largest_run_bytes: 10,
            objects: ost::OstObjects {
                objects: 11,
                with_bytes: 12,
                fragments: 13,
                fragments_max: 14,
                bytes_reserved: 15,
                classes: vec![class(16), class(17)],
            },
            next_after: None,
        }
        .to_bytes(),
    }
}

/// The types in turn, over so many tests that run at the same time.
const PARTS: usize = 4;

fn hammer_part(part: usize) {
    let mut at = 0;
    let mut is_mine = || {
        at += 1;
        at % PARTS == part
    };
    macro_rules! run {
        (requests { $($request:path,)* } values { $($value:path,)* }) => {
            $(
                let name = stringify!($request).replace(' ', "");
                if is_mine() {
                    hammer::<$request>(&name);
                }
                if is_mine() {
                    hammer::<<$request as Request>::Reply>(&format!("reply to {name}"));
                }
            )*
            $(
                if is_mine() {
                    hammer::<$value>(&stringify!($value).replace(' ', ""));
                }
            )*
        };
    }
    all_types!(run);
}

#[test]
fn whatever_arrives_is_read_or_refused_1() {
    hammer_part(0);
}
#[test]
fn whatever_arrives_is_read_or_refused_2() {
    hammer_part(1);
}
#[test]
fn whatever_arrives_is_read_or_refused_3() {
    hammer_part(2);
}
#[test]
fn whatever_arrives_is_read_or_refused_4() {
    hammer_part(3);
}

/// The lines of `golden_bodies.txt`: type, bytes, and what they mean, field by field.
const GOLDEN: &str = include_str!("golden_bodies.txt");

/// A line of the golden file for a type: its seed, or the longest value that some handfuls of small numbers happen to be.
fn golden_line<T: Wire + Debug>(name: &str) -> String {
    let mut found = seeds(name);
    let mut dice = Dice::new(7);
    for _ in 0..if found.is_empty() { 500_000 } else { 0 } {
        let small = [0, 0, 0, 0, 0, 0, 1, 1, 2, 3];
        let bytes: Vec<u8> = (0..dice.below(160)).map(|_| small[dice.below(small.len())]).collect();
        found.extend(decode::<T>(&bytes).map(|(_, len)| bytes[..len].to_vec()));
    }
    let bytes = found.into_iter().max_by_key(Vec::len).unwrap_or_default();
    let (value, _) = decode::<T>(&bytes).unwrap_or_else(|| panic!("no value of {name} was found"));
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    format!("{name} {hex} {value:?}")
}

/// If this fails, the wire has changed, and peers of other releases will not understand it. A new body, or a change that is meant,
/// gets its line from `STRIA_GOLDEN=write cargo test -p stria-wire golden`.
#[test]
fn every_body_means_what_the_golden_file_says() {
    let mut lines = vec![];
    macro_rules! run {
        (requests { $($request:path,)* } values { $($value:path,)* }) => {
            $(
                let name = stringify!($request).replace(' ', "");
                lines.push(golden_or::<$request>(&name));
                lines.push(golden_or::<<$request as Request>::Reply>(&format!("reply_to_{name}")));
            )*
            $(lines.push(golden_or::<$value>(&stringify!($value).replace(' ', "")));)*
        };
    }
    all_types!(run);
    if std::env::var_os("STRIA_GOLDEN").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden_bodies.txt");
        return std::fs::write(path, lines.join("\n") + "\n").expect("the golden file can be written");
    }
    assert_eq!(GOLDEN.lines().count(), lines.len(), "a line per type");
}

/// Checks a type against its golden line. While the file is being written: the line it gets.
fn golden_or<T: Wire + Debug>(name: &str) -> String {
    if std::env::var_os("STRIA_GOLDEN").is_some() {
        let seed_name = name.replace("reply_to_", "reply to ");
        return golden_line::<T>(&seed_name).replacen(&seed_name, name, 1);
    }
    let line = GOLDEN.lines().find(|l| l.split(' ').next() == Some(name));
    let line = line.unwrap_or_else(|| panic!("{name} has no line in golden_bodies.txt"));
    let (hex, meaning) = line[name.len() + 1..].split_once(' ').expect("three parts");
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
    let (value, len) = decode::<T>(&bytes).unwrap_or_else(|| panic!("{name}: its golden bytes are refused"));
    assert_eq!((format!("{value:?}").as_str(), len), (meaning, bytes.len()), "{name}");
    assert_eq!(value.to_bytes(), bytes, "{name}");
    line.to_owned()
}

/// A call that is added to the wire must be added here too.
#[test]
fn every_call_is_listed() {
    let mut listed = BTreeSet::new();
    macro_rules! list {
        (requests { $($request:path,)* } values { $($value:path,)* }) => {
            $(listed.insert(<$request as Request>::CALL);)*
        };
    }
    all_types!(list);
    let all = all_calls();
    let numbers: BTreeSet<u16> = all.iter().map(|(n, _)| *n).collect();
    assert_eq!(numbers.len(), all.len(), "no number is used twice");
    assert_eq!(numbers, listed);
}

/// Its tables have a row for each call, `| number | request | …`, and none for another.
#[test]
fn every_call_is_in_the_document() {
    let document = include_str!("../../../docs/formats/wire.md");
    let rows = document.lines().filter_map(|line| {
        let (number, rest) = line.strip_prefix("| `0x")?.split_once("` | ")?;
        let number = (number.len() == 4).then(|| u16::from_str_radix(number, 16).ok())??;
        Some((number, rest.split(' ').next()?))
    });
    let written: Vec<_> = rows.collect();
    let mut all = all_calls();
    all.sort_unstable();
    let missing: Vec<_> = all.iter().filter(|call| !written.contains(call)).collect();
    assert!(missing.is_empty(), "docs/formats/wire.md lacks {missing:04x?}");
    let unknown: Vec<_> = written.iter().filter(|call| !all.contains(call)).collect();
    assert!(unknown.is_empty(), "docs/formats/wire.md has {unknown:04x?}, which are no calls");
    assert_eq!(written.len(), all.len(), "a call has two rows");
}

fn all_calls() -> Vec<(u16, &'static str)> {
    wire::ALL_CALLS.concat()
}

/// A header of 64 bytes with the body that its checksum covers.
#[test]
fn a_header_is_read_or_refused() {
    let mut dice = Dice::new(1);
    let mut body = vec![];
    dice.random(64, &[], &mut body);
    let good = |len: usize| {
        let head = Header { call: 0x0301, target: TargetId(4), bulk_len: 8, ..Header::default() };
        [&head.encode(&body[..len])[..], &body[..len]].concat()
    };
    let decode = |bytes: &[u8]| {
        let (raw, body) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let head = Header::decode(raw).ok()?;
        assert!(head.body_len as usize <= BODY_MAX && head.bulk_len as usize <= BULK_MAX);
        let body = body.get(..head.body_len as usize)?;
        Header::verify(raw, body).ok()?;
        Some((head, HEADER_LEN + body.len()))
    };
    let check = |bytes: &[u8], (head, len): (Header, usize)| {
        assert_eq!(head.encode(&bytes[HEADER_LEN..len]), bytes[..HEADER_LEN], "one header, two byte forms");
        len
    };
    // To get past the checksum, it is recomputed by encoding the fields, if they can be decoded.
    let repair = |bytes: &mut [u8]| {
        let Some((raw, body)) = bytes.split_first_chunk_mut::<HEADER_LEN>() else { return };
        if let Ok(head) = Header::decode(raw) {
            *raw = head.encode(body);
        }
    };
    let seeds = [0, 1, body.len()].map(good);
    let outcome = Hammer::new("header").seeds(seeds).repair(&repair).run(decode, check);
    assert!(outcome.accepted > outcome.inputs / 10, "{outcome:?}");
}

/// Lists that claim as many elements as there are bytes, at the size of the largest body.
#[test]
fn long_lies_allocate_little() {
    fn lie<T: Wire>(bytes: &[u8]) {
        let (value, peak) = peak_of(|| decode::<Vec<T>>(bytes).map(|(_, len)| len));
        assert_eq!(value, None);
        assert!(peak <= bytes.len() * 24 + 4096, "{}: {peak} bytes", std::any::type_name::<T>());
    }
    let mut bytes = vec![0u8; 1 << 20];
    let count = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&count.to_le_bytes());
    lie::<meta::ScanRecord>(&bytes);
    lie::<meta::DirEntry>(&bytes);
    lie::<map::Node>(&bytes);
    lie::<Uuid>(&bytes);
    lie::<Bytes>(&bytes);
}

/// Attributes are written and read in one piece, and are their fields in order all the same.
#[test]
fn attributes_are_their_fields_in_order() {
    let time = |n: i64| Time::new(-n, n as u32);
    let attr = Attr {
        fid: Fid(1),
        kind: Kind::Symlink,
        mode: 2,
        uid: 3,
        gid: 4,
        nlink: 5,
        rdev: 6,
        size: 7 << 40,
        blocks: 8 << 40,
        atime: time(9),
        mtime: time(10),
        ctime: time(11),
        btime: time(12),
    };
    let mut fields = Vec::new();
    attr.fid.put(&mut fields);
    attr.kind.put(&mut fields);
    [attr.mode, attr.uid, attr.gid, attr.nlink, attr.rdev].iter().for_each(|n| n.put(&mut fields));
    [attr.size, attr.blocks].iter().for_each(|n| n.put(&mut fields));
    [attr.atime, attr.mtime, attr.ctime, attr.btime].iter().for_each(|t| t.put(&mut fields));
    assert_eq!(attr.to_bytes(), fields);
    assert_eq!(Attr::from_bytes(&fields), Ok(attr));
}

/// A lookup that leaves its name in the frame is the same, and refused alike.
#[test]
fn a_lookup_reads_alike_in_place() {
    let lookup = meta::Lookup {
        parent: Fid(1),
        name: b"name"[..].into(),
        cred: Cred { groups: vec![7], ..Cred::root() },
    };
    let decode = |bytes: &[u8]| {
        let (whole, lent) = (meta::Lookup::from_bytes(bytes), meta::LookupRef::from_bytes(bytes));
        let copied = lent.map(|l| meta::Lookup { parent: l.parent, name: l.name.into(), cred: l.cred });
        assert_eq!(copied, whole);
        whole.ok()
    };
    let hammer = Hammer::new("lookup in place").seeds(vec![lookup.to_bytes()]);
    assert!(hammer.run(decode, |bytes, _| bytes.len()).accepted > 0);
}
