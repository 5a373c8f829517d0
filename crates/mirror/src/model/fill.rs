//! A resync by chunks beside live writes: all orders of events for two chunks and three writes, with ends of the receiver at any moment.
//!
//! An entry changes a part of its chunk, so a chunk's content is the list of entries that made it. The primary is alone and lives; entries
//! reach the receiver in order, fills in any order or never. Its log was trimmed, so only chunks can be compared.

use std::collections::{BTreeMap, HashSet};

use crate::planted::{Rule, kept, without};
use crate::resync::{Fill, Filling, stale};
use crate::types::{Line, MirrorSeq, Position};

const CHUNKS: usize = 2;

fn at(seq: u64) -> Position {
    if seq == 0 { Position::ZERO } else { Position { line: Line(1), seq: MirrorSeq(seq) } }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
struct Chunk {
    version: u64,
    content: Vec<u64>,
}

impl Chunk {
    /// A checksum that two contents share: only the number of entries is in it.
    fn sum(&self) -> usize {
        self.content.len()
    }
}

/// The receiver's medium.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
struct Medium {
    end: u64,
    chunks: [Chunk; CHUNKS],
    is_filling: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    // The primary: the entries' chunks in order, and what they made.
    log: Vec<usize>,
    chunks: [Chunk; CHUNKS],
    // The receiver.
    medium: Medium,
    flushed: Medium,
    filling: Option<Filling<usize>>,
    /// Its present stream: entries after this one follow.
    is_in_sync: bool,
    /// Fills under way: the chunk, as it was read.
    fills: Vec<(usize, Chunk)>,
    writes: u8,
    ends: u8,
}

impl State {
    fn new() -> State {
        let chunk = |entries: &[u64]| Chunk {
            version: entries.last().copied().unwrap_or(0),
            content: entries.to_vec(),
        };
        // The receiver went away after entry 2. Chunk 1 has as many entries at both, and other ones.
        let old = Medium { end: 2, chunks: [chunk(&[1]), chunk(&[2])], is_filling: false };
        State {
            log: vec![0, 0, 1],
            chunks: [chunk(&[1, 2]), chunk(&[3])],
            medium: old.clone(),
            flushed: old,
            filling: None,
            is_in_sync: false,
            fills: Vec::new(),
            writes: 3,
            ends: 2,
        }
    }

    /// All states that may follow.
    fn next(&self) -> Vec<State> {
        let mut all = Vec::new();
        let mut add = |change: &dyn Fn(&mut State)| {
            let mut next = self.clone();
            change(&mut next);
            all.push(next);
        };
        for chunk in 0..CHUNKS {
            if self.writes > 0 {
                add(&|s| s.write(chunk));
            }
        }
        match &self.filling {
            None if !self.is_in_sync => add(&State::begin),
            None => {}
            Some(filling) => {
                if self.medium.end < self.log.len() as u64 {
                    add(&State::entry);
                }
                if self.fills.len() < 2 {
                    for chunk in filling.left() {
                        add(&|s| s.fills.push((chunk, s.chunks[chunk].clone())));
                    }
                }
                for n in 0..self.fills.len() {
                    add(&|s| s.fill(n));
                }
                if filling.is_complete() && self.medium.end == self.log.len() as u64 {
                    add(&State::join);
                }
            }
        }
        if self.ends > 0 {
            add(&|s| s.end(s.medium.clone()));
            add(&|s| s.end(s.flushed.clone()));
        }
        all
    }

    fn write(&mut self, chunk: usize) {
        self.writes -= 1;
        self.log.push(chunk);
        let seq = self.log.len() as u64;
        self.chunks[chunk].content.push(seq);
        self.chunks[chunk].version = seq;
        // In sync it has each entry before the answer.
        if self.is_in_sync {
            self.medium.chunks[chunk].content.push(seq);
            self.medium.chunks[chunk].version = seq;
            self.medium.end = seq;
        }
    }

    /// Step 1: by chunks, unless the receiver's log says that the rest of the log is enough (the log was trimmed up to entry 3).
    fn begin(&mut self) {
        let by_log = self.medium.end >= 3 && !(self.medium.is_filling && kept(Rule::FillingRecorded));
        if by_log {
            self.filling = Some(Filling::new(BTreeMap::new()));
            return;
        }
        let versions = |chunks: &[Chunk; CHUNKS]| {
            chunks.iter().map(|chunk| at(chunk.version)).enumerate().collect::<Vec<_>>()
        };
        let mut stale = stale(versions(&self.chunks), versions(&self.medium.chunks));
        if !kept(Rule::EqualByVersion) {
            stale.retain(|chunk, _| self.chunks[*chunk].sum() != self.medium.chunks[*chunk].sum());
        }
        self.filling = Some(Filling::new(stale));
        self.medium.is_filling = true;
        self.medium.end = self.log.len() as u64;
        self.flushed = self.medium.clone();
    }

    /// Step 2.
    fn entry(&mut self) {
        self.medium.end += 1;
        let seq = self.medium.end;
        let chunk = self.log[seq as usize - 1];
        if self.filling.as_mut().expect("it is filling").on_entry(chunk, at(seq)) {
            self.medium.chunks[chunk].content.push(seq);
            self.medium.chunks[chunk].version = seq;
        }
    }

    /// Step 4.
    fn fill(&mut self, n: usize) {
        let (chunk, read) = self.fills[n].clone();
        let end = at(self.medium.end);
        match self.filling.as_mut().expect("it is filling").on_fill(chunk, at(read.version), end) {
            Fill::Apply => {
                self.fills.remove(n);
                self.medium.chunks[chunk] = read;
            }
            Fill::Redo => _ = self.fills.remove(n),
            Fill::Wait => {}
        }
    }

    /// Step 5.
    fn join(&mut self) {
        self.medium.is_filling = false;
        self.flushed = self.medium.clone();
        self.filling = None;
        self.is_in_sync = true;
    }

    /// The receiver ends and begins anew with this on its medium. Fills under way were to its earlier life.
    fn end(&mut self, medium: Medium) {
        self.ends -= 1;
        self.medium = medium.clone();
        self.flushed = medium;
        (self.filling, self.is_in_sync) = (None, false);
        self.fills.clear();
    }

    fn is_broken(&self) -> bool {
        self.is_in_sync && self.medium.chunks.iter().zip(&self.chunks).any(|(a, b)| a.content != b.content)
    }
}

/// Looks at every state. True if one is broken, or if one has no way to be in sync.
fn search() -> (bool, usize) {
    let mut seen = HashSet::from([State::new()]);
    let mut todo = vec![State::new()];
    let mut joined = 0;
    while let Some(state) = todo.pop() {
        if state.is_broken() {
            return (true, seen.len());
        }
        joined += usize::from(state.is_in_sync);
        for next in state.next() {
            if seen.insert(next.clone()) {
                todo.push(next);
            }
        }
    }
    (joined == 0, seen.len())
}

#[test]
fn chunks_are_equal_once_a_member_is_in_sync_again() {
    let (is_broken, states) = search();
    assert!(!is_broken);
    assert!(states > 10_000, "{states} states are too few to say anything");
}

#[test]
fn planted_faults_of_a_resync_are_found() {
    for rule in [Rule::EqualByVersion, Rule::FillsFit, Rule::StaleStays, Rule::FillingRecorded] {
        assert!(without(rule, search).0, "the model does not see that {rule:?} is gone");
    }
}
