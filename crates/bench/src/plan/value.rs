//! Quantities of a plan evaluated: numbers, sizes, variables, products.
//!
//! Numbers are reals on the way (exact up to 2^53: 8 PiB), and whole ones are rounded down at the end.

use std::collections::BTreeMap;

use serde_json::Value;
use types::Size;

use super::finding::Trouble;
use super::schema::{Quantities, Quantity, Scale};

/// A variable may name another one, so deep at most: more is a circle.
const DEPTH_MAX: u32 = 16;

/// The last offset of a file, and more than anybody counts: beyond it numbers wrap somewhere.
const WHOLE_MAX: f64 = 9_223_372_036_854_774_784.0;

/// Values of `$name`: the point's swept value, else that of the scale or `--set`, else that of the machine.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    known: BTreeMap<String, Quantities>,
    swept: BTreeMap<String, f64>,
}

impl Variables {
    pub fn new(scale: &Scale) -> Variables {
        Variables { known: scale.values.clone(), swept: BTreeMap::new() }
    }

    /// Overrides the scale's value.
    pub fn set(&mut self, name: &str, value: Quantities) {
        self.known.insert(name.to_string(), value);
    }

    /// A point's own.
    pub fn sweep(&mut self, name: &str, value: f64) {
        self.swept.insert(name.to_string(), value);
    }

    pub fn has(&self, name: &str) -> bool {
        self.swept.contains_key(name) || self.known.contains_key(name)
    }

    /// The evaluated values of the scale and `--set`, for the report. Those that cannot be evaluated are left out.
    pub fn values(&self) -> BTreeMap<String, Value> {
        let shown = |(name, value): (&String, &Quantities)| {
            let mut list = self.list(value).ok()?.into_iter().map(|(shown, _)| shown);
            let value = match value {
                Quantities::One(_) => list.next()?,
                Quantities::Many(_) => Value::Array(list.collect()),
            };
            Some((name.clone(), value))
        };
        self.known.iter().filter_map(shown).collect()
    }

    pub fn real(&self, quantity: &Quantity) -> Result<f64, Trouble> {
        self.at_depth(quantity, 0)
    }

    /// Rounded down.
    pub fn whole(&self, quantity: &Quantity) -> Result<u64, Trouble> {
        let value = self.real(quantity)?;
        // A product such as `0.29 * 100` must not lose one by a bit that reals do not have.
        let near = value.round();
        let value =
            if (value - near).abs() <= near.abs() * 4.0 * f64::EPSILON { near } else { value.floor() };
        if value < 0.0 {
            return Err(Trouble::new(format!("{value} is negative"), "give 0 or more"));
        }
        if value > WHOLE_MAX {
            return Err(Trouble::new(format!("{value:e} is too much"), "give less than 8 EiB, or 2^63"));
        }
        Ok(value as u64)
    }

    pub fn count(&self, quantity: &Quantity) -> Result<u32, Trouble> {
        let value = self.whole(quantity)?;
        u32::try_from(value).map_err(|_| Trouble::new(format!("{value} is too many"), "give less than 2^32"))
    }

    /// The values of a sweep: as they are shown, and as numbers. A variable that is a list gives its values; none occurs twice.
    pub fn list(&self, quantities: &Quantities) -> Result<Vec<(Value, f64)>, Trouble> {
        let list = match quantities {
            Quantities::Many(list) => list.as_slice(),
            Quantities::One(Quantity::Text(text)) => match self.known_list(text) {
                Some(list) => list,
                None => return Ok(vec![self.shown(&Quantity::Text(text.clone()))?]),
            },
            Quantities::One(one) => std::slice::from_ref(one),
        };
        let mut values: Vec<(Value, f64)> = Vec::new();
        for quantity in list {
            let value = self.shown(quantity)?;
            if values.iter().all(|(_, number)| *number != value.1) {
                values.push(value);
            }
        }
        Ok(values)
    }

    fn known_list(&self, text: &str) -> Option<&[Quantity]> {
        match self.known.get(text.trim().strip_prefix('$')?)? {
            Quantities::Many(list) => Some(list),
            Quantities::One(_) => None,
        }
    }

    /// Sizes are shown as they were written, all else as a number.
    fn shown(&self, quantity: &Quantity) -> Result<(Value, f64), Trouble> {
        let number = self.real(quantity)?;
        let shown = match quantity {
            Quantity::Text(text) if is_size_with_suffix(text) => Value::from(text.as_str()),
            _ if number.fract() == 0.0 && (0.0..9e15).contains(&number) => Value::from(number as u64),
            _ => Value::from(number),
        };
        Ok((shown, number))
    }

    fn at_depth(&self, quantity: &Quantity, depth: u32) -> Result<f64, Trouble> {
        match quantity {
            Quantity::Whole(number) => Ok(*number as f64),
            Quantity::Real(number) => Ok(*number),
            Quantity::Text(text) => self.product(text, depth),
        }
    }

