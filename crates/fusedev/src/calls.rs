//! Requests of the kernel by operation: counts, errors and times. For people and tools; no rule depends on them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::{Errno, opcode};

/// More than the highest opcode that is known; others are not counted.
const OPCODES: usize = 64;
const STRIPES: usize = 8;

struct Count {
    requests: AtomicU64,
    errors: AtomicU64,
    nanoseconds: AtomicU64,
    bytes: AtomicU64,
}

/// Of one serving thread, or of several.
#[repr(align(128))]
struct Stripe([Count; OPCODES]);

/// All requests of a connection since its start.
pub struct Calls(Box<[Stripe]>);

/// Requests of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    /// As the kernel has it, in small letters: `lookup`.
    pub operation: String,
    pub requests: u64,
    /// Answers with an error, but for names and attributes that are not there.
    pub errors: u64,
    /// Time until the answer, of all together.
    pub time: Duration,
    /// Content that was read or written.
    pub bytes: u64,
}

impl Default for Calls {
    fn default() -> Calls {
        Calls((0..STRIPES).map(|_| Stripe([const { Count::new() }; OPCODES])).collect())
    }
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.called()).finish()
    }
}

impl Count {
    const fn new() -> Count {
        Count {
            requests: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            nanoseconds: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }
}

impl Calls {
    /// Counts a request that thread `n` received and that is answered now. `error`: 0 or an errno.
    pub(crate) fn count(&self, n: usize, opcode: u32, took: Duration, error: i32, bytes: usize) {
        let Some(count) = self.0[n % STRIPES].0.get(opcode as usize) else { return };
        let is_absent = [Errno::ENOENT.code(), Errno::ENODATA.code()].contains(&error);
        let looks = [opcode::LOOKUP, opcode::GETATTR, opcode::STATX, opcode::GETXATTR, opcode::LISTXATTR];
        let is_error = error != 0 && !(is_absent && looks.contains(&opcode));
        let add = |sum: &AtomicU64, more: u64| sum.fetch_add(more, Ordering::Relaxed);
        add(&count.requests, 1);
        add(&count.nanoseconds, took.as_nanos() as u64);
        if is_error {
            add(&count.errors, 1);
        }
        if bytes > 0 {
            add(&count.bytes, bytes as u64);
        }
    }

    /// The operations that came, by opcode.
    pub fn called(&self) -> Vec<Called> {
        let sum_of = |(opcode, name): &(u32, &str)| {
            let sum = |of: fn(&Count) -> &AtomicU64| -> u64 {
                self.0.iter().map(|stripe| of(&stripe.0[*opcode as usize]).load(Ordering::Relaxed)).sum()
            };
            Called {
                operation: name.to_ascii_lowercase(),
                requests: sum(|count| &count.requests),
                errors: sum(|count| &count.errors),
                time: Duration::from_nanos(sum(|count| &count.nanoseconds)),
                bytes: sum(|count| &count.bytes),
            }
        };
        opcode::ALL.iter().map(sum_of).filter(|called| called.requests > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_place() {
        assert!(opcode::ALL.iter().all(|(opcode, _)| (*opcode as usize) < OPCODES));
    }

    #[test]
    fn requests_of_all_threads_are_summed_and_absent_names_are_no_errors() {
        let (calls, took) = (Calls::default(), Duration::from_micros(3));
        let absent = Errno::ENOENT.code();
        calls.count(0, opcode::LOOKUP, took, absent, 0);
        calls.count(1, opcode::LOOKUP, took, Errno::EIO.code(), 0);
        calls.count(STRIPES + 2, opcode::READ, took, 0, 4096);
        calls.count(0, opcode::UNLINK, took, absent, 0);
        calls.count(0, 1000, took, 0, 0);
        let row = |operation: &str, requests, errors, bytes| Called {
            operation: operation.to_owned(),
            requests,
            errors,
            time: took * requests as u32,
            bytes,
        };
        assert_eq!(calls.called(), [row("lookup", 2, 1, 0), row("unlink", 1, 1, 0), row("read", 1, 0, 4096)]);
    }
}
