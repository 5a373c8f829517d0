//! Tests of grants.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

impl Rig {
    fn grant(&self, session: SessionId, bytes: u64) -> Said<GrantReply> {
        self.say(Header { session, ..Header::default() }, &Grant { bytes }, &[])
    }
    fn write_granted(&self, sequence: u32, offset: u64, granted: bool) -> Said<WriteReply> {
        let data = vec![7; 4096];
        self.say(slotted(sequence), &Write { granted, ..write_of(rw(), offset, &data) }, &data)
    }
    fn available(&self) -> u64 {
        self.ask(&TargetStat {}).ok().bytes_available
    }
}

#[test]
fn a_session_writes_within_its_grant_on_a_full_ost_once_each() {
    let rig = Rig::new();
    let free = rig.available();
    let granted = rig.grant(SESSION, 1 << 30).ok().bytes;
    assert_eq!(free - rig.available(), granted);
    let space = rig.ask(&wire::ost::OstSpace { cap: admin(), after: None }).ok();
    assert_eq!(space.grants, [wire::ost::OstGrant { session: SESSION, bytes: granted }]);
    // 1. Full, except for the grant.
    let (mut sequence, mut at) = (1, 0);
    while rig.write_granted(sequence, at, false).reply.is_ok() {
        (sequence, at) = (sequence + 1, at + 4096);
    }
    assert_eq!(rig.write_granted(sequence, at, false).code(), Code::NoSpace);
    // 2. A repeat is answered like the first, and uses nothing.
    let first = rig.write_granted(sequence, at, true).ok();
    assert!(first.granted);
    assert_eq!(rig.write_granted(sequence, at, true).ok(), first);
    assert_eq!(rig.grant(SESSION, 1 << 30).ok().bytes, granted - 4096);
    // 3. A session that is gone leaves no grant behind.
    rig.say(Header { session: SESSION, ..Header::default() }, &Detach { session: SESSION }, &[]).ok();
    assert_eq!(rig.grant(SESSION, 4096).code(), Code::NoSession);
    assert_eq!(rig.grant(SessionId(0), 4096).code(), Code::BadRequest);
    assert_eq!(rig.available(), granted - 4096);
}

#[test]
fn the_background_ends_a_grant_that_is_not_renewed() {
    let now = Arc::new(AtomicU64::new(NOW_SEC));
    let clock = now.clone();
    let disk = Rig::new().disk.crash(Crash::KeepAll);
    let clock = Arc::new(move || clock.load(Ordering::SeqCst));
    let rig = Rig::open(Arc::new(disk), Settings { clock, ..settings() });
    let free = rig.available();
    assert!(rig.grant(SESSION, 1 << 30).ok().bytes > 0);
    for (sec, is_kept) in [(store::GRANT_SEC, true), (store::GRANT_SEC + 1, false)] {
        now.store(NOW_SEC + sec, Ordering::SeqCst);
        rig.ost.core.checkpoint_round().unwrap();
        assert_eq!(rig.available() < free, is_kept);
    }
}
