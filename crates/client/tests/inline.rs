//! Two clients at one inline file: what they write at the same time, and what becomes of it while one of them moves it to objects
//! (decision 0035, meta-O4).

#![allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use client::{Fs, Handle, OpenFlags};
use common::{Cluster, MDT, Wiring, ost_target, pattern, read};
use disk::Crash;
use net::{Answer, Service};
use types::crc::crc32c;
use types::{Buf, Code, Cred, Fid, SessionId, Time};
use wire::meta::{Create, Grow, Place, ReadInline, SeekInline, Switch, WriteInline};
use wire::shared::Enter;
use wire::{Header, Reader, ReplyHead, Request, Wire, object, session};

const LONG: Duration = Duration::from_secs(20);

fn two(cluster: &Cluster) -> (Arc<Fs>, Arc<Fs>) {
    let (a, b) = (cluster.mount_lazy(), cluster.mount_lazy());
    assert!(a.is_shared() && b.is_shared());
    (a, b)
}

fn make(fs: &Fs, bytes: &[u8]) -> (Fid, Handle) {
    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
    let (attr, h) = fs.create(Fid::ROOT, b"f", 0o644, flags, &Cred::root()).unwrap();
    fs.write(h, 0, bytes).unwrap();
    (attr.fid, h)
}

fn open(fs: &Fs, fid: Fid) -> Handle {
    fs.open(fid, OpenFlags::read_write()).unwrap().0
}

// ---- one grows while the other writes small ----

/// The requests of a client during an inline-to-object migration, in order: `Steps` holds one of them.
const MOVES: &[u16] = &[
    Enter::CALL,
    Grow::CALL,
    SeekInline::CALL,
    ReadInline::CALL,
    object::Write::CALL,
    session::Flush::CALL,
    Switch::CALL,
];

#[derive(Default)]
struct State {
    mover: SessionId,
    /// Of the mover's requests, so many pass before one is held.
    to_pass: Option<usize>,
    held: Option<u16>,
    is_over: bool,
    /// Another client stands in line for its turn.
    is_other_waiting: bool,
    /// Replies that sent somebody there.
    sent_to_wait: usize,
    /// What it makes is made, and it hears nothing of it.
    mute: Option<SessionId>,
}

#[derive(Default)]
struct Steps {
    state: Mutex<State>,
    changed: Condvar,
}

impl Steps {
    fn change(&self, f: impl FnOnce(&mut State)) {
        f(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }
    fn wait_until(&self, what: &str, is_so: impl Fn(&State) -> bool) {
        let state = self.state.lock().unwrap();
        let (_state, waited) = self.changed.wait_timeout_while(state, LONG, |s| !is_so(s)).unwrap();
        assert!(!waited.timed_out(), "{what}");
    }
}

/// Stands before each target.
struct Door {
    process: Arc<dyn Service>,
    steps: Arc<Steps>,
}

impl Door {
    fn before_all(cluster: &Cluster) -> Arc<Steps> {
        let steps = Arc::<Steps>::default();
        let osts = (0..cluster.osts.len()).map(ost_target);
        for target in std::iter::once(MDT).chain(osts) {
            let door = Door { process: cluster.process(target), steps: steps.clone() };
            cluster.hub.add(target, Arc::new(door));
        }
        steps
    }
}

impl Service for Door {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        let mut is_held = false;
        self.steps.change(|s| {
            if head.session != s.mover {
                s.is_other_waiting |= head.call == Enter::CALL;
            } else if MOVES.contains(&head.call) {
                match &mut s.to_pass {
                    Some(0) => {
                        (s.held, s.to_pass, is_held) = (Some(head.call), None, true);
                    }
                    Some(n) => *n -= 1,
                    None => {}
                }
            }
        });
        if is_held {
            self.steps.wait_until("it is let go", |s| s.is_over);
        }
        self.process.serve(head, body, bulk, answer);
        if head.call == Create::CALL {
            self.steps.wait_until("it is answered", |s| s.mute != Some(head.session));
        }
        if head.call == WriteInline::CALL {
            let said = ReplyHead::get(&mut Reader::new(&answer.body)).unwrap();
            self.steps.change(|s| s.sent_to_wait += (said.code == Code::NeedSection as u16) as usize);
        }
    }
}

