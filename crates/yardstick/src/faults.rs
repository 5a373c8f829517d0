//! Faults of the medium below a pass-through mount, as a control file orders them: a server whose images lie there sees a slow, a full or a
//! failing disk.
//!
//! The control file has one fault a line: `delay MILLISECONDS`, `rate BYTES` (per second, reads and writes together), `full`, `reads FIRST END`
//! (bytes of each file), `flushes`, `volatile` and `lose SEED`: the power fails once, when this line is new (`volatile.rs`). An empty or missing file heals the medium. It is read again every `LOOK_EACH`.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use rustix::fs::SeekFrom;
use rustix::io::{Errno, Result};

use crate::volatile::Volatile;

/// The pause between two looks at the control file.
pub const LOOK_EACH: Duration = Duration::from_millis(10);

/// The faults that are in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// Each read, write and flush takes so much longer.
    pub delay: Duration,
    /// Bytes per second that are read and written in all; 0: no limit.
    pub rate: u64,
    /// Writes that need new space fail (ENOSPC).
    pub is_full: bool,
    /// Reads that touch these bytes of a file fail (EIO).
    pub reads: Option<(u64, u64)>,
    /// Flushes fail (EIO).
    pub flushes: bool,
    /// Pages that no flush has made durable are remembered, to be lost.
    pub is_volatile: bool,
    /// The power fails, by this seed.
    pub lose: Option<u64>,
}

impl Orders {
    /// Fails at a line that it does not know: a fault that is not injected would prove nothing.
    pub fn parse(text: &str) -> std::result::Result<Orders, String> {
        let mut orders = Orders::default();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let number = |word: &str| word.parse().map_err(|_| format!("{line:?}: {word:?} is no number"));
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["delay", time] => orders.delay = Duration::from_millis(number(time)?),
                ["rate", bytes] => orders.rate = number(bytes)?,
                ["full"] => orders.is_full = true,
                ["reads", first, end] => orders.reads = Some((number(first)?, number(end)?)),
                ["flushes"] => orders.flushes = true,
                ["volatile"] => orders.is_volatile = true,
                ["lose", seed] => (orders.is_volatile, orders.lose) = (true, Some(number(seed)?)),
                _ => return Err(format!("{line:?} names no fault")),
            }
        }
        Ok(orders)
    }
}

/// Decides for each request whether it fails.
#[derive(Debug, Default)]
pub struct Faults {
    orders: RwLock<Orders>,
    /// With a limited rate: the time at which the medium has done all that was asked of it. `None`: nothing was yet.
    busy_until: Mutex<Option<Instant>>,
    cache: Volatile,
}

impl Faults {
    /// Faults by the orders in `control`, which a thread reads again and again. It writes the orders that are in force to `control`.done.
    pub fn by(control: PathBuf) -> Arc<Faults> {
        let faults = Arc::new(Faults::default());
        let told = faults.clone();
        std::thread::spawn(move || {
            let done = done_of(&control);
            let mut last = None;
            loop {
                let text = std::fs::read_to_string(&control).unwrap_or_default();
                if last.as_ref() != Some(&text) {
                    let answer = match Orders::parse(&text) {
                        Ok(orders) => {
                            *told.orders.write() = orders;
                            if !orders.is_volatile {
                                told.cache.end();
                            }
                            match orders.lose.map_or(Ok((0, 0)), |seed| told.cache.lose(seed)) {
                                Ok(_) => text.clone(),
                                Err(e) => format!("bytes were not lost as ordered: {e}"),
                            }
                        }
                        Err(why) => why,
                    };
                    // The one that gave the order waits for this; without it that wait fails.
                    if std::fs::write(&done, answer).is_ok() {
                        last = Some(text);
                    }
                }
                std::thread::sleep(LOOK_EACH);
            }
        });
        faults
    }

    #[cfg(test)]
    fn fixed(orders: Orders) -> Faults {
        Faults { orders: RwLock::new(orders), ..Faults::default() }
    }

    fn now(&self) -> Orders {
        let orders = *self.orders.read();
        if !orders.delay.is_zero() {
            std::thread::sleep(orders.delay);
        }
        orders
    }

    /// Waits until a medium of limited rate has passed so many bytes more.
    fn pass(&self, orders: Orders, bytes: u64) {
        if orders.rate == 0 {
            return;
        }
        let now = Instant::now();
        let until = {
            let mut busy_until = self.busy_until.lock();
            let from = busy_until.map_or(now, |until| until.max(now));
            let until = from + Duration::from_secs_f64(bytes as f64 / orders.rate as f64);
            *busy_until = Some(until);
            until
        };
        std::thread::sleep(until - now);
    }

