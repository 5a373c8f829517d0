//! S5: a full medium.

use super::*;

#[test]
fn a_full_medium_refuses_cleanly_and_lives_on() {
    let rig = Rig::new();
    let chunk = pattern(1, 64 << 10);
    // 1. Fill.
    let mut written = 0u64;
    let refused = loop {
        match rig.write(id(written), 0, &chunk) {
            Ok(_) => written += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(refused, StoreError::NoSpace(_)), "{refused}");
    assert_eq!(Fault::from(refused).code, Code::NoSpace);
    let usage = rig.store.usage();
    assert!(usage.bytes_available < 64 << 10 && usage.bytes_total >= written * (64 << 10), "{usage:?}");
    assert_eq!(rig.store.stat(id(written)), None, "nothing of the refused write is there");
    // 2. What is there is there; overwriting needs new space and is refused whole; cutting works from the reserve.
    rig.seal();
    while rig.write(id(500), usage.objects * 4096, &[1; 4096]).is_ok()
        && rig.store.usage().bytes_available > 0
    {}
    assert!(matches!(rig.write(id(0), 0, &chunk), Err(StoreError::NoSpace(_))));
    assert_eq!(rig.content(id(0)).unwrap(), chunk);
    rig.truncate(id(1), 50_001).unwrap();
    assert_eq!(rig.content(id(1)).unwrap(), chunk[..50_001]);
    // 3. Deleting works, and at once there is room: what waits to be sealed is sealed when it is wanted (O1).
    rig.store.destroy(&[id(2), id(3)], None).unwrap();
    rig.write(id(600), 0, &chunk).unwrap();
    assert_eq!(rig.content(id(600)).unwrap(), chunk);
    // 4. All of it survives.
    let again = rig.crashed(Crash::KeepAll);
    assert_eq!(again.content(id(600)).unwrap(), chunk);
    assert_eq!(again.content(id(1)).unwrap(), chunk[..50_001]);
    // 5. Everything removed is everything free.
    let all: Vec<ObjectId> = (0..700).map(id).collect();
    again.store.destroy(&all, None).unwrap();
    let empty = again.store.usage();
    assert_eq!((empty.bytes_free, empty.objects), (empty.bytes_total, 0));
    again.write(id(1), 0, &chunk).unwrap();
}

#[test]
fn a_full_index_refuses_writes_and_the_log_can_still_be_trimmed() {
    let rig = Rig::new();
    let mut n = 0;
    // Single bytes in single pages: the index fills, or the medium, whichever comes first; then fences alone.
    while rig.write(id(n), 0, b"x").is_ok() {
        n += 1;
    }
    let mut m = 1 << 20;
    let refused = loop {
        match rig.store.fence(id(m), 1) {
            Ok(()) => m += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(refused, StoreError::NoSpace("the index of objects is full")), "{refused}");
    assert_eq!(rig.store.usage().objects_free, 0);
    rig.store.checkpoint().unwrap();
    let again = rig.crashed(Crash::DropAll);
    assert_eq!(again.store.usage().objects, n);
    assert_eq!(again.store.lease(id(m - 1)), 1);
    assert!(again.write(id(m), 0, b"x").is_err());
    again.store.destroy(&[id(0), id(1 << 20)], None).unwrap();
    again.store.fence(id(m), 1).unwrap();
}
