//! From the samples of one level to its statistics.

use std::{collections::BTreeMap, time::Duration};

use super::{LevelSummary, Percentiles};
use crate::measurement::{FailureClass, Measurement, Outcome, TokenSource};

/// What a level's statistics need of one probe: small, and of the same size whatever the answer's length.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// When the probe started, since the level began.
    pub started: Duration,
    /// Whether the sample counts as a request of the level; a warm-up only contributes its tokens to the window.
    pub measured: bool,
    failure: Option<FailureClass>,
    /// Got a whole answer, though perhaps all at once.
    answered: bool,
    ttft: Option<Duration>,
    first_answer_token: Option<Duration>,
    tpot: Option<Duration>,
    request_tps: Option<f64>,
    duration: Duration,
    first_token: Option<Duration>,
    last_token: Option<Duration>,
    output_tokens: u64,
    prompt_tokens: Option<u64>,
    cached_tokens: Option<u64>,
}

/// The part of a level during which as many requests were in flight as its concurrency asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FullWindow {
    /// Since the level began.
    pub from: Duration,
    /// Since the level began.
    pub to: Duration,
}

impl Sample {
    /// Of a probe that started `started` after the level began.
    #[must_use]
    pub fn of(measurement: &Measurement, started: Duration, measured: bool) -> Self {
        let ok = measurement.is_ok();
        // A count of chunks is a lower bound of the tokens: a time per token made from it would be too long.
        let counted = !matches!(measurement.tokens.source, TokenSource::ChunkCount | TokenSource::None);
        let line = &measurement.timeline;
        Self {
            started,
            measured,
            failure: measurement.outcome.failure().map(|failure| failure.class),
            answered: matches!(measurement.outcome, Outcome::Ok | Outcome::Unmeasurable(_)),
            ttft: line.first_token().filter(|_| ok),
            first_answer_token: line.first_answer_token.filter(|_| ok),
            tpot: measurement.time_per_output_token().filter(|_| ok && counted),
            request_tps: measurement.output_tokens_per_second().filter(|_| ok && counted),
            duration: line.end,
            first_token: line.first_token(),
            last_token: line.last_token,
            output_tokens: measurement.tokens.output.unwrap_or(0),
            prompt_tokens: measurement.tokens.prompt,
            cached_tokens: measurement.tokens.cached_prompt,
        }
    }

    /// How many of the sample's tokens arrived inside the window. Only the first and the last arrival are kept,
    /// so the tokens between them are taken as evenly spread.
    fn tokens_within(&self, window: FullWindow) -> f64 {
        let (Some(first), Some(last)) = (self.first_token, self.last_token) else { return 0.0 };
        let (first, last) = (self.started + first, self.started + last);
        let within = |at: Duration| at > window.from && at <= window.to;
        let tokens = self.output_tokens as f64;
        if self.output_tokens < 2 || last <= first {
            return if within(first) { tokens } else { 0.0 };
        }
        let spread = last.saturating_sub(first).as_secs_f64();
        let share = |edge: Duration| (edge.saturating_sub(first).as_secs_f64() / spread).min(1.0);
        let head = if within(first) { 1.0 } else { 0.0 };
        head + (tokens - 1.0) * (share(window.to) - share(window.from))
    }

    fn ended(&self) -> Duration {
        self.started + self.duration
    }
}

/// The statistics of a level. `window` is `None` when the level was never full.
#[must_use]
pub fn summarize(
    concurrency: u32,
    samples: &[Sample],
    window: Option<FullWindow>,
    client_saturated: Option<bool>,
    incomplete: bool,
) -> LevelSummary {
    let measured: Vec<&Sample> = samples.iter().filter(|sample| sample.measured).collect();
    let good = || measured.iter().filter(|sample| sample.failure.is_none());
    let mut failures = BTreeMap::new();
    for class in measured.iter().filter_map(|sample| sample.failure) {
        *failures.entry(class).or_insert(0) += 1;
    }
    let length = window.map(|w| w.to.saturating_sub(w.from).as_secs_f64()).filter(|length| *length > 0.0);
    let per_second = |amount: f64| length.map(|length| amount / length);
    let (mut tokens, mut ended) = (0.0, 0.0);
    if let Some(window) = window {
        tokens = samples.iter().map(|sample| sample.tokens_within(window)).sum();
        let inside = |s: &&Sample| s.failure.is_none() && s.ended() > window.from && s.ended() <= window.to;
        ended = samples.iter().filter(inside).count() as f64;
    }
    let any_ok = good().next().is_some();
    LevelSummary {
        concurrency,
        requests: count(measured.len()),
        ok: count(good().count()),
        failures,
        ttft_seconds: Percentiles::of_durations(good().filter_map(|sample| sample.ttft)),
        first_answer_token_seconds: Percentiles::of_durations(
            good().filter_map(|sample| sample.first_answer_token),
        ),
        tpot_seconds: Percentiles::of_durations(good().filter_map(|sample| sample.tpot)),
        request_tps: Percentiles::of(good().filter_map(|sample| sample.request_tps).collect()),
        duration_seconds: Percentiles::of_durations(
            measured.iter().filter(|sample| sample.answered).map(|sample| sample.duration),
        ),
        throughput_tokens_per_second: per_second(tokens).filter(|_| any_ok),
        throughput_requests_per_second: per_second(ended).filter(|_| any_ok),
        prompt_tokens_measured: mean(good().filter_map(|sample| sample.prompt_tokens)),
        cached_ratio: cached_ratio(&measured),
        client_saturated,
        incomplete,
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn mean(values: impl Iterator<Item = u64>) -> Option<f64> {
    let (count, sum) = values.fold((0_u64, 0_u64), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum as f64 / count as f64)
}

/// Unknown unless the server says how much it took from its cache.
fn cached_ratio(samples: &[&Sample]) -> Option<f64> {
    let known = samples.iter().filter_map(|sample| Some((sample.cached_tokens?, sample.prompt_tokens?)));
    let (cached, prompt) = known.fold((0_u64, 0_u64), |(cached, prompt), (c, p)| (cached + c, prompt + p));
    (prompt > 0).then(|| cached as f64 / prompt as f64)
}
