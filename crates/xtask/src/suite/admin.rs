//! Tasks of an administrator: `mount -t stria` and `umount`, refused mounts, mounts in use, systemd units.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use testkit::cluster::is_mounted;
use testkit::{Role, Wiring};

use super::semantics::wait_until;
use super::sys::*;
use super::{Bench, Needs, Test};

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Tcp), ("admin::mount_t_stria", mount_t_stria)),
    (Needs::Only(Wiring::Tcp), ("admin::mount_o_remount", mount_o_remount)),
    (Needs::Only(Wiring::Tcp), ("admin::mounts_that_cannot_be_say_why", refused_mounts)),
    (Needs::Only(Wiring::Tcp), ("admin::mount_that_is_cancelled", cancelled_mount)),
    (Needs::Only(Wiring::Tcp), ("admin::servers_that_are_down_are_seen", down_is_seen)),
    (Needs::Only(Wiring::Local), ("admin::a_user_who_may_not_ask_is_told_so", may_not_ask)),
    (Needs::Only(Wiring::Tcp), ("admin::umount_of_a_busy_mount", busy_umount)),
    (Needs::Only(Wiring::Tcp), ("admin::a_killed_mount_is_started_again", killed_mount)),
    (Needs::Only(Wiring::Local), ("admin::systemd_units", units)),
    (Needs::Shared, ("admin::ids_and_paths", ids_and_paths)),
    (Needs::Shared, ("admin::du_says_what_a_walk_finds", du)),
    (Needs::Shared, ("admin::an_mdt_tells_what_it_holds", mdt_stat)),
    (Needs::Shared, ("admin::connections_tell_what_went_over_them", net)),
];

/// `NID:/fsname` of the cluster.
fn source(b: &Bench) -> Result<String> {
    let config = fs::read_to_string(b.cluster.dir.join("mount.toml"))?;
    let nid = config.split('"').nth(1).context("mount.toml names the management service")?;
    Ok(format!("{nid}:/stria"))
}

/// Runs a script in a mount name space of its own, where the mount helpers in `/sbin` are this binary: nothing is installed.
/// `$S` is the source, `$M` a directory to mount on. Gives the exit code and the output.
fn with_helper(b: &Bench, mount: &Path, script: &str) -> Result<(i32, String)> {
    let helpers = b.cluster.dir.join("helpers");
    if !helpers.exists() {
        fs::create_dir(&helpers)?;
        for name in ["mount.stria", "mount.fuse.stria"] {
            std::os::unix::fs::symlink(b.cluster.bin(), helpers.join(name))?;
        }
    }
    let real = fs::canonicalize("/sbin")?;
    let whole = format!("set -e; mount --bind '{}' '{}'; {script}", helpers.display(), real.display());
    let out = Command::new("unshare")
        .args(["-m", "sh", "-c", &whole])
        .envs([("S", source(b)?), ("M", mount.display().to_string()), ("T", "stria".into())])
        .env("BIN", b.cluster.bin())
        .stdin(Stdio::null())
        .output()
        .context("unshare")?;
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    Ok((out.status.code().unwrap_or(-1), text))
}

fn place(b: &Bench, name: &str) -> Result<PathBuf> {
    let mount = b.cluster.dir.join(name);
    fs::create_dir(&mount)?;
    Ok(mount)
}

/// [S-mount-options] mount(8) knows the mount by its point alone, and finds the helper by the type in the mount table.
fn mount_o_remount(b: &mut Bench) -> Result<()> {
    let mount = place(b, "remounted")?;
    let script = "mount -t $T $S $M -o nosuid
        has() { findmnt -n -o OPTIONS -M $M | tr , '\n' | grep -qx $1; }
        touch $M/f
        mount -o remount,ro $M
        has ro; has nosuid; if touch $M/f 2>$M.said; then exit 7; fi; grep -q Read-only $M.said
        mount -o remount,rw,noatime,suid $M
        touch $M/f; has rw; has noatime; if has nosuid; then exit 8; fi
        mount -o remount,nosuid $M
        $BIN mount $S $M -o remount,nodev
        has nosuid; has noatime; has nodev
        if mount -o remount,max_read=8192 $M; then exit 9; fi
        umount $M
        if $BIN mount $S $M -o remount,ro; then exit 10; fi";
    let (code, out) = with_helper(b, &mount, script)?;
    ensure!(code == 0, "exit {code}: {out}");
    for want in ["do not change while it is mounted", "no file system of Stria is mounted there"] {
        ensure!(out.contains(want), "not said: {want}: {out}");
    }
    Ok(())
}

