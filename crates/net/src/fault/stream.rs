//! One direction of a connection through the proxy: the greeting passes, then rules treat the frames.
//!
//! A frame for which there is no rule passes as it comes. A frame for which there is one is collected first, and is treated once it is
//! whole, so that no treatment mixes the bytes of two frames. Bytes that are no frame pass: refusing them is up to the receiver.

use std::time::Instant;

use wire::{HEADER_LEN, Header};

use super::rules::{Rules, What};
use crate::hello::HELLO_LEN;

pub(super) struct Stream {
    at: At,
    /// Delayed frames in the order in which they are due.
    delayed: Vec<(Instant, Vec<u8>)>,
    /// A frame that waits until another one has passed.
    behind: Option<Vec<u8>>,
}

enum At {
    /// So many bytes of the greeting are to come.
    Greeting(usize),
    /// The bytes of a header that have come.
    Head(Vec<u8>),
    /// So many bytes of a frame are to come, which pass.
    Passing(usize),
    /// The bytes of a frame that have come. A rule will treat it.
    Collecting(Header, Vec<u8>),
    /// Not frames.
    Raw,
}

/// The connection's state after some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    GoOn,
    Cut,
}

impl Stream {
    pub fn new() -> Stream {
        Stream { at: At::Greeting(HELLO_LEN), delayed: Vec::new(), behind: None }
    }

    /// True while frames wait for their time.
    pub fn has_delayed(&self) -> bool {
        !self.delayed.is_empty()
    }

    /// Takes bytes from the sender, and appends bytes for the receiver to `out`. Without bytes, only delayed frames are released.
    pub fn take(&mut self, mut bytes: &[u8], now: Instant, rules: &Rules, out: &mut Vec<u8>) -> Then {
        self.release_due(now, out);
        loop {
            match std::mem::replace(&mut self.at, At::Raw) {
                At::Raw => {
                    out.extend_from_slice(bytes);
                    return Then::GoOn;
                }
                At::Greeting(left) => match left - move_up_to(left, &mut bytes, out) {
                    0 => self.at = At::Head(Vec::new()),
                    left => {
                        self.at = At::Greeting(left);
                        return Then::GoOn;
                    }
                },
                At::Head(mut have) => {
                    move_up_to(HEADER_LEN - have.len(), &mut bytes, &mut have);
                    let Some(raw) = have.first_chunk() else {
                        self.at = At::Head(have);
                        return Then::GoOn;
                    };
                    match Header::decode(raw) {
                        Ok(head) if rules.has_one_for(&head) => self.at = At::Collecting(head, have),
                        Ok(head) => {
                            out.append(&mut have);
                            self.at = At::Passing(len_of(&head) - HEADER_LEN);
                        }
                        Err(_) => out.append(&mut have),
                    }
                }
                At::Passing(left) => match left - move_up_to(left, &mut bytes, out) {
                    0 => {
                        self.at = At::Head(Vec::new());
                        self.passed(now, out);
                    }
                    left => {
                        self.at = At::Passing(left);
                        return Then::GoOn;
                    }
                },
                At::Collecting(head, mut have) => {
                    move_up_to(len_of(&head) - have.len(), &mut bytes, &mut have);
                    if have.len() < len_of(&head) {
                        self.at = At::Collecting(head, have);
                        return Then::GoOn;
                    }
                    self.at = At::Head(Vec::new());
                    let what = rules.apply(&head, self.behind.is_none());
                    if self.treat(what, have, now, out) == Then::Cut {
                        return Then::Cut;
                    }
                }
            }
        }
    }

    /// Treats a whole frame, between two others.
    fn treat(&mut self, what: Option<What>, frame: Vec<u8>, now: Instant, out: &mut Vec<u8>) -> Then {
        match what {
            Some(What::Drop) => return Then::GoOn,
            Some(What::Delay(by)) => {
                let due = now + by;
                let at = self.delayed.partition_point(|(other, _)| *other <= due);
                self.delayed.insert(at, (due, frame));
                return Then::GoOn;
            }
            Some(What::Reorder) => {
                assert!(self.behind.is_none(), "one frame is held back at a time");
                self.behind = Some(frame);
                return Then::GoOn;
            }
            Some(What::Cut) => return Then::Cut,
            Some(What::CutAfter(n)) => {
                out.extend_from_slice(&frame[..n.min(frame.len())]);
                return Then::Cut;
            }
            Some(What::Duplicate) => {
                out.extend_from_slice(&frame);
                out.extend_from_slice(&frame);
            }
            None => out.extend_from_slice(&frame),
        }
        self.passed(now, out);
        Then::GoOn
    }

