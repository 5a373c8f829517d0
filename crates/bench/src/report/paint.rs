//! One picture: SVG whose colours are variables of the page's style, so that it serves light, dark and paper.
//!
//! The drawing library knows numbers for colours only. It gets a number of its own for each role (`Ink`), which is replaced in
//! its output. The fallback within each variable keeps the colours of a picture that is copied out of the page.

use std::error::Error;
use std::fmt::Write;

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::number::escape;

/// Kinds of series that can be told apart; more begin anew.
pub const SERIES_MAX: usize = 8;
/// For pictures on their own; `style.css` has the same for the page, light and dark.
const SERIES_COLOURS: [&str; SERIES_MAX] =
    ["#0b62b0", "#c1480a", "#0a7d5a", "#a8327d", "#8a6500", "#5b4bb7", "#b3261e", "#4a6572"];
pub const FONT: i32 = 14;

pub type Drawn = Result<(), Box<dyn Error>>;
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The role of a painted element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    Text,
    Soft,
    Axis,
    Grid,
    Series(usize),
    /// Published values of a series: dashed.
    Published(usize),
    /// Behind a phase of a timeline.
    Band(usize),
}

impl Ink {
    fn number(self) -> RGBColor {
        match self {
            Ink::Text => RGBColor(1, 0, 0),
            Ink::Soft => RGBColor(1, 0, 1),
            Ink::Axis => RGBColor(1, 0, 2),
            Ink::Grid => RGBColor(1, 0, 3),
            Ink::Series(n) => RGBColor(1, 1, (n % SERIES_MAX) as u8),
            Ink::Published(n) => RGBColor(1, 2, (n % SERIES_MAX) as u8),
            Ink::Band(n) => RGBColor(1, 3, (n % 2) as u8),
        }
    }

    fn all() -> impl Iterator<Item = Ink> {
        let fixed = [Ink::Text, Ink::Soft, Ink::Axis, Ink::Grid, Ink::Band(0), Ink::Band(1)];
        fixed.into_iter().chain((0..SERIES_MAX).flat_map(|n| [Ink::Series(n), Ink::Published(n)]))
    }

    /// As a value of `fill` or `stroke`.
    fn variable(self) -> String {
        match self {
            Ink::Text => "var(--ink,#1a1c1e)".into(),
            Ink::Soft => "var(--soft,#5a6068)".into(),
            Ink::Axis => "var(--axis,#8a9098)".into(),
            Ink::Grid => "var(--grid,#e3e6ea)".into(),
            Ink::Series(n) | Ink::Published(n) => format!("var(--s{n},{})", SERIES_COLOURS[n % SERIES_MAX]),
            Ink::Band(0) => "var(--band0,#f3f5f8)".into(),
            Ink::Band(_) => "var(--band1,#e7ebf1)".into(),
        }
    }

    pub fn line(self, width: u32) -> ShapeStyle {
        self.number().stroke_width(width)
    }

    pub fn fill(self) -> ShapeStyle {
        self.number().filled()
    }
}

/// Text of a size, anchored.
pub fn text(ink: Ink, size: i32, h: HPos, v: VPos) -> TextStyle<'static> {
    // The library divides by this before it writes `font-size`.
    let font = ("sans-serif", f64::from(size) * 1.24).into_font();
    TextStyle { font, color: ink.number().to_backend_color(), pos: Pos::new(h, v) }
}

/// About how wide a text is: there are no fonts here, and every reader has others.
pub fn width_of(text: &str, size: i32) -> i32 {
    let units: f64 = text
        .chars()
        .map(|c| match c {
            'i' | 'j' | 'l' | 't' | 'f' | '.' | ',' | ' ' | '(' | ')' | '/' | '-' | ':' => 0.33,
            'm' | 'w' | 'M' | 'W' => 0.88,
            c if c.is_ascii_uppercase() => 0.70,
            _ => 0.57,
        })
        .sum();
    (units * f64::from(size)).ceil() as i32
}

/// As much of a text as fits.
pub fn fit(text: &str, size: i32, width: i32) -> String {
    let mut short = text.to_owned();
    while width_of(&short, size) > width && short.chars().count() > 2 {
        short = short.trim_end_matches('…').to_owned();
        short.pop();
        short = format!("{}…", short.trim_end());
    }
    short
}

/// Tooltips of places in the picture.
#[derive(Debug, Default)]
pub struct Hints(Vec<String>);

impl Hints {
    pub fn circle(&mut self, (x, y): (i32, i32), text: &str) {
        self.0
            .push(format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"9\"><title>{}</title></circle>", escape(text)));
    }

    pub fn rect(&mut self, (x0, y0): (i32, i32), (x1, y1): (i32, i32), text: &str) {
        let (x, y, w, h) = (x0.min(x1), y0.min(y1), (x1 - x0).abs().max(1), (y1 - y0).abs().max(1));
        let text = escape(text);
        self.0.push(format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\"><title>{text}</title></rect>"
        ));
    }
}

/// The accessible name of a picture.
#[derive(Clone, Debug)]
pub struct Name {
    pub id: String,
    pub title: String,
    pub desc: String,
}

