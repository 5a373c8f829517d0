//! A member that was away, has too much, or begins anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use disk::volume::Volume;
use disk::{Crash, Disk, SimDisk};
use pair::{Copied, Replica};
use types::*;

use super::two::{Contents, Two, Way, catch_up, contents_of, flat_standby, settings};
use crate::tests::counts::Play;
use crate::tests::image::check_image;
use crate::tests::rig::{HandClock, Rig, format, label, registered};
use crate::tests::rules::flat;
use crate::upkeep::hold::IDLE_MS;
use crate::{FormatSpec, Mdt, MetaRules, Rules, Settings, Standby, fill, keep_note_on, note_on};

/// An MDT alone, with `some` files.
fn alone(some: u32) -> (Rig, Arc<SimDisk>) {
    let (rig, disk) = Rig::fresh();
    for n in 1..=some {
        rig.make(1, n, &format!("f{n}")).unwrap();
    }
    (rig, disk)
}

fn fill_from(rig: &Rig, disk: Arc<SimDisk>) -> Result<Seq, Fault> {
    let mut copy = 0;
    fill(disk, settings(flat(), &Arc::default()), &mut |part| {
        let copied = rig.mdt.copy_out(copy, part)?;
        copy = copied.copy;
        Ok(copied)
    })
}

#[test]
fn a_copy_takes_the_place_of_content_that_cannot_be_opened() {
    let (rig, _) = alone(20);
    let (old, disk) = alone(5);
    old.mdt.checkpoint().unwrap();
    drop(old);
    let place = Volume::open_read_only(disk.clone() as Arc<dyn Disk>).unwrap().checkpoint_place().unwrap();
    disk.write_at(&[0xff; 64], place.start + 16).unwrap();
    let opened = Standby::open(disk.clone(), settings(flat(), &Arc::default()));
    assert_eq!(opened.err().map(|fault| fault.code), Some(Code::Damaged));
    keep_note_on(disk.clone(), b"filling").unwrap();
    fill_from(&rig, disk.clone()).unwrap();
    assert_eq!(note_on(disk.clone()).unwrap(), b"filling");
    assert_eq!(flat_standby(disk).contents(), contents_of(&rig));
}

#[test]
fn a_clean_stop_keeps_the_log_for_the_member_that_stopped_before() {
    let two = Two::fresh();
    two.rig.make(1, 1, "a").unwrap();
    two.link.standby.close().unwrap();
    two.link.turn(Way::Out);
    two.rig.make(1, 2, "b").unwrap();
    two.rig.make(2, 1, "c").unwrap();
    two.rig.mdt.stop(true).unwrap();
    let own = flat_standby(Arc::new(two.a.crash(Crash::DropAll)));
    let other = flat_standby(Arc::new(two.b.crash(Crash::DropAll)));
    assert!(own.was_clean() && other.was_clean());
    assert!(Replica::first(&own) <= Seq(other.last_seq().0 + 1), "it needs no copy");
    assert_ne!(own.contents(), other.contents());
    catch_up(&other, &own);
    assert_eq!((own.contents(), own.last_seq()), (other.contents(), other.last_seq()));
}

#[test]
fn entries_are_shipped_from_the_log_to_a_standby_that_was_away() {
    let two = Two::fresh();
    let behind = flat_standby(Arc::new(two.b_before.copy()));
    for n in 1..=40 {
        two.rig.make(n % 4, n / 4 + 1, &format!("f{n}")).unwrap();
    }
    catch_up(&behind, &*two.rig.mdt);
    assert_eq!(behind.contents(), contents_of(&two.rig));
    assert_eq!(behind.lines(), two.link.standby.lines());
    let shipped = two.rig.mdt.entries(Seq(behind.last_seq().0 - 1), 1).unwrap();
    assert_eq!(shipped[0], two.link.sent.lock().last().unwrap().entry, "as it was shipped");
    assert_eq!(shipped[0].place.line, Epoch(1));
    // The other member's log has them too.
    assert_eq!(shipped, two.link.standby.entries(Seq(behind.last_seq().0 - 1), 1).unwrap());
}

