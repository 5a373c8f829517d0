//! The story of a cluster without a mount: made, looked at, killed, found again, stopped, purged. Real processes, real files.

#![allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const STRIA: &str = env!("CARGO_BIN_EXE_stria");

/// A directory with a cluster in it. Dropped, its process is killed and its files are deleted, whatever the test left.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("stria-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the temporary directory can be written");
        Place(path.join("d"))
    }

    fn stria(&self, words: &str) -> Output {
        let mut words = words.split_whitespace();
        let verb = words.next().expect("a command line begins with a verb");
        let mut command = Command::new(STRIA);
        command.arg(verb);
        if verb == "damage" {
            command.args(words.by_ref().take(1));
        }
        command.arg("--dir").arg(&self.0).args(words).output().expect("the binary runs")
    }

    fn status(&self) -> serde_json::Value {
        let out = self.stria("status -j");
        serde_json::from_slice(&out.stdout)
            .unwrap_or_else(|e| panic!("status -j is no JSON ({e}): {}", text(&out)))
    }

    fn pid(&self) -> Option<u32> {
        self.status()["pid"].as_u64().map(|pid| pid as u32)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let holder = std::fs::read(self.0.join("run/holder.json")).ok();
        let json: Option<serde_json::Value> = holder.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let pid = json.and_then(|j| j["pid"].as_u64());
        if let Some(pid) = pid.and_then(|pid| Pid::from_raw(pid as i32)) {
            let _ = kill_process(pid, Signal::KILL);
        }
        if let Some(parent) = self.0.parent() {
            let _ = std::fs::remove_dir_all(parent);
        }
    }
}

fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

#[track_caller]
fn ends_with(out: &Output, code: i32, word: &str) {
    assert_eq!(out.status.code(), Some(code), "{}", text(out));
    assert!(text(out).contains(word), "no '{word}' in: {}", text(out));
}

