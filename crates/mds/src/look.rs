//! Reading the newest records: what the rules see of them, and what happens when some of them are not in memory.
//!
//! The rules' traits know no damage and no absence, so what goes wrong below them is kept here (`trouble`): V1: after trouble
//! nothing that a rule computed is used, nor why it refused. What was absent is brought, and the reading starts over.

use std::borrow::Cow;
use std::cell::RefCell;

use kv::{Absent, Damage, Engine, Miss};
use types::{Code, Fault, Key};

/// How often one request may start over because records had to be brought: a page of a listing with attributes looks at 4096
/// inodes, each of which may be away. More means that what was brought does not stay.
const LOADS_MAX: u32 = 8192;

/// Why what a rule computed must not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    Damage(Damage),
    /// Bring it, and start over.
    Absent(Absent),
    /// The rule drew more ids than are reserved.
    NoIds,
    /// What a checkpoint or the next start would refuse must not get into the log.
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

/// Does `attempt` until it misses nothing any more. No lock that others wait for is held meanwhile: a load takes as long as a
/// medium does.
pub fn until_loaded<E: Engine, T>(
    kv: &E,
    attempt: &mut dyn FnMut() -> Result<T, Trouble>,
) -> Result<T, Fault> {
    for _ in 0..LOADS_MAX {
        match attempt() {
            Err(Trouble::Absent(what)) => kv.load(what).map_err(|e| {
                Fault::new(
                    Code::Io,
                    format!("the MDT's medium does not give record {:?} back: {e}", what.key),
                )
            })?,
            done => return done.map_err(Fault::from),
        }
    }
    Err(Fault::new(Code::NotReady, "the MDT's memory is too small for this request's records; try again"))
}

/// What `read` finds in the newest state. It may run several times, and what it gave before is void then.
pub fn look<E: Engine, T>(kv: &E, read: &mut dyn FnMut(&SnapView<'_>) -> T) -> Result<T, Fault> {
    until_loaded(kv, &mut || {
        let reader = kv.reader();
        let view = SnapView::new(&reader);
        let found = read(&view);
        view.finish().map(|()| found)
    })
}

/// A state as the rules read it.
pub struct SnapView<'a> {
    pub snap: &'a dyn kv::View,
    trouble: RefCell<Option<Trouble>>,
}

impl<'a> SnapView<'a> {
    pub fn new(snap: &'a dyn kv::View) -> SnapView<'a> {
        SnapView { snap, trouble: RefCell::new(None) }
    }

    /// Ends the reading: was everything that it saw good?
    pub fn finish(self) -> Result<(), Trouble> {
        self.trouble.into_inner().map_or(Ok(()), Err)
    }

    /// The first trouble counts.
    pub fn note(&self, trouble: impl Into<Trouble>) {
        self.trouble.borrow_mut().get_or_insert(trouble.into());
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
        if let Err(miss) = self.snap.range(from, to, f) {
            self.note(miss);
        }
    }
}
