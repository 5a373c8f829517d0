//! meta-H2 with opens that take no writer's role: whatever the order of an open for reading and the taking of the last name, who has it
//! open keeps the file, or is told that it is gone. The order is forced by a hook in the rules.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::{Crash, SimDisk};
use meta::{Ctx, Txn, View};
use parking_lot::Mutex;
use types::*;
use wire::batch::{Batch, Op};
use wire::codec::Bytes;
use wire::meta::*;
use wire::shared::{Close, Hold, Leave, OpenFile};
use wire::{Empty, Header, Reader, ReplyHead, Request, Wire};

use super::rig::{Rig, holds_nothing, label};
use crate::executor::ask::Ask;
use crate::sessions::shared::opens::OPENS_MAX;
use crate::{FormatSpec, Mdt, MetaRules, Rules, Settings};

type Hook = Box<dyn FnOnce() + Send>;

/// Where a hook is called, once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    /// After the rule of an unlink, before it is in the log.
    Unlinked,
    /// At the beginning of a look at what an `OpenRead` asks for: it has its state.
    Looks,
    /// At the beginning of a page of orphans, when a session ends.
    LooksForOrphans,
}

#[derive(Default)]
struct Hooked {
    hooks: Mutex<Vec<(At, Hook)>>,
    /// To let go of it fails.
    fails: Mutex<Option<(Fid, Code)>>,
}

impl Hooked {
    fn on(&self, at: At, hook: impl FnOnce() + Send + 'static) {
        self.hooks.lock().push((at, Box::new(hook)));
    }
    fn is_at(&self, at: At) {
        let hook = {
            let mut hooks = self.hooks.lock();
            hooks.iter().position(|(when, _)| *when == at).map(|n| hooks.remove(n))
        };
        if let Some((_, hook)) = hook {
            hook()
        }
    }
}

struct HookedRules(Arc<Hooked>);

impl Rules for HookedRules {
    fn is_mutation(&self, call: u16) -> Option<bool> {
        MetaRules.is_mutation(call)
    }
    fn mutate(
        &self,
        ctx: &Ctx<'_>,
        txn: &mut dyn Txn,
        call: u16,
        body: &[u8],
        bulk: &[u8],
    ) -> Result<Vec<u8>, Fault> {
        let reply = MetaRules.mutate(ctx, txn, call, body, bulk);
        if call == Unlink::CALL && reply.is_ok() {
            self.0.is_at(At::Unlinked);
        }
        reply
    }
    fn read(
        &self,
        ctx: &Ctx<'_>,
        view: &dyn View,
        call: u16,
        body: &[u8],
        reply: &mut Vec<u8>,
        out: &mut Buf,
    ) -> Result<(), Fault> {
        if call == OpenRead::CALL {
            self.0.is_at(At::Looks);
        }
        MetaRules.read(ctx, view, call, body, reply, out)
    }
    fn format(&self, txn: &mut dyn Txn, now: Time) {
        MetaRules.format(txn, now)
    }
    fn is_formatted(&self, view: &dyn View) -> bool {
        MetaRules.is_formatted(view)
    }
    fn orphans(&self, view: &dyn View, after: Fid, max: usize) -> Vec<(Fid, SessionId)> {
        self.0.is_at(At::LooksForOrphans);
        MetaRules.orphans(view, after, max)
    }
    fn orphan_in(&self, key: &Key, value: &[u8]) -> Option<SessionId> {
        MetaRules.orphan_in(key, value)
    }
    fn reap(&self, txn: &mut dyn Txn, fid: Fid) -> Result<(), Fault> {
        MetaRules.reap(txn, fid)
    }
    fn leave_orphan(&self, txn: &mut dyn Txn, fid: Fid, next: Option<SessionId>) -> Result<(), Fault> {
        MetaRules.leave_orphan(txn, fid, next)
    }
    fn orphan_holder(&self, view: &dyn View, fid: Fid) -> Option<SessionId> {
        MetaRules.orphan_holder(view, fid)
    }
    fn rest(&self, txn: &mut dyn Txn, fid: Fid, era: u64) -> Result<(), Fault> {
        if let Some((_, code)) = self.0.fails.lock().filter(|(bad, _)| *bad == fid) {
            return Err(Fault::new(code, "told to be"));
        }
        MetaRules.rest(txn, fid, era)
    }
    fn dead_list(&self, view: &dyn View, max: usize) -> Vec<(Fid, Layout)> {
        MetaRules.dead_list(view, max)
    }
    fn is_dead(&self, key: &Key) -> bool {
        MetaRules.is_dead(key)
    }
    fn forget_dead(&self, txn: &mut dyn Txn, fid: Fid, generation: Generation) {
        MetaRules.forget_dead(txn, fid, generation)
    }
    fn inodes(&self, view: &dyn View) -> u64 {
        MetaRules.inodes(view)
    }
}

