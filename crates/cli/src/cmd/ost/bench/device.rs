//! Bytes written to the devices, as the kernel counts them: by any writer, independent of the engine's counters.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use rustix::fs::{major, minor};

use super::engine::Devices;

/// The kernel counts in sectors of 512 bytes, whatever the device has.
const SECTOR_BYTES: u64 = 512;

/// The kernel's counters.
#[derive(Debug)]
pub enum Written {
    /// The counters of block devices.
    Devices(Vec<PathBuf>),
    /// If one is a regular file: all that this process writes, anywhere, through the page cache or not.
    Process,
}

impl Written {
    pub fn of(devices: &Devices) -> std::io::Result<Written> {
        let counter = |device: &PathBuf| {
            let about = fs::metadata(device)?;
            let number = about.rdev();
            let path = format!("/sys/dev/block/{}:{}/stat", major(number), minor(number));
            Ok(about.file_type().is_block_device().then(|| path.into()))
        };
        let devices = [Some(&devices.main), devices.log.as_ref()].into_iter().flatten();
        // Both are examined, even if the first is a file.
        let counters: Vec<Option<_>> = devices.map(counter).collect::<std::io::Result<_>>()?;
        let counters: Option<_> = counters.into_iter().collect();
        Ok(counters.map_or(Written::Process, Written::Devices))
    }

    /// Bytes so far; `None` if the kernel does not count.
    pub fn bytes(&self) -> Option<u64> {
        let of_device = |stat: &PathBuf| sectors(&fs::read_to_string(stat).ok()?).map(|n| n * SECTOR_BYTES);
        match self {
            Written::Devices(stats) => stats.iter().map(of_device).sum(),
            Written::Process => process_bytes(&fs::read_to_string("/proc/self/io").ok()?),
        }
    }
}

/// Sectors written: the seventh number.
fn sectors(stat: &str) -> Option<u64> {
    stat.split_whitespace().nth(6)?.parse().ok()
}

fn process_bytes(io: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix("write_bytes: "))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_number_is_taken() {
        let stat = "     112        0     3208       11       45       12     9000        7        0       20       18        0        0";
        assert_eq!(sectors(stat), Some(9000));
        let io = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 7\n";
        assert_eq!(process_bytes(io), Some(6));
        assert_eq!((sectors("1 2"), process_bytes("")), (None, None));
    }

    #[test]
    fn a_file_is_counted_by_its_process() {
        let dir = crate::testdir::TestDir::new("written");
        let file = dir.path().join("f");
        fs::write(&file, [1; 8192]).unwrap();
        let of = |main: PathBuf, log| Written::of(&Devices { main, log });
        assert!(matches!(of(file.clone(), None), Ok(Written::Process)));
        assert!(matches!(of(file.clone(), Some(file.clone())), Ok(Written::Process)));
        assert!(of(dir.path().join("none"), None).is_err());
        assert!(of(file, Some(dir.path().join("none"))).is_err());
    }
}
