//! `copy_file_range`: copies bytes between files, or within one, without passing them through the program.
//!
//! It uses the ordinary read and write, so that the promises of both hold.

use types::{Buf, Code, Fault};

use crate::Fs;
use crate::cache::api::Handle;

/// Bytes per step: enough pieces to keep four targets busy with reads, then with writes.
const CHUNK: usize = 4 << 20;
/// Most bytes per call, so that it ends well before its deadline and frees its thread. Callers call again.
pub const COPY_MAX: u64 = 64 << 20;

impl Fs {
    /// Copies up to `len` bytes. Returns their number; 0 at the end of the source. After an error some bytes may have been copied.
    pub fn copy(
        &self,
        from: Handle,
        from_offset: u64,
        to: Handle,
        to_offset: u64,
        len: u64,
    ) -> Result<u64, Fault> {
        let is_one_file = self.opened(from)?.file.fid == self.opened(to)?.file.fid;
        if is_one_file && from_offset.abs_diff(to_offset) < len {
            return Err(Fault::new(Code::Invalid, "a copy within one file overlaps itself"));
        }
        let len = len.min(COPY_MAX);
        let mut buf = self.take_buf();
        let copied = self.copy_chunks(from, from_offset, to, to_offset, len, &mut buf);
        self.give_buf(buf);
        copied
    }

    fn copy_chunks(
        &self,
        from: Handle,
        from_offset: u64,
        to: Handle,
        to_offset: u64,
        len: u64,
        buf: &mut Buf,
    ) -> Result<u64, Fault> {
        let mut done = 0;
        while done < len {
            let want = (len - done).min(CHUNK as u64) as usize;
            let step = self.read(from, from_offset + done, want, buf).and_then(|()| match buf.is_empty() {
                true => Ok(0),
                false => self.write(to, to_offset + done, buf),
            });
            let written = match step {
                // Earlier steps count. The next call meets the error.
                Err(_) if done > 0 => break,
                step => step?,
            };
            done += written as u64;
            if written < want {
                break;
            }
        }
        Ok(done)
    }
}
