//! The simplest model of a store's content: byte arrays and tables. It is the oracle of the model test and of all campaigns.

use std::collections::BTreeMap;

use super::ops::Op;
use super::*;

pub const PAGE: usize = PAGE_SIZE;

/// All that recovery has to bring back. Copies share what they have in common.
#[derive(Clone, Default)]
pub struct World {
    pub objects: BTreeMap<ObjectId, Arc<Modelled>>,
    pub sessions: BTreeMap<SessionId, BTreeMap<u32, Slot>>,
    pub damage: BTreeMap<(ObjectId, u64, DamageKind), u64>,
    pub scrub: Scrub,
}

#[derive(Clone, Default)]
pub struct Modelled {
    /// False: only its lease version is known.
    pub exists: bool,
    pub bytes: Vec<u8>,
    pub pages: Vec<Page>,
    pub mtime: Time,
    pub lease: u64,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Page {
    #[default]
    Hole,
    Reserved,
    Data,
}

impl Modelled {
    fn pages(&mut self, first: usize, limit: usize) -> &mut [Page] {
        let len = self.pages.len().max(limit);
        self.pages.resize(len, Page::Hole);
        &mut self.pages[first.min(limit)..limit]
    }
    pub fn used(&self) -> u64 {
        self.pages.iter().filter(|p| **p != Page::Hole).count() as u64 * PAGE as u64
    }
    pub fn attrs(&self) -> Attrs {
        let reserved = self.pages.iter().rposition(|p| *p == Page::Reserved).map_or(0, |p| p + 1) * PAGE;
        let (mtime, lease) = (self.mtime, self.lease);
        let (len, used, reserved_end) = (self.bytes.len() as u64, self.used(), reserved as u64);
        Attrs { exists: self.exists, len, used, reserved_end, mtime, lease }
    }
}

/// When an operation says that the bytes were changed; it follows from the operation, so that both sides say the same.
pub fn mtime_of(op: &Op) -> Time {
    match op {
        Op::Write { salt, .. } => Time::new((salt % 10_000) as i64, 7),
        Op::Reserve { offset, .. } | Op::Punch { offset, .. } => Time::new((offset % 10_000) as i64, 8),
        _ => Time::default(),
    }
}

impl World {
    pub fn existing(&self) -> impl Iterator<Item = (&ObjectId, &Arc<Modelled>)> {
        self.objects.iter().filter(|(_, m)| m.exists)
    }

    pub fn used(&self) -> u64 {
        self.objects.values().map(|m| m.used()).sum()
    }

    /// Sets the slot of an operation that was done.
    pub fn record(&mut self, origin: Option<Origin>, done: Done) {
        let Some(origin) = origin else { return };
        if let Some(slots) = self.sessions.get_mut(&origin.session) {
            let slot = Slot { sequence: origin.sequence, seq: done.seq, answer: done.answer };
            slots.insert(origin.slot, slot);
        }
    }

