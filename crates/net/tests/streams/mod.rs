//! Streams of frames that were mutated, and the frames that a receiver must find in them. For the tests of `Incoming` and of both ends.

use hammer::Dice;
use types::BULK_MAX;
use types::crc::crc32c;
use wire::frame::BODY_MAX;
use wire::{HEADER_LEN, Header};

/// Places in a header.
const BODY_LEN: usize = 84;
const BULK_LEN: usize = 88;
const CRC: usize = 92;

pub fn frame(head: Header, body: &[u8], bulk: &[u8]) -> Vec<u8> {
    let head = Header { bulk_len: bulk.len() as u32, ..head };
    [&head.encode(body)[..], body, bulk].concat()
}

/// Mostly few bytes. Some are more than a receiver takes in one step.
pub fn bytes(dice: &mut Dice) -> Vec<u8> {
    let max = [1, 20, 300, 3000, 80_000][if dice.below(40) == 0 { 4 } else { dice.below(4) }];
    let (len, first) = (dice.below(max), dice.next() as u8);
    (0..len).map(|i| (i as u8).wrapping_mul(7) ^ first).collect()
}

/// The frames one after the other, with up to three changes. Of eight streams one stays as it is.
pub fn mutated(dice: &mut Dice, mut frames: Vec<Vec<u8>>) -> Vec<u8> {
    let changes = if dice.below(8) == 0 { 0 } else { 1 + dice.below(3) };
    let of_frames = dice.below(changes + 1);
    for _ in 0..of_frames {
        let (one, other) = (dice.below(frames.len()), dice.below(frames.len()));
        match dice.below(3) {
            0 => frames.swap(one, other),
            1 => frames.insert(other, frames[one].clone()),
            _ => drop(frames.remove(one)),
        }
        if frames.is_empty() {
            return Vec::new();
        }
    }
    let mut starts: Vec<_> =
        frames.iter().scan(0, |at, f| Some(std::mem::replace(at, *at + f.len()))).collect();
    let mut stream = frames.concat();
    starts.push(stream.len());
    for _ in of_frames..changes {
        match dice.below(2) {
            0 => change_bytes(dice, &mut stream),
            _ => change_length(dice, &mut stream, &starts),
        }
    }
    stream
}

fn change_bytes(dice: &mut Dice, stream: &mut Vec<u8>) {
    let (one, other) = (dice.below(stream.len()), dice.below(stream.len()));
    let (begin, end) = (one.min(other), one.max(other));
    match dice.below(5) {
        0 => stream.iter_mut().skip(one).take(1).for_each(|byte| *byte ^= 1 << dice.below(8)),
        1 => stream.truncate(one),
        2 => drop(stream.drain(begin..end)),
        3 => {
            let copy = stream[begin..end].to_vec();
            stream.splice(begin..begin, copy);
        }
        _ => {
            let mut some = Vec::new();
            dice.random(40, &[], &mut some);
            stream.splice(one..one, some);
        }
    }
}

/// Changes a length in a header and corrects its checksum, so that only the meaning of the bytes behind it changes. A frame that is damaged
/// already stays so: a corrected checksum would make it a request for something else.
fn change_length(dice: &mut Dice, stream: &mut [u8], starts: &[usize]) {
    let n = dice.below(starts.len() - 1);
    let (at, next) = (starts[n], starts[n + 1]);
    if !begins_well(stream.get(at..).unwrap_or_default()) {
        return;
    }
    let raw = &stream[at..at + HEADER_LEN];
    let number = |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
    let (field, max) = [(BODY_LEN, BODY_MAX), (BULK_LEN, BULK_MAX)][dice.below(2)];
    let (old, max) = (number(field), max as u32);
    let new = match dice.below(10) {
        0 => 0,
        1 => old.wrapping_add(1),
        2 => old.wrapping_sub(1),
        // The next frames become a part of this one.
        3..6 => old.wrapping_add((starts[starts.len().min(n + 2 + dice.below(2)) - 1] - next) as u32),
        6 => old.wrapping_sub(dice.below(old as usize) as u32),
        7 => max,
        8 => max + 1,
        _ => dice.next() as u32,
    };
    stream[at + field..at + field + 4].copy_from_slice(&new.to_le_bytes());
    reseal(&mut stream[at..]);
}

/// True if a whole header and body are at the front, with the right checksum.
fn begins_well(stream: &[u8]) -> bool {
    let Some((raw, rest)) = stream.split_first_chunk() else { return false };
    let Ok(head) = Header::decode(raw) else { return false };
    rest.get(..head.body_len as usize).is_some_and(|body| Header::verify(raw, body).is_ok())
}

/// Corrects the checksum of the frame at the front.
fn reseal(stream: &mut [u8]) {
    let (raw, rest) = stream.split_at_mut(HEADER_LEN);
    let len = u32::from_le_bytes([raw[BODY_LEN], raw[BODY_LEN + 1], raw[BODY_LEN + 2], raw[BODY_LEN + 3]]);
    let body = &rest[..rest.len().min(len as usize)];
    raw[CRC..CRC + 4].fill(0);
    let crc = crc32c(raw).rotate_left(1) ^ crc32c(body);
    raw[CRC..CRC + 4].copy_from_slice(&crc.to_le_bytes());
}

/// The stream in pieces of random lengths.
pub fn pieces<'a>(dice: &mut Dice, mut stream: &'a [u8]) -> Vec<&'a [u8]> {
    let max = [3, 200, 5000, 100_000][dice.below(4)].max(stream.len() / 200);
    let mut pieces = Vec::new();
    while !stream.is_empty() {
        let (piece, rest) = stream.split_at(stream.len().min(1 + dice.below(max)));
        pieces.push(piece);
        stream = rest;
    }
    pieces
}

/// A whole frame in a stream.
#[derive(Clone, Copy)]
pub struct Parsed<'a> {
    pub head: Header,
    pub body: &'a [u8],
    pub bulk: &'a [u8],
}

/// The frames of a stream, as the format tells.
pub struct Frames<'a> {
    pub whole: Vec<Parsed<'a>>,
    /// The bytes behind the whole frames are no frame, whatever follows.
    pub is_refused: bool,
    /// The most bulk bytes that a valid header and body announce.
    pub bulk_max: usize,
}

pub fn parse(mut stream: &[u8]) -> Frames<'_> {
    let mut frames = Frames { whole: Vec::new(), is_refused: false, bulk_max: 0 };
    loop {
        let Some((raw, rest)) = stream.split_first_chunk() else { return frames };
        let Ok(head) = Header::decode(raw) else { break };
        let Some((body, rest)) = rest.split_at_checked(head.body_len as usize) else { return frames };
        if Header::verify(raw, body).is_err() {
            break;
        }
        frames.bulk_max = frames.bulk_max.max(head.bulk_len as usize);
        let Some((bulk, rest)) = rest.split_at_checked(head.bulk_len as usize) else { return frames };
        frames.whole.push(Parsed { head, body, bulk });
        stream = rest;
    }
    frames.is_refused = true;
    frames
}

/// Tells which input it was if the test panics.
pub struct Telltale(pub u64);

impl Drop for Telltale {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input's number was {}", self.0);
        }
    }
}
