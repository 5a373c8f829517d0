//! Chunk headers that no volume wrote.

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

/// Made by another program from `docs/formats/volume.md`.
#[test]
fn the_chunk_header_is_as_documented() {
    let golden = "53434b310a000000030000006b5c9c3b09000000000000000000000086911668";
    let payload = b"state of 9";
    let header = ChunkHeader { len: payload.len() as u32, index: 3, crc: crc32c(payload), seq: 9 };
    let hex: String = header.encode().iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, golden);
}