/// Until the process has let go of everything: its last thread has ended. (Its parent need not have heard of it yet.)
fn wait_until_gone(pid: u32) {
    let begin = Instant::now();
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let lives = || {
        let stat = std::fs::read_to_string(proc.join("stat")).ok()?;
        let is_zombie = stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'));
        let threads = std::fs::read_dir(proc.join("task")).ok()?.count();
        Some(!is_zombie || threads > 1)
    };
    while lives().unwrap_or(false) {
        assert!(begin.elapsed() < Duration::from_secs(10), "pid {pid} does not die");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_cluster_is_made_killed_found_again_stopped_and_purged() {
    let place = Place::new("story");
    ends_with(&place.stria("status"), 2, "no Stria cluster");

    // 1. Made, in the background, and told.
    let up = "up --osts 2 --ost-size 256M --mdt-size 256M --fsname story";
    ends_with(&place.stria(up), 0, "made file system 'story'");
    let status = place.status();
    assert_eq!(status["state"], "up");
    let names: Vec<&str> =
        status["targets"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["story-MDT0000", "story-OST0000", "story-OST0001"]);
    assert!(status["targets"].as_array().unwrap().iter().all(|t| t["state"] == "up"), "{status:#}");
    let pid = place.pid().expect("it runs");
    let sizes = |status: &serde_json::Value| -> Vec<(u64, u64)> {
        let of = |t: &serde_json::Value| Some((t["bytes_total"].as_u64()?, t["medium_bytes"].as_u64()?));
        status["targets"].as_array().unwrap().iter().map(|t| of(t).unwrap()).collect()
    };
    let running = sizes(&status);
    assert!(running.iter().all(|(room, medium)| room < medium && *medium == 256 << 20), "{running:?}");

    // 2. Only once, and only as it is.
    ends_with(&place.stria("up"), 0, &format!("up already, served by pid {pid}"));
    ends_with(&place.stria("up --fsname story --osts 2"), 0, "stop with: stria down --dir");
    assert_eq!(place.pid(), Some(pid));
    ends_with(&place.stria("up --mount /nowhere"), 1, "not mounted; stop it with");
    ends_with(&place.stria("up --osts 3"), 2, "leave the option out");
    ends_with(&place.stria("fsck"), 0, "clean");
    ends_with(&place.stria("damage list"), 0, "no damage known");

    // 3. Killed: looked at without a change, then found again.
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
    wait_until_gone(pid);
    let status = place.status();
    assert_eq!(
        (status["state"].as_str(), status["targets"][1]["clean"].as_bool()),
        (Some("stopped"), Some(false))
    );
    assert_eq!(sizes(&status), running, "a target's size means the same while it is stopped");
    let incarnation = status["targets"][1]["incarnation"].as_u64().unwrap();
    ends_with(&place.stria("fsck"), 0, "clean");
    assert_eq!(
        place.status()["targets"][1]["incarnation"].as_u64(),
        Some(incarnation),
        "fsck wrote to a stopped OST"
    );
    ends_with(&place.stria("up"), 0, "started file system 'story'");
    assert_eq!(place.status()["targets"][1]["incarnation"].as_u64(), Some(incarnation + 1));

    // 4. Stopped; a second stop finds nothing to do.
    ends_with(&place.stria("down"), 0, "stopped");
    assert_eq!(place.status()["targets"][0]["clean"].as_bool(), Some(true));
    ends_with(&place.stria("down"), 0, "not running");
    ends_with(&place.stria("damage list"), 2, "does not answer");

    // 5. Purged: what is not ours stays.
    let foreign = place.0.join("thesis.tex");
    std::fs::write(&foreign, "mine").unwrap();
    ends_with(&place.stria("down --purge"), 0, "stays");
    let left: Vec<_> = std::fs::read_dir(&place.0).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["thesis.tex"]);
    ends_with(&place.stria("up"), 2, "thesis.tex");
    std::fs::remove_file(foreign).unwrap();
    ends_with(&place.stria("down --purge"), 0, "purged");
    assert!(!place.0.exists());
}

#[test]
fn two_clusters_live_side_by_side_and_a_start_that_was_cut_short_begins_anew() {
    let (first, second) = (Place::new("side-a"), Place::new("side-b"));
    let up = "up --osts 1 --ost-size 256M --mdt-size 256M";
    ends_with(&first.stria(up), 0, "made");

    // The second's first start is cut short before it was ready: what its description promises is made anew, differently.
    std::fs::create_dir_all(&second.0).unwrap();
    let unready = "format = 1\nready = false\nfsname = \"x\"\nmdts = 1\nosts = 3\nmdt_size = \"1G\"\nost_size = \"1G\"\n";
    std::fs::write(second.0.join("cluster.toml"), unready).unwrap();
    std::fs::write(second.0.join("ost0002.img"), [7; 100]).unwrap();
    assert!(second.status()["state"].as_str().unwrap().starts_with("incomplete"));
    ends_with(&second.stria("fsck"), 2, "never completed");
    ends_with(&second.stria(up), 0, "made file system 'stria'");
    assert!(!second.0.join("ost0002.img").exists());

    assert_ne!(first.pid(), second.pid());
    ends_with(&first.stria("down"), 0, "stopped");
    assert_eq!(second.status()["state"], "up");
    ends_with(&second.stria("down --force"), 0, "stopped");
    assert_eq!(
        second.status()["targets"][1]["clean"].as_bool(),
        Some(true),
        "a forced stop of healthy servers is clean"
    );
}

#[test]
fn roles_print_a_configuration_that_they_take_and_refuse_a_misspelt_one() {
    for role in ["mgs", "mds", "oss", "mount"] {
        let out = Command::new(STRIA).args([role, "--print-config"]).output().unwrap();
        assert!(out.status.success(), "{}", text(&out));
        let place = Place::new(&format!("config-{role}"));
        let file = place.0.with_extension("toml");
        std::fs::write(&file, &out.stdout).unwrap();
        let again =
            Command::new(STRIA).args([role, "--print-config", "--config"]).arg(&file).output().unwrap();
        assert_eq!(again.stdout, out.stdout);
        std::fs::write(&file, [&out.stdout[..], b"mispelt = 1\n"].concat()).unwrap();
        let refused = Command::new(STRIA).args([role, "--config"]).arg(&file).output().unwrap();
        ends_with(&refused, 2, "mispelt");
    }
}

/// A disk that is not mounted after a reboot must not become a new, empty target on the disk below its mount point.
#[test]
fn what_is_missing_or_blank_is_never_made_unasked() {
    let place = Place::new("missing");
    ends_with(&place.stria("up --osts 1 --ost-size 256M --mdt-size 256M"), 0, "made");
    ends_with(&place.stria("down"), 0, "stopped");
    let (image, map) = (place.0.join("ost0000.img"), place.0.join("mgs"));
    let aside = place.0.with_extension("aside");
    std::fs::rename(&image, &aside).unwrap();
    ends_with(&place.stria("up"), 1, "missing");
    std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    ends_with(&place.stria("up"), 2, "it is blank");
    std::fs::rename(&aside, &image).unwrap();
    std::fs::rename(&map, &aside).unwrap();
    ends_with(&place.stria("up"), 1, "missing");
    assert!(!map.exists());
    std::fs::rename(&aside, &map).unwrap();
    ends_with(&place.stria("up"), 0, "started");

    let dir = place.0.parent().unwrap();
    let target = |role: &str, key: &str| {
        let path = dir.join(role).display().to_string();
        let value = if role == "oss" { format!("[\"{path}\"]") } else { format!("\"{path}\"") };
        let mgs = if role == "mgs" { "" } else { "mgs = [\"127.0.0.1:9\"]\nsize = \"256M\"\n" };
        let file = dir.join(format!("{role}.toml"));
        std::fs::write(&file, format!("{mgs}listen = \"127.0.0.1:0\"\n{key} = {value}\n")).unwrap();
        let out = Command::new(STRIA).args([role, "--config"]).arg(&file).output().unwrap();
        ends_with(&out, 2, "start once with --format");
        assert!(!Path::new(&path).exists(), "{role} made something");
    };
    for (role, key) in [("mgs", "dir"), ("mds", "device"), ("oss", "devices")] {
        target(role, key);
    }
}

/// The socket gives the key to whoever connects, and images and map hold content and key.
#[test]
fn socket_images_and_map_are_for_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new("modes");
    ends_with(&place.stria("up --osts 1 --ost-size 256M --mdt-size 256M"), 0, "made");
    let mut seen = 0;
    let mut dirs = vec![place.0.clone()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).unwrap().map(Result::unwrap) {
            let (path, mode) = (entry.path(), entry.metadata().unwrap().permissions().mode() & 0o777);
            let name = entry.file_name().into_string().unwrap();
            let is_secret = name.ends_with(".img") || name.ends_with(".sock") || dir.ends_with("mgs");
            match entry.file_type().unwrap().is_dir() {
                true => dirs.push(path),
                false if is_secret => {
                    assert_eq!(mode & 0o077, 0, "{} has mode {mode:03o}", path.display());
                    seen += 1;
                }
                false => {}
            }
        }
    }
    assert!(seen >= 4, "two images, the socket and the map: {seen}");
    ends_with(&place.stria("down"), 0, "stopped");
}