/// Two sessions that share, and a file that the first has made and closed.
struct Two {
    disk: Arc<SimDisk>,
    rig: Arc<Rig>,
    hooked: Arc<Hooked>,
    other: SessionId,
    fid: Fid,
}

fn two() -> Two {
    let disk = Arc::new(SimDisk::new(2 << 20));
    let spec = FormatSpec::for_size(label(), 2 << 20);
    let spec = FormatSpec { log_bytes: 128 << 10, checkpoint_bytes: 512 << 10, ..spec };
    Mdt::format(disk.clone(), &spec, false, &MetaRules, Time::new(5, 0)).unwrap();
    let (hooked, clock) = (Arc::<Hooked>::default(), Arc::<super::rig::HandClock>::default());
    let rules = Arc::new(HookedRules(hooked.clone()));
    let settings = Settings { background: false, clock: clock.clone(), ..Settings::with_rules(rules) };
    let rig = Arc::new(Rig::with(disk.clone(), settings, clock).unwrap());
    assert_eq!(rig.attach(2).unwrap_err().code, Code::NotReady, "the first is to share");
    rig.ask(&holds_nothing(1), rig.session).unwrap();
    let other = rig.attach(2).unwrap().session;
    // Another's whole life first, so that all records are in memory and no request starts over.
    let fid = make(&rig, "warm");
    rig.ask(&OpenRead { fid, read: true, held: None, cred: Cred::root(), want: 0 }, rig.session).unwrap();
    rig.ask(&close_of(vec![fid]), rig.session).unwrap();
    unlink(&rig, "warm");
    let fid = make(&rig, "f");
    Two { disk, rig, hooked, other, fid }
}

fn create_of(name: &str) -> Create {
    Create {
        parent: Fid::ROOT,
        name: name.as_bytes().into(),
        kind: Kind::File,
        mode: 0o644,
        rdev: 0,
        exclusive: true,
        read: false,
        write: true,
        append: false,
        umask: 0,
        now: Time::new(10, 0),
        cred: Cred::root(),
        want: Fid(0),
    }
}

fn make(rig: &Rig, name: &str) -> Fid {
    let fid = rig.ask(&create_of(name), rig.session).unwrap().open.inode.attr.fid;
    rig.ask(&close_of(vec![fid]), rig.session).unwrap();
    fid
}

/// Under a token of its own.
fn close_of(fids: Vec<Fid>) -> Close {
    static LAST: AtomicU64 = AtomicU64::new(0);
    Close { token: LAST.fetch_add(1, Ordering::Relaxed) + 1, floor: 0, fids }
}

fn unlink_of(name: &str) -> Unlink {
    let (name, cred) = (name.as_bytes().into(), Cred::root());
    Unlink { parent: Fid::ROOT, name, held: false, now: Time::new(11, 0), cred }
}

fn unlink(rig: &Rig, name: &str) {
    rig.ask(&unlink_of(name), rig.session).unwrap();
}

impl Two {
    fn opens(&self) -> impl FnOnce() -> Result<Option<OpenReply>, Fault> + Send + use<> {
        let (rig, other, fid) = (self.rig.clone(), self.other, self.fid);
        move || {
            let open = OpenRead { fid, read: true, held: None, cred: Cred::root(), want: 0 };
            rig.ask(&open, other).map(|reply| reply.open)
        }
    }
    fn unlinks(&self) -> impl FnOnce() + Send + use<> {
        let rig = self.rig.clone();
        move || unlink(&rig, "f")
    }
    fn is_there(&self) -> bool {
        self.rig.ask(&GetAttr { fid: self.fid }, self.other).is_ok()
    }
    fn closes(&self) {
        self.rig.ask(&close_of(vec![self.fid]), self.other).unwrap();
    }
}

