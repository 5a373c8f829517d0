//! Sizes as text: `4096`, `64K`, `8G`, `1.5T`. Suffixes are powers of 1024; `iB` and `B` after them are allowed.
//!
//! Refused: negative numbers, unknown suffixes, and values above 64 bits. A fraction must give whole bytes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

const SUFFIXES: [(char, u32); 6] = [('K', 10), ('M', 20), ('G', 30), ('T', 40), ('P', 50), ('E', 60)];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let refuse =
            || format!("'{text}' is not a size: write bytes, or a number with K, M, G, T or P, such as 8G");
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(digits);
        let shift = shift_of(suffix).ok_or_else(refuse)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let whole: u64 = whole.parse().map_err(|_| refuse())?;
        let whole = whole.checked_mul(1 << shift).ok_or_else(|| format!("'{text}' is larger than 16 EiB"))?;
        let part = fraction_of(fraction, shift).ok_or_else(refuse)?;
        whole.checked_add(part).map(Size).ok_or_else(refuse)
    }
}

/// The power of two of a suffix.
fn shift_of(suffix: &str) -> Option<u32> {
    let upper = suffix.to_ascii_uppercase();
    let letter = upper.strip_suffix("IB").or_else(|| upper.strip_suffix('B')).unwrap_or(&upper);
    let mut chars = letter.chars();
    match (chars.next(), chars.next()) {
        (None, _) => (upper != "IB").then_some(0),
        (Some(c), None) => SUFFIXES.iter().find(|(s, _)| *s == c).map(|(_, shift)| *shift),
        _ => None,
    }
}

/// The bytes of the digits after the decimal point; `None` if they are not whole.
fn fraction_of(digits: &str, shift: u32) -> Option<u64> {
    if digits.is_empty() {
        return Some(0);
    }
    // Six digits keep the product far below 2^128, and are enough for any size in use.
    let value: u128 = digits.parse().ok().filter(|_| digits.len() <= 6)?;
    let (scaled, unit) = (value << shift, 10u128.pow(digits.len() as u32));
    (scaled % unit == 0).then_some((scaled / unit) as u64)
}

impl fmt::Display for Size {
    /// The shortest exact form: `8G`, `1536M`, `4097`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fit = SUFFIXES.iter().rev().find(|(_, shift)| self.0 != 0 && self.0.is_multiple_of(1 << shift));
        match fit {
            Some((letter, shift)) => write!(f, "{}{letter}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Formats bytes with one decimal, for people: `7.9G`.
pub fn human(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut letter = None;
    for (next, _) in SUFFIXES {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        letter = Some(next);
    }
    letter.map_or(format!("{bytes}B"), |l| format!("{value:.1}{l}"))
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Size, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Size;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"8G\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }
            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                u64::try_from(bytes).map(Size).map_err(|_| E::custom("a size cannot be negative"))
            }
        }
        d.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let table = [
            ("0", 0),
            ("4096", 4096),
            ("64k", 65_536),
            ("8G", 8 << 30),
            ("8GiB", 8 << 30),
            ("8gb", 8 << 30),
            ("1.5T", 3 << 39),
            ("100B", 100),
            ("2P", 2 << 50),
            ("15E", 15 << 60),
        ];
        for (text, bytes) in table {
            assert_eq!(text.parse::<Size>(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "G",
            "-1",
            "8X",
            "8 G",
            "1.5",
            "1..5G",
            "16E",
            "0x10",
            "1e3",
            "9999999999999999999999",
            "1iB",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text} was taken");
        }
    }

    #[test]
    fn the_printed_form_reads_back() {
        for bytes in [0, 1, 4095, 4096, 1 << 20, 3 << 29, 8 << 30, (8 << 30) + 1, u64::MAX] {
            assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
        }
        assert_eq!(Size(8 << 30).to_string(), "8G");
        assert_eq!(Size(3 << 29).to_string(), "1536M");
    }

    #[test]
    fn people_get_one_digit_behind_the_point() {
        assert_eq!(human(0), "0B");
        assert_eq!(human(1023), "1023B");
        assert_eq!(human(8 << 30), "8.0G");
        assert_eq!(human(1536 << 20), "1.5G");
    }
}
