//! Scales, ticks and paths: where a value lies in a drawing. Knows nothing of what is drawn.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::number::grouped;

/// From values to places.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    domain: (f64, f64),
    range: (f64, f64),
    logarithmic: bool,
}

impl Scale {
    /// Equal steps of value are equal steps of place.
    pub(super) fn linear(domain: (f64, f64), range: (f64, f64)) -> Self {
        let (low, high) = domain;
        let high = if high > low { high } else { low + low.abs().max(1e-9) };
        Self { domain: (low, high), range, logarithmic: false }
    }

    /// Equal factors of value are equal steps of place; values are positive.
    pub(super) fn logarithmic(domain: (f64, f64), range: (f64, f64)) -> Self {
        let low = domain.0.max(1e-9);
        let high = if domain.1 > low { domain.1 } else { low * 2.0 };
        Self { domain: (low, high), range, logarithmic: true }
    }

    /// From zero to a round number above `highest`, so that the axis ends with a tick.
    pub(super) fn from_zero(highest: f64, range: (f64, f64)) -> Self {
        let highest = if highest.is_finite() && highest > 0.0 { highest } else { 1.0 };
        let step = step(highest, TICKS);
        Self::linear((0.0, (highest / step).ceil() * step), range)
    }

    /// Where a value lies.
    pub(super) fn at(&self, value: f64) -> f64 {
        let ((low, high), (start, end)) = (self.domain, self.range);
        let share = if self.logarithmic {
            (value.max(low) / low).ln() / (high / low).ln()
        } else {
            (value - low) / (high - low)
        };
        start + (end - start) * share
    }

    /// Round values within the domain.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let (low, high) = self.domain;
        let step = step(high - low, TICKS);
        let first = (low / step).ceil();
        let ticks = (0..=2 * TICKS).map(|n| (first + f64::from(n)) * step);
        ticks.take_while(|tick| *tick <= high + step * 1e-6).collect()
    }
}

/// About how many ticks an axis has.
const TICKS: u32 = 4;

/// 1, 2 or 5 times a power of ten, so that `span` holds about `count` of them.
fn step(span: f64, count: u32) -> f64 {
    let rough = span / f64::from(count);
    let power = 10_f64.powf(rough.log10().floor());
    match rough / power {
        ratio if ratio <= 1.0 => power,
        ratio if ratio <= 2.0 => 2.0 * power,
        ratio if ratio <= 5.0 => 5.0 * power,
        _ => 10.0 * power,
    }
}

/// The path of a line through these places.
pub(super) fn path(places: impl Iterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (x, y) in places {
        let command = if path.is_empty() { 'M' } else { 'L' };
        // Writing to a string does not fail.
        let _ = write!(path, "{command}{x:.1} {y:.1}");
    }
    path
}

/// A coordinate, as exact as a screen is.
pub(super) fn place(value: f64) -> String {
    format!("{value:.1}")
}

/// Horizontal lines with their values at the left.
pub(super) fn horizontal_grid(y: &Scale, (left, right): (f64, f64), label: impl Fn(f64) -> String) -> Markup {
    html! {
        @for tick in y.ticks() {
            line.grid x1=(place(left)) x2=(place(right)) y1=(place(y.at(tick))) y2=(place(y.at(tick))) {}
            text.tick x=(place(left - 6.0)) y=(place(y.at(tick) + 4.0)) text-anchor="end" { (label(tick)) }
        }
    }
}

/// A tick of a throughput axis.
pub(super) fn rate_tick(rate: f64) -> String {
    if rate < 1_000.0 { round(rate) } else { grouped(rate) }
}

/// A tick of a latency axis: short, since its neighbours say the same unit.
pub(super) fn latency_tick(seconds: f64) -> String {
    if seconds <= 0.0 {
        "0".to_owned()
    } else if seconds >= 1.0 {
        format!("{} s", round(seconds))
    } else {
        format!("{} ms", round(seconds * 1e3))
    }
}

/// Without the digits that say nothing.
pub(super) fn round(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