    pub fn on_read(&self, offset: u64, len: u64) -> Result<()> {
        let orders = self.now();
        self.pass(orders, len);
        match orders.reads {
            Some((first, end)) if offset < end && offset + len > first => Err(Errno::IO),
            _ => Ok(()),
        }
    }
    fn on_write(&self, below: &OwnedFd, offset: u64, len: u64) -> Result<()> {
        let orders = self.now();
        self.pass(orders, len);
        match orders.is_full && is_hole(below, offset, len) {
            true => Err(Errno::NOSPC),
            false => Ok(()),
        }
    }
    /// Carries out a write that this medium takes.
    pub fn write(
        &self,
        below: &OwnedFd,
        offset: u64,
        len: usize,
        write: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.on_write(below, offset, len as u64)?;
        match self.orders.read().is_volatile {
            true => self.cache.write(below, offset, len, write),
            false => write(),
        }
    }
    fn on_flush(&self) -> Result<()> {
        if self.now().flushes { Err(Errno::IO) } else { Ok(()) }
    }
    /// Carries out a flush that this medium takes.
    pub fn flush(&self, below: &OwnedFd, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        self.on_flush()?;
        match self.orders.read().is_volatile {
            true => self.cache.flush(below, flush),
            false => flush(),
        }
    }
    pub fn is_full(&self) -> bool {
        self.orders.read().is_full
    }
}

/// The name under which `Faults::by` tells the orders in force.
pub fn done_of(control: &Path) -> PathBuf {
    control.with_extension("done")
}

/// Has the range bytes without space of their own? Past the end of the file all are.
fn is_hole(file: &OwnedFd, offset: u64, len: u64) -> bool {
    rustix::fs::seek(file, SeekFrom::Hole(offset)).map_or(true, |hole| hole < offset + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_lines_and_an_unknown_one_is_refused() {
        let orders = Orders::parse("delay 20\nrate 1000\nfull\n\nreads 4096 8192\nflushes\n").unwrap();
        let delay = Duration::from_millis(20);
        assert_eq!(
            orders,
            Orders {
                delay,
                rate: 1000,
                is_full: true,
                reads: Some((4096, 8192)),
                flushes: true,
                ..Orders::default()
            }
        );
        let power = Orders { is_volatile: true, lose: Some(7), ..Orders::default() };
        assert_eq!(Orders::parse("lose 7").unwrap(), power);
        assert_eq!(Orders::parse("").unwrap(), Orders::default());
        assert_eq!(Orders::parse("writes").unwrap_err(), "\"writes\" names no fault");
        assert_eq!(Orders::parse("delay x").unwrap_err(), "\"delay x\": \"x\" is no number");
    }

    #[test]
    fn a_medium_of_limited_rate_makes_the_next_one_wait() {
        let orders = Orders { rate: 1 << 20, ..Orders::default() };
        let (faults, begin) = (Faults::fixed(orders), Instant::now());
        (0..4).for_each(|n| faults.on_read(n << 12, 1 << 12).unwrap());
        assert!(begin.elapsed() >= Duration::from_secs_f64(4.0 / 256.0));
    }

    #[test]
    fn reads_fail_where_they_touch_the_range() {
        let faults = Faults::fixed(Orders { reads: Some((4096, 8192)), ..Orders::default() });
        for (offset, len, fails) in [(0, 4096, false), (0, 4097, true), (8191, 1, true), (8192, 9, false)] {
            assert_eq!(faults.on_read(offset, len).is_err(), fails, "{len} bytes at {offset}");
        }
        assert_eq!(faults.on_flush(), Ok(()));
    }

    #[test]
    fn a_full_medium_takes_overwrites_and_refuses_writes_into_holes() {
        let path = std::env::temp_dir().join(format!("stria-faults-{}", std::process::id()));
        let file =
            std::fs::File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[1; 65536], 0).unwrap();
        let (file, faults) = (file.into(), Faults::fixed(Orders { is_full: true, ..Orders::default() }));
        let found = [(0, 4096), (61440, 4096), (61440, 8192), (1 << 19, 4096), (1 << 20, 4096)]
            .map(|(offset, len)| faults.on_write(&file, offset, len));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(found, [Ok(()), Ok(()), Err(Errno::NOSPC), Err(Errno::NOSPC), Err(Errno::NOSPC)]);
    }
}
