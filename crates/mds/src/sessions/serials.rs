//! The certificates by which a session was used, and the end of a session whose certificates are revoked.
//!
//! mds-S5: a session ends when a revocation list names every certificate by which this start saw it used. A node that has a newer certificate
//!     goes on with its session.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use pki::Serial;

use crate::Core;

/// Certificates that are remembered of a session, the newest ones. A node has two during a renewal.
const KEPT: usize = 8;
/// The reason that the client and the log are told.
const REVOKED: &str = "its certificate is revoked";

/// Serials of certificates. Each request looks at the last one only.
#[derive(Debug, Default)]
pub struct Serials {
    /// Halves of the last one. A mix of two is like none: its request takes the lock.
    last: [AtomicU64; 2],
    seen: Mutex<Vec<Serial>>,
}

impl Serials {
    /// True: it is new, and the session was used with another one before.
    pub fn note(&self, serial: Serial) -> bool {
        let halves = [serial.0 as u64, (serial.0 >> 64) as u64];
        let is_last = |n: usize| self.last[n].load(Ordering::Relaxed) == halves[n];
        if is_last(0) && is_last(1) {
            return false;
        }
        let mut seen = self.seen.lock();
        (0..2).for_each(|n| self.last[n].store(halves[n], Ordering::Relaxed));
        if seen.contains(&serial) {
            return false;
        }
        if seen.len() == KEPT {
            seen.remove(0);
        }
        seen.push(serial);
        seen.len() > 1
    }

    fn are_revoked(&self, is_revoked: &dyn Fn(Serial) -> bool) -> bool {
        let seen = self.seen.lock();
        !seen.is_empty() && seen.iter().all(|serial| is_revoked(*serial))
    }
}

impl Core {
    /// mds-S5, after a new revocation list.
    pub fn end_revoked(&self, is_revoked: &dyn Fn(Serial) -> bool) {
        let mut ended = Vec::new();
        self.sessions.each(|session| {
            if session.serials.are_revoked(is_revoked) {
                ended.push(session.clone());
            }
        });
        let _one = self.ending.lock();
        for session in ended {
            let node = session.holder.as_ref().map_or("", |holder| &holder.uri);
            tracing::warn!(
                session = session.id.0,
                client = session.name,
                node,
                "a session ends: its certificate is revoked"
            );
            if let Err(fault) = self.evict_because(session.id, REVOKED) {
                tracing::warn!(session = session.id.0, %fault, "the session could not be ended; it ends when its client was silent for its time-out");
            }
        }
    }
}
