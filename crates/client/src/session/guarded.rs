//! The client's words to the guard process of its mount (decision 0056).
//!
//! The kernel uses the pages that it has without asking. So while this process is stopped, another process has to drop them in time. It is told
//! which files may have pages, and when the leases of these may have ended.
//!
//! client-GU1: before the kernel gets a page under a lease, the guard knows the file, and a time at which the lease may have ended.
//! client-GU2: renewals move that time. Near the end of the term and past it, a sign that this process runs moves it, too: then this process
//!     drops the pages itself (client-CP1).
//! client-GU3: there is no such time while no other client can change a file: alone, and with the servers in this process.

use std::collections::HashMap;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use types::Fid;

use crate::Fs;
use crate::wait_for_stop;

/// Files that the guard can be told: twice the leases that this client keeps.
pub const GUARDED_MAX: u32 = 65_536;
/// Between two signs of life: a small part of the time that one of them gives.
const SIGN_EACH: Duration = Duration::from_millis(500);
/// Every so many signs the files without pages are struck out.
const SWEEP_EACH: u32 = 4;

/// The guard process. Its methods wait for nothing.
pub trait Guard: Send + Sync {
    /// The kernel must not use pages past this boot time in milliseconds; 0: there is no such time.
    fn until(&self, boot_ms: u64);
    /// `place` is below `GUARDED_MAX`. 0: no file is there any more.
    fn file(&self, place: u32, fid: u64);
}

#[derive(Default)]
pub(crate) struct Guarded {
    is_on: AtomicBool,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    guard: Option<Box<dyn Guard>>,
    places: HashMap<Fid, u32>,
    free: Vec<u32>,
    /// Places that were ever used.
    used: u32,
    until_ms: u64,
    /// It was logged that there is no place.
    is_full: bool,
}

impl Told {
    fn until(&mut self, boot_ms: u64) {
        if std::mem::replace(&mut self.until_ms, boot_ms) != boot_ms
            && let Some(guard) = &self.guard
        {
            guard.until(boot_ms);
        }
    }

    fn add(&mut self, fid: Fid) {
        let (Some(guard), false) = (&self.guard, self.places.contains_key(&fid)) else { return };
        let next = (self.used < GUARDED_MAX).then_some(self.used);
        let Some(place) = self.free.pop().or(next) else {
            if !std::mem::replace(&mut self.is_full, true) {
                tracing::warn!("the guard process knows {GUARDED_MAX} files with cached pages, and no more");
            }
            return;
        };
        self.used = self.used.max(place + 1);
        guard.file(place, fid.0);
        self.places.insert(fid, place);
    }

    /// Strikes out files whose pages the kernel has dropped.
    fn sweep(&mut self, has_pages: impl Fn(Fid) -> bool) {
        let Told { guard: Some(guard), places, free, .. } = self else { return };
        places.retain(|fid, place| {
            let stays = has_pages(*fid);
            if !stays {
                guard.file(*place, 0);
                free.push(*place);
            }
            stays
        });
    }
}

impl Fs {
    /// Begins to tell `guard`.
    pub fn guard_by(&self, guard: Box<dyn Guard>) {
        let guarded = &self.id.sharing.guarded;
        guarded.told.lock().guard = Some(guard);
        guarded.is_on.store(true, Ordering::SeqCst);
        self.guard_all();
    }

    /// client-GU1: the hold of the file says already that there are pages.
    pub(crate) fn guard_pages_of(&self, fid: Fid) {
        let guarded = &self.id.sharing.guarded;
        if !guarded.is_on.load(Ordering::Relaxed) {
            return;
        }
        let mut told = guarded.told.lock();
        told.add(fid);
        if told.until_ms == 0 {
            told.until(self.pages_end_ms());
        }
    }

    /// Before another client may change anything: of what the kernel has from the time alone.
    pub(crate) fn guard_all(&self) {
        let life = self.id.sharing.life();
        for file in self.files.all().into_iter().filter(|file| file.hold.may_have_pages(life)) {
            self.guard_pages_of(file.fid);
        }
        self.tell_guard(false);
    }

    fn tell_guard(&self, is_sweep: bool) {
        let guarded = &self.id.sharing.guarded;
        if !guarded.is_on.load(Ordering::Relaxed) {
            return;
        }
        let mut told = guarded.told.lock();
        if is_sweep {
            // Under the lock: a file that gets pages meanwhile is added after this.
            let life = self.id.sharing.life();
            told.sweep(|fid| self.files.get(fid).is_some_and(|file| file.hold.may_have_pages(life)));
        }
        let until = if told.places.is_empty() { 0 } else { self.pages_end_ms() };
        told.until(until);
    }

    /// client-GU2, client-GU3.
    fn pages_end_ms(&self) -> u64 {
        match self.is_shared() && !self.is_fate_shared() {
            true => self.id.leased.pages_end_ms(),
            false => 0,
        }
    }
}

/// The thread that gives signs of life.
pub(crate) fn sign_loop(weak: &Weak<Fs>) {
    for n in 1_u32.. {
        if wait_for_stop(weak, SIGN_EACH) {
            return;
        }
        let Some(fs) = weak.upgrade() else { return };
        fs.tell_guard(n.is_multiple_of(SWEEP_EACH));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Default, Clone)]
    struct Notes(Arc<Mutex<Vec<String>>>);

    impl Guard for Notes {
        fn until(&self, boot_ms: u64) {
            self.0.lock().push(format!("until {boot_ms}"));
        }
        fn file(&self, place: u32, fid: u64) {
            self.0.lock().push(format!("{place}: {fid}"));
        }
    }

    fn told() -> (Told, Notes) {
        let notes = Notes::default();
        (Told { guard: Some(Box::new(notes.clone())), ..Told::default() }, notes)
    }

    #[test]
    fn gu1_each_file_with_pages_has_one_place_until_they_are_dropped() {
        let (mut told, notes) = told();
        [7, 8, 7, 9].into_iter().for_each(|fid| told.add(Fid(fid)));
        told.sweep(|fid| fid != Fid(8));
        [7, 10, 11].into_iter().for_each(|fid| told.add(Fid(fid)));
        assert_eq!(*notes.0.lock(), ["0: 7", "1: 8", "2: 9", "1: 0", "1: 10", "3: 11"]);
    }

    #[test]
    fn gu1_no_place_lies_past_the_bound() {
        let (mut told, notes) = told();
        told.used = GUARDED_MAX - 1;
        [1, 2].into_iter().for_each(|fid| told.add(Fid(fid)));
        assert_eq!(*notes.0.lock(), [format!("{}: 1", GUARDED_MAX - 1)]);
    }

    #[test]
    fn a_time_is_told_once() {
        let (mut told, notes) = told();
        [5, 5, 0, 0, 6].into_iter().for_each(|ms| told.until(ms));
        assert_eq!(*notes.0.lock(), ["until 5", "until 0", "until 6"]);
    }
}
