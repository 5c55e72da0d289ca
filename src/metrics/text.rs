//! The Prometheus text format, version 0.0.4.
//!
//! Bucket bounds are written as floats (`le="1.0"`): that is how Prometheus 3 stores them, whatever it reads.
//! Knows values and label sets, not what they mean.

use std::{
    fmt::{Display, Write as _},
    sync::Arc,
};

use prometheus::proto::{MetricFamily, MetricType};

use super::{
    labels::LabelSet,
    value::{Counter, Gauge, Histogram, Sum, Value},
};

/// The `Content-Type` of what this module writes.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A value that can be written down.
pub trait Sample: Value {
    /// What all samples of a family have in common, prepared once per scrape.
    type Texts;

    /// Prepares the texts.
    fn texts(name: &str, shape: &Self::Shape) -> Self::Texts;

    /// Appends the value's lines; none when it is unknown.
    fn write(&self, texts: &Self::Texts, labels: &str, out: &mut String);
}

/// Appends the two comment lines before a metric.
pub fn header(out: &mut String, name: &str, kind: &str, help: &str) {
    out.push_str("# HELP ");
    out.push_str(name);
    out.push(' ');
    push_escaped(out, help, false);
    out.extend(["\n# TYPE ", name, " ", kind, "\n"]);
}

/// `name="value",...`, escaped.
pub fn labels(names: &[&str], set: &impl LabelSet) -> String {
    let mut values = Vec::with_capacity(names.len());
    set.put(&mut values);
    debug_assert_eq!(names.len(), values.len(), "a label set must have a value for every name: {names:?}");
    let mut out = String::new();
    // An empty value is the same as no label: Prometheus' own rule.
    for (name, value) in names.iter().zip(&values).filter(|(_, value)| !value.is_empty()) {
        out.push_str(if out.is_empty() { "" } else { "," });
        out.push_str(name);
        out.push_str("=\"");
        push_escaped(&mut out, value, true);
        out.push('"');
    }
    out.shrink_to_fit();
    out
}

fn push_escaped(out: &mut String, text: &str, quotes: bool) {
    for char in text.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            other => out.push(other),
        }
    }
}

impl Sample for Counter {
    type Texts = String;

    fn texts(name: &str, (): &()) -> String {
        name.to_owned()
    }

    fn write(&self, name: &String, labels: &str, out: &mut String) {
        push_line(out, name, labels, self.total());
    }
}

impl Sample for Sum {
    type Texts = String;

    fn texts(name: &str, (): &()) -> String {
        name.to_owned()
    }

    fn write(&self, name: &String, labels: &str, out: &mut String) {
        push_line(out, name, labels, self.total());
    }
}

impl Sample for Gauge {
    type Texts = String;

    fn texts(name: &str, (): &()) -> String {
        name.to_owned()
    }

    fn write(&self, name: &String, labels: &str, out: &mut String) {
        if let Some(value) = self.value() {
            push_line(out, name, labels, value);
        }
    }
}

/// A histogram's names and the text of its bounds.
pub struct Buckets {
    bucket: String,
    sum: String,
    count: String,
    bounds: Vec<String>,
}

impl Sample for Histogram {
    type Texts = Buckets;

    fn texts(name: &str, bounds: &Arc<[f64]>) -> Buckets {
        Buckets {
            bucket: format!("{name}_bucket{{"),
            sum: format!("{name}_sum"),
            count: format!("{name}_count"),
            // Debug, unlike Display, never writes a float as an integer.
            bounds: bounds.iter().map(|bound| format!("{bound:?}")).chain(["+Inf".to_owned()]).collect(),
        }
    }

    fn write(&self, texts: &Buckets, labels: &str, out: &mut String) {
        let content = self.content();
        let mut cumulative = 0;
        for (bound, count) in texts.bounds.iter().zip(&content.counts) {
            cumulative += count;
            let comma = if labels.is_empty() { "" } else { "," };
            out.extend([&texts.bucket, labels, comma, "le=\"", bound, "\"} "]);
            push_value(out, cumulative);
        }
        push_line(out, &texts.sum, labels, content.sum);
        push_line(out, &texts.count, labels, cumulative);
    }
}

fn push_line(out: &mut String, name: &str, labels: &str, value: impl Display) {
    out.push_str(name);
    if !labels.is_empty() {
        out.extend(["{", labels, "}"]);
    }
    out.push(' ');
    push_value(out, value);
}

fn push_value(out: &mut String, value: impl Display) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{value}");
}

/// Appends counters and gauges of the `prometheus` crate's own collectors (they have no labels).
pub fn collected(out: &mut String, families: &[MetricFamily]) {
    for family in families {
        let (kind, value): (_, fn(&prometheus::proto::Metric) -> f64) = match family.get_field_type() {
            MetricType::COUNTER => ("counter", |metric| metric.get_counter().get_value()),
            MetricType::GAUGE => ("gauge", |metric| metric.get_gauge().get_value()),
            MetricType::SUMMARY | MetricType::UNTYPED | MetricType::HISTOGRAM => continue,
        };
        header(out, family.name(), kind, family.help());
        for metric in family.get_metric() {
            push_line(out, family.name(), "", value(metric));
        }
    }
}
