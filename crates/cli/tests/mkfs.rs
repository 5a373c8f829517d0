//! The story of `stria mkfs`: targets made on files and on loop devices, refused where something else is, and served.

#![allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use disk::FileDisk;
use rustix::process::{Pid, Signal, kill_process};
use store::{Engine, ObjectStore};

const STRIA: &str = env!("CARGO_BIN_EXE_stria");

/// A directory, and loop devices, mounts and servers that stand on it: all gone when it is dropped.
struct Place {
    dir: PathBuf,
    loops: Vec<String>,
    mounts: Vec<PathBuf>,
    servers: Vec<Child>,
}

impl Place {
    fn new(name: &str) -> Place {
        let dir = std::env::temp_dir().join(format!("stria-mkfs-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Place { dir, loops: vec![], mounts: vec![], servers: vec![] }
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).to_str().unwrap().to_owned()
    }

    /// A sparse file of 300 MiB.
    fn file(&self, name: &str) -> String {
        fs::File::create(self.path(name)).unwrap().set_len(300 << 20).unwrap();
        self.path(name)
    }

    fn attach(&mut self, file: &str) -> Result<String, String> {
        let device = run(&format!("losetup -f --show {file}"))?.trim().to_owned();
        self.loops.push(device.clone());
        Ok(device)
    }

    /// A server with this configuration; returns once it says the words, with all that it said up to there.
    fn serve(&mut self, role: &str, config: &str, words: &str) -> String {
        let path = self.path(&format!("{role}.toml"));
        fs::write(&path, config).unwrap();
        let more: &[&str] = if role == "mgs" { &["--format"] } else { &[] };
        let mut command = Command::new(STRIA);
        command.args([role, "--config", &path]).args(more).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = String::new();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        self.servers.push(child);
        while !said.contains(words) {
            assert!(lines.read_line(&mut said).unwrap() > 0, "{role} ended: {said}");
        }
        // Later output is not checked, but the pipe must not break or fill.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        said
    }

    fn stop_servers(&mut self) {
        for child in self.servers.drain(..).rev() {
            stop(child);
        }
    }
}

fn stop(mut child: Child) {
    let _ = kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::TERM);
    let _ = child.wait();
}

