//! How a result is shown: its path, a line as of `ls`, JSON, or a format as of `find -printf` with what `lfs find` adds.

use std::io;

use serde_json::json;
use types::{Civil, Time};

use crate::expr::{Context, Kind, Stat, Subject, Which};
use crate::striping::Striping;

#[derive(Clone, Debug)]
pub struct Show {
    form: Form,
    /// Names lose their control characters, which would change the terminal.
    is_for_terminal: bool,
}

#[derive(Clone, Debug)]
enum Form {
    Items(Vec<Item>),
    /// An object per line.
    Json,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    Text(Vec<u8>),
    Field { field: Field, width: usize, pads: Pad },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pad {
    Before,
    Behind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Path,
    Relative,
    Start,
    Name,
    Directory,
    Depth,
    Size,
    Blocks,
    Kibibytes,
    Inode,
    Links,
    User,
    Group,
    Uid,
    Gid,
    Mode,
    ModeText,
    Type,
    Target,
    Time(Which),
    Seconds(Which),
    Fid,
    StripeCount,
    StripeSize,
    StripeIndex,
    Osts,
}

const FIELDS: [(&str, Field); 31] = [
    ("p", Field::Path),
    ("P", Field::Relative),
    ("H", Field::Start),
    ("f", Field::Name),
    ("h", Field::Directory),
    ("d", Field::Depth),
    ("s", Field::Size),
    ("b", Field::Blocks),
    ("k", Field::Kibibytes),
    ("i", Field::Inode),
    ("n", Field::Links),
    ("u", Field::User),
    ("g", Field::Group),
    ("U", Field::Uid),
    ("G", Field::Gid),
    ("m", Field::Mode),
    ("M", Field::ModeText),
    ("y", Field::Type),
    ("l", Field::Target),
    ("a", Field::Time(Which::Access)),
    ("c", Field::Time(Which::Change)),
    ("t", Field::Time(Which::Content)),
    ("w", Field::Time(Which::Birth)),
    ("A@", Field::Seconds(Which::Access)),
    ("C@", Field::Seconds(Which::Change)),
    ("T@", Field::Seconds(Which::Content)),
    ("W@", Field::Seconds(Which::Birth)),
    ("LF", Field::Fid),
    ("Lc", Field::StripeCount),
    ("LS", Field::StripeSize),
    ("Li", Field::StripeIndex),
];
/// Beside `FIELDS`: the OSTs, as `lfs find` calls them.
const OSTS: &str = "Lo";

impl Show {
    fn of(form: Form) -> Show {
        Show { form, is_for_terminal: false }
    }

    /// For people, as `find` of GNU does: each control character of a name is a `?`, and so is each byte that is no text.
    pub fn for_terminal(self) -> Show {
        Show { is_for_terminal: true, ..self }
    }

    pub fn lines() -> Show {
        Show::of(Form::Items(vec![plain(Field::Path), Item::Text(b"\n".to_vec())]))
    }

    pub fn nul() -> Show {
        Show::of(Form::Items(vec![plain(Field::Path), Item::Text(b"\0".to_vec())]))
    }

    pub fn json() -> Show {
        Show::of(Form::Json)
    }

    pub fn listing() -> Show {
        Show::format(b"%9i %6k %M %3n %-8u %-8g %12s %t %p\\n").expect("its fields are those of the table")
    }

    /// # Errors
    /// The field that is unknown.
    pub fn format(text: &[u8]) -> Result<Show, String> {
        let (mut items, mut plain, mut at) = (Vec::new(), Vec::new(), 0);
        while let Some(byte) = text.get(at).copied() {
            at += 1;
            match byte {
                b'\\' => {
                    let (byte, len) = escaped(&text[at..]);
                    plain.push(byte);
                    at += len;
                }
                b'%' if text.get(at) == Some(&b'%') => {
                    plain.push(b'%');
                    at += 1;
                }
                b'%' => {
                    let (item, len) = field_of(&text[at..])?;
                    if !plain.is_empty() {
                        items.push(Item::Text(std::mem::take(&mut plain)));
                    }
                    items.push(item);
                    at += len;
                }
                _ => plain.push(byte),
            }
        }
        if !plain.is_empty() {
            items.push(Item::Text(plain));
        }
        Ok(Show::of(Form::Items(items)))
    }

