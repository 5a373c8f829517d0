//! The list of damage in memory.

/// A damage that was found, at a place and of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    pub found_sec: u64,
    pub is_repaired: bool,
}

/// Rules of a repair that a test can take away.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// store-RR1: the CRC is compared.
    CrcCompared,
    /// store-RR1: the page is where it was looked up.
    PlaceCompared,
}
