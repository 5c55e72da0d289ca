//! The ladder as two curves over concurrency: time to first token above, total throughput below, with the knee, the safe
//! load and the objective. Two panels with one axis each: a second axis in one panel lets any two curves cross anywhere.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::{
    chart::{Scale, horizontal_grid, latency_tick, path, place, rate_tick},
    number::{latency, load_words, tokens_per_second},
};
use crate::cell::Load;

/// One level of a ladder, as it is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LevelPoint {
    /// Its load.
    pub load: Load,
    /// Median time to first token, seconds.
    pub ttft_p50: Option<f64>,
    /// 95th percentile of the time to first token, seconds.
    pub ttft_p95: Option<f64>,
    /// Tokens per second of the whole level.
    pub throughput: Option<f64>,
}

/// What is drawn of a ladder.
#[derive(Debug, Clone, PartialEq)]
pub struct LadderCurves {
    /// Its levels, ascending.
    pub levels: Vec<LevelPoint>,
    /// Where throughput stops growing, or the target no longer keeps up.
    pub knee: Option<Load>,
    /// The load that is safe.
    pub safe: Option<Load>,
    /// Longest time to first token that counts as good, seconds.
    pub objective: Option<f64>,
}

// As narrow as a phone, so that the letters are as large there as anywhere.
const WIDTH: f64 = 400.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 386.0;
/// Top and bottom of the two panels.
const UPPER: (f64, f64) = (26.0, 146.0);
const LOWER: (f64, f64) = (184.0, 304.0);
const HEIGHT: f64 = 344.0;

/// Both curves; nothing to see is said in words.
#[must_use]
pub fn ladder_chart(curves: &LadderCurves) -> Markup {
    let measured = curves.levels.iter().any(|level| level.ttft_p95.is_some() || level.throughput.is_some());
    if !measured {
        return html! { p.none { "No level has been measured yet: there is no curve to draw." } };
    }
    let ends = (curves.levels.first(), curves.levels.last());
    let (low, high) = (ends.0.map_or(1.0, |l| amount(l.load)), ends.1.map_or(2.0, |l| amount(l.load)));
    let x = if high > low {
        Scale::logarithmic((low, high), (LEFT + 14.0, RIGHT - 14.0))
    } else {
        Scale::linear((low - 1.0, high + 1.0), (LEFT, RIGHT))
    };
    let open = curves.levels.iter().any(|level| matches!(level.load, Load::Rate(_)));
    html! {
        svg.chart viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(told(curves)) {
            @if let Some(safe) = curves.safe {
                rect.safe x=(place(LEFT)) y=(place(UPPER.0)) width=(place(x.at(amount(safe)).clamp(LEFT, RIGHT) - LEFT))
                    height=(place(LOWER.1 - UPPER.0)) {}
            }
            (latency_panel(curves, &x))
            (throughput_panel(curves, &x))
            @for (index, level) in curves.levels.iter().enumerate() {
                @if roomy(&curves.levels, index, &x) {
                    text.tick x=(place(x.at(amount(level.load)))) y=(place(LOWER.1 + 16.0)) text-anchor="middle" {
                        (amount(level.load))
                    }
                }
            }
            text.axis x=(place(f64::midpoint(LEFT, RIGHT))) y=(place(HEIGHT - 8.0)) text-anchor="middle" {
                @if open { "requests per second" } @else { "requests in flight" }
            }
            @if let Some(knee) = curves.knee {
                (knee_mark(x.at(amount(knee)).clamp(LEFT, RIGHT), knee))
            }
        }
    }
}

