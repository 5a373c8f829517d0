//! `stria getstripe`: the striping of files, in the format of `lfs getstripe`, as YAML or JSON. Of a directory it shows the inherited
//! striping, then its files.

use std::fmt::Write;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use find::{Part, Striping};
use serde::Serialize;

use crate::cmd::setstripe::LAYOUT;
use crate::exit::{Exit, Failure};
use crate::{reach, xattr};

/// Show the striping of files; of a directory, what new files in it get, and the striping of those in it. A file whose content is
/// still inline shows what it gets when it grows.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: stria getstripe -y /mnt/stria/file\nExample: stria getstripe -d -c /mnt/stria/dir"
)]
pub struct GetStripe {
    /// YAML.
    #[arg(short = 'y', long, conflicts_with_all = ["count", "size", "index", "json"])]
    yaml: bool,
    /// JSON output.
    #[arg(short = 'j', long, conflicts_with_all = ["count", "size", "index"])]
    json: bool,
    /// Of a directory only what it hands down, not its files.
    #[arg(short = 'd', long)]
    directory: bool,
    /// Of a directory all that is below it, and not its files alone.
    #[arg(short = 'r', long)]
    recursive: bool,
    /// Only the stripe count; -1: all OSTs (of a progressive file: of the last part with content, or of the first).
    #[arg(short = 'c', long = "stripe-count")]
    count: bool,
    /// Only the stripe size in bytes.
    #[arg(short = 'S', long = "stripe-size")]
    size: bool,
    /// Only the index of the first OST; -1: any.
    #[arg(short = 'i', long = "stripe-index")]
    index: bool,
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// The striping of one path.
#[derive(Debug, Serialize)]
struct Shown {
    path: String,
    fid: String,
    kind: &'static str,
    /// True: the content is in the MDT, and `components` is the layout after the inline-to-object migration.
    inline: bool,
    /// The options of `setstripe`, on this path or on the directory in which it was made; null: the default.
    set: Option<String>,
    inline_max: u32,
    /// OSTs of the file system.
    osts: u32,
    /// Generation of the layout; null: there are no objects.
    generation: Option<u32>,
    components: Vec<Component>,
}

#[derive(Debug, Serialize)]
struct Component {
    start: u64,
    /// Null: the end of the file.
    end: Option<u64>,
    /// -1: all OSTs.
    stripe_count: i32,
    stripe_size: u32,
    /// -1: any; null: the OST was removed.
    stripe_index: Option<i64>,
    objects: Vec<Object>,
}

#[derive(Debug, Serialize)]
struct Object {
    ost: Option<u32>,
    object: String,
    written: bool,
}

impl GetStripe {
    pub fn run(self) -> anyhow::Result<Exit> {
        let mut all = Vec::new();
        for path in &self.paths {
            reach::mount_of(path)?;
            let about = path.metadata().map_err(|e| refused(path, e))?;
            self.show(path, &mut all)?;
            if about.is_dir() {
                self.show_below(path, &mut all)?;
            }
        }
        if self.json {
            outln!("{}", serde_json::to_string_pretty(&all)?);
        }
        Ok(Exit::Done)
    }

    fn show_below(&self, dir: &Path, all: &mut Vec<Shown>) -> anyhow::Result<()> {
        if self.directory && !self.recursive {
            return Ok(());
        }
        for (path, is_dir) in entries_in(dir).map_err(|e| refused(dir, e))? {
            if is_dir && self.recursive {
                self.show(&path, all)?;
                self.show_below(&path, all)?;
            } else if !is_dir && !self.directory {
                self.show(&path, all)?;
            }
        }
        Ok(())
    }

    fn show(&self, path: &Path, all: &mut Vec<Shown>) -> anyhow::Result<()> {
        if self.json || self.count || self.size || self.index {
            let answer = answer_of(path)?;
            match self.json {
                true => all.push(shown(answer, path)),
                false => outln!("{}", self.fields(&answer)),
            }
            return Ok(());
        }
        let form = if self.yaml { "yaml" } else { "text" };
        let text = read(path, form)?;
        // The file system does not know the user's path: its first line has the fid instead.
        let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
        match self.yaml {
            true => out!("{}{rest}", yaml_path(path)),
            false => out!("{}\n{rest}", path.display()),
        }
        Ok(())
    }