#[test]
fn h2_a_file_that_was_opened_for_reading_outlives_its_name() {
    let two = two();
    assert!(two.opens()().unwrap().is_some());
    two.unlinks()();
    assert!(two.is_there());
    two.closes();
    assert!(!two.is_there(), "the last close ends it");
}

/// The MDT is killed before it answers who makes a file, and that one asks again. It cannot have said before that it holds what it had
/// not heard of.
#[test]
fn h2_who_hears_of_its_open_from_its_slot_has_the_file_open() {
    let two = two();
    let body = create_of("again").to_bytes();
    let (seq, reply) = two.rig.mutate(Create::CALL, 3, 1, &body).unwrap();
    // It dies with what it kept in mind.
    let image = Arc::new(two.disk.crash(Crash::KeepAll));
    let clock = Arc::<super::rig::HandClock>::default();
    let settings = Settings { background: false, clock: clock.clone(), ..Settings::default() };
    let rig = Rig::with(image, settings, clock).unwrap();
    assert_eq!((rig.session, rig.attach(2).unwrap().session), (two.rig.session, two.other));
    for session in [rig.session, two.other] {
        rig.ask(&holds_nothing(1), session).unwrap();
    }
    assert_eq!(rig.mutate(Create::CALL, 3, 1, &body), Ok((seq, reply.clone())), "from its slot");
    let fid = CreateReply::from_bytes(&reply).unwrap().open.inode.attr.fid;
    rig.ask(&unlink_of("again"), two.other).unwrap();
    assert!(rig.ask(&GetAttr { fid }, rig.session).is_ok(), "it is open");
    rig.ask(&close_of(vec![fid]), rig.session).unwrap();
    assert!(rig.ask(&GetAttr { fid }, rig.session).is_err(), "its last close ends it");
}

/// The unlink has found nobody, and the open comes before it is in the log: what the open would be told is about to be wrong.
#[test]
fn h2_an_open_between_an_unlinks_look_and_its_entry_is_sent_to_the_line() {
    let two = two();
    let (open, said) = (two.opens(), Arc::new(Mutex::new(None)));
    let told = said.clone();
    two.hooked.on(At::Unlinked, move || *told.lock() = Some(open()));
    two.unlinks()();
    let said = said.lock().take().expect("the hook was called");
    assert_eq!(said, Ok(None));
    let now = Time::new(12, 0);
    let open = Open {
        fid: two.fid,
        read: true,
        write: false,
        append: false,
        truncate: false,
        keep_write: false,
        held: None,
        now,
        cred: Cred::root(),
    };
    assert_eq!(two.rig.ask(&open, two.other).unwrap_err().code, Code::Stale);
    assert_eq!(two.opens()().unwrap_err().code, Code::Stale, "nothing is doomed for ever");
}

/// The unlink comes whole between the open's note and its look: it finds the note.
#[test]
fn h2_an_unlink_between_an_opens_note_and_its_look_leaves_the_file() {
    let two = two();
    let (hooked, unlink) = (two.hooked.clone(), two.unlinks());
    // The first look is before the note.
    two.hooked.on(At::Looks, move || hooked.on(At::Looks, unlink));
    assert!(two.opens()().unwrap().is_some());
    assert!(two.hooked.hooks.lock().is_empty(), "both looks were made");
    assert!(two.is_there());
    assert!(two.opens()().unwrap().is_some(), "an orphan can be opened again by its fid");
    two.closes();
    assert!(!two.is_there());
}

/// The unlink comes whole before the note: the look after it finds nothing.
#[test]
fn h2_an_unlink_before_an_opens_note_is_seen_by_its_look() {
    let two = two();
    // The first look has its state already; the second has not.
    two.hooked.on(At::Looks, two.unlinks());
    assert_eq!(two.opens()().unwrap_err().code, Code::Stale);
    assert!(!two.is_there());
    two.closes();
}

