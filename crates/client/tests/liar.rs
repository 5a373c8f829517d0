//! Clients that lie about who asks, and what that gains them: nothing. They speak to the MDT without a kernel in between.

mod common;

use std::sync::Arc;

use client::{Claims, Fs, OpenFlags, SetAttr, Settings};
use common::{Cluster, Wiring};
use types::{Buf, Code, Cred, Fault, Fid, Kind};

const ALICE: u32 = 1000;
const MALLORY: u32 = 1001;
const CREW: u32 = 2000;
/// In CREW by the server's database, for Alice; Mallory is in a group of her own.
struct Database;
impl mds::UserDatabase for Database {
    fn groups_of(&self, uid: u32) -> Option<Vec<u32>> {
        match uid {
            ALICE => Some(vec![ALICE, CREW]),
            MALLORY => Some(vec![MALLORY]),
            _ => None,
        }
    }
}

fn user(uid: u32, groups: &[u32]) -> Cred {
    Cred { uid, gid: uid, groups: groups.to_vec() }
}

/// Root makes, in a fresh system: `d` (0770, CREW) with `inline` and `large` (0660, CREW).
fn made_by_root(cluster: &Cluster) {
    let fs = cluster.mount();
    let root = Cred::root();
    let d = fs.mkdir(Fid::ROOT, b"d", 0o770, &root).expect("allowed").fid;
    for (name, len) in [(&b"inline"[..], 10), (b"large", 200_000)] {
        let (attr, handle) = fs.create(d, name, 0o660, OpenFlags::read_write(), &root).expect("allowed");
        fs.write(handle, 0, &vec![7; len]).expect("allowed");
        fs.fsync(handle, false).expect("allowed");
        fs.release(handle);
        give_to_crew(&fs, attr.fid);
    }
    give_to_crew(&fs, d);
    fs.shutdown().expect("allowed");
}

fn give_to_crew(fs: &Fs, fid: Fid) {
    fs.setattr(fid, &SetAttr { gid: Some(CREW), ..SetAttr::default() }, &Cred::root()).expect("allowed");
}

fn believing(groups: mds::Groups, squash: Option<mds::Squash>) -> Cluster {
    let mut cluster = Cluster::new(Wiring::Tcp, 2);
    made_by_root(&cluster);
    cluster.believes = (groups, squash);
    cluster.restart_mdt_cleanly();
    cluster
}

fn mount_as(cluster: &Cluster, claims: Claims) -> Arc<Fs> {
    cluster.mount_with(Settings { claims, ..cluster.settings() })
}

fn refused<T>(result: Result<T, Fault>, what: &str) {
    match result {
        Err(fault) => assert!(matches!(fault.code, Code::Access | Code::Perm), "{what}: {fault}"),
        Ok(_) => panic!("{what} was allowed"),
    }
}

/// Everything that reads or changes what is CREW's, with whatever `cred` it carries. The fids are known: they are easy to guess.
fn ensure_gains_nothing(fs: &Fs, cred: &Cred, fids: [Fid; 3]) {
    let [d, inline, large] = fids;
    refused(fs.lookup_as(d, b"inline", cred), "lookup");
    refused(fs.readdir_as(d, 0, 10, true, cred), "readdir");
    refused(fs.create(d, b"new", 0o644, OpenFlags::read_write(), cred), "create");
    refused(fs.mkdir(d, b"new", 0o755, cred), "mkdir");
    refused(fs.mknod(d, b"new", Kind::Fifo, 0o644, 0, cred), "mknod");
    refused(fs.symlink(d, b"new", b"x", cred), "symlink");
    refused(fs.tmpfile(d, 0o644, OpenFlags::read_write(), cred), "tmpfile");
    refused(fs.unlink(d, b"inline", cred), "unlink");
    refused(fs.rename(d, b"inline", Fid::ROOT, b"mine", 0, cred), "rename");
    for fid in [inline, large] {
        refused(fs.open_as(fid, OpenFlags::read_only(), cred), "open");
        refused(fs.open_as(fid, OpenFlags { write: true, ..OpenFlags::default() }, cred), "open for writing");
        refused(fs.setattr(fid, &SetAttr { size: Some(0), ..SetAttr::default() }, cred), "truncate");
        refused(fs.setattr(fid, &SetAttr { mode: Some(0o777), ..SetAttr::default() }, cred), "chmod");
        refused(fs.setattr(fid, &SetAttr { kill_privileges: true, ..SetAttr::default() }, cred), "kill");
        refused(fs.link(fid, d, b"new", cred), "link");
        refused(fs.getxattr_as(fid, b"user.a", cred), "getxattr");
        refused(fs.setxattr(fid, b"user.a", b"1", 0, cred), "setxattr");
        refused(fs.set_flags(fid, 0x40, cred), "flags");
    }
}

