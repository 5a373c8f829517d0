//! Metrics of a process as a page for Prometheus.
//!
//! watch-M1: each sample is of a family of `family.rs`, with its labels. `docs/metrics.md` has a row for each family.
//! watch-M2: labels have few values: targets, calls, hosts. Sessions and files are no labels, and jobs are few (watch-M3).

mod connections;
pub mod family;
mod http;
pub mod jobs;
pub mod process;
mod sheet;

pub use http::{Page, Source};
pub use sheet::{CONTENT_TYPE, Labels, Sheet};

use net::Served;

/// Requests of a target, by call.
pub fn add_served(sheet: &mut Sheet, target: &str, served: &[Served]) {
    for call in served {
        let name = if call.name.is_empty() { "unknown" } else { call.name };
        let labels = [target, name];
        let bounds = net::bounds_sec().into_iter().chain([f64::INFINITY]);
        let buckets = bounds.zip(call.buckets).collect();
        sheet.add_buckets(&family::REQUESTS, &labels, call.time.as_secs_f64(), buckets);
        sheet.add(&family::ERRORS, &labels, call.errors as f64);
        sheet.add(&family::BYTES_IN, &labels, call.bytes_in as f64);
        sheet.add(&family::BYTES_OUT, &labels, call.bytes_out as f64);
    }
}
