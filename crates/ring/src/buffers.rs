//! Buffers for direct I/O, from one piece of memory.

use std::io;
use std::sync::Arc;

use memmap2::{Advice, MmapOptions, MmapRaw};

use crate::PAGE_BYTES;

/// The size of a huge page on every machine that Stria runs on.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Buffers of one size, each at a page boundary; buffers of more than a page lie in huge pages where the kernel has some.
///
/// Huge pages matter: a device takes a bounded number of segments per command, and a transfer from or to scattered pages has
/// one for each 4 KiB. Direct reads of 1 MiB took 2.6 ms into scattered pages and 1.0 ms into a huge one on the same files.
#[derive(Debug)]
pub struct Buffers {
    memory: Arc<MmapRaw>,
    /// Offset of the first buffer in the memory.
    begin: usize,
    /// Bytes of one buffer, which is also the distance to the next.
    each: usize,
    count: usize,
}

impl Buffers {
    /// `count` buffers of at least `bytes` each, rounded up to pages, all zero. Memory is allocated when a buffer is touched.
    pub fn new(count: usize, bytes: usize) -> io::Result<Buffers> {
        let too_large = || io::Error::new(io::ErrorKind::OutOfMemory, "buffers beyond the address space");
        let each = bytes.max(1).checked_next_multiple_of(PAGE_BYTES).ok_or_else(too_large)?;
        let all = each.checked_mul(count.max(1)).ok_or_else(too_large)?;
        let is_huge = each > PAGE_BYTES;
        let len = match is_huge {
            // One huge page more, because the kernel may not place the mapping at a huge page's boundary.
            true => all
                .checked_next_multiple_of(HUGE_PAGE_BYTES)
                .and_then(|all| all.checked_add(HUGE_PAGE_BYTES))
                .ok_or_else(too_large)?,
            false => all,
        };
        let memory = MmapRaw::from(MmapOptions::new().len(len).map_anon()?);
        if is_huge {
            // A hint: a kernel without huge pages uses small ones.
            memory.advise(Advice::HugePage).ok();
        }
        let border = if is_huge { HUGE_PAGE_BYTES } else { PAGE_BYTES };
        let begin = memory.as_ptr().align_offset(border);
        Ok(Buffers { memory: Arc::new(memory), begin, each, count })
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Buffer `index`, below `count`.
    pub fn get(&mut self, index: usize) -> &mut [u8] {
        assert!(index < self.count, "there are {} buffers", self.count);
        // JUSTIFICATION: a slice of the whole memory would also claim buffers that the kernel is writing into (lib.rs, ring-I1); a vector
        // for each buffer would have no huge pages. SAFETY: the memory was mapped for reading and writing, holds `begin + count * each`
        // bytes by `new`, lives as long as `self`, and nothing else of the program refers to these bytes while `self` is borrowed.
        #[expect(unsafe_code, reason = "see above")]
        unsafe {
            let first = self.memory.as_mut_ptr().add(self.begin + index * self.each);
            std::slice::from_raw_parts_mut(first, self.each)
        }
    }

    /// Keeps the memory mapped for ever, even after this is dropped: the kernel may still write into it.
    pub fn keep_for_ever(&self) {
        std::mem::forget(Arc::clone(&self.memory));
    }
}
