//! Files that are found by their number alone, as a door does that was given a handle.

mod common;

use client::{Fs, OpenFlags};
use common::{Cluster, Wiring};
use types::{Code, Cred, Fid};

fn make(fs: &Fs, parent: Fid, name: &str) -> (Fid, client::Handle) {
    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
    let (attr, handle) = fs.create(parent, name.as_bytes(), 0o644, flags, &Cred::root()).expect("create");
    (attr.fid, handle)
}

fn by_number(fs: &Fs, fid: Fid) -> Result<u64, Code> {
    fs.lookup(fid, b".").map(|attr| attr.size).map_err(|fault| fault.code)
}

/// [S-handles]
#[test]
fn a_number_finds_its_file_until_the_last_name_is_gone() {
    let cluster = Cluster::new(Wiring::Local, 1);
    let fs = cluster.mount();
    let root = Cred::root();
    let (fid, handle) = make(&fs, Fid::ROOT, "f");
    fs.write(handle, 0, b"seven..").expect("write");
    assert_eq!(by_number(&fs, fid), Ok(7), "what only this client knows yet is shown");

    let dir = fs.mkdir(Fid::ROOT, b"d", 0o755, &root).expect("mkdir").fid;
    fs.link(fid, dir, b"second", &root).expect("link");
    fs.rename(Fid::ROOT, b"f", dir, b"g", 0, &root).expect("rename");
    fs.unlink(dir, b"second", &root).expect("unlink");
    assert_eq!(by_number(&fs, fid), Ok(7));

    fs.unlink(dir, b"g", &root).expect("unlink");
    assert_eq!(by_number(&fs, fid), Err(Code::Stale), "removed, though it is open");
    fs.release(handle);
    assert_eq!(by_number(&fs, fid), Err(Code::Stale));
    let (again, handle) = make(&fs, dir, "g");
    fs.release(handle);
    assert_ne!(again, fid);
    assert_eq!(by_number(&fs, fid), Err(Code::Stale), "its name is another file's by now");
}

/// [S-handles]
#[test]
fn directories_lead_up_to_the_root() {
    let cluster = Cluster::new(Wiring::Local, 1);
    let fs = cluster.mount();
    let dir =
        |parent, name: &str| fs.mkdir(parent, name.as_bytes(), 0o755, &Cred::root()).expect("mkdir").fid;
    let (a, b) = (dir(Fid::ROOT, "a"), dir(Fid::ROOT, "b"));
    let below = dir(a, "below");
    let up = |fid| fs.lookup(fid, b"..").map(|attr| attr.fid).map_err(|fault| fault.code);
    assert_eq!([below, a, Fid::ROOT].map(up), [Ok(a), Ok(Fid::ROOT), Ok(Fid::ROOT)]);
    fs.rename(a, b"below", b, b"moved", 0, &Cred::root()).expect("rename");
    assert_eq!(up(below), Ok(b));
    fs.rmdir(b, b"moved", &Cred::root()).expect("rmdir");
    assert_eq!(up(below), Err(Code::NotFound));
    let (file, handle) = make(&fs, a, "f");
    fs.release(handle);
    assert_eq!(up(file), Err(Code::NotDir));
}
