//! Frames out of a stream of bytes, however the stream is cut. Both ends of a connection use it.
//!
//! Reading is resumable: a thread that runs out of bytes in the middle of a frame leaves the rest to the next one.
//! net-F1: a frame is returned once all of its bytes have come and its checksum is right, so a frame that was cut is never acted on.

use types::Buf;
use wire::{HEADER_LEN, Header, Malformed};

/// Bytes received in one call beside the bulk: header and body of nearly every frame, and several small frames.
pub(crate) const READ_AHEAD: usize = 16 * 1024;
/// A body grows in steps of this: a peer that claims 4 MiB and sends none costs no more.
pub(crate) const BODY_STEP: usize = 64 * 1024;

/// A whole frame. `share` is its part of the receiver's memory, which is given back with it.
pub(crate) struct Frame<S> {
    pub head: Header,
    pub body: Vec<u8>,
    pub bulk: Buf,
    pub share: S,
}

/// The receiver's memory.
pub(crate) trait Memory {
    type Share;
    /// Reserves memory for a frame with this header; `None`: there is none now.
    fn reserve(&mut self, head: &Header) -> Option<Self::Share>;
    /// An empty vector for a body.
    fn body(&mut self) -> Vec<u8>;
    /// The buffer for bulk bytes. `None`: no thread waits for this frame, so they are dropped.
    fn bulk(&mut self, head: &Header) -> Option<Buf>;
}

/// The frame that is being received.
pub(crate) struct Incoming<S> {
    at: At<S>,
}

enum At<S> {
    Head {
        raw: [u8; HEADER_LEN],
        have: usize,
    },
    /// The header is whole, and memory for the rest is not there yet.
    Held {
        raw: [u8; HEADER_LEN],
        head: Header,
    },
    Body {
        raw: [u8; HEADER_LEN],
        head: Header,
        share: S,
        body: Vec<u8>,
        have: usize,
    },
    Bulk {
        head: Header,
        share: S,
        body: Vec<u8>,
        bulk: Buf,
        have: usize,
    },
    /// The frame's bulk bytes go nowhere.
    Skip {
        have: usize,
        len: usize,
    },
}

/// How far bytes led.
pub(crate) enum Step<S> {
    /// All bytes are used, and the frame is not whole.
    More,
    /// The frame waits for memory.
    Held,
    Whole(Frame<S>),
}

impl<S> Default for Incoming<S> {
    fn default() -> Incoming<S> {
        Incoming { at: At::Head { raw: [0; HEADER_LEN], have: 0 } }
    }
}

impl<S> Incoming<S> {
    /// True between two frames.
    pub fn is_between(&self) -> bool {
        matches!(self.at, At::Head { have: 0, .. })
    }

    /// True in the middle of bulk bytes, which the other end sends without a pause.
    pub fn is_in_bulk(&self) -> bool {
        matches!(self.at, At::Bulk { .. })
    }

    /// Takes bytes from the front of `bytes` until a frame is whole.
    pub fn take(
        &mut self,
        bytes: &mut &[u8],
        memory: &mut impl Memory<Share = S>,
    ) -> Result<Step<S>, Malformed> {
        loop {
            match std::mem::take(self).at {
                At::Head { mut raw, mut have } => {
                    have += copy(bytes, &mut raw[have..]);
                    if have < HEADER_LEN {
                        self.at = At::Head { raw, have };
                        return Ok(Step::More);
                    }
                    self.at = At::Held { raw, head: Header::decode(&raw)? };
                }
                At::Held { raw, head } => match memory.reserve(&head) {
                    Some(share) => {
                        let mut body = memory.body();
                        body.clear();
                        self.at = At::Body { raw, head, share, body, have: 0 };
                    }
                    None => {
                        self.at = At::Held { raw, head };
                        return Ok(Step::Held);
                    }
                },
                At::Body { raw, head, share, mut body, mut have } => {
                    let len = head.body_len as usize;
                    let end = len.min(have + bytes.len());
                    if body.len() < end {
                        body.resize(end, 0);
                    }
                    have += copy(bytes, &mut body[have..end]);
                    if have < len {
                        self.at = At::Body { raw, head, share, body, have };
                        return Ok(Step::More);
                    }
                    body.truncate(len);
                    // Checked before bulk bytes are taken: only now is the bulk's length trusted.
                    Header::verify(&raw, &body)?;
                    self.at = match memory.bulk(&head) {
                        Some(mut bulk) => {
                            bulk.space(head.bulk_len as usize);
                            At::Bulk { head, share, body, bulk, have: 0 }
                        }
                        None => At::Skip { have: 0, len: head.bulk_len as usize },
                    };
                }
                At::Bulk { head, share, body, mut bulk, mut have } => {
                    have += copy(bytes, &mut bulk[have..]);
                    if have < head.bulk_len as usize {
                        self.at = At::Bulk { head, share, body, bulk, have };
                        return Ok(Step::More);
                    }
                    assert_eq!(
                        bulk.len(),
                        head.bulk_len as usize,
                        "net-F1: a frame has all of its bulk bytes"
                    );
                    return Ok(Step::Whole(Frame { head, body, bulk, share }));
                }
                At::Skip { mut have, len } => {
                    let n = bytes.len().min(len - have);
                    *bytes = &bytes[n..];
                    have += n;
                    if have < len {
                        self.at = At::Skip { have, len };
                        return Ok(Step::More);
                    }
                }
            }
        }
    }

