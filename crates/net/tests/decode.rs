//! Decoding of malformed NIDs.

use hammer::Hammer;
use net::nid::Nid;

#[test]
fn a_nid_is_read_or_refused() {
    let seeds =
        ["127.0.0.1:7010@tcp0", "[::1]:7010", "mds1:7010@tcp1", "unix:/run/stria.sock@local0", "é:1@tcp"];
    let hammer = Hammer::new("nid").seeds(seeds).text().bound(8, 512);
    let read = |bytes: &[u8]| Nid::parse(&String::from_utf8_lossy(bytes)).ok();
    let outcome = hammer.run(read, |bytes, nid| {
        assert_eq!(Nid::parse(&nid.to_string()).as_ref(), Ok(&nid));
        bytes.len()
    });
    assert!(outcome.accepted > outcome.inputs / 50, "{outcome:?}");
}
