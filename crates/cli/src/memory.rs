//! Available and used memory, as the kernel reports it.

use types::Size;

/// The least default for an MDT.
const MDT_CACHE_MIN: u64 = 64 << 20;

/// The memory for an MDT's records: the configured value, or a quarter of the machine's memory.
pub fn mdt_cache(set: Option<Size>) -> u64 {
    set.map_or_else(|| (of("/proc/meminfo", "MemTotal:") / 4).max(MDT_CACHE_MIN), |size| size.0)
}

/// Resident memory of this process in bytes.
pub fn resident() -> u64 {
    of("/proc/self/status", "VmRSS:")
}

/// Bytes in a line of a /proc file that is in KiB; 0 if the kernel does not report it.
pub fn of(file: &str, line: &str) -> u64 {
    std::fs::read_to_string(file).ok().and_then(|text| kib_of(&text, line)).unwrap_or(0) << 10
}

fn kib_of(text: &str, line: &str) -> Option<u64> {
    text.lines().find_map(|l| l.strip_prefix(line))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_line_is_taken() {
        let text = "VmHWM:\t  9 kB\nVmRSS:\t  4120 kB\nSlab:  7 kB\n";
        assert_eq!(
            (kib_of(text, "VmRSS:"), kib_of(text, "Slab:"), kib_of(text, "None:")),
            (Some(4120), Some(7), None)
        );
        assert!(resident() > 0);
    }
}
