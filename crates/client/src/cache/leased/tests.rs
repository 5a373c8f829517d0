use std::sync::atomic::AtomicU64;

use types::{Attr, Time};

use super::kernel::{InKernel, Moved, SHARD_MAX, SWEEP_EACH_MS};
use super::*;

const DIR: Fid = Fid(7);
const ME: SessionId = SessionId(1);
const LEASED: u16 = Flags::NAMES_LEASED | Flags::ATTRS_LEASED;

fn inode(fid: u64) -> Inode {
    let now = Time::new(1, 0);
    let attr = Attr {
        fid: Fid(fid),
        kind: Kind::File,
        mode: 0o644,
        uid: 0,
        gid: 0,
        nlink: 1,
        rdev: 0,
        size: 3,
        blocks: 1,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
    };
    Inode { attr, layout: None, state: FileState::Settled, flags: 0 }
}

fn leased() -> Leased {
    let leased = Leased::default();
    leased.renewed(Leased::renewal());
    leased
}

fn told(since: Since, flags: u16) -> Told {
    Told { since, flags, me: ME }
}

/// A lookup that is answered at once.
fn look(leased: &Leased, name: &[u8], fid: u64) -> Leave {
    leased.keep(&told(leased.since(), LEASED), DIR, name, Some(&inode(fid)))
}

fn is_known(leased: &Leased, name: &[u8]) -> Option<bool> {
    leased.name(DIR, name).map(|(known, _)| matches!(known, Known::There(_, Some(_))))
}

fn may(leased: &Leased, leave: &Leave) -> (bool, bool) {
    let _replying = leased.replying(DIR);
    let TimeOuts { name, attr } = leased.time_outs(leave, Some((b"a", false)), false);
    let without_name = leased.time_outs(leave, None, false);
    assert_eq!((without_name.name, without_name.attr.is_zero()), (Duration::ZERO, attr.is_zero()));
    (!name.is_zero(), !attr.is_zero())
}

fn forget(name: &[u8], fid: u64, whole: bool) -> Forgotten {
    let h64 = if name.is_empty() { 0 } else { h64(name) };
    Forgotten { dir: DIR, h64, fid: Fid(fid), whole }
}

fn made(leased: &Leased, name: &[u8], fid: u64) -> Leave {
    let touches = vec![Touch::Attr { fid: DIR }, Touch::Name { dir: DIR, h64: h64(name) }];
    leased.change(touches).end((LEASED, ME), Fate::Made(name, &inode(fid)))
}

fn removed(leased: &Leased, name: &[u8]) {
    let touches = vec![Touch::Attr { fid: DIR }, Touch::Name { dir: DIR, h64: h64(name) }];
    leased.change(touches).end((0, ME), Fate::Removed);
}

fn listing(names: &[(&[u8], u64)], more: bool) -> Arc<Listing> {
    let name = |(name, fid): &(&[u8], u64)| crate::cache::listing::Name {
        name: (*name).into(),
        fid: Fid(*fid),
        kind: Kind::File,
        cookie: h64(name),
    };
    Arc::new(Listing { parent: Fid::ROOT, names: names.iter().map(name).collect(), more })
}

#[test]
fn what_was_answered_as_leased_is_used_and_may_go_to_the_kernel() {
    let leased = leased();
    assert_eq!((leased.flags_for(DIR), leased.flags_for_attr(Fid(9))), (Flags::LEASE_WANTED, 0));
    let leave = look(&leased, b"a", 9);
    assert_eq!((is_known(&leased, b"a"), may(&leased, &leave)), (Some(true), (true, true)));
    assert_eq!(leased.flags_for(DIR), Flags::LEASE_HELD);
    assert_eq!(leased.flags_for_attr(Fid(9)), Flags::LEASE_HELD);
    assert!(leased.attr(Fid(9)).is_some() && leased.attr(Fid(10)).is_none());
    let absent = leased.keep(&told(leased.since(), LEASED), DIR, b"none", None);
    assert!(matches!(leased.name(DIR, b"none"), Some((Known::Absent, _))));
    assert_eq!(may(&leased, &absent), (false, false), "most programs make it next");
    assert_eq!(may(&leased, &absent), (true, false), "but not one that asks again");
    assert_eq!(is_known(&leased, b"other"), None);
}

