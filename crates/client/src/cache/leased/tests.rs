use std::sync::atomic::AtomicU64;

use types::{Attr, Time};

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
    let TimeOuts { name, attr } = leased.time_outs(leave, true);
    let beside_others = leased.time_outs(leave, false);
    assert_eq!(
        (beside_others.name, beside_others.attr.is_zero()),
        (Duration::ZERO, attr.is_zero()),
        "client-LE5"
    );
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
    assert_eq!(may(&leased, &absent), (true, false));
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
    leased.on_forget(Some(Box::new(move |fids| to.lock().push(fids.to_vec()))));
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
    assert!(!leased.time_outs(&leave, true).name.is_zero());
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

/// client-LE5.
#[test]
fn how_long_the_kernel_may_use_names_is_known() {
    let leased = leased();
    let leave = look(&leased, b"a", 9);
    assert!(leased.names_left().is_zero());
    leased.time_outs(&leave, false);
    assert!(leased.names_left().is_zero(), "beside others it caches none");
    let name = leased.time_outs(&leave, true).name;
    assert!(name <= Duration::from_secs(1) && leased.names_left() >= name);
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
