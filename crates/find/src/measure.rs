//! `+7`, `-1G`, `4`: more than, less than, exactly so many units.

/// How a value compares with a number of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// `-N`: less than N units.
    Less,
    /// `N`: N units, after rounding.
    Same,
    /// `+N`: more than N units, after rounding.
    More,
}

/// A test of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    pub sign: Sign,
    pub number: u64,
    pub unit: u64,
    /// A part of a unit counts as a whole one: sizes and minutes. Else it does not count: days.
    pub rounds_up: bool,
}

impl Measure {
    pub fn holds(&self, value: i128) -> bool {
        let (number, unit) = (i128::from(self.number), i128::from(self.unit));
        let units = match self.rounds_up {
            true => -(-value).div_euclid(unit),
            false => value.div_euclid(unit),
        };
        match self.sign {
            Sign::Less => value < number * unit,
            Sign::Same => units == number,
            Sign::More => units > number,
        }
    }

    /// The least and the greatest value for which it holds; none: there is no bound.
    pub fn bounds(&self) -> (Option<i128>, Option<i128>) {
        let (number, unit) = (i128::from(self.number), i128::from(self.unit));
        let first = |units: i128| if self.rounds_up { (units - 1) * unit + 1 } else { units * unit };
        match self.sign {
            Sign::Less => (None, Some(number * unit - 1)),
            Sign::Same => (Some(first(number)), Some(first(number + 1) - 1)),
            Sign::More => (Some(first(number + 1)), None),
        }
    }

    /// Sign and rest of a word.
    pub fn sign_of(word: &str) -> (Sign, &str) {
        match word.as_bytes().first() {
            Some(b'+') => (Sign::More, &word[1..]),
            Some(b'-') => (Sign::Less, &word[1..]),
            _ => (Sign::Same, word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_unit_counts_for_sizes_and_not_for_days() {
        let measure = |sign, number, rounds_up| Measure { sign, number, unit: 10, rounds_up };
        let holds =
            |sign, rounds_up| (0..=40).filter(|v| measure(sign, 2, rounds_up).holds(*v)).collect::<Vec<_>>();
        assert_eq!(holds(Sign::Same, true), (11..=20).collect::<Vec<_>>());
        assert_eq!(holds(Sign::Same, false), (20..=29).collect::<Vec<_>>());
        assert_eq!(holds(Sign::Less, true), (0..=19).collect::<Vec<_>>());
        assert_eq!(holds(Sign::Less, false), (0..=19).collect::<Vec<_>>());
        assert_eq!(holds(Sign::More, true), (21..=40).collect::<Vec<_>>());
        assert_eq!(holds(Sign::More, false), (30..=40).collect::<Vec<_>>());
        for (sign, rounds_up) in
            [Sign::Less, Sign::Same, Sign::More].into_iter().flat_map(|s| [(s, true), (s, false)])
        {
            let (least, greatest) = measure(sign, 2, rounds_up).bounds();
            let within =
                (0..=40).filter(|v| least.is_none_or(|l| *v >= l) && greatest.is_none_or(|g| *v <= g));
            assert_eq!(within.collect::<Vec<_>>(), holds(sign, rounds_up), "{sign:?} {rounds_up}");
        }
        // Times of the future are younger than any age.
        assert!(measure(Sign::Less, 1, false).holds(-5) && !measure(Sign::Same, 0, false).holds(-5));
    }
}