    /// Appends the result to `out`.
    pub fn add(&self, out: &mut Vec<u8>, of: &impl Subject, context: &Context) -> io::Result<()> {
        match &self.form {
            Form::Json => add_json(out, of, context),
            Form::Items(items) => {
                for item in items {
                    match item {
                        Item::Text(text) => out.extend_from_slice(text),
                        Item::Field { field, width, pads } => {
                            let value = field.value(of, context)?;
                            let value = if self.is_for_terminal { without_controls(&value) } else { value };
                            let fill = width.saturating_sub(String::from_utf8_lossy(&value).chars().count());
                            let pad = std::iter::repeat_n(b' ', fill);
                            match pads {
                                Pad::Before => out.extend(pad.chain(value)),
                                Pad::Behind => out.extend(value.into_iter().chain(pad)),
                            }
                        }
                    }
                }
                Ok(())
            }
        }
    }
}

fn without_controls(name: &[u8]) -> Vec<u8> {
    let mut out = String::new();
    for chunk in name.utf8_chunks() {
        out.extend(chunk.valid().chars().map(|c| if c.is_control() { '?' } else { c }));
        out.extend(chunk.invalid().iter().map(|_| '?'));
    }
    out.into_bytes()
}

fn plain(field: Field) -> Item {
    Item::Field { field, width: 0, pads: Pad::Before }
}

/// The byte that the text behind a backslash stands for, and the length of that text.
fn escaped(rest: &[u8]) -> (u8, usize) {
    let octal = rest.iter().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
    if octal > 0 {
        return (
            rest[..octal].iter().fold(0u8, |n, byte| n.wrapping_mul(8).wrapping_add(byte - b'0')),
            octal,
        );
    }
    match rest.first() {
        Some(b'n') => (b'\n', 1),
        Some(b't') => (b'\t', 1),
        Some(b'r') => (b'\r', 1),
        Some(b'\\') => (b'\\', 1),
        // As in find: the backslash stays.
        _ => (b'\\', 0),
    }
}

fn field_of(rest: &[u8]) -> Result<(Item, usize), String> {
    let (mut at, mut pads, mut width) = (0, Pad::Before, 0usize);
    while let Some(byte) = rest.get(at) {
        match byte {
            b'-' => pads = Pad::Behind,
            b'0'..=b'9' => width = (width * 10 + usize::from(byte - b'0')).min(4096),
            _ => break,
        }
        at += 1;
    }
    let all = FIELDS.iter().copied().chain([(OSTS, Field::Osts)]);
    let mut of = all.filter(|(word, _)| rest[at..].starts_with(word.as_bytes()));
    let Some((word, field)) = of.next() else {
        let shown: String = String::from_utf8_lossy(&rest[at..]).chars().take(2).collect();
        return Err(format!("-printf has no field '%{shown}'"));
    };
    Ok((Item::Field { field, width, pads }, at + word.len()))
}

impl Field {
    fn value(self, of: &impl Subject, context: &Context) -> io::Result<Vec<u8>> {
        let stat = || of.stat();
        // Directories have no stripes of their own.
        let striping = || Ok::<_, io::Error>(of.striping()?.filter(|striping| !striping.is_dir));
        let of_part = |value: fn(&crate::Part) -> Option<String>| {
            let found = striping()?.and_then(|s: Striping| s.part_in_use().and_then(value));
            Ok::<_, io::Error>(found.unwrap_or_else(|| "-".into()))
        };
        let path = of.path();
        let number = |n: u64| n.to_string();
        let text = match self {
            Field::Path => return Ok(path.to_vec()),
            Field::Start => return Ok(path[..of.start_len()].to_vec()),
            Field::Relative => {
                let rest = &path[of.start_len()..];
                return Ok(rest.strip_prefix(b"/").unwrap_or(rest).to_vec());
            }
            Field::Name => return Ok(of.name().to_vec()),
            Field::Directory => return Ok(directory_of(path).to_vec()),
            Field::Target => match of.kind()? {
                Kind::Symlink => return of.target(),
                _ => String::new(),
            },
            Field::Depth => of.depth().to_string(),
            Field::Size => number(stat()?.size),
            Field::Blocks => number(stat()?.blocks),
            Field::Kibibytes => number(stat()?.blocks.div_ceil(2)),
            Field::Inode => number(stat()?.ino),
            Field::Links => number(stat()?.nlink),
            Field::Uid => number(stat()?.uid.into()),
            Field::Gid => number(stat()?.gid.into()),
            Field::User => {
                let uid = stat()?.uid;
                context.names.user(uid).unwrap_or_else(|| uid.to_string())
            }
            Field::Group => {
                let gid = stat()?.gid;
                context.names.group(gid).unwrap_or_else(|| gid.to_string())
            }
            Field::Mode => format!("{:o}", stat()?.mode),
            Field::ModeText => mode_text(of.kind()?, stat()?.mode),
            Field::Type => of.kind()?.letter().to_string(),
            Field::Time(which) => which.of(&stat()?).map_or("-".into(), shown_time),
            Field::Seconds(which) => {
                which.of(&stat()?).map_or("-".into(), |time| format!("{}.{:09}0", time.sec, time.nsec))
            }
            // A file's id is its inode number.
            Field::Fid => format!("{:#x}", stat()?.ino),
            Field::StripeCount => striping()?.map_or("-".into(), |s| s.count().to_string()),
            Field::StripeSize => of_part(|part| Some(part.stripe_size.to_string()))?,
            Field::StripeIndex => of_part(|part| part.stripe_index.map(|index| index.to_string()))?,
            Field::Osts => {
                let osts =
                    striping()?.map(|s| s.osts_in_use().map(|ost| ost.to_string()).collect::<Vec<_>>());
                osts.filter(|osts| !osts.is_empty()).map_or("-".into(), |osts| osts.join(","))
            }
        };
        Ok(text.into_bytes())
    }
}

/// As `dirname`; of a name alone it is `.`.
fn directory_of(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => b"/",
        Some(at) => &path[..at],
        None => b".",
    }
}

