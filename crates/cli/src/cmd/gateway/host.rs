//! The actions of a gateway on its host: it looks for packages, and starts, reloads and stops the server, with or without systemd.
//!
//! cli-GH1: only a process whose command line names this gateway's configuration is signalled: a pid file may be stale.
//! cli-GH2: every wait is bounded, and its error says what was waited for and where to look.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use super::model::{Kind, Need, Server};
use super::places::Places;
use crate::exit::Failure;
use crate::serve::bounded;

/// A server answers within a second or two of its start; recovery of many clients takes longer.
const START_MAX: Duration = Duration::from_secs(60);
/// A stopping server closes its clients' files. One that takes longer is killed, which loses nothing that was acknowledged.
const STOP_MAX: Duration = Duration::from_secs(20);
/// Time between two looks.
const LOOK_EACH: Duration = Duration::from_millis(50);
/// The end of a log, in which the server's last error is looked for.
const TAIL_BYTES: u64 = 64 << 10;

/// Whether systemd runs here and reads units from these places.
pub fn has_systemd(at: &Places) -> bool {
    at.are_the_hosts() && Path::new("/run/systemd/system").is_dir()
}

/// Takes the lock of `enable` and `disable`; dropping the file releases it.
pub fn lock(at: &Places) -> anyhow::Result<File> {
    fs::create_dir_all(at.dir()).with_context(|| at.dir().display().to_string())?;
    let file = File::create(at.lock()).with_context(|| at.lock().display().to_string())?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        Failure::failed("gateway", "another `stria gateway` is at work", "wait until it is done")
    })?;
    Ok(file)
}

/// Replaces a file by rename, so that a starting server reads the old or the new text. True if the text has changed.
pub fn write(path: &Path, text: &str) -> anyhow::Result<bool> {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(false);
    }
    let written = (|| {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        let new = path.with_extension("new");
        fs::write(&new, text)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o644))?;
        fs::rename(&new, path)
    })();
    written.with_context(|| path.display().to_string())?;
    Ok(true)
}

pub fn remove(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e).with_context(|| path.display().to_string()),
        _ => Ok(()),
    }
}

/// The path of the server's program, or an error that names the missing packages.
pub fn program<K: Kind>(kind: &K) -> Result<PathBuf, Failure> {
    let needs = kind.needs();
    let mut missing: Vec<&str> = needs.iter().filter(|n| find(n).is_none()).map(|n| n.package).collect();
    missing.dedup();
    if !missing.is_empty() {
        let why = format!("{} is not installed here: package {}", K::SERVER, missing.join(", "));
        return Err(Failure::unusable("gateway", why, format!("apt-get install {}", missing.join(" "))));
    }
    let at = Places::new(Path::new("/"), K::NAME);
    let name = K::daemon(&at).program;
    needs.iter().find(|n| n.file == name).and_then(find).ok_or_else(|| {
        Failure::unusable(
            "gateway",
            format!("{name} was not found"),
            "install it where the distribution does",
        )
    })
}

fn find(need: &Need) -> Option<PathBuf> {
    let dirs = need.dirs.iter().flat_map(|pattern| match pattern.split_once("/*") {
        None => vec![PathBuf::from(pattern)],
        Some((above, below)) => {
            let entries = fs::read_dir(above).into_iter().flatten().flatten();
            entries.map(|e| e.path().join(below.trim_start_matches('/'))).collect()
        }
    });
    dirs.map(|dir| dir.join(need.file)).find(|path| path.is_file())
}

/// The address at which this host reaches the server.
pub fn address(server: &Server, port: u16) -> SocketAddr {
    SocketAddr::new(server.bind.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), port)
}

/// The pid of the server, if it runs.
pub fn pid(at: &Places) -> Option<u32> {
    // cli-GH1.
    pid_in_file(at).filter(|pid| has_word(*pid, &at.config().display().to_string()))
}

/// Whether this word is on a process's command line.
fn has_word(pid: u32, wanted: &str) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|b| *b == 0).any(|word| word == wanted.as_bytes())
}

/// The pid in the pid file, also of a process that is gone.
pub fn pid_in_file(at: &Places) -> Option<u32> {
    fs::read_to_string(at.pid_file()).ok()?.trim().parse().ok()
}

