//! A figure of lines: medians with their intervals over a swept parameter, published values hollow and dashed.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::axis::Axis;
use super::figure::{Known, Measured, Part, Shown, hint};
use super::paint::{self, Area, Drawn, Entry, FONT, Hints, Ink, Name, Sign, marker, ring, text, width_of};
use crate::plan::schema::AxisScale;

const SIZE: (u32, u32) = (640, 400);
const RIGHT: i32 = 24;

pub fn draw(shown: &Shown, part: Part) -> String {
    let figure = shown.figure;
    let name = Name {
        id: format!("fig-{}-{}", figure.id, if part == Part::BothLog { "2" } else { "1" }),
        title: figure.title.clone(),
        desc: shown.description(part),
    };
    paint::svg(&name, SIZE, |root, hints| paint_lines(shown, part, root, hints))
}

fn paint_lines(shown: &Shown, part: Part, root: &Area, hints: &mut Hints) -> Drawn {
    // 1. axes that hold all that is drawn
    let known: Vec<_> = shown.published.iter().filter(|_| part.has_published()).collect();
    let points = shown.series.iter().flat_map(|s| &s.points);
    let values =
        points.clone().flat_map(|p| [p.value.low, p.value.high]).chain(known.iter().map(|p| p.value));
    let y_axis = Axis::of_values(shown.y_scale(part), values);
    let x_axis = match shown.words.is_empty() {
        true => {
            let places = points.map(|p| p.x).chain(known.iter().filter_map(|p| p.x));
            Axis::of_parameter(shown.figure.x_scale, places)
        }
        false => Axis::of_words(&shown.words),
    };
    // 2. legend, then the frame
    let entries = entries(shown, &known);
    let left = frame_left(&y_axis);
    let width = SIZE.0 as i32 - left - RIGHT;
    let top = paint::legend(root, &entries, left, width)? + 26;
    let log = if shown.y_scale(part) == AxisScale::Linear { "" } else { " (logarithmic)" };
    let y_title = format!("{}{log}", shown.unit().words());
    root.draw_text(&y_title, &text(Ink::Soft, FONT, HPos::Left, VPos::Bottom), (left - 8, top - 8))?;
    let mut chart = ChartBuilder::on(root)
        .margin_top(top)
        .margin_right(RIGHT)
        .x_label_area_size(50)
        .y_label_area_size(left)
        .build_cartesian_2d(x_axis.clone(), y_axis.clone())?;
    let title = if shown.figure.x_title.is_empty() { &shown.figure.x } else { &shown.figure.x_title };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(Ink::Grid.line(1))
        .axis_style(Ink::Axis.line(1))
        .label_style(text(Ink::Soft, FONT, HPos::Center, VPos::Center))
        .axis_desc_style(text(Ink::Text, FONT, HPos::Center, VPos::Center))
        .x_desc(title.as_str())
        .x_label_formatter(&|v| x_axis.label(*v))
        .y_label_formatter(&|v| y_axis.label(*v))
        .draw()?;
    // 3. measured values
    let place = |x: f64, y: f64| chart.backend_coord(&(x, y));
    for (index, series) in shown.series.iter().enumerate() {
        let ink = Ink::Series(index);
        let drawn: Vec<_> = series.points.iter().filter(|p| y_axis.holds(p.value.median)).collect();
        let path: Vec<(i32, i32)> = drawn.iter().map(|p| place(p.x, p.value.median)).collect();
        if path.len() > 1 {
            root.draw(&PathElement::new(path.clone(), ink.line(2)))?;
        }
        for (p, at) in drawn.iter().zip(path) {
            let (low, high) = (place(p.x, p.value.low).1, place(p.x, p.value.high).1);
            if low != high {
                root.draw(&PathElement::new(vec![(at.0, low), (at.0, high)], ink.line(1)))?;
                for y in [low, high] {
                    root.draw(&PathElement::new(vec![(at.0 - 5, y), (at.0 + 5, y)], ink.line(1)))?;
                }
            }
            marker(root, index, at, ink)?;
            hints.circle(at, &hint(series.name, p, shown.unit()));
        }
    }
    // 4. published values, as rings that do not hide the points below them
    let (x_low, x_high) = (chart.x_range().start, chart.x_range().end);
    for (index, group) in by_series(&known) {
        let ink = Ink::Published(index);
        let mut path: Vec<(i32, i32)> = Vec::new();
        for p in group.into_iter().filter(|p| y_axis.holds(p.value)) {
            let said = format!("published: {} {} {} ({})", p.name, p.value, shown.unit().words(), p.place);
            match p.x {
                Some(x) => {
                    path.push(place(x, p.value));
                    hints.circle(place(x, p.value), &said);
                }
                None => {
                    let (from, to) = (place(x_low, p.value), place(x_high, p.value));
                    root.draw(&PathElement::new(vec![from, to], ink.line(2)))?;
                    hints.rect((from.0, from.1 - 4), (to.0, to.1 + 4), &said);
                }
            }
        }
        path.sort();
        // Two are no curve.
        if path.len() > 2 {
            root.draw(&PathElement::new(path.clone(), ink.line(1)))?;
        }
        for at in path {
            ring(root, at, Ink::Series(index))?;
        }
    }
    Ok(())
}

/// Room for the labels of the values.
pub fn frame_left(axis: &Axis) -> i32 {
    axis.ticks.iter().map(|(_, label)| width_of(label, FONT)).max().unwrap_or(0) + 24
}

/// As they are drawn: the highest line at the right end first, and each with the sign that it has in the picture.
fn entries(shown: &Shown, known: &[&Known]) -> Vec<Entry> {
    let last = |series: &Measured| series.points.last().map_or(f64::NEG_INFINITY, |point| point.value.median);
    let mut drawn: Vec<(usize, &Measured)> =
        shown.series.iter().enumerate().filter(|(_, series)| !series.points.is_empty()).collect();
    drawn.sort_by(|a, b| last(b.1).total_cmp(&last(a.1)));
    let mut entries: Vec<Entry> = drawn
        .iter()
        .map(|(index, series)| Entry { name: series.name.to_owned(), sign: Sign::Line(*index) })
        .collect();
    let sign_of = |one: &Known| match one.x {
        Some(_) => Sign::Known(one.series),
        None => Sign::KnownLine(one.series),
    };
    let is_drawn = |one: &Known| drawn.iter().any(|(index, _)| *index == one.series);
    // A published series without a measured one beside it has its own entry.
    for one in known.iter().filter(|one| !is_drawn(one)) {
        let name = format!("{} (published)", one.name);
        if !entries.iter().any(|e| e.name == name) {
            entries.push(Entry { name, sign: sign_of(one) });
        }
    }
    let beside: Vec<&&Known> = known.iter().filter(|one| is_drawn(one)).collect();
    if beside.iter().any(|one| one.x.is_some()) {
        entries.push(Entry { name: "published".into(), sign: Sign::Published });
    }
    if beside.iter().any(|one| one.x.is_none()) {
        entries.push(Entry { name: "published, of the whole sweep".into(), sign: Sign::PublishedLine });
    }
    entries
}

/// By series, in the order of first mention.
fn by_series<'k>(known: &[&'k Known<'k>]) -> Vec<(usize, Vec<&'k Known<'k>>)> {
    let mut groups: Vec<(usize, Vec<&Known>)> = Vec::new();
    for one in known {
        match groups.iter_mut().find(|(index, _)| *index == one.series) {
            Some((_, group)) => group.push(one),
            None => groups.push((one.series, vec![one])),
        }
    }
    groups
}
