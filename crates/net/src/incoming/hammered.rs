//! Mutated streams, in random pieces.

use hammer::{Dice, peak_of};
use wire::Flags;
use wire::frame::PING;

use super::*;

#[path = "../../tests/streams/mod.rs"]
mod streams;

use streams::{Frames, Telltale, bytes, frame, mutated, parse, pieces};

/// Answers to requests from here on are waited for by no thread.
const DROPPED: u64 = 12;
/// A body has space for a step more than its bytes. While its vector grows, there are the old one and a new one of twice the length.
const BLOW_UP: usize = 3;

/// Memory that is short now and then.
struct Scarce {
    dice: Dice,
    is_client: bool,
}

impl Memory for Scarce {
    type Share = ();
    fn reserve(&mut self, _: &Header) -> Option<()> {
        (self.is_client || self.dice.below(3) > 0).then_some(())
    }
    fn body(&mut self) -> Vec<u8> {
        Vec::new()
    }
    fn bulk(&mut self, head: &Header) -> Option<Buf> {
        (!self.is_client || head.request < DROPPED).then(Buf::new)
    }
}

fn some_frames(dice: &mut Dice) -> Vec<Vec<u8>> {
    let count = 1 + dice.below(5);
    let some = |_| {
        let flags = [0, Flags::REPLY][dice.below(2)];
        let head = Header { flags, request: dice.below(16) as u64, ..Header::default() };
        match dice.below(4) {
            0 => frame(Header { call: PING, ..head }, &[], &[]),
            1 => frame(head, &bytes(dice), &[]),
            _ => frame(head, &bytes(dice), &bytes(dice)),
        }
    };
    (0..count).map(some).collect()
}

/// Feeds a stream as a connection does: bytes that were received ahead through `take`, long parts at their place. Checks each frame.
fn feed(stream: &[&[u8]], want: &Frames<'_>, mut memory: Scarce) {
    let (mut incoming, is_client) = (Incoming::<()>::default(), memory.is_client);
    let mut left = want.whole.iter().filter(|f| !is_client || f.head.request < DROPPED);
    for piece in stream {
        let mut bytes = *piece;
        if let Some(place) = incoming.place() {
            let n = copy(&mut bytes, place);
            incoming.received(n);
        }
        loop {
            match incoming.take(&mut bytes, &mut memory) {
                Ok(Step::Whole(got)) => {
                    let want = left.next().expect("a frame that is in the stream");
                    assert_eq!(got.head, want.head);
                    assert!(got.body == want.body, "the body");
                    assert!(got.bulk[..] == *want.bulk, "the bulk bytes");
                }
                Ok(Step::Held) => assert!(!is_client),
                Ok(Step::More) => break,
                Err(_) => {
                    assert!(want.is_refused, "it is refused for a reason");
                    assert!(left.next().is_none(), "frames before the bad one come");
                    return;
                }
            }
        }
        assert!(bytes.is_empty(), "all bytes are taken");
    }
    assert!(!want.is_refused, "bad bytes are refused");
    assert!(left.next().is_none(), "all frames come");
}

#[test]
fn only_frames_that_are_in_a_mutated_stream_come_out_and_memory_is_bounded() {
    let (mut came, mut refused, mut partial) = (0, 0, 0);
    for n in 0..hammer::inputs() {
        let _telltale = Telltale(n);
        let mut dice = Dice::new(n);
        let stream = {
            let frames = some_frames(&mut dice);
            mutated(&mut dice, frames)
        };
        let want = parse(&stream);
        came += want.whole.len();
        refused += want.is_refused as u64;
        partial += (!want.is_refused && want.whole.is_empty()) as u64;
        for is_client in [false, true] {
            let pieces = pieces(&mut dice, &stream);
            let memory = Scarce { dice: Dice::new(n), is_client };
            let (_, peak) = peak_of(|| feed(&pieces, &want, memory));
            // hammer-H2. Only a valid header and body lead to an allocation for bulk bytes that have not come.
            let limit = BLOW_UP * (stream.len() + BODY_STEP) + want.bulk_max + 4096;
            assert!(peak <= limit, "{peak} bytes allocated for {}", stream.len());
        }
    }
    // Mutations reach deep: of streams and frames enough are good, bad and cut.
    let inputs = hammer::inputs();
    assert!(came as u64 > inputs, "{came} frames of {inputs} streams");
    assert!(refused > inputs / 4 && refused < inputs * 3 / 4, "{refused}");
    assert!(partial > inputs / 50, "{partial}");
}
