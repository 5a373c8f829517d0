use hammer::{Hammer, sized};

use super::*;

#[test]
fn a_superblock_is_read_or_refused() {
    let repair = |bytes: &mut [u8]| {
        if bytes.len() >= 4 {
            seal(bytes);
        }
    };
    let bare = Superblock { checkpoint: None, clean: false, ..superblock() };
    let noted = Superblock { incompat: NOTE, note: vec![5; 40], ..superblock() };
    let seeds = [superblock().encode(), bare.encode(), noted.encode()];
    // The label's name, and the text of a refusal.
    let hammer = Hammer::new("superblock").seeds(seeds).repair(&repair).bound(0, 512);
    let read = |bytes: &[u8]| {
        let block: [u8; SUPERBLOCK_BYTES] = sized(bytes);
        if counts(&block) { decode(&block).ok() } else { None }
    };
    let outcome = hammer.run(read, |bytes, sb| {
        assert!(sb.regions.are_valid(sb.medium_bytes, sb.log_medium));
        // Unused flags and bytes past the name may differ: the decoded content must be the same.
        assert!(decode(&sb.encode()).is_ok_and(|again| again == sb));
        bytes.len()
    });
    assert!(outcome.accepted > outcome.inputs / 50, "{outcome:?}");
}
