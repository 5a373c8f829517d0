//! The changelog: changes and consumers (meta.md).

use std::collections::BTreeMap;

use crate::bytes::{Bytes, Read};

/// Operations that the changelog records.
const OPS: [u8; 14] = [1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 14, 15, 17];
/// Bytes that a record takes beside its key and value.
const OVERHEAD: u64 = 9;

#[derive(Default)]
pub struct Changes {
    /// By number: bytes of all changes before it, and its own.
    changes: BTreeMap<u64, (u64, u64)>,
    consumers: BTreeMap<u64, Consumer>,
    /// The newest change number and consumer id that were issued when a consumer was last added or removed.
    newest: Option<(u64, u64)>,
}

struct Consumer {
    acked: u64,
    lost: (u64, u64),
    name: Vec<u8>,
}

impl Changes {
    /// `key`: all of it.
    pub fn take_change(&mut self, number: u64, key: &[u8], value: &[u8]) -> Read<()> {
        let mut b = Bytes::of("change", value);
        let (version, op, flags, is_known) = (b.u8()?, b.u8()?, b.u8()?, b.u8()?);
        if version != 1 || !OPS.contains(&op) || flags > 3 || is_known > 1 {
            return b.wrong("version, operation or flags");
        }
        let before = b.varint()?;
        b.signed()?;
        if b.varint32()? >= 1_000_000_000 {
            return b.wrong("nanoseconds");
        }
        b.varint()?;
        for _ in 0..2 * is_known {
            b.varint32()?;
        }
        for _ in 0..4 {
            b.varint()?;
        }
        b.varint32()?;
        for _ in 0..2 {
            let len = b.u8()?;
            b.take(len.into())?;
        }
        b.end()?;
        if number == 0 {
            return b.wrong("numbers begin at 1");
        }
        self.changes.insert(number, (before, OVERHEAD + (key.len() + value.len()) as u64));
        Ok(())
    }

    pub fn take_consumer(&mut self, id: u64, value: &[u8]) -> Read<()> {
        let mut b = Bytes::of("consumer", value);
        let (version, mask, acked) = (b.u8()?, b.u64()?, b.u64()?);
        let (_sec, nsec) = (b.u64()?, b.u32()?);
        let lost = (b.u64()?, b.u64()?);
        let len = b.u8()?;
        let name = b.take(len.into())?.to_vec();
        b.end()?;
        if std::str::from_utf8(&name).is_err() {
            return b.wrong("name");
        }
        let known = OPS.iter().fold(0, |all, op| all | 1 << op);
        if version != 1 || mask == 0 || mask & !known != 0 || nsec >= 1_000_000_000 || len == 0 {
            return b.wrong("version, mask, time or name");
        }
        self.consumers.insert(id, Consumer { acked, lost, name });
        Ok(())
    }

    pub fn take_newest(&mut self, value: &[u8]) -> Read<()> {
        let mut b = Bytes::of("what outlives consumers", value);
        if b.u8()? != 1 {
            return b.wrong("version");
        }
        self.newest = Some((b.u64()?, b.u32()?.into()));
        b.end()
    }

    /// `is_lost`: some records were abandoned, so gaps are no finding.
    pub fn check(&self, is_lost: bool, out: &mut Vec<String>) {
        // 1. Numbers are consecutive, and byte positions add up.
        for ((number, (before, bytes)), (next, (next_before, _))) in
            self.changes.iter().zip(self.changes.iter().skip(1))
        {
            if !is_lost
                && Some((number + 1, *next_before)) != before.checked_add(*bytes).map(|sum| (*next, sum))
            {
                out.push(format!("change {next} with {next_before} bytes before it comes behind {number}"));
            }
        }
        // 2. What outlives them.
        let (number, id) = self.newest.unwrap_or_default();
        if self.newest.is_none() && !is_lost && (self.changes.len() + self.consumers.len() > 0) {
            out.push("a changelog without what outlives its consumers".into());
        }
        let last = self.changes.last_key_value().map(|(last, _)| *last);
        if last.is_some_and(|last| last < number) && !is_lost {
            out.push(format!("change {last:?} is the last one, and {number} was given before"));
        }
        // Without records, every consumer has acknowledged all issued numbers.
        let acked = self.consumers.values().map(|c| c.acked).max().unwrap_or(0);
        let last = last.unwrap_or(number.max(acked));
        // 3. Consumers: every change that a consumer has not acknowledged is still there.
        let mut names = BTreeMap::new();
        for (at, Consumer { acked, lost, name }) in &self.consumers {
            let mut wrong = |why: &str| out.push(format!("consumer {at}: {why}"));
            if names.insert(name, at).is_some() {
                wrong("another one has its name");
            }
            if *at == 0 || *at > id && !is_lost {
                wrong("its number was not given");
            }
            let (from, to) = *lost;
            if (from == 0) != (to == 0) || from > to || to > *acked {
                wrong(&format!("it lost {from} to {to}, and has acknowledged {acked}"));
            }
            if is_lost {
                continue;
            }
            if *acked > last {
                wrong("it has acknowledged what was not given");
            } else if *acked < last && !self.changes.contains_key(&(acked + 1)) {
                wrong(&format!("what comes behind {acked} is gone"));
            }
        }
    }
}
