//! Where log lines go: stderr, filtered by `STRIA_LOG` (as `RUST_LOG`: `debug`, `client=trace,info`).

use tracing_subscriber::EnvFilter;

/// Names the environment variable that filters log lines.
pub const FILTER_VARIABLE: &str = "STRIA_LOG";

/// For processes that serve: every start, stop and fault is a line with its time.
pub fn start_for_servers() {
    start("info");
}

/// For commands that people run and read: only what they must know.
pub fn start_for_tools() {
    start("warn");
}

fn start(default_filter: &str) {
    let filter = EnvFilter::try_from_env(FILTER_VARIABLE).unwrap_or_else(|_| EnvFilter::new(default_filter));
    let lines =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    // A second start within one process (tests) keeps the first subscriber, which is as good.
    let _ = lines.try_init();
}
