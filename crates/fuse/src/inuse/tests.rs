use std::time::Duration;

use super::*;

const F: Fid = Fid(7);
const PAGE: u64 = PAGE_SIZE as u64;
/// Thread ids.
const WRITER: u32 = 1;
const OTHER: u32 = 2;

fn opened() -> InUse {
    let table = InUse::default();
    table.opened(F, 1, (true, true, false));
    table
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

#[test]
fn a_node_lives_as_long_as_its_handles() {
    let table = InUse::default();
    table.opened(F, 1, (true, true, false));
    table.opened(F, 2, (false, false, true));
    assert!(table.may_be_mapped(F) && table.is_uncached(F, 2) && !table.is_uncached(F, 1));
    table.released(F, 1, true);
    assert!(!table.may_be_mapped(F));
    table.released(F, 2, false);
    assert!(table.nodes(F).is_empty());
    assert!(table.begin_direct(F, 0, 10).is_none());
}

#[test]
fn g1_no_size_is_told_before_the_kernel_reads_so_far() {
    let table = opened();
    // step: the size of 8192 bytes that other threads are told
    table.begin_growth(F, WRITER, 4096, 8192, 4096, true);
    assert_eq!(table.told(F, OTHER, 8192, false), Told::Size(4096), "under way");
    table.end_growth(F, Some(8192));
    let Told::Unsure { growth, end } = table.told(F, OTHER, 8192, false) else { panic!("answered") };
    assert_eq!(end, 8192);
    assert!(matches!(table.told(F, OTHER, 8192, true), Told::Unsure { .. }), "the kernel is asked again");
    table.kernel_reads(F, growth, end);
    assert_eq!(table.told(F, OTHER, 8192, false), Told::Size(8192));
}

#[test]
fn g1_the_writer_is_told_its_own_size_at_once() {
    let table = opened();
    table.begin_growth(F, WRITER, 0, 4096, 0, true);
    table.end_growth(F, Some(4096));
    assert_eq!(table.told(F, WRITER, 4096, false), Told::Size(4096));
    assert_eq!(table.told(F, OTHER, 4096, false), Told::Size(4096), "its call is over for others, too");
    // An unknown thread is never taken for the writer.
    table.begin_growth(F, 0, 4096, 8192, 4096, true);
    table.end_growth(F, Some(8192));
    assert!(matches!(table.told(F, 0, 8192, false), Told::Unsure { .. }));
}

/// Requests of one call look like those of successive calls: the kernel is asked how far it can read.
#[test]
fn g1_in_a_row_of_requests_the_kernel_decides() {
    let table = opened();
    table.begin_growth(F, WRITER, 0, 4096, 0, true);
    table.end_growth(F, Some(4096));
    table.begin_growth(F, WRITER, 4096, 8192, 4096, true);
    let Told::Unsure { growth, end } = table.told(F, OTHER, 8192, false) else { panic!("a row") };
    assert_eq!(end, 4096);
    assert_eq!(table.told(F, OTHER, 8192, true), Told::Size(0), "one call, which is not over");
    table.kernel_reads(F, growth, end);
    assert_eq!(table.told(F, OTHER, 8192, false), Told::Size(4096), "the first call was over");
    // A request at another place, or of another thread, begins another call.
    table.end_growth(F, Some(8192));
    table.begin_growth(F, OTHER, 0, 100, 8192, true);
    assert_eq!(table.told(F, 3, 8192, false), Told::Size(8192));
}

#[test]
fn g1_a_growth_that_failed_or_leaves_no_pages_is_over_with_its_answer() {
    let table = opened();
    table.begin_growth(F, WRITER, 0, 4096, 0, true);
    table.end_growth(F, None);
    assert_eq!(table.told(F, OTHER, 0, false), Told::Size(0));
    table.begin_growth(F, WRITER, 0, 4096, 0, false);
    assert_eq!(table.told(F, OTHER, 4096, false), Told::Size(0));
    table.end_growth(F, Some(4096));
    assert_eq!(table.told(F, OTHER, 4096, false), Told::Size(4096));
    table.begin_growth(F, WRITER, 4096, 8192, 4096, true);
    table.size_set(F);
    assert_eq!(table.told(F, OTHER, 10, false), Told::Size(10));
}

#[test]
fn g2_pages_that_were_never_filled_need_no_clearing() {
    let table = opened();
    let begun = table.begin_direct(F, 100, 10).unwrap();
    assert_eq!((begun.must_clear, begun.range.clone()), (false, 0..PAGE));
    table.end_direct(&begun);
    table.fill(F, 0..PAGE, soon(), || false);
    assert!(table.begin_direct(F, 100, 10).unwrap().must_clear);
}

#[test]
fn g2_pages_that_are_filled_while_they_are_dropped_are_dropped_again() {
    let table = opened();
    table.fill(F, 0..PAGE, soon(), || false);
    let begun = table.begin_direct(F, 0, 10).unwrap();
    table.fill(F, PAGE..2 * PAGE, soon(), || false);
    assert!(!table.clear_again(&begun, 1), "another page");
    table.end_direct(&begun);
    let begun = table.begin_direct(F, 0, 10).unwrap();
    // The kernel waits for the lock of this page, so the read goes on in the end.
    table.fill(F, 0..1, soon(), || false);
    assert!(table.clear_again(&begun, 1));
    assert!(!table.clear_again(&begun, 2));
    table.end_direct(&begun);
    let begun = table.begin_direct(F, 0, 10).unwrap();
    table.fill(F, 0..1, soon(), || false);
    assert!(!table.clear_again(&begun, PASSES_MAX), "it ends");
}

/// A program that reads a page again and again cannot block a direct write.
#[test]
fn g2_a_read_that_is_held_back_goes_behind_the_write() {
    let table = opened();
    table.fill(F, 0..PAGE, soon(), || false);
    let is_written = std::sync::atomic::AtomicBool::new(false);
    let mut passes = Vec::new();
    for _ in 0..50 {
        is_written.store(false, std::sync::atomic::Ordering::SeqCst);
        let begun = table.begin_direct(F, 0, 10).unwrap();
        std::thread::scope(|s| {
            let read = s.spawn(|| {
                table.fill(F, 0..PAGE, soon(), || false);
                is_written.load(std::sync::atomic::Ordering::SeqCst)
            });
            let mut pass = 1;
            while table.clear_again(&begun, pass) {
                pass += 1;
            }
            is_written.store(true, std::sync::atomic::Ordering::SeqCst);
            table.end_direct(&begun);
            // A read that came before the last pass ended caused one more pass.
            assert!(read.join().unwrap() || pass > 1);
            passes.push(pass);
        });
    }
    assert!(passes.iter().all(|pass| *pass < PASSES_MAX), "{passes:?}");
}

#[test]
fn g2_a_read_waits_for_the_direct_write_to_its_pages() {
    let table = opened();
    let begun = table.begin_direct(F, 0, 10).unwrap();
    table.fill(F, PAGE..2 * PAGE, soon(), || false);
    let (done, written) = (std::sync::mpsc::channel(), std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|s| {
        s.spawn(|| {
            table.fill(F, 0..PAGE, soon(), || false);
            assert!(written.load(std::sync::atomic::Ordering::SeqCst));
            done.0.send(()).unwrap();
        });
        written.store(true, std::sync::atomic::Ordering::SeqCst);
        table.end_direct(&begun);
        done.1.recv().unwrap();
    });
    // A read waits for a write that never ends until its deadline.
    let _begun = table.begin_direct(F, 0, 10).unwrap();
    table.clear_again(&_begun, PASSES_MAX);
    table.fill(F, 0..PAGE, Instant::now(), || false);
}
