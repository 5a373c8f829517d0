//! Log lines go to stderr, filtered by `STRIA_LOG` (in the syntax of `RUST_LOG`: `debug`, `client=trace,info`).
//!
//! A line that cannot be written is dropped: the disk below a log may be full, and that must not end the logging process.

use std::io::{self, Write};
use std::sync::OnceLock;

use mgmt::params::LEVELS;
use tracing_subscriber::EnvFilter;

/// The environment variable that filters log lines.
pub const FILTER_VARIABLE: &str = "STRIA_LOG";

/// For serving processes: each start, stop and fault is a line with its time.
pub fn start_for_servers() {
    start("info");
}

/// For interactive commands: only warnings and errors.
pub fn start_for_tools() {
    start("warn");
}

fn start(default_filter: &'static str) {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter(default_filter))
        .with_writer(|| Lossy(io::stderr()))
        .with_ansi(false);
    let lines = lines.with_filter_reloading();
    let handle = lines.reload_handle();
    // A second start within one process (tests) keeps the first subscriber.
    if lines.try_init().is_ok() {
        let set = move |level: Option<u64>| {
            let word = level.and_then(|level| LEVELS.get(level as usize));
            // It fails only where the subscriber has ended, and then nothing logs.
            let _ = handle.reload(word.map_or_else(|| filter(default_filter), EnvFilter::new));
        };
        let _ = SET.set(Box::new(set));
        let now = tracing::level_filters::LevelFilter::current().to_string();
        let _ = BEGIN.set(LEVELS.iter().position(|level| *level == now).unwrap_or(0) as u64);
    }
}

fn filter(default_filter: &str) -> EnvFilter {
    EnvFilter::try_from_env(FILTER_VARIABLE).unwrap_or_else(|_| EnvFilter::new(default_filter))
}

static SET: OnceLock<Box<dyn Fn(Option<u64>) + Send + Sync>> = OnceLock::new();

/// Logs lines of this level of `LEVELS` and those above it. `None`: as at the start.
pub fn set_level(level: Option<u64>) {
    SET.get().iter().for_each(|set| set(level));
}

/// The level at the start.
static BEGIN: OnceLock<u64> = OnceLock::new();

/// The level at the start, of the finest lines that the filter lets through.
pub fn level_at_start() -> u64 {
    BEGIN.get().copied().unwrap_or(0)
}

/// A writer that hides errors: the subscriber would print them to stderr, and `eprintln!` panics if that cannot be written.
struct Lossy<W>(W);

impl<W: Write> Write for Lossy<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.write_all(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}

/// As `eprintln!`, but a line that cannot be written is dropped.
pub fn tell(line: &str) {
    let _ = Lossy(io::stderr().lock()).write_all(format!("{line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_below_the_log_is_no_error() {
        let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
        assert!(full().write_all(b"x").is_err());
        let mut log = Lossy(full());
        assert!(log.write_all(b"lost").and_then(|()| log.flush()).is_ok());
    }
}