/// `stria mdt stat` before and after 100 files are made.
fn mdt_stat(b: &mut Bench) -> Result<()> {
    let dir = b.dir("mdtstat")?;
    let ask = |args: &[&str]| -> Result<(i32, String)> {
        b.cluster.stria(&[&["mdt", "stat"], args, &[&b.cluster.mount.display().to_string()]].concat())
    };
    let look = || -> Result<serde_json::Value> {
        let (code, out) = ask(&["-j"])?;
        ensure_eq(code, 0, &out)?;
        Ok(serde_json::from_str::<Vec<serde_json::Value>>(&out)?.remove(0))
    };
    let number = |of: &serde_json::Value, name: &str| of[name].as_u64().context(name.to_owned());
    let before = look()?;
    for n in 0..100 {
        File::create(dir.join(n.to_string()))?;
    }
    // A mount tells of new files a moment later.
    File::open(&dir)?.sync_all()?;
    let after = look()?;
    let more =
        |name: &str| -> Result<u64> { Ok(number(&after, name)?.saturating_sub(number(&before, name)?)) };
    // A name and an inode each; others come and go meanwhile.
    ensure!(more("records")? >= 150 && more("changes")? >= 100, "{before} then {after}");
    ensure!(number(&after, "memory_bytes")? <= number(&after, "memory_bytes_max")?, "{after}");
    ensure_eq(number(&after, "inline_max")?, 65_536, "an MDT with room")?;
    let (code, out) = ask(&[])?;
    ensure!(code == 0 && out.contains("(mdt_cache)") && !out.contains("DAMAGED"), "{code}: {out}");
    let (code, out) = b.cluster.stria(&["mdt", "stat", &dir.join("0").display().to_string()])?;
    ensure!(code != 0 && out.contains("give the mount point"), "{code}: {out}");
    Ok(fs::remove_dir_all(dir)?)
}