/// A start continues from the files that a failed one left, also where a mount point was created within the directory.
#[test]
fn a_start_that_failed_is_no_obstacle_to_the_next() {
    let place = Place::new("litter");
    let up = "up --osts 1 --ost-size 256M --mdt-size 256M";
    let too_long = place.0.join("mnt").join("n".repeat(256));
    ends_with(&place.stria(&format!("{up} --mount {}", too_long.display())), 1, "mount point");
    assert!(place.0.join("mnt").exists(), "the first part of the mount point was made");
    ends_with(&place.stria(up), 0, "made file system 'stria'");
    ends_with(&place.stria("down --purge"), 0, "stays");
    // Nothing says any more whose the empty mount point is, but that it is asked for.
    ends_with(&place.stria(&format!("{up} --mount {}", too_long.display())), 1, "mount point");
    ends_with(&place.stria(up), 0, "made file system 'stria'");
}

/// Commands that are printed as next steps run as they stand.
#[test]
fn printed_commands_are_quoted_for_a_path_with_spaces() {
    let mut place = Place::new("spaces");
    place.0 = place.0.with_file_name("my disk's");
    let out = place.stria("up --osts 1 --ost-size 256M --mdt-size 256M");
    ends_with(&out, 0, "stop with: ");
    let said = text(&out);
    let (look, stop) = said.split_once("look with: ").unwrap().1.split_once("   stop with: ").unwrap();
    for (command, word) in [(look, "stria: up"), (stop, "stopped")] {
        let bin = Path::new(STRIA).parent().unwrap().display();
        let out = Command::new("sh").args(["-c", &format!("PATH={bin}:$PATH; {command}")]).output().unwrap();
        ends_with(&out, 0, word);
    }
}

