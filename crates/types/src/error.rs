//! Error codes that travel. A number is never used twice; the errno table is in `client`.

use std::fmt;

macro_rules! codes {
    ($($(#[$m:meta])* $name:ident = $n:literal,)*) => {
        /// Why a request was refused or failed. The numbers are on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Code { $($(#[$m])* $name = $n,)* }
        impl Code {
            /// Unknown numbers (a newer peer's) read as `Io`.
            pub fn from_u16(n: u16) -> Code { match n { $($n => Code::$name,)* _ => Code::Io } }
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];
        }
    };
}

codes! {
    /// Done; only in replies.
    Ok = 0,
    /// No such name, file, object or attribute holder.
    NotFound = 1,
    /// The name exists already.
    Exists = 2,
    NotDir = 3,
    IsDir = 4,
    NotEmpty = 5,
    /// The target is full: nothing of the request was done.
    NoSpace = 6,
    /// Bytes failed their checksum or are missing. Recorded in the damage list.
    Damaged = 7,
    /// The fid or generation is gone (removed, or replaced by a new layout).
    Stale = 8,
    /// The capability or lease version was refused: the caller lost its right.
    Fenced = 9,
    /// The request is not well formed.
    BadRequest = 10,
    /// Permission bits forbid it.
    Access = 11,
    /// Only the owner or root may.
    Perm = 12,
    NameTooLong = 13,
    /// Link count at its limit.
    TooManyLinks = 14,
    /// No such extended attribute.
    NoData = 15,
    /// Value larger than the buffer or the limit.
    Range = 16,
    CrossDevice = 17,
    Loop = 18,
    Invalid = 19,
    /// Not now: starting, stopping or recovering. Try again.
    NotReady = 20,
    /// The peer's incarnation, epoch or session is not the one that the request names.
    Moved = 21,
    /// No answer in time; the request may have been carried out.
    Timeout = 22,
    Unsupported = 23,
    /// File larger than the limit.
    FileTooBig = 24,
    ReadOnly = 25,
    Busy = 26,
    /// The medium reported an error.
    Io = 27,
    /// The session is not known to the target (it ended or was evicted).
    NoSession = 28,
    /// The received bytes do not match their CRC. Send them again.
    BadChecksum = 29,
    /// Inline content would outgrow `inline_max`: ask for a layout first.
    NeedLayout = 30,
    /// The file was written to objects meanwhile: open it again.
    NotInline = 31,
    /// Value too long (xattr list, request part).
    TooLong = 32,
    /// A batch has no space for the answer: ask alone, under the same slot and sequence. The request may have been carried out.
    TooMuch = 33,
    /// The file is in an inline-to-object migration: enter a section, then write.
    NeedSection = 34,
}

/// An error with its subject: the code for programs, and the detail for people (object, reason, next step).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub code: Code,
    pub detail: String,
}

impl Fault {
    pub fn new(code: Code, detail: impl Into<String>) -> Fault {
        Fault { code, detail: detail.into() }
    }
}
impl From<Code> for Fault {
    fn from(code: Code) -> Fault {
        Fault { code, detail: String::new() }
    }
}
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.detail.is_empty() {
            true => write!(f, "{:?}", self.code),
            false => write!(f, "{:?}: {}", self.code, self.detail),
        }
    }
}
impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_and_survive() {
        let mut seen: Vec<u16> = Code::ALL.iter().map(|c| *c as u16).collect();
        assert!(Code::ALL.iter().all(|c| Code::from_u16(*c as u16) == *c));
        seen.dedup();
        assert_eq!(seen.len(), Code::ALL.len());
        assert_eq!(Code::from_u16(60_000), Code::Io);
    }
}
