//! `stria bundle`: what a supporter asks for first, in one archive, without keys.
//!
//! cli-B1: no line that may hold a key, a password or a token goes into it, and no file of a folder of certificates.
//! cli-B2: what it gathers lies in a directory that it has made itself, under a name that other users cannot guess. No link is followed there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::Args;

use crate::exit::{Exit, Failure};
use crate::reach::Service;

/// Of each log, its last bytes.
const LOG_BYTES: u64 = 256 << 10;
/// Longest time of one command.
const COMMAND_MAX: Duration = Duration::from_secs(30);
/// Words of lines that are left out.
const SECRET: [&str; 6] = ["secret", "password", "passwd", "token", "private", "credential"];
/// Kernel files about this host.
const HOST: [&str; 8] =
    ["version", "meminfo", "cpuinfo", "mounts", "loadavg", "uptime", "cmdline", "net/dev"];

/// Collect what a supporter asks for in one archive: versions, health, targets, mirrors, jobs, recent damage, configurations, the ends of logs, this
/// host. Lines with secrets are left out, and keys and certificates are not taken. File and host names are in it: look before you send it.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria bundle
Example: stria bundle --mgs 10.0.0.5@tcp --out /tmp/for-support.tar.gz
Run it as root on the host in question, and once more where the management service runs.
Exit codes: 0 it is written; 1 it could not be.")]
pub struct Bundle {
    /// The directory that `stria up` was given. Without: every file system that is mounted here.
    #[arg(long, conflicts_with = "mgs")]
    dir: Option<PathBuf>,
    /// The management service, with no mount here: NID[,NID...], and :/FSNAME for one of its file systems.
    #[arg(long, value_name = "NID")]
    mgs: Option<String>,
    /// The archive [default: stria-bundle-HOST-TIME.tar.gz here].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Folders of logs and configurations besides /var/log/stria, /run/stria and /etc/stria.
    #[arg(long, value_name = "DIR")]
    also: Vec<PathBuf>,
}

impl Bundle {
    pub fn run(self) -> anyhow::Result<Exit> {
        if let Some(mgs) = &self.mgs {
            Service::parse(mgs)
                .map_err(|why| Failure::unusable("bundle", why, "see `stria bundle --help`"))?;
        }
        let host = crate::serve::host_name();
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let name = format!("stria-bundle-{host}-{seconds}");
        let out = self.out.clone().unwrap_or_else(|| format!("{name}.tar.gz").into());
        let archive = make_archive(&out)?;
        let made = in_private_dir(|scratch| {
            let root = scratch.join(&name);
            make_private_dir(&root).context("a folder")?;
            self.fill(&root)?;
            pack(scratch, &name, archive)
        });
        made.map_err(|e| {
            // The archive has it all, or is not there.
            let _ = fs::remove_file(&out);
            let next = "give --out on a disk with space; tar and gzip must be installed";
            Failure::failed(out.display(), format!("{e:#}"), next)
        })?;
        outln!("{}", out.display());
        Ok(Exit::Done)
    }

    fn fill(&self, root: &Path) -> anyhow::Result<()> {
        let place = |words: &str| -> Vec<String> {
            let mut all: Vec<String> = words.split(' ').map(str::to_owned).collect();
            all.extend(self.dir.iter().flat_map(|dir| ["--dir".to_owned(), dir.display().to_string()]));
            all.extend(self.mgs.iter().flat_map(|mgs| ["--mgs".to_owned(), mgs.clone()]));
            all
        };
        let mut asked = vec![("version", vec!["version".to_owned()])];
        asked.push(("status.json", place("status -j")));
        asked.push(("health.json", place("health --hints -j")));
        if self.dir.is_some() || self.mgs.is_some() {
            asked.push(("mirrors.json", place("mirror list -j")));
            asked.push(("nodes.json", place("node list -j")));
            asked.push(("jobs.json", place("jobstats -n 100 -j")));
            asked.push(("damage.json", place("damage list -j")));
            asked.push(("ost.json", place("ost stat -j")));
            asked.push(("mdt.json", place("mdt stat -j")));
            asked.push(("net.json", place("net stat -j")));
        }
        for mount in crate::mounts::ours() {
            asked.push(("df", vec!["df".to_owned(), mount.point.display().to_string()]));
        }
        let own = std::env::current_exe().context("this program's path")?;
        for (file, words) in asked {
            let said = run(&own, &words);
            // Beside the outputs: programs read the JSON ones.
            append(&root.join("commands"), &format!("{file}: stria {}\n", words.join(" ")))?;
            append(&root.join(file), &said)?;
        }
        for file in HOST {
            if let Ok(text) = fs::read_to_string(Path::new("/proc").join(file)) {
                append(&root.join(format!("host-{}", file.replace('/', "-"))), &clean(&text))?;
            }
        }
        let folders = ["/etc/stria", "/var/log/stria", "/run/stria"].map(PathBuf::from);
        let run_dirs = self.dir.iter().map(|dir| dir.join("run"));
        for folder in folders.into_iter().chain(run_dirs).chain(self.also.iter().cloned()) {
            take(&folder, root)?;
        }
        Ok(())
    }
}

