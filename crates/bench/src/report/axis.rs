//! An axis: its range, and ticks that people would choose.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use super::number::tick;
use crate::plan::schema::AxisScale;

/// Ticks at values of one's own up to so many; beyond, at round ones.
const OWN_TICKS_MAX: usize = 12;

#[derive(Clone, Debug)]
pub struct Axis {
    scale: AxisScale,
    low: f64,
    high: f64,
    /// Ascending.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// For values that are lengths: a linear one begins at 0.
    pub fn of_values(scale: AxisScale, values: impl IntoIterator<Item = f64>) -> Axis {
        let values: Vec<f64> = usable(scale, values);
        let (min, max) = bounds(&values).unwrap_or((1.0, 1.0));
        match scale {
            AxisScale::Linear => {
                let step = nice_step(max.max(f64::MIN_POSITIVE) / 5.0);
                let high = (max * 1.02 / step).ceil().max(1.0) * step;
                Axis { scale, low: 0.0, high, ticks: round_ticks(0.0, high, step) }
            }
            AxisScale::Log2 => {
                let (low, high) = ((min * 0.9).log2().floor(), (max * 1.1).log2().ceil());
                Axis {
                    scale,
                    low: low.exp2(),
                    high: high.exp2(),
                    ticks: powers(2.0, low as i32, high as i32),
                }
            }
            AxisScale::Log10 => {
                let mut ticks = decades(min * 0.9, max * 1.1);
                let (low, high) = (ticks[0].0, ticks[ticks.len() - 1].0);
                thin(&mut ticks, 8);
                Axis { scale, low, high, ticks }
            }
        }
    }

    /// For swept parameters: ticks stand where something was measured.
    pub fn of_parameter(scale: AxisScale, values: impl IntoIterator<Item = f64>) -> Axis {
        let mut values = usable(scale, values);
        values.sort_by(f64::total_cmp);
        values.dedup();
        let (min, max) = bounds(&values).unwrap_or((1.0, 1.0));
        if scale == AxisScale::Linear {
            let room = if max > min { (max - min) * 0.04 } else { max.abs().max(1.0) * 0.5 };
            let step = nice_step((max - min).max(max.abs() * 1e-6).max(f64::MIN_POSITIVE) / 8.0);
            let mut axis = Axis { scale, low: min - room, high: max + room, ticks: Vec::new() };
            axis.ticks = match values.len() <= OWN_TICKS_MAX {
                true => axis.own_ticks(&values),
                false => round_ticks((axis.low / step).ceil() * step, axis.high, step),
            };
            return axis;
        }
        let room = if max > min { (max / min).powf(0.03) } else { 2.0 };
        let mut axis = Axis { scale, low: min / room, high: max * room, ticks: Vec::new() };
        // Also where nothing was measured: an axis reads better with all its doublings.
        let doubles = scale == AxisScale::Log2
            && values.iter().all(|v| v.log2().fract() == 0.0 && *v < 1024.0 * 1024.0);
        let is_binary = values.iter().all(|v| *v >= 1024.0);
        axis.ticks = match values.len() <= OWN_TICKS_MAX && (!doubles || is_binary) {
            true => axis.own_ticks(&values),
            false => {
                let mut ticks = powers(2.0, min.log2().floor() as i32, max.log2().ceil() as i32);
                ticks.retain(|(v, _)| (axis.low..=axis.high).contains(v));
                thin(&mut ticks, OWN_TICKS_MAX);
                ticks
            }
        };
        axis
    }

    /// Words at 0, 1, 2.
    pub fn of_words(words: &[String]) -> Axis {
        let ticks = words.iter().enumerate().map(|(at, word)| (at as f64, word.clone())).collect();
        Axis { scale: AxisScale::Linear, low: -0.5, high: words.len() as f64 - 0.5, ticks }
    }

    /// Seconds from 0, to the end exactly.
    pub fn of_seconds(end: f64) -> Axis {
        let end = if end.is_finite() && end > 0.0 { end } else { 1.0 };
        Axis {
            scale: AxisScale::Linear,
            low: 0.0,
            high: end,
            ticks: round_ticks(0.0, end, nice_step(end / 10.0)),
        }
    }

    pub fn label(&self, at: f64) -> String {
        self.ticks.iter().find(|(v, _)| *v == at).map(|(_, label)| label.clone()).unwrap_or_default()
    }

    pub fn holds(&self, value: f64) -> bool {
        value.is_finite() && (self.scale == AxisScale::Linear || value > 0.0)
    }

    /// Where bars begin.
    pub fn floor(&self) -> f64 {
        self.low
    }

    /// Ticks at the values, without those that would touch.
    fn own_ticks(&self, values: &[f64]) -> Vec<(f64, String)> {
        let is_binary = values.iter().all(|v| *v >= 1024.0 && (v % 1024.0) == 0.0);
        let mut ticks: Vec<(f64, String)> = Vec::new();
        for value in values {
            let is_near =
                ticks.last().is_some_and(|(last, _)| self.share(*value) - self.share(*last) < 0.055);
            if !is_near {
                let label = if is_binary { types::Size(*value as u64).to_string() } else { tick(*value) };
                ticks.push((*value, label));
            }
        }
        ticks
    }