/// `stria net stat` counts the frames of calls, and `stria net trace` shows them.
fn net(b: &mut Bench) -> Result<()> {
    let dir = b.dir("net")?;
    let mount = b.cluster.mount.display().to_string();
    let look = || -> Result<Vec<serde_json::Value>> {
        let (code, out) = b.cluster.stria(&["net", "stat", "-j", &mount])?;
        ensure_eq(code, 0, &out)?;
        Ok(serde_json::from_str(&out)?)
    };
    let frames = |of: &[serde_json::Value], what: &str| -> u64 {
        let peers = of.iter().flat_map(|process| process["peers"].as_array().into_iter().flatten());
        peers.filter_map(|peer| peer[what].as_u64()).sum()
    };
    let before = look()?;
    let stria = b.cluster.bin().to_owned();
    // Into a file: a pipe that is not read would hold the tool up.
    let traced = b.cluster.dir.join("traced");
    let mut tracing = Command::new(stria)
        .args(["net", "trace", "-j", "--seconds", "2", &mount])
        .stdout(File::create(&traced)?)
        .spawn()?;
    // It begins to look when it has reached all processes.
    while tracing.try_wait()?.is_none() {
        for n in 0..20 {
            fs::create_dir(dir.join(n.to_string()))?;
            fs::remove_dir(dir.join(n.to_string()))?;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    ensure!(frames(&look()?, "frames_in") > frames(&before, "frames_in"), "frames are counted");
    let lines = fs::read_to_string(&traced)?;
    let names = before.iter().filter_map(|process| process["process"].as_str()).collect::<Vec<_>>();
    if b.cluster.wiring() == Wiring::Local {
        // Calls of this mount are no frames; those of the tools are.
        ensure!(lines.contains("NetTrace") && names.len() == 2, "{names:?}: {lines}");
        return Ok(fs::remove_dir_all(dir)?);
    }
    ensure!(
        names.len() >= 4 && names[0].starts_with("mount ") && names.contains(&"management service"),
        "{names:?}"
    );
    let made = |process: &str, reply: bool| {
        let frame = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap_or_default();
        lines.lines().map(frame).any(|f| {
            let is_of = f["process"].as_str().is_some_and(|name| name.starts_with(process));
            is_of && f["is_reply"] == reply && f["call"] == "MakeDir"
        })
    };
    for (process, reply) in [("mount", false), ("mount", true), ("server", false), ("server", true)] {
        ensure!(made(process, reply), "no MakeDir of a {process}, an answer: {reply}: {lines}");
    }
    Ok(fs::remove_dir_all(dir)?)
}

/// [S-du] `stria du` beside `du -s` over a tree of all sorts, as names come, go and move.
fn du(b: &mut Bench) -> Result<()> {
    let dir = b.dir("du")?;
    let mut rng = testkit::Rng::new(26);
    let mut dirs = vec![dir.clone()];
    for n in 0..120u64 {
        let at = rng.pick(&dirs).clone();
        let path = at.join(format!("n{n}"));
        match n % 6 {
            0 => {
                fs::create_dir(&path)?;
                dirs.push(path);
            }
            1 => std::os::unix::fs::symlink("x".repeat(1 + n as usize), &path)?,
            2 => fs::write(&path, vec![1; rng.below(200_000) as usize])?,
            3 => File::create(&path)?.set_len(rng.below(1 << 40))?,
            4 => {
                fs::write(&path, vec![1; 1 + rng.below(5000) as usize])?;
                fs::hard_link(&path, dir.join(format!("again{n}")))?;
            }
            _ => {
                // A directory with all that is in it, where it does not go below itself.
                let moved = rng.pick(&dirs).clone();
                let to = rng.pick(&dirs).clone();
                if moved != dir && !to.starts_with(&moved) {
                    let new = to.join(format!("moved{n}"));
                    fs::rename(&moved, &new)?;
                    let renamed = |d: &PathBuf| match d.strip_prefix(&moved) {
                        Ok(rest) if rest.as_os_str().is_empty() => new.clone(),
                        Ok(rest) => new.join(rest),
                        Err(_) => d.clone(),
                    };
                    dirs = dirs.iter().map(renamed).collect();
                }
            }
        }
        if n % 40 == 39 {
            compare_du(b, &dir)?;
        }
    }
    let shown = dir.display().to_string();
    // Names of one file: the first counts, wherever du would meet it first.
    let (code, out) = b.cluster.stria(&["du", "--json", &shown])?;
    ensure_eq(code, 0, &out)?;
    let json: serde_json::Value = serde_json::from_str(&out)?;
    let count = |kind: &str| {
        Ok::<_, anyhow::Error>(
            sh(&format!("find '{shown}' -mindepth 1 -type {kind} -printf '%i\\n' | sort -u | wc -l"))?
                .trim()
                .parse::<u64>()?,
        )
    };
    ensure_eq(json[0]["files"].as_u64(), Some(count("f")?), "files")?;
    ensure_eq(json[0]["dirs"].as_u64(), Some(count("d")?), "directories")?;
    ensure_eq(json[0]["others"].as_u64(), Some(count("l")?), "symlinks")?;
    fs::remove_dir_all(&dir)?;
    fs::create_dir(&dir)?;
    let (_, out) = b.cluster.stria(&["du", "-s", "--inodes", &shown])?;
    ensure_eq(out, format!("1\t{shown}\n"), "an empty directory")?;
    let (code, out) = b.cluster.stria(&["du", "/proc"])?;
    ensure!(code == 2 && out.contains("not on a Stria file system"), "exit {code}: {out}");
    Ok(())
}

fn sh(script: &str) -> Result<String> {
    let out = Command::new("sh").args(["-c", script]).output().context("sh")?;
    ensure!(out.status.success(), "{script}: {}", String::from_utf8_lossy(&out.stderr));
    Ok(String::from_utf8(out.stdout)?)
}

fn compare_du(b: &Bench, dir: &Path) -> Result<()> {
    let dir = dir.display();
    for options in [&["-s"][..], &["-sh"], &["-s", "--inodes"]] {
        let (code, ours) = b.cluster.stria(&[&["du"], options, &[&dir.to_string()]].concat())?;
        ensure_eq(code, 0, &ours)?;
        ensure_eq(ours, sh(&format!("du {} '{dir}'", options.join(" ")))?, &format!("{options:?}"))?;
    }
    // From 9.2 on du leaves directories out of this sum.
    let (_, ours) = b.cluster.stria(&["du", "-b", &dir.to_string()])?;
    let ours: u64 = ours.split('\t').next().context("a number")?.parse()?;
    let theirs = sh(&format!("du -s -b '{dir}'"))?;
    let theirs: u64 = theirs.split('\t').next().context("a number")?.parse()?;
    let of_dirs = 4096 * sh(&format!("find '{dir}' -type d | wc -l"))?.trim().parse::<u64>()?;
    ensure!(ours == theirs || ours == theirs + of_dirs, "{ours} bytes, du says {theirs}");
    Ok(())
}

/// From a path to its id, and from that to all paths, however odd the names are.
fn ids_and_paths(b: &mut Bench) -> Result<()> {
    let dir = b.dir("ids")?;
    let (one, sub) = (dir.join("one"), dir.join("a sub\ndir"));
    fs::create_dir(&sub)?;
    fs::write(&one, "1")?;
    fs::hard_link(&one, sub.join("other"))?;
    std::os::unix::fs::symlink("/etc/passwd", dir.join("out"))?;
    let mount = b.cluster.mount.clone();
    let run = |args: &[&str]| b.cluster.stria(args);
    let id_of = |path: &Path| -> Result<String> {
        let (code, out) = run(&["path2id", &path.display().to_string()])?;
        ensure_eq(code, 0, &format!("path2id {}: {out}", path.display()))?;
        Ok(out.trim().to_owned())
    };
    let id = id_of(&one)?;
    ensure_eq(id_of(&sub.join("other"))?, id.clone(), "both names of a file")?;
    ensure_eq(id_of(&dir.join("out"))? == id, false, "a symlink is itself")?;
    let place = mount.display().to_string();
    let (code, out) = run(&["id2path", "-0", &place, &id])?;
    ensure_eq(code, 0, &out)?;
    let below = dir.display();
    ensure_eq(out, format!("{below}/one\0{below}/a sub\ndir/other\0"), "both paths")?;
    let (_, out) = run(&["id2path", "-j", &place, &id, "1"])?;
    let json: serde_json::Value = serde_json::from_str(&out)?;
    ensure_eq(json[0]["names"].as_u64(), Some(2), "names in JSON")?;
    ensure_eq(json[1]["paths"][0].as_str(), Some(place.as_str()), "the root")?;
    fs::remove_file(&one)?;
    fs::remove_file(sub.join("other"))?;
    let (code, out) = run(&["id2path", &place, &id, "1"])?;
    ensure!(
        code == 1 && out.contains("none of this id") && out.contains(&format!("0x1 {place}")),
        "{code}: {out}"
    );
    let (code, out) = run(&["id2path", "/proc", &id])?;
    ensure!(code == 2 && out.contains("not on a Stria file system"), "exit {code}: {out}");
    let (code, out) = run(&["path2id", "/proc/version"])?;
    ensure!(code == 2 && out.contains("not on a Stria file system"), "exit {code}: {out}");
    let (code, out) = run(&["id2path", &place])?;
    ensure!(code == 2 && out.contains("no id was given"), "exit {code}: {out}");
    let (code, out) = run(&["id2path", &place, "one"])?;
    ensure!(code == 2 && out.contains("no file id"), "exit {code}: {out}");
    Ok(())
}

/// By hand, by a line of fstab, read-only, faked; and gone after umount. [S-mount-source] The mount table shows the source as it was
/// given, so `mount -a` finds what it has mounted. A helper says nothing when all went well.
fn mount_t_stria(b: &mut Bench) -> Result<()> {
    fs::write(b.cluster.mount.join("seen"), "by mount(8)")?;
    let mount = place(b, "by-mount")?;
    let fstab = b.cluster.dir.join("fstab");
    let line =
        format!("{} {} stria _netdev,nofail,nosuid,x-systemd.automount 0 0\n", source(b)?, mount.display());
    fs::write(&fstab, line)?;
    // Not in full, and by the type that the mount table shows.
    let given = source(b)?.replace("@tcp0", "@tcp");
    let [short, fuse] =
        ["stria", "fuse.stria"].map(|kind| (kind, b.cluster.dir.join(format!("fstab.{kind}"))));
    for (kind, path) in [&short, &fuse] {
        fs::write(path, format!("{given} {} {kind} _netdev,nofail,retry=1 0 0\n", mount.display()))?;
    }
    let (short, fuse) = (short.1, fuse.1);
    let script = format!(
        "mount -t $T $S $M -o nosuid,noatime,_netdev; grep -q 'by mount(8)' $M/seen; \
         findmnt -n -o FSTYPE,SOURCE $M; echo more > $M/more; umount $M; test ! -e $M/seen; \
         mount -f -t $T $S $M; test ! -e $M/seen; \
         mount -T {fstab} $M; grep -q more $M/more; umount -t fuse.stria $M; test ! -e $M/seen; \
         mount -r -t $T $S $M; ! touch $M/new 2>/dev/null; test ! -e $M/new; umount $M; \
         for table in {short} {fuse}; do \
             mount -a -T $table >{said} 2>&1; mount -a -T $table >>{said} 2>&1; test ! -s {said}; \
             findmnt -n -o SOURCE $M; test $(grep -c \" $M \" /proc/mounts) = 1; grep -q more $M/more; umount $M; \
         done; \
         mount -v -t $T $S $M | grep -q 'mounted .* on'; umount $M; echo all done",
        fstab = fstab.display(),
        short = short.display(),
        fuse = fuse.display(),
        said = b.cluster.dir.join("mount.said").display(),
    );
    let (code, out) = with_helper(b, &mount, &script)?;
    ensure!(code == 0 && out.contains("all done"), "exit {code}: {out}");
    ensure!(out.contains(&format!("fuse.stria {}", source(b)?)), "what findmnt shows: {out}");
    ensure_eq(out.lines().filter(|line| *line == given).count(), 2, &format!("the source as given: {out}"))?;
    ensure_eq(
        fs::read_to_string(b.cluster.mount.join("more"))?,
        "more\n".into(),
        "written through mount(8)'s mount",
    )
}

/// [S-mount-waits] Each refusal gives the failure, its reason and the remedy, and leaves nothing behind.
fn refused_mounts(b: &mut Bench) -> Result<()> {
    let (mount, good) = (place(b, "refused")?, source(b)?);
    let expect = |args: &[&str], code: i32, words: &[&str]| -> Result<()> {
        let (got, out) = b.cluster.stria(&[&["mount"], args].concat())?;
        let missing: Vec<_> = words.iter().filter(|w| !out.contains(**w)).collect();
        ensure!(got == code && missing.is_empty(), "mount {args:?}: exit {got}, no {missing:?} in: {out}");
        ensure!(!is_mounted(&mount), "mount {args:?}: mounted all the same");
        Ok(())
    };
    let point = mount.display().to_string();
    expect(&["nonsense", &point], 2, &["'nonsense' is not NID:/fsname", "10.0.0.5@tcp0:/stria"])?;
    expect(&[&good, &point, "-o", "cheese"], 2, &["'cheese' is no option", "--help"])?;
    expect(&[&good.replace(":/stria", ":/"), &point], 2, &["--help"])?;
    // A file is no mount point; a mounted one is not mounted again.
    let file = b.cluster.dir.join("a-file");
    fs::write(&file, "")?;
    expect(&[&good, &file.display().to_string()], 2, &["mount point", "a-file", "give a directory"])?;
    // One that is not there is not made: mount(8) makes none, and a typing error would lie there for ever.
    let missing = b.cluster.dir.join("no such").display().to_string();
    expect(&[&good, &missing], 2, &["it does not exist", &format!("mkdir -p '{missing}'")])?;
    ensure!(!Path::new(&missing).exists(), "it was made all the same");
    let taken = b.cluster.mount.display().to_string();
    expect(&[&good, &taken], 1, &[&taken, "is mounted there already", "choose another directory"])?;
    // An error that waiting cannot cure fails at once, and lists the known names.
    let other = good.replace(":/stria", ":/other");
    expect(&[&other, &point], 2, &["there is none of this name", "knows the file systems: stria"])?;
    expect(&[&good.replace("@tcp0", "@o2ib"), &point], 2, &["net o2ib is not supported, known: tcp"])?;
    expect(&["127.0.0.1@tcp:19010:/stria", &point], 2, &["write 127.0.0.1:19010@tcp"])?;
    expect(&[&good, &point, "-o", "retry=1h"], 2, &["'retry=1h': give minutes"])?;
    // A server that does not answer is waited for, as long as was asked for.
    let silent = "127.0.0.1:1@tcp:/stria";
    expect(
        &[silent, &point, "-o", "retry=0"],
        1,
        &["gave up after 0 s", "management service at 127.0.0.1:1@tcp0"],
    )?;
    waits(
        b,
        silent,
        &mount,
        &["management service at 127.0.0.1:1@tcp0 does not answer", "s of 300 s at most"],
    )?;
    b.cluster.kill(Role::Mds)?;
    waits(b, &good, &mount, &["waiting for stria-MDT0000 at", "300 s at most", "stria status"])?;
    b.cluster.start_role(Role::Mds)?;
    // A mount point need not be empty: its content is hidden, as with any mount.
    fs::write(mount.join("below"), "")?;
    let (code, out) = b.cluster.stria(&["mount", &good, &point])?;
    ensure!(code == 0 && !mount.join("below").exists(), "over a directory with files: exit {code}: {out}");
    run("umount", &[&point], Path::new("/"))?;
    ensure!(mount.join("below").exists(), "what lay below is back");
    Ok(())
}

/// `stria mount` goes on trying and says why; SIGTERM ends it at once, with nothing left.
fn waits(b: &Bench, source: &str, mount: &Path, words: &[&str]) -> Result<()> {
    let said = b.cluster.dir.join("said");
    let out = File::create(&said)?;
    let mut child = Command::new(b.cluster.bin())
        .args(["mount", "--foreground", source])
        .arg(mount)
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .spawn()?;
    let heard = wait_until("it says what it waits for", || {
        let text = fs::read_to_string(&said)?;
        Ok(words.iter().all(|w| text.contains(w)))
    });
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
    let status = child.wait()?;
    heard.with_context(|| format!("{source}: {}", fs::read_to_string(&said).unwrap_or_default()))?;
    let text = fs::read_to_string(&said)?;
    ensure!(
        status.code() == Some(1) && text.contains("asked to stop before it was mounted"),
        "{status}: {text}"
    );
    ensure!(!is_mounted(mount), "{source}: something is mounted");
    Ok(())
}

/// A `stria mount` in the background that waits for the management service. It says so before this returns.
fn waiting_mount(b: &Bench, name: &str, source: &str, mount: &Path) -> Result<(Child, PathBuf)> {
    let said = b.cluster.dir.join(name);
    let out = File::create(&said)?;
    let child = Command::new(b.cluster.bin())
        .args(["mount", source])
        .arg(mount)
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .spawn()?;
    wait_until("it says what it waits for", || Ok(fs::read_to_string(&said)?.contains("does not answer")))?;
    Ok((child, said))
}

/// Processes that have this path among their arguments.
fn processes_of(path: &Path) -> Result<Vec<String>> {
    let path = path.display().to_string();
    let lines = fs::read_dir("/proc")?.flatten().filter_map(|entry| {
        let bytes = fs::read(entry.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&bytes).replace('\0', " "))
    });
    Ok(lines.filter(|line| line.contains(&path)).collect())
}

/// [S-mount-waits] A mount that is cancelled while it waits has ended, and mounts nothing later; of two that wait for one point, one mounts.
fn cancelled_mount(b: &mut Bench) -> Result<()> {
    let (mount, source) = (place(b, "cancelled")?, source(b)?);
    b.cluster.kill(Role::Mgs)?;
    // 1. Ctrl-C: gone when the command has ended.
    let (mut child, said) = waiting_mount(b, "interrupted", &source, &mount)?;
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)?;
    let (status, text) = (child.wait()?, fs::read_to_string(said)?);
    ensure!(
        status.code() == Some(1) && text.contains("asked to stop before it was mounted"),
        "{status}: {text}"
    );
    ensure_eq(processes_of(&mount)?, Vec::new(), "processes after Ctrl-C")?;
    // 2. Killed: the process in the background misses its parent.
    let (mut child, _) = waiting_mount(b, "killed", &source, &mount)?;
    child.kill()?;
    child.wait()?;
    wait_until("the process in the background has ended", || Ok(processes_of(&mount)?.is_empty()))?;
    // 3. Two wait for the same point. The second finds it taken.
    let (first, _) = waiting_mount(b, "first", &source, &mount)?;
    let (second, _) = waiting_mount(b, "second", &source, &mount)?;
    b.cluster.start_role(Role::Mgs)?;
    let mut codes = [first, second].map(|mut child| child.wait().map(|s| s.code()).unwrap_or(None));
    codes.sort();
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let mounts = table.lines().filter(|l| l.split(' ').nth(4) == Some(&mount.display().to_string())).count();
    while is_mounted(&mount) {
        run("umount", &[&mount.display().to_string()], Path::new("/"))?;
    }
    ensure_eq((codes, mounts), ([Some(0), Some(1)], 1), "exit codes of the two, and mounts")
}

