//! The messages of the source: its string literals, and which of them form one message.
//!
//! xtask-E1: comments and tests are no source. A literal that goes on after a backslash is one line.

/// A message: the literals of one `warn!`, `error!`, `Failure::failed`, `Failure::unusable` or `#[error]`.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    pub line: usize,
    /// One literal per line.
    pub text: String,
}

/// A source file without its comments and tests, and with each literal taken out.
pub struct Source {
    /// `MARK` stands where a literal stood.
    code: String,
    pub literals: Vec<String>,
}

const MARK: char = '\u{1}';
const BEGINS: [&str; 5] = ["warn!(", "error!(", "Failure::failed(", "Failure::unusable(", "#[error("];
const TESTS_BEGIN: &str = "#[cfg(test)]\nmod tests {";

impl Source {
    pub fn read(text: &str) -> Source {
        let text = text.find(TESTS_BEGIN).map_or(text, |at| &text[..at]);
        let mut source = Source { code: String::new(), literals: vec![] };
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            rest = source.take(c, rest);
        }
        source
    }

    /// Takes what begins with `c`: a comment, a literal, a character.
    fn take<'a>(&mut self, c: char, rest: &'a str) -> &'a str {
        let after_name = !self.code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let raw = rest.trim_start_matches(['b', 'r']).trim_start_matches('#');
        if rest.starts_with("//") {
            return &rest[rest.find('\n').unwrap_or(rest.len())..];
        } else if c == '"' || (rest.starts_with("b\"") && after_name) {
            return self.take_escaped(&rest[rest.find('"').map_or(0, |at| at + 1)..]);
        } else if (rest.starts_with('r') || rest.starts_with("br")) && raw.starts_with('"') && after_name {
            let hashes = rest[..rest.len() - raw.len()].matches('#').count();
            let (text, rest) =
                raw[1..].split_once(&format!("\"{}", "#".repeat(hashes))).unwrap_or((&raw[1..], ""));
            self.push(text.to_owned());
            return rest;
        } else if c == '\'' {
            // A character is a quote, one character or an escape, and a quote; anything else is a lifetime.
            let mut chars = rest.char_indices().skip(1);
            let end = match chars.next() {
                Some((_, '\\')) => rest[3..].find('\'').map(|at| at + 4),
                _ => chars.next().filter(|(_, c)| *c == '\'').map(|(at, _)| at + 1),
            };
            if let Some(end) = end {
                return &rest[end..];
            }
        }
        self.code.push(c);
        &rest[c.len_utf8()..]
    }

    fn take_escaped<'a>(&mut self, text: &'a str) -> &'a str {
        let (mut literal, mut rest) = (String::new(), text);
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            match c {
                '"' => break,
                '\\' if rest.starts_with('\n') => {
                    self.code.push_str(&"\n".repeat(lines(&rest[..rest.len() - rest.trim_start().len()])));
                    rest = rest.trim_start();
                }
                '\\' => {
                    let escaped = rest.chars().next().unwrap_or(' ');
                    literal.push(if escaped == 'n' { '\n' } else { escaped });
                    rest = &rest[escaped.len_utf8().min(rest.len())..];
                }
                c => literal.push(c),
            }
        }
        self.push(literal);
        rest
    }

    fn push(&mut self, literal: String) {
        self.code.push(MARK);
        self.literals.push(literal);
    }

    /// All messages. A word that a message only names (`why`) is looked up where it was last given its value.
    pub fn messages(&self) -> Vec<Message> {
        let mut found: Vec<Message> = Vec::new();
        for begin in BEGINS {
            for (at, _) in self.code.match_indices(begin) {
                // `fn failed(` and names that only end so are others.
                if self.code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
                    continue;
                }
                let inside = at + begin.len()..end_of(&self.code, at + begin.len());
                let mut texts = self.literals_in(inside.clone());
                for name in self.code[inside].split(|c: char| !c.is_alphanumeric() && c != '_') {
                    if matches!(name, "why" | "next" | "what" | "refused") {
                        texts.extend(self.value_of(name, at));
                    }
                }
                if texts.iter().any(|t| t.chars().any(char::is_alphabetic)) {
                    found.push(Message { line: lines(&self.code[..at]) + 1, text: texts.join("\n") });
                }
            }
        }
        found
    }

    fn literals_in(&self, range: std::ops::Range<usize>) -> Vec<String> {
        let before = self.code[..range.start].matches(MARK).count();
        let n = self.code[range].matches(MARK).count();
        self.literals[before..before + n].to_vec()
    }

    fn value_of(&self, name: &str, before: usize) -> Vec<String> {
        let Some(at) = self.code[..before].rfind(&format!("let {name} =")) else { return vec![] };
        let end = self.code[at..].find(";\n").map_or(before, |n| at + n);
        self.literals_in(at..end)
    }
}

/// Where the bracket closes that is open at `begin`.
fn end_of(code: &str, begin: usize) -> usize {
    let mut depth = 1;
    for (n, c) in code[begin..].char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return begin + n;
        }
    }
    code.len()
}

fn lines(code: &str) -> usize {
    code.matches('\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        Source::read(source).messages().into_iter().map(|m| m.text).collect()
    }

    #[test]
    fn literals_of_one_message_stand_together_and_comments_and_tests_do_not_count() {
        let source = "fn f<'a>(c: char) {\n  // warn!(\"a comment\")\n  if c == '\"' || c == '\\'' { warn!(x = %y, \"one \\\n      two: {e}\"); }\n  \
            let why = format!(\"it is {n}\");\n  Failure::failed(d(\"what\"), why, r#\"do \"it\"\"#)\n  last_error!(\"no\");\n}\n\
            #[error(\"{0}; three\")]\n#[cfg(test)]\nmod tests {\n  warn!(\"a test\");\n}\n";
        assert_eq!(texts(source), ["one two: {e}", "what\ndo \"it\"\nit is {n}", "{0}; three"]);
        assert_eq!(Source::read(source).messages()[1].line, 6);
        assert_eq!(texts("tracing::error!(\"{e}\"); #[error(transparent)] enum E {}"), ["{e}"]);
    }
}