#[test]
fn an_answer_without_the_flags_or_of_an_unfit_inode_is_not_kept() {
    let leased = leased();
    let keep = |name: &[u8], flags, inode: &Inode| {
        let leave = leased.keep(&told(leased.since(), flags), DIR, name, Some(inode));
        (is_known(&leased, name), may(&leased, &leave))
    };
    assert_eq!(keep(b"a", 0, &inode(9)), (None, (false, false)));
    assert_eq!(keep(b"b", Flags::NAMES_LEASED, &inode(9)), (Some(false), (true, false)));
    let mut two = inode(10);
    two.attr.nlink = 2;
    assert_eq!(keep(b"c", LEASED, &two), (Some(false), (true, false)), "it has another name");
    let writing = |session| Inode { state: FileState::Writing(session), ..inode(11) };
    assert_eq!(keep(b"d", LEASED, &writing(SessionId(2))), (Some(false), (true, false)));
    assert_eq!(keep(b"e", LEASED, &writing(ME)), (Some(true), (true, true)));
    let observer = Leased::default();
    assert_eq!(observer.flags_for(DIR), 0, "a client without a lease asks for none");
}

#[test]
fn an_answer_that_a_notice_overtook_is_not_kept() {
    let leased = leased();
    look(&leased, b"a", 9);
    for item in [forget(b"a", 0, false), forget(b"", 9, false), forget(b"", 0, true)] {
        let since = leased.since();
        leased.forget(&[item]);
        let leave = leased.keep(&told(since, LEASED), DIR, b"a", Some(&inode(9)));
        assert_eq!((is_known(&leased, b"a").unwrap_or(false), may(&leased, &leave)), (false, (false, false)));
        look(&leased, b"a", 9);
    }
}

#[test]
fn a_notice_drops_what_it_names_and_tells_the_kernel() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let (leased, to) = (leased(), told.clone());
    leased.on_forget(Some(Arc::new(Heard { fids: to, ..Heard::default() })));
    let leave = (look(&leased, b"a", 9), look(&leased, b"b", 10));
    leased.forget(&[forget(b"", 9, false)]);
    assert_eq!((is_known(&leased, b"a"), is_known(&leased, b"b")), (Some(false), Some(true)));
    assert_eq!(told.lock().pop(), Some(vec![Fid(9)]));
    assert_eq!(may(&leased, &leave.0), (false, false), "what was judged before is void");
    leased.forget(&[forget(b"b", 0, false)]);
    assert_eq!((is_known(&leased, b"a"), is_known(&leased, b"b")), (Some(false), None));
    assert_eq!(told.lock().pop(), Some(vec![Fid(10)]));
    assert!(leased.attr(Fid(10)).is_none(), "client-LE4");
    look(&leased, b"c", 11);
    leased.forget(&[forget(b"", 0, true)]);
    let mut fids = told.lock().pop().unwrap();
    fids.sort();
    assert_eq!(fids, [Fid(9), Fid(11)]);
    assert_eq!((leased.flags_for(DIR), leased.count.load(Ordering::SeqCst)), (Flags::LEASE_WANTED, 0));
}

#[test]
fn a_change_here_drops_what_it_touches_and_what_was_read_meanwhile() {
    let leased = leased();
    look(&leased, b"a", 9);
    let since = leased.since();
    let change = leased.change(vec![Touch::Attr { fid: Fid(9) }]);
    let late = leased.keep_attr(&told(since, LEASED), &inode(9));
    assert_eq!(may(&leased, &late), (false, false), "it left before the change");
    let during = leased.keep_attr(&told(leased.since(), LEASED), &inode(9));
    assert_eq!(may(&leased, &during), (false, true));
    change.end((0, ME), Fate::Other);
    assert_eq!((is_known(&leased, b"a"), may(&leased, &during)), (Some(false), (false, false)));
    // One that was refused changes nothing.
    look(&leased, b"a", 9);
    leased.change(vec![Touch::Name { dir: DIR, h64: h64(b"a") }]).did_nothing();
    assert_eq!(is_known(&leased, b"a"), Some(true));
    // One whose outcome is not known may have.
    drop(leased.change(vec![Touch::Name { dir: DIR, h64: h64(b"a") }]));
    assert_eq!(is_known(&leased, b"a"), None);
}

