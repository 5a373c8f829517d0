//! Loads the changelog's state at a start, beside damage.

use std::borrow::Cow;

use kv::{Miss, record_bytes};
use meta::keys;
use meta::note::{ChangeRecord, ChangelogRecord, ConsumerRecord, consumer_of, number_from, number_of};
use types::Key;
use wire::Malformed;

use super::{Ledger, RECORD_BYTES};
use crate::records::look::Trouble;

/// More records than lost leaves at the end of the changelog can have. Their numbers are not given again (mds-C2).
const NUMBERS_LOST: u64 = 1 << 20;
const CONSUMERS_LOST: u32 = 1 << 16;

impl Ledger {
    /// A damaged record counts as present with unknown content, and does not prevent a start.
    pub(super) fn load(view: &dyn kv::View) -> Result<Ledger, Trouble> {
        let mut ledger = Ledger::default();
        let ids_are_lost = each_consumer(view, &mut |key, value| {
            let read = match (consumer_of(key), value) {
                (Some(0), Some(value)) => ChangelogRecord::decode(value).map(|r| {
                    ledger.newest_consumer = ledger.newest_consumer.max(r.consumer);
                    ledger.last = ledger.last.max(r.number);
                }),
                (Some(id), Some(value)) => ConsumerRecord::decode(value).map(|consumer| {
                    ledger.newest_consumer = ledger.newest_consumer.max(id);
                    ledger.last = ledger.last.max(consumer.acked);
                    drop(ledger.consumers.insert(id, consumer));
                }),
                _ => Err(Malformed("it is damaged")),
            };
            if let Err(why) = read {
                tracing::error!(?key, %why, "a consumer of the changelog cannot be read and is gone; register it anew");
            }
        })?;
        ledger.newest_consumer += if ids_are_lost { CONSUMERS_LOST } else { 0 };
        let (first, mut is_lost) = first_from(view, 0)?;
        let Some(first) = first else {
            ledger.last += if is_lost || ids_are_lost { NUMBERS_LOST } else { 0 };
            ledger.first = ledger.last + 1;
            return Ok(ledger);
        };
        let newest = newest_from(view, first)?;
        is_lost = first_from(view, newest.saturating_add(1))?.1;
        let place = |n: u64| match value_of(view, n)? {
            Is::Sound(value) => Ok(ChangeRecord::decode(&value).ok().map(|r| (r.bytes_before, value.len()))),
            Is::Damaged | Is::Absent => Ok::<_, Trouble>(None),
        };
        ledger.first = first;
        ledger.last = ledger.last.max(newest) + if is_lost { NUMBERS_LOST } else { 0 };
        // If one of the two is damaged, the sum is an estimate.
        let about = (newest + 1 - first) * RECORD_BYTES;
        let begin = place(first)?.map(|(at, _)| at);
        let end = place(newest)?.map(|(at, len)| at + record_bytes(&keys::change(newest), len));
        ledger.first_at = begin.unwrap_or(end.unwrap_or(about).saturating_sub(about));
        ledger.next_at = end.unwrap_or(ledger.first_at + about).max(ledger.first_at);
        Ok(ledger)
    }
}

/// Calls `f` with each consumer; `None`: it is damaged. Returns true if a range of them is lost.
fn each_consumer(view: &dyn kv::View, f: &mut dyn FnMut(&Key, Option<&[u8]>)) -> Result<bool, Trouble> {
    let (mut from, end) = (keys::kind_start(keys::CONSUMER), keys::kind_start(keys::CONSUMER + 1));
    let mut is_lost = false;
    loop {
        let walked = view.range(&from, &end, &mut |key, value| {
            f(key, Some(value));
            true
        });
        match walked {
            Ok(()) => return Ok(is_lost),
            Err(Miss::Absent(what)) => return Err(Trouble::Absent(what)),
            Err(Miss::Damage(damage)) => {
                f(&damage.key, None);
                is_lost |= damage.is_stretch();
                if damage.end <= from {
                    return Ok(is_lost);
                }
                from = damage.end;
            }
        }
    }
}

/// The first record with this number or a higher one, and whether records before it, or at the end, are lost. The number of a single damaged
/// record is known.
fn first_from(view: &dyn kv::View, number: u64) -> Result<(Option<u64>, bool), Trouble> {
    let (mut from, end) = (keys::change(number), keys::kind_start(keys::CHANGE + 1));
    let mut is_lost = false;
    loop {
        let mut first = None;
        let walked = view.range(&from, &end, &mut |key, _| {
            first = number_of(key);
            false
        });
        match walked {
            Ok(()) => return Ok((first, is_lost)),
            Err(Miss::Absent(what)) => return Err(Trouble::Absent(what)),
            Err(Miss::Damage(damage)) if !damage.is_stretch() => {
                return Ok((number_of(&damage.key), is_lost));
            }
            Err(Miss::Damage(damage)) => {
                is_lost = true;
                if damage.end <= from || damage.end >= end {
                    return Ok((None, true));
                }
                from = damage.end;
            }
        }
    }
}

/// Numbers of records in `first..end`, up to a maximum, and the first number behind them that may have a record.
pub fn numbers(view: &dyn kv::View, first: u64, end: u64, max: usize) -> Result<(Vec<u64>, u64), Trouble> {
    let (mut numbers, mut from) = (Vec::new(), first);
    while from < end {
        let walked = view.range(&keys::change(from), &keys::change(end), &mut |key, _| {
            numbers.extend(number_of(key));
            numbers.len() < max
        });
        from = match walked {
            Ok(()) if numbers.len() < max => end,
            Ok(()) => break,
            Err(Miss::Absent(what)) => return Err(Trouble::Absent(what)),
            Err(Miss::Damage(damage)) => {
                // The number of a single damaged record is known.
                numbers.extend(number_of(&damage.key).filter(|_| !damage.is_stretch()));
                number_from(&damage.end).map_or(end, |behind| behind.clamp(from + 1, end))
            }
        };
    }
    let next = if from < end { numbers.last().map_or(end, |last| last + 1) } else { end };
    Ok((numbers, next))
}

