//! Locks as tables, and compared with a model that knows only bytes.

use std::collections::{BTreeMap, BTreeSet};

use hammer::Dice;
use wire::lock::LockKind::{Read, Unlock, Write};
use wire::lock::LockOutcome::{Conflict, Deadlock, Full, Granted, Wait};
use wire::lock::LockSpace::{Flock, Posix};

use super::*;

fn owner(n: u64) -> Owner {
    Owner { session: SessionId(n / 10), token: n }
}

fn ask(space: LockSpace, who: u64, kind: LockKind, start: u64, end: u64) -> Ask {
    let range = Range { start, end };
    Ask { resource: (Fid(16), space), owner: owner(who), range, kind, pid: who as u32, ticket: None }
}

fn on(fid: u64, ask: Ask) -> Ask {
    Ask { resource: (Fid(fid), ask.resource.1), ..ask }
}

fn waiting(ask: Ask, ticket: u64) -> Ask {
    Ask { ticket: Some(ticket), ..ask }
}

fn shown(table: &LockTable, space: LockSpace) -> Vec<(u64, LockKind, u64, u64)> {
    let held = table.held((Fid(16), space)).iter();
    held.map(|h| (h.owner.token, h.kind, h.range.start, h.range.end)).collect()
}

#[test]
fn ranges_split_merge_and_convert() {
    // requests, then held locks
    let table = [
        ((Write, 10, 19), vec![(Write, 10, 19)]),
        ((Write, 30, 39), vec![(Write, 10, 19), (Write, 30, 39)]),
        ((Write, 20, 29), vec![(Write, 10, 39)]),
        ((Read, 15, 24), vec![(Write, 10, 14), (Read, 15, 24), (Write, 25, 39)]),
        ((Unlock, 20, 29), vec![(Write, 10, 14), (Read, 15, 19), (Write, 30, 39)]),
        ((Write, 12, 17), vec![(Write, 10, 17), (Read, 18, 19), (Write, 30, 39)]),
        ((Unlock, 0, u64::MAX), vec![]),
        ((Read, 0, u64::MAX), vec![(Read, 0, u64::MAX)]),
        ((Unlock, 5, 5), vec![(Read, 0, 4), (Read, 6, u64::MAX)]),
        ((Read, 5, 5), vec![(Read, 0, u64::MAX)]),
        ((Write, 0, 0), vec![(Write, 0, 0), (Read, 1, u64::MAX)]),
    ];
    let mut locks = LockTable::default();
    for ((kind, start, end), want) in table {
        assert_eq!(locks.ask(&ask(Posix, 1, kind, start, end), 0), Granted);
        let held: Vec<_> = shown(&locks, Posix).into_iter().map(|(_, k, s, e)| (k, s, e)).collect();
        assert_eq!(held, want, "after {kind:?} {start}-{end}");
    }
}

#[test]
fn the_first_lock_in_the_way_is_shown() {
    let mut locks = LockTable::default();
    locks.ask(&ask(Posix, 1, Read, 50, 59), 0);
    locks.ask(&ask(Posix, 2, Write, 20, 29), 0);
    let found = locks.test(&ask(Posix, 3, Write, 0, 99)).unwrap();
    assert_eq!((found.start, found.end, found.kind, found.pid), (20, 29, Write, 2));
    assert_eq!(locks.test(&ask(Posix, 3, Read, 40, 99)), None, "two may read");
    assert_eq!(locks.test(&ask(Posix, 2, Write, 20, 29)), None, "one's own is in nobody's way");
    assert_eq!(locks.test(&ask(Flock, 3, Write, 0, 99)), None, "spaces do not know of each other");
}

#[test]
fn a_place_is_kept_by_asking_and_lost_by_silence() {
    let mut locks = LockTable::default();
    locks.ask(&ask(Flock, 1, Write, 0, 9), 0);
    assert_eq!(locks.ask(&waiting(ask(Flock, 11, Write, 0, 9), 1), 0), Wait);
    assert_eq!(locks.ask(&waiting(ask(Flock, 12, Write, 0, 9), 2), 0), Wait);
    let resource = (Fid(16), Flock);
    assert!(!locks.look(resource, SessionId(1), 2, PLACE_MS));
    // Ticket 1 did not ask again; ticket 2 did.
    locks.ask(&ask(Flock, 1, Unlock, 0, 9), PLACE_MS + 1);
    assert!(locks.look(resource, SessionId(1), 1, PLACE_MS + 1), "no place: ask for a new one");
    assert!(locks.look(resource, SessionId(1), 2, PLACE_MS + 1));
    assert_eq!(locks.ask(&waiting(ask(Flock, 11, Write, 0, 9), 1), PLACE_MS + 1), Wait, "behind 2 now");
    assert_eq!(locks.ask(&waiting(ask(Flock, 12, Write, 0, 9), 2), PLACE_MS + 1), Granted);
    locks.sweep(2 * PLACE_MS + 2);
    locks.drop_owner(resource, owner(12));
    assert!(locks.is_empty() && locks.sessions.is_empty());
}

