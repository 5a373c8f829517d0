//! store-Q1 to store-Q3: granted space is there for its holder, and for no other session.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use disk::SplitMix;

use super::*;

const A: SessionId = SessionId(1);
const B: SessionId = SessionId(2);
const PAGE: u64 = 4096;
/// More than is ever granted.
const ALL: u64 = 1 << 40;

impl Rig {
    fn with_sessions(settings: Settings) -> Rig {
        let rig = Rig::open_with(Rig::sized(24 << 20).disk, settings);
        [A, B].into_iter().for_each(|s| rig.store.begin_session(s).unwrap());
        rig
    }
    fn write_by(
        &self,
        holder: SessionId,
        object: ObjectId,
        offset: u64,
        data: &[u8],
    ) -> Result<Written, StoreError> {
        let crcs = fragment_crcs(offset, data);
        let (mtime, gate, holder) = (Time::new(1, 0), &anyone, Some(holder));
        let write = Write { object, offset, data, crcs: &crcs, mtime, lease: 0, gate, origin: None, holder };
        Ok(Written::from_answer(self.store.write(&write)?.answer))
    }
    /// With objects from `first` on.
    fn fill_up(&self, first: u64) {
        let (mut n, mut at) = (first, 0);
        for len in [64 << 10, 4096] {
            while self.write(id(n), at, &pattern(at, len)).is_ok() {
                at += len as u64;
                // No object becomes very long.
                (n, at) = if at > 1 << 20 { (n + 1, 0) } else { (n, at) };
            }
            (n, at) = (n + 1, 0);
        }
    }
    fn granted(&self) -> BTreeMap<SessionId, u64> {
        self.store.grants().into_iter().collect()
    }
    /// store-Q1, store-R1: the sum is right, and what is promised is there or comes.
    fn check_space(&self) {
        let sum = self.granted().values().sum::<u64>();
        let space = self.store.space.lock();
        assert_eq!(sum, space.grants.pages() * PAGE);
        assert!(space.free_pages() + space.waiting_pages() >= space.promised_pages(), "{space:?}");
    }
}

fn is_full<T: std::fmt::Debug>(done: &Result<T, StoreError>) -> bool {
    matches!(done, Err(StoreError::NoSpace(_)))
}

#[test]
fn a_full_medium_has_room_for_who_has_a_grant_and_for_nobody_else() {
    for (settings, len) in [(Settings::default(), PAGE), (PLACING, PAGE), (PLACING, 4 * PAGE)] {
        let rig = Rig::with_sessions(settings);
        // 1. store-Q2: a share of what is free.
        let free = rig.store.usage().bytes_available;
        let granted = rig.store.grant(A, ALL, 0);
        assert!(granted > free / 40 && granted <= free / 32, "{granted} of {free}");
        let usage = rig.store.usage();
        assert_eq!(usage.bytes_available, free - granted);
        // 2. Others fill the medium, and find its end before that.
        rig.fill_up(1000);
        let data = pattern(5, len as usize);
        assert!(is_full(&rig.write(id(1), 0, &data)) && is_full(&rig.write_by(B, id(1), 0, &data)));
        assert_eq!(rig.store.grant(B, ALL, 0), 0, "store-Q2: nothing is left to be granted");
        assert_eq!(rig.store.grant(A, ALL, 0), granted, "and nothing is taken away");
        // 3. Its holder writes as much as it was granted, and not more.
        let mut at = 0;
        while at + len <= granted {
            let written =
                rig.write_by(A, id(2), at, &data).unwrap_or_else(|e| panic!("{at} of {granted}: {e}"));
            assert!(written.granted && u64::from(written.pages) * PAGE == len, "{written:?}");
            at += len;
        }
        assert!(is_full(&rig.write_by(A, id(2), at, &data)));
        assert_eq!(rig.granted()[&A], granted - at);
        rig.check_space();
        // 4. All of it survives.
        let want = (0..at / len).flat_map(|_| data.clone()).collect::<Vec<u8>>();
        assert!(rig.crashed(Crash::KeepAll).content(id(2)).unwrap() == want);
    }
}

