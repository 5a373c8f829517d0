//! Estimates the memory of a phase's workers before they begin: a job that does not fit is refused, not killed half-way.

use ring::HUGE_PAGE_BYTES;

use crate::job::{Engine, Job, Work};
use crate::pattern::PAGE_BYTES;

/// Bytes per worker beside its buffers: three histograms, a timeline, the used part of its stack.
const WORKER_BYTES: u64 = 192 << 10;
/// Quarters of the memory that workers may have: the rest is for the measured file system and its cache.
const QUARTERS_MAX: u64 = 3;

/// Upper bound of the memory of a job's workers, in bytes.
pub fn bytes_of(job: &Job, processes: u32) -> u64 {
    let (buffers, content) = match &job.work {
        Work::Data(data) => {
            let transfer = pages(data.transfer_bytes);
            let depth = if let Engine::Uring { depth } = data.engine { u64::from(depth) } else { 1 };
            // Buffers of more than a page lie in huge pages, which are taken whole.
            let buffers = transfer.saturating_mul(depth);
            let is_huge = transfer > PAGE_BYTES as u64;
            (if is_huge { whole(buffers, HUGE_PAGE_BYTES as u64) } else { buffers }, transfer)
        }
        Work::Names(names) => (pages(names.write_bytes.max(names.read_bytes)), pages(names.write_bytes)),
    };
    let workers = u64::from(job.workers);
    let of_workers = buffers.saturating_add(WORKER_BYTES).saturating_mul(workers);
    // Each process has the content once.
    content.saturating_mul(u64::from(processes).min(workers)).saturating_add(of_workers)
}

fn pages(bytes: u64) -> u64 {
    whole(bytes.max(1), PAGE_BYTES as u64)
}

fn whole(bytes: u64, unit: u64) -> u64 {
    bytes.div_ceil(unit).saturating_mul(unit)
}

/// Why jobs that run at once cannot begin on a machine of `ram` bytes (0: unknown), and what to lower.
pub fn refusal<'a>(jobs: impl Iterator<Item = &'a Job> + Clone, processes: u32, ram: u64) -> Option<String> {
    let needed = jobs.clone().map(|job| bytes_of(job, processes)).fold(0, u64::saturating_add);
    let most = ram / 4 * QUARTERS_MAX;
    if ram == 0 || needed <= most {
        return None;
    }
    let words = jobs.max_by_key(|job| bytes_of(job, processes)).map(what_to_lower).unwrap_or_default();
    Some(format!(
        "its workers would take {} MiB of memory, and {} MiB of this machine's {} may be taken: lower {words}",
        needed >> 20,
        most >> 20,
        ram >> 20
    ))
}

fn what_to_lower(job: &Job) -> String {
    let workers = format!("the workers ({})", job.workers);
    match &job.work {
        Work::Data(data) => {
            let depth = match data.engine {
                Engine::Uring { depth } => format!(", the depth ({depth})"),
                Engine::Sync | Engine::Null => String::new(),
            };
            format!("{workers}{depth} or the transfer ({} bytes)", data.transfer_bytes)
        }
        Work::Names(names) => {
            format!("{workers} or the bytes of a file ({})", names.write_bytes.max(names.read_bytes))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_the_figure_and_what_to_lower() {
        let job = |depth: u64, transfer: u64, workers: u32| -> Job {
            let text = format!(
                r#"{{"work":{{"data":{{"op":"read","order":"random","files":{{"own":{{"stem":"d"}}}},"transfer_bytes":{transfer},
                "block_bytes":{transfer},"segments":1,"shift":0,"ops_max":null,"engine":{{"uring":{{"depth":{depth}}}}},"direct":true,
                "flush":"end","create":false,"version":1,"accept":[1],"read_back":0}}}},"workers":{workers},"limit":{{"seconds":null,
                "warmup_seconds":0.0,"pace":null}},"verify":false,"seed":1,"forget_pages":false}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let fits = job(64, 1 << 20, 16);
        assert_eq!(bytes_of(&fits, 4), (16 * 64 + 4) * (1 << 20) + 16 * WORKER_BYTES);
        assert_eq!(refusal([&fits].into_iter(), 4, 2 << 30), None);
        let small = job(1, 64 << 10, 16);
        assert_eq!(
            bytes_of(&small, 4),
            16 * ((2 << 20) + WORKER_BYTES) + 4 * (64 << 10),
            "huge pages are taken whole"
        );
        assert_eq!(bytes_of(&job(3, 4096, 16), 4), 16 * (3 * 4096 + WORKER_BYTES) + 4 * 4096);
        // Two such at once do not.
        assert!(refusal([&fits, &fits].into_iter(), 4, 2 << 30).is_some());
        let said = refusal([&job(64, 8 << 20, 1024)].into_iter(), 64, 24 << 30).unwrap();
        for word in
            ["524992 MiB", "18432 MiB", "24576", "workers (1024)", "depth (64)", "transfer (8388608 bytes)"]
        {
            assert!(said.contains(word), "{word}: {said}");
        }
        let hostile = job(u64::from(u32::MAX), u64::MAX, u32::MAX);
        assert!(refusal([&hostile].into_iter(), 64, 24 << 30).unwrap().contains("lower"));
    }
}
