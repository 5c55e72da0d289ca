//! What became of a number over time: a sparkline beside it, and a chart that a range can be chosen in.

use std::fmt::Write as _;

use chrono::{DateTime, Datelike as _, Months, NaiveTime, Utc};
use maud::{Markup, html};

use super::{
    chart::{Scale, horizontal_grid, latency_tick, path, place, rate_tick, round},
    number::{latency, tokens_per_second},
};

/// A span of time, in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Its begin.
    pub from: i64,
    /// Its end.
    pub to: i64,
}

/// One line of a chart.
pub struct Line<'a> {
    /// Names its colour in the style sheet.
    pub class: &'static str,
    /// What it shows.
    pub name: &'a str,
    /// When and how much, ascending in time.
    pub points: Vec<(i64, f64)>,
}

/// What a chart's values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A time.
    Seconds,
    /// Tokens per second.
    Rate,
    /// A share of all, 0 to 1.
    Share,
}

impl Unit {
    fn tick(self, value: f64) -> String {
        match self {
            Self::Seconds => latency_tick(value),
            Self::Rate => rate_tick(value),
            Self::Share => format!("{}%", round(value * 100.0)),
        }
    }

    fn text(self, value: f64) -> String {
        match self {
            Self::Seconds => latency(value),
            Self::Rate => tokens_per_second(value),
            Self::Share => format!("{:.1}%", value * 100.0),
        }
    }
}

/// A chart over time.
pub struct Moments<'a> {
    /// What is shown.
    pub title: &'a str,
    /// The span that is shown.
    pub window: Window,
    /// What is drawn.
    pub lines: Vec<Line<'a>>,
    /// A limit that is drawn across.
    pub objective: Option<f64>,
    /// What is measured.
    pub unit: Unit,
}

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 178.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 526.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 148.0;

/// The lines over their window. `data-*` tell the page's script where the plot lies, for a range to be drawn in it.
#[must_use]
pub fn time_chart(moments: &Moments<'_>) -> Markup {
    let Window { from, to } = moments.window;
    let x = Scale::linear((from as f64, to as f64), (LEFT, RIGHT));
    let values = moments.lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value);
    let highest = values.fold(0.0, f64::max);
    let objective = moments.objective.filter(|objective| *objective < highest * 4.0);
    let y = Scale::from_zero(highest.max(objective.unwrap_or(0.0)), (BOTTOM, TOP));
    html! {
        svg.chart.moments viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(told(moments))
            data-from=(from) data-to=(to) data-left=(LEFT) data-right=(RIGHT) data-width=(WIDTH) {
            text.axis x=(place(LEFT)) y="14" {
                (moments.title)
                @for line in &moments.lines { tspan class={ "key " (line.class) } { "   ● " (line.name) } }
            }
            (horizontal_grid(&y, (LEFT, RIGHT), |value| moments.unit.tick(value)))
            @for (at, text) in time_ticks(moments.window) {
                line.grid x1=(place(x.at(at as f64))) x2=(place(x.at(at as f64))) y1=(place(BOTTOM)) y2=(place(BOTTOM + 4.0)) {}
                text.tick x=(place(x.at(at as f64))) y=(place(BOTTOM + 20.0)) text-anchor="middle" { (text) }
            }
            @if let Some(objective) = objective {
                line.objective x1=(place(LEFT)) x2=(place(RIGHT)) y1=(place(y.at(objective))) y2=(place(y.at(objective))) {}
                text.objective x=(place(RIGHT)) y=(place(y.at(objective) - 4.0)) text-anchor="end" { "objective" }
            }
            @for line in &moments.lines {
                path class={ "line " (line.class) } d=(path(line.points.iter().map(|(at, value)| (x.at(*at as f64), y.at(*value))))) {}
                @if let [(at, value)] = line.points.as_slice() {
                    circle class={ "dot " (line.class) } cx=(place(x.at(*at as f64))) cy=(place(y.at(*value))) r="3" {}
                }
            }
            rect.brush x="0" y=(place(TOP)) width="0" height=(place(BOTTOM - TOP)) {}
        }
    }
}

