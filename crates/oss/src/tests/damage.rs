//! Tests of oss-P5, and of the calls of fsck and the operator.

use disk::Disk;

use super::*;

/// Flips a bit of `needle`, which exists once on the medium.
pub(super) fn rot(rig: &Rig, needle: &[u8]) {
    let mut all = vec![0; rig.disk.size() as usize];
    rig.disk.read_at(&mut all, 0).unwrap();
    let found: Vec<usize> = (0..all.len() - needle.len()).filter(|i| all[*i..].starts_with(needle)).collect();
    assert_eq!(found.len(), 1, "the needle stands in one place");
    rig.disk.write_at(&[all[found[0]] ^ 4], found[0] as u64).unwrap();
}

#[test]
fn damage_is_an_error_and_a_record_that_lasts_until_cleared() {
    let rig = Rig::new();
    let mut data = vec![b'.'; 9000];
    data[5000..5020].copy_from_slice(b"a needle in a hay...");
    rig.write(1, 0, &data).ok();
    // Flushed and marked. Damage before that makes a crash cut the log there, with all later entries (store-O2).
    (0..2).for_each(|_| rig.ost.core.flush_round().unwrap());
    rot(&rig, b"a needle in a hay...");
    let said = rig.ask(&read_of(rw(), 0, 9000));
    assert_eq!((said.code(), said.bulk.len()), (Code::Damaged, 0), "no bytes with an error");
    assert!(said.reply.unwrap_err().detail.contains(&object().to_string()));
    assert_eq!(rig.ask(&read_of(rw(), 0, 4096)).code(), Code::Ok, "other pages are fine");
    let want = [wire::object::Damage {
        object: object(),
        offset: 4096,
        kind: 1,
        found_sec: NOW_SEC,
        is_repaired: false,
    }];
    assert_eq!(rig.ask(&DamageList { cap: admin() }).ok().damage, want);
    assert_eq!(rig.ask(&read_of(rw(), 4096, 1)).code(), Code::Damaged);
    assert_eq!(rig.ask(&Verify { cap: admin(), object: object() }).ok().bad_pages, 1);
    assert_eq!(
        rig.ask(&TargetStat {}).ok().damage_count,
        1,
        "one damage is one record, however often it is met"
    );
    rig.ask(&Flush {}).ok();
    let again = rig.crashed(Crash::DropAll);
    assert_eq!(again.ask(&DamageList { cap: admin() }).ok().damage, want);
    again.ask(&DamageClear { cap: admin(), fid: Fid(1) }).ok();
    assert_eq!(again.ask(&TargetStat {}).ok().damage_count, 1, "another file's");
    again.ask(&DamageClear { cap: admin(), fid: object().fid }).ok();
    assert_eq!(again.ask(&DamageList { cap: admin() }).ok().damage, []);
}

#[test]
fn a_page_that_recovery_cannot_read_is_on_the_list() {
    let rig = Rig::new();
    let mut data = vec![b'.'; 9000];
    data[5000..5020].copy_from_slice(b"a needle in a hay...");
    rig.write(1, 0, &data).ok();
    let mut image = vec![0; rig.disk.size() as usize];
    rig.disk.read_at(&mut image, 0).unwrap();
    let at = (0..image.len()).find(|i| image[*i..].starts_with(b"a needle in a hay...")).unwrap() as u64;
    let disk = Arc::new(disk::FaultyDisk::new(Arc::new(SimDisk::from_bytes(image))));
    disk.make_unreadable(at..at + 1);
    let ost = Ost::open(disk, settings()).unwrap();
    let want = store::Damage {
        object: object(),
        offset: 4096,
        kind: store::DamageKind::Medium,
        found_sec: NOW_SEC,
        is_repaired: false,
    };
    assert_eq!(ost.core.store.damage(), [want]);
}