    fn fields(&self, answer: &Striping) -> String {
        let part = answer.part_in_use().expect("a layout has a component");
        let index = part.stripe_index.map_or("unknown".into(), |i| i.to_string());
        let asked = [
            (self.count, part.stripe_count.to_string()),
            (self.size, part.stripe_size.to_string()),
            (self.index, index),
        ];
        let shown: Vec<String> =
            asked.into_iter().filter(|(is_asked, _)| *is_asked).map(|(_, value)| value).collect();
        shown.join(" ")
    }
}

/// Reads one of the attributes that the mount generates.
fn read(path: &Path, form: &str) -> anyhow::Result<String> {
    let value = xattr::find(path, &format!("{LAYOUT}.{form}")).map_err(|e| refused(path, e))?;
    let value = value.ok_or_else(|| {
        let next = "it is of an older version: mount again with this one";
        Failure::unusable(path.display(), "its mount does not show striping in this form", next)
    })?;
    Ok(String::from_utf8_lossy(&value).into_owned())
}

fn answer_of(path: &Path) -> anyhow::Result<Striping> {
    serde_json::from_str(&read(path, "json")?).context("read the mount's answer")
}

fn shown(answer: Striping, path: &Path) -> Shown {
    let component = |part: Part| {
        let objects = part.objects.into_iter().map(|(ost, object, written)| Object { ost, object, written });
        Component {
            start: part.start,
            end: part.end,
            stripe_count: part.stripe_count,
            stripe_size: part.stripe_size,
            stripe_index: part.stripe_index,
            objects: objects.collect(),
        }
    };
    Shown {
        path: path.to_string_lossy().into_owned(),
        fid: answer.fid,
        kind: if answer.is_dir { "directory" } else { "file" },
        inline: !answer.is_dir && answer.generation.is_none(),
        set: answer.set,
        inline_max: answer.inline_max,
        osts: answer.osts,
        generation: answer.generation,
        components: answer.components.into_iter().map(component).collect(),
    }
}

/// Regular files and directories in a directory, sorted by name. True: a directory.
fn entries_in(path: &Path) -> io::Result<Vec<(PathBuf, bool)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_file() || kind.is_dir() {
            found.push((entry.path(), kind.is_dir()));
        }
    }
    found.sort();
    Ok(found)
}

/// `path: "…"`; bytes of names that are not UTF-8 are escaped.
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

fn refused(path: &Path, e: io::Error) -> Failure {
    Failure::failed(path.display(), e, "check the path; `stria status` shows how the file system is")
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::show::{self, Shown};
    use types::{Fid, Generation, Layout, MirrorId};

    fn component(end: u64, first: u32, count: u32, written: u64) -> types::Component {
        let mirrors = (first..first + count).map(MirrorId).collect();
        types::Component { end, stripe_size: 1 << 20, mirrors, written: vec![written] }
    }

    fn answer(layout: Option<&Layout>, words: Option<&str>) -> Striping {
        let spec = words.map(|words| plan::stripe::parse(words).unwrap());
        let shown = Shown {
            path: "0x20",
            fid: Fid(32),
            is_dir: false,
            layout,
            spec: spec.as_ref(),
            inline_max: 0,
            osts: &[0, 1, 2, 3, 4, 5, 6, 7, 8],
            index_of: &|m| (m.0 < 9).then_some(m.0),
        };
        serde_json::from_str(&show::json(shown)).unwrap()
    }

    fn fields(layout: Option<&Layout>, words: Option<&str>) -> String {
        let all = GetStripe {
            yaml: false,
            json: false,
            directory: false,
            recursive: false,
            count: true,
            size: true,
            index: true,
            paths: vec![],
        };
        all.fields(&answer(layout, words))
    }

    #[test]
    fn single_values_are_those_of_the_last_part_with_content() {
        let of = |components| fields(Some(&Layout { generation: Generation(1), components }), None);
        assert_eq!(of(vec![component(u64::MAX, 2, 3, 1)]), "3 1048576 2");
        let progressive = |second| {
            of(vec![
                component(1 << 26, 1, 1, 1),
                component(1 << 30, 2, 4, second),
                component(u64::MAX, 9, 9, 0),
            ])
        };
        assert_eq!(progressive(0), "1 1048576 1");
        assert_eq!(progressive(5), "4 1048576 2");
        assert_eq!(of(vec![component(1 << 26, 1, 1, 0), component(u64::MAX, 2, 4, 0)]), "1 1048576 1");
        assert_eq!(of(vec![component(u64::MAX, 9, 9, 0)]), "9 1048576 unknown");
    }

    #[test]
    fn a_file_without_objects_shows_what_was_set() {
        assert_eq!(fields(None, Some("-c 4 -S 4M -i 2")), "4 4194304 2");
        assert_eq!(fields(None, Some("-c -1")), "-1 1048576 -1");
        assert_eq!(fields(None, None), "1 1048576 -1");
        let shown = shown(answer(None, Some("-c 4")), Path::new("/m/f"));
        assert_eq!((shown.inline, shown.set.as_deref(), shown.components.len()), (true, Some("-c 4"), 1));
    }

    #[test]
    fn paths_in_yaml_are_quoted() {
        use std::ffi::OsStr;
        let path = Path::new(OsStr::from_bytes(b"/a \"b\"\n\xff"));
        assert_eq!(yaml_path(path), "path: \"/a \\\"b\\\"\\U0000000a\\\\xff\"\n");
    }
}
