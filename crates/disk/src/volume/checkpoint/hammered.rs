//! Chunk headers that nobody wrote.

use hammer::{Hammer, sized};

use super::*;

#[test]
fn a_chunk_header_is_read_or_refused() {
    let repair = |bytes: &mut [u8]| {
        if bytes.len() >= 4 {
            seal(bytes);
        }
    };
    let header = |len| ChunkHeader { len, index: 2, crc: 3, seq: 4 }.encode();
    let hammer =
        Hammer::new("chunk").seeds([header(0), header(CHUNK_BYTES_MAX as u32)]).repair(&repair).bound(0, 0);
    let outcome = hammer.run(
        |bytes| ChunkHeader::decode(&sized(bytes)),
        |bytes, h| {
            assert!(h.len as usize <= CHUNK_BYTES_MAX);
            assert_eq!(h.encode(), sized(bytes), "one header, two byte forms");
            bytes.len()
        },
    );
    assert!(outcome.accepted > outcome.inputs / 50, "{outcome:?}");
}