    /// Where the next bytes may be received without a copy; `None` if they are few. Tell `received` how many came.
    pub fn place(&mut self) -> Option<&mut [u8]> {
        match &mut self.at {
            At::Body { head, body, have, .. } => {
                let end = (head.body_len as usize).min(*have + BODY_STEP);
                if end - *have < READ_AHEAD {
                    return None;
                }
                if body.len() < end {
                    body.resize(end, 0);
                }
                Some(&mut body[*have..end])
            }
            At::Bulk { bulk, have, .. } if bulk.len() - *have >= READ_AHEAD => Some(&mut bulk[*have..]),
            _ => None,
        }
    }

    /// `n` bytes were received at `place`. The frame may be whole now, which `take` tells.
    pub fn received(&mut self, n: usize) {
        match &mut self.at {
            At::Body { have, .. } | At::Bulk { have, .. } => *have += n,
            _ => unreachable!("bytes are received only where `place` said"),
        }
    }
}

/// Moves bytes from the front of `from` into `to`, as many as fit. Returns how many.
fn copy(from: &mut &[u8], to: &mut [u8]) -> usize {
    let n = from.len().min(to.len());
    to[..n].copy_from_slice(&from[..n]);
    *from = &from[n..];
    n
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory for `left` frames. Frames of call 9 are waited for by no thread.
    struct ForFrames {
        left: usize,
    }

    impl Memory for ForFrames {
        type Share = ();
        fn reserve(&mut self, _: &Header) -> Option<()> {
            self.left = self.left.checked_sub(1)?;
            Some(())
        }
        fn body(&mut self) -> Vec<u8> {
            b"leftovers".to_vec()
        }
        fn bulk(&mut self, head: &Header) -> Option<Buf> {
            (head.call != 9).then(Buf::new)
        }
    }

    fn frame(call: u16, body: &[u8], bulk: &[u8]) -> Vec<u8> {
        let head = Header { call, bulk_len: bulk.len() as u32, ..Header::default() };
        [&head.encode(body)[..], body, bulk].concat()
    }

    fn all(cuts: &[&[u8]]) -> Vec<(u16, Vec<u8>, Vec<u8>)> {
        let (mut incoming, mut memory) = (Incoming::<()>::default(), ForFrames { left: usize::MAX });
        let mut got = vec![];
        for cut in cuts {
            let mut bytes = *cut;
            while let Step::Whole(f) = incoming.take(&mut bytes, &mut memory).expect("good frames") {
                got.push((f.head.call, f.body, f.bulk.to_vec()));
            }
            assert!(bytes.is_empty());
        }
        assert!(incoming.is_between());
        got
    }

    #[test]
    fn frames_are_the_same_wherever_the_stream_is_cut() {
        let stream =
            [frame(1, b"ab", b""), frame(9, b"", b"dropped"), frame(2, b"", b"bulk"), frame(3, b"x", b"yz")]
                .concat();
        let want = all(&[&stream]);
        assert_eq!(want.len(), 3, "the dropped one is not returned");
        assert_eq!(want[1], (2, vec![], b"bulk".to_vec()));
        for at in 0..=stream.len() {
            assert_eq!(all(&[&stream[..at], &stream[at..]]), want, "cut at {at}");
        }
        let bytes: Vec<_> = stream.chunks(1).collect();
        assert_eq!(all(&bytes), want, "byte by byte");
    }

    #[test]
    fn a_frame_waits_for_memory_and_goes_on() {
        let stream = frame(1, b"body", b"bulk");
        let (mut incoming, mut memory) = (Incoming::<()>::default(), ForFrames { left: 0 });
        let mut bytes = &stream[..];
        for _ in 0..2 {
            assert!(matches!(incoming.take(&mut bytes, &mut memory), Ok(Step::Held)));
        }
        memory.left = 1;
        assert!(matches!(incoming.take(&mut bytes, &mut memory), Ok(Step::Whole(_))));
    }

    #[test]
    fn large_parts_are_received_in_place() {
        let (body, bulk) = (vec![3; 3 * BODY_STEP + 5], vec![7; READ_AHEAD + 3]);
        let stream = frame(1, &body, &bulk);
        let (mut incoming, mut memory) = (Incoming::<()>::default(), ForFrames { left: 1 });
        let mut rest = &stream[..];
        let mut direct = 0;
        let whole = loop {
            if let Some(place) = incoming.place() {
                assert!(place.len() <= BODY_STEP.max(bulk.len()));
                let n = copy(&mut rest, place);
                direct += n;
                incoming.received(n);
            }
            let mut few = &rest[..rest.len().min(100)];
            rest = &rest[few.len()..];
            if let Step::Whole(whole) = incoming.take(&mut few, &mut memory).expect("a good frame") {
                break whole;
            }
            assert!(few.is_empty());
        };
        assert_eq!((&whole.body, &whole.bulk[..]), (&body, &bulk[..]));
        assert!(direct > body.len() - READ_AHEAD, "{direct}");
    }

    #[test]
    fn bad_frames_are_refused() {
        let table: [(usize, u8); 4] = [(0, 1), (20, 1), (84, 0xff), (128, 1)];
        for (at, flip) in table {
            let mut stream = frame(1, b"body", b"");
            stream[at] ^= flip;
            if at == 84 {
                stream[at..at + 4].fill(0xff);
            }
            let got = Incoming::<()>::default().take(&mut &stream[..], &mut ForFrames { left: 1 });
            assert!(got.is_err(), "byte {at}");
        }
    }
}

#[cfg(test)]
mod hammered;