#[test]
fn a_complete_directory_stays_so_through_changes_here() {
    let leased = leased();
    let inodes = HashMap::from([(Fid(9), inode(9))]);
    leased.keep(&told(leased.since(), LEASED), Fid::ROOT, b"dir", Some(&inode(DIR.0)));
    leased.keep_listing(
        &told(leased.since(), LEASED),
        DIR,
        &listing(&[(b"a", 9), (b"b", 10)], false),
        &inodes,
    );
    assert!(leased.listing(DIR).is_some());
    assert_eq!((is_known(&leased, b"a"), is_known(&leased, b"b")), (Some(true), Some(false)));
    let is_absent = |name: &[u8]| matches!(leased.name(DIR, name), Some((Known::Absent, _)));
    assert!(is_absent(b"c") && !is_absent(&[b'x'; 256]) && !is_absent(b".."));
    let leave = made(&leased, b"c", 11);
    assert_eq!((is_known(&leased, b"c"), may(&leased, &leave)), (Some(true), (true, true)));
    assert!(leased.listing(DIR).is_none() && is_absent(b"d"));
    removed(&leased, b"a");
    assert!(is_absent(b"a") && leased.attr(Fid(9)).is_none());
    // Another client makes a name: from here on not all are known.
    leased.forget(&[forget(b"d", 0, false)]);
    assert!(!is_absent(b"d") && !is_absent(b"a") && is_known(&leased, b"c") == Some(true));
}

#[test]
fn a_listing_is_not_complete_if_names_changed_while_it_came_or_it_is_a_part() {
    let is_absent = |leased: &Leased| matches!(leased.name(DIR, b"x"), Some((Known::Absent, _)));
    let whole = listing(&[(b"a", 9)], false);
    let leased = leased();
    let since = leased.since();
    made(&leased, b"b", 10);
    leased.keep_listing(&told(since, LEASED), DIR, &whole, &HashMap::new());
    assert!(!is_absent(&leased) && leased.listing(DIR).is_none(), "it lacks the name that was made");
    let since = leased.since();
    leased.forget(&[forget(b"b", 0, false)]);
    leased.keep_listing(&told(since, LEASED), DIR, &whole, &HashMap::new());
    assert!(!is_absent(&leased));
    leased.keep_listing(&told(leased.since(), LEASED), DIR, &listing(&[(b"a", 9)], true), &HashMap::new());
    assert!(!is_absent(&leased));
    leased.keep_listing(&told(leased.since(), LEASED), DIR, &whole, &HashMap::new());
    assert!(is_absent(&leased));
    assert!(leased.listing(DIR).is_none(), "where the directory lies is not known, so `..` is not");
}

/// A name that another client made anew before the answer to its removal here was read.
#[test]
fn a_removal_that_a_notice_overtook_leaves_the_name_unknown() {
    let leased = leased();
    leased.keep_listing(&told(leased.since(), LEASED), DIR, &listing(&[(b"a", 9)], false), &HashMap::new());
    let change = leased.change(vec![Touch::Name { dir: DIR, h64: h64(b"a") }]);
    leased.forget(&[forget(b"a", 0, false)]);
    leased.keep_listing(&told(leased.since(), LEASED), DIR, &listing(&[(b"a", 12)], false), &HashMap::new());
    change.end((0, ME), Fate::Removed);
    assert!(leased.name(DIR, b"a").is_none());
}

