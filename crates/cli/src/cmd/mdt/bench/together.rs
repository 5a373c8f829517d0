//! Rows with several requests per frame (`wire::batch`): a thread sends a frame and waits for its reply.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use disk::SplitMix;
use types::{Cred, Fid};
use wire::batch::{Batch, Op};
use wire::codec::Bytes;
use wire::meta::{CreateReply, Inode, Lookup};
use wire::session::{SLOTS, next_sequence};
use wire::{Request, decode_reply};

use super::asked::{Asked, Asker, bytes, create_request};
use super::load::{Figure, Until, World};
use super::tree::{Name, Side};
use crate::cmd::measure::threads;

/// The number of connections, at most `wished`, for which the session has slots: each needs one per mutation of its frame.
pub fn connections(wished: usize, together: usize, creates: bool) -> usize {
    if creates { wished.min(SLOTS as usize / together) } else { wished }
}

impl Asker {
    /// Sends all in one frame; the replies come in the same order.
    fn ask_together<R: Request>(
        &mut self,
        requests: impl Iterator<Item = R>,
    ) -> anyhow::Result<Vec<R::Reply>> {
        let mut ops = Vec::new();
        let mut slots = self.slots.clone();
        self.sequence = next_sequence(self.sequence);
        for request in requests {
            let mut op =
                Op { call: R::CALL, slot: 0, sequence: 0, bulk_len: 0, body: Bytes(request.to_bytes()) };
            if R::MUTATES {
                let slot = slots.next().context("a slot for each")?;
                (op.slot, op.sequence) = (slot as u32, self.sequence);
            }
            ops.push(op);
        }
        let count = ops.len();
        let answers = self.ask(&Batch { ops })?.answers;
        ensure!(answers.len() == count, "an answer for each");
        let answers = answers.into_iter().map(|answer| Ok(decode_reply::<R::Reply>(&answer.body)?.1?));
        answers.collect()
    }

    fn create_together(&mut self, dir: Fid, files: std::ops::Range<u64>) -> anyhow::Result<()> {
        let made: Vec<CreateReply> = self.ask_together(files.map(|n| create_request(dir, &Name::file(n))))?;
        ensure!(made.iter().all(|made| made.made), "a file that is made was there");
        Ok(())
    }
}

impl World<Asked> {
    /// As `stat`, with `together` stats per frame.
    pub fn stat_together(
        &self,
        (connections, together): (usize, usize),
        time: Duration,
        seed: u64,
    ) -> anyhow::Result<Figure> {
        let over = AtomicBool::new(false);
        let until = Until { time, stop: &self.stop, over: &over };
        let work = |thread: usize, began| {
            let mut rng = SplitMix::new(seed << 8 | thread as u64);
            let mut hand = self.side.hand(thread)?;
            until.repeat(began, || {
                let looks = (0..together).map(|_| {
                    let (dir, file) = self.tree.place(rng.below(self.tree.entries));
                    let (parent, name) = (self.side.dirs()[dir], bytes(&Name::file(file)));
                    Lookup { parent, name, cred: Cred::root() }
                });
                let found: Vec<Inode> = hand.ask_together(looks)?;
                Ok(std::hint::black_box(found).len() as u64)
            })
        };
        Figure::of(&threads::run(connections, &over, work, || Ok(()))?)
    }

    /// As `create`, with `together` creates per frame.
    pub fn create_together(
        &mut self,
        (connections, together): (usize, usize),
        time: Duration,
    ) -> anyhow::Result<Figure> {
        let dirs = self.make_dirs(connections)?;
        let each_max = self.files_max / connections as u64;
        let over = AtomicBool::new(false);
        let until = Until { time, stop: &self.stop, over: &over };
        let work = |thread: usize, began: Instant| {
            let mut hand = self.side.hand_with(thread, together)?;
            let mut files = 0;
            until.repeat(began, || {
                let some = (each_max - files).min(together as u64);
                hand.create_together(dirs[thread], files..files + some)?;
                files += some;
                Ok(some)
            })
        };
        let took = threads::run(connections, &over, work, || Ok(()))?;
        self.left = dirs.into_iter().zip(&took.done).map(|(dir, done)| (dir, 0..done.ops)).collect();
        Figure::of(&took)
    }
}
