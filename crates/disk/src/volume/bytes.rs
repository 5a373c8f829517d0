//! Little-endian numbers at fixed offsets of a fixed-size record.

pub fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}
pub fn put_u32(out: &mut [u8], at: usize, n: u32) {
    put(out, at, &n.to_le_bytes());
}
pub fn put_u64(out: &mut [u8], at: usize, n: u64) {
    put(out, at, &n.to_le_bytes());
}

pub fn array_at<const N: usize>(b: &[u8], at: usize) -> [u8; N] {
    b[at..at + N].try_into().expect("the slice has N bytes")
}
pub fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(b, at))
}
pub fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(b, at))
}

/// Stores the CRC32C of all other bytes in the last four bytes of a record.
pub fn seal(record: &mut [u8]) {
    let at = record.len() - 4;
    let crc = types::crc::crc32c(&record[..at]);
    put_u32(record, at, crc);
}
pub fn is_sealed(record: &[u8]) -> bool {
    let at = record.len() - 4;
    types::crc::crc32c(&record[..at]) == u32_at(record, at)
}
