//! What a target keeps of its whole life: what was written on it since it was formatted, and its sub-block.
//!
//! It is in each checkpoint. After a crash, what replayed entries wrote is counted again by their pages; their own bytes in the log
//! and failed writes are missing then.

use types::PAGE_SIZE;
use wire::{Malformed, Reader, Wire};

use crate::records::error::StoreError;
use crate::records::record::Record;
use crate::state::engine::Engine;
use crate::state::waste::SubBlock;
use disk::alloc::ORDER_MAX;

/// Bytes of it in a checkpoint.
pub(crate) const SERVICE_BYTES: u64 = 32;

/// Since the target was formatted, or first opened by a release that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Service {
    /// To the device, by all purposes.
    pub bytes_written: u64,
    pub user_bytes_written: u64,
    /// When counting began, seconds since 1970; 0: nobody with a clock has said yet.
    pub since_sec: u64,
    /// Space is given out in pieces of 2^this pages; 0: in pieces as large as each write needs.
    pub sub_block_order: u8,
}

impl Service {
    /// With so many bytes more.
    pub(crate) fn and(self, bytes_written: u64, user_bytes_written: u64) -> Service {
        Service {
            bytes_written: self.bytes_written.saturating_add(bytes_written),
            user_bytes_written: self.user_bytes_written.saturating_add(user_bytes_written),
            ..self
        }
    }
}

impl Engine {
    /// If nobody has yet, says when counting began.
    pub(crate) fn note_service(&self, now_sec: u64) {
        let mut kept = self.service.lock();
        if kept.since_sec == 0 {
            kept.since_sec = now_sec;
        }
    }

    /// Sets the sub-block that space is given out in from the next opening on. What is there stays where it is. For comparison: with a
    /// fixed one store-S6 does not hold, since promises are kept in pages.
    pub fn set_sub_block(&self, sub_block: SubBlock) -> Result<(), StoreError> {
        self.service.lock().sub_block_order = sub_block.order;
        self.make_checkpoint()
    }

    /// What a replayed entry wrote before the crash.
    pub(crate) fn count_replayed(&self, record: &Record) {
        let bytes = match record {
            Record::Write(w) => w.crcs.len() as u64 * PAGE_SIZE as u64,
            Record::Patch(p) => p.end() - p.offset,
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

/// One with all fields different, for golden bytes.
#[cfg(test)]
pub(crate) fn sample() -> Service {
    Service { bytes_written: 5 << 32, user_bytes_written: 3, since_sec: 9, sub_block_order: 3 }
}
