//! `stria setstripe`: the striping of a new file, or of future files in a directory. Options and their order as in `lfs`.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, Command, FromArgMatches};
use wire::meta::{StripeComponent, StripeSpec};

use crate::exit::{Exit, Failure};
use crate::{reach, xattr};

/// The attribute that sets striping.
pub const LAYOUT: &str = "stria.layout";

/// Set the striping of an empty file (made if it does not exist) or of a directory, whose new files inherit it. More stripes than there
/// are OSTs are taken, with a warning.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria setstripe -c 4 -S 1M /mnt/stria/results            four stripes of 1 MiB
Example: stria setstripe -E 64M -c 1 -E 1G -c 4 -E -1 -c -1 DIR   progressive: each -E begins a part that ends there
Example: stria setstripe -d DIR                                   back to the default")]
struct Letters {
    /// Stripes; 0 = default, -1 = all OSTs.
    #[arg(short = 'c', long, value_name = "N", allow_hyphen_values = true)]
    stripe_count: Vec<String>,
    /// Bytes per stripe before the next one; a power of two from 64K.
    #[arg(short = 'S', long, value_name = "SIZE")]
    stripe_size: Vec<String>,
    /// Index of the first OST; -1 = any.
    #[arg(short = 'i', long, value_name = "INDEX", allow_hyphen_values = true)]
    stripe_index: Vec<String>,
    /// Offset where a component ends; -1 or eof = end of the file. Later letters belong to it.
    #[arg(short = 'E', long, value_name = "END", allow_hyphen_values = true)]
    component_end: Vec<String>,
    /// Files up to this size stay in the MDT; 0 = none.
    #[arg(long, value_name = "SIZE")]
    inline: Vec<String>,
    /// Delete the striping: back to the default of the file system.
    #[arg(short = 'd', long, conflicts_with_all = ["stripe_count", "stripe_size", "stripe_index", "component_end", "inline"])]
    delete: bool,
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// The options in the order in which they were given, which matters with `-E`.
#[derive(Debug)]
pub struct SetStripe {
    words: Vec<String>,
    delete: bool,
    paths: Vec<PathBuf>,
}

impl FromArgMatches for SetStripe {
    fn from_arg_matches(matches: &ArgMatches) -> Result<SetStripe, clap::Error> {
        let letters = Letters::from_arg_matches(matches)?;
        let named = [
            ("stripe_count", "-c", letters.stripe_count),
            ("stripe_size", "-S", letters.stripe_size),
            ("stripe_index", "-i", letters.stripe_index),
            ("component_end", "-E", letters.component_end),
            ("inline", "--inline", letters.inline),
        ];
        let mut placed = Vec::new();
        for (id, letter, values) in named {
            let places = matches.indices_of(id).into_iter().flatten();
            placed.extend(places.zip(values).map(|(place, value)| (place, letter, value)));
        }
        placed.sort();
        let words = placed.into_iter().flat_map(|(_, letter, value)| [letter.to_owned(), value]).collect();
        Ok(SetStripe { words, delete: letters.delete, paths: letters.paths })
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = SetStripe::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for SetStripe {
    fn augment_args(command: Command) -> Command {
        Letters::augment_args(command)
    }
    fn augment_args_for_update(command: Command) -> Command {
        Letters::augment_args_for_update(command)
    }
}

impl SetStripe {
    pub fn run(self) -> anyhow::Result<Exit> {
        let spec = match self.delete {
            true => None,
            false => Some(
                plan::stripe::parse_words(self.words.iter().map(String::as_str))
                    .map_err(|e| Failure::unusable("setstripe", e, "see `stria setstripe --help`"))?,
            ),
        };
        let mut warned = false;
        for path in &self.paths {
            // Asks the parent, since the file may not exist yet.
            let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let (point, _) = reach::mount_of(if path.exists() { path } else { parent })?;
            if let (Some(spec), Some(osts)) = (&spec, osts_of(&point)) {
                check_start(spec, &osts)?;
                // Once: the warning is the same for each path.
                if let Some(warning) = fewer(spec, osts.len()).filter(|_| !warned) {
                    eprintln!("stria: setstripe: {warning}");
                    warned = true;
                }
            }
            match self.delete {
                true => xattr::remove(path, LAYOUT).map_err(|e| refused(path, e))?,
                false => set(path, &self.words.join(" ")).map_err(|e| refused(path, e))?,
            }
        }
        Ok(Exit::Done)
    }
}

/// The indexes of the OSTs; `None` if the mount's version does not report them.
fn osts_of(point: &Path) -> Option<Vec<u64>> {
    let json = xattr::find(point, "stria.layout.json").ok()??;
    let answer: serde_json::Value = serde_json::from_slice(&json).ok()?;
    answer["ost_indexes"].as_array()?.iter().map(serde_json::Value::as_u64).collect()
}

fn check_start(spec: &StripeSpec, osts: &[u64]) -> Result<(), Failure> {
    let is_there = |c: &StripeComponent| c.start == plan::stripe::ALL || osts.contains(&c.start.into());
    match spec.components.iter().find(|c| !is_there(c)) {
        None => Ok(()),
        Some(c) => {
            let next = "give one that there is, or -1 for any; `stria df` lists the OSTs";
            let why = format!("there are {} OSTs, and none of this index", osts.len());
            Err(Failure::unusable(format!("setstripe -i {}", c.start), why, next))
        }
    }
}

/// As in `lfs`, more stripes than OSTs may be asked for: directories are set up for a future size of the file system. Files get as many as
/// there are, with a warning.
fn fewer(spec: &StripeSpec, osts: usize) -> Option<String> {
    let too_many =
        |c: &&StripeComponent| c.stripe_count != plan::stripe::ALL && usize::from(c.stripe_count) > osts;
    spec.components.iter().filter(too_many).map(|c| c.stripe_count).max().map(|count| {
        format!("-c {count} is more than the {osts} OSTs that there are: files get {osts} stripes, and more once there are more OSTs")
    })
}

/// Makes a missing file, as `lfs` does; removes it again if it cannot be striped.
fn set(path: &Path, words: &str) -> std::io::Result<()> {
    let made = match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(_) => true,
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => false,
        Err(e) => return Err(e),
    };
    let result = xattr::set(path, LAYOUT, words.as_bytes());
    if made && result.is_err() {
        let _ = std::fs::remove_file(path);
    }
    result
}

fn refused(path: &Path, e: std::io::Error) -> Failure {
    Failure::failed(
        path.display(),
        e,
        "only directories and files without content can be striped anew, by their owner",
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::cmd::{Cli, Command};

    fn words(line: &str) -> Vec<String> {
        match Cli::try_parse_from(line.split_whitespace()).unwrap().command {
            Command::Setstripe(s) => s.words,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn more_stripes_than_osts_are_told_of_and_an_ost_that_is_not_there_is_refused() {
        let told = |words: &str| super::fewer(&plan::stripe::parse(words).unwrap(), 4);
        for quiet in ["-c 4", "-c -1", "-c 0", "-S 1M", "-E 64M -c 1 -E -1 -c -1"] {
            assert_eq!(told(quiet), None, "{quiet}");
        }
        for loud in ["-c 9", "-E 64M -c 5 -E -1 -c 9"] {
            let said = told(loud).unwrap_or_default();
            assert!(said.contains("-c 9") && said.contains("4 OSTs"), "{loud}: {said}");
        }
        // OST 2 was removed.
        let start = |words: &str| super::check_start(&plan::stripe::parse(words).unwrap(), &[0, 1, 3, 7]);
        assert!(
            start("-i 7").is_ok()
                && start("-i 2").is_err()
                && start("-i 3").is_ok()
                && start("-i -1").is_ok()
                && start("-c 2").is_ok()
        );
        assert!(start("-i 4").unwrap_err().to_string().contains("there are 4 OSTs"));
    }

    #[test]
    fn letters_keep_their_order_so_that_each_belongs_to_its_component() {
        let line =
            "stria setstripe -E 64M -c 1 -S 1M --component-end=1G -c4 -E -1 -c -1 -i 2 --inline 0 /m/f";
        let want = "-E 64M -c 1 -S 1M -E 1G -c 4 -E -1 -c -1 -i 2 --inline 0";
        assert_eq!(words(line).join(" "), want);
        assert!(plan::stripe::parse(want).is_ok());
        assert!(words("stria setstripe -d /m/f").is_empty());
    }
}