#[test]
fn past_its_end_or_once_void_nothing_is_used_or_kept() {
    let leased = leased();
    let leave = look(&leased, b"a", 9);
    let since = leased.since();
    leased.void();
    assert_eq!((is_known(&leased, b"a"), may(&leased, &leave)), (None, (false, false)));
    assert_eq!(leased.flags_for(DIR), 0);
    leased.renewed(Leased::renewal());
    let late = leased.keep(&told(since, LEASED), DIR, b"a", Some(&inode(9)));
    assert_eq!((is_known(&leased, b"a"), may(&leased, &late)), (None, (false, false)), "of an earlier life");
    look(&leased, b"a", 9);
    // The term runs out.
    leased.ends_ms.store(now_ms(), Ordering::SeqCst);
    assert_eq!((is_known(&leased, b"a"), leased.flags_for(DIR)), (None, 0));
    leased.renewed(Leased::renewal());
    assert_eq!(is_known(&leased, b"a"), None, "others may have changed it since");
}

/// client-LE3: a notice waits for replies that were judged before it, and for no others.
#[test]
fn a_notice_waits_for_replies_that_are_being_written() {
    let (leased, done) = (Arc::new(leased()), Arc::new(AtomicU64::new(0)));
    let leave = look(&leased, b"a", 9);
    let replying = leased.replying(DIR);
    assert!(!leased.time_outs(&leave, None, false).attr.is_zero());
    let thread = {
        let (leased, done) = (leased.clone(), done.clone());
        std::thread::spawn(move || {
            leased.forget(&[forget(b"a", 0, false)]);
            done.store(1, Ordering::SeqCst);
        })
    };
    // The name is gone before the notice waits.
    while is_known(&leased, b"a").is_some() {
        std::thread::yield_now();
    }
    assert_eq!(done.load(Ordering::SeqCst), 0, "the reply has not left");
    drop(replying);
    thread.join().unwrap();
    assert_eq!(done.load(Ordering::SeqCst), 1);
}

type Names = Vec<(Fid, Box<[u8]>)>;

