//! oss-P1, oss-P3: capabilities, fencing, address, form.

use disk::SplitMix;

use super::*;

#[test]
fn no_call_is_carried_out_without_a_capability_for_it() {
    let rig = Rig::new();
    rig.write(1, 0, b"data").ok();
    let o = object();
    // Right rights but a wrong signature; a good signature but too few rights; another session's; expired.
    let forged = |mut c: Capability| {
        c.mac.0[0] ^= 1;
        c
    };
    let of =
        |rights, session, expiry| cap::make(&SECRET, o.fid, o.generation, rights, lease(1), session, expiry);
    let all = RIGHT_READ | RIGHT_WRITE;
    // The key of another file system: its fids and objects have the same numbers.
    let foreign = cap::make(&Uuid([0x77; 16]), o.fid, o.generation, all, lease(1), SESSION, NOW_SEC + 1);
    assert_ne!(SECRET, Uuid([0x77; 16]));
    let bad_for_all = [
        foreign,
        forged(rw()),
        forged(admin()),
        of(0, SESSION, NOW_SEC + 1),
        of(all, SessionId(1), NOW_SEC + 1),
        of(all, SESSION, NOW_SEC),
    ];
    for cap in bad_for_all {
        assert_eq!(rig.say(slotted(2), &write_of(cap.clone(), 0, b"x"), b"x").code(), Code::Fenced);
        assert_eq!(rig.ask(&read_of(cap.clone(), 0, 1)).code(), Code::Fenced);
        assert_eq!(rig.ask(&Truncate { cap: cap.clone(), object: o, len: 0 }).code(), Code::Fenced);
        assert_eq!(rig.ask(&Glimpse { cap: cap.clone(), objects: vec![o] }).code(), Code::Fenced);
        assert_eq!(
            rig.ask(&ReportMissing { cap: cap.clone(), object: o, mirror: MirrorId(6) }).code(),
            Code::Fenced
        );
    }
    for cap in [rw(), forged(admin())] {
        assert_eq!(rig.ask(&Destroy { cap: cap.clone(), objects: vec![o] }).code(), Code::Fenced);
        assert_eq!(rig.ask(&List { cap: cap.clone(), after: None, max: 1 }).code(), Code::Fenced);
        assert_eq!(rig.ask(&Verify { cap: cap.clone(), object: o }).code(), Code::Fenced);
        assert_eq!(rig.ask(&DamageList { cap: cap.clone() }).code(), Code::Fenced);
        assert_eq!(rig.ask(&DamageClear { cap: cap.clone(), fid: Fid(0) }).code(), Code::Fenced);
    }
    assert_eq!(rig.ask(&Truncate { cap: cap_with(RIGHT_READ, 1), object: o, len: 0 }).code(), Code::Fenced);
    let other = ObjectId { generation: Generation(2), ..o };
    assert_eq!(rig.ask(&Read { cap: rw(), object: other, offset: 0, len: 1, lock: 0 }).code(), Code::Fenced);
    assert_eq!(rig.ask(&Glimpse { cap: rw(), objects: vec![o, other] }).code(), Code::Fenced);
    assert_eq!(rig.read(0, 10), b"data", "none of it did anything");
    assert_eq!(rig.attach().slots[2], 1);
}

#[test]
fn a_glimpse_with_the_next_version_fences_for_good() {
    let rig = Rig::new();
    rig.write(1, 0, b"before").ok();
    let absent = ObjectId { stripe: 1, ..object() };
    let next = cap_with(RIGHT_READ | RIGHT_WRITE, 2);
    let seen = rig.ask(&Glimpse { cap: next.clone(), objects: vec![object(), absent] }).ok().objects;
    assert_eq!((seen[0].exists, seen[0].len, seen[0].used, seen[0].mtime), (true, 6, 4096, Time::new(9, 0)));
    assert!(!seen[1].exists);
    for rig in [rig.crashed(Crash::KeepAll), rig] {
        let late = |object| Write { object, ..write_of(rw(), 0, b"late") };
        assert_eq!(rig.say(slotted(9), &late(object()), b"late").code(), Code::Fenced);
        assert_eq!(
            rig.say(slotted(9), &late(absent), b"late").code(),
            Code::Fenced,
            "also where nothing was yet"
        );
        assert_eq!(rig.ask(&Truncate { cap: rw(), object: object(), len: 0 }).code(), Code::Fenced);
        assert_eq!(rig.ask(&read_of(rw(), 0, 9)).code(), Code::Fenced);
        assert_eq!(rig.ask(&Glimpse { cap: rw(), objects: vec![object()] }).code(), Code::Fenced);
        assert_eq!(rig.ask(&read_of(next.clone(), 0, 9)).bulk, b"before");
        rig.say(slotted(9), &write_of(next.clone(), 0, b"after!"), b"after!").ok();
        rig.ask(&Destroy { cap: admin(), objects: vec![object()] }).ok();
    }
}

