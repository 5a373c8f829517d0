//! client-KY3, client-KY4: keys of capabilities that change while servers are down are no error to programs.

mod common;

use std::sync::Arc;

use client::{Fs, Handle, OpenFlags};
use common::{Cluster, Wiring, ost_target, pattern, read};
use disk::Crash;
use types::{Code, Cred, Fault, Fid, Seq, Uuid};
use wire::Request;
use wire::session::Attach;

const BLOCK: usize = 64 << 10;

fn make(fs: &Fs, name: &str) -> Handle {
    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
    fs.create(Fid::ROOT, name.as_bytes(), 0o644, flags, &Cred::root()).expect(name).1
}

/// Gives the servers that run now the keys that follow from the revocation of a server.
fn change_keys(cluster: &mut Cluster, key: u8) {
    cluster.map.version += 1;
    cluster.map.file_systems[0].secret = Uuid([key; 16]);
    if let Some((mdt, _)) = &cluster.mdt {
        mdt.set_map(&cluster.map).expect("a newer map");
    }
    for (ost, _) in cluster.osts.iter().flatten() {
        ost.set_map(&cluster.map);
    }
}

/// Also what overlaps is as it was written, and what is written afterwards counts.
#[test]
fn ky4_an_ost_that_is_down_while_keys_change_gets_what_it_lost_from_the_clients() {
    let mut cluster = Cluster::quiet(Wiring::Tcp, 1);
    let fs = cluster.mount_lazy();
    let (kept, closed) = (make(&fs, "kept"), make(&fs, "closed"));
    for h in [kept, closed] {
        (0..4u64).for_each(|n| _ = fs.write(h, n * BLOCK as u64, &pattern(n, BLOCK)).expect("written"));
    }
    // Between those of the other file, and over what is there.
    fs.write(kept, BLOCK as u64 / 2, &pattern(9, BLOCK)).expect("written");
    fs.write(closed, 0, &pattern(8, BLOCK)).expect("written");
    fs.release(closed);
    for key in [0x77, 0x78] {
        let image = cluster.stop_ost(0, Crash::DropAll);
        change_keys(&mut cluster, key);
        cluster.restart_ost(0, image);
        let half = BLOCK / 2;
        let mut wanted: Vec<u8> = (0..4).flat_map(|n| pattern(n, BLOCK)).collect();
        wanted[half..half + BLOCK].copy_from_slice(&pattern(9, BLOCK));
        assert!(read(&fs, kept, 0, 4 * BLOCK).expect("readable") == wanted, "key {key:#x}");
    }
    fs.fsync(kept, false).expect("nothing is lost");
    let fid = fs.lookup(Fid::ROOT, b"closed").expect("found").fid;
    let (again, attr) = fs.open(fid, OpenFlags::read_only()).expect("open");
    assert_eq!(attr.size, 4 * BLOCK as u64);
    assert!(read(&fs, again, 0, BLOCK).expect("readable") == pattern(8, BLOCK));
    fs.shutdown().expect("all is settled");
}

/// The MDT alone can give another ticket, and it may start last.
#[test]
fn ky3_an_ost_that_starts_before_the_mdt_after_a_change_of_keys_refuses_no_program() {
    let mut cluster = Cluster::quiet(Wiring::Tcp, 1);
    let fs = cluster.mount();
    let h = make(&fs, "f");
    fs.write(h, 0, &pattern(1, 2 * BLOCK)).expect("written");
    fs.fsync(h, false).expect("flushed");
    let (mdt, ost) = (cluster.stop_mdt(Crash::KeepAll), cluster.stop_ost(0, Crash::KeepAll));
    cluster.hub.add(ost_target(0), Arc::new(OtherKey));
    let fault = read(&fs, h, 0, 2 * BLOCK).expect_err("the ticket is by the former key");
    assert_eq!(fault.code, Code::Timeout, "{fault}");
    cluster.restart_mdt(mdt);
    cluster.restart_ost(0, ost);
    assert!(read(&fs, h, 0, 2 * BLOCK).expect("readable") == pattern(1, 2 * BLOCK));
}

/// A restarted OST that has another key than the MDT had.
struct OtherKey;
impl net::Service for OtherKey {
    fn serve(&self, head: &wire::Header, _: &[u8], _: &[u8], answer: &mut net::Answer<'_>) {
        let fault = match head.call {
            Attach::CALL => Fault::new(Code::Access, "the ticket is not the MDT's"),
            _ => Fault::new(Code::Moved, "attach again"),
        };
        answer.body = wire::encode_reply(&wire::ReplyHead::refused(&fault, Seq(0)), None::<&wire::Empty>);
    }
}
