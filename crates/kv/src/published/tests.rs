use std::sync::{Barrier, mpsc};
use std::thread::{self, ThreadId};

use super::*;

/// Notes who freed it.
struct State {
    number: u64,
    freed: Arc<Mutex<Vec<(u64, ThreadId)>>>,
}

impl Drop for State {
    fn drop(&mut self) {
        self.freed.lock().push((self.number, thread::current().id()));
    }
}

#[derive(Default)]
struct Freed(Arc<Mutex<Vec<(u64, ThreadId)>>>);

impl Freed {
    fn state(&self, number: u64) -> State {
        State { number, freed: self.0.clone() }
    }
    fn numbers(&self) -> Vec<u64> {
        self.0.lock().iter().map(|(number, _)| *number).collect()
    }
}

fn publish(published: &Published<State>, bytes: u64) {
    published.publish(|s| (State { number: s.number + 1, freed: s.freed.clone() }, bytes));
}

#[test]
fn a_reader_that_finds_nothing_new_writes_its_own_slot_only() {
    let freed = Freed::default();
    let published = Published::new(freed.state(0));
    drop(published.reader());
    // What a second one would touch: the mark, and the state's count.
    published.newest.0.lock().is_taken = false;
    let count = || Arc::strong_count(&published.newest.0.lock().state);
    assert_eq!(count(), 2, "the slot's");
    for _ in 0..100 {
        let reader = published.reader();
        assert!(matches!(reader, Reader::Seated(_)) && count() == 2);
    }
    assert!(!published.newest.0.lock().is_taken, "nor was it taken again");
    publish(&published, 0);
    assert_eq!(published.reader().number, 1);
}

#[test]
fn a_reader_within_a_reader_sees_what_is_newest() {
    let freed = Freed::default();
    let published = Published::new(freed.state(0));
    let outer = published.reader();
    publish(&published, 0);
    let inner = published.reader();
    assert_eq!((outer.number, inner.number), (0, 1));
    assert!(matches!(inner, Reader::Standing(_)));
    publish(&published, 0);
    assert_eq!(freed.numbers(), [], "both are read");
    drop((outer, inner));
    assert_eq!(freed.numbers(), [], "kv-R3: not by who reads");
    publish(&published, 0);
    assert_eq!(freed.numbers(), [2], "that nobody took; the slot has 0 still");
    assert_eq!(published.reader().number, 3);
    publish(&published, 0);
    assert_eq!(freed.numbers(), [2, 0, 1]);
}

/// kv-R2, kv-R3: by states and by bytes.
#[test]
fn an_idle_slot_is_emptied_and_one_that_is_read_is_not() {
    for (publications, bytes) in [(SWEEP_STATES as u64, 0), (4, SWEEP_BYTES / 4)] {
        let freed = Freed::default();
        let published = Published::new(freed.state(0));
        let ready = Barrier::new(2);
        thread::scope(|s| {
            // Ends the other thread, also when this one fails.
            let (over, lives) = mpsc::channel::<()>();
            let (published, ready) = (&published, &ready);
            // One has read the first state and lives on; this thread stays in it for a while.
            s.spawn(move || {
                assert_eq!(published.reader().number, 0);
                ready.wait();
                lives.into_iter().next();
            });
            ready.wait();
            let held = published.reader();
            for _ in 1..publications {
                publish(published, bytes);
            }
            assert!(!freed.numbers().contains(&0), "the slots have it");
            publish(published, bytes);
            assert!(!freed.numbers().contains(&0), "and this thread reads it");
            assert_eq!((held.number, published.kept()), (0, 1));
            drop(held);
            publish(published, bytes);
            assert!(!freed.numbers().contains(&0), "its slot has it until the next sweep");
            for _ in 1..publications {
                publish(published, bytes);
            }
            assert_eq!((freed.numbers().contains(&0), published.kept()), (true, 0));
            drop(over);
        });
    }
}

#[test]
fn numbers_of_threads_are_used_again() {
    let published = Published::new(0u64);
    // One after the other: far more threads than slots, and each has one, unless other tests' threads have so many.
    for _ in 0..2 * SLOTS {
        let is_seated = thread::scope(|s| {
            let reads = || matches!(published.reader(), Reader::Seated(_));
            s.spawn(reads).join().unwrap()
        });
        assert!(is_seated);
    }
}

/// kv-R1 to kv-R4 beside a writer that never stops: what is read is whole and never older than before, one reads an old state to the
/// end, one reads once and lives on, and all that is freed is freed by the writer.
#[test]
fn readers_beside_a_writer() {
    const PUBLICATIONS: u64 = 20_000;
    struct Whole(State, Vec<u64>);
    let freed = Freed::default();
    let whole = |number| Whole(freed.state(number), vec![number; 32]);
    let published = Published::new(whole(0));
    let (begin, end) = (Barrier::new(5), Barrier::new(5));
    let check = |state: &Whole| {
        assert!(state.1.iter().all(|n| *n == state.0.number));
        state.0.number
    };
    thread::scope(|s| {
        // Those who read on.
        for _ in 0..2 {
            s.spawn(|| {
                begin.wait();
                let mut last = 0;
                while last < PUBLICATIONS {
                    let now = check(&published.reader());
                    assert!(now >= last, "kv-R4");
                    last = now;
                }
                end.wait();
            });
        }
        // A reader that holds an old state.
        s.spawn(|| {
            let held = published.reader();
            begin.wait();
            end.wait();
            assert_eq!(check(&held), 0, "kv-R1");
        });
        // A reader that reads once.
        s.spawn(|| {
            check(&published.reader());
            begin.wait();
            end.wait();
        });
        begin.wait();
        let mut kept = 0;
        for _ in 0..PUBLICATIONS {
            published.publish(|s| (whole(s.0.number + 1), 0));
            kept = kept.max(published.kept());
        }
        assert!(kept <= SWEEP_STATES + 5, "kv-R2: {kept} states were kept");
        let writer = thread::current().id();
        assert!(freed.0.lock().iter().all(|(_, by)| *by == writer), "kv-R3");
        assert!(freed.numbers().len() as u64 > PUBLICATIONS - 2 * SWEEP_STATES as u64, "old states go");
        end.wait();
    });
}
