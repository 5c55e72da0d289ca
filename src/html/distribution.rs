//! Every latency of a ladder's levels: which share of requests was answered within how long.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::{
    chart::{Scale, horizontal_grid, latency_tick, path, place},
    number::latency,
};

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 344.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 386.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 304.0;
/// Curves that can be told apart.
const CURVES_MAX: usize = 6;

/// One curve a level: its name, and `(seconds, how many)` ascending.
#[must_use]
pub fn distribution(title: &str, levels: &[(String, Vec<(f64, u32)>)]) -> Markup {
    let levels = thinned(levels);
    let seconds = || levels.iter().flat_map(|(_, samples)| *samples).map(|(seconds, _)| *seconds);
    let (low, high) = (seconds().fold(f64::MAX, f64::min), seconds().fold(0.0, f64::max));
    if high <= 0.0 {
        return html! {};
    }
    // Stragglers lie far out: a factor is a step.
    let x = Scale::logarithmic((low * 0.95, high * 1.05), (LEFT, RIGHT));
    let y = Scale::linear((0.0, 100.0), (BOTTOM, TOP));
    html! {
        svg.chart viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(told(title, &levels)) {
            text.axis x=(place(LEFT)) y="14" {
                (title)
                @for (index, (name, _)) in levels.iter().enumerate() {
                    tspan class={ "key c" (index) } { "   ● " (name) }
                }
            }
            (horizontal_grid(&y, (LEFT, RIGHT), |share| format!("{share:.0}%")))
            @for tick in factors(low * 0.95, high * 1.05) {
                line.grid x1=(place(x.at(tick))) x2=(place(x.at(tick))) y1=(place(TOP)) y2=(place(BOTTOM)) {}
                text.tick x=(place(x.at(tick))) y=(place(BOTTOM + 16.0)) text-anchor="middle" { (latency_tick(tick)) }
            }
            @for (index, (_, samples)) in levels.iter().enumerate() {
                path class={ "line c" (index) } d=(path(steps(samples).map(|(seconds, share)| (x.at(seconds), y.at(share))))) {}
            }
            text.axis x=(place(f64::midpoint(LEFT, RIGHT))) y=(place(HEIGHT - 8.0)) text-anchor="middle" {
                "answered within"
            }
        }
    }
}

type Level<'a> = (&'a str, &'a [(f64, u32)]);

/// The first, the last, and some between.
fn thinned(levels: &[(String, Vec<(f64, u32)>)]) -> Vec<Level<'_>> {
    let known: Vec<Level<'_>> = levels
        .iter()
        .filter(|(_, samples)| !samples.is_empty())
        .map(|(name, samples)| (name.as_str(), samples.as_slice()))
        .collect();
    if known.len() <= CURVES_MAX {
        return known;
    }
    let pick = |index: usize| known.get(index * (known.len() - 1) / (CURVES_MAX - 1)).copied();
    (0..CURVES_MAX).filter_map(pick).collect()
}

/// Seconds, and the share of samples up to them in percent.
fn steps(samples: &[(f64, u32)]) -> impl Iterator<Item = (f64, f64)> + '_ {
    let total = samples.iter().map(|(_, count)| f64::from(*count)).sum::<f64>().max(1.0);
    samples.iter().scan(0.0, move |seen, (seconds, count)| {
        *seen += f64::from(*count);
        Some((*seconds, *seen / total * 100.0))
    })
}

/// 1, 2 and 5 times the powers of ten between two values; round values where that leaves fewer than three.
fn factors(low: f64, high: f64) -> Vec<f64> {
    let powers = (-6..=4).map(|exponent| 10_f64.powi(exponent));
    let all = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|factor| factor * power));
    let within: Vec<f64> = all.filter(|value| *value >= low && *value <= high).collect();
    if within.len() < 3 { Scale::linear((low, high), (0.0, 1.0)).ticks() } else { within }
}

fn told(title: &str, levels: &[Level<'_>]) -> String {
    let mut told = format!("{title}: the share of requests within a time.");
    for (name, samples) in levels {
        let half = steps(samples).find(|(_, share)| *share >= 50.0).map(|(seconds, _)| latency(seconds));
        let _ = write!(told, " {name}: half within {}.", half.unwrap_or_default());
    }
    told
}
