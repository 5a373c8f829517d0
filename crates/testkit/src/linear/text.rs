//! Histories as text, a line per call: client, start, end, the call and its result.
//!
//! ```text
//! 0 1 4 create d/a = 16x1        the file's number, and how many names it has
//! 1 2 - rename d/a e/b           it never ended
//! 2 3 5 list d = a:16
//! 0 6 7 unlink d/a = NotFound
//! ```

use std::fmt;

use types::Code;

use super::{Call, History, Op, Place, Said};

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.dir, self.name)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Create(at) => write!(f, "create {at}"),
            Op::Link { fid, to } => write!(f, "link {fid} {to}"),
            Op::Unlink(at) => write!(f, "unlink {at}"),
            Op::Rename { from, to, noreplace: false } => write!(f, "rename {from} {to}"),
            Op::Rename { from, to, noreplace: true } => write!(f, "move {from} {to}"),
            Op::Stat(at) => write!(f, "stat {at}"),
            Op::Look(fid) => write!(f, "look {fid}"),
            Op::List(dir) => write!(f, "list {dir}"),
        }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Said::Done => write!(f, "ok"),
            Said::File { fid, nlink } => write!(f, "{fid}x{nlink}"),
            Said::Names(names) if names.is_empty() => write!(f, "nothing"),
            Said::Names(names) => {
                let names: Vec<_> = names.iter().map(|(name, fid)| format!("{name}:{fid}")).collect();
                write!(f, "{}", names.join(" "))
            }
            Said::No(code) => write!(f, "{code:?}"),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call { client, op, began, ended } = self;
        match ended {
            Some((at, said)) => write!(f, "{client} {began} {at} {op} = {said}"),
            None => write!(f, "{client} {began} - {op}"),
        }
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|call| writeln!(f, "{call}"))
    }
}

impl History {
    /// Parses the output of `Display`. The error names the first line that is no call.
    pub fn parse(text: &str) -> Result<History, String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let calls = lines.map(|line| call(line).ok_or_else(|| format!("{line:?} is no call")));
        Ok(History(calls.collect::<Result<_, _>>()?))
    }
}

fn call(line: &str) -> Option<Call> {
    let (asked, said) = match line.split_once(" = ") {
        Some((asked, said)) => (asked, Some(self::said(said)?)),
        None => (line, None),
    };
    let words: Vec<&str> = asked.split(' ').collect();
    let [client, began, ended, verb, args @ ..] = &words[..] else { return None };
    let ended = match (*ended, said) {
        ("-", None) => None,
        (at, Some(said)) => Some((at.parse().ok()?, said)),
        _ => return None,
    };
    Some(Call { client: client.parse().ok()?, op: op(verb, args)?, began: began.parse().ok()?, ended })
}

fn op(verb: &str, args: &[&str]) -> Option<Op> {
    Some(match (verb, args) {
        ("create", [at]) => Op::Create(place(at)?),
        ("link", [fid, to]) => Op::Link { fid: fid.parse().ok()?, to: place(to)? },
        ("unlink", [at]) => Op::Unlink(place(at)?),
        ("rename", [from, to]) => Op::Rename { from: place(from)?, to: place(to)?, noreplace: false },
        ("move", [from, to]) => Op::Rename { from: place(from)?, to: place(to)?, noreplace: true },
        ("stat", [at]) => Op::Stat(place(at)?),
        ("look", [fid]) => Op::Look(fid.parse().ok()?),
        ("list", [dir]) => Op::List(dir.parse().ok()?),
        _ => return None,
    })
}

fn place(text: &str) -> Option<Place> {
    let (dir, name) = text.split_once('/')?;
    Some(Place { dir: dir.parse().ok()?, name: name.parse().ok()? })
}

fn said(text: &str) -> Option<Said> {
    if let Some(code) = Code::ALL.iter().find(|code| format!("{code:?}") == text) {
        return Some(Said::No(*code));
    }
    if let Some((fid, nlink)) = text.split_once('x') {
        return Some(Said::File { fid: fid.parse().ok()?, nlink: nlink.parse().ok()? });
    }
    match text {
        "ok" => Some(Said::Done),
        "nothing" => Some(Said::Names(vec![])),
        _ => text.split(' ').map(entry).collect::<Option<_>>().map(Said::Names),
    }
}

fn entry(text: &str) -> Option<(char, u64)> {
    let (name, fid) = text.split_once(':')?;
    Some((name.parse().ok()?, fid.parse().ok()?))
}
