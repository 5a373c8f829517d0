//! The first hour with Stria: started twice, killed and started again, served from the configurations that are printed.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use testkit::Wiring;

use super::sys::*;
use super::{Bench, Needs, Test};

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Local), ("first::up_again", up_again)),
    (Needs::Only(Wiring::Local), ("first::printed_configurations_run", printed_configurations)),
];

/// A file system of its own beside that of the bench; ended with the test, however that ends.
struct Own<'a> {
    b: &'a Bench,
    dir: PathBuf,
    mount: PathBuf,
}

impl Own<'_> {
    fn stria(&self, verb: &str, more: &[&str]) -> Result<(i32, String)> {
        self.b.cluster.stria(&[&[verb, "--dir", &self.dir.display().to_string()], more].concat())
    }

    fn done(&self, verb: &str, more: &[&str]) -> Result<String> {
        let (code, out) = self.stria(verb, more)?;
        ensure_eq(code, 0, &format!("{verb} {}: {out}", more.join(" ")))?;
        Ok(out)
    }

    /// As a crash of the process.
    fn kill(&self) -> Result<()> {
        let holder: serde_json::Value = serde_json::from_slice(&fs::read(self.dir.join("run/holder.json"))?)?;
        let pid = holder["pid"].as_u64().context("holder.json names a process")?;
        let pid = rustix::process::Pid::from_raw(pid as i32).context("a pid")?;
        // Its parent is init by now: the lock says when it is gone.
        rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
        super::semantics::wait_until("the killed process is gone", || {
            let (_, out) = self.stria("status", &["-j"])?;
            Ok(out.contains("\"state\": \"stopped\""))
        })
    }
}

impl Drop for Own<'_> {
    fn drop(&mut self) {
        self.stria("down", &["--force", "--purge"]).ok();
    }
}

/// `up` of a running cluster reports that it runs. After a crash it is mounted again where it was and as it was; after `down` it is not.
fn up_again(b: &mut Bench) -> Result<()> {
    let own = Own { b, dir: b.cluster.dir.join("up again"), mount: b.cluster.dir.join("up-again mnt") };
    let mount = own.mount.display().to_string();
    let new = ["--ost-size", "1G", "--mdt-size", "1G", "--mount", &mount, "-o", "noatime"];
    own.done("up", &new)?;
    fs::write(own.mount.join("f"), "kept")?;
    let again = own.done("up", &[])?;
    ensure!(again.contains("is up already") && again.contains(&mount), "{again}");
    own.done("up", &["--mount", &mount])?;
    let (code, out) = own.stria("up", &["--mount", &format!("{mount}-other")])?;
    ensure!(code == 1 && out.contains("it is up already"), "{code}: {out}");

    // The mount table writes a space as \040.
    let mounted = || -> Result<Option<String>> {
        let table = fs::read_to_string("/proc/self/mounts")?;
        Ok(table.lines().rfind(|l| l.contains("/up-again\\040mnt ")).map(str::to_owned))
    };
    own.kill()?;
    let back = own.done("up", &[])?;
    ensure!(back.contains("is mounted there again"), "{back}");
    ensure_eq(fs::read_to_string(own.mount.join("f"))?, "kept".into(), "after the crash")?;
    let line = mounted()?.context("it is not mounted")?;
    ensure!(line.contains("noatime"), "the options are gone: {line}");

    // A check between the two takes nothing away.
    own.kill()?;
    own.done("fsck", &[])?;
    own.done("up", &[])?;
    ensure!(mounted()?.is_some(), "not mounted after a crash and a check");
    own.kill()?;
    own.done("up", &["--no-mount"])?;
    ensure!(mounted()?.is_none(), "mounted in spite of --no-mount");
    own.done("down", &[])?;
    let plain = own.done("up", &[])?;
    ensure!(plain.contains("not mounted"), "mounted again after it was stopped: {plain}");
    own.done("down", &["--purge"])?;
    Ok(())
}

/// `stria ROLE --print-config > f; stria ROLE --config f`, word for word, for each role: in a mount and network name space of its own,
/// where its paths and ports are free.
fn printed_configurations(b: &mut Bench) -> Result<()> {
    let dir = b.cluster.dir.join("printed");
    fs::create_dir_all(dir.join("lib"))?;
    let script = r#"
        set -e
        # What is left would keep the pipe of this script's output open, and the test waiting.
        trap 'kill $pids $client 2>/dev/null || true' EXIT
        ip link set lo up
        mount -t tmpfs none /var/lib && mkdir /var/lib/stria && mount --bind "$T/lib" /var/lib/stria
        mount -t tmpfs none /mnt && mkdir /mnt/stria
        cd "$T"
        for role in mgs mds oss mount; do "$BIN" $role --print-config > $role.toml; done
        serve() {
            pids=
            for role in mgs mds oss; do "$BIN" $role --config $role.toml $1 >> $role.log 2>&1 & pids="$pids $!"; done
            "$BIN" mount --config mount.toml >> mount.log 2>&1 & client=$!
            n=0
            until mountpoint -q /mnt/stria; do
                n=$((n+1)); [ $n -lt 600 ] || { tail -n 3 *.log; exit 3; }
                sleep 0.1
            done
        }
        end() { umount /mnt/stria; wait $client; kill $pids; wait $pids; }
        serve --format
        echo kept > /mnt/stria/f
        end
        serve
        cat /mnt/stria/f
        end
    "#;
    let out = Command::new("unshare")
        .args(["-m", "-n", "sh", "-c", script])
        .env("T", &dir)
        .env("BIN", b.cluster.bin())
        .stdin(Stdio::null())
        .output()
        .context("unshare")?;
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    ensure!(out.status.success() && said.contains("kept"), "{}: {said}", out.status);
    Ok(())
}