#[test]
fn readers_pass_a_writer_that_waits_but_nobody_passes_one_whose_turn_it_is() {
    for space in [Posix, Flock] {
        let mut locks = LockTable::default();
        locks.ask(&ask(space, 1, Read, 0, 9), 0);
        assert_eq!(locks.ask(&waiting(ask(space, 2, Write, 0, 9), 1), 0), Wait);
        assert_eq!(locks.ask(&waiting(ask(space, 3, Read, 0, 9), 2), 0), Granted);
        locks.ask(&ask(space, 3, Unlock, 0, 9), 0);
        assert!(locks.take_woken().is_empty());
        locks.ask(&ask(space, 1, Unlock, 0, 9), 0);
        assert_eq!(locks.take_woken(), [(SessionId(0), 1)]);
        assert_eq!(locks.ask(&waiting(ask(space, 1, Write, 0, 9), 3), 0), Wait);
        assert_eq!(locks.ask(&waiting(ask(space, 2, Write, 0, 9), 1), 0), Granted);
    }
}

#[test]
fn a_try_takes_what_is_free() {
    let mut locks = LockTable::default();
    locks.ask(&ask(Posix, 1, Write, 0, 9), 0);
    locks.ask(&waiting(ask(Posix, 2, Write, 0, 9), 1), 0);
    locks.ask(&ask(Posix, 1, Unlock, 0, 9), 0);
    assert_eq!(locks.ask(&ask(Posix, 3, Write, 0, 9), 0), Granted);
}

#[test]
fn a_refused_change_of_a_flock_costs_the_old_one() {
    let mut locks = LockTable::default();
    locks.ask(&ask(Flock, 1, Read, 0, 9), 0);
    locks.ask(&ask(Flock, 2, Read, 0, 9), 0);
    assert_eq!(locks.ask(&ask(Flock, 1, Write, 0, 9), 0), Conflict);
    assert_eq!(shown(&locks, Flock), [(2, Read, 0, 9)]);
    // An fcntl lock changes in one step, or stays.
    locks.ask(&ask(Posix, 1, Read, 0, 9), 0);
    locks.ask(&ask(Posix, 2, Read, 0, 9), 0);
    assert_eq!(locks.ask(&ask(Posix, 1, Write, 0, 9), 0), Conflict);
    assert_eq!(shown(&locks, Posix).len(), 2);
}

#[test]
fn circles_are_found_across_files_and_sessions() {
    let mut locks = LockTable::default();
    for n in 1..=3 {
        locks.ask(&on(n, ask(Posix, 10 * n, Write, 0, 9)), 0);
    }
    assert_eq!(locks.ask(&waiting(on(2, ask(Posix, 10, Write, 5, 5)), 1), 0), Wait);
    assert_eq!(locks.ask(&waiting(on(3, ask(Posix, 20, Read, 0, 0)), 1), 0), Wait);
    assert_eq!(locks.ask(&waiting(on(1, ask(Posix, 30, Write, 9, 9)), 1), 0), Deadlock);
    assert_eq!(locks.ask(&waiting(on(1, ask(Posix, 30, Write, 10, 10)), 2), 0), Granted);
    // A cancelled waiter is no part of a deadlock.
    locks.cancel((Fid(2), Posix), SessionId(1), 1);
    assert_eq!(locks.ask(&waiting(on(1, ask(Posix, 30, Write, 9, 9)), 3), 0), Wait);
    // Neither is a waiter whose client stopped asking.
    let later = PLACE_MS + 1;
    assert_eq!(locks.ask(&waiting(on(2, ask(Posix, 10, Write, 5, 5)), 4), later), Wait);
    // Two readers that both want to write.
    let mut locks = LockTable::default();
    locks.ask(&ask(Posix, 1, Read, 0, 0), 0);
    locks.ask(&ask(Posix, 2, Read, 0, 0), 0);
    assert_eq!(locks.ask(&waiting(ask(Posix, 1, Write, 0, 0), 1), 0), Wait);
    assert_eq!(locks.ask(&waiting(ask(Posix, 2, Write, 0, 0), 2), 0), Deadlock);
}

