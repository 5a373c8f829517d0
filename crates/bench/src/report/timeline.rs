//! A figure over time: throughput over the seconds of the run, its phases marked as bands.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::axis::Axis;
use super::figure::Shown;
use super::lines::frame_left;
use super::number::{duration, number};
use super::paint::{self, Area, Drawn, Entry, FONT, Hints, Ink, Name, Sign, text, width_of};
use super::sampled;
use crate::record::{Record, Results, Timeline, Unit};

const SIZE: (u32, u32) = (1180, 400);
const RIGHT: i32 = 24;
/// Buckets that one picture draws, about; more are added up by twos, fours, …: it is 1,100 pixels wide.
const BUCKETS_MAX: usize = 1100;

/// Rates of one record, or of one series of samples, in seconds since the first of the figure.
pub struct Track {
    pub series: usize,
    pub end: f64,
    pub steps: Vec<Step>,
}

pub struct Step {
    pub from: f64,
    pub to: f64,
    pub value: f64,
}

/// A phase from its begin to its end; parts at once are one.
pub struct Band<'a> {
    pub name: &'a str,
    pub begin: f64,
    pub end: f64,
}

pub fn has_data(shown: &Shown, results: &Results) -> bool {
    match &shown.figure.sampled {
        Some(sampled) => !sampled::tracks(shown, sampled, results).0.is_empty(),
        None => factor(shown.unit()).is_some() && records(shown).next().is_some(),
    }
}

fn records<'s>(shown: &'s Shown) -> impl Iterator<Item = (usize, &'s Record, &'s Timeline)> {
    let series = shown.series.iter().enumerate();
    let all = series
        .flat_map(|(index, s)| s.groups.iter().flat_map(move |g| g.records.iter().map(move |r| (index, *r))));
    all.filter_map(|(index, r)| Some((index, r, r.outcome.timeline.as_ref()?))).filter(|(_, _, t)| {
        t.width_seconds > 0.0 && t.width_seconds.is_finite() && t.begin_seconds.is_finite()
    })
}

/// Units per byte, or none for operations; no unit of time can be drawn over time.
fn factor(unit: Unit) -> Option<Option<f64>> {
    match unit {
        Unit::GBps => Some(Some(1e-9)),
        Unit::MBps => Some(Some(1e-6)),
        Unit::MiBps => Some(Some(1.0 / f64::from(1 << 20))),
        Unit::Ops | Unit::Iops => Some(None),
        Unit::P50 | Unit::P99 | Unit::Late | Unit::Seconds => None,
    }
}

pub fn draw(shown: &Shown, results: &Results) -> String {
    let (tracks, spans) = match &shown.figure.sampled {
        Some(sampled) => sampled::tracks(shown, sampled, results),
        None => tracks(shown),
    };
    let bands = bands(spans);
    let phases: Vec<String> = bands
        .iter()
        .map(|b| format!("{} from {} to {}", b.name, duration(b.begin), duration(b.end)))
        .collect();
    let name = Name {
        id: format!("fig-{}-1", shown.figure.id),
        title: shown.figure.title.clone(),
        desc: format!(
            "Rates over the seconds of the run of {}. Phases: {}",
            results.header.begun,
            phases.join(", ")
        ),
    };
    paint::svg(&name, SIZE, |root, hints| paint_timeline(shown, &tracks, &bands, root, hints))
}

fn tracks<'s>(shown: &'s Shown) -> (Vec<Track>, Vec<Band<'s>>) {
    let first = records(shown).map(|(_, _, t)| t.begin_seconds).fold(f64::INFINITY, f64::min);
    let total: usize = records(shown).map(|(_, _, t)| t.ops.len().max(t.bytes.len())).sum();
    let per_byte = factor(shown.unit()).flatten();
    let together = total.div_ceil(BUCKETS_MAX).max(1);
    let both = records(shown).map(|(series, record, t)| {
        let width = t.width_seconds * together as f64;
        let amounts = if per_byte.is_some() { &t.bytes } else { &t.ops };
        let begin = t.begin_seconds - first;
        let end = end_of(record, begin, width * amounts.len().div_ceil(together) as f64);
        let steps = amounts.chunks(together).enumerate().map(|(at, chunk)| {
            let seconds = t.width_seconds * chunk.len() as f64;
            let value = chunk.iter().map(|n| *n as f64).sum::<f64>() * per_byte.unwrap_or(1.0) / seconds;
            let from = begin + at as f64 * width;
            Step { from, to: (from + width).min(end.max(from)), value }
        });
        let track = Track { series, end, steps: steps.collect() };
        (track, Band { name: base(&record.phase), begin, end })
    });
    both.unzip()
}

/// The last bucket is seldom full: a phase ends when its last worker was done.
fn end_of(record: &Record, begin: f64, buckets: f64) -> f64 {
    let done = record.outcome.last_done;
    begin + if done > 0.0 && done < buckets { done } else { buckets }
}

