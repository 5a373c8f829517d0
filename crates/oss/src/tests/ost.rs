//! Statistics that an OST reports.

use wire::ost::{OstSpace, OstSpaceReply, OstStat, OstStatReply, purpose};

use super::*;

impl Rig {
    fn stat_of(&self) -> OstStatReply {
        self.ask(&OstStat { cap: admin() }).ok()
    }
    fn space_of(&self) -> OstSpaceReply {
        self.ask(&OstSpace { cap: admin(), after: None }).ok()
    }
}

#[test]
fn stat_tells_what_was_written_and_for_what() {
    let rig = Rig::new();
    let before = rig.stat_of();
    assert_eq!((before.started_sec, before.now_sec, before.service_since_sec), (NOW_SEC, NOW_SEC, NOW_SEC));
    assert_eq!((before.device_bytes, before.user.bytes_written), (12 << 20, 0));
    rig.write(1, 0, &[7; 64 << 10]).ok();
    rig.read(0, 4096);
    let after = rig.stat_of();
    assert_eq!((after.user.writes, after.user.bytes_written), (1, 64 << 10));
    assert_eq!((after.user.reads, after.user.bytes_read), (1, 4096));
    let bytes = |s: &OstStatReply, p| s.writes.iter().find(|w| w.purpose == p).unwrap().sizes.bytes;
    assert_eq!(bytes(&after, purpose::DATA), 64 << 10);
    assert!(bytes(&after, purpose::LOG) > bytes(&before, purpose::LOG));
    let index = (before.index.objects_changed, after.index.objects_changed, after.index.leaves_loaded);
    assert_eq!(index, (0, 1, 0), "no checkpoint was made");
    let memory = (before.index.memory_bytes, after.index.memory_bytes, after.index.memory_bytes_max);
    assert!(memory.0 < memory.1 && memory.1 < memory.2, "{memory:?}");
    assert!(after.service_bytes_written >= before.service_bytes_written + (64 << 10));
    // After a stop, the counts since the start begin anew and those of its life go on.
    rig.ost.stop(true).unwrap();
    let again = Rig::open(rig.disk.clone(), settings()).stat_of();
    assert_eq!((again.user.bytes_written, again.service_user_bytes_written), (0, 64 << 10));
    assert_eq!((again.index.leaves, again.index.objects_changed), (1, 0));
}

#[test]
fn stat_tells_of_a_target_that_failed() {
    let (disk, rig, _) = scrub::on_a_faulty_medium(&Rig::new());
    assert_eq!(rig.stat_of().failure, "");
    disk.give_up(true);
    assert!(rig.stat_of().failure.contains("the device hangs"));
}

#[test]
fn space_adds_up_over_its_parts() {
    let rig = Rig::new();
    rig.write(1, 0, &[7; 70_000]).ok();
    let first = rig.space_of();
    assert_eq!((first.objects.objects, first.next_after), (1, None));
    assert_eq!(first.objects.classes[5].bytes_stored, 70_000);
    assert_eq!(first.objects.classes[5].bytes_allocated, 18 * 4096);
    assert_eq!(first.bytes_total - first.bytes_free, 18 * 4096);
    assert_eq!(first.free_runs.iter().map(|r| r.bytes).sum::<u64>(), first.bytes_free);
    let later: OstSpaceReply = rig.ask(&OstSpace { cap: admin(), after: Some(object()) }).ok();
    assert_eq!((later.bytes_total, later.objects.objects, later.next_after), (0, 0, None));
}

#[test]
fn both_need_the_right_to_ask() {
    let rig = Rig::new();
    assert_ne!(rig.ask(&OstStat { cap: rw() }).code(), Code::Ok);
    assert_ne!(rig.ask(&OstSpace { cap: rw(), after: None }).code(), Code::Ok);
}
