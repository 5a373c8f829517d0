//! The scrub's state as log records and checkpoints keep it.

use types::ObjectId;
use wire::object::scrub_state;
use wire::{Malformed, Reader, Wire};

/// Bytes of a scrub's state in records and checkpoints.
pub(crate) const SCRUB_BYTES: u64 = 161;

/// The activity of the scrub. The numbers are on wire and disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Scrubbing {
    /// No pass is under way.
    #[default]
    Idle = scrub_state::IDLE,
    Running = scrub_state::RUNNING,
    /// An operator paused it; a restart does not resume it.
    Paused = scrub_state::PAUSED,
}

impl Scrubbing {
    pub fn from_u8(n: u8) -> Option<Scrubbing> {
        use Scrubbing::*;
        [Idle, Running, Paused].into_iter().find(|s| *s as u8 == n)
    }
}

/// The position of the scrub, and its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scrub {
    pub state: Scrubbing,
    /// Bytes per second at most; 0 = as fast as the medium allows.
    pub rate: u64,
    /// From the end of a pass to the begin of the next, seconds; 0 = on request only.
    pub every_sec: u64,
    /// Start of the `every_sec` interval, seconds since 1970; 0 = not known yet.
    pub since_sec: u64,
    /// The next position: this object from this page on, then the objects after it in id order.
    pub object: ObjectId,
    pub page: u32,
    /// Pages of this object when its scrub began. Pages appended meanwhile wait for the next pass.
    pub page_end: u32,
    /// The greatest object of the pass. Objects created meanwhile all have greater ids and wait for the next pass.
    pub last_object: ObjectId,
    /// The pass that is under way, or was stopped before its end.
    pub pass: Pass,
    /// The last complete pass.
    pub last: Pass,
}

/// One pass over all objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Pass {
    /// Seconds since 1970; 0 = there was none.
    pub begun_sec: u64,
    /// 0 while it is under way.
    pub ended_sec: u64,
    pub bytes: u64,
    pub objects: u64,
    /// Pages that stay damaged.
    pub bad_pages: u64,
    /// Pages that were damaged, and were repaired from the other member of the mirror.
    pub repaired: u64,
}

/// 50 MiB/s: ten terabytes in two and a half days. Users of a drive of GB/s do not notice it.
pub const SCRUB_RATE: u64 = 50 << 20;
/// Four weeks.
pub const SCRUB_EVERY_SEC: u64 = 28 * 86_400;

impl Default for Scrub {
    fn default() -> Scrub {
        Scrub {
            state: Scrubbing::Idle,
            rate: SCRUB_RATE,
            every_sec: SCRUB_EVERY_SEC,
            since_sec: 0,
            object: ObjectId::default(),
            page: 0,
            page_end: 0,
            last_object: ObjectId::default(),
            pass: Pass::default(),
            last: Pass::default(),
        }
    }
}

pub(crate) fn put_scrub(s: &Scrub, out: &mut Vec<u8>) {
    out.push(s.state as u8);
    s.rate.put(out);
    s.every_sec.put(out);
    s.since_sec.put(out);
    s.object.put(out);
    s.page.put(out);
    s.page_end.put(out);
    s.last_object.put(out);
    for pass in [&s.pass, &s.last] {
        for n in [pass.begun_sec, pass.ended_sec, pass.bytes, pass.objects] {
            n.put(out);
        }
        // Half a field each: earlier releases counted bad pages alone, in eight bytes.
        for n in [pass.bad_pages, pass.repaired] {
            u32::try_from(n).unwrap_or(u32::MAX).put(out);
        }
    }
}

pub(crate) fn get_scrub(r: &mut Reader<'_>) -> Result<Scrub, Malformed> {
    fn pass(r: &mut Reader<'_>) -> Result<Pass, Malformed> {
        Ok(Pass {
            begun_sec: Wire::get(r)?,
            ended_sec: Wire::get(r)?,
            bytes: Wire::get(r)?,
            objects: Wire::get(r)?,
            bad_pages: u32::get(r)?.into(),
            repaired: u32::get(r)?.into(),
        })
    }
    Ok(Scrub {
        state: Scrubbing::from_u8(Wire::get(r)?).ok_or(Malformed("scrub state"))?,
        rate: Wire::get(r)?,
        every_sec: Wire::get(r)?,
        since_sec: Wire::get(r)?,
        object: Wire::get(r)?,
        page: Wire::get(r)?,
        page_end: Wire::get(r)?,
        last_object: Wire::get(r)?,
        pass: pass(r)?,
        last: pass(r)?,
    })
}

/// A value with all fields different, for golden bytes.
#[cfg(test)]
pub(crate) fn sample() -> Scrub {
    use types::{Fid, Generation};
    let pass = |n| Pass {
        begun_sec: n,
        ended_sec: n + 1,
        bytes: n + 2,
        objects: n + 3,
        bad_pages: n + 4,
        repaired: 0,
    };
    let object =
        ObjectId { fid: Fid(0x1122_3344), generation: Generation(7), component: 1, stripe: 2, snapshot: 0 };
    Scrub {
        state: Scrubbing::Running,
        rate: 2 << 32,
        every_sec: 3,
        since_sec: 4,
        object,
        page: 5,
        page_end: 0x10,
        last_object: object,
        pass: pass(6),
        last: pass(11),
    }
}
