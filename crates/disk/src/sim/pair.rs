//! Two media that lose power at once, as a volume's data and log media do: one image that is divided. Events of both are recorded in one
//! order, and can be cut at any point; a flush applies to one of them and says nothing about the other.

use std::io;
use std::sync::Arc;

use super::{Crash, Event, Image, SimDisk};
use crate::{Disk, Media, end_within};

/// One of the two media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Bytes from 0 on.
    First,
    /// Bytes behind those of the first.
    Second,
}

/// The fate of the unflushed writes of each medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    pub first: Crash,
    /// Without effect if there is only one medium.
    pub second: Crash,
}

impl From<Crash> for Outage {
    fn from(crash: Crash) -> Outage {
        Outage { first: crash, second: crash }
    }
}

impl SimDisk {
    /// Two media of zeros, all flushed. Both begin at a whole sector.
    pub fn pair(first_bytes: u64, second_bytes: u64) -> SimDisk {
        assert!(first_bytes.is_multiple_of(super::SECTOR_BYTES as u64));
        let mut image = Image::zeros((first_bytes + second_bytes) as usize);
        image.second_at = first_bytes as usize;
        SimDisk::from_image(image)
    }

    /// Where the second begins, if there are two.
    pub fn second_at(&self) -> Option<u64> {
        Some(self.second_at).filter(|at| *at < self.size_bytes)
    }

    /// One medium of two; without a second one, the first is the whole.
    pub fn side(self: &Arc<SimDisk>, side: Side) -> Arc<dyn Disk> {
        let (begin, end) = match side {
            Side::First => (0, self.second_at),
            Side::Second => (self.second_at, self.size_bytes),
        };
        Arc::new(Half { whole: self.clone(), side, begin, size_bytes: end - begin })
    }

    /// For a volume with its data on the first and its log on the second medium, or both on the only one.
    pub fn media(self: &Arc<SimDisk>) -> Media {
        let log = self.second_at().map(|_| self.side(Side::Second));
        Media { main: self.side(Side::First), log }
    }
}

struct Half {
    whole: Arc<SimDisk>,
    side: Side,
    begin: u64,
    size_bytes: u64,
}

impl Disk for Half {
    fn size(&self) -> u64 {
        self.size_bytes
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        end_within(self.size_bytes, offset, buf.len() as u64)?;
        self.whole.read_at(buf, self.begin + offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        end_within(self.size_bytes, offset, buf.len() as u64)?;
        self.whole.write_at(buf, self.begin + offset)
    }
    fn flush(&self) -> io::Result<()> {
        self.whole.happen(Event::FlushSide(self.side));
        Ok(())
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        end_within(self.size_bytes, offset, len)?;
        self.whole.discard(self.begin + offset, len)
    }
}
