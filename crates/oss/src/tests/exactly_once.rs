//! Tests of oss-P2: a request is carried out once, over repeats, kills and checkpoints.

use super::*;

#[test]
fn a_repeat_is_answered_and_not_carried_out_again() {
    let rig = Rig::new();
    let first = rig.write(1, 0, b"first");
    rig.write(2, 0, b"SECOND").ok();
    // A repeat of the last one gets the same reply, with the same entry.
    let repeat = rig.write(2, 0, b"SECOND");
    assert_eq!((repeat.head.seq.0, repeat.ok().len), (first.head.seq.0 + 1, 6));
    // An older one is answered as done and changes nothing.
    let older = rig.write(1, 0, b"first");
    assert_eq!((older.code(), older.head.seq), (Code::Ok, Seq(0)));
    assert_eq!(older.ok().len, 6);
    assert_eq!(rig.read(0, 100), b"SECOND");
    let slots = rig.attach().slots;
    assert_eq!((slots.len(), slots[2], slots[3]), (SLOTS as usize, 2, 0));
}

#[test]
fn slots_survive_a_kill_and_a_clean_stop() {
    let rig = Rig::new();
    let done = rig.write(7, 0, b"kept");
    rig.say(Header { slot: 5, ..slotted(1) }, &Truncate { cap: rw(), object: object(), len: 2 }, &[]).ok();
    let destroy = Destroy { cap: admin(), objects: vec![ObjectId { stripe: 9, ..object() }] };
    rig.say(Header { slot: 6, ..slotted(4) }, &destroy, &[]).ok();
    let killed = rig.crashed(Crash::KeepAll);
    killed.ost.stop(true).unwrap();
    for rig in [rig.crashed(Crash::KeepAll), killed.crashed(Crash::DropAll)] {
        let attached = rig.attach();
        assert_eq!((attached.slots[2], attached.slots[5], attached.slots[6]), (7, 1, 4));
        assert_eq!(attached.last_seq.0, done.head.seq.0 + 2);
        let repeat = rig.write(7, 0, b"kept");
        assert_eq!((repeat.head.seq, repeat.ok().len), (done.head.seq, 4));
        assert_eq!(rig.read(0, 100), b"ke", "the truncation that came after is not undone by the repeat");
    }
}

#[test]
fn what_power_loss_took_is_new_again() {
    let rig = Rig::new();
    rig.write(1, 0, b"flushed").ok();
    assert_eq!(rig.ask(&Flush {}).code(), Code::Ok);
    rig.write(2, 0, b"LOST").ok();
    let rig = rig.crashed(Crash::DropAll);
    assert_eq!(rig.attach().slots[2], 1);
    assert_eq!(rig.read(0, 100), b"flushed");
    rig.write(2, 0, b"LOST").ok();
    assert_eq!(rig.read(0, 100), b"LOSThed");
}

#[test]
fn a_failed_request_is_not_recorded() {
    let rig = Rig::new();
    let mut bad = write_of(rw(), 0, b"x");
    bad.crcs[0] ^= 1;
    assert_eq!(rig.say(slotted(1), &bad, b"x").code(), Code::BadChecksum);
    assert_eq!(rig.attach().slots[2], 0);
    assert_eq!(rig.write(1, 0, b"x").code(), Code::Ok);
}

#[test]
fn the_same_request_twice_at_once_is_carried_out_once() {
    let rig = Rig::new();
    let before = rig.attach().last_seq;
    std::thread::scope(|s| {
        for _ in 0..6 {
            s.spawn(|| {
                (1..40).for_each(|n| assert_eq!(rig.write(n, n as u64 * 10, b"0123456789").code(), Code::Ok))
            });
        }
    });
    assert_eq!(rig.attach().last_seq.0, before.0 + 39, "one entry for each sequence");
}

#[test]
fn strangers_and_slots_that_do_not_exist_are_refused() {
    let rig = Rig::new();
    let stranger = SessionId(0x99);
    let cap =
        cap::make(&SECRET, object().fid, object().generation, RIGHT_WRITE, lease(1), stranger, NOW_SEC + 1);
    let head = Header { session: stranger, sequence: 1, ..Header::default() };
    assert_eq!(rig.say(head, &write_of(cap, 0, b"x"), b"x").code(), Code::NoSession);
    assert_eq!(
        rig.say(Header { slot: SLOTS, ..slotted(1) }, &write_of(rw(), 0, b"x"), b"x").code(),
        Code::BadRequest
    );
    // A session that has ended is unknown, also after a restart.
    assert_eq!(rig.ask(&Detach { session: stranger }).code(), Code::Access);
    rig.ask(&Detach { session: SESSION }).ok();
    assert_eq!(rig.write(1, 0, b"x").code(), Code::NoSession);
    assert_eq!(rig.ask(&KeepAlive { session: SESSION, mode: 0 }).code(), Code::NoSession);
    assert_eq!(rig.crashed(Crash::KeepAll).write(1, 0, b"x").code(), Code::NoSession);
}
