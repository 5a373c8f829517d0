//! Counters over a target's whole life: the bytes written since it was formatted. Also its sub-block size.
//!
//! They are in each checkpoint. After a crash, the replayed entries' pages are counted again; the log's own bytes and failed writes
//! after the checkpoint are missing then.

use types::PAGE_SIZE;
use wire::{Malformed, Reader, Wire};

use crate::records::error::StoreError;
use crate::records::record::Record;
use crate::state::engine::Engine;
use crate::state::waste::SubBlock;
use disk::alloc::ORDER_MAX;

/// Encoded size in a checkpoint, bytes.
pub(crate) const SERVICE_BYTES: u64 = 32;

/// Since the target was formatted, or first opened by a release that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Service {
    /// Bytes written to the device for all purposes.
    pub bytes_written: u64,
    pub user_bytes_written: u64,
    /// When counting began, seconds since 1970; 0: no caller with a clock has set it yet.
    pub since_sec: u64,
    /// Space is allocated in units of 2^this pages; 0: as large as each write needs.
    pub sub_block_order: u8,
}

impl Service {
    /// Adds to the counters.
    pub(crate) fn and(self, bytes_written: u64, user_bytes_written: u64) -> Service {
        Service {
            bytes_written: self.bytes_written.saturating_add(bytes_written),
            user_bytes_written: self.user_bytes_written.saturating_add(user_bytes_written),
            ..self
        }
    }
}

impl Engine {
    /// Sets the time when counting began, unless it is set already.
    pub(crate) fn note_service(&self, now_sec: u64) {
        let mut kept = self.service.lock();
        if kept.since_sec == 0 {
            kept.since_sec = now_sec;
        }
    }

    /// Sets the sub-block, the unit of allocation from the next opening on. Existing data stays where it is. It is for comparisons only:
    /// with a fixed sub-block store-S6 does not hold, since promises are counted in pages.
    pub fn set_sub_block(&self, sub_block: SubBlock) -> Result<(), StoreError> {
        self.service.lock().sub_block_order = sub_block.order;
        self.make_checkpoint()
    }

    /// Counts the bytes that a replayed entry wrote before the crash.
    pub(crate) fn count_replayed(&self, record: &Record) {
        let bytes = match record {
            Record::Write(w) => w.crcs.len() as u64 * PAGE_SIZE as u64,
            Record::Patch(p) => p.end() - p.offset,
            Record::Fill(f) => f.placed.iter().map(|p| p.crcs.len() as u64).sum::<u64>() * PAGE_SIZE as u64,
            _ => 0,
        };
        if bytes > 0 {
            let mut kept = self.service.lock();
            *kept = kept.and(bytes, bytes);
        }
    }
}

pub(crate) fn put_service(s: &Service, out: &mut Vec<u8>) {
    s.bytes_written.put(out);
    s.user_bytes_written.put(out);
    s.since_sec.put(out);
    u64::from(s.sub_block_order).put(out);
}

pub(crate) fn get_service(r: &mut Reader<'_>) -> Result<Service, Malformed> {
    let (bytes_written, user_bytes_written, since_sec) = (Wire::get(r)?, Wire::get(r)?, Wire::get(r)?);
    match <u64 as Wire>::get(r)? {
        order if order <= ORDER_MAX as u64 => {
            Ok(Service { bytes_written, user_bytes_written, since_sec, sub_block_order: order as u8 })
        }
        _ => Err(Malformed("sub-block")),
    }
}

/// A value with all fields different, for golden bytes.
#[cfg(test)]
pub(crate) fn sample() -> Service {
    Service { bytes_written: 5 << 32, user_bytes_written: 3, since_sec: 9, sub_block_order: 3 }
}
