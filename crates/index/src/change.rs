//! Changes, as `stria changelog read --json` writes them: one object on each line.

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// A name in a directory. Directories and files are named by their inode numbers, which are the ids of the changelog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub parent: u64,
    pub name: Vec<u8>,
}

/// The effect of a change on names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    Added(Place),
    /// As `Added`. All that the directory will hold has changes of its own.
    DirectoryMade(Place),
    Removed(Place),
    Moved {
        from: Place,
        to: Place,
        /// The file that is now at `from`.
        exchanged: Option<u64>,
        replaced: Option<u64>,
    },
    Same,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    Change {
        number: u64,
        ino: u64,
        names: Names,
    },
    /// Changes up to this one were dropped before they were read.
    Lost {
        to: u64,
    },
}

/// # Errors
/// A line of another form, with the missing field.
pub fn parse(line: &str) -> Result<Line> {
    let value: Value = serde_json::from_str(line).context("no JSON")?;
    if let Some(lost) = value.get("lost") {
        return Ok(Line::Lost { to: lost["to"].as_u64().context("lost.to")? });
    }
    let fid = |key: &str| value.get(key).and_then(fid_of);
    let ino = fid("fid").context("fid")?;
    let number = value["number"].as_u64().context("number")?;
    let place = |parent: &str, name: &str| {
        let parent = fid(parent).with_context(|| parent.to_owned())?;
        Ok::<_, anyhow::Error>(Place { parent, name: name_of(&value, name)? })
    };
    let names = match value["op"].as_str().context("op")? {
        "create" | "link" | "symlink" | "mknod" => Names::Added(place("parent", "name")?),
        "mkdir" => Names::DirectoryMade(place("parent", "name")?),
        "unlink" | "rmdir" => Names::Removed(place("parent", "name")?),
        "rename" => Names::Moved {
            from: place("old_parent", "old_name")?,
            to: place("parent", "name")?,
            exchanged: fid("exchanged"),
            replaced: fid("replaced"),
        },
        "close" | "layout" | "truncate" | "setattr" | "xattr" | "write" => Names::Same,
        other => bail!("a change of a kind that this version does not know: {other}"),
    };
    Ok(Line::Change { number, ino, names })
}

/// `0x1a`, or decimal.
fn fid_of(value: &Value) -> Option<u64> {
    let text = value.as_str()?;
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn name_of(value: &Value, key: &str) -> Result<Vec<u8>> {
    if let Some(hex) = value.get(format!("{key}_hex")).and_then(Value::as_str) {
        let byte = |at: usize| hex.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
        return (0..hex.len()).step_by(2).map(byte).collect::<Option<_>>().with_context(|| key.to_owned());
    }
    value[key].as_str().map(|name| name.as_bytes().to_vec()).with_context(|| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_changes_of_names_or_of_content() {
        let place = |parent, name: &[u8]| Place { parent, name: name.to_vec() };
        let table = [
            (
                r#"{"number":7,"op":"create","fid":"0x1a","parent":"0x1","name":"a","uid":0}"#,
                Line::Change { number: 7, ino: 26, names: Names::Added(place(1, b"a")) },
            ),
            (
                r#"{"number":8,"op":"unlink","fid":"26","parent":"0x1","name":"?","name_hex":"ff61"}"#,
                Line::Change { number: 8, ino: 26, names: Names::Removed(place(1, b"\xffa")) },
            ),
            (
                r#"{"number":9,"op":"rename","fid":"0x1a","parent":"0x2","name":"b","old_parent":"0x1","old_name":"a","replaced":"0x3"}"#,
                Line::Change {
                    number: 9,
                    ino: 26,
                    names: Names::Moved {
                        from: place(1, b"a"),
                        to: place(2, b"b"),
                        exchanged: None,
                        replaced: Some(3),
                    },
                },
            ),
            (
                r#"{"number":10,"op":"write","fid":"0x1a"}"#,
                Line::Change { number: 10, ino: 26, names: Names::Same },
            ),
            (r#"{"lost":{"from":1,"to":5}}"#, Line::Lost { to: 5 }),
        ];
        for (text, want) in table {
            assert_eq!(parse(text).expect(text), want);
        }
        for bad in [
            "",
            "{}",
            r#"{"number":1,"op":"dance","fid":"0x1"}"#,
            r#"{"number":1,"op":"create","fid":"0x1"}"#,
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
