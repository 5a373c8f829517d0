//! Troubles of a volume's media that leave the volume alive. A member of a mirror hands over for them while the other member is in sync
//! (pair-S11); an unmirrored target goes on, and tells each request that meets one.
//!
//! A medium that failed once may do well later. So a trouble counts for `RECENT`, and longer only if bytes were read that are certainly wrong.

use std::io;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::{is_full, is_passing};

/// Background work that fails is tried again each 10 s, and brings a trouble that lasts up again before it is forgotten.
const RECENT: Duration = Duration::from_secs(15);

/// The reason for which another member of a mirror should take over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The volume has failed, and may have lost what it acknowledged.
    Failed(String),
    /// A part of the content cannot be read. The rest is as it was.
    Unreadable(String),
    /// Writes are refused, for want of space if `is_full`. The content is as it was.
    Refused { why: String, is_full: bool },
}

/// Notes troubles where they are met, from any thread.
#[derive(Debug, Default)]
pub struct Troubles {
    /// Wrong bytes stay wrong.
    wrong: OnceLock<String>,
    unread: Mutex<Option<Noted>>,
    refused: Mutex<Option<Noted>>,
}

#[derive(Clone, Debug)]
struct Noted {
    why: String,
    is_full: bool,
    at: Instant,
}

impl Troubles {
    /// A part of the content that is needed could not be read. A passing error says nothing about it.
    pub fn note_unread(&self, what: &str, e: &io::Error) {
        let why = || format!("{what} cannot be read: {e}");
        if e.kind() == io::ErrorKind::InvalidData {
            self.wrong.get_or_init(why);
        } else if !is_passing(e) {
            *self.unread.lock() = Some(Noted { why: why(), is_full: false, at: Instant::now() });
        }
    }

    /// The medium has refused a write that is needed.
    pub fn note_refused(&self, what: &str, e: &io::Error) {
        let why = format!("{what}: {e}");
        *self.refused.lock() = Some(Noted { why, is_full: is_full(e), at: Instant::now() });
    }

    /// The worst trouble of late.
    pub fn now(&self) -> Option<Trouble> {
        self.at(Instant::now())
    }

    fn at(&self, now: Instant) -> Option<Trouble> {
        let is_recent = |noted: &Noted| now.saturating_duration_since(noted.at) < RECENT;
        let unread = || self.unread.lock().clone().filter(is_recent).map(|noted| noted.why);
        if let Some(why) = self.wrong.get().cloned().or_else(unread) {
            return Some(Trouble::Unreadable(why));
        }
        let Noted { why, is_full, .. } = self.refused.lock().clone().filter(is_recent)?;
        Some(Trouble::Refused { why, is_full })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_forgotten_after_a_while_and_wrong_bytes_are_not() {
        let (full, wrong) = (io::ErrorKind::StorageFull.into(), io::ErrorKind::InvalidData.into());
        let (hung, other): (io::Error, _) = (io::ErrorKind::TimedOut.into(), io::Error::other("gone"));
        let troubles = Troubles::default();
        let late = || Instant::now() + RECENT;
        assert_eq!(troubles.now(), None);
        troubles.note_unread("a leaf", &hung);
        assert_eq!(troubles.now(), None, "a device that hangs says nothing about the bytes");
        troubles.note_refused("no space", &full);
        assert!(matches!(troubles.now(), Some(Trouble::Refused { is_full: true, .. })));
        troubles.note_unread("a leaf", &other);
        let unread = Trouble::Unreadable("a leaf cannot be read: gone".into());
        assert_eq!((troubles.now(), troubles.at(late())), (Some(unread), None));
        troubles.note_unread("a leaf", &wrong);
        assert!(matches!(troubles.at(late()), Some(Trouble::Unreadable(_))));
    }
}
