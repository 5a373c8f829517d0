//! A figure of bars: lying, so that names of any length and values stand beside them.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::axis::Axis;
use super::figure::{Known, Part, Point, Shown, hint};
use super::number::{number, stated};
use super::paint::{self, Area, Drawn, FONT, Hints, Ink, Name, fit, text, width_of};
use crate::plan::schema::AxisScale;

const WIDTH: i32 = 640;
const BAR: i32 = 18;
const GAP: i32 = 14;
const NAME_MAX: i32 = 290;
const BOTTOM: i32 = 54;

/// One name with its measured bar and the published ones under it.
struct Row<'a> {
    name: String,
    series: usize,
    point: Option<&'a Point>,
    known: Vec<&'a Known<'a>>,
}

pub fn draw(shown: &Shown, part: Part) -> String {
    let figure = shown.figure;
    let name = Name {
        id: format!("fig-{}-{}", figure.id, if part == Part::BothLog { "2" } else { "1" }),
        title: figure.title.clone(),
        desc: shown.description(part),
    };
    let rows = rows(shown, part);
    let bars: i32 = rows.iter().map(height).sum();
    let height = 10 + bars + BOTTOM;
    paint::svg(&name, (WIDTH as u32, height as u32), |root, hints| {
        paint_bars(shown, part, &rows, height, root, hints)
    })
}

fn height(row: &Row) -> i32 {
    let bars = i32::from(row.point.is_some()) + row.known.len() as i32;
    bars.max(1) * BAR + GAP
}

/// A row per series, or per series and place on x; published values without a place stand with the series' first row.
fn rows<'a>(shown: &'a Shown, part: Part) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    // Colours tell series apart that have several bars; names do where each has one.
    let is_plain = shown.series.iter().all(|s| s.points.len() <= 1);
    for (index, series) in shown.series.iter().enumerate() {
        let many = series.points.len() > 1;
        let known = |x: Option<f64>| -> Vec<&Known> {
            let of_it = shown.published.iter().filter(|p| part.has_published() && p.series == index);
            of_it.filter(|p| p.x == x).collect()
        };
        for (at, point) in series.points.iter().enumerate() {
            let name = match many {
                // One series needs no name beside the figure's.
                true if shown.series.len() == 1 => {
                    format!("{} {}", shown.figure.x, point.label).trim().to_owned()
                }
                true => {
                    let label = format!(" · {}", point.label);
                    fit(series.name, FONT, NAME_MAX - width_of(&label, FONT)) + &label
                }
                false => series.name.to_owned(),
            };
            let mut here = known(Some(point.x));
            if at == 0 {
                here.extend(known(None));
            }
            rows.push(Row { name, series: index, point: Some(point), known: here });
        }
        if series.points.is_empty() && !known(None).is_empty() {
            rows.push(Row { name: series.name.to_owned(), series: index, point: None, known: known(None) });
        }
    }
    let strangers = shown.published.iter().filter(|p| part.has_published() && p.series >= shown.series.len());
    rows.extend(strangers.map(|p| Row {
        name: p.name.to_owned(),
        series: p.series,
        point: None,
        known: vec![p],
    }));
    rows.iter_mut().filter(|_| is_plain).for_each(|row| row.series = 0);
    rows
}

fn paint_bars(shown: &Shown, part: Part, rows: &[Row], height: i32, root: &Area, hints: &mut Hints) -> Drawn {
    let highs = rows.iter().filter_map(|r| r.point).flat_map(|p| [p.value.low, p.value.high]);
    let known = rows.iter().flat_map(|r| &r.known).map(|p| p.value);
    let axis = Axis::of_values(shown.y_scale(part), highs.chain(known));
    let name_width = rows.iter().map(|r| width_of(&r.name, FONT)).max().unwrap_or(0).min(NAME_MAX);
    let (left, right) = (name_width + 16, WIDTH - 130);
    let place = |v: f64| plotters::coord::ranged1d::Ranged::map(&axis, &v, (left, right));
    let bottom = height - BOTTOM;
    // 1. the frame
    for (value, label) in &axis.ticks {
        let x = place(*value);
        root.draw(&PathElement::new(vec![(x, 6), (x, bottom)], Ink::Grid.line(1)))?;
        root.draw_text(label, &text(Ink::Soft, FONT, HPos::Center, VPos::Top), (x, bottom + 6))?;
    }
    let log = if shown.y_scale(part) == AxisScale::Linear { "" } else { " (logarithmic)" };
    let title = format!("{}{log}", shown.unit().words());
    let style = text(Ink::Text, FONT, HPos::Center, VPos::Top);
    root.draw_text(&title, &style, ((left + right) / 2, bottom + 28))?;
    // 2. the rows
    let mut y = 10;
    let floor = place(axis.floor());
    for row in rows {
        let middle = y + (height_of_bars(row)) / 2;
        let name = fit(&row.name, FONT, name_width);
        root.draw_text(&name, &text(Ink::Text, FONT, HPos::Right, VPos::Center), (left - 8, middle))?;
        if name != row.name {
            hints.rect((0, y), (left, y + BAR), &row.name);
        }
        if let Some(point) = row.point {
            paint_measured(root, row, point, floor, y, &place)?;
            hints.rect((left, y), (right, y + BAR - 3), &hint(&row.name, point, shown.unit()));
            y += BAR;
        }
        for known in &row.known {
            let (from, to) = ((floor, y + 1), (place(known.value), y + BAR - 4));
            let around = vec![from, (to.0, from.1), to, (from.0, to.1), from];
            root.draw(&PathElement::new(around, Ink::Published(row.series).line(1)))?;
            // Where there are several, each says which it is.
            let what = if row.known.len() > 1 { known.place } else { "published" };
            let said = format!("{} {what}", stated(known.value));
            let said = fit(&said, FONT - 1, WIDTH - to.0 - 8);
            let style = text(Ink::Soft, FONT - 1, HPos::Left, VPos::Center);
            root.draw_text(&said, &style, (to.0 + 6, (from.1 + to.1) / 2))?;
            let said = format!("{}: {} {} ({})", known.name, known.value, shown.unit().words(), known.place);
            hints.rect((left, from.1), (right, to.1), &said);
            y += BAR;
        }
        y += GAP;
    }
    Ok(root.draw(&PathElement::new(vec![(floor, 6), (floor, bottom)], Ink::Axis.line(1)))?)
}

fn height_of_bars(row: &Row) -> i32 {
    height(row) - GAP
}

fn paint_measured(
    root: &Area,
    row: &Row,
    point: &Point,
    floor: i32,
    y: i32,
    place: &dyn Fn(f64) -> i32,
) -> Drawn {
    let ink = Ink::Series(row.series);
    let (low, end, high) = (place(point.value.low), place(point.value.median), place(point.value.high));
    root.draw(&Rectangle::new([(floor, y), (end.max(floor + 1), y + BAR - 3)], ink.fill()))?;
    let middle = y + (BAR - 3) / 2;
    if low != high {
        root.draw(&PathElement::new(vec![(low, middle), (high, middle)], Ink::Text.line(1)))?;
        for x in [low, high] {
            root.draw(&PathElement::new(vec![(x, middle - 4), (x, middle + 4)], Ink::Text.line(1)))?;
        }
    }
    let style = text(Ink::Text, FONT, HPos::Left, VPos::Center);
    Ok(root.draw_text(&number(point.value.median), &style, (high.max(end) + 6, middle))?)
}
