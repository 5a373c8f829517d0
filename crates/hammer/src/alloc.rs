//! Counts the bytes that a call allocates, per thread.
#![allow(
    unsafe_code,
    reason = "JUSTIFICATION: only a global allocator sees what decoding allocates; tests alone link this crate."
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes allocated less bytes freed by this thread; it may free what others allocated.
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

impl Counting {
    fn add(bytes: isize) {
        // A thread that ends has no counters any more.
        let _ = NOW.try_with(|now| {
            now.set(now.get() + bytes);
            let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now.get())));
        });
    }
}

// SAFETY: both functions hand their arguments on to `System` unchanged and return what it returns, so its promises are
// kept; the counters are plain cells without destructors and allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::add(layout.size() as isize);
        // SAFETY: the caller keeps `alloc`'s demands, which are `System`'s.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        Counting::add(-(layout.size() as isize));
        // SAFETY: `at` came from `alloc` above with this layout, so from `System`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The result of `call`, and its peak of allocated bytes.
pub fn peak_of<T>(call: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.get();
    PEAK.set(before);
    let value = call();
    (value, (PEAK.get() - before).max(0) as usize)
}
