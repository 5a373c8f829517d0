//! Striping as text, with the letters of `lfs setstripe`. Users give it to `setstripe` and to the attribute `stria.layout`.
//!
//! ```text
//! -c 4 -S 1M                              four stripes of 1 MiB units, for the whole file
//! -E 64M -c 1 -E 1G -c 4 -E -1 -c -1      progressive: each -E begins a component that ends there; -1 = end of file
//! -i 2                                    start with OST 2          --inline 0    never keep content in the MDT
//! ```
//! Errors name the word at fault.

use types::layout::{COMPONENTS_MAX, STRIPE_SIZE, STRIPE_SIZE_MIN, STRIPES_MAX};
use wire::meta::{StripeComponent, StripeSpec};

/// `-c -1`: all OSTs. `-i -1`: the MDT chooses the first one.
pub const ALL: u16 = u16::MAX;

/// The text is not a valid striping. `word` is the word at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadStripe {
    pub word: String,
    pub why: String,
}

impl std::fmt::Display for BadStripe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "'{}': {}", self.word, self.why)
    }
}
impl std::error::Error for BadStripe {}

/// Reads words separated by white space.
pub fn parse(text: &str) -> Result<StripeSpec, BadStripe> {
    parse_words(text.split_whitespace())
}

/// Reads words, as a command line gives them. `-c4`, `-c 4`, `--stripe-count 4` and `--stripe-count=4` mean the same.
pub fn parse_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<StripeSpec, BadStripe> {
    let mut draft = Draft::default();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let (option, value) = split_option(word)?;
        let value = match value {
            Some(value) => value,
            None => words.next().ok_or_else(|| bad(word, "a value must follow"))?,
        };
        draft.take(option, value)?;
    }
    draft.finish()
}

#[derive(Clone, Copy, PartialEq)]
enum Opt {
    End,
    Count,
    Size,
    Start,
    Inline,
}

fn split_option(word: &str) -> Result<(Opt, Option<&str>), BadStripe> {
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (long, None),
        };
        let option = match name {
            "component-end" => Opt::End,
            "stripe-count" => Opt::Count,
            "stripe-size" => Opt::Size,
            "stripe-index" => Opt::Start,
            "inline" | "inline-max" => Opt::Inline,
            _ => return Err(bad(word, "no such option; there are -E -c -S -i --inline")),
        };
        return Ok((option, value));
    }
    let short = |option, rest: &'static str| -> Option<(Opt, Option<&str>)> {
        let value = word.strip_prefix(rest)?;
        Some((option, (!value.is_empty()).then_some(value)))
    };
    [short(Opt::End, "-E"), short(Opt::Count, "-c"), short(Opt::Size, "-S"), short(Opt::Start, "-i")]
        .into_iter()
        .flatten()
        .next()
        .ok_or_else(|| bad(word, "no such option; there are -E -c -S -i --inline"))
}

/// A specification under construction.
#[derive(Default)]
struct Draft {
    components: Vec<StripeComponent>,
    inline_max: Option<u32>,
    /// True after an `-E`: options then belong to the component that the last `-E` began.
    has_end: bool,
    last_end: String,
}

impl Draft {
    fn take(&mut self, option: Opt, value: &str) -> Result<(), BadStripe> {
        match option {
            Opt::End => self.begin(value),
            Opt::Inline => {
                let bytes = parse_size(value)?;
                self.inline_max =
                    Some(u32::try_from(bytes).map_err(|_| bad(value, "too large for inline content"))?);
                Ok(())
            }
            Opt::Count => {
                self.last()?.stripe_count = parse_count(value)?;
                Ok(())
            }
            Opt::Size => {
                self.last()?.stripe_size = parse_stripe_size(value)?;
                Ok(())
            }
            Opt::Start => {
                self.last()?.start = parse_start(value)?;
                Ok(())
            }
        }
    }