/// The archive's file, before anything is gathered for it.
fn make_archive(out: &Path) -> Result<fs::File, Failure> {
    use std::os::unix::fs::OpenOptionsExt;
    // Names of files and hosts are for its owner only.
    fs::File::options().write(true).create_new(true).mode(0o600).open(out).map_err(|e| {
        let next = match e.kind() {
            std::io::ErrorKind::AlreadyExists => "remove it, or give another name by --out",
            _ => "give --out FILE in a directory where this user may write",
        };
        Failure::failed(out.display(), e, next)
    })
}

/// cli-B2. The directory is removed afterwards.
fn in_private_dir(fill: impl FnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let path = std::env::temp_dir().join(format!("stria-bundle-{}", crate::serve::register::new_uuid()?));
    make_private_dir(&path).with_context(|| path.display().to_string())?;
    let made = fill(&path);
    let _ = fs::remove_dir_all(&path);
    made
}

/// Fails if anything has this name already.
fn make_private_dir(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().mode(0o700).create(path)
}

/// The output of a command, or the reason that there is none.
fn run(program: &Path, words: &[String]) -> String {
    let started = std::io::pipe().and_then(|(reader, writer)| {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        Ok((command.spawn()?, reader))
    });
    let (mut child, mut pipe) = match started {
        Ok(started) => started,
        Err(e) => return format!("not started: {e}"),
    };
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // Bytes from before an error are kept.
        let _ = std::io::Read::read_to_end(&mut pipe, &mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let until = Instant::now() + COMMAND_MAX;
    while Instant::now() < until {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
            _ => return clean(&reader.join().unwrap_or_default()),
        }
    }
    // It hangs: that is a finding, too.
    let _ = child.kill();
    let _ = child.wait();
    format!("it did not end within {COMMAND_MAX:?}\n{}", clean(&reader.join().unwrap_or_default()))
}

/// cli-B1.
fn clean(text: &str) -> String {
    let may_stay = |line: &&str| {
        let line = line.to_lowercase();
        !SECRET.iter().any(|word| line.contains(word))
    };
    text.lines().filter(may_stay).map(|line| format!("{line}\n")).collect()
}

/// Takes the configurations of a folder, and the ends of its logs.
fn take(folder: &Path, root: &Path) -> anyhow::Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for path in entries.flatten().map(|entry| entry.path()) {
        let kind = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
        if !path.is_file() || !["toml", "log", "conf"].contains(&kind) {
            continue;
        }
        let text = end_of(&path).unwrap_or_else(|e| format!("not readable: {e}\n"));
        let name = path.display().to_string().trim_start_matches('/').replace('/', "-");
        append(&root.join(name), &clean(&text))?;
    }
    Ok(())
}

