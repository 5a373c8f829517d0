//! Decoding of malformed striping.

use hammer::Hammer;
use plan::stripe::{parse, parse_size, print, show_size};

#[test]
fn a_striping_is_read_or_refused() {
    let seeds = [
        "-c 4 -S 1M",
        "-E 64M -c 1 -E 1G -c 4 -E -1 -c -1",
        "-i 2 --inline 0 --stripe-count=7",
        "--component-end=1T -S64k -c-1 --stripe-size 2G -E-1",
    ];
    // A word of two letters is a component of 24 bytes; a word is quoted in its refusal.
    let hammer = Hammer::new("striping").seeds(seeds).text().bound(64, 1024);
    let outcome = hammer.run(
        |bytes| parse(&String::from_utf8_lossy(bytes)).ok(),
        |bytes, spec| {
            assert_eq!(parse(&print(&spec)), Ok(spec));
            bytes.len()
        },
    );
    assert!(outcome.accepted > outcome.inputs / 100, "{outcome:?}");
}

#[test]
fn a_size_is_read_or_refused() {
    let hammer = Hammer::new("size").seeds(["4096", "64K", "1G", "16383T", "7gib"]).text().bound(8, 512);
    let outcome = hammer.run(
        |bytes| parse_size(&String::from_utf8_lossy(bytes)).ok(),
        |bytes, size| {
            assert_eq!(parse_size(&show_size(size)), Ok(size));
            bytes.len()
        },
    );
    assert!(outcome.accepted > outcome.inputs / 100, "{outcome:?}");
}
