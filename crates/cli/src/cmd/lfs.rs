//! `stria lfs`, or this binary under the name `lfs`: commands of Lustre's users, as `stria` has them.

mod quota;

use std::ffi::OsString;

use clap::{Args, Parser};

use self::quota::Quota;
use crate::cmd::Cli;
use crate::exit::{Exit, Failure};

/// Lustre's `lfs`, for scripts and hands that know it: df, find, getstripe, setstripe, fid2path, path2fid, quota and check, with the columns and options
/// that they have there. A link named `lfs` to this program does the same. A file id is one number here.
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    override_usage = "stria lfs <df|find|getstripe|setstripe|fid2path|path2fid|quota|check> [OPTIONS] [PATH]...",
    after_help = "Example: ln -s /usr/bin/stria /usr/local/bin/lfs
Example: stria lfs df -h /mnt/stria
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
        if self.words.first().is_some_and(|word| word == "quota") {
            return Quota::parse_from(&self.words).run();
        }
        Cli::parse_from(translated(&self.words)?).command.run()
    }
}

/// The command line of `stria` for words behind `lfs`.
fn translated(words: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let verb = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let next = "give df, find, getstripe, setstripe, fid2path, path2fid, quota or check";
    let ours = match verb.as_str() {
        "" | "help" | "-h" | "--help" => return Ok(["stria", "help", "lfs"].map(Into::into).to_vec()),
        "--version" | "-v" => return Ok(["stria", "version"].map(Into::into).to_vec()),
        // `check osts`, `check mds`, `check servers`: all of them in one table.
        "check" => return Ok(["stria", "status"].map(Into::into).to_vec()),
        "setquota" => {
            let next = "`stria lfs quota` shows what a user or a group uses";
            return Err(Failure::unusable("lfs setquota", "there are no quotas", next));
        }
        _ => VERBS.iter().find(|(theirs, _)| *theirs == verb).map(|(_, ours)| *ours),
    };
    let ours =
        ours.ok_or_else(|| Failure::unusable(format!("lfs {verb}"), "stria has no such command", next))?;
    let rest = words[1..].iter().map(|word| match (ours, word.to_str()) {
        // `[0x1a]`, as `stria changelog read --lustre` writes it.
        ("id2path", Some(text)) => text.trim_matches(['[', ']']).into(),
        _ => word.clone(),
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
        assert_eq!(line("check servers"), "stria status");
        assert!(line("setquota -u me /m").contains("there are no quotas"));
        assert!(line("migrate /m/a").contains("no such command"));
        let words = ["lfs", "getstripe", "-d", "/m"].map(OsString::from).to_vec();
        assert_eq!(
            crate::cmd::arguments(words)[..4],
            ["stria", "lfs", "getstripe", "-d"].map(OsString::from)
        );
    }
}
