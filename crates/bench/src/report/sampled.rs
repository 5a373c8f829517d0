//! Output of samplers, as tracks of a figure over time: each series from its first phase on, so that runs lie over one another.

use super::figure::Shown;
use super::timeline::{Band, Step, Track, base};
use crate::plan::schema::Sampled;
use crate::record::{Record, Results, Samples};
use crate::sampler::flat::fits;

/// Buckets of one track: the picture is 1,100 pixels wide.
const BUCKETS_MAX: f64 = 1100.0;

/// One number over time, in the figure's unit.
struct Values(Vec<(f64, f64)>);

/// The tracks of all series, and the phases of the first one that has any.
pub fn tracks<'s>(shown: &'s Shown, sampled: &Sampled, results: &Results) -> (Vec<Track>, Vec<Band<'s>>) {
    let values: Vec<Values> = values(sampled, &results.samples);
    let (mut tracks, mut bands) = (Vec::new(), Vec::new());
    for (series, measured) in shown.series.iter().enumerate() {
        let records = measured.groups.iter().flat_map(|group| first_repeat(&group.records));
        let spans: Vec<Band> = records.filter_map(span).collect();
        let begin = spans.iter().map(|span| span.begin).fold(f64::INFINITY, f64::min);
        let end = spans.iter().map(|span| span.end).fold(f64::NEG_INFINITY, f64::max);
        if spans.is_empty() || begin >= end {
            continue;
        }
        let steps = steps(&values, begin, end);
        if steps.is_empty() {
            continue;
        }
        if bands.is_empty() {
            let moved = |span: Band<'s>| Band { begin: span.begin - begin, end: span.end - begin, ..span };
            bands = spans.into_iter().map(moved).collect();
        }
        tracks.push(Track { series, end: end - begin, steps });
    }
    (tracks, bands)
}

fn first_repeat<'a>(records: &'a [&'a Record]) -> impl Iterator<Item = &'a Record> {
    let first = records.iter().map(|record| record.repeat).min();
    records.iter().copied().filter(move |record| Some(record.repeat) == first)
}

fn span(record: &Record) -> Option<Band<'_>> {
    let begin = record.outcome.timeline.as_ref()?.begin_seconds;
    let end = begin + record.outcome.last_done;
    (begin.is_finite() && end > begin).then(|| Band { name: base(&record.phase), begin, end })
}

/// By sampler: the sum of the fields that the figure wants.
fn values(sampled: &Sampled, samples: &[Samples]) -> Vec<Values> {
    let mut all: Vec<(&str, Values)> = Vec::new();
    for some in samples {
        let wanted: Vec<bool> =
            some.fields.iter().map(|name| sampled.fields.iter().any(|pattern| fits(pattern, name))).collect();
        let sum = |row: &[Option<f64>]| {
            let fields: Vec<f64> =
                row.iter().zip(&wanted).filter_map(|(value, wanted)| value.filter(|_| *wanted)).collect();
            (!fields.is_empty()).then(|| fields.iter().sum::<f64>() * sampled.factor.unwrap_or(1.0))
        };
        let rows = some.rows.iter().filter_map(|(at, row)| Some((*at, sum(row)?)));
        match all.iter_mut().find(|(name, _)| *name == some.sampler) {
            Some((_, known)) => known.0.extend(rows),
            None => all.push((&some.sampler, Values(rows.collect()))),
        }
    }
    all.into_iter().map(|(_, values)| values).filter(|values| !values.0.is_empty()).collect()
}

/// The sum over the samplers, in steps as long as the time between two lines of the first.
fn steps(values: &[Values], begin: f64, end: f64) -> Vec<Step> {
    let Some(first) = values.first() else { return Vec::new() };
    let mut gaps: Vec<f64> =
        first.0.windows(2).map(|two| two[1].0 - two[0].0).filter(|gap| *gap > 0.0).collect();
    gaps.sort_by(f64::total_cmp);
    let width = gaps.get(gaps.len() / 2).copied().unwrap_or(1.0).max((end - begin) / BUCKETS_MAX);
    let count = ((end - begin) / width).ceil().min(BUCKETS_MAX) as usize;
    let mut last = vec![None; values.len()];
    let mut steps = Vec::new();
    for bucket in 0..count {
        let (from, to) = (begin + bucket as f64 * width, begin + (bucket + 1) as f64 * width);
        for (last, values) in last.iter_mut().zip(values) {
            // A line tells of the time before it.
            let inside: Vec<f64> =
                values.0.iter().filter(|(at, _)| *at > from && *at <= to).map(|(_, value)| *value).collect();
            if !inside.is_empty() {
                *last = Some(inside.iter().sum::<f64>() / inside.len() as f64);
            }
        }
        if last.iter().any(Option::is_some) {
            let value = last.iter().flatten().sum();
            steps.push(Step { from: from - begin, to: to.min(end) - begin, value });
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samplers_are_summed_in_steps_of_their_own_interval() {
        let values = [
            Values(vec![(10.9, 5.0), (11.9, 7.0), (12.95, 9.0), (20.0, 99.0)]),
            Values(vec![(11.2, 1.0), (12.2, 2.0)]),
        ];
        let steps: Vec<_> = steps(&values, 11.0, 14.0).iter().map(|s| (s.to.round(), s.value)).collect();
        // Where one printed nothing its last value stands.
        assert_eq!(steps, [(1.0, 8.0), (2.0, 11.0), (3.0, 11.0)]);
    }

    #[test]
    fn only_the_wanted_fields_are_added() {
        let samples = Samples {
            sampler: "router".into(),
            fields: vec!["nets.tcp0.in".into(), "nets.tcp1.in".into(), "cpu".into()],
            rows: vec![(1.0, vec![Some(2e6), Some(3e6), Some(50.0)]), (2.0, vec![None, None, Some(50.0)])],
        };
        let sampled = Sampled { fields: vec!["nets.*.in".into()], factor: Some(1e-6) };
        let found = values(&sampled, &[samples.clone(), samples]);
        assert_eq!(found.iter().map(|v| v.0.clone()).collect::<Vec<_>>(), [vec![(1.0, 5.0), (1.0, 5.0)]]);
    }
}