    /// A frame has passed.
    fn passed(&mut self, now: Instant, out: &mut Vec<u8>) {
        out.extend(self.behind.take().unwrap_or_default());
        self.release_due(now, out);
    }

    fn release_due(&mut self, now: Instant, out: &mut Vec<u8>) {
        // A header or a frame that is being collected has not reached the receiver.
        if !matches!(self.at, At::Head(_) | At::Collecting(..)) {
            return;
        }
        let n = self.delayed.partition_point(|(due, _)| *due <= now);
        for (_, frame) in self.delayed.drain(..n) {
            out.extend(frame);
            out.extend(self.behind.take().unwrap_or_default());
        }
    }

    /// The sender has closed. A frame that waits for another one arrives; delayed frames still have their time.
    pub fn sender_closed(&mut self, out: &mut Vec<u8>) {
        if matches!(self.at, At::Head(_) | At::Collecting(..)) {
            out.extend(self.behind.take().unwrap_or_default());
        }
    }

    /// Bytes of the last frame, which the sender did not send whole. They arrive after all others.
    pub fn into_rest(self) -> Vec<u8> {
        match self.at {
            At::Head(bytes) | At::Collecting(_, bytes) => bytes,
            At::Greeting(_) | At::Passing(_) | At::Raw => Vec::new(),
        }
    }
}

fn len_of(head: &Header) -> usize {
    HEADER_LEN + head.body_len as usize + head.bulk_len as usize
}

/// Moves up to `max` bytes from the front of `from` to the end of `to`. Returns how many.
fn move_up_to(max: usize, from: &mut &[u8], to: &mut Vec<u8>) -> usize {
    let n = from.len().min(max);
    to.extend_from_slice(&from[..n]);
    *from = &from[n..];
    n
}

#[cfg(test)]
mod tests {
    use super::super::rules::{Rule, Way};
    use super::*;
    use std::time::Duration;

    const HELLO: [u8; HELLO_LEN] = [b'h'; HELLO_LEN];

    /// Request number `n`, whose call number it is.
    fn frame(n: u16) -> Vec<u8> {
        let head = Header { call: n, bulk_len: 3, ..Header::default() };
        let body = vec![n as u8; n.into()];
        [&head.encode(&body)[..], &body, b"end"].concat()
    }

    fn frames(numbers: &[u16]) -> Vec<u8> {
        numbers.iter().flat_map(|n| frame(*n)).collect()
    }

    type Faults<'a> = &'a [(Option<u16>, What)];

    fn rules(of: Faults<'_>) -> Rules {
        let rules = Rules::default();
        for (call, what) in of {
            rules.add(Rule { call: *call, way: Way::Requests, what: *what, times: None });
        }
        rules
    }

    /// The bytes after the greeting that arrive of frames 1 to 5, sent in pieces of `piece` bytes, and the end of it.
    fn sent(of: Faults<'_>, piece: usize) -> (Vec<u8>, Then) {
        let (rules, mut stream, mut out) = (rules(of), Stream::new(), Vec::new());
        let (now, all) = (Instant::now(), [&HELLO[..], &frames(&[1, 2, 3, 4, 5])].concat());
        let mut then = Then::GoOn;
        for bytes in all.chunks(piece) {
            then = stream.take(bytes, now, &rules, &mut out);
            if then == Then::Cut {
                break;
            }
        }
        assert_eq!(out[..HELLO_LEN], HELLO);
        (out.split_off(HELLO_LEN), then)
    }

