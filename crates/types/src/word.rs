//! Where in memory something lies that threads may share. For breakpoints of `perf` only, which count who writes it: nothing is read
//! or written by such an address.

use std::sync::Arc;

/// Bytes of this process' memory, with what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    pub name: &'static str,
    pub address: usize,
    pub bytes: usize,
}

/// A strong and a weak count stand before what an `Arc` points to, as far before it as its alignment asks.
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
