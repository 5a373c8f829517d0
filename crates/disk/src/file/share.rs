//! What a file system has for each of the media that are sparse files on it: they promise more together than there is, and share what is
//! left.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How many media this process has open on each file system, by device number. It is of the whole process, as file systems are.
static SHARED: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());
/// How long a look is good for: each write may ask.
const FRESH: Duration = Duration::from_millis(200);

/// One of those that share a file system's room. Dropped, there is one less.
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

    /// Bytes that this one may count on; `None` if the file system does not say.
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
            *sharers -= 1;
            if *sharers == 0 {
                shared.remove(&self.device);
            }
        }
    }
}
