//! The executor with the rules that ship: the calls of a file's life through the door, a kill, and the same answers after it.

use std::sync::Arc;

use disk::{Crash, Disk, SimDisk};
use types::*;
use wire::Header;
use wire::codec::Bytes;
use wire::meta::*;
use wire::session::TargetStat;

use super::rig::{Rig, label};
use crate::{FormatSpec, Mdt, MetaRules, Settings};

pub fn rig(disk: Arc<dyn Disk>) -> Rig {
    let clock: Arc<super::rig::HandClock> = Arc::default();
    Rig::with(disk, Settings { background: false, clock: clock.clone(), ..Settings::default() }, clock)
        .unwrap()
}

pub fn fresh() -> (Rig, Arc<SimDisk>) {
    let disk = Arc::new(SimDisk::new(2 << 20));
    let spec = FormatSpec::for_size(label(), 2 << 20);
    let spec = FormatSpec { log_bytes: 128 << 10, checkpoint_bytes: 512 << 10, ..spec };
    Mdt::format(disk.clone(), &spec, false, &MetaRules, Time::new(5, 0)).unwrap();
    (rig(disk.clone()), disk)
}

pub fn create(name: &str) -> Create {
    Create {
        parent: Fid::ROOT,
        name: name.as_bytes().into(),
        kind: Kind::File,
        mode: 0o644,
        rdev: 0,
        exclusive: true,
        write: true,
        now: Time::new(10, 0),
        cred: Cred::root(),
        want: Fid(0),
        umask: 0,
        read: false,
        append: false,
    }
}

fn lookup(rig: &Rig, name: &str) -> Result<Inode, Fault> {
    rig.ask(&Lookup { parent: Fid::ROOT, name: name.as_bytes().into(), cred: Cred::root() }, SessionId(0))
}

#[test]
fn a_file_lives_dies_and_is_remembered() {
    let (rig1, disk) = fresh();
    let made = rig1.ask(&create("a"), rig1.session).unwrap();
    let fid = made.open.inode.attr.fid;
    assert!(fid.counter() >= Fid::FIRST, "attempts that started over may have drawn some");
    let bytes = b"hello".to_vec();
    let write = WriteInline {
        fid,
        place: Place::At(0),
        in_section: true,
        crcs: crc::fragment_crcs(0, &bytes),
        now: Time::new(11, 0),
        held: None,
    };
    rig1.ask_with(&write, rig1.session, &bytes).unwrap();
    assert_eq!(rig1.ask(&create("a"), rig1.session).unwrap_err().code, Code::Exists);
    // A kill: everything is there, and counted.
    let disk = Arc::new(disk.crash(Crash::KeepAll));
    let rig2 = rig(disk.clone());
    assert_eq!(lookup(&rig2, "a").unwrap().attr.size, 5);
    let mut bulk = Buf::new();
    let head = Header { call: <ReadInline as wire::Request>::CALL, ..Header::default() };
    let read = wire::Wire::to_bytes(&ReadInline { fid, offset: 0, len: 100, held: None });
    rig2.send_bulk(head, &read, &[], &mut bulk).unwrap();
    assert_eq!(&bulk[..], b"hello");
    let stat = rig2.ask(&TargetStat {}, SessionId(0)).unwrap();
    assert_eq!(stat.files_total - stat.files_free, 2, "the root and the file");
    // Unlinked while open, and the client goes: an orphan that the session's end reaps.
    let name = Bytes::from(&b"a"[..]);
    let unlink = Unlink { parent: Fid::ROOT, name, held: true, now: Time::new(12, 0), cred: Cred::root() };
    assert_eq!(rig2.ask(&unlink, rig2.session).unwrap().attr.nlink, 0);
    assert_eq!(lookup(&rig2, "a").unwrap_err().code, Code::NotFound);
    rig2.ask(&GetAttr { fid }, SessionId(0)).unwrap();
    verify::assert_whole(&*disk, "with an orphan");
    rig2.ask(&wire::session::Detach { session: rig2.session }, SessionId(0)).unwrap();
    assert_eq!(rig2.ask(&GetAttr { fid }, SessionId(0)).unwrap_err().code, Code::Stale);
    verify::assert_whole(&*disk, "reaped");
}

#[test]
fn o5_a_fid_of_a_lost_create_is_not_given_to_another_file() {
    let (rig1, disk) = fresh();
    let lost = rig1.ask(&create("lost"), rig1.session).unwrap().open.inode.attr.fid;
    let rig2 = rig(Arc::new(disk.crash(Crash::DropAll)));
    assert_eq!(lookup(&rig2, "lost").unwrap_err().code, Code::NotFound);
    let other = rig2.ask(&create("other"), rig2.session).unwrap().open.inode.attr.fid;
    assert!(other > lost);
    // Its client replays it, and gets what it had.
    let head = Header {
        call: <Create as wire::Request>::CALL,
        session: rig2.session,
        slot: 0,
        sequence: 1,
        ..Header::default()
    };
    let again = wire::Wire::to_bytes(&Create { want: lost, ..create("lost") });
    rig2.send(Header { flags: wire::Flags::REPLAY, ..head }, &again).unwrap();
    assert_eq!(lookup(&rig2, "lost").unwrap().attr.fid, lost);
}