    fn begin(&mut self, value: &str) -> Result<(), BadStripe> {
        if !self.has_end && !self.components.is_empty() {
            return Err(bad(value, "-c, -S and -i of a component stand after its -E"));
        }
        let end = match value {
            "-1" | "eof" | "EOF" => u64::MAX,
            _ => parse_size(value)?,
        };
        if self.components.last().is_some_and(|c| c.end >= end) || end == 0 {
            return Err(bad(value, "component ends must rise"));
        }
        if self.components.len() == COMPONENTS_MAX {
            return Err(bad(value, &format!("more than {COMPONENTS_MAX} components")));
        }
        self.has_end = true;
        self.last_end = value.to_string();
        self.components.push(StripeComponent { end, stripe_size: 0, stripe_count: 0, start: ALL });
        Ok(())
    }

    /// The component that an option belongs to: the one begun last, or the only one where no `-E` is given.
    fn last(&mut self) -> Result<&mut StripeComponent, BadStripe> {
        if self.components.is_empty() {
            self.components.push(StripeComponent {
                end: u64::MAX,
                stripe_size: 0,
                stripe_count: 0,
                start: ALL,
            });
        }
        Ok(self.components.last_mut().expect("one was just made if there was none"))
    }

    fn finish(self) -> Result<StripeSpec, BadStripe> {
        if self.components.is_empty() && self.inline_max.is_none() {
            return Err(bad("", "nothing is asked for; give -c, -S, -i, -E or --inline"));
        }
        if self.components.last().is_some_and(|c| c.end != u64::MAX) {
            return Err(bad(&self.last_end, "the last component must reach the end of the file: -E -1"));
        }
        for c in self.components.iter().filter(|c| c.end != u64::MAX) {
            let unit = if c.stripe_size == 0 { STRIPE_SIZE } else { c.stripe_size };
            if c.end % unit as u64 != 0 {
                let why = format!(
                    "a component must end at a multiple of its stripe size ({})",
                    show_size(unit as u64)
                );
                return Err(bad(&show_size(c.end), &why));
            }
        }
        assert!(self.components.len() <= COMPONENTS_MAX, "a specification fits a layout");
        assert!(self.components.is_sorted_by(|a, b| a.end < b.end), "component ends rise");
        Ok(StripeSpec { components: self.components, inline_max: self.inline_max })
    }
}

fn parse_count(value: &str) -> Result<u16, BadStripe> {
    match value.parse::<i32>() {
        Ok(-1) => Ok(ALL),
        Ok(n) if (0..=STRIPES_MAX as i32).contains(&n) => Ok(n as u16),
        _ => Err(bad(value, &format!("a stripe count is -1 (all), 0 (default) or 1 to {STRIPES_MAX}"))),
    }
}

fn parse_start(value: &str) -> Result<u16, BadStripe> {
    match value.parse::<i32>() {
        Ok(-1) => Ok(ALL),
        Ok(n) if (0..ALL as i32).contains(&n) => Ok(n as u16),
        _ => Err(bad(value, "a stripe index is -1 (any) or the index of an OST")),
    }
}

fn parse_stripe_size(value: &str) -> Result<u32, BadStripe> {
    let bytes = parse_size(value)?;
    match u32::try_from(bytes) {
        Ok(0) => Ok(0),
        Ok(n) if n >= STRIPE_SIZE_MIN && n.is_power_of_two() => Ok(n),
        _ => Err(bad(value, "a stripe size is 0 (default) or a power of two from 64K to 2G")),
    }
}

/// Bytes from text: a number, with K, M, G or T (powers of 1024; a following `B` or `iB` is fine).
pub fn parse_size(text: &str) -> Result<u64, BadStripe> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return Err(bad(text, "a size is a number with K, M, G or T")),
    };
    let number: u64 = number.parse().map_err(|_| bad(text, "a size is a number with K, M, G or T"))?;
    number.checked_mul(1 << shift).ok_or_else(|| bad(text, "too large"))
}

