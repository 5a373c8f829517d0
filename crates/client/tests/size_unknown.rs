//! Stories of a change of size whose outcome the client never heard.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use client::{OpenFlags, SetAttr, Settings};
use common::{Cluster, Wiring, pattern, read};
use disk::Crash;
use net::{Answer, Service};
use types::{Code, Cred, Fid, TargetId};
use wire::{Header, Request};

/// Carries out or swallows truncates, and answers none of them, while told to.
struct Deaf {
    mdt: Arc<dyn Service>,
    mode: AtomicU8,
}
const HEARS: u8 = 0;
const SWALLOWS: u8 = 1;
const OBEYS_IN_SILENCE: u8 = 2;

impl Service for Deaf {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        let mode = || self.mode.load(Ordering::SeqCst);
        if head.call != wire::meta::Truncate::CALL || mode() == HEARS {
            return self.mdt.serve(head, body, bulk, answer);
        }
        if mode() == OBEYS_IN_SILENCE {
            self.mdt.serve(head, body, bulk, answer);
        }
        while mode() != HEARS {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A shrink whose cuts did not get through, then one to nothing whose answer was lost: the file is not stuck with an error, and
/// is what the MDT made of it.
#[test]
fn a_file_is_usable_after_a_shrink_and_an_unanswered_emptying() {
    for (mode, want) in [(SWALLOWS, 5000), (OBEYS_IN_SILENCE, 0)] {
        let mut cluster = Cluster::with_inline_max(Wiring::Tcp, 1, 0);
        let deaf = Arc::new(Deaf { mdt: cluster.mdt_service(), mode: AtomicU8::new(HEARS) });
        cluster.hub.add(TargetId(1), deaf.clone());
        let settings = Settings { op_timeout: Duration::from_millis(600), ..cluster.settings() };
        let fs = cluster.mount_with(settings);
        let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
        let (attr, h) = fs.create(Fid::ROOT, b"f", 0o644, flags, &Cred::root()).expect("create");
        let data = pattern(1, 100_000);
        fs.write(h, 0, &data).expect("write");
        fs.fsync(h, false).expect("fsync");
        let set = |size| SetAttr { size: Some(size), ..SetAttr::default() };
        let cut = |size| fs.setattr(attr.fid, &set(size), &Cred::root()).map_err(|fault| fault.code);
        let image = cluster.stop_ost(0, Crash::KeepAll);
        assert_eq!(cut(5000).expect_err("its OST is down"), Code::Timeout);
        deaf.mode.store(mode, Ordering::SeqCst);
        assert_eq!(cut(0).expect_err("it is not answered"), Code::Timeout);
        deaf.mode.store(HEARS, Ordering::SeqCst);
        cluster.restart_ost(0, image);
        // The emptying may take effect late, since it is sent again, but not after something newer.
        let got = read(&fs, h, 0, 200_000).expect("the file can be read");
        assert!(got.len() == want || got.is_empty(), "{}", got.len());
        assert_eq!(got, data[..got.len()]);
        fs.write(h, 10_000, b"new").expect("the file can be written");
        let got = read(&fs, h, 0, 200_000).expect("read");
        assert!(got.len() == 10_003 && &got[10_000..] == b"new");
        assert!(got[5000..10_000] == [0; 5000], "nothing that was cut off comes back");
        fs.fsync(h, false).expect("fsync");
        fs.release(h);
        fs.shutdown().expect("shutdown");
    }
}
