use super::*;
use crate::space::{Kind, State};

const GIB: u64 = 1 << 30;

fn target(is_mdt: bool, index: u32, total: u64, used: u64, files: (u64, u64)) -> TargetSpace {
    TargetSpace {
        kind: if is_mdt { Kind::Mdt } else { Kind::Ost },
        index,
        state: State::Up,
        draining: false,
        why: String::new(),
        bytes_total: total,
        bytes_free: total - used,
        bytes_available: total - used,
        files_total: files.0,
        files_free: files.1,
    }
}

fn cluster() -> Vec<TargetSpace> {
    vec![
        target(true, 0, 8 * GIB, 48 << 20, (1_000_000, 999_000)),
        target(false, 0, 2 * GIB, GIB, (500, 400)),
        target(false, 10, 2 * GIB, 0, (500, 500)),
    ]
}

#[test]
fn blocks_stand_in_the_columns_of_lfs() {
    let want = "\
UUID                   1K-blocks        Used   Available Use% Mounted on
stria-MDT0000_UUID       8388608       49152     8339456   1% /mnt/s[MDT:0]
stria-OST0000_UUID       2097152     1048576     1048576  50% /mnt/s[OST:0]
stria-OST000a_UUID       2097152           0     2097152   0% /mnt/s[OST:10]

filesystem_summary:      4194304     1048576     3145728  25% /mnt/s

";
    assert_eq!(table("stria", "/mnt/s", &cluster(), What::Space, Unit::Blocks), want);
}

#[test]
fn human_sizes_stand_in_the_columns_of_lfs() {
    let want = "\
UUID                       bytes        Used   Available Use% Mounted on
stria-MDT0000_UUID          8.0G       48.0M        8.0G   1% /mnt/s[MDT:0]
stria-OST0000_UUID          2.0G     1024.0M     1024.0M  50% /mnt/s[OST:0]
stria-OST000a_UUID          2.0G           0        2.0G   0% /mnt/s[OST:10]

filesystem_summary:         4.0G     1024.0M        3.0G  25% /mnt/s

";
    assert_eq!(table("stria", "/mnt/s", &cluster(), What::Space, Unit::Human), want);
}

#[test]
fn the_sum_of_inodes_is_that_of_statfs() {
    let want = "\
UUID                      Inodes       IUsed       IFree IUse% Mounted on
stria-MDT0000_UUID       1000000        1000      999000   0% /m[MDT:0]
stria-OST0000_UUID           500         100         400  20% /m[OST:0]
stria-OST000a_UUID           500           0         500   0% /m[OST:10]

filesystem_summary:      1000000        1000      999000   0% /m

";
    assert_eq!(table("stria", "/m", &cluster(), What::Inodes, Unit::Blocks), want);
}

#[test]
fn nothing_divides_by_nothing() {
    let empty = vec![target(false, 0, 0, 0, (0, 0))];
    assert!(table("s", "/m", &empty, What::Space, Unit::Human).contains("   0% /m[OST:0]"));
}

#[test]
fn a_target_that_is_down_is_shown_without_numbers_and_is_not_in_the_sum() {
    let mut targets = cluster();
    let answer = Err(anyhow::anyhow!("connection refused"));
    targets[2] = TargetSpace::of(Kind::Ost, 10, answer);
    let text = table("stria", "/mnt/s", &targets, What::Space, Unit::Human);
    let line = text.lines().find(|l| l.starts_with("stria-OST000a_UUID")).expect("it has a line");
    assert_eq!(line, "stria-OST000a_UUID  : down (connection refused)");
    let sum = text.lines().find(|l| l.starts_with("filesystem_summary:")).expect("a sum");
    assert_eq!(sum.split_whitespace().nth(1), Some("2.0G"), "{text}");
    // The answer of a mount of an earlier release has no state: such a target answered.
    let older = r#"{"kind":"ost","index":1,"bytes_total":1,"bytes_free":1,"bytes_available":1,"files_total":1,"files_free":1}"#;
    assert!(serde_json::from_str::<TargetSpace>(older).unwrap().is_up());
    let down = r#"{"target":3,"kind":"ost","index":1,"state":"down","why":"no answer"}"#;
    assert!(!serde_json::from_str::<TargetSpace>(down).unwrap().is_up());
}

#[test]
fn an_ost_that_gets_no_new_objects_is_marked() {
    let mut targets = cluster();
    targets[1].draining = true;
    let text = table("stria", "/mnt/s", &targets, What::Space, Unit::Human);
    let marked: Vec<&str> = text.lines().filter(|line| line.ends_with(" draining")).collect();
    assert_eq!((marked.len(), marked[0].contains("/mnt/s[OST:0]")), (1, true), "{text}");
}
