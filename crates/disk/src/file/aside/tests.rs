//! Calls that wait for a word of the test.

use std::sync::mpsc::{Sender, channel};

use super::*;

/// Says which calls began; each waits for a word, with which it fails if it has none.
fn waiting(progress: Box<Progress>) -> (Aside, Receiver<String>, Sender<()>) {
    let ((began, seen), (go, gate)) = (channel(), channel());
    let (began, gate) = (Mutex::new(began), Mutex::new(gate));
    let carry = move |call: &Call| {
        began.lock().send(format!("{call:?}")).map_err(|_| io::Error::other("the test is over"))?;
        gate.lock().recv().map(|()| Vec::new()).map_err(|_| io::Error::other("the test is over"))
    };
    (Aside::new(Arc::new(carry), progress, Duration::ZERO), seen, go)
}

#[test]
fn a_call_that_hangs_is_left_behind_and_others_fail_at_once_until_it_is_done() {
    let (aside, began, go) = waiting(Box::new(|| None));
    assert!(!aside.is_slow());
    let late = aside.run(Call::Flush).unwrap_err();
    assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    assert!(late.to_string().contains("the device hangs: nothing was done"), "{late}");
    assert_eq!(began.recv().unwrap(), "Flush");
    // disk-A2
    assert!(aside.is_slow(), "writes come here too");
    let next = aside.run(Call::Write { offset: 1, bytes: vec![2] }).unwrap_err();
    assert_eq!(next.kind(), io::ErrorKind::TimedOut);
    assert!(next.to_string().contains("left behind: 1"), "{next}");
    go.send(()).unwrap();
    while aside.check_not_hung().is_err() {
        std::thread::yield_now();
    }
    assert!(!aside.is_slow() && began.try_recv().is_err(), "the write was not begun");
    assert_eq!(aside.idle.lock().len(), 1, "it is kept, so that the close waits for its thread");
}

#[test]
fn where_no_thread_can_be_started_the_caller_makes_the_call() {
    let (mut aside, began, go) = waiting(Box::new(|| None));
    aside.start = |_| Err(io::ErrorKind::WouldBlock.into());
    go.send(()).unwrap();
    aside.run(Call::Flush).unwrap();
    assert_eq!(began.recv().unwrap(), "Flush");
    assert!(!aside.is_slow());
}

/// A count that stands still, and none. A read may wait behind a flush of the host's.
#[test]
fn who_cannot_see_the_device_get_on_waits_longer() {
    let flush = || Call::Flush;
    let read = || Call::Read { offset: 0, len: 1 };
    let waits: [(fn() -> Call, _, _); 3] = [(flush, Some(7), 4), (flush, None, 40), (read, None, 40)];
    for (call, count, patiences) in waits {
        let asked = Arc::new(AtomicU64::new(0));
        let counter = asked.clone();
        let progress = move || {
            counter.fetch_add(1, Ordering::Relaxed);
            count
        };
        let (aside, _began, _go) = waiting(Box::new(progress));
        aside.run(call()).unwrap_err();
        assert_eq!(asked.load(Ordering::Relaxed), patiences, "{count:?}");
    }
}

/// The device completes something whenever it is asked, and the flush at last.
#[test]
fn a_device_that_gets_on_is_waited_for() {
    let go: Arc<Mutex<Option<Sender<()>>>> = Arc::default();
    let (told, asked) = (go.clone(), AtomicU64::new(0));
    let progress = move || {
        let n = asked.fetch_add(1, Ordering::Relaxed);
        if n == 10 * u64::from(PATIENCES) {
            told.lock().as_ref().unwrap().send(()).unwrap();
        }
        Some(n)
    };
    let (aside, _began, sender) = waiting(Box::new(progress));
    *go.lock() = Some(sender);
    aside.run(Call::Flush).unwrap();
    // The same thread serves the next.
    go.lock().as_ref().unwrap().send(()).unwrap();
    aside.run(Call::Discard { offset: 0, len: 1 }).unwrap();
    assert_eq!(aside.idle.lock().len(), 1);
}

#[test]
fn who_flushes_long_makes_it_slow_until_he_is_done() {
    let (mut aside, began, go) = waiting(Box::new(|| None));
    aside.set_patience(Duration::from_secs(3600));
    aside.set_long(Duration::ZERO);
    std::thread::scope(|s| {
        s.spawn(|| aside.run(Call::Flush).unwrap());
        began.recv().unwrap();
        assert!(aside.is_slow());
        go.send(()).unwrap();
    });
    assert!(!aside.is_slow());
}

/// Otherwise each write of the log would take the slow path while a leaf is read.
#[test]
fn who_reads_or_reserves_long_makes_nobody_slow() {
    for call in [Call::Read { offset: 0, len: 1 }, Call::Reserve { offset: 0, len: 1 }] {
        let (mut aside, began, go) = waiting(Box::new(|| None));
        aside.set_patience(Duration::from_secs(3600));
        aside.set_long(Duration::ZERO);
        std::thread::scope(|s| {
            // If this fails it lets him go, who would be waited for.
            let go = go;
            s.spawn(|| aside.run(call).unwrap());
            began.recv().unwrap();
            assert!(!aside.is_slow());
            go.send(()).unwrap();
        });
    }
}

#[test]
fn threads_of_a_burst_do_not_stay() {
    let (mut aside, began, go) = waiting(Box::new(|| None));
    aside.set_patience(Duration::from_secs(3600));
    let count = IDLE_MAX + 3;
    std::thread::scope(|s| {
        (0..count).for_each(|_| drop(s.spawn(|| aside.run(Call::Read { offset: 0, len: 1 }).unwrap())));
        (0..count).for_each(|_| began.recv().map(drop).unwrap());
        (0..count).for_each(|_| go.send(()).unwrap());
    });
    assert_eq!(aside.idle.lock().len(), IDLE_MAX);
    assert_eq!(Arc::strong_count(&aside.carry), 1 + IDLE_MAX, "those above it have ended");
}
