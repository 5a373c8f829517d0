//! Reads of the newest records by the rules, and what happens if some records are not in memory.
//!
//! The rules' traits know neither damage nor absence, so `trouble` keeps the first such error of a read.
//! mds-V1: after trouble no result of a rule is used, nor its refusal.
//!
//! Absent records are loaded, and the read starts over.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::{Arc, Weak};

use kv::{Absent, Damage, Engine, Miss, View as _};
use parking_lot::{Mutex, RwLock};
use types::{Code, Fault, Key};

/// Most loads of one request. A page of a listing with attributes reads 4096 inodes, and each may be absent. More loads mean that records
/// leave memory before they are used.
const LOADS_MAX: u32 = 8192;

/// Why the result of a rule must not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    Damage(Damage),
    /// Load the record, and start over.
    Absent(Absent),
    /// The rule drew more ids than are reserved.
    NoIds,
    /// The record is longer than a checkpoint or the next start accepts, so it must not be logged.
    TooLong(Key),
}

impl From<Miss> for Trouble {
    fn from(miss: Miss) -> Trouble {
        match miss {
            Miss::Damage(d) => Trouble::Damage(d),
            Miss::Absent(what) => Trouble::Absent(what),
        }
    }
}

impl From<Trouble> for Fault {
    fn from(t: Trouble) -> Fault {
        match t {
            Trouble::Damage(d) => Fault::new(Code::Damaged, d.to_string()),
            Trouble::Absent(what) => Fault::new(Code::NotReady, what.to_string()),
            Trouble::NoIds => Fault::new(Code::NotReady, "no reserved ids are left; try again"),
            Trouble::TooLong(key) => Fault::new(
                Code::NoSpace,
                format!("record {key:?} would be longer than {} bytes", kv::VALUE_MAX),
            ),
        }
    }
}

/// Repeats `attempt` until all records that it needs are in memory. The caller holds no lock that other threads wait for, since a load takes
/// as long as the medium does.
pub fn until_loaded<E: Engine, T>(
    kv: &E,
    attempt: &mut dyn FnMut() -> Result<T, Trouble>,
) -> Result<T, Fault> {
    for _ in 0..LOADS_MAX {
        match attempt() {
            Err(Trouble::Absent(what)) => loaded(kv, what)?,
            done => return done.map_err(Fault::from),
        }
    }
    Err(Fault::new(Code::NotReady, "the MDT's memory is too small for this request's records; try again"))
}

pub fn loaded<E: Engine>(kv: &E, what: Absent) -> Result<(), Fault> {
    let key = what.key;
    kv.load(what).map_err(|e| {
        if !disk::is_passing(&e) {
            tracing::error!(?key, why = %e, "the MDT's medium does not give records back; look at it");
        }
        Fault::new(Code::Io, format!("the MDT's medium does not give record {key:?} back: {e}; try again"))
    })
}