impl Drop for Place {
    fn drop(&mut self) {
        self.stop_servers();
        self.mounts.iter().for_each(|m| drop(run(&format!("umount {}", m.display()))));
        self.loops.iter().for_each(|l| drop(run(&format!("losetup -d {l}"))));
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn run(line: &str) -> Result<String, String> {
    let mut words = line.split_whitespace();
    let out = Command::new(words.next().unwrap()).args(words).output().map_err(|e| format!("{line}: {e}"))?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    if out.status.success() { Ok(said) } else { Err(format!("{line}: {}", text(&out))) }
}

fn mkfs(line: &str) -> Output {
    Command::new(STRIA).arg("mkfs").args(line.split_whitespace()).output().unwrap()
}

fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

#[track_caller]
fn ends_with(out: &Output, code: i32, words: &[&str]) {
    let said = text(out);
    assert_eq!(out.status.code(), Some(code), "{said}");
    words.iter().for_each(|w| assert!(said.contains(w), "no '{w}' in: {said}"));
}

#[test]
fn a_file_is_made_once_and_given_up_only_by_force() {
    let place = Place::new("file");
    let path = place.path("ost0.img");
    let ost = format!("ost {path} --fsname demo --index 3");

    // 1. Not there, and not to be made; then looked at only; then made.
    ends_with(&mkfs(&ost), 2, &["it does not exist", "--size"]);
    ends_with(&mkfs(&format!("{ost} --size 300M --dry-run")), 0, &["would make OST 3", "log", "data"]);
    assert!(!Path::new(&path).exists());
    ends_with(&mkfs(&format!("{ost} --size 1M")), 2, &["too small"]);
    ends_with(&mkfs(&format!("{ost} --size 300M --log-size 400M")), 2, &["do not fit", "--log-size"]);
    assert!(!Path::new(&path).exists(), "nothing is made that cannot be");
    let out = mkfs(&format!("{ost} --size 300M --log-size 32M -j"));
    ends_with(&out, 0, &[]);
    let made: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((made["log"]["bytes"].as_u64(), made["index"].as_u64()), (Some(32 << 20), Some(3)));
    let uuid = made["uuid"].as_str().unwrap();

    // 2. The device now belongs to a file system.
    let words = ["it holds: Stria OST 3 of file system 'demo', uuid", uuid, "never registered", "--force"];
    ends_with(&mkfs(&ost), 2, &words);
    ends_with(&mkfs(&format!("{ost} --size 1G")), 2, &["it is there already, with 314572800 bytes"]);
    let before = fs::read(&path).unwrap();
    ends_with(&mkfs(&format!("{ost} --force --dry-run")), 0, &["would make", "to be lost", uuid]);
    assert!(fs::read(&path).unwrap() == before, "a dry run writes nothing");
    let again = mkfs(&format!("mdt {path} --fsname other --force"));
    ends_with(&again, 0, &["made MDT (index: the lowest free one) of file system 'other'", "lost", uuid]);
    assert!(!text(&again).contains("  data"), "an MDT has none");

    // 3. Names that no file system may have, and a device that is misspelt.
    ends_with(&mkfs(&format!("ost {path} --fsname a/b --force")), 2, &["--fsname"]);
    ends_with(&mkfs("ost /dev/stria-typo --fsname demo --size 1G"), 2, &["no such device"]);
    ends_with(&mkfs(&format!("ost {path} --fsname demo --index 65535")), 2, &["65534"]);
    let strange = place.file("strange");
    fs::write(&strange, "a letter to my aunt").unwrap();
    fs::File::options().write(true).open(&strange).unwrap().set_len(300 << 20).unwrap();
    ends_with(&mkfs(&format!("ost {strange} --fsname demo")), 2, &["data of no known kind"]);
}

/// A fixed sub-block is kept on the device, and is a power of two.
#[test]
fn space_can_be_given_out_in_fixed_sub_blocks() {
    let place = Place::new("sub-block");
    for (name, option, bytes) in [("a", "", 4096), ("b", "--sub-block 32K", 32 << 10)] {
        let path = place.path(name);
        let out = mkfs(&format!("ost {path} --fsname demo --size 300M -j {option}"));
        ends_with(&out, 0, &[]);
        let made: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(made["sub_block_bytes"], bytes);
        let store = Engine::open(Arc::new(FileDisk::open(&path).unwrap())).unwrap();
        assert_eq!(store.space().sub_block_bytes, bytes);
    }
    let odd = format!("ost {} --fsname demo --size 300M --sub-block 12K", place.path("c"));
    ends_with(&mkfs(&odd), 2, &["power of two"]);
}

#[test]
fn a_device_with_something_on_it_is_refused_and_one_in_use_always() {
    let mut place = Place::new("device");
    let file = place.file("disk");
    let device = match place.attach(&file) {
        Ok(device) => device,
        Err(why) => return eprintln!("skipped: no loop device: {why}"),
    };
    let ost = format!("ost {device} --fsname demo --index 0");

    // 1. Formats of real tools are recognized by name.
    if let Err(why) = run(&format!("mkfs.ext4 -q -L precious {device}")) {
        return eprintln!("skipped: no ext4: {why}");
    }
    ends_with(&mkfs(&ost), 2, &["it holds: ext4 file system, label 'precious'", "--force"]);
    let point = place.dir.join("mnt");
    fs::create_dir(&point).unwrap();
    run(&format!("mount {device} {}", point.display())).unwrap();
    place.mounts.push(point.clone());
    let mounted = format!("it is mounted on {}", point.display());
    ends_with(&mkfs(&format!("{ost} --force")), 2, &["is in use", &mounted, "--force does not change that"]);
    ends_with(&mkfs(&format!("ost {file} --fsname demo --force")), 2, &["is the file behind", &device]);
    run(&format!("umount {}", point.display())).unwrap();
    place.mounts.clear();
    if run(&format!("mkswap -L away {device}")).is_ok() {
        ends_with(&mkfs(&ost), 2, &["swap space, label 'away'"]);
    }

    // 2. By force; nothing old is found beside it afterwards.
    ends_with(&mkfs(&format!("{ost} --force")), 0, &["made OST 0", "lost"]);
    ends_with(&mkfs(&ost), 2, &["it holds: Stria OST 0"]);
    if let Ok(left) = run(&format!("wipefs --noheadings {device}")) {
        assert_eq!(left, "", "signatures were left behind");
    }
}

/// The numbers under which the server said that it serves them.
fn indices(said: &str) -> Vec<&str> {
    let lines = said.lines().filter(|l| l.contains("serving"));
    lines.filter_map(|l| l.split("index=").nth(1)?.split_whitespace().next()).collect()
}

#[test]
fn what_was_made_is_served_without_format_and_by_its_own_name() {
    let mut place = Place::new("served");
    let [mdt, one, two] = ["mdt", "ost1", "ost2"].map(|name| place.path(name));
    ends_with(&mkfs(&format!("mdt {mdt} --size 256M --fsname demo")), 0, &["stria mds --config mds.toml"]);
    ends_with(&mkfs(&format!("ost {one} --size 256M --fsname demo --index 5")), 0, &["oss.toml"]);
    ends_with(&mkfs(&format!("ost {two} --size 256M --fsname demo --index 2")), 0, &[]);
    let dir = place.path("mgs");
    let said = place.serve("mgs", &format!("listen = \"127.0.0.1:0\"\ndir = {dir:?}\n"), "is ready");
    let nid = said.split("nid=").nth(1).unwrap().split('@').next().unwrap().to_owned();
    let head = format!("mgs = [\"{nid}\"]\nfsname = \"demo\"\n");
    place.serve("mds", &format!("{head}device = {mdt:?}\n"), "ready");

    // 1. Each has the index that it was made for.
    let said = place.serve("oss", &format!("{head}devices = [{one:?}, {two:?}]\n"), " ready");
    assert_eq!(indices(&said), ["5", "2"], "{said}");
    // 2. A device in service is refused to all others, under any name.
    let link = place.path("another-name");
    fs::hard_link(&one, &link).unwrap();
    let words = ["is in use by another process", "--force does not change that"];
    ends_with(&mkfs(&format!("ost {link} --fsname demo --force")), 2, &words);
    // 3. Exchanged in the configuration: each is still what its superblock says.
    stop(place.servers.pop().unwrap());
    let said = place.serve("oss", &format!("{head}devices = [{two:?}, {one:?}]\n"), " ready");
    assert_eq!(indices(&said), ["2", "5"], "{said}");
    stop(place.servers.pop().unwrap());

    // 4. A device of another file system or of another kind is refused.
    let config = |fsname: &str, device: &str| {
        format!("mgs = [\"{nid}\"]\nfsname = \"{fsname}\"\ndevices = [{device:?}]\n")
    };
    let path = place.path("wrong.toml");
    for (config, word) in
        [(config("home", &one), "holds Stria OST 5 of file system 'demo'"), (config("demo", &mdt), "in use")]
    {
        fs::write(&path, config).unwrap();
        let out = Command::new(STRIA).args(["oss", "--config", &path]).output().unwrap();
        assert!(!out.status.success() && text(&out).contains(word), "{}", text(&out));
    }
    place.stop_servers();
    fs::write(&path, config("demo", &mdt)).unwrap();
    let out = Command::new(STRIA).args(["oss", "--config", &path]).output().unwrap();
    ends_with(
        &out,
        2,
        &["holds Stria MDT 0 of file system 'demo'", "and OST of file system 'demo' was expected"],
    );
}

#[test]
fn a_log_on_a_second_device_goes_with_its_target_only() {
    let mut place = Place::new("log");
    let [mdt, one, two] = ["mdt", "ost1", "ost2"].map(|name| place.path(name));
    // On a loop device where there are any, so that a real device is opened, flushed and claimed.
    let file = place.file("log1");
    let log1 = place.attach(&file).unwrap_or(file);
    let log2 = place.file("log2");
    ends_with(&mkfs(&format!("mdt {mdt} --size 256M --fsname demo")), 0, &[]);
    let ost = format!("ost {one} --size 256M --fsname demo --index 0 --log-device {log1}");
    ends_with(&mkfs(&format!("{ost} --log-size 400M")), 2, &["does not fit", "--log-size"]);
    ends_with(&mkfs(&ost), 0, &["log uuid", &log1, "log_devices"]);
    let words = ["it holds: log", "of Stria OST with uuid", "file system 'demo'"];
    ends_with(&mkfs(&format!("ost {two} --size 256M --fsname demo --log-device {log1}")), 2, &words);
    assert!(!Path::new(&two).exists());
    ends_with(&mkfs(&format!("mdt {two} --size 256M --fsname demo --log-device {log1}")), 2, &["unexpected"]);
    ends_with(&mkfs(&format!("ost {two} --size 256M --fsname demo --index 1 --log-device {log2}")), 0, &[]);

    // Served with the logs in any order, and again after a clean stop.
    let dir = place.path("mgs");
    let said = place.serve("mgs", &format!("listen = \"127.0.0.1:0\"\ndir = {dir:?}\n"), "is ready");
    let nid = said.split("nid=").nth(1).unwrap().split('@').next().unwrap().to_owned();
    let head = format!("mgs = [\"{nid}\"]\nfsname = \"demo\"\n");
    place.serve("mds", &format!("{head}device = {mdt:?}\n"), "ready");
    for logs in [format!("{log2:?}, {log1:?}"), format!("{log1:?}, {log2:?}")] {
        let config = format!("{head}devices = [{one:?}, {two:?}]\nlog_devices = [{logs}]\n");
        assert_eq!(indices(&place.serve("oss", &config, " ready")), ["0", "1"]);
        ends_with(&mkfs(&format!("ost {log1} --fsname demo --force")), 2, &["in use"]);
        stop(place.servers.pop().unwrap());
    }

    // Missing, another's, in the wrong place, on a device that has none.
    let path = place.path("wrong.toml");
    for (devices, logs, word) in [
        (&one, String::new(), "its log is on another device, log"),
        (&one, format!("{log2:?}"), "its log is on another device, log"),
        (&one, format!("{log1:?}, {log2:?}"), "which is none of `devices`"),
        (&one, format!("{mdt:?}"), "in use"),
        (&one, format!("{two:?}"), "it should hold the log of an OST and holds Stria OST 1"),
        (&log1, format!("{log2:?}"), "it holds only a log: log"),
    ] {
        fs::write(&path, format!("{head}devices = [{devices:?}]\nlog_devices = [{logs}]\n")).unwrap();
        let out = Command::new(STRIA).args(["oss", "--config", &path]).output().unwrap();
        assert!(!out.status.success() && text(&out).contains(word), "no '{word}' in: {}", text(&out));
    }
}
