use hammer::Hammer;

use super::*;

#[test]
fn a_header_is_read_or_refused() {
    let repair = |bytes: &mut [u8]| {
        if bytes.len() >= 4 {
            seal(bytes);
        }
    };
    let mark = Header { kind: EntryKind::Mark, ..header() };
    let hammer =
        Hammer::new("log entry").seeds([header().encode(), mark.encode()]).repair(&repair).bound(0, 0);
    let outcome = hammer.run(Header::decode, |bytes, h| {
        assert_eq!(h.encode(), bytes, "one header, two byte forms");
        bytes.len()
    });
    assert!(outcome.accepted > outcome.inputs / 50, "{outcome:?}");
}