/// The event while the mover is held at a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Nothing,
    Mdt(Crash),
    Osts(Crash),
    MoverDies,
}

/// One run: the mover's write is held at its `step`th request, the other one writes and appends a little, `event` happens. False: there
/// are not so many steps.
fn run(step: usize, event: Event) -> Option<(u16, usize)> {
    let mut cluster = Cluster::quiet(Wiring::Tcp, 2);
    cluster.sessions_live(Duration::from_millis(600));
    let (a, b) = two(&cluster);
    let base = pattern(1, 40_000);
    let (fid, ha) = make(&a, &base);
    let hb = open(&b, fid);
    let steps = Door::before_all(&cluster);
    steps.change(|s| (s.mover, s.to_pass) = (a.session(), Some(step)));
    let moved = pattern(2, 9000);
    let is_done = AtomicBool::new(false);
    let (is_written, held) = std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            let done = a.write(ha, 60_000, &moved);
            steps.change(|s| s.is_over |= s.held.is_none());
            done
        });
        steps.wait_until("a step, or the end", |s| s.held.is_some() || s.is_over);
        let held = steps.state.lock().unwrap().held?;
        let writer = scope.spawn(|| {
            let done = b.write(hb, 100, b"small").and_then(|_| b.append(hb, b"tail"));
            is_done.store(true, Ordering::SeqCst);
            steps.change(|_| {});
            done
        });
        let is_written = || is_done.load(Ordering::SeqCst);
        steps.wait_until("it is done or waits", |s| s.is_other_waiting || is_written());
        let osts = 0..cluster.osts.len();
        match event {
            Event::Nothing => {}
            Event::Mdt(crash) => cluster.crash_mdt(crash),
            Event::Osts(crash) => osts.for_each(|n| cluster.crash_ost(n, crash)),
            // Its request comes late, if at all.
            Event::MoverDies => {
                a.abort();
                cluster.end_session(a.session());
            }
        }
        steps.change(|s| s.is_over = true);
        writer.join().unwrap().unwrap_or_else(|e| panic!("step {step}, {event:?}: {e}"));
        let mover = mover.join().unwrap();
        assert!(mover.is_ok() || event == Event::MoverDies, "step {step}, {event:?}: {mover:?}");
        Some((mover.is_ok(), held))
    })?;
    // Small and tail are there, and all that was there before; what the mover wrote, unless it died.
    let base = [&base[..100], b"small", &base[105..]].concat();
    let with_moved = |mut bytes: Vec<u8>| {
        bytes.resize(60_000, 0);
        [bytes, moved.clone()].concat()
    };
    let first = [&base[..], b"tail"].concat();
    let last = [&with_moved(base.clone())[..], b"tail"].concat();
    let found = read(&b, hb, 0, 100_000).unwrap();
    let is_right = found == last || found == with_moved(first.clone()) || (!is_written && found == first);
    assert!(is_right, "step {step}, {event:?}: {} bytes are otherwise", found.len());
    if event != Event::MoverDies {
        assert!(read(&a, ha, 0, 100_000).unwrap() == found, "step {step}, {event:?}");
    }
    b.write(hb, 50_000, b"it goes on").unwrap();
    assert_eq!(read(&b, hb, 50_000, 10).unwrap(), b"it goes on");
    let sent_to_wait = steps.state.lock().unwrap().sent_to_wait;
    Some((held, sent_to_wait))
}

/// The short form leaves out every second step of an event, but of the one that only waits.
fn at_each_step(event: Event) {
    let is_long = std::env::var_os("STRIA_LONG").is_some();
    let stride = if is_long || event == Event::Nothing { 1 } else { 2 };
    let (mut held, mut sent_to_wait) = (Vec::new(), 0);
    while let Some((call, waited)) = run(held.len() * stride, event) {
        held.push(call);
        sent_to_wait += waited;
    }
    assert!(stride > 1 || MOVES.iter().all(|call| held.contains(call)), "steps: {held:04x?}");
    assert!(held.len() > 2, "steps: {held:04x?}");
    assert!(sent_to_wait > 0, "nobody ever met a growth");
}

