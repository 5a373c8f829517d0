//! Numbers of this process, from `/proc/self`, under the names that Prometheus' client libraries use.

use std::fs;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::family::{CPU, FILES, FILES_MAX, MEMORY, START, THREADS};
use crate::sheet::Sheet;

/// Seconds since 1970 at the first call. The caller makes it at the start of the process.
pub fn started() -> f64 {
    static STARTED: OnceLock<f64> = OnceLock::new();
    *STARTED.get_or_init(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64())
}

/// A number that cannot be read is left out.
pub fn add(sheet: &mut Sheet) {
    sheet.add(&START, &[], started());
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the process may have spaces and brackets. Fields are counted behind it, from field 3 on (proc(5)).
    let fields: Vec<&str> =
        stat.rsplit_once(')').map_or(vec![], |(_, rest)| rest.split_whitespace().collect());
    let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    if let (Some(user), Some(system)) = (field(14), field(15)) {
        sheet.add(&CPU, &[], (user + system) / ticks);
    }
    if let Some(threads) = field(20) {
        sheet.add(&THREADS, &[], threads);
    }
    if let Some(pages) = field(24) {
        sheet.add(&MEMORY, &[], pages * rustix::param::page_size() as f64);
    }
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        // The listing itself has one open.
        sheet.add(&FILES, &[], files.count().saturating_sub(1) as f64);
    }
    if let Some(max) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        sheet.add(&FILES_MAX, &[], max as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_tells_all_of_its_numbers() {
        let mut sheet = Sheet::default();
        add(&mut sheet);
        let page = sheet.text();
        for family in [&CPU, &FILES, &FILES_MAX, &MEMORY, &START, &THREADS] {
            assert!(page.contains(&format!("\n{} ", family.shown())), "{}: {page}", family.name);
        }
    }
}