    /// Carries the operation out and answers as the store has to.
    pub fn apply(&mut self, op: &Op) -> u64 {
        let mtime = mtime_of(op);
        match op {
            Op::Write { object, offset, len, salt, lease } => {
                let (offset, end) = (*offset as usize, *offset as usize + len);
                let m = self.made(object);
                let pages = m.pages(offset / PAGE, end.div_ceil(PAGE));
                let new = pages.iter().filter(|p| **p == Page::Hole).count() as u32;
                pages.fill(Page::Data);
                m.bytes.resize(m.bytes.len().max(end), 0);
                m.bytes[offset..end].copy_from_slice(&pattern(*salt, *len));
                (m.mtime, m.lease) = (m.mtime.max(mtime), m.lease.max(*lease));
                Written { len: m.bytes.len() as u64, pages: new, granted: false }.to_answer()
            }
            Op::Reserve { object, offset, len, end } => {
                let m = self.made(object);
                let pages = m.pages(*offset as usize / PAGE, ((offset + len) as usize).div_ceil(PAGE));
                let count = |what| pages.iter().filter(|p| **p == what).count() as u64;
                let found = Reservation { pages: count(Page::Hole), is_mixed: count(Page::Reserved) > 0 };
                pages.iter_mut().filter(|p| **p == Page::Hole).for_each(|p| *p = Page::Reserved);
                m.bytes.resize(m.bytes.len().max(*end as usize), 0);
                m.mtime = m.mtime.max(mtime);
                found.to_answer()
            }
            Op::Release { object, offset, len } => {
                let Some(m) = self.living(object) else { return 0 };
                let pages = m.pages(*offset as usize / PAGE, ((offset + len) as usize).div_ceil(PAGE));
                pages.iter_mut().filter(|p| **p == Page::Reserved).for_each(|p| *p = Page::Hole);
                m.bytes.len() as u64
            }
            Op::Punch { object, offset, len, leave } => {
                let Some(m) = self.living(object) else { return 0 };
                let (begin, end, size) = (*offset as usize, (offset + len) as usize, m.bytes.len());
                m.bytes[begin.min(size)..end.min(size)].fill(0);
                for page in m.pages(begin.div_ceil(PAGE), end / PAGE) {
                    *page = match (leave, *page) {
                        (Leave::Hole, _) | (_, Page::Hole) => Page::Hole,
                        (Leave::Reserved, _) => Page::Reserved,
                    };
                }
                m.mtime = m.mtime.max(mtime);
                size as u64
            }
            Op::Truncate { object, len } => {
                let Some(m) = self.living(object) else { return 0 };
                m.bytes.resize(*len as usize, 0);
                m.pages.truncate((*len as usize).div_ceil(PAGE));
                *len
            }
            Op::Destroy { objects } => {
                objects.iter().for_each(|id| drop(self.objects.remove(id)));
                0
            }
            Op::Fence { object, lease } => {
                if *lease > self.objects.get(object).map_or(0, |m| m.lease) {
                    Arc::make_mut(self.objects.entry(*object).or_default()).lease = *lease;
                }
                0
            }
            Op::Begin(session) => {
                self.sessions.entry(*session).or_default();
                0
            }
            Op::End(session) => {
                self.sessions.remove(session);
                0
            }
            Op::Damage(d) => {
                self.damage.entry((d.object, d.offset, d.kind)).or_insert(d.found_sec);
                0
            }
            Op::Forget(fid) => {
                self.damage.retain(|(object, _, _), _| *fid != Fid(0) && object.fid != *fid);
                0
            }
            Op::Scrub(scrub) => {
                self.scrub = *scrub;
                0
            }
            Op::Label(_) | Op::Read { .. } | Op::Verify { .. } | Op::Flush | Op::Mark | Op::Seal => 0,
            Op::Checkpoint | Op::Destage { .. } | Op::Discard | Op::Kill | Op::Restart => 0,
        }
    }

    fn made(&mut self, object: &ObjectId) -> &mut Modelled {
        let m = Arc::make_mut(self.objects.entry(*object).or_default());
        m.exists = true;
        m
    }

