//! The result of a comparison of an MDT's members.

use serde::Serialize;
use wire::pair::{RecordDifference, VerifyRecordsReply, record_difference as found};

use super::super::Line;
use crate::reach::Reach;

/// Of an MDT.
#[derive(Debug, Serialize)]
pub struct Records {
    mirror: String,
    id: u32,
    kind: &'static str,
    /// Records that were compared.
    records: u64,
    /// The last log entry that the compared state has.
    seq: u64,
    /// Records that differ, and ranges that a member cannot read.
    differences: u64,
    /// The first of them.
    findings: Vec<Finding>,
}

#[derive(Debug, Serialize)]
struct Finding {
    found: &'static str,
    /// The record, or the range of records.
    what: String,
    /// Empty: it is of no file, or of many.
    path: String,
}

const AT_PRIMARY: &str = "damaged at the primary";
const AT_FOLLOWER: &str = "damaged at the follower";

fn words(found: u8) -> &'static str {
    match found {
        found::OTHER => "other content",
        found::ONLY_PRIMARY => "only at the primary",
        found::ONLY_FOLLOWER => "only at the follower",
        found::LOST_PRIMARY => AT_PRIMARY,
        found::LOST_FOLLOWER => AT_FOLLOWER,
        _ => "a finding that this program does not know",
    }
}

impl Records {
    pub fn of(line: &Line, reach: &Reach, reply: &VerifyRecordsReply) -> Records {
        let finding = |d: &RecordDifference| Finding {
            found: words(d.found),
            what: d.what.clone(),
            path: d.fid.map_or_else(String::new, |fid| reach.path_of(fid)),
        };
        Records {
            mirror: line.name.clone(),
            id: line.id,
            kind: "mdt",
            records: reply.done,
            seq: reply.seq.0,
            differences: reply.found,
            findings: reply.differences.iter().map(finding).collect(),
        }
    }

    pub fn is_equal(&self) -> bool {
        self.differences == 0
    }

    pub fn text(&self) -> Vec<String> {
        let Records { mirror, records, differences, findings, .. } = self;
        if self.is_equal() {
            return vec![format!("{mirror}: the members are equal ({records} records)")];
        }
        let mut text = vec![format!(
            "{mirror}: {differences} RECORDS DIFFER, OR CANNOT BE READ AT ONE MEMBER ({records} records)"
        )];
        for Finding { found, what, path } in findings {
            let of = if path.is_empty() { String::new() } else { format!("{path}: ") };
            text.push(format!("  {of}{what}, {found}"));
        }
        let has = |word| findings.iter().any(|finding| finding.found == word);
        text.push(match (has(AT_PRIMARY), has(AT_FOLLOWER)) {
            (true, true) => {
                "both members have damage: look at their media, and at `stria fsck`, before one of them is filled anew".into()
            }
            (true, false) => format!(
                "the primary cannot read records that the follower has: `stria mirror switch {mirror}` first, then compare again"
            ),
            (false, _) => format!(
                "next: `stria mirror resync {mirror} --dry-run`, which has the follower take all records of the primary"
            ),
        });
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_told_with_the_next_step() {
        let finding =
            |code, path: &str| Finding { found: words(code), what: "inode 0x20".into(), path: path.into() };
        let one = |findings: Vec<Finding>| Records {
            mirror: "home-MDT0000".into(),
            id: 1,
            kind: "mdt",
            records: 90,
            seq: 70,
            differences: findings.len() as u64,
            findings,
        };
        assert_eq!(one(vec![]).text(), ["home-MDT0000: the members are equal (90 records)"]);
        let last = |codes: &[u8]| {
            let text = one(codes.iter().map(|code| finding(*code, "/a")).collect()).text();
            text.last().expect("there is a next step").clone()
        };
        let text = one(vec![finding(found::OTHER, "/a"), finding(found::ONLY_PRIMARY, "")]).text();
        assert!(text[0].starts_with("home-MDT0000: 2 RECORDS DIFFER"), "{text:?}");
        assert_eq!(text[1..3], ["  /a: inode 0x20, other content", "  inode 0x20, only at the primary"]);
        assert!(text[3].contains("`stria mirror resync home-MDT0000 --dry-run`"), "{text:?}");
        assert!(last(&[found::LOST_FOLLOWER]).contains("resync"));
        assert!(
            last(&[found::OTHER, found::LOST_PRIMARY]).contains("`stria mirror switch home-MDT0000` first")
        );
        assert!(last(&[found::LOST_FOLLOWER, found::LOST_PRIMARY]).contains("both members have damage"));
    }
}
