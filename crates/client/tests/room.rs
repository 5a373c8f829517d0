//! Who finds an OST full: what he waits for, for how long, and what others hear of it. OSTs are full when a test says so, and the MDT says of
//! the purge what a test tells it.

#![allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should")]

mod common;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use client::{Fs, Handle, OpenFlags, SetAttr, Settings};
use common::{Cluster, MDT, Wiring, ost_target, pattern, read};
use net::{Answer, Service};
use parking_lot::Mutex;
use types::{Code, Cred, Fault, Fid, Seq};
use wire::meta::Settle;
use wire::object::{Reserve, Write};
use wire::purge::{Dying, DyingReply};
use wire::shared::Enter;
use wire::{Empty, Header, ReplyHead, Request, encode_reply};

const STRIPE: usize = 64 << 10;

/// An OST that refuses what needs space while it is told to.
struct Ost {
    inner: Arc<dyn Service>,
    is_full: AtomicBool,
    refused: AtomicU32,
    /// What its replies have in their heads.
    head: Mutex<Header>,
}

impl Service for Ost {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        if [Write::CALL, Reserve::CALL].contains(&head.call) && self.is_full.load(Ordering::SeqCst) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            let Header { epoch, incarnation, flags, .. } = *self.head.lock();
            answer.head = Header { epoch, incarnation, flags, ..answer.head };
            let fault = Fault::new(Code::NoSpace, "told to be full");
            answer.body = encode_reply::<Empty>(&ReplyHead::refused(&fault, Seq(0)), None);
            return;
        }
        self.inner.serve(head, body, bulk, answer);
        *self.head.lock() = answer.head;
    }
}

/// The MDT's reply to a question, by the question's number.
type Says = dyn Fn(u32) -> DyingReply + Send + Sync;

/// An MDT that says of the purge what a test tells it, and lets nothing go while it is told so.
struct Mdt {
    inner: Arc<dyn Service>,
    says: Mutex<Arc<Says>>,
    questions: AtomicU32,
    /// Slot and sequence of each: what is sent once more counts once.
    releases: Mutex<BTreeSet<(u32, u32)>>,
    hangs: AtomicBool,
    /// What its replies have in their heads.
    head: Mutex<Header>,
    /// Calls that it refuses, and how.
    refuses: Mutex<Option<(u16, Code)>>,
}

impl Service for Mdt {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        if head.call == wire::meta::Release::CALL {
            self.releases.lock().insert((head.slot, head.sequence));
            while self.hangs.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let refuses = *self.refuses.lock();
        if let Some((_, code)) = refuses.filter(|(call, _)| *call == head.call) {
            let Header { epoch, incarnation, flags, .. } = *self.head.lock();
            answer.head = Header { epoch, incarnation, flags, ..answer.head };
            let fault = Fault::new(code, "told to refuse");
            answer.body = encode_reply::<Empty>(&ReplyHead::refused(&fault, Seq(0)), None);
            return;
        }
        self.inner.serve(head, body, bulk, answer);
        *self.head.lock() = answer.head;
        if head.call == Dying::CALL {
            let says = self.says.lock().clone();
            let said = says(self.questions.fetch_add(1, Ordering::SeqCst));
            answer.body = encode_reply(&ReplyHead::done(Seq(0), Seq(0)), Some(&said));
        }
    }
}

impl Mdt {
    fn says(&self, says: impl Fn(u32) -> DyingReply + Send + Sync + 'static) {
        *self.says.lock() = Arc::new(says);
        self.questions.store(0, Ordering::SeqCst);
    }
}

/// The purge goes on, and nothing has come of it yet.
fn goes_on() -> DyingReply {
    DyingReply { dying: true, held_up: false, walks_begun: 1, walks_ended: 0, rounds: 5, freed: 50, news: 70 }
}
/// Nothing is dying: a try is worth it, for the last time.
fn is_done() -> DyingReply {
    DyingReply { dying: false, ..goes_on() }
}

struct Rig {
    cluster: Cluster,
    mdt: Arc<Mdt>,
    osts: [Arc<Ost>; 2],
}

