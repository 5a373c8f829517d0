//! Prints changes for humans and programs.

use types::{Civil, Fid, Time};
use wire::changelog::*;

/// Every operation with Stria's word and Lustre's.
const WORDS: [(ChangeOp, &str, &str); ChangeOp::ALL.len()] = [
    (ChangeOp::Create, "create", "CREAT"),
    (ChangeOp::MakeDir, "mkdir", "MKDIR"),
    (ChangeOp::Link, "link", "HLINK"),
    (ChangeOp::Symlink, "symlink", "SLINK"),
    (ChangeOp::MakeNode, "mknod", "MKNOD"),
    (ChangeOp::Unlink, "unlink", "UNLNK"),
    (ChangeOp::RemoveDir, "rmdir", "RMDIR"),
    (ChangeOp::Rename, "rename", "RENME"),
    (ChangeOp::Close, "close", "CLOSE"),
    (ChangeOp::Layout, "layout", "LYOUT"),
    (ChangeOp::Truncate, "truncate", "TRUNC"),
    (ChangeOp::SetAttr, "setattr", "SATTR"),
    (ChangeOp::SetXattr, "xattr", "XATTR"),
    (ChangeOp::Write, "write", "MTIME"),
];

fn words(op: ChangeOp) -> (&'static str, &'static str) {
    WORDS.iter().find(|w| w.0 == op).map_or(("unknown", "?"), |w| (w.1, w.2))
}

/// The words of a mask, for completions.
pub fn mask_words() -> Vec<&'static str> {
    ["all"].into_iter().chain(WORDS.map(|w| w.1)).collect()
}

/// Parses a list of words as a mask.
pub fn mask_of(text: &str) -> Result<u64, String> {
    let mut mask = 0;
    for word in text.split([',', ' ']).filter(|w| !w.is_empty()) {
        let known = WORDS.iter().find(|w| w.1.eq_ignore_ascii_case(word) || w.2.eq_ignore_ascii_case(word));
        mask |= match known {
            Some((op, ..)) => op.bit(),
            None if word.eq_ignore_ascii_case("all") => ChangeOp::MASK_ALL,
            None => return Err(format!("'{word}' is no kind of change")),
        };
    }
    if mask == 0 { Err("the mask names no change".into()) } else { Ok(mask) }
}

pub fn words_of(mask: u64) -> String {
    if mask == ChangeOp::MASK_ALL {
        return "all".into();
    }
    let known = WORDS.iter().filter(|w| mask & w.0.bit() != 0);
    known.map(|w| w.1).collect::<Vec<_>>().join(",")
}

/// The output format of a change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Text,
    Json,
    Lustre,
}

impl Form {
    pub fn line(self, change: &Change) -> String {
        match self {
            Form::Text => text(change),
            Form::Json => json(change).to_string(),
            Form::Lustre => lustre(change),
        }
    }
}

fn text(c: &Change) -> String {
    let Civil { year, month, day, hour, minute, second } = Civil::of(c.time.sec);
    let ms = c.time.nsec / 1_000_000;
    let when = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z");
    let mut out = format!("{} {} {when} {}", c.number, words(c.op).0, c.fid);
    if let Some(Who { uid, gid }) = c.who {
        out += &format!(" by {uid}:{gid}");
    }
    if c.op == ChangeOp::SetAttr {
        out += &format!(" {}", what(c.what).join(","));
    }
    if c.op == ChangeOp::SetXattr {
        out += &format!(" {}", shown(&c.name.0));
    }
    if c.parent != Fid(0) {
        out += &format!(" {}/{}", c.parent, shown(&c.name.0));
    }
    if c.op == ChangeOp::Rename {
        out += &format!(" from {}/{}", c.old_parent, shown(&c.old_name.0));
    }
    match (c.other, c.flags & CHANGE_EXCHANGE != 0) {
        (Fid(0), _) => {}
        (other, true) => out += &format!(" in exchange for {other}"),
        (other, false) => out += &format!(" in place of {other}"),
    }
    if c.flags & CHANGE_LAST != 0 {
        out += " (its last name)";
    }
    out
}

