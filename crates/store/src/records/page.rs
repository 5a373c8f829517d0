//! A pool of page buffers. Small writes take a page each, and destaging frees a thousand at once. Without the pool the allocator would
//! return such memory to the kernel and fault it in again, page by page.

use std::ops::{Deref, DerefMut};

use parking_lot::Mutex;
use types::PAGE_SIZE;

type Bytes = Box<[u8; PAGE_SIZE]>;

/// Pages that the pool keeps at most, 16 MiB: about as many as destaging frees in a few batches.
const KEPT_MAX: usize = 4096;

static KEPT: Mutex<Vec<Bytes>> = Mutex::new(Vec::new());

/// The bytes of one page.
#[derive(Debug, PartialEq)]
pub struct Page(Option<Bytes>);

impl Page {
    pub fn zeros() -> Page {
        match KEPT.lock().pop() {
            Some(mut kept) => {
                kept.fill(0);
                Page(Some(kept))
            }
            None => Page(Some(Box::new([0; PAGE_SIZE]))),
        }
    }

    pub fn with(bytes: &[u8; PAGE_SIZE]) -> Page {
        match KEPT.lock().pop() {
            Some(mut kept) => {
                kept.copy_from_slice(bytes);
                Page(Some(kept))
            }
            None => Page(Some(Box::new(*bytes))),
        }
    }
}

impl Deref for Page {
    type Target = [u8; PAGE_SIZE];
    fn deref(&self) -> &[u8; PAGE_SIZE] {
        self.0.as_ref().expect("a page has bytes until it goes")
    }
}

impl DerefMut for Page {
    fn deref_mut(&mut self) -> &mut [u8; PAGE_SIZE] {
        self.0.as_mut().expect("a page has bytes until it goes")
    }
}

impl Clone for Page {
    fn clone(&self) -> Page {
        Page::with(self)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let Some(bytes) = self.0.take() else { return };
        let mut kept = KEPT.lock();
        if kept.len() < KEPT_MAX {
            kept.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_again_has_none_of_the_old_bytes() {
        for round in 1..4 {
            let page = Page::with(&[round; PAGE_SIZE]);
            let mut copy = page.clone();
            assert!(page.iter().all(|b| *b == round) && copy == page);
            copy[7] = 0;
            drop((page, copy));
            assert!(Page::zeros().iter().all(|b| *b == 0));
        }
    }
}