/// The last record. `first` exists.
fn newest_from(view: &dyn kv::View, first: u64) -> Result<u64, Trouble> {
    let is_behind = |n: u64| first_from(view, n).map(|(found, _)| found.is_some());
    // There is a record at `first + there` or behind it, and none from `first + absent` on.
    let (mut there, mut absent) = (0, 1);
    while let Some(n) = first.checked_add(absent)
        && is_behind(n)?
    {
        (there, absent) = (absent, absent.saturating_mul(2));
    }
    while absent - there > 1 {
        let middle = there + (absent - there) / 2;
        match first.checked_add(middle) {
            Some(n) if is_behind(n)? => there = middle,
            _ => absent = middle,
        }
    }
    Ok(first + there)
}

/// State of the record with a number.
enum Is<'a> {
    Absent,
    Damaged,
    Sound(Cow<'a, [u8]>),
}

fn value_of(view: &dyn kv::View, number: u64) -> Result<Is<'_>, Trouble> {
    match view.get(&keys::change(number)) {
        Ok(Some(value)) => Ok(Is::Sound(value)),
        Ok(None) => Ok(Is::Absent),
        Err(Miss::Damage(_)) => Ok(Is::Damaged),
        Err(Miss::Absent(what)) => Err(Trouble::Absent(what)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io;

    use kv::{Damage, Size, TakeRecord, View};
    use meta::Note;
    use types::{Fid, Seq, SessionId, Time};

    use super::*;

    /// Records, and stretches of keys of which nothing is known.
    #[derive(Default)]
    struct Rotten(BTreeMap<Key, Vec<u8>>, Vec<(Key, Key)>);

    impl View for Rotten {
        fn get(&self, key: &Key) -> Result<Option<Cow<'_, [u8]>>, Miss> {
            match self.1.iter().find(|(from, end)| from <= key && key < end) {
                Some((_, end)) => Err(Damage { key: *key, end: *end }.into()),
                None => Ok(self.0.get(key).map(|value| Cow::Borrowed(value.as_slice()))),
            }
        }
        fn range(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&Key, &[u8]) -> bool) -> Result<(), Miss> {
            if from >= to {
                return Ok(());
            }
            let lost = self.1.iter().find(|(first, end)| first < to && from < end);
            let sound_to = lost.map_or(*to, |(first, _)| (*first).max(*from));
            for (key, value) in self.0.range(*from..sound_to) {
                if !f(key, value) {
                    return Ok(());
                }
            }
            lost.map_or(Ok(()), |(first, end)| Err(Damage { key: (*first).max(*from), end: *end }.into()))
        }
        fn each(&self, _: &mut TakeRecord<'_>) -> io::Result<()> {
            Ok(())
        }
        fn size(&self) -> Size {
            Size::default()
        }
        fn seq(&self) -> Seq {
            Seq(0)
        }
    }

    /// Changes 101 to 5000, of which a consumer has 100.
    fn view() -> Rotten {
        let mut view = Rotten::default();
        for number in 101..=5000u64 {
            let (fid, none) = (Fid(number), Fid(0));
            let (op, name) = (wire::changelog::ChangeOp::Create, Vec::new());
            let note = Note {
                op,
                flags: 0,
                who: None,
                fid,
                parent: none,
                name: name.clone(),
                old_parent: none,
                old_name: name,
                other: none,
                what: 0,
            };
            let record = ChangeRecord {
                bytes_before: number * 50,
                time: Time::default(),
                session: SessionId(1),
                note,
            };
            view.0.insert(keys::change(number), record.encode());
        }
        let consumer =
            ConsumerRecord { name: "c".into(), mask: 1, acked: 100, acked_at: Time::default(), lost: (0, 0) };
        view.0.insert(keys::consumer(1), consumer.encode());
        view
    }

    fn numbers(view: &Rotten) -> (u64, u64, usize) {
        let ledger = Ledger::load(view).expect("all is in memory");
        (ledger.first, ledger.last, ledger.consumers.len())
    }

    /// mds-C2: whatever is lost, no number is given to another change.
    #[test]
    fn numbers_of_lost_changes_are_not_given_again() {
        let mut sound = view();
        assert_eq!(numbers(&sound), (101, 5000, 1));
        let counts = Key::new(&[11, 1]).expect("short");
        let behind = Key::new(&[200]).expect("short");
        // The lost range: from, to | first, last, consumers
        let table = [
            // The first of them, with what stands before them.
            (counts, keys::change(140), (140, 5000, 1)),
            (keys::change(300), keys::change(340), (101, 5000, 1)),
            // The last, with all consumers: the last leaf of the table.
            (keys::change(4960), behind, (101, 4959 + NUMBERS_LOST, 0)),
            // The last, and a leaf of consumers begins behind them.
            (keys::change(4960), keys::kind_start(keys::CONSUMER), (101, 4959 + NUMBERS_LOST, 1)),
            // All.
            (counts, keys::kind_start(keys::CONSUMER), (101 + NUMBERS_LOST, 100 + NUMBERS_LOST, 1)),
            (counts, behind, (1 + NUMBERS_LOST, NUMBERS_LOST, 0)),
            // The last one alone.
            (keys::change(5000), keys::change(5000).after(), (101, 5000, 1)),
        ];
        for (from, to, want) in table {
            sound.1 = vec![(from, to)];
            assert_eq!(numbers(&sound), want, "{from:?} to {to:?}");
        }
    }
}
