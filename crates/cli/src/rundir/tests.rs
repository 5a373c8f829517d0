use super::*;
use crate::testdir::TestDir;

fn leave_a_holder(run: &RunDir, pid: u32) {
    fs::create_dir_all(run.root()).unwrap();
    let dead = Holder { pid, what: Use::Up, mount: Some("/nowhere/mounted".into()), since_sec: 1 };
    fs::write(run.holder(), serde_json::to_vec(&dead).unwrap()).unwrap();
    fs::write(run.socket(), b"").unwrap();
    fs::write(run.lock(), b"").unwrap();
}

#[test]
fn files_of_a_killed_run_mean_nothing_and_are_cleared() {
    let dir = TestDir::new("rundir-killed");
    let run = RunDir::of(dir.path());
    // The pid of a living process that does not hold the lock (pids are reused): ignored.
    leave_a_holder(&run, 1);
    assert!(matches!(run.state().unwrap(), State::Free { leftover: Some(h) } if h.pid == 1));
    let lock = run.take(Use::Up, None).unwrap();
    assert!(!run.socket().exists());
    assert!(
        matches!(run.state().unwrap(), State::Held(h) if h.pid == std::process::id() && h.mount.is_none())
    );
    drop(lock);
    assert!(matches!(run.state().unwrap(), State::Free { leftover: None }));
}

#[test]
fn a_live_holder_is_named_with_its_pid() {
    let dir = TestDir::new("rundir-live");
    let run = RunDir::of(dir.path());
    let lock = run.take(Use::Up, Some("/m".into())).unwrap();
    let refused = run.take(Use::Up, None).unwrap_err().to_string();
    assert!(refused.contains(&format!("served by pid {}", std::process::id())), "{refused}");
    assert!(refused.contains("stria down --dir"), "{refused}");
    lock.set_mount(Some("/other".into())).unwrap();
    assert!(matches!(run.state().unwrap(), State::Held(h) if h.mount == Some("/other".into())));
    drop(lock);
    let checks = run.take(Use::Check, None).unwrap();
    assert!(run.take(Use::Up, None).unwrap_err().to_string().contains("checks it now"));
    drop(checks);
}

#[test]
fn the_mount_of_a_killed_run_outlives_a_check_until_it_is_forgotten() {
    let dir = TestDir::new("rundir-mounted");
    let run = RunDir::of(dir.path());
    let mount = Remembered { point: "/m".into(), options: vec!["ro".into()] };
    let lock = run.take(Use::Up, None).unwrap();
    lock.remember(&mount).unwrap();
    drop(lock);
    drop(run.take(Use::Check, None).unwrap());
    assert_eq!(run.remembered(), Some(mount.clone()));
    let set_mode = |mode| {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(run.mounted(), fs::Permissions::from_mode(mode)).unwrap();
    };
    for mode in [0o620, 0o602] {
        set_mode(mode);
        assert_eq!(run.remembered(), None, "another user may write it: {mode:o}");
    }
    set_mode(0o600);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(run.mounted(), Some(1000), None).unwrap();
        assert_eq!(run.remembered(), None, "another user's");
        std::os::unix::fs::chown(run.mounted(), Some(0), None).unwrap();
    }
    assert_eq!(run.remembered(), Some(mount));
    run.take(Use::Up, None).unwrap().forget().unwrap();
    assert_eq!(run.remembered(), None);
}

#[test]
fn a_directory_that_never_ran_is_free() {
    let dir = TestDir::new("rundir-never");
    assert!(matches!(RunDir::of(dir.path()).state().unwrap(), State::Free { leftover: None }));
}

#[test]
fn a_path_that_no_socket_can_have_is_refused_with_its_length() {
    let long = Path::new("/").join("x".repeat(120));
    let refused = RunDir::of(&long).nid().unwrap_err().to_string();
    assert!(refused.contains("136 bytes") && refused.contains("shorter path"), "{refused}");
    let refused = RunDir::of(Path::new("/data,old")).nid().unwrap_err().to_string();
    assert!(refused.contains("comma"), "{refused}");
    assert_eq!(RunDir::of(Path::new("/d")).nid().unwrap(), "unix:/d/run/stria.sock@local0");
}

#[test]
fn a_lock_that_was_purged_while_it_was_waited_for_keeps_nobody_out_and_is_not_taken_for_one() {
    let dir = TestDir::new("rundir-purged");
    let run = RunDir::of(dir.path());
    let purging = run.take(Use::Purge, None).unwrap();
    // Opened before the purge and locked after it, as by a process that came at the wrong moment.
    let late = OpenOptions::new().write(true).open(run.lock()).unwrap();
    purging.purge().unwrap();
    assert_eq!(fs::read_dir(run.root()).unwrap().count(), 0, "nothing of ours is left");
    run.lock_exclusively(&late).unwrap();
    assert!(!run.is_at_path(&late));
    let up = run.take(Use::Up, None).unwrap();
    assert!(!run.is_at_path(&late), "the new lock is another file");
    assert!(matches!(run.state().unwrap(), State::Held(h) if h.what == Use::Up));
    drop((late, up));
}
