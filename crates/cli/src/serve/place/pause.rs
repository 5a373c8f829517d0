//! Pauses of a member that could not go on. They grow, since each new try makes the other member change the map and ship what was missed.

use std::time::{Duration, Instant};

use disk::Disk;
use parking_lot::MutexGuard;
use types::{Code, Fault};

use super::told::Between;
use super::{Place, members_in};

const AGAIN_MIN: Duration = Duration::from_millis(500);
const AGAIN_MAX: Duration = Duration::from_secs(30);
/// Space does not come by itself.
const NO_SPACE_MIN: Duration = Duration::from_secs(5);
const NO_SPACE_MAX: Duration = Duration::from_secs(300);
/// A medium has space again once the file system below has a 64th of its size, or this.
const SPACE_MAX: u64 = 128 << 20;
/// A life of this length shows that the fault before it is over.
const STEADY: Duration = Duration::from_secs(600);

#[derive(Default)]
pub struct Pauses {
    tries: u32,
}

impl Pauses {
    /// The pause before the next try, after a life of this length that ended by a fault; and the number of tries so far.
    pub fn after(&mut self, fault: &Fault, lived: Duration) -> (Duration, u32) {
        if lived >= STEADY {
            self.tries = 0;
        }
        self.tries = self.tries.saturating_add(1);
        let (min, max) = match fault.code {
            Code::NoSpace => (NO_SPACE_MIN, NO_SPACE_MAX),
            _ => (AGAIN_MIN, AGAIN_MAX),
        };
        let pause = min.saturating_mul(1 << (self.tries - 1).min(16));
        (pause.min(max), self.tries)
    }
}

impl Place {
    /// The pause after a fault. True: the place is left.
    pub(super) fn wait_again(&self, between: Between) -> bool {
        let Between::Failed { fault, pause, .. } = &between else { return false };
        let (mut until, pause, code) = (Instant::now() + *pause, *pause, fault.code);
        let mut state = self.state.lock();
        let of_two = members_in(&state.map, self.reply.mirror);
        state.between = between;
        while !state.is_stopping {
            if self.changed.wait_until(&mut state, until).timed_out() {
                let is_full =
                    || code == Code::NoSpace && self.is_out() && lacks_space(&*self.around.how.media.main);
                if !MutexGuard::unlocked(&mut state, is_full) {
                    break;
                }
                until = Instant::now() + pause;
            } else if code == Code::NotReady || members_in(&state.map, self.reply.mirror) != of_two {
                // Each end of a member changes the map. A member that has failed by itself must not come back at once for that.
                break;
            }
        }
        state.is_stopping
    }

    /// By the map the mirror goes on without this member.
    fn is_out(&self) -> bool {
        self.members().zip(self.me().ok()).is_some_and(|(members, me)| !members.is_in_sync(me))
    }
}

/// True while the file system below a medium is full. A member that came back then would soon end again; if both hosts are full, members
/// would end in turns.
fn lacks_space(disk: &dyn Disk) -> bool {
    disk.room_below().is_some_and(|room| room < (disk.size() / 64).min(SPACE_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_life_was_steady() {
        let (full, io) = (Fault::new(Code::NoSpace, ""), Fault::new(Code::Io, ""));
        let mut pauses = Pauses::default();
        let short = Duration::from_secs(2);
        let secs = |(pause, _): (Duration, u32)| pause.as_secs_f32();
        let grown: Vec<f32> = (0..8).map(|_| secs(pauses.after(&full, short))).collect();
        assert_eq!(grown, [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]);
        assert_eq!(pauses.after(&io, short), (AGAIN_MAX, 9));
        assert_eq!(pauses.after(&io, STEADY), (AGAIN_MIN, 1));
        assert_eq!(pauses.after(&io, short), (2 * AGAIN_MIN, 2));
    }

    /// A sparse medium of 1 GiB, and the free space of the file system below.
    struct Sparse(Option<u64>);

    impl Disk for Sparse {
        fn size(&self) -> u64 {
            1 << 30
        }
        fn read_at(&self, _: &mut [u8], _: u64) -> std::io::Result<()> {
            Ok(())
        }
        fn write_at(&self, _: &[u8], _: u64) -> std::io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> std::io::Result<()> {
            Ok(())
        }
        fn discard(&self, _: u64, _: u64) -> std::io::Result<()> {
            Ok(())
        }
        fn room_below(&self) -> Option<u64> {
            self.0
        }
    }

    #[test]
    fn member_without_space_comes_back_once_the_file_system_below_has_some() {
        let table = [(Some(0), true), (Some((16 << 20) - 1), true), (Some(16 << 20), false), (None, false)];
        table.iter().for_each(|(room, want)| assert_eq!(lacks_space(&Sparse(*room)), *want, "{room:?}"));
    }
}
