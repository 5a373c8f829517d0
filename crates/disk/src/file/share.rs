//! The free space of a file system for each of the sparse files on it: together they promise more than there is, and share the free
//! space that is left.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Number of media that this process has open on each file system, by device number. A static, because file systems are shared by the
/// process.
static SHARED: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());
/// How long a measured value is used: every write may ask for it.
const FRESH: Duration = Duration::from_millis(200);

/// One medium's share of a file system's free space. Dropping it leaves more to the others.
#[derive(Debug)]
pub struct Share {
    file: Arc<File>,
    device: u64,
    seen: Mutex<Option<(Instant, Option<u64>)>>,
}

impl Share {
    pub fn of(file: &Arc<File>) -> Option<Share> {
        let device = file.metadata().ok()?.dev();
        *SHARED.lock().entry(device).or_default() += 1;
        Some(Share { file: file.clone(), device, seen: Mutex::default() })
    }

    /// Free bytes that this medium may count on; `None` if the file system does not report them.
    pub fn room(&self) -> Option<u64> {
        let mut seen = self.seen.lock();
        if let Some((at, room)) = *seen
            && at.elapsed() < FRESH
        {
            return room;
        }
        let room = rustix::fs::fstatvfs(&self.file).ok().map(|stat| {
            let sharers = SHARED.lock().get(&self.device).copied().unwrap_or(1);
            stat.f_bavail.saturating_mul(stat.f_frsize) / sharers.max(1)
        });
        *seen = Some((Instant::now(), room));
        room
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut shared = SHARED.lock();
        if let Some(sharers) = shared.get_mut(&self.device) {
            assert!(*sharers > 0, "a medium that is closed was counted");
            *sharers -= 1;
            if *sharers == 0 {
                shared.remove(&self.device);
            }
        }
    }
}