/// Commands that find servers by the MGS, and the exit code of each while an OSS is down. (fsck waits for it first, a minute.)
const LOOKS: [(&[&str], Option<i32>); 6] = [
    (&["status"], Some(1)),
    (&["df", "-h"], Some(1)),
    (&["damage", "list"], Some(2)),
    (&["ost", "stat"], Some(1)),
    (&["mdt", "stat"], Some(0)),
    (&["fsck"], None),
];

/// [S-down-is-seen] An OSS that was killed: `status` and `df` name its OSTs and end with 1, by the mount and by the management service.
fn down_is_seen(b: &mut Bench) -> Result<()> {
    let (mgs, mount) = (b.cluster.mgs(), b.cluster.mount.display().to_string());
    let look = |b: &Bench, command: &[&str]| b.cluster.stria(&[command, &["--mgs", &mgs]].concat());
    let named = format!("{mgs}:/stria");
    for command in LOOKS {
        let (code, out) = look(b, command.0)?;
        ensure_eq(code, 0, &format!("{command:?} of servers that are up: {out}"))?;
    }
    b.cluster.kill(Role::Oss(1))?;
    for (command, expected) in LOOKS.iter().filter_map(|(command, code)| Some((command, (*code)?))) {
        let (code, out) = look(b, command)?;
        ensure_eq(code, expected, &format!("{command:?} without an OSS: {out}"))?;
    }
    let (_, json) = b.cluster.stria(&["status", "-j", "--mgs", &mgs])?;
    let json: serde_json::Value = serde_json::from_str(&json)?;
    ensure_eq(json[0]["state"].as_str(), Some("degraded"), "the state in JSON")?;
    let down = json[0]["down"].as_array().into_iter().flatten().filter_map(|name| name.as_str());
    let down: Vec<&str> = down.collect();
    ensure!(down.len() == 2 && down.iter().all(|name| name.starts_with("stria-OST")), "what is down: {json}");
    let (state, named_down) =
        ("stria: degraded, 2 of 5 targets down", format!("down: {}; start", down.join(", ")));
    for (args, begin) in [
        (&["status", "--mgs", &named][..], format!("{state}, not mounted")),
        (&["status"], format!("{state}, mounted on {mount}")),
    ] {
        let (code, out) = b.cluster.stria(args)?;
        ensure!(out.contains(&named_down), "{args:?}: no '{named_down}' in: {out}");
        ensure!(
            code == 1 && out.lines().any(|l| l == begin),
            "{args:?}: exit {code}, no '{begin}' in: {out}"
        );
    }
    for args in [&["df", &mount][..], &["df", "--mgs", &mgs]] {
        let (code, out) = b.cluster.stria(args)?;
        let lines = down.iter().map(|name| format!("{name}_UUID  : down ("));
        let missing: Vec<_> = lines.filter(|words| !out.contains(words)).collect();
        ensure!(out.contains("2 of 5 targets are down"), "{args:?}: {out}");
        ensure!(code == 1 && missing.is_empty(), "{args:?}: exit {code}, no {missing:?} in: {out}");
    }
    b.cluster.start_role(Role::Oss(1))?;
    wait_until("all are up again", || Ok(look(b, &["status"])?.0 == 0))?;
    let (code, out) = b.cluster.stria(&["status", "--mgs", &format!("{mgs}:/other")])?;
    ensure!(code == 2 && out.contains("knows the file systems: stria"), "a wrong name: exit {code}: {out}");
    let (code, out) = b.cluster.stria(&["df", "--mgs", "127.0.0.1:1@tcp"])?;
    ensure!(
        code == 2 && out.contains("127.0.0.1:1@tcp0: it does not answer"),
        "a wrong address: {code}: {out}"
    );
    Ok(())
}

