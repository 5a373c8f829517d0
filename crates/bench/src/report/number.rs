//! Numbers as people read them, and text as HTML and CSV want it.

/// Three significant digits and no more: `0.0123`, `5.00`, `12.3`, `1,234,567`. NaN and infinity are a dash.
pub fn number(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => "–".into(),
        0.0 => "0".into(),
        v if v < 0.1 => significant(value, 3),
        v if v < 1.0 => format!("{value:.3}"),
        v if v < 10.0 => format!("{value:.2}"),
        v if v < 99.95 => format!("{value:.1}"),
        _ => grouped(value.round()),
    }
}

/// A published value, as it was published: `40.9`, `3,200.44`, `2,097,152`.
pub fn stated(value: f64) -> String {
    let text = significant(value, 12);
    let (whole, rest) =
        text.split_once('.').map_or((text.as_str(), String::new()), |(w, r)| (w, format!(".{r}")));
    whole.parse().map_or(text.clone(), |whole| grouped(whole) + &rest)
}

/// With separators at each thousand; of a whole number.
pub fn grouped(whole: f64) -> String {
    let digits = format!("{:.0}", whole.abs());
    let mut out = String::from(if whole < 0.0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The shortest decimal form within so many significant digits, for programs: no noise such as 0.30000000000000004.
pub fn significant(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return String::new();
    }
    let rounded: f64 = format!("{value:.*e}", digits.max(1) - 1).parse().unwrap_or(value);
    format!("{rounded}")
}

/// For axes: `0.5`, `20`, `5k`, `1.5M`.
pub fn tick(value: f64) -> String {
    let (divisor, suffix) = match value.abs() {
        v if v >= 1e9 => (1e9, "G"),
        v if v >= 1e6 => (1e6, "M"),
        v if v >= 1e4 => (1e3, "k"),
        _ => (1.0, ""),
    };
    format!("{}{suffix}", significant(value / divisor, 6))
}

/// `4.2 %`, `130 %`.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        p if !p.is_finite() => "–".into(),
        p if p.abs() < 10.0 => format!("{} %", significant(p, 2)),
        p => format!("{} %", grouped(p.round())),
    }
}

/// `0.42 s`, `12.3 s`, `4 min 10 s`, `2 h 5 min`.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() => "–".into(),
        s if s < 100.0 => format!("{} s", significant(s, 3)),
        s if s < 7200.0 => format!("{} min {} s", (s / 60.0).floor(), (s % 60.0).floor()),
        s => format!("{} h {} min", (s / 3600.0).floor(), (s % 3600.0 / 60.0).floor()),
    }
}

/// Text for HTML, in elements and in quoted attributes. Control characters are no part of HTML or SVG.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A field of CSV (RFC 4180). A leading sign of a formula is kept from being one in spreadsheets.
pub fn csv_field(text: &str) -> String {
    let begins_formula =
        text.starts_with(['=', '+', '@']) || (text.starts_with('-') && text.parse::<f64>().is_err());
    let text = if begins_formula { format!("'{text}") } else { text.to_owned() };
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        let table = [
            (0.0, "0"),
            (0.0123456, "0.0123"),
            (0.5, "0.500"),
            (5.0, "5.00"),
            (12.34, "12.3"),
            (99.97, "100"),
            (123.4, "123"),
            (1234.0, "1,234"),
            (999_999.6, "1,000,000"),
            (-1234567.0, "-1,234,567"),
            (f64::NAN, "–"),
            (f64::INFINITY, "–"),
        ];
        for (value, text) in table {
            assert_eq!(number(value), text);
        }
        let ticks = [
            (0.1 + 0.2, "0.3"),
            (1024.0, "1024"),
            (20_000.0, "20k"),
            (1.5e6, "1.5M"),
            (0.0, "0"),
            (3e9, "3G"),
        ];
        for (value, text) in ticks {
            assert_eq!(tick(value), text);
        }
        assert_eq!(
            (percent(0.0421), percent(1.301), percent(f64::NAN)),
            ("4.2 %".into(), "130 %".into(), "–".into())
        );
        assert_eq!(
            [duration(0.4211), duration(250.0), duration(7500.0)],
            ["0.421 s", "4 min 10 s", "2 h 5 min"]
        );
        assert_eq!(significant(1234.56789, 9), "1234.56789");
        assert_eq!(significant(f64::NAN, 9), "");
    }

    #[test]
    fn published_values_stay_as_they_were() {
        let table =
            [(40.9, "40.9"), (3200.44, "3,200.44"), (2_097_152.0, "2,097,152"), (0.5, "0.5"), (f64::NAN, "")];
        for (value, text) in table {
            assert_eq!(stated(value), text);
        }
    }

    #[test]
    fn text_stays_text() {
        assert_eq!(escape("<script>&'\"\u{0}"), "&lt;script&gt;&amp;&#39;&quot;\u{fffd}");
        assert_eq!(csv_field("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!([csv_field("=1+1"), csv_field("-5"), csv_field("-x")], ["'=1+1", "-5", "'-x"]);
    }
}