/// [S-growth] [S-several-mounts]
#[test]
fn o4_what_another_writes_at_any_step_of_a_growth_is_kept() {
    at_each_step(Event::Nothing);
}

#[test]
fn o4_and_the_mdt_is_killed() {
    at_each_step(Event::Mdt(Crash::KeepAll));
}

#[test]
fn o4_and_the_mdt_loses_power() {
    at_each_step(Event::Mdt(Crash::DropAll));
}

#[test]
fn o4_and_the_osts_are_killed() {
    at_each_step(Event::Osts(Crash::KeepAll));
}

#[test]
fn o4_and_the_osts_lose_power() {
    at_each_step(Event::Osts(Crash::DropAll));
}

#[test]
fn o4_and_who_moves_it_dies() {
    at_each_step(Event::MoverDies);
}

/// The MDT, to which another's write in a section comes just before so many first `Switch`es.
struct Meddling {
    mdt: Arc<dyn Service>,
    fid: Fid,
    other: SessionId,
    left: AtomicUsize,
}

impl Service for Meddling {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        let less = |n: usize| n.checked_sub(1);
        if head.call == Switch::CALL
            && self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
        {
            let (fid, place, crcs) = (self.fid, Place::At(100), vec![crc32c(b"small")]);
            let write = WriteInline { fid, place, in_section: true, crcs, now: Time::new(9, 0), held: None };
            let head = Header { call: WriteInline::CALL, session: self.other, slot: 0, sequence: 0, ..*head };
            let mut bulk = Buf::new();
            let mut said = Answer::new(head, &mut bulk);
            self.mdt.serve(&head, &write.to_bytes(), b"small", &mut said);
            assert_eq!(ReplyHead::get(&mut Reader::new(&said.body)).unwrap().code, Code::Ok as u16);
        }
        self.mdt.serve(head, body, bulk, answer)
    }
}

/// Another client has changed the record and abandoned the migration: the first client starts again, with the other's data.
#[test]
fn o4_who_lives_and_whose_growth_was_given_up_begins_anew() {
    let cluster = Cluster::quiet(Wiring::Tcp, 2);
    let (a, b) = two(&cluster);
    let (base, moved) = (pattern(1, 40_000), pattern(2, 9000));
    let (fid, ha) = make(&a, &base);
    let hb = open(&b, fid);
    let (mdt, other) = (cluster.process(MDT), b.session());
    let meddling = Arc::new(Meddling { mdt, fid, other, left: 2.into() });
    cluster.hub.add(MDT, meddling.clone());
    assert_eq!(a.write(ha, 60_000, &moved), Ok(9000));
    assert_eq!(meddling.left.load(Ordering::SeqCst), 0);
    let mut all = [&base[..100], b"small", &base[105..]].concat();
    all.resize(60_000, 0);
    all.extend(&moved);
    for (fs, h) in [(&a, ha), (&b, hb)] {
        assert!(read(fs, h, 0, 100_000).unwrap() == all);
    }
}

// ---- what was given up ----

/// The MDT, which hears no `WriteInline` of `cut_off`, and says nothing to it.
struct Deaf {
    mdt: Arc<dyn Service>,
    cut_off: SessionId,
    is_deaf: Mutex<bool>,
    changed: Condvar,
}

impl Service for Deaf {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        if (head.session, head.call) == (self.cut_off, WriteInline::CALL) {
            let mut is_deaf = self.is_deaf.lock().unwrap();
            if *is_deaf {
                while *is_deaf {
                    is_deaf = self.changed.wait(is_deaf).unwrap();
                }
                return;
            }
        }
        self.mdt.serve(head, body, bulk, answer)
    }
}