fn json(c: &Change) -> serde_json::Value {
    let mut out = serde_json::json!({
        "number": c.number,
        "op": words(c.op).0,
        "time_sec": c.time.sec,
        "time_nsec": c.time.nsec,
        "session": format!("{:#x}", c.session.0),
        "fid": c.fid.to_string(),
    });
    let mut put = |key: &str, value: serde_json::Value| {
        out[key] = value;
    };
    if let Some(Who { uid, gid }) = c.who {
        put("uid", uid.into());
        put("gid", gid.into());
    }
    let mut name = |key: &str, bytes: &[u8]| {
        put(key, String::from_utf8_lossy(bytes).into());
        // A name is bytes: one that is not UTF-8 is included raw, too.
        if std::str::from_utf8(bytes).is_err() {
            put(&format!("{key}_hex"), bytes.iter().map(|b| format!("{b:02x}")).collect::<String>().into());
        }
    };
    match c.op {
        ChangeOp::SetXattr => name("xattr", &c.name.0),
        _ if c.parent != Fid(0) => name("name", &c.name.0),
        _ => {}
    }
    if c.op == ChangeOp::Rename {
        name("old_name", &c.old_name.0);
        put("old_parent", c.old_parent.to_string().into());
    }
    if c.parent != Fid(0) {
        put("parent", c.parent.to_string().into());
    }
    if c.other != Fid(0) {
        let is_exchange = c.flags & CHANGE_EXCHANGE != 0;
        put(if is_exchange { "exchanged" } else { "replaced" }, c.other.to_string().into());
    }
    if c.flags & CHANGE_LAST != 0 {
        put("last_name", true.into());
    }
    if c.op == ChangeOp::SetAttr {
        put("what", what(c.what).into());
    }
    out
}

/// The columns of `lfs changelog`; a fid is one number here.
fn lustre(c: &Change) -> String {
    let Civil { year, month, day, hour, minute, second } = Civil::of(c.time.sec);
    let nsec = c.time.nsec;
    let mut out = format!(
        "{} {:02}{} {hour:02}:{minute:02}:{second:02}.{nsec:09} {year:04}.{month:02}.{day:02} {:#x}",
        c.number,
        c.op as u8,
        words(c.op).1,
        c.flags
    );
    // For a rename, the target is the replaced file.
    let target = if c.op == ChangeOp::Rename { c.other } else { c.fid };
    out += &format!(" t=[{:#x}]", target.0);
    if let Some(Who { uid, gid }) = c.who {
        out += &format!(" u={uid}:{gid}");
    }
    if c.parent != Fid(0) {
        out += &format!(" p=[{:#x}] {}", c.parent.0, shown(&c.name.0));
    }
    match c.op {
        ChangeOp::Rename => {
            out += &format!(" s=[{:#x}] sp=[{:#x}] {}", c.fid.0, c.old_parent.0, shown(&c.old_name.0))
        }
        ChangeOp::SetXattr => out += &format!(" x={}", shown(&c.name.0)),
        _ => {}
    }
    out
}

/// The attributes of a mask, as words.
fn what(mask: u32) -> Vec<&'static str> {
    use wire::meta::{SET_ATIME, SET_GID, SET_MODE, SET_MTIME, SET_UID};
    let words = [
        (SET_MODE, "mode"),
        (SET_UID, "uid"),
        (SET_GID, "gid"),
        (SET_ATIME, "atime"),
        (SET_MTIME, "mtime"),
        (WHAT_FLAGS, "flags"),
    ];
    words.into_iter().filter(|(bit, _)| mask & bit != 0).map(|(_, word)| word).collect()
}

/// A name on one line: control characters and bytes that are not UTF-8 are escaped. Programs use the JSON.
fn shown(name: &[u8]) -> String {
    let mut out = String::new();
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out += "\\\\",
                c if c.is_control() => out.extend(c.escape_default()),
                c => out.push(c),
            }
        }
        chunk.invalid().iter().for_each(|b| out += &format!("\\x{b:02x}"));
    }
    out
}