fn fids(cluster: &Cluster) -> [Fid; 3] {
    let root = cluster.mount();
    let d = root.lookup(Fid::ROOT, b"d").expect("allowed").fid;
    let fids =
        [d, root.lookup(d, b"inline").expect("allowed").fid, root.lookup(d, b"large").expect("allowed").fid];
    root.shutdown().expect("allowed");
    fids
}

/// [S-claims] One user's session is that user, whatever its requests say.
#[test]
fn a_users_session_is_that_user() {
    let mut cluster = Cluster::new(Wiring::Tcp, 2);
    made_by_root(&cluster);
    let known = fids(&cluster);
    let fs = mount_as(&cluster, Claims::User(user(MALLORY, &[])));
    let checked = Cred::checked(MALLORY, MALLORY);
    for cred in [user(MALLORY, &[]), user(MALLORY, &[CREW]), user(ALICE, &[CREW]), Cred::root(), checked] {
        ensure_gains_nothing(&fs, &cred, known);
    }
    fs.shutdown().expect("allowed");
    // Whom the session names may, as whoever its requests come: and still after the MDT restarted.
    let fs = mount_as(&cluster, Claims::User(user(ALICE, &[CREW])));
    for (fid, len) in [(known[1], 10), (known[2], 200_000)] {
        let (handle, _) = fs.open_as(fid, OpenFlags::read_write(), &Cred::root()).expect("allowed");
        let mut buf = Buf::new();
        fs.read(handle, 0, len, &mut buf).expect("allowed");
        assert_eq!(buf.len(), len);
        cluster.restart_mdt_cleanly();
        fs.write(handle, len as u64, b"more").expect("allowed");
        fs.setattr(fid, &SetAttr { size: Some(5), ..SetAttr::default() }, &Cred::root()).expect("allowed");
        fs.fsync(handle, false).expect("allowed");
        fs.release(handle);
    }
    let (made, handle) =
        fs.create(known[0], b"new", 0o644, OpenFlags::read_write(), &Cred::root()).expect("allowed");
    assert_eq!((made.uid, made.gid), (ALICE, ALICE));
    fs.release(handle);
    fs.shutdown().expect("allowed");
}

/// [S-claims] Open descriptors keep their rights when the file's permissions are reduced later.
#[test]
fn an_open_file_outlives_its_permissions() {
    let cluster = Cluster::new(Wiring::Tcp, 2);
    made_by_root(&cluster);
    let [_, inline, large] = fids(&cluster);
    let fs = mount_as(&cluster, Claims::User(user(ALICE, &[CREW])));
    let root = cluster.mount();
    for fid in [inline, large] {
        let (handle, _) = fs.open(fid, OpenFlags::read_write()).expect("allowed");
        root.setattr(fid, &SetAttr { mode: Some(0), ..SetAttr::default() }, &Cred::root()).expect("allowed");
        fs.write(handle, 0, b"still").expect("allowed");
        let mut buf = Buf::new();
        fs.read(handle, 0, 5, &mut buf).expect("allowed");
        assert_eq!(&buf[..], b"still");
        fs.fsync(handle, false).expect("allowed");
        refused(fs.open(fid, OpenFlags::read_only()), "a new descriptor");
        fs.release(handle);
    }
}