/// The socket of `stria up` is its owner's: another user hears that, and not that servers are silent.
fn may_not_ask(b: &mut Bench) -> Result<()> {
    let home = super::mounting::public_dir("may-not-ask")?;
    let (bin, mount) = (home.join("stria"), b.cluster.mount.display());
    fs::copy(b.cluster.bin(), &bin)?;
    let ask = |command: &str| {
        let script = format!("'{}' {command} 2>&1", bin.display());
        let out = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &script])
            .current_dir("/")
            .output()?;
        Ok::<_, anyhow::Error>((out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned()))
    };
    // `status` shows whatever Stria mounts this host has: others may stand beside ours.
    let said = [ask(&format!("mdt stat {mount}")), ask("status")];
    fs::remove_dir_all(&home)?;
    let [(code, stat), (_, status)] = said.map(|s| s.unwrap_or_default());
    for (what, text) in [("mdt stat", &stat), ("status", &status)] {
        let words = ["Permission denied", "stria.sock", "do it as root"];
        let missing: Vec<_> = words.iter().filter(|w| !text.contains(**w)).collect();
        ensure!(missing.is_empty(), "{what}: no {missing:?} in: {text}");
    }
    ensure!(status.contains(&format!("may not be looked at, mounted on {mount}")), "{status}");
    ensure_eq(code, Some(2), &stat)
}

