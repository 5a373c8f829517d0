//! Random and mutated inputs. The generator is our own (splitmix64), so that a failure can be reproduced.

pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }
    #[allow(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// 0 for a limit of 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (((self.next() >> 32) * (limit as u64 & 0xffff_ffff)) >> 32) as usize
    }

    /// Appends random bytes to `out`: letters of the alphabet if there is one. Otherwise most strings are mostly zeros and small
    /// numbers, so that counts and flags are often valid.
    pub fn random(&mut self, len_max: usize, alphabet: &[u8], out: &mut Vec<u8>) {
        let len = out.len() + self.below(len_max + 1);
        if !alphabet.is_empty() {
            while out.len() < len {
                let at = self.below(alphabet.len());
                // Some letters in a row, so that words occur.
                let end = alphabet.len().min(at + 1 + self.below(6));
                out.extend_from_slice(&alphabet[at..end]);
            }
        } else {
            let tameness = self.below(4);
            while out.len() < len {
                let word = (0..tameness).fold(self.next(), |word, _| word & self.next());
                let mask = if tameness == 3 { 0x0707_0707_0707_0707 } else { u64::MAX };
                out.extend_from_slice(&(word & mask).to_le_bytes());
            }
        }
        out.truncate(len);
    }

    /// One change: bits, bytes, numbers at their extremes, the length, a part of another valid input.
    pub fn mutate(&mut self, bytes: &mut Vec<u8>, others: &[Vec<u8>]) {
        let at = self.below(bytes.len());
        match self.below(8) {
            0 => bytes.truncate(at),
            1 => self.random(24, &[], bytes),
            2 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
            3 if !bytes.is_empty() => bytes[at] = self.next() as u8,
            4 => self.put_number::<4>(bytes, at),
            5 => self.put_number::<8>(bytes, at),
            6 => self.put_number::<2>(bytes, at),
            _ if !others.is_empty() => {
                let other = &others[self.below(others.len())];
                let from = self.below(other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => {}
        }
    }

    /// Writes a number of N bytes as a wrong length or count: huge, zero, or near the real length.
    fn put_number<const N: usize>(&mut self, bytes: &mut [u8], at: usize) {
        let len = bytes.len() as u64;
        let number = match self.below(8) {
            0 => u64::MAX,
            1 => 0,
            2 => u64::MAX >> 1,
            3 => 1 << self.below(N * 8),
            4 => len,
            5 => len.wrapping_sub(self.below(bytes.len()) as u64),
            6 => (1 << (N * 8 - 1)) - 1,
            _ => self.below(300) as u64,
        };
        if let Some(place) = bytes.get_mut(at..at + N) {
            place.copy_from_slice(&number.to_le_bytes()[..N]);
        }
    }
}
