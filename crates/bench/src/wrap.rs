//! Lines of text that fit a terminal.

/// Columns that a line may have.
pub const COLUMNS: usize = 100;

/// The line broken at spaces, so that each part fits; further parts begin with `indent` spaces. A word that is longer stays whole.
pub fn wrap(line: &str, indent: usize) -> String {
    let (mut out, mut rest, mut room) = (String::new(), line, COLUMNS);
    while rest.chars().count() > room {
        let spaces = rest.char_indices().enumerate().filter(|(_, (_, c))| *c == ' ');
        let mut cuts =
            spaces.map(|(column, (at, _))| (column, at)).filter(|(_, at)| !rest[..*at].trim().is_empty());
        let Some(first) = cuts.next() else { break };
        let (_, at) = cuts.take_while(|(column, _)| *column <= room).last().unwrap_or(first);
        out.push_str(rest[..at].trim_end());
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', indent));
        (rest, room) = (rest[at..].trim_start(), COLUMNS.saturating_sub(indent));
    }
    out + rest
}

/// Paragraphs, which empty lines separate, each broken anew.
pub fn paragraphs(text: &str) -> String {
    let joined =
        text.trim().split("\n\n").map(|p| wrap(&p.split_whitespace().collect::<Vec<_>>().join(" "), 0));
    joined.collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_and_nothing_is_lost() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let long = "word ".repeat(70) + &"x".repeat(130) + " end";
        for indent in [0, 4, 30] {
            let text = wrap(&long, indent);
            assert_eq!(words(&text), words(&long));
            for (n, line) in text.lines().enumerate() {
                assert!(line.len() <= COLUMNS || line.trim().len() == 130, "{line}");
                assert!(n == 0 || line.starts_with(&" ".repeat(indent)), "{line}");
                assert_eq!(line, line.trim_end());
            }
        }
        assert_eq!(wrap("  short  line", 4), "  short  line");
        let exact = "x".repeat(48) + " " + &"y".repeat(51);
        assert_eq!(wrap(&exact, 2), exact);
        assert_eq!(wrap(&(exact.clone() + "y"), 2), format!("{}\n  {}y", "x".repeat(48), "y".repeat(51)));
    }

    #[test]
    fn paragraphs_are_broken_anew() {
        assert_eq!(paragraphs("\na\nb\n\nc\n"), "a b\n\nc");
    }
}
