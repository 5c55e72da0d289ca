//! How steady a level was: the spread of its throughput over sub-windows, and whether Little's law holds.
//!
//! Pure arithmetic over spans; knows nothing of probes.

use super::interval::few_samples_factor;

/// Sub-windows at least and at most.
const PARTS_MIN: usize = 4;
const PARTS_MAX: usize = 20;
/// A request spans the border between two sub-windows of about its own length, so that neighbours resemble each
/// other and their spread alone understates the error: by this for segments of one length.
const NEIGHBOURS_FACTOR: f64 = 1.225;
/// What Little's law may be off by in any case ...
const LITTLE_TOLERANCE: f64 = 0.15;
/// ... and by requests that only partly lie in the window, as a share of one round.
const LITTLE_EDGE: f64 = 1.0;
/// Fewer rounds of a level's requests than this are all edge.
const LITTLE_ROUNDS_MIN: f64 = 2.0;

/// Standard error of a rate: jackknife over equal sub-windows (for a mean: the standard error of the sub-windows'
/// means), widened for their small number. `amount(from, to)` is what arrived between two shares of the window.
#[must_use]
pub(super) fn rate_error(
    window_seconds: f64,
    request_seconds: Option<f64>,
    amount: impl Fn(f64, f64) -> f64,
) -> Option<f64> {
    if window_seconds <= 0.0 {
        return None;
    }
    let rounds = request_seconds.filter(|length| *length > 0.0).map_or(0.0, |length| window_seconds / length);
    let parts = parts(rounds);
    let seconds = window_seconds / parts as f64;
    let edge = |index: usize| index as f64 / parts as f64;
    let rates: Vec<f64> = (0..parts).map(|i| amount(edge(i), edge(i + 1)) / seconds).collect();
    let mean = rates.iter().sum::<f64>() / parts as f64;
    let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
    let degrees = parts - 1;
    let error = (squares / degrees as f64 / parts as f64).sqrt();
    Some(error * NEIGHBOURS_FACTOR * few_samples_factor(degrees))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a small range")]
fn parts(rounds: f64) -> usize {
    (rounds.floor().clamp(PARTS_MIN as f64, PARTS_MAX as f64)) as usize
}

/// What Little's law makes of a level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Little {
    /// Requests per second times mean duration: how many were in flight on average.
    pub in_flight: f64,
    /// Whether that is the level's concurrency, within what its number of requests can tell.
    pub holds: bool,
}

/// Little's law: throughput x mean latency = concurrency. Where it does not hold, the level was not in a steady
/// state (or the prober did not keep it full), and its numbers describe no load in particular. `None` when the level
/// was too short to tell.
#[must_use]
pub(super) fn little(
    concurrency: u32,
    completed: usize,
    window_seconds: f64,
    mean_seconds: f64,
) -> Option<Little> {
    let concurrency = f64::from(concurrency);
    let rounds = completed as f64 / concurrency;
    if window_seconds <= 0.0 || rounds < LITTLE_ROUNDS_MIN {
        return None;
    }
    let in_flight = completed as f64 / window_seconds * mean_seconds;
    let tolerance = LITTLE_TOLERANCE + LITTLE_EDGE / rounds;
    Some(Little { in_flight, holds: (in_flight / concurrency - 1.0).abs() <= tolerance })
}