/// A kernel that does what it is told, unless it is busy.
#[derive(Default)]
struct Heard {
    fids: Arc<Mutex<Vec<Vec<Fid>>>>,
    names: Arc<Mutex<Names>>,
    is_busy: bool,
    waiting: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl Kernel for Heard {
    fn attributes(&self, fids: &[Fid]) {
        self.fids.lock().push(fids.to_vec());
    }
    fn names(&self, names: Names, _: &Arc<AtomicBool>, done: Box<dyn FnOnce() + Send>) {
        self.names.lock().extend(names);
        match self.is_busy {
            true => self.waiting.lock().push(done),
            false => done(),
        }
    }
}

fn with_kernel(is_busy: bool) -> (Leased, Arc<Mutex<Names>>) {
    let (leased, names) = (leased(), Arc::new(Mutex::new(Vec::new())));
    leased.on_forget(Some(Arc::new(Heard { names: names.clone(), is_busy, ..Heard::default() })));
    (leased, names)
}

/// A reply that tells the kernel a name, with a short time-out of the name.
fn show(leased: &Leased, name: &[u8], is_dir: bool) -> TimeOuts {
    let leave = look(leased, name, 100 + u64::from(name[0]));
    let _replying = leased.replying(leave.dir());
    leased.time_outs(&leave, Some((name, is_dir)), false)
}

/// How long `does` takes, at least and at most.
fn takes(does: impl FnOnce(), least_ms: u64, most_ms: u64) {
    let begun = now_ms();
    does();
    let took = now_ms() - begun;
    assert!((least_ms..most_ms).contains(&took), "{took} ms");
}

/// client-LE5.
#[test]
fn the_kernel_is_told_of_exactly_the_names_that_it_may_know() {
    let (leased, told) = with_kernel(false);
    for name in [b"a", b"b"] {
        let outs = show(&leased, name, false);
        assert!(!outs.name.is_zero() && outs.name <= Duration::from_millis(NAME_MS));
    }
    look(&leased, b"c", 12);
    leased.forget(&[forget(b"c", 0, false), forget(b"", 9, false)]);
    assert!(told.lock().is_empty(), "it does not know c");
    leased.forget(&[forget(b"a", 0, false)]);
    assert_eq!(told.lock().drain(..).collect::<Vec<_>>(), [(DIR, Box::from(*b"a"))]);
    leased.forget(&[forget(b"a", 0, false)]);
    assert!(told.lock().is_empty(), "once is enough");
    leased.forget(&[forget(b"", 0, true)]);
    assert_eq!(told.lock().drain(..).collect::<Vec<_>>(), [(DIR, Box::from(*b"b"))]);
}

/// client-LE3, client-LE5: a program here may hold the directory's lock until another client has heard from this one.
#[test]
fn a_busy_kernel_delays_a_notice_by_the_time_out_of_the_name() {
    let (leased, told) = with_kernel(true);
    show(&leased, b"a", false);
    takes(|| leased.forget(&[forget(b"a", 0, false)]), NAME_MS / 2, 3 * NAME_MS);
    assert_eq!(told.lock().len(), 1);
}

/// client-LE5: beside others a call may hold the lock until the name has run out, so that is soon.
#[test]
fn beside_other_clients_the_kernel_may_use_a_name_for_a_shorter_time() {
    let (leased, _) = with_kernel(false);
    let leave = look(&leased, b"a", 197);
    let _replying = leased.replying(leave.dir());
    let outs = |is_shared| leased.time_outs(&leave, Some((b"a", false)), is_shared).name;
    let (alone, shared) = (outs(false), outs(true));
    assert!(!shared.is_zero() && shared <= Duration::from_millis(SHARED_NAME_MS));
    assert!(alone > 2 * shared, "{alone:?}, {shared:?}");
}

/// The notice would take a working directory from programs, or what is mounted on it.
#[test]
fn subdirectories_of_a_lost_directory_run_out() {
    let (leased, told) = with_kernel(false);
    show(&leased, b"d", true);
    show(&leased, b"f", false);
    assert!(show(&leased, b"d", true).name < show(&leased, b"f", false).name);
    leased.forget(&[forget(b"", 0, true)]);
    assert_eq!(told.lock().drain(..).collect::<Vec<_>>(), [(DIR, Box::from(*b"f"))]);
    assert!(show(&leased, b"f", false).name.is_zero(), "it may be contested");
    // lease-L5: one that another client removes meanwhile is told.
    leased.forget(&[forget(b"d", 0, false)]);
    assert_eq!(told.lock().len(), 1);
}

#[test]
fn a_name_that_moves_keeps_its_time_out_and_is_told_at_its_new_place() {
    let (leased, told) = with_kernel(false);
    let other = Fid(8);
    let moves = |exchange| leased.kernel_moves((DIR, b"a"), (other, b"b"), exchange);
    assert!(moves(true).1.iter().all(Option::is_none));
    show(&leased, b"a", false);
    let (moving, [moved, back]) = moves(true);
    let Moved { left, is_noted } = moved.unwrap();
    assert!(is_noted && left > Duration::from_millis(NAME_MS / 2) && back.is_none());
    assert!(!leased.is_told_of(other) && leased.is_told_of(DIR));
    // A look while the rename is under way renews nothing.
    assert!(show(&leased, b"a", false).name.is_zero());
    drop(moving);
    assert!(!show(&leased, b"a", false).name.is_zero());
    leased.forget(&[Forgotten { dir: other, h64: h64(b"b"), fid: Fid(0), whole: false }]);
    assert_eq!(told.lock().drain(..).collect::<Vec<_>>(), [(other, Box::from(*b"b"))]);
}

/// The notice waits for the lock that the rename has, and finds the name gone.
#[test]
fn a_rename_moves_a_name_that_the_kernel_is_being_told_to_drop() {
    let (leased, _) = with_kernel(true);
    show(&leased, b"a", false);
    std::thread::scope(|scope| {
        let forgets = scope.spawn(|| leased.forget(&[forget(b"a", 0, false)]));
        while leased.name(DIR, b"a").is_some() {
            std::thread::yield_now();
        }
        let (_moving, [moved, _]) = leased.kernel_moves((DIR, b"a"), (Fid(8), b"b"), false);
        assert!(moved.is_some());
        forgets.join().unwrap();
    });
}

#[test]
fn names_that_an_exchange_moves_are_told_as_what_they_are() {
    let (leased, told) = with_kernel(false);
    show(&leased, b"d", true);
    show(&leased, b"f", false);
    let (_moving, moved) = leased.kernel_moves((DIR, b"d"), (DIR, b"f"), true);
    assert!(moved.iter().all(Option::is_some));
    leased.forget(&[forget(b"", 0, true)]);
    let mut names: Vec<_> = told.lock().drain(..).map(|(_, name)| name).collect();
    names.sort();
    assert_eq!(names, [Box::from(*b"d"), Box::from(*b"f")], "either may be a file");
}

/// The kernel's clock stands still while the machine sleeps.
#[test]
fn a_lease_that_ran_out_tells_the_kernel_of_all_files() {
    let (leased, told) = with_kernel(true);
    show(&leased, b"a", false);
    leased.ends_ms.store(now_ms(), Ordering::SeqCst);
    leased.void_if_over();
    assert_eq!(told.lock().len(), 1);
}

/// After a restart of the MDT no client is told of changes before it has reported, and it reports after that.
#[test]
fn names_whose_leases_are_void_run_out() {
    let (leased, told) = with_kernel(false);
    assert!(leased.void_names_left().is_zero());
    show(&leased, b"a", false);
    assert!(leased.void_names_left().is_zero());
    takes(|| leased.void_with_names(), NAME_MS / 2, 3 * NAME_MS);
    assert!(leased.void_names_left().is_zero() && told.lock().is_empty());
}

/// Dropped for want of memory, names stay leased, and the kernel keeps them.
#[test]
fn the_kernel_keeps_names_that_this_cache_has_no_room_for() {
    let (leased, told) = with_kernel(false);
    show(&leased, b"a", false);
    leased.drop_for_room(DIR);
    assert!(is_known(&leased, b"a").is_none() && told.lock().is_empty());
    leased.renewed(Leased::renewal());
    leased.forget(&[forget(b"a", 0, false)]);
    assert_eq!(told.lock().len(), 1);
}

#[test]
fn names_that_ran_out_make_room_for_others() {
    let mut of = KernelNames::default();
    let note = |of: &mut KernelNames, n: usize, until_ms: u64| {
        let name = n.to_string().into_bytes();
        of.note((DIR, h64(&name)), InKernel { name: name.into(), until_ms, is_dir: false })
    };
    let later = u64::MAX;
    assert!((0..SHARD_MAX).all(|n| note(&mut of, n, if n % 2 == 0 { 1 } else { later })));
    std::thread::sleep(Duration::from_millis(SWEEP_EACH_MS + 10));
    assert!((0..SHARD_MAX / 4).all(|n| note(&mut of, SHARD_MAX + n, later)));
    assert!((0..SHARD_MAX).any(|n| !note(&mut of, 2 * SHARD_MAX + n, later)), "it is bounded");
    assert!(of.count <= SHARD_MAX);
}

#[test]
fn names_beyond_the_bound_go_by_whole_directories() {
    let leased = leased();
    let fill = |dir: u64, count: usize| {
        for n in 0..count as u64 {
            let name = n.to_be_bytes();
            leased.keep(&told(leased.since(), LEASED), Fid(dir), &name, Some(&inode(dir << 32 | n)));
        }
    };
    fill(1, 10);
    fill(2, NAMES_MAX - 20);
    assert!(leased.name(Fid(1), &3u64.to_be_bytes()).is_some());
    fill(3, 10);
    let count = || leased.count.load(Ordering::SeqCst);
    assert!(count() <= NAMES_MAX && leased.name(Fid(3), &9u64.to_be_bytes()).is_some());
    assert!(leased.name(Fid(1), &3u64.to_be_bytes()).is_none(), "a directory that was not used last");
    // A directory that alone is too large goes, too.
    fill(3, NAMES_MAX + 1);
    assert!(count() <= NAMES_MAX);
    let places: usize = leased.places.iter().map(|places| places.lock().len()).sum();
    assert!(places <= count(), "{places}");
}

#[test]
fn a_directory_that_is_removed_here_is_dropped_with_its_name() {
    let leased = leased();
    look(&leased, b"sub", 9);
    leased.keep(&told(leased.since(), LEASED), Fid(9), b"x", None);
    removed(&leased, b"sub");
    assert!(leased.name(Fid(9), b"x").is_none());
    assert_eq!(leased.count.load(Ordering::SeqCst), 1, "the directory that had it is left");
}
