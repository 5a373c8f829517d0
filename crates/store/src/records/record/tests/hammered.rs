use hammer::Hammer;

use super::*;

#[test]
fn a_record_is_read_or_refused() {
    // A patch has two parts of pages at most, which take a page each.
    let hammer =
        Hammer::new("OST log record").seeds(samples().iter().map(bytes_of)).bound(24, 4096 + 2 * 4200);
    let outcome = hammer.run(
        |bytes| decode(bytes).ok(),
        |bytes, d| {
            let again = bytes_of(&(d.origin, d.answer, d.record.clone()));
            let at = Some(At::default());
            assert_eq!(decode(&again), Ok(Decoded { at, ..d }));
            bytes.len()
        },
    );
    assert!(outcome.accepted > outcome.inputs / 50, "{outcome:?}");
}