fn rig(wiring: Wiring) -> Rig {
    let mut cluster = Cluster::new(wiring, 2);
    cluster.sessions_live(Duration::from_millis(1500));
    let mdt = Arc::new(Mdt {
        inner: cluster.mdt_service(),
        says: Mutex::new(Arc::new(|_| is_done())),
        questions: AtomicU32::new(0),
        releases: Mutex::default(),
        hangs: AtomicBool::new(false),
        head: Mutex::default(),
        refuses: Mutex::default(),
    });
    cluster.hub.add(MDT, mdt.clone());
    let osts = [0, 1].map(|n| {
        let inner = cluster.osts[n].as_ref().unwrap().0.clone();
        let ost = Arc::new(Ost {
            inner,
            is_full: AtomicBool::new(false),
            refused: AtomicU32::new(0),
            head: Mutex::default(),
        });
        cluster.hub.add(ost_target(n), ost.clone());
        ost
    });
    Rig { cluster, mdt, osts }
}

impl Rig {
    fn set_full(&self, full: [bool; 2]) {
        self.osts.iter().zip(full).for_each(|(ost, full)| ost.is_full.store(full, Ordering::SeqCst));
    }
    /// A client that has spoken to both OSTs.
    fn mount(&self) -> Arc<Fs> {
        let settings = Settings { commit_interval: Duration::from_secs(600), ..self.cluster.settings() };
        let fs = self.cluster.mount_with(settings);
        let (_, h) = make(&fs, "first", STRIPED);
        fs.write(h, 0, &[1; 2 * STRIPE]).unwrap();
        fs
    }
}

/// Its first stripe is on OST 0.
const STRIPED: &str = "-c 2 -i 0 -S 64k --inline 0";

fn make(fs: &Fs, name: &str, layout: &str) -> (Fid, Handle) {
    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
    let root = Cred::root();
    let (attr, h) = fs.create(Fid::ROOT, name.as_bytes(), 0o644, flags, &root).unwrap();
    fs.setxattr(attr.fid, b"stria.layout", layout.as_bytes(), 0, &root).unwrap();
    (attr.fid, h)
}

fn code<T: std::fmt::Debug>(done: Result<T, Fault>) -> Code {
    done.unwrap_err().code
}

/// [S-append] An append waits for room in the middle, and another one lands behind its first part: it says that this part is all.
#[test]
fn an_append_that_others_would_part_is_short() {
    let rig = rig(Wiring::Local);
    let fs = rig.mount();
    let (_, h) = make(&fs, "log", STRIPED);
    let data = pattern(1, 2 * STRIPE);
    // 1. Nobody comes between: it is whole.
    let osts = rig.osts.clone();
    rig.set_full([false, true]);
    rig.mdt.says(move |_| {
        osts[1].is_full.store(false, Ordering::SeqCst);
        is_done()
    });
    assert_eq!(fs.append(h, &data), Ok(data.len()));
    assert!(read(&fs, h, 0, 9 * STRIPE).unwrap() == data);
    // 2. Somebody does.
    let (osts, other) = (rig.osts.clone(), fs.clone());
    rig.set_full([false, true]);
    rig.mdt.says(move |_| {
        osts[1].is_full.store(false, Ordering::SeqCst);
        assert_eq!(other.append(h, b"another's"), Ok(9));
        is_done()
    });
    assert_eq!(fs.append(h, &data), Ok(STRIPE));
    let want = [&data[..], &data[..STRIPE], b"another's"].concat();
    assert!(read(&fs, h, 0, 9 * STRIPE).unwrap() == want);
    // 3. There is no room to the end: its part is told, and the error comes with the next.
    rig.mdt.says(|_| is_done());
    fs.append(h, &vec![2; STRIPE - 9]).unwrap();
    rig.set_full([false, true]);
    assert_eq!(fs.append(h, &data), Ok(STRIPE));
    assert_eq!(code(fs.append(h, &data)), Code::NoSpace);
    rig.set_full([false, false]);
    fs.append(h, b"end").unwrap();
    let want = [&want[..], &vec![2; STRIPE - 9], &data[..STRIPE], b"end"].concat();
    assert!(read(&fs, h, 0, 9 * STRIPE).unwrap() == want);
}

