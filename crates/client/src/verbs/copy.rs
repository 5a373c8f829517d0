//! `copy_file_range`: bytes go from one file to another, or elsewhere in one, without passing through the program.
//!
//! They are read and written as by anybody, so every promise of both holds here; what is saved is the way to the program and back.

use types::{Buf, Code, Fault};

use crate::Fs;
use crate::cache::api::Handle;

/// Copied at a time: enough pieces to keep four targets busy with reading, then with writing.
const CHUNK: usize = 4 << 20;
/// Copied by one call at most, so that it ends well before its deadline and gives its thread back; callers come again.
pub const COPY_MAX: u64 = 64 << 20;

impl Fs {
    /// Copies up to `len` bytes; how many, 0 at the end of the source. After an error bytes may have been copied.
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
                // What was copied before is told; the error meets the next call.
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
