//! NFS and SMB gateways as their users have them: `stria gateway`, NFS-Ganesha and Samba over a mount, and real clients of both.
//!
//! xtask-G1: all servers run in a network namespace that the test makes: rpcbind and NFS-Ganesha listen on all addresses. It has a mount
//! namespace with a `/run` of its own, too, since rpcbind's socket lies there.  xtask-G2: what runs in there ends with the test.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::Wiring;

use super::schema::Schemas;
use super::semantics::wait_until;
use super::sys::*;
use super::{Bench, Needs, Test};

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Tcp), ("gateways::smb", smb)),
    (Needs::Only(Wiring::Tcp), ("gateways::nfs", nfs)),
    (Needs::Only(Wiring::Local), ("gateways::a_held_nfs_file_goes_on_after_restarts", held)),
];

/// Namespaces with a loopback interface and an empty `/run`; they live as long as a process in them does.
struct Inside {
    holder: Child,
    dir: PathBuf,
    stria: String,
}

impl Inside {
    fn new(b: &Bench) -> Result<Inside> {
        // An address beside 127.0.0.1: without one getaddrinfo finds none at all.
        let script = "ip link set lo up && ip addr add 10.7.0.1/8 dev lo && mount -t tmpfs tmpfs /run && echo ready && exec cat";
        let mut holder = Command::new("unshare")
            .args(["--net", "--mount", "--propagation", "private", "sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("unshare (installed?)")?;
        let mut line = String::new();
        BufReader::new(holder.stdout.take().context("a pipe")?).read_line(&mut line)?;
        let inside =
            Inside { holder, dir: b.cluster.dir.clone(), stria: b.cluster.bin().display().to_string() };
        ensure_eq(line.trim(), "ready", "namespaces")?;
        Ok(inside)
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let (mut command, wd) = (Command::new("nsenter"), format!("--wdns={}", self.dir.display()));
        command.args(["-t", &self.holder.id().to_string(), "-n", "-m", &wd, "--", program]).args(args);
        command.stdin(Stdio::null());
        command
    }

    /// Exit code and both outputs.
    fn run(&self, program: &str, args: &[&str]) -> Result<(i32, String)> {
        let out = self.command(program, args).output().with_context(|| format!("{program} (installed?)"))?;
        let text =
            format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        Ok((out.status.code().unwrap_or(-1), text))
    }
    fn done(&self, program: &str, args: &[&str]) -> Result<String> {
        let (code, out) = self.run(program, args)?;
        ensure_eq(code, 0, &format!("{program} {}: {out}", args.join(" ")))?;
        Ok(out)
    }
    /// A client that is to fail: its words must have this in them.
    fn refused(&self, program: &str, args: &[&str], said: &str) -> Result<()> {
        let (code, out) = self.run(program, args)?;
        ensure!(
            code != 0 && out.contains(said),
            "{program} {}: exit {code}, no '{said}' in: {out}",
            args.join(" ")
        );
        Ok(())
    }

    fn gateway(&self, kind: &str, verb: &str, args: &[&str]) -> Result<(i32, String)> {
        let base = self.base();
        let words = [&["gateway", kind, verb, "--base", base.as_str()], args].concat();
        self.run(&self.stria, &words)
    }
    fn set(&self, kind: &str, verb: &str, args: &[&str]) -> Result<String> {
        let (code, out) = self.gateway(kind, verb, args)?;
        ensure_eq(code, 0, &format!("gateway {kind} {verb} {}: {out}", args.join(" ")))?;
        Ok(out)
    }
    /// Held against its schema.
    fn status(&self, kind: &str) -> Result<Value> {
        let (_, out) = self.gateway(kind, "status", &["-j"])?;
        let value = serde_json::from_str(&out).with_context(|| out.clone())?;
        let schemas = Schemas::read(Path::new("docs/json")).context("run from the root of the checkout")?;
        schemas.check(&format!("stria-gateway-{kind}-status.json"), &value).with_context(|| out.clone())?;
        Ok(value)
    }
    fn base(&self) -> String {
        self.dir.join("gw").display().to_string()
    }
    /// A path inside as this process reaches it.
    fn seen(&self, path: &Path) -> PathBuf {
        Path::new("/proc")
            .join(self.holder.id().to_string())
            .join("root")
            .join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Every process whose mount namespace is this one, but the holder.
    fn processes(&self) -> Vec<Pid> {
        let space = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
        let Some(ours) = space(&self.holder.id().to_string()) else { return vec![] };
        let names = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.file_name().to_string_lossy().into_owned());
        let inside =
            names.filter(|name| space(name).as_ref() == Some(&ours)).filter_map(|name| name.parse().ok());
        inside.filter(|pid: &i32| *pid != self.holder.id() as i32).filter_map(Pid::from_raw).collect()
    }
}

impl Drop for Inside {
    /// xtask-G2.
    fn drop(&mut self) {
        for pid in self.processes() {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn kill_9(status: &Value) -> Result<()> {
    let pid = status["pid"].as_u64().with_context(|| format!("no pid in {status}"))?;
    Ok(kill_process(Pid::from_raw(pid as i32).context("pid")?, Signal::KILL)?)
}

fn drop_caches() -> Result<()> {
    fs::write("/proc/sys/vm/drop_caches", "2").context("drop_caches")
}

fn random_file(b: &Bench, path: &Path, bytes: usize) -> Result<Vec<u8>> {
    let mut data = vec![0; bytes];
    b.rng().fill(&mut data);
    fs::write(path, &data)?;
    Ok(data)
}

/// The state of an export or share in a status.
fn entry<'a>(status: &'a Value, kind: &str, name: &str) -> Result<&'a Value> {
    let found = status[kind].as_array().and_then(|all| all.iter().find(|e| e["name"] == name));
    found.with_context(|| format!("no {name} in {status}"))
}

/// [S-gateways-smb] Files, directories and a named stream by smbclient, both ways, and over a restart.
fn smb(b: &mut Bench) -> Result<()> {
    let inside = Inside::new(b)?;
    let (top, mount) = (b.dir("team")?, b.cluster.mount.display().to_string());
    b.dir("private")?;
    let shares = [
        "--share",
        "team=/team",
        "--share",
        "look=/team:ro,guest",
        "--share",
        "private=/private:hosts=10.0.0.0/8,exclusive",
    ];
    let enable = [&["--mount", mount.as_str(), "--now"], &shares[..]].concat();
    inside.set("smb", "enable", &enable)?;
    let config = fs::read_to_string(inside.dir.join("gw/etc/stria/gateway/smb.conf"))?;
    let (before, status) = (config.clone(), inside.status("smb")?);
    ensure_eq(status["state"].as_str(), Some("serving"), &status.to_string())?;
    // Twice is the same as once, and the same process serves on.
    inside.set("smb", "enable", &enable)?;
    ensure_eq(
        fs::read_to_string(inside.dir.join("gw/etc/stria/gateway/smb.conf"))?,
        before,
        "smb.conf of the second enable",
    )?;
    ensure_eq(
        inside.status("smb")?["pid"].as_u64(),
        status["pid"].as_u64(),
        "the server after the second enable",
    )?;

    let conf = inside.dir.join("gw/etc/stria/gateway/smb.conf").display().to_string();
    let mut passwd = inside
        .command("smbpasswd", &["-c", &conf, "-s", "-a", "root"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    passwd.stdin.take().context("a pipe")?.write_all(b"secret\nsecret\n")?;
    ensure!(passwd.wait()?.success(), "smbpasswd");
    let client = |share: &str, commands: &str| {
        let place = format!("//127.0.0.1/{share}");
        inside.run("smbclient", &[&place, "-U", "root%secret", "-c", commands])
    };
    let done = |commands: &str| -> Result<String> {
        let (code, out) = client("team", commands)?;
        ensure!(code == 0 && !out.contains("NT_STATUS"), "{commands}: exit {code}: {out}");
        Ok(out)
    };
    // 1. Content there and back, names, a tree, a named stream.
    let local = inside.dir.join("local");
    let data = random_file(b, &local, 9_000_001)?;
    fs::write(inside.dir.join("note"), "of a stream")?;
    done("put local first; mkdir d; mkdir d/e; put local d/e/x; rename first second; put note second:note")?;
    ensure_same(&fs::read(top.join("second"))?, &data, "a file that an SMB client has put")?;
    ensure!(!top.join("first").exists(), "the old name is still there");
    drop_caches()?;
    done("get second back; get second:note back-note; deltree d")?;
    ensure_same(&fs::read(inside.dir.join("back"))?, &data, "the file that came back")?;
    ensure_eq(fs::read_to_string(inside.dir.join("back-note"))?, "of a stream".into(), "the named stream")?;
    ensure!(!top.join("d").exists(), "deltree has left something");
    ensure_eq(
        get_xattr(&top.join("second"), "user.DosStream.note:$DATA")?,
        b"of a stream\0".to_vec(),
        "where the stream is kept",
    )?;
    // 2. What a program on the mount changes is there for SMB clients at once.
    fs::write(top.join("native"), "by the mount")?;
    fs::rename(top.join("second"), top.join("third"))?;
    done("get native back-native; get third back")?;
    ensure_eq(
        fs::read_to_string(inside.dir.join("back-native"))?,
        "by the mount".into(),
        "a file made by the mount",
    )?;
    // 3. Read-only, guests, hosts.
    let refused = |share: &str, commands: &str, said: &str| -> Result<()> {
        let (_, out) = client(share, commands)?;
        ensure!(out.contains(said), "{share}: {commands}: no {said} in {out}");
        Ok(())
    };
    refused("look", "put local new", "NT_STATUS_ACCESS_DENIED")?;
    refused("private", "ls", "NT_STATUS_ACCESS_DENIED")?;
    let guest = inside.done("smbclient", &["//127.0.0.1/look", "-N", "-c", "ls"])?;
    ensure!(guest.contains("native"), "a guest sees: {guest}");
    // 4. A server that was killed is told of, comes back, and has everything.
    kill_9(&inside.status("smb")?)?;
    wait_until("the status tells that the server is gone", || {
        Ok(inside.status("smb")?["state"] == "stopped")
    })?;
    let (code, out) = inside.gateway("smb", "status", &[])?;
    ensure!(
        code == 1 && out.contains("is gone") && out.contains("`stria gateway smb enable --now` starts it"),
        "{out}"
    );
    inside.set("smb", "enable", &["--now"])?;
    drop_caches()?;
    done("get third back; get third:note back-note")?;
    ensure_same(&fs::read(inside.dir.join("back"))?, &data, "the file after a restart of the server")?;
    // 5. A share is taken away while the server runs; then all.
    inside.set("smb", "disable", &["--share", "look"])?;
    refused("look", "ls", "NT_STATUS_BAD_NETWORK_NAME")?;
    done("ls")?;
    inside.set("smb", "disable", &["--purge"])?;
    ensure_eq(inside.gateway("smb", "status", &[])?.0, 2, "status of a gateway that is not enabled")?;
    let (code, _) = client("team", "ls")?;
    ensure!(code != 0, "a server answers after disable");
    nothing_is_left(&inside)
}

/// But for logs and the lock, `disable --purge` leaves no file, and no process.
fn nothing_is_left(inside: &Inside) -> Result<()> {
    let base = PathBuf::from(inside.base());
    let line =
        |pid: Pid| fs::read_to_string(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    let running: Vec<String> =
        inside.processes().into_iter().map(line).filter(|l| l.contains(&inside.base())).collect();
    ensure_eq(running, vec![], "processes after disable")?;
    let mut left: Vec<String> = tree_digest(&base)?.into_iter().map(|(name, _)| name).collect();
    left.retain(|name| {
        !base.join(name).is_dir() && !name.starts_with("var/log/") && !name.ends_with("/.lock")
    });
    ensure_eq(left, vec![], "files after disable")
}

/// A running rpcbind, which NFS 3 needs.
fn start_rpcbind(inside: &Inside) -> Result<()> {
    inside.done("rpcbind", &[])?;
    wait_until("rpcbind answers", || Ok(inside.run("rpcinfo", &["-p", "127.0.0.1"])?.0 == 0))
}

/// [S-gateways-nfs] Files by libnfs, version 3 both ways and version 4 for reading, and over a restart.
fn nfs(b: &mut Bench) -> Result<()> {
    let inside = Inside::new(b)?;
    let (top, mount) = (b.dir("projects")?, b.cluster.mount.display().to_string());
    for name in ["look", "private", "hidden", "squashed"] {
        b.dir(name)?;
    }
    fs::set_permissions(b.cluster.mount.join("squashed"), fs::Permissions::from_mode(0o777))?;
    let exports = [
        "/projects:squash=none",
        "/look:ro",
        "/private:hosts=10.0.0.0/8",
        "/hidden:hosts=192.168.0.0/16",
        "/squashed",
    ];
    // Without grace: this client does not try again what is put off by it.
    let mut enable = vec!["--mount", mount.as_str(), "--grace", "0", "--now"];
    exports.iter().for_each(|e| enable.extend(["--export", e]));
    // 1. What cannot be is refused, and nothing is written.
    let (code, out) = inside.gateway("nfs", "enable", &enable)?;
    ensure!(code == 1 && out.contains("rpcbind: it does not run"), "without rpcbind: {out}");
    start_rpcbind(&inside)?;
    fs::write(b.cluster.mount.join("file"), "")?;
    std::os::unix::fs::symlink("/usr", b.cluster.mount.join("out"))?;
    for (export, said) in [
        ("/nowhere", "No such file or directory"),
        ("/file", "it is no directory"),
        ("/out", "is a symlink"),
        ("/projects:hosts=10.0.0.5/8", "the network of this address is 10.0.0.0/8"),
        ("/projects:squash=some", "write squash=root"),
        ("/projects:hosts=nowhere.invalid", "this host cannot resolve it"),
    ] {
        let (code, out) = inside.gateway("nfs", "enable", &["--export", export, "--mount", &mount])?;
        ensure!(code == 2 && out.contains(said), "{export}: exit {code}: {out}");
    }
    inside.set("nfs", "enable", &enable)?;
    inside.set("nfs", "enable", &enable)?;
    let listed: Value = serde_json::from_str(&inside.set("nfs", "list", &["-j"])?)?;
    ensure_eq(listed["exports"].as_array().map(Vec::len), Some(exports.len()), &listed.to_string())?;
    let status = inside.status("nfs")?;
    ensure_eq(status["state"].as_str(), Some("serving"), &status.to_string())?;
    // Each is asked from an address of this host that it allows.
    for (name, served) in [("/projects", Some(true)), ("/private", Some(true)), ("/hidden", None)] {
        ensure_eq(entry(&status, "exports", name)?["served"].as_bool(), served, name)?;
    }
    // 2. NFS 3 both ways.
    let local = inside.dir.join("local");
    let data = random_file(b, &local, 9_000_001)?;
    let url = |path: &str, words: &str| format!("nfs://127.0.0.1/{path}?{words}");
    let v3 = |path: &str| url(path, "uid=0&gid=0");
    let cat = |address: &str| -> Result<Vec<u8>> {
        let out = inside.command("nfs-cat", &[address]).output().context("nfs-cat (installed?)")?;
        ensure!(out.status.success(), "nfs-cat {address}: {}", String::from_utf8_lossy(&out.stderr));
        Ok(out.stdout)
    };
    let local_name = local.display().to_string();
    inside.done("nfs-cp", &[&local_name, &v3("projects/copy")])?;
    ensure_same(&fs::read(top.join("copy"))?, &data, "a file that an NFS client has put")?;
    fs::write(top.join("native"), &data)?;
    drop_caches()?;
    ensure_same(&cat(&v3("projects/native"))?, &data, "a file made by the mount")?;
    // 3. What a program on the mount changes is there for NFS clients at once.
    fs::rename(top.join("native"), top.join("moved"))?;
    fs::write(top.join("copy"), "shorter")?;
    ensure_eq(cat(&v3("projects/copy"))?, b"shorter".to_vec(), "a file that the mount has changed")?;
    inside.refused("nfs-cat", &[&v3("projects/native")], "NOENT")?;
    let names = inside.done("nfs-ls", &[&v3("projects")])?;
    ensure!(names.contains(" moved") && !names.contains(" native"), "names: {names}");
    // 4. Hosts, read-only, squash.
    inside.refused("nfs-ls", &[&v3("private")], "ACCES")?;
    inside.refused("nfs-cp", &[&local_name, &v3("look/new")], "ROFS")?;
    inside.done("nfs-cp", &[&local_name, &v3("squashed/new")])?;
    ensure_eq(
        fs::metadata(b.cluster.mount.join("squashed/new"))?.uid(),
        65_534,
        "owner of what a squashed root made",
    )?;
    // 5. A server that was killed is told of, comes back, and has everything.
    kill_9(&status)?;
    wait_until("the status tells that the server is gone", || {
        Ok(inside.status("nfs")?["state"] == "stopped")
    })?;
    let (code, out) = inside.gateway("nfs", "status", &[])?;
    ensure!(
        code == 1 && out.contains("is gone") && out.contains("`stria gateway nfs enable --now` starts it"),
        "{out}"
    );
    inside.set("nfs", "enable", &["--now"])?;
    drop_caches()?;
    ensure_same(&cat(&v3("projects/moved"))?, &data, "the file after a restart of the server")?;
    // 6. Exports change while the server runs.
    inside.set("nfs", "disable", &["--export", "/look"])?;
    inside.refused("nfs-ls", &[&v3("look")], "mount")?;
    inside.set("nfs", "enable", &["--export", "/projects:ro"])?;
    wait_until("a client can no longer write to an export that became read-only", || {
        Ok(inside.refused("nfs-cp", &[&local_name, &v3("projects/new")], "ROFS").is_ok())
    })?;
    fs::remove_dir(b.cluster.mount.join("private"))?;
    let status = inside.status("nfs")?;
    ensure_eq(
        entry(&status, "exports", "/private")?["served"].as_bool(),
        Some(false),
        "an export whose directory is gone",
    )?;
    ensure_eq(entry(&status, "exports", "/projects")?["served"].as_bool(), Some(true), &status.to_string())?;
    // 7. NFS 4 reads.
    let v4 = |path: &str| url(path, "version=4");
    ensure_same(&cat(&v4("projects/moved"))?, &data, "a file by NFS 4")?;
    ensure!(inside.done("nfs-ls", &[&v4("projects")])?.contains(" moved"), "names by NFS 4");
    inside.set("nfs", "disable", &["--purge"])?;
    ensure!(inside.run("nfs-ls", &[&v3("projects")])?.0 != 0, "a server answers after disable");
    nothing_is_left(&inside)
}

/// A client that holds a file by NFS 3.
struct Held {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Held {
    fn open(inside: &Inside, export: &str, name: &str) -> Result<Held> {
        let script = Path::new("tests/programs/nfs_held.py")
            .canonicalize()
            .context("run from the root of the checkout")?;
        let mut command =
            inside.command("python3", &[&script.display().to_string(), "127.0.0.1", export, name]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("python3 (installed?)")?;
        let (to, from) = (child.stdin.take().context("a pipe")?, child.stdout.take().context("a pipe")?);
        let mut held = Held { child, to, from: BufReader::new(from) };
        ensure_eq(held.line()?.as_str(), "held", "nfs_held.py")?;
        Ok(held)
    }
    /// Appends a line; gives the whole file as the client reads it.
    fn append(&mut self, line: &str) -> Result<String> {
        writeln!(self.to, "{line}")?;
        self.line()
    }
    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.from.read_line(&mut line)? == 0 {
            bail!("the client that holds the file has ended: {}", self.child.wait()?);
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// [S-gateways-handles] The gateway owns its mount. A file that an NFS 3 client holds goes on after a restart of the server, and after
/// the mount was killed and is made anew, whatever number the kernel gives that.
fn held(b: &mut Bench) -> Result<()> {
    let inside = Inside::new(b)?;
    start_rpcbind(&inside)?;
    let (dir, point) = (inside.dir.join("own"), inside.dir.join("own-mnt"));
    let (dir_name, point_name) = (dir.display().to_string(), point.display().to_string());
    inside.done(
        &inside.stria,
        &["up", "--dir", &dir_name, "--ost-size", "1G", "--mdt-size", "1G", "--fsname", "own"],
    )?;
    let source = format!("unix:{dir_name}/run/stria.sock@local0:/own");
    let enable = [
        "--mount",
        &point_name,
        "--source",
        &source,
        "--export",
        "/:squash=none",
        "--bind",
        "127.0.0.1",
        "--now",
    ];
    inside.set("nfs", "enable", &enable)?;
    fs::write(inside.seen(&point).join("file"), "")?;
    // 1. Before, and after a restart of the server that leaves the mount as it is.
    let mut client = Held::open(&inside, "/", "file")?;
    ensure_eq(client.append("one")?.as_str(), "one+", "before")?;
    let before = fs::metadata(inside.seen(&point))?.dev();
    kill_9(&inside.status("nfs")?)?;
    inside.set("nfs", "enable", &["--now"])?;
    ensure_eq(fs::metadata(inside.seen(&point))?.dev(), before, "the mount outlives the server: its device")?;
    drop_caches()?;
    ensure_eq(client.append("two")?.as_str(), "one+two+", "after a restart of the server")?;
    // 2. The mount is killed. The server still holds files of it, so that the new one gets another number.
    kill_mount(&inside, &point)?;
    let (code, out) = inside.gateway("nfs", "status", &[])?;
    ensure!(code == 1 && out.contains("the process of this mount has died"), "{out}");
    ensure!(out.contains("`stria gateway nfs enable --now` mounts it"), "{out}");
    inside.set("nfs", "enable", &["--now"])?;
    ensure_eq(inside.status("nfs")?["state"].as_str(), Some("serving"), "after the mount came back")?;
    let after = fs::metadata(inside.seen(&point))?.dev();
    ensure!(after != before, "the new mount has the number of the old one; the test shows nothing");
    ensure_eq(client.append("three")?.as_str(), "one+two+three+", "after a remount")?;
    ensure_eq(
        fs::read_to_string(inside.seen(&point).join("file"))?,
        "one\ntwo\nthree\n".into(),
        "the file on the mount",
    )?;
    // 3. The mount goes with the gateway.
    drop(client);
    inside.set("nfs", "disable", &[])?;
    ensure!(inside.run("mountpoint", &["-q", &point_name])?.0 != 0, "it is still mounted");
    inside.done(&inside.stria, &["down", "--dir", &dir_name])?;
    Ok(())
}

/// `kill -9` of the process that serves the mount, found by its command line.
fn kill_mount(inside: &Inside, point: &Path) -> Result<()> {
    let is_it = |pid: &Pid| {
        let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|b| *b == 0).collect();
        words.get(1) == Some(&&b"mount"[..]) && words.contains(&point.as_os_str().as_encoded_bytes())
    };
    let pid = inside.processes().into_iter().find(is_it).context("no process serves the mount")?;
    kill_process(pid, Signal::KILL)?;
    wait_until("the mount's process is gone", || {
        Ok(!Path::new(&format!("/proc/{}/fd/0", pid.as_raw_nonzero())).exists())
    })
}