/// Of a call whose bytes go to many OSTs a later one may refuse when the first had room: it is asked after as that one was.
#[test]
fn a_second_full_ost_is_asked_after_as_the_first_was() {
    let rig = rig(Wiring::Local);
    let fs = rig.mount();
    let (_, h) = make(&fs, "f", STRIPED);
    rig.set_full([true, false]);
    let osts = rig.osts.clone();
    rig.mdt.says(move |question| {
        osts[question as usize % 2].is_full.store(false, Ordering::SeqCst);
        osts[1].is_full.store(question == 0, Ordering::SeqCst);
        is_done()
    });
    let data = pattern(2, 2 * STRIPE);
    assert_eq!(fs.write(h, 0, &data), Ok(data.len()));
    assert!(read(&fs, h, 0, 9 * STRIPE).unwrap() == data);
}

/// Growth out of the inode waits without its section: another client goes on with the file meanwhile.
#[test]
fn who_waits_for_room_to_grow_keeps_no_other_client_from_the_file() {
    let rig = rig(Wiring::Tcp);
    let (a, b) = (rig.mount(), rig.cluster.mount());
    assert!(a.is_shared() && b.is_shared());
    for by_truncate in [false, true] {
        let name = format!("f{by_truncate}");
        let (fid, ha) = make(&a, &name, "-c 2 -S 64k");
        a.write(ha, 0, b"hello").unwrap();
        let hb = b.open(fid, OpenFlags::read_write()).unwrap().0;
        rig.set_full([true, true]);
        let (osts, b) = (rig.osts.clone(), b.clone());
        rig.mdt.says(move |_| {
            b.write(hb, 0, b"jelly").unwrap();
            osts.iter().for_each(|ost| ost.is_full.store(false, Ordering::SeqCst));
            is_done()
        });
        let set = SetAttr { size: Some(100_000), ..SetAttr::default() };
        match by_truncate {
            true => assert_eq!(a.setattr(fid, &set, &Cred::root()).unwrap().size, 100_000),
            false => assert_eq!(a.write(ha, 70_000, &[7; 30_000]), Ok(30_000)),
        }
        assert_eq!(read(&a, ha, 0, 7).unwrap(), b"jelly\0\0", "{name}");
    }
}

/// A long wait for space holds a thread of the mount, so the number of such waits is bounded: further writes soon get ENOSPC.
#[test]
fn only_some_wait_long() {
    const LONG: usize = 8;
    let rig = rig(Wiring::Local);
    let fs = rig.mount();
    let files: Vec<_> = (0..=LONG).map(|n| make(&fs, &format!("f{n}"), STRIPED).1).collect();
    rig.set_full([true, true]);
    // All of the eight are asking before the first of them is answered, so each has its seat.
    let (all_ask, is_over) = (Barrier::new(LONG), Arc::new(AtomicBool::new(false)));
    let over = is_over.clone();
    rig.mdt.says(move |question| {
        if (question as usize) < LONG {
            all_ask.wait();
        }
        if over.load(Ordering::SeqCst) { is_done() } else { goes_on() }
    });
    let done = AtomicU32::new(0);
    std::thread::scope(|s| {
        let write = |h: &Handle| {
            let written = fs.write(*h, 0, &[3; 9]);
            done.fetch_add(1, Ordering::SeqCst);
            written
        };
        let waiters: Vec<_> = files[..LONG].iter().map(|h| s.spawn(move || write(h))).collect();
        while rig.mdt.questions.load(Ordering::SeqCst) <= LONG as u32 {
            std::thread::yield_now();
        }
        assert_eq!(code(fs.write(files[LONG], 0, &[3; 9])), Code::NoSpace);
        assert_eq!(done.load(Ordering::SeqCst), 0, "the eight still wait");
        rig.set_full([false, false]);
        is_over.store(true, Ordering::SeqCst);
        waiters.into_iter().for_each(|w| assert_eq!(w.join().unwrap(), Ok(9)));
    });
}

