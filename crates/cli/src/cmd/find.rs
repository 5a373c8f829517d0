//! `stria find`: searches trees with the tests of `find` and of `lfs find`, by several threads.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::SystemTime;

use clap::Args;
use find::{Context, Names, Show};

use crate::cmd::index::become_index;
use crate::exit::{Exit, Failure};

/// The part of `--help` behind the usage.
const TESTS: &str = "\
Tests. N is exactly N, +N is more, -N is less. Names take one dash or two.
  -name, -iname, -path, -ipath PATTERN    name or path: *, ?, [a-z]
  -type f,d,l,p,s,c,b                     file, directory, symlink, fifo, socket, devices
  -size N[kMGTP]                          bytes; a part of a unit counts as a whole one; -2k is below 2,048 bytes
  -blocks N[kMGTP]                        allocated space, in blocks of 512 bytes
  -empty                                  an empty file or directory
  -atime, -mtime, -ctime, -btime N[smhdwy]    age in days; a part of a unit does not count
  -amin, -mmin, -cmin, -bmin N            age in minutes
  -newer FILE, -newerXY FILE              X of a file is later than Y of FILE; of a, B, c, m
  -newerXt TIME                           X is later than 2026-11-28, '2026-11-28 14:30:00' (UTC) or @SECONDS
  -user, -uid, -group, -gid NAME or N     owner, by name or number; also -nouser, -nogroup
  -perm MODE, -MODE, /MODE                exactly, all or any of these bits
  -links, -inum N                         number of names, inode number
  -stripe-count N, -stripe-size N[kMGTP]  striping; -stripe-index I,I: its first OST
  -ost I,I                                with an object on one of these OSTs: 3, or stria-OST0003
  -inline                                 with its content in the MDT
  -maxdepth, -mindepth N                  how deep below PATH; 0 is PATH itself
  -cross                                  search file systems below, too
  -lazy                                   sizes and times that this host has, without asking servers
  -threads N                              at a time; 8 without it

Results are paths (-print), paths with NUL behind them (-print0), lines (-ls), JSON objects (-json), or a format (-printf):
  %p %P %f %h %d     path, path below the start, name, directory, depth
  %s %b %k           bytes, blocks of 512 bytes, KiB
  %i %n %y %l        inode number, number of names, type, target of a symlink
  %u %g %U %G %m %M  owner and group by name and by number, mode in octal and as of ls
  %a %c %t %w        times of access, change, content and birth, in UTC; %A@ %C@ %T@ %W@ in seconds
  %LF %Lc %LS %Li %Lo    file id, stripe count, stripe size, first OST, OSTs

A terminal gets a ? for each control character of a name; files and pipes get names as they are.

Example: stria find /mnt/stria/data -name '*.h5' -size +1G -mtime +30
Example: stria find /mnt/stria -type f -ost 3 -print0 | xargs -0 ls -l
Example: stria find /mnt/stria -user alice -printf '%s %LF %Lo %p\\n'
Example: stria find -db /var/lib/stria/index.db /mnt/stria -size +100G";

/// Find files below PATH by tests, as `find` and `lfs find` do. Paths come in no order: several threads search. Only the file system
/// of PATH is searched. Exit code 1 if something could not be read.
///
/// Tests stand side by side, with -o between them (or), with ! before them (not), in parentheses. With -db FILE before PATH an index answers in
/// place of a walk: see `stria index`. Its access times may be old.
#[derive(Debug, Args)]
#[command(override_usage = "stria find [-db FILE] [PATH]... [TEST]...", after_help = TESTS)]
pub struct Find {
    /// JSON output: an object per line, as with -json.
    #[arg(short = 'j', long)]
    json: bool,
    /// Where to search; default: here. Then tests; default: all.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "PATH TEST")]
    words: Vec<OsString>,
}

impl Find {
    pub fn run(self) -> anyhow::Result<Exit> {
        if let [first, db, rest @ ..] = &self.words[..]
            && (first == "-db" || first == "--db")
        {
            let json = self.json.then(|| "--json".into());
            let words =
                ["find".into(), "--db".into(), db.clone()].into_iter().chain(json).chain(["--".into()]);
            let words: Vec<OsString> = words.chain(rest.iter().cloned()).collect();
            return Err(become_index(&words));
        }
        let mut query = find::parse(&self.words)
            .map_err(|why| Failure::unusable("find", why, "`stria find --help` has all tests"))?;
        if self.json {
            query.show = Show::json();
        }
        if io::stdout().is_terminal() {
            query.show = query.show.for_terminal();
        }
        let context = Context { now: SystemTime::now().into(), names: Names::default() };
        let print = |piece: &[u8]| io::stdout().write_all(piece);
        let tell = |path: &Path, error: &io::Error| eprintln!("stria: {}: {error}", path.display());
        let found = find::walk(&query, &context, print, tell).and_then(|found| {
            io::stdout().flush()?;
            Ok(found)
        });
        let found = match found {
            // The reader has read enough, as with `| head`; the output is incomplete.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Exit::Findings),
            Err(error) => {
                return Err(Failure::failed("standard output", error, "check where it goes").into());
            }
            Ok(found) => found,
        };
        Ok(if found.errors > 0 { Exit::Findings } else { Exit::Done })
    }
}
