//! Files without a name: what they hold, how they get a name, and their end.

mod common;

use client::OpenFlags;
use common::{Cluster, Wiring};
use disk::Crash;
use types::{Buf, Code, Cred, Fid};

fn rw() -> OpenFlags {
    OpenFlags::read_write()
}

/// [S-nameless-files] With a name it stays, and without one it goes with its last descriptor.
#[test]
fn a_name_keeps_it() {
    for wiring in [Wiring::Local, Wiring::Tcp] {
        let cluster = Cluster::new(wiring, 2);
        let (fs, root) = (cluster.mount(), Cred::root());
        let (gone, handle) = fs.tmpfile(Fid::ROOT, 0o600, rw(), &root).expect("works");
        fs.write(handle, 0, &[3; 100_000]).expect("works");
        assert_eq!(fs.getattr(gone.fid).expect("works").nlink, 0);
        fs.release(handle);
        assert_eq!(fs.getattr(gone.fid).map_err(|f| f.code), Err(Code::Stale));

        let (kept, handle) = fs.tmpfile(Fid::ROOT, 0o600, rw(), &root).expect("works");
        fs.write(handle, 0, &[4; 100_000]).expect("works");
        assert_eq!(fs.link(kept.fid, Fid::ROOT, b"kept", &root).expect("works").nlink, 1);
        fs.release(handle);
        let (handle, attr) = fs.open(kept.fid, OpenFlags::read_only()).expect("works");
        let mut buf = Buf::new();
        fs.read(handle, 0, 100_000, &mut buf).expect("works");
        assert_eq!((attr.size, buf[..] == [4; 100_000]), (100_000, true));
        fs.release(handle);
        fs.shutdown().expect("works");
    }
}

/// [S-nameless-files] A client that dies takes its nameless files with it, and one that lives has them over a restart of the MDT.
#[test]
fn it_lives_as_long_as_its_client() {
    let mut cluster = Cluster::quiet(Wiring::Tcp, 2);
    let (fs, root) = (cluster.mount_lazy(), Cred::root());
    let (attr, handle) = fs.tmpfile(Fid::ROOT, 0o600, rw(), &root).expect("works");
    fs.write(handle, 0, b"content").expect("works");
    cluster.crash_mdt(Crash::DropAll);
    let mut buf = Buf::new();
    fs.read(handle, 0, 7, &mut buf).expect("works");
    assert_eq!(&buf[..], b"content");
    let session = fs.session();
    fs.abort();
    drop(fs);
    cluster.end_session(session);
    let fs = cluster.mount();
    assert_eq!(fs.getattr(attr.fid).map_err(|f| f.code), Err(Code::Stale));
}
