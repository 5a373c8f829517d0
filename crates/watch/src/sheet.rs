//! One page of samples.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::family::{ALL, Family, Kind};

/// Label values of a sample, in the order of its family's label names.
pub type Labels = Vec<String>;

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Number(f64),
    /// Sum, then upper bounds with the count of each bucket; the last bound is infinite.
    Buckets(f64, Vec<(f64, u64)>),
}

/// Samples of one scrape. Two samples of the same labels are added.
#[derive(Clone, Debug, Default)]
pub struct Sheet {
    samples: BTreeMap<&'static str, BTreeMap<Labels, Value>>,
}

impl Sheet {
    /// Adds a sample of a counter or a gauge.
    pub fn add(&mut self, family: &'static Family, labels: &[&str], value: f64) {
        assert_ne!(family.kind, Kind::Histogram, "{} has buckets", family.name);
        match self.place(family, labels).or_insert(Value::Number(0.0)) {
            Value::Number(sum) => *sum += value,
            Value::Buckets(..) => unreachable!("a family has one kind"),
        }
    }

    /// Adds a histogram: the sum, and each upper bound with the count of its bucket. The last bound is infinite.
    pub fn add_buckets(
        &mut self,
        family: &'static Family,
        labels: &[&str],
        sum: f64,
        buckets: Vec<(f64, u64)>,
    ) {
        assert_eq!(family.kind, Kind::Histogram, "{} has no buckets", family.name);
        match self.place(family, labels).or_insert_with(|| Value::Buckets(0.0, vec![])) {
            Value::Buckets(all, kept) if kept.is_empty() => (*all, *kept) = (sum, buckets),
            Value::Buckets(all, kept) => {
                *all += sum;
                kept.iter_mut().zip(buckets).for_each(|(own, more)| own.1 += more.1);
            }
            Value::Number(_) => unreachable!("a family has one kind"),
        }
    }

    fn place(
        &mut self,
        family: &'static Family,
        labels: &[&str],
    ) -> std::collections::btree_map::Entry<'_, Labels, Value> {
        assert_eq!(family.labels.len(), labels.len(), "labels of {}", family.name);
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        self.samples.entry(family.name).or_default().entry(labels)
    }

    /// The page in the text format of OpenMetrics.
    pub fn text(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut page = String::new();
        // Writing to a string does not fail, and samples have the kinds of their families.
        text::encode(&mut page, &registry).expect("a page of numbers");
        page
    }
}

/// The content type of `Sheet::text`.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl Collector for Sheet {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for family in ALL {
            let Some(samples) = self.samples.get(family.name) else { continue };
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            for (labels, value) in samples {
                let labels: Vec<(&str, &str)> =
                    family.labels.iter().copied().zip(labels.iter().map(String::as_str)).collect();
                let mut sample = metric.encode_family(&labels)?;
                match (family.kind, value) {
                    (Kind::Counter, Value::Number(value)) => {
                        sample.encode_counter::<NoLabelSet, _, f64>(value, None)?;
                    }
                    (_, Value::Number(value)) => sample.encode_gauge(value)?,
                    (_, Value::Buckets(sum, buckets)) => {
                        let count = buckets.iter().map(|bucket| bucket.1).sum();
                        sample.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family;

    #[test]
    fn a_page_has_help_types_labels_and_cumulative_buckets() {
        let mut sheet = Sheet::default();
        sheet.add(&family::ERRORS, &["home-OST0000", "Write"], 2.0);
        sheet.add(&family::ERRORS, &["home-OST0000", "Write"], 3.0);
        sheet.add(&family::MGS_LEADS, &[], 1.0);
        let buckets = vec![(0.5, 1), (1.0, 2), (f64::INFINITY, 4)];
        sheet.add_buckets(&family::REQUESTS, &["a\"b", "Read"], 7.5, buckets);
        let page = sheet.text();
        for line in [
            "# HELP stria_request_errors Requests that were answered with an error",
            "# TYPE stria_request_errors counter",
            "stria_request_errors_total{target=\"home-OST0000\",call=\"Write\"} 5.0",
            "stria_mgs_leads 1.0",
            "stria_request_seconds_sum{target=\"a\\\"b\",call=\"Read\"} 7.5",
            "stria_request_seconds_count{target=\"a\\\"b\",call=\"Read\"} 7",
            "stria_request_seconds_bucket{le=\"1.0\",target=\"a\\\"b\",call=\"Read\"} 3",
            "stria_request_seconds_bucket{le=\"+Inf\",target=\"a\\\"b\",call=\"Read\"} 7",
            "# EOF",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is not in:\n{page}");
        }
    }
}
