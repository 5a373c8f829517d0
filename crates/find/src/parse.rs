//! From words to a search: `PATH... TESTS`, where tests stand side by side (and), with `-o` between them (or), with `!` before them (not),
//! or in parentheses. Long names take one dash or two, as in `lfs find`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use types::{Size, Time};

use crate::expr::{Expr, Kind, Test, Which};
use crate::glob::Glob;
use crate::measure::{Measure, Sign};
use crate::names::{gid_of, uid_of};
use crate::perm::Perm;
use crate::show::Show;

/// A search.
#[derive(Debug)]
pub struct Query {
    /// Where it starts; never empty.
    pub paths: Vec<OsString>,
    pub expr: Expr,
    pub show: Show,
    /// Entries above are not tested; a start has depth 0.
    pub depth_min: usize,
    /// Directories at this depth are not read.
    pub depth_max: usize,
    pub threads: usize,
    /// Directories of other file systems are read, too.
    pub crosses: bool,
    /// Sizes and times may be those that the kernel has: no server is asked again.
    pub is_lazy: bool,
}

const THREADS: usize = 8;
const THREADS_MAX: usize = 256;
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const DAY: u64 = 24 * 60 * MINUTE;

/// Reads the words behind the command's name.
///
/// # Errors
/// A message that quotes the wrong word.
pub fn parse(words: &[OsString]) -> Result<Query, String> {
    let first = words.iter().position(begins_expression).unwrap_or(words.len());
    let mut paths = words[..first].to_vec();
    if paths.is_empty() {
        paths.push(".".into());
    }
    let query = Query {
        paths,
        expr: Expr::Test(Test::True),
        show: Show::lines(),
        depth_min: 0,
        depth_max: usize::MAX,
        threads: THREADS,
        crosses: false,
        is_lazy: false,
    };
    let mut parser = Parser { words: &words[first..], at: 0, query, shown_by: None, nested: 0 };
    if parser.words.is_empty() {
        return Ok(parser.query);
    }
    let expr = parser.any()?;
    if let Some(word) = parser.peek() {
        return Err(format!("'{word}' has no '(' before it"));
    }
    if let (Expr::Or(_), Some(word)) = (&expr, &parser.shown_by) {
        return Err(format!(
            "'{word}' beside '-o': put the tests into parentheses, '{word}' is for all results"
        ));
    }
    parser.query.expr = expr;
    if parser.query.depth_min > parser.query.depth_max {
        return Err("-mindepth is above -maxdepth".into());
    }
    Ok(parser.query)
}

fn begins_expression(word: &OsString) -> bool {
    let bytes = word.as_bytes();
    bytes.len() > 1 && bytes[0] == b'-' || matches!(bytes, b"!" | b"(" | b")")
}

struct Parser<'a> {
    words: &'a [OsString],
    at: usize,
    query: Query,
    /// The word that chose how results are shown.
    shown_by: Option<String>,
    nested: usize,
}

/// Bounds the recursion.
const NESTED_MAX: usize = 200;

