use types::crc::fragment_crcs;
use wire::meta::{Place, ReadInline, Truncate, WriteInline};

use super::*;
use crate::Space;
use crate::testing::*;

/// State of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Is {
    Hole,
    Reserved,
    Data,
}

/// A file beside what it must be.
struct Pair {
    world: World,
    fid: Fid,
    bytes: Vec<u8>,
    pages: [Is; 16],
}

impl Pair {
    fn new() -> Pair {
        let mut world = World::new();
        let fid = world.file(ROOT, "f");
        Pair { world, fid, bytes: vec![], pages: [Is::Hole; 16] }
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Code> {
        let (place, crcs) = (Place::At(offset), fragment_crcs(0, data));
        let now = self.world.now;
        let req = WriteInline { fid: self.fid, place, in_section: false, crcs, now, held: None };
        let space = self.world.space;
        World::with_ctx(false, space, |ctx| crate::inline::write_inline(ctx, &mut self.world.txn, req, data))
            .map_err(|f| f.code)?;
        let end = offset as usize + data.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[offset as usize..end].copy_from_slice(data);
        self.pages[offset as usize / PAGE_SIZE..end.div_ceil(PAGE_SIZE)].fill(Is::Data);
        Ok(())
    }

    fn allocate(&mut self, offset: u64, len: u64, what: (bool, bool, bool)) -> Result<(), Code> {
        let (erase, allocate, grow) = what;
        let (fid, now) = (self.fid, self.world.now);
        self.world.call(AllocateInline { fid, offset, len, erase, allocate, grow, now, held: None })?;
        let (begin, end) = (offset as usize, (offset + len) as usize);
        let size = self.bytes.len();
        if erase {
            self.bytes[begin.min(size)..end.min(size)].fill(0);
            let end = if end > size { size.next_multiple_of(PAGE_SIZE) } else { end };
            for page in begin.div_ceil(PAGE_SIZE)..end / PAGE_SIZE {
                if self.pages[page] != Is::Hole {
                    self.pages[page] = if allocate { Is::Reserved } else { Is::Hole };
                }
            }
        }
        if allocate {
            let pages = &mut self.pages[begin / PAGE_SIZE..end.div_ceil(PAGE_SIZE)];
            pages.iter_mut().filter(|p| **p == Is::Hole).for_each(|p| *p = Is::Reserved);
        }
        if grow {
            self.bytes.resize(size.max(end), 0);
        }
        Ok(())
    }

    fn truncate(&mut self, size: u64) {
        let (fid, now) = (self.fid, self.world.now);
        self.world.call(Truncate { fid, size, now, held: None, cred: cred(0) }).expect("truncate");
        self.bytes.resize(size as usize, 0);
        self.pages[size.div_ceil(PAGE) as usize..].fill(Is::Hole);
    }

    fn check(&mut self, from: u64) {
        let mut out = Buf::new();
        let req = ReadInline { fid: self.fid, offset: 0, len: 1 << 20, held: None };
        World::with_ctx(false, Space::AMPLE, |ctx| {
            crate::inline::read_inline(ctx, &self.world.txn, req, &mut out).expect("read")
        });
        assert!(out[..] == self.bytes[..], "bytes");
        let attr = self.world.attr(self.fid);
        let size = self.bytes.len() as u64;
        assert_eq!(attr.size, size);
        let held = crate::inline::stored_bytes(&self.world.txn, self.fid);
        assert!(held <= size && (attr.blocks * 512).abs_diff(held) < 512 * 16, "{held} {attr:?}");
        let is_any = self.pages.iter().any(|p| *p != Is::Hole);
        assert_eq!(attr.blocks > 0, is_any, "{attr:?} {:?}", self.pages);
        let reserved = (0..16).filter(|p| self.pages[*p] == Is::Reserved).map(|p| 1 << p).sum();
        let sought = self.world.call(SeekInline { fid: self.fid, offset: from, held: None }).expect("seek");
        let within = |p: &usize| *p >= (from / PAGE) as usize && (*p as u64) < size.div_ceil(PAGE);
        let at = |p: usize| (p as u64 * PAGE).max(from);
        let data = (0..16).find(|p| within(p) && self.pages[*p] == Is::Data).map(at);
        let hole = (0..16).find(|p| within(p) && self.pages[*p] != Is::Data).map_or(size, at);
        assert_eq!(sought, SeekInlineReply { data, hole, size, reserved }, "from {from}: {:?}", self.pages);
    }
}

#[test]
fn random_calls_agree_with_bytes_and_pages() {
    for seed in 0..40 {
        let mut rng = disk_free_rng(seed);
        let mut pair = Pair::new();
        for _ in 0..200 {
            let mask = if rng(2) == 0 { !4095 } else { !0 };
            let offset = rng(60_000) & mask;
            let len = (1 + rng(20_000)).min(INLINE_MAX as u64 - offset);
            match rng(10) {
                0..4 => pair.write(offset, &vec![1 + rng(200) as u8; len as usize]).expect("write"),
                4..8 => {
                    let what = (rng(2) == 0, rng(3) > 0, rng(2) == 0);
                    let what = if what.1 { what } else { (true, false, false) };
                    let past_end = offset + len > pair.bytes.len() as u64;
                    let done = pair.allocate(offset, len, what);
                    let refused = what.1 && !what.2 && past_end;
                    assert_eq!(done, if refused { Err(Code::NeedLayout) } else { Ok(()) }, "{what:?}");
                }
                _ => pair.truncate(1 + rng(60_000)),
            }
            pair.check(rng(65_000));
        }
    }
}

/// A small generator of this test's own: rules import no crate of the machine.
fn disk_free_rng(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |n| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    }
}

#[test]
fn what_is_kept_can_be_written_on_a_full_mdt() {
    let mut pair = Pair::new();
    pair.allocate(0, 10_000, (false, true, true)).expect("allocate");
    pair.world.space = FULL;
    assert_eq!(pair.allocate(10_000, 1, (false, true, true)), Err(Code::NoSpace));
    assert_eq!(pair.write(9_999, &[1; 2]), Err(Code::NoSpace));
    pair.write(3, &[1; 9_997]).expect("space is kept for it");
    pair.allocate(0, 10_000, (false, true, true)).expect("it has its space");
    pair.allocate(0, 5_000, (true, false, false)).expect("punch");
    assert_eq!(pair.write(0, &[1; 10]), Err(Code::NoSpace), "it was given up");
    pair.check(0);
}

#[test]
fn ranges_past_every_limit_are_refused() {
    let mut pair = Pair::new();
    let max = INLINE_MAX as u64;
    assert_eq!(pair.allocate(0, max + 1, (false, true, true)), Err(Code::NeedLayout));
    assert_eq!(pair.allocate(FILE_SIZE_MAX, 1, (true, false, false)), Err(Code::FileTooBig));
    assert_eq!(pair.allocate(u64::MAX, 2, (true, false, false)), Err(Code::FileTooBig));
    pair.allocate(0, FILE_SIZE_MAX, (true, false, false)).expect("nothing is there");
    let (dir, now) = (pair.world.dir(ROOT, "d"), pair.world.now);
    let req = AllocateInline {
        fid: dir,
        offset: 0,
        len: 1,
        erase: false,
        allocate: true,
        grow: true,
        now,
        held: None,
    };
    assert_eq!(pair.world.call(req), Err(Code::IsDir));
}