/// mds-X8: its writer was told that it failed, another wrote since, and then the first is heard again: it does not write over that.
#[test]
fn x8_a_write_that_was_given_up_does_not_come_after_what_another_wrote_since() {
    let cluster = Cluster::new(Wiring::Tcp, 1);
    // Much longer than what else it asks for takes on a slow machine.
    let op_timeout = Duration::from_secs(4);
    let a = cluster.mount_with(client::Settings { op_timeout, ..cluster.settings() });
    let b = cluster.mount();
    let (fid, ha) = make(&a, b"first");
    let hb = open(&b, fid);
    let (cut_off, mdt) = (a.session(), cluster.process(MDT));
    let deaf = Arc::new(Deaf { mdt, cut_off, is_deaf: true.into(), changed: Condvar::new() });
    cluster.hub.add(MDT, deaf.clone());
    a.write(ha, 0, b"given up").unwrap_err();
    b.write(hb, 0, b"since").unwrap();
    *deaf.is_deaf.lock().unwrap() = false;
    deaf.changed.notify_all();
    // Whatever it does next, the given-up one goes before it.
    a.mkdir(Fid::ROOT, b"d", 0o755, &Cred::root()).unwrap();
    assert_eq!(read(&b, hb, 0, 100).unwrap(), b"since");
    a.append(ha, b" and more").unwrap();
    assert_eq!(read(&b, hb, 0, 100).unwrap(), b"since and more");
}

// ---- appends ----

/// A line of who wrote it, its number and its length, that is told apart from every other.
fn line(who: u8, n: u32, len: usize) -> Vec<u8> {
    let mut line = pattern(u64::from(n) << 8 | u64::from(who), len);
    line[0] = who;
    line[1..5].copy_from_slice(&n.to_le_bytes());
    line[5..7].copy_from_slice(&(len as u16).to_le_bytes());
    line
}

/// Each line whole, in its writer's order, and none missing.
fn check_lines(all: &[u8], writers: u8, lines: u32) {
    let mut next = vec![0u32; writers.into()];
    let mut rest = all;
    while !rest.is_empty() {
        let (who, len) = (rest[0], u16::from_le_bytes([rest[5], rest[6]]).into());
        let n = next[usize::from(who)];
        assert!(rest[..len] == line(who, n, len), "line {n} of {who}, at {}", all.len() - rest.len());
        next[usize::from(who)] += 1;
        rest = &rest[len..];
    }
    assert_eq!(next, vec![lines; writers.into()]);
}

/// Two threads of each client append; the MDT goes when a part of all lines is there, and comes back as `crash` says.
fn append_lines(lines: u32, len: usize, crashes: &[Crash]) {
    const WRITERS: u8 = 4;
    let mut cluster = Cluster::quiet(Wiring::Tcp, 2);
    cluster.sessions_live(Duration::from_millis(1500));
    let (a, b) = two(&cluster);
    let (fid, ha) = make(&a, b"");
    let hb = open(&b, fid);
    let steps = Arc::<Steps>::default();
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for who in 0..WRITERS {
            let (fs, h) = if who % 2 == 0 { (&a, ha) } else { (&b, hb) };
            let (steps, done) = (&steps, &done);
            scope.spawn(move || {
                for n in 0..lines {
                    let line = line(who, n, len + usize::from(who) * 7);
                    assert_eq!(fs.append(h, &line), Ok(line.len()));
                    done.fetch_add(1, Ordering::SeqCst);
                    steps.change(|_| {});
                }
            });
        }
        for (n, crash) in (1..).zip(crashes) {
            let due = n * lines as usize * usize::from(WRITERS) / (crashes.len() + 1);
            steps.wait_until("some lines", |_| done.load(Ordering::SeqCst) >= due);
            cluster.crash_mdt(*crash);
        }
    });
    for (fs, h) in [(&a, ha), (&b, hb)] {
        check_lines(&read(fs, h, 0, 4 << 20).unwrap(), WRITERS, lines);
    }
}

