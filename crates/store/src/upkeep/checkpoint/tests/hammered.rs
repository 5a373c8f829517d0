use hammer::Hammer;

use super::*;

#[test]
fn a_checkpoint_is_read_or_refused() {
    let (mut empty, _) = sample();
    (empty.sessions, empty.damage) = (vec![], vec![]);
    // The reader's buffer and bits of all pages; a B-tree node for one extent; a slot of 32 bytes for 4.
    let hammer = Hammer::new("OST checkpoint")
        .seeds([bytes_of(&sample()), bytes_of(&(empty, Base::default())), stream()])
        .bound(200, (300 << 10) + 4096);
    let outcome = hammer.run(
        |mut bytes| read_checkpoint(&mut bytes, START, DATA_PAGES).ok(),
        |bytes, (head, objects)| {
            if let Objects::Leaves(base) = objects {
                let again = bytes_of(&(head, base));
                // A number has longer forms too, and so have named pages, which nobody writes.
                assert!(again.len() <= bytes.len());
                assert_eq!(bytes_of(&leaves_of(&again)), again);
            }
            bytes.len()
        },
    );
    assert!(outcome.accepted > outcome.inputs / 50, "{outcome:?}");
}
