//! How quickly each host sends bulk bytes to this process. The link or host that is slower than its twins is found by it (mgmt-S1).
//!
//! Only time in which this process waits for bytes counts: a transfer is measured from a moment at which its socket is empty until its last
//! byte. So neither a busy server nor an idle host changes the measure (decision 0067). Old transfers count half after each minute.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Fewer bytes tell of latency rather than of bandwidth.
pub(crate) const MEASURED_MIN: usize = 256 * 1024;
const HALF_LIFE: Duration = Duration::from_secs(60);

/// The transfers of one host.
pub(crate) struct Link(Mutex<Sums>);

struct Sums {
    so_far: Late,
    /// Transfers that are measured now, and when this number changed.
    open: u32,
    changed: Instant,
    halved: Instant,
}

/// Sums of transfers of late.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Late {
    pub bytes: u64,
    pub each_ns: u64,
    pub any_ns: u64,
    pub net: String,
    pub name: String,
    has_several_names: bool,
}

/// A transfer, until its last byte has come or its connection has ended.
pub(crate) struct Transfer {
    /// `None`: it has ended.
    link: Option<Arc<Link>>,
    begun: Instant,
    bytes: u64,
}

impl Link {
    pub fn new(now: Instant) -> Arc<Link> {
        Arc::new(Link(Mutex::new(Sums { so_far: Late::default(), open: 0, changed: now, halved: now })))
    }

    /// A transfer of which so many bytes are to come. `name`: of the host's certificate.
    pub fn begin(self: &Arc<Link>, bytes: usize, (net, name): (&str, &str), now: Instant) -> Transfer {
        let mut sums = self.0.lock();
        let late = &mut sums.so_far;
        if late.net != net {
            late.net = net.into();
        }
        if late.name != name && !late.has_several_names {
            late.has_several_names = !late.name.is_empty();
            late.name = if late.has_several_names { String::new() } else { name.into() };
        }
        sums.opened(1, now);
        drop(sums);
        Transfer { link: Some(self.clone()), begun: now, bytes: bytes as u64 }
    }

    pub fn of_late(&self, now: Instant) -> Late {
        let mut sums = self.0.lock();
        sums.age(now);
        sums.so_far.clone()
    }
}

impl Sums {
    fn opened(&mut self, by: i32, now: Instant) {
        self.age(now);
        if self.open > 0 {
            self.so_far.any_ns += now.saturating_duration_since(self.changed).as_nanos() as u64;
        }
        self.changed = now;
        self.open = self.open.checked_add_signed(by).expect("a transfer that ends had begun");
    }

    fn age(&mut self, now: Instant) {
        let lives = now.saturating_duration_since(self.halved).as_nanos() / HALF_LIFE.as_nanos();
        if lives > 0 {
            let Late { bytes, each_ns, any_ns, .. } = &mut self.so_far;
            [bytes, each_ns, any_ns].into_iter().for_each(|sum| *sum >>= lives.min(63));
            self.halved = now;
        }
    }
}

impl Transfer {
    /// Its last byte has come.
    pub fn end(mut self, now: Instant) {
        let Some(link) = self.link.take() else { return };
        let mut sums = link.0.lock();
        sums.opened(-1, now);
        sums.so_far.bytes += self.bytes;
        sums.so_far.each_ns += now.saturating_duration_since(self.begun).as_nanos() as u64;
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            link.0.lock().opened(-1, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn transfers_at_once_count_their_time_once_for_the_link_and_each_for_themselves() {
        let begin = Instant::now();
        let link = Link::new(begin);
        let one = link.begin(1 << 20, ("tcp0", "c1"), begin);
        let other = link.begin(2 << 20, ("tcp0", "c1"), begin + 10 * MS);
        one.end(begin + 30 * MS);
        other.end(begin + 40 * MS);
        let late = link.of_late(begin + 40 * MS);
        assert_eq!((late.bytes, late.each_ns / 1_000_000, late.any_ns / 1_000_000), (3 << 20, 60, 40));
        // Time between transfers is none of theirs.
        link.begin(1 << 20, ("tcp0", "c1"), begin + 900 * MS).end(begin + 910 * MS);
        let late = link.of_late(begin + 910 * MS);
        assert_eq!((late.bytes, late.each_ns / 1_000_000, late.any_ns / 1_000_000), (4 << 20, 70, 50));
        assert_eq!((late.net.as_str(), late.name.as_str()), ("tcp0", "c1"));
        let aged = link.of_late(begin + HALF_LIFE);
        assert_eq!((aged.bytes, aged.each_ns / 1_000_000, aged.any_ns / 1_000_000), (2 << 20, 35, 25));
        assert_eq!(link.of_late(begin + 100 * HALF_LIFE).bytes, 0);
    }

    #[test]
    fn a_transfer_that_breaks_adds_no_bytes_and_several_names_are_none() {
        let begin = Instant::now();
        let link = Link::new(begin);
        drop(link.begin(1 << 20, ("tcp0", "c1"), begin));
        link.begin(1 << 20, ("tcp0", "c2"), begin).end(begin + MS);
        link.begin(1 << 20, ("tcp0", "c1"), begin).end(begin + MS);
        let late = link.of_late(begin + MS);
        assert_eq!((late.bytes, late.name.as_str()), (2 << 20, ""));
        assert_eq!(link.0.lock().open, 0);
    }
}
