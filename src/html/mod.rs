//! HTML and SVG: what the status page and the self-contained report are made of.
//!
//! Pure: numbers in, markup out; no file, socket or clock, so that one chart serves both. Markup is written with maud:
//! checked and escaped when the program is compiled, and charts are functions that return it like any other part.
//! Charts are drawn here and not by a library: five shapes, whose colours come from the style sheet (a strict
//! Content-Security-Policy allows no styles in attributes), do not earn one.
//!
//! Every chart has a text alternative, and stands beside a table with the same numbers.

mod chart;
mod compared;
mod configuration;
mod distribution;
mod failed;
mod findings;
mod ladder;
mod levels;
mod number;
mod time_series;
mod timeline;

#[cfg(test)]
mod tests;

pub use self::{
    compared::comparison,
    configuration::settings,
    distribution::distribution,
    failed::probe_details,
    findings::findings,
    ladder::{LadderCurves, LevelPoint, ladder_chart},
    levels::{LevelRow, Quantiles, level_rows, levels_table},
    number::{
        capacity, grouped, instant, latency, latency_low, load_words, moment, percent_change, span,
        tokens_per_second,
    },
    time_series::{Line, Moments, Unit, Window, sparkline, time_chart},
    timeline::timeline,
};

/// Style sheet of page and report: light or dark as the reader's system is, and for paper.
pub const STYLE: &str = include_str!("style.css");
/// The mark, as SVG.
pub const ICON: &str = include_str!("icon.svg");