#[test]
fn what_is_granted_is_everybodys_again_at_the_end_of_the_session_and_of_its_time() {
    type End = (&'static str, fn(&Rig));
    let ends: [End; 3] = [
        ("given back", |rig| assert_eq!(rig.store.grant(A, 0, 0), 0)),
        ("session ended", |rig| rig.store.end_session(A).unwrap()),
        ("not renewed", |rig| rig.store.lapse_grants(GRANT_SEC + 1)),
    ];
    for (what, end) in ends {
        let rig = Rig::with_sessions(Settings::default());
        let granted = rig.store.grant(A, ALL, 0);
        rig.store.lapse_grants(GRANT_SEC);
        assert_eq!(rig.granted(), BTreeMap::from([(A, granted)]));
        rig.fill_up(1000);
        let data = pattern(5, granted as usize / 2);
        assert!(is_full(&rig.write(id(1), 0, &data)));
        end(&rig);
        assert!(rig.granted().is_empty(), "{what}");
        rig.write(id(1), 0, &data).unwrap_or_else(|e| panic!("{what}: {e}"));
        rig.check_space();
    }
    let rig = Rig::with_sessions(Settings::default());
    assert_eq!(rig.store.grant(SESSION, ALL, 0), 0, "a session that is not known has none");
    assert!(rig.granted().is_empty());
}

/// Random sessions, writes with and without a grant, refusals at the last moment, ends, lapses and restarts against a model.
#[test]
fn grants_are_what_a_model_says_and_promise_no_more_than_is_there() {
    let mut used = 0;
    for seed in 0..40 {
        let mut dice = SplitMix::new(seed);
        let mut draw = |n: u64| dice.next_u64() % n;
        let settings = if seed % 2 == 0 { Settings::default() } else { PLACING };
        let mut rig = Rig::with_sessions(settings);
        if seed % 3 > 0 {
            rig.fill_up(1000);
            rig.store.destroy(&[id(1000), id(1001), id(1002)], None).unwrap();
        }
        let mut model = BTreeMap::<SessionId, (u64, u64)>::new();
        for now in 0..150u64 {
            if now % 10 == 9 {
                rig.fill_up(10_000 * now);
            }
            let session = [A, B][draw(2) as usize];
            let have = model.get(&session).map_or(0, |m| m.0);
            match draw(12) {
                0 | 1 => {
                    let wish = draw(2) * draw(1 << 20);
                    let got = rig.store.grant(session, wish, now);
                    assert!(got <= wish && (got >= have || got == wish / PAGE * PAGE), "{have} {wish} {got}");
                    model.insert(session, (got, now));
                }
                2 => {
                    rig.store.end_session(session).unwrap();
                    rig.store.begin_session(session).unwrap();
                    model.remove(&session);
                }
                3 => {
                    rig.store.lapse_grants(now);
                    model.retain(|_, m| m.1 + GRANT_SEC >= now);
                }
                4 if draw(6) == 0 => {
                    rig = rig.crashed(Crash::KeepAll);
                    model.clear();
                }
                5 => _ = rig.store.destroy(&[id(draw(20)), id(1000 + draw(20))], None).unwrap(),
                // The gate closes between the taking of space and the entry: what was taken out of the grant comes back.
                6 => {
                    let asked = AtomicU32::new(0);
                    let gate = |_: &Attrs| match asked.fetch_add(1, Ordering::SeqCst) {
                        0 => Ok(()),
                        _ => Err(Fault::new(Code::Fenced, "")),
                    };
                    let data = pattern(now, (1 + draw(20)) as usize * 4096);
                    let (crcs, mtime) = (fragment_crcs(0, &data), Time::new(1, 0));
                    let (object, holder) = (id(draw(20)), Some(session));
                    let (data, crcs, gate) = (&data[..], &crcs[..], &gate);
                    let write =
                        Write { object, offset: 0, data, crcs, mtime, lease: 0, gate, origin: None, holder };
                    rig.store.write(&write).unwrap_err();
                }
                7 => drop(rig.write(id(draw(20)), draw(1 << 18), &pattern(now, 1 + draw(90_000) as usize))),
                _ => {
                    let len_max = [5_000, 90_000][draw(2) as usize];
                    let (at, len) = (draw(1 << 18), 1 + draw(len_max));
                    let pages = (at + len).div_ceil(PAGE) - at / PAGE;
                    let done = rig.write_by(session, id(draw(20)), at, &pattern(now, len as usize));
                    assert!(
                        !is_full(&done) || have < pages * PAGE,
                        "seed {seed}, {now}: refused within its grant"
                    );
                    if done.is_ok_and(|w| w.granted) {
                        let left = rig.granted().get(&session).copied().unwrap_or(0);
                        assert!(
                            left <= have && have - left <= pages * PAGE,
                            "seed {seed}, {now}: {have} {left}"
                        );
                        model.get_mut(&session).unwrap().0 = left;
                        used += 1;
                    }
                }
            }
            let want =
                model.iter().filter(|(_, m)| m.0 > 0).map(|(s, m)| (*s, m.0)).collect::<BTreeMap<_, _>>();
            let is = rig.granted().into_iter().filter(|(_, bytes)| *bytes > 0).collect::<BTreeMap<_, _>>();
            assert_eq!(is, want, "seed {seed}, step {now}");
            rig.check_space();
        }
    }
    assert!(used > 30, "only {used} writes used a grant");
}