fn end_of(path: &Path) -> std::io::Result<String> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = fs::File::open(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(LOG_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LOG_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // The first line may be half of one, and its other half told what it is.
    Ok(match len > LOG_BYTES {
        true => text.split_once('\n').map_or(String::new(), |(_, rest)| rest.to_owned()),
        false => text,
    })
}

fn append(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = fs::File::options()
        .create(true)
        .append(true)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
        .open(path)
        .with_context(|| path.display().to_string())?;
    Ok(file.write_all(text.as_bytes())?)
}

fn pack(scratch: &Path, name: &str, archive: fs::File) -> anyhow::Result<()> {
    let tar = Command::new("tar")
        .arg("-C")
        .arg(scratch)
        .args(["-czf", "-", name])
        .stdout(archive)
        .output()
        .context("tar")?;
    anyhow::ensure!(tar.status.success(), "tar: {}", String::from_utf8_lossy(&tar.stderr).trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_secrets_are_left_out() {
        let text = "mgs = [\"a\"]\nPassword = \"x\"\nsecret: 00ff\nlisten = \"b\"\nGET /?Token=7\n";
        assert_eq!(clean(text), "mgs = [\"a\"]\nlisten = \"b\"\n");
    }

    #[test]
    fn b2_a_directory_or_link_that_is_there_already_is_not_used() {
        let scratch = crate::testdir::TestDir::new("bundle-private");
        let (theirs, victim) = (scratch.path().join("theirs"), scratch.path().join("victim"));
        fs::create_dir(&theirs).expect("made");
        fs::write(&victim, "before").expect("written");
        let (link, link_to_dir) = (theirs.join("commands"), scratch.path().join("link"));
        std::os::unix::fs::symlink(&victim, &link).expect("linked");
        std::os::unix::fs::symlink(&theirs, &link_to_dir).expect("linked");
        for path in [&theirs, &link_to_dir] {
            let refused = make_private_dir(path).map_err(|e| e.kind());
            assert_eq!(refused, Err(std::io::ErrorKind::AlreadyExists));
        }
        append(&link, "after").expect_err("it is a link");
        assert_eq!(fs::read_to_string(&victim).expect("read"), "before");
    }

    #[test]
    fn b2_each_bundle_has_a_directory_of_its_own_for_its_user_only() {
        use std::os::unix::fs::PermissionsExt;
        let mut seen = Vec::new();
        for _ in 0..2 {
            in_private_dir(|path| {
                assert_eq!(path.metadata()?.permissions().mode() & 0o777, 0o700);
                seen.push(path.to_owned());
                Ok(())
            })
            .expect("filled");
        }
        assert!(seen[0] != seen[1] && seen.iter().all(|path| !path.exists()), "{seen:?}");
    }

    #[test]
    fn an_archive_that_exists_stays_and_the_line_says_so() {
        let scratch = crate::testdir::TestDir::new("bundle-out");
        let out = scratch.path().join("a.tar.gz");
        fs::write(&out, "mine").expect("written");
        let line = make_archive(&out).expect_err("it exists").to_string();
        assert!(line.ends_with("; remove it, or give another name by --out"), "{line}");
        assert_eq!(fs::read_to_string(&out).expect("read"), "mine");
        let line = make_archive(&scratch.path().join("none/a")).expect_err("no directory").to_string();
        assert!(line.ends_with("in a directory where this user may write"), "{line}");
    }

    #[test]
    fn only_configurations_and_logs_are_taken_and_logs_by_their_ends() {
        let scratch = crate::testdir::TestDir::new("bundle");
        let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
        fs::create_dir(&from).expect("made");
        fs::create_dir(&to).expect("made");
        fs::write(from.join("mds.toml"), "listen = \"x\"\ntoken = \"y\"\n").expect("written");
        fs::write(from.join("node.key"), "a key").expect("written");
        fs::write(from.join("node.pem"), "a certificate").expect("written");
        let line = "0123456789abcdef\n";
        fs::write(from.join("a.log"), line.repeat(LOG_BYTES as usize / line.len() + 100)).expect("written");
        take(&from, &to).expect("taken");
        let mut names: Vec<String> = fs::read_dir(&to)
            .expect("listed")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
            .collect();
        names.sort();
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(names[0].ends_with("from-a.log") && names[1].ends_with("from-mds.toml"), "{names:?}");
        let log = fs::read_to_string(to.join(&names[0])).expect("read");
        assert!(log.len() <= LOG_BYTES as usize && log.starts_with("0123"), "{}", log.len());
        assert_eq!(fs::read_to_string(to.join(&names[1])).expect("read"), "listen = \"x\"\n");
    }
}
