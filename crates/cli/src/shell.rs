//! Quotes words of shell commands in messages.

use std::path::Path;

/// Quotes a word for a shell: a path with a space stays one word.
pub fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:@%+".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Quotes a path. One that is not UTF-8 is shown approximately.
pub fn path(path: &Path) -> String {
    word(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_a_word_back_as_it_was() {
        for text in ["/tmp/s", "/my disk/s", "it's", "", "a\"b", "$HOME", "*", "~x", "a;b"] {
            let line = format!("printf %s {}", word(text));
            let out = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&out.stdout), text);
        }
        assert_eq!(path(Path::new("/var/lib/stria/one")), "/var/lib/stria/one");
    }
}