#[test]
fn rp6_the_log_is_kept_for_a_reader_until_it_is_silent_or_requests_need_the_space() {
    let (rig, disk) = alone(20);
    let at = Seq(rig.mdt.core.volume.last_seq().0 - 10);
    let read = || rig.mdt.entries(at, 1);
    assert_eq!(read().unwrap().len(), 1);
    rig.mdt.checkpoint().unwrap();
    assert_eq!(rig.mdt.first(), Seq(at.0 + 1), "what the reader needs is still there");
    rig.make(2, 1, "behind the checkpoint").unwrap();
    // A start meets entries that the checkpoint has already, and applies each once.
    let again = flat_standby(Arc::new(disk.crash(Crash::KeepAll)));
    assert_eq!(again.contents(), contents_of(&rig));
    assert_eq!(again.lines().1, rig.mdt.core.volume.last_seq());
    // The reader goes on, and holds less.
    assert_eq!(rig.mdt.entries(Seq(at.0 + 4), 1).unwrap().len(), 1);
    rig.mdt.checkpoint().unwrap();
    assert_eq!(rig.mdt.first(), Seq(at.0 + 5));
    assert_eq!(read().unwrap_err().code, Code::Stale);
    rig.clock.0.fetch_add(IDLE_MS, Ordering::SeqCst);
    rig.mdt.checkpoint().unwrap();
    assert_eq!(rig.mdt.first().0, rig.mdt.core.volume.last_seq().0 + 1, "a silent reader is given up");
    // Requests come first.
    let last = rig.mdt.core.volume.last_seq();
    rig.make(2, 2, "first").unwrap();
    rig.mdt.entries(last, 1).unwrap();
    let mut sequence = 2;
    while rig.mdt.entries(last, 1).is_ok() {
        assert!(sequence < 1000, "a reader must not fill the log");
        sequence += 1;
        rig.make(2, sequence, &format!("file {sequence}")).unwrap();
    }
    assert!(sequence > 100, "{sequence}: the log was kept while there was space");
}

#[test]
fn a_standby_is_opened_up_to_an_entry_and_the_rest_is_cut_for_ever() {
    let two = Two::fresh();
    let mut after = vec![];
    for n in 1..=9 {
        two.rig.make(1, n, &format!("f{n}")).unwrap();
        after.push((two.link.standby.last_seq(), two.link.standby.contents()));
    }
    for (seq, contents) in &after {
        let disk = Arc::new(two.b.crash(Crash::KeepAll));
        let cut = Standby::open_cut(disk.clone(), settings(flat(), &Arc::default()), *seq).unwrap();
        assert_eq!((cut.last_seq(), cut.contents()), (*seq, contents.clone()));
        drop(cut);
        // It is durable, and the log goes on there.
        let cut = flat_standby(Arc::new(disk.crash(Crash::DropAll)));
        assert_eq!((cut.last_seq(), cut.contents()), (*seq, contents.clone()));
        catch_up(&cut, &*two.rig.mdt);
        assert_eq!(cut.contents(), contents_of(&two.rig));
    }
    let open = |seq: Seq| Standby::open_cut(two.b.clone(), settings(flat(), &Arc::default()), seq).err();
    assert_eq!(open(Seq(after[8].0.0 + 1)).unwrap().code, Code::Stale, "the log has no such entry");
    let at_end = flat_standby(two.b.clone());
    at_end.close().unwrap();
    let fault = open(after[3].0).unwrap();
    assert!(fault.code == Code::Stale && fault.detail.contains("fill it"), "{fault}");
    let again = flat_standby(two.b.clone());
    assert!(again.was_clean() && again.contents() == after[8].1);
}

#[test]
fn a_standby_keeps_a_note_and_takes_its_identity() {
    let two = Two::fresh();
    let disk = Arc::new(two.b.crash(Crash::KeepAll));
    let standby = flat_standby(disk.clone());
    standby.keep_note(b"whole").unwrap();
    standby.join(&super::other()).unwrap();
    standby.join(&crate::tests::rig::registered()).unwrap_err();
    let moved = wire::mgmt::RegisterReply { mirror: MirrorId(9), ..super::other() };
    let refused = standby.join(&moved).unwrap_err();
    assert!(refused.detail.contains("was a member of mirror 1, by its note"), "{refused}");
    two.rig.mdt.keep_note(b"of the primary").unwrap();
    let again = flat_standby(Arc::new(disk.crash(Crash::DropAll)));
    assert_eq!((again.note(), again.label().target), (b"whole".to_vec(), TargetId(3)));
    assert_eq!(flat_standby(Arc::new(two.a.crash(Crash::DropAll))).note(), b"of the primary");
}

