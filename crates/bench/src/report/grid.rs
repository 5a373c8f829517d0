//! A table, for the page and for the terminal.

use std::fmt::Write;

use super::number::escape;

/// More columns than this are set closer.
const DENSE_FROM: usize = 8;

#[derive(Clone, Debug, Default)]
pub struct Grid {
    pub id: String,
    pub title: String,
    /// Text below the title.
    pub about: String,
    pub columns: Vec<Column>,
    /// The first cell names the row.
    pub rows: Vec<Vec<String>>,
}

#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    /// Words stand left, numbers right.
    pub is_words: bool,
}

/// `words` and then `numbers`; a name that begins with `~` is one of words nevertheless.
pub fn columns(names: &[&str]) -> Vec<Column> {
    let column = |(at, name): (usize, &&str)| Column {
        name: name.trim_start_matches('~').to_owned(),
        is_words: at == 0 || name.starts_with('~'),
    };
    names.iter().enumerate().map(column).collect()
}

impl Grid {
    pub fn html(&self) -> String {
        // Tables of many columns have less room in each, so that they stay within a page of 1400 pixels.
        let dense = if self.columns.len() > DENSE_FROM { " dense" } else { "" };
        let mut out = format!(
            "<section class=\"table{dense}\" id=\"{}\"><h3>{}</h3>",
            escape(&self.id),
            escape(&self.title)
        );
        if !self.about.is_empty() {
            say(&mut out, format_args!("<p>{}</p>", escape(&self.about)));
        }
        out.push_str(&self.bare());
        out.push_str("</section>\n");
        out
    }

    /// The table itself. The `div` scrolls where a screen is narrow, and can be reached by keyboard for that.
    pub fn bare(&self) -> String {
        let title = escape(&self.title);
        let mut out = format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\"><table><caption>{title}</caption><thead><tr>"
        );
        for column in &self.columns {
            let class = if column.is_words { " class=\"w\"" } else { "" };
            say(&mut out, format_args!("<th scope=\"col\"{class}>{}</th>", escape(&column.name)));
        }
        out.push_str("</tr></thead><tbody>\n");
        for row in &self.rows {
            out.push_str("<tr>");
            for (at, cell) in row.iter().enumerate() {
                let is_words = self.columns.get(at).is_none_or(|c| c.is_words);
                let class = if is_words { " class=\"w\"" } else { "" };
                let cell = escape(cell);
                match at {
                    0 => say(&mut out, format_args!("<th scope=\"row\"{class}>{cell}</th>")),
                    _ => say(&mut out, format_args!("<td{class}>{cell}</td>")),
                }
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody></table></div>");
        out
    }

    pub fn text(&self) -> String {
        let width = |at: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(at));
            let cells = cells.chain(self.columns.get(at).map(|c| &c.name));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |cells: &[String]| {
            let cells = cells.iter().zip(&widths).zip(&self.columns).map(|((cell, width), column)| {
                match column.is_words {
                    true => format!("{cell:<width$}"),
                    false => format!("{cell:>width$}"),
                }
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let names: Vec<String> = self.columns.iter().map(|c| c.name.clone()).collect();
        let mut out = format!("{}\n{}\n", printable(&self.title), line(&names));
        self.rows.iter().for_each(|row| say(&mut out, format_args!("{}\n", printable(&line(row)))));
        out
    }
}

fn say(out: &mut String, text: std::fmt::Arguments) {
    out.write_fmt(text).expect("writing to a string cannot fail");
}

/// Names come from files of others: a terminal obeys control characters.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