/// Makes the directories that the server writes to.
pub fn prepare(at: &Places) -> anyhow::Result<()> {
    for (dir, mode) in at.server_dirs() {
        let made = DirBuilder::new().recursive(true).mode(mode).create(&dir);
        made.and_then(|()| fs::set_permissions(&dir, fs::Permissions::from_mode(mode)))
            .with_context(|| dir.display().to_string())?;
    }
    let log = at.log();
    fs::create_dir_all(log.parent().unwrap_or(&log)).with_context(|| log.display().to_string())?;
    Ok(())
}

/// Starts the server and returns when it answers.
pub fn start<K: Kind>(kind: &K, at: &Places, program: &Path) -> anyhow::Result<u32> {
    refuse_taken_port(kind, at)?;
    kind.check_neighbours()?;
    super::mounted::check_before_start(kind)?;
    prepare(at)?;
    // Helpers of a server that was killed.
    end_helpers(at)?;
    remove(&at.pid_file())?;
    let log_begin = fs::metadata(at.log()).map_or(0, |m| m.size());
    let log = File::options()
        .create(true)
        .append(true)
        .open(at.log())
        .with_context(|| at.log().display().to_string())?;
    if has_systemd(at) {
        systemctl(&["start", &at.unit_name()])?;
    } else {
        let mut command = Command::new(program);
        command.args(K::daemon(at).background).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // A process group of its own: Ctrl-C of this command does not reach the server.
        let status = command.current_dir("/").process_group(0).status();
        let status = status.with_context(|| program.display().to_string())?;
        if !status.success() {
            return Err(did_not_start::<K>(at, log_begin, &format!("it ended with {status}")).into());
        }
    }
    let begin = Instant::now();
    loop {
        if let (Some(pid), Ok(())) = (pid(at), kind.answers()) {
            return Ok(pid);
        }
        let has_ended = pid_in_file(at).is_some() && pid(at).is_none();
        if has_ended {
            return Err(did_not_start::<K>(at, log_begin, "it ended").into());
        }
        if begin.elapsed() > START_MAX {
            let why = format!("it does not answer after {} s", START_MAX.as_secs());
            return Err(did_not_start::<K>(at, log_begin, &why).into());
        }
        std::thread::sleep(LOOK_EACH);
    }
}

fn did_not_start<K: Kind>(at: &Places, log_begin: u64, why: &str) -> Failure {
    let words = last_words(&at.log(), log_begin).map(|words| format!(": {words}")).unwrap_or_default();
    let next = format!("its log is {}", at.log().display());
    Failure::failed(K::SERVER, format!("it did not start: {why}{words}"), next)
}

/// Refuses a port where another server listens: `stria gateway` would take that server for its own.
///
/// A killed server loses its command line, and with it its `pid`, before its sockets close. If it left its pid file,
/// its port gets `OWN_PORT_CLOSES_IN`.
pub fn refuse_taken_port<K: Kind>(kind: &K, at: &Places) -> Result<(), Failure> {
    const OWN_PORT_CLOSES_IN: Duration = Duration::from_secs(2);
    let port = kind.server().port;
    let is_taken =
        || TcpStream::connect_timeout(&address(kind.server(), port), Duration::from_secs(1)).is_ok();
    let begun = Instant::now();
    while is_taken() {
        if pid_in_file(at).is_none() || begun.elapsed() > OWN_PORT_CLOSES_IN {
            let foes = kind.friends_and_foes().1.join(" ");
            let next = format!("stop that (`systemctl disable --now {foes}`), or give another --port");
            return Err(Failure::failed(format!("port {port}"), "another server listens there", next));
        }
        std::thread::sleep(LOOK_EACH);
    }
    Ok(())
}

/// NFS 3 clients find the server through rpcbind, and the server does not start without it.
pub fn check_rpcbind() -> Result<(), Failure> {
    let by_socket = UnixStream::connect("/run/rpcbind.sock").is_ok();
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 111));
    if by_socket || TcpStream::connect_timeout(&loopback, Duration::from_secs(1)).is_ok() {
        return Ok(());
    }
    let next = "start it (`systemctl start rpcbind`, or `rpcbind`), or serve NFS 4 only (--protocols 4)";
    Err(Failure::failed("rpcbind", "it does not run, and NFS 3 needs it", next))
}

/// Stops the server and its helpers; true if it ran.
pub fn stop(at: &Places) -> anyhow::Result<bool> {
    let main = pid(at);
    if has_systemd(at) && at.unit().exists() {
        systemctl(&["stop", &at.unit_name()])?;
    }
    if let Some(main) = main {
        end(main, || pid(at) == Some(main))?;
    }
    end_helpers(at)?;
    remove(&at.pid_file())?;
    Ok(main.is_some())
}

