//! Files that are not maps.

use hammer::Hammer;

use super::*;
use crate::conformance::sample;

#[test]
fn a_map_file_is_read_or_refused() {
    let repair = |bytes: &mut [u8]| {
        if let Some((head, body)) = bytes.split_at_mut_checked(HEAD_LEN) {
            head[24..28].copy_from_slice(&(body.len() as u32).to_le_bytes());
            let crc = file_crc(&head[..28], body);
            head[28..].copy_from_slice(&crc.to_le_bytes());
        }
    };
    let hammer = Hammer::new("map file").seeds([encode(&sample(7))]).repair(&repair);
    let outcome = hammer.run(
        |bytes| decode(bytes).ok(),
        |bytes, map| {
            assert_eq!(encode(&map), bytes, "one map, two byte forms");
            bytes.len()
        },
    );
    assert!(outcome.accepted > outcome.inputs / 50, "{outcome:?}");
}