    /// `a * b / c`, from left to right.
    fn product(&self, text: &str, depth: u32) -> Result<f64, Trouble> {
        let mut rest = text;
        let mut operator = '*';
        let mut value = 1.0;
        loop {
            let end = rest.find(['*', '/']).unwrap_or(rest.len());
            let term = self.term(rest[..end].trim(), text, depth)?;
            value = if operator == '*' { value * term } else { value / term };
            if !value.is_finite() {
                return Err(Trouble::new(format!("'{text}' divides by 0"), "give a divisor that is not 0"));
            }
            match rest[end..].chars().next() {
                None => return Ok(value),
                Some(next) => (operator, rest) = (next, &rest[end + 1..]),
            }
        }
    }

    fn term(&self, term: &str, text: &str, depth: u32) -> Result<f64, Trouble> {
        if let Some(name) = term.strip_prefix('$') {
            return self.variable(name, depth);
        }
        if let Ok(Size(bytes)) = term.parse::<Size>() {
            return Ok(bytes as f64);
        }
        let number = term.parse().ok().filter(|_| term.starts_with(|c: char| c.is_ascii_digit()));
        number.ok_or_else(|| {
            let what = format!("'{text}' is no quantity");
            Trouble::new(
                what,
                "write a number, a size such as 8M, $name, or a product such as 2 * $ram / $threads",
            )
        })
    }

    fn variable(&self, name: &str, depth: u32) -> Result<f64, Trouble> {
        if let Some(value) = self.swept.get(name) {
            return Ok(*value);
        }
        match self.known.get(name) {
            _ if depth > DEPTH_MAX => {
                Err(Trouble::new(format!("${name} is made of itself"), "give one of them a number"))
            }
            Some(Quantities::One(value)) => self.at_depth(value, depth + 1),
            Some(Quantities::Many(_)) => {
                let next = format!("sweep it in the step: sweep.{name} = \"${name}\"");
                Err(Trouble::new(format!("${name} is a list and one value is needed"), next))
            }
            None if name == "threads" => Ok(1.0),
            None => {
                let known: Vec<&str> =
                    self.swept.keys().chain(self.known.keys()).map(String::as_str).collect();
                let next = format!(
                    "define it in the scale's values, or take one of those that there are: {}",
                    known.join(", ")
                );
                Err(Trouble::new(format!("there is no variable ${name}"), next))
            }
        }
    }
}

fn is_size_with_suffix(text: &str) -> bool {
    text.ends_with(|c: char| c.is_ascii_alphabetic()) && text.parse::<Size>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> Variables {
        let text = |text: &str| Quantity::Text(text.into());
        let mut variables = Variables::default();
        variables.set("ram", Quantities::One(Quantity::Whole(128 << 30)));
        variables.set("size", Quantities::One(text("2 * $ram")));
        variables
            .set("list", Quantities::Many(vec![Quantity::Whole(1), text("64K"), text("2 * 2"), text("4")]));
        variables.set("a", Quantities::One(text("$b")));
        variables.set("b", Quantities::One(text("$a")));
        variables.sweep("threads", 3.0);
        variables
    }

    #[test]
    fn quantities_are_evaluated_from_left_to_right() {
        let table = [
            ("8M", 8 << 20),
            ("17", 17),
            ("0.5 * 10", 5),
            ("2 * $ram / $threads", (256u64 << 30) / 3),
            ("$size/$threads*3", 256 << 30),
            ("0.29 * 100", 29),
            ("1T", 1 << 40),
            ("100 / 3 / 3", 11),
        ];
        for (text, want) in table {
            assert_eq!(variables().whole(&Quantity::Text(text.into())).unwrap(), want, "{text}");
        }
        assert_eq!(variables().real(&Quantity::Real(0.6)).unwrap(), 0.6);
    }

    #[test]
    fn what_is_no_quantity_says_what_to_write() {
        let table = [
            ("", "no quantity"),
            ("fast", "no quantity"),
            ("inf", "no quantity"),
            ("2 *", "no quantity"),
            ("1 / 0", "divides by 0"),
            ("$none", "no variable $none"),
            ("$list", "is a list"),
            ("$a", "made of itself"),
        ];
        for (text, want) in table {
            let said = variables().whole(&Quantity::Text(text.into())).unwrap_err();
            assert!(said.what.contains(want), "{text}: {said:?}");
        }
        assert!(variables().whole(&Quantity::Real(-1.0)).unwrap_err().what.contains("negative"));
    }

    #[test]
    fn a_sweep_shows_sizes_as_written_and_no_value_twice() {
        let shown = |text: &str| {
            let values = variables().list(&Quantities::One(Quantity::Text(text.into()))).unwrap();
            values.into_iter().map(|(shown, _)| shown.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown("$list"), r#"1 "64K" 4"#);
        assert_eq!(shown("$threads"), "3");
    }
}
