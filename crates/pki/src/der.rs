//! A reader for the few DER fields that webpki checks but does not give out: times of a certificate, parts of a revocation list.
//!
//! webpki decides what is valid; this reader only finds what it has decided on. It never panics, and it copies nothing.

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const CONTEXT_0: u8 = 0xa0;
/// 2.5.29.20
const CRL_NUMBER: [u8; 3] = [0x55, 0x1d, 0x14];

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The next element: tag, content, and all of it with its head.
    fn next(&mut self) -> Option<(u8, &'a [u8], &'a [u8])> {
        let (&[tag, first], _) = self.0.split_first_chunk::<2>()?;
        let (head, len) = match first {
            0..=0x7f => (2, usize::from(first)),
            // Lengths of up to 4 bytes; a longer one is longer than any file that is read.
            0x81..=0x84 => {
                let digits = usize::from(first & 0x7f);
                let bytes = self.0.get(2..2 + digits)?;
                (2 + digits, bytes.iter().fold(0, |sum, b| sum << 8 | usize::from(*b)))
            }
            _ => return None,
        };
        let end = head.checked_add(len)?;
        let whole = self.0.get(..end)?;
        self.0 = &self.0[end..];
        Some((tag, &whole[head..], whole))
    }

    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, ..)| *found == tag).map(|(_, content, _)| content)
    }

    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }
}

/// Elements that stand one after another.
pub fn split(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let (mut reader, mut found) = (Reader(bytes), Vec::new());
    while !reader.0.is_empty() {
        found.push(reader.next()?.2);
    }
    Some(found)
}

/// Begin and end of a certificate, in seconds since 1970.
pub fn validity(certificate: &[u8]) -> Option<(u64, u64)> {
    let mut tbs = Reader(Reader(Reader(certificate).take(SEQUENCE)?).take(SEQUENCE)?);
    tbs.take(CONTEXT_0)?;
    tbs.take(INTEGER)?;
    tbs.take(SEQUENCE)?;
    tbs.take(SEQUENCE)?;
    let mut times = Reader(tbs.take(SEQUENCE)?);
    Some((seconds(&mut times)?, seconds(&mut times)?))
}

fn seconds(reader: &mut Reader) -> Option<u64> {
    let (tag, text, _) = reader.next()?;
    let digits: Vec<i64> = text.strip_suffix(b"Z")?.iter().map(|b| i64::from(b.wrapping_sub(b'0'))).collect();
    if digits.iter().any(|digit| !(0..=9).contains(digit)) {
        return None;
    }
    let number = |range: std::ops::Range<usize>| {
        digits.get(range).map(|part| part.iter().fold(0i64, |sum, digit| sum * 10 + digit))
    };
    let (year, rest) = match (tag, digits.len()) {
        // RFC 5280: 50 to 99 are of the last century.
        (UTC_TIME, 12) => (number(0..2).map(|y| if y < 50 { 2000 + y } else { 1900 + y })?, 2),
        (GENERALIZED_TIME, 14) => (number(0..4)?, 4),
        _ => return None,
    };
    let part = |n: usize| number(rest + 2 * n..rest + 2 * n + 2).and_then(|value| u8::try_from(value).ok());
    let month = time::Month::try_from(part(0)?).ok()?;
    let date = time::Date::from_calendar_date(i32::try_from(year).ok()?, month, part(1)?).ok()?;
    let clock = time::Time::from_hms(part(2)?, part(3)?, part(4)?).ok()?;
    u64::try_from(time::PrimitiveDateTime::new(date, clock).assume_utc().unix_timestamp()).ok()
}

/// The parts of a revocation list.
#[derive(Debug)]
pub struct ListParts<'a> {
    /// The signed bytes.
    pub signed: &'a [u8],
    pub signature: &'a [u8],
    pub number: u64,
}

pub fn list_parts(list: &[u8]) -> Option<ListParts<'_>> {
    let mut outer = Reader(Reader(list).take(SEQUENCE)?);
    let (tag, content, signed) = outer.next()?;
    outer.take(SEQUENCE)?;
    // The first byte counts unused bits, of which a signature has none.
    let (0, signature) = outer.take(BIT_STRING)?.split_first().map(|(unused, rest)| (*unused, rest))? else {
        return None;
    };
    let mut tbs = Reader(content);
    while tag == SEQUENCE && tbs.peek()? != CONTEXT_0 {
        tbs.next()?;
    }
    let mut extensions = Reader(Reader(tbs.take(CONTEXT_0)?).take(SEQUENCE)?);
    while !extensions.0.is_empty() {
        let mut extension = Reader(extensions.take(SEQUENCE)?);
        if extension.take(OID)? == CRL_NUMBER {
            let digits = Reader(extension.take(OCTET_STRING)?).take(INTEGER)?;
            let digits = digits.strip_prefix(&[0]).unwrap_or(digits);
            let number = digits.iter().fold(0u64, |sum, b| sum << 8 | u64::from(*b));
            return (digits.len() <= 8).then_some(ListParts { signed, signature, number });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_rfc_5280_writes_them() {
        let time = |tag: u8, text: &str| {
            let bytes = [&[tag, text.len() as u8][..], text.as_bytes()].concat();
            seconds(&mut Reader(&bytes))
        };
        assert_eq!(time(UTC_TIME, "700101000001Z"), Some(1));
        assert_eq!(time(UTC_TIME, "491231235959Z"), Some(2_524_607_999));
        assert_eq!(time(GENERALIZED_TIME, "20500101000000Z"), Some(2_524_608_000));
        for bad in ["500101000000Z", "201301000000Z", "20130100000Z", "2013010000000", "a00101000001Z"] {
            assert_eq!(time(UTC_TIME, bad), None, "{bad}");
        }
    }

    #[test]
    fn elements_are_split_only_where_each_is_whole() {
        assert_eq!(split(&[]), Some(vec![]));
        assert_eq!(split(&[4, 1, 9, 5, 0]), Some(vec![&[4, 1, 9][..], &[5, 0]]));
        assert_eq!(split(&[4, 1, 9, 5]), None);
        assert_eq!(split(&[4, 0x85, 0, 0, 0, 0, 0]), None);
        assert_eq!(split(&[4, 0x84, 255, 255, 255, 255]), None);
    }
}
