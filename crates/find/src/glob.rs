//! Patterns of the shell: `*`, `?`, `[a-z]`, `[!a]`, `[[:digit:]]`, `\*`. As in `find`, `*` stands for any text, also for `/` and for a
//! dot at the start.

/// A compiled pattern.
#[derive(Clone, Debug)]
pub struct Glob {
    pieces: Vec<Piece>,
    folds_case: bool,
}

#[derive(Clone, Debug)]
enum Piece {
    /// `*`
    Any,
    /// `?`
    One,
    Is(u32),
    In {
        items: Vec<Item>,
        is_negated: bool,
    },
}

#[derive(Clone, Debug)]
enum Item {
    Range(u32, u32),
    Class(fn(char) -> bool),
}

type Class = (&'static str, fn(char) -> bool);

const CLASSES: [Class; 12] = [
    ("alnum", char::is_alphanumeric),
    ("alpha", char::is_alphabetic),
    ("blank", |c| matches!(c, ' ' | '\t')),
    ("cntrl", char::is_control),
    ("digit", |c| c.is_ascii_digit()),
    ("graph", |c| !c.is_whitespace() && !c.is_control()),
    ("lower", char::is_lowercase),
    ("print", |c| !c.is_control()),
    ("punct", |c| c.is_ascii_punctuation()),
    ("space", char::is_whitespace),
    ("upper", char::is_uppercase),
    ("xdigit", |c| c.is_ascii_hexdigit()),
];

/// Bytes that are no UTF-8 are characters of their own, above all that Unicode has.
const NO_CHAR: u32 = 0x11_0000;

fn characters(bytes: &[u8]) -> Vec<u32> {
    let of_chunk = |chunk: std::str::Utf8Chunk<'_>| {
        let bad: Vec<u32> = chunk.invalid().iter().map(|byte| NO_CHAR + u32::from(*byte)).collect();
        chunk.valid().chars().map(u32::from).chain(bad).collect::<Vec<_>>()
    };
    bytes.utf8_chunks().flat_map(of_chunk).collect()
}

fn lower(c: u32) -> u32 {
    let mut folded = char::from_u32(c).into_iter().flat_map(char::to_lowercase);
    match (folded.next(), folded.next()) {
        (Some(one), None) => one.into(),
        _ => c,
    }
}

impl Glob {
    pub fn new(pattern: &[u8]) -> Glob {
        Glob { pieces: pieces_of(&characters(pattern)), folds_case: false }
    }

    /// Capitals and small letters are the same.
    pub fn folding_case(pattern: &[u8]) -> Glob {
        let mut glob = Glob::new(pattern);
        glob.folds_case = true;
        for piece in &mut glob.pieces {
            if let Piece::Is(c) = piece {
                *c = lower(*c);
            }
        }
        glob
    }

    /// True if the pattern describes the whole text.
    pub fn matches(&self, text: &[u8]) -> bool {
        let text = characters(text);
        let (mut p, mut t) = (0, 0);
        // Where the last `*` stands, and where the text behind what it stands for begins. Only the last one is ever tried again: what
        // an earlier one could take in addition, the last one can take, too.
        let mut again: Option<(usize, usize)> = None;
        while t < text.len() {
            match self.pieces.get(p) {
                Some(Piece::Any) => {
                    p += 1;
                    again = Some((p, t));
                }
                Some(piece) if self.is_one(piece, text[t]) => {
                    p += 1;
                    t += 1;
                }
                _ => {
                    let Some((behind, from)) = again else { return false };
                    (p, t) = (behind, from + 1);
                    again = Some((behind, t));
                }
            }
        }
        self.pieces[p..].iter().all(|piece| matches!(piece, Piece::Any))
    }

    /// The longest text that every match contains, in one case or the other.
    pub fn literal(&self) -> String {
        let runs = self.pieces.split(|piece| !matches!(piece, Piece::Is(c) if *c < NO_CHAR));
        let text = |run: &[Piece]| -> String {
            let character = |piece: &Piece| match piece {
                Piece::Is(c) => char::from_u32(*c),
                _ => None,
            };
            run.iter().filter_map(character).collect()
        };
        runs.map(text).max_by_key(|text| text.chars().count()).unwrap_or_default()
    }

    fn is_one(&self, piece: &Piece, c: u32) -> bool {
        match piece {
            Piece::Any => false,
            Piece::One => true,
            Piece::Is(want) => *want == if self.folds_case { lower(c) } else { c },
            Piece::In { items, is_negated } => {
                let is_in = |c: u32| items.iter().any(|item| item.has(c));
                let upper = || char::from_u32(c).map_or(c, |c| c.to_uppercase().next().unwrap_or(c).into());
                let found = is_in(c) || self.folds_case && (is_in(lower(c)) || is_in(upper()));
                found != *is_negated
            }
        }
    }
}

