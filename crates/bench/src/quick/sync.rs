//! How often a second one page can be overwritten and made durable.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};

use super::workers::{self, Done};
use super::workspace::{Measured, Params};
use crate::aligned::Aligned;
use crate::cache::{self, CacheState};
use crate::pattern::{Mark, PAGE_BYTES, Pattern, next};

/// A database's log or a small table: more would only measure the first write of the file.
pub const FILE_BYTES: u64 = 64 << 20;

/// So many of the writes are read back, cold, afterwards.
const READ_BACK_MAX: u64 = 256;

pub fn measure(root: &Path, params: &Params, pattern: &Pattern, version: u64) -> Result<Measured> {
    let path = root.join("fsync");
    let file_bytes =
        FILE_BYTES.min(params.total_bytes) / params.transfer_bytes as u64 * params.transfer_bytes as u64;
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
    let file = file.with_context(|| format!("opening {}", path.display()))?;
    let mark = Mark { file: 0, version };
    let mut block = vec![0; params.transfer_bytes];
    for offset in (0..file_bytes).step_by(params.transfer_bytes) {
        pattern.fill(mark, offset, &mut block);
        file.write_all_at(&block, offset)?;
    }
    file.sync_all()?;
    cache::settle();

    let changed = Mark { version: u64::MAX - version, ..mark };
    let (mut done, seconds) = workers::run(1, &params.limit(), |_, clock| {
        let mut done = Done::default();
        let mut buffer = Aligned::new(PAGE_BYTES);
        let mut state = params.seed;
        while done.ops < params.random_ops && (done.ops == 0 || !clock.is_over()) {
            let offset = next(&mut state) % (file_bytes / PAGE_BYTES as u64) * PAGE_BYTES as u64;
            pattern.fill(changed, offset, buffer.get());
            done.timed(PAGE_BYTES, || {
                file.write_all_at(buffer.get(), offset)?;
                Ok(file.sync_all()?)
            })?;
        }
        Ok(done)
    })?;
    cache::cool([path.as_path()]);
    let mut state = params.seed;
    let mut page = vec![0; PAGE_BYTES];
    for _ in 0..done.ops.min(READ_BACK_MAX) {
        let offset = next(&mut state) % (file_bytes / PAGE_BYTES as u64) * PAGE_BYTES as u64;
        file.read_exact_at(&mut page, offset)?;
        done.checked += pattern.check(changed, offset, &page, 0)?;
    }
    drop(file);
    std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
    Ok((done, seconds, CacheState::Fresh))
}