/// umount refuses a busy mount; SIGHUP leaves it and logs the processes that use it; a lazy umount lets them finish.
fn busy_umount(b: &mut Bench) -> Result<()> {
    let mount = b.cluster.mount.clone();
    fs::write(mount.join("f"), "content")?;
    let mut user = Command::new("sleep").arg("600").current_dir(&mount).spawn()?;
    let outcome = (|| {
        let refused = run("umount", &[&mount.display().to_string()], Path::new("/"));
        let text = refused.err().map(|e| format!("{e:#}")).unwrap_or_default();
        ensure!(text.contains("busy") && is_mounted(&mount), "umount of a mount in use: {text}");
        let pid = b.cluster.pid(Role::Mount).and_then(|p| rustix::process::Pid::from_raw(p as i32));
        rustix::process::kill_process(pid.context("the mount runs")?, rustix::process::Signal::HUP)?;
        let name = format!("pid {} (sleep): cwd", user.id());
        wait_until("the mount's log names its users", || {
            Ok(fs::read_to_string(b.cluster.dir.join("mount.log"))?.contains(&name))
        })?;
        ensure!(is_mounted(&mount), "a polite signal leaves a mount that is in use");
        let held = File::open(mount.join("f"))?;
        run("umount", &["-l", &mount.display().to_string()], Path::new("/"))?;
        ensure!(!is_mounted(&mount), "umount -l takes it out of the tree");
        let text = std::io::read_to_string(&held)?;
        ensure_eq(text.as_str(), "content", "an open descriptor works")
    })();
    user.kill()?;
    user.wait()?;
    outcome
}