/// A transaction that marks a file as pending unlink and does not end it takes the mark back.
#[test]
fn h2_a_mark_of_a_file_that_was_not_ended_is_taken_back() {
    let two = two();
    // A file that has a second name does not end, though its opens were asked for.
    let (fid, name, cred) = (two.fid, b"g"[..].into(), Cred::root());
    let link = Link { fid, parent: Fid::ROOT, name, now: Time::new(11, 0), cred };
    two.rig.ask(&link, two.rig.session).unwrap();
    let open = two.opens();
    let said = Arc::new(Mutex::new(None));
    let told = said.clone();
    two.hooked.on(At::Unlinked, move || *told.lock() = Some(open()));
    two.unlinks()();
    assert_eq!(said.lock().take(), Some(Ok(None)), "it may have been the last");
    assert!(two.opens()().unwrap().is_some());
}

/// A session that has ended holds nothing open, however late its open comes.
#[test]
fn h2_a_session_that_ended_has_nothing_open() {
    let two = two();
    let (rig, other) = (two.rig.clone(), two.other);
    two.hooked.on(At::Looks, move || {
        rig.ask(&wire::session::Detach { session: other }, SessionId(0)).unwrap();
    });
    assert!(two.opens()().is_err());
    two.unlinks()();
    assert!(two.rig.ask(&GetAttr { fid: two.fid }, two.rig.session).is_err(), "nobody keeps it");
}

/// mds-X4: the client has given it up, said so, and opened the file anew; or it was done, and comes once more.
#[test]
fn x4_a_close_that_was_left_or_done_ends_no_later_open() {
    for was_done in [false, true] {
        let two = two();
        let (close, floor) = (close_of(vec![two.fid]), 0);
        assert!(two.opens()().unwrap().is_some());
        match was_done {
            true => assert_eq!(two.rig.ask(&close, two.other), Ok(Empty {})),
            false => {
                let leave = Leave { fid: two.fid, token: close.token, floor };
                two.rig.ask(&leave, two.other).unwrap();
            }
        }
        assert!(two.opens()().unwrap().is_some());
        assert_eq!(two.rig.ask(&close, two.other), Ok(Empty {}), "it comes late");
        two.unlinks()();
        assert!(two.is_there(), "it is open");
        // Nor does one below the floor.
        let late = close_of(vec![two.fid]);
        let leave = Leave { fid: two.fid, token: late.token + 1, floor: late.token + 1 };
        two.rig.ask(&leave, two.other).unwrap();
        assert_eq!(two.rig.ask(&late, two.other), Ok(Empty {}));
        assert!(two.is_there());
        let last = Close { token: late.token + 2, floor: late.token + 2, fids: vec![two.fid] };
        assert_eq!(two.rig.ask(&last, two.other), Ok(Empty {}));
        assert!(!two.is_there(), "the last close ends it");
    }
}

/// One of two files that are closed fails: the other one is closed all the same. What the client is told.
fn closes_all_but_one(code: Code) -> Result<(), Code> {
    let two = two();
    let Two { rig, hooked, fid, other, .. } = &two;
    let bad = make(rig, "bad");
    for fid in [bad, *fid] {
        let open = OpenRead { fid, read: true, held: None, cred: Cred::root(), want: 0 };
        assert!(rig.ask(&open, *other).unwrap().open.is_some());
    }
    *hooked.fails.lock() = Some((bad, code));
    let said = rig.ask(&close_of(vec![bad, *fid]), *other);
    two.unlinks()();
    assert!(!two.is_there(), "nobody has it open");
    said.map(drop).map_err(|fault| fault.code)
}

/// Of one that cannot be read the client need not say so again; of one that could not be read now, it does.
#[test]
fn a_file_that_cannot_be_closed_keeps_none_of_the_others_open() {
    assert_eq!(closes_all_but_one(Code::Damaged), Ok(()));
    assert_eq!(closes_all_but_one(Code::Io), Err(Code::Io));
}

#[test]
fn a_request_does_not_close_files_without_end() {
    let two = two();
    let close = |count| two.rig.ask(&close_of(vec![Fid(1 << 40); count]), two.other);
    assert_eq!(close(64), Ok(Empty {}));
    assert_eq!(close(1025).unwrap_err().code, Code::Invalid);
}