    fn living(&mut self, object: &ObjectId) -> Option<&mut Modelled> {
        self.objects.get_mut(object).filter(|m| m.exists).map(Arc::make_mut)
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, want: T) -> Result<(), String> {
    if found == want { Ok(()) } else { Err(format!("{what}: found {found:?}, want {want:?}")) }
}

/// Compares what a store holds with what it should; says where they differ.
pub fn compare(store: &Engine, want: &World) -> Result<(), String> {
    compare_tables(store, want)?;
    for (object, m) in want.existing() {
        let bytes = read(store, *object, 0, u32::MAX >> 1).map_err(|e| e.to_string())?.unwrap_or_default();
        if let Some(at) = (0..m.bytes.len().max(bytes.len())).find(|at| bytes.get(*at) != m.bytes.get(*at)) {
            let (found, want) = (bytes.get(at), m.bytes.get(at));
            return Err(format!("{object} differs at {at}: found {found:?}, want {want:?}"));
        }
    }
    Ok(())
}

/// As `compare`, but for the bytes.
pub fn compare_tables(store: &Engine, want: &World) -> Result<(), String> {
    // 1. Which objects there are, and what is said of them.
    let (list, more) = store.list(None, 1000).map_err(|e| e.to_string())?;
    assert!(!more, "the list holds all");
    let wanted: Vec<_> = want.existing().map(|(id, m)| (*id, m.attrs())).collect();
    same("objects", list, wanted)?;
    for n in 0..ops::OBJECTS + 1 {
        let lease = want.objects.get(&id(n)).map_or(0, |m| m.lease);
        same("lease", (n, store.lease(id(n)).map_err(|e| e.to_string())?), (n, lease))?;
    }
    // 2. Sessions, damage, scrub.
    same("session count", store.session_count(), want.sessions.len())?;
    for (session, slots) in &want.sessions {
        let found: Option<BTreeMap<u32, Slot>> = store.slots(*session).map(|all| {
            all.into_iter().enumerate().filter(|(_, s)| s.sequence > 0).map(|(i, s)| (i as u32, s)).collect()
        });
        same("slots", (session, found.as_ref()), (session, Some(slots)))?;
    }
    let damage: BTreeMap<_, _> =
        store.damage().into_iter().map(|d| ((d.object, d.offset, d.kind), d.found_sec)).collect();
    same("damage", &damage, &want.damage)?;
    same("scrub", store.scrub(), want.scrub)?;
    // 3. What is reserved is kept from all others, and nothing else is.
    let usage = store.usage();
    same("bytes used", usage.bytes_total - usage.bytes_free, want.used())?;
    // 4. The books are what counting says.
    check_books(store)
}

/// At rest, the store's counters equal a fresh count.
pub fn check_books(store: &Engine) -> Result<(), String> {
    same("books", books(store), counted(store).map_err(|e| e.to_string())?)
}

/// The store's counters: objects, their bytes in leaves, reserved, patched and named pages, and pages of leaves.
type Books = (u64, u64, [u64; 3], u64, u64);

fn books(store: &Engine) -> Books {
    let pages = store.space.lock().pages();
    let named = store.named.lock().clone();
    assert_eq!(named.twice(), None, "store-N2");
    let of_leaves = store.index.leaves.pages_used();
    let pages = [pages.reserved, pages.patched, pages.patched_over];
    (store.index.objects(), store.index.bytes(), pages, named.count(), of_leaves)
}

fn counted(store: &Engine) -> Result<Books, StoreError> {
    let (mut pages, mut objects, mut bytes, mut count) = ([0; 3], 0, 0, 0);
    let named = store.named.lock().clone();
    for (_, state) in store.index.page(None, usize::MAX)? {
        objects += u64::from(state.exists);
        bytes += state.bytes();
        let of_object = [state.reserved.pages(), state.patches.len() as u64, state.patches.over_pages()];
        pages.iter_mut().zip(of_object).for_each(|(sum, n)| *sum += n);
        for (_, e) in state.extents.iter() {
            count += u64::from(e.run.pages);
            assert!(named.has(e.run), "store-N1: {:?}", e.run);
        }
    }
    let leaves = &store.index.leaves_now().leaves;
    let of_leaves = leaves.iter().flat_map(|leaf| &leaf.place.runs).map(|run| u64::from(run.pages)).sum();
    Ok((objects, bytes, pages, count, of_leaves))
}

/// Bytes, pages with bytes, holes: what one object looks like from an offset on.
pub fn compare_from(
    store: &Engine,
    want: &World,
    object: ObjectId,
    offset: u64,
    len: u32,
) -> Result<(), StoreError> {
    let m = want.objects.get(&object).filter(|m| m.exists);
    let wanted = m.map(|m| {
        let from = (offset as usize).min(m.bytes.len());
        &m.bytes[from..(from + len as usize).min(m.bytes.len())]
    });
    let found = read(store, object, offset, len)?;
    assert!(found.as_deref() == wanted, "read {object} at {offset}, {len} bytes");
    let found = store.seek(object, offset, &anyone).unwrap();
    let pages = m.map_or(&[][..], |m| &m.pages);
    let first = offset as usize / PAGE;
    let at = |page: usize| (page * PAGE).max(offset as usize) as u64;
    let is_data = |p: &usize| pages[*p] == Page::Data;
    let data = (first..pages.len()).find(is_data).map(at);
    let hole = at((first..pages.len()).find(|p| !is_data(p)).unwrap_or(pages.len().max(first)));
    assert_eq!((found.data, found.hole), (data, hole), "{object} from {offset}");
    Ok(())
}
