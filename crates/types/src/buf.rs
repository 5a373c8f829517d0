//! A reusable byte buffer for bulk data, which is not zeroed again before each use.

/// A buffer of which `len` bytes are visible: `len <= data.len()`. Bytes beyond `len` are left from earlier use and never shown.
#[derive(Default, Debug)]
pub struct Buf {
    data: Vec<u8>,
    len: usize,
}

impl Buf {
    pub fn new() -> Buf {
        Buf::default()
    }
    /// Makes the buffer `len` bytes long and returns them to be overwritten. They may have old content.
    pub fn space(&mut self, len: usize) -> &mut [u8] {
        if self.data.len() < len {
            self.data.resize(len, 0);
        }
        self.len = len;
        &mut self.data[..len]
    }
    pub fn clear(&mut self) {
        self.len = 0;
    }
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
    /// Extends the buffer by `extra` zero bytes.
    pub fn extend_zero(&mut self, extra: usize) {
        let old = self.len;
        self.space(old + extra)[old..].fill(0);
    }
    pub fn set(&mut self, bytes: &[u8]) {
        self.space(bytes.len()).copy_from_slice(bytes);
    }
}

impl std::ops::Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.data[..self.len]
    }
}
impl std::ops::DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.data[..self.len]
    }
}
