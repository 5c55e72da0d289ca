//! How the time to first token grows with the length of the prompt: the exponent of a power law, with its interval.

use crate::analysis::{Interval, LevelSummary, interval::Z};

/// Lengths must differ by this factor to say anything.
const SPAN_MIN: f64 = 1.5;
/// What a median differs by when it is measured again, however well it is known.
const REPEAT_ERROR: f64 = 0.02;
/// A median whose interval is unknown is taken to be known this well.
const UNKNOWN_ERROR: f64 = 0.2;

/// The median time to first token at one prompt length, nothing else in flight if it can be helped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LengthPoint {
    /// Prompt tokens as the server counted them, or as wanted.
    pub prompt_tokens: f64,
    /// Median time to first token, seconds.
    pub ttft_seconds: f64,
    /// Standard error of its logarithm.
    pub relative_error: f64,
    /// The level's concurrency: only points of the same one are compared.
    pub concurrency: u32,
}

impl LengthPoint {
    /// Of a ladder's lowest level.
    #[must_use]
    pub fn of(level: &LevelSummary, prompt_tokens: u32) -> Option<Self> {
        let ttft = level.ttft_seconds.filter(|ttft| ttft.p50 > 0.0)?;
        let interval = ttft.intervals.p50;
        let error = match (interval.low, interval.high) {
            (Some(low), Some(high)) if low > 0.0 => (high / low).ln() / (2.0 * Z),
            _ => UNKNOWN_ERROR,
        };
        Some(Self {
            prompt_tokens: level.prompt_tokens_measured.unwrap_or(f64::from(prompt_tokens)),
            ttft_seconds: ttft.p50,
            relative_error: error.hypot(REPEAT_ERROR),
            concurrency: level.concurrency,
        })
    }
}

/// The fitted power law: time to first token ~ length ^ exponent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Growth {
    /// 1 when twice the prompt takes twice as long.
    pub exponent: f64,
    /// Where the exponent lies, 95%.
    pub interval: Interval,
    /// The shortest prompt.
    pub prompt_tokens_min: f64,
    /// The longest.
    pub prompt_tokens_max: f64,
}

/// Fits the power law to the points of the last one's concurrency: a line through the logarithms, each point weighted
/// by how well it is known. `None` when the lengths differ too little.
#[must_use]
pub fn growth(points: &[LengthPoint]) -> Option<Growth> {
    let concurrency = points.last()?.concurrency;
    let points: Vec<_> =
        points.iter().filter(|p| p.concurrency == concurrency && p.prompt_tokens > 0.0).collect();
    let lengths = || points.iter().map(|point| point.prompt_tokens);
    let (min, max) = (lengths().fold(f64::INFINITY, f64::min), lengths().fold(0.0, f64::max));
    if points.len() < 2 || max < min * SPAN_MIN {
        return None;
    }
    let logs =
        || points.iter().map(|p| (p.prompt_tokens.ln(), p.ttft_seconds.ln(), p.relative_error.powi(-2)));
    let weight: f64 = logs().map(|(.., w)| w).sum();
    let centre =
        |of: fn((f64, f64, f64)) -> f64| logs().map(|point| of(point) * point.2).sum::<f64>() / weight;
    let (x0, y0) = (centre(|(x, ..)| x), centre(|(_, y, _)| y));
    let spread: f64 = logs().map(|(x, _, w)| w * (x - x0).powi(2)).sum();
    let exponent = logs().map(|(x, y, w)| w * (x - x0) * (y - y0)).sum::<f64>() / spread;
    // What the points' own errors allow; more when they lie further from the line than that.
    let left: f64 = logs().map(|(x, y, w)| w * (y - y0 - exponent * (x - x0)).powi(2)).sum();
    let freedom = points.len().saturating_sub(2);
    let misfit = if freedom > 0 { (left / freedom as f64).max(1.0) } else { 1.0 };
    let half = Z * (misfit / spread).sqrt();
    let interval = Interval::new(exponent - half, exponent + half);
    Some(Growth { exponent, interval, prompt_tokens_min: min, prompt_tokens_max: max })
}