/// Samba's helpers outlive it; they would serve its next run by the old configuration.
fn end_helpers(at: &Places) -> anyhow::Result<()> {
    let option = format!("--configfile={}", at.config().display());
    // cli-GH1: an editor or a tool may have the configuration on its command line, too.
    let is_helper = |pid: u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        (name.starts_with("samba-dcerpcd") || name.starts_with("rpcd_")) && has_word(pid, &option)
    };
    let helper = || {
        let mut pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        pids.find_map(|entry| entry.file_name().to_str()?.parse().ok().filter(|pid| is_helper(*pid)))
    };
    while let Some(found) = helper() {
        end(found, || is_helper(found))?;
    }
    Ok(())
}

/// Ends a process by SIGTERM, then SIGKILL, as long as `is_it` confirms that it is the right one.
fn end(pid: u32, is_it: impl Fn() -> bool) -> anyhow::Result<()> {
    let raw = Pid::from_raw(pid as i32).context("a pid of 0")?;
    let process = match rustix::process::pidfd_open(raw, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(()),
        other => other?,
    };
    let (begin, mut sent) = (Instant::now(), None);
    // The pidfd pins the process: after this check the pid cannot belong to another one.
    while is_it() {
        let wish = if begin.elapsed() > STOP_MAX { Signal::KILL } else { Signal::TERM };
        if sent != Some(wish) {
            if wish == Signal::KILL {
                outln!("pid {pid} did not end within {} s: killed", STOP_MAX.as_secs());
            }
            match rustix::process::pidfd_send_signal(&process, wish) {
                Err(Errno::SRCH) => return Ok(()),
                other => other?,
            }
            sent = Some(wish);
        }
        std::thread::sleep(LOOK_EACH);
    }
    Ok(())
}

pub fn signal(at: &Places, signal: Signal) -> anyhow::Result<()> {
    if let Some(pid) = pid(at).and_then(|pid| Pid::from_raw(pid as i32)) {
        rustix::process::kill_process(pid, signal)?;
    }
    Ok(())
}

pub fn systemctl(args: &[&str]) -> anyhow::Result<()> {
    let out = Command::new("systemctl").args(args).stdin(Stdio::null()).output().context("systemctl")?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr).trim().replace('\n', " ");
    let unit = args.last().unwrap_or(&"");
    let why = format!("systemd did not do it: {said}");
    Err(Failure::failed(format!("systemctl {}", args.join(" ")), why, format!("see `journalctl -u {unit}`"))
        .into())
}