/// Server processes of one machine, told apart by their sockets: no port is needed. Dropped, they are killed.
struct Roles {
    place: Place,
    running: Vec<std::process::Child>,
}

impl Roles {
    fn new(name: &str) -> Roles {
        let place = Place::new(name);
        std::fs::create_dir_all(&place.0).unwrap();
        Roles { place, running: vec![] }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.0.join(name)
    }

    /// The role's printed example, with this test's directory and sockets in place of `/var/lib/stria` and ports.
    fn config(&self, role: &str, change: impl Fn(String) -> String) -> PathBuf {
        let out = Command::new(STRIA).args([role, "--print-config"]).output().unwrap();
        let (dir, mut text) = (self.place.0.display().to_string(), text(&out));
        text = text
            .replace("/var/lib/stria", &dir)
            .replace("127.0.0.1:7010@tcp0", &format!("unix:{dir}/mgs.sock@local0"));
        for listen in ["127.0.0.1:7010", "127.0.0.1:0"] {
            text = text
                .replace(&format!("listen = \"{listen}\""), &format!("listen = \"unix:{dir}/{role}.sock\""));
        }
        let file = self.path(&format!("{role}.toml"));
        std::fs::write(&file, change(text)).unwrap();
        file
    }

    fn command(&self, role: &str, config: &Path) -> Command {
        let mut command = Command::new(STRIA);
        command.args([role, "--format", "--config"]).arg(config).stderr(std::process::Stdio::piped());
        command
    }

    fn start(&mut self, role: &str) {
        let config = self.config(role, |text| text);
        let child = self.command(role, &config).spawn().unwrap();
        self.running.push(child);
    }

    /// Lines of the log of the one that was started last, until one has this word.
    fn wait_for(&mut self, word: &str) {
        use std::io::BufRead;
        let log = self.running.last_mut().unwrap().stderr.take().unwrap();
        let mut lines = std::io::BufReader::new(log).lines();
        let mut seen = vec![];
        while let Some(Ok(line)) = lines.next() {
            seen.push(line);
            if seen.last().unwrap().contains(word) {
                // Keep reading: the process would end at its next output if the pipe were closed.
                std::thread::spawn(move || lines.for_each(drop));
                return;
            }
        }
        panic!("no '{word}' in: {}", seen.join("\n"));
    }
}

impl Drop for Roles {
    fn drop(&mut self) {
        for child in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A wrong name is found by asking the management service, before a device is made or formatted.
#[test]
fn printed_configurations_run_and_a_wrong_file_system_formats_nothing() {
    let mut roles = Roles::new("wrong-name");
    ["mgs", "mds"].into_iter().for_each(|role| roles.start(role));
    roles.wait_for("ready");
    let wrong = roles.config("oss", |text| text.replace("fsname = \"stria\"", "fsname = \"strai\""));
    let out = roles.command("oss", &wrong).output().unwrap();
    ends_with(&out, 1, "it has: stria; correct `fsname`");
    let second =
        roles.config("mds", |text| text.replace("mdt.img", "second.img").replace("mds.sock", "second.sock"));
    ends_with(&roles.command("mds", &second).output().unwrap(), 1, "has its MDT already");
    for image in ["ost0.img", "ost1.img", "second.img"] {
        assert!(!roles.path(image).exists(), "{image} was made");
    }
    // The same with the right name.
    roles.start("oss");
    roles.wait_for("ready");
    assert!(roles.path("ost1.img").exists());
}

#[test]
fn a_reader_that_has_seen_enough_ends_a_tool_quietly() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let out = Command::new(STRIA).args(["oss", "--print-config"]).stdout(writer).output().unwrap();
    assert_eq!((out.status.code(), text(&out).as_str()), (Some(1), ""));
}

/// The disk below a log or a redirected output may be full: that is no fault of the program's.
#[test]
fn an_error_that_cannot_be_printed_keeps_its_exit_code() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let status = Command::new(STRIA).args(["status", "--dir", "/proc/none"]).stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(2));
}