/// As a supervisor does: the mount's process dies, is restarted with the same arguments, and clears the dead mount.
fn killed_mount(b: &mut Bench) -> Result<()> {
    let mount = b.cluster.mount.clone();
    fs::write(mount.join("f"), "kept")?;
    for _ in 0..if b.scale.is_short() { 1 } else { 3 } {
        b.cluster.kill(Role::Mount)?;
        // A call that comes before the guard has seen the death is aborted with the connection.
        let aborted = rustix::io::Errno::CONNABORTED.raw_os_error();
        let first = fs::read(mount.join("f"));
        if !first.as_ref().is_err_and(|e| e.raw_os_error() == Some(aborted)) {
            expect_errno(first, rustix::io::Errno::NOTCONN, "a mount without its process")?;
        }
        expect_errno(fs::read(mount.join("f")), rustix::io::Errno::NOTCONN, "a mount without its process")?;
        b.cluster.start_role(Role::Mount)?;
        b.cluster.wait_mounted()?;
        ensure_eq(fs::read_to_string(mount.join("f"))?, "kept".into(), "after the restart")?;
    }
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let mounts = table.lines().filter(|l| l.split(' ').nth(4) == Some(&mount.display().to_string())).count();
    ensure_eq(mounts, 1, "mounts at the mount point")
}