#[test]
fn a_verify_finds_damage_that_nobody_read() {
    let rig = Rig::new();
    rig.write(1, 0, b"found by the scrub and by nobody else").ok();
    assert_eq!(rig.ask(&Verify { cap: admin(), object: object() }).ok().bad_pages, 0);
    rot(&rig, b"found by the scrub");
    assert_eq!(rig.ask(&Verify { cap: admin(), object: object() }).ok().bad_pages, 1);
    assert_eq!(rig.ask(&TargetStat {}).ok().damage_count, 1);
}

#[test]
fn a_missing_object_is_damage_only_if_it_is_missing() {
    let rig = Rig::new();
    let report = ReportMissing { cap: rw(), object: object(), mirror: MirrorId(6) };
    rig.write(1, 0, b"x").ok();
    rig.ask(&report).ok();
    assert_eq!(rig.ask(&TargetStat {}).ok().damage_count, 0, "it is there: the reporter is behind");
    rig.ask(&Destroy { cap: admin(), objects: vec![object()] }).ok();
    rig.ask(&report).ok();
    let damage = rig.ask(&DamageList { cap: admin() }).ok().damage;
    assert_eq!((damage.len(), damage[0].kind, damage[0].object), (1, 2, object()));
}

#[test]
fn listing_truncating_and_destroying() {
    let rig = Rig::new();
    for stripe in 0..5 {
        let w = Write { object: ObjectId { stripe, ..object() }, ..write_of(rw(), 100, b"xyz") };
        rig.say(slotted(stripe as u32 + 1), &w, b"xyz").ok();
    }
    let first = rig.ask(&List { cap: admin(), after: None, max: 3 }).ok();
    assert_eq!((first.objects.len(), first.more), (3, true));
    let rest = rig.ask(&List { cap: admin(), after: Some(first.objects[2].object), max: 3 }).ok();
    assert_eq!((rest.objects.len(), rest.more, rest.objects[1].object.stripe), (2, false, 4));
    assert_eq!((rest.objects[0].len, rest.objects[0].used), (103, 4096));
    rig.ask(&Truncate { cap: rw(), object: object(), len: 101 }).ok();
    assert_eq!(rig.read(99, 100), b"\0x");
    let before = rig.ask(&TargetStat {}).ok();
    let objects = (0..9).map(|stripe| ObjectId { stripe, ..object() }).collect();
    rig.ask(&Destroy { cap: admin(), objects }).ok();
    let after = rig.ask(&TargetStat {}).ok();
    assert_eq!(after.bytes_free - before.bytes_free, 5 * 4096);
    assert_eq!((before.files_total - before.files_free, after.files_total - after.files_free), (5, 0));
    let gone = rig.ask(&read_of(rw(), 0, 10));
    assert_eq!((gone.reply.unwrap().exists, gone.bulk.len()), (false, 0));
}

#[test]
fn damage_past_a_full_list_is_counted_until_it_is_cleared() {
    let rig = Rig::new();
    for n in 0..store::DAMAGE_MAX as u64 {
        let object = ObjectId { fid: Fid(1000 + n), ..object() };
        let kind = store::DamageKind::Checksum;
        rig.ost
            .core
            .store
            .record_damage(store::Damage { object, offset: 0, kind, found_sec: 1, is_repaired: false })
            .unwrap();
    }
    let unlisted = || rig.ost.core.unlisted_damage.load(std::sync::atomic::Ordering::Relaxed);
    let report = ReportMissing { cap: rw(), object: object(), mirror: MirrorId(6) };
    rig.ask(&report).ok();
    rig.ask(&report).ok();
    assert_eq!((rig.ask(&TargetStat {}).ok().damage_count, unlisted()), (store::DAMAGE_MAX as u64, 2));
    rig.ask(&DamageClear { cap: admin(), fid: Fid(1000) }).ok();
    assert_eq!(unlisted(), 0);
    rig.ask(&report).ok();
    assert_eq!((rig.ask(&TargetStat {}).ok().damage_count, unlisted()), (store::DAMAGE_MAX as u64, 0));
}