fn latency_panel(curves: &LadderCurves, x: &Scale) -> Markup {
    let values = curves.levels.iter().filter_map(|level| level.ttft_p95);
    let highest = values.fold(0.0, f64::max);
    // An objective far above the curve would press it flat.
    let objective = curves.objective.filter(|objective| *objective < highest * 4.0);
    let y = Scale::from_zero(highest.max(objective.unwrap_or(0.0)), (UPPER.1, UPPER.0));
    html! {
        text.axis x=(place(LEFT)) y="14" { "TTFT P95" tspan.faint { "  and P50" } }
        (horizontal_grid(&y, (LEFT, RIGHT), latency_tick))
        @if let Some(objective) = objective {
            line.objective x1=(place(LEFT)) x2=(place(RIGHT)) y1=(place(y.at(objective))) y2=(place(y.at(objective))) {}
            text.objective x=(place(RIGHT)) y=(place(y.at(objective) - 4.0)) text-anchor="end" { "objective" }
        }
        (curve(curves, (x, &y), "faint", |level| level.ttft_p50, latency))
        (curve(curves, (x, &y), "ttft", |level| level.ttft_p95, latency))
    }
}

fn throughput_panel(curves: &LadderCurves, x: &Scale) -> Markup {
    let values = curves.levels.iter().filter_map(|level| level.throughput);
    let y = Scale::from_zero(values.fold(0.0, f64::max), (LOWER.1, LOWER.0));
    html! {
        text.axis x=(place(LEFT)) y=(place(LOWER.0 - 12.0)) { "total tokens per second" }
        (horizontal_grid(&y, (LEFT, RIGHT), rate_tick))
        (curve(curves, (x, &y), "tps", |level| level.throughput, |rate| format!("{} tokens/s", tokens_per_second(rate))))
    }
}

fn curve(
    curves: &LadderCurves,
    (x, y): (&Scale, &Scale),
    class: &str,
    value: impl Fn(&LevelPoint) -> Option<f64>,
    text: impl Fn(f64) -> String,
) -> Markup {
    let points = || {
        let known = curves.levels.iter().filter_map(|level| Some((level.load, value(level)?)));
        known.map(|(load, value)| (load, value, x.at(amount(load)), y.at(value)))
    };
    html! {
        path class={ "line " (class) } d=(path(points().map(|(_, _, x, y)| (x, y)))) {}
        @for (load, value, x, y) in points() {
            circle class={ "dot " (class) } cx=(place(x)) cy=(place(y)) r="3.5" {
                title { (text(value)) " at " (load_words(load)) }
            }
        }
    }
}

fn knee_mark(x: f64, knee: Load) -> Markup {
    let anchor = if x > f64::midpoint(LEFT, RIGHT) { "end" } else { "start" };
    let aside = if anchor == "end" { x - 5.0 } else { x + 5.0 };
    html! {
        line.knee x1=(place(x)) x2=(place(x)) y1=(place(UPPER.0)) y2=(place(LOWER.1)) {}
        // Below the throughput curve, which is high there, and out of the objective's way.
        text.knee x=(place(aside)) y=(place(LOWER.1 - 6.0)) text-anchor=(anchor) { "knee " (knee.short()) }
    }
}

/// Requests in flight, or per second.
fn amount(load: Load) -> f64 {
    match load {
        Load::Concurrency(concurrency) => concurrency.into(),
        Load::Rate(rate) => rate.per_second(),
    }
}

/// Whether a level's number has room beside the one before it.
fn roomy(levels: &[LevelPoint], index: usize, x: &Scale) -> bool {
    let at = |index: usize| levels.get(index).map(|level| x.at(amount(level.load)));
    let before = index.checked_sub(1).and_then(at);
    before.zip(at(index)).is_none_or(|(before, here)| here - before > 18.0)
}

/// The chart for whoever does not see it.
fn told(curves: &LadderCurves) -> String {
    let mut told = String::from("Time to first token and total throughput by load.");
    for level in &curves.levels {
        let ttft = level.ttft_p95.map_or_else(|| "unknown".into(), latency);
        let rate = level.throughput.map_or_else(|| "unknown".into(), tokens_per_second);
        let _ = write!(told, " {}: TTFT P95 {ttft}, {rate} tokens per second.", load_words(level.load));
    }
    if let Some(knee) = curves.knee {
        let _ = write!(told, " The knee is at {}.", load_words(knee));
    }
    told
}
