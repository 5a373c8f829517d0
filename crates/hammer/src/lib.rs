//! Fuzzes decoders with random bytes and with mutations of valid inputs. For tests of any crate.
//!
//! ```text
//! Hammer::new("log entry").seeds(samples).repair(&reseal).run(|bytes| decode(bytes).ok(), |bytes, value| { .. });
//! ```
//! hammer-H1: no input makes the decoder panic; an input that does is printed.  hammer-H2: the decoder's peak allocation is at most
//! `blow_up` bytes per input byte, plus `slack`.  hammer-H3: each seed is accepted, so that mutations start near valid inputs.
//! `STRIA_LONG=1`: 10^6 inputs for each decoder.

mod alloc;
mod dice;

pub use alloc::peak_of;
pub use dice::Dice;

/// Inputs for each decoder, and with `STRIA_LONG`.
pub const INPUTS: u64 = 10_000;
pub const INPUTS_LONG: u64 = 1_000_000;
/// Most accepted inputs that are kept for mutation, beside the seeds.
const KEPT_MAX: usize = 64;

pub fn inputs() -> u64 {
    if std::env::var_os("STRIA_LONG").is_some() { INPUTS_LONG } else { INPUTS }
}

/// The bytes at a fixed length: cut, or filled up with zeros.
pub fn sized<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    let len = bytes.len().min(N);
    out[..len].copy_from_slice(&bytes[..len]);
    out
}

type Repair<'a> = dyn Fn(&mut [u8]) + 'a;
/// Decodes an input and checks the value. Returns the bytes that the value represents, and the decoder's peak allocation.
type Try<'a> = dyn FnMut(&[u8]) -> (Option<usize>, usize) + 'a;

/// A fuzzing run of one decoder.
pub struct Hammer<'a> {
    name: &'a str,
    seeds: Vec<Vec<u8>>,
    random_len_max: usize,
    alphabet: Vec<u8>,
    blow_up: usize,
    slack: usize,
    repair: Option<&'a Repair<'a>>,
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub inputs: u64,
    pub accepted: u64,
}

impl<'a> Hammer<'a> {
    pub fn new(name: &'a str) -> Hammer<'a> {
        Hammer {
            name,
            seeds: vec![],
            random_len_max: 400,
            alphabet: vec![],
            blow_up: 24,
            slack: 4096,
            repair: None,
        }
    }
    /// Valid inputs.
    pub fn seeds(self, seeds: impl IntoIterator<Item = impl Into<Vec<u8>>>) -> Hammer<'a> {
        Hammer { seeds: seeds.into_iter().map(Into::into).collect(), ..self }
    }
    /// Longest random input, 400 bytes unless told.
    pub fn random_len_max(self, random_len_max: usize) -> Hammer<'a> {
        Hammer { random_len_max, ..self }
    }
    /// Text: random inputs are made of bytes of the seeds.
    pub fn text(self) -> Hammer<'a> {
        let alphabet = self.seeds.concat();
        Hammer { alphabet, ..self }
    }
    /// hammer-H2. By default 24 and 4096: an empty byte string has 4 bytes on the wire and 24 in memory, and a list that grows holds
    /// its old and its new place for a moment.
    pub fn bound(self, blow_up: usize, slack: usize) -> Hammer<'a> {
        Hammer { blow_up, slack, ..self }
    }
    /// Corrects the checksum after a mutation, so that the decoder gets past it; applied to three of four inputs.
    pub fn repair(self, repair: &'a dyn Fn(&mut [u8])) -> Hammer<'a> {
        Hammer { repair: Some(repair), ..self }
    }

    /// `check` gets the accepted value and returns how many of the input's bytes it represents.
    pub fn run<T>(
        self,
        mut decode: impl FnMut(&[u8]) -> Option<T>,
        mut check: impl FnMut(&[u8], T) -> usize,
    ) -> Outcome {
        // Only this is compiled for each decoder: the wire alone has hundreds.
        self.run_by(&mut |input| {
            let (value, peak) = peak_of(|| decode(input));
            (value.map(|value| check(input, value)), peak)
        })
    }

    fn run_by(self, try_one: &mut Try<'_>) -> Outcome {
        let mut dice = Dice::new(self.name.bytes().fold(1, |sum, b| sum * 31 % 1_000_003 + b as u64));
        let mut outcome = Outcome { inputs: 0, accepted: 0 };
        for seed in &self.seeds {
            let text = String::from_utf8_lossy(seed);
            let is_valid = self.strike(seed, try_one).is_some();
            assert!(is_valid, "{}: a seed is refused: {text}", self.name);
        }
        let (mut kept, mut input) = (self.seeds.clone(), Vec::new());
        while outcome.inputs < inputs() {
            outcome.inputs += 1;
            self.make(&mut dice, &kept, &mut input);
            if let Some(len) = self.strike(&input, try_one) {
                outcome.accepted += 1;
                if kept.len() < self.seeds.len() + KEPT_MAX {
                    kept.push(input[..len].to_vec());
                }
            }
        }
        outcome
    }

    fn make(&self, dice: &mut Dice, kept: &[Vec<u8>], input: &mut Vec<u8>) {
        input.clear();
        match kept.is_empty() || dice.below(4) == 0 {
            true => dice.random(self.random_len_max, &self.alphabet, input),
            false => {
                input.extend_from_slice(&kept[dice.below(kept.len())]);
                for _ in 0..=dice.below(3) {
                    dice.mutate(input, kept);
                }
            }
        }
        if let Some(repair) = self.repair.filter(|_| dice.below(4) > 0) {
            repair(input);
        }
    }

    fn strike(&self, input: &[u8], try_one: &mut Try<'_>) -> Option<usize> {
        let telltale = Telltale { name: self.name, input };
        let (len, peak) = try_one(input);
        let limit = input.len() * self.blow_up + self.slack;
        assert!(peak <= limit, "{}: {peak} bytes allocated for {} bytes", self.name, input.len());
        drop(telltale);
        len
    }
}

