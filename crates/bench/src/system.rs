//! Describes the machine, as far as results depend on it, and the file system of a directory.

use std::path::Path;

/// Name and value, in the order to be shown. Unknown values are left out.
pub fn describe(dir: &Path) -> Vec<(String, String)> {
    let read = |path: &str| std::fs::read_to_string(path).ok().map(|t| t.trim().to_owned());
    let mut all: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            all.push((name.into(), value));
        }
    };
    let uname = rustix::system::uname();
    add(
        "kernel",
        Some(format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy())),
    );
    add("architecture", Some(uname.machine().to_string_lossy().into_owned()));
    let model = read("/proc/cpuinfo").and_then(|text| field(&text, "model name"));
    add("processors", Some(format!("{} x {}", cpus(), model.unwrap_or_else(|| "unknown".into()))));
    add(
        "virtual machine",
        read("/proc/cpuinfo").and_then(|t| field(&t, "flags")).map(|flags| {
            if flags.split(' ').any(|flag| flag == "hypervisor") { "yes".into() } else { "no".into() }
        }),
    );
    add("memory", Some(format!("{} MiB", ram_bytes() >> 20)));
    add("directory", Some(dir.display().to_string()));
    if let Some(mount) = mount_of(dir) {
        add("file system", Some(mount.file_system));
        add("mount options", Some(mount.options));
    }
    if let Ok(stat) = rustix::fs::statvfs(dir) {
        let gib =
            |blocks: u64| format!("{:.1} GiB", blocks as f64 * stat.f_frsize as f64 / f64::from(1 << 30));
        add("size, free", Some(format!("{}, {}", gib(stat.f_blocks), gib(stat.f_bavail))));
    }
    add(
        "dirty pages",
        read("/proc/sys/vm/dirty_background_ratio").zip(read("/proc/sys/vm/dirty_ratio")).map(
            |(background, most)| {
                format!("written back from {background} % of memory on, writers wait from {most} % on")
            },
        ),
    );
    all
}

/// A field of a file of `name : value` lines.
fn field(text: &str, name: &str) -> Option<String> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.into_iter().find(|(n, _)| n.trim() == name).map(|(_, v)| v.trim().to_owned())
}

pub fn cpus() -> u64 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u64)
}

/// Bytes of memory of this machine.
pub fn ram_bytes() -> u64 {
    rustix::system::sysinfo().totalram as u64 * u64::from(rustix::system::sysinfo().mem_unit.max(1))
}

pub struct Mount {
    /// `TYPE on SOURCE`.
    pub file_system: String,
    pub options: String,
}

/// By the device number, so that the directory's path need not be resolved.
pub fn mount_of(dir: &Path) -> Option<Mount> {
    let dev = rustix::fs::stat(dir).ok()?.st_dev;
    let wanted = format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = table.lines().find(|line| line.split(' ').nth(2) == Some(&wanted))?;
    let (head, tail) = line.split_once(" - ")?;
    let mut tail = tail.split(' ');
    let file_system = format!("{} on {}", tail.next()?, tail.next()?);
    Some(Mount { file_system, options: head.split(' ').nth(5)?.to_owned() })
}

/// Now, UTC: `2026-11-20T12:34:56Z` (RFC 3339).
pub fn utc_now() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    utc(now.as_secs())
}

/// Days to year, month and day by Howard Hinnant's rule, which counts years from March.
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let table = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_210_096, "2024-02-29T12:34:56Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        for (seconds, text) in table {
            assert_eq!(utc(seconds), text);
        }
    }

    #[test]
    fn this_machine_can_be_described() {
        let all = describe(Path::new("/"));
        for name in ["kernel", "processors", "memory", "file system"] {
            assert!(all.iter().any(|(n, v)| n == name && !v.is_empty()), "{name} in {all:?}");
        }
        // The handling of caches is no property of the machine.
        assert!(all.iter().all(|(name, _)| name != "caches"));
        assert!(ram_bytes() > 1 << 20 && cpus() > 0);
    }
}