#[test]
fn a_session_takes_all_that_is_its_own_with_it() {
    let mut locks = LockTable::default();
    locks.ask(&ask(Posix, 11, Write, 0, 9), 0);
    locks.ask(&on(7, ask(Flock, 12, Write, 0, 9)), 0);
    locks.ask(&ask(Posix, 21, Write, 20, 29), 0);
    locks.ask(&waiting(ask(Posix, 13, Write, 20, 29), 1), 0);
    locks.ask(&waiting(ask(Posix, 22, Write, 5, 5), 1), 0);
    locks.take_woken();
    locks.drop_session(SessionId(1));
    assert_eq!(locks.take_woken(), [(SessionId(2), 1)]);
    assert_eq!(shown(&locks, Posix), [(21, Write, 20, 29)]);
    assert!(locks.held((Fid(7), Flock)).is_empty());
    locks.drop_session(SessionId(2));
    assert!(locks.is_empty() && locks.sessions.is_empty() && locks.blocked.is_empty());
}

#[test]
fn what_is_reclaimed_does_not_overwrite_another() {
    let mut locks = LockTable::default();
    let lock =
        |owner, start, end| HeldLock { fid: Fid(16), space: Posix, owner, start, end, kind: Write, pid: 1 };
    assert!(locks.reclaim(SessionId(1), &lock(11, 0, 9)));
    assert!(locks.reclaim(SessionId(1), &lock(11, 0, 9)), "it may come twice");
    assert!(!locks.reclaim(SessionId(2), &lock(21, 9, 12)));
    assert_eq!(shown(&locks, Posix), [(11, Write, 0, 9)]);
}

#[test]
fn a_session_has_bounds() {
    let mut locks = LockTable::default();
    for n in 0..HELD_MAX as u64 {
        locks.put(&on(n, ask(Flock, 1, Write, 0, 9)));
    }
    assert_eq!(locks.ask(&ask(Posix, 1, Write, 0, 9), 0), Full);
    assert_eq!(locks.ask(&ask(Posix, 11, Write, 0, 9), 0), Granted, "it is another's bound");
    locks.put(&ask(Posix, 1, Write, 0, 9));
    assert_eq!(locks.ask(&ask(Posix, 1, Unlock, 4, 5), 0), Full, "both ends of the lock would stay");
    assert_eq!(locks.ask(&ask(Posix, 1, Unlock, 0, 5), 0), Granted);
    assert_eq!(locks.ask(&ask(Posix, 1, Unlock, 6, 9), 0), Granted);
    for n in 0..WAITING_MAX as u64 {
        assert_eq!(locks.ask(&waiting(ask(Posix, 100 + n % 10, Write, 0, 9), n), 0), Wait);
    }
    assert_eq!(locks.ask(&waiting(ask(Posix, 100, Write, 0, 9), 99_999), 0), Full);
    assert_eq!(locks.ask(&waiting(ask(Posix, 100, Write, 0, 9), 0), 0), Wait, "it has a place");
}

/// The bytes of one file, each with its holders: the effect of meta-L1 to meta-L3.
#[derive(Default)]
struct Bytes(BTreeMap<(u64, u64), LockKind>);

const BYTES: u64 = 12;
const OWNERS: u64 = 5;

impl Bytes {
    fn is_free(&self, ask: &Ask) -> bool {
        self.holders(ask).is_empty()
    }
    fn holders(&self, ask: &Ask) -> BTreeSet<u64> {
        let excludes = |kind: LockKind| kind == Write || ask.kind == Write;
        let held = self.0.iter().filter(|((byte, who), kind)| {
            *who != ask.owner.token && (ask.range.start..=ask.range.end).contains(byte) && excludes(**kind)
        });
        held.map(|((_, who), _)| *who).collect()
    }
    fn put(&mut self, ask: &Ask) {
        for byte in ask.range.start..=ask.range.end {
            match ask.kind {
                Unlock => self.0.remove(&(byte, ask.owner.token)),
                kind => self.0.insert((byte, ask.owner.token), kind),
            };
        }
    }
    fn of(table: &LockTable, resource: Resource) -> Bytes {
        let held = table.held(resource).iter();
        Bytes(
            held.flat_map(|h| (h.range.start..=h.range.end).map(|b| ((b, h.owner.token), h.kind))).collect(),
        )
    }
}

/// True if `who`, waiting for `for_whom`, would close a circle of waiting owners.
fn closes_circle(waits: &BTreeMap<u64, BTreeSet<u64>>, who: u64, for_whom: &BTreeSet<u64>) -> bool {
    let mut reached = for_whom.clone();
    loop {
        let more: BTreeSet<u64> = reached.iter().flat_map(|o| waits.get(o)).flatten().copied().collect();
        let before = reached.len();
        reached.extend(more);
        if reached.len() == before {
            return reached.contains(&who);
        }
    }
}