/// Files that a rename has replaced are let go for who lacks room. An MDT that does not answer is asked for one of them, not for each in turn;
/// and they are let go later.
#[test]
fn an_mdt_that_hangs_is_asked_to_let_one_replaced_file_go() {
    let rig = rig(Wiring::Tcp);
    let fs = rig.mount();
    let (_, h) = make(&fs, "f", STRIPED);
    let root = Cred::root();
    let replaced: Vec<_> = (0..3)
        .map(|n| {
            let (old, new) = (format!("old{n}"), format!("new{n}"));
            let (fid, h) = make(&fs, &old, STRIPED);
            fs.release(h);
            fs.release(make(&fs, &new, STRIPED).1);
            fs.rename(Fid::ROOT, new.as_bytes(), Fid::ROOT, old.as_bytes(), 0, &root).unwrap();
            fid
        })
        .collect();
    rig.set_full([true, true]);
    rig.mdt.hangs.store(true, Ordering::SeqCst);
    assert_eq!(code(fs.write(h, 0, b"x")), Code::NoSpace);
    assert_eq!(rig.mdt.releases.lock().len(), 1);
    rig.mdt.hangs.store(false, Ordering::SeqCst);
    assert_eq!(code(fs.write(h, 0, b"x")), Code::NoSpace);
    assert_eq!(rig.mdt.releases.lock().len(), 1 + 3, "all were kept for later");
    for fid in replaced {
        assert_eq!(code(fs.open(fid, OpenFlags::read_only())), Code::Stale, "it is gone");
    }
}

/// [S-several-mounts] The kernel saw the file's end when its mount was alone. While the append waits for room another mount comes and appends.
#[test]
fn an_append_of_a_lone_mount_that_waits_does_not_overwrite_another_mounts() {
    for reaches in [0, STRIPE] {
        let rig = rig(Wiring::Tcp);
        let a = rig.mount();
        let (fid, ha) = make(&a, "log", STRIPED);
        let (old, data, other) =
            (pattern(1, 3 * STRIPE - reaches), pattern(2, STRIPE + reaches), b"another's");
        a.write(ha, 0, &old).unwrap();
        rig.mdt.says(|_| goes_on());
        // Its part before the stripe on OST 1 has room.
        rig.set_full([false, true]);
        std::thread::scope(|s| {
            let appends = s.spawn(|| a.append_at(ha, old.len() as u64, &data, false));
            while rig.mdt.questions.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            let b = rig.cluster.mount();
            let hb = b.open(fid, OpenFlags::read_write()).unwrap().0;
            rig.set_full([false, false]);
            assert_eq!(b.append(hb, other), Ok(other.len()));
            rig.mdt.says(|_| is_done());
            let (told, want) = match reaches {
                0 => (data.len(), [&old[..], other, &data].concat()),
                _ => (reaches, [&old[..], &data[..reaches], other].concat()),
            };
            assert_eq!(appends.join().unwrap(), Ok(told));
            assert!(read(&b, hb, 0, 9 * STRIPE).unwrap() == want);
            b.release(hb);
        });
    }
}

/// A lone mount appends at the offset that the kernel gives, and continues after the part that was written before the stop.
#[test]
fn an_append_of_a_lone_mount_goes_on_where_it_was_stopped() {
    let rig = rig(Wiring::Local);
    let fs = rig.mount();
    let (_, h) = make(&fs, "log", STRIPED);
    let data = pattern(1, 2 * STRIPE);
    let osts = rig.osts.clone();
    rig.set_full([false, true]);
    rig.mdt.says(move |_| {
        osts[1].is_full.store(false, Ordering::SeqCst);
        is_done()
    });
    assert_eq!(fs.append_at(h, 0, &data, false), Ok(data.len()));
    assert!(read(&fs, h, 0, 9 * STRIPE).unwrap() == data);
}

/// The acknowledged part of a write is not written again: another client may have written there since.
#[test]
fn a_write_goes_on_behind_what_is_acknowledged() {
    let rig = rig(Wiring::Tcp);
    let (a, b) = (rig.mount(), rig.cluster.mount());
    let (fid, ha) = make(&a, "f", STRIPED);
    let hb = b.open(fid, OpenFlags::read_write()).unwrap().0;
    let (data, other) = (pattern(1, 4 * STRIPE), vec![9; STRIPE]);
    rig.set_full([false, true]);
    let (osts, writer, bytes) = (rig.osts.clone(), b.clone(), other.clone());
    rig.mdt.says(move |_| {
        writer.write(hb, 0, &bytes).unwrap();
        osts[1].is_full.store(false, Ordering::SeqCst);
        is_done()
    });
    assert_eq!(a.write(ha, 0, &data), Ok(data.len()));
    assert!(read(&b, hb, 0, 9 * STRIPE).unwrap() == [&other[..], &data[STRIPE..]].concat());
}

