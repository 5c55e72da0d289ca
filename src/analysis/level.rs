//! From the samples of one level to its statistics.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

use super::{
    LevelSummary, Little, Percentiles, Traits,
    percentile::percentile,
    steady::{little, rate_error},
};
use crate::{
    engine::FirstTokens,
    measurement::{ConnectionUse, Failure, FailureClass, Flag, Measurement, Outcome, TokenSource},
};

/// What a level's statistics need of one probe: small, and of the same size whatever the answer's length.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts of one probe, counted one by one")]
pub struct Sample {
    /// When the probe started, since the level began.
    pub started: Duration,
    /// Whether the sample counts as a request of the level; a warm-up only contributes its tokens to the window.
    pub measured: bool,
    failure: Option<FailureClass>,
    /// Got a whole answer, though perhaps all at once.
    pub(super) answered: bool,
    ttft: Option<Duration>,
    first_answer_token: Option<Duration>,
    tpot: Option<Duration>,
    request_tps: Option<f64>,
    pub(super) duration: Duration,
    pub(super) late: Option<Duration>,
    first_token: Option<Duration>,
    last_token: Option<Duration>,
    output_tokens: u64,
    prompt_tokens: Option<u64>,
    cached_tokens: Option<u64>,
    /// Output tokens, when the server counted them.
    counted_output: Option<u64>,
    habits: Habits,
    context_refused: bool,
    served_model: Option<u64>,
    fingerprint: Option<u64>,
}

/// What an endpoint may do to every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Habits {
    opened_connection: bool,
    burst: bool,
    hidden_reasoning: bool,
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
            late: line.late,
            first_token: line.first_token(),
            last_token: line.last_token,
            output_tokens: measurement.tokens.output.unwrap_or(0),
            prompt_tokens: measurement.tokens.prompt,
            cached_tokens: measurement.tokens.cached_prompt,
            counted_output: measurement.tokens.output.filter(|_| counted),
            habits: Habits {
                opened_connection: measurement.connection == ConnectionUse::New,
                burst: measurement.flags.contains(&Flag::Burst),
                hidden_reasoning: measurement.flags.contains(&Flag::HiddenReasoning),
            },
            context_refused: measurement.outcome.failure().is_some_and(Failure::is_context_length),
            served_model: measurement.served_model.as_deref().map(hash),
            fingerprint: measurement.fingerprint.as_deref().map(hash),
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

impl FullWindow {
    fn seconds(self) -> f64 {
        self.to.saturating_sub(self.from).as_secs_f64()
    }

    /// The part between two shares of it.
    fn part(self, from: f64, to: f64) -> Self {
        let length = self.to.saturating_sub(self.from);
        let at = |share: f64| self.from + length.mul_f64(share.clamp(0.0, 1.0));
        Self { from: at(from), to: at(to) }
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
    let any_ok = good().next().is_some();
    let flow =
        window.filter(|window| window.seconds() > 0.0 && any_ok).map(|w| Flow::of(concurrency, samples, w));
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
        throughput_tokens_per_second: flow.map(|flow| flow.tokens_per_second),
        throughput_standard_error: flow.and_then(|flow| flow.standard_error),
        throughput_requests_per_second: flow.map(|flow| flow.requests_per_second),
        prompt_tokens_measured: mean(good().filter_map(|sample| sample.prompt_tokens)),
        cached_ratio: cached_ratio(&measured),
        client_saturated,
        incomplete,
        little: flow.and_then(|flow| flow.little),
        offered: None,
        traits: traits(&measured),
        engine: None,
    }
}

/// Times to first token of all good requests, warm-ups and fillers too; `None` when there was none.
#[must_use]
pub fn first_tokens(samples: &[Sample]) -> Option<FirstTokens> {
    let times = || samples.iter().filter_map(|sample| sample.ttft).map(|ttft| ttft.as_secs_f64());
    let number = count(times().count());
    (number > 0)
        .then(|| FirstTokens { count: number, mean_seconds: times().sum::<f64>() / f64::from(number) })
}

/// What passed through a level while it was full.
#[derive(Clone, Copy)]
struct Flow {
    tokens_per_second: f64,
    standard_error: Option<f64>,
    requests_per_second: f64,
    little: Option<Little>,
}

impl Flow {
    fn of(concurrency: u32, samples: &[Sample], window: FullWindow) -> Self {
        let seconds = window.seconds();
        let ended = || samples.iter().filter(|s| s.ended() > window.from && s.ended() <= window.to);
        let good = ended().filter(|sample| sample.failure.is_none()).count();
        let completed = ended().count();
        let mean_seconds = ended().map(|s| s.duration.as_secs_f64()).sum::<f64>() / completed.max(1) as f64;
        let tokens = |window| samples.iter().map(|sample| sample.tokens_within(window)).sum::<f64>();
        let request_seconds = (completed > 0).then_some(mean_seconds);
        Self {
            tokens_per_second: tokens(window) / seconds,
            standard_error: rate_error(seconds, request_seconds, |from, to| tokens(window.part(from, to))),
            requests_per_second: good as f64 / seconds,
            little: little(concurrency, completed, seconds, mean_seconds),
        }
    }
}

fn traits(measured: &[&Sample]) -> Traits {
    let good = || measured.iter().filter(|sample| sample.failure.is_none());
    let with = |holds: fn(&Sample) -> bool| count(good().filter(|sample| holds(sample)).count());
    let mut outputs: Vec<f64> = good().filter_map(|s| s.counted_output).map(|tokens| tokens as f64).collect();
    outputs.sort_by(f64::total_cmp);
    Traits {
        connections_opened: with(|sample| sample.habits.opened_connection),
        bursts: with(|sample| sample.habits.burst),
        hidden_reasoning: with(|sample| sample.habits.hidden_reasoning),
        context_refusals: count(measured.iter().filter(|sample| sample.context_refused).count()),
        output_tokens_p50: percentile(&outputs, 0.5),
        served_models: good().filter_map(|sample| sample.served_model).collect(),
        fingerprints: good().filter_map(|sample| sample.fingerprint).collect(),
    }
}

/// A name's stand-in: equal names have equal ones, and none needs memory of its own.
fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
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
