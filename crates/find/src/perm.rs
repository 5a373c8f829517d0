//! `-perm`: `644` is exactly that, `-u+w` has all these bits, `/022` has any of them.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Perm {
    Exactly(u32),
    All(u32),
    Any(u32),
}

const BITS: u32 = 0o7777;

impl Perm {
    pub fn parse(word: &str) -> Result<Perm, String> {
        let refuse = || format!("'{word}' is no mode: write 644, -4000, /222, u=rw,go=r, -u+w or /g+w,o+w");
        let of = |rest: &str| mode_of(rest).ok_or_else(refuse);
        match word.as_bytes().first() {
            Some(b'-') => of(&word[1..]).map(Perm::All),
            Some(b'/') => of(&word[1..]).map(Perm::Any),
            _ => of(word).map(Perm::Exactly),
        }
    }

    pub fn holds(self, mode: u32) -> bool {
        match self {
            Perm::Exactly(want) => mode & BITS == want,
            Perm::All(want) => mode & want == want,
            // As in find: no bits ask for nothing.
            Perm::Any(want) => want == 0 || mode & want != 0,
        }
    }
}

fn mode_of(text: &str) -> Option<u32> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= BITS);
    }
    text.split(',').try_fold(0, symbolic)
}

/// One clause of a symbolic mode, applied to `mode`.
fn symbolic(mut mode: u32, clause: &str) -> Option<u32> {
    let split = clause.find(['+', '-', '='])?;
    let (users, mut rest) = clause.split_at(split);
    let mut mask = 0;
    for user in users.chars() {
        mask |= match user {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => BITS,
            _ => return None,
        };
    }
    // Without a user before the sign, all of them.
    let mask = if mask == 0 { BITS } else { mask };
    while let Some(action) = rest.chars().next() {
        let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |at| at + 1);
        let mut bits = 0;
        for letter in rest[1..end].chars() {
            bits |= match letter {
                'r' => 0o444,
                'w' => 0o222,
                'x' => 0o111,
                's' => 0o6000,
                't' => 0o1000,
                _ => return None,
            } & if letter == 't' { BITS } else { mask };
        }
        match action {
            '+' => mode |= bits,
            '-' => mode &= !bits,
            '=' => mode = mode & !mask | bits,
            _ => return None,
        }
        rest = &rest[end..];
    }
    Some(mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_or_symbolic() {
        assert_eq!(Perm::parse("644"), Ok(Perm::Exactly(0o644)));
        assert_eq!(Perm::parse("-4000"), Ok(Perm::All(0o4000)));
        assert_eq!(Perm::parse("/222"), Ok(Perm::Any(0o222)));
        assert_eq!(Perm::parse("u=rw,go=r"), Ok(Perm::Exactly(0o644)));
        assert_eq!(Perm::parse("-u+w"), Ok(Perm::All(0o200)));
        assert_eq!(Perm::parse("/g+w,o+w"), Ok(Perm::Any(0o022)));
        assert_eq!(Perm::parse("-u+s"), Ok(Perm::All(0o4000)));
        assert_eq!(Perm::parse("a+rx-x"), Ok(Perm::Exactly(0o444)));
        for bad in ["", "9", "17777", "u", "q+w", "u+q", "-"] {
            assert!(Perm::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bits_are_compared_exactly_or_all_or_any() {
        assert!(Perm::Exactly(0o644).holds(0o644) && !Perm::Exactly(0o644).holds(0o4644));
        assert!(Perm::All(0o444).holds(0o755) && !Perm::All(0o222).holds(0o755));
        assert!(Perm::Any(0o222).holds(0o755) && !Perm::Any(0o002).holds(0o755) && Perm::Any(0).holds(0));
    }
}