/// An append has a part, and then its turn does not come: what is there is told.
#[test]
fn a_part_of_an_append_is_told_though_its_turn_does_not_come() {
    let rig = rig(Wiring::Tcp);
    let (a, b) = (rig.mount(), rig.cluster.mount());
    let (_, ha) = make(&a, "log", STRIPED);
    let data = pattern(1, 2 * STRIPE);
    rig.set_full([false, true]);
    let mdt = rig.mdt.clone();
    rig.mdt.says(move |_| {
        *mdt.refuses.lock() = Some((Enter::CALL, Code::Timeout));
        is_done()
    });
    assert_eq!(a.append(ha, &data), Ok(STRIPE));
    *rig.mdt.refuses.lock() = None;
    assert_eq!(b.lookup(Fid::ROOT, b"log").unwrap().size, STRIPE as u64);
}

/// client-CL5: while the writer cannot tell the size, another client waits for it, and then sees it.
#[test]
fn cl5_a_size_that_cannot_be_told_keeps_the_lease() {
    let rig = rig(Wiring::Tcp);
    let (a, b) = (rig.mount(), rig.cluster.mount());
    let (_, h) = make(&a, "written", STRIPED);
    a.append(h, b"begin").unwrap();
    assert_eq!(b.lookup(Fid::ROOT, b"written").unwrap().size, 5);
    *rig.mdt.refuses.lock() = Some((Settle::CALL, Code::Io));
    assert_eq!(a.append(h, &[7; STRIPE]), Ok(STRIPE));
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| b.lookup(Fid::ROOT, b"written").unwrap().size);
        std::thread::sleep(Duration::from_millis(300));
        assert!(!looks.is_finished(), "no older size is shown");
        *rig.mdt.refuses.lock() = None;
        assert_eq!(looks.join().unwrap(), 5 + STRIPE as u64);
    });
}

/// plan-W2, plan-W3: after its time a waiting write tries once more; no write waits again until space is freed or more is removed.
#[test]
fn who_waited_in_vain_tries_once_more_and_the_next_does_not_wait() {
    let rig = rig(Wiring::Local);
    let fs = rig.mount();
    let (_, h) = make(&fs, "f", STRIPED);
    rig.set_full([true, true]);
    let refused = |n: u32| rig.osts[0].refused.swap(0, Ordering::SeqCst) == n;
    rig.mdt.says(|_| goes_on());
    assert_eq!(code(fs.write(h, 0, b"x")), Code::NoSpace);
    assert!(refused(2) && rig.mdt.questions.load(Ordering::SeqCst) > 2);
    rig.mdt.says(|_| goes_on());
    assert_eq!(code(fs.write(h, 0, b"x")), Code::NoSpace);
    assert!(refused(1) && rig.mdt.questions.load(Ordering::SeqCst) == 1, "it does not wait");
    let osts = rig.osts.clone();
    rig.mdt.says(move |question| {
        osts[0].is_full.store(question < 2, Ordering::SeqCst);
        DyingReply { news: 71, dying: question < 2, ..goes_on() }
    });
    assert_eq!(fs.write(h, 0, b"x"), Ok(1), "more was removed: it waits");
}

impl Rig {
    /// On which OST the byte at `offset` of a file lies.
    fn ost_at(&self, fid: Fid, offset: u64) -> usize {
        let layout = common::inode(&self.cluster, fid).layout.unwrap();
        let mirror = layout.split(fid, offset, 1)[0].mirror;
        let target = self.cluster.map.mirror(mirror).unwrap().primary;
        [0, 1].into_iter().find(|n| ost_target(*n) == target).unwrap()
    }
    fn components(&self, fid: Fid) -> usize {
        common::inode(&self.cluster, fid).layout.map_or(0, |l| l.components.len())
    }
    fn set_only_full(&self, n: usize) {
        self.set_full([n == 0, n == 1]);
    }
}

