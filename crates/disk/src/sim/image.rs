//! The bytes of a medium, or of two, in pieces that copies share until one of them is written: a crash test makes thousands of copies that differ
//! in a few sectors.

use std::sync::Arc;

const CHUNK_BYTES: usize = 4096;

#[derive(Clone, Debug)]
pub struct Image {
    chunks: Vec<Arc<[u8; CHUNK_BYTES]>>,
    bytes: usize,
    /// Where the second medium begins; the end, if there is none.
    pub second_at: usize,
}

impl Image {
    pub fn zeros(bytes: usize) -> Image {
        let zeros = Arc::new([0; CHUNK_BYTES]);
        Image { chunks: vec![zeros; bytes.div_ceil(CHUNK_BYTES)], bytes, second_at: bytes }
    }

    pub fn from_bytes(bytes: &[u8]) -> Image {
        let mut image = Image::zeros(bytes.len());
        image.write(0, bytes);
        image
    }

    pub fn len(&self) -> usize {
        self.bytes
    }

    pub fn read(&self, at: usize, out: &mut [u8]) {
        let mut done = 0;
        while done < out.len() {
            let (chunk, skip, len) = part(at + done, out.len() - done);
            out[done..done + len].copy_from_slice(&self.chunks[chunk][skip..skip + len]);
            done += len;
        }
    }

    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let (chunk, skip, len) = part(at + done, bytes.len() - done);
            let (new, old) = (&bytes[done..done + len], &mut self.chunks[chunk]);
            if old[skip..skip + len] != *new {
                Arc::make_mut(old)[skip..skip + len].copy_from_slice(new);
            }
            done += len;
        }
    }
}

/// The chunk that holds byte `at`, where in it, and how many of `len` bytes lie in it.
fn part(at: usize, len: usize) -> (usize, usize, usize) {
    let skip = at % CHUNK_BYTES;
    (at / CHUNK_BYTES, skip, len.min(CHUNK_BYTES - skip))
}