/// [S-claims] With `groups = "server"` a lie about groups gains nothing.
#[test]
fn groups_are_the_servers_to_know() {
    let cluster = believing(mds::Groups::Server(Arc::new(Database)), None);
    let known = fids(&cluster);
    let fs = mount_as(&cluster, Claims::All);
    assert!(fs.is_judged() && fs.knows_groups());
    let checked = Cred::checked(MALLORY, MALLORY);
    for cred in [user(MALLORY, &[CREW]), Cred { gid: CREW, ..user(MALLORY, &[]) }, user(77, &[CREW]), checked]
    {
        ensure_gains_nothing(&fs, &cred, known);
    }
    // Alice need not say that she is in CREW; the group of what she makes may be any of hers.
    assert_eq!(fs.lookup_as(known[0], b"inline", &user(ALICE, &[])).expect("allowed").fid, known[1]);
    let (made, handle) = fs
        .create(known[0], b"new", 0o644, OpenFlags::read_write(), &Cred { gid: CREW, ..user(ALICE, &[]) })
        .expect("allowed");
    assert_eq!((made.uid, made.gid), (ALICE, CREW));
    fs.release(handle);
    fs.shutdown().expect("allowed");
    // One user's session, too.
    for user in [user(MALLORY, &[CREW]), Cred::checked(MALLORY, MALLORY)] {
        let fs = mount_as(&cluster, Claims::User(user));
        ensure_gains_nothing(&fs, &Cred::root(), known);
        fs.shutdown().expect("allowed");
    }
}

/// [S-claims] With `root_squash` root is whom it says.
#[test]
fn root_is_squashed() {
    let squash = mds::Squash { uid: 65_534, gid: 65_534 };
    let mut cluster = Cluster::new(Wiring::Tcp, 2);
    made_by_root(&cluster);
    let known = fids(&cluster);
    cluster.believes = (mds::Groups::Client, Some(squash));
    cluster.restart_mdt_cleanly();
    for claims in [Claims::All, Claims::User(Cred::root())] {
        let fs = mount_as(&cluster, claims);
        for cred in [
            Cred::root(),
            Cred::checked(0, 0),
            Cred::checked(MALLORY, MALLORY),
            Cred::checked(u32::MAX, u32::MAX),
        ] {
            ensure_gains_nothing(&fs, &cred, known);
        }
        refused(fs.mknod(Fid::ROOT, b"null", Kind::Char, 0o666, 259, &Cred::root()), "a device");
        fs.shutdown().expect("allowed");
    }
    // Users are who they are.
    let fs = mount_as(&cluster, Claims::All);
    assert!(fs.is_judged() && !fs.knows_groups());
    assert_eq!(fs.lookup_as(known[0], b"inline", &user(ALICE, &[CREW])).expect("allowed").fid, known[1]);
}

/// [S-claims] While others write it, too, a file grows by who has it open for writing only.
#[test]
fn nobody_settles_what_another_writes() {
    let cluster = believing(mds::Groups::Server(Arc::new(Database)), None);
    let [_, _, large] = fids(&cluster);
    let alice = mount_as(&cluster, Claims::User(user(ALICE, &[])));
    let mallory = mount_as(&cluster, Claims::User(user(MALLORY, &[])));
    let (handle, before) = alice.open(large, OpenFlags::read_write()).expect("allowed");
    alice.write(handle, 0, b"hers").expect("allowed");
    let generation = common::inode(&cluster, large).layout.expect("it has objects").generation;
    let settle = |fs: &Fs, held| {
        let head = wire::Header {
            fs: types::FsId(1),
            target: common::MDT,
            session: fs.session(),
            ..wire::Header::default()
        };
        let (size, blocks, mtime, written, done, hint) =
            (1 << 40, 0, types::Time::default(), vec![], true, false);
        let req = wire::meta::Settle {
            fid: large,
            generation,
            size,
            blocks,
            mtime,
            written,
            done,
            hint,
            is_part: false,
            held,
        };
        let soon = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let said = net::rpc::call(&*cluster.peer(common::MDT), head, &req, &[], &mut Buf::new(), soon);
        said.expect("answered").2
    };
    refused(settle(&mallory, None), "a settle");
    assert_eq!(alice.getattr(large).expect("allowed").size, before.size);
    alice.release(handle);
}