    /// How far along, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let place = |v: f64| match self.scale {
            AxisScale::Linear => v,
            AxisScale::Log2 | AxisScale::Log10 => v.max(f64::MIN_POSITIVE).ln(),
        };
        ((place(value) - place(self.low)) / (place(self.high) - place(self.low))).clamp(0.0, 1.0)
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (begin, end): (i32, i32)) -> i32 {
        begin + (f64::from(end - begin) * self.share(*value)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.iter().map(|(v, _)| *v).collect()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        self.label(*value)
    }
}

fn usable(scale: AxisScale, values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    values.into_iter().filter(|v| v.is_finite() && (scale == AxisScale::Linear || *v > 0.0)).collect()
}

fn bounds(values: &[f64]) -> Option<(f64, f64)> {
    let min = values.iter().copied().min_by(f64::total_cmp)?;
    let max = values.iter().copied().max_by(f64::total_cmp)?;
    Some((min, max))
}

/// The next of 1, 2, 5, 10, …
fn nice_step(step: f64) -> f64 {
    let decade = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|f| f * decade >= step * 0.999);
    factor.unwrap_or(10.0) * decade
}

fn round_ticks(from: f64, to: f64, step: f64) -> Vec<(f64, String)> {
    let count = ((to - from) / step + 1e-6).floor().clamp(0.0, 40.0) as u32;
    (0..=count).map(|n| from + f64::from(n) * step).map(|v| (v, tick(v))).collect()
}

fn powers(base: f64, low: i32, high: i32) -> Vec<(f64, String)> {
    (low..=high.min(low + 200)).map(|n| base.powi(n)).map(|v| (v, tick(v))).collect()
}

/// Powers of ten around the values; with 2 and 5 of each where they are few.
fn decades(min: f64, max: f64) -> Vec<(f64, String)> {
    let (low, high) = (min.log10().floor() as i32, max.log10().ceil() as i32);
    if high - low > 2 {
        return powers(10.0, low, high);
    }
    let steps = (low..=high).flat_map(|n| [1.0, 2.0, 5.0].map(|f| f * 10f64.powi(n)));
    let all: Vec<f64> = steps.collect();
    let first = all.iter().rposition(|v| *v <= min).unwrap_or(0);
    let last = all.iter().position(|v| *v >= max).unwrap_or(all.len() - 1);
    all[first..=last.max(first + 1).min(all.len() - 1)].iter().map(|v| (*v, tick(*v))).collect()
}

fn thin(ticks: &mut Vec<(f64, String)>, most: usize) {
    let keep = ticks.len().div_ceil(most.max(1)).max(1);
    let mut at = 0;
    ticks.retain(|_| {
        at += 1;
        (at - 1) % keep == 0
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> String {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ticks_are_those_that_people_choose() {
        let threads = (0..=10).map(|n| 2f64.powi(n));
        let table = [
            (Axis::of_parameter(AxisScale::Log2, threads), "1 2 4 8 16 32 64 128 256 512 1024"),
            (Axis::of_parameter(AxisScale::Log2, [72.0, 9.0, 18.0, 36.0]), "9 18 36 72"),
            (Axis::of_parameter(AxisScale::Log2, [4.0]), "4"),
            (Axis::of_parameter(AxisScale::Log2, [1.0, 2.0, 16.0, 512.0]), "1 2 4 8 16 32 64 128 256 512"),
            (Axis::of_parameter(AxisScale::Log2, [4096.0, 65536.0, 1048576.0]), "4K 64K 1M"),
            (Axis::of_parameter(AxisScale::Linear, [1.0, 2.0, 4.0, 8.0, 16.0]), "1 2 4 8 16"),
            (Axis::of_values(AxisScale::Linear, [0.31, 0.07]), "0 0.1 0.2 0.3 0.4"),
            (Axis::of_values(AxisScale::Linear, [1190.0]), "0 500 1000 1500"),
            (Axis::of_values(AxisScale::Linear, [0.0]), "0"),
            (Axis::of_values(AxisScale::Linear, []), "0 0.2 0.4 0.6 0.8 1 1.2"),
            (Axis::of_values(AxisScale::Log10, [120.0, 6.9e6]), "100 1000 10k 100k 1M 10M"),
            (Axis::of_values(AxisScale::Log10, [2.1, 40.9]), "1 2 5 10 20 50"),
            (Axis::of_values(AxisScale::Log10, [7.0]), "5 10"),
            (Axis::of_seconds(1370.0), "0 200 400 600 800 1000 1200"),
            (Axis::of_seconds(0.0), "0 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 1"),
        ];
        for (axis, wanted) in table {
            let got = labels(&axis);
            assert!(got == wanted || (wanted == "0" && got.starts_with('0')), "{got:?}, not {wanted:?}");
        }
        assert!(Axis::of_parameter(AxisScale::Log2, (1..=300).map(f64::from)).ticks.len() <= OWN_TICKS_MAX);
    }

    #[test]
    fn values_stand_where_they_belong() {
        let axis = Axis::of_values(AxisScale::Log10, [1.0, 999.0]);
        let places: Vec<i32> = axis.ticks.iter().map(|(v, _)| axis.map(v, (0, 300))).collect();
        assert!(places.windows(2).all(|two| two[0] < two[1]), "{places:?}");
        assert_eq!((axis.map(&0.0, (0, 300)), axis.map(&1e99, (0, 300))), (0, 300));
        assert!(!axis.holds(0.0) && !axis.holds(f64::NAN) && axis.holds(1.0));
    }
}
