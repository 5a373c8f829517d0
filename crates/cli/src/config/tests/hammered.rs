use hammer::Hammer;

use super::*;
use crate::reach::Source;

fn strike<C: Config + PartialEq + std::fmt::Debug>(name: &str) {
    // The TOML library keeps a tree with positions, and quotes the text in an error.
    let hammer = Hammer::new(name).seeds([C::example().print()]).text().bound(400, 64 << 10);
    let outcome = hammer.run(
        |bytes| parse::<C>(&String::from_utf8_lossy(bytes)).ok(),
        |bytes, config| {
            assert_eq!(parse::<C>(&config.print()).as_ref(), Ok(&config));
            bytes.len()
        },
    );
    assert!(outcome.accepted > outcome.inputs / 100, "{name}: {outcome:?}");
}

#[test]
fn a_configuration_is_read_or_refused() {
    strike::<Mgs>("mgs.toml");
    strike::<Mds>("mds.toml");
    strike::<Oss>("oss.toml");
    strike::<Mount>("mount.toml");
}

#[test]
fn a_size_and_a_source_are_read_or_refused() {
    let hammer = Hammer::new("size").seeds(["4096", "64K", "1.5T", "8GiB", "0.5K"]).text().bound(16, 1024);
    let outcome = hammer.run(
        |bytes| String::from_utf8_lossy(bytes).parse::<Size>().ok(),
        |bytes, size| {
            assert_eq!(size.to_string().parse(), Ok(size));
            bytes.len()
        },
    );
    assert!(outcome.accepted > outcome.inputs / 100, "{outcome:?}");
    let seeds = ["10.0.0.5@tcp0:/stria", "a:7010@tcp0,b:7010@tcp0:/x", "unix:/run/s@local0:/fs"];
    let hammer = Hammer::new("source").seeds(seeds).text().bound(48, 1024);
    let outcome = hammer.run(
        |bytes| Source::parse(&String::from_utf8_lossy(bytes)).ok(),
        |bytes, source| {
            assert_eq!(Source::parse(&source.to_string()), Ok(source));
            bytes.len()
        },
    );
    assert!(outcome.accepted > outcome.inputs / 100, "{outcome:?}");
}
