//! `stria lfs`, or this binary under the name `lfs`: commands of Lustre's users, as `stria` has them.

mod check;
mod quota;
mod words;

use std::ffi::OsString;
use std::path::Path;

use clap::{Args, Parser};

use self::quota::Quota;
use crate::cmd::Cli;
use crate::exit::{Exit, Failure};
use crate::reach;

/// Lustre's `lfs`, for scripts and hands that know it: df, find, getstripe, setstripe, fid2path, path2fid, quota and check, with the columns and options
/// that they have there. A link named `lfs` to this program does the same. A file id is one number here. In getstripe's table of objects the
/// number of an object is that of its file.
///
/// Accepted without an effect: getstripe -q and -v, df -l and -v. `getstripe -m` prints 0, the only MDT. A name of a mounted file system stands
/// for its mount in df and fid2path; quota without a path is of each mount. Any other option that Stria lacks is refused in one line.
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    override_usage = "stria lfs <df|find|getstripe|setstripe|fid2path|path2fid|quota|check> [OPTIONS] [PATH]...",
    after_help = "Example: ln -s /usr/bin/stria /usr/local/bin/lfs
Example: stria lfs df -h /mnt/stria
Example: stria lfs check servers
Example: stria lfs find /mnt/stria -type f --ost stria-OST0003_UUID"
)]
pub struct Lfs {
    /// As of `lfs`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Verbs that both have, with those that have another name here.
const VERBS: [(&str, &str); 6] = [
    ("df", "df"),
    ("find", "find"),
    ("getstripe", "getstripe"),
    ("setstripe", "setstripe"),
    ("fid2path", "id2path"),
    ("path2fid", "path2id"),
];

impl Lfs {
    pub fn run(self) -> anyhow::Result<Exit> {
        let verb = self.words.first().map_or("".into(), |word| word.to_string_lossy());
        match &*verb {
            "quota" => {
                return parsed(Quota::try_parse_from(&self.words), ("quota", "lfs quota"))?.run();
            }
            "check" => return check::run(&self.words[1..]),
            "getstripe" if self.words[1..].iter().any(|word| word == "-m" || word == "--mdt-index") => {
                return show_mdts(&self.words[1..]);
            }
            _ => {}
        }
        let words = translated(&self.words)?;
        let ours = words.get(1).map_or("".into(), |word| word.to_string_lossy().into_owned());
        parsed(Cli::try_parse_from(words), (&verb, &ours))?.command.run()
    }
}

/// The arguments as clap reads them. An option that Stria lacks is refused in one line; help and other errors are told by clap.
fn parsed<T>(read: Result<T, clap::Error>, (verb, ours): (&str, &str)) -> Result<T, Failure> {
    match read {
        Ok(read) => Ok(read),
        Err(error) => Err(words::refused(verb, ours, &error).unwrap_or_else(|| error.exit())),
    }
}

/// `lfs getstripe -m`: the MDT of each path, of which there is one.
fn show_mdts(words: &[OsString]) -> anyhow::Result<Exit> {
    for path in words.iter().filter(|word| !word.as_encoded_bytes().starts_with(b"-")) {
        reach::mount_of(Path::new(path))?;
        std::fs::symlink_metadata(path)
            .map_err(|e| Failure::failed(path.display(), e, "check the path and its permissions"))?;
        outln!("0");
    }
    Ok(Exit::Done)
}

/// The command line of `stria` for words behind `lfs`.
fn translated(words: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let verb = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let next = "give df, find, getstripe, setstripe, fid2path, path2fid, quota or check";
    let ours = match verb.as_str() {
        "" | "help" | "-h" | "--help" => return Ok(["stria", "help", "lfs"].map(Into::into).to_vec()),
        "--version" | "-v" => return Ok(["stria", "version"].map(Into::into).to_vec()),
        "setquota" => {
            let next = "`stria lfs quota` shows what a user or a group uses";
            return Err(Failure::unusable("lfs setquota", "there are no quotas", next));
        }
        _ => VERBS.iter().find(|(theirs, _)| *theirs == verb).map(|(_, ours)| *ours),
    };
    let ours =
        ours.ok_or_else(|| Failure::unusable(format!("lfs {verb}"), "stria has no such command", next))?;
    let rest = words::with_mount(ours, words::mended(&verb, &words[1..])?);
    let rest = rest.into_iter().map(|word| match (ours, word.to_str()) {
        // `[0x1a]`, as `stria changelog read --lustre` writes it.
        ("id2path", Some(text)) => text.trim_matches(['[', ']']).into(),
        _ => word,
    });
    Ok(["stria", ours].map(OsString::from).into_iter().chain(rest).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &str) -> String {
        let words: Vec<OsString> = words.split_whitespace().map(Into::into).collect();
        match translated(&words) {
            Ok(ours) => ours.join(std::ffi::OsStr::new(" ")).to_string_lossy().into_owned(),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn commands_of_lustre_are_those_of_stria() {
        assert_eq!(line("df -h /m"), "stria df -h /m");
        assert_eq!(line("find /m -type f --ost 3"), "stria find /m -type f --ost 3");
        assert_eq!(line("fid2path /m [0x1a]"), "stria id2path /m 0x1a");
        assert_eq!(line("path2fid /m/a"), "stria path2id /m/a");
        assert_eq!(line("getstripe -v -r /m"), "stria getstripe -r /m");
        assert!(line("setquota -u me /m").contains("there are no quotas"));
        assert!(line("migrate /m/a").contains("no such command"));
        let words = ["lfs", "getstripe", "-d", "/m"].map(OsString::from).to_vec();
        assert_eq!(
            crate::cmd::arguments(words)[..4],
            ["stria", "lfs", "getstripe", "-d"].map(OsString::from)
        );
    }
}