impl Parser<'_> {
    fn peek(&self) -> Option<String> {
        self.words.get(self.at).map(|word| word.to_string_lossy().into_owned())
    }

    fn any(&mut self) -> Result<Expr, String> {
        let mut any = vec![self.all()?];
        while matches!(self.peek().as_deref(), Some("-o" | "-or" | "--or")) {
            self.at += 1;
            any.push(self.all()?);
        }
        Ok(if any.len() == 1 { any.remove(0) } else { Expr::Or(any) })
    }

    fn all(&mut self) -> Result<Expr, String> {
        let mut all = Vec::new();
        loop {
            match self.peek().as_deref() {
                None | Some(")" | "-o" | "-or" | "--or") => break,
                Some("-a" | "-and" | "--and") if !all.is_empty() => self.at += 1,
                Some(_) => {}
            }
            all.push(self.one()?);
        }
        match all.len() {
            0 => Err(match self.peek() {
                None => "a test is missing at the end".into(),
                Some(word) => format!("a test is missing before '{word}'"),
            }),
            1 => Ok(all.remove(0)),
            _ => Ok(Expr::And(all)),
        }
    }

    fn one(&mut self) -> Result<Expr, String> {
        let Some(word) = self.peek() else { return Err("a test is missing at the end".into()) };
        self.at += 1;
        if matches!(word.as_str(), "!" | "-not" | "--not" | "(") {
            self.nested += 1;
            if self.nested > NESTED_MAX {
                return Err(format!("more than {NESTED_MAX} parentheses and '!' within each other"));
            }
        }
        let expr = match word.as_str() {
            "!" | "-not" | "--not" => Expr::Not(Box::new(self.one()?)),
            "(" => {
                let inner = self.any()?;
                if self.peek().as_deref() != Some(")") {
                    return Err("a ')' is missing".into());
                }
                self.at += 1;
                inner
            }
            ")" => return Err("a test is missing before ')'".into()),
            _ => return self.test(&word).map(Expr::Test),
        };
        self.nested -= 1;
        Ok(expr)
    }

    fn value(&mut self, of: &str) -> Result<&OsString, String> {
        self.at += 1;
        self.words.get(self.at - 1).ok_or_else(|| format!("'{of}' needs a value behind it"))
    }

    fn text(&mut self, of: &str) -> Result<String, String> {
        let value = self.value(of)?;
        value.to_str().map(str::to_owned).ok_or_else(|| format!("the value of '{of}' is no text"))
    }

    fn number(&mut self, of: &str) -> Result<usize, String> {
        let text = self.text(of)?;
        text.parse().map_err(|_| format!("'{of} {text}': write a number"))
    }

    /// `[+-]N` of things that have no unit.
    fn count(&mut self, of: &str) -> Result<Measure, String> {
        let text = self.text(of)?;
        let (sign, rest) = Measure::sign_of(&text);
        let number = match rest.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => rest.parse(),
        };
        let number = number.map_err(|_| format!("'{of} {text}': write a number, +NUMBER or -NUMBER"))?;
        Ok(Measure { sign, number, unit: 1, rounds_up: true })
    }

    /// `[+-]N`, or else a name: Lustre takes either with each of these tests.
    fn owner(
        &mut self,
        of: &str,
        number_of: impl Fn(&str) -> Result<u32, String>,
    ) -> Result<Measure, String> {
        let text = self.text(of)?;
        let (sign, digits) = Measure::sign_of(&text);
        match digits.parse() {
            Ok(number) => Ok(Measure { sign, number, unit: 1, rounds_up: true }),
            Err(_) => Ok(exactly(number_of(&text)?)),
        }
    }

    /// `[+-]N` with a letter, which `unit_of` knows.
    fn measured(
        &mut self,
        of: &str,
        right: &str,
        rounds_up: bool,
        unit_of: impl Fn(&str) -> Option<u64>,
    ) -> Result<Measure, String> {
        let text = self.text(of)?;
        let (sign, rest) = Measure::sign_of(&text);
        let letter = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, letter) = rest.split_at(letter);
        let parts = digits.parse().ok().zip(unit_of(letter));
        let (number, unit) = parts.ok_or_else(|| format!("'{of} {text}': write {right}"))?;
        Ok(Measure { sign, number, unit, rounds_up })
    }

    /// `[+-]N[kMGTPE]`, in bytes; without a letter in units of `default`.
    fn size(&mut self, of: &str, default: u64) -> Result<Measure, String> {
        let right = "bytes, or a number with k, M, G, T or P, such as +1G";
        self.measured(of, right, true, |letter| match letter {
            "" => Some(default),
            "c" => Some(1),
            "b" => Some(512),
            _ => format!("1{letter}").parse::<Size>().ok().map(|size| size.0),
        })
    }

    /// `[+-]N[smhdwy]`; without a letter in days.
    fn age(&mut self, of: &str, which: Which) -> Result<Test, String> {
        let right = "a number of days, or one with s, m, h, d, w or y, such as +7d";
        let measure = self.measured(of, right, false, |letter| {
            Some(match letter {
                "s" => SECOND,
                "m" => MINUTE,
                "h" => 60 * MINUTE,
                "" | "d" => DAY,
                "w" => 7 * DAY,
                "y" => 365 * DAY,
                _ => return None,
            })
        });
        Ok(Test::Age(which, measure?))
    }

    fn minutes(&mut self, of: &str, which: Which) -> Result<Test, String> {
        let measure = self.count(of)?;
        Ok(Test::Age(which, Measure { unit: MINUTE, ..measure }))
    }

    /// Later than the time of another file, or than a time that is written out.
    fn newer(&mut self, of: &str, own: Which, reference: Option<Which>) -> Result<Test, String> {
        let Some(reference) = reference else {
            let text = self.text(of)?;
            let time = Time::parse(&text).ok_or_else(|| {
                format!("'{of} {text}': write 2026-11-28, '2026-11-28 14:30:00' (UTC) or @SECONDS")
            })?;
            return Ok(Test::Newer(own, time));
        };
        let path = self.value(of)?;
        let stat = crate::walk::stat_of_path(path.as_ref())
            .map_err(|e| format!("'{of} {}': {e}", path.to_string_lossy()))?;
        let time = reference.of(&stat);
        time.map(|time| Test::Newer(own, time))
            .ok_or_else(|| format!("'{of}': its file system keeps no time of birth"))
    }

    fn list<T>(&mut self, of: &str, one: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, String> {
        let text = self.text(of)?;
        text.split(',')
            .map(one)
            .collect::<Option<Vec<T>>>()
            .ok_or_else(|| format!("'{of} {text}': write numbers with commas between them"))
    }

    fn shown(&mut self, word: &str, show: Show) -> Result<Test, String> {
        if let Some(before) = self.shown_by.replace(word.to_owned()) {
            return Err(format!("'{before}' and '{word}': results are shown in one way"));
        }
        if self.nested > 0 {
            return Err(format!("'{word}' is for all results: write it outside of parentheses, without '!'"));
        }
        self.query.show = show;
        Ok(Test::True)
    }

    fn test(&mut self, word: &str) -> Result<Test, String> {
        let bare = word.strip_prefix("--").or_else(|| word.strip_prefix('-')).unwrap_or("");
        Ok(match bare {
            "true" => Test::True,
            "false" => Test::False,
            "name" | "n" => Test::Name(Glob::new(self.value(word)?.as_bytes())),
            "iname" => Test::Name(Glob::folding_case(self.value(word)?.as_bytes())),
            "path" | "wholename" => Test::Path(Glob::new(self.value(word)?.as_bytes())),
            "ipath" => Test::Path(Glob::folding_case(self.value(word)?.as_bytes())),
            "type" | "t" => Test::Kinds(self.kinds(word)?),
            "empty" => Test::Empty,
            "size" | "s" => Test::Size(self.size(word, 1)?),
            "blocks" | "b" => Test::Blocks(self.size(word, 512)?),
            "links" => Test::Links(self.count(word)?),
            "inum" | "fid" => Test::Inode(self.count(word)?),
            "uid" | "u" | "user" | "U" => Test::Uid(self.owner(word, uid_of)?),
            "gid" | "g" | "group" | "G" => Test::Gid(self.owner(word, gid_of)?),
            "nouser" => Test::NoUser,
            "nogroup" => Test::NoGroup,
            "perm" => Test::Perm(Perm::parse(&self.text(word)?)?),
            "atime" | "A" => self.age(word, Which::Access)?,
            "ctime" | "C" => self.age(word, Which::Change)?,
            "mtime" | "M" => self.age(word, Which::Content)?,
            "btime" | "B" => self.age(word, Which::Birth)?,
            "amin" => self.minutes(word, Which::Access)?,
            "cmin" => self.minutes(word, Which::Change)?,
            "mmin" => self.minutes(word, Which::Content)?,
            "bmin" => self.minutes(word, Which::Birth)?,
            "newer" => self.newer(word, Which::Content, Some(Which::Content))?,
            "anewer" => self.newer(word, Which::Access, Some(Which::Content))?,
            "cnewer" => self.newer(word, Which::Change, Some(Which::Content))?,
            _ if bare.len() == 7 && bare.starts_with("newer") => {
                let letters = bare.as_bytes();
                let (own, reference) = (which_of(letters[5]), which_of(letters[6]));
                match (own, reference) {
                    (Some(own), reference) if reference.is_some() || letters[6] == b't' => {
                        self.newer(word, own, reference)?
                    }
                    _ => {
                        return Err(format!(
                            "'{word}': behind -newer stand two of a, B, c, m; the second may be t"
                        ));
                    }
                }
            }
            "stripe-count" | "c" => Test::StripeCount(self.count(word)?),
            "stripe-size" | "S" => Test::StripeSize(self.size(word, 1)?),
            "stripe-index" | "i" => Test::StripeIndex(self.list(word, |one| one.parse().ok())?),
            "ost" | "O" => Test::Ost(self.list(word, ost_of)?),
            "inline" => Test::Inline,
            "maxdepth" | "D" => {
                self.query.depth_max = self.number(word)?;
                Test::True
            }
            "mindepth" => {
                self.query.depth_min = self.number(word)?;
                Test::True
            }
            "threads" => {
                self.query.threads = self.number(word)?;
                if !(1..=THREADS_MAX).contains(&self.query.threads) {
                    return Err(format!("'{word}': write a number from 1 to {THREADS_MAX}"));
                }
                Test::True
            }
            "xdev" | "mount" => Test::True,
            "cross" => {
                self.query.crosses = true;
                Test::True
            }
            "lazy" => {
                self.query.is_lazy = true;
                Test::True
            }
            "print" | "p" => self.shown(word, Show::lines())?,
            "print0" | "0" => self.shown(word, Show::nul())?,
            "ls" => self.shown(word, Show::listing())?,
            "json" | "j" => self.shown(word, Show::json())?,
            "printf" => {
                let show = Show::format(self.value(word)?.as_bytes())?;
                self.shown(word, show)?
            }
            _ => return Err(format!("'{word}' is no test")),
        })
    }

    fn kinds(&mut self, of: &str) -> Result<Vec<Kind>, String> {
        let text = self.text(of)?;
        let one = |word: &str| {
            Kind::ALL.iter().find(|(_, letter)| word == letter.to_string()).map(|(kind, _)| *kind)
        };
        text.split(',').map(one).collect::<Option<Vec<Kind>>>().ok_or_else(|| {
            format!("'{of} {text}': write f, d, l, p, s, c or b, several with commas between them")
        })
    }
}