/// mds-X8: what was lost is sent again before its session says what it holds. After that it was given up, and is done only if it was.
#[test]
fn x8_what_was_abandoned_is_not_begun_among_several() {
    let two = two();
    let rig = &two.rig;
    let again = |slot, name: &str| rig.replay(Create::CALL, slot, 1, &create_of(name).to_bytes());
    let done = rig.mutate(Create::CALL, 3, 1, &create_of("done").to_bytes()).unwrap();
    assert_eq!(again(3, "done"), Ok(done), "from its slot");
    assert_eq!(again(4, "late").unwrap_err().code, Code::Stale);
    // A client may report at any time that it closed a file without a name.
    let open = OpenRead { fid: two.fid, read: true, held: None, cred: Cred::root(), want: 0 };
    rig.ask(&open, rig.session).unwrap();
    rig.ask(&unlink_of("f"), two.other).unwrap();
    assert!(two.is_there());
    rig.replay(Release::CALL, 5, 1, &Release { fid: two.fid }.to_bytes()).unwrap();
    assert!(!two.is_there());
    // A new life: it has not said what it holds, and the others are waited for.
    let image = Arc::new(two.disk.crash(Crash::KeepAll));
    let clock = Arc::<super::rig::HandClock>::default();
    let settings = Settings { background: false, clock: clock.clone(), ..Settings::default() };
    let rig = Rig::with(image, settings, clock).unwrap();
    let new = rig.mutate(Create::CALL, 6, 1, &create_of("new").to_bytes());
    assert_eq!(new.unwrap_err().code, Code::NotReady);
    rig.replay(Create::CALL, 4, 1, &create_of("lost").to_bytes()).unwrap();
    rig.ask(&holds_nothing(1), rig.session).unwrap();
    let late = rig.replay(Create::CALL, 6, 1, &create_of("new").to_bytes());
    assert_eq!(late.unwrap_err().detail, refused(), "mds-X1: nor before the others have said what they hold");
}

fn refused() -> String {
    crate::executor::call::refuse_late().detail
}

#[test]
fn an_observer_is_given_no_capability() {
    let two = two();
    let open = OpenRead { fid: two.fid, read: true, held: None, cred: Cred::root(), want: 0 };
    assert!(two.rig.ask(&open, SessionId(0)).is_err());
}

/// A session's end looks at all orphans, of which others may have a million: they go on meanwhile. What the session makes an orphan
/// meanwhile is found, too.
#[test]
fn a_session_that_ends_keeps_nobody_while_its_orphans_are_looked_for() {
    let two = two();
    let Two { rig, hooked, other, .. } = &two;
    let (held, late) = (make(rig, "held"), make(rig, "late"));
    rig.ask(&Unlink { held: true, ..unlink_of("held") }, rig.session).unwrap();
    let (asking, session, other) = (rig.clone(), rig.session, *other);
    let (told, hears) = std::sync::mpsc::channel();
    hooked.on(At::LooksForOrphans, move || {
        let threads = std::thread::spawn(move || {
            asking.ask(&create_of("meanwhile"), other).unwrap();
            asking.ask(&Unlink { held: true, ..unlink_of("late") }, session).unwrap();
            told.send(()).unwrap();
        });
        let was_told = hears.recv_timeout(std::time::Duration::from_secs(10));
        assert!(was_told.is_ok(), "requests stand still while orphans are looked for");
        threads.join().unwrap();
    });
    rig.ask(&wire::session::Detach { session }, session).unwrap();
    for fid in [held, late] {
        assert_eq!(rig.ask(&GetAttr { fid }, other).unwrap_err().code, Code::Stale, "reaped");
    }
}

/// A file of objects that is settled, and what opens it for writing.
fn settled_with_objects(two: &Two) -> Open {
    let (now, fid, rig) = (Time::new(20, 0), two.fid, &two.rig);
    let open = Open {
        fid,
        read: false,
        write: true,
        append: false,
        truncate: false,
        keep_write: false,
        held: None,
        now,
        cred: Cred::root(),
    };
    rig.ask(&open, rig.session).unwrap();
    rig.ask(&Grow { fid, now, held: None, avoid: vec![] }, rig.session).unwrap();
    rig.ask(&close_of(vec![fid]), rig.session).unwrap();
    rig.mdt.core.flush().unwrap();
    open
}

