//! Options of `lfs` in the form of `stria`: those without an effect here are left out, others that Stria lacks are refused in one line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::exit::Failure;
use crate::mounts;
use crate::reach::Source;

/// An option of a command of `lfs` that needs more than to be passed on: its letter and its long name.
struct Special {
    verb: &'static str,
    letter: char,
    long: &'static str,
    does: Does,
}

/// The treatment of an option.
#[derive(Clone, Copy, Debug)]
enum Does {
    /// It changes nothing here: it is left out.
    Nothing,
    /// It takes a value, which may stand in the next word.
    Value,
    /// Why it is refused, and what to do.
    Refused(&'static str, &'static str),
}

const NO_POOLS: Does = Does::Refused("there are no pools", "leave it out");

const fn special(verb: &'static str, letter: char, long: &'static str, does: Does) -> Special {
    Special { verb, letter, long, does }
}

const SPECIAL: [Special; 13] = [
    // Both change how much is printed of each file; a script finds its lines in either.
    special("getstripe", 'q', "quiet", Does::Nothing),
    special("getstripe", 'v', "verbose", Does::Nothing),
    special("getstripe", 'p', "pool", NO_POOLS),
    special("setstripe", 'c', "stripe-count", Does::Value),
    special("setstripe", 'S', "stripe-size", Does::Value),
    special("setstripe", 'i', "stripe-index", Does::Value),
    special("setstripe", 'E', "component-end", Does::Value),
    special(
        "setstripe",
        'o',
        "ost",
        Does::Refused("Stria chooses the OSTs of a file", "give the first one with -i, and how many with -c"),
    ),
    special("setstripe", 'p', "pool", NO_POOLS),
    // A target that is down delays `stria df` by a bounded time only, and is shown.
    special("df", 'l', "lazy", Does::Nothing),
    special("df", 'v', "verbose", Does::Nothing),
    special("df", 'p', "pool", NO_POOLS),
    special("df", '\0', "mgs", Does::Value),
];

/// The words behind a verb, without the options that have no effect.
pub fn mended(verb: &str, words: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let of = |is_it: &dyn Fn(&Special) -> bool| {
        SPECIAL.iter().find(|o| o.verb == verb && is_it(o)).map(|o| o.does)
    };
    let refuse = |option: &str, why, next| Failure::unusable(format!("lfs {verb} {option}"), why, next);
    let (mut kept, mut words) = (Vec::new(), words.iter());
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default();
        if let Some(long) = text.strip_prefix("--").filter(|long| !long.is_empty()) {
            let (name, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            match of(&|o| o.long == name || (o.long == "ost" && name == "ost-list")) {
                Some(Does::Nothing) => continue,
                Some(Does::Refused(why, next)) => return Err(refuse(&format!("--{name}"), why, next)),
                Some(Does::Value) if value.is_none() => {
                    kept.push(word.clone());
                    kept.extend(words.next().cloned());
                    continue;
                }
                _ => {}
            }
        } else if let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            let (mut left, mut is_open) = (String::from("-"), false);
            for (at, letter) in letters.char_indices() {
                match of(&|o| o.letter == letter) {
                    Some(Does::Nothing) => {}
                    Some(Does::Refused(why, next)) => return Err(refuse(&format!("-{letter}"), why, next)),
                    // The rest of the word is its value, or the next word.
                    Some(Does::Value) => {
                        left += &letters[at..];
                        is_open = at + 1 == letters.len();
                        break;
                    }
                    None => left.push(letter),
                }
            }
            if left != "-" {
                kept.push(left.into());
            }
            if is_open {
                kept.extend(words.next().cloned());
            }
            continue;
        }
        kept.push(word.clone());
    }
    Ok(kept)
}

/// Mount points with the names of their file systems: all, or those of one file system.
pub fn mounts_named(fsname: Option<&str>) -> Vec<(PathBuf, String)> {
    let all = mounts::ours().into_iter();
    let all = all.filter_map(|mount| Some((mount.point, Source::parse(&mount.source).ok()?.fsname)));
    all.filter(|(_, name)| fsname.is_none_or(|fsname| name == fsname)).collect()
}

/// `lfs df FSNAME`, `lfs fid2path FSNAME FID`: the mount point in place of the name of a mounted file system.
pub fn with_mount(verb: &str, words: Vec<OsString>) -> Vec<OsString> {
    let is_named = |word: &OsString| {
        let text = word.to_str().unwrap_or("-");
        !text.starts_with('-') && !text.contains('/')
    };
    let place =
        |word: &OsString| mounts_named(word.to_str()).into_iter().next().map(|(point, _)| point.into());
    let mut has_place = !matches!(verb, "df" | "id2path");
    let each = |word: OsString| {
        if has_place || word.as_encoded_bytes().starts_with(b"-") {
            return word;
        }
        // Of `fid2path` the words behind are ids.
        has_place = verb == "id2path";
        is_named(&word).then(|| place(&word)).flatten().unwrap_or(word)
    };
    words.into_iter().map(each).collect()
}

/// The one line for an option that `stria` does not have. Other errors are told by clap, with its usage.
pub fn refused(verb: &str, ours: &str, error: &clap::Error) -> Option<Failure> {
    let strange = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(strange))) => strange,
        _ => return None,
    };
    let next = format!("`stria {ours} --help` shows those that it has");
    Some(Failure::unusable(format!("lfs {verb} {strange}"), "stria has no such option", next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(verb: &str, words: &str) -> String {
        let words: Vec<OsString> = words.split_whitespace().map(Into::into).collect();
        match mended(verb, &words) {
            Ok(kept) => kept.join(std::ffi::OsStr::new(" ")).to_string_lossy().into_owned(),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn options_without_an_effect_are_left_out_and_values_stay_with_theirs() {
        assert_eq!(line("getstripe", "-q --verbose -vr -c /m/q"), "-r -c /m/q");
        assert_eq!(line("df", "-lh -v --lazy /m"), "-h /m");
        assert_eq!(
            line("setstripe", "-c -1 -S1M -i 0 --stripe-count 2 /m/-o"),
            "-c -1 -S1M -i 0 --stripe-count 2 /m/-o"
        );
        assert_eq!(line("df", "--mgs 10.0.0.5@tcp -v"), "--mgs 10.0.0.5@tcp");
    }

    #[test]
    fn options_that_stria_lacks_are_refused_in_one_line() {
        assert_eq!(line("setstripe", "-p flash /m/d"), "lfs setstripe -p: there are no pools; leave it out");
        assert!(line("setstripe", "-o 1,2 /m/d").starts_with("lfs setstripe -o: Stria chooses"));
        assert!(
            line("setstripe", "--ost-list=1,2 /m/d").starts_with("lfs setstripe --ost-list: Stria chooses")
        );
        use clap::Parser;
        let error =
            crate::cmd::Cli::try_parse_from(["stria", "getstripe", "-g", "/m"]).expect_err("no such option");
        let refused = refused("getstripe", "getstripe", &error).expect("one line").to_string();
        assert_eq!(
            refused,
            "lfs getstripe -g: stria has no such option; `stria getstripe --help` shows those that it has"
        );
    }
}
