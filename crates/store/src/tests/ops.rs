//! The operations of a store, drawn at random: the one list that the model test and the crash, fault and rot campaigns share. A new
//! kind of operation is a variant here, its line in `draw`, and what it does in `world.rs` and `life.rs`.

use disk::SplitMix;

use super::*;

/// Objects that operations are about.
pub const OBJECTS: u64 = 6;
const SESSIONS: u64 = 3;

#[derive(Clone, Debug)]
pub enum Op {
    Write {
        object: ObjectId,
        offset: u64,
        len: usize,
        salt: u64,
        lease: u64,
    },
    Reserve {
        object: ObjectId,
        offset: u64,
        len: u64,
        end: u64,
    },
    Release {
        object: ObjectId,
        offset: u64,
        len: u64,
    },
    Punch {
        object: ObjectId,
        offset: u64,
        len: u64,
        leave: Leave,
    },
    Truncate {
        object: ObjectId,
        len: u64,
    },
    Destroy {
        objects: Vec<ObjectId>,
    },
    Fence {
        object: ObjectId,
        lease: u64,
    },
    Begin(SessionId),
    End(SessionId),
    Damage(Damage),
    Forget(Fid),
    Scrub(Scrub),
    Label(Epoch),
    Read {
        object: ObjectId,
        offset: u64,
        len: u32,
    },
    Verify {
        object: ObjectId,
    },
    Flush,
    Mark,
    Seal,
    Checkpoint,
    /// Small writes go where they belong: the oldest, or all.
    Destage {
        all: bool,
    },
    /// Rounds of the background, so many that freed space is given back.
    Discard,
    /// The process is killed and the store opened again; no power fails.
    Kill,
    /// A clean stop, and a start.
    Restart,
}

impl Op {
    /// Has it a slot, and an answer there?
    pub fn is_request(&self) -> bool {
        use Op::*;
        matches!(
            self,
            Write { .. } | Reserve { .. } | Release { .. } | Punch { .. } | Truncate { .. } | Destroy { .. }
        )
    }

    /// Does it change what the store holds?
    pub fn is_change(&self) -> bool {
        use Op::*;
        !matches!(
            self,
            Label(_)
                | Read { .. }
                | Verify { .. }
                | Flush
                | Mark
                | Seal
                | Checkpoint
                | Destage { .. }
                | Discard
                | Kill
                | Restart
        )
    }
}

/// How far operations reach.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// Where writes, cuts and holes may begin, bytes.
    pub offset_max: u64,
    /// The longest write, bytes.
    pub write_max: u64,
}

/// The origin of an operation. Some have none, and some name a session that has ended.
pub fn draw_origin(rng: &mut SplitMix, sequence: u32) -> Option<Origin> {
    let (session, slot) = (SessionId(77 + rng.below(SESSIONS)), rng.below(3) as u32);
    (rng.below(8) > 0).then_some(Origin { session, slot, sequence })
}

pub fn draw(rng: &mut SplitMix, reach: Reach) -> Op {
    let object = id(rng.below(OBJECTS));
    let offset = draw_offset(rng, reach.offset_max);
    let len = draw_len(rng, reach.write_max);
    match rng.below(1000) {
        0..380 => {
            let lease = if rng.below(10) == 0 { rng.below(20) } else { 0 };
            Op::Write { object, offset, len: len as usize, salt: rng.next_u64(), lease }
        }
        380..430 => {
            let end = if rng.below(2) == 0 { offset + len } else { 0 };
            Op::Reserve { object, offset, len, end }
        }
        430..455 => Op::Release { object, offset, len },
        455..530 => {
            let leave = if rng.below(2) == 0 { Leave::Hole } else { Leave::Reserved };
            Op::Punch { object, offset, len, leave }
        }
        530..610 => Op::Truncate { object, len: offset },
        610..640 => {
            Op::Destroy { objects: (0..1 + rng.below(3)).map(|_| id(rng.below(OBJECTS + 1))).collect() }
        }
        640..655 => Op::Fence { object, lease: rng.below(40) },
        655..670 => Op::Begin(SessionId(77 + rng.below(SESSIONS))),
        670..675 => Op::End(SessionId(77 + rng.below(SESSIONS))),
        675..690 => {
            let kind = [DamageKind::Checksum, DamageKind::Missing, DamageKind::Medium][rng.below(3) as usize];
            Op::Damage(Damage {
                object,
                offset: offset & !4095,
                kind,
                found_sec: rng.below(1000),
                is_repaired: false,
            })
        }
        690..695 => Op::Forget(if rng.below(3) == 0 { Fid(0) } else { object.fid }),
        695..705 => {
            Op::Scrub(Scrub { object, page: rng.below(100) as u32, ..crate::records::scrub_state::sample() })
        }
        705..710 => Op::Label(Epoch(1 + rng.below(1000) as u32)),
        710..790 => Op::Read { object, offset, len: len as u32 * 3 },
        790..800 => Op::Verify { object },
        800..870 => Op::Flush,
        870..885 => Op::Mark,
        885..910 => Op::Destage { all: rng.below(2) == 0 },
        910..930 => Op::Seal,
        930..965 => Op::Checkpoint,
        965..975 => Op::Discard,
        975..990 => Op::Kill,
        _ => Op::Restart,
    }
}

/// Half at pages, some at the edges of pages and sectors, the rest anywhere.
fn draw_offset(rng: &mut SplitMix, max: u64) -> u64 {
    let at = rng.below(max);
    match rng.below(8) {
        0..4 => at & !4095,
        4 => (at & !4095) + [1, 511, 512, 4095][rng.below(4) as usize],
        _ => at,
    }
}

/// All sizes alike by their magnitude: so small ones are frequent, whole pages come often, and large ones too.
fn draw_len(rng: &mut SplitMix, max: u64) -> u64 {
    let bits = 1 + rng.below(max.ilog2() as u64);
    let len = 1 + rng.below(1 << bits);
    match rng.below(3) {
        0 => len.next_multiple_of(4096).min(max),
        _ => len.min(max),
    }
}