/// The JSON of `stria changelog list`.
pub fn json_of(list: &ListConsumersReply) -> serde_json::Value {
    let lost = |lost: &LostChanges| serde_json::json!({ "from": lost.from, "to": lost.to });
    let time = |t: Time| t.sec;
    let consumers: Vec<_> = list
        .consumers
        .iter()
        .map(|c| {
            serde_json::json!({
                "name": c.name,
                "id": c.id,
                "mask": words_of(c.mask),
                "acked": c.acked,
                "acked_sec": time(c.acked_at),
                "behind": list.newest.saturating_sub(c.acked),
                "lost": c.lost.as_ref().map(lost),
            })
        })
        .collect();
    serde_json::json!({
        "newest": list.newest,
        "records": list.records,
        "bytes": list.bytes,
        "bytes_max": list.bytes_max,
        "consumers": consumers,
    })
}

#[cfg(test)]
mod tests {
    use types::SessionId;

    use super::*;

    fn change() -> Change {
        Change {
            number: 7,
            op: ChangeOp::Unlink,
            flags: CHANGE_LAST,
            time: Time::new(1_795_678_389, 123_456_789),
            session: SessionId(9),
            who: Some(Who { uid: 1000, gid: 100 }),
            fid: Fid(0x1a),
            parent: Fid(1),
            name: b"a b\n\xff\\"[..].into(),
            old_parent: Fid(0),
            old_name: b""[..].into(),
            other: Fid(0),
            what: 0,
        }
    }

    fn rename() -> Change {
        Change {
            op: ChangeOp::Rename,
            flags: CHANGE_EXCHANGE,
            name: b"new"[..].into(),
            old_parent: Fid(2),
            old_name: b"old"[..].into(),
            other: Fid(0x1b),
            who: None,
            ..change()
        }
    }

    #[test]
    fn changes_are_told_to_people() {
        let fid = Fid(0x1a);
        let [one, two, b] = [1, 2, 0x1b].map(Fid);
        assert_eq!(
            text(&change()),
            format!(
                "7 unlink 2026-11-26T07:33:09.123Z {fid} by 1000:100 {one}/a b\\n\\xff\\\\ (its last name)"
            )
        );
        assert_eq!(
            text(&rename()),
            format!("7 rename 2026-11-26T07:33:09.123Z {fid} {one}/new from {two}/old in exchange for {b}")
        );
        let chmod =
            Change { op: ChangeOp::SetAttr, parent: Fid(0), flags: 0, what: 5, who: None, ..change() };
        assert_eq!(text(&chmod), format!("7 setattr 2026-11-26T07:33:09.123Z {fid} mode,gid"));
    }

    #[test]
    fn changes_are_told_as_by_lustre() {
        assert_eq!(
            lustre(&change()),
            "7 06UNLNK 07:33:09.123456789 2026.11.26 0x1 t=[0x1a] u=1000:100 p=[0x1] a b\\n\\xff\\\\"
        );
        assert_eq!(
            lustre(&rename()),
            "7 08RENME 07:33:09.123456789 2026.11.26 0x2 t=[0x1b] p=[0x1] new s=[0x1a] sp=[0x2] old"
        );
    }

    #[test]
    fn changes_are_told_to_programs() {
        let json = json(&change());
        assert_eq!(
            (&json["number"], &json["op"], &json["last_name"]),
            (&7.into(), &"unlink".into(), &true.into())
        );
        assert_eq!((&json["uid"], &json["name_hex"]), (&1000.into(), &"6120620aff5c".into()));
        let json = super::json(&rename());
        assert_eq!((&json["old_name"], &json["exchanged"]), (&"old".into(), &Fid(0x1b).to_string().into()));
        assert!(json.get("name_hex").is_none() && json.get("uid").is_none());
    }

    #[test]
    fn masks_are_lists_of_words() {
        assert_eq!(mask_of("all"), Ok(ChangeOp::MASK_ALL));
        assert_eq!(mask_of("create,UNLNK Rename"), Ok(2 | 64 | 256));
        assert_eq!(words_of(2 | 64 | 256), "create,unlink,rename");
        for text in ["", ",", "creat,x"] {
            assert!(mask_of(text).is_err(), "{text}");
        }
        for (op, word, lustre) in WORDS {
            assert_eq!((mask_of(word), mask_of(lustre)), (Ok(op.bit()), Ok(op.bit())));
        }
        assert_eq!(WORDS.map(|w| w.0), ChangeOp::ALL);
    }
}
