//! The head: one line of text that names the parts of the map.

use std::io::Read;

/// Form 1: `stria-map 1 VERSION PARTS BYTES CRC32C NONCE`, and a line feed.
const WORD: &str = "stria-map";
const FORM: &str = "1";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub version: u64,
    pub parts: usize,
    /// Length and CRC32C of all parts together.
    pub bytes: usize,
    pub crc: u32,
    /// Makes the keys of the parts unlike those of a change that another process made at the same time.
    pub nonce: u64,
}

impl Head {
    pub fn text(&self) -> String {
        let Head { version, parts, bytes, crc, nonce } = self;
        format!("{WORD} {FORM} {version} {parts} {bytes} {crc:08x} {nonce:016x}\n")
    }

    pub fn parse(text: &[u8]) -> Result<Head, String> {
        let bad = || "the head is not a line that Stria wrote".to_owned();
        let text = std::str::from_utf8(text).map_err(|_| bad())?;
        let words: Vec<&str> = text.trim_end_matches('\n').split(' ').collect();
        if let [WORD, form, ..] = words[..]
            && form != FORM
        {
            return Err(format!(
                "the head has form {form}, and this release knows {FORM}: use the newer release"
            ));
        }
        let [WORD, FORM, version, parts, bytes, crc, nonce] = words[..] else { return Err(bad()) };
        let head = Head {
            version: version.parse().map_err(|_| bad())?,
            parts: parts.parse().map_err(|_| bad())?,
            bytes: bytes.parse().map_err(|_| bad())?,
            crc: u32::from_str_radix(crc, 16).map_err(|_| bad())?,
            nonce: u64::from_str_radix(nonce, 16).map_err(|_| bad())?,
        };
        // One text for each head: a changed byte does not go unnoticed.
        if head.text() == text && head.parts > 0 { Ok(head) } else { Err(bad()) }
    }

    /// Begins the keys of its parts, behind `PREFIX/map/`.
    pub fn stamp(&self) -> String {
        format!("{}-{:016x}", version_text(self.version), self.nonce)
    }
}

/// Versions in the order of their numbers, as keys sort.
pub fn version_text(version: u64) -> String {
    format!("{version:020}")
}

pub fn nonce() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written_and_no_other_text_is() {
        let head = Head { version: 7, parts: 2, bytes: 600_000, crc: 0x8984_235e, nonce: 0xabc };
        let text = head.text();
        assert_eq!(text, "stria-map 1 7 2 600000 8984235e 0000000000000abc\n");
        assert_eq!(head.stamp(), "00000000000000000007-0000000000000abc");
        assert_eq!(Head::parse(text.as_bytes()), Ok(head));
        for len in 0..text.len() {
            assert!(Head::parse(&text.as_bytes()[..len]).is_err(), "cut to {len}");
        }
        for wrong in [
            "stria-map 1 7 0 0 00000000 0000000000000abc\n",
            "stria-map 1 +7 2 6 8984235e 0000000000000abc\n",
        ] {
            assert!(Head::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let newer = Head::parse(b"stria-map 2 whatever\n").unwrap_err();
        assert!(newer.contains("form 2"), "{newer}");
    }
}