/// The end of a log: at most `TAIL_BYTES`, and nothing before `begin`. Empty if it cannot be read.
pub fn log_behind(log: &Path, begin: u64) -> String {
    use std::io::{Read, Seek, SeekFrom};
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let len = file.metadata()?.size();
        file.seek(SeekFrom::Start(begin.max(len.saturating_sub(TAIL_BYTES)).min(len)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// The last line behind `begin` that reports an error, else the last line.
pub fn last_words(log: &Path, begin: u64) -> Option<String> {
    let text = log_behind(log, begin);
    let lines = || text.lines().map(str::trim).filter(|l| !l.is_empty());
    // Without D-Bus, NFS-Ganesha logs an error at each start but works.
    let tells = |word: &'static str| move |l: &&str| l.contains(word) && !l.contains(":DBUS :");
    // The first line of many names the error of a configuration.
    let line = lines()
        .find(tells(":Config File ("))
        .or_else(|| lines().rfind(|l| tells(":MAJ :")(l) || tells(":CRIT :")(l)))
        .or_else(|| lines().rfind(tells(":FATAL :")))
        .or_else(|| lines().next_back())?;
    // The time and process at the beginning of the line are known.
    Some(line.split_once("] ").map_or(line, |(_, words)| words).to_owned())
}

/// Whether a process of the server holds files of a FUSE mount that is no longer in the mount table.
pub fn holds_an_earlier_mount(server: u32) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounted: Vec<&str> = table.lines().filter_map(|l| l.split(' ').next()).collect();
    family(server).into_iter().any(|pid| {
        let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        fds.map(|fd| fd.file_name().to_string_lossy().into_owned()).any(|fd| {
            let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
            let mount = info.lines().find_map(|l| l.strip_prefix("mnt_id:")).map(str::trim);
            mount.is_some_and(|id| !mounted.contains(&id)) && is_behind_fuse(format!("/proc/{pid}/fd/{fd}"))
        })
    })
}

/// Other files on mounts outside of the table are pipes, sockets, and files inherited from the process that started the server.
fn is_behind_fuse(fd: String) -> bool {
    /// linux/magic.h
    const FUSE_SUPER_MAGIC: rustix::fs::FsWord = 0x6573_5546;
    match bounded("statfs", Duration::from_secs(1), move || rustix::fs::statfs(&*fd)) {
        Some(Ok(found)) => found.f_type == FUSE_SUPER_MAGIC,
        Some(Err(e)) => [Errno::NOTCONN, Errno::CONNABORTED].contains(&e),
        // A file that does not answer is no pipe.
        None => true,
    }
}

/// A process and its children.
fn family(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    std::iter::once(pid).chain(children.split_whitespace().filter_map(|c| c.parse().ok())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::model::Nfs;
    use super::*;
    use crate::testdir::TestDir;

    #[test]
    fn a_missing_package_is_named() {
        let need = |file, dirs| Need { package: "p", file, dirs };
        assert!(find(&need("sh", &["/nowhere", "/bin"])).is_some());
        assert!(find(&need("version", &["/proc/*"])).is_none());
        assert!(find(&need("comm", &["/proc/*"])).is_some(), "* is a directory of any name");
        assert!(find(&need("no-such-program", &["/bin"])).is_none());
    }

    #[test]
    fn a_pid_file_of_another_process_is_not_believed() {
        let dir = TestDir::new("gateway-pid");
        let at = Places::new(dir.path(), Nfs::NAME);
        assert_eq!(pid(&at), None);
        fs::create_dir_all(at.run()).unwrap();
        fs::write(at.pid_file(), format!("  {}\n", std::process::id())).unwrap();
        assert_eq!((pid(&at), pid_in_file(&at)), (None, Some(std::process::id())));
        assert!(!stop(&at).unwrap(), "this process is not the gateway's server");
    }

    #[test]
    fn helpers_of_the_server_are_ended_with_it_and_nothing_else() {
        let dir = TestDir::new("gateway-helpers");
        let at = Places::new(dir.path(), "smb");
        let option = format!("--configfile={}", at.config().display());
        let start = |name: &str, option: &str| {
            let program = dir.path().join(name);
            fs::copy("/bin/sh", &program).unwrap();
            // The shell waits for its input.
            Command::new(program).args(["-c", "read line", option]).stdin(Stdio::piped()).spawn().unwrap()
        };
        let mut helper = start("rpcd_classic", &option);
        let others = [start("rpcd_other", "--configfile=/etc/samba/smb.conf"), start("editor", &option)];
        assert!(!stop(&at).unwrap(), "the server itself did not run");
        assert!(helper.wait().unwrap().code().is_none(), "a signal has ended it");
        for mut other in others {
            assert!(other.try_wait().unwrap().is_none());
            other.kill().unwrap();
            other.wait().unwrap();
        }
    }

    #[test]
    fn the_last_words_of_a_log_are_those_of_trouble() {
        let dir = TestDir::new("gateway-log");
        let log = dir.path().join("log");
        assert_eq!(last_words(&log, 0), None);
        let before = "old :FATAL : words\n";
        fs::write(
            &log,
            format!(
                "{before}t : x[main] f :DISP :MAJ :Cannot register\nt : x[main] g :DBUS :CRIT :none\nbye\n\n"
            ),
        )
        .unwrap();
        assert_eq!(last_words(&log, before.len() as u64).unwrap(), "f :DISP :MAJ :Cannot register");
        fs::write(&log, "one\ntwo\n").unwrap();
        assert_eq!(last_words(&log, 0).unwrap(), "two");
        assert_eq!(last_words(&log, 1000), None);
    }

    #[test]
    fn this_process_holds_no_mount_that_is_gone() {
        let dir = TestDir::new("gateway-held");
        let _held = File::create(dir.path().join("f")).unwrap();
        assert!(!holds_an_earlier_mount(std::process::id()));
    }

    #[test]
    fn a_file_is_written_when_it_changes_and_not_otherwise() {
        let dir = TestDir::new("gateway-write");
        let path = dir.path().join("a/b.conf");
        assert!(write(&path, "one").unwrap());
        assert!(!write(&path, "one").unwrap());
        assert!(write(&path, "two").unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(dir.path().join("a")).unwrap().count(), 1, "no half-written file is left");
    }
}