fn exactly(number: u32) -> Measure {
    Measure { sign: Sign::Same, number: number.into(), unit: 1, rounds_up: true }
}

fn which_of(letter: u8) -> Option<Which> {
    Some(match letter {
        b'a' => Which::Access,
        b'c' => Which::Change,
        b'm' => Which::Content,
        b'B' => Which::Birth,
        _ => return None,
    })
}

/// `3`, or a name such as `stria-OST0003` with hexadecimal digits.
fn ost_of(word: &str) -> Option<u32> {
    let name = word.strip_suffix("_UUID").unwrap_or(word);
    match name.rfind("OST") {
        Some(at) => u32::from_str_radix(&name[at + 3..], 16).ok(),
        None => name.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn paths_come_first_and_tests_combine() {
        let query = parse(&words("a b ( -name x -o ! --type d ) -size +1G -D 3 -0")).expect("it is right");
        assert_eq!(query.paths, ["a", "b"]);
        assert_eq!((query.depth_max, query.depth_min), (3, 0));
        let Expr::And(all) = query.expr else { panic!("{:?}", query.expr) };
        assert!(matches!(all[0], Expr::Or(ref any) if any.len() == 2), "{all:?}");
        assert!(matches!(all[1], Expr::Test(Test::Size(m)) if m.unit == 1 << 30 && m.sign == Sign::More));
        assert_eq!(parse(&[]).expect("everything here").paths, ["."]);
    }

    #[test]
    fn newer_takes_the_time_of_a_symlink_itself() {
        let dir = std::env::temp_dir().join(format!("stria-newer-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let link = dir.join("link");
        std::os::unix::fs::symlink(dir.join("missing"), &link).expect("a link");
        let query = parse(&["-newer".into(), link.clone().into()]).expect("its target is not looked at");
        let Expr::Test(Test::Newer(_, time)) = query.expr else { panic!("{:?}", query.expr) };
        let about = std::fs::symlink_metadata(&link).expect("the link");
        assert_eq!(time, about.modified().expect("a time").into());
        std::fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn owners_have_names_or_numbers_with_each_test() {
        let measure = |line: &str| match parse(&words(line)).expect("it is right").expr {
            Expr::Test(Test::Uid(m) | Test::Gid(m)) => (m.sign, m.number),
            other => panic!("{other:?}"),
        };
        for test in ["-u", "-U", "--uid", "--user", "-g", "-G", "--gid", "--group"] {
            assert_eq!(measure(&format!("{test} root")), (Sign::Same, 0), "{test}");
            assert_eq!(measure(&format!("{test} +1000")), (Sign::More, 1000), "{test}");
        }
        assert!(parse(&words("-u nobody-of-that-name")).is_err_and(|why| why.contains("knows no user")));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, part) in [
            ("-nam x", "'-nam' is no test"),
            ("-name", "needs a value"),
            ("( -name x", "')' is missing"),
            ("-name x )", "'(' before"),
            ("-o -name x", "missing before '-o'"),
            ("!", "missing at the end"),
            ("-size 3X", "'-size 3X'"),
            ("-mtime x", "days"),
            ("-type z", "write f, d"),
            ("-perm 9", "is no mode"),
            ("-newermt yesterday", "2026-11-28"),
            ("-newerxy f", "two of"),
            ("-threads 0", "from 1"),
            ("-ost x", "numbers"),
            ("-print -ls", "one way"),
            ("! -print", "for all results"),
            ("-name x -o -print", "into parentheses"),
            ("-mindepth 3 -maxdepth 2", "above"),
            ("-user nobody-has-this", "no user"),
            ("-printf %q", "%q"),
        ] {
            let why = parse(&words(line)).expect_err(line);
            assert!(why.contains(part), "{line}: {why}");
        }
        assert!(parse(&words(&"! ".repeat(100_000))).is_err());
    }

    #[test]
    fn osts_have_numbers_or_names() {
        assert_eq!(
            (ost_of("12"), ost_of("stria-OST000a"), ost_of("fs-OST0010_UUID")),
            (Some(12), Some(10), Some(16))
        );
        assert_eq!(ost_of("OSTx"), None);
    }
}