/// Formats bytes in the largest unit that divides them.
pub fn show_size(bytes: u64) -> String {
    let fits = |(shift, _): &(u32, &str)| bytes != 0 && bytes.is_multiple_of(1u64 << shift);
    match [(40, "T"), (30, "G"), (20, "M"), (10, "K")].iter().find(|u| fits(u)) {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// The text that `parse` reads back to the same specification.
pub fn print(spec: &StripeSpec) -> String {
    let mut words: Vec<String> = Vec::new();
    let minus_one = |n: u16| if n == ALL { "-1".to_string() } else { n.to_string() };
    for c in &spec.components {
        let end = if c.end == u64::MAX { "-1".to_string() } else { show_size(c.end) };
        // A component for the whole file needs no -E, unless no other word would show that there is a component.
        let is_bare = c.stripe_count == 0 && c.stripe_size == 0 && c.start == ALL;
        if spec.components.len() > 1 || is_bare {
            words.push(format!("-E {end}"));
        }
        if c.stripe_count != 0 {
            words.push(format!("-c {}", minus_one(c.stripe_count)));
        }
        if c.stripe_size != 0 {
            words.push(format!("-S {}", show_size(c.stripe_size as u64)));
        }
        if c.start != ALL {
            words.push(format!("-i {}", c.start));
        }
    }
    if let Some(bytes) = spec.inline_max {
        words.push(format!("--inline {}", show_size(bytes as u64)));
    }
    words.join(" ")
}

fn bad(word: &str, why: &str) -> BadStripe {
    BadStripe { word: word.to_string(), why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comp(end: u64, stripe_size: u32, stripe_count: u16, start: u16) -> StripeComponent {
        StripeComponent { end, stripe_size, stripe_count, start }
    }

    #[test]
    fn texts_mean_what_lfs_means() {
        const M: u32 = 1 << 20;
        let eof = u64::MAX;
        let table = [
            ("-c 4 -S 1M", vec![comp(eof, M, 4, ALL)], None),
            ("-c4 -S1M -i2", vec![comp(eof, M, 4, 2)], None),
            ("--stripe-count=-1 --stripe-size 64k", vec![comp(eof, 65536, ALL, ALL)], None),
            ("-E 64M -c 1 -S 1M -E -1 -c 4", vec![comp(64 << 20, M, 1, ALL), comp(eof, 0, 4, ALL)], None),
            ("-E 1G\n-E eof -c -1 -i -1", vec![comp(1 << 30, 0, 0, ALL), comp(eof, 0, ALL, ALL)], None),
            ("--inline 0", vec![], Some(0)),
            ("-E -1 --inline 0", vec![comp(eof, 0, 0, ALL)], Some(0)),
            ("-c 2 --inline=128KiB", vec![comp(eof, 0, 2, ALL)], Some(128 << 10)),
        ];
        for (text, components, inline_max) in table {
            let spec = parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(spec, StripeSpec { components, inline_max }, "{text}");
            assert_eq!(parse(&print(&spec)), Ok(spec), "{text}");
        }
    }

    #[test]
    fn what_is_printed_is_what_was_set() {
        for text in ["-c 4", "-c -1 -S 4M -i 2", "-E 64M -c 1 -E -1 -c 4", "-c 2 --inline 128K"] {
            assert_eq!(parse(text).map(|spec| print(&spec)).as_deref(), Ok(text));
        }
    }

    #[test]
    fn errors_name_the_word() {
        let table = [
            ("", ""),
            ("-c", "-c"),
            ("-x 4", "-x"),
            ("--bogus=1", "--bogus=1"),
            ("-c many", "many"),
            ("-c 2001", "2001"),
            ("-c -2", "-2"),
            ("-S 100K", "100K"),
            ("-S 4K", "4K"),
            ("-S 1Q", "1Q"),
            ("-S 99999999T", "99999999T"),
            ("-i 65535", "65535"),
            ("-E 64M -c 1", "64M"),
            ("-E 64M -E 32M -E -1", "32M"),
            ("-E 0 -E -1", "0"),
            ("-E -1 -E -1", "-1"),
            ("-c 1 -E 64M -E -1", "64M"),
            ("-E 100K -S 64K -E -1", "100K"),
            ("--inline 5G", "5G"),
        ];
        for (text, word) in table {
            let got = parse(text).expect_err(text);
            assert_eq!(got.word, word, "{text}: {got}");
        }
    }

    #[test]
    fn sizes_there_and_back() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("3K", 3072), ("1m", 1 << 20), ("2GiB", 2 << 30), ("1T", 1 << 40)]
        {
            assert_eq!(parse_size(text), Ok(bytes));
            assert_eq!(parse_size(&show_size(bytes)), Ok(bytes));
        }
        assert_eq!(show_size(1537), "1537");
    }
}