#[test]
fn requests_for_another_incarnation_epoch_or_file_system_are_refused() {
    let rig = Rig::new();
    let now = rig.ask(&Flush {}).frame;
    assert_eq!(now.epoch, Epoch(4));
    assert_ne!(now.incarnation, Incarnation(0));
    let base = slotted(1);
    let write = |rig: &Rig, head| rig.say(head, &write_of(rw(), 0, b"x"), b"x").code();
    assert_eq!(write(&rig, Header { epoch: Epoch(3), ..base }), Code::Moved);
    assert_eq!(write(&rig, Header { fs: FsId(1), ..base }), Code::Moved);
    let good = Header { epoch: Epoch(4), fs: FsId(2), incarnation: now.incarnation, ..base };
    assert_eq!(write(&rig, good), Code::Ok);
    // store-O5: a kill changes the incarnation. A client with the old one gets the new number with each reply.
    let again = rig.crashed(Crash::KeepAll);
    let told = again.say(good, &write_of(rw(), 0, b"x"), b"x");
    assert_eq!(told.code(), Code::Moved);
    assert!(told.frame.incarnation > now.incarnation);
    assert_eq!(
        again.say(good, &Flush {}, &[]).code(),
        Code::Moved,
        "old acknowledgements are not flushed by this"
    );
    let attach = Attach {
        fs_uuid: FS_UUID,
        client: Uuid([3; 16]),
        session: SESSION,
        name: "t".into(),
        observer: false,
        own_locks: false,
        ticket: wire::object::Mac::default(),
        claims: wire::session::Claims::All,
    };
    assert_eq!(again.say(good, &attach, &[]).code(), Code::Ok, "the handshake is how one learns it");
    let other = Attach { fs_uuid: Uuid([5; 16]), ..attach };
    assert_eq!(again.say(good, &other, &[]).code(), Code::Invalid);
}

#[test]
fn malformed_requests_are_refused_and_never_panic() {
    let rig = Rig::new();
    rig.write(1, 0, b"data").ok();
    let oversized = Write { crcs: vec![0; 3], ..write_of(rw(), 0, b"x") };
    assert_eq!(rig.say(slotted(2), &oversized, b"x").code(), Code::BadRequest);
    assert_eq!(rig.say(slotted(2), &write_of(rw(), FILE_SIZE_MAX, b"x"), b"x").code(), Code::FileTooBig);
    assert_eq!(rig.ask(&read_of(rw(), u64::MAX, 2)).code(), Code::BadRequest);
    let many = vec![object(); object::check::OBJECTS_MAX + 1];
    assert_eq!(rig.ask(&Glimpse { cap: rw(), objects: many }).code(), Code::BadRequest);
    let (_, body, _) = rig.say_raw(Header { call: 0x7777, ..slotted(2) }, &[], &[]);
    assert_eq!(decode_reply::<Empty>(&body).unwrap().1.unwrap_err().code, Code::Unsupported);
    let mut rng = SplitMix::new(3);
    let samples =
        [write_of(rw(), 0, b"x").to_bytes(), Destroy { cap: admin(), objects: vec![object()] }.to_bytes()];
    let calls = [wire::object::CALLS, wire::ost::CALLS, wire::session::CALLS].concat();
    for (call, _) in &calls {
        for n in 0..300 {
            let mut body = samples[n % 2].clone();
            let at = rng.below(body.len() as u64) as usize;
            body[at] = rng.next_u64() as u8;
            body.truncate(rng.below(body.len() as u64 * 2) as usize);
            let head = Header { call: *call, session: SESSION, ..Header::default() };
            let (_, reply, _) = rig.say_raw(head, &body, b"x");
            assert!(wire::ReplyHead::get(&mut wire::Reader::new(&reply)).is_ok());
        }
    }
    // Some of the bodies were well formed by chance; the target lives and serves.
    rig.write(2, 0, b"again").ok();
    assert_eq!(rig.read(0, 5), b"again");
}

/// object-R2, object-R3, oss-RL1: one session locks a range; another's requests there come later, and its own name the lock.
#[test]
fn requests_wait_for_a_range_lock_and_those_under_it_do_not() {
    let rig = Rig::new();
    let sequence = std::cell::Cell::new(0);
    let put = |lock, offset, data: &[u8]| {
        sequence.set(sequence.get() + 1);
        let said = rig.say(slotted(sequence.get()), &Write { lock, ..write_of(rw(), offset, data) }, data);
        // A refused request leaves its slot as it was.
        sequence.set(sequence.get() - u32::from(said.reply.is_err()));
        said.code()
    };
    let get = |lock, offset, len| rig.ask(&Read { lock, ..read_of(rw(), offset, len) }).code();
    let lock = |write, lock| LockRange { cap: rw(), object: object(), offset: 0, len: 4096, write, lock };
    assert_eq!(put(0, 0, &[1; 8192]), Code::Ok);
    assert_eq!([rig.ask(&lock(true, 7)).code(), rig.ask(&lock(true, 7)).code()], [Code::Ok; 2], "a repeat");
    assert_eq!(rig.ask(&lock(false, 8)).code(), Code::NotReady);
    assert_eq!([put(0, 4000, &[2; 200]), get(0, 0, 10)], [Code::NotReady; 2]);
    assert_eq!(
        [get(0, 4096, 10), put(7, 0, &[3; 4096]), get(7, 5, 10)],
        [Code::Ok; 3],
        "past it, and under it"
    );
    assert_eq!([put(8, 0, &[3; 4096]), get(7, 0, 5000)], [Code::Fenced; 2], "another lock, and too much");
    rig.ask(&UnlockRange { lock: 7, objects: vec![object()] }).ok();
    assert_eq!(get(0, 0, 10), Code::Ok);
    assert_eq!([rig.ask(&lock(false, 8)).code(), get(0, 0, 10)], [Code::Ok; 2], "readers go together");
    assert_eq!([put(0, 0, b"x"), put(8, 0, b"x")], [Code::NotReady, Code::Fenced]);
    // Capabilities count as for any request.
    let cap = cap_with(RIGHT_READ, 1);
    assert_eq!(rig.ask(&LockRange { cap, ..lock(true, 9) }).code(), Code::Fenced);
    for bad in [
        LockRange { len: 0, ..lock(true, 9) },
        lock(true, 0),
        LockRange { offset: u64::MAX, ..lock(true, 9) },
    ] {
        assert_eq!(rig.ask(&bad).code(), Code::BadRequest);
    }
    let many = UnlockRange { lock: 8, objects: vec![object(); 5000] };
    assert_eq!(rig.ask(&many).code(), Code::TooMuch);
}
