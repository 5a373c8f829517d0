//! A process that takes locks as it is told, line by line on its standard input; started by the suite's tests of locks.
//!
//! One answer per line: `ok`, `free`, the lock that was found, or an errno's name.
//! ```text
//! open N r|w|rw PATH    close N    write N TEXT    lend N    unlend
//! lock N posix|ofd r|w|u WHENCE START LEN [wait]   test N posix|ofd r|w WHENCE START LEN    flock N r|w|u [wait]
//! ```

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, Write};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_RDLCK, F_UNLCK, F_WRLCK, SEEK_CUR, SEEK_END, SEEK_SET, flock};
use rustix::fs::FlockOperation;

/// The open descriptors, under the numbers that the test gave.
#[derive(Default)]
struct Locker {
    open: HashMap<String, File>,
    /// Has a copy of a descriptor, and does nothing.
    borrower: Option<Child>,
}

pub fn run() -> Result<()> {
    let mut locker = Locker::default();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let said = match locker.obey(&words) {
            Ok(said) => said,
            Err(e) => match e.downcast_ref::<Errno>() {
                Some(errno) => format!("{errno:?}"),
                None => match e.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error) {
                    Some(number) => format!("{:?}", Errno::from_raw(number)),
                    None => return Err(e.context(line)),
                },
            },
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{said}")?;
        out.flush()?;
    }
    locker.unlend()
}

impl Locker {
    fn obey(&mut self, words: &[&str]) -> Result<String> {
        match *words {
            ["open", name, how, path] => {
                let (r, w) = (how.contains('r'), how.contains('w'));
                let file = OpenOptions::new().read(r).write(w).create(w).truncate(false).open(path)?;
                self.open.insert(name.to_owned(), file);
            }
            ["close", name] => drop(self.open.remove(name).context("not open")?),
            ["write", name, text] => self.file(name)?.write_all(text.as_bytes())?,
            ["lend", name] => {
                let copy = self.file(name)?.try_clone()?;
                // It ends with us, since its input does.
                let borrow =
                    |c: &mut Command| c.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(copy).spawn();
                self.borrower = Some(borrow(&mut Command::new("cat"))?);
            }
            ["unlend"] => self.unlend()?,
            ["flock", name, kind] => {
                rustix::fs::flock(self.file(name)?, operation(kind, false)?).map_err(std::io::Error::from)?
            }
            ["flock", name, kind, "wait"] => {
                rustix::fs::flock(self.file(name)?, operation(kind, true)?).map_err(std::io::Error::from)?
            }
            ["lock", name, space, kind, whence, start, len] => {
                let lock = range(kind, whence, start, len)?;
                let how = match space {
                    "ofd" => FcntlArg::F_OFD_SETLK(&lock),
                    _ => FcntlArg::F_SETLK(&lock),
                };
                fcntl(self.file(name)?, how)?;
            }
            ["lock", name, space, kind, whence, start, len, "wait"] => {
                let lock = range(kind, whence, start, len)?;
                let how = match space {
                    "ofd" => FcntlArg::F_OFD_SETLKW(&lock),
                    _ => FcntlArg::F_SETLKW(&lock),
                };
                fcntl(self.file(name)?, how)?;
            }
            ["test", name, space, kind, whence, start, len] => {
                let mut lock = range(kind, whence, start, len)?;
                let how = match space {
                    "ofd" => FcntlArg::F_OFD_GETLK(&mut lock),
                    _ => FcntlArg::F_GETLK(&mut lock),
                };
                fcntl(self.file(name)?, how)?;
                let kind = match i32::from(lock.l_type) {
                    F_UNLCK => return Ok("free".into()),
                    F_RDLCK => "r",
                    _ => "w",
                };
                return Ok(format!("{kind} {} {} {}", lock.l_start, lock.l_len, lock.l_pid));
            }
            _ => bail!("not understood"),
        }
        Ok("ok".into())
    }

    fn file(&mut self, name: &str) -> Result<&mut File> {
        self.open.get_mut(name).context("not open")
    }

    fn unlend(&mut self) -> Result<()> {
        if let Some(mut child) = self.borrower.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }
}

fn range(kind: &str, whence: &str, start: &str, len: &str) -> Result<flock> {
    let kind = match kind {
        "r" => F_RDLCK,
        "w" => F_WRLCK,
        _ => F_UNLCK,
    };
    let whence = match whence {
        "set" => SEEK_SET,
        "cur" => SEEK_CUR,
        _ => SEEK_END,
    };
    let (l_start, l_len) = (start.parse()?, len.parse()?);
    Ok(flock { l_type: kind as i16, l_whence: whence as i16, l_start, l_len, l_pid: 0 })
}

fn operation(kind: &str, wait: bool) -> Result<FlockOperation> {
    Ok(match (kind, wait) {
        ("r", true) => FlockOperation::LockShared,
        ("r", false) => FlockOperation::NonBlockingLockShared,
        ("w", true) => FlockOperation::LockExclusive,
        ("w", false) => FlockOperation::NonBlockingLockExclusive,
        ("u", _) => FlockOperation::Unlock,
        _ => bail!("kind {kind}"),
    })
}
