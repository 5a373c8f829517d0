//! Memory addresses of words that threads share, only for breakpoints of `perf` that count which thread writes them. No code reads or
//! writes through such an address.

use std::sync::Arc;

/// A named range of this process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    pub name: &'static str,
    pub address: usize,
    pub bytes: usize,
}

/// An `Arc` keeps a strong and a weak count before its value; the value's alignment determines the distance.
const COUNTS_BYTES: usize = 2 * size_of::<usize>();

impl Word {
    pub fn of<T>(name: &'static str, it: &T) -> Word {
        Word { name, address: std::ptr::from_ref(it) as usize, bytes: size_of::<T>() }
    }

    /// The strong count of `arc`.
    pub fn count<T: ?Sized>(name: &'static str, arc: &Arc<T>) -> Word {
        let before = COUNTS_BYTES.next_multiple_of(align_of_val(&**arc));
        let address = Arc::as_ptr(arc).cast::<u8>() as usize - before;
        Word { name, address, bytes: size_of::<usize>() }
    }
}
