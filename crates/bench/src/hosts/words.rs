//! A command as words, split as a shell splits it, without variables, patterns or substitutions.

use anyhow::{Result, bail, ensure};

/// Words with single quotes, double quotes and backslashes, as a shell reads them. All else stands for itself.
pub fn words(text: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_whitespace() => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('\'') => break,
                        Some(c) => word.push(c),
                        None => bail!("the quote ' is not closed in: {text}"),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('"') => break,
                        Some('\\') => match chars.next() {
                            Some(c @ ('"' | '\\' | '$' | '`')) => word.push(c),
                            Some(c) => word.extend(['\\', c]),
                            None => bail!("the quote \" is not closed in: {text}"),
                        },
                        Some(c) => word.push(c),
                        None => bail!("the quote \" is not closed in: {text}"),
                    }
                }
            }
            '\\' => match chars.next() {
                Some(c) => word.get_or_insert_default().push(c),
                None => bail!("a backslash at the end stands for nothing in: {text}"),
            },
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    ensure!(!words.is_empty(), "a command needs a word: such as ssh {{host}}");
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_a_shell() {
        let table = [
            ("ssh {host}", vec!["ssh", "{host}"]),
            ("  srun  -w {host}\t-n1 ", vec!["srun", "-w", "{host}", "-n1"]),
            ("ssh -o 'User Known=x' {host}", vec!["ssh", "-o", "User Known=x", "{host}"]),
            (r#"a "b c\"d\n" e\ f ''"#, vec!["a", r#"b c"d\n"#, "e f", ""]),
            ("nsenter --net=/run/netns/{host}", vec!["nsenter", "--net=/run/netns/{host}"]),
            // No shell: these stand for themselves.
            ("a $HOME * ; b|c", vec!["a", "$HOME", "*", ";", "b|c"]),
        ];
        for (text, want) in table {
            assert_eq!(words(text).unwrap(), want, "{text}");
        }
        for text in ["", "  ", "a 'b", "a \"b", "a\\", "\"a\\"] {
            assert!(words(text).is_err(), "{text}");
        }
    }

    /// A real shell splits the same texts into the same words.
    #[test]
    fn a_shell_agrees_where_nothing_is_expanded() {
        for text in ["ssh -o 'User Known=x' h1", r#"a "b c\"d\n" e\ f '' "\\""#, r"a\'b 'c'd\\"] {
            let script = format!("printf '%s\\n' {text}");
            let out = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            let said: Vec<String> =
                String::from_utf8(out.stdout).unwrap().lines().map(str::to_owned).collect();
            assert_eq!(words(text).unwrap(), said, "{text}");
        }
    }
}
