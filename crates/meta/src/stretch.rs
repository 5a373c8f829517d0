//! Describes records by their keys, for people: a range of them, or one.

use types::{Fid, Key};

use crate::keys::{self, ENTRY, GIVEN_UP};

/// For each kind: its records, and whether their keys have a fid.
const KINDS: [(&str, bool); GIVEN_UP as usize] = [
    ("names in directories", true),
    ("inodes", true),
    ("inline content of", true),
    ("extended attributes of", true),
    ("open unlinked files", true),
    ("objects that are removed", true),
    ("sessions", false),
    ("slots", false),
    ("counters", false),
    ("the count of inodes", false),
    ("counts of directories", true),
    ("pending counts", false),
    ("copies", false),
    ("changes", false),
    ("consumers of the changelog", false),
    ("abandoned ranges", false),
];

/// The kinds of records from `first` on and before `end`, with their fids.
pub fn of(first: &Key, end: &Key) -> String {
    let (from, to) = (kind(first).max(ENTRY), kind(end).min(GIVEN_UP));
    let fid = |key: &Key, of: u8| (kind(key) == of).then(|| keys::parse_fid(key)).flatten();
    let of_kind = |at: u8| {
        let (words, has_fids) = KINDS[usize::from(at - 1)];
        let fids = match (fid(first, at), fid(end, at)) {
            _ if !has_fids => String::new(),
            (None, None) => " all".into(),
            (Some(Fid(from)), None) => format!(" {from:#x} and above"),
            (None, Some(Fid(to))) => format!(" up to {to:#x}"),
            (Some(from), Some(to)) if from == to => format!(" {:#x}", from.0),
            (Some(from), Some(to)) => format!(" {:#x} to {:#x}", from.0, to.0),
        };
        format!("{words}{fids}")
    };
    let has_any = |at: &u8| *at < kind(end) || end.as_bytes().len() > 1;
    (from..=to).filter(has_any).map(of_kind).collect::<Vec<_>>().join(", ")
}

/// One record, and its file or directory.
pub fn record(key: &Key) -> (String, Option<Fid>) {
    let number = |at: usize| {
        let bytes = key.as_bytes().get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes))
    };
    let short = |at: usize| {
        let bytes = key.as_bytes().get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
    };
    let of_file = match kind(key) {
        ENTRY => "a name in directory",
        keys::INODE => "inode",
        keys::INLINE => "inline content of",
        keys::XATTRS => "extended attributes of",
        keys::ORPHAN => "the mark of open unlinked file",
        keys::DEAD => "the mark of removed file",
        keys::COUNTS => "counts of directory",
        keys::PENDING => "pending counts of directory",
        _ => "",
    };
    if let Some(fid) = keys::parse_fid(key).filter(|_| !of_file.is_empty()) {
        return (format!("{of_file} {:#x}", fid.0), Some(fid));
    }
    let words = match kind(key) {
        keys::SESSION => format!("session {}", number(1)),
        keys::SLOT => format!("slot {} of session {}", short(9), number(1)),
        keys::COUNTER => "a counter of ids".into(),
        keys::TOTAL => "the count of inodes".into(),
        keys::CHANGE => format!("change {} of the changelog", number(1)),
        keys::CONSUMER => format!("consumer {} of the changelog", short(1)),
        GIVEN_UP => "abandoned ranges".into(),
        _ => format!("record {key:?}"),
    };
    (words, None)
}

/// The directory, if all keys of the range are entries of one.
pub fn directory(first: &Key, end: &Key) -> Option<Fid> {
    let dir = |key: &Key| keys::parse_fid(key).filter(|_| kind(key) == ENTRY);
    dir(first).filter(|first| dir(end) == Some(*first))
}

fn kind(key: &Key) -> u8 {
    key.as_bytes().first().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_told_by_its_kind_and_number() {
        let (told, fid) = (|key: Key| record(&key).0, Fid(0x1_0010));
        assert_eq!(record(&keys::entry(fid, 7 << 8, 1)), ("a name in directory 0x10010".into(), Some(fid)));
        assert_eq!(record(&keys::counts(fid)), ("counts of directory 0x10010".into(), Some(fid)));
        assert_eq!(told(keys::slot(types::SessionId(9), 3)), "slot 3 of session 9");
        assert_eq!(told(keys::change(70)), "change 70 of the changelog");
        assert_eq!(told(keys::consumer(5)), "consumer 5 of the changelog");
        // Keys of other forms.
        assert!(told(Key::new(&[ENTRY, 3]).unwrap()).starts_with("record "));
        assert_eq!(told(Key::new(&[keys::SESSION]).unwrap()), "session 0");
    }

    #[test]
    fn a_stretch_is_told_by_kinds_and_fids() {
        let (a, b) = (Fid(0x1_0010), Fid(0x1_0020));
        let told = |first: Key, end: Key| of(&first, &end);
        assert_eq!(told(keys::entry(a, 0, 0), keys::entry(a, 1 << 20, 0)), "names in directories 0x10010");
        assert_eq!(
            told(keys::entry(a, 0, 0), keys::entry(b, 0, 0)),
            "names in directories 0x10010 to 0x10020"
        );
        assert_eq!(
            told(keys::entry(b, 0, 0), keys::inode(a)),
            "names in directories 0x10020 and above, inodes up to 0x10010"
        );
        assert_eq!(
            told(keys::inode(b), keys::kind_start(keys::XATTRS)),
            "inodes 0x10020 and above, inline content of all"
        );
        assert_eq!(
            told(keys::counts(b), keys::consumer(3)),
            "counts of directories 0x10020 and above, pending counts, copies, changes, consumers of the changelog"
        );
        // Any keys.
        assert_eq!(told(Key::new(&[]).unwrap(), Key::new(&[255]).unwrap()).matches(", ").count(), 15);
        assert_eq!(directory(&keys::entry(a, 0, 0), &keys::entry(a, 9 << 20, 0).after()), Some(a));
        assert_eq!(directory(&keys::entry(a, 0, 0), &keys::entry(b, 0, 0)), None);
        assert_eq!(directory(&keys::entry(a, 0, 0), &keys::inode(a)), None);
    }
}