/// A line as small as a word; nothing where there are fewer than two points.
#[must_use]
pub fn sparkline(values: &[f64], told: &str) -> Markup {
    let (Some(last), true) = (values.last(), values.len() > 1) else {
        return html! { span.none { "–" } };
    };
    let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
    let x = Scale::linear((0.0, values.len() as f64 - 1.0), (2.0, 116.0));
    // A line that hardly moves is to look flat, not wild.
    let slack = (high * 0.1 - (high - low)).max(0.0) / 2.0;
    let y = Scale::linear((low - slack, high + slack), (25.0, 3.0));
    let places = values.iter().enumerate().map(|(index, value)| (x.at(index as f64), y.at(*value)));
    html! {
        svg.spark viewBox="0 0 120 28" role="img" aria-label=(told) {
            path.line d=(path(places)) {}
            circle.dot cx="116" cy=(place(y.at(*last))) r="2.5" {}
        }
    }
}

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// Steps between ticks of a time axis.
const STEPS: [i64; 16] = [
    5_000,
    15_000,
    30_000,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    30 * MINUTE,
    HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    7 * DAY,
    14 * DAY,
];
/// Months between ticks of a longer axis.
const MONTHS: [u32; 5] = [1, 2, 3, 6, 12];
/// Most steps of a time axis: letters grow on a phone.
const TIME_STEPS_MAX: i64 = 5;

/// Round instants within a window, in UTC, with how they are written.
fn time_ticks(window: Window) -> Vec<(i64, String)> {
    let Window { from, to } = window;
    let fits = |step: &&i64| (to - from) / **step <= TIME_STEPS_MAX;
    let Some(step) = STEPS.iter().find(fits).copied() else { return month_ticks(window) };
    let format = |at: i64| match step {
        _ if step < MINUTE => "%H:%M:%S",
        // Midnight says which day begins.
        _ if step < DAY && at.rem_euclid(DAY) > 0 => "%H:%M",
        _ => "%b %-d",
    };
    let first = from.div_euclid(step) + i64::from(from.rem_euclid(step) > 0);
    let ticks = (first..).map(|n| n * step).take_while(|at| *at <= to).take(16);
    let written = |at: i64| {
        let text = DateTime::<Utc>::from_timestamp_millis(at).map(|time| time.format(format(at)).to_string());
        (at, text.unwrap_or_default())
    };
    ticks.map(written).collect()
}

/// The first days of months within a window.
fn month_ticks(Window { from, to }: Window) -> Vec<(i64, String)> {
    let fits = |months: &&u32| (to - from) / (i64::from(**months) * 30 * DAY) <= TIME_STEPS_MAX;
    let months = MONTHS.iter().find(fits).copied().unwrap_or(60);
    let Some(begin) = DateTime::<Utc>::from_timestamp_millis(from) else { return Vec::new() };
    let Some(january) = begin.date_naive().with_day(1).and_then(|day| day.with_month(1)) else {
        return Vec::new();
    };
    let starts = (0..).map_while(|n| january.checked_add_months(Months::new(n * months)));
    let instants = starts.map(|day| (day.and_time(NaiveTime::MIN).and_utc().timestamp_millis(), day));
    let within = instants.skip_while(|(at, _)| *at < from).take_while(|(at, _)| *at <= to).take(16);
    within.map(|(at, day)| (at, day.format("%b %Y").to_string())).collect()
}

fn told(moments: &Moments<'_>) -> String {
    let mut told = format!("{} over time.", moments.title);
    for line in &moments.lines {
        let values = || line.points.iter().map(|(_, value)| *value);
        let Some(last) = values().next_back() else { continue };
        let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max));
        let label = |value| moments.unit.text(value);
        let _ = write!(told, " {}: {} to {}, last {}.", line.name, label(low), label(high), label(last));
    }
    told
}
