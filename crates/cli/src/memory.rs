//! What memory there is and what is taken, as the kernel tells it.

use types::Size;

/// Least that an MDT is given where nobody says how much.
const MDT_CACHE_MIN: u64 = 64 << 20;

/// What an MDT's records may take: as set, or a quarter of the machine's memory.
pub fn mdt_cache(set: Option<Size>) -> u64 {
    set.map_or_else(|| (of("/proc/meminfo", "MemTotal:") / 4).max(MDT_CACHE_MIN), |size| size.0)
}

/// Of this process, bytes in memory.
pub fn resident() -> u64 {
    of("/proc/self/status", "VmRSS:")
}

/// A line of a file of /proc that tells KiB; 0 where the kernel does not.
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
