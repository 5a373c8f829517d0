//! What memory is taken, as the kernel tells it.

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