/// [S-several-mounts]
#[test]
fn appends_lose_and_part_nothing() {
    append_lines(100, 100, &[]);
    // It outgrows its record on the way.
    append_lines(100, 400, &[]);
}

#[test]
fn appends_lose_and_part_nothing_when_the_mdt_is_killed() {
    append_lines(100, 100, &[Crash::KeepAll; 3]);
    append_lines(100, 400, &[Crash::KeepAll; 3]);
}

/// [S-replay]
#[test]
fn appends_lose_and_part_nothing_when_the_mdt_loses_power() {
    append_lines(100, 100, &[Crash::DropAll; 3]);
    append_lines(100, 400, &[Crash::DropAll; 3]);
}

/// What another wrote before it, who is dead, is lost: nobody's zeros stand in its place.
#[test]
fn what_is_appended_again_leaves_no_gap() {
    let mut cluster = Cluster::quiet(Wiring::Tcp, 1);
    let (a, b) = two(&cluster);
    let (fid, ha) = make(&a, b"one ");
    let hb = open(&b, fid);
    b.append(hb, b"two ").unwrap();
    a.append(ha, b"three ").unwrap();
    b.abort();
    cluster.crash_mdt(Crash::DropAll);
    cluster.end_session(b.session());
    assert_eq!(read(&a, ha, 0, 100).unwrap(), b"one three ");
}

/// Another had given a growth up before it, and is dead: that growth stands there again when it is sent again.
#[test]
fn what_was_written_after_a_growth_was_given_up_is_sent_again() {
    let mut cluster = Cluster::quiet(Wiring::Tcp, 1);
    let (a, b) = two(&cluster);
    let (fid, ha) = make(&a, b"one ");
    let hb = open(&b, fid);
    // It is begun, and flushed, and its mover is not heard of any more.
    let steps = Door::before_all(&cluster);
    steps.change(|s| (s.mover, s.to_pass) = (b.session(), Some(2)));
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| b.write(hb, 60_000, &pattern(1, 9000)).unwrap_err());
        steps.wait_until("the growth is begun", |s| s.held.is_some());
        let c = cluster.mount_lazy();
        let hc = open(&c, fid);
        b.abort();
        cluster.end_session(b.session());
        c.append(hc, b"two ").unwrap();
        a.append(ha, b"three ").unwrap();
        c.abort();
        cluster.crash_mdt(Crash::DropAll);
        // The power loss took the end of the first, too.
        [&b, &c].iter().for_each(|fs| cluster.end_session(fs.session()));
        steps.change(|s| s.is_over = true);
        mover.join().unwrap();
    });
    assert_eq!(read(&a, ha, 0, 100).unwrap(), b"one three ");
    assert!(common::inode(&cluster, fid).layout.is_none());
}

/// A file that was made, whose maker heard nothing of it, and then another found and wrote it: it is made again under the same fid.
#[test]
fn what_was_given_up_and_done_is_made_again_for_those_who_found_it() {
    let mut cluster = Cluster::quiet(Wiring::Tcp, 1);
    let (op_timeout, commit_interval) = (Duration::from_secs(2), Duration::from_secs(600));
    let a = cluster.mount_with(client::Settings { op_timeout, commit_interval, ..cluster.settings() });
    let b = cluster.mount_lazy();
    let steps = Door::before_all(&cluster);
    steps.change(|s| s.mute = Some(a.session()));
    a.create(Fid::ROOT, b"f", 0o644, OpenFlags::read_write(), &Cred::root()).unwrap_err();
    steps.change(|s| s.mute = None);
    // Another fid is given out to this one.
    a.mkdir(Fid::ROOT, b"d", 0o755, &Cred::root()).unwrap();
    let fid = b.lookup(Fid::ROOT, b"f").unwrap().fid;
    let hb = open(&b, fid);
    b.write(hb, 0, b"some").unwrap();
    cluster.crash_mdt(Crash::DropAll);
    assert_eq!(b.lookup(Fid::ROOT, b"f").unwrap().fid, fid);
    assert_eq!(read(&b, hb, 0, 100).unwrap(), b"some");
}