/// Medium of a member with the rules of `meta`.
fn of_meta() -> Arc<SimDisk> {
    let disk = Arc::new(SimDisk::new(4 << 20));
    let spec = FormatSpec { label: label(), log_bytes: 256 << 10, checkpoint_bytes: 1 << 20 };
    Mdt::format(disk.clone(), &spec, false, &MetaRules, Time::new(5, 0)).unwrap();
    disk
}

#[test]
fn rp7_a_copy_under_writes_is_one_state_and_the_log_goes_on_from_there() {
    let (rules, clock) = (Arc::new(MetaRules) as Arc<dyn Rules>, Arc::<HandClock>::default());
    let rig = Rig::with(of_meta(), settings(rules.clone(), &clock), clock).unwrap();
    let mut play = Play::new(rig, 7);
    (0..600).for_each(|_| play.step());
    let b = of_meta();
    // It had another life before.
    let standby = Standby::open(b.clone(), settings(rules.clone(), &Arc::default())).unwrap();
    standby.keep_note(b"filling").unwrap();
    drop(standby);
    let (mut copy, mut begun, mut parts) = (0, None::<Contents>, 0);
    // With little memory, so that leaves are evicted meanwhile.
    let little = Settings { cache_bytes: 16 << 10, ..settings(rules.clone(), &Arc::default()) };
    let end = fill(b.clone(), little, &mut |part| {
        if part == 0 {
            begun = Some(contents_of(&play.rig));
        } else {
            (0..5).for_each(|_| play.step());
            if part % 7 == 0 {
                play.rig.mdt.checkpoint()?;
            }
        }
        let copied = play.rig.mdt.copy_out(copy, part)?;
        copy = copied.copy;
        parts += 1;
        Ok(copied)
    });
    assert!(parts > 10, "{parts} parts");
    let (end, begun) = (end.unwrap(), begun.unwrap());
    let standby = Standby::open(b.clone(), settings(rules, &Arc::default())).unwrap();
    assert_eq!((standby.last_seq(), standby.note()), (end, b"filling".to_vec()));
    assert!(standby.contents() == begun, "records, slots and counts are those of the begin");
    assert!(begun != contents_of(&play.rig), "there were writes meanwhile");
    catch_up(&standby, &*play.rig.mdt);
    assert!(standby.contents() == contents_of(&play.rig));
    check_image(&play.rig, &b, "the other member");
    (0..50).for_each(|_| play.step());
    catch_up(&standby, &*play.rig.mdt);
    assert!(standby.contents() == contents_of(&play.rig));
    // A restart of it.
    standby.close().unwrap();
    let rules = Arc::new(MetaRules);
    let again = Standby::open(b, settings(rules, &Arc::default())).unwrap();
    assert!(again.contents() == contents_of(&play.rig));
}

/// Also if the new content ends before the old one, which had another history.
#[test]
fn rp8_a_volume_that_lost_power_while_it_was_filled_is_filled_again() {
    let (source, _) = alone(30);
    for files in [5, 90] {
        let (other, b) = alone(files);
        other.mdt.flush().unwrap();
        other.mdt.keep_note(b"filling").unwrap();
        let is_longer = other.mdt.core.volume.last_seq() > source.mdt.core.volume.last_seq();
        assert_eq!(is_longer, files == 90);
        drop(other);
        b.record();
        let end = fill_from(&source, b.clone()).unwrap();
        let recording = b.take_recording().unwrap();
        let want = contents_of(&source);
        assert!(recording.events.len() > 8);
        for events in 0..=recording.events.len() {
            for crash in [Crash::DropAll, Crash::KeepAll, Crash::Sectors(events as u64)] {
                let left = Arc::new(recording.crash_at(events, crash));
                let note = Volume::open_read_only(left.clone() as Arc<dyn Disk>).unwrap().note();
                assert_eq!(note, b"filling", "event {events}");
                assert_eq!(fill_from(&source, left.clone()).unwrap(), end);
                let filled = flat_standby(left);
                assert_eq!((filled.last_seq(), filled.flushed_seq()), (end, end));
                assert!(filled.contents() == want, "event {events}, {crash:?}");
            }
        }
        let mdt = flat_standby(b).promote(Incarnation(0), None).unwrap();
        let rig = Rig::around(mdt, Arc::default(), registered()).unwrap();
        assert_eq!(rig.list(), source.list());
        assert_eq!(rig.make(1, 30, "f30").unwrap(), source.list()["f30"], "slots came too");
    }
}