/// mds-M7: the second who opens a file for writing finds that it is being written already, by an entry of the first's that is not flushed.
#[test]
fn m7_who_opens_what_another_just_began_to_write_is_answered_when_that_is_flushed() {
    let two = two();
    let (rig, open) = (&two.rig, settled_with_objects(&two));
    // The first's thread has not come to its flush.
    let core = &rig.mdt.core;
    let (joined, body) = (core.joined().unwrap(), open.to_bytes());
    let head = Header { call: Open::CALL, session: rig.session, ..Header::default() };
    let begun = core
        .carry_out(
            Ask { head: &head, body: &body, bulk: &[], judged: None, root: None, forgot: &vec![] },
            &joined,
        )
        .unwrap();
    assert!(begun.must_flush && core.volume.flushed_seq() < begun.done.seq);
    rig.ask(&open, two.other).unwrap();
    assert!(core.volume.flushed_seq() >= begun.done.seq);
}

/// mds-M7 of one among several in a frame.
#[test]
fn m7_a_batch_that_lets_objects_change_is_answered_when_that_is_flushed() {
    let two = two();
    let (rig, body) = (&two.rig, settled_with_objects(&two).to_bytes());
    let core = &rig.mdt.core;
    let before = core.volume.last_seq();
    let op = Op { call: Open::CALL, slot: 0, sequence: 0, bulk_len: 0, body: Bytes(body) };
    let answers = rig.ask(&Batch { ops: vec![op] }, two.other).unwrap().answers;
    let said = ReplyHead::get(&mut Reader::new(&answers[0].body)).unwrap();
    assert!(said.code == 0 && said.seq > before && core.volume.flushed_seq() >= said.seq, "{said:?}");
}

/// Of a session that ended while its request stood in the line nothing is done, slot or not.
#[test]
fn a_session_that_is_none_any_more_changes_nothing() {
    let two = two();
    let (rig, core) = (&two.rig, &two.rig.mdt.core);
    let (joined, body) = (core.joined().unwrap(), create_of("late").to_bytes());
    rig.ask(&wire::session::Detach { session: two.other }, two.other).unwrap();
    for sequence in [0, 1] {
        let head = Header { call: Create::CALL, session: two.other, sequence, ..Header::default() };
        let said = core.carry_out(
            Ask { head: &head, body: &body, bulk: &[], judged: None, root: None, forgot: &vec![] },
            &joined,
        );
        assert_eq!(said.unwrap_err().code, Code::NoSession);
    }
    assert!(core.sessions.one_user(two.other).is_err(), "nobody's requests are not anybody's");
}

/// As many files as one mount may have open beside others, and one more: it keeps what it has, and others have their own.
#[test]
fn a_session_has_so_many_files_open() {
    let two = two();
    let (rig, fid) = (&two.rig, two.fid);
    let open = |n: usize| OpenFile { fid: Fid(1 << 40 | n as u64), write: false };
    const PART: usize = 1 << 18;
    for part in 0..OPENS_MAX / PART {
        let opens = (part * PART..(part + 1) * PART).map(open).collect();
        rig.ask(&Hold { opens, more: true, ..holds_nothing(1) }, rig.session).unwrap();
    }
    let fault = rig.ask(&create_of("new"), rig.session).unwrap_err();
    assert!(fault.code == Code::NoSpace && fault.detail.contains("close some"), "{fault}");
    let read = OpenRead { fid, read: true, held: None, cred: Cred::root(), want: 0 };
    assert_eq!(rig.ask(&read, rig.session).unwrap_err().code, Code::NoSpace);
    let more = Hold { opens: vec![open(OPENS_MAX)], more: true, ..holds_nothing(1) };
    assert_eq!(rig.ask(&more, rig.session).unwrap_err().code, Code::NoSpace);
    let look = Lookup { parent: Fid::ROOT, name: b"new"[..].into(), cred: Cred::root() };
    assert_eq!(rig.ask(&look, rig.session).unwrap_err().code, Code::NotFound, "a refusal leaves nothing");
    rig.ask(&read, two.other).unwrap();
    // A client may open again a file that it has open.
    rig.ask(&close_of(vec![open(0).fid]), rig.session).unwrap();
    rig.ask(&read, rig.session).unwrap();
    rig.ask(&read, rig.session).unwrap();
    assert_eq!(rig.ask(&create_of("new"), rig.session).unwrap_err().code, Code::NoSpace);
    rig.ask(&close_of(vec![fid]), rig.session).unwrap();
    rig.ask(&create_of("new"), rig.session).unwrap();
}