/// Phases that follow one another under one name are one band.
fn bands(mut spans: Vec<Band<'_>>) -> Vec<Band<'_>> {
    spans.sort_by(|a, b| a.begin.total_cmp(&b.begin));
    let mut bands: Vec<Band> = Vec::new();
    for span in spans {
        match bands.last_mut() {
            Some(last) if last.name == span.name => last.end = last.end.max(span.end),
            _ => bands.push(span),
        }
    }
    bands
}

pub fn base(phase: &str) -> &str {
    phase.split_once('.').map_or(phase, |(base, _)| base)
}

fn paint_timeline(shown: &Shown, tracks: &[Track], bands: &[Band], root: &Area, hints: &mut Hints) -> Drawn {
    // 1. axes
    let end = tracks.iter().map(|track| track.end).fold(0.0, f64::max);
    let rates = tracks.iter().flat_map(|t| t.steps.iter().map(|step| step.value));
    let most = rates.clone().fold(0.0, f64::max);
    // A line far above all that was measured would flatten it: the caption and the table say it.
    let known: Vec<_> = shown.published.iter().filter(|p| p.x.is_none() && p.value <= most * 3.0).collect();
    let y_axis = Axis::of_values(shown.figure.y_scale, rates.chain(known.iter().map(|p| p.value)));
    let x_axis = Axis::of_seconds(end);
    // 2. legend and frame
    let drawn = |index: usize| tracks.iter().any(|t| t.series == index);
    let mut entries: Vec<Entry> = shown
        .series
        .iter()
        .enumerate()
        .filter(|(index, _)| drawn(*index))
        .map(|(index, s)| Entry { name: s.name.to_owned(), sign: Sign::Block(index) })
        .collect();
    if known.iter().any(|p| p.series < shown.series.len()) {
        entries.push(Entry { name: "published".into(), sign: Sign::Published });
    }
    for p in known.iter().filter(|p| p.series >= shown.series.len()) {
        entries.push(Entry { name: format!("{} (published)", p.name), sign: Sign::Known(p.series) });
    }
    let left = frame_left(&y_axis);
    let top = paint::legend(root, &entries, left, SIZE.0 as i32 - left - RIGHT)? + 42;
    root.draw_text(
        shown.unit().words(),
        &text(Ink::Soft, FONT, HPos::Left, VPos::Bottom),
        (left - 8, top - 24),
    )?;
    let mut chart = ChartBuilder::on(root)
        .margin_top(top)
        .margin_right(RIGHT)
        .x_label_area_size(50)
        .y_label_area_size(left)
        .build_cartesian_2d(x_axis.clone(), y_axis.clone())?;
    let (x_range, y_range) = chart.plotting_area().get_pixel_range();
    // 3. bands, their names above where they fit
    let mut free_from = x_range.start;
    for (index, band) in bands.iter().enumerate() {
        let (from, to) = (
            chart.backend_coord(&(band.begin, y_axis.floor())),
            chart.backend_coord(&(band.end, y_axis.floor())),
        );
        let (x0, x1) = (from.0, to.0.max(from.0 + 1));
        root.draw(&Rectangle::new([(x0, y_range.start), (x1, y_range.end)], Ink::Band(index).fill()))?;
        let (middle, wide) = ((x0 + x1) / 2, width_of(band.name, FONT - 1));
        if middle - wide / 2 >= free_from && middle + wide / 2 <= SIZE.0 as i32 {
            let style = text(Ink::Soft, FONT - 1, HPos::Center, VPos::Bottom);
            root.draw_text(band.name, &style, (middle, y_range.start - 5))?;
            free_from = middle + wide / 2 + 6;
        }
        let said = format!("{}: {}–{}", band.name, duration(band.begin), duration(band.end));
        hints.rect((x0, y_range.start - 20), (x1, y_range.end), &said);
    }
    let title =
        if shown.figure.x_title.is_empty() { "seconds since the first begin" } else { &shown.figure.x_title };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(Ink::Grid.line(1))
        .axis_style(Ink::Axis.line(1))
        .label_style(text(Ink::Soft, FONT, HPos::Center, VPos::Center))
        .axis_desc_style(text(Ink::Text, FONT, HPos::Center, VPos::Center))
        .x_desc(title)
        .x_label_formatter(&|v| x_axis.label(*v))
        .y_label_formatter(&|v| y_axis.label(*v))
        .draw()?;
    // 4. rates, as steps
    let place = |x: f64, y: f64| chart.backend_coord(&(x, y));
    for known in &known {
        let (from, to) = (place(0.0, known.value), place(end, known.value));
        root.draw(&PathElement::new(vec![from, to], Ink::Published(known.series).line(2)))?;
        let said = format!("published: {} {} ({})", known.name, number(known.value), known.place);
        hints.rect((from.0, from.1 - 4), (to.0, to.1 + 4), &said);
    }
    for track in tracks {
        let mut path = Vec::new();
        for step in track.steps.iter().filter(|step| y_axis.holds(step.value)) {
            path.extend([place(step.from, step.value), place(step.to, step.value)]);
        }
        path.dedup();
        if path.len() > 1 {
            root.draw(&PathElement::new(path, Ink::Series(track.series).line(2)))?;
        }
    }
    Ok(())
}