/// Owners take, try, wait, cancel and release; a waiting owner does nothing else. Every answer is the one of the model, and in the end
/// every waiter gets its lock.
#[test]
fn random_owners_get_what_the_bytes_say() {
    let mut outcomes = BTreeMap::new();
    for seed in 0..if std::env::var_os("STRIA_LONG").is_some() { 20_000 } else { 400 } {
        let mut dice = Dice::new(seed);
        let (mut locks, mut model) = (LockTable::default(), Bytes::default());
        let mut waits: BTreeMap<u64, Ask> = BTreeMap::new();
        for step in 0..120u64 {
            let who = dice.below(OWNERS as usize) as u64;
            let asked = match waits.get(&who) {
                Some(waiting) if dice.below(8) == 0 => {
                    locks.cancel(waiting.resource, waiting.owner.session, who);
                    waits.remove(&who);
                    continue;
                }
                Some(waiting) => *waiting,
                None => {
                    let (a, b) = (dice.below(BYTES as usize) as u64, dice.below(BYTES as usize) as u64);
                    let kind = [Read, Write, Write, Unlock][dice.below(4)];
                    let asked = ask(Posix, who, kind, a.min(b), a.max(b));
                    if dice.below(2) == 0 { waiting(asked, who) } else { asked }
                }
            };
            let outcome = locks.ask(&asked, step);
            *outcomes.entry(format!("{outcome:?}")).or_insert(0) += 1;
            let line = format!("seed {seed} step {step} {asked:?}");
            let holders: BTreeMap<u64, BTreeSet<u64>> =
                waits.iter().filter(|(w, _)| **w != who).map(|(w, a)| (*w, model.holders(a))).collect();
            let is_free = asked.kind == Unlock || model.is_free(&asked);
            match outcome {
                Granted => {
                    assert!(is_free, "{line}");
                    model.put(&asked);
                    waits.remove(&who);
                }
                Conflict => assert!(!is_free && asked.ticket.is_none(), "{line}"),
                Wait => {
                    let is_anothers = holders.values().any(BTreeSet::is_empty);
                    assert!(!is_free || is_anothers, "{line}");
                    assert!(!closes_circle(&holders, who, &model.holders(&asked)), "{line}");
                    waits.insert(who, asked);
                }
                Deadlock => {
                    assert!(closes_circle(&holders, who, &model.holders(&asked)), "{line}");
                    waits.remove(&who);
                }
                Full => panic!("{line}"),
            }
            assert_eq!(Bytes::of(&locks, asked.resource).0, model.0, "{line}");
        }
        // Owners that do not wait release their locks; then the waiters are served.
        let mut rounds = 0;
        while !waits.is_empty() || !locks.is_empty() {
            for who in 0..OWNERS {
                match waits.get(&who).copied() {
                    None => locks.drop_owner((Fid(16), Posix), owner(who)),
                    Some(waiting) if locks.ask(&waiting, 120) == Granted => drop(waits.remove(&who)),
                    Some(_) => {}
                }
            }
            rounds += 1;
            assert!(rounds <= OWNERS * 2, "seed {seed}: somebody waits for ever");
        }
        assert!(locks.sessions.is_empty(), "seed {seed}");
    }
    assert!(["Granted", "Conflict", "Wait", "Deadlock"].iter().all(|o| outcomes[*o] > 100), "{outcomes:?}");
}

#[test]
fn a_waiter_is_told_of_its_turn_once_until_it_asks() {
    let mut locks = LockTable::default();
    locks.ask(&ask(Flock, 1, Write, 0, 9), 0);
    for owner in 2..6 {
        assert_eq!(locks.ask(&waiting(ask(Flock, owner, Read, 0, 9), owner), 0), Wait);
    }
    locks.ask(&ask(Flock, 1, Unlock, 0, 9), 0);
    assert_eq!(locks.take_woken().len(), 4);
    // One takes its lock. The others were told already.
    assert_eq!(locks.ask(&waiting(ask(Flock, 2, Read, 0, 9), 2), 0), Granted);
    assert!(locks.take_woken().is_empty());
    // A writer comes before the others ask: they wait anew, and are told anew.
    locks.ask(&ask(Flock, 2, Unlock, 0, 9), 0);
    assert_eq!(locks.ask(&ask(Flock, 9, Write, 0, 9), 0), Granted);
    assert_eq!(locks.ask(&waiting(ask(Flock, 3, Read, 0, 9), 3), 0), Wait);
    locks.take_woken();
    locks.ask(&ask(Flock, 9, Unlock, 0, 9), 0);
    assert_eq!(locks.take_woken(), [(SessionId(0), 3)]);
}