/// systemd accepts the units, the binary accepts their commands, and they are restarted after a failure.
fn units(b: &mut Bench) -> Result<()> {
    let dir = b.cluster.dir.join("units");
    fs::create_dir(&dir)?;
    let mut names = Vec::new();
    for entry in fs::read_dir("packaging/systemd").context("run from the root of the checkout")? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let text = fs::read_to_string(entry.path())?;
        check_unit(b, &text).with_context(|| name.clone())?;
        // A template is looked at as one of its instances.
        let name = name.replace("@.", "@0.");
        fs::write(dir.join(&name), text.replace("/usr/bin/stria", &b.cluster.bin().display().to_string()))?;
        names.push(name);
    }
    ensure!(names.len() >= 5, "only {names:?}");
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("       no systemd-analyze here: the units were read by us only");
        return Ok(());
    }
    let mut args = vec!["verify", "--man=no"];
    args.extend(names.iter().map(String::as_str));
    let said = run("systemd-analyze", &args, &dir)?;
    let ours: Vec<&str> = said.lines().filter(|l| l.contains("stria")).collect();
    ensure!(ours.is_empty(), "systemd-analyze verify: {ours:?}");
    Ok(())
}

fn check_unit(b: &Bench, text: &str) -> Result<()> {
    let value = |key: &str| text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix('='));
    ensure_eq(value("Restart"), Some("on-failure"), "Restart")?;
    ensure_eq(value("RestartPreventExitStatus"), Some("2"), "RestartPreventExitStatus")?;
    let start = value("ExecStart").context("ExecStart")?.replace("%i", "0");
    let mut words = start.split(' ').skip(1);
    let verb = words.next().context("a command")?;
    // The options are known, so the error is about the missing files.
    let (code, out) = b.cluster.stria(
        &[&[verb], &words.filter(|w| *w != "--foreground").collect::<Vec<_>>()[..], &["--help"]].concat(),
    )?;
    if code != 0 {
        bail!("{start}: {out}");
    }
    Ok(())
}