/// An `<svg>` element of this size, drawn by `draw`.
pub fn svg(
    name: &Name,
    (width, height): (u32, u32),
    draw: impl FnOnce(&Area, &mut Hints) -> Drawn,
) -> String {
    let mut raw = String::new();
    let mut hints = Hints::default();
    {
        let root = SVGBackend::with_string(&mut raw, (width, height)).into_drawing_area();
        let drawn = draw(&root, &mut hints).and_then(|()| Ok(root.present()?));
        drawn.expect("pictures are drawn into a string, with values that their axes hold");
    }
    let body = raw.split_once('>').map_or("", |(_, body)| body).trim_end().trim_end_matches("</svg>");
    let (id, title, desc) = (escape(&name.id), escape(&name.title), escape(&name.desc));
    let mut out = format!(
        "<svg viewBox=\"0 0 {width} {height}\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" \
         aria-labelledby=\"{id}-t {id}-d\"><title id=\"{id}-t\">{title}</title><desc id=\"{id}-d\">{desc}</desc>"
    );
    out.push_str(&inked(body));
    write!(out, "<g fill=\"transparent\">{}</g></svg>", hints.0.concat())
        .expect("writing to a string cannot fail");
    out
}

/// Roles for numbers. Text was escaped by the library: it has no quotes, so only attributes are replaced.
fn inked(body: &str) -> String {
    let body: String =
        body.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect();
    let mut body =
        body.replace(" opacity=\"1\"", "").replace(" \"/>", "\"/>").replace(">\n", ">").replace('\n', " ");
    for ink in Ink::all() {
        let RGBColor(r, g, b) = ink.number();
        let dash = if matches!(ink, Ink::Published(_)) { " stroke-dasharray=\"6 4\"" } else { "" };
        for kind in ["fill", "stroke"] {
            let dash = if kind == "stroke" { dash } else { "" };
            body = body.replace(
                &format!("{kind}=\"#{r:02X}{g:02X}{b:02X}\""),
                &format!("{kind}=\"{}\"{dash}", ink.variable()),
            );
        }
    }
    body
}

/// A marker; its shape tells series apart where colours do not.
pub fn marker(area: &Area, kind: usize, (x, y): (i32, i32), ink: Ink) -> Drawn {
    let corners: &[(i32, i32)] = match kind % 4 {
        0 => return Ok(area.draw(&Circle::new((x, y), 5, ink.fill()))?),
        1 => &[(-5, -5), (5, -5), (5, 5), (-5, 5)],
        2 => &[(0, -6), (6, 5), (-6, 5)],
        _ => &[(0, -7), (7, 0), (0, 7), (-7, 0)],
    };
    let around: Vec<(i32, i32)> = corners.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
    Ok(area.draw(&Polygon::new(around, ink.fill()))?)
}

/// Of a published value.
pub fn ring(area: &Area, at: (i32, i32), ink: Ink) -> Drawn {
    Ok(area.draw(&Circle::new(at, 7, ink.line(2)))?)
}

/// An entry of a legend.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    pub sign: Sign,
}
#[derive(Clone, Copy, Debug)]
pub enum Sign {
    Line(usize),
    Block(usize),
    /// A published point of a series that was measured too.
    Published,
    /// A published value that is a line across.
    PublishedLine,
    /// A point of a series that was published only.
    Known(usize),
    /// A line across, of such a series.
    KnownLine(usize),
}

const SIGN_WIDTH: i32 = 30;
const ROW_HEIGHT: i32 = 22;

/// Rows of entries above a picture, from `left`. Gives back their height.
pub fn legend(area: &Area, entries: &[Entry], left: i32, width: i32) -> Result<i32, Box<dyn Error>> {
    let (mut x, mut y) = (left, ROW_HEIGHT / 2 + 2);
    for entry in entries {
        let name = fit(&entry.name, FONT, width - SIGN_WIDTH - 24);
        let wide = SIGN_WIDTH + width_of(&name, FONT) + 18;
        if x > left && x + wide > left + width {
            (x, y) = (left, y + ROW_HEIGHT);
        }
        let (from, to) = ((x, y), (x + SIGN_WIDTH - 8, y));
        let middle = ((from.0 + to.0) / 2, y);
        match entry.sign {
            Sign::Line(n) => {
                area.draw(&PathElement::new(vec![from, to], Ink::Series(n).line(2)))?;
                marker(area, n, middle, Ink::Series(n))?;
            }
            Sign::Block(n) => {
                area.draw(&Rectangle::new([(x + 4, y - 6), (x + 20, y + 6)], Ink::Series(n).fill()))?;
            }
            Sign::Known(n) => ring(area, middle, Ink::Series(n))?,
            // In ink, because they stand for all series.
            Sign::Published => ring(area, middle, Ink::Soft)?,
            Sign::PublishedLine => {
                for dash in [0, 2] {
                    let from = x + dash * 9;
                    area.draw(&PathElement::new(vec![(from, y), (from + 5, y)], Ink::Soft.line(2)))?;
                }
            }
            Sign::KnownLine(n) => area.draw(&PathElement::new(vec![from, to], Ink::Published(n).line(2)))?,
        }
        area.draw_text(&name, &text(Ink::Text, FONT, HPos::Left, VPos::Center), (x + SIGN_WIDTH, y))?;
        x += wide;
    }
    Ok(if entries.is_empty() { 4 } else { y + ROW_HEIGHT / 2 + 4 })
}
