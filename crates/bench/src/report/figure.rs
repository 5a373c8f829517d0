//! A plan's figures: measured values, published values, and the pictures of both.

use super::group::{Group, quantity, select, word};
use super::number::number;
use super::{bars, lines, timeline};
use crate::plan::schema::{AxisScale, Figure, FigureKind};
use crate::record::{Results, Unit};
use crate::stats::{Estimate, estimate};

/// Published values farther from the measured than this factor get a picture of their own: on a linear axis the smaller ones would
/// lie flat on its floor.
const FAR: f64 = 3.0;

/// The kind of quantity of a unit: figures of one family have one kind of axis, so that a reader may compare them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bytes,
    Operations,
    Time,
    Part,
}

fn kind(unit: Unit) -> Kind {
    match unit {
        Unit::GBps | Unit::MBps | Unit::MiBps => Kind::Bytes,
        Unit::Ops | Unit::Iops => Kind::Operations,
        Unit::P50 | Unit::P99 | Unit::Seconds => Kind::Time,
        Unit::Late => Kind::Part,
    }
}

/// Gives all figures of a family the scale that one of them needs.
pub fn align(all: &mut [Shown]) {
    let is_drawn = |shown: &Shown| shown.figure.kind != FigureKind::Timeline;
    let of: Vec<(Kind, AxisScale, bool)> =
        all.iter().filter(|s| is_drawn(s)).map(|s| (kind(s.unit()), s.scale, s.is_far())).collect();
    for shown in all.iter_mut().filter(|s| is_drawn(s)) {
        let same = || of.iter().filter(|(k, _, _)| *k == kind(shown.figure.unit));
        let scale = same().map(|(_, scale, _)| *scale).find(|scale| *scale != AxisScale::Linear);
        let has_far = scale.is_none() && same().any(|(_, _, is_far)| *is_far);
        shown.scale = scale.unwrap_or(AxisScale::Linear);
        shown.has_two = has_far && !shown.published.is_empty();
    }
}

/// The content of a figure.
pub struct Shown<'a> {
    pub figure: &'a Figure,
    /// Of the values.
    scale: AxisScale,
    /// The measured alone, and a second picture with the published.
    has_two: bool,
    pub series: Vec<Measured<'a>>,
    /// Series by index; those that name none of the figure come after its own.
    pub published: Vec<Known<'a>>,
    /// Where x has words, their places are 0, 1, 2.
    pub words: Vec<String>,
}

pub struct Measured<'a> {
    pub name: &'a str,
    pub points: Vec<Point>,
    pub groups: Vec<&'a Group<'a>>,
}

#[derive(Clone, Debug)]
pub struct Point {
    pub x: f64,
    /// As it is called: `4`, `8M`.
    pub label: String,
    pub value: Estimate,
    pub repeats: usize,
}

pub struct Known<'a> {
    pub series: usize,
    pub name: &'a str,
    pub x: Option<f64>,
    pub value: f64,
    pub place: &'a str,
}

/// One picture of a figure.
pub struct Picture {
    pub caption: &'static str,
    pub svg: String,
    pub is_wide: bool,
}

/// Which of the two a picture shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Both,
    Measured,
    /// Both on a logarithmic axis.
    BothLog,
}

impl Part {
    pub fn has_published(self) -> bool {
        self != Part::Measured
    }
}

