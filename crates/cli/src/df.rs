//! The table of `stria df`, column by column as that of `lfs df`, so that scripts can read both.
//!
//! Space is that of the OSTs: MDT lines are shown but not summed. Inodes are those of the MDTs, as in `statfs`. Lustre shows the number of objects
//! that fit if it is smaller; here small files have no objects, so that number is no bound of the files.

use std::fmt::Write;

use crate::space::TargetSpace;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 1024-byte blocks.
    Blocks,
    /// Bytes with one digit behind the point and a letter.
    Human,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Space,
    Inodes,
}

/// Total, used, available of one line, in bytes or inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub total: u64,
    pub used: u64,
    pub available: u64,
}

/// The table of one mount, with the blank line that `lfs df` ends it with.
pub fn table(fs_name: &str, mount: &str, targets: &[TargetSpace], what: What, unit: Unit) -> String {
    let mut out = header(what, unit);
    for t in targets {
        let kind = if t.is_mdt() { "MDT" } else { "OST" };
        let uuid = format!("{fs_name}-{kind}{:04x}_UUID", t.index);
        if !t.is_up() {
            // As `lfs df` shows a target that does not answer: its name and the reason, without numbers.
            out += &bench::wrap::wrap(&format!("{uuid:<20}: down ({})", t.why), 4);
            out.push('\n');
            continue;
        }
        let draining = if t.draining { " draining" } else { "" };
        let place = format!("{mount}[{kind}:{}]{draining}", t.index);
        line(&mut out, &uuid, amount_of(t, what), what, unit, &place);
    }
    out.push('\n');
    line(&mut out, "filesystem_summary:", sum(targets, what), what, unit, mount);
    out.push('\n');
    out
}

fn header(what: What, unit: Unit) -> String {
    let columns = match (what, unit) {
        (What::Inodes, _) => ["Inodes", "IUsed", "IFree", "IUse%"],
        (What::Space, Unit::Human) => ["bytes", "Used", "Available", "Use%"],
        (What::Space, Unit::Blocks) => ["1K-blocks", "Used", "Available", "Use%"],
    };
    let [total, used, available, percent] = columns;
    format!("{:<20} {total:>11} {used:>11} {available:>11} {percent:>4} Mounted on\n", "UUID")
}

fn line(out: &mut String, uuid: &str, amount: Amount, what: What, unit: Unit, place: &str) {
    let cell = |n| match (what, unit) {
        (_, Unit::Human) => cooked(n),
        (What::Space, Unit::Blocks) => (n >> 10).to_string(),
        (What::Inodes, Unit::Blocks) => n.to_string(),
    };
    let (total, used, available) = (cell(amount.total), cell(amount.used), cell(amount.available));
    let percent = percent_of(amount);
    writeln!(out, "{uuid:<20} {total:>11} {used:>11} {available:>11} {percent:>3}% {place}")
        .expect("writing to a string does not fail");
}

/// Rounded as `lfs` does: half up, as a share of what users may take, not of the whole.
fn percent_of(amount: Amount) -> u64 {
    match amount.used + amount.available {
        0 => 0,
        base => (amount.used as f64 / base as f64 * 100.0 + 0.5) as u64,
    }
}

/// `lfs` divides while the value is *above* 1024: 1 KiB is `1024`, and 2 KiB is `2.0K`.
fn cooked(n: u64) -> String {
    let (mut value, mut letter) = (n as f64, None);
    for next in ["K", "M", "G", "T", "P", "E"] {
        if value <= 1024.0 {
            break;
        }
        value /= 1024.0;
        letter = Some(next);
    }
    letter.map_or(n.to_string(), |l| format!("{value:.1}{l}"))
}

fn amount_of(t: &TargetSpace, what: What) -> Amount {
    match what {
        What::Space => Amount {
            total: t.bytes_total,
            used: t.bytes_total.saturating_sub(t.bytes_free),
            available: t.bytes_available,
        },
        What::Inodes => Amount {
            total: t.files_total,
            used: t.files_total.saturating_sub(t.files_free),
            available: t.files_free,
        },
    }
}

pub fn sum(targets: &[TargetSpace], what: What) -> Amount {
    let total_of = |is_mdt: bool| {
        targets
            .iter()
            .filter(|t| t.is_mdt() == is_mdt)
            .map(|t| amount_of(t, what))
            .fold(Amount::default(), add)
    };
    total_of(what == What::Inodes)
}

fn add(a: Amount, b: Amount) -> Amount {
    Amount { total: a.total + b.total, used: a.used + b.used, available: a.available + b.available }
}

#[cfg(test)]
mod tests;