/// One stripe, and the MDT chooses the OST.
const PLAIN: &str = "-c 1 -S 64k --inline 0";

/// [S-no-space] A growing file goes on where there is room, from whatever byte on; nothing of it that was there is touched, and others see it.
#[test]
fn a_growing_file_goes_on_where_there_is_room() {
    for (wiring, sharing) in [(Wiring::Local, false), (Wiring::Tcp, false), (Wiring::Tcp, true)] {
        for begin in [1, 4096, 5 * 4096 + 7, 3 * STRIPE - 1] {
            let rig = rig(wiring);
            let fs = rig.mount();
            let other = sharing.then(|| rig.cluster.mount());
            let (fid, h) = make(&fs, "f", PLAIN);
            let mut want = pattern(1, begin);
            fs.write(h, 0, &want).unwrap();
            let first = rig.ost_at(fid, 0);
            // 1. To the other OST; then that one is full, too, and the first is not any more.
            for (full, n) in [(first, 2), (1 - first, 3)] {
                rig.set_only_full(full);
                let at = want.len() as u64;
                for len in [9, STRIPE, 100_000] {
                    let data = pattern(n, len);
                    let place = want.len() as u64;
                    assert_eq!(fs.write(h, place, &data), Ok(len), "{wiring:?} {sharing} {begin}");
                    want.extend(data);
                }
                assert_eq!((rig.ost_at(fid, 0), rig.ost_at(fid, at)), (first, 1 - full));
                assert!(read(&fs, h, 0, want.len() + 9).unwrap() == want, "{wiring:?} {sharing} {begin}");
            }
            assert!(
                rig.mdt.questions.load(Ordering::SeqCst) == 0,
                "nobody waits where there is room elsewhere"
            );
            rig.set_full([false, false]);
            // 2. Another client sees the same, and goes on with it.
            if let Some(other) = &other {
                let b = other.open(fid, OpenFlags::read_write()).unwrap().0;
                assert!(read(other, b, 0, want.len() + 9).unwrap() == want);
                rig.set_only_full(rig.ost_at(fid, want.len() as u64));
                assert_eq!(other.append(b, b"the end"), Ok(7));
                want.extend(b"the end");
                rig.set_full([false, false]);
                other.release(b);
            }
            // 3. It is cut within what moved, and grows again; and it is the same after all have been started anew.
            let set = SetAttr { size: Some(begin as u64 + 5), ..SetAttr::default() };
            fs.setattr(fid, &set, &Cred::root()).unwrap();
            want.truncate(begin + 5);
            fs.write(h, want.len() as u64 + 3, b"x").unwrap();
            want.extend(b"\0\0\0x");
            fs.fsync(h, false).unwrap();
            assert!(read(&fs, h, 0, want.len() + 9).unwrap() == want);
            fs.release(h);
            let h = fs.open(fid, OpenFlags::read_only()).unwrap().0;
            assert!(read(&fs, h, 0, want.len() + 9).unwrap() == want);
        }
    }
}

