//! Leases of names between two mounts of real processes.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use testkit::{Role, Wiring};

use super::{Bench, Needs, Test};

pub const OWN: &[(Needs, Test)] =
    &[(Needs::Only(Wiring::Two), ("leases::a_stopped_mount_delays_a_change_by_its_term", stopped))];

/// The term, and what two keep-alives and a busy machine take.
const DELAY_MAX: Duration = Duration::from_secs(9);
/// Names that both mounts have cached.
const FILES: usize = 20;

/// [S-leases] A mount that is stopped delays a change of what it caches by its term, and no other change. It shows nothing old afterwards.
fn stopped(b: &mut Bench) -> Result<()> {
    let dir = b.dir("leased")?;
    // The second mount looks into neither of the other two.
    let (cached, other) = (dir.join("cached"), dir.join("x/other"));
    [&cached, &other].into_iter().try_for_each(fs::create_dir_all)?;
    let file = |dir: &Path, n: usize| dir.join(format!("f{n}"));
    (0..FILES).try_for_each(|n| File::create(file(&cached, n)).map(drop))?;
    let (here, there) = (cached.clone(), b.look(&cached));
    let see = |dir: &Path| (0..FILES).try_for_each(|n| fs::metadata(file(dir, n)).map(drop));
    see(&here)?;
    see(&there)?;
    b.cluster.freeze(Role::SecondMount)?;
    let changed = (|| -> Result<()> {
        // What the stopped mount has not cached.
        let began = Instant::now();
        File::create(other.join("new"))?;
        let free = began.elapsed();
        let began = Instant::now();
        fs::set_permissions(file(&here, 3), Permissions::from_mode(0o640))?;
        let waited = began.elapsed();
        ensure!(waited < DELAY_MAX, "a change waited {waited:?} for a stopped mount");
        ensure!(
            free < waited,
            "another change waited {free:?}, as long as one of what is cached ({waited:?})"
        );
        // The lease has run out, so further changes do not wait.
        let began = Instant::now();
        fs::remove_file(file(&here, 4))?;
        fs::rename(file(&here, 5), file(&here, 100))?;
        ensure!(began.elapsed() < Duration::from_secs(2), "changes wait for a lease that has run out");
        Ok(())
    })();
    b.cluster.thaw(Role::SecondMount)?;
    changed?;
    let mode = fs::metadata(file(&there, 3))?.permissions().mode() & 0o777;
    ensure!(mode == 0o640, "the mount shows mode {mode:o} of before it was stopped");
    ensure!(!file(&there, 4).exists() && !file(&there, 5).exists(), "it shows names that are gone");
    ensure!(file(&there, 100).exists() && file(&there, 6).exists(), "it does not show what is there");
    Ok(())
}