#[test]
fn rp7_a_new_copy_ends_the_one_before_and_the_last_part_is_given_again() {
    let (rig, _) = alone(60);
    let first = rig.mdt.copy_out(0, 0).unwrap();
    let second = rig.mdt.copy_out(first.copy, 1).unwrap();
    assert_ne!(first.content, second.content);
    let is_same = |a: &Copied, b: &Copied| (a.copy, a.end, &a.content) == (b.copy, b.end, &b.content);
    assert!(is_same(&rig.mdt.copy_out(first.copy, 1).unwrap(), &second), "its answer may have been lost");
    assert_eq!(rig.mdt.copy_out(first.copy, 5).unwrap_err().code, Code::Stale);
    let new = rig.mdt.copy_out(first.copy, 0).unwrap();
    assert_ne!(new.copy, first.copy);
    assert_eq!(rig.mdt.copy_out(first.copy, 2).unwrap_err().code, Code::Stale);
    let mut part = 1;
    while !rig.mdt.copy_out(new.copy, part).unwrap().is_last {
        part += 1;
    }
    assert!(rig.mdt.copy_out(new.copy, part).unwrap().is_last);
    assert_eq!(rig.mdt.copy_out(new.copy, part + 1).unwrap_err().code, Code::Stale);
    // A member that is silent for a minute begins anew.
    rig.clock.0.fetch_add(IDLE_MS, Ordering::SeqCst);
    rig.mdt.core.sweep_giving();
    assert_eq!(rig.mdt.copy_out(new.copy, part).unwrap_err().code, Code::Stale);
    // Its copy is given up at once if the log behind it is.
    let begun = rig.mdt.copy_out(0, 0).unwrap();
    let mut sequence = 0;
    while rig.mdt.first() <= Seq(begun.end.0 + 1) {
        sequence += 1;
        rig.make(2, sequence, &format!("file {sequence}")).unwrap();
    }
    assert!(sequence > 100, "{sequence}: the log was kept while there was space");
    assert_eq!(rig.mdt.copy_out(begun.copy, 1).unwrap_err().code, Code::Stale);
    let standby = flat_standby(blank());
    assert_eq!(standby.copy_out(0, 0).unwrap_err().code, Code::NotReady);
}

#[test]
fn a_copy_that_is_damaged_or_of_another_one_is_refused() {
    let (rig, _) = alone(60);
    for wrong in 0..3 {
        let mut copy = 0;
        let filled = fill(blank(), settings(flat(), &Arc::default()), &mut |part| {
            let mut copied = rig.mdt.copy_out(copy, part)?;
            copy = copied.copy;
            match wrong {
                0 if part == 2 => copied.content[9] ^= 1,
                1 if part == 2 => copied.end = Seq(copied.end.0 + 1),
                2 if part == 2 => return Err(Fault::new(Code::Timeout, "cut")),
                _ => {}
            }
            Ok(copied)
        });
        let want = if wrong == 2 { Code::Timeout } else { Code::Damaged };
        assert_eq!(filled.unwrap_err().code, want);
    }
}

/// A device of a member that was never filled.
fn blank() -> Arc<SimDisk> {
    let disk = Arc::new(SimDisk::new(1 << 20));
    format(disk.clone());
    disk
}

#[test]
fn flushes_of_the_mirror_go_on_while_a_standby_takes_over() {
    for _ in 0..20 {
        let two = Two::fresh();
        two.rig.make(1, 1, "f").unwrap();
        let standby = Arc::new(flat_standby(Arc::new(two.b.crash(Crash::KeepAll))));
        let (flushing, ends) = (standby.clone(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let flushes = scope.spawn(|| {
                let mut count = 0u32;
                while !ends.load(Ordering::SeqCst) {
                    flushing.flush().unwrap();
                    count += 1;
                }
                count
            });
            let mdt = standby.promote(Incarnation(9), None).unwrap();
            ends.store(true, Ordering::SeqCst);
            assert!(mdt.core.incarnation > Incarnation(9));
            assert!(flushes.join().unwrap() < u32::MAX);
        });
    }
}