impl<'a> Shown<'a> {
    pub fn new(figure: &'a Figure, groups: &'a [Group<'a>]) -> Shown<'a> {
        let picked: Vec<Vec<&Group>> =
            figure.series.iter().map(|s| select(groups, &s.step, &s.phase, &s.at)).collect();
        let values = picked.iter().flatten().filter_map(|g| g.point.get(&figure.x));
        let has_words = values.clone().any(|v| quantity(v).is_none());
        let mut words: Vec<String> = Vec::new();
        for word in values.filter(|_| has_words).map(word) {
            if !words.contains(&word) {
                words.push(word);
            }
        }
        let series = figure.series.iter().zip(picked).map(|(series, groups)| {
            let of = |g: &&Group| point(figure, g, series.summed, (&groups, &words));
            let points = groups.iter().filter_map(of).collect();
            Measured { name: &series.name, points: sorted(points), groups }
        });
        let mut names: Vec<&str> = figure.series.iter().map(|s| s.name.as_str()).collect();
        let published = figure.published.iter().filter(|p| p.value.is_finite()).map(|p| {
            let at = names.iter().position(|n| *n == p.series).unwrap_or_else(|| {
                names.push(&p.series);
                names.len() - 1
            });
            Known { series: at, name: &p.series, x: p.x, value: p.value, place: &p.place }
        });
        let published = published.collect();
        let (scale, series) = (figure.y_scale, series.collect());
        let mut shown = Shown { figure, scale, has_two: false, series, published, words };
        shown.has_two = shown.is_far();
        shown
    }

    pub fn unit(&self) -> Unit {
        self.figure.unit
    }

    /// Is there something measured to be drawn?
    pub fn has_data(&self, results: &Results) -> bool {
        match self.figure.kind {
            FigureKind::Timeline => timeline::has_data(self, results),
            _ => self.series.iter().any(|s| !s.points.is_empty()),
        }
    }

    /// The pictures: one, or the measured alone and both on a logarithmic axis.
    pub fn pictures(&self, results: &Results) -> Vec<Picture> {
        if self.figure.kind == FigureKind::Timeline {
            let svg = timeline::draw(self, results);
            return vec![Picture { caption: "", svg, is_wide: true }];
        }
        let parts: &[(Part, &str)] = match self.has_two {
            true => {
                &[(Part::Measured, "measured here"), (Part::BothLog, "with what was published (logarithmic)")]
            }
            false => &[(Part::Both, "")],
        };
        let draw = |part| match self.figure.kind {
            FigureKind::Bars => bars::draw(self, part),
            _ => lines::draw(self, part),
        };
        parts.iter().map(|(part, caption)| Picture { caption, svg: draw(*part), is_wide: false }).collect()
    }

    /// Would measured and published be unreadable in one picture?
    fn is_far(&self) -> bool {
        let measured = self.series.iter().flat_map(|s| &s.points);
        let max = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        let here = max(&mut measured.clone().map(|p| p.value.high));
        let there = max(&mut self.published.iter().map(|p| p.value));
        let is_value_far = self.scale == AxisScale::Linear && (there > here * FAR || here > there * FAR);
        let (x_here, x_there) = (
            max(&mut measured.map(|p| p.x)),
            max(&mut self.published.iter().filter_map(|p| p.x).filter(|_| self.words.is_empty())),
        );
        !self.published.is_empty() && (is_value_far || x_there > x_here * 4.0)
    }

    /// The scale of the values in a picture.
    pub fn y_scale(&self, part: Part) -> AxisScale {
        match (part, self.scale) {
            (Part::BothLog, AxisScale::Linear) => AxisScale::Log10,
            (_, scale) => scale,
        }
    }

    /// Alternative text of a picture, for screen readers.
    pub fn description(&self, part: Part) -> String {
        let unit = self.unit().words();
        let mut said = Vec::new();
        for series in self.series.iter().filter(|s| !s.points.is_empty()) {
            let points: Vec<String> = series
                .points
                .iter()
                .map(|p| {
                    let x = if p.label.is_empty() { String::new() } else { format!("{}: ", p.label) };
                    format!("{x}{}", number(p.value.median))
                })
                .collect();
            said.push(format!("{} in {unit}: {}", series.name, points.join(", ")));
        }
        if part.has_published() {
            let known =
                self.published.iter().map(|p| format!("{} {} ({})", p.name, number(p.value), p.place));
            said.extend(known.map(|text| format!("published: {text}")));
        }
        said.join(". ")
    }
}

fn point(
    figure: &Figure,
    group: &Group,
    summed: bool,
    (all, words): (&[&Group], &[String]),
) -> Option<Point> {
    let samples = group.samples_of(figure.unit, summed);
    let value = estimate(&samples);
    let at = group.point.get(&figure.x);
    let x = match at {
        Some(v) if words.is_empty() => quantity(v)?,
        Some(v) => words.iter().position(|w| *w == word(v))? as f64,
        None => 0.0,
    };
    let repeats = samples.len();
    let label = at.map_or_else(|| differing(group, all), word);
    value.median.is_finite().then_some(Point { x, label, value, repeats })
}

/// For figures without x: the parameters in which a bar's point differs from the others of its series.
fn differing(group: &Group, all: &[&Group]) -> String {
    let differs = |name: &str| all.iter().any(|other| other.point.get(name) != group.point.get(name));
    let parts = group.point.iter().filter(|(name, _)| differs(name.as_str()));
    parts.map(|(name, value)| format!("{name} {}", word(value))).collect::<Vec<_>>().join(", ")
}

fn sorted(mut points: Vec<Point>) -> Vec<Point> {
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    points
}

/// `4: 12.3 GB/s, 95 % interval 12.1–12.6 of 5 repeats`.
pub fn hint(name: &str, point: &Point, unit: Unit) -> String {
    let Estimate { median, low, high } = point.value;
    let at = if point.label.is_empty() { String::new() } else { format!(" at {}", point.label) };
    let spread = match point.repeats {
        1 => "one sample".into(),
        n if n < 6 => format!("{}–{}, all of {n} repeats", number(low), number(high)),
        n => format!("95 % interval {}–{} of {n} repeats", number(low), number(high)),
    };
    format!("{name}{at}: {} {} ({spread})", number(median), unit.words())
}
