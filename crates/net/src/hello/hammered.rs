//! Greetings from strangers.

use hammer::{Hammer, sized};

use super::*;

#[test]
fn a_greeting_is_read_or_refused() {
    let repair = |bytes: &mut [u8]| {
        if let Some((raw, _)) = bytes.split_first_chunk_mut::<HELLO_LEN>() {
            let crc = crc32c(&raw[..HELLO_LEN - 4]);
            raw[HELLO_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
        }
    };
    let hello = |status, nid: &str| Hello::new(status, NodeId(7), nid.into()).encode();
    let seeds = [hello(Status::Welcome, "host:1@tcp0"), hello(Status::Stopping, "")];
    let hammer = Hammer::new("handshake").seeds(seeds).repair(&repair).bound(0, NID_MAX);
    let outcome = hammer.run(
        |bytes| Hello::decode(&sized(bytes)).ok(),
        |bytes, hello| {
            assert!(hello.nid.len() <= NID_MAX);
            assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
            bytes.len()
        },
    );
    assert!(outcome.accepted > outcome.inputs / 50, "{outcome:?}");
}