    #[test]
    fn each_treatment_leaves_whole_frames_however_the_stream_is_cut() {
        use What::*;
        let cut = [frames(&[1, 2]), frame(3)[..130].to_vec()].concat();
        // rules, frames that arrive, the end
        let table: [(&str, Faults<'_>, Vec<u8>, Then); 11] = [
            ("none", &[], frames(&[1, 2, 3, 4, 5]), Then::GoOn),
            ("drop", &[(Some(3), Drop)], frames(&[1, 2, 4, 5]), Then::GoOn),
            ("drop all", &[(None, Drop)], vec![], Then::GoOn),
            ("duplicate", &[(Some(3), Duplicate)], frames(&[1, 2, 3, 3, 4, 5]), Then::GoOn),
            ("reorder", &[(Some(3), Reorder)], frames(&[1, 2, 4, 3, 5]), Then::GoOn),
            ("reorder all", &[(None, Reorder)], frames(&[2, 1, 4, 3]), Then::GoOn),
            (
                "reorder one, drop the next",
                &[(Some(2), Reorder), (Some(3), Drop)],
                frames(&[1, 4, 2, 5]),
                Then::GoOn,
            ),
            ("cut", &[(Some(3), Cut)], frames(&[1, 2]), Then::Cut),
            ("cut after some bytes", &[(Some(3), CutAfter(130))], cut, Then::Cut),
            ("cut after all bytes", &[(Some(3), CutAfter(999))], frames(&[1, 2, 3]), Then::Cut),
            (
                "drop one, double the rest",
                &[(Some(3), Drop), (None, Duplicate)],
                frames(&[1, 1, 2, 2, 4, 4, 5, 5]),
                Then::GoOn,
            ),
        ];
        for (name, rules, want, then) in table {
            for piece in [1, 7, 128, 131, 9999] {
                let (got, end) = sent(rules, piece);
                assert!(got == want, "{name}, in pieces of {piece}");
                assert_eq!(end, then, "{name}, in pieces of {piece}");
            }
        }
    }

    #[test]
    fn a_delayed_frame_arrives_at_its_time_between_others() {
        let (second, now) = (Duration::from_secs(1), Instant::now());
        let rules = rules(&[(Some(1), What::Delay(2 * second)), (Some(2), What::Delay(second))]);
        let (mut stream, mut out) = (Stream::new(), Vec::new());
        let mut take = |stream: &mut Stream, bytes: &[u8], at| {
            out.clear();
            assert_eq!(stream.take(bytes, at, &rules, &mut out), Then::GoOn);
            out.clone()
        };
        take(&mut stream, &HELLO, now);
        assert_eq!(take(&mut stream, &frames(&[1, 2, 3]), now), frame(3));
        assert!(stream.has_delayed());
        assert!(take(&mut stream, &[], now + second / 2).is_empty());
        // In the middle of another frame it waits for the end of that.
        let (begin, end) = (&frame(4)[..129], &frame(4)[129..]);
        assert_eq!(take(&mut stream, begin, now + second), [&frame(2), begin].concat());
        assert!(take(&mut stream, &[], now + 2 * second).is_empty());
        assert_eq!(take(&mut stream, end, now + 2 * second), [end, &frame(1)].concat());
        assert!(!stream.has_delayed());
    }

    #[test]
    fn bytes_of_a_sender_that_closes_arrive() {
        let rules = rules(&[(Some(2), What::Reorder), (Some(4), What::Drop)]);
        // bytes sent behind the greeting, bytes that arrive before the rest, the rest
        let table = [
            (frames(&[1, 2]), frames(&[1, 2]), vec![]),
            ([&frames(&[2]), &frame(3)[..50]].concat(), frame(2), frame(3)[..50].to_vec()),
            (frame(4)[..130].to_vec(), vec![], frame(4)[..130].to_vec()),
            (frame(3)[..130].to_vec(), frame(3)[..130].to_vec(), vec![]),
            (vec![b'x'; 200], vec![b'x'; 200], vec![]),
        ];
        for (n, (bytes, want, rest)) in table.into_iter().enumerate() {
            let (mut stream, mut out) = (Stream::new(), Vec::new());
            stream.take(&HELLO, Instant::now(), &rules, &mut out);
            out.clear();
            stream.take(&bytes, Instant::now(), &rules, &mut out);
            stream.sender_closed(&mut out);
            assert_eq!((out, stream.into_rest()), (want, rest), "{n}");
        }
    }
}