/// Runs `read` over the newest state. It may run several times; only its last result counts.
pub fn look<E: Engine, T>(kv: &E, read: &mut dyn FnMut(&SnapView<'_>) -> T) -> Result<T, Fault> {
    look_over(kv, |view| SnapView::new(view), read)
}

/// As `look`, for readers of single records: ranges continue behind lost ones.
pub fn look_around<E: Engine, T>(kv: &E, read: &mut dyn FnMut(&SnapView<'_>) -> T) -> Result<T, Fault> {
    look_over(kv, |view| SnapView::around(view), read)
}

fn look_over<E: Engine, T>(
    kv: &E,
    view_of: for<'v> fn(&'v dyn kv::View) -> SnapView<'v>,
    read: &mut dyn FnMut(&SnapView<'_>) -> T,
) -> Result<T, Fault> {
    let mut over = |view: &dyn kv::View| {
        let view = view_of(view);
        let found = read(&view);
        view.finish().map(|()| found)
    };
    let what = match over(&kv.reader()) {
        Err(Trouble::Absent(what)) => what,
        done => return done.map_err(Fault::from),
    };
    // From here on over one snapshot, which keeps the leaves that are loaded for it, however little memory there is.
    let snap = kv.snapshot();
    loaded(kv, what)?;
    until_loaded(kv, &mut || over(&snap))
}

/// Records of a state, in the order of keys.
pub struct Page {
    pub records: Vec<(Key, Vec<u8>)>,
    pub next: Next,
}

/// The continuation after a page.
pub enum Next {
    Nothing,
    /// From this key on.
    More(Key),
    /// A lost range. Records go on behind its end.
    Damage(Damage),
}

/// Reads records from `from` on, up to a number of records or bytes.
pub fn page<E: Engine>(
    kv: &E,
    snap: &E::Snap,
    from: &Key,
    records_max: usize,
    bytes_max: usize,
) -> Result<Page, Fault> {
    page_before(kv, snap, from, &end(), records_max, bytes_max)
}

/// The first key behind all records.
pub fn end() -> Key {
    Key::new(&[u8::MAX]).expect("one byte fits")
}

/// As `page`, of records before `until`.
pub fn page_before<E: Engine>(
    kv: &E,
    snap: &E::Snap,
    from: &Key,
    until: &Key,
    records_max: usize,
    bytes_max: usize,
) -> Result<Page, Fault> {
    until_loaded(kv, &mut || {
        let (mut records, mut bytes, mut next) = (Vec::new(), 0, Next::Nothing);
        let walked = snap.range(from, until, &mut |key, value| {
            bytes += value.len();
            records.push((*key, value.to_vec()));
            let is_full = records.len() >= records_max || bytes >= bytes_max;
            if is_full {
                next = Next::More(key.after());
            }
            !is_full
        });
        match walked {
            Err(Miss::Absent(what)) => return Err(Trouble::Absent(what)),
            Err(Miss::Damage(damage)) => next = Next::Damage(damage),
            Ok(()) => {}
        }
        assert!(records.len() <= records_max, "a page has its bound");
        debug_assert!(!matches!(&next, Next::More(key) if key <= from), "the next page begins further on");
        debug_assert!(records.windows(2).all(|two| two[0].0 < two[1].0), "a page is in key order");
        debug_assert!(
            records.first().is_none_or(|(key, _)| from <= key),
            "a page begins where it was asked for"
        );
        Ok(Page { records, next })
    })
}

/// Leaves that a walk loads before it drops them from memory.
const LOADS_KEPT: u64 = 4096;

/// A walk through a whole state of any size. Leaves that it loads do not stay in memory. Another thread may end it, since it keeps the places
/// of leaves on the medium from being reused.
pub struct Walk<E: Engine>(RwLock<Option<Walked<E>>>);

struct Walked<E: Engine> {
    snap: E::Snap,
    loads: u64,
}

impl<E: Engine> Walk<E> {
    pub fn over(snap: E::Snap) -> Walk<E> {
        Walk(RwLock::new(Some(Walked { snap, loads: 0 })))
    }

    /// Reads the next slice. A thread that ends the walk waits for it, so `f` waits for the medium only.
    pub fn slice<T>(&self, kv: &E, f: impl FnOnce(&E::Snap) -> Result<T, Fault>) -> Result<T, Fault> {
        self.forget(kv);
        match &*self.0.read() {
            Some(walked) => f(&walked.snap),
            None => Err(Fault::new(
                Code::Stale,
                "a checkpoint needed the space of the snapshot that this run reads, and ended it; begin anew while less is changed",
            )),
        }
    }

    fn forget(&self, kv: &E) {
        let loads = kv.figures().loads;
        if let Some(walked) = &mut *self.0.write()
            && loads.saturating_sub(walked.loads) >= LOADS_KEPT
        {
            *walked = Walked { snap: kv.forgotten(&walked.snap), loads };
        }
    }

    /// Ends the walk. False: it had ended before.
    fn end(&self) -> bool {
        self.0.write().take().is_some()
    }
}

/// Walks in progress.
pub struct Walks<E: Engine>(Mutex<Vec<Weak<Walk<E>>>>);

impl<E: Engine> Default for Walks<E> {
    fn default() -> Walks<E> {
        Walks(Mutex::default())
    }
}

impl<E: Engine> Walks<E> {
    pub fn begin(&self, snap: E::Snap) -> Arc<Walk<E>> {
        let walk = Arc::new(Walk::over(snap));
        let mut walks = self.0.lock();
        walks.retain(|walk| walk.strong_count() > 0);
        walks.push(Arc::downgrade(&walk));
        walk
    }

    /// Ends all walks. Returns their number.
    pub fn end(&self) -> usize {
        let walks = std::mem::take(&mut *self.0.lock());
        walks.iter().filter_map(Weak::upgrade).filter(|walk| walk.end()).count()
    }
}

/// A state in the form that rules read.
pub struct SnapView<'a> {
    pub snap: &'a dyn kv::View,
    trouble: RefCell<Option<Trouble>>,
    /// Ranges continue behind lost ones.
    goes_around: bool,
}

impl<'a> SnapView<'a> {
    pub fn new(snap: &'a dyn kv::View) -> SnapView<'a> {
        SnapView { snap, trouble: RefCell::new(None), goes_around: false }
    }

    pub fn around(snap: &'a dyn kv::View) -> SnapView<'a> {
        SnapView { goes_around: true, ..SnapView::new(snap) }
    }

    /// Ends the read. An error: a record that it asked for was damaged or absent.
    pub fn finish(self) -> Result<(), Trouble> {
        self.trouble.into_inner().map_or(Ok(()), Err)
    }

    /// Notes trouble. The first one counts. Absent records are joined, so that one load brings all that the rule may need when it starts over.
    /// Damage behind an absence shows again in the next attempt.
    pub fn note(&self, trouble: impl Into<Trouble>) {
        match (&mut *self.trouble.borrow_mut(), trouble.into()) {
            (Some(Trouble::Absent(all)), Trouble::Absent(more)) => all.join(more),
            (first, absent @ Trouble::Absent(_)) => *first = Some(absent),
            (Some(_), _) => {}
            (none, trouble) => *none = Some(trouble),
        }
    }
}

impl meta::View for SnapView<'_> {
    fn get(&self, key: &Key) -> Option<Cow<'_, [u8]>> {
        self.snap.get(key).unwrap_or_else(|miss| {
            self.note(miss);
            None
        })
    }
    fn range(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&Key, &[u8]) -> bool) {
        let mut from = *from;
        while let Err(miss) = self.snap.range(&from, to, f) {
            match miss {
                Miss::Damage(damage) if self.goes_around && from < damage.end => {
                    tracing::error!(%damage, "records of the MDT are passed over");
                    from = damage.end;
                }
                miss => return self.note(miss),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use meta::View;
    use types::Seq;

    use super::*;

    /// Keys 0 to 9, of which 4 to 6 are lost.
    struct Holed;

    const LOST: std::ops::Range<u8> = 4..7;

    fn key(n: u8) -> Key {
        Key::new(&[n]).expect("short")
    }

    impl kv::View for Holed {
        fn get(&self, key: &Key) -> Result<Option<Cow<'_, [u8]>>, Miss> {
            Err(Damage::of(*key).into())
        }
        fn range(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&Key, &[u8]) -> bool) -> Result<(), Miss> {
            for n in (0..10).filter(|n| (*from..*to).contains(&key(*n))) {
                if LOST.contains(&n) {
                    return Err(Damage { key: key(n), end: key(LOST.end) }.into());
                }
                if !f(&key(n), &[]) {
                    break;
                }
            }
            Ok(())
        }
        fn each(&self, _: &mut kv::TakeRecord<'_>) -> std::io::Result<()> {
            Ok(())
        }
        fn size(&self) -> kv::Size {
            kv::Size::default()
        }
        fn seq(&self) -> Seq {
            Seq(0)
        }
    }

    #[test]
    fn who_goes_around_what_is_lost_sees_all_the_rest() {
        let seen = |view: SnapView<'_>, from: u8, to: u8, max: usize| {
            let mut seen = Vec::new();
            view.range(&key(from), &key(to), &mut |key, _| {
                seen.push(key.as_bytes()[0]);
                seen.len() < max
            });
            view.finish().map(|()| seen)
        };
        let around = |from, to, max| seen(SnapView::around(&Holed), from, to, max);
        assert_eq!(around(0, 10, 99), Ok(vec![0, 1, 2, 3, 7, 8, 9]));
        assert_eq!(around(5, 9, 99), Ok(vec![7, 8]));
        assert_eq!(around(2, 6, 99), Ok(vec![2, 3]));
        assert_eq!(around(0, 10, 4), Ok(vec![0, 1, 2, 3]));
        let lost = Trouble::Damage(Damage { key: key(4), end: key(7) });
        assert_eq!(seen(SnapView::new(&Holed), 0, 10, 99), Err(lost));
        // A read by key must know its result, so damage is an error.
        let view = SnapView::around(&Holed);
        assert_eq!(view.get(&key(5)), None);
        assert_eq!(view.finish(), Err(Trouble::Damage(Damage::of(key(5)))));
    }
}
