//! `stria getstripe`: how files are striped, in the words of `lfs getstripe` or as YAML. A directory shows what it hands down,
//! then its files.

use std::fmt::Write;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cmd::setstripe::LAYOUT;
use crate::exit::{Exit, Failure};
use crate::{reach, xattr};

/// Names the attribute that has a file's layout as YAML.
const LAYOUT_YAML: &str = "stria.layout.yaml";

/// Show the striping of files; of a directory, what new files in it get, and the striping of those in it.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: stria getstripe -y /mnt/stria/file\nExample: stria getstripe -d /mnt/stria/dir"
)]
pub struct GetStripe {
    /// YAML.
    #[arg(short = 'y', long, conflicts_with_all = ["count", "size", "index"])]
    yaml: bool,
    /// Of a directory only what it hands down, not its files.
    #[arg(short = 'd', long)]
    directory: bool,
    /// Only the stripe count (of a progressive file: of the last part with content).
    #[arg(short = 'c', long = "stripe-count")]
    count: bool,
    /// Only the stripe size in bytes.
    #[arg(short = 'S', long = "stripe-size")]
    size: bool,
    /// Only the index of the first OST.
    #[arg(short = 'i', long = "stripe-index")]
    index: bool,
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

impl GetStripe {
    pub fn run(self) -> anyhow::Result<Exit> {
        for path in &self.paths {
            reach::mount_of(path)?;
            let about = path.metadata().map_err(|e| refused(path, e))?;
            if !about.is_dir() {
                out!("{}", self.of_file(path)?);
                continue;
            }
            out!("{}", self.of_directory(path)?);
            if !self.directory {
                for file in files_in(path).map_err(|e| refused(path, e))? {
                    out!("{}", self.of_file(&file)?);
                }
            }
        }
        Ok(Exit::Done)
    }

    fn of_file(&self, path: &Path) -> Result<String, Failure> {
        let read = |name| xattr::get(path, name).map(|v| String::from_utf8_lossy(&v).into_owned());
        let text = read(if self.yaml { LAYOUT_YAML } else { LAYOUT }).map_err(|e| refused(path, e))?;
        // The file system knows no path of the user's: its first line has the fid in its place.
        let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
        if self.yaml {
            return Ok(format!("{}{rest}", yaml_path(path)));
        }
        if !(self.count || self.size || self.index) {
            return Ok(format!("{}\n{rest}", path.display()));
        }
        let fields = Fields::of(rest);
        let asked = [(self.count, fields.count), (self.size, fields.size), (self.index, fields.index)];
        let shown: Vec<String> =
            asked.into_iter().filter(|(is_asked, _)| *is_asked).map(|(_, value)| value).collect();
        Ok(shown.join(" ") + "\n")
    }

    fn of_directory(&self, path: &Path) -> Result<String, Failure> {
        let words = xattr::find(path, LAYOUT).map_err(|e| refused(path, e))?;
        let words = words.map_or("default".to_owned(), |w| String::from_utf8_lossy(&w).into_owned());
        Ok(match self.yaml {
            true => format!("{}new_files: \"{words}\"\n", yaml_path(path)),
            false => format!("{}\nnew files: {words}\n", path.display()),
        })
    }
}

/// Regular files of a directory in the order of their names.
fn files_in(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// `path: "…"`; names that are not UTF-8 have their bytes escaped.
fn yaml_path(path: &Path) -> String {
    let mut out = String::from("path: \"");
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => out.extend(['\\', c]),
                c if c.is_control() => write!(out, "\\U{:08x}", c as u32).expect("a String takes any text"),
                c => out.push(c),
            }
        }
        chunk.invalid().iter().for_each(|b| write!(out, "\\\\x{b:02x}").expect("a String takes any text"));
    }
    out + "\"\n"
}

/// Single values out of the text form.
#[derive(Debug, PartialEq, Eq)]
struct Fields {
    count: String,
    size: String,
    index: String,
}

impl Fields {
    /// Of the last component with content, or the first. An inline file has no stripes.
    fn of(text: &str) -> Fields {
        let mut found = Fields { count: "0".into(), size: "0".into(), index: "-1".into() };
        let (mut components, mut is_init) = (0, true);
        for line in text.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            match name.trim() {
                "lcme_flags" => {
                    is_init = value == "init";
                    components += 1;
                }
                _ if components > 1 && !is_init => {}
                "lmm_stripe_count" => found.count = value.into(),
                "lmm_stripe_size" => found.size = value.into(),
                "lmm_stripe_offset" => found.index = value.into(),
                _ => {}
            }
        }
        found
    }
}

fn refused(path: &Path, e: io::Error) -> Failure {
    Failure::failed(path.display(), e, "check the path; `stria status` shows how the file system is")
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::show::{Shown, text};
    use types::{Component, Fid, Generation, Layout, MirrorId};

    fn component(end: u64, first: u32, count: u32, written: u64) -> Component {
        let mirrors = (first..first + count).map(MirrorId).collect();
        Component { end, stripe_size: 1 << 20, mirrors, written: vec![written] }
    }

    fn fields(components: Vec<Component>) -> Fields {
        let layout = Layout { generation: Generation(1), components };
        let index_of = |m: MirrorId| Some(m.0);
        let shown =
            Shown { path: "0x20", fid: Fid(32), layout: Some(&layout), inline_max: 0, index_of: &index_of };
        Fields::of(&text(shown))
    }

    #[test]
    fn single_values_are_those_of_the_last_part_with_content() {
        let want = |count: &str, index: &str| Fields {
            count: count.into(),
            size: "1048576".into(),
            index: index.into(),
        };
        assert_eq!(fields(vec![component(u64::MAX, 2, 3, 1)]), want("3", "2"));
        let progressive = |second| {
            vec![component(1 << 26, 1, 1, 1), component(1 << 30, 2, 4, second), component(u64::MAX, 7, 9, 0)]
        };
        assert_eq!(fields(progressive(0)), want("1", "1"));
        assert_eq!(fields(progressive(5)), want("4", "2"));
        assert_eq!(fields(vec![component(1 << 26, 1, 1, 0), component(u64::MAX, 2, 4, 0)]), want("1", "1"));
        assert_eq!(
            Fields::of("lmm_pattern: inline\n"),
            Fields { count: "0".into(), size: "0".into(), index: "-1".into() }
        );
    }

    #[test]
    fn paths_in_yaml_are_quoted() {
        use std::ffi::OsStr;
        let path = Path::new(OsStr::from_bytes(b"/a \"b\"\n\xff"));
        assert_eq!(yaml_path(path), "path: \"/a \\\"b\\\"\\U0000000a\\\\xff\"\n");
    }
}