/// `2026-11-28 14:30:00.123456789` in UTC: the same at every host.
fn shown_time(time: Time) -> String {
    format!("{}.{:09}", Civil::of(time.sec), time.nsec)
}

fn mode_text(kind: Kind, mode: u32) -> String {
    let mut text = String::from(kind.in_listing());
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

fn add_json(out: &mut Vec<u8>, of: &impl Subject, context: &Context) -> io::Result<()> {
    let stat: Stat = of.stat()?;
    let seconds = |time: Time| time.sec as f64 + f64::from(time.nsec) / 1e9;
    let shown = json!({
        "path": String::from_utf8_lossy(of.path()),
        "type": of.kind()?.letter().to_string(),
        "size_bytes": stat.size,
        "disk_bytes": stat.blocks * 512,
        "mode": format!("{:04o}", stat.mode),
        "uid": stat.uid,
        "gid": stat.gid,
        "user": context.names.user(stat.uid),
        "group": context.names.group(stat.gid),
        "nlink": stat.nlink,
        "ino": stat.ino,
        "atime_sec": seconds(stat.atime),
        "mtime_sec": seconds(stat.mtime),
        "ctime_sec": seconds(stat.ctime),
        "btime_sec": stat.btime.map(seconds),
    });
    out.extend_from_slice(shown.to_string().as_bytes());
    out.push(b'\n');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_text_and_fields_with_widths() {
        let Form::Items(items) = Show::format(b"a%%b\\t%-10p%05s\\012%LF%Lo\\q").expect("it is right").form
        else {
            panic!("no items")
        };
        let field = |field, width, pads| Item::Field { field, width, pads };
        let want = [
            Item::Text(b"a%b\t".to_vec()),
            field(Field::Path, 10, Pad::Behind),
            field(Field::Size, 5, Pad::Before),
            Item::Text(b"\n".to_vec()),
            field(Field::Fid, 0, Pad::Before),
            field(Field::Osts, 0, Pad::Before),
            Item::Text(b"\\q".to_vec()),
        ];
        assert_eq!(items, want);
        assert!(Show::format(b"%Z").is_err_and(|why| why.contains("%Z")));
        assert!(Show::format(b"x%").is_err());
    }

    #[test]
    fn names_on_a_terminal_have_no_control_characters() {
        let shown = without_controls(b"/mnt/a\x1b[31mb\nc\xff\x7f \xc2\x9b \xc3\xbc");
        assert_eq!(shown, "/mnt/a?[31mb?c?? ? ü".as_bytes());
    }

    #[test]
    fn modes_are_written_as_ls_writes_them() {
        assert_eq!(mode_text(Kind::File, 0o644), "-rw-r--r--");
        assert_eq!(mode_text(Kind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode_text(Kind::File, 0o6640), "-rwSr-S---");
        assert_eq!(directory_of(b"a/b/c"), b"a/b");
        assert_eq!((directory_of(b"/a"), directory_of(b"a")), (&b"/"[..], &b"."[..]));
    }
}