/// [S-no-space] New objects are not begun on a full OST, by whatever call.
#[test]
fn what_is_new_is_begun_where_there_is_room() {
    let rig = rig(Wiring::Local);
    let fs = rig.mount();
    for full in [0, 1] {
        // 1. With its objects made before the OST was full.
        for n in 0..2 {
            let (fid, h) = make(&fs, &format!("old{full}{n}"), PLAIN);
            fs.write(h, 0, b"x").unwrap();
            fs.setattr(fid, &SetAttr { size: Some(0), ..SetAttr::default() }, &Cred::root()).unwrap();
            rig.set_only_full(full);
            assert_eq!(fs.write(h, 0, &[1; 9]), Ok(9));
            assert_eq!(rig.ost_at(fid, 0), 1 - full);
            rig.set_full([false, false]);
        }
        rig.set_only_full(full);
        for n in 0..2 {
            // 2. New ones; and those of inline files, by what is written and by a truncate.
            let (fid, h) = make(&fs, &format!("new{full}{n}"), PLAIN);
            assert_eq!(fs.write(h, 5, &[1; 9]), Ok(9));
            assert_eq!(rig.ost_at(fid, 0), 1 - full);
            let (fid, h) = make(&fs, &format!("grown{full}{n}"), "-c 1");
            fs.write(h, 0, b"inline").unwrap();
            assert_eq!(fs.write(h, 70_000, &[1; 9]), Ok(9));
            assert_eq!(rig.ost_at(fid, 0), 1 - full);
            assert_eq!(read(&fs, h, 0, 8).unwrap(), b"inline\0\0");
            let (fid, h) = make(&fs, &format!("cut{full}{n}"), "-c 1");
            fs.write(h, 0, b"inline").unwrap();
            let set = SetAttr { size: Some(70_000), ..SetAttr::default() };
            fs.setattr(fid, &set, &Cred::root()).unwrap();
            assert_eq!(rig.ost_at(fid, 0), 1 - full);
            // 3. Space that is promised.
            let (fid, h) = make(&fs, &format!("kept{full}{n}"), PLAIN);
            fs.fallocate(h, 0, 3 * STRIPE as u64, client::Allocate::Grow).unwrap();
            assert_eq!(rig.ost_at(fid, 0), 1 - full);
            // 4. Pages of a mapping, which make no file longer.
            let (fid, h) = make(&fs, &format!("mapped{full}{n}"), PLAIN);
            fs.setattr(fid, &SetAttr { size: Some(8192), ..SetAttr::default() }, &Cred::root()).unwrap();
            fs.write_mapped(h, 4096, &[1; 4096]).unwrap();
            assert_eq!(rig.ost_at(fid, 0), 1 - full);
        }
        rig.set_full([false, false]);
    }
}

/// [S-no-space] A file stays where it is if that would help nothing, or if its user has named the OST; and its layout does, too.
#[test]
fn a_file_stays_where_moving_on_helps_nothing() {
    let rig = rig(Wiring::Local);
    let fs = rig.mount();
    // 1. All are full.
    let (_, h) = make(&fs, "f", PLAIN);
    fs.write(h, 0, b"x").unwrap();
    rig.set_full([true, true]);
    assert_eq!(code(fs.write(h, 1, &[1; 9])), Code::NoSpace);
    rig.set_full([false, false]);
    // 2. What is there lies behind.
    let (fid, h) = make(&fs, "hole", PLAIN);
    fs.write(h, 10 * STRIPE as u64, b"x").unwrap();
    rig.set_only_full(rig.ost_at(fid, 0));
    assert_eq!(code(fs.write(h, 0, &[1; 9])), Code::NoSpace);
    assert_eq!(rig.components(fid), 1);
    // 3. The user has named it.
    let (fid, h) = make(&fs, "named", "-c 1 -i 0 --inline 0");
    rig.set_only_full(0);
    assert_eq!(code(fs.write(h, 0, &[1; 9])), Code::NoSpace);
    assert_eq!((rig.components(fid), rig.ost_at(fid, 0)), (1, 0));
}

/// A move of which the answer is lost is made once: the file is opened anew before its objects are used.
#[test]
fn a_move_whose_outcome_is_not_known_is_found_out() {
    let rig = rig(Wiring::Local);
    let fs = rig.mount();
    let (fid, h) = make(&fs, "f", PLAIN);
    fs.write(h, 0, &pattern(1, 5000)).unwrap();
    let first = rig.ost_at(fid, 0);
    rig.set_only_full(first);
    *rig.mdt.refuses.lock() = Some((wire::meta::MoveTail::CALL, Code::Timeout));
    assert_eq!(code(fs.write(h, 5000, &pattern(2, 5000))), Code::NoSpace);
    *rig.mdt.refuses.lock() = None;
    assert_eq!(fs.write(h, 5000, &pattern(3, 5000)), Ok(5000));
    assert_eq!(rig.ost_at(fid, 5000), 1 - first);
    assert!(read(&fs, h, 0, 20_000).unwrap() == [pattern(1, 5000), pattern(3, 5000)].concat());
}