impl Item {
    fn has(&self, c: u32) -> bool {
        match self {
            Item::Range(first, last) => (*first..=*last).contains(&c),
            Item::Class(is_in) => char::from_u32(c).is_some_and(is_in),
        }
    }
}

fn pieces_of(pattern: &[u32]) -> Vec<Piece> {
    let (mut pieces, mut at) = (Vec::new(), 0);
    while let Some(c) = pattern.get(at).copied() {
        at += 1;
        let piece = match char::from_u32(c) {
            Some('*') => Piece::Any,
            Some('?') => Piece::One,
            Some('\\') if at < pattern.len() => {
                at += 1;
                Piece::Is(pattern[at - 1])
            }
            Some('[') => match set_of(&pattern[at..]) {
                Some((piece, len)) => {
                    at += len;
                    piece
                }
                // Without an end it is a bracket.
                None => Piece::Is(c),
            },
            _ => Piece::Is(c),
        };
        if !matches!((&piece, pieces.last()), (Piece::Any, Some(Piece::Any))) {
            pieces.push(piece);
        }
    }
    pieces
}

/// The set behind a `[`, with its length.
fn set_of(rest: &[u32]) -> Option<(Piece, usize)> {
    let is = |at: usize, c: char| rest.get(at) == Some(&u32::from(c));
    let mut at = 0;
    let is_negated = is(0, '!') || is(0, '^');
    at += usize::from(is_negated);
    let first = at;
    let mut items = Vec::new();
    loop {
        let c = *rest.get(at)?;
        // A `]` at the start is a member.
        if is(at, ']') && at > first {
            return Some((Piece::In { items, is_negated }, at + 1));
        }
        if is(at, '[') && is(at + 1, ':') {
            let end = (at + 2..rest.len()).find(|end| is(*end, ':') && is(end + 1, ']'));
            let name = |end: usize| -> String {
                rest[at + 2..end].iter().filter_map(|c| char::from_u32(*c)).collect()
            };
            let class = end.and_then(|end| {
                let name = name(end);
                CLASSES.iter().find(|(own, _)| *own == name).map(|(_, is_in)| (*is_in, end + 2))
            });
            if let Some((is_in, end)) = class {
                items.push(Item::Class(is_in));
                at = end;
                continue;
            }
        }
        let escaped = |at: usize| usize::from(is(at, '\\') && at + 1 < rest.len());
        at += escaped(at);
        let low = if rest[at] == c { c } else { rest[at] };
        at += 1;
        if is(at, '-') && !is(at + 1, ']') && at + 1 < rest.len() {
            at += 1 + escaped(at + 1);
            items.push(Item::Range(low, *rest.get(at)?));
            at += 1;
        } else {
            items.push(Item::Range(low, low));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_describe_whole_names() {
        let table = [
            ("*", "", true),
            ("*.h5", "a.h5", true),
            ("*.h5", "a.h5x", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("?", "ä", true),
            ("?", "ab", false),
            (".*", ".hidden", true),
            ("*", ".hidden", true),
            ("a*", "a/b", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[]]", "]", true),
            ("[a", "[a", true),
            ("[a-]", "-", true),
            ("[[:digit:]]*", "7z", true),
            ("[[:digit:]]*", "z7", false),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("", "", true),
            ("", "a", false),
        ];
        for (pattern, text, want) in table {
            assert_eq!(Glob::new(pattern.as_bytes()).matches(text.as_bytes()), want, "{pattern} {text}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_one_character_each() {
        assert!(Glob::new(b"a?c").matches(b"a\xffc"));
        assert!(Glob::new(b"*\xff").matches(b"x\xff"));
        assert!(!Glob::new(b"\xfe").matches(b"\xff"));
    }

    #[test]
    fn letters_match_in_both_cases_if_asked() {
        let glob = Glob::folding_case("ReadMe[a-c]Ä".as_bytes());
        assert!(glob.matches("README\u{42}ä".as_bytes()) && glob.matches("readmebÄ".as_bytes()));
        assert!(!glob.matches(b"readmed"));
    }

    #[test]
    fn the_longest_text_without_wildcards_is_known() {
        assert_eq!(Glob::new(b"a*.tar.g?z[ab]xy").literal(), ".tar.g");
        assert_eq!(Glob::new(b"*").literal(), "");
    }

    #[test]
    fn many_stars_take_no_long_time() {
        let text = "a".repeat(5000);
        assert!(!Glob::new(b"*a*a*a*a*a*a*a*a*b").matches(text.as_bytes()));
    }
}