/// Prints the input that made a decoder panic.
struct Telltale<'a> {
    name: &'a str,
    input: &'a [u8],
}

impl Drop for Telltale<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Trailing zeros are printed as a length: a superblock is mostly zeros.
            let end = self.input.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
            let hex: String = self.input[..end].iter().map(|b| format!("{b:02x}")).collect();
            eprintln!("{}: the input of {} bytes was {hex}, then zeros", self.name, self.input.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    fn whole<T>(input: &[u8], _: T) -> usize {
        input.len()
    }

    #[test]
    fn a_sound_decoder_passes_and_sees_valid_and_broken_inputs() {
        // A count, then so many bytes.
        let decode = |b: &[u8]| (b.len() == 1 + *b.first()? as usize).then(|| b[1..].to_vec());
        let outcome = Hammer::new("sound").seeds([vec![3, 1, 2, 3]]).run(decode, whole);
        assert_eq!(outcome.inputs, inputs());
        assert!(outcome.accepted > 20 && outcome.accepted < outcome.inputs / 2, "{outcome:?}");
    }

    #[test]
    fn a_decoder_that_panics_or_believes_a_length_is_found() {
        let panics = |b: &[u8]| Some(b[b[0] as usize]);
        assert!(catch_unwind(|| Hammer::new("panics").seeds([vec![0, 1]]).run(panics, whole)).is_err());
        let believes = |b: &[u8]| {
            let len = u32::from_le_bytes(b.get(..4)?.try_into().ok()?);
            let room = Vec::<u8>::with_capacity(len as usize);
            (room.capacity() == b.len() - 4).then_some(room)
        };
        let found = catch_unwind(|| Hammer::new("believes").seeds([vec![0; 4]]).run(believes, whole));
        assert!(found.is_err());
    }

    #[test]
    fn a_checksum_is_no_shield() {
        // The last byte is the sum of the others; behind it a byte that must not be 7.
        let sum = |b: &[u8]| b.iter().fold(0u8, |s, b| s.wrapping_add(*b));
        let repair = |b: &mut [u8]| {
            if let Some((last, rest)) = b.split_last_mut() {
                *last = sum(rest);
            }
        };
        let decode = |b: &[u8]| {
            let (last, rest) = b.split_last()?;
            assert!(*last != sum(rest) || rest.first() != Some(&7), "the fault");
            (*last == sum(rest)).then_some(())
        };
        let found = catch_unwind(|| {
            Hammer::new("sum").seeds([vec![1, 1, 2]]).repair(&repair).run(decode, whole);
        });
        assert!(found.is_err());
    }

    #[test]
    fn allocations_are_counted_at_their_highest() {
        let (_, peak) = peak_of(|| {
            drop(Vec::<u8>::with_capacity(10_000));
            Vec::<u8>::with_capacity(100)
        });
        assert_eq!(peak, 10_000);
    }
}
