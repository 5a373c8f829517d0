use hammer::Hammer;

use super::*;

#[test]
fn a_snapshot_is_read_or_refused() {
    let (scrub, service, log_begin) = (Scrub::default(), Service::default(), Seq(0));
    let empty = Snapshot { sessions: vec![], damage: vec![], scrub, service, log_begin, objects: vec![] };
    // The reader's buffer; a B-tree node for one extent; a slot of 32 bytes for 4.
    let hammer = Hammer::new("OST checkpoint")
        .seeds([bytes_of(&sample()), bytes_of(&empty)])
        .bound(200, (256 << 10) + 4096);
    let outcome = hammer.run(
        |mut bytes| read_snapshot(&mut bytes, START).ok(),
        |bytes, snapshot| {
            let again = bytes_of(&snapshot);
            // A number has longer forms too, which nobody writes; the versions before had no service and no counts of patches,
            // and no scrub.
            let objects = snapshot.objects.len();
            let lacking =
                if bytes[4] == VERSION { 0 } else { (SCRUB_BYTES + SERVICE_BYTES) as usize + objects };
            assert!(again.len() <= bytes.len() + lacking);
            assert_eq!(bytes_of(&read_snapshot(&mut &again[..], START).expect("it was just written")), again);
            bytes.len()
        },
    );
    assert!(outcome.accepted > outcome.inputs / 50, "{outcome:?}");
}
